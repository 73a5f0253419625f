//! What a failure tells: the first entry that differs, why LevelDB refuses and what lies in the directory, and what
//! Waystation warned of. A case that failed once may never fail again, so its message has to be enough.

use crate::Content;
use std::fmt::Write;
use std::path::Path;
use waystation_oracle::{LevelDb, Settings};

type Entry = (Vec<u8>, Vec<u8>);

/// Panics with the first difference, if `found` is not `content`.
#[track_caller]
pub(crate) fn assert_same(who: &str, found: &[Entry], content: &Content) {
    let expected: Vec<_> = content.iter().collect();
    let same = |at: &usize| {
        let found = found.get(*at).map(|(key, value)| (key, value));
        found == expected.get(*at).copied()
    };
    let Some(at) = (0..found.len().max(expected.len())).find(|at| !same(at)) else {
        return;
    };
    let found_here = found.get(at).map(|(key, value)| in_short(key, value));
    let expected_here = expected.get(at).map(|(key, value)| in_short(key, value));
    panic!(
        "{who}: entry {at} of {} is {found_here:?}; it should be {expected_here:?}, of {}",
        found.len(),
        expected.len()
    );
}

fn in_short(key: &[u8], value: &[u8]) -> String {
    let begin = &value[..value.len().min(8)];
    let key = key.escape_ascii();
    format!("{key}: {} bytes, {begin:02x?}...", value.len())
}

/// Opens the database in `path` with LevelDB.
#[track_caller]
pub(crate) fn open_leveldb(path: &Path, settings: Settings) -> LevelDb {
    LevelDb::open(path, settings).unwrap_or_else(|error| {
        panic!("LevelDB does not open it: {error}\n{}", listing(path));
    })
}

/// The files in `path` with their lengths, and what LevelDB said last.
fn listing(path: &Path) -> String {
    let mut text = String::new();
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| (entry.file_name(), entry.metadata().map(|it| it.len()).ok()))
        .collect();
    files.sort();
    for (name, bytes) in files {
        let _ = writeln!(text, "{}: {bytes:?} bytes", name.display());
    }
    for name in ["LOG.old", "LOG"] {
        let said = std::fs::read(path.join(name)).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        let _ = writeln!(text, "--- {name}\n{said}");
    }
    text
}

/// Prints what Waystation warns of, for whoever reads a failure.
struct Teller;

impl log::Log for Teller {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            println!("{}: {}", record.level(), record.args());
        }
    }

    fn flush(&self) {}
}

/// From now on warnings are printed; the harness shows them if the test fails.
pub(crate) fn tell_warnings() {
    // A second time nothing changes.
    let _ = log::set_logger(&Teller);
    log::set_max_level(log::LevelFilter::Warn);
}
