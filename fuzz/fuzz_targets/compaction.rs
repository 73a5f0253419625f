//! Live fuzzing of the target `compaction`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| waystation_fuzz::targets::feed("compaction", bytes));
