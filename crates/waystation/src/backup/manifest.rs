//! What a backup consists of: the file `NNNNNN.backup`.
//!
//! ```text
//! magic          8 bytes   "WSBACKUP"
//! format         u32       1; never reuse a number
//! number         u64       the backup's, as in the name
//! taken at       u64       seconds since the Unix epoch
//! last sequence  u64       the last write that is in it
//! extractor      string    the device extractor's name; empty for none
//! files          u32 count, then per file, by name:
//!   name         string    in the database directory
//!   bytes        u64
//!   checksum     u32       crc32c of all of it
//! checksum       u32       masked crc32c of everything before
//! ```
//!
//! Integers are little-endian, a string is a varint length and its bytes. Exactly one file is a MANIFEST; `CURRENT`, which
//! names it, is made when the backup is restored.

use super::Backup;
use super::store::Item;
use crate::directory::is_of_database;
use waystation_format::FormatError;
use waystation_format::checksum::{crc32c, mask};
use waystation_format::filename::{self, CURRENT, FileKind, LOCK};
use waystation_format::varint::{Reader, put_length_prefixed};

const MAGIC: &[u8; 8] = b"WSBACKUP";
const FORMAT: u32 = 1;

/// What a backup consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) number: u64,
    pub(crate) taken_at: u64,
    pub(crate) last_sequence: u64,
    pub(crate) extractor: String,
    /// By name.
    pub(crate) items: Vec<Item>,
}

/// Why a file is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ManifestError {
    /// Offset and reason.
    Damaged(u64, &'static str),
    /// Its format is not known to this version.
    Newer(u32),
}

impl From<FormatError> for ManifestError {
    fn from(error: FormatError) -> Self {
        Self::Damaged(error.offset(), error.reason())
    }
}

impl Manifest {
    /// The facts about the backup.
    pub(crate) fn info(&self) -> Backup {
        Backup {
            number: self.number,
            taken_at: self.taken_at,
            last_sequence: self.last_sequence,
            extractor: (!self.extractor.is_empty()).then(|| self.extractor.clone()),
            files: self.items.len() as u64,
            bytes: self.bytes(),
        }
    }

    /// The bytes of all its files.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes = self.items.iter().map(|item| item.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// The number of the database's MANIFEST, which `CURRENT` is to name.
    pub(crate) fn current(&self) -> Option<u64> {
        let mut numbers = self
            .items
            .iter()
            .filter_map(|item| match filename::parse(&item.name) {
                Some(FileKind::Manifest(number)) => Some(number),
                _ => None,
            });
        let number = numbers.next()?;
        numbers.next().is_none().then_some(number)
    }

    /// The bytes of the file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::from(MAGIC);
        out.extend_from_slice(&FORMAT.to_le_bytes());
        for field in [self.number, self.taken_at, self.last_sequence] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        put_length_prefixed(&mut out, self.extractor.as_bytes());
        out.extend_from_slice(&(self.items.len() as u32).to_le_bytes());
        for item in &self.items {
            put_length_prefixed(&mut out, item.name.as_bytes());
            out.extend_from_slice(&item.bytes.to_le_bytes());
            out.extend_from_slice(&item.checksum.to_le_bytes());
        }
        let checksum = mask(crc32c(&out));
        out.extend_from_slice(&checksum.to_le_bytes());
        out
    }

    /// Reads the file.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, ManifestError> {
        let damaged = ManifestError::Damaged;
        let Some((covered, checksum)) = bytes.split_last_chunk::<4>() else {
            return Err(damaged(0, "it is shorter than its checksum"));
        };
        let Some(after_magic) = covered.strip_prefix(MAGIC) else {
            return Err(damaged(0, "it does not begin with its magic number"));
        };
        if mask(crc32c(covered)) != u32::from_le_bytes(*checksum) {
            let offset = covered.len() as u64;
            return Err(damaged(offset, "its checksum does not match"));
        }
        let mut reader = Reader::new(after_magic);
        match reader.fixed_u32("format of the backup")? {
            FORMAT => {}
            newer => return Err(ManifestError::Newer(newer)),
        }
        let number = reader.fixed_u64("number")?;
        let taken_at = reader.fixed_u64("time")?;
        let last_sequence = reader.fixed_u64("last sequence number")?;
        let extractor = text(reader.length_prefixed("extractor")?)?;
        let mut items: Vec<Item> = Vec::new();
        for _ in 0..reader.fixed_u32("count of files")? {
            let name = text(reader.length_prefixed("name of a file")?)?;
            let bytes = reader.fixed_u64("length of a file")?;
            let checksum = reader.fixed_u32("checksum of a file")?;
            // Whatever it says, nothing is written beside a database's own files.
            let is_ours = is_of_database(&name) && name != CURRENT && name != LOCK;
            if !is_ours || items.last().is_some_and(|last| last.name >= name) {
                return Err(damaged(0, "it names a file that no backup has, or twice"));
            }
            items.push(Item {
                name,
                bytes,
                checksum,
            });
        }
        if !reader.is_empty() {
            return Err(damaged(0, "bytes follow its last file"));
        }
        let manifest = Self {
            number,
            taken_at,
            last_sequence,
            extractor,
            items,
        };
        if manifest.current().is_none() {
            return Err(damaged(0, "it does not name one MANIFEST"));
        }
        Ok(manifest)
    }
}

fn text(bytes: &[u8]) -> Result<String, ManifestError> {
    let text = std::str::from_utf8(bytes);
    text.map(str::to_owned)
        .map_err(|_| ManifestError::Damaged(0, "a name in it is not text"))
}
