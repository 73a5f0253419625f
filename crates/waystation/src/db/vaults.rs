//! Graves beyond their memory: written to vaults when they are buried, and tended beside everything else.
//!
//! ```text
//!   spill    graves that count beyond `graves_bytes`, dates beyond a part of that: to a vault,  under the lock of the
//!            which is durable before GRAVES names it                                             ground, by who flushes
//!   dig      all dates of a vault are past for everybody: its label says so                     the same
//!   retire   no table needs any of its graves: it leaves the ground unread                      under that lock
//!   tend     merge, split by dates, leave out what nothing needs: from vaults to others,        by the watcher, outside;
//!            which take their place if they are still there                                     the end under that lock
//!   sweep    the file goes once the GRAVES in force does not name it and nobody reads it        under that lock
//! ```
//!
//! What is needed is judged by a view in which nothing is on its way to the tree. It may be judged before the vault that
//! comes of it takes its place: what no table, memtable or stay holds then will not come later.

use super::Core;
use super::graves::LookedAt;
use super::kept::Kept;
use super::times::micros;
use super::view::View;
use crate::cemetery::ground::Ground;
use crate::cemetery::row::{Grave, Row};
use crate::cemetery::vault::rewrite::{Rewrite, Task, choose};
use crate::cemetery::vault::writer::VaultWriter;
use crate::cemetery::vault::{Kind, Label, Vault, VaultFile, Vaults};
use crate::error::{Error, Result};
use crate::lsm::retire::{Runs, is_worn};
use crate::sync::atomic::Ordering::Relaxed;
use crate::sync::{Arc, lock};
use std::time::Duration;

/// Graves with dates leave memory when they take this part of what graves may take: `GRAVES` is written with all that are
/// in memory whenever one comes to it.
const DATED_SHARE: usize = 8;
/// A vault is split when one of so many of its dates is past; and at rest.
const DUE_SHARE: usize = 2;
const DUE_SHARE_AT_REST: usize = 8;
/// After a look, the next comes at the earliest after so many times as long, or so much later.
const LOOK_SHARE: u32 = 10;
const LOOK_PAUSE_MAX: Duration = Duration::from_secs(10);
/// After a failure, nothing is tried for so long.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// How far somebody looked for what to do to vaults.
#[derive(Debug, Default)]
pub(super) struct Tending {
    /// What was looked at last, with nothing to do.
    looked_at: Option<LookedAt>,
    /// When to look again.
    look_at: Duration,
    /// Nothing is tried before, as something failed.
    failed_until: Duration,
}

/// The vaults that are there.
#[derive(Debug)]
pub(super) struct VaultFiles {
    /// Those that the file of graves names.
    pub(super) named: Vec<u64>,
    /// These, and others that somebody still reads, or that a file of graves names which may be in force.
    pub(super) files: Vec<Arc<VaultFile>>,
    /// Whether that file was being replaced when that failed: either may be found.
    pub(super) is_in_doubt: bool,
}

impl VaultFiles {
    /// Those of `vaults`, which the file of graves names.
    pub(super) fn of(vaults: &Vaults) -> Self {
        Self {
            named: vaults.labels().map(|it| it.number).collect(),
            files: vaults.iter().map(|it| Arc::clone(it.file())).collect(),
            is_in_doubt: false,
        }
    }

    /// Notes the files of those that are new.
    pub(super) fn note(&mut self, vaults: &Vaults) {
        for vault in vaults.iter() {
            let number = vault.label().number;
            if self.files.iter().all(|it| it.number != number) {
                self.files.push(Arc::clone(vault.file()));
            }
        }
    }
}

impl Core {
    fn new_vault_number(&self) -> u64 {
        self.cemetery.next_vault.fetch_add(1, Relaxed)
    }

