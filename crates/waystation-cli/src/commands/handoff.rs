//! devices export, admit, refuse, end, lift: a device changes its database.
//!
//! Receipts and refusals are printed as hexadecimal digits, so that they can be carried by hand.

use super::{Context, open_existing};
use crate::args::{AnswerHandOff, DepartDevices, EndHandOff, ExportDevice};
use crate::failure::{Failure, USAGE};
use crate::notation::Style;
use serde::Serialize;
use std::io::{self, Read};
use waystation::{Db, Durability, Export, Receipt, Refusal};

/// A receipt, as JSON.
#[derive(Serialize)]
struct Admitted {
    receipt: String,
    records: u64,
    bytes: u64,
}

/// A refusal, as JSON.
#[derive(Serialize)]
struct Refused {
    refusal: String,
}

/// Writes a device's stream.
pub(super) fn export(context: &mut Context, args: &ExportDevice) -> Result<(), Failure> {
    let device = Style::from(args.notation).parse(&args.device)?;
    let db = open_existing(&args.db)?;
    let written = write_stream(context, &db, &device, &args.destination);
    db.close()?;
    written
}

fn write_stream(
    context: &mut Context,
    db: &Db,
    device: &[u8],
    destination: &str,
) -> Result<(), Failure> {
    let mut stream = db.export_device(device, destination, Durability::PowerLoss)?;
    let mut piece = vec![0; 64 << 10];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(length) => context.output.raw(&piece[..length])?,
            Err(error) => {
                return Err(match error.downcast::<waystation::Error>() {
                    Ok(own) => own.into(),
                    Err(other) => other.into(),
                });
            }
        }
    }
}

/// Admits the device whose stream comes on standard input.
pub(super) fn admit(context: &mut Context, args: &AnswerHandOff) -> Result<(), Failure> {
    let db = open_existing(&args.db)?;
    let admitted = db.admit_device(io::stdin().lock());
    db.close()?;
    let receipt = admitted?;
    let text = Style::Hex.show(&receipt.to_bytes());
    if context.output.is_json() {
        context.output.json_line(&Admitted {
            receipt: text,
            records: receipt.digest.records,
            bytes: receipt.digest.bytes,
        })?;
    } else {
        context.output.line(text)?;
    }
    Ok(())
}

/// Refuses the device whose stream comes on standard input.
pub(super) fn refuse(context: &mut Context, args: &AnswerHandOff) -> Result<(), Failure> {
    let ticket = Export::ticket_of(io::stdin().lock())?;
    let db = open_existing(&args.db)?;
    let refused = db.refuse_device(&ticket);
    db.close()?;
    let text = Style::Hex.show(&refused?.to_bytes());
    if context.output.is_json() {
        context.output.json_line(&Refused { refusal: text })?;
    } else {
        context.output.line(text)?;
    }
    Ok(())
}

/// Ends a hand-off with what the other side answered.
pub(super) fn end(args: &EndHandOff) -> Result<(), Failure> {
    let bytes = Style::Hex.parse(args.answer.trim())?;
    let answer = (Receipt::from_bytes(&bytes), Refusal::from_bytes(&bytes));
    let db = open_existing(&args.db)?;
    let ended = match answer {
        (Ok(receipt), _) => db.complete_export(&receipt).map_err(Failure::from),
        (_, Ok(refusal)) => db.abort_export(&refusal).map_err(Failure::from),
        (Err(error), Err(_)) => {
            let reason = format!("this is neither a receipt nor a refusal: {error}");
            Err(Failure::new(USAGE, reason))
        }
    };
    db.close()?;
    ended
}

/// Removes stubs.
pub(super) fn lift(args: &DepartDevices) -> Result<(), Failure> {
    let style = Style::from(args.notation);
    let names: Result<Vec<_>, _> = args.devices.iter().map(|name| style.parse(name)).collect();
    let names = names?;
    let db = open_existing(&args.db)?;
    let lifted = names.iter().try_for_each(|name| db.lift_stub(name));
    db.close()?;
    Ok(lifted?)
}
