//! Tables in memory: written, read back through the same steps a reader takes, and damaged.

use super::*;
use crate::block::{Block, BlockIter};
use crate::bloom;
use crate::key::{InternalKey, ValueKind, append, compare_internal, user_key};
use crate::order::Order;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

fn write(options: &TableOptions, entries: &Entries) -> (Vec<u8>, Properties) {
    let mut writer = TableWriter::new(options.clone());
    let mut file = Vec::new();
    for (i, (key, value)) in entries.iter().enumerate() {
        writer.add(key, value).unwrap();
        if i % 7 == 0 {
            file.extend_from_slice(writer.pending());
            writer.clear_pending();
        }
    }
    assert_eq!(writer.entries(), entries.len() as u64);
    let properties = writer.finish().clone();
    file.extend_from_slice(writer.pending());
    assert_eq!(writer.written(), file.len() as u64);
    (file, properties)
}

fn read_block(file: &[u8], handle: BlockHandle) -> Result<Vec<u8>, FormatError> {
    let outside = FormatError::truncated(file.len(), "a block past the end of its table");
    let end = handle.end().ok_or(outside.clone())? as usize;
    let stored = file.get(handle.offset as usize..end).ok_or(outside)?;
    decode_block(stored, &mut Vec::new()).map(<[u8]>::to_vec)
}

fn list(data: Vec<u8>) -> Result<Entries, FormatError> {
    let mut iter = BlockIter::new(Block::new(data)?);
    let mut entries = Vec::new();
    iter.seek_to_first()?;
    while iter.valid() {
        entries.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next()?;
    }
    Ok(entries)
}

struct Parts {
    index: Entries,
    metaindex: Entries,
    entries: Entries,
}

fn read(file: &[u8]) -> Result<Parts, FormatError> {
    let footer_at = file
        .len()
        .checked_sub(FOOTER_BYTES)
        .ok_or(FormatError::truncated(file.len(), "footer of a table"))?;
    let footer = Footer::decode(&file[footer_at..])?;
    let index = list(read_block(file, footer.index)?)?;
    let metaindex = list(read_block(file, footer.metaindex)?)?;
    for (name, handle) in &metaindex {
        let data = read_block(file, BlockHandle::decode(handle)?)?;
        match &name[..] {
            FILTER_NAME => drop(FilterBlock::new(data)?),
            PROPERTIES_NAME => drop(Properties::decode(data)?),
            _ => {}
        }
    }
    let mut entries = Vec::new();
    for (_, handle) in &index {
        entries.extend(list(read_block(file, BlockHandle::decode(handle)?)?)?);
    }
    Ok(Parts {
        index,
        metaindex,
        entries,
    })
}

fn numbered(count: u32, value_bytes: usize) -> Entries {
    (0..count)
        .map(|i| {
            let mut key = Vec::new();
            append(
                &mut key,
                format!("key{i:08}").as_bytes(),
                u64::from(i) + 5,
                ValueKind::Value,
            );
            (key, i.to_le_bytes().repeat(value_bytes / 4))
        })
        .collect()
}

#[test]
fn handles_and_footers_round_trip() {
    let handle = |offset, length| BlockHandle { offset, length };
    for footer in [
        Footer {
            metaindex: handle(0, 0),
            index: handle(1, 1),
        },
        Footer {
            metaindex: handle(u64::MAX, u64::MAX),
            index: handle(u64::MAX, u64::MAX),
        },
    ] {
        let mut bytes = Vec::new();
        footer.encode(&mut bytes);
        assert_eq!(bytes.len(), FOOTER_BYTES);
        assert_eq!(
            bytes[40..],
            [0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb]
        );
        assert_eq!(Footer::decode(&bytes), Ok(footer));
        bytes[47] ^= 1;
        assert!(Footer::decode(&bytes).is_err());
        assert!(Footer::decode(&bytes[..47]).is_err());
    }
    assert_eq!(handle(u64::MAX, 1).end(), None);
}

