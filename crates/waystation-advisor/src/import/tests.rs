//! Each importer on samples of its format, and on malformed rows: file, line, reason.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::*;
use crate::event::Role;
use crate::native::Trace;

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(name)
}

fn settings(format: Format, file: &Path) -> ImportSettings {
    ImportSettings {
        files: vec![file.to_path_buf()],
        format,
        rules: AreaRules::default(),
        columns: None,
    }
}

fn read(format: Format, file: &Path) -> (Trace, Rejections) {
    let mut trace = Trace::default();
    let rejections = import(&settings(format, file), &mut trace).unwrap();
    (trace, rejections)
}

fn read_text(format: Format, text: &str) -> (Trace, Rejections) {
    read_bytes(format, text.as_bytes())
}

fn read_bytes(format: Format, bytes: &[u8]) -> (Trace, Rejections) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    read(format, file.path())
}

#[test]
fn the_recorded_csv_is_read_whole() {
    let (trace, rejections) = read(Format::Csv, &testdata("graph-pr.ordered.allHDD.csv.gz"));
    assert!(rejections.is_empty(), "{rejections}");
    assert_eq!(trace.requests.len(), 7722);
    assert_eq!(trace.info.completed, 7722);
    assert_eq!(trace.info.flushes, 3);
    assert_eq!(trace.info.end_ns, 18_992_990_000);
    let roles: Vec<Role> = trace.info.areas.iter().map(|area| area.role).collect();
    assert_eq!(roles, [Role::FileSystem, Role::Swap, Role::Journal]);
    assert!(trace.info.shortcomings().is_empty());
}

#[test]
fn binary_and_text_of_one_blktrace_agree() {
    let (binary, rejected_binary) = read(Format::Blktrace, &testdata("formats/swap.blktrace.0"));
    let (text, rejected_text) = read(Format::Blkparse, &testdata("formats/swap.blkparse.txt"));
    assert!(rejected_binary.is_empty(), "{rejected_binary}");
    assert!(rejected_text.is_empty(), "{rejected_text}");
    // The text is the beginning of the same recording.
    let shared = text.requests.len();
    assert!(shared > 50 && binary.requests.len() >= shared);
    let completed = |trace: &Trace| {
        trace
            .requests
            .iter()
            .filter(|request| request.latency_ns().is_some())
            .count()
    };
    assert!(completed(&text) + 16 > shared);
    for (from_text, from_binary) in text.requests.iter().zip(&binary.requests) {
        assert_eq!(from_text.offset, from_binary.offset);
        assert_eq!(from_text.length, from_binary.length);
        assert_eq!(from_text.op, from_binary.op);
        assert_eq!(from_text.issue_ns, from_binary.issue_ns);
    }
}

#[test]
fn kernel_text_and_perf_script_are_read() {
    let (trace, rejections) = read(
        Format::KernelText,
        &testdata("formats/ftrace_sample.txt.gz"),
    );
    assert!(rejections.is_empty(), "{rejections}");
    assert!(trace.info.requests > 300, "{}", trace.info.requests);
    let first = trace.requests[0];
    assert_eq!(
        (first.offset, first.length, first.pid),
        (71_944 * 512, 4096, 22_816)
    );
    assert_eq!(first.latency_ns(), Some(406_000));
    assert_eq!(trace.info.comms[first.comm as usize], "dd");

    let perf = "            dd 22816 [000]  1113.317912: block:block_rq_issue: 7,0 FWFSM 4096 () 71944 + 8 be,0,4 [dd]\n\
                \x20   ksoftirqd/0    14 [000]  1113.318318: block:block_rq_complete: 7,0 FWFSM () 71944 + 8 be,0,4 [0]\n\
                    kworker/0:0H    10 [000]  1113.319000: block:block_rq_issue: 7,0 FF 0 () 0 + 0 none,0,0 [kworker/0:0H]\n\
                    swapper     0 [000]  1113.320000: block:block_rq_complete: 7,0 FF () 18446744073709551615 + 0 none,0,0 [0]\n";
    let (trace, rejections) = read_text(Format::KernelText, perf);
    assert!(rejections.is_empty(), "{rejections}");
    assert_eq!(trace.requests.len(), 2);
    assert!(
        trace.requests[0]
            .flags
            .has(Flags::PREFLUSH.with(Flags::FUA))
    );
    assert_eq!(trace.requests[1].op, Op::Flush);
    assert_eq!(trace.requests[1].latency_ns(), Some(1_000_000));
    assert_eq!(trace.info.flushes, 2);
}

