//! Tells the binary which versions its rivals have.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let lock = manifest.join("../../Cargo.lock");
    println!("cargo::rerun-if-changed={}", lock.display());
    let packages = std::fs::read_to_string(&lock).unwrap_or_default();
    for (package, variable) in [("librocksdb-sys", "ROCKSDB"), ("fjall", "FJALL")] {
        let version = locked_version(&packages, package).unwrap_or("unknown");
        println!("cargo::rustc-env=WAYSTATION_BENCH_{variable}_VERSION={version}");
    }
}

/// The version of `package` in the text of a Cargo.lock. RocksDB's own version follows the crate's after a `+`.
fn locked_version<'a>(packages: &'a str, package: &str) -> Option<&'a str> {
    let entry = packages
        .split(&format!("name = \"{package}\"\nversion = \""))
        .nth(1)?;
    let version = entry.split('"').next()?;
    Some(
        version
            .split_once('+')
            .map_or(version, |(_, bundled)| bundled),
    )
}
