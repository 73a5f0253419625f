//! The ring grows with what is written, and every record is found again whenever the process or the machine dies.

use super::*;
use crate::log::deferral::DELAY;
use crate::storage::sim::Crash;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use waystation_format::log::ring_file_lengths;

pub(super) const DIR: &str = "/log";
const SHORTEST: u64 = 256 * 1024;
const WHOLE: u64 = 4 * SHORTEST;

pub(super) fn growing() -> LogSettings {
    LogSettings {
        ring_bytes: WHOLE as usize,
        ..small()
    }
}

/// A machine with a log in an empty directory, and what was written to it.
pub(super) struct Life {
    pub(super) machine: Arc<SimStorage>,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) running: Running,
    pub(super) written: Vec<Vec<u8>>,
}

impl Life {
    /// On a machine with the faults of `rules`.
    pub(super) fn begin(seed: u64, rules: &FaultRules, settings: &LogSettings) -> Self {
        let machine = SimStorage::new(seed);
        // However late threads run, each lap is quick.
        machine.stop_clock();
        let storage: Arc<dyn Storage> = machine.with_faults(rules);
        storage.create_dir(Path::new(DIR)).expect("create");
        let running = Running::open_on(&storage, Path::new(DIR), settings, 0).expect("open");
        Self {
            machine,
            storage,
            running,
            written: Vec::new(),
        }
    }

    pub(super) fn append(&mut self, content: Vec<u8>) -> u64 {
        let (_, end) = self.running.append(&content);
        self.written.push(content);
        end
    }

    fn file_bytes(&self) -> u64 {
        let entries = self.storage.list(Path::new(DIR)).expect("list");
        let ring = entries.iter().find(|entry| entry.name == RING_NAME);
        ring.expect("a ring").bytes
    }

    /// What the next life finds.
    pub(super) fn end(self, crash: Crash) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let left = self.machine.crash(7, crash);
        self.running.log.stop();
        self.running.member.leave().expect("no job panics");
        (replayed(left), self.written)
    }
}

/// Every record as the log on `storage` is found.
fn replayed(storage: Arc<SimStorage>) -> Vec<Vec<u8>> {
    let storage: Arc<dyn Storage> = storage;
    let again = Running::open_on(&storage, Path::new(DIR), &growing(), 0).expect("reopen");
    let found = again.replayed.values().cloned().collect();
    again.close();
    found
}

/// A record of its own length and content, shorter than half the shortest ring.
pub(super) fn record(number: u64) -> Vec<u8> {
    payload(number, 100 + (number as usize * 7919) % 40_000)
}

#[test]
fn the_file_is_about_as_long_as_the_log_until_it_has_all() {
    let mut life = Life::begin(1, &FaultRules::new(), &growing());
    for number in 0.. {
        let reserved = life.running.log.reserved_lsn();
        let length = life.file_bytes();
        assert!(ring_file_lengths(WHOLE).any(|it| it == length));
        assert_eq!(length, life.running.log.ring.len());
        assert!(length >= reserved.min(WHOLE), "no lap before it is whole");
        assert!(length == SHORTEST || length <= 2 * reserved + 100_000);
        if reserved > 2 * WHOLE {
            break;
        }
        life.append(record(number));
    }
    assert_eq!(life.file_bytes(), WHOLE);
    let (found, written) = life.end(Crash::Process);
    assert!(found == written);
}

#[test]
fn writers_that_take_long_for_a_lap_leave_the_ring_short() {
    let mut life = Life::begin(3, &FaultRules::new(), &growing());
    let mut number = 0;
    while life.running.log.reserved_lsn() < 4 * WHOLE {
        life.append(record(number));
        number += 1;
        // A record has 40 kB at most: a lap of the first length has more than this.
        life.machine.sleep(DELAY / 2);
        life.running.log.sync_all().expect("sync");
    }
    assert_eq!(life.file_bytes(), SHORTEST);
    while life.file_bytes() < WHOLE {
        life.append(record(number));
        number += 1;
        assert!(life.running.log.reserved_lsn() < 40 * WHOLE);
    }
    let (found, written) = life.end(Crash::Process);
    assert!(found == written);
}

