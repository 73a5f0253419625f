//! Links the system's libleveldb where there is one, and says so to the code by `cfg(leveldb)`.
//!
//! Whether there is one is asked of the linker itself, which knows every path it searches.

use std::env;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(leveldb)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=/usr/include/leveldb/c.h");
    println!("cargo::rerun-if-env-changed=CC");
    if links() {
        println!("cargo::rustc-cfg=leveldb");
        println!("cargo::rustc-link-lib=leveldb");
    } else {
        println!(
            "cargo::warning=libleveldb was not found: tests against the real LevelDB are ignored (apt-get install libleveldb-dev)"
        );
    }
}

/// Whether a program that calls LevelDB's C interface links.
fn links() -> bool {
    let Some(directory) = env::var_os("OUT_DIR") else {
        return false;
    };
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let started = Command::new(compiler)
        .args(["-x", "c", "-", "-lleveldb", "-o"])
        .arg(Path::new(&directory).join("probe"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = started else { return false };
    let program = b"int leveldb_major_version(void);\nint main(void) { return leveldb_major_version() == 1 ? 0 : 1; }\n";
    let written = child
        .stdin
        .take()
        .is_some_and(|mut input| input.write_all(program).is_ok());
    child.wait().is_ok_and(|status| written && status.success())
}
