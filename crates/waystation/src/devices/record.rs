//! What the log says of devices: the payload of a record of the kind `Devices`.
//!
//! ```text
//! departed  1 | prefix                     the device leaves at the record's sequence number
//! switched  2 | count | prefixes           their writes from here on go to the memtable
//! settled   3 | count | prefixes           all they wrote before the switch is in tables
//! frozen    4 | prefix | promise u8 | destination        the device takes no writes until its hand-off is over
//! handed on 5 | prefix | ticket u64 | destination        the destination has it: it leaves, and a stub stays
//! thawed    6 | prefix | ticket u64                      the destination never will: it takes writes again
//! staged    7 | stage u64 | prefix | operations          part of a device that is being admitted
//! admitted  8 | stage u64 | finished below u64 | ticket | digest | prefix | operations
//!                                          it is whole with these, and seen from here on
//! refused   9 | ticket                     it will never be admitted
//! lifted   10 | prefix                     its stub is gone
//! admitted 11 | stage u64 | finished below u64 | open | expires u8 | the rest as 8
//! ```
//!
//! A prefix is a varint length and its bytes, as is a destination; a count is a varint. The ticket of 5 and 6 is the
//! sequence number of the record that froze the device; a stage is the sequence number of its first part, 0 in that
//! part itself. Open is a list as in a stream's opening; where it is empty and nothing expires, 8 is written. What
//! expires goes to the memtable, with an operation that says when behind its put. Operations are a `LevelDB` batch with its header; tickets and digests are as in a hand-off stream.
//! The numbers are on disk: never renumber.

use waystation_format::FormatError;
use waystation_format::batch::Operation;
use waystation_format::handoff::{Digest, Ticket, put_open, take_open};
use waystation_format::varint::{Reader, put_length_prefixed, put_u64};

