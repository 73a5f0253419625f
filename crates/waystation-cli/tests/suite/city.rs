//! The city from outside: the first minutes of the trace, its report and its audit; and what it refuses.

use crate::support::{Shell, text};
use std::fmt::Write as _;
use std::fs;

#[test]
fn the_first_minutes_come_out_clean_with_report_and_page() {
    let shell = Shell::new();
    let said = shell.ok(&[
        "city",
        "--until",
        "150",
        "--json",
        "city.json",
        "--html",
        "city.html",
        "--reopen-every",
        "100",
        "--hand-offs-survive",
        "process-crash",
    ]);
    let json: serde_json::Value =
        serde_json::from_slice(&fs::read(shell.path("city.json")).unwrap()).unwrap();
    let engine = &json["engines"][0];
    let readings = engine["counts"]["readings"].as_u64().unwrap();
    assert!(readings > 5_000, "{readings}");
    let last = said.lines().last().unwrap();
    assert_eq!(
        last,
        format!("audit: {readings} readings, 0 lost, 0 doubled, 0 left behind")
    );
    assert!(
        said.contains("learned residency, shortest / median / longest"),
        "{said}"
    );
    assert!(said.contains("DLR-TS") && said.contains("iTETRIS") && said.contains("EPL-2.0"));
    assert_eq!(
        (&json["cells"], &engine["city_s"], &engine["reopened"]),
        (&30.into(), &150.into(), &2.into())
    );
    assert!(engine["counts"]["hand_offs"].as_u64().unwrap() > 100);
    assert!(engine["samples"].as_array().unwrap().len() >= 5);
    let page = fs::read_to_string(shell.path("city.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    for title in [
        "Throughput",
        "Write amplification",
        "Levels",
        "Latency of a put",
        "handed over",
    ] {
        assert!(page.contains(title), "{title}");
    }
    assert!(
        !page
            .replace("http://www.w3.org/2000/svg", "")
            .contains("http"),
        "it fetches nothing"
    );
    assert!(!shell.path("waystation-city").exists(), "nothing is left");
}

#[test]
fn a_trace_of_ones_own_is_taken_and_json_goes_to_standard_output() {
    let shell = Shell::new();
    fs::write(
        shell.path("own.csv"),
        "t_s,device,cell,event\n0,1,5,A\n9,1,5,L\n9,1,6,A\n20,1,6,L\n",
    )
    .unwrap();
    let arguments = [
        "--json",
        "city",
        "own.csv",
        "--readings-per-second",
        "10",
        "--dir",
        "here",
        "--keep",
    ];
    let json: serde_json::Value = serde_json::from_str(&shell.ok(&arguments)).unwrap();
    let engine = &json["engines"][0];
    assert_eq!(engine["counts"]["readings"], 200);
    assert_eq!(engine["counts"]["handed_records"], 90);
    assert_eq!(engine["audit"]["readings"], 200);
    assert!(json["terms"].is_null());
    let kept = shell.path("here/waystation/cell-6");
    assert!(shell.ok(&["check", text(&kept)]).contains("sound"));
}

#[test]
fn an_interrupt_ends_the_run_with_audit_and_report() {
    let shell = Shell::new();
    let arguments = [
        "city",
        "--readings-per-second",
        "2",
        "--queries-per-second",
        "0",
    ];
    // The last cell's engine: all are open by then, or nearly.
    let said = shell.ok_interrupted(&arguments, "waystation-city/waystation/cell-29");
    assert!(said.contains("waystation: stopped after "), "{said}");
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("audit: ")
            && last.ends_with(" readings, 0 lost, 0 doubled, 0 left behind"),
        "{last}"
    );
    assert!(!shell.path("waystation-city").exists(), "nothing is left");
}

