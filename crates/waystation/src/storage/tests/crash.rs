//! What a crash of the simulated machine leaves of names, rings, locks and space.

use super::contract;
use crate::storage::sim::Crash;
use crate::storage::{AlignedBuffer, Area, File, OpenMode, Ring, SimStorage, Storage, Transfer};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

const DIR: &str = "/db";
const SEEDS: u64 = 60;

fn machine(seed: u64) -> Arc<SimStorage> {
    let storage = SimStorage::new(seed);
    storage.create_dir(Path::new(DIR)).unwrap();
    storage
}

fn open(storage: &SimStorage, name: &str, mode: OpenMode) -> Arc<dyn File> {
    let path = Path::new(DIR).join(name);
    storage
        .open(&path, mode, Transfer::Buffered, Area::Tables)
        .unwrap()
}

fn create(storage: &SimStorage, name: &str, content: &[u8]) -> Arc<dyn File> {
    let file = open(storage, name, OpenMode::Create);
    file.write_at(content, 0).unwrap();
    file.sync().unwrap();
    file
}

fn sync_dir(storage: &SimStorage) {
    storage.sync_dir(Path::new(DIR)).unwrap();
}

/// Every file with its content.
fn files(storage: &SimStorage) -> Vec<(String, String)> {
    let entries = storage.list(Path::new(DIR)).unwrap();
    let read = |name: &str| {
        let file = open(storage, name, OpenMode::Read);
        let mut bytes = vec![0; file.size().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    entries
        .into_iter()
        .map(|entry| (entry.name.clone(), read(&entry.name)))
        .collect()
}

/// The outcomes of a power cut, over many seeds, of what `prepare` does.
fn outcomes(prepare: impl Fn(&SimStorage)) -> BTreeSet<String> {
    let outcome = |seed| {
        let storage = machine(seed);
        prepare(&storage);
        let left = files(&storage.crash(seed, Crash::PowerCut));
        let described: Vec<_> = left
            .iter()
            .map(|(name, content)| format!("{name}={content}"))
            .collect();
        described.join(" ")
    };
    (0..SEEDS).map(outcome).collect()
}

fn set(outcomes: &[&str]) -> BTreeSet<String> {
    outcomes.iter().map(|&outcome| outcome.to_owned()).collect()
}

#[test]
fn synced_file_in_synced_directory_survives() {
    let found = outcomes(|storage| {
        create(storage, "a", b"one");
        sync_dir(storage);
    });
    assert_eq!(found, set(&["a=one"]));
}

#[test]
fn synced_file_in_unsynced_directory_may_vanish() {
    let found = outcomes(|storage| drop(create(storage, "a", b"one")));
    assert_eq!(found, set(&["", "a=one"]));
}

#[test]
fn unsynced_rename_happens_or_not_and_loses_nothing() {
    let found = outcomes(|storage| {
        create(storage, "CURRENT", b"old");
        create(storage, "new.tmp", b"new");
        sync_dir(storage);
        let (source, target) = (
            Path::new(DIR).join("new.tmp"),
            Path::new(DIR).join("CURRENT"),
        );
        storage.rename(&source, &target).unwrap();
    });
    assert_eq!(found, set(&["CURRENT=old new.tmp=new", "CURRENT=new"]));
}

#[test]
fn rename_across_directories_is_one_change() {
    let mut found = BTreeSet::new();
    for seed in 0..SEEDS {
        for synced in [None, Some("/db/x"), Some("/db/y")] {
            let storage = machine(seed);
            storage.create_dir(Path::new("/db/x")).unwrap();
            storage.create_dir(Path::new("/db/y")).unwrap();
            create(&storage, "x/a", b"one");
            storage.sync_dir(Path::new("/db/x")).unwrap();
            storage
                .rename(Path::new("/db/x/a"), Path::new("/db/y/b"))
                .unwrap();
            if let Some(directory) = synced {
                storage.sync_dir(Path::new(directory)).unwrap();
            }
            let left = storage.crash(seed, Crash::PowerCut);
            let count = |dir| left.list(Path::new(dir)).unwrap().len();
            found.insert((synced.is_some(), count("/db/x"), count("/db/y")));
        }
    }
    assert_eq!(
        found,
        BTreeSet::from([(false, 0, 1), (false, 1, 0), (true, 0, 1)])
    );
}

#[test]
fn unsynced_removal_may_be_undone() {
    let prepare = |storage: &SimStorage| {
        create(storage, "a", b"one");
        sync_dir(storage);
        storage.remove(&Path::new(DIR).join("a")).unwrap();
    };
    assert_eq!(outcomes(prepare), set(&["", "a=one"]));
    let found = outcomes(|storage| {
        prepare(storage);
        sync_dir(storage);
    });
    assert_eq!(found, set(&[""]));
}

#[test]
fn unsynced_changes_are_independent() {
    let found = outcomes(|storage| {
        create(storage, "a", b"1");
        sync_dir(storage);
        storage.remove(&Path::new(DIR).join("a")).unwrap();
        create(storage, "b", b"2");
        storage
            .link(&Path::new(DIR).join("b"), &Path::new(DIR).join("c"))
            .unwrap();
    });
    let all = set(&[
        "",
        "a=1",
        "b=2",
        "c=2",
        "a=1 b=2",
        "a=1 c=2",
        "b=2 c=2",
        "a=1 b=2 c=2",
    ]);
    assert!(found.is_subset(&all) && found.len() >= 6, "{found:?}");
}

#[test]
fn directories_are_durable_when_made_and_removed_when_synced() {
    for seed in 0..SEEDS {
        let storage = machine(seed);
        storage.create_dir(Path::new("/db/deep/er")).unwrap();
        let left = storage.crash(seed, Crash::PowerCut);
        left.remove_dir(Path::new("/db/deep/er")).unwrap();
        left.sync_dir(Path::new("/db/deep")).unwrap();
        left.create_dir(Path::new("/db/deep/er")).unwrap();
        let left = left.crash(seed, Crash::PowerCut);
        assert!(left.list(Path::new("/db/deep/er")).unwrap().is_empty());
    }
}

#[test]
fn process_crash_keeps_everything_and_a_later_power_cut_may_not() {
    let mut lost = 0;
    for seed in 0..SEEDS {
        let storage = machine(seed);
        create(&storage, "a", b"old");
        sync_dir(&storage);
        let file = open(&storage, "a", OpenMode::ReadWrite);
        file.write_at(b"new", 0).unwrap();
        create(&storage, "b", b"two");
        let next = storage.crash(seed, Crash::Process);
        let expected = [("a", "new"), ("b", "two")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(files(&next), expected);
        lost += u64::from(files(&next.crash(seed, Crash::PowerCut)) != expected);
    }
    assert!((1..SEEDS).contains(&lost), "{lost}");
}

#[test]
fn a_dead_machine_refuses_every_call() {
    let storage = machine(1);
    let file = create(&storage, "a", b"one");
    let lock = storage.lock(Path::new("/db/LOCK")).unwrap();
    storage.power_off();
    let error = file.write_at(b"x", 0).unwrap_err();
    assert!(error.to_string().contains("the machine is off"), "{error}");
    assert!(file.read_at(&mut [0], 0).is_err() && file.sync().is_err() && file.size().is_err());
    assert!(file.preallocate(9).is_err());
    let (a, b, dir) = (Path::new("/db/a"), Path::new("/db/b"), Path::new(DIR));
    assert!(
        storage
            .open(a, OpenMode::Read, Transfer::Direct, Area::Spill)
            .is_err()
    );
    assert!(storage.rename(a, b).is_err() && storage.link(a, b).is_err());
    assert!(storage.remove(a).is_err() && storage.list(dir).is_err());
    assert!(storage.sync_dir(dir).is_err() && storage.create_dir(b).is_err());
    assert!(storage.remove_dir(dir).is_err() && storage.free_bytes(dir).is_err());
    assert!(storage.lock(b).is_err() && storage.map_ring(b, 4096).is_err());
    assert!(storage.flip_bit(a, 0).is_err());
    let before = storage.now();
    let next = storage.crash(1, Crash::Process);
    assert!(next.now() >= before);
    assert!(storage.list(dir).is_err());
    next.lock(Path::new("/db/LOCK")).unwrap();
    drop((file, lock));
    assert_eq!(files(&next)[1].1, "one");
}

#[test]
fn one_moment_has_many_outcomes_and_each_seed_one() {
    let storage = machine(5);
    for name in ["a", "b", "c", "d"] {
        create(&storage, name, b"x");
    }
    let outcome = |seed| files(&storage.crash(seed, Crash::PowerCut));
    let found: BTreeSet<_> = (0..SEEDS).map(outcome).collect();
    assert!(found.len() > 5);
    assert_eq!(outcome(17), outcome(17));
}

/// Stores a number into the ring's word `word`.
fn store(ring: &dyn Ring, word: usize, number: u64) {
    contract::store(ring, word * 8, &number.to_le_bytes());
}

/// The number in the ring's word `word`.
fn load(ring: &dyn Ring, word: usize) -> u64 {
    let bytes = contract::load(ring, word * 8, 8);
    u64::from_le_bytes(bytes.try_into().unwrap())
}

const PAGE_WORDS: usize = 512;

#[test]
fn process_crash_keeps_the_ring_of_one_moment() {
    const LOOKS_EVERY: u64 = if cfg!(miri) { 100 } else { 30_000 };
    for seed in 0..if cfg!(miri) { 2 } else { 20 } {
        let storage = machine(seed);
        let path = Path::new("/db/RING");
        let (ring, _) = storage.map_ring(path, 16 * 4096).unwrap();
        let told = Arc::new(AtomicU64::new(0));
        let writer = {
            let (storage, told) = (Arc::clone(&storage), Arc::clone(&told));
            let work = move || {
                for number in 1.. {
                    store(&*ring, PAGE_WORDS * 15, number);
                    store(&*ring, 0, number);
                    told.store(number, Ordering::Release);
                    if number % LOOKS_EVERY == 0 && storage.list(Path::new(DIR)).is_err() {
                        break;
                    }
                }
            };
            thread::Builder::new().spawn(work).unwrap()
        };
        while told.load(Ordering::Acquire) < 10 {
            thread::yield_now();
        }
        let seen = told.load(Ordering::Acquire);
        let next = storage.crash(seed, Crash::Process);
        let (ring, survived) = next.map_ring(path, 16 * 4096).unwrap();
        writer.join().unwrap();
        let first = load(&*ring, PAGE_WORDS * 15);
        let second = load(&*ring, 0);
        assert!(survived && second >= seen);
        assert!(first == second || first == second + 1, "{first} {second}");
    }
}

#[test]
fn power_cut_leaves_each_ring_page_old_or_new() {
    let mut laps_seen = BTreeSet::new();
    let mut mixed = 0;
    for seed in 0..SEEDS {
        let storage = machine(seed);
        let path = Path::new("/db/RING");
        let (ring, _) = storage.map_ring(path, 8 * 4096).unwrap();
        sync_dir(&storage);
        let log = create(&storage, "log", b"");
        for lap in 1..=5 {
            for page in 0..8 {
                store(&*ring, page * PAGE_WORDS + 3, lap);
                log.write_at(b"some", 0).unwrap();
            }
        }
        let left = storage.crash(seed, Crash::PowerCut);
        let (ring, survived) = left.map_ring(path, 8 * 4096).unwrap();
        assert!(survived);
        let lap_of = |page| load(&*ring, page * PAGE_WORDS + 3);
        let laps: BTreeSet<_> = (0..8).map(lap_of).collect();
        mixed += usize::from(laps.len() > 1);
        laps_seen.extend(laps);
    }
    assert!(
        laps_seen.is_superset(&BTreeSet::from([3, 4, 5])),
        "{laps_seen:?}"
    );
    assert!(
        laps_seen.last() == Some(&5) && mixed > 5,
        "{laps_seen:?} {mixed}"
    );
}

#[test]
fn syncing_the_ring_file_makes_its_pages_durable() {
    for seed in 0..SEEDS {
        let storage = machine(seed);
        let (ring, _) = storage.map_ring(Path::new("/db/RING"), 4096).unwrap();
        sync_dir(&storage);
        store(&*ring, 9, 1);
        open(&storage, "RING", OpenMode::ReadWrite).sync().unwrap();
        let left = storage.crash(seed, Crash::PowerCut);
        let (ring, _) = left.map_ring(Path::new("/db/RING"), 4096).unwrap();
        assert_eq!(load(&*ring, 9), 1);
    }
}

#[test]
fn a_dead_ring_does_not_reach_the_next_life() {
    let storage = machine(2);
    let path = Path::new("/db/RING");
    let (dead, _) = storage.map_ring(path, 4096).unwrap();
    store(&*dead, 0, 7);
    let next = storage.crash(2, Crash::Process);
    store(&*dead, 0, 8);
    let (ring, _) = next.map_ring(path, 4096).unwrap();
    assert_eq!(load(&*ring, 0), 7);
}

#[test]
fn a_full_disk_refuses_growth_until_something_goes() {
    let storage = machine(4);
    create(&storage, "a", &[1; 6_000]);
    storage.set_capacity(Some(10_000));
    assert_eq!(storage.free_bytes(Path::new(DIR)).unwrap(), 4_000);
    let file = create(&storage, "b", &[2; 3_000]);
    assert!(
        file.write_at(&[3; 2_000], 3_000)
            .unwrap_err()
            .is_out_of_space()
    );
    assert_eq!(file.size().unwrap(), 4_000);
    file.write_at(&[4; 4_000], 0).unwrap();
    assert!(file.preallocate(5_000).unwrap_err().is_out_of_space());
    let ring = Path::new("/db/RING");
    assert!(
        storage
            .map_ring(ring, 4096)
            .err()
            .unwrap()
            .is_out_of_space()
    );
    let reader = open(&storage, "a", OpenMode::Read);
    storage.remove(&Path::new(DIR).join("a")).unwrap();
    assert!(
        file.preallocate(5_000).is_err(),
        "an open file holds its space"
    );
    drop(reader);
    file.preallocate(5_000).unwrap();
    storage.map_ring(ring, 4096).unwrap();
    storage.set_capacity(None);
    file.preallocate(1_000_000).unwrap();
}

#[test]
fn a_full_disk_does_not_make_a_direct_file_fall_back() {
    let storage = machine(4);
    storage.set_capacity(Some(10_001));
    let path = Path::new("/db/a");
    let file = storage
        .open(path, OpenMode::Create, Transfer::Direct, Area::Tables)
        .unwrap();
    let error = file
        .write_at(&AlignedBuffer::zeroed(16_384), 0)
        .unwrap_err();
    assert!(error.is_out_of_space() && file.is_direct(), "{error}");
    assert_eq!(file.size().unwrap(), 9_728);
}

#[test]
fn a_flipped_bit_stays_flipped() {
    let storage = machine(6);
    create(&storage, "a", b"abc");
    sync_dir(&storage);
    storage.flip_bit(Path::new("/db/a"), 9).unwrap();
    assert!(storage.flip_bit(Path::new("/db/a"), 24).is_err());
    assert_eq!(files(&storage)[0].1, "a`c");
    assert_eq!(files(&storage.crash(6, Crash::PowerCut))[0].1, "a`c");
}
