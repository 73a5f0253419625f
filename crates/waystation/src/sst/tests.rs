//! Tables on storage: what was built is read back, in every way, and damage is always noticed.

use super::*;
use crate::error::{Error, Result};
use crate::sst::InternalIterator;
use crate::sst::Lookup;
use crate::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use crate::storage::{Area, OsStorage, SimStorage, Storage};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use waystation_format::key::{ValueKind, append, compare_internal, trailer, user_key};
use waystation_format::order::Order;

pub(crate) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// A directory for tables, and what reads them.
pub(crate) struct Place {
    directory: TempDir,
    pub storage: Arc<dyn Storage>,
    pub cache: Arc<TableCache>,
}

impl Place {
    pub(crate) fn new(cache_bytes: usize) -> Self {
        let directory = TempDir::new().unwrap();
        let storage: Arc<dyn Storage> = OsStorage::new();
        let memory = TableMemory::own(directory.path(), cache_bytes);
        let cache = TableCache::new(
            Arc::clone(&storage),
            directory.path(),
            100,
            memory,
            Order::Bytewise,
        );
        Self {
            directory,
            storage,
            cache: Arc::new(cache),
        }
    }

    pub(crate) fn build(
        &self,
        number: u64,
        settings: &TableSettings,
        entries: &Entries,
    ) -> TableMeta {
        let path = self.cache.path(number);
        let mut builder =
            TableBuilder::create(&self.storage, &path, number, settings.clone()).unwrap();
        for (key, value) in entries {
            builder.add(key, value).unwrap();
        }
        let meta = builder.finish().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), meta.file_bytes);
        meta
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// How often tables were read from.
    fn reads(&self) -> u64 {
        let meters = self.storage.meters();
        let tables = meters.iter().find(|(area, _)| *area == Area::Tables);
        tables.unwrap().1.reads
    }
}

pub(crate) fn internal(user: &[u8], sequence: u64, kind: ValueKind) -> Vec<u8> {
    let mut out = Vec::new();
    append(&mut out, user, sequence, kind);
    out
}

/// Entries with keys in steps of ten.
pub(super) fn numbered(count: u64, value_bytes: usize) -> Entries {
    (0..count)
        .map(|i| {
            let key = format!("{:016}", i * 10);
            let value = format!("value {i} ").into_bytes();
            (
                internal(key.as_bytes(), i + 1, ValueKind::Value),
                value.into_iter().cycle().take(value_bytes).collect(),
            )
        })
        .collect()
}

pub(super) fn forward(iter: &mut impl InternalIterator) -> Result<Entries> {
    let mut entries = Vec::new();
    iter.seek_to_first()?;
    while iter.valid() {
        entries.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.next()?;
    }
    Ok(entries)
}

fn backward(iter: &mut impl InternalIterator) -> Result<Entries> {
    let mut entries = Vec::new();
    iter.seek_to_last()?;
    while iter.valid() {
        entries.push((iter.key().to_vec(), iter.value().to_vec()));
        iter.prev()?;
    }
    entries.reverse();
    Ok(entries)
}

fn get(table: &Table, user: &[u8], snapshot: u64) -> Result<Lookup<Vec<u8>>> {
    Ok(match table.get(&LookupKey::new(user, snapshot))? {
        Lookup::Found(value) => Lookup::Found(value.to_vec()),
        Lookup::Deleted => Lookup::Deleted,
        Lookup::Missing => Lookup::Missing,
    })
}

fn get_from_list(entries: &Entries, user: &[u8], snapshot: u64) -> Lookup<Vec<u8>> {
    let newest = entries
        .iter()
        .find(|(key, _)| user_key(key) == user && trailer(key) >> 8 <= snapshot);
    match newest {
        Some((key, value)) if trailer(key) & 1 == 1 => Lookup::Found(value.clone()),
        Some(_) => Lookup::Deleted,
        None => Lookup::Missing,
    }
}

#[test]
fn a_large_table_reads_back_both_ways_for_readers_and_merges() {
    let place = Place::new(1 << 20);
    let entries = numbered(40_000, 100);
    for compression in [Compression::None, Compression::Snappy] {
        let settings = TableSettings {
            compression,
            ..TableSettings::default()
        };
        let meta = place.build(compression as u64, &settings, &entries);
        let table = place.cache.get(&meta).unwrap();
        assert_eq!(table.facts(), meta.facts());
        assert!(table.memory_bytes() > 40_000);
        for mut iter in [table.iter(), table.scan()] {
            assert!(forward(&mut iter).unwrap() == entries);
            assert!(backward(&mut iter).unwrap() == entries);
        }
    }
}

