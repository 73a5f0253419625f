//! Tells the linker where LevelDB is (see build.sh).

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_LINKED").is_some() {
        link_leveldb();
    }
}

/// Links LevelDB from the directory that build.sh fills: `rivals` in the target directory. Cargo does not
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
