//! Round trips and damage: every single-bit flip of a header, block, index or journal file is noticed.

use super::*;
use crate::checksum;

fn seal() -> Seal {
    Seal {
        start_lsn: 8192,
        length: 4096,
        used: 300,
        first_record: 64,
        first_sequence: 17,
        incarnation: 3,
    }
}

fn written_block() -> Vec<u8> {
    let mut block = vec![7; 4096];
    block[300..].fill(0);
    let mut header = seal().encode();
    finish_block(&mut header, [&block[64..1000], &block[1000..]], 9, 4096);
    block[..64].copy_from_slice(&header);
    block
}

/// Calls `check` with each single-bit variant of `bytes`.
fn each_flip(bytes: &[u8], mut check: impl FnMut(usize, &[u8])) {
    let mut flipped = bytes.to_vec();
    for bit in 0..bytes.len() * 8 {
        flipped[bit / 8] ^= 1 << (bit % 8);
        check(bit, &flipped);
        flipped[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn a_block_reads_back_and_every_flip_is_noticed() {
    let block = written_block();
    assert!(body_is_valid(&block));
    let header = BlockHeader::decode(&block).expect("header");
    assert_eq!(
        header,
        BlockHeader {
            seal: seal(),
            segment: 9,
            durable_lsn: 4096
        }
    );
    each_flip(&block, |bit, flipped| {
        assert!(!body_is_valid(flipped), "bit {bit}");
    });
}

#[test]
fn a_seal_is_readable_before_the_block_is_written_out() {
    let header = seal().encode();
    assert_eq!(BlockHeader::decode(&header).expect("header").seal, seal());
    each_flip(&header[..48], |bit, flipped| {
        let mut whole = header;
        whole[..48].copy_from_slice(flipped);
        // The body checksum (bits 0..32) is not part of the seal.
        assert_eq!(BlockHeader::decode(&whole).is_some(), bit < 32, "bit {bit}");
    });
}

#[test]
fn a_record_is_bound_to_its_place_and_life() {
    let payload = b"some operations";
    let header = RecordHeader {
        payload_bytes: 15,
        first_sequence: 40,
        operations: 2,
        kind: RecordKind::Batch,
    };
    assert_eq!(header.last_sequence(), 41);
    let bytes = header.encode(4160, 3, checksum::crc32c(payload));
    assert_eq!(RecordHeader::peek(&bytes), Some(header));
    assert!(RecordHeader::matches(&bytes, payload, 4160, 3));
    assert!(!RecordHeader::matches(&bytes, payload, 4160 + 65536, 3));
    assert!(!RecordHeader::matches(&bytes, payload, 4160, 4));
    each_flip(&bytes, |bit, flipped| {
        let flipped: &[u8; RECORD_HEADER_BYTES] = flipped.try_into().expect("length");
        assert!(
            !RecordHeader::matches(flipped, payload, 4160, 3),
            "bit {bit}"
        );
    });
    each_flip(payload, |bit, flipped| {
        assert!(
            !RecordHeader::matches(&bytes, flipped, 4160, 3),
            "payload bit {bit}"
        );
    });
}

#[test]
fn a_segment_header_reads_back_and_every_flip_is_noticed() {
    let header = SegmentHeader {
        number: 5,
        incarnation: 2,
        start_lsn: 65536,
        capacity: 1 << 26,
        durable_lsn: 1,
        first_sequence: 70,
        previous: 4,
    };
    let mut unit = vec![1; UNIT_BYTES];
    header.encode_into(&mut unit);
    assert_eq!(SegmentHeader::decode(&unit), Some(header));
    each_flip(&unit[..72], |bit, flipped| {
        assert_eq!(SegmentHeader::decode(flipped), None, "bit {bit}");
    });
}

#[test]
fn an_index_reads_back_and_every_flip_is_noticed() {
    let entries = [
        IndexEntry::from(&seal()),
        IndexEntry {
            start_lsn: 12288,
            ..IndexEntry::from(&seal())
        },
    ];
    let footer = SegmentFooter {
        number: 5,
        incarnation: 2,
        blocks: 2,
        end_lsn: 16384,
        last_sequence: 90,
        index_offset: 1 << 20,
        durable_lsn: 8192,
        next: 6,
    };
    let bytes = encode_index(&entries, &footer);
    assert_eq!(bytes.len(), footer.tail_bytes());
    assert_eq!(decode_index(&bytes), Some((entries.to_vec(), footer)));
    each_flip(&bytes, |bit, flipped| {
        assert_eq!(decode_index(flipped), None, "bit {bit}");
    });
}

#[test]
fn a_journal_file_reads_back_and_every_flip_is_noticed() {
    let state = JournalState {
        incarnation: 7,
        ring_bytes: 1 << 24,
        first_segment: 12,
        clean_lsn: 4096,
        boot: Some([5; 16]),
    };
    let bytes = state.encode();
    assert_eq!(JournalState::decode(&bytes), Ok(state));
    let state = JournalState {
        boot: None,
        ..state
    };
    assert_eq!(JournalState::decode(&state.encode()), Ok(state));
    each_flip(&bytes, |bit, flipped| {
        assert!(JournalState::decode(flipped).is_err(), "bit {bit}");
    });
    assert!(JournalState::decode(&bytes[..40]).is_err());
}

#[test]
fn a_ring_file_has_whole_units_and_room_for_blocks() {
    let lengths = |bytes| ring_file_lengths(bytes).collect::<Vec<u64>>();
    assert_eq!(lengths(256 << 10), [256 << 10]);
    assert_eq!(lengths(508 << 10), [508 << 10], "a half is too short");
    // 101 units of 4 KiB cannot be halved.
    let odd = 101 << 12;
    assert_eq!(lengths(4 * odd), [4 * odd, 2 * odd, odd]);
    assert_eq!(lengths(16 << 20).len(), 7);
    assert_eq!(lengths(16 << 20).last(), Some(&(256 << 10)));
}

/// Version 1 ended before the machine's start.
#[test]
fn a_journal_file_of_version_1_reads_as_one_that_does_not_know_the_start() {
    let state = JournalState {
        incarnation: 7,
        ring_bytes: 1 << 24,
        first_segment: 12,
        clean_lsn: 0,
        boot: None,
    };
    let mut bytes = state.encode();
    bytes.truncate(48);
    bytes[12..16].copy_from_slice(&1_u32.to_le_bytes());
    let checksum = checksum::crc32c(&bytes[12..]);
    bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(JournalState::decode(&bytes), Ok(state));
    each_flip(&bytes, |bit, flipped| {
        assert!(JournalState::decode(flipped).is_err(), "bit {bit}");
    });
}

#[test]
fn hostile_bytes_are_refused_not_trusted() {
    for length in 0..200 {
        let bytes = vec![0xff; length];
        assert_eq!(BlockHeader::decode(&bytes), None);
        assert_eq!(SegmentHeader::decode(&bytes), None);
        assert_eq!(decode_index(&bytes), None);
        assert_eq!(RecordHeader::peek(&bytes), None);
        assert!(JournalState::decode(&bytes).is_err());
    }
}
