//! The shards of a drive.
//!
//! ```text
//!   DIR/lock            held by the agent that uses the directory
//!   DIR/UUID/RANGE/     the engine directory of a shard, as on a host
//! ```
//!
//! A shard is made once, by the host that makes its database, and opened when it is first asked for. A shard that is
//! missing is an error: it is never made anew, empty, behind a host's back. Of many open shards those used longest ago
//! are closed when nothing uses them.

use crate::error::{AgentError, Result};
use crate::message::{ShardName, check_database};
use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use waystation::{Db, Options};
use waystation_documents::shard::{Clock, Shard};
use waystation_documents::{Error, NodeFault, Result as DocumentResult};

/// An open shard, and when it was used last, counted in uses.
struct Open {
    shard: Arc<Shard>,
    used: u64,
}

#[derive(Default)]
struct Shards {
    open: HashMap<ShardName, Open>,
    uses: u64,
}

/// The shards in a directory.
pub(crate) struct Store {
    directory: PathBuf,
    options: Options,
    open_max: usize,
    shards: Mutex<Shards>,
    _lock: File,
}

impl Store {
    /// The shards in `directory`, which is made if it is missing; up to `open_max` of them are open when nothing uses
    /// them.
    pub(crate) fn open(directory: &Path, options: Options, open_max: usize) -> Result<Self> {
        let refused = |source| AgentError::Directory {
            path: directory.to_owned(),
            source,
        };
        std::fs::create_dir_all(directory).map_err(refused)?;
        let lock = File::create(directory.join("lock")).map_err(refused)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(AgentError::Locked(directory.to_owned())),
            Err(TryLockError::Error(error)) => return Err(refused(error)),
        }
        Ok(Self {
            directory: directory.to_owned(),
            options,
            open_max,
            shards: Mutex::default(),
            _lock: lock,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Shards> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, name: &ShardName) -> PathBuf {
        self.directory.join(&name.database).join(&name.range)
    }

    /// Makes the shard `name`, if it is not there.
    pub(crate) fn create(&self, name: &ShardName) -> DocumentResult<()> {
        name.check()?;
        let mut shards = self.lock();
        if shards.open.contains_key(name) {
            return Ok(());
        }
        let path = self.path(name);
        let parent = self.directory.join(&name.database);
        let made = std::fs::create_dir_all(&parent);
        made.map_err(|error| file_error("create", &parent, &error))?;
        let shard = open(&path, self.options.clone())?;
        for directory in [&parent, &self.directory] {
            let synced = File::open(directory).and_then(|it| it.sync_all());
            synced.map_err(|error| file_error("sync", directory, &error))?;
        }
        shards.keep(name, shard);
        Ok(())
    }

    /// The shard `name`.
    pub(crate) fn get(&self, name: &ShardName) -> DocumentResult<Arc<Shard>> {
        name.check()?;
        let mut shards = self.lock();
        shards.uses += 1;
        let uses = shards.uses;
        if let Some(open) = shards.open.get_mut(name) {
            open.used = uses;
            return Ok(Arc::clone(&open.shard));
        }
        let options = Options {
            create_if_missing: false,
            ..self.options.clone()
        };
        let path = self.path(name);
        if !path.is_dir() {
            let (database, range) = (&name.database, &name.range);
            return Err(Error::Node {
                fault: NodeFault::Refused,
                reason: format!(
                    "the drive has no shard {range} of the database {database} in {}; start its agent with the directory that holds it, or restore that from a backup",
                    self.directory.display()
                ),
            });
        }
        let shard = shards.keep(name, open(&path, options)?);
        shards.close_surplus(self.open_max);
        Ok(shard)
    }

    /// Removes the shard `name`. One that is not there is no error.
    pub(crate) fn remove_shard(&self, name: &ShardName) -> DocumentResult<()> {
        name.check()?;
        let mut shards = self.lock();
        shards.open.remove(name);
        remove(&self.path(name))?;
        // The directory of the database stays while it holds other shards.
        let _ = std::fs::remove_dir(self.directory.join(&name.database));
        Ok(())
    }

    /// Removes all shards of `database`.
    pub(crate) fn remove(&self, database: &str) -> DocumentResult<()> {
        check_database(database)?;
        let mut shards = self.lock();
        shards.open.retain(|name, _| name.database != database);
        remove(&self.directory.join(database))
    }
}

/// Removes the directory `path`. One that is not there is no error.
fn remove(path: &Path) -> DocumentResult<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(file_error("remove", path, &error))
        }
        _ => Ok(()),
    }
}

impl Shards {
    fn keep(&mut self, name: &ShardName, shard: Shard) -> Arc<Shard> {
        self.uses += 1;
        let shard = Arc::new(shard);
        let open = Open {
            shard: Arc::clone(&shard),
            used: self.uses,
        };
        self.open.insert(name.clone(), open);
        shard
    }

    fn close_surplus(&mut self, open_max: usize) {
        let mut idle: Vec<(u64, ShardName)> = self
            .open
            .iter()
            .filter(|(_, open)| Arc::strong_count(&open.shard) == 1)
            .map(|(name, open)| (open.used, name.clone()))
            .collect();
        idle.sort();
        let surplus = self.open.len().saturating_sub(open_max);
        for (_, name) in idle.into_iter().take(surplus) {
            self.open.remove(&name);
        }
    }
}

fn open(path: &Path, options: Options) -> DocumentResult<Shard> {
    let db = Db::open(path, options)?;
    Shard::over(Arc::new(db), Clock::default())
}

fn file_error(operation: &'static str, path: &Path, error: &io::Error) -> Error {
    Error::File {
        operation,
        path: path.to_owned(),
        reason: error.to_string(),
    }
}
