//! Random jobs: records of many shapes, spread over inputs and tables, and what a run of them covers.
#![allow(unreachable_pub, reason = "the tests see all of it")]

pub mod coverage;
pub mod random;

use random::Random;
use std::collections::BTreeSet;
use waystation_drive::ip::{Job, Settings, TableImage, table};
use waystation_format::key::{ValueKind, compare_internal, pack_trailer};
use waystation_format::table::{Compression, TableOptions, TableWriter};

/// An internal key and a value.
pub type Record = (Vec<u8>, Vec<u8>);

/// What user keys look like.
#[derive(Debug, Clone, Copy)]
pub enum Keys {
    /// Sixteen digits, as `db_bench` writes.
    Digits,
    /// Up to 64 bytes out of a few byte values that trailers have too, many a prefix of another.
    Tricky,
    /// A handful of keys with many versions each.
    Few,
    /// 64 bytes that differ at their end.
    Long,
}

/// What values look like.
#[derive(Debug, Clone, Copy)]
pub enum Values {
    /// No bytes.
    Empty,
    /// This many bytes.
    Fixed(usize),
    /// Up to 300 bytes, rarely 20,000.
    Mixed,
}

/// A recipe for a job.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub seed: u64,
    pub inputs: usize,
    pub records: usize,
    pub keys: Keys,
    pub values: Values,
    /// Of 256 records, how many are deletions.
    pub deletions: u64,
    /// Whether inputs may be chains of tables, or empty.
    pub chains: bool,
    /// How tables are laid out.
    pub block_bytes: usize,
    pub restart_interval: usize,
    pub settings: Settings,
}

impl Recipe {
    /// A recipe drawn at random, all from the seed.
    pub fn random(seed: u64, inputs: usize) -> Self {
        let mut random = Random::new(seed);
        let keys = random.pick(&[
            Keys::Digits,
            Keys::Tricky,
            Keys::Tricky,
            Keys::Few,
            Keys::Long,
        ]);
        let values = random.pick(&[
            Values::Empty,
            Values::Fixed(100),
            Values::Fixed(8),
            Values::Mixed,
            Values::Mixed,
        ]);
        let records = [random.below(900) as usize, 0][usize::from(random.below(20) == 0)];
        let middle = random.below(1 + records as u64);
        let snapshot = random.pick(&[u64::MAX >> 8, middle, 0]);
        Self {
            seed,
            inputs,
            records,
            keys,
            values,
            deletions: random.pick(&[0, 26, 128, 256]),
            chains: random.below(2) == 0,
            block_bytes: random.pick(&[64, 512, 1024, 4096, 16384]),
            restart_interval: random.pick(&[1, 2, 16, 16, 128]),
            settings: Settings {
                smallest_snapshot: snapshot,
                bottom: random.below(2) == 0,
                block_bytes: random.pick(&[128, 1024, 4096, 4096, 65536]),
                restart_interval: random.pick(&[1, 3, 16, 16, 127]),
            },
        }
    }

    /// The job.
    pub fn job(&self) -> Job {
        let mut random = Random::new(self.seed ^ 0x5eed);
        let mut inputs: Vec<Vec<Record>> = vec![Vec::new(); self.inputs];
        // Sequence numbers in trailers of a few byte values: next to Tricky keys they share bytes with them.
        let spread = random.pick(&[1, 257, 65_793]);
        for number in 0..self.records {
            let user_key = self.user_key(&mut random);
            let kind = if random.below(256) < self.deletions {
                ValueKind::Deletion
            } else {
                ValueKind::Value
            };
            let mut key = user_key;
            let sequence = (number as u64 + 1) * spread;
            key.extend_from_slice(&pack_trailer(sequence, kind).to_le_bytes());
            let value = match kind {
                ValueKind::Value => self.value(&mut random),
                ValueKind::Deletion => Vec::new(),
            };
            let mut input = random.below(self.inputs as u64) as usize;
            if self.chains && input == 1 {
                input = 0; // the second input stays empty
            }
            inputs[input].push((key, value));
        }
        let inputs = inputs
            .into_iter()
            .map(|records| self.tables(records, &mut random))
            .collect();
        Job {
            inputs,
            settings: Settings {
                smallest_snapshot: self.settings.smallest_snapshot.saturating_mul(spread),
                ..self.settings
            },
        }
    }

