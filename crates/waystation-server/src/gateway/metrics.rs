//! Figures of the daemon for Prometheus: the process, HTTP, each database of readings, and each of documents that is open.
//! `docs/reference/metrics.md` lists them; a test compares.

use super::{process, status};
use crate::app::App;
use waystation::{AreaPlacement, PlacementStats, Stats};
use waystation_documents::database::DatabaseInfo;
use waystation_readings::{Exposition, Kind, Readings};

/// A figure of a database.
type Figure = (&'static str, Kind, &'static str, fn(&Stats) -> f64);

const FIGURES: [Figure; 24] = [
    (
        "waystation_memtable_bytes",
        Kind::Gauge,
        "Memory reserved in the active memtable.",
        |it| it.memtable_bytes as f64,
    ),
    (
        "waystation_memtables_full",
        Kind::Gauge,
        "Full memtables that wait for their flush.",
        |it| it.full_memtables as f64,
    ),
    (
        "waystation_snapshots",
        Kind::Gauge,
        "Snapshots held.",
        |it| it.snapshots as f64,
    ),
    (
        "waystation_snapshot_oldest_seconds",
        Kind::Gauge,
        "Age of the oldest snapshot.",
        |it| it.oldest_snapshot_seconds.unwrap_or_default(),
    ),
    (
        "waystation_writers_held_back_seconds_total",
        Kind::Counter,
        "Time that writers were held back, all together.",
        |it| it.held_back_seconds,
    ),
    (
        "waystation_suspended",
        Kind::Gauge,
        "Whether writes are or will be suspended.",
        |it| f64::from(u8::from(it.failure.is_some())),
    ),
    (
        "waystation_writes_total",
        Kind::Counter,
        "Sequence number of the last visible write.",
        |it| it.visible_sequence as f64,
    ),
    (
        "waystation_log_bytes",
        Kind::Gauge,
        "Log that is kept.",
        |it| it.log.live_bytes as f64,
    ),
    (
        "waystation_log_heals_total",
        Kind::Counter,
        "Times that the log healed after a failure of storage.",
        |it| it.log.heals as f64,
    ),
    (
        "waystation_flush_written_bytes_total",
        Kind::Counter,
        "Bytes that flushes wrote.",
        |it| it.tree.flushes.written_bytes as f64,
    ),
    (
        "waystation_compaction_debt_bytes",
        Kind::Gauge,
        "Bytes that compaction has yet to rewrite.",
        |it| it.tree.debt_bytes as f64,
    ),
    (
        "waystation_compactions_running",
        Kind::Gauge,
        "Compactions that run.",
        |it| it.tree.running as f64,
    ),
    (
        "waystation_tables_dropped_total",
        Kind::Counter,
        "Tables that were dropped unread.",
        |it| it.tree.dropped_tables as f64,
    ),
    (
        "waystation_tables_held_bytes",
        Kind::Gauge,
        "Tables that only snapshots and cursors hold.",
        |it| it.tree.held_bytes as f64,
    ),
    (
        "waystation_cache_bytes",
        Kind::Gauge,
        "Cached blocks.",
        |it| it.tree.cached_bytes as f64,
    ),
    (
        "waystation_graves",
        Kind::Gauge,
        "Deletions of keys and ranges that hide something.",
        |it| (it.graves.points + it.graves.ranges) as f64,
    ),
    (
        "waystation_graves_memory_bytes",
        Kind::Gauge,
        "Memory of graves.",
        |it| it.graves.memory_bytes as f64,
    ),
    (
        "waystation_graves_pinned_bytes",
        Kind::Gauge,
        "Bytes of tables that graves hide and that are not given back yet.",
        |it| it.graves.pinned_bytes as f64,
    ),
    (
        "waystation_devices",
        Kind::Gauge,
        "Devices with data.",
        |it| devices(it, |it| it.devices as f64),
    ),
    (
        "waystation_devices_departed",
        Kind::Gauge,
        "Devices with departures that hide something still.",
        |it| devices(it, |it| it.departed as f64),
    ),
    (
        "waystation_devices_index_bytes",
        Kind::Gauge,
        "Memory of the indexes of the upper level.",
        |it| devices(it, |it| it.index_bytes as f64),
    ),
    (
        "waystation_devices_log_bytes",
        Kind::Gauge,
        "Log that devices of the upper level need.",
        |it| devices(it, |it| it.needed_log_bytes as f64),
    ),
    (
        "waystation_devices_replay_bytes",
        Kind::Gauge,
        "Log that an opening would read.",
        |it| devices(it, |it| it.replay_bytes as f64),
    ),
    (
        "waystation_devices_settled_records_total",
        Kind::Counter,
        "Records that settled into the tree.",
        |it| devices(it, |it| it.settled_records as f64),
    ),
];

