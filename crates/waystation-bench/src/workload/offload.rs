//! Random puts for so long that merging is a steady part of the work, and what merging took of it.
//!
//! The first puts fill the tree and are not counted: as many as are counted then. Nothing waits in between, so
//! the counted puts begin with about as much left to merge as they end with.

use super::{Benchmark, Load, run};
use crate::clock;
use crate::engines::{Engine, Merges};
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// How much is put.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct OffloadLoad {
    /// Keys are random numbers below this; so many puts fill the tree, and as many are counted.
    pub(crate) num: u32,
    /// The length of every value.
    pub(crate) value_bytes: usize,
}

/// What was seen of the puts that count.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OffloadFigures {
    /// Puts.
    pub(crate) ops: u64,
    /// Puts per second.
    pub(crate) ops_per_s: f64,
    /// The latency that half of the puts do not exceed.
    pub(crate) p50_us: f64,
    /// The latency that 99.9 % of the puts do not exceed.
    pub(crate) p999_us: f64,
    /// The longest put.
    pub(crate) max_us: f64,
    /// Processor seconds of the engine's process, clients included.
    pub(crate) host_cpu_s: f64,
    /// Of these, seconds that merges took.
    pub(crate) host_merge_cpu_s: f64,
    /// Bytes that merges of level 0 read per second of theirs, in units of 10^6.
    pub(crate) level0_mb_per_s: f64,
    /// The same of merges below.
    pub(crate) deeper_mb_per_s: f64,
    /// The part of the bytes read by merges that were read elsewhere.
    pub(crate) share_offloaded: f64,
    /// Merges that ran in the engine's process although there was another place, by reason.
    pub(crate) local: BTreeMap<String, u64>,
    /// Seconds that merges elsewhere waited, ran, were verified and were installed.
    pub(crate) elsewhere_s: [f64; 4],
    /// What the levels held beyond what they should, before and after, in units of 10^6 bytes.
    pub(crate) debt_mb: [f64; 2],
    /// How long after the last put the engine went on.
    pub(crate) idle_after_s: f64,
}

/// Puts twice as much as counts. Tells `on_progress` (done, total) now and then, and when the counted half begins and ends.
pub(crate) fn run_offload<E: Engine>(
    engine: &E,
    load: OffloadLoad,
    on_progress: impl Fn(u64, u64),
) -> Result<OffloadFigures> {
    let of = |threads_before| Load {
        num: load.num,
        value_bytes: load.value_bytes,
        threads: 1,
        threads_before,
    };
    let merges = || {
        let untold = || Error::engine(E::NAME, "tell of its merges", "it does not");
        engine.merges().ok_or_else(untold)
    };
    let half = u64::from(load.num);
    let all = 2 * half;
    run(engine, Benchmark::FillRandom, of(0), |done, _| {
        on_progress(done, all);
    })?;
    let before = merges()?;
    on_progress(half, all);
    let (outcome, meter) = run(engine, Benchmark::FillRandom, of(1), |done, _| {
        on_progress(half + done, all);
    })?;
    on_progress(all, all);
    let host_cpu_s = meter.cpu_s();
    let after = merges()?;
    let finished = clock::now();
    let quiet = engine.wait_idle()?;
    let seconds = outcome.elapsed.as_secs_f64().max(1e-9);
    Ok(OffloadFigures {
        ops: outcome.ops,
        ops_per_s: outcome.ops as f64 / seconds,
        p50_us: outcome.latencies.quantile_us(0.5),
        p999_us: outcome.latencies.quantile_us(0.999),
        max_us: outcome.latencies.max_us(),
        host_cpu_s,
        idle_after_s: finished.elapsed().saturating_sub(quiet).as_secs_f64(),
        ..between(&before, &after)
    })
}

/// What merges did between two looks at them.
pub(crate) fn between(before: &Merges, after: &Merges) -> OffloadFigures {
    let seconds = |after: Duration, before: Duration| after.saturating_sub(before).as_secs_f64();
    let rate = |after: (u64, Duration), before: (u64, Duration)| {
        let spent = seconds(after.1, before.1);
        let bytes = after.0.saturating_sub(before.0);
        if spent > 0.0 {
            bytes as f64 / 1e6 / spent
        } else {
            0.0
        }
    };
    let away = after.read_bytes.0.saturating_sub(before.read_bytes.0);
    let here = after.read_bytes.1.saturating_sub(before.read_bytes.1);
    let mut local = after.local.clone();
    for (reason, jobs) in &mut local {
        *jobs -= before.local.get(reason).unwrap_or(&0);
    }
    local.retain(|_, jobs| *jobs > 0);
    OffloadFigures {
        ops: 0,
        ops_per_s: 0.0,
        p50_us: 0.0,
        p999_us: 0.0,
        max_us: 0.0,
        host_cpu_s: 0.0,
        host_merge_cpu_s: seconds(after.cpu, before.cpu),
        level0_mb_per_s: rate(after.level0, before.level0),
        deeper_mb_per_s: rate(after.deeper, before.deeper),
        share_offloaded: away as f64 / (away + here).max(1) as f64,
        local,
        elsewhere_s: [0, 1, 2, 3].map(|at| seconds(after.elsewhere[at], before.elsewhere[at])),
        debt_mb: [before, after].map(|merges| merges.debt_bytes as f64 / 1e6),
        idle_after_s: 0.0,
    }
}
