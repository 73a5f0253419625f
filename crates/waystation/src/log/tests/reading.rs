//! What the upper level reads back: from the ring, from segments, through the cache, of long records and short ones.

use super::*;
use crate::log::read::READERS_MAX;
use std::time::Duration;
use waystation_format::checksum;

fn cached() -> LogSettings {
    LogSettings {
        cache: LogBlocks::own(512 * 1024),
        ..small()
    }
}

/// Records of many sizes, some longer than the ring; each with its position.
fn fill(running: &Running, count: u64) -> Vec<(u64, Vec<u8>)> {
    let mut records = Vec::new();
    for i in 0..count {
        let len = match i % 300 {
            299 => 600_000,
            99 => 90_000,
            _ => 200 + (i * 37 % 1500) as usize,
        };
        let bytes = payload(i, len);
        let (reservation, ()) = (running.log)
            .reserve(RecordKind::Batch, bytes.len(), 1, |_, _| Ok::<_, Error>(()))
            .expect("reserve");
        let checksum = checksum::crc32c(&bytes);
        running.log.copy(&reservation, &bytes, checksum);
        let (lsn, end) = (reservation.record_lsn(), reservation.end_lsn());
        running.log.publish(reservation);
        if i % 61 == 0 {
            running.log.sync(end).expect("sync");
        }
        records.push((lsn, bytes));
    }
    records
}

/// Two parts of each record of which `chosen` says so.
fn value_refs(
    records: &[(u64, Vec<u8>)],
    chosen: impl Fn(usize) -> bool,
) -> (Vec<ValueRef>, Vec<u8>) {
    let (mut value_refs, mut expected) = (Vec::new(), Vec::new());
    for (lsn, bytes) in records
        .iter()
        .enumerate()
        .filter_map(|(at, record)| chosen(at).then_some(record))
    {
        for part in [5..60, bytes.len() / 2..bytes.len()] {
            let start = expected.len();
            expected.extend_from_slice(&bytes[part.clone()]);
            value_refs.push(ValueRef {
                record_lsn: *lsn,
                offset: RECORD_HEADER_BYTES + part.start,
                target: start..expected.len(),
            });
        }
    }
    (value_refs, expected)
}

fn read(log: &Log, value_refs: &[ValueRef], pass: Pass, bytes: usize) -> crate::Result<Vec<u8>> {
    let mut values = vec![0; bytes];
    log.read_values(value_refs, pass, &mut values)
        .map(|()| values)
}

fn check_all(log: &Log, records: &[(u64, Vec<u8>)]) {
    for step in [1, 2, 7, 40] {
        let (value_refs, expected) = value_refs(records, |at| at % step == 0);
        let once = [IoPriority::Low, IoPriority::Medium, IoPriority::High].map(Pass::Once);
        for pass in once.into_iter().chain([Pass::Often, Pass::Often]) {
            let found = read(log, &value_refs, pass, expected.len()).expect("read");
            assert!(found == expected, "every {step}th, {pass:?}");
        }
    }
    for at in (0..records.len()).step_by(13) {
        let (value_refs, expected) = value_refs(&records[at..=at], |_| true);
        assert!(read(log, &value_refs, Pass::Often, expected.len()).expect("read") == expected);
    }
}

/// What stood in the ring before it changed its length stands elsewhere in the new one, or does not stand there.
#[test]
fn records_from_before_a_change_of_the_ring_are_read_back() {
    for refused in 0..4 {
        let rules = FaultRules::new();
        let fault = Fault::Fail(Refusal::NoSpace);
        rules.add(Rule::new(Operation::ResizeRing, fault).times(refused));
        let machine = SimStorage::new(refused);
        // However long it takes to check all records, each lap is quick.
        machine.stop_clock();
        let storage: Arc<dyn Storage> = machine.with_faults(&rules);
        let dir = Path::new("/log");
        storage.create_dir(dir).expect("create");
        let settings = LogSettings {
            ring_bytes: 1 << 20,
            ring_shares_room: true,
            ..cached()
        };
        let running = Running::open_on(&storage, dir, &settings, 0).expect("open");
        let mut records = Vec::new();
        while running.log.ring.len() < running.log.ring.len_max() {
            records.extend(fill(&running, 40));
            check_all(&running.log, &records);
        }
        while running.log.ring.len() > running.log.ring.len_min() {
            records.extend(fill(&running, 40));
            check_all(&running.log, &records);
            running.log.sync_all().expect("sync");
            machine.sleep(Duration::from_secs(5));
            assert!(records.len() < 4_000, "the ring stays long");
        }
        running.close();
    }
}

#[test]
fn every_value_is_read_back_wherever_it_is() {
    for settings in [small(), cached()] {
        let dir = tempfile::tempdir().expect("tempdir");
        let running = Running::open(dir.path(), &settings, 0).expect("open");
        let records = fill(&running, 900);
        check_all(&running.log, &records);
        running.close();
        // What lies in segments of an earlier life stays where it was.
        let again = Running::open(dir.path(), &settings, 0).expect("reopen");
        check_all(&again.log, &records);
        again.close();
    }
}

