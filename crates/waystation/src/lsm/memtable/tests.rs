//! The memtable against a sorted map of the standard library, alone and under many threads.

use super::MemTable;
use super::arena::{Entry, HEAD, MAX_HEIGHT, NIL};
use super::skiplist::SkipList;
use crate::sst::InternalIterator;
use crate::sst::Lookup;
use crate::sync::Arc;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use waystation_format::key::{self, MAX_SEQUENCE, ValueKind};
use waystation_format::order::Order;

/// The model: (user key, newest first) -> value, or a deletion.
type Model = BTreeMap<Place, Option<Vec<u8>>>;
type Place = (Vec<u8>, Reverse<u64>);

fn insert(table: &MemTable, user_key: &[u8], sequence: u64, value: Option<&[u8]>) {
    let kind = if value.is_some() {
        ValueKind::Value
    } else {
        ValueKind::Deletion
    };
    table.insert(user_key, sequence, kind, value.unwrap_or_default());
}

fn model_get<'a>(model: &'a Model, user_key: &[u8], snapshot: u64) -> Lookup<&'a [u8]> {
    let from = (user_key.to_vec(), Reverse(snapshot));
    match model.range(from..).next() {
        Some(((found, _), value)) if found == user_key => match value {
            Some(value) => Lookup::Found(value),
            None => Lookup::Deleted,
        },
        _ => Lookup::Missing,
    }
}

/// What the cursor is on, in the model's terms.
fn position(cursor: &impl InternalIterator) -> Option<(Vec<u8>, u64, Option<Vec<u8>>)> {
    cursor.valid().then(|| {
        let found = key::InternalKey::parse(cursor.key()).unwrap();
        let value = (found.kind == ValueKind::Value).then(|| cursor.value().to_vec());
        (found.user_key.to_vec(), found.sequence, value)
    })
}

/// An entry of the model, in the same terms.
fn model_entry(
    ((user_key, Reverse(sequence)), value): (&Place, &Option<Vec<u8>>),
) -> (Vec<u8>, u64, Option<Vec<u8>>) {
    (user_key.clone(), *sequence, value.clone())
}

#[test]
fn an_empty_table_has_nothing() {
    let table = Arc::new(MemTable::new(1000));
    assert!(table.is_empty());
    assert_eq!(table.used_bytes(), 0);
    assert_eq!(table.capacity_bytes(), 1000);
    assert_eq!(table.get(b"a", MAX_SEQUENCE), Lookup::Missing);
    let mut cursor = table.iter();
    assert!(!cursor.valid());
    cursor.seek_to_first().unwrap();
    assert!(!cursor.valid());
    cursor.seek_to_last().unwrap();
    assert!(!cursor.valid());
    cursor
        .seek(&key::InternalKey::parse(&[0; 8]).unwrap().to_bytes())
        .unwrap();
    assert!(!cursor.valid());
}

#[test]
fn a_snapshot_sees_the_newest_version_not_behind_it() {
    let table = MemTable::new(10_000);
    insert(&table, b"key", 10, Some(b"ten"));
    insert(&table, b"key", 30, None);
    insert(&table, b"key", 20, Some(b""));
    assert_eq!(table.len(), 3);
    let expected: [(u64, Lookup<&[u8]>); 7] = [
        (9, Lookup::Missing),
        (10, Lookup::Found(b"ten")),
        (19, Lookup::Found(b"ten")),
        (20, Lookup::Found(b"")),
        (29, Lookup::Found(b"")),
        (30, Lookup::Deleted),
        (MAX_SEQUENCE, Lookup::Deleted),
    ];
    for (snapshot, lookup) in expected {
        assert_eq!(table.get(b"key", snapshot), lookup, "at {snapshot}");
    }
    for absent in [&b""[..], b"ke", b"key\0", b"kez"] {
        assert_eq!(table.get(absent, MAX_SEQUENCE), Lookup::Missing);
    }
}

