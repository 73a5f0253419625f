//! From a backup to a database: every file copied, synced and read back; then `CURRENT`, which makes it one.

use super::Progress;
use super::manifest::Manifest;
use super::store::{Item, Store, Watch, read_through};
use crate::directory::{refuse_used, replace_file};
use crate::error::{Error, Result};
use crate::storage::{Area, OpenMode, Storage, Transfer};
use std::path::Path;
use waystation_format::filename::{CURRENT, current_content, temporary_name};

pub(super) fn restore(
    store: &Store,
    manifest: &Manifest,
    target: &Path,
    progress: &mut dyn FnMut(Progress),
) -> Result<()> {
    let storage = store.storage();
    if target.as_os_str().is_empty() {
        let reason = "the path to restore to is empty; name a new directory";
        return Err(Error::InvalidArgument(reason.into()));
    }
    refuse_used(storage, target)?;
    storage.create_dir(target)?;
    let mut watch = Watch {
        done_bytes: 0,
        // Read from the backup, and read back.
        total_bytes: manifest.bytes().saturating_mul(2),
        progress,
    };
    let restored = write(store, manifest, target, &mut watch);
    if restored.is_err() {
        remove(storage, manifest, target);
    }
    restored
}

fn write(store: &Store, manifest: &Manifest, target: &Path, watch: &mut Watch<'_>) -> Result<()> {
    let storage = store.storage();
    for item in &manifest.items {
        copy(store, item, &target.join(&item.name), watch)?;
    }
    storage.sync_dir(target)?;
    for item in &manifest.items {
        read_back(storage, item, &target.join(&item.name), watch)?;
    }
    // A list without a MANIFEST is not read.
    let number = manifest.current().unwrap_or_default();
    replace_file(
        storage,
        target,
        &temporary_name(number),
        CURRENT,
        current_content(number).as_bytes(),
    )
}

fn copy(store: &Store, item: &Item, path: &Path, watch: &mut Watch<'_>) -> Result<()> {
    let file = store
        .storage()
        .open(path, OpenMode::Create, Transfer::Buffered, Area::Tables)?;
    let mut at = 0;
    store.read(item, &mut |chunk| {
        file.write_at(chunk, at)?;
        at += chunk.len() as u64;
        watch.advance(chunk.len() as u64);
        Ok(())
    })?;
    file.sync()
}

fn read_back(storage: &dyn Storage, item: &Item, path: &Path, watch: &mut Watch<'_>) -> Result<()> {
    let file = storage.open(path, OpenMode::Read, Transfer::Buffered, Area::Tables)?;
    let checksum = read_through(&*file, item.bytes, &mut |chunk| {
        watch.advance(chunk.len() as u64);
        Ok(())
    })?;
    if checksum != item.checksum {
        let reason =
            "the bytes that are read back are not the bytes just written: the medium is failing";
        return Err(Error::corruption(path, 0, reason));
    }
    Ok(())
}

/// Takes back what a failed restore wrote, as far as that is possible.
fn remove(storage: &dyn Storage, manifest: &Manifest, target: &Path) {
    let names = manifest.items.iter().map(|item| item.name.clone());
    let temporary = temporary_name(manifest.current().unwrap_or_default());
    // CURRENT first: half of a database is none.
    for name in [CURRENT.to_owned(), temporary].into_iter().chain(names) {
        let _ = storage.remove(&target.join(name));
    }
}
