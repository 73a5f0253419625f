//! Threads that fill memtables and the indexes of devices while the log, or an index snapshot, is read back.
//!
//! Reading and checking the log is a matter of gigabytes a second; putting its records into a memtable is
//! not, most of all into a large one, nor is putting them into indexes. Records gather in a [`Chunk`]; full chunks go
//! to threads that start when the first one is full, so that a short log starts none. The order in which versions come
//! into a memtable or an index does not matter, and its readers come after [`Inserters::finish`].
//!
//! At most a few chunks wait: the delivering thread stops until one is taken.

use crate::error::{Error, Result};
use crate::storage::processors;
use crate::sync::Arc;
use crate::sync::queue::Queue;
use crate::sync::thread::{self, JoinHandle};
use std::thread::panicking;

/// Where a chunk is full.
pub(crate) const CHUNK_BYTES: usize = 128 * 1024;
/// Chunks that may wait.
const WAITING_MAX: usize = 8;
/// More threads than this would wait for the reader.
const THREADS_MAX: usize = 4;

/// Records on their way.
pub(crate) trait Chunk: Default + Send + 'static {
    /// Puts all of them where they belong.
    fn insert_all(&self);
    /// Forgets them.
    fn clear(&mut self);
}

/// The delivering thread's end.
pub(crate) struct Inserters<C: Chunk> {
    /// The chunk that is being filled.
    pub(crate) filling: C,
    queue: Arc<Queue<C>>,
    threads: Vec<JoinHandle<()>>,
}

impl<C: Chunk> Inserters<C> {
    pub(crate) fn new() -> Self {
        Self {
            filling: C::default(),
            queue: Arc::new(Queue::new(WAITING_MAX)),
            threads: Vec::new(),
        }
    }

    /// Hands the chunk that is being filled to the threads.
    pub(crate) fn hand_over(&mut self) -> Result<()> {
        if self.threads.is_empty() {
            self.start()?;
        }
        let empty = self.queue.spare().unwrap_or_default();
        self.queue.push(std::mem::replace(&mut self.filling, empty));
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        for _ in 0..processors().min(THREADS_MAX) {
            let queue = Arc::clone(&self.queue);
            let thread = thread::Builder::new()
                .name("waystation-replay".to_owned())
                .spawn(move || work(&queue))
                .map_err(|error| Error::io("start thread", "waystation-replay", error))?;
            self.threads.push(thread);
        }
        Ok(())
    }

    /// Whether threads were started.
    #[cfg(all(test, not(any(loom, shuttle))))]
    pub(crate) fn has_threads(&self) -> bool {
        !self.threads.is_empty()
    }

    /// Waits until everything so far is where it belongs.
    pub(crate) fn catch_up(&mut self) {
        self.filling.insert_all();
        self.filling.clear();
        self.queue.wait_until_done();
    }

    /// Waits until everything is where it belongs.
    pub(crate) fn finish(&mut self) {
        self.filling.insert_all();
        self.filling.clear();
        self.end();
    }

    fn end(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl<C: Chunk> Drop for Inserters<C> {
    fn drop(&mut self) {
        // After an error: what waits need not be inserted any more.
        self.queue.abandon();
        if !panicking() {
            self.end();
        }
    }
}

/// Inserts chunks until the last one was taken.
fn work<C: Chunk>(queue: &Queue<C>) {
    while let Some(mut chunk) = queue.pop() {
        chunk.insert_all();
        chunk.clear();
        queue.give_back(chunk);
    }
}
