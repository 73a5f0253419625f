//! A document as its clients write it: JSON with special members.
//!
//! The members that begin with an underscore are taken out; what is left is the body, in canonical text.

use crate::attachment::{Attachment, Given};
use crate::error::{Error, Result};
use crate::json::{Json, Kind, canonical, unquote};
use crate::revision::{Revision, RevisionId};

/// What a replicator notes in documents of its own. It stays in the body.
const REPLICATOR_MEMBERS: [&str; 5] = [
    "\"_replication_id\"",
    "\"_replication_state\"",
    "\"_replication_state_reason\"",
    "\"_replication_state_time\"",
    "\"_replication_stats\"",
];

/// A document that is to be written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Document {
    /// Its identifier; empty if the database is to choose one.
    pub id: String,
    /// The revision that it updates, or that it is (replicated edits).
    pub revision: Option<Revision>,
    /// Whether it deletes the document.
    pub deleted: bool,
    /// An object in canonical text, without special members.
    pub body: String,
    /// Its attachments, in the order in which they were named.
    pub attachments: Vec<Attachment>,
    /// Its own revision and its ancestors', newest first (replicated edits).
    pub history: Vec<Revision>,
}

impl Document {
    /// Reads a document from its JSON.
    ///
    /// ```
    /// use waystation_documents::Document;
    /// let car = Document::parse(br#"{"_id": "car-7", "speed": 52}"#)?;
    /// assert_eq!((car.id.as_str(), car.body.as_str()), ("car-7", r#"{"speed":52}"#));
    /// # Ok::<(), waystation_documents::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BadRequest`] if it is no JSON or no object, [`Error::DocumentValidation`] if a special member is
    /// unknown or wrong, [`Error::IllegalId`].
    pub fn parse(json: &[u8]) -> Result<Self> {
        let text = canonical(json).map_err(|_| Error::BadRequest("invalid UTF-8 JSON".into()))?;
        Self::from_json(Json::new(&text))
    }

    /// Reads a document from canonical JSON.
    ///
    /// # Errors
    /// As [`Document::parse`].
    pub fn from_json(json: Json<'_>) -> Result<Self> {
        if json.kind() != Kind::Object {
            return Err(Error::BadRequest("Document must be a JSON object".into()));
        }
        let mut document = Self::default();
        let mut body = String::with_capacity(json.text().len());
        for (quoted, value) in json.members() {
            if quoted.starts_with("\"_") && !REPLICATOR_MEMBERS.contains(&quoted) {
                document.take_special(&unquote(quoted), value)?;
                continue;
            }
            body.push(if body.is_empty() { '{' } else { ',' });
            body.push_str(quoted);
            body.push(':');
            body.push_str(value.text());
        }
        body.push_str(if body.is_empty() { "{}" } else { "}" });
        document.body = body;
        Ok(document)
    }

    fn take_special(&mut self, name: &str, value: Json<'_>) -> Result<()> {
        match name {
            "_id" => {
                let id = value
                    .string()
                    .ok_or_else(|| Error::IllegalId("Document id must be a string".into()))?;
                check_id(&id)?;
                self.id = id.into_owned();
            }
            "_rev" => self.revision = Some(text(name, value)?.parse()?),
            "_deleted" => {
                self.deleted = value.boolean().ok_or_else(|| wrong(name))?;
            }
            "_revisions" => self.history = history(value)?,
            "_attachments" => {
                if value.kind() != Kind::Object {
                    return Err(wrong(name));
                }
                let attachment =
                    |(name, value)| Attachment::parse(unquote(name).into_owned(), value);
                self.attachments = value.members().map(attachment).collect::<Result<_>>()?;
            }
            // Answers have these; a client may send them back.
            "_revs_info" | "_conflicts" | "_deleted_conflicts" | "_local_seq" => {}
            other => {
                let reason = format!("Bad special document member: {other}");
                return Err(Error::DocumentValidation(reason));
            }
        }
        Ok(())
    }

    /// The revision and its ancestors, newest first, of a replicated edit.
    pub(crate) fn replicated_path(&self) -> Result<Vec<Revision>> {
        // `_revisions` has the say where `_rev` is another one, as in CouchDB.
        let path = if self.history.is_empty() {
            self.revision.iter().cloned().collect()
        } else {
            self.history.clone()
        };
        match path.first() {
            None => Err(Error::BadRequest("Document must have a _rev".into())),
            Some(newest) if newest.generation == 0 => {
                Err(Error::BadRequest("Invalid rev format".into()))
            }
            Some(_) => Ok(path),
        }
    }

