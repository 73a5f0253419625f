//! Threads that fill memtables and the indexes of stays while the log, or an image, is read back.
//!
//! Reading and checking the log is a matter of gigabytes a second; putting its records into a memtable is
//! not, most of all into a large one, nor is putting them into indexes. Records gather in a [`Chunk`]; full chunks go
//! to threads that start when the first one is full, so that a short log starts none. The order in which versions come
//! into a memtable or an index does not matter, and whoever may read it comes after [`Inserters::finish`].
//!
//! At most a few chunks wait: whoever delivers records stops until one is taken.

use super::pipeline::apply;
use super::view::Memory;
use crate::device::image;
use crate::device::index::{Entry, Window};
use crate::device::resident::Resident;
use crate::error::{Error, Result};
use crate::log::Record;
use crate::sync::Arc;
use crate::sync::queue::Queue;
use crate::sync::thread::{self, JoinHandle};
use std::ops::Range;
use std::thread::{available_parallelism, panicking};
use waystation_format::batch::BatchIter;
use waystation_format::log::RecordHeader;

/// Where a chunk is full.
const CHUNK_BYTES: usize = 128 * 1024;
/// Chunks that may wait.
const WAITING_MAX: usize = 8;
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
    /// The batches' operations one after the other.
    bytes: Vec<u8>,
    /// Where those of each batch end.
    ends: Vec<(usize, RecordHeader)>,
}

impl Chunk for Batches {
    fn insert_all(&self) {
        let Some(memory) = &self.memory else {
            return;
        };
        let mut start = 0;
        for (end, header) in &self.ends {
            let (first_sequence, count) = (header.first_sequence, header.operations);
            let operations = &self.bytes[start..*end];
            let batch = BatchIter::parse_headless(first_sequence, count, operations);
            apply(
                memory,
                batch.expect("a batch is parsed before it is put into a chunk"),
                first_sequence,
            );
            start = *end;
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

/// Parts of stays, as a section of an image has them.
#[derive(Default)]
pub(super) struct Parts {
    section: Vec<u8>,
    /// For whom, where they are, and how many versions.
    parts: Vec<(Arc<Resident>, Range<usize>, u64)>,
}

impl Chunk for Parts {
    /// Of a part that makes no sense nothing is inserted: whoever knows how many versions there ought to be misses them.
    fn insert_all(&self) {
        let mut window = Window::default();
        for (stay, bytes, versions) in &self.parts {
            if image::unpack(&self.section[bytes.clone()], *versions, &mut window).is_ok() {
                stay.restore(&window);
            }
        }
    }

    fn clear(&mut self) {
        self.section = Vec::new();
        self.parts.clear();
    }
}

/// The end of whoever delivers records.
pub(super) struct Inserters<C: Chunk> {
    filling: C,
    queue: Arc<Queue<C>>,
    threads: Vec<JoinHandle<()>>,
}

impl Inserters<Batches> {
    /// Has the batch of `record`, which parses, put into `memory`.
    pub(super) fn insert(&mut self, memory: &Memory, record: &Record<'_>) -> Result<()> {
        let is_other = |it: &Memory| !Arc::ptr_eq(&it.table, &memory.table);
        if self.filling.memory.as_ref().is_some_and(is_other) {
            self.hand_over()?;
        }
        let chunk = &mut self.filling;
        chunk.memory.get_or_insert_with(|| memory.clone());
        chunk.bytes.extend_from_slice(record.payload);
        chunk.ends.push((chunk.bytes.len(), record.header));
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

impl Inserters<Parts> {
    /// Has `parts` of `section` put into the indexes of their stays.
    pub(super) fn insert(
        &mut self,
        section: Vec<u8>,
        parts: Vec<(Arc<Resident>, Range<usize>, u64)>,
    ) -> Result<()> {
        if !self.filling.parts.is_empty() {
            self.hand_over()?;
        }
        self.filling = Parts { section, parts };
        Ok(())
    }
}

impl<C: Chunk> Inserters<C> {
    pub(super) fn new() -> Self {
        Self {
            filling: C::default(),
            queue: Arc::new(Queue::new(WAITING_MAX)),
            threads: Vec::new(),
        }
    }

    fn hand_over(&mut self) -> Result<()> {
        if self.threads.is_empty() {
            self.start()?;
        }
        let empty = self.queue.spare().unwrap_or_default();
        self.queue.push(std::mem::replace(&mut self.filling, empty));
        Ok(())
    }

    fn start(&mut self) -> Result<()> {
        let processors = available_parallelism().map_or(1, usize::from);
        for _ in 0..processors.min(THREADS_MAX) {
            let queue = Arc::clone(&self.queue);
            let thread = thread::Builder::new()
                .name("waystation-replay".to_owned())
                .spawn(move || work(&queue))
                .map_err(|error| Error::io("start thread", "waystation-replay", error))?;
            self.threads.push(thread);
        }
        Ok(())
    }

    /// Waits until everything so far is where it belongs.
    pub(super) fn catch_up(&mut self) {
        self.filling.insert_all();
        self.filling.clear();
        self.queue.wait_until_done();
    }

    /// Waits until everything is where it belongs.
    pub(super) fn finish(&mut self) {
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

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::sst::Lookup;
    use waystation_format::batch::{HEADER_BYTES, WriteBatch};
    use waystation_format::log::RecordKind;
    use waystation_format::order::Order;

    /// The record of `batch`, with its first write at `first_sequence`.
    fn record(batch: &WriteBatch, first_sequence: u64) -> Record<'_> {
        let payload = &batch.as_bytes()[HEADER_BYTES..];
        Record {
            header: RecordHeader {
                payload_bytes: payload.len() as u32,
                first_sequence,
                operations: batch.len() as u32,
                kind: RecordKind::Batch,
            },
            payload,
            lsn: 0,
        }
    }

    #[test]
    fn everything_arrives_in_its_memtable() {
        let tables: Vec<_> = (0..3)
            .map(|_| Memory::new(1 << 20, &Arc::default(), &Order::Bytewise))
            .collect();
        let mut inserters = Inserters::<Batches>::new();
        let value = vec![7; 300];
        for sequence in 1..=6000_u64 {
            let mut batch = WriteBatch::new();
            batch.put(&sequence.to_le_bytes(), &value);
            let table = &tables[(sequence as usize - 1) / 2000];
            inserters.insert(table, &record(&batch, sequence)).unwrap();
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
        let table = Memory::new(1 << 24, &Arc::default(), &Order::Bytewise);
        let mut batch = WriteBatch::new();
        batch.put(b"key", b"value");
        let mut inserters = Inserters::<Batches>::new();
        inserters.insert(&table, &record(&batch, 1)).unwrap();
        assert!(inserters.threads.is_empty());
        inserters.finish();
        assert_eq!(table.table.get(b"key", 1), Lookup::Found(&b"value"[..]));

        let mut inserters = Inserters::<Batches>::new();
        for sequence in 2..20_000 {
            inserters.insert(&table, &record(&batch, sequence)).unwrap();
        }
        drop(inserters);
        assert_eq!(Arc::strong_count(&table.table), 1);
    }
}
