//! Walks over well-formed blocks like over a sorted list, and over hostile ones without falling.

use super::*;
use crate::key::{self, ValueKind, append, compare_internal, user_key};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::collections::BTreeMap;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn build(entries: &Entries, restart_interval: usize) -> Block {
    let mut builder = BlockBuilder::new(restart_interval);
    builder.add(b"left over", b"");
    builder.reset();
    for (key, value) in entries {
        builder.add(key, value);
    }
    let estimated = builder.estimated_bytes();
    let bytes = builder.finish().to_vec();
    assert!(bytes.len() == estimated || entries.is_empty());
    Block::new(bytes).unwrap()
}

fn here(iter: &BlockIter) -> Option<(Vec<u8>, Vec<u8>)> {
    iter.valid()
        .then(|| (iter.key().to_vec(), iter.value().to_vec()))
}

#[test]
fn bytes_are_leveldbs() {
    let mut builder = BlockBuilder::new(2);
    builder.add(b"apple", b"1");
    builder.add(b"apricot", b"");
    builder.add(b"banana", b"22");
    let expected = [
        &b"\x00\x05\x01apple1\x02\x05\x00ricot\x00\x06\x02banana22"[..],
        &[0, 0, 0, 0, 17, 0, 0, 0, 2, 0, 0, 0],
    ];
    assert_eq!(builder.finish(), expected.concat());
    builder.reset();
    assert_eq!(builder.last_key(), b"banana");
    assert_eq!(builder.finish(), [0, 0, 0, 0, 1, 0, 0, 0]);
}

#[test]
fn blocks_without_room_for_their_restart_points_are_refused() {
    assert!(Block::new([]).is_err());
    assert!(Block::new([0, 0, 0]).is_err());
    assert!(Block::new([1, 0, 0, 0]).is_err());
    assert!(Block::new([0, 0, 0, 0, 1, 0, 0, 0x80]).is_err());
    let empty = Block::new([0, 0, 0, 0]).unwrap();
    let mut empty = BlockIter::new(empty);
    empty.seek_to_first().unwrap();
    empty.seek_to_last().unwrap();
    empty.seek(&[0; 8]).unwrap();
    assert!(!empty.valid());
}

#[test]
fn long_lengths_round_trip() {
    let entries: Entries = [100, 127, 128, 300, 20_000]
        .into_iter()
        .map(|n| (vec![b'k'; n], vec![b'v'; n * 3]))
        .collect();
    let mut iter = BlockIter::new(build(&entries, 16));
    iter.seek_to_first().unwrap();
    for entry in &entries {
        assert_eq!(here(&iter).as_ref(), Some(entry));
        iter.next().unwrap();
    }
    assert!(!iter.valid());
}

#[test]
fn remembered_keys_are_bounded() {
    // One interval of keys that grow by a byte each: all of them together are 2 MB.
    let entries: Entries = (1..2_000).map(|n| (vec![b'k'; n], Vec::new())).collect();
    let mut iter = BlockIter::new(build(&entries, usize::MAX));
    iter.seek_to_last().unwrap();
    for entry in entries.iter().rev() {
        assert_eq!(here(&iter).as_ref(), Some(entry));
        assert!(iter.scratch.len() < 300_000);
        iter.prev().unwrap();
    }
    assert!(!iter.valid());
}

/// Sorted, distinct internal keys with values.
fn any_entries() -> impl Strategy<Value = Entries> {
    btree_map((any_user_key(), 0..4_u64), vec(any::<u8>(), 0..40), 0..60).prop_map(|map| {
        let mut entries: Entries = map
            .into_iter()
            .map(|((user, sequence), value)| (internal(&user, sequence), value))
            .collect();
        entries.sort_by(|a, b| compare_internal(&a.0, &b.0));
        entries
    })
}

fn internal(user: &[u8], sequence: u64) -> Vec<u8> {
    let mut out = Vec::new();
    append(&mut out, user, sequence, ValueKind::Value);
    out
}

fn any_user_key() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(b'a'), Just(b'b'), any::<u8>()], 0..12)
}

#[derive(Debug, Clone)]
enum Move {
    First,
    Last,
    Seek(Vec<u8>, u64),
    Next,
    Prev,
}

/// What [`Block::get`] should answer.
fn get_from_list(entries: &Entries, user: &[u8], trailer: u64) -> Option<(u64, Vec<u8>)> {
    let (key, value) = entries
        .iter()
        .find(|(key, _)| user_key(key) == user && key::trailer(key) <= trailer)?;
    Some((key::trailer(key), value.clone()))
}

fn get_from_block(block: &Block, user: &[u8], trailer: u64) -> Option<(u64, Vec<u8>)> {
    let (trailer, range) = block.get(user, trailer).unwrap()?;
    Some((trailer, block.bytes()[range].to_vec()))
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        1 => Just(Move::First),
        1 => Just(Move::Last),
        2 => (any_user_key(), 0..5_u64).prop_map(|(user, sequence)| Move::Seek(user, sequence)),
        8 => Just(Move::Next),
        8 => Just(Move::Prev),
    ]
}

