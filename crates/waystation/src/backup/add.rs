//! Adding a backup: the files that make a database up at one moment, verified, and copied where no earlier backup has them.

use super::{BackedUp, Item, Manifest, Progress, Store, Watch, read_through};
use crate::error::Result;
use crate::inspect::{segment_is_sound, table_is_sound};
use crate::storage::{Area, OpenMode, Storage, Transfer};
use crate::sync::Arc;
use std::path::{Path, PathBuf};
use waystation_format::checksum;

/// A database at one moment.
pub(crate) struct Moment<P> {
    /// Files that are made for the backup: name and content.
    pub(crate) made: Vec<(String, Vec<u8>)>,
    /// Files of the database.
    pub(crate) files: Vec<SourceFile>,
    /// The last write that is in it.
    pub(crate) last_sequence: u64,
    /// The device extractor; empty if there is none.
    pub(crate) extractor: String,
    /// What keeps the files as they are until they are copied.
    pub(crate) pins: P,
}

/// A file of the database, of which the first bytes belong to the backup.
pub(crate) struct SourceFile {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) is_table: bool,
}

/// Adds a backup of the database that `take` pins to the directory `target`, made if missing. `take` is called once the
/// directory is known to be fit for it.
pub(crate) fn add<P>(
    storage: &Arc<dyn Storage>,
    target: &Path,
    take: impl FnOnce() -> Result<Moment<P>>,
    progress: &mut dyn FnMut(Progress),
) -> Result<BackedUp> {
    let store = Store::new(Arc::clone(storage), target)?;
    store.prepare()?;
    let _lock = store.lock()?;
    let numbers = store.numbers()?;
    let moment = take()?;
    let mut manifest = Manifest {
        number: numbers.last().map_or(1, |last| last + 1),
        taken_at: storage.wall_clock().as_secs(),
        last_sequence: moment.last_sequence,
        extractor: moment.extractor.clone(),
        items: Vec::new(),
    };
    let mut copied = Copied::default();
    let added = copy(
        &**storage,
        &store,
        &moment,
        &mut manifest,
        &mut copied,
        progress,
    )
    .and_then(|()| store.add_manifest(&manifest));
    // Also what an earlier attempt left. If this one failed for want of room, its part is given back.
    match (added, store.sweep()) {
        (Ok(()), Err(error)) => {
            log::warn!("what no backup needs stays for now: {error}");
        }
        (added, _) => added?,
    }
    drop(moment.pins);
    Ok(BackedUp {
        backup: manifest.info(),
        new_files: copied.files,
        new_bytes: copied.bytes,
    })
}

/// What was not there before.
#[derive(Default)]
struct Copied {
    files: u64,
    bytes: u64,
}

fn copy<P>(
    storage: &dyn Storage,
    store: &Store,
    moment: &Moment<P>,
    manifest: &mut Manifest,
    copied: &mut Copied,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    let mut watch = Watch {
        done_bytes: 0,
        total_bytes: moment.files.iter().map(|file| file.bytes).sum(),
        progress,
    };
    for (name, content) in &moment.made {
        let item = Item {
            name: name.clone(),
            bytes: content.len() as u64,
            checksum: checksum::crc32c(content),
        };
        if !store.has(&item)? {
            store.add_bytes(&item, content)?;
            copied.files += 1;
            copied.bytes += item.bytes;
        }
        manifest.items.push(item);
    }
    for source in &moment.files {
        let file = storage.open(
            &source.path,
            OpenMode::Read,
            Transfer::Buffered,
            Area::Tables,
        )?;
        let checksum = read_through(&*file, source.bytes, &mut |chunk| {
            watch.advance(chunk.len() as u64);
            Ok(())
        })?;
        let item = Item {
            name: source.name.clone(),
            bytes: source.bytes,
            checksum,
        };
        if !store.has(&item)? {
            // Damage must not enter, least of all in the place of what was sound.
            if source.is_table {
                table_is_sound(storage, &source.path, source.bytes)?;
            } else {
                segment_is_sound(storage, &source.path, source.bytes)?;
            }
            watch.total_bytes += source.bytes;
            store.add(&item, &*file, &mut |bytes| watch.advance(bytes))?;
            copied.files += 1;
            copied.bytes += item.bytes;
        }
        manifest.items.push(item);
    }
    manifest.items.sort();
    Ok(())
}
