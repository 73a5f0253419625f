//! Live fuzzing of the target `leveldb_log`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| waystation_fuzz::targets::feed("leveldb_log", bytes));
