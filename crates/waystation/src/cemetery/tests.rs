//! The cemetery against its rule, written down plainly.

use super::active::ActiveGraves;
use super::checkpoint::{GravesError, decode, encode};
use super::flushed::FlushedGraves;
use super::fragments::Fragments;
use super::points::{DatedPoints, Points, hash};
use super::sorted::Grave;
use super::{Cut, covering_of, prune};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;
use std::thread;

/// A deletion: of a key, or of a range.
#[derive(Debug, Clone)]
enum Deletion {
    Key(u8),
    Range(u8, Option<u8>),
}

fn deletion() -> impl Strategy<Value = Deletion> {
    prop_oneof![
        3 => (0u8..12).prop_map(Deletion::Key),
        1 => (0u8..12, 1u8..6).prop_map(|(start, length)| Deletion::Range(start, Some(start + length))),
        1 => (0u8..12).prop_map(|start| Deletion::Range(start, None)),
    ]
}

fn key(number: u8) -> Vec<u8> {
    vec![b'k'; usize::from(number % 5) * 4 + 1]
        .into_iter()
        .chain([number])
        .rev()
        .collect()
}

/// The rule: the latest deletion up to `snapshot`.
fn by_rule(deletions: &[Deletion], of: u8, snapshot: u64) -> u64 {
    let sequences = 1_u64..;
    let hits = sequences.zip(deletions).filter(|(sequence, deletion)| {
        let is_hit = match deletion {
            Deletion::Key(key) => *key == of,
            Deletion::Range(start, end) => *start <= of && end.is_none_or(|end| of < end),
        };
        is_hit && *sequence <= snapshot
    });
    hits.map(|(sequence, _)| sequence).max().unwrap_or(0)
}

fn add(graves: &ActiveGraves, deletion: &Deletion, sequence: u64) {
    match deletion {
        Deletion::Key(number) => {
            graves.delete(&key(*number), sequence);
        }
        Deletion::Range(start, end) => {
            // Keys sort by their number, which comes first.
            let end = end.map(|end| vec![end]);
            graves.delete_range(&[*start], end.as_deref(), sequence);
        }
    }
}

