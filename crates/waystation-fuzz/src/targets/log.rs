//! Our own log: blocks, records, segments, the journal.

use super::file_seeds;
use waystation_format::log::{
    BLOCK_HEADER_BYTES, BlockHeader, JournalState, RECORD_HEADER_BYTES, RecordHeader, RecordKind,
    SegmentFooter, SegmentHeader, body_is_valid, decode_index, encode_index, finish_block,
};

/// The header of a block.
pub(super) fn block(bytes: &[u8]) {
    if let Some(header) = BlockHeader::decode(bytes) {
        let _ = header.seal.end_lsn();
        assert!(header.seal.used <= header.seal.length);
    }
    if bytes.len() >= BLOCK_HEADER_BYTES {
        let _ = body_is_valid(bytes);
        if let Some((header, body)) = bytes.split_first_chunk::<BLOCK_HEADER_BYTES>() {
            let mut header = *header;
            finish_block(&mut header, [body, &[]], 1, 0);
            assert!(body_is_valid(&[&header, body].concat()));
        }
    }
}

pub(super) fn block_seeds() -> Vec<Vec<u8>> {
    let segments = file_seeds(".seg").into_iter();
    segments
        .filter_map(|file| Some(file.get(4096..)?.to_vec()))
        .collect()
}

/// The header of a record.
pub(super) fn record(bytes: &[u8]) {
    if let Some(header) = RecordHeader::peek(bytes) {
        assert!(header.last_sequence() >= header.first_sequence);
        let encoded = header.encode(7, 3, crc32c_of(bytes));
        assert_eq!(RecordHeader::peek(&encoded), Some(header));
        assert!(RecordHeader::matches(&encoded, bytes, 7, 3));
        assert!(!RecordHeader::matches(&encoded, bytes, 8, 3));
    }
}

fn crc32c_of(bytes: &[u8]) -> u32 {
    waystation_format::checksum::crc32c(bytes)
}

pub(super) fn record_seeds() -> Vec<Vec<u8>> {
    let header = |kind| {
        let header = RecordHeader {
            payload_bytes: 4,
            first_sequence: 9,
            operations: 2,
            kind,
        };
        let mut bytes = header.encode(4096, 1, 5).to_vec();
        bytes.extend_from_slice(&[1, 2, 3, 4]);
        bytes
    };
    vec![
        header(RecordKind::Batch),
        header(RecordKind::Devices),
        header(RecordKind::Gap),
        vec![0; RECORD_HEADER_BYTES],
    ]
}

/// A segment's header, footer and index; what parses is written as it was read.
pub(super) fn segment(bytes: &[u8]) {
    let _ = SegmentHeader::is_newer(bytes);
    if let Some(header) = SegmentHeader::decode(bytes) {
        let mut unit = vec![0; 4096];
        header.encode_into(&mut unit);
        assert_eq!(SegmentHeader::decode(&unit), Some(header));
    }
    if let Some((entries, footer)) = decode_index(bytes) {
        assert_eq!(
            decode_index(&encode_index(&entries, &footer)),
            Some((entries, footer))
        );
    }
    let tail = bytes
        .len()
        .saturating_sub(waystation_format::log::FOOTER_BYTES);
    if let Some(footer) = SegmentFooter::peek(&bytes[tail..]) {
        let _ = footer.tail_bytes();
    }
}

/// The journal; with the checksum that fits, too.
pub(super) fn journal(bytes: &[u8]) {
    let _ = JournalState::is_newer(bytes);
    let mut healed = bytes.to_vec();
    super::files::heal_journal(&mut healed);
    for bytes in [bytes, &healed] {
        if let Ok(state) = JournalState::decode(bytes) {
            assert_eq!(JournalState::decode(&state.encode()), Ok(state));
        }
    }
}
