//! Small databases with a file of every kind, and what must be read from them.
//!
//! They are made by [`Kind::make`] and kept in `testdata` as they were made when their version of the format was fixed, so
//! that later versions are known to open them.

use crate::image::Image;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{
    Compression, Db, DeviceOptions, Durability, Error, Extractor, IterOptions, Options, Result,
    Snapshot, WriteBatch,
};

/// Where a fixture lies on its machine.
pub const DIR: &str = "/db";
/// A time to live that is not over when a later version reads what was kept.
const CENTURIES: Duration = Duration::from_secs(100_000_000_000);

/// A value whose writer dies before it has copied all of it.
const TORN: &[u8] = b"of a process that died";

/// What a database holds.
pub type Content = BTreeMap<Vec<u8>, Vec<u8>>;

/// A key and its value, or its deletion.
pub type Change = (Vec<u8>, Option<Vec<u8>>);

/// A small database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Closed in order: tables on two levels, an empty log.
    Closed,
    /// The process died: tables, a log with synced records, and some in the ring alone.
    Crashed,
    /// With devices of every state; the process died.
    Devices,
    /// With devices, of which an image of the indexes shows the most; the process died.
    Shown,
    /// The process died with a snapshot held, and graves have no memory: they are in files, some with dates.
    Spilled,
    /// The process died amid a write, with later ones acknowledged; and then the next process. The log has a gap.
    Gap,
    /// Of LevelDB's, with tables and a log.
    LevelDb,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Closed,
        Self::Crashed,
        Self::Devices,
        Self::Shown,
        Self::Spilled,
        Self::Gap,
        Self::LevelDb,
    ];

    /// The name of its directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Crashed => "crashed",
            Self::Devices => "devices",
            Self::Shown => "shown",
            Self::Spilled => "spilled",
            Self::Gap => "gap",
            Self::LevelDb => "leveldb",
        }
    }

    fn has_devices(self) -> bool {
        [Self::Devices, Self::Shown].contains(&self)
    }

    /// How it is opened.
    pub fn options(self) -> Options {
        let devices = DeviceOptions {
            residency: Duration::from_secs(1 << 30),
            ..DeviceOptions::new(Extractor::until(b':'))
        };
        let graves_bytes = Options::default().graves_bytes;
        Options {
            graves_bytes: if self == Self::Spilled {
                0
            } else {
                graves_bytes
            },
            memtable_bytes: 64 << 10,
            table_bytes: 64 << 10,
            block_bytes: 1024,
            ring_bytes: 256 << 10,
            log_segment_bytes: 256 << 10,
            cache_bytes: 64 << 10,
            background_jobs: 1,
            compression: Compression::Snappy,
            devices: self.has_devices().then_some(devices),
            ..Options::default()
        }
    }

    /// The operations of LevelDB's: those for tables, and those for its log.
    pub fn leveldb_operations() -> [Vec<Change>; 2] {
        [apply_tables as fn(&mut Setter<'_>), apply_log].map(|apply| {
            let mut changes = Vec::new();
            apply(&mut |key, value| changes.push((key.to_vec(), value.map(<[u8]>::to_vec))));
            changes
        })
    }

    /// Makes it anew; none for LevelDB's, which LevelDB makes.
    pub fn make(self) -> Result<Option<Image>> {
        let dir = Path::new(DIR);
        let machine = SimStorage::new(3);
        let storage: Arc<dyn Storage> = machine.clone();
        let machine = match self {
            Self::LevelDb => return Ok(None),
            Self::Closed => {
                let db = Db::open_with(storage, dir, self.options())?;
                fill_tables(&db)?;
                fill_log(&db)?;
                db.close()?;
                machine
            }
            Self::Crashed => {
                let db = Db::open_with(storage, dir, self.options())?;
                fill_tables(&db)?;
                fill_log(&db)?;
                machine.crash(1, Crash::Process)
            }
            Self::Devices => {
                let db = Db::open_with(storage, dir, self.options())?;
                fill_tables(&db)?;
                fill_devices(&db)?;
                fill_log(&db)?;
                machine.crash(1, Crash::Process)
            }
            Self::Shown => {
                let mut options = self.options();
                if let Some(devices) = &mut options.devices {
                    devices.replay_bytes = 0;
                }
                let db = Db::open_with(storage, dir, options)?;
                fill_tables(&db)?;
                fill_devices(&db)?;
                while !machine.list(dir)?.iter().any(|it| it.name == "INDEXES") {
                    machine.sleep(Duration::from_millis(10));
                }
                fill_log(&db)?;
                machine.crash(1, Crash::Process)
            }
            Self::Spilled => {
                let db = Db::open_with(storage, dir, self.options())?;
                fill_tables(&db)?;
                let _held = fill_vaults(&db)?;
                fill_log(&db)?;
                machine.crash(1, Crash::Process)
            }
            Self::Gap => {
                let db = Db::open_with(storage, dir, self.options())?;
                fill_tables(&db)?;
                db.put(b"torn", TORN)?;
                write(&db, apply_log, Durability::ProcessCrash)?;
                let left = Image::read(&*machine.crash(1, Crash::Process), dir)?;
                let machine = tear(&left).boot(dir)?;
                let db = Db::open_with(machine.clone(), dir, self.options())?;
                write(&db, apply_unsynced, Durability::ProcessCrash)?;
                machine.crash(2, Crash::Process)
            }
        };
        Image::read(&*machine, dir).map(Some)
    }

    /// The one that is kept.
    pub fn load(self) -> std::io::Result<Image> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(self.directory())? {
            let path = entry?.path();
            let packed = std::fs::read(&path)?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            files.push((name.into_owned(), zstd::decode_all(&packed[..])?));
        }
        files.sort();
        Ok(Image { files })
    }

    /// Keeps `image`.
    pub fn save(self, image: &Image) -> std::io::Result<()> {
        std::fs::create_dir_all(self.directory())?;
        for (name, content) in &image.files {
            let packed = zstd::encode_all(&content[..], 19)?;
            std::fs::write(self.directory().join(format!("{name}.zst")), packed)?;
        }
        Ok(())
    }

    fn directory(self) -> PathBuf {
        let version = if self == Self::Gap { 2 } else { 1 };
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("testdata/format-{version}"))
            .join(self.name())
    }

    /// What must be read from it.
    pub fn content(self) -> Content {
        let mut content = self.synced_content();
        if self != Self::LevelDb {
            apply_unsynced(&mut |key, value| set(&mut content, key, value));
        }
        content
    }

    /// What must be read from it if the last write, which was not synced, is lost.
    pub fn synced_content(self) -> Content {
        let mut content = Content::new();
        apply_tables(&mut |key, value| set(&mut content, key, value));
        if self.has_devices() {
            apply_devices(&mut |key, value| set(&mut content, key, value));
            content.retain(|key, _| !key.starts_with(b"gone:"));
        }
        if self == Self::Spilled {
            for apply in [apply_doomed, apply_deletions, apply_expiring] {
                apply(&mut |key, value| set(&mut content, key, value));
            }
        }
        apply_log(&mut |key, value| set(&mut content, key, value));
        content
    }

    /// Opens it and reads everything, in both ways.
    pub fn read(self, storage: Arc<dyn Storage>) -> Outcome {
        self.read_in(storage, Path::new(DIR))
    }

    /// The same of a copy that lies in `dir`.
    pub fn read_in(self, storage: Arc<dyn Storage>, dir: &Path) -> Outcome {
        let db = match Db::open_with(storage, dir, self.options()) {
            Ok(db) => db,
            Err(error) => return Outcome::Refused(error),
        };
        match read_all(&db, &self.content()) {
            Ok(None) => Outcome::Right,
            Ok(Some(difference)) => match read_all(&db, &self.synced_content()) {
                Ok(None) => Outcome::Cut,
                _ => Outcome::Wrong(difference),
            },
            Err(error) => Outcome::Detected(error),
        }
    }
}

