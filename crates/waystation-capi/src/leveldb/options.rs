//! Options: how a database is opened, read and written.

use super::{
    leveldb_cache_t, leveldb_comparator_t, leveldb_env_t, leveldb_filterpolicy_t, leveldb_logger_t,
    leveldb_snapshot_t,
};
use crate::memory::{hand_out, take_back};
use crate::status::Failure;
use std::ffi::c_int;
use std::ptr::null;
use std::time::Duration;
use waystation::{Compression, DeviceOptions, Durability, Extractor, FastTier, Options, Snapshot};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
/// What Waystation takes for a cache.
const CACHE_BYTES_MAX: usize = 1 << 40;
/// What LevelDB keeps of `max_open_files` for other files than tables.
const OTHER_FILES: usize = 10;

/// How a database is opened. What is not set is as Waystation likes it.
pub struct leveldb_options_t {
    engine: Options,
    compression: c_int,
    /// Borrowed: live until the database is closed.
    comparator: *const leveldb_comparator_t,
    pub(crate) extractor: Option<Extractor>,
    pub(crate) residency: Option<Duration>,
}

impl leveldb_options_t {
    /// Has copies kept in a directory on a faster device.
    pub(crate) fn set_fast(&mut self, fast: FastTier) {
        self.engine.fast = Some(fast);
    }

    /// Says whether that directory is durable.
    pub(crate) fn set_fast_durable(&mut self, is_durable: bool) {
        if let Some(fast) = &mut self.engine.fast {
            fast.durable = is_durable;
        }
    }

    /// What the engine is opened with.
    pub(crate) fn to_engine(&self) -> Result<Options, Failure> {
        let mut options = self.engine.clone();
        // SAFETY: a comparator that was set lives as long as the options are used, as the header demands.
        if let Some(comparator) = unsafe { self.comparator.as_ref() } {
            options.order = comparator.order()?;
        }
        options.compression = match self.compression {
            0 => Compression::None,
            1 => Compression::Snappy,
            2 => Compression::Zstd,
            unknown => {
                return Err(Failure::not_implemented(format!(
                    "there is no compression {unknown}; use 0 (none), 1 (snappy) or 2 (zstd)"
                )));
            }
        };
        if let Some(extractor) = self.extractor {
            let mut devices = DeviceOptions::new(extractor);
            devices.residency = self.residency.unwrap_or(devices.residency);
            options.devices = Some(devices);
        }
        Ok(options)
    }
}

/// Options as LevelDB has them: no database is created unless that is asked for.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_options_create() -> *mut leveldb_options_t {
    let engine = Options {
        create_if_missing: false,
        ..Options::default()
    };
    hand_out(leveldb_options_t {
        engine,
        compression: 1,
        comparator: null(),
        extractor: None,
        residency: None,
    })
}

/// Gives options back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_destroy(options: *mut leveldb_options_t) {
    // SAFETY: the handle is `leveldb_options_create`'s and not used again.
    drop(unsafe { take_back(options) });
}

/// Orders keys otherwise than by their bytes; null for that. The comparator must live until the database is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_comparator(
    options: *mut leveldb_options_t,
    comparator: *mut leveldb_comparator_t,
) {
    // SAFETY: the handle is live.
    unsafe { (*options).comparator = comparator }
}

/// Sets the bits a key of filters. Another policy than Bloom's leaves Waystation's filters as they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_filter_policy(
    options: *mut leveldb_options_t,
    policy: *mut leveldb_filterpolicy_t,
) {
    // SAFETY: the options are live, and so is the policy, or null.
    unsafe {
        let bits = policy.as_ref().and_then(|policy| policy.bits_per_key);
        (*options).engine.filter_bits_per_key =
            bits.unwrap_or(Options::default().filter_bits_per_key);
    }
}

/// Whether a database is created where there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_create_if_missing(
    options: *mut leveldb_options_t,
    yes: u8,
) {
    // SAFETY: the handle is live.
    unsafe { (*options).engine.create_if_missing = yes != 0 }
}

/// Whether opening a database that exists is an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_error_if_exists(
    options: *mut leveldb_options_t,
    yes: u8,
) {
    // SAFETY: the handle is live.
    unsafe { (*options).engine.error_if_exists = yes != 0 }
}

/// Everything is checked always.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_paranoid_checks(_: *mut leveldb_options_t, _: u8) {}

/// There is the default environment alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_env(_: *mut leveldb_options_t, _: *mut leveldb_env_t) {
}

/// Nobody can make a logger through this interface.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_info_log(
    _: *mut leveldb_options_t,
    _: *mut leveldb_logger_t,
) {
}

