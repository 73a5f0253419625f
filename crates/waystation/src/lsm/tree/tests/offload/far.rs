//! A worker that does not see the directory: it is sent the tables, and gives its own back.

use super::super::{History, assert_sound, dir, listed_tables, machine, open_offloading, settle};
use super::super::{table_files, work};
use super::{Desk, Near, job_directories, kept, told};
use crate::lsm::compaction::Traffic;
use crate::lsm::compaction::offload::{LinkError, LocalReason, OffloadStats, RemoteExecutor};
use crate::lsm::tree::conformance;
use crate::storage::{Area, OpenMode, Storage, Transfer, read_whole};
use crate::sync::{Arc, Mutex, lock};
use std::collections::BTreeMap;
use std::path::PathBuf;
use waystation_format::compaction::{
    Answer, Begin, Call, Chunk, Counters, Failure, JobState, Outcome, Part, Report, Request,
    job_directory_name,
};
use waystation_format::filename::table_name;

/// A machine of its own, and the jobs whose tables are being sent to it.
struct Far {
    sent: Mutex<BTreeMap<u64, Begin>>,
}

fn room(request: &Request) -> PathBuf {
    dir().join(job_directory_name(request.id, request.attempt))
}

fn ended(request: &Request, failure: Failure) -> JobState {
    JobState::Over(Report {
        id: request.id,
        attempt: request.attempt,
        outcome: Outcome::Failed(failure, "for a test".into()),
        counters: Counters::default(),
    })
}

impl Far {
    fn answer(&self, desk: &Desk, request: &Request) -> Answer {
        let mut sent = lock(&self.sent);
        let state = match &request.call {
            Call::Begin(begin) if begin.directory.is_empty() => {
                desk.storage.create_dir(&room(request)).unwrap();
                sent.insert(request.attempt, (**begin).clone());
                JobState::Receiving
            }
            Call::Begin(_) => ended(request, Failure::Unseen),
            Call::Send(chunk) => {
                take(desk, chunk);
                JobState::Receiving
            }
            Call::Start => {
                let begin = sent.remove(&request.attempt).unwrap();
                let directory = dir().into_os_string().into_encoded_bytes();
                let call = Call::Begin(Box::new(Begin { directory, ..begin }));
                let (id, attempt) = (request.id, request.attempt);
                return desk.answer(&Request { id, attempt, call });
            }
            Call::Fetch(part) => give(desk, request, *part),
            Call::Cancel if sent.remove(&request.attempt).is_some() => {
                ended(request, Failure::Cancelled)
            }
            Call::Watch(_) | Call::Cancel => return desk.answer(request),
        };
        Answer::new((request.id, request.attempt), state)
    }
}

fn take(desk: &Desk, chunk: &Chunk) {
    let mode = match chunk.offset {
        0 => OpenMode::Create,
        _ => OpenMode::ReadWrite,
    };
    let path = dir().join(table_name(chunk.table));
    let file = desk
        .storage
        .open(&path, mode, Transfer::Buffered, Area::Tables);
    file.unwrap().write_at(&chunk.bytes, chunk.offset).unwrap();
}

fn give(desk: &Desk, request: &Request, part: Part) -> JobState {
    let path = room(request).join(table_name(part.table));
    let bytes = read_whole(&*desk.storage, &path).unwrap();
    let end = part.offset + part.length;
    JobState::Chunk(bytes[part.offset as usize..end as usize].to_vec())
}

/// A worker on a machine of its own.
fn honest() -> Near {
    lying(|_, _| Ok(()))
}

/// One that answers something else: `lie` changes its answers.
fn lying(
    lie: impl Fn(&Request, &mut JobState) -> Result<(), LinkError> + Send + Sync + 'static,
) -> Near {
    let elsewhere: Arc<dyn Storage> = machine(99);
    let far = Far {
        sent: Mutex::default(),
    };
    Near::with(&elsewhere, move |desk, request| {
        let mut answer = far.answer(desk, request);
        lie(request, &mut answer.state)?;
        Ok(answer.encode())
    })
}

