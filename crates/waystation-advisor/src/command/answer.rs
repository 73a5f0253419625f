//! `advise`, `explain`, `validate`.

use super::arguments::{Advise, DeviceArguments, Explain, Graph, Validate};
use super::traces::characterise;
use super::{Show, print, print_json, progress};
use crate::advise::{explain as explainer, render};
use crate::error::{Error, Result};
use crate::event::BLOCK_BYTES;
use crate::export::refuse_overwriting;
use crate::native::{Trace, load};
use crate::record::Stop;
use crate::record::live::{self, Live, SlowDevice};
use crate::report::html;
use crate::simulate::Machine;
use crate::units::parse_bytes;
use crate::{advise as adviser, validate as validator};

fn machine(arguments: &DeviceArguments) -> Result<Machine> {
    match &arguments.devices {
        Some(file) => Machine::from_file(file),
        None => Machine::of_presets(&arguments.slow, &arguments.fast_device),
    }
}

pub(super) fn advise(arguments: &Advise, show: Show) -> Result<()> {
    let machine = machine(&arguments.devices)?;
    if let Some(file) = &arguments.html {
        refuse_overwriting(&arguments.trace, file)?;
    }
    let capacities = arguments
        .fast
        .iter()
        .map(|size| parse_bytes(size))
        .collect::<Result<Vec<_>>>()?;
    if !arguments.live.is_empty() {
        super::recording::record_for(&arguments.live, &arguments.trace, arguments.time, show)?;
    }
    let trace = load(&arguments.trace)?;
    let bar = progress(show, "simulating");
    let advice = adviser::advise(&trace, &machine, &capacities, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    if let Some(file) = &arguments.html {
        let report = characterise(&arguments.trace, show)?;
        let bar = progress(show, "drawing");
        let dense = adviser::advise(
            &trace,
            &machine,
            &between(&trace, &capacities),
            |done, total| {
                bar.set_length(total);
                bar.set_position(done);
            },
        )?;
        bar.finish_and_clear();
        let page = html::render(&report, Some(&render::html(&advice, &dense)));
        std::fs::write(file, page).map_err(|source| Error::io("write", file, source))?;
    }
    if show.json {
        return print_json(&advice);
    }
    print(&render::text(&advice))
}

/// The capacities asked for and some between, for a curve; of a long trace only those asked for.
fn between(trace: &Trace, asked: &[u64]) -> Vec<u64> {
    const STEPS: u64 = 12;
    const REQUESTS_MAX: usize = 500_000;
    let mut all = asked.to_vec();
    if let Some(largest) = asked.iter().max()
        && trace.requests.len() <= REQUESTS_MAX
    {
        all.extend((1..STEPS).map(|step| (largest / STEPS * step).max(BLOCK_BYTES)));
    }
    all.sort_unstable();
    all.dedup();
    all
}

pub(super) fn explain(arguments: &Explain, show: Show) -> Result<()> {
    let trace = load(&arguments.trace)?;
    let target = explainer::target(&trace, &arguments.what, arguments.area.as_deref())?;
    let explanation = explainer::explain(&trace, &target, parse_bytes(&arguments.fast)?)?;
    if show.json {
        return print_json(&explanation);
    }
    print(&explanation.to_text())
}

pub(super) fn validate(arguments: &Validate, show: Show) -> Result<()> {
    let machine = validator::machine_of(&arguments.data)?;
    let bar = progress(show, "simulating");
    let validation = validator::validate(&arguments.data, &machine, |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    // Each part is printed when it is there: the last one takes a quarter of an hour.
    if !show.json {
        print(&validation.to_text())?;
    }
    let bar = progress(show, "holding out");
    let held_out = validator::held_out(
        &arguments.data,
        &machine,
        &validator::Grid::default(),
        |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        },
    )?;
    bar.finish_and_clear();
    if !show.json {
        print(&held_out.as_ref().map_or_else(
            || {
                "\nHeld out: not run: it fits on other applications, and there is only one\n"
                    .to_owned()
            },
            |held_out| format!("\n{}\n", held_out.to_text()),
        ))?;
    }
    let live = if arguments.live {
        Some(run_live(arguments, show)?)
    } else {
        None
    };
    if show.json {
        print_json(
            &serde_json::json!({ "replayed": validation, "held_out": held_out, "live": live }),
        )?;
    } else if live.is_none() {
        print("Live: not run: it was not asked for (--live)\n")?;
    }
    let alone = held_out.map_or_else(Vec::new, |held_out| held_out.misses());
    let missed: Vec<String> = validation
        .misses()
        .into_iter()
        .map(|miss| format!("against the measured runs {miss}"))
        .chain(
            alone
                .into_iter()
                .map(|miss| format!("with each application held out {miss}")),
        )
        .collect();
    if missed.is_empty() {
        return Ok(());
    }
    Err(Error::Unanswerable(format!(
        "the simulator does not reach its figures: {}",
        missed.join("; ")
    )))
}

/// Real programs, on this machine's disk and on an emulated one.
fn run_live(arguments: &Validate, show: Show) -> Result<Vec<Live>> {
    let stop = Stop::on_signals();
    let mut outcomes = Vec::new();
    for (slow, name) in [
        (SlowDevice::Own, "own disk"),
        (SlowDevice::Emulated, "emulated disk"),
    ] {
        let here = live::live(slow, &arguments.rig_directory, &stop, |program| {
            if !show.quiet {
                eprintln!("running {program} on the {name}");
            }
        })?;
        if !show.json {
            print(&live::render(&here))?;
        }
        outcomes.extend(here);
    }
    Ok(outcomes)
}

pub(super) fn graph(arguments: &Graph) -> Result<()> {
    if let Some(edges) = arguments.make {
        return live::graph::make(&arguments.file, edges);
    }
    let highest = live::graph::rank(&arguments.file, arguments.passes)?;
    print(&format!("highest rank {highest:.6}\n"))
}
