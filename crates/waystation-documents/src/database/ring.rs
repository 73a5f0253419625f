//! The ring: which shard a document belongs to.
//!
//! The CRC-32 of a document's identifier is a place on a ring of 2^32 places, which is cut into as many equal ranges as
//! the database has shards. CouchDB does the same, so its tools name the same ranges.

/// Places on the ring.
const PLACES: u64 = 1 << 32;

/// The number of the shard, of `shards`, that holds document `id`.
pub(super) fn shard_of(id: impl AsRef<[u8]>, shards: usize) -> usize {
    let place = u64::from(crc32fast::hash(id.as_ref()));
    let width = PLACES / shards as u64;
    ((place / width) as usize).min(shards - 1)
}

/// The name of shard `number` of `shards`: its first and last place, `00000000-7fffffff`.
pub(super) fn range_name(number: usize, shards: usize) -> String {
    let width = PLACES / shards as u64;
    let begin = width * number as u64;
    let end = if number + 1 == shards {
        PLACES - 1
    } else {
        begin + width - 1
    };
    format!("{begin:08x}-{end:08x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_meet_and_cover_the_ring() {
        assert_eq!(range_name(0, 2), "00000000-7fffffff");
        assert_eq!(range_name(1, 2), "80000000-ffffffff");
        assert_eq!(range_name(2, 3), "aaaaaaaa-ffffffff");
        assert_eq!(range_name(0, 1), "00000000-ffffffff");
    }

    #[test]
    fn a_document_lies_in_the_range_that_names_its_place() {
        for shards in 1..9 {
            for id in ["", "a", "car-7", "_design/x", "ü"] {
                let name = range_name(shard_of(id, shards), shards);
                let place = format!("{:08x}", crc32fast::hash(id.as_bytes()));
                let (begin, end) = name.split_once('-').expect("a range has two ends");
                assert!(
                    begin <= place.as_str() && place.as_str() <= end,
                    "{id} {name}"
                );
            }
        }
    }
}