    /// `ground`, of which nobody knows yet, without what is too much for memory: that is in vaults from now on, which are
    /// durable. While it is unknown which file of graves is in force, or a flush is, none could be removed, and this may be
    /// tried again and again: memory is exceeded then.
    pub(super) fn spilled(&self, kept: &mut Kept, ground: Arc<Ground>) -> Result<Arc<Ground>> {
        let limit = self.options.graves_bytes;
        let is_too_much = |row: &Row, limit| !row.is_empty() && row.memory_bytes() > limit;
        if kept.ahead.is_some() || kept.vaults.is_in_doubt {
            return Ok(ground);
        }
        let mut ground = ground;
        if is_too_much(ground.points(), limit) {
            let vault = self.write_vault(ground.points(), Kind::Counting)?;
            ground = Arc::new(ground.without_points(ground.vaults().and(vault)));
            kept.vaults.note(ground.vaults());
        }
        if is_too_much(ground.dated(), limit / DATED_SHARE) {
            let vault = self.write_vault(ground.dated(), Kind::Dated)?;
            ground = Arc::new(ground.without_dated(ground.vaults().and(vault)));
        }
        Ok(ground)
    }

    fn write_vault(&self, row: &Row, kind: Kind) -> Result<Vault> {
        let site = &self.cemetery.site;
        let mut writer = VaultWriter::create(site, self.new_vault_number(), kind)?;
        for grave in row.iter() {
            if let Err(error) = writer.add(&grave) {
                writer.abandon();
                return Err(error);
            }
        }
        let label = writer.finish()?;
        let mut vaults = self.open_vaults(vec![label])?;
        let none = || Error::Closed("a vault that was written is missing");
        vaults.pop().ok_or_else(none)
    }

    /// Opens vaults that were just written, and makes their names durable. If that fails, they are removed.
    fn open_vaults(&self, labels: Vec<Label>) -> Result<Vec<Vault>> {
        let site = &self.cemetery.site;
        let numbers: Vec<u64> = labels.iter().map(|it| it.number).collect();
        let opened = labels.into_iter().map(|label| site.open(label));
        let opened = opened.collect::<Result<Vec<_>>>();
        let durable = opened.and_then(|vaults| self.storage.sync_dir(&self.dir).map(|()| vaults));
        if durable.is_err() {
            for number in numbers {
                site.discard(number);
            }
        }
        durable
    }

    /// Removes vaults that neither the file of graves nor a reader needs.
    pub(super) fn sweep_vaults(&self, kept: &mut Kept) {
        if kept.vaults.is_in_doubt {
            return;
        }
        let named = &kept.vaults.named;
        kept.vaults.files.retain(|file| {
            let is_needed = named.contains(&file.number) || Arc::strong_count(file) > 1;
            if !is_needed {
                self.cemetery.site.discard(file.number);
            }
            is_needed
        });
    }

    /// Whether everything in `view` has been looked at for something to do to its vaults, and no other is left but those
    /// that somebody reads.
    pub(super) fn has_tended_vaults(&self, view: &View, kept: &Kept) -> bool {
        let vaults = view.ground.vaults();
        let is_there = |number: u64| vaults.labels().any(|it| it.number == number);
        let is_read = |file: &Arc<VaultFile>| Arc::strong_count(file) > 1;
        let has_looked = || lock(&self.cemetery.tending).looked_at == Some(self.looked_at(view));
        let mut files = kept.vaults.files.iter();
        files.all(|file| is_there(file.number) || is_read(file))
            && kept.vaults.named.iter().all(|number| is_there(*number))
            && (vaults.is_empty() || has_looked())
    }

    /// Does what is to be done to vaults, if anything. Only the watcher does.
    pub(super) fn tend_vaults(&self) {
        if let Err(error) = self.try_tending() {
            // They are as they were.
            lock(&self.cemetery.tending).failed_until = self.storage.now() + FAILURE_PAUSE;
            log::warn!("vaults of graves stay as they are for now: {error}");
        }
    }

