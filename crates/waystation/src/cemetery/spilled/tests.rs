//! Spill files against the graves that were put into them.

use super::rewrite::{SpillRewrite, SpillTask, choose};
use super::writer::SpillWriter;
use super::{GraveKind, SpillCursors, SpillDirectory, SpillFile, SpilledGraves};
use crate::cemetery::checkpoint::{self, Checkpoint, GravesError};
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::sorted::Grave;
use crate::directory::{spill_name, spill_number};
use crate::sst::{TableMemory, TableSettings};
use crate::storage::{SimStorage, Storage};
use proptest::collection::vec;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

fn site() -> SpillDirectory {
    let storage: Arc<dyn Storage> = SimStorage::new(1);
    storage.create_dir(Path::new("/spill-files")).unwrap();
    SpillDirectory {
        storage,
        dir: "/spill-files".into(),
        settings: TableSettings::default(),
        memory: TableMemory::own(Path::new("/spill-files"), 1 << 20),
    }
}

/// A grave of a key: the number of its deletion, and what tables must be purged through or its date.
type OwnedGrave = (Vec<u8>, u64, u64);

fn key(number: u16) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn write(site: &SpillDirectory, number: u64, kind: GraveKind, graves: &[OwnedGrave]) -> SpillFile {
    let mut sorted = graves.to_vec();
    sorted.sort_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
    let mut writer = SpillWriter::create(site, number, kind).unwrap();
    for (key, sequence, number) in &sorted {
        let (sequence, number) = (*sequence, *number);
        writer
            .add(&Grave {
                key,
                sequence,
                number,
            })
            .unwrap();
    }
    site.open(writer.finish().unwrap()).unwrap()
}

fn all_of(spill: &SpillFile) -> Vec<OwnedGrave> {
    use crate::sst::InternalIterator;
    let mut cursor = spill.scan();
    cursor.seek_to_first().unwrap();
    let mut all = Vec::new();
    while cursor.valid() {
        let (grave, _) = spill.grave(&cursor).unwrap();
        all.push((grave.key.to_vec(), grave.sequence, grave.number));
        cursor.next().unwrap();
    }
    all
}

fn run(
    site: &SpillDirectory,
    task: &SpillTask,
    oldest_snapshot: u64,
    first_number: u64,
) -> Vec<SpillFile> {
    let next = Cell::new(first_number);
    let labels = SpillRewrite {
        site,
        new_number: &|| next.replace(next.get() + 1),
        oldest_snapshot,
        is_needed: &mut |_| true,
        is_cancelled: &|| false,
    }
    .run(task)
    .unwrap();
    labels
        .into_iter()
        .map(|it| site.open(it).unwrap())
        .collect()
}

