//! Whole scenarios of deletions, each in databases of its own: P2's sequence, mass deletion, and churn.
//!
//! - `p2`: four threads fill the same 500,000 keys in order (2 million puts), then each deletes 10,000 keys in order,
//!   reads 10,000 at random and 10,000 in order; built anew until every row has a second of measured time, five times
//!   at least.
//! - `massdelete`: 200 prefixes of 5,000 keys of 200 B; the first hundred are deleted key by key, and in a second
//!   database by range; then a cursor is sought into the gap, and the space that comes back is watched.
//! - `churn`: a queue (append, delete the oldest) for 30 s, and ingest of keys that live for 10 s; where the engine has no
//!   time to live, what is older is deleted every second by range.

use super::{Key, Random, Values};
use crate::clock;
use crate::engines::{Cursor, Engine, OpenSettings};
use crate::error::{Error, Result};
use crate::measure::{self, Latencies};
use crate::workload::crew::together;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

const P2_KEYS: u32 = 500_000;
const P2_OPS: u32 = 10_000;
const P2_BUILDS_MIN: u32 = 5;
const PREFIXES: u32 = 200;
const KEYS_PER_PREFIX: u32 = 5_000;
const MASS_VALUE_BYTES: usize = 200;
const GAP_REPEATS: u32 = 200;
const WATCH: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(250);
const CHURN: Duration = Duration::from_secs(30);
/// So many seconds at its beginning, and at its end, are compared.
const CHURN_EDGE: usize = 3;
const QUEUE_LENGTH: u32 = 10_000;
/// Of the turns of the queue one in so many reads the oldest.
const PEEK_EVERY: u32 = 64;
const EXPIRY: Duration = Duration::from_secs(10);
/// Nothing older than this is there at the end.
const EXPIRY_LATEST_S: u64 = 12;

/// Which scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scenario {
    P2,
    MassDelete,
    Churn,
}

/// A scenario, and how much of it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct DeletionLoad {
    pub(crate) scenario: Scenario,
    pub(crate) value_bytes: usize,
    pub(crate) threads: u32,
    /// P2's sequence is repeated until each row has so many seconds of measured time.
    pub(crate) p2_row_seconds: f64,
}

/// One row of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeletionRow {
    /// Its name.
    pub(crate) row: String,
    /// Operations done, by all threads.
    pub(crate) ops: u64,
    /// How long they took.
    pub(crate) seconds: f64,
    /// Operations per second.
    pub(crate) ops_per_s: f64,
    /// The latency that half of the operations do not exceed.
    pub(crate) p50_us: f64,
    /// The latency that 99 % of the operations do not exceed.
    pub(crate) p99_us: f64,
    /// The longest operation.
    pub(crate) max_us: f64,
    /// What the database occupied then, in units of 10^6 bytes.
    pub(crate) disk_mb: f64,
    /// Of the tables' bytes that were deleted, the share that had come back; nothing where that is not measured.
    pub(crate) returned: Option<f64>,
    /// By seconds, where that is watched: the share returned (`massdelete-space-10s`), microseconds to read the oldest
    /// (`churn-queue-read`), 10^6 bytes occupied (`churn-expiry`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) over_time: Vec<(f64, f64)>,
}

/// What was seen of one kind of operation.
struct Seen {
    ops: u64,
    elapsed: Duration,
    latencies: Latencies,
}

impl Seen {
    fn new() -> Self {
        Self {
            ops: 0,
            elapsed: Duration::ZERO,
            latencies: Latencies::new(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.elapsed += other.elapsed;
        self.latencies.add(&other.latencies);
    }

    fn row(&self, name: &str, directory: &Path) -> DeletionRow {
        let seconds = self.elapsed.as_secs_f64().max(1e-9);
        DeletionRow {
            row: name.to_owned(),
            ops: self.ops,
            seconds,
            ops_per_s: self.ops as f64 / seconds,
            p50_us: self.latencies.quantile_us(0.5),
            p99_us: self.latencies.quantile_us(0.99),
            max_us: self.latencies.max_us(),
            disk_mb: measure::disk_mb(directory),
            returned: None,
            over_time: Vec::new(),
        }
    }
}

/// Runs a scenario in databases of its own beside the one that `settings` name.
pub(crate) fn run_deletions<E: Engine>(
    settings: &OpenSettings,
    load: DeletionLoad,
) -> Result<Vec<DeletionRow>> {
    let mut own = settings.clone();
    own.directory.as_mut_os_string().push("-deletions");
    let rows = match load.scenario {
        Scenario::P2 => p2::<E>(&own, load),
        Scenario::MassDelete => mass_delete::<E>(&own),
        Scenario::Churn => churn::<E>(&own, load.value_bytes),
    };
    remove(&own.directory)?;
    rows
}

fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(Error::io("remove", directory, source))
        }
        _ => Ok(()),
    }
}

