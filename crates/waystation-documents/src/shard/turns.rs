//! Turns: the changes of a shard that has copies, numbered by the host that orders them.
//!
//! ```text
//!   mturn   begun | done
//! ```
//!
//! Each copy gets the same changes in the same order, and makes the same of them. It notes the number of a change
//! before it begins, and again when it has ended. So the record tells a copy that missed a change from one that did
//! not, and one that was cut off in the middle from both: such a copy is filled again from another one.
//!
//! Invariants: `begun` is `done`, or the number behind it; a change is taken only if the one before it is done.

use super::request::{Reply, Request};
use super::{Shard, keys};
use crate::error::{Error, NodeFault, Result};
use crate::wire::wire_struct;
use std::sync::{MutexGuard, PoisonError};
use waystation::Durability;
use waystation_format::FormatError;
use waystation_format::varint::{Reader, put_u64};

/// When a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turn {
    /// New update sequences follow this one.
    pub after: u64,
    /// The number of the change among all of the shard; 0: it is not numbered.
    pub number: u64,
}

/// How far the numbered changes of a copy have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turns {
    /// The last one that began.
    pub begun: u64,
    /// The last one that ended.
    pub done: u64,
}

impl Turns {
    /// Where change `number` has ended.
    pub fn at(number: u64) -> Self {
        Self {
            begun: number,
            done: number,
        }
    }

    /// Whether no change is half done.
    pub fn is_whole(self) -> bool {
        self.begun == self.done
    }

    fn encode(self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, self.begun);
        put_u64(&mut out, self.done);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut reader = Reader::new(bytes);
        Ok(Self {
            begun: reader.var_u64("the turn that began last")?,
            done: reader.var_u64("the turn that ended last")?,
        })
    }
}

/// What a copy of a shard answers.
#[derive(Debug, Clone)]
pub struct Told {
    /// Its latest update sequence.
    pub latest: u64,
    /// How far its changes have come.
    pub turns: Turns,
    /// The reply.
    pub reply: Result<Reply>,
}

wire_struct! {
    Turn { after, number }
    Turns { begun, done }
    Told { latest, turns, reply }
}

impl Shard {
    /// Answers `request` when it is its turn.
    pub fn follow(&self, turn: Turn, request: Request) -> Told {
        self.clock.pass(turn.after);
        let reply = match turn.number {
            0 => self.answer(request),
            number => self.take_turn(number, request),
        };
        Told {
            latest: self.info().update_sequence,
            turns: *self.turns(),
            reply,
        }
    }

    /// Makes the change `number`, which survives what `request` says when this returns.
    fn take_turn(&self, number: u64, request: Request) -> Result<Reply> {
        let taking = self.taking.lock();
        let _taking = taking.unwrap_or_else(PoisonError::into_inner);
        let turns = *self.turns();
        if turns != Turns::at(number - 1) {
            return Err(Error::Node {
                fault: NodeFault::Refused,
                reason: format!(
                    "this copy of the shard is at change {} and not at {}: it missed some; it is filled again from another copy",
                    turns.done,
                    number - 1
                ),
            });
        }
        let (request, durability) = request.without_durability();
        self.note_turns(Turns {
            begun: number,
            done: number - 1,
        })?;
        let reply = self.answer(request);
        // What the engine refused may be half written.
        if !matches!(&reply, Err(error) if error.is_of_node()) {
            self.note_turns(Turns::at(number))?;
        }
        if durability == Durability::PowerLoss {
            self.db.sync()?;
        }
        reply
    }

    /// Says that the changes up to `number` are all that this copy has.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub fn set_turn(&self, number: u64) -> Result<()> {
        self.note_turns(Turns::at(number))
    }

    fn note_turns(&self, turns: Turns) -> Result<()> {
        self.db.put(keys::TURNS, &turns.encode())?;
        *self.turns() = turns;
        Ok(())
    }

    /// Reads how far the changes have come.
    pub(super) fn load_turns(&self) -> Result<()> {
        let turns = match self.db.get(keys::TURNS)? {
            Some(bytes) => {
                let turns = Turns::decode(&bytes);
                turns.map_err(|error| Error::damaged("the turns of the shard", &error))?
            }
            None => Turns::default(),
        };
        *self.turns() = turns;
        Ok(())
    }

    /// Replaced whole after it was written: a panic leaves the one before.
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
