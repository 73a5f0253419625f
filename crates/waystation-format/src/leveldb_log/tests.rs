//! The facts of LevelDB's `db/log_test.cc`, and damage of every kind.

use super::*;
use crate::checksum;
use crate::error::FormatError;
use proptest::collection::vec;
use proptest::prelude::*;

fn write(records: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = RecordWriter::new(0);
    for record in records {
        writer.append(record, &mut out);
    }
    out
}

/// All whole records, all errors, and how it ends.
fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, Vec<FormatError>, Ending) {
    let mut reader = RecordReader::new(bytes);
    let (mut records, mut errors) = (Vec::new(), Vec::new());
    loop {
        match reader.next() {
            Ok(Some(record)) => records.push(record.to_vec()),
            Ok(None) => return (records, errors, reader.ending()),
            Err(error) => errors.push(error),
        }
    }
}

fn clean(records: &[Vec<u8>]) -> (Vec<Vec<u8>>, Vec<FormatError>, Ending) {
    (records.to_vec(), Vec::new(), Ending::Clean)
}

fn big(text: &str, bytes: usize) -> Vec<u8> {
    text.bytes().cycle().take(bytes).collect()
}

#[test]
fn bytes_are_leveldbs() {
    let crc = checksum::mask(checksum::crc32c(b"\x01foo"));
    let expected = [&crc.to_le_bytes()[..], &[3, 0, 1], b"foo"].concat();
    assert_eq!(write(&[b"foo".to_vec()]), expected);
}

#[test]
fn records_round_trip_whatever_is_left_of_a_block() {
    assert_eq!(read(&[]), clean(&[]));
    // Exactly a header left, less than a header left, nothing left.
    for left in [HEADER_BYTES, 3, HEADER_BYTES + 1, 0, 1] {
        let first = big("foo", BLOCK_BYTES - HEADER_BYTES - left);
        let records = [first, Vec::new(), b"bar".to_vec(), big("x", 100_000)];
        let bytes = write(&records);
        assert_eq!(read(&bytes), clean(&records), "{left} bytes left");
    }
}

#[test]
fn an_appended_log_goes_on_where_it_ended() {
    let records = [big("hello", 40_000), b"world".to_vec()];
    let mut bytes = write(&records[..1]);
    RecordWriter::new(bytes.len() as u64).append(&records[1], &mut bytes);
    assert_eq!(read(&bytes), clean(&records));
}

#[test]
fn space_written_ahead_is_no_record() {
    let records = [b"foo".to_vec()];
    let mut bytes = write(&records);
    for padding in [1, 6, 7, 100, BLOCK_BYTES, 3 * BLOCK_BYTES] {
        bytes.resize(bytes.len() + padding, 0);
        assert_eq!(read(&bytes), clean(&records));
    }
}

#[test]
fn every_cut_is_a_torn_tail() {
    let records = [
        b"foo".to_vec(),
        big("bar", 2 * BLOCK_BYTES),
        b"baz".to_vec(),
    ];
    let bytes = write(&records);
    let ends: Vec<usize> = (1..=3).map(|n| write(&records[..n]).len()).collect();
    for cut in (0..30)
        .chain(BLOCK_BYTES - 9..BLOCK_BYTES + 9)
        .chain(2 * BLOCK_BYTES - 9..bytes.len())
    {
        let whole = ends.iter().filter(|&&end| end <= cut).count();
        let ending = if cut == 0 || ends.contains(&cut) {
            Ending::Clean
        } else {
            Ending::Torn
        };
        let expected = (records[..whole].to_vec(), Vec::new(), ending);
        assert_eq!(read(&bytes[..cut]), expected, "cut at {cut}");
    }
}

#[test]
fn the_end_of_the_last_whole_record_is_known() {
    let bytes = write(&[b"foo".to_vec(), b"bar".to_vec()]);
    let mut reader = RecordReader::new(&bytes[..bytes.len() - 1]);
    assert_eq!(reader.next(), Ok(Some(&b"foo"[..])));
    assert_eq!(reader.next(), Ok(None));
    assert_eq!(
        (reader.ending(), reader.whole_through()),
        (Ending::Torn, 10)
    );
}

#[test]
fn pieces_out_of_order_are_damage() {
    let chunk = |kind: u8, data: &[u8]| {
        let crc = checksum::extend(checksum::crc32c(&[kind]), data);
        let mut out = checksum::mask(crc).to_le_bytes().to_vec();
        out.extend_from_slice(&(data.len() as u16).to_le_bytes());
        out.push(kind);
        out.extend_from_slice(data);
        out
    };
    let full = chunk(FULL, b"x");
    for (bad, errors) in [
        (chunk(MIDDLE, b"m"), 1),
        (chunk(LAST, b"l"), 1),
        (chunk(FIRST, b"f"), 1),
        (chunk(FIRST, b""), 0), // as an old LevelDB wrote
        (chunk(5, b"?"), 1),
        (chunk(6, b"?"), 1),
        (chunk(0, b"?"), 1),
    ] {
        let bytes = [full.clone(), bad, full.clone()].concat();
        let (records, found, _) = read(&bytes);
        assert_eq!(records, [b"x", b"x"]);
        assert_eq!(found.len(), errors);
    }
}

#[test]
fn reading_goes_on_in_the_next_block_after_damage() {
    // foo | rest of the block in two records | bar, in the next block
    let filler = BLOCK_BYTES - 3 * HEADER_BYTES - 3;
    let records = [
        b"foo".to_vec(),
        big("a", filler / 2),
        big("b", filler - filler / 2),
        b"bar".to_vec(),
    ];
    let mut bytes = write(&records);
    bytes[20] ^= 4;
    let (found, errors, ending) = read(&bytes);
    assert_eq!(found, [b"foo".to_vec(), b"bar".to_vec()]);
    assert_eq!(errors, [FormatError::checksum(10, "a chunk of a log")]);
    assert_eq!(ending, Ending::Clean);
}

/// No flip of a single bit is overlooked: an error is reported, and no record is ever altered.
#[test]
fn every_flipped_bit_is_noticed() {
    let records: Vec<Vec<u8>> = ["", "a", "hello", "0123456789abcdef", ""]
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect();
    let bytes = write(&records);
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let (found, errors, _) = read(&damaged);
        assert!(!errors.is_empty(), "bit {bit}");
        assert!(records.starts_with(&found), "bit {bit}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn records_round_trip(lengths in vec(prop_oneof![0..50_usize, 32_740..32_780_usize, 0..100_000_usize], 0..12)) {
        let records: Vec<Vec<u8>> = lengths.iter().map(|&n| big("0123456789", n)).collect();
        let bytes = write(&records);
        prop_assert_eq!(read(&bytes), clean(&records));
    }

    #[test]
    fn flipped_bits_of_long_records_are_noticed(
        lengths in vec(0..50_000_usize, 1..5), bit: prop::sample::Index,
    ) {
        let records: Vec<Vec<u8>> = lengths.iter().map(|&n| big("0123456789", n)).collect();
        let mut bytes = write(&records);
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (found, errors, _) = read(&bytes);
        prop_assert!(!errors.is_empty());
        prop_assert!(found.iter().all(|record| records.contains(record)));
    }

    #[test]
    fn any_bytes_are_answered(bytes in vec(prop_oneof![Just(0_u8), 0..5_u8, any::<u8>()], 0..200)) {
        let _ = read(&bytes);
    }
}
