//! Databases on storage that fails and is well again: what is written there, and how a writer outlives it.

use std::io::Write;
use std::thread;
use std::time::Duration;
use waystation::{Db, DeviceOptions, Durability, Error, Extractor, Options, WriteBatch};

pub(crate) const MIB: usize = 1 << 20;

/// Little of everything, and nothing compressed, so that what is written meets the storage soon.
pub(crate) fn options(has_devices: bool) -> Options {
    Options {
        memtable_bytes: MIB,
        ring_bytes: MIB,
        log_segment_bytes: 2 * MIB,
        table_bytes: MIB,
        compression: waystation::Compression::None,
        devices: has_devices.then(|| DeviceOptions::new(Extractor::until(b':'))),
        ..Options::default()
    }
}

pub(crate) fn key(number: usize) -> Vec<u8> {
    format!("car{}:{number:06}", number % 5).into_bytes()
}

/// 4 KiB that do not compress.
pub(crate) fn value(number: usize) -> Vec<u8> {
    let mut state = number as u64 + 1;
    let mut words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    });
    let mut value = (number as u64).to_le_bytes().to_vec();
    value.extend(words.by_ref().take(511).flat_map(u64::to_le_bytes));
    value
}

pub(crate) fn put(db: &Db, number: usize, durability: Durability) -> Result<(), Error> {
    let mut batch = WriteBatch::new();
    batch.put(&key(number), &value(number));
    db.write(&batch, durability)
}

/// Every acknowledged write is there.
pub(crate) fn assert_all(db: &Db, numbers: &[usize], when: &str) {
    for &number in numbers {
        let found = db.get(&key(number)).expect("reads go on");
        assert!(found == Some(value(number)), "{when}: {number}");
    }
}

/// Puts `count` more, the first of them synced, once the cause of the failure is gone.
///
/// A refused put is tried again for half a minute: the log may be well before the flusher has tried again, and a file system
/// may report a failure once more that it had before.
pub(crate) fn put_once_healed(db: &Db, written: &mut Vec<usize>, count: usize) {
    // The one that failed last may be there, or not; it is passed over.
    let first = written.last().expect("some were written") + 2;
    for number in first..first + count {
        let durability = if number == first {
            Durability::PowerLoss
        } else {
            Durability::ProcessCrash
        };
        let is_taken = (0..600).any(|_| {
            let is_taken = put(db, number, durability).is_ok();
            if !is_taken {
                thread::sleep(Duration::from_millis(50));
            }
            is_taken
        });
        assert!(is_taken, "{number}, still: {:?}", db.stats().failure);
        written.push(number);
    }
}

/// Says that `test` was not run, past the harness, which hides what passing tests print.
pub(crate) fn not_run(test: &str, why: &str) {
    let note = format!("{test}: NOT RUN, as {why}\n");
    let _ = std::io::stderr().write_all(note.as_bytes());
}
