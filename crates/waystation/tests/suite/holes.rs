//! A process that dies amid a write takes no later one with it.

use std::fs;
use std::path::Path;
use waystation::{Db, DeviceOptions, Extractor, Options};

/// The value of the write whose end never came to the ring.
const TORN: &[u8] = b"of a process that died";

fn options(has_devices: bool) -> Options {
    Options {
        ring_bytes: 1 << 20,
        log_segment_bytes: 256 << 10,
        devices: has_devices.then(|| DeviceOptions::new(Extractor::until(b':'))),
        ..Options::default()
    }
}

/// What the death of the process leaves of `dir`.
fn image(dir: &Path) -> tempfile::TempDir {
    let image = tempfile::tempdir().expect("tempdir");
    for entry in fs::read_dir(dir).expect("list") {
        let entry = entry.expect("entry");
        fs::copy(entry.path(), image.path().join(entry.file_name())).expect("copy");
    }
    image
}

/// The same, with [`TORN`] incomplete.
fn torn_image(dir: &Path) -> tempfile::TempDir {
    let image = image(dir);
    let ring = image.path().join("journal.ring");
    let mut bytes = fs::read(&ring).expect("read");
    let found = bytes.windows(TORN.len()).position(|bytes| bytes == TORN);
    let last = found.expect("it is in the ring") + TORN.len() - 1;
    bytes[last] = 0;
    fs::write(&ring, bytes).expect("write");
    image
}

#[test]
fn a_torn_record_hides_no_later_one() {
    for has_devices in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let db = Db::open(dir.path(), options(has_devices)).unwrap();
        // The ring grows, and is empty then: what follows is in it alone.
        for _ in 0..16 {
            db.put(b"a:before", &vec![0; 100_000]).unwrap();
        }
        db.put(b"a:before", b"1").unwrap();
        db.sync().unwrap();
        db.put(b"a:torn", TORN).unwrap();
        db.put(b"a:behind", b"2").unwrap();
        // Across a block's end.
        db.put(b"b:long", &vec![7; 100_000]).unwrap();
        db.put(b"b:last", b"3").unwrap();
        let first = torn_image(dir.path());
        db.close().unwrap();
        let found = check(first.path(), has_devices);
        // The first life found the hole; the second one finds the gap in its place.
        let second = image(first.path());
        drop(found);
        check(second.path(), has_devices);
    }
}

/// Opens what a process left, and looks for everything but the torn write.
fn check(dir: &Path, has_devices: bool) -> Db {
    let db = Db::open(dir, options(has_devices)).expect("open");
    assert_eq!(db.get(b"a:torn").expect("get"), None);
    for (key, value) in [
        (&b"a:before"[..], b"1"),
        (b"a:behind", b"2"),
        (b"b:last", b"3"),
    ] {
        assert_eq!(db.get(key).expect("get").as_deref(), Some(&value[..]));
    }
    assert_eq!(
        db.get(b"b:long").expect("get").map(|it| it.len()),
        Some(100_000)
    );
    let keys: waystation::Result<Vec<_>> =
        db.range::<&[u8]>(..).map(|entry| Ok(entry?.0)).collect();
    assert_eq!(keys.expect("scan").len(), 4);
    assert!(db.check().expect("check").problems.is_empty());
    db
}
