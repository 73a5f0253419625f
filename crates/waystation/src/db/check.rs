//! The check of an open database: the tree, and with devices every entry of the upper level against the log.

use super::Db;
use crate::devices::check::check_residency;
use crate::error::Result;
use crate::log::Log;
use crate::lsm::tree::CheckReport;

impl Db {
    /// Checks every table: order, bounds, every block's checksum; and with devices, that the log holds every version that
    /// the indexes of the upper level name, where they say. Returns what was checked.
    pub fn check(&self) -> Result<CheckReport> {
        let core = &self.core;
        let Some(devices) = &core.devices else {
            return core.tree.check(0);
        };
        core.log.wait_acknowledged();
        let written = core.log.visible_sequence();
        let mut report = core.tree.check(written)?;
        // Indexes that are given up meanwhile stay readable.
        let pins = (core.snapshot(), Log::pin(&core.log));
        let checked = devices
            .upper
            .table
            .residencies(|_| true)
            .iter()
            .try_for_each(|residency| {
                check_residency(&devices.upper, residency, written, &mut report)
            });
        drop(pins);
        core.keep_soon();
        checked.map(|()| report)
    }
}
