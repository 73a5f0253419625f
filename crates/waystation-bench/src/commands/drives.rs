//! `drives`: filters over a host and its drives.

use super::progress_bar;
use crate::cli::DrivesArgs;
use crate::drives::{
    DrivesRow, Filter, Plan, Rig, RigSettings, Server, Size, measure, plans, program_beside,
    single_plans,
};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::place::Place;
use crate::report::Report;
use std::fmt::Write;
use std::fs;
use std::time::Duration;
use waystation_plot::{Group, bar_picture, page_head, section};

/// The directory of host and drives below the data directory.
const DATA: &str = "drives";

/// Measures all rows and prints them.
pub(crate) fn drives(args: &DrivesArgs) -> Result<()> {
    let place = Place::new(&args.data_dir)?;
    let machine = Machine::here(&place);
    let rows = if let Some(url) = &args.against {
        measure_all(args, &Server::new(url)?, None, &single_plans())?
    } else {
        let settings = settings(args, &place)?;
        let mut rig = Rig::start(&settings)?;
        let slowness = rig.calibrate(&settings)?;
        eprintln!("a drive takes {slowness:.2} times the host's time for the same scan");
        let rows = measure_all(args, rig.server(), Some(&rig), &plans(args.figure));
        drop(rig);
        place.clear(DATA)?;
        rows?
    };
    let report = Report {
        machine,
        runs: rows.clone(),
        rows,
    };
    let json = args.json.as_deref();
    if json.is_none_or(|path| path.as_os_str() != "-") {
        println!("{}\n{}", report.machine.summary(), table(&report.rows));
    }
    if let Some(path) = &args.html {
        let page = page(&report.machine.summary(), &report.rows);
        fs::write(path, page).map_err(|error| Error::io("write", path, error))?;
    }
    json.map_or(Ok(()), |path| report.write_json(path))
}

fn settings(args: &DrivesArgs, place: &Place) -> Result<RigSettings> {
    Ok(RigSettings {
        program: program_beside(args.waystation.as_deref())?,
        directory: place.path(DATA),
        calibration_documents: args.calibration_docs.unwrap_or((args.docs / 20).max(1000)),
        document_bytes: args.doc_bytes as usize,
    })
}

fn measure_all(
    args: &DrivesArgs,
    server: &Server,
    rig: Option<&Rig>,
    plans: &[Plan],
) -> Result<Vec<DrivesRow>> {
    let bar = progress_bar(plans.len() as u64);
    let size = Size {
        documents: args.docs,
        document_bytes: args.doc_bytes as usize,
        runs: args.runs as usize,
        time: Duration::from_secs(u64::from(args.seconds)),
    };
    let mut rows: Vec<DrivesRow> = Vec::new();
    for plan in plans {
        bar.set_message(plan.name());
        let mut row = measure(server, rig, plan, size)?;
        let alone = |are_busy: bool| {
            let is_alone = |it: &&DrivesRow| {
                it.drives == 0 && it.filter == row.filter && it.drives_are_busy == are_busy
            };
            let alone = rows.iter().find(is_alone);
            alone.map(|alone| row.docs_per_s / alone.docs_per_s)
        };
        let (idle, coupled) = (alone(false), alone(true));
        row.ratio_to_host = idle.or(Some(1.0));
        row.ratio_to_coupled_host = coupled;
        rows.push(row);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn table(rows: &[DrivesRow]) -> String {
    let mut text = format!(
        "{:<11} {:<7} {:>6} {:>13} {:>9} {:>11} {:>8} {:>8} {:>10} {:>8} {:>8} {:>8} {:>8}\n",
        "engine",
        "filter",
        "drives",
        "shards/drive",
        "weights",
        "docs/s",
        "ratio",
        "coupled",
        "cpu us/doc",
        "host",
        "drives",
        "stolen",
        "rss MB"
    );
    for row in rows {
        let filter = format!("{:?}", row.filter).to_lowercase();
        let _ = writeln!(
            text,
            "{:<11} {filter:<7} {:>6} {:>13} {:>9} {:>11.0} {:>8.2} {:>8.2} {:>10.1} {:>8.2} {:>8.2} {:>8.2} {:>8.0}",
            row.engine,
            row.drives,
            row.shards_per_drive,
            row.weights,
            row.docs_per_s,
            row.ratio_to_host.unwrap_or(f64::NAN),
            row.ratio_to_coupled_host.unwrap_or(f64::NAN),
            row.cpu_us_per_doc.unwrap_or(f64::NAN),
            row.host_cores.unwrap_or(f64::NAN),
            row.drive_cores.unwrap_or(f64::NAN),
            row.stolen_cores.unwrap_or(f64::NAN),
            row.peak_rss_mb.unwrap_or(f64::NAN),
        );
    }
    text
}

/// The paper's figures: shards of a drive, weights, and filters, all as ratios to the host alone.
fn page(machine: &str, rows: &[DrivesRow]) -> String {
    let bar = |name: String, row: &DrivesRow| {
        let ratio = row.ratio_to_host.unwrap_or(0.0);
        (
            name,
            ratio,
            format!("{ratio:.2}x, {:.0} docs/s", row.docs_per_s),
        )
    };
    let chosen = |is_chosen: &dyn Fn(&DrivesRow) -> bool, name: &dyn Fn(&DrivesRow) -> String| {
        let rows = rows.iter().filter(|row| is_chosen(row));
        rows.map(|row| bar(name(row), row)).collect::<Vec<_>>()
    };
    let shards = (1..=3).map(|drives| Group {
        name: format!("{drives} drives"),
        bars: chosen(
            &|row| row.weights == "even" && row.drives == drives && row.filter == Filter::Nested,
            &|row| format!("{} shards a drive", row.shards_per_drive),
        ),
    });
    let weights = Group {
        name: "3 drives".to_owned(),
        bars: chosen(
            &|row| row.weights != "even" && row.drives == 3 && row.filter == Filter::Nested,
            &|row| format!("weight {}", row.weights),
        ),
    };
    let filters = Group {
        name: "3 drives, measured weights".to_owned(),
        bars: chosen(&|row| row.weights == "measured", &|row| {
            format!("{:?}", row.filter).to_lowercase()
        }),
    };
    let mut page = page_head("Filters over a host and its drives");
    let _ = write!(
        page,
        "<h1>Filters over a host and its drives</h1><p class=\"soft\">{machine}</p>"
    );
    let mut add = |title: &str, text: &str, groups: &[Group]| {
        let picture = bar_picture(
            title,
            "documents a second, of the host alone",
            groups,
            false,
        );
        section(&mut page, title, text, &picture);
    };
    add(
        "Shards of a drive",
        "Every node has the same share of the documents; the host alone is 1.",
        &shards.collect::<Vec<_>>(),
    );
    add(
        "Weights",
        "The host has so many times the share of a drive; measured: by the speed of scans.",
        &[weights],
    );
    add(
        "Filters",
        "A nested field, a top-level field, and a host that is busy.",
        &[filters],
    );
    page.push_str("</body></html>\n");
    page
}
