//! Ctrl-C and termination as a flag that loops look at, so that everything set up is taken down in order.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody asked to stop.
#[derive(Debug, Clone)]
pub struct Stop {
    asked: Arc<AtomicBool>,
}

impl Stop {
    /// Takes over Ctrl-C, SIGTERM and SIGHUP for the rest of the process. A second caller shares nothing with the
    /// first and is only asked through its own flag, so there is one per command.
    pub fn on_signals() -> Self {
        let asked = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&asked);
        // It fails only when a handler is installed already; then that one decides.
        let _ = ctrlc::set_handler(move || flag.store(true, Ordering::SeqCst));
        Self { asked }
    }

    /// Whether to stop now.
    pub fn asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
}

/// Ends the process on Ctrl-C, SIGTERM and SIGHUP, and takes an unfinished file away before: for work that may wait
/// for its input, and so cannot look at a flag.
pub(crate) fn remove_on_signals(unfinished: &Path) {
    /// As shells say it of a program that Ctrl-C ended.
    const INTERRUPTED: i32 = 130;
    let unfinished = unfinished.to_path_buf();
    // It fails only when a handler is installed already; then that one decides.
    let _ = ctrlc::set_handler(move || {
        // It is not there any more when it was just finished.
        let _ = std::fs::remove_file(&unfinished);
        std::process::exit(INTERRUPTED);
    });
}
