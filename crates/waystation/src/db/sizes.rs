//! Where the bytes of a database lie.

use super::Db;
use crate::error::Result;

/// A table in force.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct TableInfo {
    /// The level it is in.
    pub level: usize,
    /// Its number, which its file is named by.
    pub number: u64,
    /// The length of its file (bytes).
    pub file_bytes: u64,
    /// Its first key.
    pub smallest: Vec<u8>,
    /// Its last key.
    pub largest: Vec<u8>,
}

impl Db {
    /// About how many bytes of storage the keys from `lower` on and before `upper` take in tables: exact to the
    /// blocks at both ends. Data in memory, or in the upper level, does not count.
    pub fn approximate_bytes(&self, lower: &[u8], upper: &[u8]) -> Result<u64> {
        let read_state = self.core.read_states.load();
        self.core
            .tree
            .approximate_bytes(&read_state.version, lower, upper)
    }

    /// The tables in force, by level; in level 0 the newest first, deeper by their keys.
    pub fn tables(&self) -> Vec<TableInfo> {
        let read_state = self.core.read_states.load();
        let info = |(level, table): (usize, &crate::sync::Arc<crate::sst::TableMeta>)| TableInfo {
            level,
            number: table.number,
            file_bytes: table.file_bytes,
            smallest: table.smallest_user_key().to_vec(),
            largest: table.largest_user_key().to_vec(),
        };
        read_state.version.tables().map(info).collect()
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use crate::{Compression, Db, Options};

    #[test]
    fn bytes_of_a_range_are_its_share_of_the_tables() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options {
            compression: Compression::None,
            ..Options::default()
        };
        let db = Db::open(dir.path(), options).unwrap();
        for i in 0..10_000 {
            db.put(format!("{i:06}").as_bytes(), &[7; 100]).unwrap();
        }
        assert_eq!(db.approximate_bytes(b"", b"zz").unwrap(), 0);
        db.flush().unwrap();
        db.wait_idle().unwrap();
        let tables = db.tables();
        let all: u64 = tables.iter().map(|table| table.file_bytes).sum();
        assert_eq!(db.approximate_bytes(b"", b"zz").unwrap(), all);
        let half = db.approximate_bytes(b"002500", b"007500").unwrap();
        assert!(half.abs_diff(all / 2) < all / 20, "{half} of {all}");
        assert_eq!(db.approximate_bytes(b"007500", b"002500").unwrap(), 0);
        assert_eq!(tables[0].smallest, b"000000");
    }
}
