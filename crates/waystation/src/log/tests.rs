//! The log on the operating system's storage: published records are found again, in order, whatever the sizes.

mod damage;
mod deferral;
mod growth;
mod holes;
mod reading;
mod rest;

use super::*;
use crate::background::{Jobs, Kind, Limits, Member, Next};
use crate::directory::{RING_NAME, segment_number};
use crate::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use crate::storage::{IoPriority, OsStorage, SimStorage};
use crate::sync::lock;
use std::collections::BTreeMap;
use std::path::Path;
use waystation_format::checksum;
use waystation_format::log::{RECORD_HEADER_BYTES, RecordKind, UNIT_BYTES};

fn small() -> LogSettings {
    LogSettings {
        lengths: SegmentLengths {
            whole: 512 * 1024,
            short: 256 * 1024,
            kept_beside: 0,
        },
        ring_bytes: 256 * 1024,
        cache: LogBlocks::own(0),
        transfer: Transfer::Direct,
        defers: false,
        flush_bytes: 512 * 1024,
        ring_shares_room: false,
    }
}

/// An open log whose runs are written in the background.
struct Running {
    log: Arc<Log>,
    member: Arc<Member>,
    /// What was replayed: first sequence to payload.
    replayed: BTreeMap<u64, Vec<u8>>,
}

impl Jobs for Log {
    fn run(&self, _: Kind) -> Next {
        self.write_out()
    }

    fn panicked(&self, kind: Kind) {
        unreachable!("{kind:?} is checked by the threads that wait for it")
    }
}

impl Running {
    fn open(dir: &Path, settings: &LogSettings, flushed: u64) -> crate::Result<Self> {
        Self::open_on(&(OsStorage::new() as _), dir, settings, flushed)
    }

    fn open_on(
        storage: &Arc<dyn Storage>,
        dir: &Path,
        settings: &LogSettings,
        flushed: u64,
    ) -> crate::Result<Self> {
        let mut replayed = BTreeMap::new();
        let mut deliver = |record: Record<'_>| {
            if record.header.first_sequence > flushed {
                replayed.insert(record.header.first_sequence, record.payload.to_vec());
            }
            Ok(())
        };
        let recovered = open(
            storage,
            dir,
            settings,
            &Needs::after(flushed),
            false,
            &mut deliver,
        )?;
        let log = Arc::new(recovered.log);
        let member = Member::join(storage, &Limits::default().with(Kind::Log, 2));
        let called = Arc::clone(&member);
        log.on_call(move || called.submit(Kind::Log));
        member.start(Arc::clone(&log) as _)?;
        Ok(Self {
            log,
            member,
            replayed,
        })
    }

    fn append(&self, payload: &[u8]) -> (u64, u64) {
        self.try_append(payload).expect("reserve")
    }

    fn try_append(&self, payload: &[u8]) -> crate::Result<(u64, u64)> {
        let (reservation, ()) = self
            .log
            .reserve(RecordKind::Batch, payload.len(), 1, |_, _| {
                Ok::<_, Error>(())
            })?;
        self.log
            .copy(&reservation, payload, checksum::crc32c(payload));
        let (sequence, end) = (reservation.first_sequence, reservation.end_lsn());
        self.log.publish(reservation);
        Ok((sequence, end))
    }

    fn close(self) {
        self.log.sync_all().expect("sync");
        self.log.stop();
        self.member.leave().expect("no job panics");
    }
}

#[test]
fn a_thread_yields_after_some_batches_and_after_no_event() {
    let dir = tempfile::tempdir().expect("tempdir");
    let running = Running::open(dir.path(), &small(), 0).expect("open");
    let log = &running.log;
    lock(&log.front).turns = turns::Turns::on(0);
    let yielding = |kind| {
        let yields = |_: &u64| {
            let reserved = log.reserve(kind, 1, 1, |_, _| Ok::<_, Error>(()));
            let reservation = reserved.expect("reserve").0;
            log.copy(&reservation, &[0], checksum::crc32c(&[0]));
            let yields = reservation.yields;
            log.publish(reservation);
            yields
        };
        (0..64).filter(yields).count()
    };
    assert_eq!(yielding(RecordKind::Batch), 4);
    assert_eq!(yielding(RecordKind::Devices), 0);
    running.close();
}

