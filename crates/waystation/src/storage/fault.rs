//! Faults on demand: calls that fail, stop half way, lie, hit the wrong place, or do not return.
//!
//! Rules sit on the raw calls, below retries and fall-back, over any storage. A test keeps the [`FaultRules`]
//! and changes them while the engine runs. Injected are not only errors but the faults that no error tells:
//! a sync or a write that reports success and does nothing, and a write that lands elsewhere.
//!
//! ```text
//! rules.add(Rule::new(Operation::Sync, Fault::Fail(Refusal::InputOutput)).on(".log").after(2).times(1));
//! ```
//! fails the third sync of a file whose path contains `.log`, once.

use super::raw::{RawFile, RawStorage};
use super::{DirectoryLock, Entry, Metered, OpenMode, Ring};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Short and torn transfers of a direct file end at a multiple of this, as a drive's would.
const DIRECT_UNIT: usize = 4096;

/// A call that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the calls")]
pub enum Operation {
    Open,
    Read,
    Write,
    Sync,
    Preallocate,
    /// [`File::truncate`](super::File::truncate), and the steps of a preallocation that was refused.
    SetLength,
    Size,
    MapRing,
    /// [`Storage::resize_ring`](super::Storage::resize_ring).
    ResizeRing,
    Rename,
    Link,
    Remove,
    CreateDir,
    RemoveDir,
    List,
    SyncDir,
    Lock,
    FreeBytes,
}

/// The error an operating system gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// `EIO`: the device failed.
    InputOutput,
    /// `ENOSPC`: the file system is full.
    NoSpace,
    /// `EDQUOT`: the user's share is used up.
    NoQuota,
    /// `EINVAL`: the usual answer of a file system without direct transfers.
    Invalid,
    /// `EOPNOTSUPP`: the file system cannot do that.
    Unsupported,
    /// `EINTR`: a signal came.
    Interrupted,
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        let errno = match refusal {
            Refusal::InputOutput => Errno::IO,
            Refusal::NoSpace => Errno::NOSPC,
            Refusal::NoQuota => Errno::DQUOT,
            Refusal::Invalid => Errno::INVAL,
            Refusal::Unsupported => Errno::OPNOTSUPP,
            Refusal::Interrupted => Errno::INTR,
        };
        errno.into()
    }
}

/// What happens to a call that a rule catches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done; the call fails.
    Fail(Refusal),
    /// All is done; the call fails nevertheless.
    FailAfter(Refusal),
    /// A write that stops after so many bytes and fails. Other calls fail with nothing done.
    Torn(usize, Refusal),
    /// A read or write that does only so many bytes (at least one) and says so. Other calls are not touched.
    Short(usize),
    /// A write, sync or directory sync that does nothing and reports success. Other calls are not touched.
    Lie,
    /// A write that goes to this offset instead of its own and reports success. Other calls are not touched.
    Misdirect(u64),
    /// All is done; the call returns once its rule is out of force. Meanwhile other threads can get ahead of this one.
    Stall,
}

/// Which calls are caught, and what happens to them.
#[derive(Debug, Clone)]
pub struct Rule {
    operation: Operation,
    fault: Fault,
    path_part: String,
    direct_only: bool,
    halts: bool,
    spared: u64,
    caught_max: u64,
}

impl Rule {
    /// Catches every `operation` from now on, on every path.
    pub const fn new(operation: Operation, fault: Fault) -> Self {
        Self {
            operation,
            fault,
            path_part: String::new(),
            direct_only: false,
            halts: false,
            spared: 0,
            caught_max: u64::MAX,
        }
    }

    /// Only on paths that contain `part` (the source, for calls with two paths).
    #[must_use]
    pub fn on(mut self, part: &str) -> Self {
        part.clone_into(&mut self.path_part);
        self
    }

    /// Only opens for, and transfers of, a file that is direct.
    #[must_use]
    pub const fn direct_only(mut self) -> Self {
        self.direct_only = true;
        self
    }

