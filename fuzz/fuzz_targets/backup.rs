//! Live fuzzing of the target `backup`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| waystation_fuzz::targets::feed("backup", bytes));