/// What became of reading a fixture.
#[derive(Debug)]
pub enum Outcome {
    /// Everything was right.
    Right,
    /// Everything was right but for the last write, which was not synced and is missing.
    Cut,
    /// It did not open, and said why.
    Refused(Error),
    /// A read failed, and said why; no other was wrong.
    Detected(Error),
    /// A read gave what was never written, or not what was written.
    Wrong(String),
}

/// The first difference to `content`; a failure if there is none but that.
fn read_all(db: &Db, content: &Content) -> Result<Option<String>> {
    let mut failure = None;
    for (key, value) in content {
        match db.get(key) {
            Ok(found) if found.as_ref() == Some(value) => {}
            Ok(found) => {
                let found = found.map(|value| value.escape_ascii().to_string());
                return Ok(Some(format!("{} is {found:?}", key.escape_ascii())));
            }
            Err(error) => failure = Some(error),
        }
    }
    for key in [&b"gone:1"[..], b"t007", b"l03", b"v04", b"nothing"] {
        match db.get(key) {
            Ok(found) if found.as_ref() == content.get(key) => {}
            Ok(_) => return Ok(Some(format!("{} is there", key.escape_ascii()))),
            Err(error) => failure = Some(error),
        }
    }
    let scanned = scan(db);
    match scanned {
        Ok(found) if found == *content => {}
        Ok(found) => {
            return Ok(Some(format!(
                "a scan finds {} of {}",
                found.len(),
                content.len()
            )));
        }
        Err(error) => failure = Some(error),
    }
    failure.map_or(Ok(None), Err)
}