#[test]
fn the_empty_table_reads_as_empty() {
    let (file, properties) = write(&TableOptions::default(), &Vec::new());
    let parts = read(&file).unwrap();
    assert!(parts.index.is_empty() && parts.entries.is_empty());
    assert_eq!(properties, Properties::default());
}

#[test]
fn blocks_are_cut_and_indexed_by_short_keys() {
    let entries = numbered(1000, 100);
    let (file, properties) = write(&TableOptions::default(), &entries);
    let parts = read(&file).unwrap();
    assert_eq!(parts.entries, entries);
    assert!(
        (25..35).contains(&parts.index.len()),
        "{}",
        parts.index.len()
    );
    assert_eq!(user_key(&parts.index.last().unwrap().0), b"l");
    assert_eq!(properties.entries, 1000);
    assert_eq!(
        (properties.smallest_sequence, properties.largest_sequence),
        (5, 1004)
    );
    assert_eq!(properties.raw_key_bytes, 1000 * 19);
    assert_eq!(properties.raw_value_bytes, 1000 * 100);
    assert_eq!(properties.smallest_key, entries[0].0);
    assert_eq!(properties.largest_key, entries[999].0);
}

#[test]
fn compression_is_used_where_it_pays() {
    let mut state = 1_u64;
    let noise: Vec<u8> = (0..4000)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    let entries = vec![(numbered(1, 0)[0].0.clone(), noise)];
    for (compression, byte) in [
        (Compression::None, 0),
        (Compression::Snappy, 1),
        (Compression::Zstd, 2),
    ] {
        let options = TableOptions {
            compression,
            ..TableOptions::default()
        };
        let compressible = numbered(300, 100);
        for (entries, expected) in [(&compressible, byte), (&entries, 0)] {
            let (file, _) = write(&options, entries);
            let parts = read(&file).unwrap();
            assert_eq!(&parts.entries, entries);
            let first = BlockHandle::decode(&parts.index[0].1).unwrap();
            assert_eq!(file[(first.offset + first.length) as usize], expected);
        }
    }
}

