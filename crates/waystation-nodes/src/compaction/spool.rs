//! The spool: where a worker keeps the tables of engines whose directories it does not see.
//!
//! Each job has a directory of its own there, laid out like that of a database: the tables that were sent, and in it the
//! job's directory with the tables made. It goes when the connection ends.
//!
//! Invariants:
//! - names are made of numbers, so nothing that an engine sends leads out of the job's directory;
//! - an engine sends the tables that the job lists, in their order, each from its first byte to its last: no byte twice,
//!   none beyond what the job says;
//! - one process has the spool; what an earlier one left is removed when it is opened.

use super::queue::failed;
use crate::error::{AgentError, Result};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use waystation::storage::{OsStorage, Storage};
use waystation_format::compaction::{
    Begin, CHUNK_BYTES_MAX, Chunk, Failure, JobId, JobState, Part, job_directory_name,
};
use waystation_format::filename::table_name;

/// What the name of a job's directory begins with.
const SENT: &str = "sent-";
/// The file that the process holds locked which has the spool.
const LOCK: &str = "LOCK";

/// See the module.
#[derive(Debug)]
pub(super) struct Spool {
    directory: PathBuf,
    storage: std::sync::Arc<OsStorage>,
    /// Locked as long as it is open.
    _lock: File,
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

impl Spool {
    /// Takes `directory`, made if it is missing, and empties it of what an earlier worker left.
    pub(super) fn open(directory: &Path) -> Result<Self> {
        let refused = |source| AgentError::Directory {
            path: directory.to_owned(),
            source,
        };
        match make_directory(directory) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(refused(error)),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let lock = options.open(directory.join(LOCK)).map_err(refused)?;
        if lock.try_lock().is_err() {
            return Err(AgentError::Locked(directory.to_owned()));
        }
        for entry in fs::read_dir(directory).map_err(refused)? {
            let entry = entry.map_err(refused)?;
            if entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(SENT.as_bytes())
            {
                fs::remove_dir_all(entry.path()).map_err(refused)?;
            }
        }
        Ok(Self {
            directory: directory.to_owned(),
            storage: OsStorage::new(),
            _lock: lock,
        })
    }

    /// Makes room for the job of `begin`, or says why there is none.
    pub(super) fn receive(&self, mut begin: Begin) -> Result<SentJob, (Failure, String)> {
        let free = self.storage.free_bytes(&self.directory);
        let free = free.map_err(|error| (Failure::Retryable, error.to_string()))?;
        let sizes = begin.job.tables().map(|table| table.file_bytes);
        let inputs = sizes.fold(0_u64, u64::saturating_add);
        // Inputs and outputs lie here at once, and outputs are seldom larger.
        if free / 2 < inputs {
            let reason = format!(
                "a job of {inputs} bytes needs twice as much room, and {} has {free}",
                self.directory.display()
            );
            return Err((Failure::Space, reason));
        }
        begin.bytes_max = begin.bytes_max.min(free - inputs);
        let run = (begin.job.id, begin.job.attempt);
        let name = job_directory_name(run.0, run.1);
        let directory = self.directory.join(format!("{SENT}{name}"));
        let made = make_directory(&directory).and_then(|()| make_directory(&directory.join(name)));
        made.map_err(|error| failure_of(&directory, &error))?;
        let tables = begin.job.tables();
        let expected: Vec<_> = tables.map(|it| (it.number, it.file_bytes)).collect();
        let mut job = SentJob {
            directory,
            begin: Some(begin),
            run,
            expected: expected.into_iter(),
            at: None,
        };
        job.next_table();
        Ok(job)
    }
}

fn failure_of(path: &Path, error: &io::Error) -> (Failure, String) {
    let failure = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Failure::Space,
        _ => Failure::Retryable,
    };
    (failure, format!("{}: {error}", path.display()))
}

/// The table that is being sent.
#[derive(Debug)]
struct Incoming {
    number: u64,
    bytes: u64,
    taken: u64,
    file: Option<File>,
}

