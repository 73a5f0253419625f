//! A directory to work in, and the command run in it.

#![allow(
    clippy::needless_pass_by_value,
    clippy::zombie_processes,
    reason = "a shell takes what tests have at hand, and waits for what it starts when it ends"
)]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use waystation_format::filename::{current_content, manifest_name};
use waystation_format::leveldb_log::RecordWriter;
use waystation_format::version_edit::VersionEdit;

/// It is looked so often whether something has come true, and so many times.
const LOOK: Duration = Duration::from_millis(10);
const LOOKS_MAX: usize = 6_000;

/// Waits until something is so.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if is_so() {
            return;
        }
        std::thread::sleep(LOOK);
    }
    panic!("it takes too long until {what}");
}

/// A process of a test, which ends with it.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    pub(crate) fn succeeds(&mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory and the command run in it.
pub(crate) struct Shell {
    directory: tempfile::TempDir,
}

impl Shell {
    pub(crate) fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The files of a directory with an ending, sorted.
    pub(crate) fn files(&self, directory: &str, ending: &str) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> = fs::read_dir(self.path(directory))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.retain(|path| path.extension().is_some_and(|other| other == ending));
        paths.sort();
        paths
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waystation"));
        command
            .args(arguments)
            .current_dir(self.directory.path())
            .stdin(Stdio::null());
        command
    }

    fn run_with_input(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(arguments);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut standard_input = child.stdin.take().unwrap();
        // A command that ends at a bad line leaves the rest unread.
        let _ = standard_input.write_all(input);
        drop(standard_input);
        child.wait_with_output().unwrap()
    }

    /// What the command printed; it must succeed and say nothing on standard error.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        succeeded(arguments, self.command(arguments).output().unwrap())
    }

    /// The bytes that the command wrote; it must succeed.
    pub(crate) fn bytes(&self, arguments: &[&str]) -> Vec<u8> {
        let output = self.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output.stdout
    }

    pub(crate) fn ok_with_input(&self, arguments: &[&str], input: &[u8]) -> String {
        succeeded(arguments, self.run_with_input(arguments, input))
    }

    pub(crate) fn ok_as(&self, user: u32, arguments: &[&str]) -> String {
        succeeded(
            arguments,
            self.command(arguments)
                .uid(user)
                .gid(user)
                .output()
                .unwrap(),
        )
    }

    /// What the command said on standard error; it must fail with `code`.
    pub(crate) fn fails(&self, code: i32, arguments: &[&str]) -> String {
        self.fails_in(&[code], arguments)
    }

    pub(crate) fn fails_in(&self, codes: &[i32], arguments: &[&str]) -> String {
        failed(codes, arguments, self.command(arguments).output().unwrap())
    }

    pub(crate) fn fails_as(&self, user: u32, code: i32, arguments: &[&str]) -> String {
        failed(
            &[code],
            arguments,
            self.command(arguments)
                .uid(user)
                .gid(user)
                .output()
                .unwrap(),
        )
    }

    pub(crate) fn fails_with_input(&self, code: i32, arguments: &[&str], input: &[u8]) -> String {
        failed(&[code], arguments, self.run_with_input(arguments, input))
    }

    /// What the command printed; it must fail with `code`, and the output says why.
    pub(crate) fn fails_saying_on_stdout(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(code),
            "{arguments:?}: {output:?}"
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Whatever it answers, it answers by an exit code, and not by a panic (101) or a signal.
    pub(crate) fn does_not_panic(&self, arguments: &[&str]) {
        let output = self.command(arguments).output().unwrap();
        let code = output.status.code();
        assert!(
            code.is_some_and(|code| (0..=5).contains(&code)),
            "{arguments:?}: {output:?}"
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }

    /// Runs the command with an output that nobody reads: the exit code, and what it said on standard error.
    pub(crate) fn unread(&self, arguments: &[&str], input: &[u8]) -> (Option<i32>, String) {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.stdout(writer).spawn().unwrap();
        let mut standard_input = child.stdin.take().unwrap();
        let _ = standard_input.write_all(input);
        drop(standard_input);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
        (output.status.code(), said)
    }

    /// What the command printed; it is interrupted (Ctrl-C) once `exists` is there, and must succeed all the same.
    pub(crate) fn ok_interrupted(&self, arguments: &[&str], exists: &str) -> String {
        let mut command = self.command(arguments);
        let child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until("it is there", || self.path(exists).exists());
        let mut kill = Command::new("kill");
        kill.args(["-INT", &child.id().to_string()]);
        assert!(kill.status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A process that owns a database, until it is dropped.
    pub(crate) fn hold_open(&self, db: &str) -> Owner {
        let mut child = self
            .command(&["import", db, "-", "--quiet"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        // It opens the database before it reads; the lock tells when.
        let lock = self.path(db).join("LOCK");
        for _ in 0..2_000 {
            if is_locked(&lock) {
                return Owner(child);
            }
            std::thread::sleep(LOOK / 2);
        }
        let _ = child.kill();
        panic!("the owner never took the lock");
    }
}

/// A process that owns a database.
pub(crate) struct Owner(Child);

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn is_locked(path: &Path) -> bool {
    // Another process's fcntl lock, seen through /proc/locks by the file's inode.
    use std::os::unix::fs::MetadataExt;
    let Ok(metadata) = fs::metadata(path) else {
        return false;
    };
    let inode = format!(":{} ", metadata.ino());
    fs::read_to_string("/proc/locks")
        .is_ok_and(|locks| locks.lines().any(|line| line.contains(&inode)))
}

fn succeeded(arguments: &[&str], output: Output) -> String {
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    assert!(output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn failed(codes: &[i32], arguments: &[&str], output: Output) -> String {
    let said = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(
        output
            .status
            .code()
            .is_some_and(|code| codes.contains(&code)),
        "{arguments:?}: {output:?}"
    );
    assert!(
        said.starts_with("waystation: ") || said.starts_with("error: "),
        "{arguments:?}: {said}"
    );
    assert!(
        !said.contains("panicked") && !said.contains("Error {"),
        "{arguments:?}: {said}"
    );
    said
}

/// A path as text.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A user that is not root, to try permissions with; none if the tests do not run as root (then file modes
/// bind the tests themselves).
pub(crate) fn unprivileged() -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    let own = fs::metadata("/proc/self").ok()?.uid();
    Some(if own == 0 { 65_534 } else { own })
}

/// A database with nothing in it, as a MANIFEST with this comparator makes it.
pub(crate) fn write_empty_database(directory: &Path, comparator: &str) {
    fs::create_dir(directory).unwrap();
    let edit = VersionEdit {
        comparator: Some(comparator.to_owned()),
        log_number: Some(0),
        prev_log_number: Some(0),
        next_file_number: Some(2),
        last_sequence: Some(0),
        ..VersionEdit::default()
    };
    let mut content = Vec::new();
    RecordWriter::new(0).append(&edit.to_bytes(), &mut content);
    fs::write(directory.join(manifest_name(1)), content).unwrap();
    fs::write(directory.join("CURRENT"), current_content(1)).unwrap();
}

/// Copies the files of a directory.
pub(crate) fn copy_dir(source: &Path, target: &Path) {
    fs::create_dir(target).unwrap();
    for entry in fs::read_dir(source).unwrap() {
        let entry = entry.unwrap();
        let mut from = File::open(entry.path()).unwrap();
        let mut to = File::create(target.join(entry.file_name())).unwrap();
        std::io::copy(&mut from, &mut to).unwrap();
    }
}
