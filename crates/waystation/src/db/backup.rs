//! Backup of an open database: what makes it up at one moment, pinned, and copied while writing goes on.
//!
//! Without devices everything is flushed, and tables and graves are all. With devices the log is part of it, and three
//! things must be of one moment: the tables, since the log tells what was settled into them; the log's end; and the
//! device table, which may be older than both. So they are taken while nothing is flushed or settled (a sync of the
//! log long), and from then on held: tables by their version, the log by a [pin](crate::log::LogPin).

use super::{Core, Db};
use crate::backup::{BackedUp, Moment, Progress, SourceFile, add};
use crate::cemetery::checkpoint;
use crate::cemetery::flushed::FlushedGraves;
use crate::directory::{
    CHECKPOINT_NAME, DEVICES_STATE, GRAVES_NAME, GRAVES_STATE, JOURNAL_NAME, LOG_STATE,
    segment_name, spill_name,
};
use crate::error::Result;
use crate::log::{Log, LogPin};
use crate::lsm::tree::{CopiedTable, TreeCopy};
use crate::lsm::version::State;
use crate::storage::IoPriority;
use crate::sync::Arc;
use std::path::Path;
use waystation_format::log::SEGMENT_HEADER_BYTES;

/// What keeps the files of a moment.
type Pins = (TreeCopy, Arc<FlushedGraves>, Option<LogPin>);

impl Db {
    /// Adds a backup of the database as it is now to the directory `target`, made if missing. What earlier backups there
    /// hold already is not copied again. Writing goes on meanwhile. All of the database is read, and what is copied is
    /// verified; `progress` is called now and then.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument) if `target` holds something else;
    /// [`Error::Locked`](crate::Error::Locked) if another process adds to it; [`Error::Corruption`](crate::Error::Corruption)
    /// if a file of the database is damaged. Earlier backups are as they were in any case.
    pub fn backup(
        &self,
        target: impl AsRef<Path>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<BackedUp> {
        let core = &self.core;
        let take = || {
            core.log_expired()?;
            if core.devices.is_none() {
                self.flush()?;
            }
            core.moment()
        };
        let added = add(&core.storage, target.as_ref(), take, progress);
        // The segments that the copy pinned can be recycled.
        core.keep_soon();
        added
    }
}

impl Core {
    /// What makes the database up now.
    fn moment(&self) -> Result<Moment<Pins>> {
        let mut made = Vec::new();
        let mut state = State::new();
        let log_pin = self.devices.as_ref().map(|_| Log::pin(&self.log));
        // Nothing is settled or flushed meanwhile, and no flushed graves are changed.
        let pending = self.devices.as_ref().map(|it| it.settler.pending.lock());
        let kept = self.graves.hold();
        if let Some(devices) = &self.devices {
            made.push((
                CHECKPOINT_NAME.to_owned(),
                devices
                    .checkpoints
                    .write(&self.context_of(devices), 0, IoPriority::High)?,
            ));
            state.insert(LOG_STATE.to_owned(), Vec::new());
            state.insert(DEVICES_STATE.to_owned(), Vec::new());
        }
        let flushed = self.graves.to_copy(|| self.time());
        if !flushed.is_empty() {
            made.push((GRAVES_NAME.to_owned(), checkpoint::encode(&flushed)));
            state.insert(GRAVES_STATE.to_owned(), Vec::new());
        }
        let tree_copy = self.tree.tree_copy(&state)?;
        let mut last_sequence = tree_copy.flushed_through;
        let mut files = tables_of(&tree_copy);
        files.extend(flushed.spilled().labels().map(|label| SourceFile {
            name: spill_name(label.number),
            path: self.dir.join(spill_name(label.number)),
            bytes: label.file_bytes,
            is_table: true,
        }));
        if let Some(devices) = &self.devices {
            self.log.wait_acknowledged();
            last_sequence = self.log.visible_sequence();
            self.log.sync_all()?;
            devices.upper.note_durable(last_sequence);
            let (journal, parts) = self.log.clean_copy();
            made.push((JOURNAL_NAME.to_owned(), journal.encode()));
            files.extend(parts.into_iter().map(|part| SourceFile {
                name: segment_name(part.number),
                path: part.path,
                bytes: SEGMENT_HEADER_BYTES as u64 + part.bytes,
                is_table: false,
            }));
        }
        drop((kept, pending));
        made.extend(tree_copy.made.iter().cloned());
        Ok(Moment {
            made,
            files,
            last_sequence,
            extractor: self
                .options
                .devices
                .as_ref()
                .map_or_else(String::new, |it| it.extractor.to_string()),
            pins: (tree_copy, flushed, log_pin),
        })
    }
}

fn tables_of(tree_copy: &TreeCopy) -> Vec<SourceFile> {
    let tables = tree_copy.tables.iter();
    tables
        .map(|CopiedTable { name, path, bytes }| SourceFile {
            name: name.clone(),
            path: path.clone(),
            bytes: *bytes,
            is_table: true,
        })
        .collect()
}
