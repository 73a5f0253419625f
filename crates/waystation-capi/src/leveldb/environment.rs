//! The environment, and what else a library tells of itself.

use crate::memory::{copy_text, hand_out, take_back};
use std::ffi::{c_char, c_int, c_void};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;

/// The operating system. There is no other.
pub struct leveldb_env_t(());

/// A logger, which nobody can make through this interface.
pub struct leveldb_logger_t(());

/// The default environment.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_create_default_env() -> *mut leveldb_env_t {
    hand_out(leveldb_env_t(()))
}

/// Gives an environment back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_env_destroy(env: *mut leveldb_env_t) {
    // SAFETY: the handle is `leveldb_create_default_env`'s and not used again.
    drop(unsafe { take_back(env) });
}

/// A directory for tests, created, for the caller to free: what `TEST_TMPDIR` says, or one in `/tmp` named by the user.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_env_get_test_directory(_: *mut leveldb_env_t) -> *mut c_char {
    let directory = std::env::var("TEST_TMPDIR")
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| {
            // SAFETY: it has no conditions.
            let user = unsafe { libc::geteuid() };
            format!("/tmp/leveldbtest-{user}")
        });
    // It may be there already; whoever uses it will see whether it is not.
    let _ = DirBuilder::new().mode(0o755).create(&directory);
    copy_text(&directory)
}

/// Frees what was handed out as bytes or text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_free(memory: *mut c_void) {
    // SAFETY: it is null, or came from `malloc` through a function of this interface and is not used again.
    unsafe { libc::free(memory) }
}

/// The version of LevelDB whose interface this is.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_major_version() -> c_int {
    1
}

/// The version of LevelDB whose interface this is.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_minor_version() -> c_int {
    23
}
