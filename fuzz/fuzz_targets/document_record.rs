//! Live fuzzing of the target `document_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| waystation_fuzz::targets::feed(
    "document_record",
    bytes
));
