//! Lengths are no reason to take memory: neither a file's own, which may be sparse, nor one that is written in it.
//!
//! Each test runs itself again with little address space. An allocation by a hostile length is refused there, and one
//! that cannot be refused aborts the process: the test fails.

use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use waystation::backup::Backups;
use waystation::inspect::{self, Inspection};
use waystation::repair::{self, Resurrection};
use waystation::storage::{OsStorage, Storage};
use waystation::{Db, Error};
use waystation_fuzz::drive;
use waystation_fuzz::fixture::{Kind, Outcome};
use waystation_fuzz::image::Image;
use waystation_fuzz::mutate::Random;
use waystation_fuzz::targets;

/// Set where there is little address space.
const LIMITED: &str = "WAYSTATION_LIMITED";
/// How much there is (KiB): 3.5 GiB, so that no length of 32 bits fits as well.
const SPACE_KIB: &str = "3670016";

/// Runs `test`, the body of the test of that name, with little address space.
fn with_little_space(name: &str, test: fn()) {
    if std::env::var_os(LIMITED).is_some() {
        return test();
    }
    let ran = Command::new("sh")
        .args(["-c", "ulimit -v \"$0\" && exec \"$@\"", SPACE_KIB])
        .arg(std::env::current_exe().expect("this program"))
        .args([name, "--exact", "--nocapture"])
        .env(LIMITED, "1")
        .output()
        .expect("runs");
    assert!(
        ran.status.success(),
        "{}\n{}",
        ran.status,
        String::from_utf8_lossy(&ran.stderr)
    );
}

fn write(image: &Image, dir: &Path) {
    fs::create_dir(dir).expect("made");
    for (name, content) in &image.files {
        fs::write(dir.join(name), content).expect("written");
    }
}

/// Makes the file as long as that, without a byte more of disk.
fn stretch(path: &Path, bytes: u64) {
    let file = File::options().write(true).open(path).expect("opens");
    file.set_len(bytes)
        .expect("the file system has sparse files");
}

/// The tools' answers. An answer of a file that goes on for ever is cut short.
fn inspect_all(kind: Kind, dir: &Path, name: &str, target: &Path) {
    let storage: Arc<dyn Storage> = OsStorage::new();
    if let Ok(inspection) = Inspection::open(Arc::clone(&storage), dir) {
        let _ = inspection.summary();
        let _ = inspection.check(&mut |_| ());
        let _ = inspection.find(b"d:1");
    }
    let mut left = 10_000;
    let _ = inspect::dump(&*storage, &dir.join(name), &mut |_| {
        left -= 1;
        if left > 0 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    let _ = repair::repair(
        &storage,
        dir,
        target,
        &kind.options(),
        Resurrection::Likely,
        &mut |_| (),
    );
}

fn is_typed(error: &Error) -> bool {
    matches!(error, Error::Corruption { .. } | Error::Io { .. })
}

fn files_of_any_length() {
    let parent = tempfile::tempdir().expect("a directory");
    for kind in Kind::ALL {
        let image = kind.load().expect("kept");
        for (name, _) in &image.files {
            for bytes in [8 << 40, (4 << 30) - 4096] {
                let at = format!("{kind:?} with {name} of {bytes} bytes");
                println!("{at}");
                let (dir, target) = (parent.path().join("db"), parent.path().join("repaired"));
                write(&image, &dir);
                stretch(&dir.join(name), bytes);
                inspect_all(kind, &dir, name, &target);
                match kind.read_in(OsStorage::new(), &dir) {
                    Outcome::Right | Outcome::Cut => {}
                    Outcome::Refused(error) | Outcome::Detected(error) => {
                        assert!(error.to_string().contains(name.as_str()), "{at}: {error}");
                        assert!(is_typed(&error), "{at}: {error}");
                    }
                    Outcome::Wrong(difference) => panic!("{at}: {difference}"),
                }
                fs::remove_dir_all(&dir).expect("removed");
                let _ = fs::remove_dir_all(&target);
            }
        }
    }
}

#[test]
fn files_of_any_length_are_answered() {
    with_little_space("files_of_any_length_are_answered", files_of_any_length);
}

fn lists_of_backups_of_any_length() {
    let parent = tempfile::tempdir().expect("a directory");
    let (dir, backups) = (parent.path().join("db"), parent.path().join("backups"));
    let db = Db::open(&dir, Kind::Devices.options()).expect("opens");
    db.put(b"d:1", b"value").expect("puts");
    db.backup(&backups, &mut |_| ()).expect("backs up");
    let mut names: Vec<_> = fs::read_dir(&backups)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.is_file() && path.metadata().is_ok_and(|it| it.len() > 0))
        .collect();
    let list = names.pop().expect("a list");
    assert!(names.is_empty(), "{names:?}");
    for bytes in [8 << 40, (4 << 30) - 4096] {
        stretch(&list, bytes);
        let found = Backups::open(OsStorage::new(), &backups).expect("backups");
        let restored = found.restore(Some(1), &parent.path().join("restored"), &mut |_| ());
        let told = restored.expect_err("the list is damaged").to_string();
        assert!(told.contains(list.to_str().expect("a name")), "{told}");
        let _ = found.list();
        let _ = found.verify(None, &mut |_| ());
        let _ = db.backup(&backups, &mut |_| ());
    }
}

#[test]
fn lists_of_backups_of_any_length_are_answered() {
    with_little_space(
        "lists_of_backups_of_any_length_are_answered",
        lists_of_backups_of_any_length,
    );
}

/// Lengths as formats write them: 32 and 64 bits wide, and in steps of seven bits.
const LENGTHS: [&[u8]; 5] = [
    &[0xff; 4],
    &[0xff; 8],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
    &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
];
/// So many places of a seed get each of them, beside its beginning and its end.
const PLACES: usize = 24;
/// So many bytes of a seed at its beginning, and at its end.
const EDGE_BYTES: usize = 24;
/// So many seeds of a target.
const SEEDS: usize = 12;

fn lengths_within_files() {
    let mut random = Random::new(1);
    for target in targets::ALL {
        let mut seeds = (target.seeds)();
        while seeds.len() > SEEDS {
            seeds.swap_remove(random.below(seeds.len()));
        }
        for seed in seeds.iter().filter(|seed| !seed.is_empty()) {
            let end = seed.len().saturating_sub(EDGE_BYTES);
            let edges = (0..seed.len().min(EDGE_BYTES)).chain(end..seed.len());
            let within: Vec<_> = (0..PLACES).map(|_| random.below(seed.len())).collect();
            for at in edges.chain(within) {
                let length = LENGTHS[random.below(LENGTHS.len())];
                let mut hostile = seed.clone();
                let stop = hostile.len().min(at + length.len());
                hostile[at..stop].copy_from_slice(&length[..stop - at]);
                let failure = drive::try_one(&target, &hostile);
                assert_eq!(failure, None, "{} at {at}", target.name);
            }
        }
    }
}

#[test]
fn lengths_within_files_take_no_memory() {
    with_little_space("lengths_within_files_take_no_memory", lengths_within_files);
}
