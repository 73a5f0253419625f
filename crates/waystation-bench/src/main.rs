//! `waystation-bench`: workloads and rivals side by side.
//!
//! ```text
//!  parent: order, raw device, medians                     worker: one engine, one process
//!  cli -> commands/{db, iot, ycsb, reopen, plot, ...}     worker -> engines/{waystation, leveldb, rocksdb, fjall}
//!             |  series: list of benchmarks    protocol       |      workload: db_bench's loops
//!             +-> session  <------------ lines of JSON -------+      measure: latency, cpu, memory, bytes
//!             +-> raw, stolen, place, machine, stats, report
//! ```
//!
//! One process runs one engine, engines take turns, every figure comes with the machine it was measured on, and
//! a run during which the device changed its speed is repeated.

#![allow(
    clippy::cast_precision_loss,
    reason = "figures for people: 2^53 operations are not exceeded"
)]
mod cgroup;
mod cli;
mod clock;
mod commands;
mod cores;
mod documents;
mod drives;
mod engines;
mod error;
mod interrupt;
mod machine;
mod measure;
mod offload;
mod place;
mod protocol;
mod raw;
mod report;
mod serve;
mod session;
mod stats;
mod stolen;
mod tiers;
mod worker;
mod workload;

use clap::Parser;
use cli::{Cli, Measure};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            interrupt::park_if_interrupted();
            eprintln!("waystation-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(measure: &Measure) -> error::Result<()> {
    if let Measure::Worker { settings } = measure {
        return worker::work(settings);
    }
    if let Measure::Merger(args) = measure {
        return offload::merge_for(args);
    }
    if let Measure::Emulate { description } = measure {
        return tiers::serve(description);
    }
    interrupt::install()?;
    match measure {
        Measure::Db(args) => commands::db(args),
        Measure::Compare(args) => commands::compare(args),
        Measure::Stalls(args) => commands::stalls(args),
        Measure::Iot(args) => commands::iot(args),
        Measure::Depart(args) => commands::depart(args),
        Measure::Documents(args) => commands::documents(args),
        Measure::Drives(args) => commands::drives(args),
        Measure::Offload(args) => commands::offload(args),
        Measure::Serve(args) => commands::serve(args),
        Measure::Placement(args) => commands::placement(args),
        Measure::Ycsb(args) => commands::ycsb(args),
        Measure::Reopen(args) => commands::reopen(args),
        Measure::Plot(args) => commands::plot(args),
        Measure::Worker { settings } => worker::work(settings),
        Measure::Merger(args) => offload::merge_for(args),
        Measure::Emulate { description } => tiers::serve(description),
    }
}
