//! The checkpoint of the device table: the file `DEVICES`.
//!
//! ```text
//! magic          8 bytes   "WSDEVICE"
//! format         u32       2, or 3 with what is marked so; never reuse a number
//! extractor      string    its name
//! complete       u8        1: nothing was ever written to the directory without the extractor
//! begun after    u64       records up to this sequence number were written before there was one
//! released       u64       records up to this sequence number are not needed any more
//! clock          u64       the residency clock (microseconds)
//! engine         16 bytes  its identity towards other engines
//! devices        u32 count, then per device:
//!   prefix       string
//!   state        u8        bit 0: its writes go to the memtable; bit 1: the tree may hold something of it;
//!                          bit 2: it is in the upper level; bit 3: it is frozen; bit 4: it was handed on to us;
//!                          (3: bit 5: the tree may hold something that it came with, while it is in the upper level)
//!   lower since  u64       with bit 0: the switch
//!   covering     varint count, then varints
//!   settled      varint records, varint bytes
//!   residency         with bit 2: u64 first sequence number, u64 arrival by the residency clock (microseconds)
//!   frozen       with bit 3: u64 ticket, u8 promise, string destination
//!   tenure       with bit 4: varint
//! stubs          u32 count, then per stub, the oldest first:
//!                string prefix, u64 since when (sequence number), u64 ticket, string destination
//! received       u32 count, then per source and name under which it knows us:
//!                16 bytes source, string name, u64 finished below, (3: open, a list as in a hand-off stream,)
//!                u32 count of tickets, then per ticket:
//!                its fields as in a hand-off stream, u8 whether it was admitted, with that three u64 what came
//! checksum       u32       masked crc32c of everything before
//! ```
//!
//! Integers are little-endian, a string is a varint length and its bytes. It is replaced as a whole (temporary
//! file, sync, rename, directory sync), and only after the log is durable through everything it tells of. Before
//! a part of the log is released, a checkpoint is durable that says so in `released`.

use super::covering::CoveringSequences;
use super::handoff::Frozen;
use super::ledger::Ledger;
use super::residency::Residency;
use super::table::{DeviceState, DeviceTable};
use crate::directory::{CHECKPOINT_NAME, read_file};
use crate::error::{Error, Result};
use crate::options::Extractor;
use crate::storage::{Duty, Storage, as_micros};
use std::path::Path;
use std::time::Duration;
use waystation_format::FormatError;
use waystation_format::checksum::{crc32c, mask};
use waystation_format::handoff::EngineId;
use waystation_format::key::MAX_SEQUENCE;
use waystation_format::varint::{Reader, put_length_prefixed, put_u64};

const MAGIC: &[u8; 8] = b"WSDEVICE";
const FORMAT: u32 = 2;
const FORMAT_WITH_MORE: u32 = 3;
const LOWER: u8 = 1;
const IN_TREE: u8 = 2;
const UPPER: u8 = 4;
const FROZEN: u8 = 8;
const CAME: u8 = 16;
const MIXED: u8 = 32;

/// What the file says of the directory as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Directory {
    /// What names the device of a key.
    pub(crate) extractor: Extractor,
    /// Whether nothing was ever written to the directory without it.
    pub(crate) is_complete: bool,
    /// Records up to this sequence number were written before there was one.
    pub(crate) begun_after: u64,
    /// Records up to this sequence number are not needed any more.
    pub(crate) released: u64,
    /// The reading of the residency clock.
    pub(crate) clock: Duration,
    /// Its identity towards other engines.
    pub(crate) engine: EngineId,
}

/// What the file says.
pub(crate) struct Saved {
    pub(crate) directory: Directory,
    pub(crate) devices: Vec<SavedDevice>,
    pub(crate) ledger: Ledger,
}

