//! Writes a native trace many times over, one run behind the other: traces of any length to measure with.
//!
//! `cargo run --release -p waystation-advisor --example repeat -- run.trace 7000 long.trace`

use std::path::Path;
use std::process::ExitCode;

use waystation_advisor::Result;
use waystation_advisor::event::{NOT_COMPLETED, TraceInfo};
use waystation_advisor::native::{Writer, load};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, input, times, output] = &arguments[..] else {
        eprintln!("usage: repeat INPUT TIMES OUTPUT");
        return ExitCode::FAILURE;
    };
    let Ok(times) = times.parse() else {
        eprintln!("\"{times}\" is no number of times");
        return ExitCode::FAILURE;
    };
    match repeat(Path::new(input), times, Path::new(output)) {
        Ok(requests) => {
            println!("{requests} requests");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn repeat(input: &Path, times: u64, output: &Path) -> Result<u64> {
    let trace = load(input)?;
    // Counts are made anew.
    let info = TraceInfo {
        source: format!("{} repeated", trace.info.source),
        areas: trace.info.areas.clone(),
        comms: trace.info.comms.clone(),
        ..TraceInfo::default()
    };
    let mut writer = Writer::create(output, info)?;
    for turn in 0..times {
        let shift_ns = turn * (trace.info.end_ns + 1_000_000);
        for request in &trace.requests {
            let mut request = *request;
            request.issue_ns += shift_ns;
            if request.complete_ns != NOT_COMPLETED {
                request.complete_ns += shift_ns;
            }
            writer.push(request)?;
        }
    }
    Ok(writer.finish()?.requests)
}
