//! stats, check, find: what is in files, beside a running owner or without one.

use super::Context;
use crate::args::{Database, Find};
use crate::failure::{DAMAGED, Failure, NOT_FOUND};
use crate::notation::Style;
use crate::output::{Output, bytes_text, count_text};
use crate::progress::{Unit, bar};
use serde::Serialize;
use std::path::Path;
use waystation::inspect::{
    CheckReport, Found, Inspection, JournalSummary, Place, SegmentState, Summary,
};
use waystation::storage::OsStorage;

fn open(path: &Path) -> Result<Inspection, Failure> {
    Ok(Inspection::open(OsStorage::new(), path)?)
}

/// What the files hold.
pub(super) fn stats(context: &mut Context, args: &Database) -> Result<(), Failure> {
    let summary = open(&args.db)?.summary()?;
    if context.output.is_json() {
        context.output.json(&summary)?;
    } else {
        print_summary(&mut context.output, &summary)?;
    }
    Ok(())
}

fn print_summary(output: &mut Output, summary: &Summary) -> Result<(), Failure> {
    output.line(format_args!(
        "{:<10}{:>8}{:>12}{:>16}{:>14}",
        "level", "tables", "bytes", "entries", "deletions"
    ))?;
    let mut unknown = 0;
    for level in summary.levels.iter().filter(|level| level.tables > 0) {
        unknown += level.tables_without_properties;
        output.line(format_args!(
            "{:<10}{:>8}{:>12}{:>16}{:>14}",
            level.level,
            count_text(level.tables as u64),
            bytes_text(level.bytes),
            count_text(level.entries),
            count_text(level.deletions)
        ))?;
    }
    output.line(format_args!(
        "tables     {}",
        bytes_text(summary.table_bytes)
    ))?;
    if unknown > 0 {
        output.line(format_args!(
            "           {unknown} of them do not count their entries (written by LevelDB)"
        ))?;
    }
    output.line(format_args!(
        "sequence   {} is the highest in tables",
        count_text(summary.last_sequence)
    ))?;
    let order = &summary.key_order;
    if summary.has_own_order {
        output.line(format_args!(
            "order      {order}: a program's own, unknown here; commands that need the order of keys refuse it"
        ))?;
    }
    let readable = if summary.is_plain_leveldb && summary.has_own_order {
        "LevelDB can open it with that comparator"
    } else if summary.is_plain_leveldb {
        "LevelDB can open it"
    } else {
        "LevelDB refuses it until a clean close or an export"
    };
    output.line(format_args!(
        "manifest   {}, {}; {readable}",
        summary.manifest, summary.comparator
    ))?;
    match &summary.journal {
        Some(journal) => print_journal(output, journal)?,
        None => output.line("log        none of ours: only LevelDB has opened it")?,
    }
    if !summary.leveldb_logs.is_empty() {
        output.line(format_args!(
            "           of LevelDB, taken over at the next open: {}",
            summary.leveldb_logs.join(", ")
        ))?;
    }
    output.line(format_args!("note       {}", summary.note))?;
    Ok(())
}

fn print_journal(output: &mut Output, journal: &JournalSummary) -> Result<(), Failure> {
    let count = |state: SegmentState| {
        journal
            .segments
            .iter()
            .filter(|segment| segment.state == state)
            .count()
    };
    let bytes: u64 = journal.segments.iter().map(|segment| segment.bytes).sum();
    output.line(format_args!(
        "log        {} in segments: {} sealed, {} open, {} prepared; ring {}",
        bytes_text(bytes),
        count(SegmentState::Sealed),
        count(SegmentState::Open),
        count(SegmentState::Prepared),
        bytes_text(journal.ring_bytes)
    ))?;
    let closed = if journal.is_closed_cleanly {
        "closed cleanly"
    } else {
        "open now, or not closed cleanly"
    };
    output.line(format_args!(
        "life       number {}, {closed}",
        journal.incarnation
    ))?;
    Ok(())
}

