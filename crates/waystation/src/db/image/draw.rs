//! Drawing an image: a little in each of the keeper's rounds.
//!
//! Begun when an opening would have to read as much of the log as [`DeviceOptions::replay_bytes`], and as half of what the
//! upper level needs: so that the more there is, the less often all of it is written again.
//!
//! [`DeviceOptions::replay_bytes`]: crate::DeviceOptions::replay_bytes

use super::super::Core;
use super::super::devices::Devices;
use super::load::remove;
use crate::device::image::{Head, Header, ImageWriter};
use crate::device::index::{Leaves, Window};
use crate::device::resident::Resident;
use crate::device::table::DeviceTable;
use crate::directory::{IMAGE_DRAFT, IMAGE_NAME};
use crate::error::Result;
use crate::storage::{Duty, Haste};
use crate::sync::Arc;
use crate::sync::atomic::Ordering::SeqCst;
use std::ops::Bound;
use std::time::Duration;

/// So many versions are copied out of an index at a time, and a leaf more.
const COPIED_AT_ONCE: usize = 256;
/// A round draws for so long, and a little longer.
const ROUND: Duration = Duration::from_millis(100);

/// From so many times as much on as an opening may have to read, more of the time is taken for it.
const LATE: f64 = 1.1;

/// What the keeper knows of images.
#[derive(Default)]
pub(in crate::db) struct Drawing {
    /// The one that is being drawn.
    sketch: Option<Sketch>,
    /// Where the log ended when one was begun last.
    begun_lsn: u64,
}

/// An image that is being drawn.
struct Sketch {
    writer: ImageWriter,
    header: Header,
    /// The stay whose versions are being copied, and from where on.
    stay: Option<(Arc<Resident>, Vec<u8>, u64)>,
    /// The prefix of the device that was looked at last.
    device: Option<Vec<u8>>,
    window: Window,
}

impl Drawing {
    /// Whether an image is being drawn.
    pub(in crate::db) fn is_under_way(&self) -> bool {
        self.sketch.is_some()
    }
}

impl Core {
    /// Goes on with the image that is being drawn, or begins one if it is time to. Nothing is lost if that fails.
    pub(in crate::db) fn draw(&self, devices: &Devices, drawing: &mut Drawing) -> Result<()> {
        if drawing.sketch.is_some() && self.is_short_of_room() {
            self.stop_drawing(drawing);
        }
        let drawn = self.draw_some(devices, drawing);
        if drawn.is_err() {
            self.stop_drawing(drawing);
        }
        drawn
    }

    /// Gives the image up that is being drawn, if there is one.
    pub(in crate::db) fn stop_drawing(&self, drawing: &mut Drawing) {
        drawing.sketch = None;
        remove(&*self.storage, &self.dir, IMAGE_DRAFT);
    }

    fn draw_some(&self, devices: &Devices, drawing: &mut Drawing) -> Result<()> {
        if drawing.sketch.is_none() {
            self.drop_old_image(devices);
            let is_due = self.unspared(devices, drawing.begun_lsn) >= 1.0;
            if !is_due
                || !self
                    .room
                    .is_left(self.active_bytes(), devices.upper.table.index_bytes())
            {
                return Ok(());
            }
            drawing.sketch = Some(self.begin_image(devices, drawing)?);
        }
        let Some(sketch) = &mut drawing.sketch else {
            return Ok(());
        };
        let until = self.storage.now() + ROUND;
        let is_late = self.unspared(devices, 0) >= LATE;
        let haste = || if is_late { Haste::Some } else { Haste::None };
        let duty = Duty::new(&*self.storage, &haste);
        while sketch.step(&devices.upper.table)? {
            duty.rest();
            if self.storage.now() > until || self.is_stopping() {
                return Ok(());
            }
        }
        // An opening would have to read what is in full memtables.
        let (view, lsn) = (self.views.load(), sketch.header.lsn);
        if view.full.iter().any(|memtable| memtable.start_lsn < lsn) {
            return Ok(());
        }
        match drawing.sketch.take() {
            Some(sketch) => self.end_image(devices, sketch),
            None => Ok(()),
        }
    }

    /// Removes the image that shows nothing any more which is there.
    fn drop_old_image(&self, devices: &Devices) {
        let lsn = devices.image_lsn.load(SeqCst);
        let needed = devices.upper.table.oldest_need();
        if lsn > 0 && needed.is_none_or(|(first, _)| first >= lsn) {
            devices.image_lsn.store(0, SeqCst);
            remove(&*self.storage, &self.dir, IMAGE_NAME);
        }
    }

    /// How much of the log an opening would read, if it were spared what lies before `spared`: as a part of what it may.
    fn unspared(&self, devices: &Devices, spared: u64) -> f64 {
        let Some((needed, _)) = devices.upper.table.oldest_need() else {
            return 0.0;
        };
        let end = self.log.reserved_lsn();
        let spared = devices.image_lsn.load(SeqCst).max(spared);
        let unspared = end.saturating_sub(spared.max(needed));
        let half = end.saturating_sub(needed) / 2;
        unspared as f64 / devices.settings.replay_bytes.max(half).max(1) as f64
    }

    fn begin_image(&self, devices: &Devices, drawing: &mut Drawing) -> Result<Sketch> {
        // What is not of the upper level shall be in tables by the end.
        if self.full_memtables.load(SeqCst) == 0 {
            self.rotate_now();
        }
        let (mut lsn, mut last) = (0, 0);
        self.log
            .at_front(|end, sequence| (lsn, last) = (end, sequence - 1));
        drawing.begun_lsn = lsn;
        self.log.wait_visible(last);
        // What is coming from another engine is shown as a whole or not at all.
        let header = Header {
            engine: devices.directory.engine,
            through: devices.upper.table.whole_through(last),
            lsn,
        };
        Ok(Sketch {
            writer: ImageWriter::create(&*self.storage, &self.dir, &header)?,
            header,
            stay: None,
            device: None,
            window: Window::default(),
        })
    }

    fn end_image(&self, devices: &Devices, sketch: Sketch) -> Result<()> {
        self.move_empty_memtable();
        let view = self.views.load();
        let memtable = view.full.first().unwrap_or(&view.active);
        let Header { through, lsn, .. } = sketch.header;
        let needless = through.min(memtable.start_sequence.saturating_sub(1));
        sketch.writer.finish(needless)?;
        // What happened up to there is told by it, and the log is durable.
        self.write_checkpoint(devices, 0, Haste::None)?;
        (self.storage).rename(&self.dir.join(IMAGE_DRAFT), &self.dir.join(IMAGE_NAME))?;
        self.storage.sync_dir(&self.dir)?;
        devices.image_lsn.store(lsn, SeqCst);
        Ok(())
    }
}

impl Sketch {
    /// Draws a little more; whether there may be more to draw.
    fn step(&mut self, table: &DeviceTable) -> Result<bool> {
        let Some((stay, key, sequence)) = &mut self.stay else {
            return Ok(self.look_at_next(table));
        };
        stay.load(&mut self.window, |index: &Leaves, window| {
            index.load_many(key, *sequence, COPIED_AT_ONCE, window);
        });
        let through = self.header.through;
        let head = Head {
            prefix: stay.prefix(),
            first_sequence: stay.first_sequence(),
            first_lsn: stay.first_lsn(),
            switch: Some(stay.switch()).filter(|switch| *switch <= through),
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
            _ => self.stay = None,
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
        self.stay = current
            .filter(|stay| stay.first_sequence() <= through)
            .map(|stay| (stay, Vec::new(), u64::MAX));
        true
    }
}
