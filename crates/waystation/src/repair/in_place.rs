//! Repair where the database is, as `LevelDB`'s callers know it: afterwards the path opens.
//!
//! ```text
//!   db                                  damaged
//!   db, db.repaired                     saved beside it, synced and checked
//!   db.before-repair, db.repaired       renamed
//!   db.before-repair, db                renamed: done
//! ```
//!
//! The old files stay as they were, in a directory beside it, for a further search. (`LevelDB` moves what
//! it gives up to a directory `lost` within.) Should the machine stop between the two renames, both directories are whole
//! under their other names.

use super::repair;
use super::report::{Repaired, Resurrection};
use crate::db::Db;
use crate::directory::{INDEX_SNAPSHOT_NAME, sync_parent};
use crate::error::{Error, Result};
use crate::inspect::{CheckReport, Inspection};
use crate::options::Options;
use crate::storage::Storage;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a repair in place did.
#[derive(Debug, Clone)]
pub struct RepairedInPlace {
    /// The saved data and the loss.
    pub repaired: Repaired,
    /// Where the files from before are.
    pub kept: PathBuf,
}

/// Makes the database in `dir` one that opens and checks. Nothing is done to one that does already.
///
/// # Errors
/// As [`repair`].
pub fn repair_in_place(
    storage: &Arc<dyn Storage>,
    dir: &Path,
    options: &Options,
    accepted: Resurrection,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<RepairedInPlace>> {
    if is_sound(storage, dir, options)? {
        return Ok(None);
    }
    let target = beside(dir, ".repaired");
    let repaired = repair(storage, dir, &target, options, accepted, progress)?;
    let kept = free_name(&**storage, dir)?;
    storage.rename(dir, &kept)?;
    storage.rename(&target, dir)?;
    sync_parent(&**storage, dir)?;
    Ok(Some(RepairedInPlace { repaired, kept }))
}

/// Whether there is nothing to repair: everything checks, and the engine opens it.
fn is_sound(storage: &Arc<dyn Storage>, dir: &Path, options: &Options) -> Result<bool> {
    let checked = Inspection::open(Arc::clone(storage), dir)
        .and_then(|inspection| inspection.check(&mut |_| ()));
    // A damaged index snapshot goes when the directory is opened.
    let is_whole = |report: CheckReport| {
        report
            .problems
            .iter()
            .all(|it| it.file == INDEX_SNAPSHOT_NAME)
    };
    if !checked.is_ok_and(is_whole) {
        return Ok(false);
    }
    let options = Options {
        create_if_missing: false,
        error_if_exists: false,
        ..options.clone()
    };
    match Db::open_with(Arc::clone(storage), dir, options).and_then(Db::close) {
        Ok(()) => Ok(true),
        Err(Error::Corruption { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

fn beside(dir: &Path, ending: &str) -> PathBuf {
    // Without a slash at its end.
    let mut name = OsString::from(dir.components().as_path().as_os_str());
    name.push(ending);
    PathBuf::from(name)
}

/// A name beside `dir` that nothing has.
fn free_name(storage: &dyn Storage, dir: &Path) -> Result<PathBuf> {
    for number in 1_u32.. {
        let ending = match number {
            1 => ".before-repair".to_owned(),
            number => format!(".before-repair-{number}"),
        };
        let name = beside(dir, &ending);
        match storage.list(&name) {
            Err(error) if error.is_not_found() => return Ok(name),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
    }
    let reason = format!("no name is free beside {}", dir.display());
    Err(Error::InvalidArgument(reason))
}