#[test]
fn what_cannot_be_driven_is_refused_with_its_reason() {
    let shell = Shell::new();
    fs::write(
        shell.path("bad.csv"),
        "t_s,device,cell,event\n0,1,5,A\n3,one,5,L\n",
    )
    .unwrap();
    let said = shell.fails(4, &["city", "bad.csv"]);
    assert!(
        said.contains("bad.csv, line 3: vehicle one leaves cell 5 and is in none"),
        "{said}"
    );
    let said = shell.fails(3, &["city", "missing.csv"]);
    assert!(said.contains("missing.csv cannot be read"), "{said}");
    for arguments in [
        ["--memory", "1MB"],
        ["--memory", "much"],
        ["--memory", "0"],
        ["--memory", "8EB"],
        ["--memory", "8000TB"],
        ["--until", "99999999999"],
        ["--reopen-every", "0"],
        ["--readings-per-second", "1e300"],
        ["--value-bytes", "99999999999"],
        ["--readings-per-second", "0"],
        ["--readings-per-second", "NaN"],
        ["--queries-per-second", "-1"],
        ["--value-bytes", "7"],
        ["--threads", "0"],
        ["--sensors", "0"],
        ["--until", "0"],
    ] {
        shell.fails(2, &["city", arguments[0], arguments[1]]);
    }
    if !cfg!(feature = "rivals") {
        let said = shell.fails(2, &["city", "--against", "leveldb,rocksdb"]);
        assert!(said.contains("make city-rivals"), "{said}");
    }
    shell.fails(2, &["city", "--against", "abacus"]);
    fs::write(shell.path("letter"), "dear").unwrap();
    let said = shell.fails(2, &["city", "--dir", "."]);
    assert!(said.contains("no city's"), "{said}");
    assert!(shell.path("letter").exists());
    shell.fails_in(&[3, 5], &["city", "--html", "nowhere/city.html"]);
}

/// As many programs write it: a BOM, the ends of lines of another system, fractions, names.
#[test]
fn a_trace_of_another_program_is_driven_through() {
    let shell = Shell::new();
    let trace = "\u{feff}t_s,device,cell,event\r\n1211018404.25,cab/7,north side,A\r\n1211018413.5,cab/7,north side,L\r\n\
                 1211018413.75,cab/7,south,A\r\n1211018424,cab/7,south,L\r\n";
    fs::write(shell.path("own.csv"), trace).unwrap();
    let arguments = [
        "--json",
        "city",
        "own.csv",
        "--readings-per-second",
        "10",
        "--dir",
        "here",
        "--keep",
    ];
    let json: serde_json::Value = serde_json::from_str(&shell.ok(&arguments)).unwrap();
    let engine = &json["engines"][0];
    assert_eq!(engine["counts"]["readings"], 200);
    assert_eq!(engine["counts"]["handed_records"], 90);
    assert_eq!(engine["cells"][0]["cell"], "north side");
    let kept = shell.path("here/waystation/cell-north%20side");
    assert!(shell.ok(&["check", text(&kept)]).contains("sound"));
}

/// A thousand engines in one process, in the memory that all cities get.
#[test]
fn a_thousand_cells_are_driven_through() {
    let allowed = std::process::Command::new("sh")
        .args(["-c", "ulimit -Hn"])
        .output();
    let allowed = String::from_utf8(allowed.unwrap().stdout).unwrap();
    if allowed
        .trim()
        .parse::<u64>()
        .is_ok_and(|files| files < 16_100)
    {
        eprintln!(
            "not run: a process may have {} files open here",
            allowed.trim()
        );
        return;
    }
    let shell = Shell::new();
    let mut trace = "t_s,device,cell,event\n".to_owned();
    for cell in 0..1_000 {
        let _ = writeln!(trace, "0,{cell},{cell},A");
    }
    for cell in 0..1_000 {
        let next = (cell + 1) % 1_000;
        let _ = writeln!(trace, "6.5,{cell},{cell},L\n6.5,{cell},{next},A");
    }
    fs::write(shell.path("large.csv"), trace).unwrap();
    let arguments = [
        "--json",
        "city",
        "large.csv",
        "--readings-per-second",
        "1",
        "--until",
        "10",
    ];
    let json: serde_json::Value = serde_json::from_str(&shell.ok(&arguments)).unwrap();
    let engine = &json["engines"][0];
    assert_eq!(
        (&json["cells"], &engine["counts"]["hand_offs"]),
        (&1_000.into(), &1_000.into())
    );
    assert_eq!(engine["counts"]["readings"], engine["audit"]["readings"]);
    assert!(!shell.path("waystation-city").exists(), "nothing is left");
}

/// The audit's answer is the exit code, even where nobody reads the report.
#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let shell = Shell::new();
    fs::write(
        shell.path("own.csv"),
        "t_s,device,cell,event\n0,1,5,A\n9,1,5,L\n",
    )
    .unwrap();
    for arguments in [&["city", "own.csv"][..], &["--json", "city", "own.csv"]] {
        assert_eq!(shell.unread(arguments, b"").0, Some(0));
    }
}
