//! `documents`: the document server on one machine.

use super::progress_bar;
use crate::cli::{DocumentsArgs, DocumentsMeasure};
use crate::documents::{DocumentsRow, ServerProcess, Subject, find_rows, load_rows, memory_rows};
use crate::drives::{Server, program_beside};
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::place::Place;
use crate::report::Report;
use std::fmt::Write;

/// The directory of the databases below the data directory.
const DATA: &str = "documents";

/// Measures what was asked for, and prints it.
pub(crate) fn documents(args: &DocumentsArgs) -> Result<()> {
    let place = Place::new(&args.data_dir)?;
    let machine = Machine::here(&place);
    let rows = if let Some(url) = &args.against {
        measure(args, &Server::new(url)?, None)?
    } else {
        let program = program_beside(args.waystation.as_deref())?;
        let process = ServerProcess::start(&program, &place.path(DATA), args.q)?;
        measure(args, process.server(), Some(&process))?
    };
    place.clear(DATA)?;
    let report = Report {
        machine,
        runs: rows.clone(),
        rows,
    };
    let json = args.json.as_deref();
    if json.is_none_or(|path| path.as_os_str() != "-") {
        println!("{}\n{}", report.machine.summary(), table(&report.rows));
    }
    json.map_or(Ok(()), |path| report.write_json(path))
}

fn measure(
    args: &DocumentsArgs,
    server: &Server,
    process: Option<&ServerProcess>,
) -> Result<Vec<DocumentsRow>> {
    let subject = Subject {
        server,
        process,
        runs: args.runs,
    };
    let is_asked = |measure| args.measure.is_empty() || args.measure.contains(&measure);
    let bar = progress_bar(3);
    let mut rows = Vec::new();
    // The memory first: what other work left behind would count.
    if is_asked(DocumentsMeasure::Memory) {
        bar.set_message("memory");
        match process {
            Some(process) => {
                let bytes = args.scan_doc_bytes as usize;
                rows.extend(memory_rows(process, args.scan_docs, bytes, args.feeds)?);
            }
            None if args.measure.is_empty() => {}
            None => {
                let reason = "the memory of a server that runs already is not seen: leave out --against or --measure memory";
                return Err(Error::Refused(reason.to_owned()));
            }
        }
    }
    bar.inc(1);
    if is_asked(DocumentsMeasure::Find) {
        bar.set_message("find");
        rows.extend(find_rows(&subject, args.docs, args.large_docs)?);
    }
    bar.inc(1);
    if is_asked(DocumentsMeasure::Load) {
        bar.set_message("load");
        rows.extend(load_rows(&subject, args.docs)?);
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn table(rows: &[DocumentsRow]) -> String {
    let mut text = format!(
        "{:<11} {:<20} {:<7} {:>7} {:>9} {:>7} {:>10} {:>9} {:>10} {:>8}\n",
        "engine",
        "work",
        "body",
        "bytes",
        "docs",
        "clients",
        "docs/s",
        "query ms",
        "cpu us/doc",
        "rss MB"
    );
    let or_dash = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "-".to_owned(), |it| format!("{it:.digits$}"))
    };
    for row in rows {
        let body = row
            .body
            .map_or_else(|| "-".to_owned(), |body| format!("{body:?}").to_lowercase());
        // Writing into a string cannot fail.
        let _ = writeln!(
            text,
            "{:<11} {:<20} {body:<7} {:>7} {:>9} {:>7} {:>10} {:>9} {:>10} {:>8}",
            row.engine,
            row.work,
            or_dash(row.body_bytes.map(|it| it as f64), 0),
            or_dash(row.documents.map(|it| it as f64), 0),
            row.clients,
            or_dash(row.docs_per_s, 0),
            or_dash(row.query_ms, 1),
            or_dash(row.cpu_us_per_doc, 2),
            or_dash(row.peak_rss_mb, 0),
        );
    }
    text
}
