//! The Debian package: its files, its dependencies, and that its program takes its configuration.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const WAYSTATION: &str = env!("CARGO_BIN_EXE_waystation");

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging")
}

/// Runs a command that has to succeed, and gives its output.
#[track_caller]
fn run(program: impl AsRef<Path>, arguments: &[&str]) -> String {
    let program = program.as_ref();
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {told}", program.display());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_package_holds_a_program_that_takes_its_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().to_str().unwrap();
    run(packaging().join("deb.sh"), &[WAYSTATION, here]);
    let architecture = run("dpkg", &["--print-architecture"]);
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("waystation_{version}_{}.deb", architecture.trim());
    let package = dir.path().join(name);
    let package = package.to_str().unwrap();

    let field = |name: &str| run("dpkg-deb", &["--field", package, name]);
    assert_eq!(field("Version").trim(), version);
    assert!(field("Depends").starts_with("libc6, adduser"));

    let root = dir.path().join("root");
    let scripts = dir.path().join("scripts");
    run("dpkg-deb", &["-x", package, root.to_str().unwrap()]);
    run("dpkg-deb", &["-e", package, scripts.to_str().unwrap()]);
    for script in ["postinst", "prerm", "postrm"] {
        run("sh", &["-n", scripts.join(script).to_str().unwrap()]);
    }
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&root), 0o755);

    let program = root.join("usr/bin/waystation");
    assert_eq!(mode(&program), 0o755);
    assert!(run(&program, &["--version"]).contains(version));
    let configuration = root.join("etc/waystation/waystation.toml");
    // It may get passwords.
    assert_eq!(mode(&configuration), 0o640);
    let configuration = configuration.to_str().unwrap();
    let check = ["serve", "--config", configuration, "--check-config"];
    run(&program, &check);

    // The unit, with the program where it was unpacked.
    let unit = std::fs::read_to_string(root.join("lib/systemd/system/waystation.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/waystation serve --config /etc/waystation/"));
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_ok()
    {
        let unit = unit.replace("/usr/bin/waystation", program.to_str().unwrap());
        let path = dir.path().join("waystation.service");
        std::fs::write(&path, unit).unwrap();
        run("systemd-analyze", &["verify", path.to_str().unwrap()]);
    }
}