#[test]
fn a_request_that_the_driver_gave_back_was_issued_once() {
    let kernel = "a-1 [000] ..... 1.0: block_rq_issue: 7,0 RS 4096 () 800 + 8 be,0,4 [a]\n\
                  a-1 [000] ..... 1.1: block_rq_requeue: 7,0 RS () 800 + 8 be,0,4 [0]\n\
                  a-1 [000] ..... 1.2: block_rq_issue: 7,0 RS 4096 () 800 + 8 be,0,4 [a]\n\
                  a-1 [000] ..... 1.3: block_rq_complete: 7,0 RS () 800 + 8 be,0,4 [0]\n\
                  a-1 [000] ..... 1.4: block_rq_complete: 7,0 WS () 0 + 0 be,0,4 [0]\n";
    let blkparse = "7,0 0 1 1.000000000 1 D RS 800 + 8 [a]\n\
                    7,0 0 2 1.100000000 1 R RS 800 + 8 [0]\n\
                    7,0 0 3 1.200000000 1 D RS 800 + 8 [a]\n\
                    7,0 0 4 1.300000000 1 C RS 800 + 8 [0]\n\
                    7,0 0 5 1.400000000 1 C WS 0 + 0 [0]\n";
    for (format, text) in [(Format::KernelText, kernel), (Format::Blkparse, blkparse)] {
        let (trace, rejections) = read_text(format, text);
        assert!(rejections.is_empty(), "{rejections}");
        assert_eq!(rejections.unmatched_completions, 1);
        assert_eq!((trace.info.requests, trace.info.completed), (1, 1));
        assert_eq!(trace.requests[0].latency_ns(), Some(100_000_000));
    }
}

#[test]
fn nbdkit_logs_give_areas_by_export() {
    let (trace, rejections) = read(
        Format::Nbdkit,
        &testdata("formats/nbdkit_log_sample.txt.gz"),
    );
    assert!(rejections.is_empty(), "{rejections}");
    let names: Vec<&str> = trace
        .info
        .areas
        .iter()
        .map(|area| area.name.as_str())
        .collect();
    assert!(
        names.contains(&"fs") && names.contains(&"journal") && names.contains(&"swap"),
        "{names:?}"
    );
    assert!(trace.info.completed > 100);
    // The log was cut off while one request was under way.
    assert_eq!(trace.info.requests - trace.info.completed, 1);
}

#[test]
fn a_process_number_that_cannot_be_is_no_other_process() {
    let (trace, rejections) = read_text(
        Format::Csv,
        "issue_us,op,offset,length,pid\n1,R,0,4096,7\n2,R,0,4096,99999999999\n",
    );
    assert_eq!(trace.requests.len(), 1);
    assert_eq!(rejections.of("a process number is out of range"), 1);
    assert!(rejections.to_string().starts_with("1 row was not"));
}

#[test]
fn a_headerless_csv_needs_a_column_map() {
    let file = testdata("formats/plugin_sample.csv.gz");
    let (trace, rejections) = read(Format::Csv, &file);
    assert_eq!(trace.requests.len(), 0);
    assert!(rejections.of("the first line is no header of a block trace (use --columns)") > 0);
    let mut settings = settings(Format::Csv, &file);
    settings.columns =
        Some(ColumnMap::parse("issue:ns=1,area=2,op=3,offset=4,length=5,latency:ns=6").unwrap());
    let mut trace = Trace::default();
    let rejections = import(&settings, &mut trace).unwrap();
    assert!(rejections.is_empty(), "{rejections}");
    assert!(trace.info.requests > 500);
    assert!(trace.requests.is_sorted_by_key(|request| request.issue_ns));
}

