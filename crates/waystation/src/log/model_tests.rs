//! The log under shuttle: random schedules of writers, syncs, crashes and failures over the real code.
//!
//! Run with `RUSTFLAGS="--cfg shuttle" cargo test -p waystation --lib model_tests`. A failure prints a
//! schedule (or seed) with which it can be replayed. Shuttle itself reports threads that sleep forever.
//!
//! What every schedule checks, through [`Model`]:
//! - the visible sequence never passes a write that is not finished, and reaches an acknowledged one when a reader waits;
//! - bytes in the ring do not change while they are being written, and the next life finds every
//!   acknowledged record, whole and in order, with gaps for those alone that were not: so ring space is not used again too
//!   early;
//! - what a sync has acknowledged is found after a power cut, and a prefix of the order.

use super::model_storage::Watched;
use super::publication::Publication;
use super::*;
use crate::background::{Jobs, Kind, Limits, Member, Next};
use crate::storage::SimStorage;
use crate::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use crate::storage::sim::Crash;
use crate::sync::lock;
use crate::sync::models::explore;
use crate::sync::thread::{self, JoinHandle};
use shuttle::rand::{Rng, thread_rng};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;
use waystation_format::checksum;
use waystation_format::log::RecordKind;

fn settings() -> LogSettings {
    // A long one is cut when the log rests, or is hardly longer than a short one.
    let (whole, short) = [(640, 160), (320, 256)][thread_rng().gen_range(0..2)];
    LogSettings {
        lengths: SegmentLengths {
            whole: whole * 1024,
            short: short * 1024,
            kept_beside: 0,
        },
        // The longer one begins as long as the other one, and grows.
        ring_bytes: (256 * 1024) << thread_rng().gen_range(0..2),
        cache: LogBlocks::own(0),
        transfer: Transfer::Direct,
        defers: thread_rng().r#gen(),
        flush_bytes: 128 * 1024,
        ring_shares_room: thread_rng().r#gen(),
    }
}

/// Records of up to half a ring are reserved whole, longer ones chunk by chunk.
const LONG: usize = 150 * 1024;

fn dir() -> &'static Path {
    Path::new("/db")
}

/// What the writers know, outside the view of the scheduler: looking here never lets another thread run.
#[derive(Clone, Default)]
struct Ledger {
    /// First sequences reserved, until just before they are published.
    unfinished: BTreeSet<u64>,
    /// First sequence to the payload's length, from the reservation on.
    lengths: BTreeMap<u64, usize>,
    /// What was acknowledged for a process crash, and the last sequence that was for a power loss.
    acknowledged: BTreeSet<u64>,
    synced: u64,
    /// Sequences up to here are in tables: the log may have recycled them.
    flushed: u64,
}

/// An open log, written out in the background, and what must be true of it.
struct Model {
    machine: Arc<SimStorage>,
    log: Log,
    ledger: std::sync::Mutex<Ledger>,
}

impl Model {
    fn open(machine: &Arc<SimStorage>, rules: &FaultRules) -> Arc<Self> {
        let storage: Arc<dyn Storage> = Watched::over(machine.with_faults(rules));
        let recovered = open(
            &storage,
            dir(),
            &settings(),
            &Needs::after(0),
            false,
            &mut |_| Ok(()),
        )
        .unwrap();
        Arc::new(Self {
            machine: Arc::clone(machine),
            log: recovered.log,
            ledger: std::sync::Mutex::default(),
        })
    }

    fn start() -> (Arc<Self>, Arc<Member>, FaultRules) {
        let machine = SimStorage::new(thread_rng().r#gen());
        machine.create_dir(dir()).unwrap();
        let rules = FaultRules::new();
        let model = Self::open(&machine, &rules);
        let limits = Limits::default().with(Kind::Log, 2);
        let member = Member::join(&model.log.storage, &limits);
        let called = Arc::clone(&member);
        model.log.on_call(move || called.submit(Kind::Log));
        member.start(Arc::clone(&model) as _).unwrap();
        (model, member, rules)
    }

    fn ledger(&self) -> std::sync::MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap()
    }

    fn check_visible(&self) {
        let visible = self.log.visible_sequence();
        if let Some(first) = self.ledger().unfinished.first() {
            assert!(
                visible < *first,
                "{visible} is visible before {first} is finished"
            );
        }
    }

