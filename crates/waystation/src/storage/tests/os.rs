//! What only the operating system does.

use crate::error::Error;
use crate::storage::{OsStorage, Storage};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};

#[test]
fn the_lock_follows_the_file_under_every_path() {
    let dir = tempfile::tempdir().unwrap();
    let storage = OsStorage::new();
    let real = dir.path().join("real");
    let alias = dir.path().join("alias");
    fs::create_dir(&real).unwrap();
    symlink(&real, &alias).unwrap();
    let lock = storage.lock(&real.join("LOCK")).unwrap();
    let second = OsStorage::new().lock(&alias.join("LOCK"));
    assert!(matches!(second, Err(Error::Locked { .. })));
    drop(lock);
    storage.lock(&alias.join("LOCK")).unwrap();
}

#[test]
fn the_lock_keeps_other_processes_out() {
    // Another process asks by `fcntl`, in the manner of the oldest of the tools that do.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let lock = OsStorage::new().lock(&path).unwrap();
    assert!(held_according_to_kernel(fs::metadata(&path).unwrap().ino()));
    // A refused second attempt must not give up the first: closing any descriptor would.
    assert!(OsStorage::new().lock(&path).is_err());
    let inode = fs::metadata(&path).unwrap().ino();
    assert!(held_according_to_kernel(inode));
    drop(lock);
    assert!(!held_according_to_kernel(inode));
}

fn held_according_to_kernel(inode: u64) -> bool {
    let process = std::process::id().to_string();
    let suffix = format!(":{inode}");
    fs::read_to_string("/proc/locks")
        .unwrap()
        .lines()
        .any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields.contains(&"POSIX")
                && fields.contains(&"WRITE")
                && fields.contains(&process.as_str())
                && fields.iter().any(|field| field.ends_with(&suffix))
        })
}

#[test]
fn a_ring_file_has_all_its_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("RING");
    let bytes = 3 << 20;
    let has_blocks = |length: usize| {
        let meta = fs::metadata(&path).unwrap();
        assert_eq!(meta.len(), length as u64);
        let blocks = meta.blocks();
        assert!(blocks * 512 >= meta.len(), "{blocks} blocks");
    };
    let (ring, _) = OsStorage::new().map_ring(&path, bytes).unwrap();
    assert_eq!((ring.len(), ring.file_bytes()), (bytes, bytes / 8));
    has_blocks(bytes / 8);
    OsStorage::new().resize_ring(&path, bytes / 2).unwrap();
    has_blocks(bytes / 2);
}

#[test]
fn a_half_made_ring_file_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("RING");
    fs::write(&path, [1; 5_000]).unwrap();
    fs::write(dir.path().join("RING.new"), [1; 9_000]).unwrap();
    let (ring, survived) = OsStorage::new().map_ring(&path, 8_192).unwrap();
    assert!(!survived);
    drop(ring);
    assert_eq!(fs::read(&path).unwrap(), [0; 8_192]);
    assert!(!dir.path().join("RING.new").exists());
}

#[test]
fn free_space_is_known() {
    let dir = tempfile::tempdir().unwrap();
    assert!(OsStorage::new().free_bytes(dir.path()).unwrap() > 0);
    assert!(
        OsStorage::new()
            .free_bytes(&dir.path().join("no"))
            .unwrap_err()
            .is_not_found()
    );
}

#[test]
fn refusals_are_recognised_by_kind() {
    for (errno, kind) in [
        (rustix::io::Errno::INVAL, io::ErrorKind::InvalidInput),
        (rustix::io::Errno::OPNOTSUPP, io::ErrorKind::Unsupported),
        (rustix::io::Errno::NOSYS, io::ErrorKind::Unsupported),
        (rustix::io::Errno::INTR, io::ErrorKind::Interrupted),
    ] {
        assert_eq!(io::Error::from(errno).kind(), kind, "{errno}");
    }
}
