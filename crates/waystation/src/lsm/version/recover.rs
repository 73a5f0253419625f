//! Reading a directory: which MANIFEST is in force, whether its tables are there, what LevelDB left behind.
//!
//! Nothing is written here; a reader beside a running owner uses the same code.

use super::Version;
use super::fence::Fence;
use super::manifest::{Manifest, Numbers};
use super::side::{Pin, SideFile, SideFileError, State};
use crate::directory::{SIDE_FILE, read_file};
use crate::error::{Error, Result};
use crate::storage::{Entry, Storage};
use std::collections::HashMap;
use std::path::Path;
use waystation_format::checksum::crc32c;
use waystation_format::filename::{self, CURRENT, FileKind};
use waystation_format::order::Order;

/// What a directory holds.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// The tables.
    pub version: Version,
    /// The numbers its MANIFEST names, the next file number raised above every file that is there.
    pub numbers: Numbers,
    /// LevelDB's write-ahead logs that no table covers yet, the oldest first.
    pub foreign_logs: Vec<u64>,
    /// The state in the side file; `None` if there is none that belongs to this MANIFEST.
    pub state: Option<State>,
    /// The MANIFEST in force. Covers only bytes that a power cut cannot take any more: the last edits may be those of an
    /// owner that died before their sync, or whose sync failed.
    pub pin: Pin,
}

/// The files of the directory, by name.
pub(crate) struct Listing(HashMap<String, Entry>);

impl Listing {
    /// Lists `dir`; empty if there is no such directory.
    pub(crate) fn read(storage: &dyn Storage, dir: &Path) -> Result<Self> {
        match storage.list(dir) {
            Ok(entries) => Ok(Self(
                entries
                    .into_iter()
                    .map(|entry| (entry.name.clone(), entry))
                    .collect(),
            )),
            Err(error) if error.is_not_found() => Ok(Self(HashMap::new())),
            Err(error) => Err(error),
        }
    }

    /// LevelDB's files: name and meaning.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, FileKind)> {
        let files = self.0.values().filter(|entry| !entry.is_dir);
        files.filter_map(|entry| Some((entry.name.as_str(), filename::parse(&entry.name)?)))
    }

    fn table_bytes(&self, number: u64) -> Option<u64> {
        let names = [
            filename::table_name(number),
            filename::legacy_table_name(number),
        ];
        names
            .iter()
            .find_map(|name| self.0.get(name))
            .map(|entry| entry.bytes)
    }

    /// One more than the highest number of any file.
    fn next_number(&self) -> u64 {
        let numbers = self.files().filter_map(|(_, kind)| match kind {
            FileKind::Manifest(number)
            | FileKind::Log(number)
            | FileKind::Table(number)
            | FileKind::Temporary(number) => Some(number),
            FileKind::Current | FileKind::Lock | FileKind::InfoLog => None,
        });
        numbers.max().map_or(1, |number| number.saturating_add(1))
    }
}

/// Files are numbered from here on no more: there is room for all that will ever be made.
const FILE_NUMBER_MAX: u64 = 1 << 62;

