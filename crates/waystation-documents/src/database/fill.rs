//! Filling a copy: a snapshot of one that is whole, then the changes since, then a moment in which nothing changes.
//!
//! ```text
//!   order held     the snapshot begins, and the backlog with it
//!   page by page   a digest of the same keys on both sides; entries travel only where they differ
//!   order free     the copy follows the backlog, which grows meanwhile
//!   order held     the rest of the backlog, a sync, the book: the copy is whole
//! ```
//!
//! The same way makes a new copy, moves a shard, and refills a copy that missed changes or whose filling was cut off:
//! what it has already does not travel again. Until the book says that the copy is whole nothing reads it, so a crash at
//! any moment leaves it stale, and costs the filling alone.

use super::book::Standing;
use super::member::Member;
use super::replicas::{Order, Replicas};
use crate::error::{Error, NodeFault, Result};
use crate::shard::{CopySource, Reply, Request, Turn, Turns};
use crate::wire::{decode, encode, wire_struct};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// The order is held for the last changes once they are so few bytes.
const LAST_BYTES: u64 = 1 << 20;
/// The order is held all the same once the copy has followed so many times what it had to follow at first.
const ROUNDS_MAX: u64 = 20;

/// A change that a copy has still to follow, and the reply that it has to give.
struct Change {
    turn: Turn,
    request: Request,
    reply: Vec<u8>,
}

wire_struct! { Change { turn, request, reply } }

/// Changes since a snapshot, in a file without a name: it is gone with the process.
pub(super) struct Backlog {
    file: File,
    written: u64,
    read: u64,
    /// What could not be written: the copy has to begin anew.
    failure: Option<Error>,
    path: PathBuf,
}

impl Backlog {
    fn new(directory: &Path, range: &str) -> Result<Self> {
        let path = directory.join(format!("backlog-{range}"));
        let refused = |error: std::io::Error| Error::file("create", &path, &error);
        std::fs::create_dir_all(directory).map_err(refused)?;
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .map_err(refused)?;
        std::fs::remove_file(&path).map_err(refused)?;
        Ok(Self {
            file,
            written: 0,
            read: 0,
            failure: None,
            path,
        })
    }

    /// Adds a change with its reply.
    pub(super) fn push(&mut self, turn: Turn, request: &Request, reply: &[u8]) {
        let change = encode(&Change {
            turn,
            request: request.clone(),
            reply: reply.to_vec(),
        });
        let length = (change.len() as u64).to_le_bytes();
        let written = self
            .file
            .write_all_at(&[&length[..], &change].concat(), self.written);
        match written {
            Ok(()) => self.written += length.len() as u64 + change.len() as u64,
            Err(error) => {
                self.failure = Some(Error::file("write", &self.path, &error));
            }
        }
    }

    fn left(&self) -> u64 {
        self.written - self.read
    }

    /// The next change; `None`: there is none.
    fn next(&mut self) -> Result<Option<Change>> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if self.left() == 0 {
            return Ok(None);
        }
        let refused = |error: std::io::Error| Error::file("read", &self.path, &error);
        let mut length = [0; 8];
        self.file
            .read_exact_at(&mut length, self.read)
            .map_err(refused)?;
        let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length];
        let begin = self.read + 8;
        self.file
            .read_exact_at(&mut bytes, begin)
            .map_err(refused)?;
        self.read = begin + length as u64;
        let change = decode(&bytes);
        change
            .map(Some)
            .map_err(|error| Error::damaged("a backlog", &error))
    }
}

impl Order {
    /// Bytes of the changes that a copy has still to follow.
    fn left(&self) -> u64 {
        self.backlog.as_ref().map_or(0, Backlog::left)
    }

    fn next_change(&mut self) -> Result<Option<Change>> {
        match &mut self.backlog {
            Some(backlog) => backlog.next(),
            None => Err(Error::Node {
                fault: NodeFault::Failed,
                reason: "a change failed while a copy was filled; it is filled again".to_owned(),
            }),
        }
    }
}

/// Asks `member` for something that belongs to filling it.
fn ask(member: &Member, request: Request) -> Result<Reply> {
    member.replica.follow(Turn::default(), request)?.reply
}

impl Replicas {
    /// Fills `target` from a copy that is whole. `go_on` is told the bytes of each page, sent or not, and whether they
    /// travelled; it may wait, and says whether to go on. Returns whether the copy is whole.
    ///
    /// # Errors
    /// What a node or a file fails of: the copy is as stale as it was.
    pub(super) fn fill(
        &self,
        target: &Arc<Member>,
        directory: &Path,
        go_on: &dyn Fn(u64, bool) -> bool,
    ) -> Result<bool> {
        let _filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let filled = self.try_to_fill(target, directory, go_on);
        if !matches!(filled, Ok(true)) {
            self.order().backlog = None;
        }
        filled
    }

