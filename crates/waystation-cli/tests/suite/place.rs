//! `waystation place` from outside: what is missing, empty or too much is said, and nothing is left behind.

use crate::support::{Shell, text};
use std::fmt::Write as _;
use std::fs;

const HEADER: &str = "t_issue_us,t_complete_us,area,rwbs,offset_bytes,length_bytes\n";

/// A trace of a few requests, imported.
fn small_trace(shell: &Shell) {
    let mut rows = HEADER.to_owned();
    for number in 0..50 {
        let at = number * 10_000;
        let offset = number % 7 * 1_048_576;
        let _ = writeln!(rows, "{at},{},fs,WS,{offset},4096", at + 8_000);
    }
    fs::write(shell.path("run.csv"), rows).expect("the directory is ours");
    shell.ok(&[
        "place",
        "import",
        "--format",
        "csv",
        "run.csv",
        "-o",
        "run.trace",
    ]);
}

#[test]
fn a_file_that_is_not_there_is_named_with_what_to_do() {
    let shell = Shell::new();
    for arguments in [
        &["place", "report", "no.trace"][..],
        &["place", "advise", "no.trace", "--fast", "1MB"],
        &["place", "explain", "no.trace", "fs:0", "--fast", "1MB"],
        &[
            "place", "export", "no.trace", "--format", "csv", "-o", "out",
        ],
    ] {
        let said = shell.fails(3, arguments);
        assert!(
            said.contains("there is no trace no.trace") && said.contains("place record"),
            "{said}"
        );
        assert!(!said.contains("os error"), "{said}");
    }
    let said = shell.fails(
        3,
        &["place", "import", "--format", "csv", "no.csv", "-o", "out"],
    );
    assert!(said.contains("no.csv is not there"), "{said}");
    let said = shell.fails(3, &["place", "validate", "--data", "nowhere"]);
    assert!(
        said.contains("nowhere/measured.csv") && said.contains("--data"),
        "{said}"
    );
    assert!(!shell.path("out").exists() && !shell.path("out.unfinished").exists());
}

#[test]
fn a_trace_of_nothing_is_no_trace() {
    let shell = Shell::new();
    for (name, content) in [
        ("empty.csv", ""),
        ("blank.csv", "\n\n"),
        ("header.csv", HEADER),
    ] {
        fs::write(shell.path(name), content).unwrap();
        for format in ["csv", "blkparse", "fio"] {
            let arguments = ["place", "import", "--format", format, name, "-o", "out"];
            let said = shell.fails_in(&[4], &arguments);
            assert!(said.contains(name), "{said}");
            if content != HEADER || format == "csv" {
                let reason = format!("holds no requests as --format {format}");
                assert!(said.contains(&reason), "{said}");
            }
            assert!(!shell.path("out").exists() && !shell.path("out.unfinished").exists());
        }
    }
    small_trace(&shell);
    let said = shell.fails(4, &["place", "report", "run.csv"]);
    assert!(said.contains("place import"), "{said}");
}

#[test]
fn sizes_and_times_out_of_range_are_refused() {
    let shell = Shell::new();
    small_trace(&shell);
    for size in [
        "0",
        "-1",
        "NaN",
        "1e9",
        "much",
        "",
        "9EB",
        "99999999999TB",
        "1B",
    ] {
        let said = shell.fails(
            2,
            &["place", "advise", "run.trace", &format!("--fast={size}")],
        );
        assert!(!said.contains("panicked"), "{said}");
        shell.fails_in(
            &[2, 3],
            &[
                "place",
                "explain",
                "run.trace",
                "fs:0",
                &format!("--fast={size}"),
            ],
        );
    }
    for time in ["0", "-1", "NaN", "inf", "1e300"] {
        let time = format!("--time={time}");
        shell.fails(
            2,
            &[
                "place",
                "record",
                "--device",
                "/dev/null=fs",
                &time,
                "-o",
                "out",
            ],
        );
        let live = [
            "place",
            "advise",
            "out",
            "--live",
            "/dev/null=fs",
            &time,
            "--fast",
            "1MB",
        ];
        shell.fails(2, &live);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let shell = Shell::new();
    small_trace(&shell);
    for arguments in [
        &["place", "report", "run.trace"][..],
        &["--json", "place", "report", "run.trace"],
        &["place", "advise", "run.trace", "--fast", "1MB"],
        &["--json", "place", "advise", "run.trace", "--fast", "1MB"],
    ] {
        let (status, _) = shell.unread(arguments, b"");
        assert_eq!(status, Some(0), "{arguments:?}");
    }
}

/// The advice names what carries it out; what is printed is a script as it stands.
#[test]
fn an_advice_is_a_script_that_a_shell_understands() {
    let shell = Shell::new();
    let data = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../waystation-advisor/testdata"
    );
    for (name, sizes) in [
        ("graph-pr.ordered", ["16MiB", "64MiB"]),
        ("web-mirror.ordered", ["160MiB", "300MiB"]),
        ("db-sqlite-del.journal", ["8MiB", "60MiB"]),
    ] {
        let csv = format!("{data}/{name}.allHDD.csv.gz");
        shell.ok(&["place", "import", "--format", "csv", &csv, "-o", name]);
        for size in sizes {
            let machine = ["--slow", "lab-disk", "--fast-device", "lab-nvm"];
            let said = shell.ok(&[
                &["--json", "place", "advise", name, "--fast", size],
                &machine[..],
            ]
            .concat());
            let advice: serde_json::Value = serde_json::from_str(&said).unwrap();
            let scripts = advice["capacities"][0]["scripts"].as_array().unwrap();
            assert!(!scripts.is_empty(), "{name} {size}");
            for script in scripts {
                let file = shell.path("place.sh");
                fs::write(&file, script["text"].as_str().unwrap()).unwrap();
                let checked = std::process::Command::new("sh")
                    .args(["-n", text(&file)])
                    .output();
                assert!(checked.unwrap().status.success(), "{name} {size}");
                // Without its variables it changes nothing.
                let ran = std::process::Command::new("sh")
                    .arg(&file)
                    .output()
                    .unwrap();
                assert!(!ran.status.success(), "{name} {size}");
                let reason = String::from_utf8_lossy(&ran.stderr).into_owned();
                assert!(reason.starts_with("placement: "), "{reason}");
            }
        }
    }
}
