//! Devices that change their engine: one owner, nothing lost, nothing doubled, whatever is asked in whatever order.

use crate::support::{Content as State, content_by, options_with_resting_devices};
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{
    Db, DeviceError, DeviceOptions, Durability, Error, Extractor, IterOptions, Options, Receipt,
    Snapshot, Ticket, WriteBatch,
};

/// An engine on a machine of its own.
struct Edge {
    machine: Arc<SimStorage>,
    db: Option<Db>,
}

impl Edge {
    fn new(seed: u64) -> Self {
        let machine = SimStorage::new(seed);
        let db = Some(open(&machine));
        Self { machine, db }
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("open")
    }

    fn crash(&mut self, seed: u64, crash: Crash) {
        self.machine = self.machine.crash(seed, crash);
        drop(self.db.take());
        self.db = Some(open(&self.machine));
    }

    fn reopen(&mut self) {
        self.db.take().expect("open").close().expect("close");
        self.db = Some(open(&self.machine));
    }
}

fn open(machine: &Arc<SimStorage>) -> Db {
    let storage: Arc<dyn Storage> = machine.clone();
    Db::open_with(storage, Path::new("/db"), options_with_resting_devices()).expect("open")
}

fn state_at(db: &Db, prefix: &str, snapshot: Option<&Snapshot>) -> State {
    let options = IterOptions {
        prefix: Some(prefix.as_bytes().to_vec()),
        snapshot: snapshot.cloned(),
        ..IterOptions::default()
    };
    content_by(db, options)
}

fn state(db: &Db) -> State {
    state_at(db, "car:", None)
}

/// Writes some versions, overwrites some, deletes some.
fn drive(db: &Db, round: u32, records: u32) {
    for number in 0..records {
        let key = format!("car:{round:02}/{number:05}");
        db.put(key.as_bytes(), format!("{key} first").as_bytes())
            .expect("put");
        if number % 3 == 0 {
            let value = format!("{key} second").repeat(20);
            db.put(key.as_bytes(), value.as_bytes()).expect("put");
        }
        if number % 5 == 0 {
            db.delete(key.as_bytes()).expect("delete");
        }
    }
}

fn hand_on(from: &Db, to: &Db, durability: Durability) -> Receipt {
    let stream = from
        .devices()
        .export(b"car", "there", durability)
        .expect("export");
    let receipt = to.devices().admit(stream).expect("admit");
    from.devices().complete(&receipt).expect("complete");
    receipt
}

/// The whole stream and its ticket.
fn stream(db: &Db, destination: &str) -> (Ticket, Vec<u8>) {
    let mut export = db
        .devices()
        .export(b"car", destination, Durability::PowerLoss)
        .expect("export");
    let mut bytes = Vec::new();
    export.read_to_end(&mut bytes).expect("read");
    (export.ticket().clone(), bytes)
}

#[track_caller]
fn assert_moving<T: std::fmt::Debug>(answer: &Result<T, Error>) {
    assert!(
        matches!(answer, Err(Error::Device(DeviceError::Moving { .. }))),
        "{answer:?}"
    );
}

#[track_caller]
fn assert_moved<T: std::fmt::Debug>(answer: &Result<T, Error>) {
    assert!(
        matches!(answer, Err(Error::Device(DeviceError::Moved { .. }))),
        "{answer:?}"
    );
}

#[track_caller]
fn assert_misfit<T: std::fmt::Debug>(answer: &Result<T, Error>) {
    assert!(
        matches!(answer, Err(Error::Device(DeviceError::Ticket { .. }))),
        "{answer:?}"
    );
}

#[test]
fn all_of_a_device_goes_from_either_level() {
    for (settled, more) in [(false, false), (true, false), (true, true)] {
        let (west, east) = (Edge::new(1), Edge::new(2));
        let (west, east) = (west.db(), east.db());
        west.put(b"bus:1", b"stays").expect("put");
        drive(west, 0, 500);
        if settled {
            west.devices().settle(b"car").expect("settle");
        }
        if more {
            drive(west, 1, 100);
            west.delete(b"car:00/00001").expect("delete");
            west.put(b"car:00/00002", b"newer").expect("put");
        }
        let before = state(west);
        assert!(before.len() >= 399, "{}", before.len());
        let receipt = hand_on(west, east, Durability::ProcessCrash);
        assert_eq!(receipt.digest.records, before.len() as u64);
        assert!(state(east) == before);
        assert!(state(west).is_empty());
        assert_eq!(west.get(b"car:00/00002").expect("get"), None);
        assert_eq!(west.get(b"bus:1").expect("get"), Some(b"stays".to_vec()));
        // It lives on there, on both levels.
        east.put(b"car:00/00002", b"newest").expect("put");
        east.devices().settle(b"car").expect("settle");
        let mut after = before;
        after.insert(b"car:00/00002".to_vec(), b"newest".to_vec());
        assert!(state(east) == after);
        assert!(east.check().expect("check").problems.is_empty());
    }
}

