//! Levels and merges are like one sorted list.

use super::*;
use crate::error::Error;
use crate::lsm::memtable::MemTable;
use crate::sst::tests::{Entries, Move, Place, any_entries, any_move, follow, internal};
use crate::sst::{InternalIterator, MergingIterator};
use crate::sst::{LearntFacts, TableMeta, TableSettings};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;
use waystation_format::key::{InternalKey, ValueKind, compare_internal};
use waystation_format::order::Order;

fn small_blocks() -> TableSettings {
    TableSettings {
        block_bytes: 100,
        ..TableSettings::default()
    }
}

/// Cuts `entries` into tables, at most `cuts.len() + 1` of them.
fn build_run(place: &Place, entries: &Entries, cuts: &[prop::sample::Index], first: u64) -> Run {
    let mut at: Vec<usize> = cuts
        .iter()
        .map(|cut| cut.index(entries.len() + 1))
        .collect();
    at.extend([0, entries.len()]);
    at.sort_unstable();
    at.dedup();
    let tables = at.windows(2).enumerate().map(|(i, bounds)| {
        let part = entries[bounds[0]..bounds[1]].to_vec();
        Arc::new(place.build(first + i as u64, &small_blocks(), &part))
    });
    Run::List(tables.collect::<Vec<Arc<TableMeta>>>().into())
}

fn memtable(entries: &Entries) -> Arc<MemTable> {
    let table = MemTable::new(1 << 20);
    for (key, value) in entries {
        let key = InternalKey::parse(key).unwrap();
        table.insert(key.user_key, key.sequence, key.kind, value);
    }
    Arc::new(table)
}

/// The union as a list: duplicates in the order of parts.
fn union(parts: &[Entries]) -> Entries {
    let mut all: Entries = parts.concat();
    all.sort_by(|a, b| compare_internal(&a.0, &b.0));
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn levels_are_like_lists(
        entries in any_entries(), cuts in vec(any::<prop::sample::Index>(), 0..6),
        moves in vec(any_move(), 0..60),
    ) {
        let place = Place::new(1 << 20);
        let run = build_run(&place, &entries, &cuts, 1);
        follow(&entries, &mut LevelIterator::new(Arc::clone(&place.cache), run.clone()), &moves)?;
        follow(&entries, &mut LevelIterator::for_merge(Arc::clone(&place.cache), run), &moves)?;
    }

    /// Values are alike, so that the list's moves, which look for keys, cannot tell duplicates apart.
    #[test]
    fn merges_are_like_one_list(
        mut parts in vec(any_entries(), 0..6), shared in any_entries(),
        cuts in vec(any::<prop::sample::Index>(), 0..4), moves in vec(any_move(), 0..60),
    ) {
        let place = Place::new(1 << 20);
        for (i, part) in parts.iter_mut().enumerate() {
            if i % 2 == 0 {
                part.extend(shared.iter().cloned());
                part.sort_by(|a, b| compare_internal(&a.0, &b.0));
                part.dedup_by(|a, b| a.0 == b.0);
            }
            for entry in part.iter_mut() {
                entry.1 = b"v".to_vec();
            }
        }
        let sources = parts.iter().enumerate().map(|(i, part)| match i % 3 {
            0 => Source::from(memtable(part).iter()),
            1 => Source::from(LevelIterator::new(
                Arc::clone(&place.cache),
                build_run(&place, part, &cuts, 100 * i as u64),
            )),
            _ => {
                let meta = place.build(i as u64, &small_blocks(), part);
                Source::from(place.cache.get(&meta).unwrap().iter())
            }
        });
        let mut merged = MergingIterator::new(sources.collect(), &Order::Bytewise);
        let all = union(&parts);
        prop_assert!(!merged.valid());
        follow_with_duplicates(&all, &mut merged, &moves)?;
    }
}

