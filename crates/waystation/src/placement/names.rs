//! The names in a directory within the fast one, and how far they are durable.
//!
//! Invariants:
//! - after `sync` every change that returned before the call is durable;
//! - of several threads that call `sync` at once, one syncs for all whose changes it sees.

use crate::error::Result;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::sync::{Mutex, lock};
use std::path::{Path, PathBuf};

/// See the module.
pub(super) struct Names {
    dir: PathBuf,
    /// How often a name was made, changed or removed.
    changes: AtomicU64,
    /// So many of these changes are durable.
    synced: Mutex<u64>,
}

impl Names {
    pub(super) fn of(dir: PathBuf) -> Self {
        Self {
            dir,
            // The last owner may have had no time to make its own durable.
            changes: AtomicU64::new(1),
            synced: Mutex::new(0),
        }
    }

    /// The directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Has `act` make, change or remove the name at the path that it is given.
    pub(super) fn change<T>(&self, name: &str, act: impl FnOnce(&Path) -> T) -> T {
        let done = act(&self.dir.join(name));
        // Not before: a `sync` between would count a change that it did not see.
        self.changes.fetch_add(1, SeqCst);
        done
    }

    /// Makes the changes durable by `sync_dir`. A caller waits for another one that is at it: that one may see its changes.
    pub(super) fn sync(&self, sync_dir: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let mut synced = lock(&self.synced);
        let changes = self.changes.load(SeqCst);
        if *synced < changes {
            sync_dir(&self.dir)?;
            *synced = changes;
        }
        Ok(())
    }
}

#[cfg(test)]
#[cfg(shuttle)]
mod model_tests {
    use super::*;
    use crate::sync::models::explore;
    use crate::sync::{Arc, thread};
    use std::collections::BTreeSet;

    /// A directory as every call sees it, and as a power cut would leave it.
    #[derive(Default)]
    struct Directory {
        newest: Mutex<BTreeSet<usize>>,
        durable: Mutex<BTreeSet<usize>>,
    }

    #[test]
    fn a_name_is_durable_after_the_sync_of_its_thread() {
        let model = || {
            let names = Arc::new(Names::of(PathBuf::from("/fast/log")));
            let directory = Arc::new(Directory::default());
            let threads = [0, 1, 2].map(|number| {
                let (names, directory) = (Arc::clone(&names), Arc::clone(&directory));
                thread::spawn(move || {
                    names.change("segment", |_| lock(&directory.newest).insert(number));
                    let synced = names.sync(|_| {
                        let newest = lock(&directory.newest).clone();
                        *lock(&directory.durable) = newest;
                        Ok(())
                    });
                    synced.unwrap();
                    assert!(lock(&directory.durable).contains(&number));
                })
            });
            threads.into_iter().for_each(|it| it.join().unwrap());
        };
        explore(model, 2_000);
    }
}
