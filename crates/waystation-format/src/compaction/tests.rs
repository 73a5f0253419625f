//! Jobs and reports travel whole, are refused when they are not what was written, and pass between versions.

use super::fields::FieldWriter;
use super::*;
use crate::FormatError;
use crate::key::{ValueKind, append};
use proptest::prelude::*;

fn internal(user_key: &[u8], sequence: u64) -> Vec<u8> {
    let mut key = Vec::new();
    append(&mut key, user_key, sequence, ValueKind::Value);
    key
}

fn table(number: u64, facts: Option<Facts>) -> Table {
    Table {
        number,
        file_bytes: 4096 + number,
        smallest: internal(b"a", 9),
        largest: internal(b"z", 3),
        facts,
    }
}

fn facts() -> Facts {
    Facts {
        smallest_sequence: 3,
        largest_sequence: 900,
        purged_through: 77,
        entries: 1000,
        deletions: 5,
    }
}

fn job() -> Job {
    Job {
        id: JobId(*b"sixteen bytes id"),
        attempt: 2,
        comparator: "leveldb.BytewiseComparator".into(),
        inputs: vec![
            InputLevel {
                level: 0,
                tables: vec![table(9, Some(facts())), table(8, None)],
            },
            InputLevel {
                level: 1,
                tables: vec![table(5, Some(facts())), table(6, Some(facts()))],
            },
        ],
        from: None,
        output_level: 1,
        smallest_snapshot: 500,
        deeper: vec![(b"c".to_vec(), b"e".to_vec()), (Vec::new(), b"k".to_vec())],
        graves: Graves {
            checkpoint: b"the bytes of graves".to_vec(),
            through: 450,
        },
        grandparents: vec![Grandparent {
            largest: b"m".to_vec(),
            bytes: 1 << 40,
        }],
        limits: Limits {
            table_bytes: 2 << 20,
            grandparent_bytes: 20 << 20,
        },
        layout: Layout {
            block_bytes: 4096,
            restart_interval: 16,
            compression: 1,
            filter_bits_per_key: 10,
        },
    }
}

fn report() -> Report {
    Report {
        id: job().id,
        attempt: 2,
        outcome: Outcome::Done(vec![table(1, Some(facts()))]),
        counters: Counters {
            entries_in: 1010,
            entries_out: 1000,
            shadowed: 7,
            dead_deletions: 1,
            hidden: 2,
            elapsed_us: 1234,
        },
    }
}

#[test]
fn a_job_and_a_report_travel() {
    assert_eq!(Job::decode(&job().encode()), Ok(job()));
    assert_eq!(Report::decode(&report().encode()), Ok(report()));
    let failed = Report {
        outcome: Outcome::Failed(Failure::Space, "the disk is full".into()),
        ..report()
    };
    assert_eq!(Report::decode(&failed.encode()), Ok(failed));
    assert!(report().counters.add_up());
}

/// Messages of the first version, and of one to come that has more fields everywhere. All of them were written by another
/// program, from the page about their bytes.
#[test]
fn recorded_messages_of_all_versions_are_read() {
    let first: (&[u8], &[u8]) = (
        include_bytes!("testdata/job-1"),
        include_bytes!("testdata/report-1"),
    );
    assert_eq!(Job::decode(first.0), Ok(job()));
    assert_eq!(Report::decode(first.1), Ok(report()));
    assert_eq!(job().encode(), written_now(first.0));
    assert_eq!(report().encode(), written_now(first.1));
    assert_eq!(
        VERSION, 2,
        "record the messages of a new version beside these"
    );
    let second = include_bytes!("testdata/job-2");
    assert_eq!(Job::decode(second), Ok(part()));
    assert_eq!(part().encode(), second);
    assert_eq!(Job::decode(include_bytes!("testdata/job-later")), Ok(job()));
    let mut later = Report::decode(include_bytes!("testdata/report-later")).unwrap();
    assert_eq!(later.counters.elapsed_us, 0, "no number there");
    later.counters.elapsed_us = report().counters.elapsed_us;
    assert_eq!(later, report());
}

