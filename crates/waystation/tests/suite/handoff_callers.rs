//! Several callers ask at once that a device departs, settles or is handed on: what the second one is told holds as
//! well as what the first one is told.
//!
//! The second caller finds a decision that the first one has only just taken: it is not visible yet, and not synced.
//! Most of these tests crash the machine in the moment in which either caller has its answer, and look whether the
//! answer holds in what is left.

use crate::support::{
    Content, content_by, open_simulated, options_with_resting_devices, small_options,
};
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, OnceLock};
use std::thread;
use waystation::storage::SimStorage;
use waystation::storage::sim::Crash;
use waystation::{
    Db, DeviceError, DeviceLevel, DeviceOptions, Durability, Error, Extractor, IterOptions,
    Options, Ticket,
};

/// How often it is tried.
const ROUNDS: u64 = 25;
/// How many callers ask at once.
const CALLERS: usize = 3;
/// So long that its copy takes a while, in which nothing that is decided after it is visible.
const LONG_PUT_BYTES: usize = 4 << 20;

fn open(machine: &Arc<SimStorage>) -> Db {
    let options = Options {
        ring_bytes: 4 * LONG_PUT_BYTES,
        ..options_with_resting_devices()
    };
    open_simulated(machine, options).expect("open")
}

fn state(db: &Db, prefix: &str) -> Content {
    content_by(db, IterOptions::prefix(prefix.as_bytes()))
}

/// The whole stream of `car` and its ticket.
fn stream(db: &Db) -> (Ticket, Vec<u8>) {
    let export = db.devices().export(b"car", "east", Durability::PowerLoss);
    let mut export = export.expect("export");
    let mut bytes = Vec::new();
    export.read_to_end(&mut bytes).expect("read");
    (export.ticket().clone(), bytes)
}

/// Lets all callers `ask`, and crashes `machine` as soon as one of them is answered. Each calls what it is given before
/// the step that is decided: it goes on when the others have come so far, and behind a long put. Returns what is left;
/// `seed` decides what a power cut leaves of the writes that were not synced.
fn crash_when_answered(
    db: &Db,
    machine: &Arc<SimStorage>,
    (crash, seed): (Crash, u64),
    ask: impl Fn(&dyn Fn()) -> bool + Sync,
) -> Arc<SimStorage> {
    // So that all that is not durable is the put and what is decided behind it.
    db.put(b"bus:0", b"").expect("put");
    db.sync().expect("sync");
    let reserved = db.stats().log.reserved_lsn;
    let (left, ready) = (OnceLock::new(), Barrier::new(CALLERS + 1));
    let put_begins = || {
        ready.wait();
        while db.stats().log.reserved_lsn == reserved {
            std::hint::spin_loop();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let value = vec![1; LONG_PUT_BYTES];
            ready.wait();
            // It fails, if at all, because the machine is off.
            drop(db.put(b"bus:1", &value));
        });
        for _ in 0..CALLERS {
            scope.spawn(|| {
                if ask(&put_begins) {
                    left.get_or_init(|| machine.crash(seed, crash));
                }
            });
        }
    });
    left.into_inner().expect("one of them was answered")
}

/// The end of a stream, before which something is called.
struct AtLast<'a>(&'a [u8], &'a dyn Fn());

impl Read for AtLast<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if !self.0.is_empty() {
            (self.1)();
        }
        self.0.read(out)
    }
}

/// Every round: writers write to a device as fast as they can, two callers export it in the midst of that.
#[test]
fn every_acknowledged_put_is_in_every_stream() {
    const ROUNDS: usize = 60;
    const WRITERS: usize = 6;
    let options = Options {
        devices: Some(DeviceOptions::new(Extractor::until(b':'))),
        ..small_options()
    };
    let (west, east) = (SimStorage::new(1), SimStorage::new(2));
    let west = open_simulated(&west, options.clone()).expect("open");
    let east = open_simulated(&east, options).expect("open");
    for round in 0..ROUNDS {
        let device = format!("car{round}");
        let acknowledged = Mutex::new(Content::new());
        let count = AtomicUsize::new(0);
        let write = |writer: usize| {
            let mut own = Content::new();
            for number in 0_u64.. {
                let key = format!("{device}:{writer}-{number:05}").into_bytes();
                let value = vec![number as u8; 2000];
                match west.put(&key, &value) {
                    Ok(()) => own.insert(key, value),
                    Err(Error::Device(DeviceError::Moving { .. })) => break,
                    Err(error) => panic!("{error}"),
                };
                count.fetch_add(1, SeqCst);
            }
            acknowledged.lock().expect("lock").append(&mut own);
        };
        let export = || {
            while count.load(SeqCst) < WRITERS {
                std::hint::spin_loop();
            }
            let durability = Durability::ProcessCrash;
            let export = west.devices().export(device.as_bytes(), "east", durability);
            let mut export = export.expect("export");
            let mut bytes = Vec::new();
            export.read_to_end(&mut bytes).expect("read");
            (bytes, export.digest().expect("read to its end"))
        };
        let streams = thread::scope(|scope| {
            for writer in 0..WRITERS {
                let write = &write;
                scope.spawn(move || write(writer));
            }
            let exports = [scope.spawn(export), scope.spawn(export)];
            exports.map(|export| export.join().expect("export"))
        });
        assert_eq!(
            streams[0].1, streams[1].1,
            "round {round}: one ticket, two contents"
        );
        let receipt = east
            .devices()
            .admit(&streams[round % 2].0[..])
            .expect("admit");
        west.devices().complete(&receipt).expect("complete");
        let admitted = state(&east, &format!("{device}:"));
        let acknowledged = acknowledged.into_inner().expect("lock");
        assert!(
            admitted == acknowledged,
            "round {round}: {} puts acknowledged, {} admitted",
            acknowledged.len(),
            admitted.len()
        );
        east.devices().depart(device.as_bytes()).expect("depart");
    }
}