/// What tables occupy, in units of 10^6 bytes; logs, which engines keep for use again, do not count.
fn tables_mb(directory: &Path) -> Result<f64> {
    let failed = |source| Error::io("list", directory, source);
    let mut megabytes = 0.0;
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            megabytes += tables_mb(&path)?;
        } else if is_table(&path) {
            // It may be gone by now.
            let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
            megabytes += bytes as f64 / 1e6;
        }
    }
    Ok(megabytes)
}

/// LevelDB's and RocksDB's tables by their extension, fjall's by their directory.
fn is_table(path: &Path) -> bool {
    let by_extension = path
        .extension()
        .is_some_and(|it| it == "ldb" || it == "sst");
    by_extension || path.parent().is_some_and(|it| it.ends_with("tables"))
}

fn fresh<E: Engine>(settings: &OpenSettings) -> Result<E> {
    remove(&settings.directory)?;
    E::open(settings)
}

/// Does one thing after the other and notes how long each took.
fn timed(times: u32, mut act: impl FnMut(u32) -> Result<()>) -> Result<Seen> {
    let mut seen = Seen::new();
    let begun = clock::now();
    let mut last = begun;
    for turn in 0..times {
        act(turn)?;
        let now = clock::now();
        seen.latencies.record(now - last);
        last = now;
    }
    seen.ops = u64::from(times);
    seen.elapsed = last - begun;
    Ok(seen)
}

/// Has `threads` threads do the same at once.
fn by_threads<E: Engine>(threads: u32, act: impl Fn(u32) -> Result<Seen> + Sync) -> Result<Seen> {
    let work = |thread, start: &Barrier| {
        start.wait();
        let begun = clock::now();
        act(thread).map(|seen| (seen, begun, clock::now()))
    };
    let (each, _) = together((E::NAME, "run P2's sequence"), threads, work, Barrier::wait)?;
    let mut all = Seen::new();
    for (seen, ..) in &each {
        all.add(seen);
    }
    // From the first to the last, as they tell it: who watches may come late to the processor.
    let begun = each.iter().map(|it| it.1).min();
    let ended = each.iter().map(|it| it.2).max();
    all.elapsed = begun
        .zip(ended)
        .map_or(Duration::ZERO, |(begun, ended)| ended - begun);
    Ok(all)
}

fn p2<E: Engine>(settings: &OpenSettings, load: DeletionLoad) -> Result<Vec<DeletionRow>> {
    let names = ["fillseq", "deleteseq", "readrandom", "readseq"];
    let mut rows = names.map(|_| Seen::new());
    let mut builds = 0;
    let mut disk_rows = Vec::new();
    while builds < P2_BUILDS_MIN
        || rows
            .iter()
            .any(|row| row.elapsed.as_secs_f64() < load.p2_row_seconds)
    {
        let engine: E = fresh(settings)?;
        rows[0].add(&by_threads::<E>(load.threads, |_| {
            let mut values = Values::new(load.value_bytes);
            timed(P2_KEYS, |number| {
                engine.put(Key::new(number).as_bytes(), values.next(load.value_bytes))
            })
        })?);
        rows[1].add(&by_threads::<E>(load.threads, |_| {
            timed(P2_OPS, |number| engine.delete(Key::new(number).as_bytes()))
        })?);
        rows[2].add(&by_threads::<E>(load.threads, |thread| {
            let mut random = Random::new(1 + builds * load.threads + thread);
            let mut value = Vec::new();
            timed(P2_OPS, |_| {
                let key = Key::new(random.uniform(P2_KEYS));
                engine.get(key.as_bytes(), &mut value).map(|_| ())
            })
        })?);
        rows[3].add(&by_threads::<E>(load.threads, |_| {
            let mut cursor = engine.cursor()?;
            timed(P2_OPS, |number| {
                if number == 0 {
                    cursor.seek_to_first()?;
                } else {
                    cursor.next()?;
                }
                Ok(())
            })
        })?);
        builds += 1;
        disk_rows = names
            .iter()
            .zip(&rows)
            .map(|(name, seen)| seen.row(name, &settings.directory))
            .collect();
        engine.close()?;
    }
    Ok(disk_rows)
}

