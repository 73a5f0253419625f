//! The merge itself: one pass over ordered entries, whatever they come from and go to.

use super::cut::Cutter;
use super::retain::{Retain, Verdict};
use super::{Counters, Job};
use crate::error::{Error, Result};
use crate::sst::EntryStream;
use waystation_format::key::{TRAILER_BYTES, user_key};
use waystation_format::order::Order;

/// How many entries pass between two questions whether to give up.
pub(super) const CANCEL_INTERVAL: u64 = 1024;

/// Where kept entries go.
pub(super) trait Output {
    /// Takes the next entry of the current table, beginning one if there is none.
    fn add(&mut self, internal_key: &[u8], value: &[u8]) -> Result<()>;
    /// Bytes of the current table so far; 0 if there is none.
    fn table_bytes(&self) -> u64;
    /// Ends the current table. `rest` is what was done up to here, and the user key that the rest begins with; `None`: there is
    /// no rest.
    fn cut(&mut self, rest: Option<(&Counters, &[u8])>) -> Result<()>;
}

/// Passes what `job` keeps of `input`, which is positioned on its first entry, to `output`. User keys are in `order`.
pub(super) fn merge<I: EntryStream>(
    job: &Job,
    order: &Order,
    input: &mut I,
    output: &mut impl Output,
    cancelled: &dyn Fn() -> bool,
) -> Result<Counters> {
    let mut retain = Retain::new(job, order);
    let mut cutter = Cutter::new(job, order);
    let mut counters = Counters::default();
    while input.has_entry() {
        let (key, value) = input.entry();
        if key.len() < TRAILER_BYTES {
            return Err(Error::InvalidArgument(
                "an entry without a trailer reached a merge".into(),
            ));
        }
        if counters.entries_in % CANCEL_INTERVAL == 0 && cancelled() {
            return Err(Error::Closed("closed"));
        }
        let verdict = retain.judge(key)?;
        if retain.starts_key() && cutter.cuts_before(user_key(key), output.table_bytes()) {
            output.cut(Some((&counters, user_key(key))))?;
        }
        counters.entries_in += 1;
        match verdict {
            Verdict::Keep => {
                output.add(key, value)?;
                counters.entries_out += 1;
            }
            Verdict::Shadowed => counters.shadowed += 1,
            Verdict::DeadDeletion => counters.dead_deletions += 1,
            Verdict::Hidden => counters.hidden += 1,
        }
        input.advance()?;
    }
    if output.table_bytes() > 0 {
        output.cut(None)?;
    }
    Ok(counters)
}
