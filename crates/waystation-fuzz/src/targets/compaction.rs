//! Messages of a compaction that runs elsewhere: the job, the report of it, and the questions and answers meanwhile.

use waystation_format::checksum::{crc32c, mask};
use waystation_format::compaction::{
    Answer, Begin, Call, Chunk, Counters, Facts, Failure, Finished, Grandparent, Graves,
    InputLevel, Job, JobId, JobState, Layout, Limits, Outcome, Part, Report, Request, Table, Watch,
    is_job_directory_name,
};

/// Messages as they come, then the same bytes as the fields of messages whose checksums fit.
pub(super) fn compaction(bytes: &[u8]) {
    read(bytes);
    for magic in [b"WSCOMJOB", b"WSCOMREP", b"WSCOMREQ", b"WSCOMANS"] {
        let mut message = magic.to_vec();
        message.extend_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
        message.extend_from_slice(bytes);
        let checksum = mask(crc32c(&message));
        message.extend_from_slice(&checksum.to_le_bytes());
        read(&message);
    }
}

/// What is read is written so that it is read alike, and is no longer than a small multiple of its bytes.
fn read(message: &[u8]) {
    if let Ok(job) = Job::decode(message) {
        let tables = job.tables().count();
        assert!(tables > 0 && tables <= message.len());
        assert_eq!(Job::decode(&job.encode()), Ok(job));
    }
    if let Ok(report) = Report::decode(message) {
        assert_eq!(Report::decode(&report.encode()), Ok(report));
    }
    if let Ok(request) = Request::decode(message) {
        assert_eq!(Request::decode(&request.encode()), Ok(request));
    }
    if let Ok(answer) = Answer::decode(message) {
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
    }
    if let Ok(name) = std::str::from_utf8(message)
        && is_job_directory_name(name)
    {
        assert!(!name.contains(['/', '\\', '.', '\0']), "{name}");
    }
}

const FACTS: Facts = Facts {
    smallest_sequence: 1,
    largest_sequence: 9,
    purged_through: 3,
    entries: 100,
    deletions: 2,
};

fn table(number: u64, facts: Option<Facts>) -> Table {
    Table {
        number,
        file_bytes: 4096,
        smallest: b"a\x01\x01\0\0\0\0\0\0".to_vec(),
        largest: b"q\x01\x09\0\0\0\0\0\0".to_vec(),
        facts,
    }
}

fn job() -> Job {
    let level = |level, tables| InputLevel { level, tables };
    Job {
        id: JobId([3; 16]),
        attempt: 1,
        comparator: "leveldb.BytewiseComparator".to_owned(),
        inputs: vec![
            level(0, vec![table(9, Some(FACTS)), table(8, None)]),
            level(1, vec![table(5, Some(FACTS))]),
        ],
        from: None,
        output_level: 1,
        smallest_snapshot: 500,
        deeper: vec![(b"c".to_vec(), b"e".to_vec())],
        graves: Graves {
            checkpoint: b"graves".to_vec(),
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

/// A job, reports, requests and answers, and their fields alone.
pub(super) fn compaction_seeds() -> Vec<Vec<u8>> {
    let job = job();
    let report = |outcome| Report {
        id: job.id,
        attempt: 1,
        outcome,
        counters: Counters {
            entries_in: 110,
            entries_out: 100,
            shadowed: 10,
            ..Counters::default()
        },
    };
    let done = report(Outcome::Done(vec![table(1, Some(FACTS))]));
    let failed = report(Outcome::Failed(
        Failure::Space,
        "the disk is full".to_owned(),
    ));
    let part = Job {
        from: Some(b"m".to_vec()),
        ..job.clone()
    };
    let finished = Finished {
        tables: vec![table(1, Some(FACTS))],
        counters: done.counters,
        rest: b"r".to_vec(),
    };
    let mut seeds = vec![job.encode(), part.encode(), done.encode(), failed.encode()];
    seeds.extend(exchange_seeds(&job, &done, &finished));
    for message in seeds.clone() {
        seeds.push(message[16..message.len() - 4].to_vec());
    }
    seeds
}

/// Requests and answers about `job`.
fn exchange_seeds(job: &Job, done: &Report, finished: &Finished) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    let begin = Call::Begin(Box::new(Begin {
        directory: b"/data/cars".to_vec(),
        job: job.clone(),
        lease_ms: 10_000,
        bytes_max: 1 << 30,
    }));
    let send = Call::Send(Chunk {
        table: 9,
        offset: 4096,
        bytes: b"bytes of a table".to_vec(),
    });
    let fetch = Call::Fetch(Part {
        table: 1,
        offset: 4096,
        length: 4096,
    });
    for call in [
        begin,
        Call::Watch(Watch {
            wait_ms: 250,
            known: 3,
        }),
        Call::Cancel,
        send,
        Call::Start,
        fetch,
    ] {
        let (id, attempt) = (job.id, 1);
        seeds.push(Request { id, attempt, call }.encode());
    }
    for state in [
        JobState::Waiting,
        JobState::Running(4096),
        JobState::Over(done.clone()),
        JobState::Receiving,
        JobState::Chunk(b"bytes of a table".to_vec()),
    ] {
        let (id, attempt) = (job.id, 1);
        let answer = Answer {
            id,
            attempt,
            state,
            finished: Some(finished.clone()),
        };
        seeds.push(answer.encode());
    }
    seeds
}
