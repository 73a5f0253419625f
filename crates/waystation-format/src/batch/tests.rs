//! What batches are made of and read back to.

use super::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

#[test]
fn bytes_are_leveldbs() {
    let mut batch = WriteBatch::new();
    batch.put(b"foo", b"bar");
    batch.delete(b"box");
    batch.put(b"", b"");
    batch.set_sequence(100);
    let expected = [
        &[100, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0][..],
        b"\x01\x03foo\x03bar\x00\x03box\x01\x00\x00",
    ];
    assert_eq!(batch.as_bytes(), expected.concat());
    assert_eq!(batch.sequence(), 100);
    let mut walk = batch.iter();
    walk.next();
    assert_eq!(walk.sequence(), 101);
}

#[test]
fn what_is_too_long_is_not_taken_and_is_told() {
    // Memory that nobody touches.
    let long = vec![0; (4 << 30) + 1];
    let adds: [fn(&mut WriteBatch, &[u8]); 8] = [
        |batch, long| batch.put(long, b""),
        |batch, long| batch.put(b"key", long),
        |batch, long| batch.delete(long),
        |batch, long| batch.delete_range(long, None),
        |batch, long| batch.delete_range(b"", Some(long)),
        |batch, long| batch.delete_prefix(long),
        |batch, long| batch.put_with_ttl(b"key", long, Duration::from_secs(1)),
        |batch, long| batch.put_until(long, b"", 1),
    ];
    for add in adds {
        let mut batch = WriteBatch::new();
        batch.put(b"before", b"");
        assert_eq!(batch.refused_bytes(), None);
        let before = batch.as_bytes().to_vec();
        add(&mut batch, &long);
        batch.put(b"after", b"");
        assert_eq!(batch.as_bytes(), before, "nothing of it, nor after it");
        assert!(batch.refused_bytes() > Some(4 << 30));
        let mut other = WriteBatch::new();
        other.append(&batch);
        assert!(other.refused_bytes().is_some() && other.is_empty());
        batch.clear();
        assert_eq!(batch, WriteBatch::new());
    }
}

#[test]
fn damaged_batches_are_refused() {
    let mut batch = WriteBatch::new();
    batch.put(b"foo", b"bar");
    batch.delete(b"box");
    let bytes = batch.as_bytes();
    for cut in 0..bytes.len() {
        assert!(WriteBatch::from_bytes(bytes[..cut].to_vec()).is_err());
    }
    let mut other_kind = bytes.to_vec();
    other_kind[HEADER_BYTES] = 5;
    assert!(matches!(
        WriteBatch::from_bytes(other_kind),
        Err(FormatError::Unsupported { offset: 12, .. })
    ));
    let mut other_count = bytes.to_vec();
    other_count[8] = 3;
    assert!(WriteBatch::from_bytes(other_count).is_err());
}

#[test]
fn ranges_are_read_back() {
    let mut batch = WriteBatch::new();
    batch.delete_range(b"a", Some(b"c"));
    batch.delete_prefix(b"x\xff");
    batch.delete_prefix(b"");
    batch.delete_range(b"", Some(b""));
    let read = WriteBatch::from_bytes(batch.as_bytes().to_vec()).unwrap();
    let ranges: Vec<_> = read.iter().map(|it| (it.key, it.range())).collect();
    let expected: [(&[u8], _); 4] = [
        (b"a", Some(Some(&b"c"[..]))),
        (b"x\xff", Some(Some(b"y"))),
        (b"", Some(None)),
        (b"\0", Some(Some(b"\0"))),
    ];
    assert_eq!(ranges, expected);
}

#[test]
fn times_are_read_back_and_fixed() {
    let mut batch = WriteBatch::new();
    batch.put_with_ttl(b"a", b"1", Duration::from_nanos(1_500));
    batch.put_until(b"b", b"2", 99);
    batch.reach(7);
    batch.put_with_ttl(b"c", b"", Duration::MAX);
    batch.put_with_ttl(b"d", b"", Duration::ZERO);
    let times = |batch: &WriteBatch| -> Vec<_> { batch.iter().map(|it| it.time).collect() };
    let mut expected = [
        None,
        Some(Time::Lifetime(2)),
        None,
        Some(Time::Expiry(99)),
        Some(Time::Reached(7)),
        None,
        Some(Time::Lifetime(TIME_MAX + 1)),
        None,
        Some(Time::Lifetime(0)),
    ];
    let mut read = WriteBatch::from_bytes(batch.as_bytes().to_vec()).unwrap();
    assert_eq!(times(&read), expected);
    read.fix_times(1_000);
    expected[1] = Some(Time::Expiry(1_002));
    expected[6] = Some(Time::Expiry(TIME_MAX));
    expected[8] = Some(Time::Expiry(1_000));
    assert_eq!(times(&read), expected);
    assert_eq!(read.iter().nth(1).unwrap().key, b"a");
    let mut beyond = read.as_bytes().to_vec();
    let last = beyond.len() - 1;
    beyond[last] = 0x40;
    assert!(WriteBatch::from_bytes(beyond).is_err());
}

proptest! {
    #[test]
    fn operations_round_trip(
        operations in vec((vec(any::<u8>(), 0..200), option::of(vec(any::<u8>(), 0..200))), 0..20),
        split in 0..20_usize,
        sequence: u64,
    ) {
        let mut batch = WriteBatch::new();
        batch.put(b"left over", b"from before");
        batch.clear();
        let mut tail = WriteBatch::new();
        for (i, (key, value)) in operations.iter().enumerate() {
            let part = if i < split { &mut batch } else { &mut tail };
            match value {
                Some(value) => part.put(key, value),
                None => part.delete(key),
            }
        }
        batch.append(&tail);
        batch.set_sequence(sequence);
        let read = WriteBatch::from_bytes(batch.as_bytes().to_vec()).unwrap();
        prop_assert_eq!(read.len(), operations.len());
        prop_assert_eq!(read.sequence(), sequence);
        let expected: Vec<_> = operations
            .iter()
            .map(|(key, value)| Operation { key, value: value.as_deref(), ..Operation::default() })
            .collect();
        prop_assert_eq!(read.iter().collect::<Vec<_>>(), expected);
        let (count, payload) = (operations.len() as u32, &batch.as_bytes()[HEADER_BYTES..]);
        let headless = BatchIter::parse_headless(sequence, count, payload).unwrap();
        prop_assert_eq!(headless.sequence(), sequence);
        prop_assert!(headless.eq(batch.iter()));
        prop_assert!(BatchIter::parse_headless(sequence, count + 1, payload).is_err());
    }

    #[test]
    fn any_bytes_are_answered(bytes: Vec<u8>) {
        if let Ok(walk) = BatchIter::parse(&bytes) {
            prop_assert_eq!(walk.len(), walk.count());
        }
    }
}

#[test]
fn a_batch_returns_to_a_mark() {
    let mut batch = WriteBatch::new();
    batch.put(b"a", b"1");
    let (mark, before) = (batch.mark(), batch.clone());
    assert_eq!(mark.byte_len(), batch.byte_len());
    batch.delete(b"a");
    batch.put_until(b"b", b"2", 7);
    batch.delete_range(b"c", None);
    batch.return_to(mark);
    assert_eq!(batch, before);
    batch.put(b"d", &vec![0; BYTES_MAX]);
    assert!(batch.refused_bytes().is_some());
    batch.return_to(mark);
    assert_eq!(batch, before);
}