#[test]
fn a_device_that_stalls_has_the_ring_grow_for_slow_writers() {
    let rules = FaultRules::new();
    let mut life = Life::begin(4, &rules, &growing());
    let rule = rules.add(Rule::new(Operation::Write, Fault::Stall).on(".seg"));
    let mut number = 0;
    while life.running.log.reserved_lsn() < WHOLE - 100_000 {
        life.append(record(number));
        number += 1;
        life.machine.sleep(DELAY);
    }
    assert!(rules.count(rule).caught > 0);
    assert_eq!(life.file_bytes(), WHOLE);
    rules.clear();
    let (found, written) = life.end(Crash::Process);
    assert!(found == written);
}

/// A ring whose room others take.
fn sharing() -> LogSettings {
    LogSettings {
        ring_shares_room: true,
        ..growing()
    }
}

#[test]
fn a_ring_that_may_become_shorter_is_as_long_as_the_rate_asks() {
    let deferring = LogSettings {
        defers: true,
        ..growing()
    };
    for (settings, shortest) in [
        (sharing(), SHORTEST),
        (deferring, SHORTEST),
        (growing(), WHOLE),
    ] {
        let mut life = Life::begin(8, &FaultRules::new(), &settings);
        let mut numbers = 0..;
        let mut append = |life: &mut Life, pause: Duration| {
            life.append(record(numbers.next().expect("a number")));
            life.machine.sleep(pause);
        };
        for _ in 0..3 {
            while life.file_bytes() < WHOLE {
                append(&mut life, Duration::ZERO);
            }
            let begun = life.running.log.reserved_lsn();
            while life.running.log.reserved_lsn() < begun + 6 * WHOLE {
                append(&mut life, DELAY / 2);
                life.running.log.sync_all().expect("sync");
                assert_eq!(life.file_bytes(), life.running.log.ring.len());
            }
            assert_eq!(life.file_bytes(), shortest);
        }
        let (found, written) = life.end(Crash::Process);
        assert!(found == written);
    }
}

#[test]
fn a_ring_that_shares_its_room_leaves_most_of_it_while_deferral_spares_little() {
    let settings = LogSettings {
        defers: true,
        ..sharing()
    };
    let mut life = Life::begin(9, &FaultRules::new(), &settings);
    let mut numbers = 0..;
    let mut append = |life: &mut Life, pause: Duration| {
        life.append(record(numbers.next().expect("a number")));
        life.machine.sleep(pause);
    };
    let spares_little = |life: &Life| life.running.log.spares_little.load(SeqCst);
    let is_due = |life: &Life| {
        let log = &life.running.log;
        log.is_due(&mut lock(&log.writer), log.run_target())
    };
    for _ in 0..3 {
        while life.file_bytes() < WHOLE {
            append(&mut life, Duration::ZERO);
        }
        let half = life.running.log.reserved_lsn() + WHOLE / 2;
        while life.running.log.reserved_lsn() < half {
            append(&mut life, Duration::ZERO);
        }
        assert!(!spares_little(&life));
        // A half takes two seconds: long enough for a block to become due.
        let begun = life.running.log.reserved_lsn();
        let pause = Duration::from_millis(80);
        while life.file_bytes() > SHORTEST {
            append(&mut life, pause);
            // As far as the log's threads come to write.
            let written = life.running.log.reserved_lsn() - begun;
            assert!(written < 40 * WHOLE, "{} bytes long", life.file_bytes());
        }
        assert!(spares_little(&life) && is_due(&life));
        for _ in 0..200 {
            append(&mut life, pause);
        }
    }
    let (found, written) = life.end(Crash::Process);
    assert!(found == written);
}

#[test]
fn nothing_is_lost_however_often_the_ring_changes_its_length() {
    let mut shortened = 0;
    for seed in 0..60 {
        let refused = seed % 3 == 2;
        let rules = FaultRules::new();
        let mut life = Life::begin(seed, &rules, &sharing());
        if refused {
            let fault = Fault::Fail(Refusal::InputOutput);
            rules.add(Rule::new(Operation::ResizeRing, fault).after(1).times(2));
        }
        let mut synced = 0;
        for number in 0..120 + seed {
            let before = life.file_bytes();
            let end = life.append(record(number * (seed + 1)));
            shortened += u32::from(life.file_bytes() < before);
            if number / 20 % 2 == 1 {
                life.machine.sleep(DELAY / 2);
            }
            if number % 5 == seed % 5 {
                life.running.log.sync(end).expect("sync");
                synced = life.written.len();
            }
        }
        let crash = [Crash::Process, Crash::PowerCut][(seed % 2) as usize];
        let (found, written) = life.end(crash);
        let is_whole = crash == Crash::PowerCut || found.len() == written.len();
        assert!(is_whole && found.len() >= synced, "{seed}");
        assert!(found[..] == written[..found.len()], "{seed}");
    }
    assert!(shortened > 20, "{shortened}");
}

