//! Gets, to count the instructions of, with and without a change: see docs/measurements/deletions.md, "An empty cemetery".
//!
//! One argument: a directory, which is made. The database has 200,000 keys in tables, or with `memory` as a second
//! argument 20,000 in memory, and no deletion; 100,000 of its keys are read in a mixed order.

use std::ops::Bound;
use waystation::{Db, Options};

const GETS: u64 = 100_000;

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key-000000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

#[inline(never)]
fn measured_gets(db: &Db, keys: u64) -> waystation::Result<u64> {
    let mut found = 0;
    let mut number = 1;
    for _ in 0..GETS {
        number = (number * 7_919 + 104_729) % keys;
        found += u64::from(db.get(&key(number))?.is_some());
    }
    Ok(found)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("name a directory")?;
    let in_memory = arguments.next().is_some();
    let keys = if in_memory { 20_000 } else { 200_000 };
    let options = Options {
        cache_bytes: 64 << 20,
        ..Options::default()
    };
    let db = Db::open(directory, options)?;
    for number in 0..keys {
        db.put(&key(number), &[7; 100])?;
    }
    if !in_memory {
        db.compact_range(Bound::Unbounded, Bound::Unbounded)?;
    }
    // What is read once is in the cache.
    warm_up(&db, keys)?;
    let found = measured_gets(&db, keys)?;
    println!("{found} of {GETS} found");
    Ok(db.close()?)
}

fn warm_up(db: &Db, keys: u64) -> waystation::Result<()> {
    for number in 0..keys {
        db.get(&key(number))?;
    }
    Ok(())
}
