//! Log and tables belong together: a log beside other tables than its own is refused, not replayed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use waystation::storage::sim::Crash;
use waystation::storage::{Area, OpenMode, SimStorage, Storage, Transfer};
use waystation::{Db, Error, Options};
use waystation_format::leveldb_log::RecordWriter;
use waystation_format::version_edit::{BYTEWISE_COMPARATOR, VersionEdit};

fn dir() -> PathBuf {
    PathBuf::from("/db")
}

fn options() -> Options {
    Options {
        memtable_bytes: 1 << 20,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        ..Options::default()
    }
}

fn open(storage: &Arc<SimStorage>) -> Result<Db, Error> {
    let storage: Arc<dyn Storage> = Arc::clone(storage) as Arc<dyn Storage>;
    Db::open_with(storage, dir(), options())
}

fn key(number: u32) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

fn write(db: &Db, from: u32, count: u32) {
    for number in from..from + count {
        db.put(&key(number), &[7; 1000]).expect("writes");
    }
}

fn write_file(storage: &SimStorage, path: &Path, content: &[u8]) {
    let file = storage
        .open(path, OpenMode::Create, Transfer::Buffered, Area::Tables)
        .expect("opens");
    file.write_at(content, 0).expect("writes");
}

#[test]
fn a_log_beside_other_tables_is_refused() {
    let machine = SimStorage::new(1);
    let db = open(&machine).unwrap();
    write(&db, 0, 10);
    let machine = machine.crash(1, Crash::Process);
    drop(db);
    // What a repair by LevelDB leaves: another MANIFEST, without our fence; the log is not its business.
    let edit = VersionEdit {
        comparator: Some(BYTEWISE_COMPARATOR.to_owned()),
        log_number: Some(0),
        next_file_number: Some(901),
        last_sequence: Some(0),
        ..VersionEdit::default()
    };
    let mut content = Vec::new();
    RecordWriter::new(0).append(&edit.to_bytes(), &mut content);
    write_file(&machine, &dir().join("MANIFEST-000900"), &content);
    write_file(&machine, &dir().join("CURRENT"), b"MANIFEST-000900\n");
    for _ in 0..2 {
        let error = open(&machine).err().expect("the log is of other tables");
        assert!(matches!(error, Error::Incompatible { .. }), "{error}");
        assert!(
            error.to_string().contains("belong to other tables"),
            "{error}"
        );
    }
    for entry in machine.list(&dir()).unwrap() {
        if entry.name == "JOURNAL" || entry.name.starts_with("journal") {
            machine.remove(&dir().join(entry.name)).unwrap();
        }
    }
    let db = open(&machine).unwrap();
    assert_eq!(db.get(&key(3)).unwrap(), None);
    write(&db, 0, 10);
    let machine = machine.crash(2, Crash::Process);
    drop(db);
    let db = open(&machine).unwrap();
    assert!(db.get(&key(3)).unwrap().is_some());
}
