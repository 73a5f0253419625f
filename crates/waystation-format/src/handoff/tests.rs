//! Streams are read back, and nothing but whole streams is.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

fn opening(device: &str) -> Opening {
    Opening {
        ticket: Ticket {
            source: EngineId([3; 16]),
            destination: "edge-2".into(),
            device: device.into(),
            sequence: 1_234,
            tenure: 2,
            survives_power_loss: true,
        },
        extractor: "until/3a".into(),
        finished_below: 1_200,
        open: vec![17, 1_000],
    }
}

fn encode(opening: &Opening, entries: &Entries) -> (Vec<u8>, Digest) {
    let mut encoder = StreamEncoder::new(opening);
    for (key, value) in entries {
        encoder.push(key, value);
    }
    let digest = encoder.finish();
    (encoder.bytes().to_vec(), digest)
}

/// The stream's frames, each with its head.
fn frames(bytes: &[u8]) -> Vec<&[u8]> {
    let mut rest = bytes;
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let length = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        let (frame, then) = rest.split_at(FRAME_HEAD_BYTES + length + CHECKSUM_BYTES);
        frames.push(frame);
        rest = then;
    }
    frames
}

fn decode(bytes: &[u8]) -> Result<(Opening, Entries, Digest), FormatError> {
    let mut decoder = StreamDecoder::new();
    let mut rest = bytes;
    let (mut opening, mut entries) = (None, Entries::new());
    loop {
        let Some((head, then)) = rest.split_first_chunk() else {
            return Err(FormatError::truncated(0, "a frame's head"));
        };
        let length = decoder.head(head)?;
        let Some((body, then)) = then.split_at_checked(length) else {
            return Err(FormatError::truncated(0, "a frame's body"));
        };
        rest = then;
        match decoder.body(body)? {
            Frame::Opening(found) => opening = Some(found),
            Frame::Records(records) => {
                entries.extend(records.map(|it| (it.key.to_vec(), it.value.to_vec())));
            }
            Frame::End(digest) => {
                let opening = opening.ok_or(FormatError::malformed(0, "no opening"))?;
                return Ok((opening, entries, digest));
            }
        }
    }
}

fn entries() -> impl Strategy<Value = Entries> {
    let value = prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (60_000_usize..70_000).prop_map(|length| vec![b'v'; length]),
    ];
    prop::collection::btree_map(prop::collection::vec(any::<u8>(), 0..12), value, 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_stream_is_read_back(entries in entries()) {
        let opening = opening("car-7");
        let (bytes, digest) = encode(&opening, &entries);
        prop_assert_eq!(decode(&bytes), Ok((opening, entries, digest)));
    }

    /// Whatever is done to its bytes is noticed.
    #[test]
    fn another_stream_is_refused(
        entries in entries(),
        at in any::<prop::sample::Index>(),
        change in 1u8..=255,
        long in 1usize..9,
    ) {
        let (bytes, _) = encode(&opening("car-7"), &entries);
        let at = at.index(bytes.len());
        let mut altered = bytes.clone();
        altered[at] ^= change;
        prop_assert!(decode(&altered).is_err());
        prop_assert!(decode(&bytes[..at]).is_err());
        let mut shorter = bytes.clone();
        shorter.drain(at..(at + long).min(bytes.len()));
        prop_assert!(decode(&shorter).is_err());
        let mut longer = bytes.clone();
        longer.splice(at..at, std::iter::repeat_n(change, long));
        prop_assert!(decode(&longer).is_err());
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(decode(&bytes).is_err());
        prop_assert!(Ticket::from_bytes(&bytes).is_err());
    }
}

/// Some records in several frames.
fn long_entries() -> Entries {
    let entry = |number: u32| {
        (
            format!("{number:03}").into_bytes(),
            vec![number as u8; 3_000],
        )
    };
    (0..100).map(entry).collect()
}

/// Records that expire travel among others, in frames of their own, and the digest does not know them.
#[test]
fn records_that_expire_are_read_back() {
    let mut encoder = StreamEncoder::new(&opening("car-7"));
    let records = [
        ("a", None),
        ("b", Some(7)),
        ("c", Some(1 << 60)),
        ("d", None),
    ];
    for (key, expiry) in records {
        match expiry {
            None => encoder.push(key.as_bytes(), b"v"),
            Some(expiry) => encoder.push_until(key.as_bytes(), b"v", expiry),
        }
    }
    let digest = encoder.finish();
    assert_eq!((digest.records, digest.bytes), (2, 4));
    let bytes = encoder.bytes().to_vec();
    let mut found = Vec::new();
    let mut decoder = StreamDecoder::new();
    for frame in frames(&bytes) {
        let (head, body) = frame.split_first_chunk().expect("a head");
        decoder.head(head).expect("a head");
        match decoder.body(body).expect("a body") {
            Frame::Records(some) => {
                found.extend(some.map(|it| (it.key.to_vec(), it.expiry)));
            }
            Frame::End(end) => assert_eq!(end, digest),
            Frame::Opening(_) => {}
        }
    }
    let wanted = records.map(|(key, expiry)| (key.as_bytes().to_vec(), expiry));
    assert_eq!(found, wanted);
    // A date that cannot be.
    let mut encoder = StreamEncoder::new(&opening("car-7"));
    encoder.push_until(b"a", b"v", u64::MAX);
    encoder.finish();
    assert!(decode(encoder.bytes()).is_err());
}

