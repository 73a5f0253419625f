//! Small file systems of their own, mounted for a test and gone when dropped. Without the right to mount the test is told of
//! as not run.

use super::failing::not_run;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system.
pub(crate) struct SmallDisk {
    /// Where it is mounted, and the file of one that lies in a file.
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// One of `bytes` in memory, for `test`.
    pub(crate) fn in_memory(test: &str, bytes: usize) -> Option<Self> {
        Self::mount(test, |disk| {
            let size = format!("size={bytes}");
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]);
            mount.arg(disk.at());
            vec![mount]
        })
    }

    /// One of `bytes` in a file, for `test`: ext4 with these `features`.
    pub(crate) fn in_file(test: &str, bytes: u64, features: &str) -> Option<Self> {
        Self::mount(test, |disk| {
            let image = disk.dir.path().join("image");
            let file = std::fs::File::create(&image).expect("create");
            file.set_len(bytes).expect("set length");
            let mut make = Command::new("mkfs.ext4");
            make.args(["-q", "-O", features]).arg(&image);
            let mut mount = Command::new("mount");
            mount.args(["-o", "loop"]).args([&image, &disk.at()]);
            vec![make, mount]
        })
    }

    fn mount(test: &str, commands: impl FnOnce(&Self) -> Vec<Command>) -> Option<Self> {
        let dir = tempfile::tempdir().expect("tempdir");
        let disk = Self { dir };
        std::fs::create_dir(disk.at()).expect("create");
        let succeeds = |mut command: Command| {
            let output = command.output();
            output.is_ok_and(|output| output.status.success())
        };
        if commands(&disk).into_iter().all(succeeds) {
            return Some(disk);
        }
        not_run(test, "mounting a file system is not allowed here");
        None
    }

    fn at(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    /// A path on it.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.at().join(name)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.at()).output();
    }
}
