//! What a shard of a database of documents keeps in its engine.

use waystation_documents::shard::check_record;

/// Records as they were kept when their version was fixed.
const KEPT: [&str; 2] = [
    include_str!("../../../waystation-documents/testdata/records-1.txt"),
    include_str!("../../../waystation-documents/testdata/records-2.txt"),
];

/// The length of a key (u8), the key and a value.
pub(super) fn record(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first() else {
        return;
    };
    let (key, value) = rest.split_at(usize::from(*length).min(rest.len()));
    // A damaged record is an error; the checker reads the rest in every way that a shard does.
    let _ = check_record(key, value);
}

pub(super) fn record_seeds() -> Vec<Vec<u8>> {
    let seed = |line: &str| {
        let (key, value) = line.split_once(' ')?;
        let (key, value) = (digits(key), digits(value));
        let length = u8::try_from(key.len()).ok()?;
        Some([&[length], &key[..], &value].concat())
    };
    let lines = || KEPT.iter().flat_map(|kept| kept.lines());
    let seeds: Vec<Vec<u8>> = lines().filter_map(seed).collect();
    assert_eq!(seeds.len(), lines().count(), "every record is a seed");
    seeds
}

/// The bytes that hexadecimal digits stand for.
fn digits(text: &str) -> Vec<u8> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.filter_map(byte).collect()
}
