//! The scripts of `place advise`, run for real on loop devices: they do what was advised, they undo it, and whatever
//! fails in between loses nothing. Needs root, loop devices and the right to mount; without them nothing is tested, and
//! that is said.

#![allow(
    clippy::unwrap_used,
    reason = "a test helper stops the test where something is not as it should be"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use waystation_advisor::advise::{How, advise};
use waystation_advisor::import::{AreaRules, Format, ImportSettings, import};
use waystation_advisor::native::Trace;
use waystation_advisor::simulate::Machine;

const MIB: u64 = 1 << 20;

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let output = Command::new(program).args(arguments).output();
    output.is_ok_and(|output| output.status.success())
}

fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A file as a block device, until it is dropped.
struct Loop(PathBuf);

impl Loop {
    fn new(image: &Path, bytes: u64) -> Option<Self> {
        fs::File::create(image).unwrap().set_len(bytes).unwrap();
        // Others may take the same device at the same moment.
        for _ in 0..20 {
            let name = said_by("losetup", &["-f", "--show", text(image)]);
            if !name.is_empty() {
                return Some(Self(name.into()));
            }
        }
        None
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        succeeds("losetup", &["-d", text(&self.0)]);
    }
}

/// A file system in use on a slow device, and an empty fast one.
struct Ground {
    directory: tempfile::TempDir,
    slow: Loop,
    fast: Loop,
}

impl Ground {
    fn new(slow_bytes: u64, fast_bytes: u64) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let slow = Loop::new(&path("slow.img"), slow_bytes);
        let fast = Loop::new(&path("fast.img"), fast_bytes);
        let (Some(slow), Some(fast)) = (slow, fast) else {
            eprintln!("not run: placement_script needs root and loop devices");
            return None;
        };
        fs::create_dir_all(path("mnt")).unwrap();
        let here = text(directory.path());
        let made = succeeds("mkfs.ext4", &["-q", "-I", "256", text(&slow.0)])
            && succeeds("mount", &[text(&slow.0), &format!("{here}/mnt")]);
        let ground = Self {
            directory,
            slow,
            fast,
        };
        if !made {
            eprintln!("not run: placement_script may not mount here");
            return None;
        }
        ground.fill();
        Some(ground)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Files of all kinds, with names that shells stumble over.
    fn fill(&self) {
        let mount = self.path("mnt");
        fs::create_dir(mount.join("a b")).unwrap();
        for number in 0..40_u8 {
            let content = vec![number; 1 + usize::from(number) * 3_001];
            fs::write(mount.join(format!("a b/it's \"{number}\"")), content).unwrap();
        }
        fs::write(mount.join("line\nbreak"), "x").unwrap();
        fs::hard_link(mount.join("line\nbreak"), mount.join("linked")).unwrap();
        std::os::unix::fs::symlink("../outside", mount.join("a b/link")).unwrap();
        let mode = fs::Permissions::from_mode(0o640);
        fs::set_permissions(mount.join("linked"), mode).unwrap();
    }

    /// All that a user sees below the mount point.
    fn content(&self) -> String {
        let list = "cd \"$1\" && find . -path ./lost+found -prune -o -type f -printf '%p %m %n %s %T@\\n' -exec sha256sum {} \\; \
                    -o -type l -printf '%p %l\\n' | sort";
        said_by("sh", &["-c", list, "sh", text(&self.path("mnt"))])
    }

    fn mounted_from(&self) -> String {
        said_by(
            "findmnt",
            &["-n", "-o", "SOURCE", "-M", text(&self.path("mnt"))],
        )
    }

    fn is_blank(&self) -> bool {
        said_by("wipefs", &["--no-act", text(&self.fast.0)]).is_empty()
    }

    /// Runs a script with its variables set, and with `programs` found before the real ones.
    fn run(&self, script: &str, programs: Option<&Path>) -> Output {
        let file = self.path("place.sh");
        fs::write(&file, script).unwrap();
        let mut path = std::env::var("PATH").unwrap();
        if let Some(programs) = programs {
            path = format!("{}:{path}", programs.display());
        }
        Command::new("sh")
            .arg(&file)
            .env("PATH", path)
            .env("FAST", &self.fast.0)
            .env("MOUNTPOINT", self.path("mnt"))
            .env("UNDO", self.path("undo.sh"))
            .current_dir(self.directory.path())
            .output()
            .unwrap()
    }

