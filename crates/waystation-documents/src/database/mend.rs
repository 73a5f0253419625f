//! Mending: what the book of copies says is still to be done, done in rounds.
//!
//! ```text
//!   stale, node there     made if it is missing, and filled
//!   leaving               removed, once no other copy of the shard is stale
//!   left                  its files are removed
//! ```
//!
//! A round takes one thing after the other, so that copying has one pace for all. What fails stays in the book, and is
//! taken up by a later round: after a crash, too.

use super::book::{Left, ShardKey, Standing};
use super::member::Member;
use super::{Catalogue, Database, LOCAL_NODE, ShardPlace};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use waystation::storage::{OsStorage, Storage};

/// A copy that was removed from service may still be read for so long.
const LAST_READERS: Duration = Duration::from_secs(10);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A copy that is being filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FillState {
    /// The name of its database.
    pub database: String,
    /// The name of the shard's range.
    pub range: String,
    /// The node from which the shard moves; `None`: the copy is filled beside the others.
    pub source: Option<String>,
    /// Its node.
    pub target: String,
    /// Bytes that were compared so far.
    pub compared: u64,
    /// Bytes that were copied so far: those that differed.
    pub copied: u64,
    /// About how many bytes there are to compare.
    pub total: u64,
    /// Why it could not be filled the last time.
    pub failure: Option<String>,
}

/// The copies that are being filled.
#[derive(Default)]
pub(super) struct Fills {
    states: Mutex<BTreeMap<(String, String), FillState>>,
    pub(super) is_stopping: AtomicBool,
    /// Held by the round that goes on.
    round: Mutex<()>,
}

impl Fills {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), FillState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn key(shard: &ShardKey, node: &str) -> (String, String) {
        let (database, range) = (&shard.database, &shard.range);
        (format!("{database}{range}"), node.to_owned())
    }

    /// As they stand.
    pub(super) fn states(&self) -> Vec<FillState> {
        self.lock().values().cloned().collect()
    }
}

impl Catalogue {
    /// The copies that are being filled, or wait for it.
    pub fn fills(&self) -> Vec<FillState> {
        self.fills.states()
    }

    /// Has a round of [`Catalogue::mend`] end soon, and later ones do nothing.
    pub fn stop_mending(&self) {
        self.fills.is_stopping.store(true, Ordering::SeqCst);
    }

    /// Does what is still to be done for the copies of shards: a server calls it again and again. Returns whether
    /// anything was done; what a node refuses is tried again by the next round.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`] of the catalogue itself.
    pub fn mend(&self) -> Result<bool> {
        if self.settings.nodes.is_none() {
            return Ok(false);
        }
        let _round = self
            .fills
            .round
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut is_done = self.remove_left_copies()?;
        for name in self.names() {
            let Ok(database) = self.get_quietly(&name) else {
                continue;
            };
            for number in 0..database.shard_count {
                if self.fills.is_stopping.load(Ordering::SeqCst) {
                    return Ok(is_done);
                }
                is_done |= self.mend_shard(&database, number)?;
            }
        }
        Ok(is_done)
    }

    fn mend_shard(&self, database: &Arc<Database>, number: usize) -> Result<bool> {
        let shard = database.shard_key(number);
        let copies = database.copies(number)?;
        let has = |standing| copies.iter().any(|copy| copy.standing == standing);
        let mut is_done = false;
        if has(Standing::Stale) {
            for copy in copies.iter().filter(|it| it.standing == Standing::Stale) {
                let key = Fills::key(&shard, &copy.node);
                let filled = self.fill(database, number, &copy.node);
                let mut states = self.fills.lock();
                match filled {
                    Ok(is_filled) => {
                        states.remove(&key);
                        is_done |= is_filled;
                    }
                    Err(error) => {
                        log::info!("the copy on {} is not filled yet: {error}", copy.node);
                        if let Some(state) = states.get_mut(&key) {
                            state.failure = Some(error.to_string());
                        }
                    }
                }
            }
        }
        let copies = database.copies(number)?;
        let is_stale = copies.iter().any(|copy| copy.standing == Standing::Stale);
        let leaving = copies.iter().filter(|it| it.standing == Standing::Leaving);
        for copy in leaving.filter(|_| !is_stale) {
            match self.remove_copy(database, number, &copy.node) {
                Ok(is_removed) => is_done |= is_removed,
                Err(error) => log::info!("the copy on {} does not leave yet: {error}", copy.node),
            }
        }
        Ok(is_done)
    }

