//! The side file `WAYSTATION`: what the engine must remember and LevelDB's MANIFEST has no field for.
//!
//! ```text
//! magic       8 bytes   "WAYSTATN"
//! format      u32       1; never reuse a number
//! comparator  string    the key order's name before our fence
//! pins        u32 count, then per pin:
//!   manifest  u64       number
//!   bytes     u64       length of what the digest covers
//!   digest    u32       crc32c of the manifest's first `bytes` bytes
//!   exact     u8        1: the manifest has this length; 0: it may have grown since
//! entries     u32 count, then per entry: key (string), value (string)
//! checksum    u32       masked crc32c of everything before
//! ```
//!
//! Integers are little-endian; a string is a varint length and its bytes.
//!
//! The *pins* say which MANIFEST this file belongs to. LevelDB never looks at this file, so after it has
//! written to the directory nothing here can be believed; it always leaves a MANIFEST with another number, or
//! (with `reuse_logs`) a longer one than the exact pin of a clean close allows. While CURRENT changes hands
//! there are two pins, the old and the new MANIFEST's.

use std::collections::BTreeMap;
use waystation_format::FormatError;
use waystation_format::checksum::{crc32c, mask};
use waystation_format::varint::{Reader, put_length_prefixed};

const MAGIC: &[u8; 8] = b"WAYSTATN";
const FORMAT: u32 = 1;

/// What the rooms above keep in the side file: names and bytes that mean nothing here.
pub(crate) type State = BTreeMap<String, Vec<u8>>;

/// Names a MANIFEST by number, length and content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pin {
    /// Its file number.
    pub manifest: u64,
    /// How many of its bytes the digest covers.
    pub bytes: u64,
    /// The crc32c of those bytes.
    pub digest: u32,
    /// Whether there may be no bytes behind them.
    pub exact: bool,
}

impl Pin {
    /// Whether manifest `number` with this `content` is the pinned one.
    pub(crate) fn matches(&self, number: u64, content: &[u8]) -> bool {
        let Some(covered) = usize::try_from(self.bytes)
            .ok()
            .and_then(|end| content.get(..end))
        else {
            return false;
        };
        self.manifest == number
            && (!self.exact || covered.len() == content.len())
            && crc32c(covered) == self.digest
    }
}

/// The content of the side file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SideFile {
    /// The name of the key order without our fence.
    pub comparator: String,
    /// The manifests this file belongs to.
    pub pins: Vec<Pin>,
    /// What the rooms above keep.
    pub state: State,
}

impl SideFile {
    /// The bytes of the file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::from(MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        put_length_prefixed(&mut out, self.comparator.as_bytes());
        out.extend_from_slice(&(self.pins.len() as u32).to_le_bytes());
        for pin in &self.pins {
            out.extend_from_slice(&pin.manifest.to_le_bytes());
            out.extend_from_slice(&pin.bytes.to_le_bytes());
            out.extend_from_slice(&pin.digest.to_le_bytes());
            out.push(u8::from(pin.exact));
        }
        out.extend_from_slice(&(self.state.len() as u32).to_le_bytes());
        for (key, value) in &self.state {
            put_length_prefixed(&mut out, key.as_bytes());
            put_length_prefixed(&mut out, value);
        }
        let checksum = mask(crc32c(&out));
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the file, or says why it cannot be: damaged, or written by a newer version.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, SideFileError> {
        let Some((covered, checksum)) = bytes.split_last_chunk::<4>() else {
            return Err(SideFileError::Damaged(0, "it is shorter than its checksum"));
        };
        let Some((magic, after_magic)) = covered.split_first_chunk::<8>() else {
            return Err(SideFileError::Damaged(
                0,
                "it is shorter than its magic number",
            ));
        };
        if magic != MAGIC {
            return Err(SideFileError::Damaged(
                0,
                "it does not begin with its magic number",
            ));
        }
        if mask(crc32c(covered)) != u32::from_le_bytes(*checksum) {
            return Err(SideFileError::Damaged(
                covered.len() as u64,
                "its checksum does not match",
            ));
        }
        let mut reader = Reader::new(after_magic);
        match reader.fixed_u32("format of the side file")? {
            FORMAT => Ok(Self::decode_fields(&mut reader)?),
            newer => Err(SideFileError::Newer(newer)),
        }
    }

    fn decode_fields(reader: &mut Reader<'_>) -> Result<Self, SideFileError> {
        let text = |bytes: &[u8]| {
            let text = std::str::from_utf8(bytes);
            text.map(str::to_owned)
                .map_err(|_| SideFileError::Damaged(0, "a name in it is not text"))
        };
        let comparator = text(reader.length_prefixed("comparator name")?)?;
        let mut pins = Vec::new();
        for _ in 0..reader.fixed_u32("count of pins")? {
            pins.push(Pin {
                manifest: reader.fixed_u64("manifest number")?,
                bytes: reader.fixed_u64("manifest length")?,
                digest: reader.fixed_u32("manifest digest")?,
                exact: reader.u8("kind of pin")? == 1,
            });
        }
        let mut state = State::new();
        for _ in 0..reader.fixed_u32("count of entries")? {
            let key = text(reader.length_prefixed("name of an entry")?)?;
            state.insert(key, reader.length_prefixed("value of an entry")?.to_vec());
        }
        if !reader.is_empty() {
            return Err(SideFileError::Damaged(0, "bytes follow its last entry"));
        }
        Ok(Self {
            comparator,
            pins,
            state,
        })
    }
}

/// Why the side file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SideFileError {
    /// Offset and reason.
    Damaged(u64, &'static str),
    /// Its format number, which a newer version gave it.
    Newer(u32),
}

impl From<FormatError> for SideFileError {
    fn from(error: FormatError) -> Self {
        Self::Damaged(error.offset(), error.reason())
    }
}