    fn undo(&self) -> Output {
        let script = fs::read_to_string(self.path("undo.sh")).unwrap();
        self.run(&script, None)
    }

    /// A program of this name that comes before the real one.
    fn program(&self, name: &str, lines: &str) -> PathBuf {
        let directory = self.path("programs");
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join(name);
        let real = said_by("sh", &["-c", &format!("command -v {name}")]);
        fs::write(&file, format!("#!/bin/sh\nREAL={real}\n{lines}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        directory
    }

    /// The script failed, and everything is as it was.
    fn assert_untouched(&self, output: &Output, content: &str, reason: &str) {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains(reason),
            "{reason}: {output:?}"
        );
        assert_eq!(self.mounted_from(), text(&self.slow.0), "{reason}");
        assert_eq!(self.content(), content, "{reason}");
        assert!(!self.path("undo.sh").exists(), "{reason}");
        // It can be written to as before.
        let probe = self.path("mnt/probe");
        fs::write(&probe, "probe").unwrap();
        fs::remove_file(&probe).unwrap();
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for _ in 0..3 {
            succeeds("umount", &[text(&self.path("mnt"))]);
        }
        succeeds("swapoff", &[text(&self.fast.0)]);
    }
}

/// The script for the advice that a recorded run gets.
fn script(name: &str, capacity: u64, how: How) -> String {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let mut trace = Trace::default();
    let settings = ImportSettings {
        files: vec![data.join(format!("{name}.allHDD.csv.gz"))],
        format: Format::Csv,
        rules: AreaRules::default(),
        columns: None,
    };
    assert!(import(&settings, &mut trace).unwrap().is_empty());
    let advice = advise(&trace, &Machine::laboratory(), &[capacity], |_, _| {}).unwrap();
    let capacity = advice.capacities.into_iter().next().unwrap();
    let here = &capacity.candidates[capacity.advised_here.unwrap()];
    assert_eq!(here.shares.len(), 1, "{}", capacity.sentence);
    assert_eq!(here.shares[0].how, how, "{}", capacity.sentence);
    capacity.scripts.into_iter().next().unwrap().text
}

fn whole_script() -> String {
    script("web-mirror.ordered", 160 * MIB, How::Whole)
}

#[test]
fn files_are_moved_and_come_back_with_what_was_written_meanwhile() {
    let Some(ground) = Ground::new(96 * MIB, 160 * MIB) else {
        return;
    };
    let content = ground.content();
    let output = ground.run(&whole_script(), None);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(ground.mounted_from(), text(&ground.fast.0));
    assert_eq!(ground.content(), content);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("/etc/fstab") && said.contains("To undo all of this"),
        "{said}"
    );

    fs::write(ground.path("mnt/new"), "written since").unwrap();
    fs::remove_file(ground.path("mnt/linked")).unwrap();
    let newer = ground.content();
    let output = ground.undo();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(ground.mounted_from(), text(&ground.slow.0));
    assert_eq!(ground.content(), newer);
    assert!(newer != content && ground.path("mnt/new").exists());
}

#[test]
fn whatever_fails_on_the_way_loses_nothing() {
    let Some(ground) = Ground::new(96 * MIB, 160 * MIB) else {
        return;
    };
    let script = whole_script();
    let content = ground.content();
    // A copy that ends early, one that says nothing and is wrong, a switch that does not succeed.
    for (name, lines, reason) in [
        ("cp", "$REAL \"$@\"; exit 1", "taken back"),
        (
            "cp",
            "$REAL \"$@\"; for to in \"$@\"; do :; done; printf x >>\"$to/linked\"",
            "is not like",
        ),
        (
            "cp",
            "$REAL \"$@\"; for to in \"$@\"; do :; done; rm \"$to/a b/link\"",
            "is not like",
        ),
        (
            "mount",
            "case \"$*\" in *rw*mnt) case \"$*\" in *remount*) ;; *) exit 32 ;; esac ;; esac; exec $REAL \"$@\"",
            "taken back",
        ),
        ("cp", "kill -TERM $PPID; sleep 1", "taken back"),
    ] {
        let programs = ground.program(name, lines);
        let output = ground.run(&script, Some(&programs));
        fs::remove_dir_all(programs).unwrap();
        ground.assert_untouched(&output, &content, reason);
        assert!(ground.is_blank(), "it can be tried again: {output:?}");
    }
    // Somebody writes there.
    let open = fs::File::create(ground.path("mnt/open")).unwrap();
    let output = ground.run(&script, None);
    drop(open);
    fs::remove_file(ground.path("mnt/open")).unwrap();
    ground.assert_untouched(&output, &content, "stop the programs that write there");
}

