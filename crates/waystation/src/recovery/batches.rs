//! Batches of the log on their way into memtables, while an opening reads it back.

use crate::error::Result;
use crate::log::{CHUNK_BYTES, Chunk, Inserters, Record};
use crate::read_state::MemtablePair;
use crate::read_state::apply::apply;
use crate::sync::Arc;
use waystation_format::batch::BatchIter;
use waystation_format::log::RecordHeader;

/// Batches for one memtable.
#[derive(Default)]
pub(super) struct Batches {
    memory: Option<MemtablePair>,
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

impl Inserters<Batches> {
    /// Has the batch of `record`, which parses, put into `memory`.
    pub(super) fn insert(&mut self, memory: &MemtablePair, record: &Record<'_>) -> Result<()> {
        let is_other = |it: &MemtablePair| !Arc::ptr_eq(&it.table, &memory.table);
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
            .map(|_| MemtablePair::new(1 << 20, &Arc::default(), &Order::Bytewise))
            .collect();
        let mut inserters = Inserters::<Batches>::new();
        let value = vec![7; 300];
        for sequence in 1..=6000_u64 {
            let mut batch = WriteBatch::new();
            batch.put(&sequence.to_le_bytes(), &value);
            let table = &tables[(sequence as usize - 1) / 2000];
            inserters.insert(table, &record(&batch, sequence)).unwrap();
        }
        assert!(inserters.has_threads());
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
        let table = MemtablePair::new(1 << 24, &Arc::default(), &Order::Bytewise);
        let mut batch = WriteBatch::new();
        batch.put(b"key", b"value");
        let mut inserters = Inserters::<Batches>::new();
        inserters.insert(&table, &record(&batch, 1)).unwrap();
        assert!(!inserters.has_threads());
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