/// As `follow`, but a position is known by its place among duplicates: a seek goes to the first of them, a seek
/// for the entry before to the last.
fn follow_with_duplicates(
    entries: &Entries,
    iter: &mut impl InternalIterator,
    moves: &[Move],
) -> Result<(), TestCaseError> {
    let distinct = entries.windows(2).all(|pair| pair[0].0 != pair[1].0);
    if distinct {
        return follow(entries, iter, moves);
    }
    let mut at: Option<usize> = None;
    for step in moves {
        match step {
            Move::First => {
                iter.seek_to_first()?;
                at = Some(0);
            }
            Move::Last => {
                iter.seek_to_last()?;
                at = entries.len().checked_sub(1);
            }
            Move::Seek(user, sequence) => {
                let target = internal(user, *sequence, ValueKind::SEEK);
                iter.seek(&target)?;
                at = Some(entries.partition_point(|e| compare_internal(&e.0, &target).is_lt()));
            }
            Move::SeekForPrev(user, sequence) => {
                let target = internal(user, *sequence, ValueKind::Deletion);
                iter.seek_for_prev(&target)?;
                at = entries
                    .partition_point(|e| compare_internal(&e.0, &target).is_le())
                    .checked_sub(1);
            }
            Move::Next if iter.valid() => {
                iter.next()?;
                at = at.map(|i| i + 1);
            }
            Move::Prev if iter.valid() => {
                iter.prev()?;
                at = at.and_then(|i| i.checked_sub(1));
            }
            Move::Next | Move::Prev => {}
        }
        at = at.filter(|&i| i < entries.len());
        let here = iter.valid().then(|| iter.key().to_vec());
        prop_assert_eq!(here, at.map(|i| entries[i].0.clone()));
    }
    Ok(())
}

#[test]
fn every_duplicate_is_shown_in_both_directions() {
    let entries: Entries = (0..50_u64)
        .map(|i| {
            (
                internal(format!("k{i:02}").as_bytes(), i, ValueKind::Value),
                Vec::new(),
            )
        })
        .collect();
    let sources = || {
        (0..3)
            .map(|_| Source::from(memtable(&entries).iter()))
            .collect()
    };
    let mut merged = MergingIterator::<Source>::new(sources(), &Order::Bytewise);
    let mut shown = 0;
    merged.seek_to_first().unwrap();
    while merged.valid() {
        assert_eq!(merged.key(), entries[shown / 3].0);
        shown += 1;
        merged.next().unwrap();
    }
    assert_eq!(shown, 150);
    // To and fro in the middle of duplicates.
    merged.seek(&entries[20].0).unwrap();
    let mut at = 60;
    for (i, steps) in [4, 2, 5, 1, 1, 3, 7, 8].into_iter().enumerate() {
        for _ in 0..steps {
            if i % 2 == 0 {
                merged.next().unwrap();
                at += 1;
            } else {
                merged.prev().unwrap();
                at -= 1;
            }
            assert_eq!(merged.key(), entries[at / 3].0, "at {at}");
        }
    }
}

#[test]
fn an_error_ends_the_walk_and_a_seek_begins_a_new_one() {
    let place = Place::new(0);
    let entries: Entries = (0..300_u64)
        .map(|i| {
            (
                internal(format!("k{i:03}").as_bytes(), i, ValueKind::Value),
                vec![7; 50],
            )
        })
        .collect();
    let meta = place.build(1, &small_blocks(), &entries);
    let path = place.cache.path(1);
    let table = place.cache.get(&meta).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[3_000] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let others = memtable(&vec![(internal(b"a", 1, ValueKind::Value), Vec::new())]);
    let sources = vec![Source::from(table.iter()), Source::from(others.iter())];
    let mut merged = MergingIterator::new(sources, &Order::Bytewise);
    merged.seek_to_first().unwrap();
    let error = loop {
        if let Err(error) = merged.next() {
            break error;
        }
    };
    assert!(matches!(error, Error::Corruption { .. }));
    assert!(!merged.valid());
    merged.next().unwrap();
    assert!(!merged.valid());
    merged.seek_to_last().unwrap();
    assert_eq!(merged.key(), entries[299].0);
}

#[test]
fn a_level_iterator_opens_no_table_before_it_is_used() {
    let place = Place::new(0);
    let missing = TableMeta {
        number: 9,
        file_bytes: 100,
        smallest: internal(b"a", 1, ValueKind::Value),
        largest: internal(b"b", 1, ValueKind::Value),
        facts: LearntFacts::default(),
    };
    let run = Run::Table(Arc::new(missing));
    let mut iter = LevelIterator::new(Arc::clone(&place.cache), run);
    assert!(!iter.valid());
    iter.seek(&internal(b"c", 1, ValueKind::Value)).unwrap();
    iter.seek_for_prev(&internal(b"A", 1, ValueKind::Value))
        .unwrap();
    assert!(iter.seek_to_first().unwrap_err().is_not_found());
    assert!(!iter.valid());
}
