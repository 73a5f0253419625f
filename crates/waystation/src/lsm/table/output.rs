//! A file that is written once, from its beginning to its end, in large pieces.
//!
//! Bytes gather in a buffer; when it is full, a helper thread writes it while the next one is filled, so that encoding and
//! writing overlap:
//!
//! ```text
//!   append -> [ filling ]  --full-->  ( waiting )  -->  [ writing ] -> file
//!                  ^                                         |
//!                  +------------------ idle <----------------+
//! ```
//!
//! A file shorter than a piece never sees a helper. Nothing is written after [`Output`] is gone: dropping it waits.
//!
//! It goes through the page cache, unlike the log: what was just flushed or merged is read soon, and reading it back from
//! the device while everybody writes takes a hundred times as long as the copy.

use crate::error::{Error, Result};
use crate::storage::{Area, File, OpenMode, RateLimit, Storage, Transfer};
use crate::sync::{Arc, Condvar, Mutex, lock, thread, wait};
use std::path::Path;

/// The length of a piece.
const PIECE_BYTES: usize = 1 << 20;

/// A file that is written once, from its beginning to its end.
pub(super) struct Output {
    file: Arc<dyn File>,
    filling: Vec<u8>,
    /// How many bytes of the file were written or handed to the helper.
    handed: u64,
    helper: Option<Helper>,
    /// How fast pieces may leave, and whose clock says so.
    rate: Option<(Arc<RateLimit>, Arc<dyn Storage>)>,
}

impl Output {
    /// Creates the file.
    pub(super) fn create(storage: &dyn Storage, path: &Path) -> Result<Self> {
        let file = storage.open(path, OpenMode::Create, Transfer::Buffered, Area::Tables)?;
        Ok(Self {
            file,
            filling: Vec::with_capacity(PIECE_BYTES),
            handed: 0,
            helper: None,
            rate: None,
        })
    }

    /// Lets pieces leave at this rate from now on.
    pub(super) fn set_rate(&mut self, rate: Option<(Arc<RateLimit>, Arc<dyn Storage>)>) {
        self.rate = rate;
    }

    /// Waits until as many bytes as are gathered may leave.
    fn wait_for_turn(&self) {
        if let Some((rate, storage)) = &self.rate {
            rate.take(self.filling.len(), &**storage);
        }
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Appends `bytes`. An error may be that of a piece appended earlier.
    pub(super) fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = PIECE_BYTES - self.filling.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.filling.extend_from_slice(now);
            if self.filling.len() == PIECE_BYTES {
                self.hand_over()?;
            }
            bytes = later;
        }
        Ok(())
    }

    /// Completes the file and makes its content durable; its length.
    pub(super) fn finish(mut self) -> Result<u64> {
        let length = self.handed + self.filling.len() as u64;
        if let Some(helper) = self.helper.take() {
            helper.join()?;
        }
        if !self.filling.is_empty() {
            self.wait_for_turn();
            self.file.write_at(&self.filling, self.handed)?;
        }
        self.file.sync()?;
        Ok(length)
    }

    /// Gives the full buffer to the helper and goes on with an empty one.
    fn hand_over(&mut self) -> Result<()> {
        self.wait_for_turn();
        let helper = match &self.helper {
            Some(helper) => helper,
            None => self.helper.insert(Helper::start(&self.file)?),
        };
        let full = std::mem::take(&mut self.filling);
        self.handed += full.len() as u64;
        self.filling = helper.hand(full)?;
        Ok(())
    }
}

/// The thread that writes pieces.
struct Helper {
    desk: Arc<Desk>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Where buffers change hands.
#[derive(Default)]
struct Desk {
    state: Mutex<DeskState>,
    changed: Condvar,
}

#[derive(Default)]
struct DeskState {
    waiting: Option<Vec<u8>>,
    idle: Option<Vec<u8>>,
    failed: Option<Error>,
    closed: bool,
}

impl Helper {
    fn start(file: &Arc<dyn File>) -> Result<Self> {
        let desk = Arc::new(Desk::default());
        let (its_desk, its_file) = (Arc::clone(&desk), Arc::clone(file));
        let thread = thread::Builder::new()
            .name("waystation-table".into())
            .spawn(move || its_desk.serve(&*its_file))
            .map_err(|error| Error::io("start a thread to write", file.path(), error))?;
        Ok(Self {
            desk,
            thread: Some(thread),
        })
    }

    /// Hands `full` over once the one before is being written; an empty buffer in exchange.
    fn hand(&self, full: Vec<u8>) -> Result<Vec<u8>> {
        let mut state = lock(&self.desk.state);
        while state.waiting.is_some() && state.failed.is_none() {
            state = wait(&self.desk.changed, state);
        }
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        state.waiting = Some(full);
        let idle = state.idle.take();
        drop(state);
        self.desk.changed.notify_all();
        Ok(idle.unwrap_or_else(|| Vec::with_capacity(PIECE_BYTES)))
    }

    /// Waits until all that was handed over is written.
    fn join(mut self) -> Result<()> {
        self.stop();
        match lock(&self.desk.state).failed.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn stop(&mut self) {
        lock(&self.desk.state).closed = true;
        self.desk.changed.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            let died = std::io::Error::other("the thread that wrote it died");
            lock(&self.desk.state).failed = Some(Error::io("write", Path::new("a table"), died));
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Desk {
    /// Writes what is handed over, in order, until there is no more or a write fails.
    fn serve(&self, file: &dyn File) {
        let mut offset = 0;
        while let Some(mut buffer) = self.next() {
            let written = file.write_at(&buffer, offset);
            offset += buffer.len() as u64;
            buffer.clear();
            let failed = written.is_err();
            {
                let mut state = lock(&self.state);
                state.idle = Some(buffer);
                state.failed = written.err();
            }
            self.changed.notify_all();
            if failed {
                return;
            }
        }
    }

    fn next(&self) -> Option<Vec<u8>> {
        let mut state = lock(&self.state);
        loop {
            if let Some(buffer) = state.waiting.take() {
                drop(state);
                self.changed.notify_all();
                return Some(buffer);
            }
            if state.closed {
                return None;
            }
            state = wait(&self.changed, state);
        }
    }
}
