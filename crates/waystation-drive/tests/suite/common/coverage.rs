//! Functional coverage: which situations the random jobs have put the engine into.

use std::collections::BTreeMap;
use waystation_drive::ip::{Job, Output, Traffic, image};

/// Situations that must be met, and how often each was.
#[derive(Debug)]
pub struct Coverage(BTreeMap<&'static str, u64>);

/// Every situation.
const POINTS: &[&str] = &[
    "input: none of the inputs has a record",
    "input: one is empty beside others",
    "input: a chain of tables",
    "block: begins in lane 0",
    "block: begins in lane 1..=7",
    "block: restart count straddles two words",
    "block: type byte in lane 0..=3",
    "block: type byte in lane 4..=7",
    "block: one entry",
    "block: longer than 16 KiB",
    "key: empty",
    "key: 1 to 7 bytes",
    "key: a multiple of 8 bytes",
    "key: 64 bytes",
    "key: a prefix of the next",
    "key: shares bytes with the trailer of another key",
    "key: shares all of the key before and some of its trailer",
    "value: empty",
    "value: length of two bytes",
    "value: length of three bytes",
    "value: ends within a word",
    "value: ends with a word",
    "drop: shadowed",
    "drop: vanished",
    "drop: everything",
    "keep: a deletion",
    "keep: two versions of a key",
    "output: two blocks share a word",
    "output: versions of a key in two blocks",
    "output: a block with one entry",
    "output: a block with all its restart points",
    "output: checksum in one word",
    "output: checksum across two words",
    "stall: memory",
    "stall: key",
    "stall: filter",
    "stall: value",
    "stall: record",
    "stall: write",
];

impl Default for Coverage {
    fn default() -> Self {
        Self(POINTS.iter().map(|&point| (point, 0)).collect())
    }
}

impl Coverage {
    fn hit(&mut self, point: &'static str, when: bool) {
        let count = self.0.get_mut(point).expect("the point is listed");
        *count += u64::from(when);
    }

    /// Notes what a job and its output have covered.
    pub fn note(&mut self, job: &Job, output: &Output, traffic: &Traffic) {
        self.inputs(job);
        self.output(output);
        let counters = &output.counters;
        self.hit("drop: shadowed", counters.shadowed > 0);
        self.hit("drop: vanished", counters.vanished > 0);
        let all = counters.records_in > 0 && counters.records_out == 0;
        self.hit("drop: everything", all);
        for (point, cycles) in [
            ("stall: memory", traffic.waits_memory),
            ("stall: key", traffic.waits_key),
            ("stall: filter", traffic.waits_filter),
            ("stall: value", traffic.waits_value),
            ("stall: record", traffic.waits_record),
            ("stall: write", traffic.waits_write),
        ] {
            self.hit(point, cycles > 0);
        }
    }

    fn inputs(&mut self, job: &Job) {
        let image = image::build(job, 64).unwrap();
        let empty = job.inputs.iter().filter(|input| input.is_empty()).count();
        self.hit(
            "input: none of the inputs has a record",
            empty == job.inputs.len(),
        );
        self.hit(
            "input: one is empty beside others",
            empty > 0 && empty < job.inputs.len(),
        );
        self.hit(
            "input: a chain of tables",
            job.inputs.iter().any(|input| input.len() > 1),
        );
        for (input, regions) in job.inputs.iter().zip(&image.tables) {
            for (table, region) in input.iter().zip(regions) {
                for handle in &table.blocks {
                    let begin = (u64::from(region.address) + handle.offset) % 8;
                    let kind = (begin + handle.length) % 8;
                    let count = (begin + handle.length - 4) % 8;
                    self.hit("block: begins in lane 0", begin == 0);
                    self.hit("block: begins in lane 1..=7", begin != 0);
                    self.hit("block: restart count straddles two words", count > 4);
                    self.hit("block: type byte in lane 0..=3", kind < 4);
                    self.hit("block: type byte in lane 4..=7", kind >= 4);
                    self.hit("block: longer than 16 KiB", handle.length > 16 << 10);
                    let start = handle.offset as usize;
                    self.entries(&table.bytes[start..start + handle.length as usize]);
                }
            }
        }
    }

    /// Walks the entries of an input block as they are stored.
    fn entries(&mut self, block: &[u8]) {
        let (before, count) = block.split_last_chunk::<4>().unwrap();
        let end = before.len() - 4 * u32::from_le_bytes(*count) as usize;
        let (mut at, mut key, mut entries) = (0, Vec::new(), 0);
        while at < end {
            let shared = usize::from(block[at]);
            let unshared = usize::from(block[at + 1]);
            let (value, bytes) = waystation_format::varint::get_u32(&block[at + 2..]).unwrap();
            let value = value as usize;
            let (user_before, length) = (key.len().saturating_sub(8), shared + unshared - 8);
            let foreign = entries > 0 && shared > user_before;
            self.hit(
                "key: shares bytes with the trailer of another key",
                foreign && length > user_before,
            );
            self.hit(
                "key: shares all of the key before and some of its trailer",
                foreign && length == user_before,
            );
            at += 2 + bytes;
            let before = key.clone();
            key.truncate(shared);
            key.extend_from_slice(&block[at..at + unshared]);
            at += unshared + value;
            entries += 1;
            let prefix =
                entries > 1 && length > user_before && key.starts_with(&before[..user_before]);
            self.hit("key: a prefix of the next", prefix);
            self.hit("key: empty", length == 0);
            self.hit("key: 1 to 7 bytes", (1..8).contains(&length));
            self.hit("key: a multiple of 8 bytes", length > 0 && length % 8 == 0);
            self.hit("key: 64 bytes", length == 64);
            self.hit("value: empty", value == 0);
            self.hit("value: length of two bytes", (128..16384).contains(&value));
            self.hit("value: length of three bytes", value >= 16384);
            self.hit("value: ends within a word", !value.is_multiple_of(8));
            self.hit(
                "value: ends with a word",
                value > 0 && value.is_multiple_of(8),
            );
        }
        self.hit("block: one entry", entries == 1);
    }

    fn output(&mut self, output: &Output) {
        for pair in output.blocks.windows(2) {
            let begin = pair[1].handle.offset;
            self.hit("output: two blocks share a word", begin % 8 != 0);
            let start = begin as usize;
            let user = &pair[0].last_key[..pair[0].last_key.len() - 8];
            // The first entry of a block shares nothing: header, then the whole key.
            let (_, value) =
                waystation_format::varint::get_u32(&output.bytes[start + 2..]).unwrap();
            let length = usize::from(output.bytes[start + 1]) - 8;
            let key = &output.bytes[start + 2 + value..][..length];
            self.hit("output: versions of a key in two blocks", key == user);
        }
        for block in &output.blocks {
            self.hit("output: a block with one entry", block.entries == 1);
            let kind = block.handle.offset + block.handle.length;
            self.hit("output: checksum in one word", kind % 8 < 4);
            self.hit(
                "output: checksum across two words",
                (4..7).contains(&(kind % 8)),
            );
            let end = kind as usize;
            let restarts = output.bytes[end - 4..end].first_chunk::<4>().unwrap();
            let all = u32::from_le_bytes(*restarts) == 64;
            self.hit("output: a block with all its restart points", all);
        }
        let records = super::records(output);
        self.hit(
            "keep: a deletion",
            records.iter().any(|(key, _)| key[key.len() - 8] == 0),
        );
        let versions = records
            .windows(2)
            .any(|pair| pair[0].0[..pair[0].0.len() - 8] == pair[1].0[..pair[1].0.len() - 8]);
        self.hit("keep: two versions of a key", versions);
    }

    /// Prints every situation with its count; how many were never met.
    pub fn report(&self) -> usize {
        for (point, count) in &self.0 {
            println!("{count:9}  {point}");
        }
        let missed = self.0.values().filter(|&&count| count == 0).count();
        let all = self.0.len();
        println!("functional coverage: {} of {all} points", all - missed);
        missed
    }
}
