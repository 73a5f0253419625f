//! When the log rests, the current segment gives back the room behind its blocks; the log goes on in it, and in short ones.

use super::growth::{DIR, Life, growing, record};
use super::*;
use crate::storage::Entry;
use crate::storage::sim::Crash;

const SHORT: u64 = 256 * 1024;
const WHOLE: u64 = 8 * SHORT;

pub(super) fn settings(defers: bool) -> LogSettings {
    LogSettings {
        lengths: SegmentLengths {
            whole: WHOLE,
            short: SHORT,
            kept_beside: 0,
        },
        defers,
        ..growing()
    }
}

/// The lengths of all segments, in order.
fn segments(life: &Life) -> Vec<u64> {
    let entries = life.storage.list(Path::new(DIR)).expect("list").into_iter();
    let mut found: Vec<_> = entries
        .filter_map(|it| Some((segment_number(&it.name)?, it.bytes)))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, bytes)| bytes).collect()
}

/// Writes until the current segment is long and has much room. Returns the number of records.
fn write_into_a_long_segment(life: &mut Life) -> u64 {
    for number in 0.. {
        let end = life.append(record(number));
        life.running.log.sync(end).expect("sync");
        let state = lock(&life.running.log.writer);
        if state.current.file_bytes() == WHOLE && state.current.length_with(SHORT).is_some() {
            return number + 1;
        }
    }
    unreachable!("a segment becomes long")
}

#[test]
fn a_segment_at_rest_has_little_room_and_the_log_goes_on() {
    let mut cuts = 0;
    for (defers, crash) in [
        (false, Crash::Process),
        (false, Crash::PowerCut),
        (true, Crash::Process),
        (true, Crash::PowerCut),
    ] {
        for count in (0..60).step_by(3) {
            let mut life = Life::begin(count, &FaultRules::new(), &settings(defers));
            let mut number = 0;
            for records in [60 + count, count / 2, count] {
                for _ in 0..records {
                    life.append(record(number));
                    number += 1;
                }
                life.running.log.rest().expect("rest");
                let state = lock(&life.running.log.writer);
                let (path, bytes) = (&state.current.file.path, state.current.file_bytes());
                let entries = life.storage.list(Path::new(DIR)).expect("list");
                let is_it = |entry: &Entry| path.ends_with(&entry.name) && entry.bytes == bytes;
                assert!(entries.iter().any(is_it));
                assert_eq!(state.current.length_with(SHORT), None);
                cuts += u64::from(state.current.is_cut());
            }
            let synced = life.written.len();
            for _ in 0..count {
                life.append(record(number));
                number += 1;
            }
            let (found, written) = life.end(crash);
            let least = if crash == Crash::Process {
                written.len()
            } else {
                synced
            };
            assert!(found.len() >= least, "{count}");
            assert!(found[..] == written[..found.len()], "{count}");
        }
    }
    assert!(cuts > 100, "{cuts}");
}

#[test]
fn the_segment_after_one_that_was_cut_is_short() {
    let mut life = Life::begin(1, &FaultRules::new(), &settings(false));
    let count = write_into_a_long_segment(&mut life);
    life.running.log.rest().expect("rest");
    assert!(lock(&life.running.log.writer).current.is_cut());
    let before = segments(&life).len();
    for number in count.. {
        let end = life.append(record(number));
        life.running.log.sync(end).expect("sync");
        let present = segments(&life);
        if let Some(next) = present.get(before) {
            assert_eq!(*next, SHORT);
            break;
        }
    }
    // The index of the one that was cut lies where its file ends.
    let (found, written) = life.end(Crash::PowerCut);
    assert!(found == written);
}

#[test]
fn a_segment_without_a_header_is_not_cut() {
    let mut life = Life::begin(2, &FaultRules::new(), &settings(false));
    write_into_a_long_segment(&mut life);
    let log = Arc::clone(&life.running.log);
    lock(&log.writer).header_due = true;
    log.rest().expect("rest");
    assert!(!lock(&log.writer).current.is_cut());
    lock(&log.writer).header_due = false;
    log.rest().expect("rest");
    assert!(lock(&log.writer).current.is_cut());
    let (found, written) = life.end(Crash::Process);
    assert!(found == written);
}

/// The rest of the room is given back all the same, and the log goes on.
#[test]
fn a_cut_that_fails_leaves_the_segment_long() {
    let rules = FaultRules::new();
    let mut life = Life::begin(3, &rules, &settings(false));
    let count = write_into_a_long_segment(&mut life);
    assert!(life.running.log.ring.len() > life.running.log.ring.len_min());
    let refused = Fault::Fail(Refusal::InputOutput);
    rules.add(Rule::new(Operation::SetLength, refused).on("journal-"));
    life.running.log.rest().expect_err("a cut that fails");
    assert!(!lock(&life.running.log.writer).current.is_cut());
    assert_eq!(life.running.log.ring.len(), life.running.log.ring.len_min());
    life.append(record(count));
    rules.clear();
    life.running.log.rest().expect("rest");
    assert!(lock(&life.running.log.writer).current.is_cut());
    life.append(record(count + 1));
    let (found, written) = life.end(Crash::Process);
    assert!(found == written);
}
