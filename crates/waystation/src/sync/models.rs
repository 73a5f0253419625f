//! How models of what threads do together are explored.

use crate::sync::Arc;
use shuttle::Runner;
use shuttle::scheduler::{PctScheduler, RandomScheduler};

/// How often a schedule of the second kind takes the turn from the thread that comes first.
const DEPTH: usize = 4;
/// A merge needs more than the few pages that a thread gets otherwise.
const STACK_BYTES: usize = 1 << 20;

/// Runs `model` under `schedules` schedules, times `MODEL_FACTOR` of the environment: half of them random at every
/// step, half with random priorities, under which a thread may be held up for long.
pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static, schedules: usize) {
    let factor = std::env::var("MODEL_FACTOR").map_or(1, |it| it.parse().expect("a number"));
    let runs = schedules * factor / 2;
    let mut config = shuttle::Config::new();
    config.stack_size = STACK_BYTES;
    let model = Arc::new(model);
    let again = Arc::clone(&model);
    Runner::new(RandomScheduler::new(runs), config.clone()).run(move || (*again)());
    Runner::new(PctScheduler::new(DEPTH, runs), config).run(move || (*model)());
}