#[test]
fn what_the_builder_returns_describes_the_table() {
    let place = Place::new(0);
    let mut entries = numbered(10, 5);
    entries.push((internal(b"1", 3, ValueKind::Deletion), Vec::new()));
    let settings = TableSettings {
        purged_through: 2,
        ..TableSettings::default()
    };
    let meta = place.build(7, &settings, &entries);
    assert_eq!((meta.number, &meta.smallest), (7, &entries[0].0));
    assert_eq!(meta.largest, entries[10].0);
    let facts = TableFacts {
        smallest_sequence: 1,
        largest_sequence: 10,
        purged_through: 2,
        entries: 11,
        deletions: 1,
    };
    assert_eq!(meta.facts(), Some(facts));
    assert_eq!(place.cache.get(&meta).unwrap().facts(), Some(facts));
}

#[test]
fn a_table_given_up_leaves_nothing() {
    let place = Place::new(0);
    let path = place.cache.path(1);
    let settings = TableSettings::default();
    let mut builder = TableBuilder::create(&place.storage, &path, 1, settings).unwrap();
    for (key, value) in numbered(30_000, 100) {
        builder.add(&key, &value).unwrap();
    }
    assert!(builder.estimated_bytes() > 100_000);
    let refused = builder.add(&internal(b"0", 1, ValueKind::Value), b"");
    assert!(matches!(refused, Err(Error::InvalidArgument(_))));
    builder.abandon().unwrap();
    assert!(!path.exists());
}

/// Whichever write fails, on the way or at the end, the builder says so and what it left can be removed.
#[test]
fn failed_writes_are_reported() {
    let entries = numbered(60_000, 100);
    let settings = TableSettings {
        compression: Compression::None,
        ..TableSettings::default()
    };
    for operation in [Operation::Write, Operation::Sync] {
        for spared in 0..10 {
            let machine = SimStorage::new(1);
            let rules = FaultRules::new();
            let refused = Fault::Torn(5_000, Refusal::NoSpace);
            let rule = rules.add(Rule::new(operation, refused).after(spared).times(1));
            let directory = PathBuf::from("/db");
            machine.create_dir(&directory).unwrap();
            let storage: Arc<dyn Storage> = machine.with_faults(&rules);
            let path = directory.join("000001.ldb");
            let mut builder = TableBuilder::create(&storage, &path, 1, settings.clone()).unwrap();
            let added = entries
                .iter()
                .try_for_each(|(key, value)| builder.add(key, value));
            let finished = match added {
                Ok(()) => builder.finish().map(drop),
                Err(error) => builder.abandon().and(Err(error)),
            };
            let caught = rules.count(rule).caught > 0;
            let exists = !machine.list(&directory).unwrap().is_empty();
            assert_eq!((finished.is_err(), exists), (caught, !caught));
            assert!(finished.err().is_none_or(|error| error.is_out_of_space()));
        }
    }
}

#[test]
fn readers_share_what_was_read_and_merges_leave_the_cache_alone() {
    let place = Place::new(1 << 20);
    let meta = place.build(1, &TableSettings::default(), &numbered(5_000, 100));
    let table = place.cache.get(&meta).unwrap();
    let reads = || place.reads();
    let before = reads();
    for _ in 0..4 {
        let key = b"0000000000012340";
        assert!(matches!(get(&table, key, 5_000).unwrap(), Lookup::Found(_)));
        table
            .iter()
            .seek(&internal(key, 9, ValueKind::Value))
            .unwrap();
    }
    // A block that is read once is not kept.
    assert_eq!(reads() - before, 2);
    // A filter that rules a key out saves the read.
    for i in 0..100 {
        let key = format!("{:016}", i * 10 + 5);
        assert_eq!(get(&table, key.as_bytes(), 5_000).unwrap(), Lookup::Missing);
    }
    assert!(reads() - before < 7);
    let (blocks, before) = (table.memory_bytes(), reads());
    forward(&mut table.scan()).unwrap();
    assert!(reads() - before < 5, "a merge reads in large chunks");
    assert_eq!(table.memory_bytes(), blocks);
}

