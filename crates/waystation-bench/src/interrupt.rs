//! Ctrl-C: whatever was started ends, and whatever was written goes.
//!
//! The handler runs in a thread of its own, so it may take locks. It kills the workers first (they would go on
//! writing into directories that are being removed), then removes the data, then ends the process.

use crate::error::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The exit status that shells give for an interrupt.
const EXIT_INTERRUPTED: i32 = 130;

static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);
static CHILDREN: Mutex<Vec<Arc<Mutex<Child>>>> = Mutex::new(Vec::new());
static DIRECTORIES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static STEPS: Mutex<Vec<Box<dyn FnOnce() + Send>>> = Mutex::new(Vec::new());

/// Installs the handler.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        IS_INTERRUPTED.store(true, Ordering::SeqCst);
        for child in lock(&CHILDREN).iter() {
            let mut child = lock(child);
            let _ = child.kill();
            let _ = child.wait();
        }
        for step in lock(&STEPS).drain(..) {
            step();
        }
        for directory in lock(&DIRECTORIES).iter() {
            let _ = fs::remove_dir_all(directory);
        }
        eprintln!("interrupted: workers ended, data removed");
        std::process::exit(EXIT_INTERRUPTED);
    })
    .map_err(|error| Error::Refused(format!("Ctrl-C cannot be handled: {error}")))
}

/// A worker's end looks like a failure; if it was the interrupt, waits for the handler to end the process.
pub(crate) fn park_if_interrupted() {
    while IS_INTERRUPTED.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// A process to be ended on interrupt.
pub(crate) fn register_child(child: &Arc<Mutex<Child>>) {
    lock(&CHILDREN).push(Arc::clone(child));
}

/// The process has ended by itself.
pub(crate) fn forget_child(child: &Arc<Mutex<Child>>) {
    lock(&CHILDREN).retain(|other| !Arc::ptr_eq(other, child));
}

/// What else is to be done on interrupt, once the processes have ended and before the data goes.
pub(crate) fn register_step(step: impl FnOnce() + Send + 'static) {
    lock(&STEPS).push(Box::new(step));
}

/// A directory to be removed on interrupt.
pub(crate) fn register_directory(directory: &Path) {
    lock(&DIRECTORIES).push(directory.to_owned());
}

/// The directory is gone.
pub(crate) fn forget_directory(directory: &Path) {
    lock(&DIRECTORIES).retain(|other| other != directory);
}

/// Locks, whatever happened to a thread that held it: these lists are whole after every statement.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
