//! Tests of the job's description, and of what a merge keeps and where it cuts.

use super::super::cut::Cutter;
use super::super::retain::{Retain, Verdict};
use super::{LAYOUT, facts, internal, table};
use crate::cemetery::Cut;
use crate::cemetery::dead_ranges::DeadRangeCache;
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::fragments::Fragments;
use crate::cemetery::sorted::Grave;
use crate::lsm::compaction::job::JobInput;
use crate::lsm::compaction::{Grandparent, Hidden, JOB_FORMAT, Job, OutputLimits};
use crate::lsm::version::UserRange;
use waystation_format::key::{ValueKind, append};
use waystation_format::order::Order;

fn job() -> Job {
    let mut first = table(7, internal("a", 9), internal("k", 3), 100);
    first.facts = Some(facts(10, 2, 9)).into();
    Job {
        format: JOB_FORMAT,
        inputs: vec![
            JobInput {
                level: 1,
                tables: vec![first],
            },
            JobInput {
                level: 2,
                tables: vec![table(3, internal("b", 2), internal("c", 1), 50)],
            },
        ],
        output_level: 2,
        smallest_snapshot: 5,
        hidden: Hidden::default(),
        deeper: vec![
            (b"c".to_vec(), b"e".to_vec()),
            (b"x".to_vec(), b"z".to_vec()),
        ],
        grandparents: vec![
            Grandparent {
                largest: b"c".to_vec(),
                bytes: 40,
            },
            Grandparent {
                largest: b"f".to_vec(),
                bytes: 40,
            },
            Grandparent {
                largest: b"m".to_vec(),
                bytes: 40,
            },
        ],
        limits: OutputLimits {
            table_bytes: 100,
            grandparent_bytes: 70,
        },
        layout: LAYOUT,
    }
}

#[test]
fn a_job_travels_as_text() {
    let job = job();
    let text = serde_json::to_string(&job).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
    assert_eq!((job.input_bytes(), job.tables().count()), (150, 2));
}

#[test]
fn a_job_of_another_version_is_refused() {
    let newer = Job {
        format: JOB_FORMAT + 1,
        ..job()
    };
    let error = newer.table_settings().unwrap_err().to_string();
    assert!(
        error.contains("has format 4, and this version knows 3"),
        "{error}"
    );
    let mut other = job();
    other.layout.compression = 9;
    let error = other.table_settings().unwrap_err().to_string();
    assert!(error.contains("compression 9"), "{error}");
    let settings = job().table_settings().unwrap();
    assert_eq!(
        (settings.block_bytes, settings.filter_bits_per_key),
        (4096, 10)
    );
    assert_eq!(settings.purged_through, 0, "one of its tables says nothing");
}

#[test]
fn what_nobody_can_read_is_dropped() {
    use Verdict::{DeadDeletion, Keep, Shadowed};
    let (put, delete) = (ValueKind::Value, ValueKind::Deletion);
    // The smallest snapshot is 5; c to e and x to z may be deeper.
    let entries = [
        ("a", 9, put, Keep),
        ("a", 7, put, Keep),
        ("a", 7, put, Shadowed), // the same version once more
        ("a", 5, put, Keep),
        ("a", 4, put, Shadowed),
        ("b", 6, delete, Keep), // a reader at 5 must not see it
        ("b", 4, delete, DeadDeletion),
        ("b", 3, put, Shadowed),
        ("c", 4, delete, Keep),
        ("c", 3, delete, Shadowed),
        ("dd", 5, delete, Keep),
        ("e", 5, delete, Keep),
        ("ea", 5, delete, DeadDeletion),
        ("ea", 4, put, Shadowed),
        ("w", 5, put, Keep),
        ("xa", 5, delete, Keep),
        ("zz", 5, delete, DeadDeletion),
        ("zz", 0, put, Shadowed),
        ("zzz", 0, put, Keep),
    ];
    let job = job();
    let mut retain = Retain::new(&job, &Order::Bytewise);
    for (user_key, sequence, kind, expected) in entries {
        let mut key = Vec::new();
        append(&mut key, user_key.as_bytes(), sequence, kind);
        assert_eq!(
            retain.judge(&key).unwrap(),
            expected,
            "{user_key}@{sequence}"
        );
    }
}

#[test]
fn the_empty_key_is_a_key() {
    let job = job();
    let mut retain = Retain::new(&job, &Order::Bytewise);
    assert_eq!(retain.judge(&internal("", 4)).unwrap(), Verdict::Keep);
    assert!(retain.starts_key());
    assert_eq!(retain.judge(&internal("", 3)).unwrap(), Verdict::Shadowed);
    assert!(!retain.starts_key());
    assert_eq!(retain.judge(&internal("a", 3)).unwrap(), Verdict::Keep);
    assert!(retain.starts_key());
}