/// A job whose tables lie in the spool; dropped, they are removed.
#[derive(Debug)]
pub(super) struct SentJob {
    directory: PathBuf,
    /// `None` once it was started.
    begin: Option<Begin>,
    run: (JobId, u64),
    /// Numbers and lengths of the tables that come after the present one.
    expected: std::vec::IntoIter<(u64, u64)>,
    at: Option<Incoming>,
}

impl SentJob {
    /// Which attempt at which job it is.
    pub(super) fn run(&self) -> (JobId, u64) {
        self.run
    }

    fn next_table(&mut self) {
        let next = self.expected.next();
        self.at = next.map(|(number, bytes)| Incoming {
            number,
            bytes,
            taken: 0,
            file: None,
        });
    }

    /// Takes bytes of a table.
    pub(super) fn take(&mut self, chunk: &Chunk) -> JobState {
        let state = self.try_take(chunk).map(|()| JobState::Receiving);
        state.unwrap_or_else(|failure| self.over(failure))
    }

    fn try_take(&mut self, chunk: &Chunk) -> Result<(), (Failure, String)> {
        let length = chunk.bytes.len() as u64;
        let Some(at) = &mut self.at else {
            return Err(out_of_turn(chunk));
        };
        let is_next = (at.number, at.taken) == (chunk.table, chunk.offset);
        if !is_next || length == 0 || at.bytes - at.taken < length {
            return Err(out_of_turn(chunk));
        }
        let path = self.directory.join(table_name(at.number));
        let written = at.write(&path, &chunk.bytes);
        written.map_err(|error| failure_of(&path, &error))?;
        if at.taken == at.bytes {
            self.next_table();
        }
        Ok(())
    }

    /// The job, whose tables are all there, and where; or the end of it.
    pub(super) fn start(&mut self) -> Result<(PathBuf, Begin), JobState> {
        let begin = match self.at {
            None => self.begin.take(),
            Some(_) => None,
        };
        let directory = self.directory.clone();
        let early = || {
            (
                Failure::Inputs,
                "not all tables of the job were sent, or it was started before".to_owned(),
            )
        };
        begin
            .map(|begin| (directory, begin))
            .ok_or_else(|| self.over(early()))
    }

    /// A part of a table that the job made.
    pub(super) fn give(&self, part: Part) -> JobState {
        let room = self
            .directory
            .join(job_directory_name(self.run.0, self.run.1));
        let path = room.join(table_name(part.table));
        let length = part.length.min(CHUNK_BYTES_MAX as u64) as usize;
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = vec![0; length];
            File::open(&path)?.read_exact_at(&mut bytes, part.offset)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => JobState::Chunk(bytes),
            Err(error) => self.over(failure_of(&path, &error)),
        }
    }

    /// The end of the job, without tables.
    pub(super) fn over(&self, (failure, reason): (Failure, String)) -> JobState {
        JobState::Over(failed(self.run, failure, reason))
    }
}

impl Incoming {
    fn write(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let mut options = OpenOptions::new();
                let opened = options
                    .create_new(true)
                    .write(true)
                    .mode(0o600)
                    .open(path)?;
                none.insert(opened)
            }
        };
        file.write_all(bytes)?;
        self.taken += bytes.len() as u64;
        Ok(())
    }
}

fn out_of_turn(chunk: &Chunk) -> (Failure, String) {
    let reason = format!(
        "{} bytes at {} of table {} were not what had to come next",
        chunk.bytes.len(),
        chunk.offset,
        chunk.table
    );
    (Failure::Inputs, reason)
}