    /// Appends a record, as the pipeline does; fails if the log is suspended.
    fn append(&self, len: usize) -> Result<(u64, u64), Error> {
        if self.log.ring.len() > self.log.ring.len_min() && thread_rng().r#gen() {
            // Half a lap takes long, and the ring may become shorter.
            self.log.storage.sleep(Duration::from_secs(3));
        }
        let (reservation, ()) = self.log.reserve(RecordKind::Batch, len, 1, |_, sequence| {
            let mut ledger = self.ledger();
            ledger.unfinished.insert(sequence);
            ledger.lengths.insert(sequence, len);
            Ok::<_, Error>(())
        })?;
        let (sequence, end) = (reservation.first_sequence, reservation.end_lsn());
        let payload = payload(sequence, len);
        self.log
            .copy(&reservation, &payload, checksum::crc32c(&payload));
        self.check_visible();
        self.ledger().unfinished.remove(&sequence);
        self.log.publish(reservation);
        self.check_visible();
        self.ledger().acknowledged.insert(sequence);
        if thread_rng().r#gen() {
            self.read(sequence);
        }
        Ok((sequence, end))
    }

    /// Does with the log what a read does that began after `acknowledged` was.
    fn read(&self, acknowledged: u64) {
        self.log.wait_acknowledged();
        let visible = self.log.visible_sequence();
        assert!(
            visible >= acknowledged,
            "{acknowledged} is acknowledged, and a reader sees {visible}"
        );
        self.check_visible();
    }

    fn sync(&self, (sequence, end): (u64, u64)) -> Result<(), Error> {
        self.log.sync(end)?;
        let mut ledger = self.ledger();
        ledger.synced = ledger.synced.max(sequence);
        Ok(())
    }

    /// Does with the log what a flush does: flushed records were durable before, unless the log defers, and are released
    /// after.
    fn flush(&self) -> Result<(), Error> {
        let mut border = (0, 0);
        self.log
            .at_front(|lsn, sequence| border = (lsn, sequence - 1));
        let (lsn, last_sequence) = border;
        self.log.wait_visible(last_sequence);
        if !self.log.defers {
            self.log.sync_all()?;
        }
        {
            let mut ledger = self.ledger();
            ledger.synced = ledger.synced.max(last_sequence);
            ledger.flushed = ledger.flushed.max(last_sequence);
        }
        self.log.note_flushed(lsn);
        self.log.release_below(lsn);
        self.log.remove_surplus(true, false)
    }

    /// Ends the machine here and now and checks what the next life finds.
    fn crash(&self, crash: Crash) {
        // No other thread runs between these lines. Others do while the next life opens the log, which reads with
        // several threads: by then the ledger must be free, whose lock the scheduler does not see.
        let ledger = self.ledger().clone();
        let left = self.machine.crash(thread_rng().r#gen(), crash);
        let storage: Arc<dyn Storage> = left;
        let mut last = None;
        let mut found = BTreeSet::new();
        let mut deliver = |record: Record<'_>| {
            let sequence = record.header.first_sequence;
            if record.header.kind == RecordKind::Gap {
                assert_eq!(crash, Crash::Process, "a gap at {sequence}");
                assert_eq!(
                    sequence,
                    last.unwrap_or(ledger.flushed).max(ledger.flushed) + 1
                );
                last = Some(record.header.last_sequence());
                return Ok(());
            }
            // Flushed records may have holes, where segments were recycled.
            let follows = last.map_or(0, |last: u64| last + 1);
            assert!(
                sequence == follows || (sequence > follows && sequence <= ledger.flushed + 1),
                "{sequence} came instead of {follows}, {} being flushed",
                ledger.flushed
            );
            let len = ledger.lengths[&sequence];
            assert!(
                record.payload == payload(sequence, len),
                "{sequence} was changed"
            );
            last = Some(sequence);
            found.insert(sequence);
            Ok(())
        };
        open(
            &storage,
            dir(),
            &settings(),
            &Needs::after(ledger.flushed),
            false,
            &mut deliver,
        )
        .unwrap();
        match crash {
            Crash::Process => {
                let kept = |sequence: &u64| *sequence <= ledger.flushed || found.contains(sequence);
                let lost: Vec<_> = ledger.acknowledged.iter().filter(|it| !kept(it)).collect();
                assert!(
                    lost.is_empty(),
                    "{lost:?} were acknowledged, found {found:?}"
                );
            }
            Crash::PowerCut => {
                let found = last.unwrap_or(0).max(ledger.flushed);
                assert!(
                    found >= ledger.synced,
                    "{} was synced, found up to {found}",
                    ledger.synced
                );
            }
        }
    }

    fn stop(&self, member: &Member) {
        self.log.stop();
        member.leave().unwrap();
    }
}

impl Jobs for Model {
    fn run(&self, _: Kind) -> Next {
        self.log.write_out()
    }