fn covering(graves: &[OwnedGrave], key: &[u8], snapshot: u64, time: u64) -> u64 {
    let counting = graves
        .iter()
        .filter(|(of, sequence, date)| of == key && *sequence <= snapshot && *date <= time);
    counting.map(|it| it.1).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Deletions that count are found, in every order of merges and questions.
    #[test]
    fn floors_are_those_of_the_graves(
        keys in vec((0_u16..60, 0_usize..3), 1..200),
        asked in vec((0_u16..62, 0_u64..210), 60),
        oldest in 0_u64..210,
    ) {
        let site = site();
        let mut parts: [Vec<OwnedGrave>; 3] = Default::default();
        for (at, (number, part)) in keys.iter().enumerate() {
            let sequence = at as u64 + 1;
            // What tables must be purged through is no concern of readers.
            parts[*part].push((key(*number), sequence, sequence + sequence % 3));
        }
        let all: Vec<OwnedGrave> = parts.iter().flatten().cloned().map(|it| (it.0, it.1, 0)).collect();
        let written = parts.iter().zip(1..).filter(|(part, _)| !part.is_empty());
        let list: Vec<_> = written.map(|(part, number)| Arc::new(write(&site, number, GraveKind::Counting, part))).collect();
        let merged = run(&site, &SpillTask::Merge(list.clone()), oldest, 10);
        prop_assert_eq!(merged.len(), 1);
        prop_assert!(merged[0].verify(Path::new("merged")).is_ok());
        let (apart, merged) = (SpilledGraves::new(list), SpilledGraves::default().and(merged[0].clone()));
        for (number, snapshot) in &asked {
            let (key, snapshot) = (key(*number), *snapshot);
            let expected = covering(&all, &key, snapshot, 0);
            prop_assert_eq!(apart.covering(&key, snapshot).unwrap(), expected);
            if snapshot >= oldest {
                prop_assert_eq!(merged.covering(&key, snapshot).unwrap(), expected);
                let part = merged.within(Some(&key), Some(&key));
                prop_assert_eq!(part.covering(&key, snapshot).unwrap(), expected);
            }
        }
        for snapshot in [oldest, 300] {
            let mut walks = [SpillCursors::for_reader(&apart, snapshot), SpillCursors::for_merge(&merged, 0, snapshot)];
            for walk in &mut walks {
                // Here and there, some of them twice, and then all in order.
                let there = asked.iter().map(|it| it.0);
                for number in there.chain([5, 5, 4]).chain(0..62) {
                    let key = key(number);
                    prop_assert_eq!(walk.covering(&key).unwrap(), covering(&all, &key, snapshot, 0));
                    if number == 30 {
                        walk.forget();
                    }
                }
            }
        }
    }

    /// Dates count from then on, before a spill file is split, after it, and once a part of it is promoted.
    #[test]
    fn dates_count_from_then_on(
        keys in vec((0_u16..30, 1_u64..50), 1..120),
        asked in vec((0_u16..31, 0_u64..250, 0_u64..60), 60),
        now in 0_u64..60,
    ) {
        let site = site();
        let graves = keys.iter().zip(1_u64..).map(|((number, date), at)| (key(*number), 2 * at, *date));
        let graves: Vec<OwnedGrave> = graves.collect();
        let whole = Arc::new(write(&site, 1, GraveKind::Dated, &graves));
        prop_assert!(whole.label().due(now).0 == 0 || graves.iter().any(|it| it.2 <= now));
        let split = run(&site, &SpillTask::Split(Arc::clone(&whole), now), 0, 2);
        let split = SpilledGraves::new(split.into_iter().map(Arc::new).collect());
        let kept: BTreeSet<OwnedGrave> = split.iter().flat_map(|it| all_of(it)).collect();
        prop_assert_eq!(kept, graves.iter().cloned().collect());
        let promoted = split.promote(now, 1_000);
        prop_assert_eq!(promoted.counting_graves(), graves.iter().filter(|it| it.2 <= now).count() as u64);
        let whole = SpilledGraves::new(vec![whole]);
        for (number, snapshot, time) in &asked {
            let (key, snapshot, time) = (key(*number), *snapshot, *time);
            let expected = covering(&graves, &key, snapshot, time);
            prop_assert_eq!(whole.dated_covering(&key, snapshot, time).unwrap(), expected);
            prop_assert_eq!(split.dated_covering(&key, snapshot, time).unwrap(), expected);
            // No reader is at an earlier time when they are promoted.
            let time = time.max(now);
            let dated = promoted.dated_covering(&key, snapshot, time).unwrap();
            let both = dated.max(promoted.covering(&key, snapshot).unwrap());
            prop_assert_eq!(both, covering(&graves, &key, snapshot, time));
        }
        for (key, sequence, date) in &graves {
            prop_assert_eq!(split.date_of(key, *sequence).unwrap(), Some(*date));
            prop_assert_eq!(split.date_of(key, sequence + 1).unwrap(), None);
        }
    }
}

