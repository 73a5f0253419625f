//! A queue of bounded length between threads, for things that are large and whose memory serves again.
//!
//! A push waits while too many wait, a pop while none does. What was popped is given back, emptied, when
//! the work on it is done: so the queue knows when all is done, and the next one has memory to be filled.
//!
//! Once it is closed nothing comes in any more, and no call waits for long: pushing fails, and popping ends when nothing
//! is left.

use super::{Condvar, Mutex, MutexGuard, lock, wait};
use std::collections::VecDeque;

/// See the module.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    /// So many may wait.
    room: usize,
    /// Something came, was taken or given back, or the queue was closed.
    changed: Condvar,
}

struct State<T> {
    waiting: VecDeque<T>,
    /// What was given back.
    spare: Vec<T>,
    /// How many were popped and not given back.
    taken: usize,
    is_closed: bool,
}

impl<T> Queue<T> {
    /// An empty queue in which up to `room` may wait.
    pub(crate) fn new(room: usize) -> Self {
        Self {
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                spare: Vec::new(),
                taken: 0,
                is_closed: false,
            }),
            room,
            changed: Condvar::new(),
        }
    }

    /// Adds `item` as soon as there is room. Returns whether it was taken in: not if the queue is closed.
    pub(crate) fn push(&self, item: T) -> bool {
        let mut state = self.wait_while(|it| it.waiting.len() >= self.room && !it.is_closed);
        let is_open = !state.is_closed;
        if is_open {
            state.waiting.push_back(item);
            self.changed.notify_all();
        }
        is_open
    }

    /// The oldest, as soon as there is one; `None` once the queue is closed and empty.
    pub(crate) fn pop(&self) -> Option<T> {
        let mut state = self.wait_while(|it| it.waiting.is_empty() && !it.is_closed);
        let item = state.waiting.pop_front()?;
        state.taken += 1;
        self.changed.notify_all();
        Some(item)
    }

    /// Says that the work on what was popped is done. `item` is that, emptied.
    pub(crate) fn give_back(&self, item: T) {
        let mut state = lock(&self.state);
        state.taken -= 1;
        state.spare.push(item);
        self.changed.notify_all();
    }

    /// Something that was given back, to be filled.
    pub(crate) fn spare(&self) -> Option<T> {
        lock(&self.state).spare.pop()
    }

    /// Waits until the work on all that was pushed is done.
    pub(crate) fn wait_until_done(&self) {
        drop(self.wait_while(|it| it.taken > 0 || !it.waiting.is_empty()));
    }

    /// Closes it. What waits is still popped.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.changed.notify_all();
    }

    /// Closes it and forgets what waits.
    pub(crate) fn abandon(&self) {
        lock(&self.state).waiting.clear();
        self.close();
    }

    fn wait_while(&self, is_early: impl Fn(&State<T>) -> bool) -> MutexGuard<'_, State<T>> {
        let mut state = lock(&self.state);
        while is_early(&state) {
            state = wait(&self.changed, state);
        }
        state
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::Queue;

    #[test]
    fn what_waits_when_it_is_closed_is_popped_and_nothing_comes_in() {
        let queue = Queue::new(2);
        assert!(queue.push(1) && queue.push(2));
        assert_eq!(queue.pop(), Some(1));
        queue.give_back(10);
        queue.close();
        assert!(!queue.push(3));
        assert_eq!((queue.pop(), queue.pop()), (Some(2), None));
        assert_eq!((queue.spare(), queue.spare()), (Some(10), None));
    }

    #[test]
    fn what_waits_when_it_is_abandoned_is_forgotten() {
        let queue = Queue::new(2);
        assert!(queue.push(1));
        queue.abandon();
        assert_eq!(queue.pop(), None);
        queue.wait_until_done();
    }
}

#[cfg(all(test, shuttle))]
mod model_tests {
    use super::Queue;
    use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use crate::sync::models::explore;
    use crate::sync::{Arc, thread};

    /// Two take what one brings: everything is taken once, and when all is done it is.
    #[test]
    fn everything_pushed_is_popped_once() {
        let model = || {
            let queue = Arc::new(Queue::new(1));
            let sum = Arc::new(AtomicU64::new(0));
            let take = |queue: Arc<Queue<u64>>, sum: Arc<AtomicU64>| {
                move || {
                    while let Some(item) = queue.pop() {
                        sum.fetch_add(item, SeqCst);
                        queue.give_back(0);
                    }
                }
            };
            let takers =
                [(); 2].map(|()| thread::spawn(take(Arc::clone(&queue), Arc::clone(&sum))));
            assert!(queue.push(1) && queue.push(2));
            queue.wait_until_done();
            assert_eq!(sum.load(SeqCst), 3);
            assert!(queue.push(4));
            queue.close();
            for taker in takers {
                taker.join().expect("it does not panic");
            }
            assert_eq!(sum.load(SeqCst), 7);
        };
        explore(model, 2_000);
    }

    /// A thread that waits for room learns that no more is taken.
    #[test]
    fn one_that_pushes_ends_when_the_queue_is_abandoned() {
        let model = || {
            let queue = Arc::new(Queue::new(1));
            let pushed = Arc::clone(&queue);
            let pusher = thread::spawn(move || while pushed.push(1) {});
            queue.pop();
            queue.abandon();
            pusher.join().expect("it does not panic");
        };
        explore(model, 2_000);
    }
}
