//! Drawing an index snapshot: a little in each round of the maintenance.
//!
//! Begun when an opening would have to read as much of the log as [`DeviceOptions::replay_bytes`], and as [`LOG_SHARE`] times
//! what the indexes take: so that a snapshot is a small part of what is written.
//!
//! [`DeviceOptions::replay_bytes`]: crate::DeviceOptions::replay_bytes

use super::load::remove;
use super::{Head, Header, SnapshotWriter};
use crate::devices::context::{Context, Events, Memtables};
use crate::devices::index::{Leaves, Window};
use crate::devices::log_release::Checkpoints;
use crate::devices::residency::Residency;
use crate::devices::table::DeviceTable;
use crate::directory::{INDEX_SNAPSHOT_DRAFT, INDEX_SNAPSHOT_NAME};
use crate::error::Result;
use crate::storage::{Duty, IoPriority, Storage};
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::sync::{Arc, Mutex, lock};
use std::ops::Bound;
use std::path::Path;
use std::time::Duration;

/// So many versions are copied out of an index at a time, and a leaf more.
const COPIED_AT_ONCE: usize = 256;
/// A round draws for so long, and a little longer.
const ROUND: Duration = Duration::from_millis(100);

/// The log grows by so many times the memory of the indexes from one snapshot to the next, at least.
const LOG_SHARE: u64 = 8;
/// From so many times as much on as an opening may have to read, more of the time is taken for it.
const LATE: f64 = 1.1;

/// What the maintenance knows of index snapshots.
#[derive(Default)]
struct Drawing {
    /// The one that is being drawn.
    sketch: Option<Sketch>,
    /// Where the log ended when one was begun last.
    begun_lsn: u64,
}

/// An index snapshot that is being drawn.
struct Sketch {
    writer: SnapshotWriter,
    header: Header,
    /// The residency whose versions are being copied, and from where on.
    residency: Option<(Arc<Residency>, Vec<u8>, u64)>,
    /// The prefix of the device that was looked at last.
    device: Option<Vec<u8>>,
    window: Window,
    /// It is complete but for full memtables.
    waits_for_flush: bool,
}

/// The index snapshot of a database, and the next one.
pub(crate) struct IndexSnapshots {
    drawing: Mutex<Drawing>,
    /// Where the log ended when it had come to what the snapshot shows; 0: there is none.
    lsn: AtomicU64,
}

impl IndexSnapshots {
    /// `lsn`: where the log ended when it had come to what the snapshot in the directory shows; 0 if there is none.
    pub(crate) fn new(lsn: u64) -> Self {
        Self {
            drawing: Mutex::default(),
            lsn: AtomicU64::new(lsn),
        }
    }

    /// Whether one is being drawn, and waits for no flush, or one is to be begun: writers may have stopped while the last one
    /// was drawn, and nothing else makes a round due then.
    pub(crate) fn can_go_on<E: Memtables>(&self, context: &Context<'_, E>) -> bool {
        let drawing = lock(&self.drawing);
        match &drawing.sketch {
            Some(sketch) => !sketch.waits_for_flush,
            None => self.is_due(context, drawing.begun_lsn),
        }
    }

    /// Whether one is to be begun, if the last one was begun when the log ended at `begun_lsn`.
    fn is_due<E: Memtables>(&self, context: &Context<'_, E>, begun_lsn: u64) -> bool {
        let (engine, table) = (context.engine, &context.upper.table);
        self.unspared(context, begun_lsn) >= 1.0
            && (context.reserve).is_left(engine.active_bytes(), table.index_bytes())
    }

    /// Where the log ended when it had come to what the last one shows; 0: there is none.
    pub(crate) fn lsn(&self) -> u64 {
        self.lsn.load(SeqCst)
    }

    /// Gives up the one that is being drawn, if there is one.
    pub(crate) fn stop(&self, storage: &dyn Storage, dir: &Path) {
        stop_drawing(storage, dir, &mut lock(&self.drawing));
    }

    /// Goes on with the index snapshot that is being drawn, or begins one if it is time to. Nothing is lost if that fails.
    pub(crate) fn draw<E: Events + Memtables>(
        &self,
        context: &Context<'_, E>,
        checkpoints: &Checkpoints,
    ) -> Result<()> {
        let drawing = &mut *lock(&self.drawing);
        if drawing.sketch.is_some() && context.engine.is_short_of_room() {
            stop_drawing(context.storage, context.dir, drawing);
        }
        let drawn = self.draw_some(context, checkpoints, drawing);
        if drawn.is_err() {
            stop_drawing(context.storage, context.dir, drawing);
        }
        drawn
    }

    fn draw_some<E: Events + Memtables>(
        &self,
        context: &Context<'_, E>,
        checkpoints: &Checkpoints,
        drawing: &mut Drawing,
    ) -> Result<()> {
        if drawing.sketch.is_none() {
            self.drop_old(context);
            if !self.is_due(context, drawing.begun_lsn) {
                return Ok(());
            }
            drawing.sketch = Some(begin(context, drawing)?);
        }
        let Some(sketch) = &mut drawing.sketch else {
            return Ok(());
        };
        let until = context.storage.now() + ROUND;
        let is_late = self.unspared(context, 0) >= LATE;
        let priority = || {
            if is_late {
                IoPriority::Medium
            } else {
                IoPriority::Low
            }
        };
        let duty = Duty::new(context.storage, &priority);
        while sketch.step(&context.upper.table)? {
            duty.pause();
            if context.storage.now() > until || context.engine.is_stopping() {
                return Ok(());
            }
        }
        // An opening would have to read the records of full memtables.
        sketch.waits_for_flush = context.engine.has_full_before(sketch.header.lsn);
        if sketch.waits_for_flush {
            return Ok(());
        }
        match drawing.sketch.take() {
            Some(sketch) => self.end(context, checkpoints, sketch),
            None => Ok(()),
        }
    }