#[test]
fn a_device_on_its_way_is_read_and_not_written() {
    let (west, east) = (Edge::new(1), Edge::new(2));
    let (west, east) = (west.db(), east.db());
    drive(west, 0, 20);
    let before = state(west);
    let (ticket, bytes) = stream(west, "east");
    assert_moving(&west.put(b"car:x", b""));
    assert_moving(&west.delete(b"car:00/00001"));
    assert_moving(&west.devices().depart(b"car"));
    assert_moving(&west.delete_prefix(b"car:00"));
    assert_moving(&west.delete_range(b"b", None));
    west.delete_range(b"a", Some(b"car:")).expect("before");
    west.delete_range(b"car;", None).expect("behind");
    assert_moving(
        &west
            .devices()
            .export(b"car", "north", Durability::PowerLoss),
    );
    let mut batch = WriteBatch::new();
    batch.put(b"bus:1", b"");
    batch.put(b"car:x", b"");
    assert_moving(&west.write(&batch, Durability::ProcessCrash));
    assert_eq!(west.get(b"bus:1").expect("get"), None, "all or nothing");
    assert!(state(west) == before);
    let info = west.devices().list().expect("devices");
    assert_eq!(info[0].moving_to.as_deref(), Some("east"));
    // Settling changes nothing of that.
    west.devices().settle(b"car").expect("settle");
    assert!(stream(west, "east") == (ticket.clone(), bytes.clone()));
    assert_eq!(
        west.devices().exports().expect("exports"),
        std::slice::from_ref(&ticket)
    );

    let receipt = east.devices().admit(&bytes[..]).expect("admit");
    assert_eq!(east.devices().admit(&bytes[..]).expect("again"), receipt);
    assert_misfit(&east.devices().refuse(&ticket));
    west.devices().complete(&receipt).expect("complete");
    west.devices().complete(&receipt).expect("again");
    assert!(west.devices().exports().expect("exports").is_empty());
    assert!(state(east) == before);
    let info = east.devices().list().expect("devices");
    assert_eq!((info[0].tenure, &info[0].moving_to), (1, &None));

    // Stragglers.
    assert_moved(&west.put(b"car:x", b""));
    assert_moved(&west.devices().depart(b"car"));
    assert_moved(&west.devices().export(b"car", "east", Durability::PowerLoss));
    let to = west.devices().moved_to(b"car").expect("stub");
    assert_eq!(to.as_deref(), Some("east"));
    west.devices().lift_stub(b"car").expect("lift");
    assert!(matches!(
        west.devices().lift_stub(b"car"),
        Err(Error::Device(DeviceError::Unknown { .. }))
    ));
    west.put(b"car:x", b"new").expect("put");
    assert_eq!(state(west).len(), 1);
}

#[test]
fn a_refusal_gives_the_device_back() {
    let (west, east) = (Edge::new(1), Edge::new(2));
    let (west, east) = (west.db(), east.db());
    drive(west, 0, 20);
    let (ticket, bytes) = stream(west, "east");
    let refusal = east.devices().refuse(&ticket).expect("refuse");
    assert_eq!(east.devices().refuse(&ticket).expect("again"), refusal);
    assert_misfit(&east.devices().admit(&bytes[..]));
    west.devices().abort(&refusal).expect("abort");
    west.devices().abort(&refusal).expect("again");
    west.put(b"car:x", b"").expect("put");
    let before = state(west);
    // Another time it goes; the old stream is over, and the old refusal means nothing.
    let (ticket, again) = stream(west, "east");
    let receipt = east.devices().admit(&again[..]).expect("admit");
    assert_eq!(receipt.ticket, ticket);
    assert_misfit(&east.devices().admit(&bytes[..]));
    west.devices().abort(&refusal).expect("the old one");
    assert_moving(&west.put(b"car:x", b""));
    west.devices().complete(&receipt).expect("complete");
    assert!(state(east) == before);
}

