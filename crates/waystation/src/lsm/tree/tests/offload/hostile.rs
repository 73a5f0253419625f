//! A worker that fails, lies or says nothing: the merge runs here, by a counted reason, and the database is sound.

use super::super::{
    History, assert_sound, dir, listed_tables, machine, open_offloading, settle, table_files,
};
use super::{Desk, Near, job_directories, kept, told};
use crate::lsm::compaction::Traffic;
use crate::lsm::compaction::offload::{LinkError, LocalReason, Offload};
use crate::lsm::tree::Tree;
use crate::storage::sim::SimStorage;
use crate::storage::{Area, OpenMode, Storage, Transfer};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::path::Path;
use std::time::Duration;
use waystation_format::compaction::{
    Answer, Call, Failure, JobState, Outcome, Report, Request, Table, job_directory_name,
};
use waystation_format::filename::table_name;

/// A tree that is due for a merge of 500 entries, of which 400 are shadowed.
fn due(storage: &Arc<dyn Storage>, offload: Offload, history: &mut History) -> Tree {
    let tree = open_offloading(storage, offload).unwrap();
    for memtable in 0..6 {
        super::super::work::fill(&tree, history, memtable..300, 3);
    }
    tree
}

/// Has a tree merge with this worker once, then settle; whatever happens, nothing is lost and nothing is left.
fn merge_with(near: impl FnOnce(&Arc<dyn Storage>) -> Near, expected: LocalReason) -> Tree {
    let machine = machine(3);
    machine.stop_clock();
    let storage: Arc<dyn Storage> = machine.clone();
    let mut history = History::default();
    let tree = due(&storage, near(&storage).offload(), &mut history);
    assert!(
        tree.compact_once(&|| history.last, Traffic::Writes)
            .unwrap()
    );
    assert_eq!(kept(&tree, expected), 1, "{expected:?}: {:?}", told(&tree));
    assert_eq!(told(&tree).fall_backs, 1);
    assert_all_is_well(&machine, &tree, &history);
    settle(&tree, history.last);
    assert_all_is_well(&machine, &tree, &history);
    tree
}

#[track_caller]
fn assert_all_is_well(machine: &Arc<SimStorage>, tree: &Tree, history: &History) {
    history.compare(tree, history.last);
    assert_sound(tree);
    assert_eq!(table_files(&**machine), listed_tables(&tree.version()));
    assert!(job_directories(&**machine).is_empty());
}

/// A worker that changes its report, and what lies in the job's directory.
fn liar(
    storage: &Arc<dyn Storage>,
    lie: impl Fn(&Desk, &Path, &mut Report) + Send + Sync + 'static,
) -> Near {
    Near::with(storage, move |desk, request| {
        let mut answer = desk.answer(request);
        if let JobState::Over(report) = &mut answer.state {
            let room = dir().join(job_directory_name(request.id, request.attempt));
            lie(desk, &room, report);
        }
        Ok(answer.encode())
    })
}

fn outputs(report: &mut Report) -> &mut Vec<Table> {
    match &mut report.outcome {
        Outcome::Done(outputs) => outputs,
        Outcome::Failed(_, reason) => panic!("{reason}"),
    }
}

#[test]
fn reports_that_contradict_the_job_are_thrown_away() {
    type Lie = fn(&mut Report);
    let lies: [(&str, Lie); 8] = [
        ("a key called shadowed that is there", |report| {
            report.counters.entries_out -= 1;
            report.counters.shadowed += 1;
        }),
        ("a key dropped", |report| report.counters.entries_out -= 1),
        ("a key that came back", |report| {
            report.counters.shadowed -= 1;
            report.counters.entries_out += 2;
        }),
        ("more read than there is", |report| {
            report.counters.entries_in += 10;
            report.counters.entries_out += 10;
        }),
        ("a key before all", |report| {
            outputs(report)[0].smallest.insert(0, b'!');
        }),
        ("a key behind all", |report| {
            outputs(report).last_mut().unwrap().largest.insert(0, b'~');
        }),
        ("disorder", |report| outputs(report).reverse()),
        ("graves that were not applied", |report| {
            outputs(report)[0].facts.as_mut().unwrap().purged_through = 1_000_000;
        }),
    ];
    for (what, lie) in lies {
        let tree = merge_with(
            |storage| liar(storage, move |_, _, report| lie(report)),
            LocalReason::Contradiction,
        );
        assert_eq!(told(&tree).jobs, 0, "{what}");
    }
}