/// A source with nothing open writes what older versions read.
#[test]
fn openings_of_both_formats_are_read_back() {
    for open in [vec![], vec![3]] {
        let opening = Opening {
            open,
            ..opening("car-7")
        };
        let (bytes, _) = encode(&opening, &Entries::new());
        let format = bytes[FRAME_HEAD_BYTES + STREAM_MAGIC.len()];
        assert_eq!(usize::from(format), 1 + opening.open.len());
        assert_eq!(decode(&bytes).map(|read| read.0), Ok(opening));
    }
}

#[test]
fn every_byte_counts() {
    let entries: Entries = [(b"a".to_vec(), b"one".to_vec()), (b"b".to_vec(), vec![])].into();
    let (bytes, _) = encode(&opening("car-7"), &entries);
    for at in 0..bytes.len() {
        for change in 1..=255 {
            let mut altered = bytes.clone();
            altered[at] ^= change;
            assert!(decode(&altered).is_err(), "byte {at} by {change:#x}");
        }
        assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn frames_are_not_reordered_left_out_doubled_or_foreign() {
    let entries = long_entries();
    let (bytes, _) = encode(&opening("car-7"), &entries);
    let (other, _) = encode(&opening("car-8"), &entries);
    let (own, foreign) = (frames(&bytes), frames(&other));
    assert!(own.len() > 4, "{} frames", own.len());
    for at in 0..own.len() {
        let mut changed = own.clone();
        changed.remove(at);
        assert!(decode(&changed.concat()).is_err(), "without frame {at}");
        let mut changed = own.clone();
        changed.insert(at, own[at]);
        let doubled = decode(&changed.concat());
        // A second end lies behind the first, where nobody reads.
        assert_eq!(doubled.is_ok(), at == own.len() - 1, "frame {at} twice");
        let mut changed = own.clone();
        changed[at] = foreign[at];
        assert!(decode(&changed.concat()).is_err(), "frame {at} of another");
        for to in at + 1..own.len() {
            let mut changed = own.clone();
            changed.swap(at, to);
            assert!(decode(&changed.concat()).is_err(), "{at} for {to}");
        }
    }
}

#[test]
fn the_digest_depends_on_order_and_borders() {
    let of = |records: &[(&str, &str)]| {
        let mut digest = Digest::default();
        for (key, value) in records {
            digest.add(key.as_bytes(), value.as_bytes());
        }
        digest.hash
    };
    let whole = of(&[("a", "1"), ("b", "2")]);
    for other in [
        of(&[("b", "2"), ("a", "1")]),
        of(&[("a", "1b"), ("", "2")]),
        of(&[("a", "1"), ("b", "2"), ("", "")]),
        of(&[("a", "1"), ("b", "3")]),
    ] {
        assert_ne!(whole, other);
    }
    // Written down once: it is compared between versions.
    assert_eq!(of(&[("speed:1", "52")]), 0xfcb0_fda5_4164_cb84);
}

#[test]
fn tickets_receipts_and_refusals_are_read_back_and_not_mistaken() {
    let ticket = opening("car-7").ticket;
    let receipt = Receipt {
        ticket: ticket.clone(),
        digest: Digest {
            records: 3,
            bytes: 40,
            hash: 5,
        },
    };
    let refusal = Refusal {
        ticket: ticket.clone(),
    };
    assert_eq!(Ticket::from_bytes(&ticket.to_bytes()), Ok(ticket.clone()));
    assert_eq!(
        Receipt::from_bytes(&receipt.to_bytes()),
        Ok(receipt.clone())
    );
    assert_eq!(
        Refusal::from_bytes(&refusal.to_bytes()),
        Ok(refusal.clone())
    );
    assert!(Refusal::from_bytes(&ticket.to_bytes()).is_err());
    assert!(Receipt::from_bytes(&refusal.to_bytes()).is_err());
    let bytes = receipt.to_bytes();
    for at in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[at] ^= 1;
        assert!(Receipt::from_bytes(&altered).is_err(), "byte {at}");
        assert!(Receipt::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
    }
}
