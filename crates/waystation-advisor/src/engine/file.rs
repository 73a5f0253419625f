//! A file whose calls are recorded.

use super::addresses::Place;
use super::recorder::{Begun, Recorder};
use crate::event::{Flags, Op};
use std::path::Path;
use std::sync::Arc;
use waystation::Result;
use waystation::storage::File;
use waystation::storage::forward::forward;

/// See the module.
pub(super) struct TracedFile {
    pub(super) inner: Arc<dyn File>,
    pub(super) recorder: Arc<Recorder>,
    pub(super) place: Arc<Place>,
}

impl TracedFile {
    fn end(&self, begun: Begun, kind: (Op, Flags), offset: u64, length: usize) {
        let ranges = self.place.addresses(offset, length as u64);
        self.recorder.end(begun, kind, self.place.area, ranges);
    }
}

impl File for TracedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let begun = self.recorder.begin();
        let read = self.inner.read_at(buffer, offset);
        let length = *read.as_ref().unwrap_or(&0);
        self.end(begun, (Op::Read, Flags::SYNC), offset, length);
        read
    }

    fn read_window(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let begun = self.recorder.begin();
        let read = self.inner.read_window(buffer, offset);
        let length = *read.as_ref().unwrap_or(&0);
        self.end(begun, (Op::Read, Flags::READ_AHEAD), offset, length);
        read
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let begun = self.recorder.begin();
        let written = self.inner.write_at(data, offset);
        let is_log = self.place.area == 0;
        let flags = if is_log {
            Flags::SYNC
        } else {
            Flags::default()
        };
        let length = if written.is_ok() { data.len() } else { 0 };
        self.end(begun, (Op::Write, flags), offset, length);
        written
    }

    fn sync(&self) -> Result<()> {
        let begun = self.recorder.begin();
        let synced = self.inner.sync();
        let kind = (Op::Flush, Flags::SYNC);
        self.recorder.end(begun, kind, self.place.area, [(0, 0)]);
        synced
    }

    forward! { inner:
        fn preallocate(bytes: u64) -> Result<()>;
        fn truncate(bytes: u64) -> Result<()>;
        fn size() -> Result<u64>;
        fn is_direct() -> bool;
        fn alignment() -> usize;
        fn prefetch(offset: u64, length: u64);
        fn write_back(offset: u64, length: u64);
        fn path() -> &Path;
    }
}
