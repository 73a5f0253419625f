//! A recording: around a command, or for a time.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use super::Stop;
use super::tracefs::Tracefs;
use crate::error::{Error, Result};
use crate::event::{Role, TraceInfo};
use crate::import::areas::AreaRule;
use crate::import::{AreaRules, Collector, KernelText, Rejections};
use crate::native::Writer;

/// How long to wait for events that are not there yet.
const PAUSE: Duration = Duration::from_millis(5);

/// What to record.
#[derive(Debug, Clone)]
pub struct Recording {
    /// Block devices and the areas that they are.
    pub devices: Vec<(PathBuf, String)>,
    /// Where the trace goes.
    pub output: PathBuf,
    /// The command to run; without one, the time counts.
    pub command: Vec<String>,
    /// How long; with a command, the longest it may take.
    pub time: Option<Duration>,
    /// Directory to run the command in.
    pub directory: Option<PathBuf>,
}

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The trace.
    pub info: TraceInfo,
    /// Rows of the kernel's text that were not understood.
    pub rejections: Rejections,
    /// How long the command ran, in nanoseconds.
    pub run_ns: u64,
    /// The command's exit code; none when it was ended or there was none.
    pub exit_code: Option<i32>,
}

struct Device {
    number: u32,
    rule: AreaRule,
}

/// The device as events name it: a partition's requests are reported for its whole disk.
fn device(path: &Path, area: &str) -> Result<Device> {
    let meta = std::fs::metadata(path).map_err(|source| Error::io("open", path, source))?;
    if !meta.file_type().is_block_device() {
        return Err(Error::Usage(format!(
            "{} is not a block device",
            path.display()
        )));
    }
    let (major, minor) = (
        rustix::fs::major(meta.rdev()),
        rustix::fs::minor(meta.rdev()),
    );
    let sys = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let number = |file: &str| {
        std::fs::read_to_string(sys.join(file))
            .ok()
            .and_then(|text| text.trim().parse::<u64>().ok())
    };
    let (mut device, mut range) = ((major, minor), 0..u64::MAX);
    if sys.join("partition").exists() {
        let disk = std::fs::read_to_string(sys.join("../dev")).ok();
        let parsed = disk
            .as_deref()
            .and_then(|text| text.trim().split_once(':'))
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let (Some(parent), Some(start), Some(sectors)) = (parsed, number("start"), number("size"))
        else {
            return Err(Error::Refused(format!(
                "{} is a partition whose disk cannot be found in {}",
                path.display(),
                sys.display()
            )));
        };
        device = parent;
        range = start * 512..(start + sectors) * 512;
    }
    Ok(Device {
        number: device.0 << 20 | device.1,
        rule: AreaRule {
            device: Some(format!("{}:{}", device.0, device.1)),
            from: range.start,
            to: range.end,
            area: area.to_owned(),
            role: Role::of_name(area),
        },
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "the length of a recording is wall time; nothing here is simulated"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}

/// Starts the command whose requests are recorded, if there is one.
fn start(recording: &Recording) -> Result<Option<Child>> {
    let Some((program, arguments)) = recording.command.split_first() else {
        return Ok(None);
    };
    let mut command = Command::new(program);
    command.args(arguments);
    if let Some(directory) = &recording.directory {
        command.current_dir(directory);
    }
    let child = command.spawn();
    child
        .map(Some)
        .map_err(|source| Error::io("start", Path::new(program), source))
}

/// Records until the command ends, the time is over or `stop` is asked for. What was recorded until then is kept.
pub fn record(recording: &Recording, stop: &Stop) -> Result<Recorded> {
    if recording.devices.is_empty() {
        return Err(Error::Usage(
            "name at least one device to record, for instance --device /dev/sda=fs".to_owned(),
        ));
    }
    let devices = recording
        .devices
        .iter()
        .map(|(path, area)| device(path, area))
        .collect::<Result<Vec<_>>>()?;
    let rules = AreaRules {
        rules: devices.iter().map(|device| device.rule.clone()).collect(),
    };
    let info = TraceInfo {
        source: if recording.command.is_empty() {
            "recording".to_owned()
        } else {
            recording.command.join(" ")
        },
        ..TraceInfo::default()
    };
    let mut writer = Writer::create(&recording.output, info)?;
    let numbers: Vec<_> = devices.iter().map(|device| device.number).collect();
    let mut trace = Tracefs::begin(&numbers)?;
    let mut collector = Collector::new(&mut writer, rules)?;
    let started = now();
    let mut child = start(recording)?;
    let mut lines = Lines::default();
    let mut exit_code = None;
    let mut outcome = Ok(());
    loop {
        match lines.drain(&mut trace, &mut collector) {
            Ok(0) => std::thread::sleep(PAUSE),
            Ok(_) => {}
            Err(error) => {
                outcome = Err(error);
                break;
            }
        }
        if let Some(child) = &mut child
            && let Ok(Some(status)) = child.try_wait()
        {
            exit_code = status.code();
            break;
        }
        if stop.asked() || recording.time.is_some_and(|time| started.elapsed() >= time) {
            break;
        }
    }
    let run_ns = started.elapsed().as_nanos() as u64;
    if let Some(child) = &mut child
        && exit_code.is_none()
    {
        // It has ended already, or ends now; either way it is waited for.
        let _ = child.kill();
        let _ = child.wait();
    }
    trace.stop()?;
    while outcome.is_ok() && lines.drain(&mut trace, &mut collector)? > 0 {}
    let lost = trace.lost();
    drop(trace);
    outcome?;
    collector.lost(lost);
    let rejections = collector.finish()?;
    Ok(Recorded {
        info: writer.finish()?,
        rejections,
        run_ns,
        exit_code,
    })
}

/// Bytes of the pipe into lines.
#[derive(Default)]
struct Lines {
    pending: Vec<u8>,
    number: u64,
}

impl Lines {
    /// Takes what there is; returns how many bytes that was.
    fn drain(&mut self, trace: &mut Tracefs, collector: &mut Collector<'_>) -> Result<usize> {
        let mut buffer = vec![0; 1 << 16];
        let bytes = trace.read(&mut buffer)?;
        self.pending.extend_from_slice(&buffer[..bytes]);
        let mut begin = 0;
        while let Some(length) = self.pending[begin..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.pending[begin..begin + length]).into_owned();
            begin += length + 1;
            self.number += 1;
            collector.at_line(self.number);
            if !line.trim().is_empty()
                && let Err(error) = KernelText::take(&line, collector)
            {
                collector.reject(&error);
            }
        }
        self.pending.drain(..begin);
        collector.check()?;
        Ok(bytes)
    }
}