/// What happened to devices, all at the sequence number of the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeviceEvent<'a> {
    /// A device left.
    Departed(&'a [u8]),
    /// Residencies are about to settle.
    Switched(Vec<&'a [u8]>),
    /// Residencies have settled.
    Settled(Vec<&'a [u8]>),
    /// A device is about to be handed on.
    Frozen {
        prefix: &'a [u8],
        survives_power_loss: bool,
        destination: &'a str,
    },
    /// A device is with its destination.
    HandedOn {
        prefix: &'a [u8],
        ticket: u64,
        destination: &'a str,
    },
    /// A device stays.
    Thawed { prefix: &'a [u8], ticket: u64 },
    /// Part of a device that comes from another engine.
    Staged {
        stage: u64,
        prefix: &'a [u8],
        operations: &'a [u8],
    },
    /// A device has come from another engine.
    Admitted(Admitted<'a>),
    /// A ticket will never be admitted.
    Refused(Ticket),
    /// A device's stub is gone.
    Lifted(&'a [u8]),
}

/// A device has come from another engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Admitted<'a> {
    pub(crate) stage: u64,
    pub(crate) finished_below: u64,
    /// The hand-offs before that are not over.
    pub(crate) open: Vec<u64>,
    pub(crate) ticket: Ticket,
    pub(crate) digest: Digest,
    pub(crate) prefix: &'a [u8],
    /// Whether some of it expires, and goes to the memtable.
    pub(crate) expires: bool,
    pub(crate) operations: &'a [u8],
}

impl<'a> DeviceEvent<'a> {
    /// The record's payload.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![self.code()];
        match self {
            Self::Departed(prefix) | Self::Lifted(prefix) => put_length_prefixed(&mut out, prefix),
            Self::Switched(prefixes) | Self::Settled(prefixes) => {
                put_u64(&mut out, prefixes.len() as u64);
                for prefix in prefixes {
                    put_length_prefixed(&mut out, prefix);
                }
            }
            Self::Frozen {
                prefix,
                survives_power_loss,
                destination,
            } => {
                put_length_prefixed(&mut out, prefix);
                out.push(u8::from(*survives_power_loss));
                put_length_prefixed(&mut out, destination.as_bytes());
            }
            Self::HandedOn {
                prefix,
                ticket,
                destination,
            } => {
                put_length_prefixed(&mut out, prefix);
                out.extend_from_slice(&ticket.to_le_bytes());
                put_length_prefixed(&mut out, destination.as_bytes());
            }
            Self::Thawed { prefix, ticket } => {
                put_length_prefixed(&mut out, prefix);
                out.extend_from_slice(&ticket.to_le_bytes());
            }
            Self::Staged {
                stage,
                prefix,
                operations,
            } => {
                out.extend_from_slice(&stage.to_le_bytes());
                put_length_prefixed(&mut out, prefix);
                out.extend_from_slice(operations);
            }
            Self::Admitted(admitted) => admitted.put(&mut out),
            Self::Refused(ticket) => ticket.put(&mut out),
        }
        out
    }

    fn code(&self) -> u8 {
        match self {
            Self::Departed(_) => 1,
            Self::Switched(_) => 2,
            Self::Settled(_) => 3,
            Self::Frozen { .. } => 4,
            Self::HandedOn { .. } => 5,
            Self::Thawed { .. } => 6,
            Self::Staged { .. } => 7,
            Self::Admitted(admitted) if admitted.is_plain() => 8,
            Self::Admitted(_) => 11,
            Self::Refused(_) => 9,
            Self::Lifted(_) => 10,
        }
    }

    /// Reads a record's payload.
    pub(crate) fn decode(payload: &'a [u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(payload);
        let reader = &mut reader;
        let event = match reader.u8("kind of a device event")? {
            1 => Self::Departed(reader.length_prefixed("device")?),
            2 => Self::Switched(prefixes(reader)?),
            3 => Self::Settled(prefixes(reader)?),
            4 => Self::Frozen {
                prefix: reader.length_prefixed("device")?,
                survives_power_loss: reader.u8("promise")? == 1,
                destination: text(reader, "destination")?,
            },
            5 => Self::HandedOn {
                prefix: reader.length_prefixed("device")?,
                ticket: reader.fixed_u64("ticket")?,
                destination: text(reader, "destination")?,
            },
            6 => Self::Thawed {
                prefix: reader.length_prefixed("device")?,
                ticket: reader.fixed_u64("ticket")?,
            },
            7 => Self::Staged {
                stage: reader.fixed_u64("stage")?,
                prefix: reader.length_prefixed("device")?,
                operations: reader.rest(),
            },
            8 => Self::Admitted(Admitted::take(reader, true)?),
            9 => Self::Refused(Ticket::take(reader)?),
            10 => Self::Lifted(reader.length_prefixed("device")?),
            11 => Self::Admitted(Admitted::take(reader, false)?),
            _ => {
                return Err(FormatError::Unsupported {
                    offset: 0,
                    reason: "kind of a device event",
                });
            }
        };
        Ok(event)
    }

    /// The versions that the record itself holds, as a batch; `None` if it holds none.
    pub(crate) fn operations(&self) -> Option<&'a [u8]> {
        match self {
            Self::Staged { operations, .. } => Some(operations),
            Self::Admitted(admitted) => Some(admitted.operations),
            _ => None,
        }
    }
}

/// The operations of a batch that go to the memtable, as they are about what expires, with their numbers from 0 on.
pub(crate) fn expiring<'a>(
    batch: impl IntoIterator<Item = Operation<'a>>,
) -> impl Iterator<Item = (u64, Operation<'a>)> {
    let mut operations = (0..).zip(batch).peekable();
    let mut is_dated = false;
    std::iter::from_fn(move || {
        loop {
            let (number, operation) = operations.next()?;
            // Behind the put of a key stands when that expires.
            let next = operations.peek();
            let begins = next.is_some_and(|(_, next)| next.time.is_some());
            if std::mem::replace(&mut is_dated, begins) || begins {
                return Some((number, operation));
            }
        }
    })
}

impl<'a> Admitted<'a> {
    /// Whether older versions understand it.
    fn is_plain(&self) -> bool {
        self.open.is_empty() && !self.expires
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.reserve(self.operations.len() + 128);
        out.extend_from_slice(&self.stage.to_le_bytes());
        out.extend_from_slice(&self.finished_below.to_le_bytes());
        if !self.is_plain() {
            put_open(&self.open, out);
            out.push(u8::from(self.expires));
        }
        self.ticket.put(out);
        self.digest.put(out);
        put_length_prefixed(out, self.prefix);
        out.extend_from_slice(self.operations);
    }

    fn take(reader: &mut Reader<'a>, is_plain: bool) -> Result<Self, FormatError> {
        let stage = reader.fixed_u64("stage")?;
        let finished_below = reader.fixed_u64("finished hand-offs")?;
        let (open, expires) = if is_plain {
            (Vec::new(), false)
        } else {
            let open = take_open(reader, finished_below)?;
            (open, reader.u8("whether some expires")? == 1)
        };
        Ok(Self {
            stage,
            finished_below,
            open,
            ticket: Ticket::take(reader)?,
            digest: Digest::take(reader)?,
            prefix: reader.length_prefixed("device")?,
            expires,
            operations: reader.rest(),
        })
    }
}

fn prefixes<'a>(reader: &mut Reader<'a>) -> Result<Vec<&'a [u8]>, FormatError> {
    let mut prefixes = Vec::new();
    for _ in 0..reader.var_u64("count of devices")? {
        prefixes.push(reader.length_prefixed("device")?);
    }
    Ok(prefixes)
}

