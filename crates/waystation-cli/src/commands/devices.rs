//! devices: create, list, depart; what changes databases is in its own file.

use super::{Context, handoff, open_existing, require_path};
use crate::args::{CreateDevices, DepartDevices, DevicesCommand, ListDevices};
use crate::failure::{Failure, USAGE};
use crate::notation::Style;
use crate::output::bytes_text;
use serde::Serialize;
use waystation::{Db, DeviceInfo, DeviceLevel, DeviceOptions, Extractor, Options};

/// A device, as JSON; its name in the notation asked for.
#[derive(Serialize)]
struct Listed {
    device: String,
    level: DeviceLevel,
    records: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    age_seconds: Option<f64>,
    held_stays: usize,
    departures: usize,
    tenure: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    moving_to: Option<String>,
}

pub(super) fn devices(context: &mut Context, command: DevicesCommand) -> Result<(), Failure> {
    match command {
        DevicesCommand::Create(args) => create(&args),
        DevicesCommand::List(args) => list(context, &args),
        DevicesCommand::Depart(args) => depart(&args),
        DevicesCommand::Export(args) => handoff::export(context, &args),
        DevicesCommand::Admit(args) => handoff::admit(context, &args),
        DevicesCommand::Refuse(args) => handoff::refuse(context, &args),
        DevicesCommand::End(args) => handoff::end(&args),
        DevicesCommand::Lift(args) => handoff::lift(&args),
    }
}

fn create(args: &CreateDevices) -> Result<(), Failure> {
    require_path(&args.db)?;
    let extractor: Extractor = args
        .extractor
        .parse()
        .map_err(|error| Failure::new(USAGE, format!("{}: {error}", args.extractor)))?;
    let options = Options {
        devices: Some(DeviceOptions::new(extractor)),
        ..Options::default()
    };
    Ok(Db::open(&args.db, options)?.close()?)
}

fn list(context: &mut Context, args: &ListDevices) -> Result<(), Failure> {
    let style = Style::from(args.notation);
    let db = open_existing(&args.db)?;
    let devices = db.devices().list();
    db.close()?;
    for device in devices? {
        let listed = describe(&device, style);
        if context.output.is_json() {
            context.output.json_line(&listed)?;
        } else {
            context.output.line(as_text(&listed))?;
        }
    }
    Ok(())
}

fn describe(device: &DeviceInfo, style: Style) -> Listed {
    Listed {
        device: style.show(&device.name),
        level: device.level,
        records: device.records,
        bytes: device.bytes,
        age_seconds: device.age.map(|age| age.as_secs_f64()),
        held_stays: device.held_stays,
        departures: device.departures,
        tenure: device.tenure,
        moving_to: device.moving_to.clone(),
    }
}

fn as_text(device: &Listed) -> String {
    let level = match device.level {
        DeviceLevel::Upper => "upper level",
        DeviceLevel::Settling => "settling",
        DeviceLevel::Tree => "tree",
        DeviceLevel::Departed => "departed",
    };
    let age = device
        .age_seconds
        .map_or(String::new(), |age| format!("\t{age:.1} s"));
    let moving = device.moving_to.as_ref();
    let moving = moving.map_or(String::new(), |to| format!("\tmoving to {to}"));
    format!(
        "{}\t{level}\t{} records\t{}{age}{moving}",
        device.device,
        device.records,
        bytes_text(device.bytes)
    )
}

fn depart(args: &DepartDevices) -> Result<(), Failure> {
    let style = Style::from(args.notation);
    let names: Result<Vec<_>, _> = args.devices.iter().map(|name| style.parse(name)).collect();
    let names = names?;
    let db = open_existing(&args.db)?;
    let departed = names.iter().try_for_each(|name| db.devices().depart(name));
    db.close()?;
    Ok(departed?)
}
