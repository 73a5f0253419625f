//! Streams and tickets with numbers that no engine can have written: refused by what they say, and without a trace.

use crate::support::options_with_resting_devices;
use std::path::Path;
use waystation::storage::SimStorage;
use waystation::{Db, DeviceError, Durability, EngineId, Error, Receipt, Ticket};
use waystation_format::handoff::{Opening, StreamEncoder};
use waystation_format::key::MAX_SEQUENCE;

fn open(seed: u64) -> Db {
    let machine = SimStorage::new(seed);
    Db::open_with(machine, Path::new("/db"), options_with_resting_devices()).expect("open")
}

fn opening() -> Opening {
    Opening {
        ticket: Ticket {
            source: EngineId([7; 16]),
            destination: "east".into(),
            device: b"car".to_vec(),
            sequence: 1_000,
            tenure: 3,
            survives_power_loss: true,
        },
        extractor: "until/3a".into(),
        finished_below: 900,
        open: Vec::new(),
    }
}

/// The opening of a stream with numbers that can be, and how it is changed.
fn stream(change: impl FnOnce(&mut Opening)) -> (Ticket, Vec<u8>) {
    let mut opening = opening();
    change(&mut opening);
    let mut encoder = StreamEncoder::new(&opening);
    encoder.push(b"speed", b"13");
    encoder.finish();
    (opening.ticket, encoder.bytes().to_vec())
}

#[track_caller]
fn assert_refused(east: &Db, stream: &[u8]) {
    match east.devices().admit(stream) {
        Err(Error::Device(DeviceError::Stream { .. } | DeviceError::Ticket { .. })) => {}
        other => panic!("{other:?}"),
    }
    assert!(east.devices().list().expect("devices").is_empty());
}

#[test]
fn numbers_that_cannot_be_are_refused_and_change_nothing() {
    let east = open(1);
    for tenure in [u64::MAX, u64::MAX - 1, MAX_SEQUENCE + 1] {
        assert_refused(&east, &stream(|it| it.ticket.tenure = tenure).1);
    }
    for sequence in [u64::MAX, MAX_SEQUENCE + 1] {
        let (ticket, stream) = stream(|it| it.ticket.sequence = sequence);
        assert_refused(&east, &stream);
        let refused = east.devices().refuse(&ticket);
        assert!(
            matches!(refused, Err(Error::Device(DeviceError::Ticket { .. }))),
            "{refused:?}"
        );
    }
    let name = "n".repeat(4097);
    assert_refused(&east, &stream(|it| it.ticket.destination = name).1);
    let device = vec![b'd'; waystation::KEY_BYTES_MAX];
    assert_refused(&east, &stream(|it| it.ticket.device = device).1);
    // What can be is admitted, and goes on from here: the count ends at the last that can be.
    let (ticket, last) = stream(|it| it.ticket.tenure = MAX_SEQUENCE);
    assert_eq!(
        east.devices().admit(&last[..]).expect("admit").ticket,
        ticket
    );
    let export = east
        .devices()
        .export(b"car", "west", Durability::ProcessCrash);
    let west = open(2);
    let receipt: Receipt = west
        .devices()
        .admit(export.expect("export"))
        .expect("admit");
    assert_eq!(receipt.ticket.tenure, MAX_SEQUENCE);
}

/// A hand-off cannot know of later ones: what it says of them would stop the next honest one.
#[test]
fn no_hand_off_ends_later_ones() {
    let east = open(1);
    for finished_below in [1_001, MAX_SEQUENCE, u64::MAX] {
        assert_refused(&east, &stream(|it| it.finished_below = finished_below).1);
    }
    let (next, honest) = stream(|it| it.ticket.sequence = 1_001);
    assert_eq!(
        east.devices().admit(&honest[..]).expect("admit").ticket,
        next
    );
}