/// Makes the same moves over the list and over the block.
fn follow(entries: &Entries, iter: &mut BlockIter, moves: &[Move]) -> Result<(), TestCaseError> {
    let mut at: Option<usize> = None;
    for step in moves {
        match step {
            Move::First => {
                iter.seek_to_first().unwrap();
                at = Some(0);
            }
            Move::Last => {
                iter.seek_to_last().unwrap();
                at = entries.len().checked_sub(1);
            }
            Move::Seek(user, sequence) => {
                let target = internal(user, *sequence);
                iter.seek(&target).unwrap();
                at = Some(entries.partition_point(|e| compare_internal(&e.0, &target).is_lt()));
            }
            Move::Next if iter.valid() => {
                iter.next().unwrap();
                at = at.map(|i| i + 1);
            }
            Move::Prev if iter.valid() => {
                iter.prev().unwrap();
                at = at.and_then(|i| i.checked_sub(1));
            }
            Move::Next | Move::Prev => {}
        }
        at = at.filter(|&i| i < entries.len());
        prop_assert_eq!(here(iter), at.map(|i| entries[i].clone()));
    }
    Ok(())
}

/// Goes everywhere in a block that may be hostile.
fn explore(block: &Block) {
    for target in [internal(b"", 9), internal(b"b", 1), vec![0xff; 20], vec![]] {
        let mut iter = BlockIter::new(block.clone());
        let _ = iter.seek(&target);
        let mut steps = 0;
        while iter.valid() && iter.next().is_ok() && steps < 100 {
            steps += 1;
        }
        let _ = block.get(user_key(&target), 0x300);
        let _ = iter.seek_by(|key| key.cmp(&target));
        while iter.valid() && iter.prev().is_ok() && steps < 200 {
            steps += 1;
            let _ = (iter.key(), iter.value());
        }
    }
    let mut iter = BlockIter::new(block.clone());
    let _ = iter.seek_to_last();
    while iter.valid() && iter.prev().is_ok() {}
    let _ = iter.seek_to_first();
    while iter.valid() && iter.next().is_ok() {}
}

proptest! {
    #[test]
    fn walks_are_those_over_a_list(
        entries in any_entries(), moves in vec(any_move(), 0..60), interval in 1..20_usize,
    ) {
        let block = build(&entries, interval);
        follow(&entries, &mut BlockIter::new(block.clone()), &moves)?;
        let mut reused = BlockIter::new(build(&vec![(internal(b"x", 1), b"y".to_vec())], 1));
        reused.seek_to_first().unwrap();
        reused.reset(block);
        follow(&entries, &mut reused, &moves)?;
    }

    #[test]
    fn lookups_are_those_in_a_list(
        entries in any_entries(), interval in 1..20_usize, others in vec(any_user_key(), 1..20),
    ) {
        let block = build(&entries, interval);
        let users = entries.iter().map(|(key, _)| user_key(key).to_vec());
        for user in users.chain(others) {
            for trailer in [0, 0x100, 0x101, 0x201, 0x0001_0001, u64::MAX] {
                prop_assert_eq!(
                    get_from_block(&block, &user, trailer),
                    get_from_list(&entries, &user, trailer)
                );
            }
        }
    }

    /// Keys of trailers and prefixes of each other: what the walk that puts no keys together must not mix up.
    #[test]
    fn keys_like_trailers_are_told_apart(
        map in btree_map((vec(0..3_u8, 0..20), 0..3_u64), Just(()), 0..80),
        interval in 1..20_usize, others in vec((vec(0..3_u8, 0..20), 0..4_u64), 1..20),
    ) {
        let mut entries: Entries =
            map.into_keys().map(|(user, sequence)| (internal(&user, sequence), vec![7])).collect();
        entries.sort_by(|a, b| compare_internal(&a.0, &b.0));
        let block = build(&entries, interval);
        let moves: Vec<Move> = others.iter().map(|(u, s)| Move::Seek(u.clone(), *s)).collect();
        follow(&entries, &mut BlockIter::new(block.clone()), &moves)?;
        for (user, sequence) in others {
            let trailer = sequence << 8 | 1;
            prop_assert_eq!(
                get_from_block(&block, &user, trailer),
                get_from_list(&entries, &user, trailer)
            );
        }
    }

    #[test]
    fn hostile_blocks_are_answered(bytes in vec(prop_oneof![0..8_u8, any::<u8>()], 0..120)) {
        if let Ok(block) = Block::new(bytes) {
            explore(&block);
        }
    }

    #[test]
    fn damaged_blocks_are_answered(
        entries in any_entries(), interval in 1..20_usize, at: prop::sample::Index, flip in 1..=255_u8,
    ) {
        let mut bytes = build(&entries, interval).bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        if let Ok(block) = Block::new(bytes) {
            explore(&block);
        }
    }

    #[test]
    fn common_prefixes_are_counted(mut a: Vec<u8>, n in 0..50_usize, tail: Vec<u8>) {
        a.truncate(40);
        let mut b = a.clone();
        b.truncate(n);
        b.extend_from_slice(&tail);
        let expected = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
        prop_assert_eq!(common_prefix(&a, &b), expected);
        prop_assert_eq!(common_prefix(&b, &a), expected);
    }
}

#[test]
fn a_map_and_its_block_agree() {
    let map: BTreeMap<Vec<u8>, Vec<u8>> = (0..1000_u32)
        .map(|i| {
            (
                format!("key{:06}", i * 7).into_bytes(),
                i.to_le_bytes().to_vec(),
            )
        })
        .collect();
    let entries: Entries = map.into_iter().collect();
    let mut iter = BlockIter::new(build(&entries, 16));
    iter.seek_to_last().unwrap();
    for entry in entries.iter().rev() {
        assert_eq!(here(&iter).as_ref(), Some(entry));
        iter.prev().unwrap();
    }
    assert!(!iter.valid());
}
