//! Live fuzzing of the target `version_edit`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| waystation_fuzz::targets::feed("version_edit", bytes));
