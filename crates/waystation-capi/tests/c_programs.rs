//! C programs, compiled against the headers and linked with the library: what they observe is what LevelDB shows.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn crate_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Where the libraries lie: beside the test.
fn libraries() -> PathBuf {
    let test = env::current_exe().unwrap();
    test.parent().unwrap().to_owned()
}

/// Compiles a program of `tests/c`; with what, `arguments` say.
fn compile(source: &str, target: &Path, arguments: &[String]) -> Result<(), String> {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(compiler)
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-g", "-o"])
        .arg(target)
        .arg(crate_file("tests/c").join(source))
        .args(arguments)
        .output()
        .map_err(|error| format!("there is no C compiler: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() {
        Ok(())
    } else {
        Err(said)
    }
}

fn with_headers(more: &[&str]) -> Vec<String> {
    let headers = format!("-I{}", crate_file("include").display());
    [&[headers.as_str()], more]
        .concat()
        .iter()
        .map(|&text| text.to_owned())
        .collect()
}

/// Links with the shared library as cargo built it: it is found again under the name that it bears.
fn shared() -> Vec<String> {
    let dir = libraries();
    let dir = dir.display();
    let (search, run) = (format!("-L{dir}"), format!("-Wl,-rpath,{dir}"));
    with_headers(&[&search, &run, "-lwaystation_capi", "-lpthread"])
}

fn linked_statically() -> Vec<String> {
    let library = libraries().join("libwaystation_capi.a");
    with_headers(&[library.to_str().unwrap(), "-lpthread", "-ldl", "-lm"])
}

/// Runs a program with a directory of its own; what it printed.
fn run(program: &Path) -> String {
    let dir = tempfile::tempdir().unwrap();
    run_in(program, dir.path(), &[])
}

/// Runs a program with this directory, and more; what it printed.
fn run_in(program: &Path, dir: &Path, more: &[&str]) -> String {
    let output = Command::new(program)
        .arg(dir)
        .args(more)
        .env("TEST_TMPDIR", env::temp_dir())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_function_does_what_leveldb_does() {
    let dir = tempfile::tempdir().unwrap();
    let ours = dir.path().join("ours");
    compile("transcript.c", &ours, &shared()).unwrap();
    let told = run(&ours);
    assert!(told.ends_with("done\n"), "{told}");
    let theirs = dir.path().join("theirs");
    match compile("transcript.c", &theirs, &["-lleveldb".to_owned()]) {
        Ok(()) => assert_eq!(told, run(&theirs)),
        Err(error) => eprintln!("not compared with LevelDB, which does not link: {error}"),
    }
}

/// Orders of a program's own are LevelDB's, and a directory in one is the other's as well.
#[test]
fn a_program_orders_keys_as_with_leveldb() {
    let dir = tempfile::tempdir().unwrap();
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    compile("orders.c", &ours, &shared()).unwrap();
    let in_new = |program: &Path| {
        let dir = tempfile::tempdir().unwrap();
        let told = run_in(program, dir.path(), &["write"]);
        assert!(told.ends_with("done\n"), "{told}");
        (dir, told)
    };
    let (of_ours, told) = in_new(&ours);
    let read = run_in(&ours, of_ours.path(), &["read"]);
    if let Err(error) = compile("orders.c", &theirs, &["-lleveldb".to_owned()]) {
        eprintln!("not compared with LevelDB, which does not link: {error}");
        return;
    }
    let (of_theirs, they_told) = in_new(&theirs);
    assert_eq!(told, they_told);
    assert_eq!(run_in(&theirs, of_ours.path(), &["read"]), read);
    assert_eq!(run_in(&ours, of_theirs.path(), &["read"]), read);
    assert_eq!(run_in(&theirs, of_theirs.path(), &["read"]), read);
}

#[test]
fn our_own_functions_work_in_c() {
    let dir = tempfile::tempdir().unwrap();
    for (name, arguments) in [("shared", shared()), ("static", linked_statically())] {
        let program = dir.path().join(name);
        compile("own.c", &program, &arguments).unwrap();
        assert_eq!(run(&program), "done\n", "{name}");
    }
}

/// The functions that a header declares.
fn declared(header: &str, prefix: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut names = BTreeSet::new();
    for (at, _) in header.match_indices('(') {
        let before = &header[..at];
        let name = before.rsplit(|c| !is_name(c)).next().unwrap();
        if name.starts_with(prefix) {
            names.insert(name.to_owned());
        }
    }
    names
}

#[test]
fn every_function_is_declared_exported_and_called() {
    let read = |name: &str| fs::read_to_string(crate_file(name)).unwrap();
    let leveldb = declared(&read("include/leveldb/c.h"), "leveldb_");
    let own = declared(&read("include/waystation/c.h"), "waystation_");
    assert_eq!(leveldb.len(), 68);
    if let Ok(original) = fs::read_to_string("/usr/include/leveldb/c.h") {
        assert_eq!(leveldb, declared(&original, "leveldb_"));
    }
    let transcript = declared(&read("tests/c/transcript.c"), "leveldb_");
    assert_eq!(leveldb.difference(&transcript).next(), None, "not called");
    let called = declared(&read("tests/c/own.c"), "waystation_");
    assert_eq!(own.difference(&called).next(), None, "not called");

    // A program that takes every function's address links.
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("all.c");
    let names = leveldb.union(&own).cloned().collect::<Vec<_>>();
    let text = format!(
        "#include <stdio.h>\n#include <waystation/c.h>\nvoid* all[] = {{{}}};\nint main(void) {{ printf(\"%p\\n\", all[0]); return 0; }}\n",
        names
            .iter()
            .map(|name| format!("(void*){name}"))
            .collect::<Vec<_>>()
            .join(", ")
    );
    fs::write(&source, text).unwrap();
    let program = dir.path().join("all");
    compile(source.to_str().unwrap(), &program, &shared()).unwrap();
    run(&program);
}
