//! The check of the upper level: every entry of an index against the log.

use super::index::{Entry, Leaves, Spot, Window};
use super::residency::Residency;
use super::upper::Upper;
use crate::error::{Error, Result};
use crate::log::{Pass, ValueRef};
use crate::lsm::tree::{CheckReport, Problem};
use crate::storage::IoPriority;
use waystation_format::varint::put_u64;

/// How many problems of a device are told one by one.
const TOLD: usize = 3;

/// Checks what a residency's index names, up to write `written`: newer records may not be in the log yet.
pub(crate) fn check_residency(
    upper: &Upper,
    residency: &Residency,
    written: u64,
    report: &mut CheckReport,
) -> Result<()> {
    let mut window = Window::default();
    let mut last: Option<(Vec<u8>, u64)> = None;
    let mut problems = 0;
    loop {
        residency.load(&mut window, |index: &Leaves, window| match &last {
            Some((key, sequence)) => index.load_from(key, sequence - 1, window),
            None => index.load_from(b"", u64::MAX, window),
        });
        let entries = (0..window.len()).filter_map(|at| window.get(at));
        for (key, entry) in entries.filter(|(_, entry)| entry.sequence <= written) {
            report.upper_entries += 1;
            let Some(reason) = problem(upper, residency.prefix(), key, entry)? else {
                continue;
            };
            problems += 1;
            if problems <= TOLD {
                let device = residency.prefix().escape_ascii();
                let key = key.escape_ascii();
                report.problems.push(Problem {
                    level: 0,
                    table: 0,
                    reason: format!("device {device}, key {key}: {reason}"),
                });
            }
        }
        match window.len().checked_sub(1).and_then(|at| window.get(at)) {
            Some((key, entry)) => last = Some((key.to_vec(), entry.sequence)),
            None => break,
        }
    }
    if problems > TOLD {
        let device = residency.prefix().escape_ascii();
        report.problems.push(Problem {
            level: 0,
            table: 0,
            reason: format!("device {device}: {} more of its keys", problems - TOLD),
        });
    }
    Ok(())
}

/// The fault of an entry of the index. In the record, a value stands behind its key and its length.
fn problem(upper: &Upper, prefix: &[u8], suffix: &[u8], entry: &Entry) -> Result<Option<String>> {
    let Some(Spot {
        record_lsn,
        offset,
        length,
    }) = entry.value
    else {
        return Ok(None);
    };
    let mut expected = [prefix, suffix].concat();
    put_u64(&mut expected, u64::from(length));
    let Some(start) = (offset as usize).checked_sub(expected.len()) else {
        return Ok(Some("its value lies where none can".to_owned()));
    };
    let mut found = vec![0; expected.len() + length as usize];
    let value_ref = ValueRef {
        record_lsn,
        offset: start,
        target: 0..found.len(),
    };
    match upper.values(&mut [value_ref], Pass::Once(IoPriority::High), &mut found) {
        Ok(()) if found.starts_with(&expected) => Ok(None),
        Ok(()) => Ok(Some(format!(
            "the log's record at LSN {record_lsn} holds something else"
        ))),
        Err(error @ Error::Corruption { .. }) => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}
