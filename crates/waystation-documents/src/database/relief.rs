//! Relief of stragglers: where a shard has copies on several nodes, a query's steps go to the one that is likely to end
//! first, and a step that takes much longer than its node usually does is taken by another copy as well. The first
//! answer counts.
//!
//! A step changes nothing, so that taking it twice costs time and nothing else. What a slow node still does is waited
//! for by a thread that holds nothing of this machine's shards. Listings, and the question into which pieces a
//! shard is divided, with which queries begin, are asked in the same way.

use super::member::Member;
use super::replicas::Replicas;
use crate::error::{Error, NodeFault, Result};
use crate::shard::{FindPart, FindStep, Reply, Request, Told, Turn};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// A step may always take this long before it is taken elsewhere as well.
const PATIENCE_MIN: Duration = Duration::from_millis(100);
/// A step may take so many times as long as usual.
const USUAL: f64 = 4.0;

impl Replicas {
    /// Takes a step of a query.
    pub(super) fn find(&self, step: FindStep) -> Result<FindPart> {
        let documents = step.examined_max;
        let reply = self.first(documents, move |member| member.find(step.clone()))?;
        match reply {
            Reply::Found { part } => Ok(part),
            _ => Err(Error::Node {
                fault: NodeFault::Lying,
                reason: "a node answered a step of a query with something else; check its version, and restart it".to_owned(),
            }),
        }
    }

    /// Asks a question with which queries begin: into which pieces the shard is divided, which design documents it has.
    pub(super) fn ask_fastest(&self, request: Request) -> Result<Reply> {
        self.first(0, move |member| {
            member.replica.follow(Turn::default(), request.clone())
        })
    }

    /// The first answer of a copy that is asked what `ask` says, which goes through so many `documents`.
    fn first(&self, documents: u64, ask: impl Ask) -> Result<Reply> {
        let members = self.by_speed();
        if let [only] = members.as_slice() {
            let acknowledged = self.acknowledged();
            let told = ask(only)?;
            return self.take(only, acknowledged, told);
        }
        let (sender, receiver) = channel();
        let (mut failure, mut waiting) = (None, 0);
        let mut members = members.into_iter();
        loop {
            let Some(member) = members.next() else {
                if waiting == 0 {
                    return Err(failure.unwrap_or_else(|| self.nowhere()));
                }
                // Every copy is at it: the first that ends.
                if let Ok(answer) = receiver.recv() {
                    waiting -= 1;
                    match self.judge(answer) {
                        Err(error) if error.is_of_node() => {
                            failure.get_or_insert(error);
                        }
                        done => return done,
                    }
                }
                continue;
            };
            if let Err(error) = self.ready(&member) {
                self.rest(&member);
                failure.get_or_insert(error);
                continue;
            }
            let patience = patience(&member, documents);
            if let Err(error) = self.send_off(member, ask.clone(), sender.clone()) {
                failure.get_or_insert(error);
                continue;
            }
            waiting += 1;
            match receiver.recv_timeout(patience) {
                Ok(answer) => {
                    waiting -= 1;
                    match self.judge(answer) {
                        Err(error) if error.is_of_node() => {
                            failure.get_or_insert(error);
                        }
                        done => return done,
                    }
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    /// Asks `member`: here, or beside this thread if it is on another machine.
    fn send_off(&self, member: Arc<Member>, ask: impl Ask, sender: Sender<Answer>) -> Result<()> {
        let acknowledged = self.acknowledged();
        if !member.replica.is_remote() {
            let told = ask(&member);
            // The receiver waits in this function's caller.
            let _ = sender.send((member, acknowledged, told));
            return Ok(());
        }
        let thread = std::thread::Builder::new().name("waystation-step".to_owned());
        let started = thread.spawn(move || {
            let told = ask(&member);
            // Another copy may have been faster.
            let _ = sender.send((member, acknowledged, told));
        });
        started.map(drop).map_err(|error| Error::File {
            operation: "start a thread for",
            path: "a query".into(),
            reason: error.to_string(),
        })
    }

    fn judge(&self, (member, acknowledged, told): Answer) -> Result<Reply> {
        let reply = told.and_then(|told| self.take(&member, acknowledged, told));
        if matches!(&reply, Err(error) if error.is_of_node()) {
            self.rest(&member);
        }
        reply
    }
}

/// What a copy is asked, as often as there are copies.
trait Ask: Fn(&Member) -> Result<Told> + Clone + Send + 'static {}
impl<T: Fn(&Member) -> Result<Told> + Clone + Send + 'static> Ask for T {}

/// A copy, what was acknowledged before it was asked, and its answer.
type Answer = (Arc<Member>, u64, Result<Told>);

/// How long `member` may take for a step of so many `documents`.
fn patience(member: &Member, documents: u64) -> Duration {
    let speed = member.meter.as_ref().and_then(|meter| meter.speed());
    let usual = speed.map_or(0.0, |(documents_per_second, _)| {
        documents as f64 / documents_per_second.max(1.0)
    });
    PATIENCE_MIN.max(Duration::from_secs_f64((USUAL * usual).min(60.0)))
}
