//! Merges that run twice: at the worker and here. What this process made is installed; the other is compared with it.

use super::remote::RemoteExecutor;
use crate::error::Result;
use crate::lsm::compaction::{
    CompactionExecutor, Job, JobResult, LocalExecutor, Workplace, remove_outputs,
};
use crate::lsm::iter::{LevelIterator, Run};
use crate::sst::{InternalIterator, TableMeta};
use crate::sync::{Arc, lock};

impl RemoteExecutor {
    /// Whether a job that the worker ran is to run here, too.
    pub(super) fn is_shadowed(&self, place: &Workplace<'_>) -> bool {
        let percent = u64::from(self.settings().shadow_percent);
        percent > 0 && place.storage.random() % 100 < percent
    }

    /// Runs `job` here as well, counts and reports a difference, and gives the tables that were made here.
    pub(super) fn shadow(
        &self,
        job: &Job,
        of_worker: &JobResult,
        place: &Workplace<'_>,
    ) -> Result<JobResult> {
        let local = LocalExecutor.execute(job, place);
        let compared = local.and_then(|local| {
            let difference = difference(&of_worker.outputs, &local.outputs, place);
            let difference = difference.inspect_err(|_| remove_outputs(place, &local.outputs));
            Ok((difference?, local))
        });
        remove_outputs(place, &of_worker.outputs);
        let (difference, local) = compared?;
        let mut stats = lock(&self.stats);
        stats.shadowed += 1;
        if let Some(difference) = difference {
            stats.different += 1;
            log::error!(
                "a worker's merge into level {} is not the one that was made here, and is thrown away: {difference}",
                job.output_level
            );
        }
        Ok(local)
    }
}

/// Where the entries of two lists of tables differ first.
fn difference(
    theirs: &[TableMeta],
    ours: &[TableMeta],
    place: &Workplace<'_>,
) -> Result<Option<String>> {
    let open = |tables: &[TableMeta]| {
        let tables = tables.iter().cloned().map(Arc::new).collect();
        let mut cursor = LevelIterator::for_merge(Arc::clone(place.outputs), Run::List(tables));
        cursor.seek_to_first().map(|()| cursor)
    };
    let (mut theirs, mut ours) = (open(theirs)?, open(ours)?);
    let mut same = 0_u64;
    while theirs.valid() && ours.valid() {
        if (theirs.key(), theirs.value()) != (ours.key(), ours.value()) {
            return Ok(Some(format!("entry {same} is another")));
        }
        same += 1;
        theirs.next()?;
        ours.next()?;
    }
    let one_ended = theirs.valid() || ours.valid();
    Ok(one_ended.then(|| format!("one has {same} entries, and the other has more")))
}
