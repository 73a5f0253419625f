//! Live fuzzing of the target `drive_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| waystation_fuzz::targets::feed("drive_message", bytes));
