//! Live fuzzing of the target `redis_commands`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| waystation_fuzz::targets::feed("redis_commands", bytes));
