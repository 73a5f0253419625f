//! What travels when a device is handed on: the stream, and tickets, receipts and refusals.

use waystation_format::checksum::{extend, mask};
use waystation_format::handoff::{
    Digest, EngineId, FRAME_HEAD_BYTES, Frame, Opening, Receipt, Refusal, StreamDecoder,
    StreamEncoder, Ticket,
};

/// A stream as it comes, and one with the same frames whose checksums fit; then the small messages.
pub(super) fn handoff(bytes: &[u8]) {
    read(bytes);
    read(&chained(bytes));
    if let Ok(ticket) = Ticket::from_bytes(bytes) {
        assert_eq!(Ticket::from_bytes(&ticket.to_bytes()), Ok(ticket));
    }
    if let Ok(receipt) = Receipt::from_bytes(bytes) {
        assert_eq!(Receipt::from_bytes(&receipt.to_bytes()), Ok(receipt));
    }
    if let Ok(refusal) = Refusal::from_bytes(bytes) {
        assert_eq!(Refusal::from_bytes(&refusal.to_bytes()), Ok(refusal));
    }
}

/// Takes a stream apart; keys ascend over all of it, and the end counts what there was.
fn read(mut stream: &[u8]) {
    let mut decoder = StreamDecoder::new();
    let mut last: Option<Vec<u8>> = None;
    let mut digest = Digest::default();
    while let Some((head, rest)) = stream.split_first_chunk::<FRAME_HEAD_BYTES>() {
        let Ok(length) = decoder.head(head) else {
            return;
        };
        let Some((body, rest)) = rest.split_at_checked(length) else {
            return;
        };
        match decoder.body(body) {
            Ok(Frame::Records(records)) => {
                for record in records {
                    assert!(last.as_deref().is_none_or(|last| last < record.key));
                    if record.expiry.is_none() {
                        digest.add(record.key, record.value);
                    }
                    last = Some(record.key.to_vec());
                }
            }
            Ok(Frame::End(told)) => assert_eq!(told, digest),
            Ok(Frame::Opening(_)) => {}
            Err(_) => return,
        }
        stream = rest;
    }
}

/// Frames of the kinds, lengths and payloads that `bytes` say, with checksums that fit.
fn chained(mut bytes: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    let mut chain = 0;
    while let Some(([kind, low, high], rest)) = bytes.split_first_chunk::<3>() {
        let length = usize::from(u16::from_le_bytes([*low, *high]) % 2048).min(rest.len());
        let (payload, rest) = rest.split_at(length);
        let fields = [&(length as u32).to_le_bytes()[..], &[kind % 5]].concat();
        chain = extend(chain, &fields);
        stream.extend_from_slice(&fields);
        stream.extend_from_slice(&mask(chain).to_le_bytes());
        chain = extend(chain, payload);
        stream.extend_from_slice(payload);
        stream.extend_from_slice(&mask(chain).to_le_bytes());
        bytes = rest;
    }
    stream
}

pub(super) fn handoff_seeds() -> Vec<Vec<u8>> {
    let ticket = Ticket {
        source: EngineId([7; 16]),
        destination: "edge-2".to_owned(),
        device: b"drone-7".to_vec(),
        sequence: 42,
        tenure: 3,
        survives_power_loss: true,
    };
    let mut encoder = StreamEncoder::new(&Opening {
        ticket: ticket.clone(),
        extractor: "until/3a".to_owned(),
        finished_below: 40,
        open: vec![7, 39],
    });
    encoder.push(b"height", b"120");
    encoder.push(b"speed", b"13");
    encoder.push_until(b"toll", b"1", 1 << 50);
    let digest = encoder.finish();
    let stream = encoder.bytes().to_vec();
    // The same as `chained` takes it: kind, length, payload.
    let mut frames = Vec::new();
    let mut rest = &stream[..];
    while let Some((head, after)) = rest.split_first_chunk::<FRAME_HEAD_BYTES>() {
        let length = usize::from(u16::from_le_bytes([head[0], head[1]]));
        frames.extend_from_slice(&[head[4], head[0], head[1]]);
        frames.extend_from_slice(after.get(..length).unwrap_or_default());
        rest = after.get(length + 4..).unwrap_or_default();
    }
    let receipt = Receipt {
        ticket: ticket.clone(),
        digest,
    };
    let refusal = Refusal {
        ticket: ticket.clone(),
    };
    vec![
        stream,
        frames,
        ticket.to_bytes(),
        receipt.to_bytes(),
        refusal.to_bytes(),
    ]
}
