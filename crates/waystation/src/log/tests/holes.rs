//! Holes: records that a dead process left incomplete before others that it had acknowledged.

use super::*;
use crate::storage::sim::Crash;
use crate::sync::atomic::Ordering::SeqCst;
use proptest::prelude::*;
use waystation_format::log::RecordKind;

/// A record, and how far its writer came.
#[derive(Debug, Clone, Copy)]
struct Attempt {
    bytes: usize,
    operations: u32,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Acknowledged,
    /// Copied in part.
    Torn,
    /// Reserved alone.
    Unwritten,
}

fn attempts() -> impl Strategy<Value = Vec<Attempt>> {
    let bytes = prop_oneof![4 => 0..400_usize, 2 => 3000..9000_usize, 1 => 60_000..80_000_usize];
    let fate = prop_oneof![
        3 => Just(Fate::Acknowledged),
        1 => Just(Fate::Torn),
        1 => Just(Fate::Unwritten),
    ];
    let attempt = (bytes, 1..4_u32, fate).prop_map(|(bytes, operations, fate)| Attempt {
        bytes,
        operations,
        fate,
    });
    // They stay in the ring.
    let fits = |them: &Vec<Attempt>| them.iter().map(|it| it.bytes + 200).sum::<usize>() < 200_000;
    prop::collection::vec(attempt, 1..30).prop_filter("the ring is full", fits)
}

fn content(sequence: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64)
        .map(|at| (at / 5 + sequence * 31) as u8)
        .collect()
}

/// Makes the attempts; returns what was acknowledged, and the numbers of all sequences.
fn make(log: &Log, attempts: &[Attempt]) -> (BTreeMap<u64, Vec<u8>>, u64) {
    let mut acknowledged = BTreeMap::new();
    let mut last = 0;
    for attempt in attempts {
        let reserved = log.reserve(
            RecordKind::Batch,
            attempt.bytes,
            attempt.operations,
            |_, _| Ok::<_, Error>(()),
        );
        let (reservation, ()) = reserved.expect("reserve");
        let first = reservation.first_sequence;
        last = reservation.last_sequence();
        let content = content(first, attempt.bytes);
        match attempt.fate {
            Fate::Acknowledged => {
                log.copy(&reservation, &content, checksum::crc32c(&content));
                log.publish(reservation);
                acknowledged.insert(first, content);
            }
            // As if the end of it had not come to the ring.
            Fate::Torn => log.copy(&reservation, &content, !checksum::crc32c(&content)),
            Fate::Unwritten => {}
        }
    }
    (acknowledged, last)
}

/// What an opening finds: payloads, and the sequence numbers of gaps.
fn reopen(machine: &Arc<SimStorage>) -> (BTreeMap<u64, Vec<u8>>, Vec<u64>, Log) {
    let storage: Arc<dyn Storage> = machine.clone();
    let (mut found, mut gaps) = (BTreeMap::new(), Vec::new());
    let mut next = 1;
    let mut deliver = |record: Record<'_>| {
        let header = record.header;
        assert_eq!(header.first_sequence, next, "every number is accounted for");
        next = header.last_sequence() + 1;
        if header.kind == RecordKind::Gap {
            gaps.extend(header.first_sequence..next);
        } else {
            found.insert(header.first_sequence, record.payload.to_vec());
        }
        Ok(())
    };
    let needs = Needs::after(0);
    let opened = open(
        &storage,
        Path::new("/db"),
        &small(),
        &needs,
        true,
        &mut deliver,
    );
    (found, gaps, opened.expect("open").log)
}

fn begin(seed: u64) -> (Arc<SimStorage>, Log) {
    let machine = SimStorage::new(seed);
    machine.create_dir(Path::new("/db")).expect("create");
    let storage: Arc<dyn Storage> = machine.clone();
    let needs = Needs::after(0);
    let opened = open(
        &storage,
        Path::new("/db"),
        &small(),
        &needs,
        false,
        &mut |_| Ok(()),
    );
    (machine, opened.expect("open").log)
}

proptest! {
    /// The next life has what was acknowledged, and so has the one after it, which reads it from segments.
    #[test]
    fn a_dead_process_loses_its_incomplete_records_alone(attempts in attempts(), seed in any::<u64>()) {
        let (machine, log) = begin(seed);
        let (acknowledged, last) = make(&log, &attempts);
        let machine = machine.crash(seed, Crash::Process);
        let (found, gaps, log) = reopen(&machine);
        prop_assert_eq!(&found, &acknowledged);
        let (more, _) = make(&log, &[Attempt { bytes: 10, operations: 1, fate: Fate::Acknowledged }]);
        prop_assert!(more.keys().all(|sequence| *sequence > gaps.last().copied().unwrap_or(0)));
        prop_assert!(more.keys().all(|sequence| *sequence <= last + 1));
        let machine = machine.crash(seed, Crash::Process);
        let (found, gaps_again, _) = reopen(&machine);
        prop_assert_eq!(gaps_again, gaps);
        prop_assert!(found.iter().eq(acknowledged.iter().chain(&more)));
    }

    /// A power cut may have taken a record that looks incomplete: nothing behind it comes back.
    #[test]
    fn a_power_cut_leaves_a_prefix(attempts in attempts(), seed in any::<u64>()) {
        let (machine, log) = begin(seed);
        let (acknowledged, _) = make(&log, &attempts);
        let first_hole = attempts.iter().position(|it| it.fate != Fate::Acknowledged);
        let machine = machine.crash(seed, Crash::PowerCut);
        let (found, gaps, _) = reopen(&machine);
        prop_assert!(gaps.is_empty());
        prop_assert!(found.len() <= first_hole.unwrap_or(attempts.len()));
        prop_assert!(found.iter().eq(acknowledged.iter().take(found.len())));
    }
}

/// Where the start of the machine is not known, no record is acknowledged before those ahead of it are complete.
#[test]
fn without_the_machines_start_writers_wait_for_each_other() {
    let (_, mut log) = begin(1);
    log.keeps_holes = false;
    second_waits_for_first(&log, 10);
}

/// A long record's beginning may be in a segment: recovery could not pass over it.
#[test]
fn writers_wait_for_a_long_record_before_them() {
    let (_, log) = begin(1);
    second_waits_for_first(&log, log.ring.len() as usize / 2 + 1);
}

/// Reserves a record of `first_bytes` and one behind it, and completes the second one first.
fn second_waits_for_first(log: &Log, first_bytes: usize) {
    let reserve = |bytes| {
        let reserved = log.reserve(RecordKind::Batch, bytes, 1, |_, _| Ok::<_, Error>(()));
        reserved.expect("reserve").0
    };
    let (first, second) = (reserve(first_bytes), reserve(10));
    let write = |reservation, bytes| {
        let payload = vec![0; bytes];
        log.copy(&reservation, &payload, checksum::crc32c(&payload));
        log.publish(reservation);
    };
    let is_acknowledged = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            write(second, 10);
            is_acknowledged.store(true, SeqCst);
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!is_acknowledged.load(SeqCst));
        write(first, first_bytes);
    });
    assert_eq!(log.visible_sequence(), 2);
}