/// What a process crash leaves: files, and the ring's shared pages, as they are now.
fn crash_copy(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("tempdir");
    for entry in std::fs::read_dir(dir).expect("list") {
        let entry = entry.expect("entry");
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).expect("copy");
    }
    copy
}

/// What a process crash leaves once the writers are idle: a copy of files that change is of no one moment.
fn idle_copy(dir: &Path) -> tempfile::TempDir {
    let is_same = |copy: &Path| {
        let entries = std::fs::read_dir(dir)
            .expect("list")
            .map(|it| it.expect("entry"));
        let read = |path: &Path| std::fs::read(path).ok();
        entries
            .into_iter()
            .all(|entry| read(&entry.path()) == read(&copy.join(entry.file_name())))
    };
    loop {
        let copy = crash_copy(dir);
        if is_same(copy.path()) {
            return copy;
        }
    }
}

fn payload(sequence_hint: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (i.wrapping_mul(31) ^ sequence_hint) as u8)
        .collect()
}

#[test]
fn published_records_survive_a_process_crash_in_order() {
    let dir = tempfile::tempdir().expect("tempdir");
    let running = Running::open(dir.path(), &small(), 0).expect("open");
    let mut expected = BTreeMap::new();
    for i in 0..3000u64 {
        // Up to three rings long, so that some records are staged chunk by chunk.
        let len = if i % 500 == 499 {
            700_000
        } else {
            (i * 37 % 3000) as usize
        };
        let bytes = payload(i, len);
        let (sequence, end) = running.append(&bytes);
        assert_eq!(sequence, i + 1);
        expected.insert(sequence, bytes);
        if i % 97 == 0 {
            running.log.sync(end).expect("sync");
            assert!(running.log.stats().durable_lsn >= end);
        }
        if i % 1000 == 777 {
            let copy = crash_copy(dir.path());
            let again = Running::open(copy.path(), &small(), 0).expect("reopen");
            assert_eq!(again.replayed, expected);
            again.close();
        }
    }
    let copy = crash_copy(dir.path());
    running.close();
    let again = Running::open(copy.path(), &small(), 0).expect("reopen");
    assert_eq!(again.replayed, expected);
    // The next life goes on where this one ended, and a third finds both.
    let (sequence, _) = again.append(b"more");
    assert_eq!(sequence, 3001);
    let copy = crash_copy(copy.path());
    again.close();
    let third = Running::open(copy.path(), &small(), 0).expect("third");
    expected.insert(3001, b"more".to_vec());
    assert_eq!(third.replayed, expected);
    third.close();
}

#[test]
fn many_threads_leave_no_hole() {
    let dir = tempfile::tempdir().expect("tempdir");
    let running = Running::open(dir.path(), &small(), 0).expect("open");
    std::thread::scope(|scope| {
        for thread in 0..6u64 {
            let running = &running;
            scope.spawn(move || {
                for i in 0..400u64 {
                    let (sequence, end) =
                        running.append(&payload(thread * 1000 + i, (i * 13 % 900) as usize));
                    running.log.wait_acknowledged();
                    assert!(running.log.visible_sequence() >= sequence);
                    if thread == 0 || i % 50 == 0 {
                        running.log.sync(end).expect("sync");
                    }
                }
            });
        }
    });
    let copy = crash_copy(dir.path());
    running.close();
    let again = Running::open(copy.path(), &small(), 0).expect("reopen");
    assert_eq!(again.replayed.len(), 2400);
    assert!(again.replayed.keys().copied().eq(1..=2400));
    again.close();
}

#[test]
fn released_segments_are_recycled_and_not_missed() {
    let dir = tempfile::tempdir().expect("tempdir");
    let running = Running::open(dir.path(), &small(), 0).expect("open");
    let mut flushed = 0;
    for i in 0..4000u64 {
        let (sequence, end) = running.append(&payload(i, 1500));
        if i % 400 == 399 {
            running.log.sync(end).expect("sync");
            running.log.release_below(running.log.reserved_lsn());
            running.log.remove_surplus(false, false).expect("remove");
            flushed = sequence;
            assert!(running.log.stats().segments <= 3);
        }
    }
    running.append(b"after the last flush");
    let copy = crash_copy(dir.path());
    running.close();
    let again = Running::open(copy.path(), &small(), flushed).expect("reopen");
    assert_eq!(
        again.replayed.into_values().collect::<Vec<_>>(),
        [b"after the last flush".to_vec()]
    );
}