    fn panicked(&self, _: Kind) {
        unreachable!("a panic ends the model");
    }
}

fn payload(sequence: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (i / 7 + sequence * 13) as u8)
        .collect()
}

fn spawn_all(threads: usize, run: impl Fn(usize) + Send + Sync + 'static) -> Vec<JoinHandle<()>> {
    let run = Arc::new(run);
    (0..threads)
        .map(|number| {
            let run = Arc::clone(&run);
            thread::spawn(move || run(number))
        })
        .collect()
}

fn join_all(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn publication_is_in_order_and_a_reader_sees_what_was_acknowledged() {
    explore(
        || {
            let publication = Arc::new(Publication::new(0, 0, 2));
            let finished = Arc::new(std::sync::Mutex::new(BTreeSet::new()));
            let next_ticket = Arc::new(Mutex::new(0));
            let threads = spawn_all(3, {
                let publication = Arc::clone(&publication);
                move |_| {
                    for _ in 0..2 {
                        let ticket = {
                            let mut next = lock(&next_ticket);
                            while publication.is_full(*next) {
                                thread::yield_now();
                            }
                            *next += 1;
                            *next - 1
                        };
                        finished.lock().unwrap().insert(ticket);
                        publication.finish(ticket, ticket + 1, ticket + 1);
                        publication.acknowledge(ticket + 1);
                        if let Some(acknowledged) = publication.acknowledged_ahead() {
                            publication.wait_visible(acknowledged);
                        }
                        let copied = publication.copied_lsn();
                        let visible = publication.visible_sequence();
                        assert!(copied <= visible && visible > ticket);
                        let finished = finished.lock().unwrap();
                        assert!((0..visible).all(|before| finished.contains(&before)));
                    }
                }
            });
            join_all(threads);
            assert_eq!(publication.visible_sequence(), 6);
            assert_eq!(publication.copied_lsn(), 6);
        },
        20_000,
    );
}

#[test]
fn records_of_all_lengths_wind_through_a_small_ring() {
    explore(
        || {
            let (model, member, _) = Model::start();
            let appenders = spawn_all(3, {
                let model = Arc::clone(&model);
                move |_| {
                    for _ in 0..4 {
                        let len = match thread_rng().gen_range(0..4) {
                            0 => 10,
                            1 => 20_000,
                            2 => 70_000,
                            _ => LONG + thread_rng().gen_range(0..LONG),
                        };
                        model.append(len).unwrap();
                    }
                }
            });
            join_all(appenders);
            model.read(12);
            model.log.sync_all().unwrap();
            model.ledger().synced = 12;
            model.stop(&member);
            model.crash(Crash::PowerCut);
        },
        300,
    );
}

/// Slow and quick laps take turns: the ring changes its length between records.
#[test]
fn a_ring_that_becomes_shorter_beside_writers_loses_nothing() {
    explore(
        || {
            let (model, member, _) = Model::start();
            let threads = spawn_all(2, {
                let model = Arc::clone(&model);
                move |_| {
                    for _ in 0..12 {
                        let len = [10, 50_000, 120_000][thread_rng().gen_range(0..3)];
                        let written = model.append(len).unwrap();
                        if thread_rng().gen_ratio(1, 3) {
                            model.sync(written).unwrap();
                        }
                    }
                }
            });
            join_all(threads);
            model.stop(&member);
            let crash = [Crash::Process, Crash::PowerCut][thread_rng().gen_range(0..2)];
            model.crash(crash);
        },
        300,
    );
}

/// The ring becomes short and grows again beside threads that write.
#[test]
fn a_rest_beside_writers_loses_nothing() {
    explore(
        || {
            let (model, member, _) = Model::start();
            let mut threads = spawn_all(2, {
                let model = Arc::clone(&model);
                move |_| {
                    for _ in 0..5 {
                        let len = [10, 70_000, 120_000, LONG][thread_rng().gen_range(0..4)];
                        model.append(len).unwrap();
                    }
                }
            });
            let resting = Arc::clone(&model);
            threads.extend(spawn_all(1, move |_| {
                for _ in 0..3 {
                    resting.log.rest().unwrap();
                }
            }));
            join_all(threads);
            model.stop(&member);
            let crash = [Crash::Process, Crash::PowerCut][thread_rng().gen_range(0..2)];
            model.crash(crash);
        },
        300,
    );
}

#[test]
fn one_sync_serves_many_and_keeps_its_word() {
    explore(
        || {
            let (model, member, _) = Model::start();
            let appenders = spawn_all(4, {
                let model = Arc::clone(&model);
                move |number| {
                    for turn in 0..3 {
                        let written = model.append(3000 + 20_000 * (number % 2)).unwrap();
                        if (number + turn) % 3 != 0 {
                            model.sync(written).unwrap();
                        }
                    }
                }
            });
            join_all(appenders);
            model.stop(&member);
            model.crash(Crash::PowerCut);
        },
        500,
    );
}

/// A writer need not know where its record ends to have it durable.
#[test]
fn a_sync_of_everything_covers_what_was_acknowledged() {
    explore(
        || {
            let (model, writers, _) = Model::start();
            let appenders = spawn_all(3, {
                let model = Arc::clone(&model);
                move |_| {
                    for _ in 0..3 {
                        let (_, end) = model.append(30_000).unwrap();
                        model.log.sync_all().unwrap();
                        let durable = model.log.stats().durable_lsn;
                        assert!(durable >= end, "durable to {durable}, written to {end}");
                    }
                }
            });
            join_all(appenders);
            model.stop(&writers);
        },
        2000,
    );
}

/// A long record waits for room that only a sync's closing of blocks, or the writers, make.
#[test]
fn syncs_beside_long_records_end() {
    explore(
        || {
            let (model, member, _) = Model::start();
            let appenders = spawn_all(3, {
                let model = Arc::clone(&model);
                move |number| {
                    for _ in 0..2 {
                        let len = if number == 0 { 2 * LONG } else { 500 };
                        let written = model.append(len).unwrap();
                        model.sync(written).unwrap();
                    }
                }
            });
            join_all(appenders);
            model.stop(&member);
            model.crash(Crash::PowerCut);
        },
        300,
    );
}

#[test]
fn a_crash_at_any_moment_keeps_what_was_acknowledged() {
    explore(
        || {
            let (model, member, _) = Model::start();
            let appenders = spawn_all(3, {
                let model = Arc::clone(&model);
                move |number| {
                    for _ in 0..4 {
                        let len = thread_rng().gen_range(0..100_000);
                        // Both fail only once the machine is off.
                        let Ok(written) = model.append(len) else {
                            return;
                        };
                        if number == 0 && model.sync(written).is_err() {
                            return;
                        }
                    }
                }
            });
            let flusher = spawn_all(1, {
                let model = Arc::clone(&model);
                // Fails, if at all, once the machine is off.
                move |_| {
                    for _ in 0..6 {
                        let _ = model.flush();
                    }
                }
            });
            for _ in 0..thread_rng().gen_range(0..800) {
                thread::yield_now();
            }
            let crash = if thread_rng().r#gen() {
                Crash::Process
            } else {
                Crash::PowerCut
            };
            model.crash(crash);
            join_all(appenders);
            join_all(flusher);
            model.stop(&member);
        },
        1000,
    );
}