/// A figure of a database of documents.
type OfDocuments = (&'static str, Kind, &'static str, fn(&DatabaseInfo) -> f64);

const OF_DOCUMENTS: [OfDocuments; 5] = [
    (
        "waystation_documents",
        Kind::Gauge,
        "Documents that are there.",
        |it| it.documents as f64,
    ),
    (
        "waystation_documents_deleted",
        Kind::Gauge,
        "Documents that were deleted, and are remembered for replicas.",
        |it| it.deleted as f64,
    ),
    (
        "waystation_documents_updates_total",
        Kind::Counter,
        "Updates of documents since the database was made.",
        |it| it.update_sequence.number() as f64,
    ),
    (
        "waystation_documents_file_bytes",
        Kind::Gauge,
        "Files of the database.",
        |it| it.file_bytes as f64,
    ),
    (
        "waystation_documents_active_bytes",
        Kind::Gauge,
        "Tables that hold something of the database.",
        |it| it.active_bytes as f64,
    ),
];

fn devices(stats: &Stats, figure: fn(&waystation::DeviceStats) -> f64) -> f64 {
    stats.devices.as_ref().map_or(0.0, figure)
}

/// All figures as text.
pub(super) fn text(app: &App) -> String {
    let mut out = Exposition::default();
    of_process(app, &mut out);
    of_http(app, &mut out);
    let gateway = &app.settings.gateway;
    for readings in &gateway.readings {
        of_database(app, readings, &mut out);
    }
    of_documents(app, &mut out);
    for part in &gateway.parts {
        part.measure(&mut out);
    }
    out.into_text()
}

