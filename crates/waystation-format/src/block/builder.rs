//! Builds a block, one entry after the other in ascending order of keys.

use super::common_prefix;
use crate::varint;

/// Builds blocks, one after the other in the same memory.
#[derive(Debug)]
pub struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    restart_interval: usize,
    since_restart: usize,
    last_key: Vec<u8>,
}

impl BlockBuilder {
    /// A builder that places a restart point at every `restart_interval`-th entry (at least every one).
    pub fn new(restart_interval: usize) -> Self {
        Self {
            bytes: Vec::new(),
            restarts: Vec::new(),
            restart_interval: restart_interval.max(1),
            since_restart: 0,
            last_key: Vec::new(),
        }
    }

    /// Appends an entry. The caller sees to the order of keys.
    #[inline]
    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        let restart = self.since_restart == 0;
        let shared = if restart {
            self.restarts.push(self.bytes.len() as u32);
            0
        } else {
            common_prefix(&self.last_key, key)
        };
        self.since_restart += 1;
        if self.since_restart == self.restart_interval {
            self.since_restart = 0;
        }
        let unshared = &key[shared..];
        self.put_header(shared, unshared.len(), value.len());
        self.bytes.extend_from_slice(unshared);
        self.bytes.extend_from_slice(value);
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(unshared);
    }

    #[inline]
    fn put_header(&mut self, shared: usize, unshared: usize, value: usize) {
        self.bytes
            .reserve(3 * varint::MAX_U32_BYTES + unshared + value);
        if (shared | unshared | value) < 0x80 {
            self.bytes
                .extend_from_slice(&[shared as u8, unshared as u8, value as u8]);
        } else {
            for length in [shared, unshared, value] {
                varint::put_u64(&mut self.bytes, length as u64);
            }
        }
    }

    /// The key added last, also of the block before; empty if there is none.
    #[inline]
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Whether the block has no entry yet.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How long the block would be if it ended here.
    #[inline]
    pub fn estimated_bytes(&self) -> usize {
        self.bytes.len() + (self.restarts.len() + 1) * super::RESTART_BYTES
    }

    /// Completes the block and shows its bytes; [`reset`](Self::reset) begins the next one.
    pub fn finish(&mut self) -> &[u8] {
        if self.restarts.is_empty() {
            self.restarts.push(0); // as LevelDB does: an empty block has one restart point
        }
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&restart.to_le_bytes());
        }
        let count = self.restarts.len() as u32;
        self.bytes.extend_from_slice(&count.to_le_bytes());
        &self.bytes
    }

    /// Begins the next block in the same memory.
    pub fn reset(&mut self) {
        self.bytes.clear();
        self.restarts.clear();
        self.since_restart = 0;
    }
}
