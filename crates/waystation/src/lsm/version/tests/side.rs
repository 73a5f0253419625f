//! Tests of the side file's bytes.

use crate::lsm::version::side::{Pin, SideFile, SideFileError, State};
use proptest::prelude::*;
use waystation_format::checksum::crc32c;

fn side_files() -> impl Strategy<Value = SideFile> {
    let pin = (any::<u64>(), any::<u64>(), any::<u32>(), any::<bool>()).prop_map(
        |(manifest, bytes, digest, exact)| Pin {
            manifest,
            bytes,
            digest,
            exact,
        },
    );
    let state = prop::collection::btree_map("[a-z]{0,9}", any::<Vec<u8>>(), 0..4);
    ("[a-zA-Z.]{0,30}", prop::collection::vec(pin, 0..3), state).prop_map(
        |(comparator, pins, state)| SideFile {
            comparator,
            pins,
            state,
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(side in side_files()) {
        prop_assert_eq!(SideFile::decode(&side.encode()), Ok(side));
    }

    #[test]
    fn no_flipped_bit_passes(side in side_files(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut bytes = side.encode();
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(matches!(SideFile::decode(&bytes), Err(SideFileError::Damaged(..))));
    }

    #[test]
    fn arbitrary_bytes_are_refused(bytes in any::<Vec<u8>>()) {
        prop_assert!(SideFile::decode(&bytes).is_err());
    }
}

#[test]
fn a_newer_format_is_named() {
    let side = SideFile {
        comparator: String::new(),
        pins: Vec::new(),
        state: State::new(),
    };
    let mut bytes = side.encode();
    bytes[8] = 2;
    let covered = bytes.len() - 4;
    let checksum = waystation_format::checksum::mask(crc32c(&bytes[..covered]));
    bytes[covered..].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(SideFile::decode(&bytes), Err(SideFileError::Newer(2)));
}

#[test]
fn a_pin_holds_its_manifest_and_no_other() {
    let content = b"what the manifest holds";
    let pin = |exact, bytes: usize| Pin {
        manifest: 7,
        bytes: bytes as u64,
        digest: crc32c(&content[..bytes]),
        exact,
    };
    assert!(pin(false, 4).matches(7, content));
    assert!(pin(true, content.len()).matches(7, content));
    assert!(!pin(true, 4).matches(7, content), "it has grown");
    assert!(!pin(false, 4).matches(8, content), "it has another number");
    assert!(!pin(false, 8).matches(7, &content[..6]), "it has shrunk");
    assert!(!pin(false, 4).matches(7, b"whit"), "it has changed");
}