    /// Removes the index snapshot that shows nothing any more which is there.
    fn drop_old<E>(&self, context: &Context<'_, E>) {
        let lsn = self.lsn.load(SeqCst);
        let needed = context.upper.table.oldest_need();
        if lsn > 0 && needed.is_none_or(|(first, _)| first >= lsn) {
            self.lsn.store(0, SeqCst);
            remove(context.storage, context.dir, INDEX_SNAPSHOT_NAME);
        }
    }

    /// How much of the log an opening would read, if it were spared what lies before `spared`: as a part of what it may.
    fn unspared<E>(&self, context: &Context<'_, E>, spared: u64) -> f64 {
        let Some((needed, _)) = context.upper.table.oldest_need() else {
            return 0.0;
        };
        let end = context.upper.log.reserved_lsn();
        let spared = self.lsn.load(SeqCst).max(spared);
        let unspared = end.saturating_sub(spared.max(needed));
        let least = LOG_SHARE * context.upper.table.index_bytes();
        unspared as f64 / context.settings.replay_bytes.max(least).max(1) as f64
    }

    fn end<E: Events + Memtables>(
        &self,
        context: &Context<'_, E>,
        checkpoints: &Checkpoints,
        sketch: Sketch,
    ) -> Result<()> {
        context.engine.move_empty_memtable();
        let (_, first_sequence) = context.engine.memtables_start();
        let Header { through, lsn, .. } = sketch.header;
        let needless = through.min(first_sequence.saturating_sub(1));
        sketch.writer.finish(needless)?;
        // What happened up to there is told by it, and the log is durable.
        checkpoints.write(context, 0, IoPriority::Low)?;
        context.storage.rename(
            &context.dir.join(INDEX_SNAPSHOT_DRAFT),
            &context.dir.join(INDEX_SNAPSHOT_NAME),
        )?;
        context.storage.sync_dir(context.dir)?;
        self.lsn.store(lsn, SeqCst);
        Ok(())
    }
}

fn stop_drawing(storage: &dyn Storage, dir: &Path, drawing: &mut Drawing) {
    drawing.sketch = None;
    remove(storage, dir, INDEX_SNAPSHOT_DRAFT);
}

fn begin<E: Memtables>(context: &Context<'_, E>, drawing: &mut Drawing) -> Result<Sketch> {
    // Records that are not of the upper level shall be in tables by the end.
    if !context.engine.has_full_memtables() {
        context.engine.rotate_now();
    }
    let (mut lsn, mut last) = (0, 0);
    context
        .upper
        .log
        .at_front(|end, sequence| (lsn, last) = (end, sequence - 1));
    drawing.begun_lsn = lsn;
    context.upper.log.wait_visible(last);
    // A device that is coming from another engine is shown as a whole or not at all.
    let header = Header {
        engine: context.directory.engine,
        through: context.upper.table.whole_through(last),
        lsn,
    };
    Ok(Sketch {
        writer: SnapshotWriter::create(context.storage, context.dir, &header)?,
        header,
        residency: None,
        device: None,
        window: Window::default(),
        waits_for_flush: false,
    })
}

impl Sketch {
    /// Draws a little more; whether there may be more to draw.
    fn step(&mut self, table: &DeviceTable) -> Result<bool> {
        let Some((residency, key, sequence)) = &mut self.residency else {
            return Ok(self.look_at_next(table));
        };
        residency.load(&mut self.window, |index: &Leaves, window| {
            index.load_many(key, *sequence, COPIED_AT_ONCE, window);
        });
        let through = self.header.through;
        let head = Head {
            prefix: residency.prefix(),
            first_sequence: residency.first_sequence(),
            first_lsn: residency.first_lsn(),
            switch: Some(residency.switch()).filter(|switch| *switch <= through),
        };
        self.writer.add(&head, &self.window)?;
        match self.window.len().checked_sub(1) {
            Some(last) if last + 1 >= COPIED_AT_ONCE => {
                if let Some((last_key, entry)) = self.window.get(last) {
                    key.clear();
                    key.extend_from_slice(last_key);
                    *sequence = entry.sequence - 1;
                }
            }
            _ => self.residency = None,
        }
        Ok(true)
    }

    /// Looks at the next device; whether there is one.
    fn look_at_next(&mut self, table: &DeviceTable) -> bool {
        let bound = self.device.as_deref();
        let Some(device) = table.first_from(bound.map_or(Bound::Unbounded, Bound::Excluded)) else {
            return false;
        };
        self.device = Some(device.prefix().to_vec());
        let current = device.with_state(|state| state.current.clone());
        let through = self.header.through;
        self.residency = current
            .filter(|residency| residency.first_sequence() <= through)
            .map(|residency| (residency, Vec::new(), u64::MAX));
        true
    }
}
