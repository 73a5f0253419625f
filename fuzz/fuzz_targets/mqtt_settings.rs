//! Live fuzzing of the target `mqtt_settings`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| waystation_fuzz::targets::feed("mqtt_settings", bytes));