fn of_process(app: &App, out: &mut Exposition) {
    let figures = [
        (
            "process_resident_memory_bytes",
            Kind::Gauge,
            "Memory of the process that is in use.",
            process::resident_bytes(),
        ),
        (
            "process_cpu_seconds_total",
            Kind::Counter,
            "Time on processors.",
            process::cpu_seconds(),
        ),
        (
            "process_open_fds",
            Kind::Gauge,
            "Open files and sockets.",
            process::open_files(),
        ),
        (
            "waystation_uptime_seconds",
            Kind::Gauge,
            "Since the server started.",
            Some(app.stats.uptime_seconds() as f64),
        ),
    ];
    for (name, kind, help, value) in figures {
        if let Some(value) = value {
            out.add((name, kind, help), &[], value);
        }
    }
    let info = (
        "waystation_build_info",
        Kind::Gauge,
        "The version, as a label.",
    );
    out.add(info, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
}

fn of_http(app: &App, out: &mut Exposition) {
    let counts = app.stats.counts();
    let requests = (
        "waystation_http_requests_total",
        Kind::Counter,
        "Requests by method.",
    );
    for (method, count) in &counts.methods {
        out.add(requests, &[("method", method)], *count as f64);
    }
    let answers = (
        "waystation_http_responses_total",
        Kind::Counter,
        "Answers by status.",
    );
    for (status, count) in &counts.statuses {
        out.add(answers, &[("status", &status.to_string())], *count as f64);
    }
}

fn of_database(app: &App, readings: &Readings, out: &mut Exposition) {
    let (stats, counts) = (readings.db().stats(), readings.counts());
    let database = ("database", readings.name());
    for (name, kind, help, figure) in FIGURES {
        out.add((name, kind, help), &[database], figure(&stats));
    }
    let counters = [
        (
            "waystation_readings_written_total",
            "Readings written by MQTT and HTTP.",
            counts.readings,
        ),
        (
            "waystation_readings_written_bytes_total",
            "Keys and values of these readings.",
            counts.bytes,
        ),
        (
            "waystation_readings_batches_total",
            "Batches of these readings.",
            counts.batches,
        ),
        (
            "waystation_departures_total",
            "Departures by MQTT and HTTP.",
            counts.departures,
        ),
    ];
    for (name, help, value) in counters {
        out.add((name, Kind::Counter, help), &[database], value as f64);
    }
    if let Some(ratio) = status::write_amplification(app, readings.name(), &stats) {
        let help = "Bytes written to storage for each byte of the log since the server started.";
        out.add(
            ("waystation_write_amplification", Kind::Gauge, help),
            &[database],
            ratio,
        );
    }
    of_tree(database, &stats, out);
    of_storage(database, &stats, out);
    of_fast(database, stats.placement.as_ref(), out);
}

/// A database that was deleted meanwhile, or has a shard on a drive that does not answer, is left out: the others count.
fn of_documents(app: &App, out: &mut Exposition) {
    let open = app.catalogue.open_databases();
    let figures: Vec<(String, DatabaseInfo)> = open
        .iter()
        .filter_map(|it| Some((it.name().to_owned(), it.info().ok()?)))
        .collect();
    for (name, kind, help, figure) in OF_DOCUMENTS {
        for (database, info) in &figures {
            out.add((name, kind, help), &[("database", database)], figure(info));
        }
    }
}

fn of_tree(database: (&str, &str), stats: &Stats, out: &mut Exposition) {
    for (level, figures) in stats.tree.levels.iter().enumerate() {
        let level = level.to_string();
        let labels = [database, ("level", level.as_str())];
        let bytes = ("waystation_level_bytes", Kind::Gauge, "Tables of a level.");
        out.add(bytes, &labels, figures.bytes as f64);
        let tables = (
            "waystation_level_tables",
            Kind::Gauge,
            "Number of tables of a level.",
        );
        out.add(tables, &labels, figures.tables as f64);
        let merged = (
            "waystation_compaction_written_bytes_total",
            Kind::Counter,
            "Bytes that compactions wrote, by level.",
        );
        out.add(merged, &labels, figures.merges.written_bytes as f64);
    }
}

fn of_storage(database: (&str, &str), stats: &Stats, out: &mut Exposition) {
    for area in &stats.storage {
        let name = format!("{:?}", area.area).to_lowercase();
        let labels = [database, ("area", name.as_str())];
        let written = (
            "waystation_storage_written_bytes_total",
            Kind::Counter,
            "Bytes written to storage, by area.",
        );
        out.add(written, &labels, area.meter.written_bytes as f64);
        let read = (
            "waystation_storage_read_bytes_total",
            Kind::Counter,
            "Bytes read from storage, by area.",
        );
        out.add(read, &labels, area.meter.read_bytes as f64);
        let syncs = (
            "waystation_storage_syncs_total",
            Kind::Counter,
            "Syncs, by area.",
        );
        out.add(syncs, &labels, area.meter.syncs as f64);
    }
    let memory = stats.memory;
    let parts = [
        ("ring", memory.ring_bytes),
        ("memtables", memory.memtable_bytes),
        ("indexes", memory.index_bytes),
        ("tables", memory.table_bytes),
        ("graves", memory.grave_bytes),
        ("placement", memory.placement_bytes),
        ("cache", memory.cached_bytes),
    ];
    let memory = (
        "waystation_memory_bytes",
        Kind::Gauge,
        "Memory of a database, by what takes it.",
    );
    add_parts(memory, database, &parts, out);
}

/// A figure in bytes that has parts.
fn add_parts(
    figure: (&'static str, Kind, &'static str),
    database: (&str, &str),
    parts: &[(&str, u64)],
    out: &mut Exposition,
) {
    for (part, bytes) in parts {
        out.add(figure, &[database, ("part", part)], *bytes as f64);
    }
}

/// The fast directory; all is zero without one.
fn of_fast(database: (&str, &str), placement: Option<&PlacementStats>, out: &mut Exposition) {
    let log = placement.and_then(|it| it.log);
    let tables = placement.and_then(|it| it.tables);
    let parts = [
        ("copies", placement.map_or(0, |it| it.placed_bytes)),
        ("log", log.map_or(0, |it| it.segment_bytes)),
        ("ring", log.map_or(0, |it| it.ring_bytes)),
        ("tables", tables.map_or(0, |it| it.table_bytes)),
    ];
    let placed = (
        "waystation_fast_placed_bytes",
        Kind::Gauge,
        "What lies in the fast directory: copies of blocks, segments of the log, its ring, tables.",
    );
    add_parts(placed, database, &parts, out);
    let areas = placement.map_or(&[][..], |it| &it.areas);
    let sum = |of: fn(&AreaPlacement) -> f64| areas.iter().map(of).sum::<f64>();
    let figures = [
        (
            "waystation_fast_reads_total",
            "Reads that the fast directory served.",
            sum(|it| it.fast_reads as f64),
        ),
        (
            "waystation_fast_slow_reads_total",
            "Reads that the device of the main directory served, beside a fast one.",
            sum(|it| it.slow_reads as f64),
        ),
        (
            "waystation_fast_saved_seconds_total",
            "Time that the fast directory has saved readers.",
            sum(|it| it.saved_seconds),
        ),
    ];
    for (name, help, value) in figures {
        out.add((name, Kind::Counter, help), &[database], value);
    }
}
