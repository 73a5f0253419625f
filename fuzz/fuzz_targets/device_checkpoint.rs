//! Live fuzzing of the target `device_checkpoint`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| waystation_fuzz::targets::feed("device_checkpoint", bytes));
