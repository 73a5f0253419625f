//! Live fuzzing of the target `redis_session`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| waystation_fuzz::targets::feed("redis_session", bytes));
