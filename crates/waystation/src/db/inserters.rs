//! Threads that fill memtables and the indexes of stays while the log is read back.
//!
//! Reading and checking the log is a matter of gigabytes a second; putting its records into a memtable is
//! not, most of all into a large one, nor is putting them into indexes. Records gather in a [`Chunk`]; full chunks go
//! to threads that start when the first one is full, so that a short log starts none. The order in which versions come
//! into a memtable or an index does not matter, and whoever may read it comes after [`Inserters::finish`].
//!
//! At most a few chunks wait: the reader stops until one is taken.

use super::pipeline::apply;
use super::view::Memory;
use crate::device::index::Entry;
use crate::device::resident::Resident;
use crate::error::{Error, Result};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Arc, Condvar, Mutex, lock, wait};
use std::collections::VecDeque;
use std::thread::{available_parallelism, panicking};
use waystation_format::batch::BatchIter;

/// Where a chunk is full.
const CHUNK_BYTES: usize = 128 * 1024;
/// Chunks that may wait for each thread.
const WAITING_MAX: usize = 2;
/// More threads than this would wait for the reader.
const THREADS_MAX: usize = 4;

/// Records on their way.
pub(super) trait Chunk: Default + Send + 'static {
    /// Puts all of them where they belong.
    fn insert_all(&self);
    /// Forgets them.
    fn clear(&mut self);
}

/// Batches for one memtable.
#[derive(Default)]
pub(super) struct Batches {
    memory: Option<Memory>,
    /// The batches one after the other, in `LevelDB`'s form.
    bytes: Vec<u8>,
    /// Where each of them ends, and its first sequence number.
    ends: Vec<(usize, u64)>,
}

impl Chunk for Batches {
    fn insert_all(&self) {
        let Some(memory) = &self.memory else {
            return;
        };
        let mut start = 0;
        for &(end, first_sequence) in &self.ends {
            let batch = BatchIter::parse(&self.bytes[start..end]);
            apply(
                memory,
                batch.expect("a batch is parsed before it is put into a chunk"),
                first_sequence,
            );
            start = end;
        }
    }