#[test]
fn keys_that_pad_to_the_same_word_are_told_apart() {
    let long: Vec<u8> = (0..40).collect();
    let mut keys: Vec<Vec<u8>> = vec![b"a".to_vec(), b"a\0".to_vec(), b"a\0\0\0\0\0\0\0".to_vec()];
    keys.push(b"a\0\0\0\0\0\0\0\0".to_vec());
    keys.push(b"a\0\0\0\0\0\0\0\x01".to_vec());
    keys.extend((0..=40).map(|length| long[..length].to_vec()));
    keys.extend((0..40).map(|at| {
        let mut changed = long.clone();
        changed[at] ^= 0x80;
        changed
    }));
    let table = Arc::new(MemTable::new(100_000));
    for (sequence, user_key) in keys.iter().rev().enumerate() {
        insert(&table, user_key, sequence as u64, Some(user_key));
    }
    keys.sort();
    let mut cursor = table.iter();
    cursor.seek_to_first().unwrap();
    for user_key in &keys {
        assert_eq!(cursor.value(), user_key);
        assert_eq!(
            table.get(user_key, MAX_SEQUENCE),
            Lookup::Found(&user_key[..])
        );
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
}

#[test]
fn reserved_entries_fit_to_the_last_byte() {
    // The smallest entries make the most of towers; the capacity is taken to the last reservation.
    for (key_bytes, value_bytes) in [(2, 0), (16, 100), (300, 5000)] {
        let entry_bytes = MemTable::entry_bytes(key_bytes, value_bytes);
        let entries = if cfg!(miri) { 30 } else { 20_000 };
        let table = MemTable::new(entry_bytes * entries);
        for number in 0..entries {
            let mut user_key = vec![0; key_bytes];
            user_key[..2].copy_from_slice(&(number as u16).to_le_bytes());
            insert(
                &table,
                &user_key,
                number as u64,
                Some(&vec![1; value_bytes]),
            );
        }
        assert_eq!(table.len(), entries);
        let most = table.capacity_bytes() + table.capacity_bytes() / 64;
        assert!(table.used_bytes() <= most, "the reserve was exceeded");
    }
}

#[test]
fn tall_towers_never_take_more_than_their_reserve() {
    let entries = if cfg!(miri) { 200 } else { 1000 };
    let list = SkipList::new(
        SkipList::entry_bytes(4, 0) * entries,
        &Arc::default(),
        &Order::Bytewise,
    );
    for number in 0..entries as u32 {
        let entry = Entry {
            user_key: &number.swap_bytes().to_le_bytes(),
            trailer: 1 << 8,
            value: &[],
        };
        list.insert_with_height(&entry, MAX_HEIGHT);
    }
    assert!(list.claimed_bytes() <= list.capacity() + list.capacity() / 64);
    let mut node = list.next(HEAD);
    let mut found = 0;
    while node != NIL {
        found += 1;
        node = list.next(node);
    }
    assert_eq!(found, entries);
}

#[test]
fn memory_that_is_given_back_is_there_for_later_entries() {
    let table = MemTable::new(1 << 20);
    let key = |number: u32| number.wrapping_mul(0x9E37_79B9).to_le_bytes();
    let mut reserved = 0;
    for number in 0..3_000 {
        reserved += MemTable::entry_bytes(4, 200);
        insert(&table, &key(number), 1, Some(&[number as u8; 200]));
        if number % 100 == 0 {
            table.give_room_back(reserved);
        }
    }
    for number in 0..3_000 {
        let value = [number as u8; 200];
        assert_eq!(table.get(&key(number), 1), Lookup::Found(&value[..]));
    }
}

#[test]
#[should_panic(expected = "were reserved")]
fn memory_of_entries_is_not_given_back() {
    let table = MemTable::new(1 << 20);
    for number in 0..1_000_u32 {
        insert(&table, &number.to_le_bytes(), 1, Some(&[1; 200]));
    }
    table.give_room_back(0);
}

#[test]
#[should_panic(expected = "writers must reserve")]
fn an_entry_that_was_not_reserved_is_refused() {
    let table = MemTable::new(100);
    insert(&table, b"a", 1, Some(&[0; 50]));
    insert(&table, b"b", 2, Some(&[0; 50]));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "inserted twice")]
fn a_version_inserted_twice_is_noticed() {
    let table = MemTable::new(1000);
    insert(&table, b"a", 1, Some(b""));
    insert(&table, b"a", 1, Some(b""));
}

#[test]
fn ascending_keys_are_found_by_the_finger_in_any_interleaving_with_others() {
    // Two ascending runs, one descending and one scattered, taking turns.
    let rounds = if cfg!(miri) { 50 } else { 2000 };
    let table = Arc::new(MemTable::new(1 << 20));
    let mut model = Model::new();
    for round in 0..rounds {
        let scattered = round * 7919 % 1009;
        let keys = [
            format!("a{round:06}"),
            format!("c{:06}", rounds - round),
            format!("b{round:06}"),
            format!("d{scattered:06}"),
        ];
        for (turn, user_key) in keys.into_iter().enumerate() {
            let sequence = (round * 4 + turn) as u64;
            insert(&table, user_key.as_bytes(), sequence, Some(b"v"));
            model.insert(
                (user_key.into_bytes(), Reverse(sequence)),
                Some(b"v".to_vec()),
            );
        }
    }
    check_walks(&table, &model);
}

