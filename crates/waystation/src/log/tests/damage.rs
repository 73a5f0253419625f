//! Damaged and missing files of the log: an error, or everything is found; never a silent loss.

use super::super::leftover::Leftover;
use super::super::recovery::read_journal;
use super::super::replay::replay;
use super::super::survey::survey;
use super::*;
use crate::directory::JOURNAL_NAME;
use std::collections::BTreeSet;

/// The first sequence number of each record found in `dir` behind `flushed`. Changes nothing there.
fn look(dir: &Path, flushed: u64) -> crate::Result<BTreeSet<u64>> {
    let storage = OsStorage::new();
    let journal = read_journal(&*storage, dir)?.expect("a journal");
    let survey = survey(&*storage, dir, &journal, Transfer::Direct)?;
    let ring = Leftover::map(&*storage, dir, &journal)?;
    let mut found = BTreeSet::new();
    let replayed = replay(
        dir,
        &survey,
        &ring,
        &journal,
        &Needs::after(flushed),
        &mut |record| {
            found.insert(record.header.first_sequence);
            Ok(())
        },
    )?;
    let tail = replayed.tail.iter();
    found.extend(tail.map(|record| record.header.first_sequence));
    Ok(found.split_off(&(flushed + 1)))
}

/// The segments of `dir` that were begun, by number, and the first sequence number that starts in each.
fn segments(dir: &Path) -> Vec<(PathBuf, u64)> {
    let storage = OsStorage::new();
    let journal = read_journal(&*storage, dir)
        .expect("read")
        .expect("a journal");
    let survey = survey(&*storage, dir, &journal, Transfer::Direct).expect("survey");
    let begun = survey.segments.into_iter();
    begun
        .map(|found| (found.path, found.header.first_sequence))
        .collect()
}

/// Five segments and more in the ring, most of it through in a process crash; one record runs from the second into
/// the third. Returns the last sequence number.
fn long_log(dir: &Path, synced: bool) -> u64 {
    let running = Running::open(dir, &small(), 0).expect("open");
    let mut last = 0;
    for i in 0..2000u64 {
        let len = if i == 650 { 200_000 } else { 1000 + i % 300 };
        let (sequence, end) = running.append(&payload(i, len as usize));
        if synced && i % 100 == 99 {
            running.log.sync(end).expect("sync");
        }
        last = sequence;
    }
    let (_, end) = running.append(b"the last one");
    if synced {
        running.log.sync(end).expect("sync");
    }
    let copy = idle_copy(dir);
    running.close();
    std::fs::remove_dir_all(dir).expect("remove");
    std::fs::rename(copy.keep(), dir).expect("rename");
    last + 1
}

fn is_told(error: &Error) -> bool {
    matches!(error, Error::Corruption { .. } | Error::Incompatible { .. })
}

/// Either an error, or all from `flushed + 1` to `last`.
fn assert_no_silent_loss(dir: &Path, flushed: u64, last: u64, what: &str) -> bool {
    match look(dir, flushed) {
        Ok(found) => {
            assert!(
                found.into_iter().eq(flushed + 1..=last),
                "{what}: a silent loss"
            );
            true
        }
        Err(error) => {
            assert!(is_told(&error), "{what}: {error}");
            false
        }
    }
}

#[test]
fn a_missing_segment_is_missed_unless_everything_before_its_end_is_in_tables() {
    for synced in [false, true] {
        let dir = tempfile::tempdir().expect("tempdir");
        let last = long_log(dir.path(), synced);
        let segments = segments(dir.path());
        assert!(segments.len() >= 5, "{} segments", segments.len());
        let aside = dir.path().join("aside");
        for (index, (path, _)) in segments.iter().enumerate() {
            std::fs::rename(path, &aside).expect("rename");
            for (_, first) in &segments {
                for flushed in [first.saturating_sub(2), first - 1, first + 20] {
                    let what = format!("{}, flushed through {flushed}", path.display());
                    let opens = assert_no_silent_loss(dir.path(), flushed, last, &what);
                    // The needed part begins in the next one, or behind.
                    let next = segments.get(index + 1);
                    let needless = next.is_some_and(|(_, first)| flushed + 1 >= *first);
                    assert_eq!(opens, needless, "{what}");
                }
            }
            std::fs::rename(&aside, path).expect("rename");
        }
        assert!(assert_no_silent_loss(dir.path(), 0, last, "whole again"));
    }
}