    /// Whether it names attachments without their bytes.
    pub(crate) fn has_stubs(&self) -> bool {
        self.attachments
            .iter()
            .any(|it| matches!(it.content, Given::Stub))
    }
}

/// Checks that a document may be called `id`.
pub(crate) fn check_id(id: &str) -> Result<()> {
    let is_reserved =
        id.starts_with('_') && !id.starts_with("_design/") && !id.starts_with("_local/");
    match id {
        "" => Err(Error::IllegalId("Document id must not be empty".into())),
        "_design/" | "_local/" => Err(Error::IllegalId("Illegal document id `_design/`".into())),
        _ if is_reserved => Err(Error::IllegalId(
            "Only reserved document ids may start with underscore.".into(),
        )),
        _ => Ok(()),
    }
}

fn history(value: Json<'_>) -> Result<Vec<Revision>> {
    let wrong = || wrong("_revisions");
    let start = value.member("start").and_then(Json::integer);
    let ids = value.member("ids").filter(|ids| ids.kind() == Kind::Array);
    let (Some(start), Some(ids)) = (start, ids) else {
        return Err(wrong());
    };
    let start = u64::try_from(start).map_err(|_| wrong())?;
    let mut path = Vec::new();
    for (back, id) in ids.elements().enumerate() {
        let generation = start.checked_sub(back as u64);
        // Only local documents have a revision of generation 0, and no other.
        let generation = generation.filter(|it| *it > 0 || start == 0);
        let generation = generation.ok_or_else(wrong)?;
        let id: RevisionId = id.string().ok_or_else(wrong)?.parse()?;
        path.push(Revision { generation, id });
    }
    Ok(path)
}

fn text<'a>(name: &str, value: Json<'a>) -> Result<std::borrow::Cow<'a, str>> {
    value.string().ok_or_else(|| wrong(name))
}

fn wrong(name: &str) -> Error {
    Error::DocumentValidation(format!(
        "The member {name} holds something else than it should"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_members_are_taken_out() -> Result<()> {
        let json = br#"{"_id":"a","x":1,"_rev":"2-b","_deleted":true,"_conflicts":[],"y":{"_z":1},
            "_revisions":{"start":2,"ids":["b","a"]}}"#;
        let document = Document::parse(json)?;
        assert_eq!(document.body, r#"{"x":1,"y":{"_z":1}}"#);
        assert!(document.deleted);
        let path: Vec<String> = document
            .replicated_path()?
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(path, ["2-b", "1-a"]);
        let other = br#"{"_rev":"3-b","_revisions":{"start":2,"ids":["b","a"]}}"#;
        assert_eq!(
            Document::parse(other)?.replicated_path()?,
            document.replicated_path()?
        );
        assert_eq!(Document::parse(b"{}")?.body, "{}");
        Ok(())
    }

    #[test]
    fn wrong_documents_are_refused() {
        let cases = [
            ("[]", "bad_request"),
            ("{", "bad_request"),
            (r#"{"_foo":1}"#, "doc_validation"),
            (r#"{"_id":1}"#, "illegal_docid"),
            (r#"{"_id":"_x"}"#, "illegal_docid"),
            (r#"{"_id":""}"#, "illegal_docid"),
            (r#"{"_rev":"x"}"#, "bad_request"),
            (
                r#"{"_revisions":{"start":0,"ids":["1","0"]}}"#,
                "doc_validation",
            ),
            (r#"{"_rev":1}"#, "doc_validation"),
            (r#"{"_deleted":1}"#, "doc_validation"),
            (r#"{"_attachments":[]}"#, "doc_validation"),
            (
                r#"{"_revisions":{"start":1,"ids":["b","a"]}}"#,
                "doc_validation",
            ),
            (r#"{"_revisions":{"ids":["b","a"]}}"#, "doc_validation"),
        ];
        for (json, word) in cases {
            let error = Document::parse(json.as_bytes()).expect_err(json);
            assert_eq!(error.word(), word, "{json}");
        }
    }
}
