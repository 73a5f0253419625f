//! Active graves under shuttle: graves are added and read in random schedules.
//!
//! Run with `make models`.

use super::active::ActiveGraves;
use super::points::hash;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering::SeqCst};
use crate::sync::models::explore;
use crate::sync::thread;

const KEYS: u64 = 3;
const TURNS: u64 = 5;

fn key(number: u64) -> Vec<u8> {
    vec![b'a' + number as u8; 1 + 9 * number as usize]
}

/// Two threads add, each in turn, the graves of all keys and of a range; a thread says what it has added. A reader
/// finds whatever was said before it looked, and nothing later than what was ever added.
fn add_and_read() {
    let graves = Arc::new(ActiveGraves::new(1 << 12));
    let said: Arc<[AtomicU64; 2]> = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let diggers: Vec<_> = (0..2u64)
        .map(|thread| {
            let (graves, said) = (Arc::clone(&graves), Arc::clone(&said));
            thread::spawn(move || {
                for turn in 1..=TURNS {
                    let sequence = turn * 2 + thread;
                    for number in 0..KEYS {
                        graves.delete(&key(number), sequence);
                    }
                    if turn == TURNS {
                        graves.delete_range(b"x", None, sequence);
                    }
                    said[thread as usize].store(sequence, SeqCst);
                }
            })
        })
        .collect();
    for _ in 0..4 {
        let before = said[0].load(SeqCst).max(said[1].load(SeqCst));
        for number in 0..KEYS {
            let key = key(number);
            let covering = graves.covering(&key, hash(&key), u64::MAX);
            assert!((before..=2 * TURNS + 1).contains(&covering));
            assert!(graves.covering(&key, hash(&key), 4) <= 4);
        }
        let of_range = graves.covering(b"y", hash(b"y"), u64::MAX);
        assert!(of_range >= before || before < 2 * TURNS);
    }
    for digger in diggers {
        digger.join().unwrap();
    }
    let mut count = 0;
    let mut in_order = graves.points().sorted();
    while in_order.peek().is_some() {
        count += 1;
        in_order.advance();
    }
    assert_eq!(count, 2 * KEYS * TURNS);
    assert_eq!(graves.covering(b"y", hash(b"y"), u64::MAX), 2 * TURNS + 1);
}

#[test]
fn what_was_added_is_found() {
    explore(add_and_read, 500);
}
