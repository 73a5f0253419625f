//! What every storage promises, run against each of them.

use super::meter;
use crate::error::Error;
use crate::storage::{
    AlignedBuffer, Area, AreaMeter, Entry, File, OpenMode, OsStorage, SimStorage, Storage, Transfer,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A storage and an empty directory in it.
struct Subject {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    _guard: Option<tempfile::TempDir>,
}

impl Subject {
    fn os() -> Self {
        let guard = tempfile::tempdir().unwrap();
        Self {
            storage: OsStorage::new(),
            dir: guard.path().to_owned(),
            _guard: Some(guard),
        }
    }

    fn sim() -> Self {
        let storage = SimStorage::new(7);
        let dir = PathBuf::from("/db");
        storage.create_dir(&dir).unwrap();
        Self {
            storage,
            dir,
            _guard: None,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn open(&self, name: &str, mode: OpenMode, transfer: Transfer) -> Arc<dyn File> {
        self.storage
            .open(&self.path(name), mode, transfer, Area::Tables)
            .unwrap()
    }

    fn create(&self, name: &str, content: &[u8]) -> Arc<dyn File> {
        let file = self.open(name, OpenMode::Create, Transfer::Buffered);
        file.write_at(content, 0).unwrap();
        file
    }

    fn content(&self, name: &str) -> Vec<u8> {
        content(&*self.open(name, OpenMode::Read, Transfer::Buffered))
    }

    fn names(&self, dir: &Path) -> Vec<String> {
        let entries = self.storage.list(dir).unwrap();
        let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
        names.sort();
        names
    }
}

fn content(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.size().unwrap() as usize + 100];
    let count = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(count);
    bytes
}

/// Bytes that differ from place to place.
fn pattern(length: usize) -> AlignedBuffer {
    let mut buffer = AlignedBuffer::zeroed(length);
    for (place, byte) in buffer.iter_mut().enumerate() {
        *byte = (place ^ (place >> 8)) as u8;
    }
    buffer
}

macro_rules! contract {
    ($($name:ident,)*) => {
        mod on_the_operating_system {
            $(#[test] fn $name() { super::$name(&super::Subject::os()); })*
        }
        mod on_the_simulated_machine {
            $(#[test] fn $name() { super::$name(&super::Subject::sim()); })*
        }
    };
}

contract! {
    reads_what_was_written,
    read_is_short_only_at_the_end,
    gaps_read_as_zeros,
    create_truncates_and_read_write_does_not,
    missing_files_are_not_found,
    read_only_files_refuse_writes,
    preallocate_sets_the_length,
    direct_transfers_round_trip,
    direct_files_serve_unaligned_reads,
    direct_files_refuse_unaligned_writes,
    rename_replaces_the_target,
    link_gives_a_second_name,
    removed_files_stay_readable_while_open,
    list_names_files_and_directories,
    directories_are_made_with_their_parents,
    only_empty_directories_are_removed,
    the_lock_is_held_once,
    ring_content_outlives_its_mapping,
    ring_grows_and_keeps_its_content,
    ring_that_is_prepared_keeps_its_content,
    ring_of_another_size_is_made_anew,
    ring_size_is_whole_pages,
    meters_count_by_area,
    threads_write_one_file_at_once,
    the_clock_goes_forward,
    random_numbers_differ,
}

fn reads_what_was_written(subject: &Subject) {
    let data = pattern(20_000);
    let file = subject.create("a", &data);
    let mut middle = [0; 5_000];
    assert_eq!(file.read_at(&mut middle, 7_001).unwrap(), 5_000);
    assert_eq!(middle, data[7_001..12_001]);
    file.write_at(b"over", 4_094).unwrap();
    file.sync().unwrap();
    let mut expected = data.to_vec();
    expected[4_094..4_098].copy_from_slice(b"over");
    assert_eq!(subject.content("a"), expected);
    assert_eq!(file.path(), subject.path("a"));
    assert!(!file.is_direct());
}

fn read_is_short_only_at_the_end(subject: &Subject) {
    let file = subject.create("a", b"abcdef");
    let mut buffer = [9; 8];
    assert_eq!(file.read_at(&mut buffer, 4).unwrap(), 2);
    assert_eq!(&buffer, b"ef\x09\x09\x09\x09\x09\x09");
    assert_eq!(file.read_at(&mut buffer, 6).unwrap(), 0);
    assert_eq!(file.read_at(&mut buffer, 1 << 40).unwrap(), 0);
    assert_eq!(file.read_at(&mut [], 0).unwrap(), 0);
}

fn gaps_read_as_zeros(subject: &Subject) {
    let file = subject.create("a", b"x");
    file.write_at(b"y", 10_000).unwrap();
    let bytes = content(&*file);
    assert_eq!((bytes.len(), bytes[0], bytes[10_000]), (10_001, b'x', b'y'));
    assert!(bytes[1..10_000].iter().all(|&byte| byte == 0));
}

fn create_truncates_and_read_write_does_not(subject: &Subject) {
    subject.create("a", b"old content");
    let file = subject.open("a", OpenMode::ReadWrite, Transfer::Buffered);
    file.write_at(b"new", 0).unwrap();
    assert_eq!(subject.content("a"), b"new content");
    let file = subject.open("a", OpenMode::Create, Transfer::Buffered);
    assert_eq!(file.size().unwrap(), 0);
    assert_eq!(subject.content("a"), b"");
}

fn missing_files_are_not_found(subject: &Subject) {
    let (storage, path) = (&subject.storage, subject.path("missing"));
    for mode in [OpenMode::Read, OpenMode::ReadWrite] {
        let outcome = storage.open(&path, mode, Transfer::Direct, Area::Tables);
        assert!(outcome.err().unwrap().is_not_found());
    }
    assert!(storage.remove(&path).unwrap_err().is_not_found());
    assert!(
        storage
            .rename(&path, &subject.path("b"))
            .unwrap_err()
            .is_not_found()
    );
    assert!(
        storage
            .link(&path, &subject.path("b"))
            .unwrap_err()
            .is_not_found()
    );
    assert!(storage.list(&path).unwrap_err().is_not_found());
    assert!(storage.sync_dir(&path).unwrap_err().is_not_found());
    let below = path.join("a");
    let outcome = storage.open(&below, OpenMode::Create, Transfer::Buffered, Area::Tables);
    let error = outcome.err().unwrap();
    assert!(error.is_not_found());
    assert!(
        error.to_string().contains(&below.display().to_string()),
        "{error}"
    );
}

fn read_only_files_refuse_writes(subject: &Subject) {
    subject.create("a", b"content");
    let file = subject.open("a", OpenMode::Read, Transfer::Buffered);
    assert!(matches!(
        file.write_at(b"x", 0),
        Err(Error::Io {
            operation: "write",
            ..
        })
    ));
    assert!(file.preallocate(100).is_err());
    assert_eq!(subject.content("a"), b"content");
}

fn preallocate_sets_the_length(subject: &Subject) {
    let file = subject.create("a", &[7; 9_000]);
    file.preallocate(0).unwrap();
    file.preallocate(5_000).unwrap();
    assert_eq!(file.size().unwrap(), 9_000);
    file.preallocate(100_000).unwrap();
    assert_eq!(file.size().unwrap(), 100_000);
    let bytes = content(&*file);
    assert_eq!(bytes.len(), 100_000);
    assert!(bytes[..9_000].iter().all(|&byte| byte == 7));
    assert!(bytes[9_000..].iter().all(|&byte| byte == 0));
}

fn direct_transfers_round_trip(subject: &Subject) {
    let file = subject.open("a", OpenMode::Create, Transfer::Direct);
    let unit = file.alignment();
    assert!(unit >= 512 && unit.is_power_of_two());
    let buffered = subject.open("b", OpenMode::Create, Transfer::Buffered);
    assert_eq!(buffered.alignment(), unit);
    let data = pattern(unit * 5);
    file.write_at(&data[unit..], unit as u64).unwrap();
    file.write_at(&data[..unit], 0).unwrap();
    file.sync().unwrap();
    let mut read = AlignedBuffer::zeroed(unit * 6);
    assert_eq!(file.read_at(&mut read, 0).unwrap(), unit * 5);
    assert_eq!(read[..unit * 5], data[..]);
    assert_eq!(subject.content("a"), data[..]);
}

fn direct_files_serve_unaligned_reads(subject: &Subject) {
    let data = pattern(3_000_000);
    subject.create("a", &data).sync().unwrap();
    let file = subject.open("a", OpenMode::Read, Transfer::Direct);
    for (offset, length) in [
        (0, 1),
        (4_095, 2),
        (1, 4_096),
        (2_999_990, 100),
        (3_000_000, 5),
        (17, 2_500_000),
    ] {
        let mut buffer = vec![0; length];
        let count = file.read_at(&mut buffer, offset as u64).unwrap();
        let expected = &data[offset..data.len().min(offset + length)];
        assert_eq!(count, expected.len(), "{length} bytes at {offset}");
        assert_eq!(&buffer[..count], expected);
    }
}

fn direct_files_refuse_unaligned_writes(subject: &Subject) {
    let file = subject.open("a", OpenMode::Create, Transfer::Direct);
    let unit = file.alignment();
    let data = AlignedBuffer::zeroed(unit * 2);
    for (slice, offset) in [
        (&data[..100], 0),
        (&data[1..=unit], 0),
        (&data[..unit], 512 + 1),
    ] {
        assert!(matches!(
            file.write_at(slice, offset),
            Err(Error::InvalidArgument(_))
        ));
    }
    assert_eq!(meter(&*subject.storage, Area::Tables).writes, 0);
    file.write_at(&data, unit as u64).unwrap();
}

fn rename_replaces_the_target(subject: &Subject) {
    subject.create("a", b"new");
    let replaced = subject.create("b", b"old");
    subject
        .storage
        .rename(&subject.path("a"), &subject.path("b"))
        .unwrap();
    subject.storage.sync_dir(&subject.dir).unwrap();
    assert_eq!(subject.names(&subject.dir), ["b"]);
    assert_eq!(subject.content("b"), b"new");
    assert_eq!(content(&*replaced), b"old");
}

fn link_gives_a_second_name(subject: &Subject) {
    let file = subject.create("a", b"one file");
    subject
        .storage
        .link(&subject.path("a"), &subject.path("b"))
        .unwrap();
    file.write_at(b"ONE", 0).unwrap();
    assert_eq!(subject.content("b"), b"ONE file");
    assert!(
        subject
            .storage
            .link(&subject.path("a"), &subject.path("b"))
            .is_err()
    );
    subject.storage.remove(&subject.path("a")).unwrap();
    assert_eq!(subject.content("b"), b"ONE file");
}

fn removed_files_stay_readable_while_open(subject: &Subject) {
    let file = subject.create("a", b"content");
    subject.storage.remove(&subject.path("a")).unwrap();
    assert!(subject.names(&subject.dir).is_empty());
    file.write_at(b"C", 0).unwrap();
    assert_eq!(content(&*file), b"Content");
}

fn list_names_files_and_directories(subject: &Subject) {
    subject.create("a", b"12345");
    subject.storage.create_dir(&subject.path("d")).unwrap();
    let mut entries = subject.storage.list(&subject.dir).unwrap();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let file = Entry {
        name: "a".to_owned(),
        bytes: 5,
        is_dir: false,
    };
    let directory = Entry {
        name: "d".to_owned(),
        bytes: 0,
        is_dir: true,
    };
    assert_eq!(entries, [file, directory]);
}

fn directories_are_made_with_their_parents(subject: &Subject) {
    let deep = subject.path("x").join("y").join("z");
    subject.storage.create_dir(&deep).unwrap();
    subject.storage.create_dir(&deep).unwrap();
    assert!(subject.names(&deep).is_empty());
    assert_eq!(subject.names(&subject.path("x")), ["y"]);
    subject.create("a", b"");
    assert!(subject.storage.create_dir(&subject.path("a")).is_err());
}

fn only_empty_directories_are_removed(subject: &Subject) {
    let (storage, dir) = (&subject.storage, subject.path("d"));
    storage.create_dir(&dir).unwrap();
    subject.create("d/a", b"x");
    assert!(storage.remove_dir(&dir).is_err());
    assert!(storage.remove(&dir).is_err());
    storage.remove(&dir.join("a")).unwrap();
    storage.remove_dir(&dir).unwrap();
    assert!(storage.list(&dir).unwrap_err().is_not_found());
}

fn the_lock_is_held_once(subject: &Subject) {
    let path = subject.path("LOCK");
    let lock = subject.storage.lock(&path).unwrap();
    let error = subject.storage.lock(&path).err().unwrap();
    assert!(
        matches!(&error, Error::Locked { path } if *path == subject.dir),
        "{error}"
    );
    drop(lock);
    let lock = subject.storage.lock(&path).unwrap();
    let other = subject.storage.lock(&subject.path("OTHER")).unwrap();
    drop((lock, other));
}

/// Stores `bytes` into a ring.
#[expect(unsafe_code, reason = "a ring is raw memory")]
pub(super) fn store(ring: &dyn crate::storage::Ring, offset: usize, bytes: &[u8]) {
    assert!(offset + bytes.len() <= ring.len());
    // SAFETY: inside the ring, as asserted; no other thread of the test uses this part.
    unsafe { ring.store(offset, bytes) };
}

/// Loads `length` bytes of a ring.
#[expect(unsafe_code, reason = "a ring is raw memory")]
pub(super) fn load(ring: &dyn crate::storage::Ring, offset: usize, length: usize) -> Vec<u8> {
    assert!(offset + length <= ring.len());
    let mut bytes = vec![0; length];
    // SAFETY: inside the ring, as asserted; no other thread of the test uses this part.
    unsafe {
        ring.as_ptr()
            .add(offset)
            .copy_to_nonoverlapping(bytes.as_mut_ptr(), length);
    };
    bytes
}

fn ring_content_outlives_its_mapping(subject: &Subject) {
    let path = subject.path("RING");
    let (ring, survived) = subject.storage.map_ring(&path, 1 << 16).unwrap();
    assert!(!survived && !ring.is_empty());
    assert_eq!(ring.len(), 1 << 16);
    assert!(ring.as_ptr().addr().is_multiple_of(4096));
    assert!(load(&*ring, 0, 1 << 16).iter().all(|&byte| byte == 0));
    store(&*ring, 65_000, b"survives");
    drop(ring);
    assert_eq!(subject.names(&subject.dir), ["RING"]);
    let (ring, survived) = subject.storage.map_ring(&path, 1 << 16).unwrap();
    assert!(survived);
    assert_eq!(load(&*ring, 65_000, 8), b"survives");
    assert_eq!(subject.content("RING").len(), 1 << 16);
}

fn ring_grows_and_keeps_its_content(subject: &Subject) {
    let path = subject.path("RING");
    let (whole, shortest) = (1 << 20, 1 << 18);
    let (ring, _) = subject.storage.map_ring(&path, whole).unwrap();
    assert_eq!((ring.len(), ring.file_bytes()), (whole, shortest));
    store(&*ring, shortest - 4, b"kept");
    subject.storage.resize_ring(&path, 2 * shortest).unwrap();
    assert_eq!(subject.content("RING").len(), 2 * shortest);
    assert_eq!(load(&*ring, shortest - 4, 8), b"kept\0\0\0\0");
    store(&*ring, 2 * shortest - 4, b"last");
    subject.storage.resize_ring(&path, whole).unwrap();
    store(&*ring, whole - 4, b"more");
    drop(ring);
    let (ring, survived) = subject.storage.map_ring(&path, whole).unwrap();
    assert!(survived);
    assert_eq!(ring.file_bytes(), whole);
    for (offset, bytes) in [
        (shortest, b"kept"),
        (2 * shortest, b"last"),
        (whole, b"more"),
    ] {
        assert_eq!(load(&*ring, offset - 4, 4), bytes);
    }
    subject.storage.resize_ring(&path, shortest).unwrap();
    assert_eq!(subject.content("RING").len(), shortest);
    assert_eq!(load(&*ring, shortest - 4, 4), b"kept");
    subject.storage.resize_ring(&path, whole).unwrap();
    assert_eq!(load(&*ring, whole - 4, 4), [0; 4]);
}

fn ring_that_is_prepared_keeps_its_content(subject: &Subject) {
    let path = subject.path("ring");
    let (ring, _) = subject.storage.map_ring(&path, 1 << 16).unwrap();
    store(&*ring, 5000, b"kept");
    // From within a page on, and beyond the end.
    ring.prepare(4500, 10_000);
    ring.prepare((1 << 16) - 10, 1 << 16);
    ring.prepare(1 << 17, 1);
    assert_eq!(load(&*ring, 5000, 4), b"kept");
    store(&*ring, (1 << 16) - 4, b"last");
    drop(ring);
    let (ring, survived) = subject.storage.map_ring(&path, 1 << 16).unwrap();
    assert!(survived);
    assert_eq!(load(&*ring, 5000, 4), b"kept");
    assert_eq!(load(&*ring, (1 << 16) - 4, 4), b"last");
}

fn ring_of_another_size_is_made_anew(subject: &Subject) {
    let path = subject.path("RING");
    let (ring, _) = subject.storage.map_ring(&path, 1 << 16).unwrap();
    store(&*ring, 0, b"gone");
    drop(ring);
    let (ring, survived) = subject.storage.map_ring(&path, 1 << 15).unwrap();
    assert!(!survived);
    assert_eq!((ring.len(), load(&*ring, 0, 4)), (1 << 15, vec![0; 4]));
}

fn ring_size_is_whole_pages(subject: &Subject) {
    for bytes in [0, 1, 5_000] {
        assert!(
            subject
                .storage
                .map_ring(&subject.path("RING"), bytes)
                .is_err()
        );
    }
    assert!(subject.names(&subject.dir).is_empty());
}

fn meters_count_by_area(subject: &Subject) {
    let storage = &*subject.storage;
    let open = |name, area| {
        storage
            .open(
                &subject.path(name),
                OpenMode::Create,
                Transfer::Buffered,
                area,
            )
            .unwrap()
    };
    let journal = open("a", Area::Journal);
    let spill = open("b", Area::Spill);
    journal.write_at(&[1; 1_000], 0).unwrap();
    journal.write_at(&[2; 24], 1_000).unwrap();
    journal.sync().unwrap();
    spill.write_at(&[3; 10], 0).unwrap();
    assert_eq!(spill.read_at(&mut [0; 100], 3).unwrap(), 7);
    let found = meter(storage, Area::Journal);
    assert_eq!(
        (found.written_bytes, found.writes, found.syncs),
        (1_024, 2, 1)
    );
    assert_eq!(
        (found.read_bytes, found.reads, found.direct_fallbacks),
        (0, 0, 0)
    );
    let found = meter(storage, Area::Spill);
    assert_eq!((found.written_bytes, found.writes, found.syncs), (10, 1, 0));
    assert_eq!((found.read_bytes, found.reads), (7, 1));
    assert_eq!(meter(storage, Area::Tables), AreaMeter::default());
}

fn threads_write_one_file_at_once(subject: &Subject) {
    let file = subject.open("a", OpenMode::Create, Transfer::Direct);
    let unit = file.alignment();
    thread::scope(|scope| {
        for writer in 0..4_usize {
            let file = &file;
            scope.spawn(move || {
                let mut data = AlignedBuffer::zeroed(unit);
                data.fill(writer as u8 + 1);
                for round in 0..8 {
                    file.write_at(&data, ((round * 4 + writer) * unit) as u64)
                        .unwrap();
                    file.sync().unwrap();
                }
            });
        }
    });
    let bytes = subject.content("a");
    assert_eq!(bytes.len(), unit * 32);
    for (place, byte) in bytes.iter().enumerate() {
        assert_eq!(usize::from(*byte), place / unit % 4 + 1);
    }
}

fn the_clock_goes_forward(subject: &Subject) {
    let start = subject.storage.now();
    subject.storage.sleep(Duration::from_millis(2));
    assert!(subject.storage.now() >= start + Duration::from_millis(2));
    let year_2020 = Duration::from_secs(1_577_836_800);
    assert!(subject.storage.wall_clock() > year_2020);
}

fn random_numbers_differ(subject: &Subject) {
    let mut numbers: Vec<_> = (0..100).map(|_| subject.storage.random()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 100);
}