/// The whole table both ways.
fn check_walks(table: &Arc<MemTable>, model: &Model) {
    assert_eq!(table.len(), model.len());
    let mut cursor = table.iter();
    cursor.seek_to_first().unwrap();
    for entry in model {
        assert_eq!(position(&cursor), Some(model_entry(entry)));
        cursor.next().unwrap();
    }
    assert!(!cursor.valid());
    cursor.seek_to_last().unwrap();
    for entry in model.iter().rev() {
        assert_eq!(position(&cursor), Some(model_entry(entry)));
        cursor.prev().unwrap();
    }
    assert!(!cursor.valid());
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        // Few keys, many versions; lengths around the word.
        prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255)], 0..4),
        prop::collection::vec(prop_oneof![Just(0u8), Just(1)], 6..20),
        prop::collection::vec(any::<u8>(), 0..12),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    SeekToFirst,
    SeekToLast,
    Seek(Vec<u8>, u64),
    SeekForPrev(Vec<u8>, u64),
    Next,
    Prev,
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => Just(Step::SeekToFirst),
        1 => Just(Step::SeekToLast),
        3 => (keys(), 0u64..70).prop_map(|(key, sequence)| Step::Seek(key, sequence)),
        3 => (keys(), 0u64..70).prop_map(|(key, sequence)| Step::SeekForPrev(key, sequence)),
        6 => Just(Step::Next),
        6 => Just(Step::Prev),
    ]
}

fn model_step(model: &Model, at: Option<Place>, step: &Step) -> Option<Place> {
    use std::ops::Bound::{Excluded, Included, Unbounded};
    let entry = match (step, at) {
        (Step::SeekToFirst, _) => model.iter().next(),
        (Step::SeekToLast, _) => model.iter().next_back(),
        (Step::Seek(key, sequence), _) => model.range((key.clone(), Reverse(*sequence))..).next(),
        (Step::SeekForPrev(key, sequence), _) => model
            .range((Unbounded, Included((key.clone(), Reverse(*sequence)))))
            .next_back(),
        (Step::Next, Some(at)) => model.range((Excluded(at), Unbounded)).next(),
        (Step::Prev, Some(at)) => model.range(..at).next_back(),
        (_, None) => None,
    };
    entry.map(|(place, _)| place.clone())
}

/// The most versions in a table that is compared with a model; under Miri each step costs a thousand times as much.
const MOST: usize = if cfg!(miri) { 16 } else { 60 };

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 3 } else { 256 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn it_is_a_sorted_map_of_versions(
        writes in prop::collection::vec((keys(), prop::option::of(prop::collection::vec(any::<u8>(), 0..9))), 0..MOST),
        order in any::<prop::sample::Index>(),
        reads in prop::collection::vec((keys(), 0u64..70), if cfg!(miri) { 6 } else { 20 }),
        walk in prop::collection::vec(steps(), if cfg!(miri) { 12 } else { 40 }),
    ) {
        let capacity = writes
            .iter()
            .map(|(key, value)| MemTable::entry_bytes(key.len(), value.as_ref().map_or(0, Vec::len)))
            .sum();
        let table = Arc::new(MemTable::new(capacity));
        let mut model = Model::new();
        let mut numbered: Vec<_> = (0..).zip(writes).collect();
        if !numbered.is_empty() {
            // Sequences need not arrive in order.
            let middle = order.index(numbered.len());
            numbered.rotate_left(middle);
        }
        for (sequence, (user_key, value)) in numbered {
            insert(&table, &user_key, sequence, value.as_deref());
            model.insert((user_key, Reverse(sequence)), value);
        }
        check_walks(&table, &model);
        for (user_key, snapshot) in &reads {
            prop_assert_eq!(table.get(user_key, *snapshot), model_get(&model, user_key, *snapshot));
        }
        let mut cursor = table.iter();
        let mut at = None;
        for step in &walk {
            match step {
                Step::SeekToFirst => cursor.seek_to_first(),
                Step::SeekToLast => cursor.seek_to_last(),
                Step::Seek(key, sequence) => cursor.seek(&seek_key(key, *sequence)),
                Step::SeekForPrev(key, sequence) => cursor.seek_for_prev(&version_key(&model, key, *sequence)),
                Step::Next if at.is_some() => cursor.next(),
                Step::Prev if at.is_some() => cursor.prev(),
                Step::Next | Step::Prev => continue,
            }
            .unwrap();
            at = model_step(&model, at, step);
            let expected = at.as_ref().and_then(|at| model.get_key_value(at));
            prop_assert_eq!(position(&cursor), expected.map(model_entry));
        }
    }
}