    /// After the first call that it catches, every later call of any kind fails with `EIO`: as if the machine ended there,
    /// until the rules are cleared.
    #[must_use]
    pub const fn halting(mut self) -> Self {
        self.halts = true;
        self
    }

    /// Lets the first `count` matching calls pass.
    #[must_use]
    pub const fn after(mut self, count: u64) -> Self {
        self.spared = count;
        self
    }

    /// Catches `count` calls and no more.
    #[must_use]
    pub const fn times(mut self, count: u64) -> Self {
        self.caught_max = count;
        self
    }
}

/// Names a rule that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleId(usize);

/// How often a rule matched a call and caught one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuleCount {
    /// Calls that matched, spared ones included.
    pub matched: u64,
    /// Calls that the fault happened to.
    pub caught: u64,
}

#[derive(Debug)]
struct Entered {
    rule: Rule,
    count: RuleCount,
    removed: bool,
}

impl Entered {
    /// Whether the rule is in force and is about this call.
    fn matches(&self, operation: Operation, path: &Path, direct: bool) -> bool {
        let rule = &self.rule;
        !self.removed
            && rule.operation == operation
            && (direct || !rule.direct_only)
            && path.to_string_lossy().contains(&rule.path_part)
    }
}

/// The rules in force. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct FaultRules(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    in_force: Mutex<InForce>,
    /// Rules were taken out of force: stalled calls look again.
    removed: Condvar,
}

#[derive(Debug, Default)]
struct InForce {
    rules: Vec<Entered>,
    halted: bool,
}

impl FaultRules {
    /// No rules: nothing fails.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a rule in force. Of several that catch a call, the oldest decides.
    pub fn add(&self, rule: Rule) -> RuleId {
        let entered = &mut self.in_force().rules;
        entered.push(Entered {
            rule,
            count: RuleCount::default(),
            removed: false,
        });
        RuleId(entered.len() - 1)
    }

    /// Takes a rule out of force; its counts stay.
    pub fn remove(&self, id: RuleId) {
        self.in_force().rules[id.0].removed = true;
        self.0.removed.notify_all();
    }

    /// Takes all rules out of force.
    pub fn clear(&self) {
        let mut in_force = self.in_force();
        in_force.halted = false;
        for entered in &mut in_force.rules {
            entered.removed = true;
        }
        self.0.removed.notify_all();
    }

    /// Whether a rule that halts has caught a call.
    pub fn is_halted(&self) -> bool {
        self.in_force().halted
    }

    /// How often a rule matched and caught.
    pub fn count(&self, id: RuleId) -> RuleCount {
        self.in_force().rules[id.0].count
    }