#[test]
fn an_opening_removes_segments_before_the_first_that_it_needs() {
    let dir = tempfile::tempdir().expect("tempdir");
    let running = Running::open(dir.path(), &small(), 0).expect("open");
    let sequences: Vec<_> = (0..200)
        .map(|number| running.append(&payload(number, 20_000)).0)
        .collect();
    running.close();
    let count = || {
        let entries = std::fs::read_dir(dir.path()).expect("list");
        let names = entries.map(|entry| entry.expect("entry").file_name());
        let is_segment =
            |name: &std::ffi::OsString| segment_number(name.to_str().expect("a name")).is_some();
        names.filter(is_segment).count()
    };
    assert!(count() > 6);
    let flushed = sequences[190];
    let running = Running::open(dir.path(), &small(), flushed).expect("open");
    let left: Vec<_> = running.replayed.keys().copied().collect();
    assert_eq!(left, sequences[191..]);
    assert!(count() <= 3, "{} segments", count());
    running.close();
}

#[test]
fn what_is_published_can_be_written_without_being_synced() {
    let dir = tempfile::tempdir().expect("tempdir");
    let running = Running::open(dir.path(), &small(), 0).expect("open");
    running.append(&payload(1, 1000));
    let staged = || running.log.stats().staged_bytes;
    assert!(staged() > 0);
    let durable = running.log.stats().durable_lsn;
    running.log.write_all();
    assert_eq!((staged(), running.log.stats().durable_lsn), (0, durable));
    running.close();
}

#[test]
fn freed_files_wait_for_their_time_unless_they_must_go() {
    let dir = tempfile::tempdir().expect("tempdir");
    let running = Running::open(dir.path(), &small(), 0).expect("open");
    let mut last = (0, 0);
    for i in 0..4000u64 {
        last = running.append(&payload(i, 1500));
    }
    running.log.sync(last.1).expect("sync");
    let files = || std::fs::read_dir(dir.path()).expect("list").count();
    let written = files();
    running.log.release_below(running.log.reserved_lsn());
    lock(&running.log.writer).next_removal = std::time::Duration::MAX;
    running.log.remove_surplus(false, false).expect("remove");
    assert_eq!(files(), written, "a removal was a moment ago");
    running.log.remove_surplus(true, false).expect("remove");
    let kept = running.log.stats().segments + lock(&running.log.writer).spares.len();
    assert!(kept <= 4 && files() < written - 5, "{kept} of {written}");
    running.close();
    let again = Running::open(dir.path(), &small(), last.0).expect("reopen");
    assert!(again.replayed.is_empty());
    again.close();
}

#[test]
fn a_file_that_cannot_be_removed_keeps_no_other() {
    let machine = SimStorage::new(1);
    let rules = FaultRules::new();
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    let dir = Path::new("/log");
    storage.create_dir(dir).expect("create");
    let running = Running::open_on(&storage, dir, &small(), 0).expect("open");
    for i in 0..4000u64 {
        running.append(&payload(i, 1500));
    }
    running.log.sync_all().expect("sync");
    running.log.release_below(running.log.reserved_lsn());
    let files = || storage.list(dir).expect("list").len();
    let written = files();
    let oldest = lock(&running.log.writer).spares[0].clone();
    let rule = Rule::new(Operation::Remove, Fault::Fail(Refusal::InputOutput));
    rules.add(rule.on(&oldest.to_string_lossy()));
    assert!(running.log.remove_surplus(true, false).is_err());
    assert_eq!(files(), written);
    assert!(
        running.log.remove_surplus(true, false).is_err(),
        "it comes last"
    );
    let left = files();
    assert!(left < written - 5, "{left} of {written}");
    assert_eq!(lock(&running.log.writer).useless, [oldest]);
    rules.clear();
    running.log.remove_surplus(true, false).expect("it can go");
    assert_eq!(files(), left - 1);
    running.close();
}