    fn user_key(&self, random: &mut Random) -> Vec<u8> {
        match self.keys {
            Keys::Digits => {
                format!("{:016}", random.below(self.records as u64 * 8 + 1)).into_bytes()
            }
            Keys::Tricky => {
                let length = match random.below(4) {
                    0 => random.below(4),
                    1 => random.below(12),
                    2 => 8 * random.below(9),
                    _ => random.below(65),
                };
                let alphabet = random.pick(&[&[0u8, 1][..], &[0, 1, 255], &[1]]);
                (0..length).map(|_| random.pick(alphabet)).collect()
            }
            Keys::Few => vec![b'k'; random.below(6) as usize],
            Keys::Long => {
                let mut key = vec![b'x'; 60];
                key.extend_from_slice(format!("{:04}", random.below(2000)).as_bytes());
                key
            }
        }
    }

    fn value(&self, random: &mut Random) -> Vec<u8> {
        let length = match self.values {
            Values::Empty => 0,
            Values::Fixed(bytes) => bytes as u64,
            Values::Mixed if random.below(200) == 0 => 20_000,
            Values::Mixed => random.below(300),
        };
        let mut value = vec![0; length as usize];
        random.fill(&mut value);
        value
    }

    fn tables(&self, mut records: Vec<Record>, random: &mut Random) -> Vec<TableImage> {
        records.sort_by(|a, b| compare_internal(&a.0, &b.0));
        if records.is_empty() {
            return Vec::new();
        }
        let pieces = if self.chains {
            1 + random.below(3) as usize
        } else {
            1
        };
        records
            .chunks(records.len().div_ceil(pieces))
            .map(|records| build(records, self.block_bytes, self.restart_interval))
            .collect()
    }
}

/// A table written by waystation-format.
pub fn build(records: &[Record], block_bytes: usize, restart_interval: usize) -> TableImage {
    let mut writer = TableWriter::new(TableOptions {
        block_bytes,
        restart_interval,
        compression: Compression::None,
        ..TableOptions::default()
    });
    for (key, value) in records {
        writer.add(key, value).unwrap();
    }
    writer.finish();
    table::read(writer.pending().to_vec()).unwrap()
}

/// A record with this user key.
pub fn record(user_key: &[u8], sequence: u64, kind: ValueKind, value: &[u8]) -> Record {
    let mut key = user_key.to_vec();
    key.extend_from_slice(&pack_trailer(sequence, kind).to_le_bytes());
    (key, value.to_vec())
}

/// The user keys in an output, in order, without repetitions.
pub fn user_keys(records: &[Record]) -> BTreeSet<Vec<u8>> {
    records
        .iter()
        .map(|(key, _)| key[..key.len() - 8].to_vec())
        .collect()
}

/// The records of an output, decoded block by block by waystation-format.
pub fn records(output: &waystation_drive::ip::Output) -> Vec<Record> {
    let mut records = Vec::new();
    for block in &output.blocks {
        let start = block.handle.offset as usize;
        let end = start + block.handle.length as usize + 5;
        let mut scratch = Vec::new();
        let contents =
            waystation_format::table::decode_block(&output.bytes[start..end], &mut scratch)
                .unwrap();
        let block = waystation_format::block::Block::new(contents).unwrap();
        let mut entries = waystation_format::block::BlockIter::new(block);
        entries.seek_to_first().unwrap();
        while entries.valid() {
            records.push((entries.key().to_vec(), entries.value().to_vec()));
            entries.next().unwrap();
        }
    }
    records
}
