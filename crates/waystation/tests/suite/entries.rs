//! Ranges as iterators, and puts and deletions with options of their own, against a map.

use crate::support::options_with_resting_devices;
use proptest::prelude::*;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{Comparator, Db, Durability, Entry, Error, Options, Order, PutOptions, Result};

const YEAR: Duration = Duration::from_secs(365 * 86_400);

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(machine: &Arc<SimStorage>, options: Options) -> Db {
    let storage: Arc<dyn Storage> = machine.clone();
    Db::open_with(storage, "/db", options).expect("open")
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    let key = prop::collection::vec(97_u8..100, 0..3);
    prop_oneof![
        2 => key.clone().prop_map(Bound::Included),
        2 => key.prop_map(Bound::Excluded),
        1 => Just(Bound::Unbounded),
    ]
}

/// Whether a map can be asked for the range: it panics for one that ends before it begins.
fn is_range((start, end): &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> bool {
    let key = |bound: &Bound<Vec<u8>>| match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key.clone()),
        Bound::Unbounded => None,
    };
    match (key(start), key(end)) {
        (Some(first), Some(last)) => first < last,
        _ => true,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Steps from both ends, in any order, meet once and give what a map gives: from tables, memory and devices.
    #[test]
    fn both_ends_of_a_range_give_what_a_map_gives(
        keys in prop::collection::btree_set(prop::collection::vec(97_u8..100, 0..4), 0..20),
        deleted in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        range in (bound(), bound()).prop_filter("a range", is_range),
        steps in prop::collection::vec(any::<bool>(), 0..24),
        has_devices in any::<bool>(),
        flushes in any::<bool>(),
    ) {
        let options = if has_devices { options_with_resting_devices() } else { Options::default() };
        let db = open(&SimStorage::new(1), options);
        let mut map = Map::new();
        for key in keys {
            let key = if has_devices && key.len() > 1 { [&key[..1], b":", &key[1..]].concat() } else { key };
            db.put(&key, &[key.len() as u8]).expect("put");
            map.insert(key.clone(), vec![key.len() as u8]);
        }
        if flushes {
            db.flush().expect("flush");
        }
        for index in deleted {
            if !map.is_empty() {
                let key = index.get(&map.keys().cloned().collect::<Vec<_>>()).clone();
                db.delete(&key).expect("delete");
                map.remove(&key);
            }
        }
        let mut expected = map.range(range.clone());
        let mut found = db.range(range);
        for is_front in steps {
            let (expected, found) = if is_front {
                (expected.next(), found.next())
            } else {
                (expected.next_back(), found.next_back())
            };
            let expected = expected.map(|(key, value)| (key.clone(), value.clone()));
            prop_assert_eq!(found.transpose().expect("read"), expected);
        }
        let rest: Vec<Entry> = found.collect::<Result<_>>().expect("read");
        let expected: Vec<Entry> = expected.map(|(key, value)| (key.clone(), value.clone())).collect();
        prop_assert_eq!(rest, expected);
    }
}

#[test]
fn a_range_stays_at_its_moment() {
    let db = open(&SimStorage::new(1), Options::default());
    db.put(b"a", b"1").expect("put");
    let before = db.snapshot();
    db.put(b"b", b"2").expect("put");
    let keys = |entries: waystation::Entries<'_>| -> Vec<Vec<u8>> {
        entries.map(|entry| entry.expect("read").0).collect()
    };
    assert_eq!(keys(db.prefix("").at(&before)), [b"a"]);
    let mut running = db.prefix("");
    assert_eq!(running.next_back().expect("one").expect("read").0, b"b");
    db.put(b"aa", b"3").expect("put");
    db.delete_prefix(b"").expect("delete");
    assert_eq!(keys(running), [b"a"]);
    assert_eq!(keys(db.prefix("")), Vec::<Vec<u8>>::new());
}

#[test]
fn a_range_ends_after_its_error() {
    struct Backwards;
    impl Comparator for Backwards {
        fn name(&self) -> &'static str {
            "test.backwards"
        }
        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            b.cmp(a)
        }
    }
    let options = Options {
        order: Order::Custom(Arc::new(Backwards)),
        ..Options::default()
    };
    let db = open(&SimStorage::new(1), options);
    for key in ["a", "b", "c"] {
        db.put(key.as_bytes(), b"").expect("put");
    }
    let keys: Vec<_> = db.range("c".."a").map(|it| it.expect("read").0).collect();
    assert_eq!(keys, [b"c", b"b"]);
    let last = db.range("b"..).next_back().expect("one").expect("read").0;
    assert_eq!(last, b"a");
    for mut refused in [db.range("c"..="a"), db.prefix("a")] {
        let first = refused.next_back();
        assert!(
            matches!(first, Some(Err(Error::InvalidArgument(_)))),
            "{first:?}"
        );
        assert!(refused.next().is_none());
    }
}

#[test]
fn one_write_survives_what_it_asks_for() {
    let machine = SimStorage::new(7);
    let db = open(&machine, Options::default());
    let durable = PutOptions {
        durability: Durability::PowerLoss,
        ..PutOptions::default()
    };
    db.put(b"deleted", b"").expect("put");
    db.put_with(b"kept", b"1", durable).expect("put");
    db.put_with(
        b"short",
        b"2",
        PutOptions {
            time_to_live: Some(YEAR),
            ..durable
        },
    )
    .expect("put");
    db.delete_with(b"deleted", Durability::PowerLoss)
        .expect("delete");
    let machine = machine.crash(8, Crash::PowerCut);
    drop(db);
    let db = open(&machine, Options::default());
    let keys: Vec<_> = db.prefix("").map(|it| it.expect("read").0).collect();
    assert_eq!(keys, [&b"kept"[..], b"short"]);
    machine.sleep(YEAR);
    assert_eq!(db.get(b"short").expect("get"), None);
    assert_eq!(db.get(b"kept").expect("get").as_deref(), Some(&b"1"[..]));
}
