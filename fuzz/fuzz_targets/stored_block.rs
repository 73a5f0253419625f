//! Live fuzzing of the target `stored_block`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| waystation_fuzz::targets::feed("stored_block", bytes));
