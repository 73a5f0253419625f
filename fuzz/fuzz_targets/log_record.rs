//! Live fuzzing of the target `log_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| waystation_fuzz::targets::feed("log_record", bytes));
