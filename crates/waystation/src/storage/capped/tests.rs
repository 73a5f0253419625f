//! Tests of the count, of refusals, and of the room that each kind of growth leaves.

use super::super::SimStorage;
use super::*;

const DIR: &str = "/db";
const MARGINS: Margins = Margins {
    short: 30_000,
    ring: 20_000,
    together: 0,
};

fn capped(machine: &Arc<SimStorage>, limit: u64) -> Capped {
    let inner: Arc<dyn Storage> = machine.clone();
    let growth_of = |name: &str| match name {
        "snapshot" => Growth::Spare,
        "table" => Growth::Bulk,
        "fresh" => Growth::Fresh,
        "log" => Growth::Log,
        "replaced" => Growth::Replaced,
        "reserve" => Growth::Reserve,
        _ => Growth::Vital,
    };
    Capped::new(inner, Path::new(DIR), limit, MARGINS, growth_of).expect("list")
}

fn create(storage: &Capped, name: &str) -> Arc<dyn File> {
    let path = Path::new(DIR).join(name);
    let opened = storage.open(&path, OpenMode::Create, Transfer::Buffered, Area::Tables);
    opened.expect("open")
}

/// The counted bytes are the bytes of the files.
#[track_caller]
fn assert_counted(storage: &Capped, bytes: u64) {
    let entries = storage.list(Path::new(DIR)).expect("list");
    let there: u64 = entries.iter().map(|entry| entry.bytes).sum();
    assert_eq!((storage.disk.used(), there), (bytes, bytes));
}

#[test]
fn growth_is_counted_and_refused() {
    let machine = SimStorage::new(1);
    machine.create_dir(Path::new(DIR)).expect("create");
    let storage = capped(&machine, 14_096);
    let ring = |name| storage.map_ring(&Path::new(DIR).join(name), 4096);
    ring("ring").expect("map");
    let (one, two) = (create(&storage, "one"), create(&storage, "two"));
    one.write_at(&[1; 3000], 0).expect("write");
    one.write_at(&[1; 3000], 1000).expect("overlapping");
    two.preallocate(5000).expect("reserve");
    two.write_at(&[2; 5000], 0).expect("within");
    assert_counted(&storage, 13_096);
    let refused = two.write_at(&[2; 1001], 5000).expect_err("full");
    assert!(refused.is_out_of_space(), "{refused}");
    assert!(create(&storage, "three").preallocate(2000).is_err());
    assert!(ring("another").is_err());
    assert_counted(&storage, 13_096);
    assert_eq!(storage.free_bytes(Path::new(DIR)).expect("free"), 1000);
    // One that comes later counts what it finds.
    assert_eq!(capped(&machine, 1).disk.used(), 13_096);
}

#[test]
fn names_that_go_give_their_bytes_back() {
    let machine = SimStorage::new(1);
    machine.create_dir(Path::new(DIR)).expect("create");
    let storage = capped(&machine, 10_000);
    for (name, bytes) in [("one", 1000), ("two", 2000), ("three", 3000)] {
        create(&storage, name)
            .write_at(&vec![1; bytes], 0)
            .expect("write");
    }
    let path = |name: &str| Path::new(DIR).join(name);
    storage.rename(&path("one"), &path("two")).expect("rename");
    assert_counted(&storage, 4000);
    storage.remove(&path("three")).expect("remove");
    assert_counted(&storage, 1000);
    drop(create(&storage, "two"));
    assert_counted(&storage, 0);
}

#[test]
fn a_ring_in_another_directory_does_not_count() {
    let machine = SimStorage::new(4);
    for dir in [DIR, "/fast"] {
        machine.create_dir(Path::new(dir)).expect("create");
    }
    let storage = capped(&machine, 8_192);
    let path = Path::new("/fast/ring");
    let (ring, _) = storage.map_ring(path, 1 << 20).expect("map");
    storage.resize_ring(path, ring.len()).expect("resize");
    assert_counted(&storage, 0);
}