fn mass_key(prefix: u32, number: u32) -> Vec<u8> {
    format!("tenant{prefix:03}:{number:05}").into_bytes()
}

/// A database with all the keys, at rest.
fn mass_filled<E: Engine>(settings: &OpenSettings) -> Result<E> {
    let engine: E = fresh(settings)?;
    let mut values = Values::new(MASS_VALUE_BYTES);
    for prefix in 0..PREFIXES {
        for number in 0..KEYS_PER_PREFIX {
            engine.put(&mass_key(prefix, number), values.next(MASS_VALUE_BYTES))?;
        }
    }
    engine.wait_idle()?;
    Ok(engine)
}

/// A new cursor, sought to the first key: `times` times.
fn seek_into_gap<E: Engine>(engine: &E, times: u32) -> Result<Seen> {
    timed(times, |_| {
        let mut cursor = engine.cursor()?;
        if cursor.seek(&mass_key(0, 0))? && cursor.key() == mass_key(PREFIXES / 2, 0) {
            return Ok(());
        }
        Err(Error::Refused(
            "the first key behind the gap was not found".to_owned(),
        ))
    })
}

/// Looks at a figure again and again for as long as [`WATCH`] says.
fn watch(look: impl Fn() -> Result<f64>) -> Result<Vec<(f64, f64)>> {
    let begun = clock::now();
    let mut seen = Vec::new();
    loop {
        let elapsed = begun.elapsed();
        seen.push((elapsed.as_secs_f64(), look()?));
        if elapsed >= WATCH {
            return Ok(seen);
        }
        let next = LOOK_EVERY * seen.len() as u32;
        thread::sleep(next.saturating_sub(begun.elapsed()));
    }
}

fn mass_delete<E: Engine>(settings: &OpenSettings) -> Result<Vec<DeletionRow>> {
    let directory = settings.directory.as_path();
    let mut rows = Vec::new();
    let engine: E = mass_filled(settings)?;
    let full = tables_mb(directory)?;
    let count = PREFIXES / 2 * KEYS_PER_PREFIX;
    let deleted = timed(count, |at| {
        engine.delete(&mass_key(at / KEYS_PER_PREFIX, at % KEYS_PER_PREFIX))
    })?;
    let share_of_deleted = f64::from(PREFIXES / 2) / f64::from(PREFIXES);
    let returned = || Ok((full - tables_mb(directory)?) / (full * share_of_deleted));
    let space = |name: &str| {
        let mut row = Seen::new().row(name, directory);
        row.returned = Some(returned()?);
        Ok::<_, Error>(row)
    };
    rows.push(deleted.row("massdelete-delete", directory));
    rows.push(seek_into_gap(&engine, 1)?.row("massdelete-gap-first", directory));
    rows.push(seek_into_gap(&engine, GAP_REPEATS)?.row("massdelete-gap", directory));
    rows.push(space("massdelete-space-0s")?);
    let over_time = watch(returned)?;
    let row = space("massdelete-space-10s")?;
    rows.push(DeletionRow { over_time, ..row });
    engine.wait_idle()?;
    rows.push(space("massdelete-space-idle")?);
    let mut entries = 0;
    let scanned = timed(1, |_| {
        let mut cursor = engine.cursor()?;
        let mut is_there = cursor.seek_to_first()?;
        while is_there {
            entries += 1;
            is_there = cursor.next()?;
        }
        Ok(())
    })?;
    rows.push(scanned.row("massdelete-scan", directory));
    engine.close()?;

    let engine: E = mass_filled(settings)?;
    let end = mass_key(PREFIXES / 2, 0);
    let call = timed(1, |_| engine.delete_range(&mass_key(0, 0), &end))?;
    rows.push(call.row("massdelete-range-call", directory));
    rows.push(seek_into_gap(&engine, 1)?.row("massdelete-range-first", directory));
    engine.close()?;
    Ok(rows)
}

