//! `import`, `export`, `report`.

use std::fmt::Write as _;
use std::path::Path;

use clap::ValueEnum as _;

use super::arguments::{AreaArguments, Export, Import, ReportArguments};
use super::{Show, print, print_json, progress};
use crate::error::{Error, Result};
use crate::event::TraceInfo;
use crate::import::{AreaRules, ColumnMap, ImportSettings};
use crate::native::{Reader, Writer};
use crate::record::remove_on_signals;
use crate::report::{Characteriser, Report, html, text};
use crate::units::{format_bytes, seconds};
use crate::{export as exporter, import as importer};

/// The rules of the command line, then those of the file.
pub(super) fn rules(arguments: &AreaArguments) -> Result<AreaRules> {
    let mut rules = AreaRules::default();
    for rule in &arguments.areas {
        rules.add(rule)?;
    }
    if let Some(file) = &arguments.rules {
        rules.rules.extend(AreaRules::from_file(file)?.rules);
    }
    Ok(rules)
}

pub(super) fn import(arguments: &Import, show: Show) -> Result<()> {
    let settings = ImportSettings {
        files: arguments.files.clone(),
        format: arguments.format,
        rules: rules(&arguments.areas)?,
        columns: arguments
            .columns
            .as_deref()
            .map(ColumnMap::parse)
            .transpose()?,
    };
    let names: Vec<String> = arguments
        .files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    let info = TraceInfo {
        source: names.join(", "),
        ..TraceInfo::default()
    };
    let mut writer = Writer::create(&arguments.output, info)?;
    remove_on_signals(writer.unfinished());
    let rejections = importer::import(&settings, &mut writer)?;
    if !rejections.is_empty() && !arguments.skip_malformed {
        return Err(Error::Malformed(format!(
            "{rejections}\nNothing was written; pass --skip-malformed to keep the rows that were understood"
        )));
    }
    // A trace of nothing answers no question; it is more likely the wrong file, or the wrong format.
    if writer.info_mut().requests == 0 {
        return Err(Error::Malformed(format!(
            "{} holds no requests as --format {} has them ({} rows were other events, {} were not understood); nothing was written",
            names.join(", "),
            arguments
                .format
                .to_possible_value()
                .map_or_else(String::new, |value| value.get_name().to_owned()),
            rejections.other_rows,
            rejections.count()
        )));
    }
    let info = writer.finish()?;
    if !rejections.is_empty() {
        eprintln!("{rejections}");
    }
    if rejections.unmatched_completions > 0 {
        eprintln!(
            "note: {} completions belong to no issue in the trace (requests that were under way when it began, or the ends of sequences of flush and write)",
            rejections.unmatched_completions
        );
    }
    if show.json {
        return print_json(&info);
    }
    print(&summary(&arguments.output, &info))
}

/// What a trace holds, in a few lines.
pub(super) fn summary(path: &Path, info: &TraceInfo) -> String {
    let mut text = format!(
        "{}: {} requests over {:.1} s, {} with completion, {} flushes\n",
        path.display(),
        info.requests,
        seconds(info.end_ns),
        info.completed,
        info.flushes
    );
    for area in &info.areas {
        let _ = writeln!(
            text,
            "  area {} ({}, device {}): addresses up to {}",
            area.name,
            area.role,
            area.device,
            format_bytes(area.extent_bytes)
        );
    }
    for sentence in info.shortcomings() {
        let _ = writeln!(text, "Note: {sentence}");
    }
    text
}

pub(super) fn export(arguments: &Export, show: Show) -> Result<()> {
    let written = exporter::export(&arguments.trace, arguments.format, &arguments.output)?;
    if show.json {
        return print_json(
            &serde_json::json!({ "records": written.records, "left_out": written.left_out }),
        );
    }
    let left_out = if written.left_out > 0 {
        format!(
            "; {} requests without data cannot be expressed in it",
            written.left_out
        )
    } else {
        String::new()
    };
    print(&format!(
        "{}: {} records{left_out}\n",
        arguments.output.display(),
        written.records
    ))
}

/// Characterises a native trace block by block.
pub(super) fn characterise(path: &Path, show: Show) -> Result<Report> {
    let mut reader = Reader::open(path)?;
    let mut characteriser = Characteriser::new(reader.info());
    let bar = progress(show, "characterising");
    bar.set_length(reader.info().requests);
    let mut rows = Vec::new();
    while reader.next_block(&mut rows)? {
        for row in &rows {
            characteriser.add(row);
        }
        bar.inc(rows.len() as u64);
    }
    bar.finish_and_clear();
    let mut report = characteriser.finish();
    if report.source.is_empty() {
        report.source = path.display().to_string();
    }
    Ok(report)
}

pub(super) fn report(arguments: &ReportArguments, show: Show) -> Result<()> {
    if let Some(file) = &arguments.html {
        exporter::refuse_overwriting(&arguments.trace, file)?;
    }
    let report = characterise(&arguments.trace, show)?;
    if let Some(file) = &arguments.html {
        std::fs::write(file, html::render(&report, None))
            .map_err(|source| Error::io("write", file, source))?;
    }
    if show.json {
        return print_json(&report);
    }
    print(&text::render(&report))
}
