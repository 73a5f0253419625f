//! Processors of which a process has one for itself.

use crate::error::{Error, Result};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Calls `start` while this thread is bound to `core`: a process that it starts stays there.
pub(crate) fn on_core<T>(core: usize, start: impl FnOnce() -> T) -> Result<T> {
    let refused = |error: Errno| Error::io("bind to", format!("core {core}"), error.into());
    let before = sched_getaffinity(None).map_err(refused)?;
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(None, &one).map_err(refused)?;
    let started = start();
    sched_setaffinity(None, &before).map_err(refused)?;
    Ok(started)
}

/// The first two processors that this process may use, if there are two.
pub(crate) fn two_cores() -> Result<[usize; 2]> {
    let allowed = sched_getaffinity(None);
    let allowed =
        allowed.map_err(|error: Errno| Error::io("ask for", "the cores", error.into()))?;
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    match (cores.next(), cores.next()) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => Err(Error::Refused(
            "this process may use one processor only; engine and worker need one each".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_bound_for_a_while_only() {
        let before = sched_getaffinity(None).unwrap();
        let core = (0..CpuSet::MAX_CPU).find(|core| before.is_set(*core));
        let bound = on_core(core.unwrap(), || sched_getaffinity(None)).unwrap();
        assert_eq!(bound.unwrap().count(), 1);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
    }

    #[test]
    fn a_core_that_is_not_there_is_refused() {
        let before = sched_getaffinity(None).unwrap();
        let missing = (0..CpuSet::MAX_CPU)
            .rev()
            .find(|core| !before.is_set(*core));
        let error = on_core(missing.unwrap(), || ()).unwrap_err();
        assert!(error.to_string().contains("core"), "{error}");
    }
}
