//! What engine and worker say about a job: requests, and an answer to each.
//!
//! ```text
//!   begin   directory, job, lease, room ──>   waiting | running | over
//!   watch   wait at most so long        ──>   waiting | running | over
//!   cancel                              ──>   over
//!
//!   begin   without a directory         ──>   receiving | over
//!   send    bytes of an input table     ──>   receiving | over
//!   start                               ──>   waiting | running | over
//!   fetch   part of an output table     ──>   chunk | over
//! ```
//!
//! An engine whose directory the worker does not see begins without one: it sends the input tables, one after the other and
//! each from its first byte on, and fetches the output tables when the job is over.
//!
//! With any answer the worker tells of output tables that are complete already. If it then fails, the engine may keep them
//! and have the rest of the job run alone.
//!
//! A request names the job and its attempt, and so does the answer: what belongs to another attempt does not count. The
//! worker gives a job up when no request came for as long as the lease.

use super::fields::{FieldWriter, Fields};
use super::{ANSWER_MAGIC, Counters, Job, JobId, REQUEST_MAGIC, Report, Table, seal, unseal};
use crate::FormatError;

/// The longest message of any kind (bytes). A job that is longer stays in the engine.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// The most bytes of a table in one message.
pub const CHUNK_BYTES_MAX: usize = 4 << 20;

/// What the engine asks of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The job it is about.
    pub id: JobId,
    /// Which run of it.
    pub attempt: u64,
    /// The question.
    pub call: Call,
}

/// A question about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// Run the job.
    Begin(Box<Begin>),
    /// Say how far the job is.
    Watch(Watch),
    /// Give the job up, and answer when its files are closed.
    Cancel,
    /// Take these bytes of an input table.
    Send(Chunk),
    /// Run the job: all input tables were sent.
    Start,
    /// Give a part of an output table.
    Fetch(Part),
}

/// How to watch a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Watch {
    /// The answer comes once the job is over, and after so many milliseconds at the latest.
    pub wait_ms: u64,
    /// The engine knows of so many tables that are complete: the answer tells of those after them.
    pub known: u64,
}

/// Bytes of an input table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The number of the table.
    pub table: u64,
    /// Where in it they begin.
    pub offset: u64,
    /// They, at most [`CHUNK_BYTES_MAX`].
    pub bytes: Vec<u8>,
}

/// A part of an output table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part {
    /// The number of the table.
    pub table: u64,
    /// Where in it the part begins.
    pub offset: u64,
    /// Its length, at most [`CHUNK_BYTES_MAX`].
    pub length: u64,
}

/// A job, and where it is run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Begin {
    /// The directory of the database: the bytes of its absolute path. Empty: the engine sends the tables.
    pub directory: Vec<u8>,
    /// The job. Its name and attempt are those of the request.
    pub job: Job,
    /// The worker gives the job up when no request came for so long (milliseconds).
    pub lease_ms: u64,
    /// The outputs may take so many bytes, all together.
    pub bytes_max: u64,
}

/// What a worker says about a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The job it is about.
    pub id: JobId,
    /// Which run of it.
    pub attempt: u64,
    /// How far it is.
    pub state: JobState,
    /// Tables that are complete before the job is over, if there are any that the engine does not know of.
    pub finished: Option<Finished>,
}

/// Output tables that are complete before their job is over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Finished {
    /// The tables, by key.
    pub tables: Vec<Table>,
    /// What the job has done for these and all earlier ones.
    pub counters: Counters,
    /// The user key that the rest of the job begins with.
    pub rest: Vec<u8>,
}

impl Finished {
    fn put(&self, out: &mut FieldWriter) {
        for table in &self.tables {
            out.group(tag::OUTPUT, |out| table.put(out));
        }
        self.counters.put(out);
        out.bytes(tag::REST, &self.rest);
    }

    fn take(mut fields: Fields<'_>) -> Result<Self, FormatError> {
        let mut finished = Self::default();
        while let Some(field) = fields.next()? {
            match field.tag {
                tag::OUTPUT => finished.tables.push(Table::take(&field)?),
                tag::REST => finished.rest = field.bytes.to_vec(),
                _ => finished.counters.take(&field)?,
            }
        }
        Ok(finished)
    }
}

/// How far a job is at a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobState {
    /// It waits for others.
    Waiting,
    /// It has read so many entries.
    Running(u64),
    /// It is over; the report is about this job and attempt.
    Over(Report),
    /// Its input tables are being sent.
    Receiving,
    /// The part of an output table that was asked for.
    Chunk(Vec<u8>),
}