/// What the file says of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SavedDevice {
    pub(crate) prefix: Vec<u8>,
    pub(crate) lower_since: Option<u64>,
    pub(crate) in_tree: bool,
    pub(crate) covering: CoveringSequences,
    pub(crate) settled: (u64, u64),
    /// First sequence number and arrival of its residency in the upper level.
    pub(crate) residency: Option<(u64, Duration)>,
    pub(crate) frozen: Option<Frozen>,
    pub(crate) tenure: u64,
    /// Whether the tree may hold something that its residency came with.
    pub(crate) is_mixed: bool,
}

/// Why a file is no checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CheckpointError {
    /// Offset and reason.
    Damaged(u64, &'static str),
    /// Its format, or its extractor, is not known to this version.
    Newer(String),
}

impl From<FormatError> for CheckpointError {
    fn from(error: FormatError) -> Self {
        Self::Damaged(error.offset(), error.reason())
    }
}

impl SavedDevice {
    fn of(prefix: &[u8], state: &DeviceState) -> Self {
        let current = state.current.as_deref();
        let residency =
            current.filter(|residency| residency.has_begun() && state.lower_since.is_none());
        // A residency that is about to settle is, until it has, one of the upper level: its switch is in the log.
        let pending = current.filter(|_| state.lower_since.is_some());
        let of_residency =
            |residency: &Residency| (residency.first_sequence(), residency.arrival());
        Self {
            prefix: prefix.to_vec(),
            lower_since: state.lower_since.filter(|_| pending.is_none()),
            in_tree: state.in_tree,
            covering: state.covering.clone(),
            settled: (state.settled_records, state.settled_bytes),
            residency: residency.or(pending).map(of_residency),
            frozen: state.frozen.clone(),
            tenure: state.tenure,
            is_mixed: current.is_some_and(Residency::is_mixed),
        }
    }

    /// As the table keeps it; the residency comes back with the log.
    pub(crate) fn state(&self) -> DeviceState {
        DeviceState {
            lower_since: self.lower_since,
            in_tree: self.in_tree,
            covering: self.covering.clone(),
            settled_records: self.settled.0,
            settled_bytes: self.settled.1,
            frozen: self.frozen.clone(),
            tenure: self.tenure,
            ..DeviceState::default()
        }
    }
}

/// What a new file has to say of the devices; they are looked at as `duty` lets it.
pub(crate) fn saved_devices(table: &DeviceTable, duty: &Duty<'_>) -> Vec<SavedDevice> {
    let devices = table.all();
    let save = |device: &super::table::Device| {
        duty.pause();
        device.with_state(|state| {
            let is_known = !state.is_empty();
            is_known.then(|| SavedDevice::of(device.prefix(), state))
        })
    };
    devices.iter().filter_map(|device| save(device)).collect()
}

