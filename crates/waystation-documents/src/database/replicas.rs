//! The copies of a shard: on one node or several, changed in one order, and read wherever they are whole.
//!
//! ```text
//!   change ──► turn (number, sequences) ──► copy on this node    ─┐
//!                                       ├─► copy on drive "one"  ─┼─► the first reply is the answer; a copy that gave
//!                                       └─► copy on drive "two"  ─┘   none, or another one, is stale from here on
//! ```
//!
//! Changes of a shard are made one after the other, by every copy that is in service, and each makes the same of them.
//! A copy that fails, or answers something else, is noted as stale in the [book](super::book) before the change is
//! acknowledged, and is read again once it is filled ([`super::fill`]). While a shard has one copy its changes are not
//! numbered: there is nothing to compare.
//!
//! When a database is opened, and after a change of which no copy answered, the copies that can be reached are compared
//! by their numbers: the one that has come farthest is right, and the others are stale. A copy that comes back is
//! compared before it is read.
//!
//! Invariants: `order` is held while a change goes on; a read sees every change that was acknowledged before it began.

use super::book::{Book, ShardCopy, ShardKey, Standing};
use super::fill::Backlog;
use super::member::{Member, at_once};
use crate::error::{Error, NodeFault, Result};
use crate::shard::{
    Clock, Reply, Request, Scope, ShardAccess, Told, Turn, Turns, ViewRows, ViewSource,
};
use crate::views::{DesignDocument, Limits, ViewQuery};
use crate::wire::encode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use waystation::Durability;
use waystation::storage::{OsStorage, Storage};

/// A copy that could not be reached is asked after the others for so long.
const REST: Duration = Duration::from_secs(5);

/// What changes of the shard need, one after the other.
pub(super) struct Order {
    /// The number of the last change; `None`: the copies are still to be compared.
    pub(super) last: Option<u64>,
    /// What a copy that is being filled has still to follow.
    pub(super) backlog: Option<Backlog>,
}

/// The copies of a shard. See the module.
pub(super) struct Replicas {
    pub(super) shard: ShardKey,
    pub(super) clock: Clock,
    pub(super) book: Book,
    time: Arc<OsStorage>,
    members: RwLock<Vec<Arc<Member>>>,
    order: Mutex<Order>,
    /// The number of the last change that was acknowledged.
    acknowledged: AtomicU64,
    /// Held while indexes are made and dropped.
    pub(super) defining: Mutex<()>,
    /// Held while a copy is filled.
    pub(super) filling: Mutex<()>,
    /// The database is being closed for good.
    pub(super) is_retired: AtomicBool,
}

impl Replicas {
    pub(super) fn new(shard: ShardKey, clock: Clock, book: Book, members: Vec<Member>) -> Self {
        Self {
            shard,
            clock,
            book,
            time: OsStorage::new(),
            members: RwLock::new(members.into_iter().map(Arc::new).collect()),
            order: Mutex::new(Order {
                last: None,
                backlog: None,
            }),
            acknowledged: AtomicU64::new(0),
            defining: Mutex::default(),
            filling: Mutex::default(),
            is_retired: AtomicBool::new(false),
        }
    }

    pub(super) fn members(&self) -> Vec<Arc<Member>> {
        let members = self.members.read();
        members.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_members(&self, members: Vec<Arc<Member>>) {
        *self.members.write().unwrap_or_else(PoisonError::into_inner) = members;
    }

    /// Changes are decided and noted under this: a panic leaves the copies to be compared again.
    pub(super) fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(|poisoned| {
            let mut order = poisoned.into_inner();
            *order = Order {
                last: None,
                backlog: None,
            };
            order
        })
    }

    fn in_service(&self) -> Vec<Arc<Member>> {
        let mut members = self.members();
        members.retain(|member| member.is_in_service());
        members
    }

    /// The copies that may be read, those that rest after the others.
    fn readable(&self) -> Vec<Arc<Member>> {
        let mut members = self.in_service();
        if members.len() > 1 {
            let now = self.time.now();
            members.sort_by_key(|member| member.rests_until() > now);
        }
        members
    }

    /// The node that is asked first.
    pub(super) fn node(&self) -> String {
        let readable = self.readable();
        readable.first().map_or(String::new(), |it| it.node.clone())
    }

