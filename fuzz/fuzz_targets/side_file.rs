//! Live fuzzing of the target `side_file`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| waystation_fuzz::targets::feed("side_file", bytes));