fn seek_key(user_key: &[u8], sequence: u64) -> Vec<u8> {
    let mut out = Vec::new();
    key::append(&mut out, user_key, sequence, ValueKind::SEEK);
    out
}

/// The internal key of (`user_key`, `sequence`) behind which a version of that sequence is not: the version's
/// own, or the one with the lowest kind.
fn version_key(model: &Model, user_key: &[u8], sequence: u64) -> Vec<u8> {
    let kind = match model.get(&(user_key.to_vec(), Reverse(sequence))) {
        Some(Some(_)) => ValueKind::Value,
        _ => ValueKind::Deletion,
    };
    let mut out = Vec::new();
    key::append(&mut out, user_key, sequence, kind);
    out
}

/// Several writers insert all they have while readers check that what they see is ordered, complete up to a
/// published sequence, and intact.
#[test]
fn threads_insert_and_read_at_once() {
    let (writers, each) = if cfg!(miri) { (2, 40) } else { (4, 20_000) };
    for pattern in 0..3u64 {
        let total = writers * each;
        let table = Arc::new(MemTable::new(
            total as usize * MemTable::entry_bytes(12, 12),
        ));
        let key_of = |number: u64| match pattern {
            0 => number,                                           // ascending, interleaved
            1 => number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20, // scattered
            _ => number % 7,                                       // few keys, many versions
        };
        let done: Vec<AtomicU64> = (0..writers).map(|_| AtomicU64::new(0)).collect();
        let finished = AtomicBool::new(false);
        thread::scope(|scope| {
            let handles: Vec<_> = (0..writers)
                .map(|writer| {
                    let (table, done, key_of) = (&table, &done, &key_of);
                    scope.spawn(move || {
                        for turn in 0..each {
                            let number = turn * writers + writer;
                            let user_key = key_of(number).swap_bytes().to_le_bytes();
                            let value = number.to_le_bytes();
                            table.insert(&user_key, number + 1, ValueKind::Value, &value);
                            done[writer as usize].store(turn + 1, Ordering::Release);
                        }
                    })
                })
                .collect();
            for reader in 0..2 {
                let (table, done, finished, key_of) = (&table, &done, &finished, &key_of);
                scope.spawn(move || {
                    while !finished.load(Ordering::Relaxed) {
                        for (writer, done) in done.iter().enumerate() {
                            let Some(turn) = done.load(Ordering::Acquire).checked_sub(1) else {
                                continue;
                            };
                            let number = turn * writers + writer as u64;
                            let user_key = key_of(number).swap_bytes().to_le_bytes();
                            let found = table.get(&user_key, number + 1);
                            assert_eq!(found, Lookup::Found(&number.to_le_bytes()[..]));
                        }
                        check_order(table, reader == 0);
                    }
                });
            }
            for handle in handles {
                handle.join().unwrap();
            }
            finished.store(true, Ordering::Relaxed);
        });
        let mut model = Model::new();
        for number in 0..total {
            let user_key = key_of(number).swap_bytes().to_le_bytes().to_vec();
            model.insert(
                (user_key, Reverse(number + 1)),
                Some(number.to_le_bytes().to_vec()),
            );
        }
        check_walks(&table, &model);
    }
}

/// Walks the table as it is, and checks the order and that values are those of their keys.
fn check_order(table: &Arc<MemTable>, forward: bool) {
    let mut cursor = table.iter();
    if forward {
        cursor.seek_to_first().unwrap();
    } else {
        cursor.seek_to_last().unwrap();
    }
    let mut last: Option<Vec<u8>> = None;
    while cursor.valid() {
        let here = cursor.key();
        assert_eq!(
            u64::from_le_bytes(cursor.value().try_into().unwrap()) + 1,
            key::trailer(here) >> 8
        );
        if let Some(last) = &last {
            let (low, high) = if forward {
                (&last[..], here)
            } else {
                (here, &last[..])
            };
            assert!(key::compare_internal(low, high).is_lt());
        }
        last = Some(here.to_vec());
        if forward {
            cursor.next().unwrap();
        } else {
            cursor.prev().unwrap();
        }
    }
}

/// The reserve and the head of the largest table are still within the offsets' reach. Touches few pages.
#[test]
#[cfg(not(miri))]
fn the_largest_capacity_can_be_had() {
    let table = MemTable::new(MemTable::MAX_CAPACITY_BYTES);
    insert(&table, b"key", 1, Some(b"value"));
    assert_eq!(table.get(b"key", 1), Lookup::Found(&b"value"[..]));
}