#[test]
fn a_scan_that_comes_again_finds_what_has_room_in_the_cache() {
    let place = Place::new(4 << 20);
    let meta = place.build(1, &TableSettings::default(), &numbered(5_000, 100));
    let table = place.cache.get(&meta).unwrap();
    let reads_of_scan = || {
        let before = place.reads();
        assert_eq!(forward(&mut table.iter()).unwrap().len(), 5_000);
        place.reads() - before
    };
    assert!(reads_of_scan() > 0 && reads_of_scan() > 0);
    assert_eq!(reads_of_scan(), 0);
}

#[test]
fn tables_are_opened_once_and_found_under_their_old_name() {
    let place = Place::new(0);
    let meta = place.build(3, &TableSettings::default(), &numbered(10, 10));
    let first = place.cache.get(&meta).unwrap();
    assert!(Arc::ptr_eq(&first, &place.cache.get(&meta).unwrap()));
    let account = &place.cache.memory().account;
    let taken = account.bytes(crate::background::Use::Tables);
    assert_eq!(taken, first.memory_bytes() as u64);
    place.cache.evict(3);
    std::fs::rename(place.path("000003.ldb"), place.path("000003.sst")).unwrap();
    let second = place.cache.get(&meta).unwrap();
    assert!(!Arc::ptr_eq(&first, &second));
    place.cache.evict(3);
    std::fs::remove_file(place.path("000003.sst")).unwrap();
    let error = place.cache.get(&meta).unwrap_err();
    assert!(error.is_not_found() && error.to_string().contains("000003.ldb"));
    // A reader that has it open goes on.
    assert_eq!(forward(&mut first.iter()).unwrap().len(), 10);
    drop((first, second));
    assert_eq!(account.bytes(crate::background::Use::Tables), 0);
}

#[test]
fn files_that_are_too_short_are_damaged() {
    let place = Place::new(0);
    let entries = numbered(5_000, 100);
    let meta = place.build(1, &TableSettings::default(), &entries);
    let path = place.cache.path(1);
    let bytes = std::fs::read(&path).unwrap();
    for length in [0, 10, 47, 48, 5_000, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        place.cache.evict(1);
        let opened = place.cache.get(&meta);
        assert!(matches!(opened, Err(Error::Corruption { .. })), "{length}");
    }
    // Cut after it was opened: reads notice.
    std::fs::write(&path, &bytes).unwrap();
    let table = place.cache.get(&meta).unwrap();
    std::fs::write(&path, &bytes[..5_000]).unwrap();
    for mut iter in [table.iter(), table.scan()] {
        assert!(matches!(forward(&mut iter), Err(Error::Corruption { .. })));
        assert!(!iter.valid());
        iter.seek_to_first().unwrap_or_default();
    }
    let short = TableMeta {
        file_bytes: 20,
        ..meta
    };
    place.cache.evict(1);
    assert!(matches!(
        place.cache.get(&short),
        Err(Error::Corruption { .. })
    ));
}

/// Bytes after the footer, and before it as long as the MANIFEST's length says where it ends, mean nothing.
#[test]
fn the_length_in_the_manifest_says_where_the_footer_ends() {
    let place = Place::new(0);
    let entries = numbered(50, 100);
    let meta = place.build(1, &TableSettings::default(), &entries);
    let path = place.cache.path(1);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(b"what another program left here");
    std::fs::write(&path, &bytes).unwrap();
    let table = place.cache.get(&meta).unwrap();
    assert!(forward(&mut table.iter()).unwrap() == entries);
}

fn any_user_key() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![Just(b'a'), Just(b'b'), any::<u8>()], 0..14)
}

pub(crate) fn any_entries() -> impl Strategy<Value = Entries> {
    let kind = prop_oneof![Just(ValueKind::Deletion), Just(ValueKind::Value)];
    let entry = (kind, vec(any::<u8>(), 0..60));
    btree_map((any_user_key(), 0..6_u64), entry, 0..120).prop_map(|map| {
        let mut entries: Entries = map
            .into_iter()
            .map(|((user, sequence), (kind, value))| (internal(&user, sequence, kind), value))
            .collect();
        entries.sort_by(|a, b| compare_internal(&a.0, &b.0));
        entries
    })
}