fn text<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<&'a str, FormatError> {
    let offset = reader.offset() as u64;
    std::str::from_utf8(reader.length_prefixed(what)?).map_err(|_| FormatError::Malformed {
        offset,
        reason: what,
    })
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use waystation_format::handoff::EngineId;

    fn ticket() -> Ticket {
        Ticket {
            source: EngineId([9; 16]),
            destination: "edge-2".into(),
            device: b"car-1".to_vec(),
            sequence: 77,
            tenure: 1,
            survives_power_loss: true,
        }
    }

    #[test]
    fn events_are_read_back() {
        let prefix = b"car-1:";
        for event in [
            DeviceEvent::Departed(prefix),
            DeviceEvent::Switched(vec![b"a:", b"b:"]),
            DeviceEvent::Settled(vec![b"a:"]),
            DeviceEvent::Frozen {
                prefix,
                survives_power_loss: true,
                destination: "edge-2",
            },
            DeviceEvent::HandedOn {
                prefix,
                ticket: 77,
                destination: "edge-2",
            },
            DeviceEvent::Thawed { prefix, ticket: 77 },
            DeviceEvent::Refused(ticket()),
            DeviceEvent::Lifted(prefix),
        ] {
            let bytes = event.encode();
            assert_eq!(DeviceEvent::decode(&bytes).as_ref(), Ok(&event));
            for cut in 0..bytes.len() {
                assert!(DeviceEvent::decode(&bytes[..cut]).is_err());
            }
        }
        assert!(DeviceEvent::decode(&[99, 0]).is_err());
    }

    #[test]
    fn records_of_admitted_devices_hold_operations() {
        let operations: &[u8] = b"some operations";
        let admitted = Admitted {
            stage: 5,
            finished_below: 70,
            open: Vec::new(),
            ticket: ticket(),
            digest: Digest::default(),
            prefix: b"car-1:",
            expires: false,
            operations,
        };
        let staged = DeviceEvent::Staged {
            stage: 5,
            prefix: b"car-1:",
            operations,
        };
        let with_open = Admitted {
            open: vec![7, 69],
            ..admitted.clone()
        };
        let with_dates = Admitted {
            expires: true,
            ..admitted.clone()
        };
        let admitted = [admitted, with_open, with_dates].map(DeviceEvent::Admitted);
        for event in admitted.into_iter().chain([staged]) {
            let bytes = event.encode();
            let read = DeviceEvent::decode(&bytes);
            assert_eq!(read.as_ref(), Ok(&event));
            assert_eq!(read.ok().and_then(|it| it.operations()), Some(operations));
        }
    }
}
