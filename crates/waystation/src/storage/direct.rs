//! The fall-back from direct to buffered transfers.
//!
//! A file system may refuse direct transfers when a file is opened or only when the first bytes move, by
//! `EINVAL` or `EOPNOTSUPP`. A caller that is refused makes the file buffered and tries again. Several threads may
//! be refused at once: what counts for each is whether the file was direct *before* its attempt, and the
//! file is made buffered before that is said, so an attempt that believes to be buffered is.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a file's transfers are direct. Only ever goes from true to false.
#[derive(Debug)]
pub(super) struct DirectState(AtomicBool);

impl DirectState {
    pub(super) const fn new(direct: bool) -> Self {
        Self(AtomicBool::new(direct))
    }

    pub(super) fn is_direct(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// One transfer, tried again when interrupted, and again buffered when refused as a direct one. `leave`
    /// makes the file buffered and may be called several times; `tell` is called once in the file's life.
    pub(super) fn transfer(
        &self,
        mut attempt: impl FnMut() -> io::Result<usize>,
        leave: impl Fn() -> io::Result<()>,
        tell: impl Fn(),
    ) -> io::Result<usize> {
        loop {
            let was_direct = self.is_direct();
            match attempt() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if was_direct && refuses_direct(&error) => {
                    leave()?;
                    if self.0.swap(false, Ordering::AcqRel) {
                        tell();
                    }
                }
                outcome => return outcome,
            }
        }
    }
}

/// Whether a direct open or transfer may have failed because it was direct.
pub(super) fn refuses_direct(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
    )
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::DirectState;
    use std::cell::{Cell, RefCell};
    use std::io;

    fn refusal() -> io::Result<usize> {
        Err(io::ErrorKind::InvalidInput.into())
    }

    #[test]
    fn a_refusal_is_tried_again_buffered() {
        let state = DirectState::new(true);
        let events = RefCell::new(Vec::new());
        let attempt = || {
            events.borrow_mut().push("attempt");
            if state.is_direct() { refusal() } else { Ok(5) }
        };
        let leave = || {
            assert!(state.is_direct(), "said before it was done");
            events.borrow_mut().push("leave");
            Ok(())
        };
        let tell = || events.borrow_mut().push("tell");
        assert_eq!(state.transfer(attempt, leave, tell).unwrap(), 5);
        assert_eq!(*events.borrow(), ["attempt", "leave", "tell", "attempt"]);
    }

    /// A second thread's refusal and fall-back, from beginning to end, during the first one's attempt.
    #[test]
    fn threads_refused_together_tell_once_and_both_succeed() {
        let state = DirectState::new(true);
        let told = Cell::new(0);
        let tell = || told.set(told.get() + 1);
        let of_mode = || if state.is_direct() { refusal() } else { Ok(2) };
        let mut attempts = 0;
        let attempt = || {
            attempts += 1;
            if attempts == 1 {
                assert_eq!(state.transfer(of_mode, || Ok(()), tell).unwrap(), 2);
                refusal()
            } else {
                Ok(1)
            }
        };
        assert_eq!(state.transfer(attempt, || Ok(()), tell).unwrap(), 1);
        assert_eq!((attempts, told.get()), (2, 1));
    }

    #[test]
    fn a_refusal_of_a_buffered_transfer_is_final() {
        let state = DirectState::new(false);
        let leave = || panic!("there is nothing to leave");
        assert!(state.transfer(refusal, leave, || ()).is_err());
    }

    #[test]
    fn a_failure_to_leave_is_told_and_changes_nothing() {
        let state = DirectState::new(true);
        let leave = || Err(io::Error::other("no"));
        let error = state
            .transfer(refusal, leave, || panic!("not fallen back"))
            .unwrap_err();
        assert_eq!(error.to_string(), "no");
        assert!(state.is_direct());
    }
}