fn churn<E: Engine>(settings: &OpenSettings, value_bytes: usize) -> Result<Vec<DeletionRow>> {
    let mut rows = queue::<E>(settings, value_bytes)?;
    rows.push(expiry::<E>(settings, value_bytes)?);
    Ok(rows)
}

fn queue<E: Engine>(settings: &OpenSettings, value_bytes: usize) -> Result<Vec<DeletionRow>> {
    let engine: E = fresh(settings)?;
    let mut values = Values::new(value_bytes);
    for number in 0..QUEUE_LENGTH {
        engine.put(Key::new(number).as_bytes(), values.next(value_bytes))?;
    }
    let mut turns = Seen::new();
    let mut peeks: Vec<Seen> = Vec::new();
    let begun = clock::now();
    let mut tail = QUEUE_LENGTH;
    while begun.elapsed() < CHURN {
        let turn = clock::now();
        engine.put(Key::new(tail).as_bytes(), values.next(value_bytes))?;
        engine.delete(Key::new(tail - QUEUE_LENGTH).as_bytes())?;
        turns.latencies.record(turn.elapsed());
        turns.ops += 1;
        tail += 1;
        if tail.is_multiple_of(PEEK_EVERY) {
            let oldest = Key::new(tail - QUEUE_LENGTH);
            let peek = timed(1, |_| {
                let mut cursor = engine.cursor()?;
                if cursor.seek_to_first()? && cursor.key() == oldest.as_bytes() {
                    return Ok(());
                }
                Err(Error::Refused("the oldest was not found".to_owned()))
            })?;
            let second = begun.elapsed().as_secs() as usize;
            if peeks.len() <= second {
                peeks.resize_with(second + 1, Seen::new);
            }
            peeks[second].add(&peek);
        }
    }
    turns.elapsed = begun.elapsed();
    let directory = settings.directory.as_path();
    let together = |some: &[Seen]| {
        let mut all = Seen::new();
        for seen in some {
            all.add(seen);
        }
        all
    };
    let mut all = together(&peeks).row("churn-queue-read", directory);
    let by_second = (1_u32..).zip(&peeks).filter(|(_, seen)| seen.ops > 0);
    all.over_time = by_second
        .map(|(second, seen)| (f64::from(second), seen.latencies.quantile_us(0.5)))
        .collect();
    let edge = peeks.len().min(CHURN_EDGE);
    let rows = vec![
        turns.row("churn-queue", directory),
        all,
        together(&peeks[..edge]).row("churn-queue-read-start", directory),
        together(&peeks[peeks.len() - edge..]).row("churn-queue-read-end", directory),
    ];
    engine.close()?;
    Ok(rows)
}

fn expiry<E: Engine>(settings: &OpenSettings, value_bytes: usize) -> Result<DeletionRow> {
    let engine: E = fresh(settings)?;
    let mut values = Values::new(value_bytes);
    let mut puts = Seen::new();
    let begun = clock::now();
    let mut expired = 0;
    let mut occupied = Vec::new();
    let key = |second: u64, number: u64| format!("{second:06}/{number:09}").into_bytes();
    while begun.elapsed() < CHURN {
        let turn = clock::now();
        let second = begun.elapsed().as_secs();
        let key_now = key(second, puts.ops);
        let expires = engine.put_for(&key_now, values.next(value_bytes), EXPIRY)?;
        let due = second.saturating_sub(EXPIRY.as_secs());
        if !expires && due > expired {
            engine.delete_range(&key(expired, 0), &key(due, 0))?;
            expired = due;
        }
        puts.latencies.record(turn.elapsed());
        puts.ops += 1;
        if occupied.len() as u64 <= second {
            let megabytes = measure::disk_mb(&settings.directory);
            occupied.push((begun.elapsed().as_secs_f64(), megabytes));
        }
    }
    puts.elapsed = begun.elapsed();
    let mut cursor = engine.cursor()?;
    let bound = key(puts.elapsed.as_secs().saturating_sub(EXPIRY_LATEST_S), 0);
    if !cursor.seek_to_first()? || cursor.key() < &bound[..] {
        let message = "what has expired is still there".to_owned();
        return Err(Error::Refused(message));
    }
    drop(cursor);
    let mut row = puts.row("churn-expiry", &settings.directory);
    row.over_time = occupied;
    engine.close()?;
    Ok(row)
}
