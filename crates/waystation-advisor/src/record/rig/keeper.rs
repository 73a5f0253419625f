//! The process that takes down what the laboratory's own process leaves, however that one ends.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::failed;
use super::undo::undo_file;
use crate::error::Result;
use crate::record::Stop;
use crate::record::system::Linux;

/// The process that takes down what this one leaves.
pub(super) struct Keeper {
    child: Child,
}

impl Keeper {
    pub(super) fn start(state_file: &Path) -> Result<Self> {
        use std::os::unix::process::CommandExt;
        let program = std::env::current_exe()
            .map_err(|error| failed("find its own program")(error.to_string()))?;
        let child = Command::new(program)
            .args(["place", "record", "--rig-keeper"])
            .arg(state_file)
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| failed("start its keeper")(error.to_string()))?;
        Ok(Self { child })
    }

    /// The writing end of its pipe, once more.
    pub(super) fn pipe(&self) -> Result<Option<OwnedFd>> {
        let Some(stdin) = &self.child.stdin else {
            return Ok(None);
        };
        let pipe = stdin.as_fd().try_clone_to_owned();
        pipe.map(Some)
            .map_err(|error| failed("reach its keeper")(error.to_string()))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Closing its input ends it, after it has undone whatever is left.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// What the keeper process does: waits until its input ends, then undoes what the state file still names.
pub(crate) fn keep(state_file: &Path) -> Result<()> {
    // Signals to this process are ignored until its input has ended.
    let _stop = Stop::on_signals();
    // Whatever comes, the end counts.
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    undo_file(&mut Linux::default(), state_file)?;
    crate::record::tracefs::remove_leftovers();
    Ok(())
}
