//! Devices as plain data, read from TOML, with presets.
//!
//! ```toml
//! [slow]
//! kind = "disk"
//! span = "60GiB"            # the part of the disk that the seek curve covers
//! seek_min_us = 1000        # to a neighbouring track
//! seek_sqrt_us = 14000      # more for a seek over the whole span, growing with the square root
//! rotation_us = 8333
//! bandwidth = "100MB"       # per second, at the media
//! read_ahead = "256KiB"     # a read this close behind the last one streams
//! write_cache = "8MiB"      # 0: every write waits for the media
//! queue_depth = 32          # requests among which the nearest is chosen
//! command_us = 150          # the controller, per operation on the media
//! path_us = 180             # software and bus, per request
//! path_bandwidth = "1GB"    # and per byte
//!
//! [fast]
//! kind = "flash"
//! read_us = 0
//! write_us = 0
//! flush_us = 0
//! read_bandwidth = "10GB"
//! write_bandwidth = "10GB"
//! channels = 32
//! path_us = 130
//! path_bandwidth = "1GB"
//!
//! [layout]                  # where each area begins on the slow device; absent: one after the other
//! fs = "0"
//! journal = "30GiB"
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, Result};
use crate::text::read_text;
use crate::units::parse_bytes;

/// No step of a device takes longer: an hour.
const TIME_US_MAX: f64 = 3.6e9;

/// A size that reads "8MiB" as well as 8388608.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u64),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(bytes) => Ok(Self(bytes)),
            Either::Text(text) => parse_bytes(&text)
                .map(Self)
                .map_err(serde::de::Error::custom),
        }
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

/// A rotating disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskModel {
    /// Bytes that the seek curve covers.
    pub span: Size,
    /// Shortest seek, in microseconds.
    pub seek_min_us: f64,
    /// What a seek over the whole span takes more; grows with the square root of the distance.
    pub seek_sqrt_us: f64,
    /// One revolution.
    pub rotation_us: f64,
    /// Bytes a second at the media.
    pub bandwidth: Size,
    /// A read that begins at most this far behind the end of the last one streams on.
    pub read_ahead: Size,
    /// Bytes of volatile write cache; 0 for none.
    pub write_cache: Size,
    /// Requests among which the nearest is served first.
    pub queue_depth: u32,
    /// The controller's own time for each operation on the media, in microseconds.
    pub command_us: f64,
    /// Software and bus per request, in microseconds.
    pub path_us: f64,
    /// Software and bus per byte, as bytes a second.
    pub path_bandwidth: Size,
}

/// A device without moving parts: SSD, NVM, memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlashModel {
    /// Latency of a read, in microseconds.
    pub read_us: f64,
    /// Latency of a write.
    pub write_us: f64,
    /// Cost of a flush.
    pub flush_us: f64,
    /// Bytes a second, read.
    pub read_bandwidth: Size,
    /// Bytes a second, written.
    pub write_bandwidth: Size,
    /// Requests served at once.
    pub channels: u32,
    /// After this many bytes written the device pauses to collect garbage; 0 for never.
    #[serde(default = "zero")]
    pub pause_every: Size,
    /// How long it pauses, in microseconds.
    #[serde(default)]
    pub pause_us: f64,
    /// Software and bus per request, in microseconds.
    pub path_us: f64,
    /// Software and bus per byte, as bytes a second.
    pub path_bandwidth: Size,
}

fn zero() -> Size {
    Size(0)
}

/// Either kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum DeviceModel {
    /// A rotating disk.
    Disk(DiskModel),
    /// Anything without moving parts.
    Flash(FlashModel),
}

/// The devices of one simulation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Where everything is today. Its areas share it.
    pub slow: DeviceModel,
    /// The little fast storage.
    pub fast: DeviceModel,
    /// First byte of each area on the slow device, by name.
    #[serde(default)]
    pub layout: BTreeMap<String, Size>,
}

const GIB: u64 = 1 << 30;

/// The names of the presets of [`DeviceModel::preset`].
pub const PRESETS: [&str; 10] = [
    "lab-disk", "lab-nvm", "hdd", "sata-ssd", "nvme", "pcm", "optane", "nvdimm", "cxl", "ramdisk",
];

fn flash(
    read_us: f64,
    write_us: f64,
    flush_us: f64,
    read_mb: u64,
    write_mb: u64,
    channels: u32,
    path_us: f64,
) -> DeviceModel {
    DeviceModel::Flash(FlashModel {
        read_us,
        write_us,
        flush_us,
        read_bandwidth: Size(read_mb * 1_000_000),
        write_bandwidth: Size(write_mb * 1_000_000),
        channels,
        pause_every: Size(0),
        pause_us: 0.0,
        path_us,
        path_bandwidth: Size(8_000_000_000),
    })
}

impl DeviceModel {
    /// A device as the command line names it: a preset, or the slow device of a file.
    ///
    /// # Errors
    /// [`Error::Usage`] if it is neither, and the errors of [`Machine::from_file`].
    pub fn named(name: &str) -> Result<Self> {
        match Self::preset(name) {
            Some(model) => Ok(model),
            None if Path::new(name).exists() => Ok(Machine::from_file(Path::new(name))?.slow),
            None => Err(Error::Usage(format!(
                "\"{name}\" is neither a file nor a device preset; there are {}",
                PRESETS.join(", ")
            ))),
        }
    }

