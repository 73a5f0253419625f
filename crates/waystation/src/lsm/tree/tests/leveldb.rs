//! Directories that go to and fro between this engine and the real LevelDB, where it is installed.

use super::{Entries, Tree, assert_sound, flush, memory, scan, settle, small};
use crate::lsm::compaction::Traffic;
use crate::sst::Lookup;
use crate::storage::Storage;
use crate::storage::os::OsStorage;
use crate::sync::Arc;
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;
use waystation_format::order::Order;
use waystation_oracle::{LevelDb, Operation, Settings};

type Content = BTreeMap<Vec<u8>, Vec<u8>>;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    /// A key, and what becomes of it.
    fn write(&mut self) -> (Vec<u8>, Option<Vec<u8>>) {
        let key = format!("{:05}", self.below(3_000)).into_bytes();
        let length = 20 + self.below(200) as usize;
        let mut value = format!("{:x}", self.below(1 << 30))
            .repeat(length)
            .into_bytes();
        value.truncate(length);
        (key, (self.below(4) > 0).then_some(value))
    }
}

fn note(content: &mut Content, key: &[u8], value: Option<&[u8]>) {
    match value {
        Some(value) => content.insert(key.to_vec(), value.to_vec()),
        None => content.remove(key),
    };
}

fn leveldb_writes(db: &LevelDb, random: &mut Random, content: &mut Content, writes: u64) {
    for _ in 0..writes {
        let mut batch = Vec::new();
        for _ in 0..=random.below(3) {
            let (key, value) = random.write();
            note(content, &key, value.as_deref());
            batch.push(match value {
                Some(value) => Operation::Put(key, value),
                None => Operation::Delete(key),
            });
        }
        db.write(&batch, false).unwrap();
    }
}

fn tree_writes(tree: &Tree, random: &mut Random, content: &mut Content, flushes: u64) {
    for _ in 0..flushes {
        let mut memtable = Entries::new(&Order::Bytewise);
        let mut sequence = tree.flushed_sequence();
        for _ in 0..150 {
            let (key, value) = random.write();
            note(content, &key, value.as_deref());
            sequence += 1;
            memtable.push(&key, sequence, value.as_deref());
        }
        flush(tree, &mut memtable, sequence, sequence).unwrap();
        while random.below(3) > 0 && tree.compact_once(&|| sequence, Traffic::Writes).unwrap() {}
    }
}

fn compare(tree: &Tree, content: &Content) {
    let sequence = tree.flushed_sequence();
    assert!(scan(tree, sequence).into_iter().eq(content.clone()));
    let version = tree.version();
    for number in 0..3_000 {
        let key = format!("{number:05}").into_bytes();
        let found = match tree.get(&version, &key, sequence).unwrap() {
            Lookup::Found(value) => Some(value),
            Lookup::Deleted | Lookup::Missing => None,
        };
        assert_eq!(found.as_ref(), content.get(&key));
    }
    assert_sound(tree);
}

fn open_tree(path: &Path) -> Tree {
    let storage: Arc<dyn Storage> = OsStorage::new();
    Tree::open(&storage, path, &memory(), small()).unwrap()
}

/// A directory in memory where there is one: both engines sync all the time, and nothing here is about that.
fn quick_dir() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

#[test]
fn directories_go_to_and_fro() {
    for seed in 0..2 {
        let dir = quick_dir();
        let settings = Settings {
            snappy: seed % 2 == 0,
            filter_bits_per_key: 10,
            ..Settings::default()
        };
        let mut random = Random(seed);
        let mut content = Content::new();
        for round in 0..3 {
            let db = match LevelDb::open(dir.path(), settings) {
                Err(error) if round == 0 && error.contains("not installed") => return,
                opened => opened.unwrap(),
            };
            assert!(
                db.entries().unwrap().into_iter().eq(content.clone()),
                "seed {seed} round {round}"
            );
            leveldb_writes(&db, &mut random, &mut content, 700);
            if round % 2 == 1 {
                db.compact();
                leveldb_writes(&db, &mut random, &mut content, 50);
            }
            drop(db);

            let tree = open_tree(dir.path());
            assert!(tree.state().is_empty(), "what was kept is void");
            tree.set_state(BTreeMap::from([("kept".to_owned(), vec![1])]))
                .unwrap();
            compare(&tree, &content);
            tree_writes(&tree, &mut random, &mut content, 8);
            compare(&tree, &content);
            drop(tree); // as a crash would

            let refused = LevelDb::open(dir.path(), settings).expect_err("the fence is up");
            assert!(refused.contains("comparator"), "{refused}");
            let tree = open_tree(dir.path());
            assert_eq!(tree.state()["kept"], [1]);
            compare(&tree, &content);
            // LevelDB sleeps with every write while level 0 is full.
            settle(&tree, tree.flushed_sequence());
            tree.close().unwrap();
        }
    }
}
