//! Devices: who is here, how they leave, and how they move to another engine.
//!
//! What these commands do is done at once and is no part of the run's batch; so the session commits the batch first. They
//! are refused in transactions.

use super::multi::make_durable;
use super::{Call, text};
use crate::failure::{Failure, Outcome};
use std::io::Read;
use waystation::{DeviceInfo, DeviceLevel, Durability, Export, Receipt, Refusal};

/// Refuses commands about devices in a transaction, and in a database that has none.
fn begin(call: &Call<'_, '_>) -> Outcome {
    if call.client.is_executing {
        return Err(Failure::new("ERR a device changes in no transaction"));
    }
    if call.work.store.extractor.is_none() {
        return Err(Failure::new(
            "ERR this database keeps no devices apart: give it an extractor when it is made",
        ));
    }
    Ok(())
}

fn show(call: &mut Call<'_, '_>, device: &DeviceInfo, name: &[u8]) {
    let level = format!("{:?}", device.level).to_ascii_lowercase();
    call.out.map(6);
    call.out.bulk(b"name");
    call.out.bulk(name);
    call.out.bulk(b"level");
    call.out.bulk(level.as_bytes());
    call.out.bulk(b"records");
    call.out.integer(device.records.cast_signed());
    call.out.bulk(b"bytes");
    call.out.integer(device.bytes.cast_signed());
    call.out.bulk(b"age_seconds");
    match device.age {
        Some(age) => call.out.integer(age.as_secs().cast_signed()),
        None => call.out.null(),
    }
    call.out.bulk(b"moving_to");
    call.out
        .bulk_or_null(device.moving_to.as_ref().map(String::as_bytes));
}

/// `DEVICE.LIST [pattern]`: the names of devices that have data.
pub(super) fn list(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    begin(call)?;
    let mut devices = call.work.store.db.devices().list()?;
    devices.retain(|it| it.level != DeviceLevel::Departed);
    let begun = call.out.begin_array();
    let mut found = 0;
    for device in devices {
        let name = call.work.store.encoding.shown_device(&device.name);
        let fits = |it: &Vec<u8>| {
            args.get(1)
                .is_none_or(|pattern| crate::glob::matches(pattern, it))
        };
        if let Some(name) = name.filter(fits) {
            call.out.bulk(&name);
            found += 1;
            call.shared.check_answer(call.out.bytes.len() - begun)?;
        }
    }
    call.out.end_array(begun, found);
    Ok(())
}

/// `DEVICE.INFO device`.
pub(super) fn info(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    begin(call)?;
    let name = call.work.store.encoding.device(args[1]);
    let devices = call.work.store.db.devices().list()?;
    let device = devices
        .into_iter()
        .find(|it| it.name == name && it.level != DeviceLevel::Departed);
    let device = device.ok_or_else(|| unknown(args[1]))?;
    show(call, &device, args[1]);
    Ok(())
}

fn unknown(device: &[u8]) -> Failure {
    let device = text(device);
    Failure::of(format!(
        "NODEVICE there is no device {device} here: it has not arrived, or it has departed"
    ))
}

/// `DEVICE.DEPART device [device ...]`: how many of them were here.
pub(super) fn depart(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    begin(call)?;
    let _open = call.work.store.begin_write()?;
    let mut departed = 0;
    for device in &args[1..] {
        let name = call.work.store.encoding.device(device);
        match call.work.store.db.devices().depart(&name) {
            Ok(()) => departed += 1,
            Err(waystation::Error::Device(waystation::DeviceError::Unknown { .. })) => {}
            Err(error) => return Err(error.into()),
        }
    }
    call.work.store.note_all_written();
    make_durable(call, call.work.store)?;
    call.out.integer(departed);
    Ok(())
}

/// `DEVICE.EXPORT device destination`: the stream of its data. The device is frozen from now on.
pub(super) fn export(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    begin(call)?;
    let name = call.work.store.encoding.device(args[1]);
    let destination = std::str::from_utf8(args[2])
        .map_err(|_| Failure::new("ERR the destination's name is no UTF-8"))?;
    let _open = call.work.store.begin_write()?;
    let devices = call.work.store.db.devices();
    let mut export = devices.export(&name, destination, Durability::PowerLoss)?;
    let mut stream = Vec::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        let length = export
            .read(&mut piece)
            .map_err(|error| Failure::of(format!("ERR the device cannot be read: {error}")))?;
        if length == 0 {
            break;
        }
        stream.extend_from_slice(&piece[..length]);
        if call.shared.check_answer(stream.len()).is_err() {
            return Err(Failure::new(
                "ERR the device is frozen, and its stream is longer than the server allows: raise answer_bytes_max and export it again",
            ));
        }
    }
    call.out.bulk(&stream);
    Ok(())
}

/// `DEVICE.ADMIT stream`: the receipt.
pub(super) fn admit(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    begin(call)?;
    let _open = call.work.store.begin_write()?;
    let receipt = call.work.store.db.devices().admit(args[1])?;
    call.work.store.note_all_written();
    call.out.bulk(&receipt.to_bytes());
    Ok(())
}

/// `DEVICE.REFUSE stream`: the refusal, for which the beginning of the stream is enough.
pub(super) fn refuse(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    begin(call)?;
    let ticket = Export::ticket_of(args[1])?;
    let _open = call.work.store.begin_write()?;
    let refusal = call.work.store.db.devices().refuse(&ticket)?;
    call.work.store.note_all_written();
    call.out.bulk(&refusal.to_bytes());
    Ok(())
}

/// `DEVICE.COMPLETE receipt`: the device departs.
pub(super) fn complete(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    begin(call)?;
    let receipt = Receipt::from_bytes(args[1])
        .map_err(|error| Failure::of(format!("ERR this is no receipt: {error}")))?;
    let _open = call.work.store.begin_write()?;
    call.work.store.db.devices().complete(&receipt)?;
    call.work.store.note_all_written();
    make_durable(call, call.work.store)?;
    call.out.ok();
    Ok(())
}

/// `DEVICE.ABORT refusal`: the device takes writes again.
pub(super) fn abort(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    begin(call)?;
    let refusal = Refusal::from_bytes(args[1])
        .map_err(|error| Failure::of(format!("ERR this is no refusal: {error}")))?;
    let _open = call.work.store.begin_write()?;
    call.work.store.db.devices().abort(&refusal)?;
    call.work.store.note_all_written();
    make_durable(call, call.work.store)?;
    call.out.ok();
    Ok(())
}