#[test]
fn a_receipt_survives_a_power_cut_for_any_caller() {
    let west = SimStorage::new(1);
    let west = open(&west);
    for number in 0..20_u32 {
        let key = format!("car:{number:04}");
        west.put(key.as_bytes(), &[7; 200]).expect("put");
    }
    let before = state(&west, "car:");
    let (_, bytes) = stream(&west);
    for seed in 0..ROUNDS {
        let machine = SimStorage::new(100 + seed);
        let east = open(&machine);
        let (head, end) = bytes.split_at(bytes.len() - 1);
        let admit = |put_begins: &dyn Fn()| {
            let stream = head.chain(AtLast(end, put_begins));
            east.devices().admit(stream).is_ok()
        };
        let left = crash_when_answered(&east, &machine, (Crash::PowerCut, seed), admit);
        drop(east);
        assert!(
            state(&open(&left), "car:") == before,
            "seed {seed}: the receipt was given"
        );
    }
}

#[test]
fn a_refusal_survives_a_power_cut_for_any_caller() {
    let west = SimStorage::new(1);
    let west = open(&west);
    west.put(b"car:1", b"").expect("put");
    let (ticket, bytes) = stream(&west);
    for seed in 0..ROUNDS {
        let machine = SimStorage::new(seed);
        let east = open(&machine);
        let refuse = |put_begins: &dyn Fn()| {
            put_begins();
            east.devices().refuse(&ticket).is_ok()
        };
        let left = crash_when_answered(&east, &machine, (Crash::PowerCut, seed), refuse);
        drop(east);
        let admitted = open(&left).devices().admit(&bytes[..]);
        let is_refused = matches!(admitted, Err(Error::Device(DeviceError::Ticket { .. })));
        assert!(
            is_refused,
            "seed {seed}: the refusal was given; {admitted:?}"
        );
    }
}

/// A ticket that a power cut takes back may be given out again for another hand-off.
#[test]
fn a_ticket_survives_a_power_cut_for_any_caller() {
    for seed in 0..ROUNDS {
        let machine = SimStorage::new(seed);
        let west = open(&machine);
        west.put(b"car:1", b"").expect("put");
        let learnt = OnceLock::new();
        let callers = AtomicUsize::new(0);
        let learn = |put_begins: &dyn Fn()| {
            put_begins();
            let ticket = if callers.fetch_add(1, SeqCst) == 0 {
                let export = west.devices().export(b"car", "east", Durability::PowerLoss);
                export.ok().map(|export| export.ticket().clone())
            } else {
                loop {
                    match west.devices().exports().map(|mut tickets| tickets.pop()) {
                        Ok(None) => std::hint::spin_loop(),
                        Ok(ticket) => break ticket,
                        Err(_) => break None,
                    }
                }
            };
            ticket.is_some_and(|ticket| *learnt.get_or_init(|| ticket.clone()) == ticket)
        };
        let left = crash_when_answered(&west, &machine, (Crash::PowerCut, seed), learn);
        drop(west);
        let exports = open(&left).devices().exports().expect("exports");
        assert_eq!(exports.first(), learnt.get(), "seed {seed}");
    }
}

/// Of callers that let a device depart at once, all but one are told that there is no such device.
#[test]
fn a_departure_survives_a_kill_for_any_caller() {
    gone_after_a_kill(
        |db| {
            matches!(
                db.devices().depart(b"car"),
                Ok(()) | Err(Error::Device(DeviceError::Unknown { .. }))
            )
        },
        |db| state(db, "car:").is_empty(),
    );
}