/// The bytes of the file.
pub(crate) fn encode<'a>(
    directory: &Directory,
    devices: impl ExactSizeIterator<Item = &'a SavedDevice>,
    ledger: &Ledger,
) -> Vec<u8> {
    let mut out = Vec::from(MAGIC);
    let format_at = out.len();
    out.extend_from_slice(&FORMAT.to_le_bytes());
    put_length_prefixed(&mut out, directory.extractor.to_string().as_bytes());
    out.push(u8::from(directory.is_complete));
    for number in [
        directory.begun_after,
        directory.released,
        as_micros(directory.clock),
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&directory.engine.0);
    out.extend_from_slice(&(devices.len() as u32).to_le_bytes());
    let mut has_more = false;
    for device in devices {
        put_device(&mut out, device);
        has_more |= device.is_mixed;
    }
    if ledger.put(&mut out, has_more) {
        let format = &mut out[format_at..format_at + size_of::<u32>()];
        format.copy_from_slice(&FORMAT_WITH_MORE.to_le_bytes());
    }
    let checksum = mask(crc32c(&out));
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

fn put_device(out: &mut Vec<u8>, device: &SavedDevice) {
    put_length_prefixed(out, &device.prefix);
    let mut bits = 0;
    for (bit, is_set) in [
        (LOWER, device.lower_since.is_some()),
        (IN_TREE, device.in_tree),
        (UPPER, device.residency.is_some()),
        (FROZEN, device.frozen.is_some()),
        (CAME, device.tenure > 0),
        (MIXED, device.is_mixed),
    ] {
        bits |= if is_set { bit } else { 0 };
    }
    out.push(bits);
    if let Some(sequence) = device.lower_since {
        out.extend_from_slice(&sequence.to_le_bytes());
    }
    put_u64(out, device.covering.as_slice().len() as u64);
    for covering in device.covering.as_slice() {
        put_u64(out, *covering);
    }
    put_u64(out, device.settled.0);
    put_u64(out, device.settled.1);
    if let Some((sequence, arrival)) = device.residency {
        out.extend_from_slice(&sequence.to_le_bytes());
        out.extend_from_slice(&as_micros(arrival).to_le_bytes());
    }
    if let Some(frozen) = &device.frozen {
        out.extend_from_slice(&frozen.ticket.to_le_bytes());
        out.push(u8::from(frozen.survives_power_loss));
        put_length_prefixed(out, frozen.destination.as_bytes());
    }
    if device.tenure > 0 {
        put_u64(out, device.tenure);
    }
}

/// Reads the file.
pub(crate) fn decode(bytes: &[u8]) -> Result<Saved, CheckpointError> {
    let damaged = |reason| CheckpointError::Damaged(0, reason);
    let Some((covered, checksum)) = bytes.split_last_chunk::<4>() else {
        return Err(damaged("it is shorter than its checksum"));
    };
    let Some(fields) = covered.strip_prefix(MAGIC) else {
        return Err(damaged("it does not begin with its magic number"));
    };
    if mask(crc32c(covered)) != u32::from_le_bytes(*checksum) {
        return Err(damaged("its checksum does not match"));
    }
    let mut reader = Reader::new(fields);
    let format = reader.fixed_u32("format")?;
    if !(FORMAT..=FORMAT_WITH_MORE).contains(&format) {
        return Err(CheckpointError::Newer(format!("it has format {format}")));
    }
    let name = String::from_utf8_lossy(reader.length_prefixed("extractor")?).into_owned();
    let extractor = name
        .parse()
        .map_err(|_| CheckpointError::Newer(format!("it names the extractor {name}")))?;
    let directory = Directory {
        extractor,
        is_complete: reader.u8("completeness")? == 1,
        begun_after: sequence(reader.fixed_u64("first sequence number")?)?,
        released: sequence(reader.fixed_u64("released sequence number")?)?,
        clock: Duration::from_micros(reader.fixed_u64("clock")?),
        engine: EngineId::from_bytes(reader.take(16, "engine")?),
    };
    let mut devices = Vec::new();
    for _ in 0..reader.fixed_u32("count of devices")? {
        devices.push(take_device(&mut reader)?);
    }
    let ledger = Ledger::take(&mut reader, format == FORMAT_WITH_MORE)?;
    if !reader.is_empty() {
        return Err(damaged("bytes follow its last field"));
    }
    Ok(Saved {
        directory,
        devices,
        ledger,
    })
}

fn take_device(reader: &mut Reader<'_>) -> Result<SavedDevice, FormatError> {
    let prefix = reader.length_prefixed("prefix")?.to_vec();
    let bits = reader.u8("state")?;
    let lower_since = if bits & LOWER != 0 {
        Some(sequence(reader.fixed_u64("switch")?)?)
    } else {
        None
    };
    let mut covering = Vec::new();
    for _ in 0..reader.var_u64("count of covering sequences")? {
        covering.push(sequence(reader.var_u64("covering sequence")?)?);
    }
    let settled = (
        reader.var_u64("settled records")?,
        reader.var_u64("settled bytes")?,
    );
    let residency = if bits & UPPER != 0 {
        let first = sequence(reader.fixed_u64("first sequence number of a residency")?)?;
        let arrival = Duration::from_micros(reader.fixed_u64("arrival")?);
        Some((first, arrival))
    } else {
        None
    };
    let frozen = if bits & FROZEN != 0 {
        Some(take_frozen(reader)?)
    } else {
        None
    };
    let tenure = if bits & CAME != 0 {
        reader.var_u64("tenure")?
    } else {
        0
    };
    Ok(SavedDevice {
        prefix,
        lower_since,
        in_tree: bits & IN_TREE != 0,
        covering: CoveringSequences::from(covering),
        settled,
        residency,
        frozen,
        tenure,
        is_mixed: bits & MIXED != 0,
    })
}

fn take_frozen(reader: &mut Reader<'_>) -> Result<Frozen, FormatError> {
    let ticket = reader.fixed_u64("ticket")?;
    let survives_power_loss = reader.u8("promise")? == 1;
    let offset = reader.offset() as u64;
    let destination = std::str::from_utf8(reader.length_prefixed("destination")?);
    Ok(Frozen {
        ticket,
        destination: destination
            .map_err(|_| FormatError::Malformed {
                offset,
                reason: "a destination is no text",
            })?
            .into(),
        survives_power_loss,
        digest: None,
    })
}

/// A sequence number as there can be one.
pub(super) fn sequence(number: u64) -> Result<u64, FormatError> {
    if number > MAX_SEQUENCE {
        return Err(FormatError::Malformed {
            offset: 0,
            reason: "it names a sequence number past the last there can be",
        });
    }
    Ok(number)
}

/// Reads the device table's checkpoint; `None` if there is none.
pub(crate) fn read(storage: &dyn Storage, dir: &Path) -> Result<Option<Saved>> {
    let path = dir.join(CHECKPOINT_NAME);
    let content = match read_file(storage, &path) {
        Ok(content) => content,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    match decode(&content) {
        Ok(read) => Ok(Some(read)),
        Err(CheckpointError::Damaged(offset, reason)) => {
            Err(Error::corruption(path, offset, reason))
        }
        Err(CheckpointError::Newer(reason)) => Err(Error::Incompatible {
            path,
            reason: format!("{reason}; use the version that wrote it, or a newer one"),
        }),
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    fn sample() -> (Directory, Vec<SavedDevice>) {
        let directory = Directory {
            extractor: Extractor::until(b':'),
            is_complete: true,
            begun_after: 3,
            released: 900,
            clock: Duration::from_micros(1_234_567),
            engine: EngineId([5; 16]),
        };
        let device = |prefix: &[u8]| SavedDevice {
            prefix: prefix.to_vec(),
            lower_since: None,
            in_tree: false,
            covering: CoveringSequences::default(),
            settled: (0, 0),
            residency: None,
            frozen: None,
            tenure: 0,
            is_mixed: false,
        };
        let devices = vec![
            SavedDevice {
                residency: Some((1000, Duration::from_secs(1))),
                frozen: Some(Frozen {
                    ticket: 1010,
                    destination: "edge-2".into(),
                    survives_power_loss: true,
                    digest: None,
                }),
                tenure: 3,
                ..device(b"a:")
            },
            SavedDevice {
                lower_since: Some(77),
                in_tree: true,
                covering: CoveringSequences::from(vec![20, 40]),
                settled: (12, 12_000),
                ..device(b"b:")
            },
        ];
        (directory, devices)
    }

    #[test]
    fn a_checkpoint_is_read_back_and_damage_is_seen() {
        let (directory, devices) = sample();
        let bytes = encode(&directory, devices.iter(), &Ledger::default());
        let saved = decode(&bytes).expect("decode");
        assert_eq!((saved.directory, saved.devices), (directory, devices));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            assert!(decode(&damaged).is_err(), "a flip at {at}");
            assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
        }
    }
}
