//! Tells the binary which versions its rivals have, and the linker where LevelDB is (see build-rivals.sh).

use std::env;
use std::path::{Path, PathBuf};

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
    if env::var_os("CARGO_FEATURE_RIVALS").is_some() {
        link_leveldb();
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

/// Links LevelDB from the directory that build-rivals.sh fills: `rivals` in the target directory. Cargo does not
/// say where that is, but `OUT_DIR` lies at a known depth in it: target/profile/build/package-hash/out.
fn link_leveldb() {
    println!("cargo::rerun-if-env-changed=WAYSTATION_RIVALS_DIR");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let target = out.ancestors().nth(4).unwrap_or(Path::new("target"));
    let rivals =
        env::var_os("WAYSTATION_RIVALS_DIR").map_or_else(|| target.join("rivals"), PathBuf::from);
    let library = rivals.join("libleveldb.a");
    println!("cargo::rerun-if-changed={}", library.display());
    assert!(
        library.exists(),
        "{} is missing: run `make bench-build`, which builds it",
        library.display()
    );
    println!("cargo::rustc-link-search=native={}", rivals.display());
    println!("cargo::rustc-link-lib=static=leveldb");
    println!("cargo::rustc-link-lib=dylib=stdc++");
}