/// Recycled segments may come back: any of them, in any combination.
#[test]
fn freed_segments_that_are_back_or_gone_do_not_matter() {
    let dir = tempfile::tempdir().expect("tempdir");
    let last = long_log(dir.path(), true);
    let segments = segments(dir.path());
    let flushed = segments[3].1 - 1;
    for gone in 0..8_usize {
        for (bit, (path, _)) in segments[..3].iter().enumerate() {
            let aside = path.with_extension("aside");
            let (from, to) = if gone >> bit & 1 == 1 {
                (path, &aside)
            } else {
                (&aside, path)
            };
            if from.exists() {
                std::fs::rename(from, to).expect("rename");
            }
        }
        assert!(assert_no_silent_loss(
            dir.path(),
            flushed,
            last,
            "without some"
        ));
    }
}

/// Flips each bit of a range of `path` in turn.
fn flip_each(path: &Path, range: std::ops::Range<usize>, mut check: impl FnMut(usize)) {
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("open");
    for bit in range.start * 8..range.end * 8 {
        use std::os::unix::fs::FileExt;
        let mut byte = [0];
        file.read_exact_at(&mut byte, bit as u64 / 8).expect("read");
        file.write_all_at(&[byte[0] ^ (1 << (bit % 8))], bit as u64 / 8)
            .expect("write");
        check(bit);
        file.write_all_at(&byte, bit as u64 / 8).expect("write");
    }
}

#[test]
fn a_flipped_bit_in_a_header_is_told() {
    let dir = tempfile::tempdir().expect("tempdir");
    // Few and short records: every flip reads the whole log.
    let running = Running::open(dir.path(), &small(), 0).expect("open");
    for i in 0..6 {
        let (_, end) = running.append(&payload(i, 90_000));
        running.log.sync(end).expect("sync");
    }
    let copy = crash_copy(dir.path());
    running.close();
    let last = 6;
    let segments = segments(copy.path());
    assert!(segments.len() >= 2);
    for (path, _) in &segments {
        flip_each(path, 0..72, |bit| {
            let what = format!("{} bit {bit}", path.display());
            let opens = assert_no_silent_loss(copy.path(), 0, last, &what);
            assert!(!opens, "{what}: passed over");
        });
        // The first block's header.
        flip_each(path, UNIT_BYTES..UNIT_BYTES + 64, |bit| {
            assert_no_silent_loss(
                copy.path(),
                0,
                last,
                &format!("{} bit {bit}", path.display()),
            );
        });
        let length = std::fs::metadata(path).expect("size").len() as usize;
        flip_each(path, length - 72..length, |bit| {
            let what = format!("{} bit {bit}", path.display());
            assert!(assert_no_silent_loss(copy.path(), 0, last, &what), "{what}");
        });
    }
    let journal = copy.path().join(JOURNAL_NAME);
    flip_each(&journal, 0..48, |bit| {
        let storage = OsStorage::new();
        let error = read_journal(&*storage, copy.path()).expect_err("told");
        assert!(is_told(&error), "JOURNAL bit {bit}: {error}");
    });
}

#[test]
fn a_log_that_is_expected_must_be_there() {
    let dir = tempfile::tempdir().expect("tempdir");
    let running = Running::open(dir.path(), &small(), 0).expect("open");
    running.append(b"something");
    let copy = crash_copy(dir.path());
    running.close();
    std::fs::remove_file(copy.path().join(JOURNAL_NAME)).expect("remove");
    let before = std::fs::read_dir(copy.path()).expect("list").count();
    let storage: Arc<dyn Storage> = OsStorage::new();
    let opened = open(
        &storage,
        copy.path(),
        &small(),
        &Needs::after(0),
        true,
        &mut |_| Ok(()),
    );
    assert!(opened.is_err_and(|error| is_told(&error)));
    let after = std::fs::read_dir(copy.path()).expect("list").count();
    assert_eq!(before, after, "nothing was removed");
}
