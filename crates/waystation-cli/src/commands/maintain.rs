//! compact, checkpoint, repair, export-leveldb.

use super::worker::offload_text;
use super::{Context, open_existing, open_with_worker, require_path};
use crate::args::{Checkpoint, Compact, Export, ExportCompression, Repair};
use crate::failure::Failure;
use crate::notation::Style;
use crate::output::{bytes_text, count_text};
use crate::progress::{Unit, bar, spinner};
use serde::Serialize;
use std::ops::Bound;
use std::sync::Arc;
use waystation::offload::OffloadStats;
use waystation::repair::{self, Resurrection};
use waystation::storage::{OsStorage, Storage};
use waystation::{Compression, Options};

/// How long it took, and what a worker did of it, as JSON.
#[derive(Serialize)]
struct Took {
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    offload: Option<OffloadStats>,
}

fn say_done(
    context: &mut Context,
    what: &str,
    seconds: f64,
    offload: Option<OffloadStats>,
) -> Result<(), Failure> {
    if context.output.is_json() {
        context.output.json(&Took { seconds, offload })?;
        return Ok(());
    }
    context
        .output
        .line(format_args!("{what} in {seconds:.2} s"))?;
    if let Some(offload) = &offload {
        context.output.line(offload_text(offload))?;
    }
    Ok(())
}

/// Rewrites a range into its final level.
pub(super) fn compact(context: &mut Context, args: Compact) -> Result<(), Failure> {
    let style = Style::from(args.notation);
    let from = args.from.map(|key| style.parse(&key)).transpose()?;
    let to = args.to.map(|key| style.parse(&key)).transpose()?;
    let db = open_with_worker(&args.db, false, &args.worker)?;
    let progress = spinner("compacting", context.quiet);
    let lower = from.as_deref().map_or(Bound::Unbounded, Bound::Included);
    let upper = to.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let compacted = db.compact_range(lower, upper);
    progress.finish_and_clear();
    let offload = db.stats().tree.offload;
    // A failed compaction takes nothing away: close in any case, and report the first failure.
    let closed = db.close();
    compacted.and(closed)?;
    let seconds = progress.elapsed().as_secs_f64();
    say_done(context, "compacted", seconds, offload)
}

/// Makes a copy that can be opened by itself.
pub(super) fn checkpoint(context: &mut Context, args: &Checkpoint) -> Result<(), Failure> {
    require_path(&args.target)?;
    let db = open_existing(&args.db)?;
    let progress = spinner("copying", context.quiet);
    let copied = db.checkpoint(&args.target);
    progress.finish_and_clear();
    let closed = db.close();
    copied.and(closed)?;
    let seconds = progress.elapsed().as_secs_f64();
    say_done(context, "checkpoint made", seconds, None)
}

/// Saves what can be read.
pub(super) fn repair(context: &mut Context, args: &Repair) -> Result<(), Failure> {
    require_path(&args.db)?;
    require_path(&args.target)?;
    let style = Style::from(args.notation);
    let accepted = if args.accept_resurrection {
        Resurrection::Likely
    } else {
        Resurrection::Impossible
    };
    let storage: Arc<dyn Storage> = OsStorage::new();
    let progress = bar("repairing", Unit::Entries, 0, context.quiet);
    let repaired = repair::repair(
        &storage,
        &args.db,
        &args.target,
        &Options::default(),
        accepted,
        &mut |entries| progress.set_position(entries),
    );
    progress.finish_and_clear();
    let repaired = repaired?;
    if context.output.is_json() {
        context.output.json(&repaired)?;
        return Ok(());
    }
    for loss in &repaired.losses {
        context.output.line(format_args!("{loss}"))?;
    }
    for gap in &repaired.gaps {
        let after = gap.after.as_ref().map(|key| style.show(key));
        context.output.line(format_args!(
            "{} byte {}: {}; keys {} through {} may be missing: {} saved from other blocks, {} known to be lost",
            gap.file,
            gap.offset,
            gap.reason,
            after.map_or("from the first".to_owned(), |key| format!("after {key}")),
            style.show(&gap.through),
            count_text(gap.rescued),
            count_text(gap.lost_keys.len() as u64)
        ))?;
        for key in &gap.lost_keys {
            context
                .output
                .line(format_args!("lost {}", style.show(key)))?;
        }
    }
    context.output.line(format_args!(
        "{} entries saved, {} losses, {} gaps",
        count_text(repaired.entries),
        repaired.losses.len(),
        repaired.gaps.len()
    ))?;
    Ok(())
}

/// Writes a plain LevelDB directory.
pub(super) fn export(context: &mut Context, args: &Export) -> Result<(), Failure> {
    require_path(&args.target)?;
    let compression = match args.compression {
        ExportCompression::Snappy => Compression::Snappy,
        ExportCompression::None => Compression::None,
    };
    let db = open_existing(&args.db)?;
    let progress = bar("exporting", Unit::Entries, 0, context.quiet);
    let exported = db.export_leveldb(&args.target, compression, &mut |entries| {
        progress.set_position(entries);
    });
    progress.finish_and_clear();
    let closed = db.close();
    let exported = exported.and_then(|exported| closed.map(|()| exported))?;
    if context.output.is_json() {
        context.output.json(&exported)?;
    } else {
        context.output.line(format_args!(
            "{} entries in {} tables, {}",
            count_text(exported.entries),
            count_text(exported.tables),
            bytes_text(exported.table_bytes)
        ))?;
    }
    Ok(())
}