#[test]
fn a_ring_at_rest_is_short_and_grows_again() {
    for crash in [Crash::Process, Crash::PowerCut] {
        for cut in (0..80).step_by(2) {
            let mut life = Life::begin(cut, &FaultRules::new(), &growing());
            let mut number = 0;
            for records in [100, cut / 2, cut] {
                for _ in 0..records {
                    life.append(record(number));
                    number += 1;
                }
                if records == 100 {
                    assert_eq!(life.file_bytes(), WHOLE);
                }
                life.running.log.rest().expect("rest");
                assert_eq!(life.file_bytes(), SHORTEST);
                assert_eq!(life.running.log.ring.len(), SHORTEST);
            }
            let synced = life.written.len();
            for _ in 0..cut {
                life.append(record(number));
                number += 1;
            }
            let (found, written) = life.end(crash);
            let least = if crash == Crash::Process {
                written.len()
            } else {
                synced
            };
            assert!(found.len() >= least, "{cut}");
            assert!(found[..] == written[..found.len()], "{cut}");
        }
    }
}

/// As on a file system that cannot reserve room: the ring would not grow again.
#[test]
fn a_ring_that_could_not_grow_again_stays_long_at_rest() {
    let rules = FaultRules::new();
    let mut life = Life::begin(6, &rules, &growing());
    for number in 0..100 {
        life.append(record(number));
    }
    let refused = Fault::Fail(Refusal::Unsupported);
    rules.add(Rule::new(Operation::ResizeRing, refused));
    assert!(life.running.log.rest().is_err());
    for number in 100..200 {
        life.append(record(number));
    }
    assert_eq!(life.file_bytes(), WHOLE);
    assert_eq!(life.running.log.ring.len(), WHOLE);
    let (found, written) = life.end(Crash::Process);
    assert!(found == written);
}

/// Threads write while ring and segment become short, and grow again.
#[test]
fn writers_beside_a_rest_are_all_found() {
    for settings in [
        growing(),
        sharing(),
        rest::settings(false),
        rest::settings(true),
    ] {
        let life = Life::begin(7, &FaultRules::new(), &settings);
        let written = Mutex::new(BTreeMap::new());
        let writers = AtomicUsize::new(3);
        std::thread::scope(|scope| {
            for writer in 0..3_u64 {
                let (running, written, writers) = (&life.running, &written, &writers);
                scope.spawn(move || {
                    for number in 0..200 {
                        let content = record(writer * 1000 + number);
                        let (sequence, _) = running.append(&content);
                        lock(written).insert(sequence, content);
                        if number % 50 > 25 {
                            running.log.storage.sleep(DELAY / 4);
                        }
                    }
                    writers.fetch_sub(1, SeqCst);
                });
            }
            while writers.load(SeqCst) > 0 {
                life.running.log.rest().expect("rest");
            }
        });
        let (found, _) = life.end(Crash::Process);
        assert!(found.iter().eq(lock(&written).values()));
    }
}

#[test]
fn a_ring_keeps_its_length_in_the_next_life() {
    let dir = tempfile::tempdir().expect("tempdir");
    let running = Running::open(dir.path(), &growing(), 0).expect("open");
    let written: Vec<_> = (0..30)
        .map(|number| running.append(&record(number)).0)
        .collect();
    let length = running.log.ring.len();
    assert!(length > SHORTEST);
    running.close();
    let again = Running::open(dir.path(), &growing(), 0).expect("reopen");
    assert_eq!(again.log.ring.len(), length);
    assert!(again.replayed.keys().eq(&written));
    again.close();
}

#[test]
fn nothing_is_lost_wherever_the_process_dies() {
    for cut in (0..120).step_by(4) {
        let mut life = Life::begin(cut, &FaultRules::new(), &growing());
        for number in 0..cut {
            life.append(record(number));
        }
        let (found, written) = life.end(Crash::Process);
        assert!(found == written, "{cut}");
    }
}

