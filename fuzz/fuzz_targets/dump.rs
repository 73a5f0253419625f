//! Live fuzzing of the target `dump`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| waystation_fuzz::targets::feed("dump", bytes));