    fn try_to_fill(
        &self,
        target: &Arc<Member>,
        directory: &Path,
        go_on: &dyn Fn(u64, bool) -> bool,
    ) -> Result<bool> {
        let mut copy = self.begin_copy(directory)?;
        loop {
            let page = copy.next_page()?;
            let span = page.span.clone();
            let digest = ask(target, Request::Digest { span: span.clone() })?;
            let differs = !matches!(digest, Reply::Bytes { bytes } if bytes == page.digest);
            if differs {
                let entries = copy.entries()?;
                ask(
                    target,
                    Request::Fill {
                        span: span.clone(),
                        entries,
                    },
                )?;
            }
            if !go_on(page.bytes, differs) || self.is_retired.load(Ordering::SeqCst) {
                return Ok(false);
            }
            if span.end.is_none() {
                break;
            }
        }
        drop(copy);
        ask(target, Request::Reload)?;
        let _defining = self.defining.lock().unwrap_or_else(PoisonError::into_inner);
        self.copy_definitions(target)?;
        self.follow_up(target)?;
        Ok(true)
    }

    /// Begins a copy of what stands now, and to keep the changes since.
    fn begin_copy(&self, directory: &Path) -> Result<Box<dyn CopySource>> {
        let mut order = self.order();
        self.establish(&mut order)?;
        let mut failure = None;
        for source in self.by_speed().iter().filter(|it| it.is_met()) {
            match source.replica.begin_copy() {
                Ok(copy) => {
                    order.backlog = Some(Backlog::new(directory, &self.shard.range)?);
                    return Ok(copy);
                }
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        Err(failure.unwrap_or_else(|| self.nowhere()))
    }

    /// Makes the indexes of `target` those of the other copies.
    fn copy_definitions(&self, target: &Member) -> Result<()> {
        let definitions = |reply: Reply| match reply {
            Reply::Indexes { definitions } => Ok(definitions),
            _ => Err(self.unlike(&target.node)),
        };
        let wanted = self.read(|member| self.ask_of(member, Request::IndexDefinitions))?;
        let wanted = definitions(wanted)?;
        for known in definitions(ask(target, Request::IndexDefinitions)?)? {
            if !wanted.contains(&known) {
                ask(target, Request::DropIndex { name: known.name })?;
            }
        }
        for definition in wanted {
            ask(target, Request::CreateIndex { definition })?;
        }
        Ok(())
    }

    /// Has `target` follow the changes since the snapshot, and puts it into service.
    fn follow_up(&self, target: &Arc<Member>) -> Result<()> {
        let begun = self.order().left();
        let mut followed = 0;
        // A writer that is faster than the copy is held up at last.
        while followed <= ROUNDS_MAX * begun.max(LAST_BYTES) {
            let (change, left) = {
                let mut order = self.order();
                let before = order.left();
                (order.next_change()?, before)
            };
            let Some(change) = change else { break };
            followed += left.saturating_sub(self.order().left()).max(1);
            self.follow_change(target, change)?;
            if left <= LAST_BYTES {
                break;
            }
        }
        let mut order = self.order();
        while let Some(change) = order.next_change()? {
            self.follow_change(target, change)?;
        }
        ask(target, Request::Sync)?;
        let last = self.establish(&mut order)?;
        let told = target.replica.follow(Turn::default(), Request::Info)?;
        if told.turns != Turns::at(last) {
            return Err(self.unlike(&target.node));
        }
        target.set_standing(Standing::Whole);
        if let Err(error) = self.save(None) {
            target.set_standing(Standing::Stale);
            return Err(error);
        }
        target.set_met(true);
        order.backlog = None;
        Ok(())
    }

    fn follow_change(&self, target: &Member, change: Change) -> Result<()> {
        let told = target.replica.follow(change.turn, change.request)?;
        if encode(&told.reply) == change.reply {
            return Ok(());
        }
        Err(self.unlike(&target.node))
    }

    fn unlike(&self, node: &str) -> Error {
        Error::Node {
            fault: NodeFault::Lying,
            reason: format!(
                "the copy of shard {} of the database {} on node {node} does not follow the others; check its version, it is filled again",
                self.shard.range, self.shard.database
            ),
        }
    }
}