    fn in_force(&self) -> MutexGuard<'_, InForce> {
        (self.0.in_force.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault for this call. Every rule in force counts it; the first that catches it decides.
    fn judge(&self, operation: Operation, path: &Path, direct: bool) -> Option<Fault> {
        let mut in_force = self.in_force();
        let mut halts = in_force.halted;
        let mut verdict = halts.then_some(Fault::Fail(Refusal::InputOutput));
        for entered in &mut in_force.rules {
            if !entered.matches(operation, path, direct) {
                continue;
            }
            let Entered { rule, count, .. } = entered;
            count.matched += 1;
            if verdict.is_none() && count.matched > rule.spared && count.caught < rule.caught_max {
                count.caught += 1;
                verdict = Some(rule.fault);
                halts |= rule.halts;
            }
        }
        in_force.halted = halts;
        verdict
    }

    /// Makes a call, and returns when no rule that stalls such calls is in force any more.
    fn stall<T>(
        &self,
        operation: Operation,
        path: &Path,
        direct: bool,
        call: impl FnOnce() -> T,
    ) -> T {
        let done = call();
        let stalls = |entered: &Entered| {
            entered.rule.fault == Fault::Stall && entered.matches(operation, path, direct)
        };
        let waited = (self.0.removed).wait_while(self.in_force(), |in_force| {
            in_force.rules.iter().any(&stalls)
        });
        drop(waited.unwrap_or_else(PoisonError::into_inner));
        done
    }

    /// Makes a call without transfer, or what a rule makes of it.
    fn run<T>(
        &self,
        operation: Operation,
        path: &Path,
        direct: bool,
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        match self.judge(operation, path, direct) {
            Some(Fault::Fail(refusal) | Fault::Torn(_, refusal)) => Err(refusal.into()),
            Some(Fault::FailAfter(refusal)) => call().and(Err(refusal.into())),
            Some(Fault::Stall) => self.stall(operation, path, direct, call),
            _ => call(),
        }
    }

    /// As `run`, for calls that can pretend to have been made.
    fn run_or_lie(
        &self,
        operation: Operation,
        path: &Path,
        call: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        match self.judge(operation, path, false) {
            Some(Fault::Lie) => Ok(()),
            Some(Fault::Fail(refusal) | Fault::Torn(_, refusal)) => Err(refusal.into()),
            Some(Fault::FailAfter(refusal)) => call().and(Err(refusal.into())),
            Some(Fault::Stall) => self.stall(operation, path, false, call),
            _ => call(),
        }
    }
}

/// A storage whose calls obey [`FaultRules`].
pub type FaultyStorage<R> = Metered<Faulty<R>>;

impl<R: RawStorage + Clone> Metered<R> {
    /// The same storage, with the same meters, under `rules`.
    pub fn with_faults(&self, rules: &FaultRules) -> Arc<FaultyStorage<R>> {
        let inner = self.raw().clone();
        Arc::new(self.sharing_meters(Faulty {
            inner,
            rules: rules.clone(),
        }))
    }
}

/// Raw calls that obey [`FaultRules`].
#[derive(Debug, Clone)]
pub struct Faulty<R> {
    inner: R,
    rules: FaultRules,
}

impl<R: RawStorage> Faulty<R> {
    fn run<T>(
        &self,
        operation: Operation,
        path: &Path,
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        self.rules.run(operation, path, false, call)
    }
}

impl<R: RawStorage> RawStorage for Faulty<R> {
    type File = FaultyFile<R::File>;

    fn open(&self, path: &Path, mode: OpenMode, direct: bool) -> io::Result<Self::File> {
        let open = || self.inner.open(path, mode, direct);
        Ok(FaultyFile {
            inner: self.rules.run(Operation::Open, path, direct, open)?,
            path: path.to_owned(),
            direct: AtomicBool::new(direct),
            rules: self.rules.clone(),
        })
    }

    fn map_ring(&self, path: &Path, bytes: usize) -> io::Result<(Arc<dyn Ring>, bool)> {
        self.run(Operation::MapRing, path, || {
            self.inner.map_ring(path, bytes)
        })
    }

    fn resize_ring(&self, path: &Path, bytes: usize) -> io::Result<()> {
        self.run(Operation::ResizeRing, path, || {
            self.inner.resize_ring(path, bytes)
        })
    }

    fn rename(&self, source: &Path, target: &Path) -> io::Result<()> {
        self.run(Operation::Rename, source, || {
            self.inner.rename(source, target)
        })
    }

