//! The report of an executor.

use super::fields::{Field, FieldWriter};
use super::{JobId, REPORT_MAGIC, Table, seal, unseal};
use crate::FormatError;

/// What became of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// The job it answers.
    pub id: JobId,
    /// Which run of it.
    pub attempt: u64,
    /// The tables made, or why there are none.
    pub outcome: Outcome,
    /// What was counted; a field that is missing is 0.
    pub counters: Counters,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// These tables are complete and durable, by key.
    Done(Vec<Table>),
    /// There are no tables.
    Failed(Failure, String),
}

impl Default for Outcome {
    fn default() -> Self {
        Self::Done(Vec::new())
    }
}

/// What a merge did. Entries in = out + shadowed + dead deletions + hidden.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Entries read.
    pub entries_in: u64,
    /// Entries written.
    pub entries_out: u64,
    /// Entries left out because a newer version hides them from every reader.
    pub shadowed: u64,
    /// Deletions left out because nothing is left for them to delete.
    pub dead_deletions: u64,
    /// Entries left out because a grave hides them from every reader.
    pub hidden: u64,
    /// Microseconds spent.
    pub elapsed_us: u64,
}

impl Counters {
    /// Entries that were left out.
    pub fn dropped(&self) -> u64 {
        let dropped = self.shadowed.saturating_add(self.dead_deletions);
        dropped.saturating_add(self.hidden)
    }

    /// Whether every entry read was written or left out for a reason.
    pub fn add_up(&self) -> bool {
        self.entries_in == self.entries_out.saturating_add(self.dropped())
    }
}

/// Why an executor made nothing. The numbers travel: never renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Failure {
    /// It may work another time: the executor is stopping, or storage failed.
    Retryable = 1,
    /// The inputs are not those that the job describes, or they are damaged.
    Inputs = 2,
    /// The executor cannot do what the job needs.
    Unsupported = 3,
    /// The outputs would be larger than the job allows, or than the room there is.
    Space = 4,
    /// The job was cancelled.
    Cancelled = 5,
    /// The executor does not take this job, and may take others.
    Unfit = 6,
    /// The executor does not see the directory of the database, or may not go there. It takes the tables if they are sent.
    Unseen = 7,
}

impl Failure {
    fn from_number(number: u64) -> Option<Self> {
        let known = [
            Self::Retryable,
            Self::Inputs,
            Self::Unsupported,
            Self::Space,
            Self::Cancelled,
            Self::Unfit,
            Self::Unseen,
        ];
        known.into_iter().find(|failure| *failure as u64 == number)
    }
}

/// The tags of a report's fields. Never reuse a number.
mod tag {
    pub(super) const ID: u32 = 1;
    pub(super) const ATTEMPT: u32 = 2;
    pub(super) const FAILURE: u32 = 3;
    pub(super) const REASON: u32 = 4;
    pub(super) const OUTPUT: u32 = 5;
    pub(super) const ENTRIES_IN: u32 = 6;
    pub(super) const ENTRIES_OUT: u32 = 7;
    pub(super) const SHADOWED: u32 = 8;
    pub(super) const DEAD_DELETIONS: u32 = 9;
    pub(super) const HIDDEN: u32 = 10;
    pub(super) const ELAPSED_US: u32 = 11;
}

impl Report {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = FieldWriter::default();
        out.bytes(tag::ID, &self.id.0)
            .number(tag::ATTEMPT, self.attempt);
        match &self.outcome {
            Outcome::Done(outputs) => {
                for output in outputs {
                    out.group(tag::OUTPUT, |out| output.put(out));
                }
            }
            Outcome::Failed(failure, reason) => {
                out.number(tag::FAILURE, *failure as u64)
                    .bytes(tag::REASON, reason.as_bytes());
            }
        }
        self.counters.put(&mut out);
        seal(REPORT_MAGIC, out.finish())
    }

    /// The report of these bytes, or why they are none. A failure of a kind that this version does not know counts as
    /// one that may pass.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = unseal(REPORT_MAGIC, bytes)?;
        let mut report = Self::default();
        let mut outputs = Vec::new();
        let mut failure = None;
        let mut reason = String::new();
        while let Some(field) = fields.next()? {
            match field.tag {
                tag::ID => report.id = JobId::take(&field)?,
                tag::ATTEMPT => report.attempt = field.number()?,
                tag::FAILURE => {
                    let known = Failure::from_number(field.number()?);
                    failure = Some(known.unwrap_or(Failure::Retryable));
                }
                tag::REASON => reason = field.text()?,
                tag::OUTPUT => outputs.push(Table::take(&field)?),
                _ => report.counters.take(&field)?,
            }
        }
        report.outcome = match failure {
            None => Outcome::Done(outputs),
            Some(_) if !outputs.is_empty() => {
                let reason = "a job that failed has no outputs";
                return Err(FormatError::malformed(bytes.len(), reason));
            }
            Some(failure) => Outcome::Failed(failure, reason),
        };
        Ok(report)
    }
}

impl Counters {
    pub(super) fn put(&self, out: &mut FieldWriter) {
        out.number(tag::ENTRIES_IN, self.entries_in)
            .number(tag::ENTRIES_OUT, self.entries_out)
            .number(tag::SHADOWED, self.shadowed)
            .number(tag::DEAD_DELETIONS, self.dead_deletions)
            .number(tag::HIDDEN, self.hidden)
            .number(tag::ELAPSED_US, self.elapsed_us);
    }

    /// Takes a number that is one of these; statistics of other versions, whatever they hold, are no error.
    pub(super) fn take(&mut self, field: &Field<'_>) -> Result<(), FormatError> {
        let place = match field.tag {
            tag::ENTRIES_IN => &mut self.entries_in,
            tag::ENTRIES_OUT => &mut self.entries_out,
            tag::SHADOWED => &mut self.shadowed,
            tag::DEAD_DELETIONS => &mut self.dead_deletions,
            tag::HIDDEN => &mut self.hidden,
            tag::ELAPSED_US => {
                self.elapsed_us = field.number().unwrap_or(0);
                return Ok(());
            }
            _ => return Ok(()),
        };
        *place = field.number()?;
        Ok(())
    }
}
