//! What should be true of two edges: what each holds after every event, and what it has promised.

use crate::support::Content;
use std::sync::Arc;
use waystation::{Receipt, Refusal, Ticket};

/// By what a device is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrozenBy {
    /// The hand-off with this number.
    HandOff(usize),
    /// One that failed before its name was told.
    Unknown,
}

/// What an edge knows of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// `None`: it is not here.
    pub(crate) rows: Option<Arc<Content>>,
    pub(crate) frozen: Option<FrozenBy>,
    /// The hand-off it left a stub by.
    pub(crate) stub: Option<usize>,
}

/// What an edge holds after an event, by device.
pub(crate) type Holdings = Vec<Known>;

/// A hand-off, as its two sides see it.
pub(crate) struct HandOff {
    pub(crate) from: usize,
    pub(crate) device: usize,
    pub(crate) to: usize,
    pub(crate) ticket: Ticket,
    pub(crate) stream: Vec<u8>,
    pub(crate) rows: Arc<Content>,
    /// What its destination answered: a promise.
    pub(crate) receipt: Option<Receipt>,
    pub(crate) refusal: Option<Refusal>,
    /// Whether its destination has admitted it, whoever was told.
    pub(crate) is_admitted: bool,
    /// Whether its destination may have refused it, and nobody was told.
    pub(crate) is_perhaps_refused: bool,
    /// Whether its source has ended it at some time: then its destination may have been told that it is over.
    pub(crate) was_ended: bool,
}

/// The events of one edge since it was opened.
pub(crate) struct Events {
    /// What it held when it was opened, and after each event.
    after: Vec<Holdings>,
    /// So many of these, from the first on, survive a power cut.
    durable: usize,
    /// What it holds if a call that failed has done its work.
    maybe: Option<Holdings>,
}

impl Events {
    /// An edge that was just opened: what it holds was made durable by that.
    pub(crate) fn new(holdings: Holdings) -> Self {
        Self {
            after: vec![holdings],
            durable: 0,
            maybe: None,
        }
    }

    /// What it holds now.
    pub(crate) fn now(&self) -> &Holdings {
        &self.after[self.after.len() - 1]
    }

    /// An event that concerns one device.
    pub(crate) fn happen(&mut self, device: usize, change: impl FnOnce(&mut Known)) {
        let after = self.with(device, change);
        self.after.push(after);
    }

    /// An event that may have happened, and nobody knows; the edge ends next.
    pub(crate) fn may_happen(&mut self, device: usize, change: impl FnOnce(&mut Known)) {
        self.maybe = Some(self.with(device, change));
    }

    fn with(&self, device: usize, change: impl FnOnce(&mut Known)) -> Holdings {
        let mut holdings = self.now().clone();
        change(&mut holdings[device]);
        holdings
    }

    /// Everything so far survives a power cut.
    pub(crate) fn note_durable(&mut self) {
        self.durable = self.after.len() - 1;
    }

    /// What it may hold after its process has died, or the power was cut; the latest first.
    pub(crate) fn left(&self, is_power_cut: bool) -> impl Iterator<Item = &Holdings> {
        let first = if is_power_cut {
            self.durable
        } else {
            self.after.len() - 1
        };
        self.maybe.iter().chain(self.after[first..].iter().rev())
    }
}
