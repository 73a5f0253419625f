//! Tables on the wire, for a worker that does not see the directory of the database.
//!
//! Inputs go there whole, one after the other, before the job starts; outputs come back into the job's directory, where a
//! worker that sees it would have put them. From there on nothing differs: what came is not believed, but verified.

use super::remote::{Kept, micros_since, output_bytes_max};
use super::stats::{LocalReason, Times};
use super::watched::{OTHER_ANSWER, Watched, confused};
use crate::error::Error;
use crate::sst::TableMeta;
use crate::storage::{Area, File, OpenMode, Transfer};
use crate::sync::Arc;
use std::path::Path;
use waystation_format::compaction::{CHUNK_BYTES_MAX, Call, Chunk, JobState, Outcome, Part};
use waystation_format::filename::table_name;

/// The parts of so many bytes: where each begins, and its length.
fn parts(bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let step = CHUNK_BYTES_MAX as u64;
    let count = bytes.div_ceil(step);
    (0..count).map(move |at| (at * step, step.min(bytes - at * step)))
}

fn by_storage(error: &Error) -> Kept {
    Kept::by(LocalReason::Storage, error)
}

impl Watched<'_> {
    /// Sends the tables that the job reads.
    pub(super) fn send_inputs(&mut self, times: &mut Times) -> Result<(), Kept> {
        let started = self.place.storage.now();
        let job = self.job;
        for table in job.tables() {
            let path = self.place.tables.path(table.number);
            let file = self.open(&path, OpenMode::Read)?;
            for (offset, length) in parts(table.file_bytes) {
                self.go_on()?;
                let mut bytes = vec![0; length as usize];
                let read = file.read_window(&mut bytes, offset);
                let read = read.map_err(|error| by_storage(&error))?;
                if read < bytes.len() {
                    let reason = format!("{} ends before its footer", path.display());
                    return Err(Kept::by(LocalReason::Storage, &reason));
                }
                let chunk = Chunk {
                    table: table.number,
                    offset,
                    bytes,
                };
                match self.ask(Call::Send(chunk))? {
                    JobState::Receiving => times.sent_bytes += length,
                    other => return Err(given_up(other)),
                }
            }
        }
        times.transfer += micros_since(self.place, started);
        Ok(())
    }

    /// Fetches the tables that the worker reported into `directory`, under the numbers that it gave them.
    pub(super) fn fetch_outputs(
        &mut self,
        directory: &Path,
        outputs: &[TableMeta],
        times: &mut Times,
    ) -> Result<(), Kept> {
        let started = self.place.storage.now();
        let told: u128 = outputs.iter().map(|it| u128::from(it.file_bytes)).sum();
        if told > output_bytes_max(self.job).into() {
            let reason = format!("the worker reported tables of {told} bytes");
            return Err(Kept::by(LocalReason::Contradiction, &reason));
        }
        for output in outputs {
            let table = output.number;
            let file = self.open(&directory.join(table_name(table)), OpenMode::Create)?;
            for (offset, length) in parts(output.file_bytes) {
                self.go_on()?;
                let part = Part {
                    table,
                    offset,
                    length,
                };
                match self.ask(Call::Fetch(part))? {
                    JobState::Chunk(bytes) if bytes.len() as u64 == length => {
                        let written = file.write_at(&bytes, offset);
                        written.map_err(|error| by_storage(&error))?;
                        times.fetched_bytes += length;
                    }
                    other => return Err(given_up(other)),
                }
            }
        }
        times.transfer += micros_since(self.place, started);
        Ok(())
    }

    fn open(&self, path: &Path, mode: OpenMode) -> Result<Arc<dyn File>, Kept> {
        let storage = self.place.storage;
        let opened = storage.open(path, mode, Transfer::Buffered, Area::Tables);
        opened.map_err(|error| by_storage(&error))
    }
}

/// Why a job is kept whose worker answered so while tables travelled.
fn given_up(state: JobState) -> Kept {
    match state {
        JobState::Over(report) => match report.outcome {
            Outcome::Failed(failure, reason) => Kept::by(failure.into(), &reason),
            Outcome::Done(_) => confused(&OTHER_ANSWER),
        },
        _ => confused(&OTHER_ANSWER),
    }
}