/// The tags of requests and answers. Never reuse a number.
mod tag {
    pub(super) const ID: u32 = 1;
    pub(super) const ATTEMPT: u32 = 2;
    /// The kind of a question, or how far a job is.
    pub(super) const KIND: u32 = 3;
    pub(super) const DIRECTORY: u32 = 4;
    pub(super) const JOB: u32 = 5;
    pub(super) const LEASE_MS: u32 = 6;
    pub(super) const BYTES_MAX: u32 = 7;
    pub(super) const WAIT_MS: u32 = 8;
    pub(super) const TABLE: u32 = 9;
    pub(super) const OFFSET: u32 = 10;
    pub(super) const BYTES: u32 = 11;
    pub(super) const LENGTH: u32 = 12;

    /// In a request to watch.
    pub(super) const KNOWN: u32 = 13;

    /// In an answer.
    pub(super) const ENTRIES: u32 = 4;
    pub(super) const REPORT: u32 = 5;
    pub(super) const FINISHED: u32 = 12;

    /// In the finished tables of an answer, beside the counters of a report.
    pub(super) const REST: u32 = 1;
    pub(super) const OUTPUT: u32 = 5;
}

/// Kinds of questions. The numbers travel: never renumber.
mod call {
    pub(super) const BEGIN: u64 = 1;
    pub(super) const WATCH: u64 = 2;
    pub(super) const CANCEL: u64 = 3;
    pub(super) const SEND: u64 = 4;
    pub(super) const START: u64 = 5;
    pub(super) const FETCH: u64 = 6;
}

/// How far a job is. The numbers travel: never renumber.
mod state {
    pub(super) const WAITING: u64 = 1;
    pub(super) const RUNNING: u64 = 2;
    pub(super) const OVER: u64 = 3;
    pub(super) const RECEIVING: u64 = 4;
    pub(super) const CHUNK: u64 = 5;
}

/// The name of the directory, in that of the database, that one run of a job makes its tables in.
pub fn job_directory_name(id: JobId, attempt: u64) -> String {
    let digits = id.0.iter().map(|byte| format!("{byte:02x}"));
    format!("{JOB_DIRECTORY}{}-{attempt}", digits.collect::<String>())
}

/// Whether `name` is one that [`job_directory_name`] gives.
pub fn is_job_directory_name(name: &str) -> bool {
    let Some((digits, attempt)) = name
        .strip_prefix(JOB_DIRECTORY)
        .and_then(|rest| rest.split_once('-'))
    else {
        return false;
    };
    let are_digits = digits.len() == 32 && digits.bytes().all(|it| it.is_ascii_hexdigit());
    are_digits && !attempt.is_empty() && attempt.bytes().all(|it| it.is_ascii_digit())
}

const TOO_LONG: &str = "a message has more of a table than it may";

/// What the name of a job's directory begins with.
const JOB_DIRECTORY: &str = "compaction-";

impl Request {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = FieldWriter::default();
        out.bytes(tag::ID, &self.id.0)
            .number(tag::ATTEMPT, self.attempt);
        match &self.call {
            Call::Begin(begin) => {
                out.number(tag::KIND, call::BEGIN)
                    .bytes(tag::DIRECTORY, &begin.directory)
                    .bytes(tag::JOB, &begin.job.encode())
                    .number(tag::LEASE_MS, begin.lease_ms)
                    .number(tag::BYTES_MAX, begin.bytes_max);
            }
            Call::Watch(watch) => {
                out.number(tag::KIND, call::WATCH)
                    .number(tag::WAIT_MS, watch.wait_ms)
                    .number(tag::KNOWN, watch.known);
            }
            Call::Cancel => {
                out.number(tag::KIND, call::CANCEL);
            }
            Call::Send(chunk) => {
                out.number(tag::KIND, call::SEND)
                    .number(tag::TABLE, chunk.table)
                    .number(tag::OFFSET, chunk.offset)
                    .bytes(tag::BYTES, &chunk.bytes);
            }
            Call::Start => {
                out.number(tag::KIND, call::START);
            }
            Call::Fetch(part) => {
                out.number(tag::KIND, call::FETCH)
                    .number(tag::TABLE, part.table)
                    .number(tag::OFFSET, part.offset)
                    .number(tag::LENGTH, part.length);
            }
        }
        seal(REQUEST_MAGIC, out.finish())
    }

    /// The request of these bytes, or why they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = unseal(REQUEST_MAGIC, bytes)?;
        let (mut id, mut attempt, mut kind) = (JobId::default(), 0, 0);
        let (mut begin, mut watch) = (Begin::default(), Watch::default());
        let (mut part, mut sent) = (Part::default(), Vec::new());
        let mut job = None;
        while let Some(field) = fields.next()? {
            match field.tag {
                tag::ID => id = JobId::take(&field)?,
                tag::ATTEMPT => attempt = field.number()?,
                tag::KIND => kind = field.number()?,
                tag::DIRECTORY => begin.directory = field.bytes.to_vec(),
                tag::JOB => job = Some(Job::decode(field.bytes)?),
                tag::LEASE_MS => begin.lease_ms = field.number()?,
                tag::BYTES_MAX => begin.bytes_max = field.number()?,
                tag::WAIT_MS => watch.wait_ms = field.number()?,
                tag::KNOWN => watch.known = field.number()?,
                tag::TABLE => part.table = field.number()?,
                tag::OFFSET => part.offset = field.number()?,
                tag::BYTES => sent = field.bytes.to_vec(),
                tag::LENGTH => part.length = field.number()?,
                _ => {}
            }
        }
        let malformed = |reason| Err(FormatError::malformed(bytes.len(), reason));
        let call = match kind {
            call::BEGIN => match job {
                Some(job) if (job.id, job.attempt) == (id, attempt) => {
                    Call::Begin(Box::new(Begin { job, ..begin }))
                }
                Some(_) => return malformed("a request is about one job and holds another"),
                None => return malformed("a request to begin has no job"),
            },
            call::WATCH => Call::Watch(watch),
            call::CANCEL => Call::Cancel,
            call::SEND if sent.len() > CHUNK_BYTES_MAX => return malformed(TOO_LONG),
            call::SEND => Call::Send(Chunk {
                table: part.table,
                offset: part.offset,
                bytes: sent,
            }),
            call::START => Call::Start,
            call::FETCH if part.length > CHUNK_BYTES_MAX as u64 => return malformed(TOO_LONG),
            call::FETCH => Call::Fetch(part),
            _ => {
                let reason = "a request asks what no version before this one asked";
                return Err(FormatError::unsupported(bytes.len(), reason));
            }
        };
        Ok(Self { id, attempt, call })
    }
}

