//! Gives the shared library its name, which is that of its file: programs linked with it find it under that one, where
//! cargo built it and where it is installed.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libwaystation_capi.so");
    }
}
