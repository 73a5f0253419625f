//! Where the data blocks of a table lie, in little memory: a table of 2 MiB has 500.

use waystation_format::table::{BlockHandle, TRAILER_BYTES};

/// The places of a table's data blocks.
#[derive(Debug)]
pub(super) enum Handles {
    /// Where each block begins, which is where the trailer of the one before ends; and where the last one ends. Every
    /// writer of tables that we know puts them so.
    InARow(Box<[u32]>),
    /// Where each block lies, of a table of 4 GiB or of an unknown writer.
    Anywhere(Box<[BlockHandle]>),
}

impl Handles {
    /// How many blocks there are.
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::InARow(starts) => starts.len() - 1,
            Self::Anywhere(handles) => handles.len(),
        }
    }

    /// Where block `position` lies.
    #[inline]
    pub(super) fn get(&self, position: usize) -> BlockHandle {
        match self {
            Self::InARow(starts) => {
                let (start, end) = (starts[position], starts[position + 1]);
                BlockHandle {
                    offset: u64::from(start),
                    length: u64::from(end - start) - TRAILER_BYTES as u64,
                }
            }
            Self::Anywhere(handles) => handles[position],
        }
    }

    /// Bytes of memory in use.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::InARow(starts) => size_of_val(&**starts),
            Self::Anywhere(handles) => size_of_val(&**handles),
        }
    }
}

impl From<Vec<BlockHandle>> for Handles {
    fn from(handles: Vec<BlockHandle>) -> Self {
        match starts(&handles) {
            Some(starts) => Self::InARow(starts),
            None => Self::Anywhere(handles.into()),
        }
    }
}

/// Where blocks begin that lie in a row, and where the last one ends.
fn starts(handles: &[BlockHandle]) -> Option<Box<[u32]>> {
    let mut next = handles.first()?.offset;
    let mut starts = Vec::with_capacity(handles.len() + 1);
    for handle in handles {
        if handle.offset != next {
            return None;
        }
        starts.push(u32::try_from(next).ok()?);
        next = handle.end()?;
    }
    starts.push(u32::try_from(next).ok()?);
    Some(starts.into())
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_found_wherever_it_lies() {
        let handle = |offset, length| BlockHandle { offset, length };
        let last = u64::from(u32::MAX) - 20;
        for (handles, in_a_row) in [
            (vec![], false),
            (vec![handle(0, 0)], true),
            (
                vec![handle(7, 100), handle(112, 0), handle(117, 4096)],
                true,
            ),
            (vec![handle(last, 15)], true),
            (vec![handle(last, 16)], false),
            (vec![handle(0, 100), handle(106, 10)], false),
            (vec![handle(0, 100), handle(104, 10)], false),
            (vec![handle(500, 10), handle(0, 10)], false),
            (vec![handle(0, u64::MAX)], false),
        ] {
            let found = Handles::from(handles.clone());
            assert_eq!(matches!(found, Handles::InARow(_)), in_a_row, "{handles:?}");
            let all: Vec<_> = (0..found.len()).map(|it| found.get(it)).collect();
            assert_eq!(all, handles);
        }
    }
}
