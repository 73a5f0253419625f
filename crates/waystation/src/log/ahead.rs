//! A thread that makes one thing after the other, a few ahead of their user.
//!
//! It ends with the last thing, with an error, which is told behind what was made before, or when no more are taken: none
//! outlives its [`Ahead`].

use crate::error::{Error, Result};
use crate::sync::Arc;
use crate::sync::queue::Queue;
use crate::sync::thread::{self, JoinHandle};

/// Things that may wait; one is being made and one looked at besides.
const WAITING_MAX: usize = 1;

/// See the module.
pub(super) struct Ahead<T> {
    queue: Arc<Queue<T>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl<T: Default + Send + 'static> Ahead<T> {
    /// Starts a thread `name`. `make` makes the next thing, in the memory of one that was given back; `None` ends it.
    pub(super) fn start(
        name: &str,
        mut make: impl FnMut(T) -> Result<Option<T>> + Send + 'static,
    ) -> Result<Self> {
        let queue = Arc::new(Queue::new(WAITING_MAX));
        let feed = Feed(Arc::clone(&queue));
        let work = move || {
            while let Some(made) = make(feed.0.spare().unwrap_or_default())? {
                if !feed.0.push(made) {
                    break;
                }
            }
            Ok(())
        };
        let thread = thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .map_err(|error| Error::io("start thread", name, error))?;
        Ok(Self {
            queue,
            thread: Some(thread),
        })
    }

    /// The next thing; `None` behind the last one.
    pub(super) fn next(&mut self) -> Result<Option<T>> {
        match (self.queue.pop(), self.thread.take()) {
            (None, Some(ended)) => {
                let outcome = ended.join();
                outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                Ok(None)
            }
            (next, thread) => {
                self.thread = thread;
                Ok(next)
            }
        }
    }

    /// Gives the memory of one back, for each that was taken.
    pub(super) fn give_back(&self, done: T) {
        self.queue.give_back(done);
    }
}

impl<T> Drop for Ahead<T> {
    fn drop(&mut self) {
        self.queue.abandon();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Closes the queue when the thread that feeds it ends, however that may be.
struct Feed<T>(Arc<Queue<T>>);

impl<T> Drop for Feed<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}