impl Drop for SentJob {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            log::warn!(
                "{} stays until the worker starts anew: {error}",
                self.directory.display()
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use waystation_format::compaction::{InputLevel, Job, Outcome, Table};

    const ID: JobId = JobId([7; 16]);

    fn begin(sizes: &[u64]) -> Begin {
        let table = |(at, &file_bytes): (usize, &u64)| Table {
            number: 10 + at as u64,
            file_bytes,
            ..Table::default()
        };
        let input = InputLevel {
            level: 0,
            tables: sizes.iter().enumerate().map(table).collect(),
        };
        Begin {
            bytes_max: u64::MAX,
            job: Job {
                id: ID,
                attempt: 1,
                inputs: vec![input],
                ..Job::default()
            },
            ..Begin::default()
        }
    }

    fn chunk(table: u64, offset: u64, bytes: &[u8]) -> Chunk {
        let bytes = bytes.to_vec();
        Chunk {
            table,
            offset,
            bytes,
        }
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> = entries
            .map(|entry| name(entry).into_string().expect("text"))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn tables_are_taken_in_their_order_and_go_with_the_job() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = Spool::open(&dir.path().join("spool")).expect("a spool");
        let mut job = spool.receive(begin(&[6, 2])).expect("room");
        for (table, offset, bytes) in [(10, 0, &b"abcd"[..]), (10, 4, b"ef"), (11, 0, b"gh")] {
            assert!(job.start().is_err(), "not all of it is there");
            assert_eq!(job.take(&chunk(table, offset, bytes)), JobState::Receiving);
        }
        let (directory, begin) = job.start().expect("all of it is there");
        assert!(begin.bytes_max < u64::MAX, "the free space bounds it");
        let read = |name| fs::read(directory.join(name)).expect("a table");
        assert_eq!(
            (read("000010.ldb"), read("000011.ldb")),
            (b"abcdef".to_vec(), b"gh".to_vec())
        );
        assert!(job.start().is_err(), "it starts once");
        let room = directory.join(job_directory_name(ID, 1));
        fs::write(room.join("000001.ldb"), b"made").expect("a table");
        let part = |table, offset, length| Part {
            table,
            offset,
            length,
        };
        assert_eq!(job.give(part(1, 1, 3)), JobState::Chunk(b"ade".to_vec()));
        for missing in [part(1, 2, 3), part(2, 0, 1), part(1, u64::MAX, 1)] {
            assert!(matches!(job.give(missing), JobState::Over(_)));
        }
        drop(job);
        assert_eq!(names(&dir.path().join("spool")), ["LOCK"]);
    }

    #[test]
    fn what_is_not_next_ends_the_job() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = Spool::open(dir.path()).expect("a spool");
        let wrong = [
            chunk(11, 0, b"gh"),
            chunk(10, 1, b"bc"),
            chunk(10, 0, b"abcdefg"),
            chunk(10, 0, b""),
            chunk(12, 0, b"a"),
        ];
        for chunk in wrong {
            let mut job = spool.receive(begin(&[6, 2])).expect("room");
            let JobState::Over(report) = job.take(&chunk) else {
                panic!("{chunk:?} was taken");
            };
            assert!(matches!(
                report.outcome,
                Outcome::Failed(Failure::Inputs, _)
            ));
        }
        let mut job = spool.receive(begin(&[1])).expect("room");
        assert_eq!(job.take(&chunk(10, 0, b"a")), JobState::Receiving);
        assert!(matches!(job.take(&chunk(10, 1, b"b")), JobState::Over(_)));
    }

    #[test]
    fn a_spool_has_one_worker_and_none_of_what_an_earlier_one_left() {
        let dir = tempfile::tempdir().expect("a directory");
        let spool = Spool::open(dir.path()).expect("a spool");
        let second = Spool::open(dir.path());
        assert!(matches!(second, Err(AgentError::Locked(_))));
        std::mem::forget(spool.receive(begin(&[6])).expect("room"));
        assert_eq!(names(dir.path()).len(), 2);
        drop(spool);
        fs::write(dir.path().join("mine"), b"").expect("a file");
        let spool = Spool::open(dir.path()).expect("a spool");
        assert_eq!(names(dir.path()), ["LOCK", "mine"]);
        let huge = spool.receive(begin(&[u64::MAX, 5]));
        assert!(matches!(huge, Err((Failure::Space, _))));
    }
}
