//! Tests of directories that LevelDB left behind: its logs go to tables, in order and once.

use super::{Entries, History, assert_sound, dir, flush, machine, memory, open, small};
use crate::error::Error;
use crate::lsm::tree::Tree;
use crate::storage::{Area, OpenMode, Storage, Transfer};
use crate::sync::Arc;
use waystation_format::batch::WriteBatch;
use waystation_format::filename::{FileKind, log_name, parse};
use waystation_format::leveldb_log::RecordWriter;
use waystation_format::order::Order;

fn write_file(storage: &dyn Storage, name: &str, content: &[u8]) {
    let path = dir().join(name);
    let file = storage
        .open(&path, OpenMode::Create, Transfer::Buffered, Area::Tables)
        .unwrap();
    file.write_at(content, 0).unwrap();
    file.sync().unwrap();
    storage.sync_dir(&dir()).unwrap();
}

/// A log with batches of three operations each.
fn log(history: &mut History, batches: u64) -> Vec<u8> {
    let mut writer = RecordWriter::new(0);
    let mut content = Vec::new();
    let mut unused = Entries::new(&Order::Bytewise);
    for _ in 0..batches {
        let mut batch = WriteBatch::new();
        batch.set_sequence(history.last + 1);
        for _ in 0..3 {
            let key = format!("{:04}", history.last * 13 % 101);
            let value = format!("{} {}", history.last, "y".repeat(40));
            let deleted = history.last.is_multiple_of(5);
            if deleted {
                batch.delete(key.as_bytes());
            } else {
                batch.put(key.as_bytes(), value.as_bytes());
            }
            history.write(
                &mut unused,
                key.as_bytes(),
                (!deleted).then_some(value.as_bytes()),
            );
        }
        writer.append(batch.as_bytes(), &mut content);
    }
    content
}

fn logs_left(storage: &dyn Storage) -> usize {
    let entries = storage.list(&dir()).unwrap();
    entries
        .iter()
        .filter(|entry| matches!(parse(&entry.name), Some(FileKind::Log(_))))
        .count()
}

/// A directory with tables, closed so that LevelDB could have opened it.
fn closed(storage: &Arc<dyn Storage>, history: &mut History) {
    let tree = open(storage).unwrap();
    let mut memtable = Entries::new(&Order::Bytewise);
    for key in 0..60 {
        history.write(&mut memtable, format!("{key:04}").as_bytes(), Some(b"old"));
    }
    flush(&tree, &mut memtable, history.last, 0).unwrap();
    tree.close().unwrap();
}

#[test]
fn the_logs_of_leveldb_are_taken_over_in_order() {
    let storage: Arc<dyn Storage> = machine(1);
    let mut history = History::default();
    closed(&storage, &mut history);
    for number in [70, 71, 105] {
        let content = log(&mut history, 40);
        write_file(&*storage, &log_name(number), &content);
    }
    let torn = log(&mut history.clone(), 1);
    write_file(&*storage, &log_name(106), &torn[..torn.len() - 5]);
    let tree = open(&storage).unwrap();
    assert_eq!(logs_left(&*storage), 0);
    assert_eq!(tree.flushed_sequence(), history.last);
    history.compare(&tree, history.last);
    assert_sound(&tree);
    drop(tree);
    let tree = Tree::open(&storage, &dir(), &memory(), small()).unwrap();
    assert_eq!(tree.flushed_sequence(), history.last);
    history.compare(&tree, history.last);
}

#[test]
fn a_log_taken_over_twice_changes_nothing() {
    let storage: Arc<dyn Storage> = machine(2);
    let mut history = History::default();
    closed(&storage, &mut history);
    let content = log(&mut history, 50);
    let number = 900;
    write_file(&*storage, &log_name(number), &content);
    let tree = open(&storage).unwrap();
    // As if the machine had stopped after the tables were installed and before the log was let go.
    drop(tree);
    write_file(&*storage, &log_name(5_000), &content);
    let tree = open(&storage).unwrap();
    history.compare(&tree, history.last);
    // Every version is there twice until a merge meets both.
    tree.compact_range(None, None, &|| 0).unwrap();
    super::settle(&tree, 0);
    history.compare(&tree, history.last);
    assert_sound(&tree);
}

#[test]
fn a_damaged_log_is_reported_and_kept() {
    let storage: Arc<dyn Storage> = machine(3);
    let mut history = History::default();
    closed(&storage, &mut history);
    let mut content = log(&mut history, 50);
    content[500] ^= 1;
    write_file(&*storage, &log_name(900), &content);
    let error = open(&storage).err().expect("it is damaged");
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
    assert!(error.to_string().contains("000900.log"), "{error}");
    assert_eq!(logs_left(&*storage), 1);
}

#[test]
fn a_log_with_a_hole_ends_at_the_hole() {
    let storage: Arc<dyn Storage> = machine(4);
    let mut history = History::default();
    closed(&storage, &mut history);
    let mut content = log(&mut history.clone(), 20);
    let whole = content.len();
    content.extend(vec![0; 2_000]);
    // LevelDB does not sync every write: a power cut may have kept a sector from the medium, and not the next.
    content[1_024..1_536].fill(0);
    write_file(&*storage, &log_name(900), &content);
    let tree = open(&storage).unwrap();
    let found = tree.flushed_sequence();
    assert!(
        found > history.last && found < history.last + 3 * 20,
        "{found} of {whole} bytes"
    );
    assert_eq!((found - history.last) % 3, 0, "batches are whole");
    let kept = (found - history.last) / 3;
    log(&mut history, kept);
    history.compare(&tree, found);
}