#[test]
fn what_does_not_belong_is_refused() {
    let (west, east) = (Edge::new(1), Edge::new(2));
    let (west, east) = (west.db(), east.db());
    drive(west, 0, 20);
    let unknown = west.devices().export(b"bus", "east", Durability::PowerLoss);
    assert!(matches!(
        unknown,
        Err(Error::Device(DeviceError::Unknown { .. }))
    ));
    let (ticket, bytes) = stream(west, "east");
    assert_misfit(&west.devices().admit(&bytes[..]));
    assert_misfit(&east.devices().complete(&Receipt {
        ticket: ticket.clone(),
        digest: waystation::Digest::default(),
    }));
    // A receipt for other data.
    assert_misfit(&west.devices().complete(&Receipt {
        ticket,
        digest: waystation::Digest::default(),
    }));
    assert_moving(&west.put(b"car:x", b""));
    // The device has been there first.
    east.put(b"car:early", b"").expect("put");
    let answer = east.devices().admit(&bytes[..]);
    assert!(
        matches!(answer, Err(Error::Device(DeviceError::AlreadyHere { .. }))),
        "{answer:?}"
    );
    east.devices().depart(b"car").expect("depart");
    for at in (0..bytes.len()).step_by(7) {
        let mut altered = bytes.clone();
        altered[at] ^= 0x20;
        for stream in [&altered[..], &bytes[..at]] {
            let answer = east.devices().admit(stream);
            assert!(
                matches!(answer, Err(Error::Device(DeviceError::Stream { .. }))),
                "{answer:?}"
            );
        }
    }
    assert!(state(east).is_empty());
    let receipt = east.devices().admit(&bytes[..]).expect("admit");
    west.devices().complete(&receipt).expect("complete");
    assert_eq!(state(east).len(), 16);
    let plain = Db::open_with(
        SimStorage::new(3),
        "/db",
        Options {
            devices: None,
            ..options_with_resting_devices()
        },
    );
    let answer = plain.expect("open").devices().admit(&bytes[..]);
    assert!(matches!(answer, Err(Error::InvalidArgument(_))));
    let other = Options {
        devices: Some(DeviceOptions::new(Extractor::fixed(4))),
        ..options_with_resting_devices()
    };
    let other = Db::open_with(SimStorage::new(4), "/db", other).expect("open");
    assert_misfit(&other.devices().admit(&bytes[..]));
}

/// Takes snapshots while it is read.
struct Watching<'a> {
    bytes: &'a [u8],
    db: &'a Db,
    seen: Vec<Snapshot>,
}
impl Read for Watching<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        self.seen.push(self.db.snapshot());
        self.db.put(b"bus:1", b"goes on").expect("put");
        self.bytes.read(out)
    }
}
#[test]
fn a_checkpoint_has_the_devices_and_none_of_their_hand_offs() {
    let west = Edge::new(1);
    let db = west.db();
    drive(db, 0, 50);
    db.put(b"bus:1", b"settled").expect("put");
    db.devices().settle(b"bus").expect("settle");
    db.put(b"settings", b"of nobody").expect("put");
    drop(stream(db, "east"));
    db.checkpoint("/copy").expect("checkpoint");
    let again = db.checkpoint("/copy");
    assert!(matches!(again, Err(Error::InvalidArgument(_))));
    assert_moving(&db.put(b"car:x", b""));
    let storage: Arc<dyn Storage> = west.machine.clone();
    let copy =
        Db::open_with(storage, Path::new("/copy"), options_with_resting_devices()).expect("open");
    assert!(state_at(&copy, "", None) == state_at(db, "", None));
    assert_ne!(
        copy.devices().engine_id().expect("id"),
        db.devices().engine_id().expect("id")
    );
    assert!(copy.devices().exports().expect("exports").is_empty());
    copy.put(b"car:x", b"").expect("put");
    copy.devices().depart(b"bus").expect("depart");
}

/// Longer devices are admitted in parts; nobody sees a part.
#[test]
fn parts_of_an_arrival_are_not_seen() {
    let (west, mut east) = (Edge::new(1), Edge::new(2));
    let records = 2_000_u32;
    for number in 0..records {
        let key = format!("car:{number:05}");
        let value = vec![number.to_le_bytes()[0]; 600];
        west.db().put(key.as_bytes(), &value).expect("put");
    }
    let before = state(west.db());
    let (_, bytes) = stream(west.db(), "east");
    assert!(bytes.len() > 4 * (256 << 10), "several parts and rings");
    // One that breaks off leaves nothing, now and after a crash.
    let cut = &bytes[..bytes.len() - 10];
    assert!(east.db().devices().admit(cut).is_err());
    assert!(state(east.db()).is_empty());
    assert!(east.db().devices().list().expect("devices").is_empty());
    east.crash(1, Crash::Process);
    assert!(state(east.db()).is_empty());
    assert!(east.db().devices().list().expect("devices").is_empty());

    let mut watching = Watching {
        bytes: &bytes,
        db: east.db(),
        seen: Vec::new(),
    };
    east.db().devices().admit(&mut watching).expect("admit");
    let seen = watching.seen;
    assert!(seen.len() > 10);
    assert!(state(east.db()) == before);
    // Not while somebody reads from before, and then it does.
    east.db().devices().settle(b"car").expect("settle");
    for snapshot in &seen {
        assert!(state_at(east.db(), "car:", Some(snapshot)).is_empty());
    }
    drop(seen);
    east.db().devices().settle(b"car").expect("settle");
    assert!(state(east.db()) == before);
    let info = east.db().devices().list().expect("devices");
    let car = info.iter().find(|it| it.name == b"car").expect("car");
    assert_eq!(car.level, waystation::DeviceLevel::Tree);
    for crash in [Crash::Process, Crash::PowerCut] {
        east.crash(5, crash);
        assert!(state(east.db()) == before);
    }
}