#[test]
fn what_was_promoted_counts_and_asks_for_the_last_promotion_once_merged() {
    let site = site();
    let dated: Vec<OwnedGrave> = (0..10).map(|at| (key(at), 20 + u64::from(at), 7)).collect();
    let first = write(&site, 1, GraveKind::Dated, &dated).promoted_at(40);
    let other = write(&site, 2, GraveKind::Dated, &[(key(50), 5, 3)]).promoted_at(60);
    let plain = write(
        &site,
        3,
        GraveKind::Counting,
        &[(key(5), 9, 9), (key(3), 30, 33)],
    );
    assert_eq!(
        (first.label().demands(), first.label().earliest()),
        ((40, 40), u64::MAX)
    );
    let task = SpillTask::Merge([plain, first, other].map(Arc::new).to_vec());
    let merged = run(&site, &task, 0, 4);
    let [merged] = &merged[..] else {
        panic!("one of three");
    };
    assert_eq!(merged.label().kind, GraveKind::Counting);
    let found = all_of(merged);
    let of = |number| {
        found
            .iter()
            .filter(|it| it.0 == key(number))
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(of(5), [(key(5), 25, 60), (key(5), 9, 9)]);
    assert_eq!(of(3), [(key(3), 30, 33), (key(3), 23, 60)]);
    assert_eq!(of(50), [(key(50), 5, 60)]);
    assert_eq!(found.len(), 13);
}

#[test]
fn many_vaults_are_merged_and_few_are_not() {
    let site = site();
    let spill = |number: u64, graves: u16| {
        let graves: Vec<OwnedGrave> = (0..graves).map(|at| (key(at), number, number)).collect();
        Arc::new(write(&site, number, GraveKind::Counting, &graves))
    };
    let merged = |sizes: &[u16]| {
        let spilled = sizes
            .iter()
            .zip(1..)
            .map(|(graves, number)| spill(number, *graves));
        let spilled = SpilledGraves::new(spilled.collect());
        match choose(&spilled, 0, |_| false, |_| false) {
            Some(SpillTask::Merge(inputs)) => inputs.iter().map(|it| it.label().number).collect(),
            _ => Vec::new(),
        }
    };
    assert_eq!(merged(&[10, 10, 10, 10]), [0_u64; 0]);
    // The newest, as far back as one is not larger than all newer ones together.
    assert_eq!(merged(&[5_000, 400, 300, 200, 1_000]), [2, 3, 4, 5]);
    // The two that take the fewest bytes.
    assert_eq!(merged(&[9_000, 4_000, 1_500, 600, 200]), [4, 5]);
}

#[test]
fn labels_go_through_the_file_of_graves() {
    let site = site();
    let dates: Vec<OwnedGrave> = (0..1_000)
        .map(|at| (key(at), 10 + u64::from(at), 5_000 + u64::from(at) * 3))
        .collect();
    let dated = write(&site, 7, GraveKind::Dated, &dates);
    assert!((8..=64).contains(&dated.label().dates.len()));
    assert_eq!(dated.label().numbers, (5_000, 7_997));
    let plain = write(&site, 4, GraveKind::Counting, &[(key(1), 2, 2)]);
    let spilled = SpilledGraves::default()
        .and(plain)
        .and(dated.promoted_at(2_000))
        .and(dated);
    let flushed = FlushedGraves::default().with_spilled(spilled.clone());
    let bytes = checkpoint::encode(&flushed);
    // The last two are the same spill file.
    assert!(matches!(
        checkpoint::decode(&bytes),
        Err(GravesError::Damaged(..))
    ));
    let spilled = spilled.retain(|it| it.label().number == 4 || it.label().promoted_through > 0);
    let flushed = FlushedGraves::default().with_spilled(spilled.clone());
    let read = checkpoint::decode(&checkpoint::encode(&flushed)).unwrap();
    assert_eq!(
        read.labels.iter().collect::<Vec<_>>(),
        spilled.labels().collect::<Vec<_>>()
    );
    assert_eq!(read.encode(), checkpoint::encode(&flushed));
    let Checkpoint { labels, .. } = read;
    let again = labels
        .into_iter()
        .map(|it| Arc::new(site.open(it).unwrap()));
    assert_eq!(SpilledGraves::new(again.collect()), spilled);
}

#[test]
fn a_vault_that_is_not_as_told_is_refused() {
    let site = site();
    let spill = write(
        &site,
        1,
        GraveKind::Counting,
        &[(key(1), 5, 5), (key(2), 6, 6)],
    );
    let mut label = spill.label().clone();
    label.graves = 3;
    let refused = site.open(label).unwrap_err();
    assert!(refused.to_string().contains("000001.vault"), "{refused}");
    let mut label = spill.label().clone();
    label.last = key(1);
    // An opening does not look at all graves.
    let spill = site.open(label).unwrap();
    assert!(spill.verify(Path::new("000001.vault")).is_err());
}

#[test]
fn vaults_are_known_by_their_names() {
    for number in [0, 7, 999_999, 1_000_000] {
        assert_eq!(spill_number(&spill_name(number)), Some(number));
    }
    for name in [
        "7.vault",
        "00000x.vault",
        "000001.ldb",
        ".vault",
        "GRAVES",
        "+00001.vault",
    ] {
        assert_eq!(spill_number(name), None, "{name}");
    }
}
