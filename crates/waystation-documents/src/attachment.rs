//! Attachments: bytes beside the body, stored once by their digest.

use crate::error::{Error, Result};
use crate::json::{Json, Kind};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::{Digest, Md5};
use waystation_format::FormatError;
use waystation_format::varint::{Reader, put_length_prefixed, put_u64};

/// Bytes of a digest.
const DIGEST_BYTES: usize = 16;

/// The MD5 of an attachment's bytes, which names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentDigest(pub(crate) [u8; DIGEST_BYTES]);

impl ContentDigest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Md5::digest(bytes).into())
    }
}

impl std::fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "md5-{}", STANDARD.encode(self.0))
    }
}

/// What a client gave of an attachment's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given {
    /// The bytes.
    Bytes(Vec<u8>),
    /// Nothing: the revision before has them.
    Stub,
    /// Nothing yet: so many bytes follow the document, and take this one's place before it is written.
    Follows(u64),
}

/// An attachment of a document that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    /// Its name within the document.
    pub name: String,
    /// Its media type.
    pub content_type: String,
    /// The generation at which it was attached (replicated edits); others attach with this update.
    pub revpos: Option<u64>,
    /// Its bytes.
    pub content: Given,
}

impl Attachment {
    /// Reads a member of `_attachments`.
    pub(crate) fn parse(name: String, json: Json<'_>) -> Result<Self> {
        let wrong =
            |reason: &str| Error::BadRequest(format!("The attachment {name} {reason}").into());
        if json.kind() != Kind::Object {
            return Err(wrong("is no object"));
        }
        if name.starts_with('_') {
            let reason = format!("Attachment name '{name}' starts with prohibited character '_'");
            return Err(Error::BadRequest(reason.into()));
        }
        let is_stub = json.member("stub").and_then(Json::boolean) == Some(true);
        let follows = json.member("follows").and_then(Json::boolean) == Some(true);
        let length = json.member("length").and_then(Json::integer);
        let content = if is_stub {
            Given::Stub
        } else if follows {
            let length = length.and_then(|it| u64::try_from(it).ok());
            Given::Follows(length.ok_or_else(|| wrong("follows without a length"))?)
        } else {
            let data = json.member("data").and_then(Json::string);
            let data = data.ok_or_else(|| wrong("has neither data nor a stub"))?;
            let bytes = STANDARD.decode(data.as_bytes());
            Given::Bytes(bytes.map_err(|_| wrong("has data that are no base64"))?)
        };
        let content_type = json.member("content_type").and_then(Json::string);
        let revpos = json.member("revpos").and_then(Json::integer);
        Ok(Self {
            content_type: content_type
                .unwrap_or("application/octet-stream".into())
                .into_owned(),
            revpos: revpos.and_then(|it| u64::try_from(it).ok()),
            content,
            name,
        })
    }
}

/// What is stored of an attachment beside its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachmentInfo {
    /// Its name within the document.
    pub name: String,
    /// Its media type.
    pub content_type: String,
    /// The generation at which it was attached.
    pub revpos: u64,
    /// Names its bytes.
    pub digest: ContentDigest,
    /// How many bytes it has.
    pub length: u64,
}

impl AttachmentInfo {
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_length_prefixed(out, self.name.as_bytes());
        put_length_prefixed(out, self.content_type.as_bytes());
        put_u64(out, self.revpos);
        out.extend_from_slice(&self.digest.0);
        put_u64(out, self.length);
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let offset = reader.offset() as u64;
        let mut text = |what| {
            let bytes = reader.length_prefixed(what)?;
            let reason = "the name or type of an attachment is no text";
            let malformed = |_| FormatError::Malformed { offset, reason };
            String::from_utf8(bytes.to_vec()).map_err(malformed)
        };
        let (name, content_type) = (text("name")?, text("content type")?);
        let revpos = reader.var_u64("generation of an attachment")?;
        let mut digest = [0; DIGEST_BYTES];
        digest.copy_from_slice(reader.take(DIGEST_BYTES, "digest of an attachment")?);
        Ok(Self {
            name,
            content_type,
            revpos,
            digest: ContentDigest(digest),
            length: reader.var_u64("length of an attachment")?,
        })
    }
}