#[test]
fn a_failed_write_or_sync_is_healed_and_nothing_acknowledged_is_lost() {
    explore(|| heal_with(1000..100_000), 1000);
}

/// The record being staged, the sync that waits for it and the healing that both wait for.
#[test]
fn healing_goes_on_while_a_long_record_is_staged() {
    explore(|| heal_with(LONG..2 * LONG), 500);
}

fn heal_with(lengths: std::ops::Range<usize>) {
    let (model, member, rules) = Model::start();
    let operation = if thread_rng().r#gen() {
        Operation::Write
    } else {
        Operation::Sync
    };
    let spared = thread_rng().gen_range(0..6);
    let times = thread_rng().gen_range(1..3);
    rules.add(
        Rule::new(operation, Fault::Fail(Refusal::NoSpace))
            .on("journal-")
            .after(spared)
            .times(times),
    );
    let appenders = spawn_all(3, {
        let model = Arc::clone(&model);
        move |number| {
            for _ in 0..3 {
                let len = if number == 0 {
                    200
                } else {
                    thread_rng().gen_range(lengths.clone())
                };
                let written = insist(|| model.append(len));
                if thread_rng().r#gen() {
                    insist(|| model.sync(written));
                }
            }
        }
    });
    for _ in 0..3 {
        insist(|| model.flush());
    }
    join_all(appenders);
    model.read(9);
    insist(|| model.log.sync_all());
    model.ledger().synced = 9;
    model.stop(&member);
    model.crash(Crash::PowerCut);
}

/// Tries until the log takes it: a suspension ends.
fn insist<T>(mut call: impl FnMut() -> Result<T, Error>) -> T {
    loop {
        match call() {
            Ok(done) => return done,
            Err(Error::Suspended { .. }) => thread::yield_now(),
            Err(other) => panic!("{other}"),
        }
    }
}