#[test]
fn a_ring_is_made_beside_the_one_that_it_replaces() {
    let machine = SimStorage::new(1);
    machine.create_dir(Path::new(DIR)).expect("create");
    let storage = capped(&machine, 8 * 4096 - 1);
    let ring = |pages: usize| storage.map_ring(&Path::new(DIR).join("ring"), pages * 4096);
    ring(3).expect("map");
    ring(3).expect("as it is");
    assert!(ring(5).err().expect("both together").is_out_of_space());
    assert_counted(&storage, 3 * 4096);
    ring(4).expect("map");
    ring(1).expect("map");
    assert_counted(&storage, 4096);
}

#[test]
fn a_file_of_another_directory_counts_from_its_move_on() {
    let machine = SimStorage::new(1);
    for dir in [DIR, "/db/job"] {
        machine.create_dir(Path::new(dir)).expect("create");
    }
    let storage = capped(&machine, 10_000);
    let made = |bytes: usize| {
        let path = Path::new("/db/job/made");
        let (mode, transfer) = (OpenMode::Create, Transfer::Buffered);
        let file = storage.open(path, mode, transfer, Area::Tables);
        file.expect("open")
            .write_at(&vec![1; bytes], 0)
            .expect("write");
        storage.rename(path, &Path::new(DIR).join("moved"))
    };
    create(&storage, "other")
        .write_at(&[1; 4000], 0)
        .expect("write");
    made(5000).expect("it fits");
    assert_eq!(storage.disk.used(), 9000);
    // In the place of the first one it would fit, but both are there for a moment.
    assert!(made(1001).expect_err("full").is_out_of_space());
    assert_eq!(storage.disk.used(), 9000);
    made(1000).expect("it fits");
    assert_eq!(storage.disk.used(), 5000);
    let missing = Path::new("/db/job/missing");
    let moved = storage.rename(missing, &Path::new(DIR).join("moved"));
    assert!(moved.expect_err("no file").is_not_found());
    assert_eq!(storage.disk.used(), 5000);
}

#[test]
fn what_gives_room_back_finds_some() {
    let machine = SimStorage::new(1);
    machine.create_dir(Path::new(DIR)).expect("create");
    let (limit, replaced) = (300_000, 2 * 1000 + REPLACED_MIN);
    for is_limited in [true, false] {
        let storage = capped(&machine, if is_limited { limit } else { u64::MAX });
        machine.set_capacity((!is_limited).then_some(limit));
        create(&storage, "replaced")
            .preallocate(1000)
            .expect("fits");
        let grow = |name, free: u64| {
            let file = create(&storage, name);
            assert!(file.preallocate(limit - 1000 - free + 1).is_err(), "{name}");
            file.preallocate(limit - 1000 - free).expect("fits");
            file.truncate(0).expect("cut");
        };
        let (log, lives) = (MARGINS.for_log(), MARGINS.for_lives());
        storage.disk.set_owed(555);
        for missing in [0, 777, lives + 777] {
            storage.disk.set_reserve(missing);
            let at_low_priority = replaced + missing + log + 555;
            grow("snapshot", at_low_priority);
            super::at_low_priority(|| grow("table", at_low_priority));
            grow("table", replaced + missing.saturating_sub(lives));
            grow("log", replaced + missing);
            grow("fresh", missing);
            grow("vital", 0);
            // The bytes of the file are not missing.
            let reserve = create(&storage, "reserve");
            reserve.preallocate(missing).expect("fits");
            grow("log", replaced + missing);
            drop(reserve);
            storage
                .remove(&Path::new(DIR).join("reserve"))
                .expect("remove");
        }
        assert_counted(&storage, 1000);
        for name in ["snapshot", "table", "log", "fresh", "vital", "replaced"] {
            storage.remove(&Path::new(DIR).join(name)).expect("remove");
        }
        assert_counted(&storage, 0);
    }
}
