//! Text: names of files and of extractors, and traces of block requests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use waystation::Extractor;
use waystation_advisor::event::{Flags, Op, Request, TraceInfo};
use waystation_advisor::import::{AreaRules, Format, ImportSettings, Sink, import};
use waystation_advisor::native;
use waystation_format::filename;

/// Names of files, what `CURRENT` holds, names of extractors.
pub(super) fn names(bytes: &[u8]) {
    let _ = filename::parse_current(bytes);
    let text = String::from_utf8_lossy(bytes);
    let _ = filename::parse(&text);
    if let Ok(extractor) = text.parse::<Extractor>() {
        assert_eq!(extractor.to_string().parse(), Ok(extractor));
        if let Some(prefix) = extractor.prefix(bytes) {
            assert!(bytes.starts_with(prefix));
            let device = extractor.device(prefix);
            assert_eq!(extractor.prefix_of(device).as_deref(), Some(prefix));
        }
    }
}

pub(super) fn names_seeds() -> Vec<Vec<u8>> {
    [
        "until/3a",
        "fixed/8",
        "MANIFEST-000007\n",
        "000123.ldb",
        "000123.sst",
        "LOG.old",
        "18446744073709551616.log",
    ]
    .map(|name| name.as_bytes().to_vec())
    .into()
}

/// The formats of traces; the first byte chooses.
const FORMATS: [(Format, &str); 12] = [
    (Format::Native, ""),
    (Format::Csv, "csv"),
    (Format::Blktrace, "blktrace"),
    (Format::Blkparse, "blkparse"),
    (Format::KernelText, "kernel"),
    (Format::Biosnoop, "biosnoop"),
    (Format::Nbdkit, "nbdkit"),
    (Format::Fio, "fio"),
    (Format::Msr, "msr"),
    (Format::Alibaba, "alibaba"),
    (Format::Tencent, "tencent"),
    (Format::OracleGeneral, "oracle"),
];

/// Takes requests and forgets them.
#[derive(Default)]
struct Nowhere(TraceInfo);

impl Sink for Nowhere {
    fn info_mut(&mut self) -> &mut TraceInfo {
        &mut self.0
    }

    fn push(&mut self, _: Request) -> waystation_advisor::error::Result<()> {
        Ok(())
    }
}

/// A trace of block requests in any format.
pub(super) fn trace(bytes: &[u8]) {
    let Some((choice, content)) = bytes.split_first() else {
        return;
    };
    let path = scratch();
    if std::fs::write(&path, content).is_ok() {
        let _ = native::load(&path);
        let (format, _) = FORMATS[usize::from(*choice) % FORMATS.len()];
        let settings = ImportSettings {
            files: vec![path.clone()],
            format,
            rules: AreaRules::default(),
            columns: None,
        };
        let _ = import(&settings, &mut Nowhere::default());
    }
    let _ = std::fs::remove_file(&path);
}

/// A file of this call's own.
fn scratch() -> PathBuf {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let memory = PathBuf::from("/dev/shm");
    let dir = if memory.is_dir() {
        memory
    } else {
        std::env::temp_dir()
    };
    dir.join(format!("waystation-fuzz-{}-{call}", std::process::id()))
}

/// Beginnings of the examples that the advisor's own tests read, and a trace in our own format.
pub(super) fn trace_seeds() -> Vec<Vec<u8>> {
    let path = scratch();
    let made = native_trace(&path);
    let native = std::fs::read(&path).unwrap_or_default();
    let _ = std::fs::remove_file(&path);
    assert!(made.is_ok(), "{made:?}");
    let mut seeds = vec![[&[0], &native[..]].concat()];
    let examples =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../waystation-advisor/testdata/formats");
    for entry in std::fs::read_dir(examples).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let content = std::fs::read(entry.path()).unwrap_or_default();
        let start = &content[..content.len().min(2000)];
        for (choice, (_, part)) in FORMATS.iter().enumerate().skip(1) {
            if name.contains(part) {
                seeds.push([&[choice as u8], start].concat());
            }
        }
    }
    seeds
}

fn native_trace(path: &Path) -> waystation_advisor::error::Result<()> {
    let mut writer = native::Writer::create(path, TraceInfo::default())?;
    for i in 0..50_u64 {
        writer.push(Request {
            issue_ns: i * 1000,
            complete_ns: i * 1000 + 70,
            offset: i * 4096,
            length: 4096,
            pid: 1,
            comm: 0,
            area: 0,
            op: Op::Write,
            flags: Flags::SYNC,
        })?;
    }
    writer.finish().map(|_| ())
}