#[test]
fn public_collections_are_read() {
    let msr = "128166372003061629,hm,1,Read,383496192,32768,413\n128166372016382155,hm,1,Write,2822144,4096,2311\n";
    let (trace, rejections) = read_text(Format::Msr, msr);
    assert!(rejections.is_empty(), "{rejections}");
    assert_eq!(trace.requests[1].issue_ns, 1_332_052_600);
    assert_eq!(trace.requests[1].latency_ns(), Some(231_100));
    assert_eq!(trace.info.areas[0].name, "hm.1");
    assert_eq!(trace.info.shortcomings().len(), 1, "no flushes");

    let (trace, rejections) = read_text(
        Format::Alibaba,
        "419,W,8792731648,16384,1577808000000046\n725,R,4096,4096,1577808000000100\n",
    );
    assert!(rejections.is_empty(), "{rejections}");
    assert_eq!(trace.requests[1].issue_ns, 54_000);
    assert_eq!(
        trace.info.shortcomings().len(),
        2,
        "no completions, no flushes"
    );

    let (trace, rejections) = read_text(
        Format::Tencent,
        "1538323200,12910952,128,0,1063\n1538323201,6,8,1,1627\n",
    );
    assert!(rejections.is_empty(), "{rejections}");
    assert_eq!(trace.requests[0].length, 65_536);
    assert_eq!(trace.requests[1].op, Op::Write);
}

#[test]
fn fio_biosnoop_and_binary_collections_are_read() {
    let (trace, rejections) = read_text(
        Format::Fio,
        "fio version 3 iolog\n0 /dev/x add\n1 /dev/x open\n150 /dev/x read 4096 8192\n190 /dev/x sync 0 0\n9000 /dev/x close\n",
    );
    assert!(rejections.is_empty(), "{rejections}");
    assert_eq!(
        (trace.requests[0].offset, trace.requests[0].length),
        (4096, 8192)
    );
    assert_eq!(trace.requests[1].issue_ns, 40_000);
    let (trace, _) = read_text(
        Format::Fio,
        "fio version 2 iolog\nf read 0 4096\nf wait 500\nf write 4096 512\n",
    );
    assert_eq!(trace.requests[1].issue_ns, 501_000);

    let (trace, rejections) = read_text(
        Format::Biosnoop,
        "TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  LAT(ms)\n\
         0.000000000 my cmd 2       1234   sda     W 8          4096   1.250\n\
         0.010000000 jbd2/sda1-8    99     sda     R 16         8192   0.500\n",
    );
    assert!(rejections.is_empty(), "{rejections}");
    assert_eq!(trace.requests[0].latency_ns(), Some(1_250_000));
    assert_eq!(trace.requests[1].issue_ns, 10_750_000);
    assert_eq!(trace.info.comms[0], "my cmd 2");

    let mut record = Vec::new();
    for (time, id, size) in [(5_u32, 7_u64, 4096_u32), (6, 9, 4096)] {
        record.extend_from_slice(&time.to_le_bytes());
        record.extend_from_slice(&id.to_le_bytes());
        record.extend_from_slice(&size.to_le_bytes());
        record.extend_from_slice(&(-1_i64).to_le_bytes());
    }
    let (trace, rejections) = read_bytes(Format::OracleGeneral, &record);
    assert!(rejections.is_empty(), "{rejections}");
    assert_eq!(trace.requests[1].offset, 9 * 4096);
    let (_, rejections) = read_bytes(Format::OracleGeneral, &record[..40]);
    assert_eq!(rejections.of("the file ends in the middle of a record"), 1);

    let mut record = Vec::new();
    record.extend_from_slice(&0x2a_u16.to_le_bytes());
    record.extend_from_slice(&0x0200_u16.to_le_bytes());
    for word in [1_u32, 4096, 1] {
        record.extend_from_slice(&word.to_le_bytes());
    }
    for word in [2048_u64, 1_000_000, 350] {
        record.extend_from_slice(&word.to_le_bytes());
    }
    let (trace, rejections) = read_bytes(Format::Cloudphysics, &record);
    assert!(rejections.is_empty(), "{rejections}");
    assert_eq!(trace.requests[0].offset, 2048 * 512);
    assert_eq!(trace.requests[0].latency_ns(), Some(350_000));
}