proptest! {
    /// Active graves and the flushed graves made of them answer the rule, for every snapshot that may still be read at;
    /// flushed graves that went through its file is the same.
    #[test]
    fn floors_are_those_of_the_rule(
        deletions in vec(deletion(), 0..40),
        split in 0usize..40,
        oldest in 0u64..45,
    ) {
        let split = split.min(deletions.len());
        let (first, second) = (ActiveGraves::new(1 << 16), ActiveGraves::new(1 << 16));
        for (at, deletion) in deletions.iter().enumerate() {
            add(if at < split { &first } else { &second }, deletion, at as u64 + 1);
        }
        let last = deletions.len() as u64;
        let older = FlushedGraves::default().with([&first], split as u64, 0, 0, 0);
        let flushed = older.with([&second], last, oldest, 0, 0);
        let at_once = FlushedGraves::default().with([&first, &second], last, oldest, 0, 0);
        let read = decode(&encode(&flushed)).unwrap().flushed;
        prop_assert_eq!(&read, &flushed);
        for number in 0..14 {
            let key = key(number);
            let hash = hash(&key);
            for snapshot in 0..last + 2 {
                let covering = by_rule(&deletions, number, snapshot);
                let in_memtables = first.covering(&key, hash, snapshot).max(second.covering(&key, hash, snapshot));
                prop_assert_eq!(in_memtables, covering);
                let in_both = older.covering(&key, hash, snapshot).max(second.covering(&key, hash, snapshot));
                prop_assert_eq!(in_both, covering);
                if snapshot >= oldest {
                    prop_assert_eq!(flushed.covering(&key, hash, snapshot), covering);
                    prop_assert_eq!(at_once.covering(&key, hash, snapshot), covering);
                    let part = read.within(Some(&key), Some(&key));
                    prop_assert_eq!(part.covering(&key, hash, snapshot), covering);
                }
            }
        }
    }

    /// Graves with dates hide what they should, from whom they should, wherever they lie; with others of the same keys.
    #[test]
    fn dated_graves_count_from_their_dates_on(
        steps in vec((0u8..4, 0u8..6, 1u64..30), 1..50),
        split in 0usize..50,
        (oldest, time) in (0u64..90, 0u64..30),
        (second_oldest, second_time) in (0u64..90, 0u64..30),
    ) {
        let active_graves = [ActiveGraves::new(1 << 16), ActiveGraves::new(1 << 16)];
        let (mut puts, mut graves) = (Vec::new(), Vec::new());
        let mut sequence = 0;
        let mut through = [0; 2];
        for (at, &(number, what, date)) in steps.iter().enumerate() {
            let part = usize::from(at >= split);
            sequence += 1;
            match what {
                0 => {
                    active_graves[part].delete(&key(number), sequence);
                    graves.push((number, sequence, 0));
                }
                1 => puts.push((number, sequence)),
                _ => {
                    puts.push((number, sequence));
                    sequence += 1;
                    active_graves[part].expire(&key(number), sequence, date);
                    graves.push((number, sequence, date));
                }
            }
            through[part] = sequence;
        }
        let first = FlushedGraves::default().with([&active_graves[0]], through[0], oldest.min(through[0]), time, 0);
        // As after a crash between the file and the tables: the first active graves come again.
        let read = decode(&encode(&first)).unwrap().flushed;
        prop_assert_eq!(&read, &first);
        let again = read.with([&active_graves[0]], through[0], oldest.min(through[0]), time, 0);
        prop_assert_eq!(&again, &first);
        let (oldest, time) = (oldest.max(second_oldest).min(sequence), time.max(second_time));
        let flushed = again.with([&active_graves[1]], sequence, oldest, time, 0);
        prop_assert_eq!(&decode(&encode(&flushed)).unwrap().flushed, &flushed);
        prop_assert!(flushed.dated().iter().all(|it| it.date() > time));
        prop_assert!(flushed.points().iter().all(|it| it.purge_through() >= it.sequence && it.purge_through() <= sequence));
        for (snapshot, now) in (oldest..=sequence).flat_map(|s| (time..31).map(move |now| (s, now))) {
            for number in 0..4 {
                let of_key = puts.iter().filter(|it| it.0 == number && it.1 <= snapshot);
                let Some(newest) = of_key.map(|it| it.1).max() else {
                    continue;
                };
                let is_hidden = graves.iter().any(|&(of, deletion, date)| {
                    of == number && newest < deletion && deletion <= snapshot && date <= now
                });
                let (key, hash) = (key(number), hash(&key(number)));
                let covering = flushed.covering(&key, hash, snapshot).max(flushed.dated_covering(&key, hash, snapshot, now));
                prop_assert_eq!(newest < covering, is_hidden, "key {} at {}, {}", number, snapshot, now);
            }
        }
    }

    /// Keys are compared as words: the zeros that fill a word up are no part of it.
    #[test]
    fn graves_come_in_the_order_of_bytes(keys in vec(vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..20), 0..60)) {
        let (points, dated) = (Points::new(1 << 20), DatedPoints::new(1 << 20));
        let mut numbered: Vec<(Vec<u8>, u64)> = keys.into_iter().zip(1..).collect();
        for (key, number) in &numbered {
            points.insert(key, *number);
            dated.insert(key, *number, 1_000 - number);
        }
        numbered.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        let (mut points, mut dated) = (points.sorted(), dated.sorted());
        for (key, number) in &numbered {
            prop_assert_eq!(points.peek(), Some(Grave::counting(key, *number, *number)));
            prop_assert_eq!(dated.peek(), Some(Grave::dated(key, *number, 1_000 - number)));
            points.advance();
            dated.advance();
        }
        prop_assert_eq!((points.peek(), dated.peek()), (None, None));
    }

    /// A span has one covering sequence from end to end.
    #[test]
    fn spans_are_of_one_covering_sequence(ranges in vec((0u8..30, 1u8..9), 0..20), snapshot in 0u64..25) {
        let mut fragments = Fragments::default();
        for (sequence, (start, length)) in (1..).zip(&ranges) {
            fragments.insert(&[*start], Some(&[start + length]), Cut::deletion(sequence));
        }
        for key in 0..40u8 {
            let span = fragments.span(&[key], snapshot);
            prop_assert!(span.start <= Some(&[key][..]) && span.end.is_none_or(|end| &[key][..] < end));
            for other in 0..40u8 {
                let other = [other];
                if span.start <= Some(&other[..]) && span.end.is_none_or(|end| &other[..] < end) {
                    prop_assert_eq!(fragments.covering(&other, snapshot), span.covering);
                }
            }
        }
        for (first, last) in [(0u8, 9u8), (5, 20), (12, 12)] {
            let lowest = (first..=last).map(|key| fragments.covering(&[key], snapshot)).min();
            for bound in 1..22 {
                let covered = fragments.covers(&[first], &[last], bound, snapshot);
                // Between two of these keys there are others, which no range border divides.
                prop_assert_eq!(covered, lowest >= Some(bound));
            }
        }
    }

    /// Pruning changes nothing that a reader at `oldest` or later sees.
    #[test]
    fn pruned_cuts_make_the_same_floors(below in vec((1u64..20, 0u64..20), 0..8), oldest in 0u64..22) {
        let mut cuts: Vec<_> = below.iter().map(|&(below, from)| Cut { below, from }).collect();
        let mut pruned = cuts.clone();
        cuts.sort_unstable();
        prune(&mut pruned, oldest);
        for snapshot in oldest..25 {
            prop_assert_eq!(covering_of(&pruned, snapshot), covering_of(&cuts, snapshot));
        }
        let needless = pruned.iter().filter(|cut| cut.from <= oldest).count();
        prop_assert!(needless <= 1);
    }
}

