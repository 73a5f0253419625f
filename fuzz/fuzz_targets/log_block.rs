//! Live fuzzing of the target `log_block`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| waystation_fuzz::targets::feed("log_block", bytes));