    /// Fills the copy on `node`.
    fn fill(&self, database: &Arc<Database>, number: usize, node: &str) -> Result<bool> {
        let shard = database.shard_key(number);
        let key = Fills::key(&shard, node);
        let leaving = database.copies(number)?.into_iter();
        let mut leaving = leaving.filter(|copy| copy.standing == Standing::Leaving);
        let state = FillState {
            database: database.name.clone(),
            range: shard.range.clone(),
            source: leaving.next().map(|copy| copy.node),
            target: node.to_owned(),
            compared: 0,
            copied: 0,
            total: 0,
            failure: None,
        };
        self.fills.lock().insert(key.clone(), state);
        if node != LOCAL_NODE
            && let Some(nodes) = &self.settings.nodes
        {
            nodes.create(&place(&shard, node))?;
        }
        let (replicas, reading) = database.replicas(number)?;
        let total = replicas.active_bytes()?;
        if let Some(state) = self.fills.lock().get_mut(&key) {
            state.total = total;
        }
        let members = replicas.members();
        let Some(target) = members.iter().find(|member| member.node == node) else {
            return Ok(false);
        };
        let pace = Pace::new(self.settings.copy_bytes_per_second);
        let go_on = |bytes: u64, travelled: bool| {
            if let Some(state) = self.fills.lock().get_mut(&key) {
                state.compared += bytes;
                state.copied += if travelled { bytes } else { 0 };
            }
            pace.pass(if travelled { bytes } else { 0 });
            !self.fills.is_stopping.load(Ordering::SeqCst)
        };
        let filled = replicas.fill(target, &database.directory, &go_on);
        drop(reading);
        filled
    }

    /// Takes the copy on `node` out of service, if the others suffice, and removes its files.
    fn remove_copy(&self, database: &Arc<Database>, number: usize, node: &str) -> Result<bool> {
        let (replicas, reading) = database.replicas(number)?;
        let member = replicas.members().into_iter().find(|it| it.node == node);
        if !replicas.remove(node)? {
            return Ok(false);
        }
        if let Some(member) = member {
            let used: Weak<Member> = Arc::downgrade(&member);
            drop(member);
            let time = OsStorage::new();
            let until = time.now() + LAST_READERS;
            while used.strong_count() > 0 && time.now() < until {
                time.sleep(LOOK);
            }
        }
        drop((replicas, reading));
        self.remove_left_copies()?;
        Ok(true)
    }

    /// Removes the files of copies that are not in the book any more.
    fn remove_left_copies(&self) -> Result<bool> {
        let mut is_done = false;
        for left in self.book.left()? {
            // No copy comes back meanwhile: it would be in the book.
            let _changing = self.change();
            match self.remove_files(&left) {
                Ok(()) => {
                    self.book.note_gone(&left)?;
                    is_done = true;
                }
                Err(error) => {
                    log::info!("a copy stays on {} for now: {error}", left.node);
                }
            }
        }
        Ok(is_done)
    }

    fn remove_files(&self, left: &Left) -> Result<()> {
        let shard = &left.shard;
        let copies = self.book.copies(shard)?.unwrap_or_default();
        if copies.iter().any(|copy| copy.node == left.node) {
            return Ok(());
        }
        if left.node == LOCAL_NODE {
            let directory = self.directory.join("databases").join(&shard.database);
            return super::catalogue::remove_directory(&directory.join(&shard.range));
        }
        match &self.settings.nodes {
            Some(nodes) => nodes.remove_shard(&place(shard, &left.node)),
            None => Err(nodes_unknown(&left.node)),
        }
    }
}

fn nodes_unknown(node: &str) -> Error {
    super::nodes::unknown(node)
}

fn place(shard: &ShardKey, node: &str) -> ShardPlace {
    ShardPlace {
        node: node.to_owned(),
        database: shard.database.clone(),
        range: shard.range.clone(),
    }
}

/// Holds copying to so many bytes a second.
struct Pace {
    time: Arc<OsStorage>,
    bytes_per_second: u64,
    /// When what was copied so far would be due.
    due: Mutex<Duration>,
}

impl Pace {
    fn new(bytes_per_second: u64) -> Self {
        let time = OsStorage::new();
        let due = Mutex::new(time.now());
        Self {
            time,
            bytes_per_second,
            due,
        }
    }

    /// Waits until `bytes` more may be copied.
    fn pass(&self, bytes: u64) {
        let now = self.time.now();
        let due = {
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            let seconds = bytes as f64 / self.bytes_per_second.max(1) as f64;
            *due = now.max(*due) + Duration::from_secs_f64(seconds.min(60.0));
            *due
        };
        if due > now {
            self.time.sleep(due.saturating_sub(now));
        }
    }
}
