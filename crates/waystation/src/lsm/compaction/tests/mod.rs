//! Tests of picking and merging: scripts of levels in and choices out, and a model of the whole tree.

mod job;
mod model;
mod script;

use super::{OutputLayout, Shape};
use crate::sst::{LearntFacts, TableFacts, TableMeta};
use crate::sync::Arc;
use waystation_format::key::{ValueKind, append};

/// A shape in which a table is 10 bytes long and level 1 holds 100.
const SMALL: Shape = Shape {
    level0_trigger: 4,
    level_base_bytes: 100,
    fan_out: 10,
    table_bytes: 10,
};

const LAYOUT: OutputLayout = OutputLayout {
    block_bytes: 4096,
    restart_interval: 16,
    compression: 1,
    filter_bits_per_key: 10,
};

fn internal(user_key: &str, sequence: u64) -> Vec<u8> {
    let mut key = Vec::new();
    append(&mut key, user_key.as_bytes(), sequence, ValueKind::Value);
    key
}

fn table(number: u64, smallest: Vec<u8>, largest: Vec<u8>, file_bytes: u64) -> TableMeta {
    TableMeta {
        number,
        file_bytes,
        smallest,
        largest,
        facts: LearntFacts::default(),
    }
}

fn facts(entries: u64, deletions: u64, largest_sequence: u64) -> TableFacts {
    TableFacts {
        smallest_sequence: 0,
        largest_sequence,
        purged_through: 0,
        entries,
        deletions,
    }
}

fn shared(table: TableMeta) -> Arc<TableMeta> {
    Arc::new(table)
}