    /// A device by name. "lab-disk" and "lab-nvm" are what the laboratory emulates, path included; the others are
    /// typical data-sheet figures.
    pub fn preset(name: &str) -> Option<Self> {
        let lab_disk = DiskModel {
            span: Size(60 * GIB),
            seek_min_us: 1_000.0,
            seek_sqrt_us: 14_000.0,
            rotation_us: 8_333.0,
            bandwidth: Size(100_000_000),
            read_ahead: Size(256 << 10),
            write_cache: Size(8 << 20),
            queue_depth: 32,
            // These two are fitted to the recorded latencies of one application (SQLite, data=ordered): the
            // median of its small cached writes, and what the median of its reads takes more than the arm does.
            command_us: 150.0,
            path_us: 180.0,
            path_bandwidth: Size(1_000_000_000),
        };
        Some(match name {
            "lab-disk" => Self::Disk(lab_disk),
            "hdd" => Self::Disk(DiskModel {
                span: Size(1_000 * GIB),
                seek_sqrt_us: 15_000.0,
                bandwidth: Size(180_000_000),
                write_cache: Size(64 << 20),
                path_us: 20.0,
                ..lab_disk
            }),
            "lab-nvm" => {
                let mut model = flash(0.0, 0.0, 0.0, 10_000, 10_000, 32, 130.0);
                if let Self::Flash(model) = &mut model {
                    model.path_bandwidth = Size(1_000_000_000);
                }
                model
            }
            "sata-ssd" => flash(90.0, 40.0, 2_000.0, 530, 450, 8, 20.0),
            "nvme" => flash(70.0, 15.0, 30.0, 3_000, 1_500, 16, 8.0),
            "pcm" => flash(1.0, 5.0, 1.0, 1_500, 300, 8, 8.0),
            "optane" => flash(8.0, 9.0, 1.0, 2_400, 2_000, 7, 8.0),
            "nvdimm" => flash(0.3, 0.4, 0.5, 6_000, 2_000, 6, 2.0),
            "cxl" => flash(0.5, 0.5, 0.5, 20_000, 20_000, 16, 2.0),
            "ramdisk" => flash(0.1, 0.1, 0.0, 20_000, 20_000, 16, 2.0),
            _ => return None,
        })
    }

    fn check(&self, which: &str) -> Result<()> {
        let (positive, times) = match self {
            Self::Disk(model) => (
                model.span.0 > 0
                    && model.bandwidth.0 > 0
                    && model.path_bandwidth.0 > 0
                    && model.queue_depth > 0
                    && model.rotation_us > 0.0,
                vec![
                    model.seek_min_us,
                    model.seek_sqrt_us,
                    model.rotation_us,
                    model.command_us,
                    model.path_us,
                ],
            ),
            Self::Flash(model) => (
                model.read_bandwidth.0 > 0
                    && model.write_bandwidth.0 > 0
                    && model.path_bandwidth.0 > 0
                    && model.channels > 0,
                vec![
                    model.read_us,
                    model.write_us,
                    model.flush_us,
                    model.pause_us,
                    model.path_us,
                ],
            ),
        };
        // Not a number is in no range.
        if positive && times.iter().all(|time| (0.0..=TIME_US_MAX).contains(time)) {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "the model of the {which} device is not possible: bandwidths, span, rotation, channels and queue depth must be above 0, and times neither negative nor above an hour"
        )))
    }
}

impl Machine {
    /// The machine that the laboratory emulates: three areas on one spindle, fast memory beside it.
    pub fn laboratory() -> Self {
        Self::of_presets("lab-disk", "lab-nvm").unwrap_or_else(|_| unreachable!("both are presets"))
    }

    /// Two presets.
    pub fn of_presets(slow: &str, fast: &str) -> Result<Self> {
        let preset = |name: &str| {
            DeviceModel::preset(name).ok_or_else(|| {
                Error::Usage(format!(
                    "\"{name}\" is no device preset; there are {}",
                    PRESETS.join(", ")
                ))
            })
        };
        let mut layout = BTreeMap::new();
        if slow == "lab-disk" {
            for (area, gib) in [("fs", 0), ("journal", 30), ("swap", 32)] {
                layout.insert(area.to_owned(), Size(gib * GIB));
            }
        }
        Ok(Self {
            slow: preset(slow)?,
            fast: preset(fast)?,
            layout,
        })
    }

    /// Reads a machine from TOML text.
    pub fn from_toml(text: &str) -> Result<Self> {
        let machine: Self = toml::from_str(text)
            .map_err(|error| Error::Usage(format!("the device models are wrong: {error}")))?;
        machine.slow.check("slow")?;
        machine.fast.check("fast")?;
        Ok(machine)
    }

    /// Reads a machine from a TOML file.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = read_text(path).map_err(|source| Error::io("read", path, source))?;
        Self::from_toml(&text).map_err(|error| Error::Usage(format!("{}: {error}", path.display())))
    }
}

/// Nanoseconds that `bytes` take at `bandwidth` bytes a second.
pub(super) fn transfer_ns(bytes: u64, bandwidth: Size) -> u64 {
    (bytes as f64 * 1e9 / bandwidth.0 as f64) as u64
}

/// Microseconds of a model in nanoseconds.
pub(super) fn us(value: f64) -> u64 {
    (value * 1_000.0) as u64
}