#[test]
fn tables_that_are_not_what_was_reported_are_thrown_away() {
    type Lie = fn(&Desk, &Path, &mut Report);
    let lies: [(&str, Lie); 7] = [
        ("no such table", |_, _, report| {
            outputs(report)[0].number = 77;
        }),
        ("one table twice", |_, _, report| {
            let number = outputs(report)[0].number;
            outputs(report)[1].number = number;
        }),
        ("another length", |_, _, report| {
            outputs(report)[0].file_bytes -= 1;
        }),
        ("other facts", |_, _, report| {
            outputs(report)[0].facts.as_mut().unwrap().smallest_sequence += 1;
        }),
        ("no facts", |_, _, report| outputs(report)[0].facts = None),
        ("a block with another checksum", |desk, room, report| {
            let path = room.join(table_name(outputs(report)[0].number));
            let file = open_file(desk, &path);
            let mut byte = [0];
            file.read_at(&mut byte, 200).unwrap();
            file.write_at(&[byte[0] ^ 4], 200).unwrap();
        }),
        ("a table of other keys", |desk, room, report| {
            let [first, second] = [0, 1].map(|at| outputs(report)[at].clone());
            let path = |number| room.join(table_name(number));
            let swap = path(1000);
            desk.storage.rename(&path(first.number), &swap).unwrap();
            let (from, to) = (path(second.number), path(first.number));
            desk.storage.rename(&from, &to).unwrap();
            desk.storage.rename(&swap, &path(second.number)).unwrap();
        }),
    ];
    for (what, lie) in lies {
        let tree = merge_with(|storage| liar(storage, lie), LocalReason::Damaged);
        assert_eq!(told(&tree).jobs, 0, "{what}");
    }
}

fn open_file(desk: &Desk, path: &Path) -> Arc<dyn crate::storage::File> {
    let transfer = Transfer::Buffered;
    let opened = desk
        .storage
        .open(path, OpenMode::ReadWrite, transfer, Area::Tables);
    opened.unwrap()
}

#[test]
fn failures_are_counted_by_their_kinds() {
    let kinds = [
        (Failure::Inputs, LocalReason::Inputs),
        (Failure::Unsupported, LocalReason::Unsupported),
        (Failure::Space, LocalReason::Space),
        (Failure::Retryable, LocalReason::Failed),
    ];
    for (failure, reason) in kinds {
        let told_again = Arc::new(AtomicU64::new(0));
        let asked = Arc::clone(&told_again);
        let tree = merge_with(
            |storage| {
                liar(storage, move |_, _, report| {
                    asked.fetch_add(1, Ordering::Relaxed);
                    report.outcome = Outcome::Failed(failure, "for a test".into());
                })
            },
            reason,
        );
        let repeated = u64::from(failure == Failure::Retryable);
        assert_eq!(told(&tree).repeated, repeated, "{failure:?}");
        assert!(told_again.load(Ordering::Relaxed) > repeated);
    }
}

/// A worker that answers `until` requests, and then does as `then` says.
fn after(
    storage: &Arc<dyn Storage>,
    until: u64,
    then: impl Fn(&Desk, &Request) -> Result<Vec<u8>, LinkError> + Send + Sync + 'static,
) -> Near {
    let asked = AtomicU64::new(0);
    Near::with(storage, move |desk, request| {
        if asked.fetch_add(1, Ordering::Relaxed) < until {
            return Ok(desk.answer(request).encode());
        }
        then(desk, request)
    })
}

#[test]
fn a_worker_that_dies_costs_an_attempt_and_no_more() {
    let broken = |_: &Desk, _: &Request| Err(LinkError::Broken("killed".into()));
    for until in 0..2 {
        let near = |storage: &Arc<dyn Storage>| after(storage, until, broken);
        let tree = merge_with(near, LocalReason::Broken);
        assert_eq!(told(&tree).repeated, 1);
    }
    let silent = |_: &Desk, _: &Request| Err(LinkError::Silent(Duration::from_secs(10)));
    for until in 0..2 {
        let tree = merge_with(|storage| after(storage, until, silent), LocalReason::Silent);
        assert_eq!(told(&tree).repeated, 0, "silence has cost a lease already");
    }
}

