//! Streams that stall.
//!
//! What comes in parts holds the log from its first part on, and a `Read` may block for ever, in code that is not ours.
//! So the maintenance looks at the streams that are waited for, and for how long, and gives up what came too slowly: the log is released,
//! and the hand-off can be tried again, while the admitting thread is still waiting. It hears of it when its reader returns.
//!
//! Only waiting for the stream counts, not the engine's own work; and a stream goes on when it has brought
//! [`PROGRESS_BYTES`], so that one byte now and then is not enough.

use super::stream::damaged;
use crate::devices::clock::ResidencyClock;
use crate::devices::context::Context;
use crate::devices::residency::Residency;
use crate::error::Error;
use crate::storage::Storage;
use crate::sync::Arc;
use std::io::{self, Read};
use std::time::Duration;

/// A stream may be waited for so long, or for a residency if that is longer.
const PATIENCE: Duration = Duration::from_secs(300);
/// The same where a budget of the upper level presses, or the disk is full. At full load it takes about as long from
/// where a budget begins to press to where writers are slowed down.
const PATIENCE_UNDER_PRESSURE: Duration = Duration::from_secs(2);
/// What has stalled for this much longer has stalled for too long.
const MOMENT: Duration = Duration::from_millis(1);
/// A stream that brings this has gone on.
const PROGRESS_BYTES: usize = 4096;

/// A stream's source, which can be watched.
pub(super) struct Watched<'a> {
    source: &'a mut dyn Read,
    watch: Option<Watch<'a>>,
}

/// For whom a stream is read.
struct Watch<'a> {
    storage: &'a dyn Storage,
    clock: &'a ResidencyClock,
    residency: Arc<Residency>,
    /// For how long the stream was waited for since it went on.
    waited: Duration,
    /// What it has brought since.
    bytes: usize,
}

impl<'a> Watched<'a> {
    pub(super) fn new(source: &'a mut dyn Read) -> Self {
        Self {
            source,
            watch: None,
        }
    }

    /// From now on it is read for `residency`, and fails once that is given up.
    pub(super) fn watch<E>(&mut self, context: &Context<'a, E>, residency: &Arc<Residency>) {
        self.watch = Some(Watch {
            storage: context.storage,
            clock: context.clock,
            residency: Arc::clone(residency),
            waited: Duration::ZERO,
            bytes: 0,
        });
    }
}

impl Read for Watched<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let Some(watch) = &mut self.watch else {
            return self.source.read(out);
        };
        let now = || watch.clock.read(watch.storage.now());
        let begun = now();
        let since = begun.saturating_sub(watch.waited);
        watch.residency.note_waiting(Some(since));
        let read = self.source.read(out);
        watch.residency.note_waiting(None);
        watch.waited += now().saturating_sub(begun);
        watch.bytes += *read.as_ref().unwrap_or(&0);
        if watch.bytes >= PROGRESS_BYTES {
            (watch.waited, watch.bytes) = (Duration::ZERO, 0);
        }
        if watch.residency.is_reaped() {
            return Err(io::Error::other(too_slow()));
        }
        read
    }
}

/// The error of a stream of which all that had come was given up.
pub(super) fn too_slow() -> Error {
    damaged(
        0,
        "it came too slowly, and what had come of it was given up so that the log is released",
    )
}

/// For how long a stream may be waited for, under pressure or not.
fn patience<E>(context: &Context<'_, E>, presses: bool) -> Duration {
    if presses {
        PATIENCE_UNDER_PRESSURE
    } else {
        context.settings.residency.max(PATIENCE)
    }
}

/// When a stream that is coming has stalled for too long, at the earliest.
pub(crate) fn next_stall<E>(context: &Context<'_, E>, presses: bool) -> Option<Duration> {
    let coming = context.upper.table.coming();
    let now = context.now();
    // One that is not waited for now may be from now on.
    let since = |residency: &Arc<Residency>| residency.waiting_since().unwrap_or(now);
    let first = coming.iter().map(since).min()?;
    let at = first + patience(context, presses) + MOMENT;
    Some(context.storage.now() + at.saturating_sub(now))
}

/// Gives up what came of streams that stall. Under pressure there is less patience, and no stream may take longer
/// than it may stall without.
pub(crate) fn give_up_stalled<E>(context: &Context<'_, E>, presses: bool) {
    let table = &context.upper.table;
    let coming = table.coming();
    if coming.is_empty() {
        return;
    }
    let now = context.now();
    let longest = context.settings.residency.max(PATIENCE);
    let patience = patience(context, presses);
    let is_late = |residency: &Residency| {
        let passed = |since| now.saturating_sub(since);
        let waiting = residency.waiting_since();
        waiting.is_some_and(|since| {
            passed(since) > patience || presses && passed(residency.arrival()) > longest
        })
    };
    for residency in coming.iter().filter(|residency| is_late(residency)) {
        let given_up = context.upper.log.at_front(|_, _| {
            let is_due = residency.is_coming() && is_late(residency);
            is_due.then(|| table.abandon(residency))
        });
        if given_up.is_some() {
            log::warn!(
                "the stream of {} came too slowly; what had come of it is given up",
                residency.prefix().escape_ascii()
            );
        }
    }
}
