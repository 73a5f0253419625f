//! Directories that are older than their extractor.
//!
//! What was written before there was one lies in the tree, and the device table does not know of it: such a device is
//! there if a cursor finds a key of it. The table knows all that has happened to devices since.

use super::iterator::prefix_end;
use super::{Core, IterOptions};
use crate::devices::table::DeviceTable;
use crate::error::Result;
use std::collections::BTreeSet;

impl Core {
    /// Whether the device of `prefix`, of which the table knows nothing that is there, has keys from before there was
    /// an extractor.
    pub(super) fn has_older(&self, table: &DeviceTable, prefix: &[u8]) -> Result<bool> {
        Ok(!table.is_complete() && !table.is_occupied(prefix) && self.has_any(prefix)?)
    }

    fn has_any(&self, prefix: &[u8]) -> Result<bool> {
        let mut entries = self.iter(IterOptions::prefix(prefix))?;
        entries.seek_to_first()?;
        Ok(entries.valid())
    }

    /// With what the keys begin of all devices in the tree, in a directory that is older than its extractor. Looks at one
    /// key of each device, and at all keys that belong to none.
    pub(super) fn older_prefixes(&self, table: &DeviceTable) -> Result<BTreeSet<Vec<u8>>> {
        let mut found = BTreeSet::new();
        if table.is_complete() {
            return Ok(found);
        }
        let mut entries = self.iter_on(IterOptions::default(), None)?;
        entries.seek_to_first()?;
        while entries.valid() {
            let Some(prefix) = table.extractor().prefix(entries.key()) else {
                entries.next()?;
                continue;
            };
            let end = prefix_end(prefix);
            found.insert(prefix.to_vec());
            match end {
                Some(end) => entries.seek(&end)?,
                None => break,
            }
        }
        Ok(found)
    }
}
