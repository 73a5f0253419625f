//! Where the bytes of a tree lie, without reading data blocks.

use super::Tree;
use crate::error::Result;
use crate::lsm::version::Version;
use crate::sst::TableMeta;
use crate::sync::Arc;

impl Tree {
    /// About how many bytes of the tables of `version` hold keys from `lower` on and before `upper`: exact to the
    /// blocks at both ends.
    pub(crate) fn approximate_bytes(
        &self,
        version: &Version,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<u64> {
        let mut bytes = 0;
        for (_, table) in version.tables() {
            let end = self.bytes_before(table, upper)?;
            if end > 0 {
                bytes += end.saturating_sub(self.bytes_before(table, lower)?);
            }
        }
        Ok(bytes)
    }

    /// About how many bytes of a table lie before `user_key`.
    fn bytes_before(&self, table: &Arc<TableMeta>, user_key: &[u8]) -> Result<u64> {
        let order = self.order();
        if !order.is_before(table.smallest_user_key(), user_key) {
            return Ok(0);
        }
        if order.is_before(table.largest_user_key(), user_key) {
            return Ok(table.file_bytes);
        }
        Ok(self.tables.get(table)?.offset_of(user_key))
    }
}