/// Verifies every file.
pub(super) fn check(context: &mut Context, args: &Database) -> Result<(), Failure> {
    let inspection = open(&args.db)?;
    let progress = bar("checking", Unit::Bytes, 1, context.quiet);
    let checked = inspection.check(&mut |state| {
        progress.set_length(state.total_bytes);
        progress.set_position(state.done_bytes);
    });
    progress.finish_and_clear();
    let report = checked?;
    let printed = if context.output.is_json() {
        context.output.json(&report).map_err(Failure::from)
    } else {
        print_report(&mut context.output, &report)
    };
    if report.problems.is_empty() {
        printed
    } else {
        Failure::found(DAMAGED, printed)
    }
}

fn print_report(output: &mut Output, report: &CheckReport) -> Result<(), Failure> {
    for problem in &report.problems {
        output.line(format_args!(
            "{} at byte {}: {}",
            problem.file, problem.offset, problem.reason
        ))?;
    }
    output.line(format_args!(
        "{}: {} tables ({} blocks, {} entries, {}), {} log records ({})",
        if report.problems.is_empty() {
            "sound".to_owned()
        } else {
            format!("{} problems", report.problems.len())
        },
        count_text(report.tables),
        count_text(report.blocks),
        count_text(report.entries),
        bytes_text(report.table_bytes),
        count_text(report.log_records),
        bytes_text(report.log_bytes)
    ))?;
    if report.tables_replaced_meanwhile > 0 {
        output.line(format_args!(
            "{} tables were replaced by the owner meanwhile",
            report.tables_replaced_meanwhile
        ))?;
    }
    if let Some(order) = &report.order_not_judged {
        output.line(format_args!(
            "order: the keys are ordered by {order:?}, a program's own comparator; checksums and structure were checked, \
             but without it no tool can judge whether keys are in that order"
        ))?;
    }
    output.line(format_args!("note: {}", report.note))?;
    Ok(())
}

/// A version, as JSON; key and value in the notation asked for.
#[derive(Serialize)]
struct Version<'a> {
    key: &'a str,
    sequence: u64,
    value: Option<String>,
    place: Place,
    file: &'a str,
    offset: u64,
}

/// The history of one key.
pub(super) fn find(context: &mut Context, args: &Find) -> Result<(), Failure> {
    let style = Style::from(args.notation);
    let key = style.parse(&args.key)?;
    let inspection = open(&args.db)?;
    let order = inspection.own_order().map(|order| {
        format!(
            "the keys are ordered by {order:?}, a program's own comparator: only versions with these very bytes are \
             found, and no deletions of ranges"
        )
    });
    let found = inspection.find(&key)?;
    let key = style.show(&key);
    if found.is_empty() {
        let message = format!(
            "no file of {} holds the key {key} (the owner's memory is not searched){}",
            args.db.display(),
            order.map_or(String::new(), |order| format!("; {order}"))
        );
        return Err(Failure::new(NOT_FOUND, message));
    }
    let output = &mut context.output;
    if let Some(order) = order.filter(|_| !output.is_json()) {
        output.line(format_args!("note: {order}"))?;
    }
    for version in &found {
        let value = version.value.as_deref().map(|value| style.show(value));
        if output.is_json() {
            let Found {
                sequence,
                place,
                file,
                offset,
                ..
            } = version;
            output.json_line(&Version {
                key: &key,
                sequence: *sequence,
                value,
                place: *place,
                file,
                offset: *offset,
            })?;
        } else {
            let place = match version.place {
                Place::Log => "log".to_owned(),
                Place::Graves => "graves".to_owned(),
                Place::Level(level) => format!("level {level}"),
            };
            let what = value.map_or("deleted".to_owned(), |value| format!("= {value}"));
            output.line(format_args!(
                "{:>16}  {place:<8} {:<26} at {:<12} {what}",
                count_text(version.sequence),
                version.file,
                version.offset
            ))?;
        }
    }
    Ok(())
}
