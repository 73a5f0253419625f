//! A copy of a shard among the others, and what is remembered of it.

use super::book::{ShardCopy, Standing};
use super::meter::Meter;
use crate::error::Result;
use crate::shard::{FindStep, Replica, Reply, Request, Told, Turn};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A copy of the shard.
pub(super) struct Member {
    pub(super) node: String,
    pub(super) replica: Arc<dyn Replica>,
    pub(super) meter: Option<Arc<Meter>>,
    pub(super) standing: Mutex<Standing>,
    /// It was compared with the others, and is at the same change.
    is_met: AtomicBool,
    /// Until when it is asked after the others.
    rests_until: Mutex<Duration>,
}

impl Member {
    pub(super) fn new(
        copy: ShardCopy,
        replica: Arc<dyn Replica>,
        meter: Option<Arc<Meter>>,
    ) -> Self {
        Self {
            node: copy.node,
            replica,
            meter,
            standing: Mutex::new(copy.standing),
            is_met: AtomicBool::new(false),
            rests_until: Mutex::default(),
        }
    }

    pub(super) fn standing(&self) -> Standing {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_in_service(&self) -> bool {
        self.standing().is_in_service()
    }

    pub(super) fn set_standing(&self, standing: Standing) {
        *self.standing.lock().unwrap_or_else(PoisonError::into_inner) = standing;
    }

    pub(super) fn is_met(&self) -> bool {
        self.is_met.load(Ordering::SeqCst)
    }

    pub(super) fn set_met(&self, is_met: bool) {
        self.is_met.store(is_met, Ordering::SeqCst);
    }

    pub(super) fn rests_until(&self) -> Duration {
        let until = self.rests_until.lock();
        *until.unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn copy(&self) -> ShardCopy {
        ShardCopy {
            node: self.node.clone(),
            standing: self.standing(),
        }
    }

    /// Has it asked after the others until `until`.
    pub(super) fn rest(&self, until: Duration) {
        let rests = self.rests_until.lock();
        *rests.unwrap_or_else(PoisonError::into_inner) = until;
    }

    /// Takes a step of a query, and measures it.
    pub(super) fn find(&self, step: FindStep) -> Result<Told> {
        let begun = self.meter.as_ref().map(Meter::begin);
        let told = self
            .replica
            .follow(Turn::default(), Request::Find { step })?;
        if let (Some(begun), Ok(Reply::Found { part })) = (begun, &told.reply) {
            begun.end(part.stats);
        }
        Ok(told)
    }
}

/// Does `work` with each of `members`, with those on other machines at once.
pub(super) fn at_once<T: Send>(
    members: &[Arc<Member>],
    work: impl Fn(&Member) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    if let [only] = members {
        return vec![work(only)];
    }
    std::thread::scope(|scope| {
        let work = &work;
        let begun: Vec<_> = members
            .iter()
            .map(|member| {
                let is_remote = member.replica.is_remote();
                is_remote.then(|| scope.spawn(move || work(member)))
            })
            .collect();
        let done = members
            .iter()
            .zip(begun)
            .map(|(member, begun)| match begun {
                None => work(member),
                Some(thread) => match thread.join() {
                    Ok(done) => done,
                    Err(panic) => std::panic::resume_unwind(panic),
                },
            });
        done.collect()
    })
}
