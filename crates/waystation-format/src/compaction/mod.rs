//! A compaction as messages: the job that an executor gets, the report it answers with, and what an engine and a worker
//! say to each other meanwhile.
//!
//! Job and report are complete: an executor that sees the input tables needs nothing else of the database, and the engine needs
//! nothing but the report and the output tables to verify the result and to install it.
//!
//! Engine and executor may be of different versions. So a message is a list of tagged fields: a reader skips the
//! fields that it does not know, and puts defaults in the place of those that are missing. A writer that adds a field
//! which must not be skipped raises the lowest version of readers, which stands at the front; an older reader refuses
//! the message, and the engine runs the job itself. The bytes: docs/formats/compaction-job.md.

mod exchange;
mod fields;
mod job;
mod report;
#[cfg(test)]
mod tests;

pub use exchange::{
    Answer, Begin, CHUNK_BYTES_MAX, Call, Chunk, Finished, JobState, MESSAGE_BYTES_MAX, Part,
    Request, Watch, is_job_directory_name, job_directory_name,
};
pub use job::{Facts, Grandparent, Graves, InputLevel, Job, JobId, Layout, Limits, Table};
pub use report::{Counters, Failure, Outcome, Report};

use crate::FormatError;
use crate::checksum::{crc32c, mask};
use crate::varint::Reader;
use fields::Fields;

/// The version of the messages that this crate writes. Never reuse a number.
pub const VERSION: u32 = 2;
/// The lowest version of readers that understand most of what this crate writes.
const READER_MIN: u32 = 1;
/// The lowest version of readers that understand a job of a part of the keys.
const READER_MIN_OF_PARTS: u32 = 2;

/// The first bytes of each kind of message.
const JOB_MAGIC: [u8; 8] = *b"WSCOMJOB";
const REPORT_MAGIC: [u8; 8] = *b"WSCOMREP";
const REQUEST_MAGIC: [u8; 8] = *b"WSCOMREQ";
const ANSWER_MAGIC: [u8; 8] = *b"WSCOMANS";
/// The bytes of the checksum at a message's end.
const CHECKSUM_BYTES: usize = 4;

/// A message with these fields, which every version reads.
fn seal(magic: [u8; 8], fields: &[u8]) -> Vec<u8> {
    seal_for(READER_MIN, magic, fields)
}

/// A message with these fields, for readers of the version `reader_min` and later ones.
fn seal_for(reader_min: u32, magic: [u8; 8], fields: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(magic.len() + 8 + fields.len() + CHECKSUM_BYTES);
    out.extend_from_slice(&magic);
    out.extend_from_slice(&reader_min.to_le_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(fields);
    let checksum = mask(crc32c(&out));
    out.extend_from_slice(&checksum.to_le_bytes());
    out
}

/// The fields of a message.
fn unseal(magic: [u8; 8], message: &[u8]) -> Result<Fields<'_>, FormatError> {
    let Some((content, checksum)) = message.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(FormatError::truncated(message.len(), "the checksum"));
    };
    if !content.starts_with(&magic) {
        let reason = "this is no message about a compaction, or another one";
        return Err(FormatError::malformed(0, reason));
    }
    if mask(crc32c(content)) != u32::from_le_bytes(*checksum) {
        let reason = "the message's bytes before it";
        return Err(FormatError::checksum(content.len(), reason));
    }
    let mut reader = Reader::new(content);
    reader.take(magic.len(), "the magic")?;
    if reader.fixed_u32("the lowest version of readers")? > VERSION {
        let reason = "the message is for readers of a later version";
        return Err(FormatError::unsupported(magic.len(), reason));
    }
    reader.fixed_u32("the version of the writer")?;
    Ok(Fields::new(reader))
}