    fn try_tending(&self) -> Result<()> {
        if self.storage.now() < lock(&self.cemetery.tending).failed_until {
            return Ok(());
        }
        {
            let Ok(mut kept) = self.cemetery.kept.try_lock() else {
                return Ok(());
            };
            if kept.vaults.files.is_empty() || kept.ahead.is_some() {
                return Ok(());
            }
            self.forget_retired(&mut kept)?;
            self.sweep_vaults(&mut kept);
        }
        let begun = self.storage.now();
        let (looked_at, look_at) = {
            let tending = lock(&self.cemetery.tending);
            (tending.looked_at, tending.look_at)
        };
        let Some(view) = self.settled_view().filter(|_| begun >= look_at) else {
            return Ok(());
        };
        let looked = Some(self.looked_at(&view));
        let task = self.task(&view, looked_at == looked);
        let done = task
            .as_ref()
            .map_or(Ok(()), |task| self.rewrite(&view, task));
        let mut tending = lock(&self.cemetery.tending);
        if task.is_none() || done.is_err() {
            // After a failure not again at once.
            tending.looked_at = looked;
        }
        let ended = self.storage.now();
        let pause = ended.saturating_sub(begun).saturating_mul(LOOK_SHARE);
        tending.look_at = ended + pause.min(LOOK_PAUSE_MAX);
        done
    }

    /// The current view, if nothing is on its way to the tree.
    fn settled_view(&self) -> Option<Arc<View>> {
        let pending = self
            .devices
            .as_ref()
            .map(|it| it.settler.pending.try_lock());
        (!matches!(pending, Some(None))).then(|| self.views.load())
    }

    /// Has the file of graves name no vault that was retired, and lets it be known which file is in force.
    fn forget_retired(&self, kept: &mut Kept) -> Result<()> {
        let ground = Arc::clone(&self.views.load().ground);
        let is_there = |number: &u64| ground.vaults().labels().any(|it| it.number == *number);
        if !kept.vaults.is_in_doubt && kept.vaults.named.iter().all(is_there) {
            return Ok(());
        }
        self.write_graves(kept, &ground)
    }

    /// What is to be done to the vaults of `view`, where others than dates have been looked at if `knows_needs`.
    fn task(&self, view: &View, knows_needs: bool) -> Option<Task> {
        let time = self.oldest_time();
        let share = if self.is_at_rest() {
            DUE_SHARE_AT_REST
        } else {
            DUE_SHARE
        };
        let is_due = |label: &Label| {
            let (past, all) = label.due(time);
            let deadline = self.options.deletion_deadline.map(|it| micros(it / 4));
            let is_late = |span| label.earliest().saturating_add(span) <= time;
            past > 0 && past * share >= all || deadline.is_some_and(is_late)
        };
        let outside = self.outside(view.memtables_from());
        let is_worn = |vault: &Vault| !knows_needs && is_worn(vault, &view.version, &outside);
        choose(view.ground.vaults(), time, is_due, is_worn)
    }

    /// Does `task` to vaults of `view`.
    fn rewrite(&self, view: &View, task: &Task) -> Result<()> {
        let outside = self.outside(view.memtables_from());
        let mut runs = Runs::new(&view.version, view.ground.last_number());
        let mut is_needed =
            |grave: &Grave<'_>| outside.needs(grave.sequence, grave.sequence) || runs.need(grave);
        let mut rewrite = Rewrite {
            site: &self.cemetery.site,
            new_number: &|| self.new_vault_number(),
            oldest_snapshot: self.oldest_snapshot(),
            is_needed: &mut is_needed,
            is_cancelled: &|| self.is_stopping(),
        };
        let labels = match rewrite.run(task) {
            // The database is being closed.
            Err(Error::Closed(_)) => return Ok(()),
            labels => labels?,
        };
        let outputs = self.open_vaults(labels)?;
        let mut kept = lock(&self.cemetery.kept);
        let numbers: Vec<u64> = outputs.iter().map(|it| it.label().number).collect();
        let ground = Arc::clone(&self.views.load().ground);
        let replaced = ground.vaults().replaced(task.inputs(), outputs);
        let Some(vaults) = replaced.filter(|_| kept.ahead.is_none()) else {
            // They were dug or retired meanwhile, or a flush failed.
            for number in numbers {
                self.cemetery.site.discard(number);
            }
            return Ok(());
        };
        let ground = Arc::new(Ground::clone(&ground).with_vaults(vaults));
        self.write_graves(&mut kept, &ground)?;
        self.views.change(|view| view.ground = ground);
        Ok(())
    }
}