fn any_settings() -> impl Strategy<Value = TableSettings> {
    let compression = prop_oneof![
        Just(Compression::None),
        Just(Compression::Snappy),
        Just(Compression::Zstd)
    ];
    (1..500_usize, 1..20_usize, compression, 0..12_u32).prop_map(
        |(block_bytes, restart_interval, compression, filter_bits_per_key)| TableSettings {
            block_bytes,
            restart_interval,
            compression,
            filter_bits_per_key,
            order: Order::Bytewise,
            purged_through: 0,
        },
    )
}

#[derive(Debug, Clone)]
pub(crate) enum Move {
    First,
    Last,
    Seek(Vec<u8>, u64),
    SeekForPrev(Vec<u8>, u64),
    Next,
    Prev,
}

pub(crate) fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        1 => Just(Move::First),
        1 => Just(Move::Last),
        2 => (any_user_key(), 0..7_u64).prop_map(|(user, sequence)| Move::Seek(user, sequence)),
        2 => (any_user_key(), 0..7_u64).prop_map(|(user, sequence)| Move::SeekForPrev(user, sequence)),
        6 => Just(Move::Next),
        6 => Just(Move::Prev),
    ]
}

/// Makes the same moves over a list and over a cursor.
pub(crate) fn follow(
    entries: &Entries,
    iter: &mut impl InternalIterator,
    moves: &[Move],
) -> std::result::Result<(), TestCaseError> {
    let first_at =
        |target: &[u8]| entries.partition_point(|e| compare_internal(&e.0, target).is_lt());
    let mut at: Option<usize> = None;
    for step in moves {
        match step {
            Move::First => {
                iter.seek_to_first().unwrap();
                at = Some(0);
            }
            Move::Last => {
                iter.seek_to_last().unwrap();
                at = entries.len().checked_sub(1);
            }
            Move::Seek(user, sequence) => {
                let target = internal(user, *sequence, ValueKind::SEEK);
                iter.seek(&target).unwrap();
                at = Some(first_at(&target));
            }
            Move::SeekForPrev(user, sequence) => {
                let target = internal(user, *sequence, ValueKind::Deletion);
                iter.seek_for_prev(&target).unwrap();
                let exact = entries.iter().position(|e| e.0 == target);
                at = exact.or_else(|| first_at(&target).checked_sub(1));
            }
            Move::Next if iter.valid() => {
                iter.next().unwrap();
                at = at.map(|i| i + 1);
            }
            Move::Prev if iter.valid() => {
                iter.prev().unwrap();
                at = at.and_then(|i| i.checked_sub(1));
            }
            Move::Next | Move::Prev => {}
        }
        at = at.filter(|&i| i < entries.len());
        let here = iter
            .valid()
            .then(|| (iter.key().to_vec(), iter.value().to_vec()));
        prop_assert_eq!(here, at.map(|i| entries[i].clone()));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn tables_are_like_lists(
        settings in any_settings(), entries in any_entries(), moves in vec(any_move(), 0..60),
        others in vec(any_user_key(), 0..10), cache_bytes in prop_oneof![Just(0), Just(100_000_usize)],
    ) {
        let place = Place::new(cache_bytes);
        let meta = place.build(1, &settings, &entries);
        let table = place.cache.get(&meta).unwrap();
        follow(&entries, &mut table.iter(), &moves)?;
        follow(&entries, &mut table.scan(), &moves)?;
        let users = entries.iter().map(|(key, _)| user_key(key).to_vec());
        for user in users.chain(others) {
            for snapshot in [0, 2, 3, 9] {
                prop_assert_eq!(
                    get(&table, &user, snapshot).unwrap(),
                    get_from_list(&entries, &user, snapshot)
                );
            }
        }
    }

    #[test]
    fn damage_is_noticed_or_harmless(
        settings in any_settings(), entries in any_entries(), bit: prop::sample::Index,
    ) {
        let place = Place::new(0);
        let meta = place.build(1, &settings, &entries);
        let path = place.cache.path(1);
        let mut bytes = std::fs::read(&path).unwrap();
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &bytes).unwrap();
        let check = || -> Result<()> {
            let table = place.cache.get(&meta)?;
            assert_eq!(forward(&mut table.iter())?, entries);
            assert_eq!(backward(&mut table.scan())?, entries);
            for (key, _) in &entries {
                assert_eq!(get(&table, user_key(key), 9)?, get_from_list(&entries, user_key(key), 9));
            }
            Ok(())
        };
        match check() {
            // A bit of the footer's padding, or one that makes a number of it longer but not another.
            Ok(()) => prop_assert!(bit / 8 >= bytes.len() - 48),
            Err(Error::Corruption { path: named, .. }) => prop_assert_eq!(named, path),
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}

/// LevelDB's filter block for `table`: one filter per block, as many offsets as 2 KiB ranges; ranges in which no block begins
/// stay empty.
fn leveldb_filters(table: &Table) -> Vec<u8> {
    use waystation_format::bloom;
    let (mut filters, mut starts) = (Vec::new(), Vec::new());
    for position in 0..table.index().len() {
        let handle = table.index().handle(position);
        while (starts.len() as u64) <= handle.offset >> 11 {
            starts.push(filters.len() as u32);
        }
        let block = table.block(position).unwrap();
        let mut iter = waystation_format::block::BlockIter::new(block);
        let mut hashes = Vec::new();
        iter.seek_to_first().unwrap();
        while iter.valid() {
            hashes.push(bloom::hash(user_key(iter.key())));
            iter.next().unwrap();
        }
        bloom::build(&hashes, 10, &mut filters);
    }
    let end = filters.len() as u32;
    starts.push(end);
    for start in starts {
        filters.extend_from_slice(&start.to_le_bytes());
    }
    filters.push(11);
    filters
}

/// LevelDB's tables have filters by ranges of offsets, and no properties.
#[test]
fn tables_of_leveldb_are_read_with_their_filters() {
    use waystation_format::table::{BlockHandle, Footer};
    let place = Place::new(0);
    let entries = numbered(500, 100);
    let settings = TableSettings {
        filter_bits_per_key: 0,
        compression: Compression::None,
        ..TableSettings::default()
    };
    let meta = place.build(1, &settings, &entries);
    let table = place.cache.get(&meta).unwrap();
    let filters = leveldb_filters(&table);
    // The same table with this filter block, then a metaindex, in place of the old footer.
    let mut bytes = std::fs::read(place.cache.path(1)).unwrap();
    let footer = Footer::decode(&bytes[bytes.len() - 48..]).unwrap();
    bytes.truncate(bytes.len() - 48);
    let mut append = |raw: &[u8]| {
        let handle = BlockHandle {
            offset: bytes.len() as u64,
            length: raw.len() as u64,
        };
        let stored = [raw, &[0]].concat();
        let crc = waystation_format::checksum::crc32c(&stored);
        bytes.extend_from_slice(&stored);
        bytes.extend_from_slice(&waystation_format::checksum::mask(crc).to_le_bytes());
        handle
    };
    let mut value = Vec::new();
    append(&filters).encode(&mut value);
    let mut metaindex = waystation_format::block::BlockBuilder::new(1);
    metaindex.add(waystation_format::table::FILTER_NAME, &value);
    let metaindex = append(metaindex.finish());
    Footer {
        metaindex,
        ..footer
    }
    .encode(&mut bytes);
    std::fs::write(place.cache.path(2), &bytes).unwrap();
    let foreign = TableMeta {
        number: 2,
        file_bytes: bytes.len() as u64,
        facts: LearntFacts::default(),
        ..meta
    };
    let table = place.cache.get(&foreign).unwrap();
    assert_eq!(table.facts(), None);
    for (key, _) in &entries {
        let expected = get_from_list(&entries, user_key(key), 1_000);
        assert_eq!(get(&table, user_key(key), 1_000).unwrap(), expected);
    }
    let before = place.storage.meters();
    for i in 0..100 {
        let key = format!("{:016}", i * 10 + 5);
        assert_eq!(get(&table, key.as_bytes(), 1_000).unwrap(), Lookup::Missing);
    }
    let reads = |meters: Vec<(Area, crate::storage::AreaMeter)>| -> u64 {
        meters.iter().map(|(_, meter)| meter.reads).sum()
    };
    let reads = reads(place.storage.meters()) - reads(before);
    assert!(reads < 30, "{reads} reads for 100 keys that are missing");
}
