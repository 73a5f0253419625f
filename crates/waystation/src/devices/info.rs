//! Facts about a device.

use super::table::DeviceState;
use std::time::Duration;

/// Where the data of a device is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceLevel {
    /// In the upper level: in the log, with an index in memory.
    Upper,
    /// On its way from the upper level to the tree.
    Settling,
    /// In the tree.
    Tree,
    /// It has departed, and not all of its data is gone yet.
    Departed,
}

/// The known facts about a device.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DeviceInfo {
    /// Its name, as its keys have it.
    pub name: Vec<u8>,
    /// Where its data is.
    pub level: DeviceLevel,
    /// Versions in the upper level, or that settled. What was written before there was an extractor is not counted.
    pub records: u64,
    /// Their keys' and values' bytes.
    pub bytes: u64,
    /// How long it has been in the upper level, not counting when the database was closed.
    pub age: Option<Duration>,
    /// The sequence number of the first write of its residency in the upper level, which names the residency.
    pub incarnation: Option<u64>,
    /// Residencies that are over and whose data is held, for now or for a snapshot.
    pub held_stays: usize,
    /// Departures that still hide something in the tree.
    pub departures: usize,
    /// How many engines have handed it on.
    pub tenure: u64,
    /// Where it is being handed on to.
    pub moving_to: Option<String>,
}

/// The known facts about a device; it may have keys in the tree from before there was an extractor.
pub(crate) fn describe(
    name: Vec<u8>,
    state: &DeviceState,
    has_older: bool,
    now: Duration,
) -> Option<DeviceInfo> {
    let residency = state
        .current
        .as_ref()
        .filter(|residency| residency.has_begun());
    let level = match (residency, state.lower_since) {
        (Some(_), None) => DeviceLevel::Upper,
        (Some(_), Some(_)) => DeviceLevel::Settling,
        (None, Some(_)) => DeviceLevel::Tree,
        (None, None) if has_older && state.covering.is_empty() => DeviceLevel::Tree,
        (None, None) => DeviceLevel::Departed,
    };
    let is_there = level != DeviceLevel::Departed;
    let (mut records, mut bytes) = (state.settled_records, state.settled_bytes);
    if let Some(residency) = residency {
        records += residency.records();
        bytes += residency.log_bytes();
    }
    (is_there || !state.past.is_empty() || !state.covering.is_empty()).then(|| DeviceInfo {
        name,
        level,
        records,
        bytes,
        age: residency.map(|residency| now.saturating_sub(residency.arrival())),
        incarnation: residency.map(|residency| residency.first_sequence()),
        held_stays: state.past.len(),
        departures: state.covering.as_slice().len(),
        tenure: state.tenure,
        moving_to: state.frozen.as_ref().map(|it| it.destination.to_string()),
    })
}
