//! Index snapshots are read as they were written, and not otherwise.

use super::*;
use crate::devices::index::{Entry, Spot, Window};
use crate::devices::ledger::Ledger;
use crate::devices::residency::Residency;
use crate::devices::table::DeviceTable;
use crate::directory::{INDEX_SNAPSHOT_DRAFT, INDEX_SNAPSHOT_NAME, read_file};
use crate::error::{Error, Result};
use crate::options::Extractor;
use crate::storage::{Area, OpenMode, SimStorage, Storage, Transfer};
use crate::sync::Arc;
use std::path::Path;
use std::time::Duration;

type Version = (Vec<u8>, Entry);
/// First sequence number, switch and versions of a residency, by its prefix.
type Residencies = Vec<(Vec<u8>, u64, Option<u64>, Vec<Version>)>;

const THROUGH: u64 = 5_000;
const HEADER: Header = Header {
    engine: EngineId([7; 16]),
    through: THROUGH,
    lsn: 1 << 40,
};

fn dir() -> &'static Path {
    Path::new("/d")
}

fn window(versions: &[Version]) -> Window {
    let mut window = Window::default();
    for (key, entry) in versions {
        window.push(key, *entry);
    }
    window
}

/// Writes an index snapshot of `residencies`, each in chunks of at most `chunk` versions.
fn write(storage: &dyn Storage, residencies: &Residencies, chunk: usize) {
    let mut writer = SnapshotWriter::create(storage, dir(), &HEADER).expect("create");
    for (prefix, first_sequence, switch, versions) in residencies {
        let head = Head {
            prefix,
            first_sequence: *first_sequence,
            first_lsn: first_sequence * 100,
            switch: *switch,
        };
        for chunk in versions.chunks(chunk) {
            writer.add(&head, &window(chunk)).expect("add");
        }
    }
    writer.finish(77).expect("finish");
    let (draft, name) = (
        dir().join(INDEX_SNAPSHOT_DRAFT),
        dir().join(INDEX_SNAPSHOT_NAME),
    );
    storage.rename(&draft, &name).expect("rename");
}

/// The content of the index snapshot, the parts of a residency put together.
fn read(storage: &dyn Storage) -> Result<(Residencies, End)> {
    let mut snapshot =
        SnapshotReader::open(storage, &dir().join(INDEX_SNAPSHOT_NAME))?.expect("it is there");
    assert_eq!(snapshot.header, HEADER);
    let (mut residencies, mut packed) = (Residencies::new(), Window::default());
    loop {
        let section = match snapshot.read_next()? {
            Next::Section(section) => section,
            Next::End(end) => return Ok((residencies, end)),
        };
        for part in parts(&section, THROUGH).map_err(|error| snapshot.damaged(&error))? {
            let unpacked = unpack(&section[part.bytes], part.versions, &mut packed);
            unpacked.map_err(|error| snapshot.damaged(&error))?;
            let head = part.head;
            assert_eq!(head.first_lsn, head.first_sequence * 100);
            if residencies
                .last()
                .is_none_or(|last| *last.0 != *head.prefix)
            {
                residencies.push((
                    head.prefix.to_vec(),
                    head.first_sequence,
                    head.switch,
                    vec![],
                ));
            }
            if let Some(last) = residencies.last_mut() {
                let versions = (0..packed.len()).filter_map(|at| packed.get(at));
                last.3
                    .extend(versions.map(|(key, entry)| (key.to_vec(), *entry)));
            }
        }
    }
}

/// A version of a key of the first `bytes` bytes `key`, put or deleted.
fn version(key: &str, sequence: u64) -> Version {
    let spot = Spot {
        record_lsn: sequence * 1000 % 77_777,
        offset: 40,
        length: sequence as u32 % 300,
    };
    let value = (!sequence.is_multiple_of(7)).then_some(spot);
    (key.as_bytes().to_vec(), Entry { sequence, value })
}

