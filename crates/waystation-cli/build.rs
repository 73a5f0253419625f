//! Links release binaries of the command so that they need the C library alone: they run on any Debian that is as new.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").as_deref() == Ok("release") {
        println!("cargo::rustc-link-arg-bins=-static-libgcc");
    }
}