/// The reads of a caller that waits for all of them are under way together, if the log has threads for it.
#[test]
fn reads_of_one_caller_do_not_wait_for_each_other() {
    let rules = FaultRules::new();
    let machine = SimStorage::new(7);
    machine.stop_clock();
    let storage: Arc<dyn Storage> = machine.with_faults(&rules);
    let dir = Path::new("/log");
    storage.create_dir(dir).expect("create");
    let running = Running::open_on(&storage, dir, &small(), 0).expect("open");
    let records = fill(&running, 900);
    running.log.sync_all().expect("sync");
    let (value_refs, expected) = value_refs(&records, |at| at % 20 == 0);
    let reads_until = |under_way: u64| {
        let stall = rules.add(Rule::new(Operation::Read, Fault::Stall).on(".seg"));
        std::thread::scope(|scope| {
            let reads = || read(&running.log, &value_refs, Pass::Often, expected.len());
            let reader = scope.spawn(reads);
            let is_under_way = || rules.count(stall).caught >= under_way;
            let seen = (0..30_000).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                is_under_way()
            });
            rules.remove(stall);
            assert!(seen, "{under_way} reads are under way");
            assert!(reader.join().expect("read").expect("sound") == expected);
        });
    };
    reads_until(6);
    let all = running.log.readers.lend(READERS_MAX);
    assert_eq!(all.count, READERS_MAX);
    let none = running.log.readers.lend(2);
    assert_eq!(none.count, 0, "none is left");
    drop(none);
    reads_until(1);
    drop(all);
    assert_eq!(running.log.readers.lend(READERS_MAX).count, READERS_MAX);
    running.close();
}

#[test]
fn readers_and_writers_share_the_ring() {
    let dir = tempfile::tempdir().expect("tempdir");
    let running = Running::open(dir.path(), &small(), 0).expect("open");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let records = fill(&running, 400);
                check_all(&running.log, &records[300..]);
            });
        }
    });
    running.close();
}

#[test]
fn damage_is_told_of_what_it_hits_and_of_nothing_else() {
    let dir = tempfile::tempdir().expect("tempdir");
    let running = Running::open(dir.path(), &small(), 0).expect("open");
    let records = fill(&running, 98);
    running.close();
    let running = Running::open(dir.path(), &small(), 0).expect("reopen");
    let segment = {
        let state = lock(&running.log.writer);
        let segment = state.sealed.front().expect("of the life before");
        (segment.path.clone(), segment.start_lsn)
    };
    let (lsn, bytes) = &records[50];
    let offset = UNIT_BYTES as u64 + lsn - segment.1;
    flip(
        &segment.0,
        offset as usize + RECORD_HEADER_BYTES + bytes.len() / 3,
    );
    for at in 0..records.len() {
        let (value_refs, expected) = value_refs(&records[at..=at], |_| true);
        let found = read(&running.log, &value_refs, Pass::Often, expected.len());
        if at == 50 {
            assert!(matches!(found, Err(Error::Corruption { .. })), "{found:?}");
        } else {
            assert!(found.expect("sound") == expected, "record {at}");
        }
    }
    for priority in [IoPriority::Low, IoPriority::High] {
        let (sound, expected) = value_refs(&records, |at| at != 50);
        let found = read(&running.log, &sound, Pass::Once(priority), expected.len());
        assert!(found.expect("sound") == expected, "{priority:?}");
        let (all, expected) = value_refs(&records, |_| true);
        let found = read(&running.log, &all, Pass::Once(priority), expected.len());
        assert!(
            matches!(found, Err(Error::Corruption { .. })),
            "{priority:?}"
        );
    }
    running.close();
}

#[test]
fn a_segment_that_cannot_be_read_is_told_of_by_those_who_read_ahead() {
    let dir = tempfile::tempdir().expect("tempdir");
    let running = Running::open(dir.path(), &small(), 0).expect("open");
    let records = fill(&running, 900);
    running.close();
    let running = Running::open(dir.path(), &small(), 0).expect("reopen");
    let segments: Vec<_> = (lock(&running.log.writer).sealed.iter())
        .map(|segment| segment.path.clone())
        .collect();
    assert!(segments.len() > 6, "each thread has more than one to read");
    let middle = &segments[segments.len() / 2];
    let file = std::fs::OpenOptions::new().write(true).open(middle);
    file.and_then(|file| file.set_len(UNIT_BYTES as u64))
        .expect("cut");
    let (value_refs, expected) = value_refs(&records, |_| true);
    let found = read(
        &running.log,
        &value_refs,
        Pass::Once(IoPriority::High),
        expected.len(),
    );
    assert!(matches!(found, Err(Error::Corruption { .. })), "{found:?}");
    running.close();
}