#[test]
fn a_ring_that_cannot_grow_goes_round_and_grows_later() {
    for refusal in [Refusal::NoSpace, Refusal::InputOutput, Refusal::Unsupported] {
        for cut in [10, 20, 40, 80, 160] {
            let rules = FaultRules::new();
            let rule = rules.add(Rule::new(Operation::ResizeRing, Fault::Fail(refusal)).times(3));
            let mut life = Life::begin(cut, &rules, &growing());
            for number in 0..cut {
                life.append(record(number));
                if life.running.log.reserved_lsn() < 5 * SHORTEST {
                    assert_eq!(life.file_bytes(), SHORTEST);
                }
            }
            if cut == 160 {
                assert_eq!(
                    rules.count(rule).caught,
                    3,
                    "once in each lap that may grow"
                );
                assert_eq!(life.file_bytes(), WHOLE);
            }
            let (found, written) = life.end(Crash::Process);
            assert!(found == written, "{refusal:?}, {cut}");
        }
    }
}

#[test]
fn a_ring_leaves_the_disk_what_is_kept_beside_it() {
    let settings = LogSettings {
        lengths: SegmentLengths {
            kept_beside: 8 << 20,
            ..small().lengths
        },
        ..growing()
    };
    let mut life = Life::begin(2, &FaultRules::new(), &settings);
    life.machine.set_capacity(Some(8 << 20));
    for number in 0..60 {
        life.append(record(number));
    }
    assert_eq!(life.file_bytes(), SHORTEST);
    life.machine.set_capacity(None);
    for number in 60..200 {
        life.append(record(number));
    }
    assert_eq!(life.file_bytes(), WHOLE);
    let (found, written) = life.end(Crash::Process);
    assert!(found == written);
}

/// The file has grown, and the ring has not.
#[test]
fn a_process_that_dies_while_the_ring_grows_loses_nothing() {
    let mut grown = 0;
    for cut in 1..60 {
        let rules = FaultRules::new();
        rules.add(Rule::new(
            Operation::ResizeRing,
            Fault::Fail(Refusal::NoSpace),
        ));
        let mut life = Life::begin(cut, &rules, &growing());
        for number in 0..cut {
            life.append(record(number));
        }
        let log = &life.running.log;
        let released = log.released_lsn.load(SeqCst);
        // As for a record that would run over the end of the lap.
        let growth = log.ring.growth(released, log.reserved_lsn(), u64::MAX);
        if let Some(growth) = growth {
            let ring = Path::new(DIR).join(RING_NAME);
            let more = life.machine.resize_ring(&ring, growth.len as usize);
            more.expect("grow");
            grown += 1;
        }
        let (found, written) = life.end(Crash::Process);
        assert!(found == written, "{cut}");
    }
    assert!(grown > 10);
}

#[test]
fn power_cuts_leave_what_was_synced_however_long_the_file_is() {
    for seed in 0..40 {
        let mut life = Life::begin(seed, &FaultRules::new(), &growing());
        let mut synced = 0;
        for number in 0..20 + 4 * seed {
            let end = life.append(record(number));
            if number % 7 == seed % 7 {
                life.running.log.sync(end).expect("sync");
                synced = life.written.len();
            }
        }
        let (found, written) = life.end(Crash::PowerCut);
        assert!(found.len() >= synced, "{seed}");
        assert!(found[..] == written[..found.len()], "{seed}");
    }
}

#[test]
fn threads_that_write_while_it_grows_are_all_found() {
    let life = Life::begin(4, &FaultRules::new(), &growing());
    let written = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for writer in 0..4_u64 {
            let (running, written) = (&life.running, &written);
            scope.spawn(move || {
                for number in 0..100 {
                    let content = record(writer * 1000 + number);
                    let (sequence, _) = running.append(&content);
                    lock(written).insert(sequence, content);
                }
            });
        }
    });
    assert_eq!(life.file_bytes(), WHOLE);
    let (found, _) = life.end(Crash::Process);
    assert!(found.iter().eq(lock(&written).values()));
}

/// Records that are long for the ring as it is, and are not for the whole one.
#[test]
fn long_records_are_written_while_it_grows() {
    for cut in 1..30 {
        let mut life = Life::begin(cut, &FaultRules::new(), &growing());
        for number in 0..cut {
            life.append(payload(number, 50_000 + number as usize * 20_011));
        }
        let (found, written) = life.end(Crash::Process);
        assert!(found == written, "{cut}");
    }
}
