//! Settings that must not matter.

use crate::support::Random;
use std::time::Duration;
use waystation::{Compression, DeviceOptions, Extractor, Options};

/// Settings of a run.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) options: Options,
    /// Ranges are deleted key by key.
    pub(crate) key_by_key: bool,
    /// For the test of this test: writes of this key get lost.
    pub(crate) forgets: Option<Vec<u8>>,
}

impl Setting {
    /// No devices, no ranges deleted as such, and nothing is flushed unless it is asked for.
    pub(crate) fn plain() -> Self {
        Self {
            options: Options {
                memtable_bytes: 4 << 20,
                ring_bytes: 512 << 10,
                log_segment_bytes: 512 << 10,
                background_jobs: 1,
                cache_bytes: 1 << 20,
                ..Options::default()
            },
            key_by_key: true,
            forgets: None,
        }
    }

    fn with(change: impl FnOnce(&mut Options)) -> Self {
        let mut setting = Self {
            key_by_key: false,
            ..Self::plain()
        };
        change(&mut setting.options);
        setting
    }
}

fn devices(residency: Duration) -> DeviceOptions {
    DeviceOptions {
        residency,
        replay_bytes: 4 << 10,
        ..DeviceOptions::new(Extractor::until(b':'))
    }
}

/// The fixed ones, and some of `seed`'s.
pub(crate) fn all(seed: u64) -> Vec<Setting> {
    let hour = Duration::from_secs(3600);
    let mut settings = vec![
        // A memtable is full after a few writes, tables and blocks are as small as they can be.
        Setting::with(|options| {
            options.memtable_bytes = 64 << 10;
            options.table_bytes = 64 << 10;
            options.block_bytes = 1024;
            options.cache_bytes = 0;
            options.graves_bytes = 0;
        }),
        Setting::with(|options| {
            options.compression = Compression::None;
            options.filter_bits_per_key = 0;
            options.direct_io = false;
        }),
        Setting::with(|options| options.compression = Compression::Zstd),
        // Devices stay, settle as soon as they can, or are driven out by the budget.
        Setting::with(|options| options.devices = Some(devices(hour))),
        Setting::with(|options| options.devices = Some(devices(Duration::ZERO))),
        Setting::with(|options| {
            options.memtable_bytes = 64 << 10;
            options.devices = Some(DeviceOptions {
                upper_bytes: Some(64 << 10),
                ..devices(hour)
            });
        }),
        Setting::with(|options| {
            options.devices = Some(DeviceOptions {
                index_bytes: 4096,
                ..devices(hour)
            });
        }),
    ];
    let mut random = Random(!seed);
    for _ in 0..3 {
        settings.push(Setting::with(|options| {
            options.memtable_bytes = (64 << 10) << random.below(5);
            options.table_bytes = (64 << 10) << random.below(4);
            options.block_bytes = 1024 << random.below(4);
            options.ring_bytes = (256 << 10) << random.below(3);
            options.log_segment_bytes = (256 << 10) << random.below(3);
            options.cache_bytes = (random.below(3) << 16) as usize;
            options.max_open_tables = 16 << random.below(4);
            options.filter_bits_per_key = random.below(20) as u32;
            options.direct_io = random.below(2) == 0;
            options.graves_bytes = (random.below(3) << 10) as usize;
            let residency = Duration::from_millis(random.below(20));
            options.devices = (random.below(2) == 0).then(|| devices(residency));
        }));
    }
    settings
}
