//! Tests of the job's description, and of what a merge keeps and where it cuts.

use super::super::cut::Cutter;
use super::super::message::{job_message, job_of, report_message, result_of};
use super::super::retain::{Retain, Verdict};
use super::{LAYOUT, facts, internal, table};
use crate::cemetery::Cut;
use crate::cemetery::dead_ranges::DeadRangeCache;
use crate::cemetery::flushed::FlushedGraves;
use crate::cemetery::fragments::Fragments;
use crate::cemetery::sorted::Grave;
use crate::lsm::compaction::job::JobInput;
use crate::lsm::compaction::{
    Counters, Grandparent, Hidden, Job, JobResult, OutputLimits, contradiction,
};
use crate::lsm::version::UserRange;
use crate::sst::TableFacts;
use waystation_format::compaction::{self as message, Failure, JobId, Outcome, Report};
use waystation_format::key::{ValueKind, append};
use waystation_format::order::Order;

fn job() -> Job {
    let mut first = table(7, internal("a", 9), internal("k", 3), 100);
    first.facts = Some(facts(10, 2, 9)).into();
    Job {
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
        from: None,
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

/// The job as an executor elsewhere reads it.
fn sent(job: &Job) -> Result<Job, String> {
    let message = job_message(job, JobId([7; 16]), &Order::Bytewise).ok_or("it stays here")?;
    let message = message::Job::decode(&message.encode()).map_err(|error| error.to_string())?;
    job_of(&message, &Order::Bytewise).map_err(|error| error.to_string())
}

#[test]
fn a_job_travels_whole() {
    let plain = job();
    assert_eq!(sent(&plain), Ok(plain.clone()));
    assert_eq!((plain.input_bytes(), plain.tables().count()), (150, 2));
    let with_graves = Job {
        hidden: hidden(),
        ..job()
    };
    let received = sent(&with_graves).unwrap();
    assert_eq!(received, with_graves);
    assert_eq!(received.hidden.graves.covering_from(0, b"e:2", 95), 60);
}

#[test]
fn a_job_that_means_something_else_here_is_refused() {
    let mut message = job_message(&job(), JobId::default(), &Order::Bytewise).unwrap();
    message.comparator = "by_colour".into();
    let error = job_of(&message, &Order::Bytewise).unwrap_err().to_string();
    assert!(error.contains("by_colour"), "{error}");
    message.comparator = Order::Bytewise.name().into();
    message.output_level = 7;
    let error = job_of(&message, &Order::Bytewise).unwrap_err().to_string();
    assert!(error.contains("names level 7, and there are 7"), "{error}");
    message.output_level = 2;
    message.graves.checkpoint = b"nothing of the kind".to_vec();
    let error = job_of(&message, &Order::Bytewise).unwrap_err().to_string();
    assert!(error.contains("graves that cannot be read"), "{error}");
}

/// A result of [`job`] that nothing speaks against: ten entries read, one left out.
fn result() -> JobResult {
    let output = |number, first: &str, last: &str, entries| {
        let mut output = table(number, internal(first, 9), internal(last, 3), 60);
        output.facts = Some(facts(entries, 1, 9)).into();
        output
    };
    JobResult {
        outputs: vec![output(20, "a", "c", 5), output(21, "d", "k", 4)],
        counters: Counters {
            entries_in: 10,
            entries_out: 9,
            shadowed: 1,
            ..Counters::default()
        },
    }
}

#[test]
fn a_report_travels_whole_and_answers_one_job() {
    let id = JobId([7; 16]);
    let report = report_message(&result(), (id, 1)).encode();
    let report = Report::decode(&report).unwrap();
    let received = result_of(&report, (id, 1), &job()).unwrap();
    assert_eq!(received.outputs, result().outputs);
    assert_eq!(received.counters.entries_in, 10);
    assert_eq!(
        (
            received.counters.read_bytes,
            received.counters.written_bytes
        ),
        (150, 120)
    );
    assert!(result_of(&report, (JobId([8; 16]), 1), &job()).is_err());
    let late = Report {
        attempt: 2,
        ..report.clone()
    };
    assert!(result_of(&late, (id, 1), &job()).is_err());
    let failed = Report {
        outcome: Outcome::Failed(Failure::Space, "the disk is full".into()),
        ..report
    };
    let error = result_of(&failed, (id, 1), &job()).unwrap_err().to_string();
    assert!(error.contains("the disk is full"), "{error}");
}

#[test]
fn a_result_that_cannot_be_is_not_installed() {
    type Change<'a> = &'a dyn Fn(&mut Job, &mut JobResult);
    let against = |change: Change<'_>| {
        let (mut job, mut result) = (job(), result());
        change(&mut job, &mut result);
        contradiction(&job, &result, &Order::Bytewise)
    };
    assert_eq!(against(&|_, _| ()), None);
    let contradicted: [(&str, Change<'_>); 9] = [
        ("left out for a reason", &|_, result| {
            result.counters.entries_out = 8;
        }),
        ("left out for a reason", &|_, result| {
            result.counters.hidden = u64::MAX;
        }),
        ("more or fewer entries than it wrote", &|_, result| {
            result.counters.entries_out = 8;
            result.counters.shadowed = 2;
        }),
        ("it read more or fewer entries", &|job, _| {
            job.inputs[1].tables[0].facts = Some(facts(11, 0, 3)).into();
        }),
        ("no table of the job held", &|_, result| {
            result.outputs[0].smallest = internal("Z", 9);
        }),
        ("no table of the job held", &|_, result| {
            result.outputs[1].largest = internal("kk", 9);
        }),
        ("no table of the job held", &|_, result| {
            result.outputs[1].largest = internal("b", 9);
        }),
        ("overlap, or are not in order", &|_, result| {
            result.outputs.reverse();
        }),
        ("more graves were applied", &|_, result| {
            let more = TableFacts {
                purged_through: 1,
                ..facts(4, 1, 9)
            };
            result.outputs[1].facts = Some(more).into();
        }),
    ];
    for (expected, change) in contradicted {
        let reason = against(change).unwrap_or("nothing");
        assert!(reason.contains(expected), "{expected}: {reason}");
    }
    assert_eq!(
        against(&|job, _| job.hidden.through = 3),
        None,
        "tables may claim less"
    );
}

#[test]
fn a_job_says_how_its_outputs_are_written() {
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