/// Sets the size of a memtable (64 KiB to 1 GiB).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_write_buffer_size(
    options: *mut leveldb_options_t,
    size: usize,
) {
    // SAFETY: the handle is live.
    unsafe { (*options).engine.memtable_bytes = size.clamp(64 * KIB, 1024 * MIB) }
}

/// Sets how many files are kept open (74 to 50,000).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_max_open_files(
    options: *mut leveldb_options_t,
    files: c_int,
) {
    let files = usize::try_from(files)
        .unwrap_or(0)
        .clamp(64 + OTHER_FILES, 50_000);
    // SAFETY: the handle is live.
    unsafe { (*options).engine.max_open_tables = files - OTHER_FILES }
}

/// Sets the size of the cache of blocks (up to 1 TiB), which each database has for itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_cache(
    options: *mut leveldb_options_t,
    cache: *mut leveldb_cache_t,
) {
    // SAFETY: the options are live, and so is the cache, or null.
    unsafe {
        (*options).engine.cache_bytes = match cache.as_ref() {
            Some(cache) => cache.bytes.min(CACHE_BYTES_MAX),
            None => Options::default().cache_bytes,
        }
    }
}

/// Sets the size of a block (1 KiB to 4 MiB).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_block_size(
    options: *mut leveldb_options_t,
    size: usize,
) {
    // SAFETY: the handle is live.
    unsafe { (*options).engine.block_bytes = size.clamp(KIB, 4 * MIB) }
}

/// Restarts are every 16 entries.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_block_restart_interval(
    _: *mut leveldb_options_t,
    _: c_int,
) {
}

/// Sets the size of a table (1 MiB to 1 GiB).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_max_file_size(
    options: *mut leveldb_options_t,
    size: usize,
) {
    // SAFETY: the handle is live.
    unsafe { (*options).engine.table_bytes = size.clamp(MIB, 1024 * MIB) }
}

/// Sets how blocks are compressed: 0 not at all, 1 by snappy, 2 by zstd.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_options_set_compression(
    options: *mut leveldb_options_t,
    compression: c_int,
) {
    // SAFETY: the handle is live.
    unsafe { (*options).compression = compression }
}

/// How a database is read.
pub struct leveldb_readoptions_t {
    /// Borrowed: live for as long as it is set.
    pub(crate) snapshot: *const leveldb_snapshot_t,
}

impl leveldb_readoptions_t {
    /// The snapshot to read at, held once more.
    ///
    /// # Safety
    /// The snapshot that was set is live.
    pub(crate) unsafe fn held_snapshot(&self) -> Option<Snapshot> {
        // SAFETY: by the contract of this function.
        unsafe { self.snapshot.as_ref() }.map(|held| held.snapshot.clone())
    }
}

/// Options to read the present.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_readoptions_create() -> *mut leveldb_readoptions_t {
    hand_out(leveldb_readoptions_t { snapshot: null() })
}

/// Gives options back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_destroy(options: *mut leveldb_readoptions_t) {
    // SAFETY: the handle is `leveldb_readoptions_create`'s and not used again.
    drop(unsafe { take_back(options) });
}

/// Checksums are verified always.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_verify_checksums(
    _: *mut leveldb_readoptions_t,
    _: u8,
) {
}

/// What goes through the cache is Waystation's to decide: long scans leave it alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_fill_cache(_: *mut leveldb_readoptions_t, _: u8) {}

/// Reads at a snapshot; null for the present.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_readoptions_set_snapshot(
    options: *mut leveldb_readoptions_t,
    snapshot: *const leveldb_snapshot_t,
) {
    // SAFETY: the handle is live.
    unsafe { (*options).snapshot = snapshot }
}

/// How a database is written.
pub struct leveldb_writeoptions_t {
    pub(crate) sync: bool,
}

impl leveldb_writeoptions_t {
    /// What a write must survive.
    pub(crate) fn durability(&self) -> Durability {
        if self.sync {
            Durability::PowerLoss
        } else {
            Durability::ProcessCrash
        }
    }
}

/// Options for writes that survive the process.
#[unsafe(no_mangle)]
pub extern "C" fn leveldb_writeoptions_create() -> *mut leveldb_writeoptions_t {
    hand_out(leveldb_writeoptions_t { sync: false })
}

/// Gives options back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_destroy(options: *mut leveldb_writeoptions_t) {
    // SAFETY: the handle is `leveldb_writeoptions_create`'s and not used again.
    drop(unsafe { take_back(options) });
}

/// Whether writes survive a power loss too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn leveldb_writeoptions_set_sync(
    options: *mut leveldb_writeoptions_t,
    yes: u8,
) {
    // SAFETY: the handle is live.
    unsafe { (*options).sync = yes != 0 }
}