/// Ranges that all begin at the first key and grow: each overlaps all before it.
#[test]
fn a_plot_knows_what_overlapping_ranges_take() {
    let graves = ActiveGraves::new(0);
    let mut counted = 0;
    for sequence in 1..=500_u64 {
        let end = format!("{sequence:08}").into_bytes();
        graves.delete_range(b"", Some(&end), sequence);
        counted += ActiveGraves::range_bytes(0, end.len());
    }
    let known = counted + graves.overlap_bytes();
    assert!(graves.overlap_bytes() > 10 * counted, "{known}");
    let taken = graves.memory_bytes();
    assert!(taken < known * 2 && known < taken * 2, "{taken} of {known}");
}

#[test]
fn many_threads_dig_in_one_plot() {
    const EACH: u64 = 3_000;
    let points = Arc::new(Points::new(4 << 20));
    let name = |thread: u64, at: u64| format!("{thread}:{at}:{}", "x".repeat(at as usize % 40));
    thread::scope(|scope| {
        for thread in 0..4 {
            let points = &points;
            scope.spawn(move || {
                for at in 1..=EACH {
                    let key = name(thread, at);
                    points.insert(key.as_bytes(), at);
                    assert_eq!(
                        points.covering(key.as_bytes(), hash(key.as_bytes()), EACH),
                        at
                    );
                }
            });
        }
    });
    assert_eq!(points.len() as u64, 4 * EACH);
    let mut graves = points.sorted();
    let mut expected: Vec<(String, u64)> = (0..4)
        .flat_map(|thread| (1..=EACH).map(move |at| (name(thread, at), at)))
        .collect();
    expected.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    for (key, at) in expected {
        let grave = graves.peek();
        assert_eq!(grave, Some(Grave::counting(key.as_bytes(), at, at)));
        graves.advance();
    }
    assert_eq!(graves.peek(), None);
    for thread in 0..4 {
        for at in 1..=EACH {
            let key = name(thread, at);
            let covering =
                |snapshot| points.covering(key.as_bytes(), hash(key.as_bytes()), snapshot);
            assert_eq!((covering(at), covering(at - 1)), (at, 0));
        }
    }
}

#[test]
fn keys_deleted_in_order_lie_in_order() {
    let points = Points::new(1 << 20);
    let name = |at: u64| format!("{:0width$}", at, width = 3 + at as usize % 20);
    for at in 1..=5_000 {
        points.insert(name(at).as_bytes(), at);
    }
    let mut missed = 0;
    let (_, mut spot) = points.find(name(1).as_bytes(), hash(name(1).as_bytes()), 9);
    for at in 2..=5_000 {
        let key = name(at);
        assert!(points.find_after(spot, b"none").is_none());
        if let Some((sequence, next)) = points.find_after(spot, key.as_bytes()) {
            assert_eq!(sequence, at);
            spot = next;
        } else {
            missed += 1;
            spot = points.find(key.as_bytes(), hash(key.as_bytes()), at).1;
        }
    }
    assert!(
        points
            .find_after(spot, b"")
            .is_none_or(|(sequence, _)| sequence == 0)
    );
    assert!(missed < 10, "{missed}");
}

#[test]
fn keys_of_any_length_have_graves() {
    let points = Points::new(8 << 20);
    let keys: Vec<_> = [0, 1, 7, 8, 9, 1000, 65_536, 1 << 20]
        .map(|length| vec![7; length])
        .into();
    for (sequence, key) in (1..).zip(&keys) {
        points.insert(key, sequence);
    }
    for (sequence, key) in (1..).zip(&keys) {
        assert_eq!(points.covering(key, hash(key), 100), sequence);
    }
    assert_eq!(points.covering(&[7; 10], hash(&[7; 10]), 100), 0);
}

#[test]
fn a_grave_takes_few_bytes_beyond_its_key() {
    let graves = ActiveGraves::new(32 << 20);
    for at in 0..400_000_u64 {
        graves.delete(format!("{at:016}").as_bytes(), at + 1);
    }
    let beyond = |memory: usize| (memory - 400_000 * 16) / 400_000;
    assert!(
        beyond(graves.memory_bytes()) <= 32,
        "{}",
        beyond(graves.memory_bytes())
    );
    let flushed = FlushedGraves::default().with([&graves], 400_000, 400_000, 0, 0);
    assert_eq!(
        flushed.point_covering(b"0000000000000005", hash(b"0000000000000005"), 9),
        6
    );
    assert!(
        beyond(flushed.memory_bytes()) <= 48,
        "{}",
        beyond(flushed.memory_bytes())
    );
}

#[test]
fn a_damaged_file_is_refused() {
    let graves = ActiveGraves::new(1 << 16);
    for deletion in [
        Deletion::Key(3),
        Deletion::Key(5),
        Deletion::Range(2, Some(4)),
    ] {
        add(&graves, &deletion, 9);
    }
    graves.delete(&key(5), 11);
    let bytes = encode(&FlushedGraves::default().with([&graves], 11, 0, 0, 0));
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(decode(&damaged).is_err(), "a flip at {at}");
        assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
    }
    let mut newer = bytes[..bytes.len() - 4].to_vec();
    newer[8] = 4;
    let checksum = waystation_format::checksum::mask(waystation_format::checksum::crc32c(&newer));
    newer.extend_from_slice(&checksum.to_le_bytes());
    assert_eq!(decode(&newer), Err(GravesError::Newer(4)));
}
