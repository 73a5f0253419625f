//! Tests of the door and of the storages behind it.

mod contract;
mod crash;
mod crash_model;
mod fault;
mod os;

use super::{Area, AreaMeter, Storage};

fn meter(storage: &dyn Storage, area: Area) -> AreaMeter {
    let meters = storage.meters();
    meters
        .iter()
        .find(|(found, _)| *found == area)
        .map(|(_, meter)| *meter)
        .expect("all areas")
}
