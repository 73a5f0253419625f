//! The index against an ordered map, and its size.

use super::*;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use waystation_format::checksum;

type Model = BTreeMap<(Vec<u8>, Reverse<u64>), Entry>;

fn entry(sequence: u64, lsn: u64, length: Option<u32>) -> Entry {
    Entry {
        sequence,
        value: length.map(|length| Spot {
            record_lsn: lsn,
            offset: 24 + length % 100,
            length,
        }),
    }
}

fn key_of(choice: u16, style: u8) -> Vec<u8> {
    match style {
        0 => format!("sensor{}:{:08}", choice % 7, choice).into_bytes(),
        1 => vec![b'a'; usize::from(choice % 90)],
        2 => choice.to_le_bytes().to_vec(),
        _ => vec![(choice % 251) as u8; usize::from(choice % 4) * 300],
    }
}

fn walk(index: &Leaves) -> Vec<(Vec<u8>, Entry)> {
    let (mut window, mut found) = (Window::default(), Vec::new());
    index.load_from(b"", u64::MAX, &mut window);
    while window.len() > 0 {
        for at in 0..window.len() {
            let (key, entry) = window.get(at).expect("within");
            found.push((key.to_vec(), *entry));
        }
        let (key, entry) = found.last().expect("one at least");
        // Right behind the last entry: the next lower sequence of the same key.
        let (key, next) = match entry.sequence.checked_sub(1) {
            Some(next) => (key.clone(), next),
            None => break,
        };
        index.load_from(&key, next, &mut window);
    }
    found
}

fn walk_back(index: &Leaves) -> Vec<(Vec<u8>, Entry)> {
    let (mut window, mut found) = (Window::default(), Vec::new());
    index.load_last(&mut window);
    while window.len() > 0 {
        for at in (0..window.len()).rev() {
            let (key, entry) = window.get(at).expect("within");
            found.push((key.to_vec(), *entry));
        }
        let (key, entry) = found.last().expect("one at least").clone();
        index.load_before(&key, entry.sequence, &mut window);
    }
    found.reverse();
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is put in is found, at every snapshot, and walked over both ways in order.
    #[test]
    fn it_is_an_ordered_map(
        keys in prop::collection::vec((any::<u16>(), 0u8..4, prop::option::weighted(0.8, 0u32..100_000)), 1..600),
        probes in prop::collection::vec((any::<u16>(), 0u8..4, 0u64..700), 20),
        read_every in 1usize..200,
    ) {
        let mut index = Index::default();
        let mut model = Model::new();
        // Threads insert out of order: neighbours change places.
        let mut order: Vec<usize> = (0..keys.len()).collect();
        for pair in order.chunks_mut(2) {
            pair.reverse();
        }
        for at in order {
            let (choice, style, length) = keys[at];
            let key = key_of(choice % 200, style);
            let version = entry(at as u64 + 1, at as u64 * 1500, length);
            index.insert(&key, &version);
            if at.is_multiple_of(read_every) {
                prop_assert_eq!(index.ordered().get(&key, version.sequence), Some(version));
            }
            model.insert((key, Reverse(version.sequence)), version);
        }
        prop_assert_eq!(index.len(), model.len() as u64);
        let expected: Vec<_> = model.iter().map(|((key, _), entry)| (key.clone(), *entry)).collect();
        let index = index.ordered();
        prop_assert_eq!(&walk(index), &expected);
        prop_assert_eq!(&walk_back(index), &expected);
        for (choice, style, snapshot) in probes {
            let key = key_of(choice % 220, style);
            let newest = model
                .range((key.clone(), Reverse(snapshot))..)
                .next()
                .filter(|((found, _), _)| *found == key)
                .map(|(_, entry)| *entry);
            prop_assert_eq!(index.get(&key, snapshot), newest);
        }
    }
}

/// Indexes of `count` devices.
fn some(count: u64) -> Vec<Index> {
    let of = |device: u64| Index::new(checksum::crc32c(format!("{device}:").as_bytes()));
    (0..count).map(of).collect()
}

#[test]
fn indexes_that_fill_together_are_not_put_in_order_together() {
    let mut indexes = some(1000);
    let mut most = 0;
    for round in 1..=2_000 {
        let mut emptied = 0;
        for index in &mut indexes {
            index.insert(
                format!("{round:05}").as_bytes(),
                &entry(round, round, Some(9)),
            );
            emptied += usize::from(index.buffer.len() == 0);
        }
        // With few versions in them that is soon done.
        if round > 200 {
            most = most.max(emptied);
        }
    }
    assert!((1..200).contains(&most), "{most} of 1000 in one round");
}

/// Bytes per record of `devices` devices with `records` records each of the benchmark's keys.
fn bytes_per_record(devices: u64, records: u64, sensors: u64) -> f64 {
    let mut indexes = some(devices);
    let mut sequence = 0;
    for at in 0..records {
        for (device, index) in indexes.iter_mut().enumerate() {
            sequence += 1;
            let sensor = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ device as u64) >> 7;
            let key = format!(
                "cent_{}_Humidity:{}",
                sensor % sensors,
                1_700_000_000_000 + sequence * 100
            );
            index.insert(
                key.as_bytes(),
                &entry(sequence, sequence * 1060, Some(1000)),
            );
        }
    }
    let bytes: usize = indexes
        .iter()
        .map(|index| index.memory_bytes() + size_of::<Index>())
        .sum();
    bytes as f64 / (devices * records) as f64
}

#[test]
fn an_entry_is_small() {
    let many = bytes_per_record(500, 100, 8);
    let apart = bytes_per_record(500, 100, 160);
    let one = bytes_per_record(1, 50_000, 160);
    println!(
        "bytes of index per record: {many:.1} with 100 records of 8 sensors a device, {apart:.1} of 160 \
         sensors, {one:.1} with 50,000 records"
    );
    assert!(many <= 32.0 && apart <= 48.0 && one <= 32.0);
}