    /// Compares the copies, if that is still to be done, and returns the number of the last change.
    pub(super) fn establish(&self, order: &mut Order) -> Result<u64> {
        if let Some(last) = order.last {
            return Ok(last);
        }
        let members = self.in_service();
        let asked = at_once(&members, |member| {
            let told = member.replica.follow(Turn::default(), Request::Info)?;
            told.reply.clone().map(|_| told)
        });
        let mut failure = None;
        let mut told = Vec::new();
        for (member, answer) in members.iter().zip(asked) {
            member.set_met(false);
            match answer {
                Ok(answer) => told.push((member, answer)),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        let farthest = |(_, told): &&(&Arc<Member>, Told)| (told.turns.is_whole(), told.turns.done);
        let Some((right, best)) = told.iter().max_by_key(farthest) else {
            return Err(failure.unwrap_or_else(|| self.nowhere()));
        };
        let last = best.turns.begun;
        if !best.turns.is_whole() {
            // No copy has ended this change: what this one has of it is what it is.
            let request = Request::SetTurn { number: last };
            right.replica.follow(Turn::default(), request)?.reply?;
        }
        for (member, told) in &told {
            self.clock.pass(told.latest);
            if Arc::ptr_eq(member, right) || told.turns == Turns::at(last) {
                member.set_met(true);
            } else {
                self.demote(member)?;
            }
        }
        self.acknowledged.store(last, Ordering::SeqCst);
        order.last = Some(last);
        Ok(last)
    }

    /// Compares `member`, which could not be reached before, with what was acknowledged.
    fn meet(&self, member: &Arc<Member>) -> Result<()> {
        let mut order = self.order();
        let last = self.establish(&mut order)?;
        if member.is_met() {
            return Ok(());
        }
        let told = member.replica.follow(Turn::default(), Request::Info)?;
        if told.turns == Turns::at(last) {
            member.set_met(true);
            return Ok(());
        }
        self.demote(member)?;
        Err(missed(&member.node))
    }

    /// Notes that `member` is not to be read before it is filled. The caller knows of a copy that is right.
    fn demote(&self, member: &Arc<Member>) -> Result<()> {
        log::warn!(
            "the copy of shard {} of the database {} on {} missed a change, and is filled again",
            self.shard.range,
            self.shard.database,
            member.node
        );
        member.set_standing(Standing::Stale);
        member.set_met(false);
        self.save(None)
    }

    /// Writes into the book how the copies stand, and which node may still have one.
    pub(super) fn save(&self, removed: Option<&str>) -> Result<()> {
        let copies: Vec<ShardCopy> = self.members().iter().map(|it| it.copy()).collect();
        self.book.save(&self.shard, &copies, removed)
    }

    /// Makes a change.
    fn change(&self, request: Request) -> Result<Reply> {
        let mut order = self.order();
        let last = self.establish(&mut order)?;
        let members = self.in_service();
        let is_numbered = members.len() > 1;
        let turn = Turn {
            after: self.clock.take(request.sequences()),
            number: if is_numbered { last + 1 } else { 0 },
        };
        if let [only] = members.as_slice()
            && order.backlog.is_none()
        {
            return self.change_alone(only, order, turn, request);
        }
        let outcomes = at_once(&members, |member| {
            member.replica.follow(turn, request.clone())
        });
        let answer = |outcome: &Result<Told>| -> Option<Result<Reply>> {
            let reply = outcome.as_ref().ok()?.reply.clone();
            let is_answer = !matches!(&reply, Err(error) if error.is_of_node());
            is_answer.then_some(reply)
        };
        let Some(right) = outcomes.iter().find_map(answer) else {
            return Err(self.failed(&mut order, outcomes));
        };
        let bytes = encode(&right);
        for (member, outcome) in members.iter().zip(&outcomes) {
            match answer(outcome) {
                Some(reply) if encode(&reply) == bytes => {
                    member.set_met(true);
                    self.clock
                        .pass(outcome.as_ref().map_or(0, |told| told.latest));
                }
                _ => self.demote(member)?,
            }
        }
        if is_numbered {
            order.last = Some(turn.number);
            self.acknowledged.store(turn.number, Ordering::SeqCst);
        }
        if let Some(backlog) = &mut order.backlog {
            backlog.push(turn, &request, &bytes);
        }
        right
    }

    /// Makes a change of the only copy. On this machine it is synced after others may begin, so that syncs are shared.
    fn change_alone(
        &self,
        only: &Member,
        order: MutexGuard<'_, Order>,
        turn: Turn,
        request: Request,
    ) -> Result<Reply> {
        if only.replica.is_remote() {
            let told = only.replica.follow(turn, request)?;
            self.clock.pass(told.latest);
            return told.reply;
        }
        let (request, durability) = request.without_durability();
        let reply = only.replica.follow(turn, request)?.reply?;
        drop(order);
        if durability == Durability::PowerLoss {
            let synced = only.replica.follow(Turn::default(), Request::Sync)?;
            synced.reply?;
        }
        Ok(reply)
    }

    /// What becomes of a change that no copy answered.
    fn failed(&self, order: &mut Order, outcomes: Vec<Result<Told>>) -> Error {
        let mut first = None;
        for outcome in outcomes {
            let error = match outcome.map(|told| told.reply) {
                Err(error) | Ok(Err(error)) => error,
                Ok(Ok(_)) => self.nowhere(),
            };
            let was_sent = !matches!(
                error,
                Error::Node {
                    fault: NodeFault::Down,
                    ..
                }
            );
            if was_sent {
                // It may be done, or half done.
                order.last = None;
                order.backlog = None;
            }
            first.get_or_insert(error);
        }
        first.unwrap_or_else(|| self.nowhere())
    }

    pub(super) fn nowhere(&self) -> Error {
        Error::Node {
            fault: NodeFault::Down,
            reason: format!(
                "no copy of shard {} of the database {} can be read; start the agents of its nodes",
                self.shard.range, self.shard.database
            ),
        }
    }

    /// Has `work` done by a copy that is whole: by another one, if a node fails.
    pub(super) fn read<T>(&self, work: impl Fn(&Member) -> Result<T>) -> Result<T> {
        let members = self.readable();
        if let [only] = members.as_slice() {
            return work(only);
        }
        let mut failure = None;
        for member in &members {
            match self.ready(member).and_then(|()| work(member)) {
                Err(error) if error.is_of_node() => {
                    self.rest(member);
                    failure.get_or_insert(error);
                }
                done => return done,
            }
        }
        Err(failure.unwrap_or_else(|| self.nowhere()))
    }

    /// Makes sure that `member`, one of several, may be read.
    pub(super) fn ready(&self, member: &Arc<Member>) -> Result<()> {
        if member.is_met() {
            return Ok(());
        }
        self.meet(member)
    }

    pub(super) fn rest(&self, member: &Member) {
        member.rest(self.time.now() + REST);
    }

    /// The reply of `member`, which has every change that was acknowledged before.
    pub(super) fn ask_of(&self, member: &Member, request: Request) -> Result<Reply> {
        let acknowledged = self.acknowledged.load(Ordering::SeqCst);
        let told = member.replica.follow(Turn::default(), request)?;
        self.take(member, acknowledged, told)
    }

    /// The reply in `told`, if the copy has the changes up to `acknowledged`.
    pub(super) fn take(&self, member: &Member, acknowledged: u64, told: Told) -> Result<Reply> {
        if told.turns.done < acknowledged && self.in_service().len() > 1 {
            // It lost changes that it had: it is compared before it is asked again.
            member.set_met(false);
            return Err(missed(&member.node));
        }
        if told.reply.is_ok() {
            self.clock.pass(told.latest);
        }
        told.reply
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Has all copies do `request`, which does no more twice than once. A copy that fails is stale.
    fn all(&self, request: &Request) -> Result<Reply> {
        let _defining = match request {
            Request::CreateIndex { .. } | Request::DropIndex { .. } => {
                Some(self.defining.lock().unwrap_or_else(PoisonError::into_inner))
            }
            _ => None,
        };
        let members = self.in_service();
        let outcomes = at_once(&members, |member| {
            let told = member.replica.follow(Turn::default(), request.clone())?;
            told.reply
        });
        if let [_] = members.as_slice() {
            return outcomes
                .into_iter()
                .next()
                .unwrap_or_else(|| Err(self.nowhere()));
        }
        let is_answer =
            |outcome: &&Result<Reply>| !matches!(outcome, Err(error) if error.is_of_node());
        let Some(right) = outcomes.iter().find(is_answer).cloned() else {
            return outcomes
                .into_iter()
                .next()
                .unwrap_or_else(|| Err(self.nowhere()));
        };
        let _order = self.order();
        for (member, outcome) in members.iter().zip(&outcomes) {
            if !is_answer(&outcome) && member.is_in_service() {
                self.demote(member)?;
            }
        }
        right
    }

    /// The copies that a step of a query may go to, the one that is likely to end first before the others.
    pub(super) fn by_speed(&self) -> Vec<Arc<Member>> {
        let mut members = self.readable();
        if members.len() > 1 {
            let now = self.time.now();
            let cost = |member: &Arc<Member>| {
                let cost = member.meter.as_ref().map_or(0.0, |meter| meter.cost());
                (member.rests_until() > now, cost)
            };
            members.sort_by(|one, other| {
                let (one, other) = (cost(one), cost(other));
                one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
            });
        }
        members
    }

    /// Has the copy on `source` leave for the one of `target`, which is to be filled. A copy that is stale has nothing
    /// that the others lack: it goes at once.
    pub(super) fn begin_move(&self, source: &str, target: Member) -> Result<()> {
        let _order = self.order();
        let before = self.members();
        let mut members = before.clone();
        members.push(Arc::new(target));
        let is_stale = |member: &Arc<Member>| member.standing() == Standing::Stale;
        let gone = before.iter().find(|it| it.node == source && is_stale(it));
        members.retain(|member| gone.is_none_or(|gone| !Arc::ptr_eq(gone, member)));
        self.set_members(members);
        let leaving = before.iter().find(|it| it.node == source && !is_stale(it));
        if let Some(leaving) = leaving {
            leaving.set_standing(Standing::Leaving);
        }
        self.save(gone.map(|_| source)).inspect_err(|_| {
            self.set_members(before.clone());
            if let Some(leaving) = leaving {
                leaving.set_standing(Standing::Whole);
            }
        })
    }

    /// Has the copy on `target`, which was to leave, stay, and that on `source` leave.
    pub(super) fn turn_back(&self, source: &str, target: &str) -> Result<()> {
        let _order = self.order();
        for member in self.in_service() {
            if member.node == source {
                member.set_standing(Standing::Leaving);
            } else if member.node == target {
                member.set_standing(Standing::Whole);
            }
        }
        self.save(None)
    }

    /// About how many bytes a copy has.
    pub(super) fn active_bytes(&self) -> Result<u64> {
        match self.ask(Request::Sizes)? {
            Reply::Sizes { active_bytes, .. } => Ok(active_bytes),
            _ => Err(self.nowhere()),
        }
    }

    /// Removes the copy on `node` from service, if another one that is whole stays. Returns whether it did.
    pub(super) fn remove(&self, node: &str) -> Result<bool> {
        let mut order = self.order();
        self.establish(&mut order)?;
        let before = self.members();
        let stays = |member: &&Arc<Member>| {
            let is_met = member.is_met();
            member.node != node && member.standing() == Standing::Whole && is_met
        };
        if !before.iter().any(|member| stays(&member)) {
            return Ok(false);
        }
        let mut members = before.clone();
        members.retain(|member| member.node != node);
        self.set_members(members);
        self.save(Some(node))
            .inspect_err(|_| self.set_members(before))?;
        Ok(true)
    }
}

fn missed(node: &str) -> Error {
    Error::Node {
        fault: NodeFault::Refused,
        reason: format!(
            "the copy on node {node} lacks changes; it is filled again from another copy"
        ),
    }
}

impl ShardAccess for Replicas {
    fn ask(&self, request: Request) -> Result<Reply> {
        match request.scope() {
            Scope::Ordered => self.change(request),
            Scope::All => self.all(&request),
            Scope::Any => self.read(|member| self.ask_of(member, request.clone())),
        }
    }
}

impl ViewSource for Replicas {
    fn view_rows(
        &self,
        design: &DesignDocument,
        name: &str,
        query: &ViewQuery,
        limits: Limits,
    ) -> Result<ViewRows> {
        let is_alone = self.in_service().len() < 2;
        self.read(|member| {
            // Rows do not say how far the copy has come.
            if !is_alone {
                self.ask_of(member, Request::Info)?;
            }
            member.replica.view_rows(design, name, query, limits)
        })
    }

    fn is_remote(&self) -> bool {
        let readable = self.readable();
        readable.iter().any(|member| member.replica.is_remote())
    }
}