#[test]
fn an_undo_that_fails_leaves_everything_where_it_is() {
    let Some(ground) = Ground::new(96 * MIB, 160 * MIB) else {
        return;
    };
    assert!(ground.run(&whole_script(), None).status.success());
    fs::write(ground.path("mnt/new"), "written since").unwrap();
    let content = ground.content();
    let programs = ground.program("cp", "$REAL \"$@\"; exit 1");
    let undo = fs::read_to_string(ground.path("undo.sh")).unwrap();
    let output = ground.run(&undo, Some(&programs));
    assert!(!output.status.success(), "{output:?}");
    assert_eq!(ground.mounted_from(), text(&ground.fast.0));
    assert_eq!(ground.content(), content);
    fs::write(ground.path("mnt/again"), "still writable").unwrap();
    // The next try succeeds.
    let output = ground.undo();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(ground.mounted_from(), text(&ground.slow.0));
    assert!(ground.path("mnt/again").exists() && ground.path("mnt/new").exists());
}

#[test]
fn a_device_that_is_too_small_or_holds_something_is_refused() {
    let script = whole_script();
    let Some(ground) = Ground::new(288 * MIB, 160 * MIB) else {
        return;
    };
    // More than the trace touched.
    fs::write(ground.path("mnt/large"), vec![7; 170 * MIB as usize]).unwrap();
    let content = ground.content();
    let output = ground.run(&script, None);
    ground.assert_untouched(&output, &content, "take a larger device");
    assert!(ground.is_blank());
    assert!(succeeds("mkfs.ext4", &["-q", text(&ground.fast.0)]));
    let output = ground.run(&script, None);
    ground.assert_untouched(&output, &content, "holds something");
    assert!(!ground.is_blank(), "what it holds stays");
    drop(ground);
    let Some(ground) = Ground::new(96 * MIB, 32 * MIB) else {
        return;
    };
    let content = ground.content();
    let output = ground.run(&script, None);
    ground.assert_untouched(&output, &content, "is smaller than");
}

#[test]
fn a_journal_goes_to_a_device_of_its_own_and_comes_back() {
    let script = script("db-sqlite-del.journal", 8 * MIB, How::JournalSized);
    let Some(ground) = Ground::new(96 * MIB, 8 * MIB) else {
        return;
    };
    let content = ground.content();
    let described = |what: &str| {
        let all = said_by("dumpe2fs", &["-h", text(&ground.slow.0)]);
        all.lines().any(|line| line.starts_with(what))
    };
    assert!(described("Journal inode"));
    // tune2fs fails once the old journal is gone.
    let programs = ground.program(
        "tune2fs",
        "case \"$*\" in *device=/*) exit 1 ;; esac; exec $REAL \"$@\"",
    );
    let output = ground.run(&script, Some(&programs));
    ground.assert_untouched(&output, &content, "taken back");
    assert!(described("Journal inode") && ground.is_blank());

    let output = ground.run(&script, None);
    assert!(output.status.success(), "{output:?}");
    assert!(described("Journal device") && ground.content() == content);
    let output = ground.undo();
    assert!(output.status.success(), "{output:?}");
    assert!(described("Journal inode") && ground.content() == content);
    assert_eq!(ground.mounted_from(), text(&ground.slow.0));
}

#[test]
fn swap_is_switched_on_first_and_off_again() {
    let script = script("graph-pr.ordered", 16 * MIB, How::SwapSized);
    let Some(ground) = Ground::new(32 * MIB, 16 * MIB) else {
        return;
    };
    let output = ground.run(&script, None);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("swapon failed: Operation not permitted") {
        eprintln!("not run: swapon is not allowed here");
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let swaps = || fs::read_to_string("/proc/swaps").unwrap();
    let line = swaps();
    let line = line
        .lines()
        .find(|line| line.starts_with(text(&ground.fast.0)));
    assert!(
        line.is_some_and(|line| line.ends_with("100")),
        "{}",
        swaps()
    );
    let output = ground.undo();
    assert!(output.status.success(), "{output:?}");
    assert!(!swaps().contains(text(&ground.fast.0)));
}