    fn link(&self, source: &Path, target: &Path) -> io::Result<()> {
        self.run(Operation::Link, source, || self.inner.link(source, target))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.run(Operation::Remove, path, || self.inner.remove(path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.run(Operation::CreateDir, path, || self.inner.create_dir(path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.run(Operation::RemoveDir, path, || self.inner.remove_dir(path))
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.run(Operation::List, path, || self.inner.list(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.rules
            .run_or_lie(Operation::SyncDir, path, || self.inner.sync_dir(path))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn DirectoryLock>> {
        self.run(Operation::Lock, path, || self.inner.lock(path))
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        self.run(Operation::FreeBytes, path, || self.inner.free_bytes(path))
    }

    fn now(&self) -> Duration {
        self.inner.now()
    }

    fn has_machine_clock(&self) -> bool {
        self.inner.has_machine_clock()
    }

    fn boot_id(&self) -> Option<[u8; 16]> {
        self.inner.boot_id()
    }

    fn thread_cpu(&self) -> Duration {
        self.inner.thread_cpu()
    }

    fn wall_clock(&self) -> Duration {
        self.inner.wall_clock()
    }

    fn random(&self) -> u64 {
        self.inner.random()
    }

    fn sleep(&self, duration: Duration) {
        self.inner.sleep(duration);
    }
}

/// An open file that obeys [`FaultRules`].
#[derive(Debug)]
pub struct FaultyFile<F> {
    inner: F,
    path: PathBuf,
    direct: AtomicBool,
    rules: FaultRules,
}

impl<F: RawFile> FaultyFile<F> {
    fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Acquire)
    }

    fn run<T>(&self, operation: Operation, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.rules
            .run(operation, &self.path, self.is_direct(), call)
    }

    /// How much of a transfer of `length` bytes is done when only `bytes` are to be.
    fn part(&self, bytes: usize, length: usize) -> usize {
        let unit = if self.is_direct() { DIRECT_UNIT } else { 1 };
        bytes.min(length) / unit * unit
    }

    /// As `part`, but never nothing: an empty transfer would mean the end of the file.
    fn part_of_short(&self, bytes: usize, length: usize) -> usize {
        let unit = if self.is_direct() { DIRECT_UNIT } else { 1 };
        self.part(bytes.max(unit), length)
    }
}

impl<F: RawFile> RawFile for FaultyFile<F> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self
            .rules
            .judge(Operation::Read, &self.path, self.is_direct())
        {
            Some(Fault::Fail(refusal) | Fault::FailAfter(refusal) | Fault::Torn(_, refusal)) => {
                Err(refusal.into())
            }
            Some(Fault::Short(bytes)) => {
                let part = self.part_of_short(bytes, buffer.len());
                self.inner.read_at(&mut buffer[..part], offset)
            }
            Some(Fault::Stall) => {
                let read = || self.inner.read_at(buffer, offset);
                (self.rules).stall(Operation::Read, &self.path, self.is_direct(), read)
            }
            Some(Fault::Lie | Fault::Misdirect(_)) | None => self.inner.read_at(buffer, offset),
        }
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
        match self
            .rules
            .judge(Operation::Write, &self.path, self.is_direct())
        {
            Some(Fault::Fail(refusal)) => Err(refusal.into()),
            Some(Fault::FailAfter(refusal)) => {
                self.inner.write_at(data, offset).and(Err(refusal.into()))
            }
            Some(Fault::Torn(bytes, refusal)) => {
                let part = self.part(bytes, data.len());
                self.inner
                    .write_at(&data[..part], offset)
                    .and(Err(refusal.into()))
            }
            Some(Fault::Short(bytes)) => {
                let part = self.part_of_short(bytes, data.len());
                self.inner.write_at(&data[..part], offset)
            }
            Some(Fault::Lie) => Ok(data.len()),
            Some(Fault::Misdirect(elsewhere)) => self.inner.write_at(data, elsewhere),
            Some(Fault::Stall) => {
                let write = || self.inner.write_at(data, offset);
                (self.rules).stall(Operation::Write, &self.path, self.is_direct(), write)
            }
            None => self.inner.write_at(data, offset),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.rules
            .run_or_lie(Operation::Sync, &self.path, || self.inner.sync())
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.run(Operation::Preallocate, || self.inner.allocate(bytes))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.run(Operation::SetLength, || self.inner.set_len(bytes))
    }

    fn size(&self) -> io::Result<u64> {
        self.run(Operation::Size, || self.inner.size())
    }

    fn direct_alignment(&self) -> Option<usize> {
        self.inner.direct_alignment()
    }

    fn leave_direct(&self) -> io::Result<()> {
        self.inner.leave_direct()?;
        self.direct.store(false, Ordering::Release);
        Ok(())
    }

    fn prefetch(&self, offset: u64, length: u64) {
        self.inner.prefetch(offset, length);
    }

    fn write_back(&self, offset: u64, length: u64) {
        self.inner.write_back(offset, length);
    }
}
