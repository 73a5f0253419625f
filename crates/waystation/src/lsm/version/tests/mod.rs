//! Tests of versions and ranges, without storage; and of the version set, with.

mod damage;
mod set;
mod side;

use super::{Change, UserRange, Version};
use crate::sst::{LearntFacts, TableMeta};
use crate::sync::Arc;
use proptest::prelude::*;
use std::cmp::Ordering;
use waystation_format::key::{ValueKind, append, compare_internal};
use waystation_format::order::Order;

fn internal(user_key: &[u8], sequence: u64) -> Vec<u8> {
    let mut key = Vec::new();
    append(&mut key, user_key, sequence, ValueKind::Value);
    key
}

fn table(number: u64, smallest: (&str, u64), largest: (&str, u64)) -> Arc<TableMeta> {
    Arc::new(TableMeta {
        number,
        file_bytes: 100,
        smallest: internal(smallest.0.as_bytes(), smallest.1),
        largest: internal(largest.0.as_bytes(), largest.1),
        facts: LearntFacts::default(),
    })
}

fn adding(tables: &[(usize, Arc<TableMeta>)]) -> Change {
    Change {
        removed: Vec::new(),
        added: tables.to_vec(),
    }
}

fn numbers(tables: &[Arc<TableMeta>]) -> Vec<u64> {
    tables.iter().map(|table| table.number).collect()
}

#[test]
fn a_change_makes_the_next_version_and_leaves_this_one() {
    let first = Version::empty(&Order::Bytewise)
        .with(&adding(&[
            (0, table(3, ("a", 30), ("z", 20))),
            (0, table(4, ("a", 50), ("z", 40))),
            (1, table(2, ("k", 9), ("z", 8))),
            (1, table(1, ("a", 9), ("c", 8))),
        ]))
        .unwrap();
    assert_eq!(numbers(first.level(0)), [4, 3], "level 0 is newest first");
    assert_eq!(numbers(first.level(1)), [1, 2], "level 1 is by key");
    let moved = Arc::clone(&first.level(1)[0]);
    let second = first
        .with(&Change {
            removed: vec![(1, 1)],
            added: vec![(2, moved)],
        })
        .unwrap();
    assert_eq!(
        (numbers(second.level(1)), numbers(second.level(2))),
        (vec![2], vec![1])
    );
    assert_eq!((second.level_bytes(1), second.level_bytes(2)), (100, 100));
    assert_eq!(numbers(first.level(1)), [1, 2]);
}

#[test]
fn a_change_that_breaks_the_order_is_refused() {
    let base = Version::empty(&Order::Bytewise)
        .with(&adding(&[(1, table(1, ("c", 9), ("f", 8)))]))
        .unwrap();
    let refused = [
        (
            adding(&[(1, table(2, ("f", 8), ("k", 1)))]),
            "overlap in level 1",
        ),
        (
            adding(&[(1, table(2, ("a", 8), ("c", 9)))]),
            "overlap in level 1",
        ),
        (
            adding(&[(2, table(2, ("k", 8), ("a", 9)))]),
            "wrong way round",
        ),
        (
            Change {
                removed: vec![(2, 1)],
                added: Vec::new(),
            },
            "where it is not",
        ),
    ];
    for (change, reason) in refused {
        let error = base.with(&change).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
    // Older versions of the neighbour's last user key may follow.
    base.with(&adding(&[(1, table(2, ("f", 7), ("k", 1)))]))
        .unwrap();
}

#[test]
fn open_ends_reach_everything() {
    let order = &Order::Bytewise;
    let all = UserRange::default();
    let tail = UserRange {
        smallest: Some(b"m"),
        largest: None,
    };
    let one = UserRange::new(b"c", b"f");
    assert!(
        all.overlaps(order, &one)
            && one.overlaps(order, &all)
            && !tail.overlaps(order, &one)
            && !one.overlaps(order, &tail)
    );
    assert_eq!(
        one.union(order, tail),
        UserRange {
            smallest: Some(b"c"),
            largest: None
        }
    );
    assert_eq!(one.union(order, all), all);
    assert_eq!(
        one.union(order, UserRange::new(b"a", b"d")),
        UserRange::new(b"a", b"f")
    );
}

/// A level of disjoint tables over keys of one byte, and what a search by looking at each one says.
fn level(cuts: &[u8]) -> Version {
    let tables: Vec<_> = cuts
        .chunks_exact(2)
        .enumerate()
        .map(|(at, pair)| {
            let (smallest, largest) = (internal(&pair[..1], 5), internal(&pair[1..], 3));
            let number = at as u64;
            (
                3,
                Arc::new(TableMeta {
                    number,
                    file_bytes: 1,
                    smallest,
                    largest,
                    facts: LearntFacts::default(),
                }),
            )
        })
        .collect();
    Version::empty(&Order::Bytewise)
        .with(&adding(&tables))
        .unwrap()
}

proptest! {
    #[test]
    fn searching_finds_what_looking_finds(
        cuts in prop::collection::btree_set(any::<u8>(), 0..40),
        a in any::<u8>(),
        b in any::<u8>(),
        open in 0..4_u8,
    ) {
        let version = level(&cuts.into_iter().collect::<Vec<_>>());
        let (low, high) = ([a.min(b)], [a.max(b)]);
        let range = UserRange {
            smallest: (open & 1 == 0).then_some(&low[..]),
            largest: (open & 2 == 0).then_some(&high[..]),
        };
        let tables = version.level(3);
        let looked: Vec<_> = tables.iter().filter(|table| range.overlaps_table(&Order::Bytewise, table)).collect();
        let searched: Vec<_> = version.overlapping(3, &range).iter().collect();
        prop_assert_eq!(&looked, &searched);
        prop_assert_eq!(version.overlaps(3, &range), !looked.is_empty());

        let key = internal(&low, 4);
        let first = tables
            .iter()
            .find(|table| compare_internal(&table.largest, &key) != Ordering::Less);
        let holding = first.filter(|table| table.smallest_user_key() <= &low[..]);
        prop_assert_eq!(version.seek_version(3, &low, 4), holding);
    }
}