impl Answer {
    /// That this attempt at the job is so far.
    pub fn new((id, attempt): (JobId, u64), state: JobState) -> Self {
        Self {
            id,
            attempt,
            state,
            finished: None,
        }
    }

    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = FieldWriter::default();
        out.bytes(tag::ID, &self.id.0)
            .number(tag::ATTEMPT, self.attempt);
        match &self.state {
            JobState::Waiting => {
                out.number(tag::KIND, state::WAITING);
            }
            JobState::Running(entries) => {
                out.number(tag::KIND, state::RUNNING)
                    .number(tag::ENTRIES, *entries);
            }
            JobState::Over(report) => {
                out.number(tag::KIND, state::OVER)
                    .bytes(tag::REPORT, &report.encode());
            }
            JobState::Receiving => {
                out.number(tag::KIND, state::RECEIVING);
            }
            JobState::Chunk(bytes) => {
                out.number(tag::KIND, state::CHUNK).bytes(tag::BYTES, bytes);
            }
        }
        if let Some(finished) = &self.finished {
            out.group(tag::FINISHED, |out| finished.put(out));
        }
        seal(ANSWER_MAGIC, out.finish())
    }

    /// The answer of these bytes, or why they are none.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let mut fields = unseal(ANSWER_MAGIC, bytes)?;
        let (mut id, mut attempt, mut kind, mut entries) = (JobId::default(), 0, 0, 0);
        let (mut report, mut chunk, mut finished) = (None, Vec::new(), None);
        while let Some(field) = fields.next()? {
            match field.tag {
                tag::ID => id = JobId::take(&field)?,
                tag::ATTEMPT => attempt = field.number()?,
                tag::KIND => kind = field.number()?,
                tag::ENTRIES => entries = field.number()?,
                tag::REPORT => report = Some(Report::decode(field.bytes)?),
                tag::BYTES => chunk = field.bytes.to_vec(),
                tag::FINISHED => finished = Some(Finished::take(field.group())?),
                _ => {}
            }
        }
        let malformed = |reason| Err(FormatError::malformed(bytes.len(), reason));
        let state = match kind {
            state::WAITING => JobState::Waiting,
            state::RUNNING => JobState::Running(entries),
            state::OVER => match report {
                Some(report) if (report.id, report.attempt) == (id, attempt) => {
                    JobState::Over(report)
                }
                Some(_) => return malformed("an answer is about one job and reports another"),
                None => return malformed("a job is over, and there is no report"),
            },
            state::RECEIVING => JobState::Receiving,
            state::CHUNK if chunk.len() > CHUNK_BYTES_MAX => return malformed(TOO_LONG),
            state::CHUNK => JobState::Chunk(chunk),
            _ => {
                let reason = "a job is as far as no version before this one knew";
                return Err(FormatError::unsupported(bytes.len(), reason));
            }
        };
        Ok(Self {
            id,
            attempt,
            state,
            finished,
        })
    }
}