/// One caller lets a device depart. The others wait until the list says so.
#[test]
fn a_device_that_is_listed_as_departed_has_departed() {
    for seed in 0..ROUNDS {
        let machine = SimStorage::new(seed);
        let db = open(&machine);
        db.put(b"car:1", b"").expect("put");
        let callers = AtomicUsize::new(0);
        let is_listed = || {
            let devices = db.devices().list().expect("a list");
            let mut there = devices
                .iter()
                .filter(|device| device.level != DeviceLevel::Departed);
            there.any(|device| device.name == b"car")
        };
        let learn = |put_begins: &dyn Fn()| {
            put_begins();
            if callers.fetch_add(1, SeqCst) == 0 {
                return db.devices().depart(b"car").is_ok();
            }
            while is_listed() {
                std::hint::spin_loop();
            }
            true
        };
        let left = crash_when_answered(&db, &machine, (Crash::Process, seed), learn);
        drop(db);
        assert!(state(&open(&left), "car:").is_empty(), "seed {seed}");
    }
}

/// Lets callers `ask` an engine with a device at once, kills it when one is answered, and asks what is left whether it
/// `is_gone`.
fn gone_after_a_kill(ask: fn(&Db) -> bool, is_gone: fn(&Db) -> bool) {
    for seed in 0..ROUNDS {
        let machine = SimStorage::new(seed);
        let db = open(&machine);
        db.put(b"car:1", b"").expect("put");
        let left = crash_when_answered(&db, &machine, (Crash::Process, seed), |put_begins| {
            put_begins();
            ask(&db)
        });
        drop(db);
        assert!(is_gone(&open(&left)), "seed {seed}");
    }
}

/// The same for the end of a hand-off: a receipt that several callers use at once, a stub that they lift.
#[test]
fn the_ends_of_a_hand_off_survive_a_kill_for_any_caller() {
    for seed in 0..ROUNDS {
        let (machine, there) = (SimStorage::new(seed), SimStorage::new(1000 + seed));
        let (west, east) = (open(&machine), open(&there));
        west.put(b"car:1", b"").expect("put");
        let receipt = east.devices().admit(&stream(&west).1[..]).expect("admit");
        let complete = |put_begins: &dyn Fn()| {
            put_begins();
            west.devices().complete(&receipt).is_ok()
        };
        let machine = crash_when_answered(&west, &machine, (Crash::Process, seed), complete);
        drop(west);
        let west = open(&machine);
        let moved = west.devices().moved_to(b"car").expect("stub");
        assert_eq!(moved.as_deref(), Some("east"), "seed {seed}");
        let lift = |put_begins: &dyn Fn()| {
            put_begins();
            let lifted = west.devices().lift_stub(b"car");
            matches!(
                lifted,
                Ok(()) | Err(Error::Device(DeviceError::Unknown { .. }))
            )
        };
        let machine = crash_when_answered(&west, &machine, (Crash::Process, seed), lift);
        drop(west);
        open(&machine)
            .put(b"car:2", b"")
            .expect("the stub was lifted");
    }
}

/// A stream goes on to be read when its hand-off is over: it is the ticket's whole content.
#[test]
fn a_stream_that_outlives_its_hand_off_is_whole() {
    let machines = [SimStorage::new(1), SimStorage::new(2)];
    let [west, east] = [open(&machines[0]), open(&machines[1])];
    for number in 0..500_u32 {
        let key = format!("car:{number:04}");
        west.put(key.as_bytes(), &[7; 900]).expect("put");
    }
    let before = state(&west, "car:");
    let (ticket, bytes) = stream(&west);
    let mut late = west
        .devices()
        .export(b"car", "east", Durability::PowerLoss)
        .expect("again");
    let mut head = vec![0; 100_000];
    late.read_exact(&mut head).expect("read");
    // It goes back, is written to, settles and departs.
    let refusal = east.devices().refuse(&ticket).expect("refuse");
    west.devices().abort(&refusal).expect("abort");
    west.put(b"car:0400", b"newer").expect("put");
    west.devices().settle(b"car").expect("settle");
    west.flush().expect("flush");
    west.devices().depart(b"car").expect("depart");
    late.read_to_end(&mut head).expect("read");
    assert!(head == bytes);
    assert!(matches!(
        east.devices().admit(&head[..]),
        Err(Error::Device(DeviceError::Ticket { .. }))
    ));
    assert_eq!(late.digest().expect("read").records, before.len() as u64);
}

/// A device that another caller lets settle is waited for.
#[test]
fn devices_have_settled_when_any_caller_hears_so() {
    let machine = SimStorage::new(1);
    let db = open(&machine);
    for number in 0..3000_u32 {
        let key = format!("car:{number:04}");
        db.put(key.as_bytes(), &[7; 500]).expect("put");
    }
    let level = || db.devices().list().expect("devices")[0].level;
    let settle = || db.devices().settle_together([&b"car"[..]]).expect("settle");
    thread::scope(|scope| {
        scope.spawn(settle);
        while level() == DeviceLevel::Upper {
            std::hint::spin_loop();
        }
        settle();
        assert_eq!(level(), DeviceLevel::Tree);
    });
}
