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
    let closed = db.close();
    let written = written?;
    closed?;
    written.map_err(|error| Failure::lost(&cut(args), &error))
}

/// Freezes the device and writes its stream. The inner error is that of the output: then it is frozen all the same.
fn write_stream(
    context: &mut Context,
    db: &Db,
    device: &[u8],
    destination: &str,
) -> Result<io::Result<()>, Failure> {
    let mut stream = db
        .devices()
        .export(device, destination, Durability::PowerLoss)?;
    let mut piece = vec![0; 64 << 10];
    loop {
        let length = match stream.read(&mut piece) {
            Ok(0) => return Ok(context.output.flush()),
            Ok(length) => length,
            Err(error) => {
                return match error.downcast::<waystation::Error>() {
                    Ok(own) => Err(own.into()),
                    Err(other) => Ok(Err(other)),
                };
            }
        };
        if let Err(error) = context.output.raw(&piece[..length]) {
            return Ok(Err(error));
        }
    }
}

/// What is to be said of a stream that was cut.
fn cut(args: &ExportDevice) -> String {
    let (db, device, destination) = (args.db.display(), &args.device, &args.destination);
    format!(
        "the stream of {device} was cut; {device} is frozen for {destination}: it can be read here, and not written. \
         Repeat the command to get the stream again; or, to keep the device, give the stream's beginning to `waystation \
         devices refuse` at {destination}, and what that prints to `waystation devices end {db}`"
    )
}

/// Prints an answer that the user has to carry to the other side.
fn answer(context: &mut Context, text: String, json: &impl Serialize) -> Result<(), Failure> {
    let output = &mut context.output;
    let printed = if output.is_json() {
        output.json_line(json)
    } else {
        output.line(text)
    };
    let printed = printed.and_then(|()| output.flush());
    let what = "the answer could not be written, and holds all the same: give the same stream to the same command to \
                get it again";
    printed.map_err(|error| Failure::lost(what, &error))
}

/// Admits the device whose stream comes on standard input.
pub(super) fn admit(context: &mut Context, args: &AnswerHandOff) -> Result<(), Failure> {
    let db = open_existing(&args.db)?;
    let admitted = db.devices().admit(io::stdin().lock());
    db.close()?;
    let receipt = admitted?;
    let text = Style::Hex.show(&receipt.to_bytes());
    let json = Admitted {
        receipt: text.clone(),
        records: receipt.digest.records,
        bytes: receipt.digest.bytes,
    };
    answer(context, text, &json)
}

/// Refuses the device whose stream comes on standard input.
pub(super) fn refuse(context: &mut Context, args: &AnswerHandOff) -> Result<(), Failure> {
    let ticket = Export::ticket_of(io::stdin().lock())?;
    let db = open_existing(&args.db)?;
    let refused = db.devices().refuse(&ticket);
    db.close()?;
    let text = Style::Hex.show(&refused?.to_bytes());
    let json = Refused {
        refusal: text.clone(),
    };
    answer(context, text, &json)
}

/// Ends a hand-off with what the other side answered.
pub(super) fn end(args: &EndHandOff) -> Result<(), Failure> {
    let bytes = Style::Hex.parse(args.answer.trim())?;
    let answer = (Receipt::from_bytes(&bytes), Refusal::from_bytes(&bytes));
    let db = open_existing(&args.db)?;
    let ended = match answer {
        (Ok(receipt), _) => db.devices().complete(&receipt).map_err(Failure::from),
        (_, Ok(refusal)) => db.devices().abort(&refusal).map_err(Failure::from),
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
    let lifted = names
        .iter()
        .try_for_each(|name| db.devices().lift_stub(name));
    db.close()?;
    Ok(lifted?)
}
