//! Verilates the compaction engine for every number of inputs we test, where Verilator is installed, and says so
//! to the code by `cfg(verilator)`.
//!
//! The generated C++ is compiled optimised in every profile that optimises at all; the dev profile does not, so that
//! checking the code stays quick.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The sizes that are built, unless the environment variable of that name lists others.
const SIZES: &str = "1,2,4,9,13";
const LEVELDB_HEADER: &str = "/usr/include/leveldb/c.h";
const SIZES_VARIABLE: &str = "WAYSTATION_IP_SIZES";
/// If this environment variable is set, engines can record their signals (and are slower).
const TRACE_VARIABLE: &str = "WAYSTATION_IP_TRACE";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(verilator)");
    println!("cargo::rustc-check-cfg=cfg(leveldb)");
    println!("cargo::rerun-if-changed={LEVELDB_HEADER}");
    if Path::new(LEVELDB_HEADER).exists() {
        println!("cargo::rustc-cfg=leveldb"); // tests compare with it
    }
    println!("cargo::rerun-if-env-changed={SIZES_VARIABLE}");
    println!("cargo::rerun-if-env-changed={TRACE_VARIABLE}");
    println!("cargo::rerun-if-env-changed=VERILATOR");
    let hardware = PathBuf::from("../../hw/compaction_ip");
    for part in ["compaction_ip.f", "rtl", "tb"] {
        println!("cargo::rerun-if-changed={}", hardware.join(part).display());
    }
    let verilator = env::var("VERILATOR").unwrap_or_else(|_| "verilator".to_owned());
    let Some(include) = verilator_root(&verilator).map(|root| root.join("include")) else {
        println!(
            "cargo::warning=verilator was not found: the compaction engine is not simulated and its tests are ignored (apt-get install verilator)"
        );
        return;
    };
    let Some(directory) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        return;
    };
    let sizes = sizes();
    for &size in &sizes {
        verilate(&verilator, &hardware, &directory, size);
    }
    compile(&hardware, &directory, &include, &sizes);
    let list: Vec<String> = sizes.iter().map(u32::to_string).collect();
    println!("cargo::rustc-env=WAYSTATION_IP_BUILT={}", list.join(","));
    println!("cargo::rustc-cfg=verilator");
}

/// The numbers of inputs to build engines for, in rising order.
fn sizes() -> Vec<u32> {
    let list = env::var(SIZES_VARIABLE).unwrap_or_else(|_| SIZES.to_owned());
    let mut sizes: Vec<u32> = list
        .split(',')
        .map(|size| size.trim().parse().expect("the sizes are numbers"))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    assert!(
        sizes.iter().all(|size| (1..=13).contains(size)),
        "{SIZES_VARIABLE}: an engine has 1 to 13 inputs"
    );
    sizes
}

/// Whether engines shall be able to record their signals.
fn tracing() -> bool {
    env::var_os(TRACE_VARIABLE).is_some()
}

/// Where Verilator keeps its run-time sources; `None` if there is no Verilator.
fn verilator_root(verilator: &str) -> Option<PathBuf> {
    let output = Command::new(verilator)
        .args(["--getenv", "VERILATOR_ROOT"])
        .output()
        .ok()?;
    let root = String::from_utf8(output.stdout).ok()?;
    let root = PathBuf::from(root.trim());
    root.join("include/verilated.cpp").exists().then_some(root)
}

/// Translates the design with `size` inputs into C++ of that name.
fn verilate(verilator: &str, hardware: &Path, directory: &Path, size: u32) {
    let target = model_directory(directory, size);
    // Sources of an earlier version of the design must not be compiled again.
    if target.exists() {
        fs::remove_dir_all(&target).expect("the build directory can be emptied");
    }
    let status = Command::new(verilator)
        .args([
            "--cc",
            "-Wall",
            "--assert",
            "-O3",
            "--x-assign",
            "fast",
            "--x-initial",
            "fast",
        ])
        .args(["--top-module", "compaction_ip_sim"])
        .arg(format!("-GNumInputs={size}"))
        .args(tracing().then_some("--trace"))
        .args(["--prefix", &format!("Vcompaction_ip_{size}")])
        .arg("--Mdir")
        .arg(&target)
        .arg("-F")
        .arg(hardware.join("compaction_ip.f"))
        .arg(hardware.join("tb/compaction_ip_sim.sv"))
        .status()
        .expect("verilator runs: it told its root a moment ago");
    assert!(status.success(), "verilator refused the design");
}

/// Compiles the models, the memory beside them, and Verilator's run-time into one library.
fn compile(hardware: &Path, directory: &Path, include: &Path, sizes: &[u32]) {
    let bench = hardware.join("tb");
    // The models are long straight code that no cache holds: higher levels compile longer and run no faster.
    let optimisation = u32::from(env::var("OPT_LEVEL").is_ok_and(|level| level != "0"));
    let base = || {
        let mut build = cc::Build::new();
        build
            .cpp(true)
            .cpp_link_stdlib(None)
            .std("c++17")
            .opt_level(optimisation)
            .debug(false)
            .warnings(false)
            .flag_if_supported("-fno-strict-aliasing")
            .define("VL_USER_STOP", None)
            .define("VM_TRACE", if tracing() { "1" } else { "0" })
            .include(include)
            .include(include.join("vltstd"))
            .include(&bench);
        build
    };
    for &size in sizes {
        let model = model_directory(directory, size);
        // What Verilator calls slow runs once; optimising it would cost more than it saves.
        let (slow, fast): (Vec<_>, Vec<_>) = files(&model, "cpp")
            .into_iter()
            .partition(|file| file.to_string_lossy().contains("__Slow"));
        base()
            .include(&model)
            .opt_level(0)
            .files(slow)
            .compile(&format!("compaction_ip_{size}_slow"));
        base()
            .include(&model)
            .files(fast)
            .file(bench.join("model.cpp"))
            .define("INPUTS", size.to_string().as_str())
            .define(
                "MODEL_HEADER",
                format!("\"Vcompaction_ip_{size}.h\"").as_str(),
            )
            .compile(&format!("compaction_ip_{size}"));
    }
    let list: Vec<String> = sizes.iter().map(|size| format!("F({size})")).collect();
    let mut runtime = base();
    runtime
        .define("SIZES", list.join(" ").as_str())
        .file(bench.join("simulator.cpp"))
        .file(include.join("verilated.cpp"))
        .file(include.join("verilated_threads.cpp"));
    if tracing() {
        runtime.file(include.join("verilated_vcd_c.cpp"));
    }
    runtime.compile("compaction_ip");
    // Binaries that are installed need no C++ library. Tests load one with the real LevelDB, and two are one too many.
    let is_installed = env::var("PROFILE").as_deref() == Ok("release");
    let kind = if is_installed {
        "static:-bundle"
    } else {
        "dylib"
    };
    println!("cargo::rustc-link-lib={kind}=stdc++");
}

fn model_directory(directory: &Path, size: u32) -> PathBuf {
    directory.join(format!("model-{size}"))
}

/// The files with this extension in a directory.
fn files(directory: &Path, extension: &str) -> Vec<OsString> {
    fs::read_dir(directory)
        .expect("the directory is there")
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .map(PathBuf::into_os_string)
        .collect()
}
