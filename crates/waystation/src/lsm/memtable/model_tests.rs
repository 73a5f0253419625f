//! The list under loom: every interleaving of a few threads, with every value the memory model lets a load see.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p waystation --lib memtable::model_tests`.

use super::arena::{Entry, HEAD, NIL};
use super::skiplist::SkipList;
use super::watch::Watches;
use crate::sync::atomic::AtomicU64;
use crate::sync::atomic::Ordering::{Acquire, Release};
use crate::sync::{Arc, Mutex, lock};
use loom::thread;
use waystation_format::key;
use waystation_format::order::Order;

fn put(list: &SkipList, user_key: &[u8], height: usize) {
    let entry = Entry {
        user_key,
        trailer: 1 << 8,
        value: user_key,
    };
    list.insert_with_height(&entry, height);
}

fn list_with(keys: &[(&[u8], usize)]) -> Arc<SkipList> {
    // A reserve is not needed: towers of two are paid for.
    let list = Arc::new(SkipList::new(
        SkipList::entry_bytes(1, 1) * 4,
        &Arc::default(),
        &Order::Bytewise,
    ));
    for (user_key, height) in keys {
        put(&list, user_key, *height);
    }
    list
}

/// All user keys, forwards; and going back from each meets the one before.
fn walk(list: &SkipList) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut before = HEAD;
    let mut node = list.next(HEAD);
    while node != NIL {
        let (user_key, _) = key::split(list.internal_key(node)).unwrap();
        assert_eq!(list.value(node), user_key);
        keys.push(user_key.to_vec());
        assert_eq!(list.previous(node), before);
        before = node;
        node = list.next(node);
    }
    keys
}

fn finds(list: &SkipList, user_key: &[u8]) -> bool {
    let node = list.find(user_key, u64::MAX);
    node != NIL && list.value(node) == user_key
}

#[test]
fn two_insert_into_one_gap() {
    loom::model(|| {
        let list = list_with(&[]);
        let other = Arc::clone(&list);
        let writer = thread::spawn(move || put(&other, b"b", 2));
        put(&list, b"a", 2);
        assert!(finds(&list, b"a"));
        writer.join().unwrap();
        assert_eq!(walk(&list), [b"a", b"b"]);
        assert!(finds(&list, b"a") && finds(&list, b"b"));
        assert_eq!(list.value(list.last()), b"b");
    });
}

#[test]
fn the_finger_of_another_thread_is_only_a_hint() {
    loom::model(|| {
        let list = list_with(&[(b"b", 2)]);
        let other = Arc::clone(&list);
        let writer = thread::spawn(move || {
            put(&other, b"c", 1);
            put(&other, b"d", 2);
        });
        put(&list, b"a", 1);
        writer.join().unwrap();
        assert_eq!(walk(&list), [b"a", b"b", b"c", b"d"]);
    });
}

#[test]
fn a_reader_sees_whole_entries_in_order() {
    loom::model(|| {
        let list = list_with(&[(b"b", 1)]);
        let other = Arc::clone(&list);
        let writer = thread::spawn(move || {
            put(&other, b"a", 2);
            put(&other, b"c", 1);
        });
        assert!(finds(&list, b"b"));
        let mut seen = Vec::new();
        let mut node = list.next(HEAD);
        while node != NIL {
            seen.push(list.value(node)[0]);
            node = list.next(node);
        }
        assert!(
            matches!(&seen[..], b"b" | b"ab" | b"bc" | b"abc"),
            "{seen:?}"
        );
        writer.join().unwrap();
    });
}

#[test]
fn going_back_meets_every_entry_that_was_there() {
    loom::model(|| {
        let list = list_with(&[(b"a", 1), (b"d", 2)]);
        let [left, right] = [Arc::clone(&list), Arc::clone(&list)];
        let writers = [
            thread::spawn(move || put(&left, b"b", 1)),
            thread::spawn(move || put(&right, b"c", 1)),
        ];
        let mut node = list.last();
        let mut seen = Vec::new();
        while node != HEAD {
            seen.push(list.value(node)[0]);
            node = list.previous(node);
        }
        assert!(
            matches!(&seen[..], b"da" | b"dba" | b"dca" | b"dcba"),
            "{seen:?}"
        );
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(walk(&list), [b"a", b"b", b"c", b"d"]);
    });
}

/// A writer takes his numbers and inserts before he shows; meanwhile watches begin. A reader who is told that nothing
/// came before some key since a number has not missed any.
#[test]
fn what_a_watch_does_not_tell_of_was_not_inserted() {
    loom::model(|| {
        let list = list_with(&[]);
        let watches = Arc::new(Watches::new());
        let next = Arc::new(Mutex::new(1_u64));
        let shown = Arc::new(AtomicU64::new(0));
        let writer = {
            let (list, watches) = (Arc::clone(&list), Arc::clone(&watches));
            let (next, shown) = (Arc::clone(&next), Arc::clone(&shown));
            thread::spawn(move || {
                for user_key in [b"b", b"a"] {
                    let sequence = {
                        let mut next = lock(&next);
                        *next += 1;
                        *next - 1
                    };
                    let entry = Entry {
                        user_key,
                        trailer: sequence << 8,
                        value: user_key,
                    };
                    watches.note(&list, list.insert_with_height(&entry, 1));
                    shown.store(sequence, Release);
                }
            })
        };
        watches.begin(|| *lock(&next));
        watches.begin(|| *lock(&next));
        let seen = shown.load(Acquire);
        let is_clear = |before: &[u8], covering| {
            let mut end = Vec::new();
            key::append(&mut end, before, key::MAX_SEQUENCE, key::ValueKind::SEEK);
            watches.is_clear(&list, Some(&end), covering)
        };
        // The first key that is written is `b`, the second `a`.
        for covering in 1..=seen {
            assert!(seen < 2 || !is_clear(b"b", covering), "{covering}");
            assert!(covering > 1 || !is_clear(b"c", covering), "{covering}");
        }
        writer.join().unwrap();
    });
}
