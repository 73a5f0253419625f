//! `record`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::arguments::Record;
use super::traces::summary;
use super::{Show, print, print_json};
use crate::error::{Error, Result};
use crate::record::rig::{self, RigRun, RigSettings, record_in_rig};
use crate::record::{Recorded, Recording, Stop, serve_emulated};
use crate::simulate::DeviceModel;
use crate::units::parse_bytes;

fn devices(texts: &[String]) -> Result<Vec<(PathBuf, String)>> {
    texts
        .iter()
        .map(|text| match text.split_once('=') {
            Some((device, area)) if !device.is_empty() && !area.is_empty() => {
                Ok((PathBuf::from(device), area.to_owned()))
            }
            _ => Err(Error::Usage(format!(
                "a device is given as DEVICE=AREA (for instance /dev/sda2=fs), not as \"{text}\""
            ))),
        })
        .collect()
}

fn duration(seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| Error::Usage(format!("{seconds} seconds are no time to record for")))
}

/// Records a running system for a time.
pub(super) fn record_for(texts: &[String], output: &Path, seconds: f64, show: Show) -> Result<()> {
    let recording = Recording {
        devices: devices(texts)?,
        output: output.to_path_buf(),
        command: Vec::new(),
        time: Some(duration(seconds)?),
        directory: None,
    };
    if !show.quiet {
        eprintln!("recording for {seconds} s");
    }
    let recorded = crate::record::record(&recording, &Stop::on_signals())?;
    if !recorded.rejections.is_empty() {
        eprintln!("{}", recorded.rejections);
    }
    Ok(())
}

pub(super) fn record(arguments: &Record, show: Show) -> Result<()> {
    if let Some(state) = &arguments.rig_keeper {
        return rig::keep(state);
    }
    if let Some(description) = &arguments.rig_emulate {
        return serve_emulated(description);
    }
    if arguments.rig_down {
        let count = rig::down_all()?;
        return print(&format!(
            "{count} laboratories were left and are down now\n"
        ));
    }
    let Some(output) = &arguments.output else {
        return Err(Error::Usage(
            "say where the trace goes with --output".to_owned(),
        ));
    };
    let time = arguments.time.map(duration).transpose()?;
    if arguments.command.is_empty() && time.is_none() {
        return Err(Error::Usage(
            "name a command to record, or a time with --time".to_owned(),
        ));
    }
    let stop = Stop::on_signals();
    let recorded = if arguments.rig {
        let settings = RigSettings {
            directory: arguments.rig_directory.clone(),
            fs_bytes: parse_bytes(&arguments.fs)?,
            journal_bytes: parse_bytes(&arguments.journal)?,
            swap_bytes: parse_bytes(&arguments.swap)?,
            memory_bytes: parse_bytes(&arguments.memory)?,
            data_mode: arguments.data.clone(),
            fast: arguments.in_memory.clone(),
            emulated: arguments
                .emulate
                .as_deref()
                .map(DeviceModel::named)
                .transpose()?,
            calibrate: false,
        };
        let prepare: Vec<String> = match &arguments.prepare {
            Some(text) => vec!["/bin/sh".to_owned(), "-c".to_owned(), text.clone()],
            None => Vec::new(),
        };
        let run = RigRun {
            prepare,
            command: arguments.command.clone(),
            output: output.clone(),
            time,
        };
        let ran = record_in_rig(&settings, &run, &stop)?;
        if ran.out_of_memory > 0 {
            eprintln!(
                "note: the command was out of memory {} times although there was swap, and got room for a moment each time; with a little more --memory it would not wait",
                ran.out_of_memory
            );
        }
        ran.recorded
    } else {
        let recording = Recording {
            devices: devices(&arguments.devices)?,
            output: output.clone(),
            command: arguments.command.clone(),
            time,
            directory: None,
        };
        crate::record::record(&recording, &stop)?
    };
    tell(output, &recorded, show)
}

fn tell(output: &Path, recorded: &Recorded, show: Show) -> Result<()> {
    if !recorded.rejections.is_empty() {
        eprintln!("{}", recorded.rejections);
    }
    if show.json {
        print_json(&recorded.info)?;
    } else {
        print(&summary(output, &recorded.info))?;
    }
    match recorded.exit_code {
        Some(code) if code != 0 => Err(Error::Refused(format!(
            "the recorded command ended with code {code}; what it did until then is in {}",
            output.display()
        ))),
        _ => Ok(()),
    }
}
