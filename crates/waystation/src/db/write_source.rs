//! The source of a write: what it consists of, as the commit pipeline sees it.
//!
//! Bytes as the log stores them, and the operations in them. Of a batch the operations are read from the bytes; of
//! a single put or deletion, which is the common write, they are known.

use super::WriteBatch;
use waystation_format::batch::{HEADER_BYTES, Operation};
use waystation_format::varint::encoded_len;

/// The operations of one write, and their bytes.
pub(super) trait WriteSource {
    /// How many operations there are.
    fn count(&self) -> u32;

    /// The bytes of all operations, one after the other. The log's record has a header of its own.
    fn payload(&self) -> &[u8];

    /// The operations, in order, borrowed from the payload.
    fn operations(&self) -> impl Iterator<Item = Operation<'_>>;
}

impl WriteSource for WriteBatch {
    fn count(&self) -> u32 {
        self.len() as u32
    }

    fn payload(&self) -> &[u8] {
        &self.as_bytes()[HEADER_BYTES..]
    }

    fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        self.iter()
    }
}

/// One operation: a put or the deletion of a key.
pub(super) struct Single<'a> {
    payload: &'a [u8],
    operation: Operation<'a>,
}

impl<'a> Single<'a> {
    /// `operation` alone, copied to `scratch`, from where it is read several times.
    pub(super) fn new(operation: &Operation<'_>, scratch: &'a mut WriteBatch) -> Self {
        scratch.clear();
        match operation.value {
            Some(value) => scratch.put(operation.key, value),
            None => scratch.delete(operation.key),
        }
        let payload = &scratch.as_bytes()[HEADER_BYTES..];
        let value_bytes = operation.value.map(<[u8]>::len);
        let (head, value) = payload.split_at(payload.len() - value_bytes.unwrap_or(0));
        // Between key and value stands the value's length.
        let length_bytes = value_bytes.map_or(0, |bytes| encoded_len(bytes as u64));
        let key_end = head.len() - length_bytes;
        let operation = Operation {
            key: &head[key_end - operation.key.len()..key_end],
            value: operation.value.map(|_| value),
            ..Operation::default()
        };
        Self { payload, operation }
    }
}

impl WriteSource for Single<'_> {
    fn count(&self) -> u32 {
        1
    }

    fn payload(&self) -> &[u8] {
        self.payload
    }

    fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        std::iter::once(self.operation)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn a_single_operation_is_what_a_batch_of_one_would_be() {
        let mut scratch = WriteBatch::new();
        for value_bytes in [None, Some(0), Some(1), Some(127), Some(128), Some(70_000)] {
            let value = value_bytes.map(|bytes| vec![7; bytes]);
            let operation = Operation {
                key: b"key",
                value: value.as_deref(),
                ..Operation::default()
            };
            let single = Single::new(&operation, &mut scratch);
            assert_eq!(single.operations().collect::<Vec<_>>(), [operation]);
            let mut batch = WriteBatch::new();
            match &value {
                Some(value) => batch.put(b"key", value),
                None => batch.delete(b"key"),
            }
            assert_eq!(single.payload(), batch.payload());
            assert!(single.operations().eq(WriteSource::operations(&batch)));
        }
    }
}