#[test]
fn answers_that_are_none_are_not_believed() {
    let garbage = |_: &Desk, _: &Request| Ok(b"WSCOMANS and then nothing".to_vec());
    merge_with(|storage| after(storage, 0, garbage), LocalReason::Confused);
    let of_another_attempt = |_: &Desk, request: &Request| {
        let (id, attempt) = (request.id, request.attempt + 1);
        let state = JobState::Running(1);
        Ok(Answer::new((id, attempt), state).encode())
    };
    merge_with(
        |storage| after(storage, 1, of_another_attempt),
        LocalReason::Confused,
    );
}

#[test]
fn a_worker_that_never_ends_is_given_up() {
    let cancelled = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&cancelled);
    let endless = move |_: &Desk, request: &Request| {
        let is_cancel = u64::from(request.call == Call::Cancel);
        seen.fetch_add(is_cancel, Ordering::Relaxed);
        let (id, attempt) = (request.id, request.attempt);
        let state = JobState::Running(request.attempt);
        Ok(Answer::new((id, attempt), state).encode())
    };
    merge_with(|storage| after(storage, 0, endless), LocalReason::Late);
    assert_eq!(cancelled.load(Ordering::Relaxed), 1);
}

#[test]
fn writers_that_wait_for_level_0_do_not_wait_for_the_queue_of_a_worker() {
    let machine = machine(5);
    let storage: Arc<dyn Storage> = machine.clone();
    let mut history = History::default();
    let busy = Near::with(&storage, |_, request| {
        let (id, attempt) = (request.id, request.attempt);
        let state = JobState::Waiting;
        Ok(Answer::new((id, attempt), state).encode())
    });
    let tree = open_offloading(&storage, busy.offload()).unwrap();
    // The first two find a place below level 0.
    for memtable in 0..crate::background::LEVEL0_SLOW as u32 + 2 {
        super::super::work::fill(&tree, &mut history, memtable..300, 3);
    }
    assert!(tree.pressure().level0_tables >= crate::background::LEVEL0_SLOW);
    assert!(
        tree.compact_once(&|| history.last, Traffic::Writes)
            .unwrap()
    );
    assert_eq!(kept(&tree, LocalReason::Pressure), 1, "{:?}", told(&tree));
    assert_all_is_well(&machine, &tree, &history);
}

#[test]
fn after_a_failure_the_worker_is_left_alone_for_a_while() {
    let machine = machine(6);
    machine.stop_clock();
    let storage: Arc<dyn Storage> = machine.clone();
    let mut history = History::default();
    let unreachable = Near::with(&storage, {
        let asked = AtomicU64::new(0);
        move |desk, request| {
            if asked.fetch_add(1, Ordering::Relaxed) == 0 {
                return Err(LinkError::Unreachable("not there yet".into()));
            }
            Ok(desk.answer(request).encode())
        }
    });
    let tree = due(&storage, unreachable.offload(), &mut history);
    assert!(
        tree.compact_once(&|| history.last, Traffic::Writes)
            .unwrap()
    );
    let refill = |history: &mut History| {
        for memtable in 0..6 {
            super::super::work::fill(&tree, history, memtable..300, 3);
        }
        while tree
            .compact_once(&|| history.last, Traffic::Writes)
            .unwrap()
        {}
    };
    refill(&mut history);
    assert_eq!(kept(&tree, LocalReason::Unreachable), 1);
    assert!(kept(&tree, LocalReason::Pause) > 0);
    assert_eq!(told(&tree).jobs, 0);
    machine.sleep(Duration::from_secs(2));
    refill(&mut history);
    assert!(told(&tree).jobs > 0);
    assert_eq!(kept(&tree, LocalReason::Unreachable), 1);
    assert_all_is_well(&machine, &tree, &history);
}

#[test]
fn the_switch_keeps_merges_here() {
    let machine = machine(8);
    let storage: Arc<dyn Storage> = machine.clone();
    let mut history = History::default();
    let offload = Near::honest(&storage).offload();
    let tree = due(&storage, offload.clone(), &mut history);
    offload.set_on(false);
    assert!(
        tree.compact_once(&|| history.last, Traffic::Writes)
            .unwrap()
    );
    assert_eq!(kept(&tree, LocalReason::Off), 1);
    assert_eq!((told(&tree).jobs, told(&tree).fall_backs), (0, 0));
    offload.set_on(true);
    for memtable in 0..6 {
        super::super::work::fill(&tree, &mut history, memtable..300, 3);
    }
    settle(&tree, history.last);
    assert!(told(&tree).jobs > 0);
    assert_all_is_well(&machine, &tree, &history);
}
