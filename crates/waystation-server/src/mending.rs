//! The thread that mends the copies of shards: it fills what is stale and removes what leaves, for as long as the server
//! runs.

use crate::app::App;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long it rests when nothing was to be done: a drive that was away is looked for so often.
const REST: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    is_woken: bool,
    is_stopping: bool,
}

/// Wakes the thread, and stops it.
#[derive(Debug, Default)]
pub(crate) struct Mending {
    state: Mutex<State>,
    changed: Condvar,
}

impl Mending {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Says that there is something to be done.
    pub(crate) fn wake(&self) {
        self.change(|state| state.is_woken = true);
    }

    /// Waits for something to be done. Returns whether the thread goes on.
    fn rest(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_quiet = |state: &mut State| !state.is_woken && !state.is_stopping;
        let waited = self.changed.wait_timeout_while(state, REST, is_quiet);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_woken = false;
        !state.is_stopping
    }
}

/// Starts the thread, if there are drives.
pub(crate) fn start(app: &Arc<App>) -> Option<JoinHandle<()>> {
    app.settings.nodes.as_ref()?;
    let app = Arc::clone(app);
    let thread = std::thread::Builder::new().name("waystation-mend".to_owned());
    let started = thread.spawn(move || {
        while app.mending.rest() {
            while match app.catalogue.mend() {
                Ok(is_done) => is_done,
                Err(error) => {
                    log::error!("the copies of shards are not mended: {error}");
                    false
                }
            } {}
        }
    });
    started
        .inspect_err(|error| log::error!("the copies of shards are not mended: {error}"))
        .ok()
}

/// Has the thread end, and waits for it.
pub(crate) fn stop(app: &App, thread: Option<JoinHandle<()>>) {
    app.catalogue.stop_mending();
    app.mending.change(|state| state.is_stopping = true);
    if thread.is_some_and(|thread| thread.join().is_err()) {
        log::error!("the mending of copies ended by a panic");
    }
}