#[test]
fn malformed_rows_are_named_with_line_reason_and_count() {
    let text = "t_issue_us,t_complete_us,area,rwbs,offset_bytes,length_bytes,pid,comm\n\
                0,10,fs,R,0,4096,1,a\n\
                x,10,fs,R,0,4096,1,a\n\
                20,10,fs,R,0,4096,1,a\n\
                30,40,fs,Q,0,4096,1,a\n\
                50,60,fs,R\n\
                70,80,fs,R,-1,4096,1,a\n\
                90,95,fs,W,18446744073709551615,4096,1,a\n";
    let (trace, rejections) = read_text(Format::Csv, text);
    assert_eq!(trace.requests.len(), 1);
    assert_eq!(rejections.count(), 6);
    let shown = rejections.to_string();
    for part in [
        "6 rows were not understood",
        "1 x a time does not parse",
        "line 3",
        "1 x it completes before it is issued",
        "1 x the operation is unknown",
        "1 x the row has too few columns",
        "1 x a number does not parse",
        "1 x the range ends beyond 64 bits",
    ] {
        assert!(shown.contains(part), "{part} is missing in:\n{shown}");
    }
}

#[test]
fn a_clock_that_goes_far_backwards_is_reported() {
    let mut text = String::from("time_us,area,rwbs,offset,length\n");
    for row in 0..70_000_u32 {
        writeln!(text, "{},fs,R,0,4096", 1_000_000 + row).unwrap();
    }
    text.push_str("5,fs,R,0,4096\n");
    let (trace, rejections) = read_text(Format::Csv, &text);
    assert_eq!(trace.requests.len(), 70_000);
    assert_eq!(
        rejections.of("the clock goes backwards by more than rows can be sorted"),
        1
    );
    assert!(
        rejections.to_string().contains("line 70002"),
        "{rejections}"
    );
}

#[test]
fn wrong_formats_are_refused_with_a_reason() {
    for format in [
        Format::Blkparse,
        Format::KernelText,
        Format::Biosnoop,
        Format::Nbdkit,
        Format::Fio,
        Format::Msr,
        Format::Alibaba,
        Format::Tencent,
    ] {
        let (trace, rejections) = read_text(format, "GET / HTTP/1.1\nHost: example.org\n");
        assert_eq!(trace.requests.len(), 0, "{format:?}");
        assert!(rejections.count() >= 1, "{format:?}");
    }
    let (_, rejections) = read_bytes(Format::Blktrace, &[7; 200]);
    assert_eq!(rejections.count(), 1);
    assert!(matches!(
        import(
            &settings(Format::Cloudphysics, Path::new("/dev/null")),
            &mut Trace::default()
        ),
        Err(Error::Malformed(_))
    ));
    assert!(matches!(
        import(
            &settings(Format::Csv, Path::new("/nonexistent")),
            &mut Trace::default()
        ),
        Err(Error::Missing(_))
    ));
}

#[test]
fn ranges_become_areas() {
    let mut settings = settings(Format::Csv, Path::new("-"));
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"time_us,device,rwbs,offset,length\n0,8:0,W,0,4096\n1,8:0,W,1048576,4096\n2,8:1,R,1048576,4096\n")
        .unwrap();
    settings.files = vec![file.path().to_path_buf()];
    settings.rules.add("8:0@1MiB-2MiB=journal").unwrap();
    let mut trace = Trace::default();
    import(&settings, &mut trace).unwrap();
    let names: Vec<&str> = trace
        .info
        .areas
        .iter()
        .map(|area| area.name.as_str())
        .collect();
    assert_eq!(names, ["8:0", "journal", "8:1"]);
    for wrong in [
        "",
        "journal",
        "=x",
        "8:0=",
        "8:0@5=x",
        "8:0@2MB-1MB=x",
        "8:0@a-b=x",
    ] {
        assert!(AreaRules::default().add(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn the_internal_journal_of_ext4_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(64 << 20)
        .unwrap();
    assert!(
        ext4::layout(&image).is_err(),
        "an empty file holds no file system"
    );
    let made = std::process::Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", "-J", "size=8"])
        .arg(&image)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("not run: mke2fs is not installed");
        return;
    }
    let layout = ext4::layout(&image).unwrap();
    assert_eq!(layout.bytes, 64 << 20);
    assert_eq!(
        layout
            .journal
            .iter()
            .map(|range| range.end - range.start)
            .sum::<u64>(),
        8 << 20
    );
    let rules = directory.path().join("rules.toml");
    std::fs::write(
        &rules,
        format!(
            "[[ext4]]\nimage = \"{}\"\narea = \"fs\"\njournal = \"journal\"\n",
            image.display()
        ),
    )
    .unwrap();
    let rules = AreaRules::from_file(&rules).unwrap();
    assert_eq!(rules.rules.last().unwrap().role, Role::FileSystem);
    assert!(rules.rules.len() >= 2);
}