/// `image`, in whose ring the last byte of [`TORN`] has not come.
fn tear(image: &Image) -> Image {
    const RING: &str = "journal.ring";
    let mut ring = image.file(RING).unwrap_or_default().to_vec();
    let places = ring.windows(TORN.len());
    if let Some(at) = places
        .enumerate()
        .find(|(_, bytes)| bytes == &TORN)
        .map(|it| it.0)
    {
        ring[at + TORN.len() - 1] = 0;
    }
    image.with(RING, ring)
}

fn scan(db: &Db) -> Result<Content> {
    let mut cursor = db.iter(IterOptions::default())?;
    let mut found = Content::new();
    cursor.seek_to_first()?;
    while cursor.valid() {
        found.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next()?;
    }
    Ok(found)
}

fn set(content: &mut Content, key: &[u8], value: Option<&[u8]>) {
    match value {
        Some(value) => content.insert(key.to_vec(), value.to_vec()),
        None => content.remove(key),
    };
}

/// Takes a key and its value, or its deletion.
type Setter<'a> = dyn FnMut(&[u8], Option<&[u8]>) + 'a;

/// What goes to tables.
fn apply_tables(set: &mut Setter<'_>) {
    for i in 0..12_u32 {
        let value = format!("value {i} ").repeat(1 + i as usize % 5);
        set(format!("t{i:03}").as_bytes(), Some(value.as_bytes()));
    }
    set(b"t007", None);
    set(b"", Some(b"of the empty key"));
}

/// What devices write; those called `gone` depart afterwards.
fn apply_devices(set: &mut Setter<'_>) {
    for device in ["settled", "stays", "gone"] {
        for i in 0..4 {
            set(
                format!("{device}:{i}").as_bytes(),
                Some(format!("reading {i}").as_bytes()),
            );
        }
    }
    set(b"stays:3", None);
}

/// What goes to tables before a snapshot is taken.
fn apply_doomed(set: &mut Setter<'_>) {
    for i in 0..8 {
        set(format!("v{i:02}").as_bytes(), Some(b"seen by a snapshot"));
    }
}

/// What is deleted afterwards.
fn apply_deletions(set: &mut Setter<'_>) {
    for i in [0, 3, 4, 7] {
        set(format!("v{i:02}").as_bytes(), None);
    }
}

/// What has a time to live, which is not over yet.
fn apply_expiring(set: &mut Setter<'_>) {
    for i in 0..3 {
        set(format!("x{i:02}").as_bytes(), Some(b"for a while"));
    }
}

/// What stays in the log.
fn apply_log(set: &mut Setter<'_>) {
    for i in 0..6 {
        set(
            format!("l{i:02}").as_bytes(),
            Some(format!("logged {i}").as_bytes()),
        );
    }
    set(b"l03", None);
    set(b"t005", Some(b"newer"));
    set(b"t006", None);
}

/// What is in the ring alone: in the last record of the log.
fn apply_unsynced(set: &mut Setter<'_>) {
    set(b"l05", Some(b"not synced"));
}

/// Writes what `apply` says.
fn write(db: &Db, apply: fn(&mut Setter<'_>), durability: Durability) -> Result<()> {
    let mut outcome = Ok(());
    apply(&mut |key, value| {
        let mut batch = WriteBatch::new();
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        }
        if outcome.is_ok() {
            outcome = db.write(&batch, durability);
        }
    });
    outcome
}

fn fill_tables(db: &Db) -> Result<()> {
    // Twice, so that there is something to overwrite on the deeper level.
    write(db, apply_tables, Durability::ProcessCrash)?;
    db.compact_range(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)?;
    write(db, apply_tables, Durability::ProcessCrash)?;
    db.flush()?;
    db.wait_idle()
}

fn fill_devices(db: &Db) -> Result<()> {
    write(db, apply_devices, Durability::ProcessCrash)?;
    db.devices().settle(b"settled")?;
    db.devices().depart(b"gone")
}

/// Returns the snapshot that has to be held.
fn fill_vaults(db: &Db) -> Result<Snapshot> {
    write(db, apply_doomed, Durability::ProcessCrash)?;
    db.flush()?;
    let held = db.snapshot();
    write(db, apply_deletions, Durability::ProcessCrash)?;
    let mut batch = WriteBatch::new();
    apply_expiring(&mut |key, value| {
        if let Some(value) = value {
            batch.put_with_ttl(key, value, CENTURIES);
        }
    });
    db.write(&batch, Durability::ProcessCrash)?;
    db.flush()?;
    Ok(held)
}

fn fill_log(db: &Db) -> Result<()> {
    write(db, apply_log, Durability::ProcessCrash)?;
    db.sync()?;
    write(db, apply_unsynced, Durability::ProcessCrash)
}