    fn clear(&mut self) {
        self.memory = None;
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Versions for the indexes of stays.
#[derive(Default)]
pub(super) struct Versions {
    /// The keys, without the prefixes, one after the other.
    keys: Vec<u8>,
    /// Where each of them ends.
    entries: Vec<(Arc<Resident>, usize, Entry)>,
}

impl Chunk for Versions {
    fn insert_all(&self) {
        let mut start = 0;
        for (stay, end, entry) in &self.entries {
            stay.insert(&self.keys[start..*end], entry);
            start = *end;
        }
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.entries.clear();
    }
}

/// What the reader and the threads share.
struct Queue<C> {
    state: Mutex<QueueState<C>>,
    /// A chunk came, or was taken, or the last one has come.
    changed: Condvar,
}

struct QueueState<C> {
    waiting: VecDeque<C>,
    /// Emptied chunks, for their memory.
    spare: Vec<C>,
    /// Threads that insert a chunk now.
    busy: usize,
    is_ended: bool,
}

/// The reader's end.
pub(super) struct Inserters<C: Chunk> {
    filling: C,
    queue: Arc<Queue<C>>,
    threads: Vec<JoinHandle<()>>,
}

impl Inserters<Batches> {
    /// Has `batch`, which parses, put into `memory`, numbered from `first_sequence` on.
    pub(super) fn insert(
        &mut self,
        memory: &Memory,
        batch: &[u8],
        first_sequence: u64,
    ) -> Result<()> {
        let is_other = |it: &Memory| !Arc::ptr_eq(&it.table, &memory.table);
        if self.filling.memory.as_ref().is_some_and(is_other) {
            self.hand_over()?;
        }
        let chunk = &mut self.filling;
        chunk.memory.get_or_insert_with(|| memory.clone());
        chunk.bytes.extend_from_slice(batch);
        chunk.ends.push((chunk.bytes.len(), first_sequence));
        if chunk.bytes.len() >= CHUNK_BYTES {
            self.hand_over()?;
        }
        Ok(())
    }
}

impl Inserters<Versions> {
    /// Has a version of `key`, which is without the prefix, put into the index of `stay`.
    pub(super) fn insert(&mut self, stay: Arc<Resident>, key: &[u8], entry: Entry) -> Result<()> {
        let chunk = &mut self.filling;
        chunk.keys.extend_from_slice(key);
        chunk.entries.push((stay, chunk.keys.len(), entry));
        if chunk.keys.len() + chunk.entries.len() * size_of::<Entry>() >= CHUNK_BYTES {
            self.hand_over()?;
        }
        Ok(())
    }
}

impl<C: Chunk> Inserters<C> {
    pub(super) fn new() -> Self {
        Self {
            filling: C::default(),
            queue: Arc::new(Queue {
                state: Mutex::new(QueueState {
                    waiting: VecDeque::new(),
                    spare: Vec::new(),
                    busy: 0,
                    is_ended: false,
                }),
                changed: Condvar::new(),
            }),
            threads: Vec::new(),
        }
    }

    fn hand_over(&mut self) -> Result<()> {
        if self.threads.is_empty() {
            self.start()?;
        }
        let mut state = lock(&self.queue.state);
        while state.waiting.len() >= WAITING_MAX * self.threads.len() {
            state = wait(&self.queue.changed, state);
        }
        let empty = state.spare.pop().unwrap_or_default();
        state
            .waiting
            .push_back(std::mem::replace(&mut self.filling, empty));
        drop(state);
        self.queue.changed.notify_all();
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        let processors = available_parallelism().map_or(1, usize::from);
        for _ in 0..processors.min(THREADS_MAX) {
            let queue = Arc::clone(&self.queue);
            let thread = thread::Builder::new()
                .name("waystation-replay".to_owned())
                .spawn(move || queue.work())
                .map_err(|error| Error::io("start thread", "waystation-replay", error))?;
            self.threads.push(thread);
        }
        Ok(())
    }

    /// Waits until everything so far is where it belongs.
    pub(super) fn catch_up(&mut self) {
        self.filling.insert_all();
        self.filling.clear();
        let mut state = lock(&self.queue.state);
        while state.busy > 0 || !state.waiting.is_empty() {
            state = wait(&self.queue.changed, state);
        }
    }

    /// Waits until everything is where it belongs.
    pub(super) fn finish(&mut self) {
        self.filling.insert_all();
        self.filling.clear();
        self.end();
    }

    fn end(&mut self) {
        lock(&self.queue.state).is_ended = true;
        self.queue.changed.notify_all();
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
        lock(&self.queue.state).waiting.clear();
        if !panicking() {
            self.end();
        }
    }
}

impl<C: Chunk> Queue<C> {
    /// Inserts chunks until the last one was taken.
    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some(mut chunk) = state.waiting.pop_front() {
                state.busy += 1;
                drop(state);
                self.changed.notify_all();
                chunk.insert_all();
                chunk.clear();
                state = lock(&self.state);
                state.busy -= 1;
                state.spare.push(chunk);
                if state.busy == 0 && state.waiting.is_empty() {
                    self.changed.notify_all();
                }
            } else if state.is_ended {
                return;
            } else {
                state = wait(&self.changed, state);
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::lsm::Lookup;
    use waystation_format::batch::WriteBatch;

    #[test]
    fn everything_arrives_in_its_memtable() {
        let tables: Vec<_> = (0..3)
            .map(|_| Memory::new(1 << 20, &Arc::default()))
            .collect();
        let mut inserters = Inserters::<Batches>::new();
        let value = vec![7; 300];
        for sequence in 1..=6000_u64 {
            let mut batch = WriteBatch::new();
            batch.put(&sequence.to_le_bytes(), &value);
            let table = &tables[(sequence as usize - 1) / 2000];
            inserters.insert(table, batch.as_bytes(), sequence).unwrap();
        }
        assert!(!inserters.threads.is_empty());
        inserters.finish();
        for sequence in 1..=6000_u64 {
            let table = &tables[(sequence as usize - 1) / 2000];
            let found = table.table.get(&sequence.to_le_bytes(), sequence);
            assert_eq!(found, Lookup::Found(&value[..]));
        }
        assert_eq!(
            tables.iter().map(|table| table.table.len()).sum::<usize>(),
            6000
        );
    }

    #[test]
    fn a_short_log_starts_no_thread_and_an_error_leaves_none() {
        let table = Memory::new(1 << 24, &Arc::default());
        let mut batch = WriteBatch::new();
        batch.put(b"key", b"value");
        let mut inserters = Inserters::<Batches>::new();
        inserters.insert(&table, batch.as_bytes(), 1).unwrap();
        assert!(inserters.threads.is_empty());
        inserters.finish();
        assert_eq!(table.table.get(b"key", 1), Lookup::Found(&b"value"[..]));

        let mut inserters = Inserters::<Batches>::new();
        for sequence in 2..20_000 {
            inserters
                .insert(&table, batch.as_bytes(), sequence)
                .unwrap();
        }
        drop(inserters);
        assert_eq!(Arc::strong_count(&table.table), 1);
    }
}
