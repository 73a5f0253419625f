//! The scheduler with its threads: lanes that do not wait for each other, panics, and threads that cannot be started.

pub(super) mod script;

use super::plan::{Kind, Limits, Next};
use super::scheduler::{Scheduler, spawn};
use super::{Jobs, Member};
use crate::storage::{OsStorage, SimStorage, Storage};
use crate::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Barrier, Mutex};

/// Jobs that tell what runs, and do what the test says.
struct Told {
    tell: Mutex<Sender<Kind>>,
    act: Box<dyn Fn(Kind) -> Next + Send + Sync>,
}

impl Jobs for Told {
    fn run(&self, kind: Kind) -> Next {
        self.tell.lock().unwrap().send(kind).unwrap();
        (self.act)(kind)
    }

    fn panicked(&self, kind: Kind) {
        self.tell.lock().unwrap().send(kind).unwrap();
    }
}

fn told(act: impl Fn(Kind) -> Next + Send + Sync + 'static) -> (Arc<Told>, Receiver<Kind>) {
    let (tell, heard) = channel();
    let jobs = Told {
        tell: Mutex::new(tell),
        act: Box::new(act),
    };
    (Arc::new(jobs), heard)
}

fn all() -> Limits {
    let kinds = Kind::ALL.into_iter();
    kinds.fold(Limits::default(), |limits, kind| limits.with(kind, 1))
}

#[test]
fn a_long_compaction_keeps_no_other_lane_and_no_other_database_waiting() {
    let storage: Arc<dyn Storage> = OsStorage::new();
    let gate = Arc::new(Barrier::new(2));
    let held = Arc::clone(&gate);
    let (busy, heard_busy) = told(move |kind| {
        if kind == Kind::Compact {
            held.wait();
        }
        Next::Idle
    });
    let (other, heard_other) = told(|_| Next::Idle);
    let [busy, other] = [busy as Arc<dyn Jobs>, other].map(|jobs| {
        let member = Member::join(&storage, &all());
        member.start(jobs).unwrap();
        member
    });
    // The compaction that every database begins with does not end before all this was heard.
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Compact) {
        for (member, heard) in [(&busy, &heard_busy), (&other, &heard_other)] {
            member.submit(kind);
            while heard.recv().unwrap() != kind {}
        }
    }
    gate.wait();
    other.leave().unwrap();
    busy.leave().unwrap();
}

#[test]
fn a_job_that_panics_harms_its_own_database_only() {
    let storage: Arc<dyn Storage> = OsStorage::new();
    let (broken, heard_broken) = told(|kind| match kind {
        Kind::Settle => panic!("on purpose"),
        _ => Next::Idle,
    });
    let (sound, heard_sound) = told(|_| Next::Idle);
    let flush_and_settle = Limits::default().with(Kind::Flush, 1).with(Kind::Settle, 1);
    let members = [broken as Arc<dyn Jobs>, sound].map(|jobs| {
        let member = Member::join(&storage, &flush_and_settle);
        member.start(jobs).unwrap();
        member
    });
    // It runs, and then it is told to have panicked.
    let mut settled = 0;
    while settled < 2 {
        settled += usize::from(heard_broken.recv().unwrap() == Kind::Settle);
    }
    let ended = members[0].end(&[Kind::Flush]);
    assert!(ended.is_err_and(|error| error.to_string().contains("panicked")));
    assert!(members[0].leave().is_err());
    for kind in [Kind::Flush, Kind::Settle, Kind::Flush] {
        members[1].submit(kind);
        while heard_sound.recv().unwrap() != kind {}
    }
    members[1].leave().unwrap();
}

/// An open that fails has no thread left in the directory, which another owner may open next.
#[test]
fn when_one_thread_cannot_be_started_the_others_end() {
    let mut starts = 0;
    loop {
        let scheduler = Scheduler::new(SimStorage::new(1));
        let id = scheduler.join(&all());
        let (jobs, _heard) = told(|_| Next::Idle);
        let mut left = starts;
        let started = scheduler.start(id, Arc::clone(&jobs) as _, &mut |name, body| {
            if left == 0 {
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            left -= 1;
            spawn(name, body)
        });
        let is_started = started.is_ok();
        if is_started {
            scheduler.end(id, &Kind::ALL).unwrap();
        }
        let (is_last, threads) = scheduler.leave(id);
        assert!(is_last && threads.len() == starts.min(threads.len()));
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(Arc::strong_count(&jobs), 1, "after {starts}");
        assert_eq!(Arc::strong_count(&scheduler), 1, "after {starts}");
        if is_started {
            return;
        }
        starts += 1;
    }
}

#[test]
fn a_clock_of_its_own_is_let_pass_until_the_deadline() {
    let machine = SimStorage::new(1);
    let storage: Arc<dyn Storage> = machine.clone();
    let (jobs, heard) = told(|_| Next::Idle);
    let member = Member::join(&storage, &Limits::default().with(Kind::Keep, 1));
    member.start(jobs).unwrap();
    assert_eq!(heard.recv().unwrap(), Kind::Keep);
    let at = machine.now() + std::time::Duration::from_secs(60);
    member.by(Kind::Keep, at);
    assert_eq!(heard.recv().unwrap(), Kind::Keep);
    assert!(machine.now() >= at);
    member.leave().unwrap();
}
