//! Which threads the processor serves first.

/// How much nicer than others a background thread is: it gets a third of the time of one that competes with it.
const NICE: i32 = 5;

/// Lets this thread stand back behind threads that others wait for. A system that refuses costs speed only.
pub(crate) fn stand_back() {
    // On Linux this is about the thread alone, whatever POSIX says of processes.
    if let Err(error) = rustix::process::nice(NICE) {
        log::debug!("a background thread runs at the priority of all others: {error}");
    }
}