#[test]
fn errors_name_a_segment_that_was_drafted_by_its_own_name() {
    let machine = SimStorage::new(1);
    let rules = FaultRules::new();
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    let dir = Path::new("/log");
    storage.create_dir(dir).expect("create");
    let running = Running::open_on(&storage, dir, &small(), 0).expect("open");
    let names = || {
        let state = lock(&running.log.writer);
        let file = Arc::clone(&state.current.file);
        (state.heals, file.path.clone(), file.file.path().to_owned())
    };
    let (_, first, opened) = names();
    assert_eq!(first, opened, "the first one of a life");
    rules.add(Rule::new(Operation::Sync, Fault::Fail(Refusal::InputOutput)).times(1));
    let (_, end) = running.append(b"after a sync that fails");
    assert!(running.log.sync(end).is_err());
    let deadline = storage.now() + std::time::Duration::from_secs(30);
    while names().0 == 0 {
        assert!(storage.now() < deadline, "it does not heal");
        std::thread::yield_now();
    }
    let (heals, healed, opened) = names();
    assert_eq!((heals, &healed), (1, &opened));
    assert_ne!(first, healed);
    let state = lock(&running.log.writer);
    let segment = &state.current;
    assert!(segment.end_lsn > segment.file.header.start_lsn);
    // Damage to what healing moved is told.
    assert_eq!(segment.file.header.durable_lsn, segment.end_lsn);
    drop(state);
    running.close();
}

/// The newest segment file of `dir` and its first block's offset.
fn newest_segment(dir: &Path) -> PathBuf {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .expect("list")
        .filter_map(|entry| entry.expect("entry").file_name().into_string().ok())
        .filter(|name| segment_number(name).is_some())
        .collect();
    names.sort();
    dir.join(names.pop().expect("a segment"))
}

fn flip(path: &Path, offset: usize) {
    let mut bytes = std::fs::read(path).expect("read");
    bytes[offset] ^= 4;
    std::fs::write(path, bytes).expect("write");
}

#[test]
fn damage_below_the_durable_position_is_reported_and_a_torn_tail_is_cut() {
    let dir = tempfile::tempdir().expect("tempdir");
    let running = Running::open(dir.path(), &small(), 0).expect("open");
    for i in 0..3u64 {
        let (_, end) = running.append(&payload(i, 300));
        running.log.sync(end).expect("sync");
    }
    let copy = crash_copy(dir.path());
    running.close();
    // Three blocks of a unit each; the second and third know that the first was durable.
    let segment = newest_segment(copy.path());
    flip(&segment, UNIT_BYTES + 200);
    match Running::open(copy.path(), &small(), 0).map(|_| ()) {
        Err(Error::Corruption { path, offset, .. }) => {
            assert_eq!((path, offset), (segment.clone(), UNIT_BYTES as u64));
        }
        other => panic!("expected corruption, got {other:?}"),
    }
    flip(&segment, UNIT_BYTES + 200);
    // Nothing knows that the last block was durable, and without the ring it is a torn tail.
    flip(&segment, 3 * UNIT_BYTES + 200);
    flip(&copy.path().join(RING_NAME), 3 * UNIT_BYTES + 200);
    let again = Running::open(copy.path(), &small(), 0).expect("reopen");
    assert_eq!(again.replayed.len(), 2);
    again.close();
}

#[test]
fn a_missing_ring_or_segment_is_an_error() {
    let dir = tempfile::tempdir().expect("tempdir");
    let running = Running::open(dir.path(), &small(), 0).expect("open");
    running.append(b"only in the ring");
    let copy = crash_copy(dir.path());
    let second = crash_copy(dir.path());
    running.close();
    let (ring, mut damaged) = (copy.path().join(RING_NAME), Vec::new());
    for bytes in [Some(8 << 40), Some(UNIT_BYTES as u64), Some(0), None] {
        match bytes {
            Some(bytes) => {
                let file = std::fs::File::options().write(true).open(&ring);
                file.and_then(|it| it.set_len(bytes)).expect("resize");
            }
            None => std::fs::remove_file(&ring).expect("remove"),
        }
        // The second opening must not find a ring that the first one has made.
        for _ in 0..2 {
            let refused = Running::open(copy.path(), &small(), 0).map(|_| ());
            damaged.push((bytes, refused));
        }
        assert_eq!(ring.metadata().ok().map(|it| it.len()), bytes);
    }
    for (bytes, refused) in damaged {
        let is_told =
            matches!(&refused, Err(Error::Corruption { path, .. }) if path.ends_with(RING_NAME));
        assert!(is_told, "{bytes:?}: {refused:?}");
    }
    std::fs::remove_file(newest_segment(second.path())).expect("remove");
    assert!(matches!(
        Running::open(second.path(), &small(), 0).map(|_| ()),
        Err(Error::Corruption { .. })
    ));
}