#[test]
fn tables_are_cut_when_full_or_where_it_is_cheap() {
    let job = job();
    let cuts = |keys: &[(&str, u64)]| {
        let mut cutter = Cutter::new(&job, &Order::Bytewise);
        let cuts = keys
            .iter()
            .map(|(key, bytes)| cutter.cuts_before(key.as_bytes(), *bytes));
        cuts.collect::<Vec<_>>()
    };
    assert_eq!(
        cuts(&[("a", 0), ("b", 99), ("c", 100)]),
        [false, false, true],
        "full"
    );
    assert_eq!(
        cuts(&[("a", 0), ("b", 74), ("d", 75)]),
        [false, false, true],
        "nearly full, at a border"
    );
    assert_eq!(
        cuts(&[("a", 0), ("b", 74), ("d", 74)]),
        [false; 3],
        "not nearly full"
    );
    assert_eq!(
        cuts(&[("a", 0), ("d", 10), ("g", 20)]),
        [false, false, true],
        "80 bytes below it"
    );
    assert_eq!(
        cuts(&[("g", 0), ("z", 20)]),
        [false; 2],
        "what lies before its first key is not below it"
    );
}

/// Two ranges, and two keys of which one is deleted too late to count.
fn grave(key: &[u8], sequence: u64) -> Grave<'_> {
    Grave::counting(key, sequence, sequence)
}

fn hidden() -> Hidden {
    let mut ranges = Fragments::default();
    ranges.insert(b"b:", Some(b"b;"), Cut::deletion(40));
    ranges.insert(b"d:", Some(b"d;"), Cut::deletion(90));
    let mut graves = FlushedGraves::new(95, ranges);
    graves.push(grave(b"e:2", 60));
    graves.push(grave(b"e:2", 20));
    graves.push(grave(b"e:3", 98));
    Hidden {
        graves: graves.into(),
        through: 95,
        ..Hidden::default()
    }
}

#[test]
fn graves_hide_what_is_older_in_their_range() {
    let mut job = job();
    job.smallest_snapshot = 100;
    job.hidden = hidden();
    assert_eq!(job.purged_through(), 95);
    let mut retain = Retain::new(&job, &Order::Bytewise);
    for (key, sequence, verdict) in [
        ("a:1", 3, Verdict::Keep),
        ("b:1", 39, Verdict::Hidden),
        ("b:2", 40, Verdict::Keep),
        ("c:1", 5, Verdict::Keep),
        ("d:1", 91, Verdict::Keep),
        ("d:2", 89, Verdict::Hidden),
        ("e:1", 7, Verdict::Keep),
        ("e:2", 59, Verdict::Hidden),
        ("e:2", 58, Verdict::Shadowed),
        ("e:3", 97, Verdict::Keep),
    ] {
        let mut internal = Vec::new();
        append(&mut internal, key.as_bytes(), sequence, ValueKind::Value);
        assert_eq!(retain.judge(&internal).unwrap(), verdict, "{key}");
    }
}

#[test]
fn what_scans_learned_drops_no_deletion() {
    let dead_ranges = DeadRangeCache::default();
    dead_ranges.add(b"b", Some(b"c"), 90);
    let hidden = Hidden {
        through: 95,
        dead_ranges: Some(dead_ranges.into()),
        ..Hidden::default()
    };
    let with = |deletions: u64, newest: u64| {
        let mut whole = table(1, internal("b:1", newest), internal("b:9", 1), 100);
        whole.facts = Some(facts(2, deletions, newest)).into();
        hidden.hides_all_of(&whole)
    };
    assert!(with(0, 90));
    assert!(!with(0, 91), "it holds what came after");
    assert!(!with(1, 90), "a deeper table may hold what it deletes");
}

#[test]
fn a_table_is_hidden_as_a_whole_or_not() {
    let hidden = hidden();
    let of = |smallest: &str, largest: &str, newest: u64| {
        let mut whole = table(1, internal(smallest, newest), internal(largest, 1), 100);
        whole.facts = Some(facts(2, 0, newest)).into();
        hidden.hides_all_of(&whole)
    };
    assert!(of("b:1", "b:9", 39) && of("d:1", "d:1", 89));
    assert!(!of("b:1", "b:9", 40), "it holds what came after");
    assert!(!of("b:1", "d:1", 39) && !of("a:1", "b:1", 39) && !of("c:1", "c:2", 1));
    let range = |smallest: &'static str, largest: &'static str| {
        let range = UserRange::new(smallest.as_bytes(), largest.as_bytes());
        let part = hidden.within(&range).graves;
        part.ranges().len() + part.len()
    };
    assert_eq!(
        (range("a", "z"), range("b:5", "c"), range("c", "d:1")),
        (5, 1, 1)
    );
    assert_eq!((range("a", "b"), range("f", "z")), (0, 0));
}