/// The job of the later keys alone.
fn part() -> Job {
    Job {
        from: Some(b"m".to_vec()),
        ..job()
    }
}

/// The message as this version writes it, which added no field to it.
fn written_now(message: &[u8]) -> Vec<u8> {
    altered(message, (READER_MIN, VERSION), &[])
}

/// A message with more fields at its end, and other versions of readers and writer.
fn altered(message: &[u8], (reader_min, writer): (u32, u32), more: &[u8]) -> Vec<u8> {
    let content = &message[..message.len() - CHECKSUM_BYTES];
    let mut out = content[..8].to_vec();
    out.extend_from_slice(&reader_min.to_le_bytes());
    out.extend_from_slice(&writer.to_le_bytes());
    out.extend_from_slice(&content[16..]);
    out.extend_from_slice(more);
    let checksum = mask(crc32c(&out));
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

fn requests() -> [Request; 6] {
    let request = |call| Request {
        id: job().id,
        attempt: 2,
        call,
    };
    [
        request(Call::Begin(Box::new(Begin {
            directory: b"/data/cars".to_vec(),
            job: job(),
            lease_ms: 10_000,
            bytes_max: 1 << 30,
        }))),
        request(Call::Watch(Watch {
            wait_ms: 250,
            known: 0,
        })),
        request(Call::Cancel),
        request(Call::Send(Chunk {
            table: 9,
            offset: 4 << 20,
            bytes: b"bytes of a table".to_vec(),
        })),
        request(Call::Start),
        request(Call::Fetch(Part {
            table: 1,
            offset: 8 << 20,
            length: 4 << 20,
        })),
    ]
}

fn answers() -> [Answer; 5] {
    let answer = |state| Answer {
        id: job().id,
        attempt: 2,
        state,
        finished: None,
    };
    [
        answer(JobState::Waiting),
        answer(JobState::Running(4096)),
        answer(JobState::Over(report())),
        answer(JobState::Receiving),
        answer(JobState::Chunk(b"bytes of a table".to_vec())),
    ]
}

/// A request to watch on that names what is known.
fn watch_on() -> Request {
    let [_, watch, ..] = requests();
    Request {
        call: Call::Watch(Watch {
            wait_ms: 250,
            known: 3,
        }),
        ..watch
    }
}

/// An answer that tells of a table.
fn running_on() -> Answer {
    let [_, running, ..] = answers();
    let finished = Finished {
        tables: vec![table(1, Some(facts()))],
        counters: report().counters,
        rest: b"zz".to_vec(),
    };
    Answer {
        finished: Some(finished),
        ..running
    }
}

#[test]
fn requests_and_answers_travel() {
    for request in requests().into_iter().chain([watch_on()]) {
        assert_eq!(Request::decode(&request.encode()), Ok(request));
    }
    for answer in answers().into_iter().chain([running_on()]) {
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
    }
}

/// The messages of version 1, as they were recorded.
#[test]
fn recorded_requests_and_answers_are_read() {
    let recorded: [&[u8]; 11] = [
        include_bytes!("testdata/begin-1"),
        include_bytes!("testdata/watch-1"),
        include_bytes!("testdata/cancel-1"),
        include_bytes!("testdata/send-1"),
        include_bytes!("testdata/start-1"),
        include_bytes!("testdata/fetch-1"),
        include_bytes!("testdata/waiting-1"),
        include_bytes!("testdata/running-1"),
        include_bytes!("testdata/over-1"),
        include_bytes!("testdata/receiving-1"),
        include_bytes!("testdata/chunk-1"),
    ];
    for (request, recorded) in requests().iter().zip(&recorded[..6]) {
        assert_eq!(Request::decode(recorded).as_ref(), Ok(request));
        if !matches!(request.call, Call::Begin(_)) {
            assert_eq!(request.encode(), written_now(recorded));
        }
    }
    for (answer, recorded) in answers().iter().zip(&recorded[6..]) {
        assert_eq!(Answer::decode(recorded).as_ref(), Ok(answer));
        if !matches!(answer.state, JobState::Over(_)) {
            assert_eq!(answer.encode(), written_now(recorded));
        }
    }
    // They hold another message.
    let [begin, ..] = requests();
    assert_eq!(begin.encode(), include_bytes!("testdata/begin-2"));
    let [_, _, over, ..] = answers();
    assert_eq!(over.encode(), include_bytes!("testdata/over-2"));
    let (watch, running) = (watch_on(), running_on());
    let second: (&[u8], &[u8]) = (
        include_bytes!("testdata/watch-2"),
        include_bytes!("testdata/running-2"),
    );
    assert_eq!(Request::decode(second.0).as_ref(), Ok(&watch));
    assert_eq!(Answer::decode(second.1).as_ref(), Ok(&running));
    assert_eq!((&*watch.encode(), &*running.encode()), second);
}

#[test]
fn an_exchange_is_about_one_job_and_attempt() {
    let [begin, ..] = requests();
    let other = Request {
        attempt: 3,
        ..begin.clone()
    };
    assert!(Request::decode(&other.encode()).is_err());
    let [_, _, over, ..] = answers();
    let other = Answer { attempt: 3, ..over };
    assert!(Answer::decode(&other.encode()).is_err());
    for kind in [0, 9] {
        let mut fields = FieldWriter::default();
        fields.number(3, kind);
        assert!(Request::decode(&seal(REQUEST_MAGIC, fields.finish())).is_err());
        assert!(Answer::decode(&seal(ANSWER_MAGIC, fields.finish())).is_err());
    }
    let mut empty = FieldWriter::default();
    empty.number(3, 1).number(2, 1);
    assert!(Request::decode(&seal(REQUEST_MAGIC, empty.finish())).is_err());
    let mut empty = FieldWriter::default();
    empty.number(3, 3).number(2, 1);
    assert!(Answer::decode(&seal(ANSWER_MAGIC, empty.finish())).is_err());
}

#[test]
fn a_message_has_no_more_of_a_table_than_it_may() {
    let [_, _, _, send, _, fetch] = requests();
    let longer = Chunk {
        bytes: vec![7; CHUNK_BYTES_MAX + 1],
        ..Chunk::default()
    };
    let longer = Call::Send(longer);
    let more = Call::Fetch(Part {
        length: CHUNK_BYTES_MAX as u64 + 1,
        ..Part::default()
    });
    for (request, call) in [(send, longer), (fetch, more)] {
        let wrong = Request { call, ..request };
        assert!(Request::decode(&wrong.encode()).is_err());
    }
    let [.., chunk] = answers();
    let state = JobState::Chunk(vec![7; CHUNK_BYTES_MAX + 1]);
    let wrong = Answer { state, ..chunk };
    assert!(Answer::decode(&wrong.encode()).is_err());
}

#[test]
fn directories_of_jobs_have_names_that_nothing_else_has() {
    let name = job_directory_name(JobId(*b"sixteen bytes id"), 12);
    assert_eq!(name, "compaction-7369787465656e206279746573206964-12");
    assert!(is_job_directory_name(&name));
    for other in [
        "compaction-",
        "compaction-7369787465656e206279746573206964",
        "compaction-7369787465656e206279746573206964-",
        "compaction-7369787465656e206279746573206964-x",
        "compaction-7369787465656e206279746573206964-1/../..",
        "compaction-7369-1",
        "xcompaction-7369787465656e206279746573206964-1",
        "000005.ldb",
    ] {
        assert!(!is_job_directory_name(other), "{other}");
    }
}

#[test]
fn fields_of_later_versions_are_skipped_and_readers_too_old_refuse() {
    let mut more = FieldWriter::default();
    more.bytes(1000, b"of a later version").number(1001, 5);
    let later = altered(&job().encode(), (READER_MIN, VERSION + 5), more.finish());
    assert_eq!(Job::decode(&later), Ok(job()));
    let later = altered(&report().encode(), (READER_MIN, VERSION + 5), more.finish());
    assert_eq!(Report::decode(&later), Ok(report()));
    for message in [job().encode(), report().encode()] {
        let too_new = altered(&message, (VERSION + 1, VERSION + 5), &[]);
        let error = Job::decode(&too_new)
            .err()
            .or(Report::decode(&too_new).err());
        let kind = [Job::decode(&too_new).err(), Report::decode(&too_new).err()];
        assert!(error.is_some());
        assert!(
            kind.iter()
                .flatten()
                .any(|error| matches!(error, FormatError::Unsupported { .. }))
        );
    }
}

/// A reader that skips the bound would merge keys that are merged already.
#[test]
fn a_job_of_a_part_of_the_keys_is_refused_by_readers_of_version_1() {
    let reader_min = |message: &[u8]| message[8..12].to_vec();
    assert_eq!(reader_min(&part().encode()), 2_u32.to_le_bytes());
    assert_eq!(reader_min(&job().encode()), 1_u32.to_le_bytes());
}

#[test]
fn statistics_never_fail_a_report() {
    let mut more = FieldWriter::default();
    more.bytes(11, b"not a number at all");
    let odd = altered(&report().encode(), (READER_MIN, VERSION + 5), more.finish());
    let read = Report::decode(&odd).unwrap();
    assert_eq!(read.outcome, report().outcome);
    assert_eq!(read.counters.entries_in, 1010, "what is verified stays");
}

#[test]
fn an_unknown_failure_may_pass() {
    let mut fields = FieldWriter::default();
    fields.number(3, 200).bytes(4, b"in other words");
    let message = seal(REPORT_MAGIC, fields.finish());
    let Outcome::Failed(failure, reason) = Report::decode(&message).unwrap().outcome else {
        panic!("it failed");
    };
    assert_eq!((failure, &*reason), (Failure::Retryable, "in other words"));
}

#[test]
fn what_is_no_job_is_refused() {
    let empty = Job {
        inputs: Vec::new(),
        ..job()
    };
    assert!(Job::decode(&empty.encode()).is_err());
    let mut shapeless = job();
    shapeless.limits.table_bytes = 0;
    assert!(Job::decode(&shapeless.encode()).is_err());
    let mut short = job();
    short.inputs[0].tables[0].smallest.truncate(7);
    assert!(Job::decode(&short.encode()).is_err());
    assert!(Job::decode(&report().encode()).is_err());
    assert!(Report::decode(&job().encode()).is_err());
    let mut both = FieldWriter::default();
    both.number(3, 1);
    let both = altered(&report().encode(), (READER_MIN, VERSION + 5), both.finish());
    assert!(Report::decode(&both).is_err(), "it failed and has outputs");
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let exchanged = requests().map(|it| it.encode());
    let answers = answers().into_iter().chain([running_on()]);
    for message in exchanged.into_iter().chain(answers.map(|it| it.encode())) {
        for bit in 0..message.len() * 8 {
            let mut flipped = message.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Request::decode(&flipped).is_err() && Answer::decode(&flipped).is_err());
        }
    }
    for message in [job().encode(), part().encode(), report().encode()] {
        for bit in 0..message.len() * 8 {
            let mut flipped = message.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Job::decode(&flipped).is_err() && Report::decode(&flipped).is_err());
        }
        for cut in 0..message.len() {
            let cut = &message[..cut];
            assert!(Job::decode(cut).is_err() && Report::decode(cut).is_err());
        }
    }
}

proptest! {
    #[test]
    fn any_fields_are_read_or_refused(fields in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(job) = Job::decode(&seal(JOB_MAGIC, &fields)) {
            prop_assert_eq!(Job::decode(&job.encode()), Ok(job));
        }
        if let Ok(request) = Request::decode(&seal(REQUEST_MAGIC, &fields)) {
            prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        if let Ok(answer) = Answer::decode(&seal(ANSWER_MAGIC, &fields)) {
            prop_assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
        if let Ok(report) = Report::decode(&seal(REPORT_MAGIC, &fields)) {
            prop_assert_eq!(Report::decode(&report.encode()), Ok(report));
        }
    }
}