/// Reads what `dir` holds, whose keys are in `order`; `None` if there is no database in it.
pub(crate) fn recover(
    storage: &dyn Storage,
    dir: &Path,
    listing: &Listing,
    order: &Order,
) -> Result<Option<Recovered>> {
    let current = dir.join(CURRENT);
    let content = match read_file(storage, &current) {
        Ok(content) => content,
        Err(error) if error.is_not_found() => {
            refuse_headless(dir, listing)?;
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    let name = filename::parse_current(&content)
        .map_err(|error| Error::corruption(&current, error.offset(), error.reason()))?;
    let path = dir.join(name);
    let manifest = Manifest::read(storage, &path, order).map_err(|error| {
        if error.is_not_found() {
            let reason = format!("it names {name}, which does not exist");
            return Error::corruption(&current, 0, reason);
        }
        error
    })?;
    check_tables(dir, listing, &manifest.version)?;
    let number = match filename::parse(name) {
        Some(FileKind::Manifest(number)) => number,
        // LevelDB takes any name; our side file has never pinned such a one.
        _ => 0,
    };
    let side = read_side_file(storage, dir, number, &manifest)?;
    let foreign_logs = foreign_logs(listing, &manifest);
    let mut numbers = manifest.numbers;
    numbers.next_file = numbers.next_file.max(listing.next_number());
    if numbers.next_file > FILE_NUMBER_MAX {
        let reason =
            "the numbers of its files, or of others in the directory, leave none for new ones";
        return Err(Error::corruption(&path, 0, reason));
    }
    // LevelDB wrote last, if there is no side file.
    let (state, pin) = match side {
        Some((state, pin)) => (Some(state), pin),
        None => (None, whole(number, &manifest.content)),
    };
    Ok(Some(Recovered {
        version: manifest.version,
        numbers,
        foreign_logs,
        state,
        pin,
    }))
}

/// Tables without CURRENT are a database that lost its head, not an empty directory.
fn refuse_headless(dir: &Path, listing: &Listing) -> Result<()> {
    let orphan = listing.files().find_map(|(name, kind)| match kind {
        FileKind::Table(_) | FileKind::Log(_) => Some(name),
        FileKind::Manifest(number) if number > 1 => Some(name),
        _ => None,
    });
    match orphan {
        None => Ok(()),
        Some(name) => {
            let reason = format!("it is missing, although {name} is there");
            Err(Error::corruption(dir.join(CURRENT), 0, reason))
        }
    }
}

fn check_tables(dir: &Path, listing: &Listing, version: &Version) -> Result<()> {
    for (level, table) in version.tables() {
        let path = || dir.join(filename::table_name(table.number));
        match listing.table_bytes(table.number) {
            None => {
                let reason =
                    format!("it is missing, although the MANIFEST lists it in level {level}");
                return Err(Error::corruption(path(), 0, reason));
            }
            Some(bytes) if bytes < table.file_bytes => {
                let reason = format!(
                    "it ends here, although the MANIFEST gives it {} bytes",
                    table.file_bytes
                );
                return Err(Error::corruption(path(), bytes, reason));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

fn foreign_logs(listing: &Listing, manifest: &Manifest) -> Vec<u64> {
    let needed = |number: &u64| {
        *number >= manifest.numbers.log_number
            || (*number == manifest.prev_log_number && *number > 0)
    };
    let numbers = listing.files().filter_map(|(_, kind)| match kind {
        FileKind::Log(number) => Some(number),
        _ => None,
    });
    let mut logs: Vec<u64> = numbers.filter(needed).collect();
    logs.sort_unstable();
    logs
}

/// The pin of a MANIFEST that only LevelDB has written to.
fn whole(number: u64, content: &[u8]) -> Pin {
    Pin {
        manifest: number,
        bytes: content.len() as u64,
        digest: crc32c(content),
        exact: true,
    }
}

/// The state in the side file and its pin of the MANIFEST in force, if it has one. Behind the fence it must have one.
fn read_side_file(
    storage: &dyn Storage,
    dir: &Path,
    number: u64,
    manifest: &Manifest,
) -> Result<Option<(State, Pin)>> {
    let path = dir.join(SIDE_FILE);
    let fenced = manifest.fence == Fence::Closed;
    let bytes = match read_file(storage, &path) {
        Ok(bytes) => bytes,
        Err(error) if error.is_not_found() => {
            let reason = "it is missing, although the MANIFEST belongs to it";
            return if fenced {
                Err(Error::corruption(path, 0, reason))
            } else {
                Ok(None)
            };
        }
        Err(error) => return Err(error),
    };
    match SideFile::decode(&bytes) {
        Ok(side) => {
            let mut pins = side.pins.iter();
            match pins.find(|pin| pin.matches(number, &manifest.content)) {
                Some(pin) => Ok(Some((side.state, *pin))),
                None if fenced => Err(Error::corruption(
                    path,
                    0,
                    "it belongs to another MANIFEST than the one in force",
                )),
                // LevelDB wrote to the directory since: nothing here is true any more.
                None => Ok(None),
            }
        }
        Err(SideFileError::Newer(format)) => Err(Error::Incompatible {
            path,
            reason: format!(
                "it has format {format}; use the version that wrote it, or a newer one"
            ),
        }),
        Err(SideFileError::Damaged(offset, reason)) if fenced => {
            Err(Error::corruption(path, offset, reason))
        }
        Err(SideFileError::Damaged(..)) => Ok(None),
    }
}