#[test]
fn lengths_no_compression_makes_are_refused_before_memory_is_taken() {
    let mut bomb = vec![0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    bomb.push(1);
    let crc = crate::checksum::mask(crate::checksum::crc32c(&bomb));
    bomb.extend_from_slice(&crc.to_le_bytes());
    let mut scratch = Vec::new();
    assert!(matches!(
        decode_block(&bomb, &mut scratch),
        Err(FormatError::Malformed { .. })
    ));
    assert_eq!(scratch.capacity(), 0);
}

#[test]
fn keys_that_do_not_follow_are_refused() {
    let mut writer = TableWriter::new(TableOptions::default());
    let key = |user: &[u8], sequence| {
        InternalKey {
            user_key: user,
            sequence,
            kind: ValueKind::Value,
        }
        .to_bytes()
    };
    writer.add(&key(b"b", 5), b"").unwrap();
    writer.add(&key(b"b", 6), b"").unwrap_err();
    writer.add(&key(b"b", 5), b"").unwrap_err();
    writer.add(&key(b"a", 9), b"").unwrap_err();
    writer.add(b"short", b"").unwrap_err();
    writer.add(&key(b"b", 4), b"").unwrap();
    assert_eq!(writer.entries(), 2);
}

#[test]
fn properties_of_the_future_are_skipped() {
    let mut block = crate::block::BlockBuilder::new(1);
    block.add(b"entries", &[7]);
    block.add(b"zone-map", b"whatever");
    let expected = Properties {
        entries: 7,
        ..Properties::default()
    };
    assert_eq!(Properties::decode(block.finish()), Ok(expected));
    block.reset();
    block.add(b"entries", &[7, 7]);
    assert!(Properties::decode(block.finish()).is_err());
}

/// Every bit of a block is under its checksum. Of the footer, handles lead astray to where no block checks;
/// only its padding means nothing.
#[test]
fn every_flipped_bit_is_noticed() {
    let (file, _) = write(&TableOptions::default(), &numbered(60, 20));
    let blocks = 0..file.len() - FOOTER_BYTES;
    let footer = Footer::decode(&file[blocks.end..]).unwrap();
    for bit in 0..file.len() * 8 {
        let mut damaged = file.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let meaningless = !blocks.contains(&(bit / 8))
            && Footer::decode(&damaged[blocks.end..]).as_ref() == Ok(&footer);
        assert_eq!(read(&damaged).is_ok(), meaningless, "bit {bit}");
    }
}

fn any_entries() -> impl Strategy<Value = Entries> {
    let user = vec(prop_oneof![Just(b'a'), Just(0xff), any::<u8>()], 0..8);
    let kind = prop_oneof![Just(ValueKind::Deletion), Just(ValueKind::Value)];
    btree_map((user, 0..9_u64), (kind, vec(any::<u8>(), 0..60)), 0..100).prop_map(|map| {
        let mut entries: Entries = map
            .into_iter()
            .map(|((user, sequence), (kind, value))| {
                let mut key = Vec::new();
                append(&mut key, &user, sequence, kind);
                (key, value)
            })
            .collect();
        entries.sort_by(|a, b| compare_internal(&a.0, &b.0));
        entries
    })
}

fn any_options() -> impl Strategy<Value = TableOptions> {
    let compression = prop_oneof![
        Just(Compression::None),
        Just(Compression::Snappy),
        Just(Compression::Zstd)
    ];
    (1..600_usize, 1..20_usize, compression, 0..20_u32).prop_map(
        |(block_bytes, restart_interval, compression, filter_bits_per_key)| TableOptions {
            block_bytes,
            restart_interval,
            compression,
            filter_bits_per_key,
            purged_through: 3,
            order: Order::default(),
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn tables_round_trip(options in any_options(), entries in any_entries()) {
        let (file, properties) = write(&options, &entries);
        let parts = read(&file).unwrap();
        prop_assert_eq!(&parts.entries, &entries);
        let meta = |name: &[u8]| {
            let handle = &parts.metaindex.iter().find(|(n, _)| n == name)?.1;
            Some(read_block(&file, BlockHandle::decode(handle).unwrap()).unwrap())
        };
        prop_assert_eq!(Properties::decode(meta(PROPERTIES_NAME).unwrap()), Ok(properties));
        let filter = meta(FILTER_NAME);
        prop_assert_eq!(filter.is_some(), options.filter_bits_per_key > 0);
        if let Some(filter) = filter {
            let filter = FilterBlock::new(filter).unwrap();
            prop_assert!(filter.is_whole_table());
            for (key, _) in &entries {
                prop_assert!(filter.may_contain(0, bloom::hash(user_key(key))));
            }
        }
        // The index leads to the block of every key.
        let mut at = 0;
        for (last, handle) in &parts.index {
            let block = list(read_block(&file, BlockHandle::decode(handle).unwrap()).unwrap()).unwrap();
            at += block.len();
            prop_assert!(compare_internal(&entries[at - 1].0, last).is_le());
            if at < entries.len() {
                prop_assert!(compare_internal(last, &entries[at].0).is_lt());
            }
        }
    }

    #[test]
    fn damaged_tables_are_answered(
        options in any_options(), entries in any_entries(), bit: prop::sample::Index, cut: prop::sample::Index,
    ) {
        let (mut file, _) = write(&options, &entries);
        let bit = bit.index(file.len() * 8);
        let _ = read(&file[..cut.index(file.len())]);
        file[bit / 8] ^= 1 << (bit % 8);
        let _ = read(&file);
    }

    #[test]
    fn any_bytes_are_answered(bytes: Vec<u8>, kind in 0..4_u8) {
        let _ = Footer::decode(&bytes);
        let _ = BlockHandle::decode(&bytes);
        let _ = Properties::decode(bytes.clone());
        let _ = read(&bytes);
        let mut stored = bytes;
        stored.push(kind); // past the checksum: into the decompressors
        let crc = crate::checksum::mask(crate::checksum::crc32c(&stored));
        stored.extend_from_slice(&crc.to_le_bytes());
        let _ = decode_block(&stored, &mut Vec::new());
    }
}
