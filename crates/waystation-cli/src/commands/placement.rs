//! placement: what lies in the fast directory of a database, as the database wrote it last.

use super::{Context, require_path};
use crate::args::Database;
use crate::failure::Failure;
use crate::output::{Output, bytes_text, count_text};
use waystation::storage::OsStorage;
use waystation::{AreaPlacement, Error, LogPlacement, PlacementDecision, PlacementStats};

/// Shows the report of the fast tier.
pub(super) fn placement(context: &mut Context, args: &Database) -> Result<(), Failure> {
    require_path(&args.db)?;
    let Some(stats) = PlacementStats::read(&*OsStorage::new(), &args.db)? else {
        return Err(Failure::from(Error::Incompatible {
            path: args.db.clone(),
            reason: "no database with a fast directory was opened there; a program names one with Options::fast"
                .into(),
        }));
    };
    if context.output.is_json() {
        context.output.json(&stats)?;
        return Ok(());
    }
    print(&mut context.output, &stats)
}

fn print(output: &mut Output, stats: &PlacementStats) -> Result<(), Failure> {
    output.line(format_args!(
        "fast directory  {}: {} of {} in use",
        stats.directory.display(),
        bytes_text(stats.placed_bytes),
        bytes_text(stats.capacity_bytes)
    ))?;
    if stats.usable_bytes < stats.capacity_bytes {
        let usable = bytes_text(stats.usable_bytes);
        output.line(format_args!("                it has room for {usable}"))?;
    }
    if let Some(failure) = &stats.failure {
        output.line(format_args!("                not used now: {failure}"))?;
    }
    if stats.damaged > 0 {
        let damaged = count_text(stats.damaged);
        output.line(format_args!(
            "                {damaged} copies were damaged; the main directory was read"
        ))?;
    }
    output.line(format_args!(
        "\n{:<8}{:>12}{:>12}{:>14}{:>14}{:>14}{:>10}{:>10}{:>10}",
        "area",
        "files",
        "blocks",
        "fast reads",
        "slow reads",
        "from memory",
        "fast us",
        "slow us",
        "saved s"
    ))?;
    for area in &stats.areas {
        print_area(output, area)?;
    }
    if let Some(log) = &stats.log {
        print_log(output, log)?;
    }
    if let Some(tables) = &stats.tables {
        output.line(format_args!(
            "tables          {} lie there alone, {}; {} were moved to the main directory",
            count_text(tables.tables),
            bytes_text(tables.table_bytes),
            count_text(tables.moved)
        ))?;
    }
    output.line(format_args!(
        "\n{:<14}{:>16}{:>24}",
        "capacity", "fast reads", "seconds/1000 reads"
    ))?;
    for prediction in &stats.predictions {
        output.line(format_args!(
            "{:<14}{:>14.1} %{:>24.4}",
            bytes_text(prediction.capacity_bytes),
            prediction.share * 100.0,
            prediction.seconds_per_1000
        ))?;
    }
    output.line(format_args!(
        "\nBlocks that were read slowly {} times or more of late get a place.",
        stats.threshold
    ))?;
    for decision in &stats.decisions {
        print_decision(output, decision)?;
    }
    Ok(())
}

fn print_decision(output: &mut Output, decision: &PlacementDecision) -> Result<(), Failure> {
    output.line(format_args!(
        "after {:>8.1} s: from {} reads on; {} blocks had been read slowly, {} had a place; the hottest that fit serve {:.0} % of reads",
        decision.seconds,
        decision.threshold,
        count_text(decision.warm_blocks),
        bytes_text(decision.placed_bytes),
        decision.expected_share * 100.0
    ))?;
    if let Some(division) = &decision.division {
        output.line(format_args!(
            "{:>17} the log may take {}: segments there spare {:.3} s each second, copies in the rest {:.3} s",
            "",
            bytes_text(division.log_bytes),
            division.log_gain,
            division.copy_gain
        ))?;
    }
    Ok(())
}

fn print_log(output: &mut Output, log: &LogPlacement) -> Result<(), Failure> {
    output.line(format_args!(
        "\nlog             {} segments, {} of {}; {} written there, {} to the main directory",
        count_text(log.segments),
        bytes_text(log.segment_bytes),
        bytes_text(log.quota_bytes),
        bytes_text(log.fast_bytes),
        bytes_text(log.main_bytes)
    ))?;
    output.line(format_args!(
        "                a MiB takes {:.2} ms there, {:.2} ms in the main directory; {:.1} s saved",
        log.fast_seconds_per_mib * 1e3,
        log.main_seconds_per_mib * 1e3,
        log.saved_seconds
    ))?;
    if log.ring_bytes > 0 {
        let ring = bytes_text(log.ring_bytes);
        output.line(format_args!("                its ring lies there: {ring}"))?;
    }
    Ok(())
}

fn print_area(output: &mut Output, area: &AreaPlacement) -> Result<(), Failure> {
    let name = format!("{:?}", area.area).to_lowercase();
    output.line(format_args!(
        "{name:<8}{:>12}{:>12}{:>14}{:>14}{:>14}{:>10.1}{:>10.1}{:>10.1}",
        bytes_text(area.file_bytes),
        count_text(area.placed_blocks),
        count_text(area.fast_reads),
        count_text(area.slow_reads),
        count_text(area.cached_reads),
        area.fast_us,
        area.slow_us,
        area.saved_seconds
    ))?;
    Ok(())
}
