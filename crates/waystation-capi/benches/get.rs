//! What a get of 100 bytes costs through the C interface beyond what it costs in Rust.
//!
//! Both read the same keys of one database that is in the block cache, turn by turn; the figure is the difference
//! of the medians. `cargo bench -p waystation-capi`

#![expect(unsafe_code, reason = "calls the C interface, as C does")]

use std::ffi::{CString, c_char};
use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;
use waystation_capi::leveldb::{
    leveldb_close, leveldb_free, leveldb_get, leveldb_open, leveldb_options_create,
    leveldb_options_destroy, leveldb_options_set_create_if_missing, leveldb_put,
    leveldb_readoptions_create, leveldb_readoptions_destroy, leveldb_readoptions_t, leveldb_t,
    leveldb_writeoptions_create, leveldb_writeoptions_destroy,
};
use waystation_capi::waystation::{waystation_flush, waystation_wait_idle};

const KEYS: usize = 10_000;
/// Keys that are read in one way before it is the other's turn.
const TURN: usize = 500;
const ROUNDS: usize = 50;
const VALUE: [u8; 100] = [b'v'; 100];

fn key(number: usize) -> Vec<u8> {
    format!("key{:013}", number * 7919 % KEYS).into_bytes()
}

fn main() {
    let keys: Vec<Vec<u8>> = (0..KEYS).map(key).collect();
    let dir = tempfile::tempdir().expect("a directory");
    let name = CString::new(dir.path().join("db").to_string_lossy().as_bytes()).expect("a name");
    let mut error: *mut c_char = null_mut();
    // SAFETY: handles are used as in C: created, used, given back once; bytes come with their lengths.
    unsafe {
        let options = leveldb_options_create();
        leveldb_options_set_create_if_missing(options, 1);
        let db = leveldb_open(options, name.as_ptr(), &raw mut error);
        assert!(!db.is_null(), "the database opens");
        let write = leveldb_writeoptions_create();
        for key in &keys {
            let (start, length) = (key.as_ptr().cast(), key.len());
            leveldb_put(
                db,
                write,
                start,
                length,
                VALUE.as_ptr().cast(),
                VALUE.len(),
                &raw mut error,
            );
        }
        for place in ["memtable", "table"] {
            measure(db, &keys, place);
            waystation_flush(db, &raw mut error);
            waystation_wait_idle(db, &raw mut error);
        }
        leveldb_writeoptions_destroy(write);
        leveldb_close(db);
        leveldb_options_destroy(options);
    }
}

/// Prints what gets cost on both ways, and the difference.
fn measure(db: *mut leveldb_t, keys: &[Vec<u8>], place: &str) {
    let read = leveldb_readoptions_create();
    let (mut in_rust, mut in_c) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for turn in keys.chunks(TURN) {
            let time_rust = || nanoseconds_each(turn, |key| get_in_rust(db, key));
            let time_c = || nanoseconds_each(turn, |key| get_in_c(db, read, key));
            // Whoever comes second finds the keys in the processor's cache.
            let (rust, c) = if round % 2 == 0 {
                (time_rust(), time_c())
            } else {
                let c = time_c();
                (time_rust(), c)
            };
            in_rust.push(rust);
            in_c.push(c);
        }
    }
    // SAFETY: as in `main`.
    unsafe { leveldb_readoptions_destroy(read) };
    let (in_rust, in_c) = (median(in_rust), median(in_c));
    println!(
        "get of 100 B from a {place}: {:.0} ns in Rust, {:.0} ns through C, {:+.0} ns each time",
        in_rust,
        in_c,
        in_c - in_rust
    );
}

fn nanoseconds_each(keys: &[Vec<u8>], mut get: impl FnMut(&[u8])) -> f64 {
    #[expect(clippy::disallowed_methods, reason = "a benchmark looks at the clock")]
    let start = Instant::now();
    for key in keys {
        get(key);
    }
    start.elapsed().as_nanos() as f64 / keys.len() as f64
}

fn get_in_rust(db: *mut leveldb_t, key: &[u8]) {
    // SAFETY: the handle is live.
    let found = unsafe { (*db).db().get(key) };
    assert_eq!(
        black_box(found).ok().flatten().map(|value| value.len()),
        Some(100)
    );
}

fn get_in_c(db: *mut leveldb_t, read: *mut leveldb_readoptions_t, key: &[u8]) {
    let (mut length, mut error) = (0, null_mut());
    // SAFETY: the handles are live, the key has its length, and the value is freed once.
    unsafe {
        let (start, key_length) = (key.as_ptr().cast(), key.len());
        let value = leveldb_get(db, read, start, key_length, &raw mut length, &raw mut error);
        assert_eq!(length, 100);
        leveldb_free(black_box(value).cast());
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