/// Round and round, with the old answers kept no longer than needed.
#[test]
fn devices_come_back_and_answers_are_forgotten() {
    let (mut west, mut east) = (Edge::new(1), Edge::new(2));
    drive(west.db(), 0, 30);
    let mut streams = Vec::new();
    for round in 1..=6 {
        let before = state(west.db());
        let (_, bytes) = stream(west.db(), "there");
        let receipt = east.db().devices().admit(&bytes[..]).expect("admit");
        west.db().devices().complete(&receipt).expect("complete");
        assert_eq!(receipt.ticket.tenure, 2 * round - 2);
        assert!(state(east.db()) == before && state(west.db()).is_empty());
        streams.push(bytes);
        if round % 2 == 0 {
            east.db().devices().settle(b"car").expect("settle");
            west.reopen();
            east.reopen();
        }
        drive(east.db(), round as u32, 10);
        let back = hand_on(east.db(), west.db(), Durability::PowerLoss);
        assert_eq!(back.ticket.tenure, 2 * round - 1);
        // What came before is not admitted again: not now, and not in a later round.
        for (age, old) in streams.iter().rev().enumerate() {
            match east.db().devices().admit(&old[..]) {
                Ok(again) if age == 0 => assert_eq!(again, receipt),
                // Its end may not have been durable when the next one began.
                Ok(_) if age == 1 => {}
                Err(Error::Device(DeviceError::Ticket { .. })) if age > 0 => {}
                other => panic!("{age} rounds ago: {other:?}"),
            }
            assert!(state(east.db()).is_empty());
        }
    }
    assert_eq!(state(west.db()).len(), 24 + 6 * 8);
}

/// After every step either engine may die in either way; then the rest goes through.
#[test]
fn a_crash_between_any_two_steps_changes_nothing() {
    let crashes = [None, Some(Crash::Process), Some(Crash::PowerCut)];
    let mut seed = 0;
    for at in 0..4 {
        for (of_west, of_east) in crashes
            .iter()
            .flat_map(|w| crashes.iter().map(move |e| (w, e)))
        {
            for settled in [false, true] {
                seed += 1;
                let (mut west, mut east) = (Edge::new(seed), Edge::new(seed + 1000));
                drive(west.db(), 0, 30);
                if settled {
                    west.db().devices().settle(b"car").expect("settle");
                }
                let before = state(west.db());
                let crash = |edge: &mut Edge, crash: &Option<Crash>| {
                    if let Some(crash) = crash {
                        edge.crash(seed, *crash);
                    }
                };
                let between = |step: i32, west: &mut Edge, east: &mut Edge| {
                    if step == at {
                        crash(west, of_west);
                        crash(east, of_east);
                    }
                };
                // A stream that was read to its end is of a device that is frozen for good.
                let (ticket, bytes) = stream(west.db(), "east");
                between(0, &mut west, &mut east);
                assert_moving(&west.db().put(b"car:x", b""));
                assert_eq!(
                    west.db().devices().exports().expect("exports"),
                    std::slice::from_ref(&ticket)
                );
                assert!(stream(west.db(), "east") == (ticket.clone(), bytes.clone()));
                let receipt = east.db().devices().admit(&bytes[..]).expect("admit");
                between(1, &mut west, &mut east);
                assert!(state(east.db()) == before && state(west.db()) == before);
                assert_eq!(
                    east.db().devices().admit(&bytes[..]).expect("again"),
                    receipt
                );
                east.db().put(b"car:new", b"").expect("put");
                west.db().devices().complete(&receipt).expect("complete");
                between(2, &mut west, &mut east);
                // A power cut may have taken it back.
                west.db().devices().complete(&receipt).expect("complete");
                west.db().sync().expect("sync");
                between(3, &mut west, &mut east);
                assert_moved(&west.db().put(b"car:x", b""));
                assert!(state(west.db()).is_empty());
                let mut after = state(east.db());
                after.remove(&b"car:new"[..]);
                assert!(after == before, "step {at}, {of_west:?}, {of_east:?}");
                assert_misfit(&east.db().devices().refuse(&ticket));
            }
        }
    }
}