#[test]
fn a_worker_that_is_sent_the_tables_conforms() {
    conformance::check("far worker", &|_| {
        Box::new(RemoteExecutor::new(honest().offload(), &dir()))
    });
}

/// Has a tree merge once with the worker `near`, then settle; nothing is lost and nothing is left.
fn merge_with(near: Near, expected: Option<LocalReason>) -> OffloadStats {
    let machine = machine(3);
    machine.stop_clock();
    let storage: Arc<dyn Storage> = machine.clone();
    let mut history = History::default();
    let tree = open_offloading(&storage, near.offload()).unwrap();
    for memtable in 0..6 {
        work::fill(&tree, &mut history, memtable..300, 3);
    }
    assert!(
        tree.compact_once(&|| history.last, Traffic::Writes)
            .unwrap()
    );
    let stats = told(&tree);
    if let Some(reason) = expected {
        assert_eq!(kept(&tree, reason), 1, "{reason:?}: {stats:?}");
    }
    settle(&tree, history.last);
    history.compare(&tree, history.last);
    assert_sound(&tree);
    assert_eq!(table_files(&*machine), listed_tables(&tree.version()));
    assert!(job_directories(&*machine).is_empty());
    stats
}

#[test]
fn what_travels_is_counted() {
    let stats = merge_with(honest(), None);
    assert_eq!((stats.jobs, stats.local_jobs, stats.repeated), (1, 0, 0));
    assert_eq!(stats.sent_bytes, stats.read_bytes);
    assert_eq!(stats.fetched_bytes, stats.written_bytes);
}

type Lie = fn(&Request, &mut JobState) -> Result<(), LinkError>;

/// A merge with each of these liars runs here, for the reason beside it.
fn check_lies(lies: &[(LocalReason, Lie)]) {
    for &(reason, lie) in lies {
        let stats = merge_with(lying(lie), Some(reason));
        assert_eq!((stats.jobs, stats.fetched_bytes), (0, 0), "{reason:?}");
        let repeated = u64::from(reason == LocalReason::Broken);
        assert_eq!(stats.repeated, repeated, "{reason:?}");
    }
}

#[test]
fn a_worker_that_lies_while_it_is_sent_tables_is_not_believed() {
    check_lies(&[
        (LocalReason::Unsupported, |request, state| {
            if let Call::Begin(_) = request.call {
                *state = ended(request, Failure::Unseen);
            }
            Ok(())
        }),
        (LocalReason::Confused, |request, state| {
            if let Call::Begin(_) = request.call {
                *state = JobState::Chunk(vec![1]);
            }
            Ok(())
        }),
        (LocalReason::Space, |request, state| {
            if let Call::Send(_) = request.call {
                *state = ended(request, Failure::Space);
            }
            Ok(())
        }),
        (LocalReason::Confused, |request, state| {
            if let Call::Send(_) = request.call {
                *state = JobState::Over(Report {
                    id: request.id,
                    attempt: request.attempt,
                    ..Report::default()
                });
            }
            Ok(())
        }),
        (LocalReason::Confused, |request, state| {
            if let Call::Start = request.call {
                *state = JobState::Receiving;
            }
            Ok(())
        }),
    ]);
}

#[test]
fn a_worker_that_lies_about_its_tables_is_not_believed() {
    check_lies(&[
        (LocalReason::Contradiction, |_, state| {
            if let JobState::Over(report) = state
                && let Outcome::Done(outputs) = &mut report.outcome
            {
                outputs[0].file_bytes = u64::MAX / 2;
            }
            Ok(())
        }),
        (LocalReason::Confused, |request, state| {
            if let Call::Fetch(_) = request.call {
                *state = JobState::Waiting;
            }
            Ok(())
        }),
        (LocalReason::Confused, |_, state| {
            if let JobState::Chunk(bytes) = state {
                bytes.pop();
            }
            Ok(())
        }),
        (LocalReason::Damaged, |_, state| {
            if let JobState::Chunk(bytes) = state {
                bytes.fill(0);
            }
            Ok(())
        }),
        (LocalReason::Broken, |request, _| match request.call {
            Call::Fetch(_) => Err(LinkError::Broken("for a test".into())),
            _ => Ok(()),
        }),
    ]);
}
