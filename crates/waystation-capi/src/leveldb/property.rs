//! Properties: figures about a database, as text.

use std::fmt::Write;
use waystation::{Db, LevelStats, TableInfo};

const MIB: f64 = 1_048_576.0;

/// The value of a property, if there is one of that name.
pub(super) fn value(db: &Db, name: &str) -> Option<String> {
    if name == "waystation.stats" {
        return serde_json::to_string(&db.stats()).ok();
    }
    let name = name.strip_prefix("leveldb.")?;
    if let Some(level) = name.strip_prefix("num-files-at-level") {
        let is_number = !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit());
        let level: usize = level.parse().ok().filter(|_| is_number)?;
        let levels = db.stats().tree.levels;
        return levels.get(level).map(|level| level.tables.to_string());
    }
    match name {
        "stats" => Some(stats(&db.stats().tree.levels)),
        "sstables" => Some(tables(&db.tables(), db.stats().tree.levels.len())),
        "approximate-memory-usage" => {
            let stats = db.stats();
            let bytes = stats.memtable_bytes as u64
                + stats.tree.cached_bytes
                + stats.tree.table_memory_bytes;
            Some(bytes.to_string())
        }
        _ => None,
    }
}

/// A line for every level that has tables or was written to, in LevelDB's columns.
fn stats(levels: &[LevelStats]) -> String {
    let mut text = String::from(
        "                               Compactions\n\
         Level  Files Size(MB) Time(sec) Read(MB) Write(MB)\n\
         --------------------------------------------------\n",
    );
    for (number, level) in levels.iter().enumerate() {
        if level.tables > 0 || level.merges.jobs > 0 {
            let _ = writeln!(
                text,
                "{number:3} {:8} {:8.0} {:9.0} {:8.0} {:9.0}",
                level.tables,
                level.bytes as f64 / MIB,
                level.merges.elapsed_us as f64 / 1e6,
                level.merges.read_bytes as f64 / MIB,
                level.merges.written_bytes as f64 / MIB,
            );
        }
    }
    text
}

/// Every table of every level: number, bytes, first and last key.
fn tables(tables: &[TableInfo], levels: usize) -> String {
    let mut text = String::new();
    for level in 0..levels {
        let _ = writeln!(text, "--- level {level} ---");
        for table in tables.iter().filter(|table| table.level == level) {
            let (smallest, largest) = (table.smallest.escape_ascii(), table.largest.escape_ascii());
            let _ = writeln!(
                text,
                " {}:{}['{smallest}' .. '{largest}']",
                table.number, table.file_bytes
            );
        }
    }
    text
}