fn sample() -> Residencies {
    let many = (0..3_000).map(|number| version(&format!("sensor:{number:05}"), 1_000 + number));
    let again = [9, 4, 1].map(|sequence| version("again", sequence * 100));
    vec![
        (b"a:".to_vec(), 100, None, again.to_vec()),
        (b"b:".to_vec(), 1_000, Some(4_000), many.collect()),
        (b"c:".to_vec(), 4_999, None, vec![version("", 4_999)]),
    ]
}

fn machine() -> Arc<SimStorage> {
    let storage = SimStorage::new(1);
    storage.create_dir(dir()).expect("create");
    storage
}

#[test]
fn what_was_written_is_read_however_it_was_cut() {
    let storage = machine();
    for chunk in [1, 7, 10_000] {
        write(&*storage, &sample(), chunk);
        let (residencies, end) = read(&*storage).expect("read");
        assert_eq!(residencies, sample());
        assert_eq!((end.needless, end.versions), (77, 3_004));
    }
}

#[test]
fn what_came_later_is_left_out() {
    let storage = machine();
    let later = [
        version("k", THROUGH + 1),
        version("k", THROUGH),
        version("l", THROUGH + 2),
    ];
    write(
        &*storage,
        &vec![(b"a:".to_vec(), 100, None, later.to_vec())],
        10,
    );
    let (residencies, _) = read(&*storage).expect("read");
    assert_eq!(residencies[0].3, [version("k", THROUGH)]);
}

#[test]
fn keys_as_long_as_they_may_be_are_shown() {
    let storage = machine();
    let key = |number: usize| format!("{number}{}", "x".repeat((1 << 20) - 10));
    let versions = (0..9).map(|number| version(&key(number), 200 + number as u64));
    let residencies = vec![(b"a:".to_vec(), 200, None, versions.collect())];
    write(&*storage, &residencies, 100);
    assert_eq!(read(&*storage).expect("read").0, residencies);
}

#[test]
fn every_flip_and_every_cut_is_seen() {
    let storage = machine();
    let mut residencies = sample();
    residencies[1].3.truncate(20);
    write(&*storage, &residencies, 6);
    let path = dir().join(INDEX_SNAPSHOT_NAME);
    let whole = read_file(&*storage, &path).expect("read");
    let is_refused = |bytes: &[u8]| {
        let file = storage.open(&path, OpenMode::Create, Transfer::Buffered, Area::Tables);
        file.expect("create").write_at(bytes, 0).expect("write");
        matches!(read(&*storage), Err(Error::Corruption { .. }))
    };
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        assert!(is_refused(&damaged), "a flip at {at}");
        assert!(is_refused(&whole[..at]), "cut at {at}");
    }
    assert!(is_refused(&[&whole[..], b"more"].concat()));
    assert!(!is_refused(&whole));
}

#[test]
fn sections_that_make_no_sense_are_refused() {
    let mut section = Vec::new();
    let mut versions = section::Versions::default();
    versions.push(b"b", &version("b", 5).1);
    versions.push(b"a", &version("a", 5).1);
    let head = Head {
        prefix: b"p",
        first_sequence: 5,
        first_lsn: 1,
        switch: Some(9),
    };
    section::put_part(&mut section, &head, &versions);
    assert!(rewritten(&section).is_err(), "not in order");
    assert!(parts(&section, 9).is_ok() && parts(&section, 8).is_err());
}

#[test]
fn an_index_snapshot_ends_before_what_is_coming_and_before_what_came_meanwhile() {
    let table = DeviceTable::new(Extractor::until(b':'), true, Ledger::default());
    let coming = |prefix: &[u8], first: u64| {
        let residency = Arc::new(Residency::new(prefix, Duration::ZERO));
        table.begin_staged(&residency, first * 10, first);
        residency
    };
    let (one, other) = (coming(b"a:", 13), coming(b"b:", 1_250));
    assert_eq!(table.whole_through(3_000), 12);
    one.publish(2_487);
    // Up to 1,249, before the other one began, the first one was not published.
    assert_eq!(table.whole_through(3_000), 12);
    other.publish(2_600);
    assert_eq!(table.whole_through(3_000), 3_000);
    assert_eq!(table.whole_through(2_550), 12);
}
