//! put, delete, import.

use super::worker::offload_text;
use super::{Context, open_existing, open_or_create, open_with_worker};
use crate::args::{Delete, Import, Put};
use crate::failure::{Failure, USAGE};
use crate::notation::Style;
use crate::output::{bytes_text, count_text};
use crate::progress::{Unit, bar};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use waystation::offload::OffloadStats;
use waystation::{Db, Durability, KEY_BYTES_MAX, VALUE_BYTES_MAX, WriteBatch};

/// A line that is imported is shorter (bytes): up to four characters stand for a byte.
const LINE_BYTES_MAX: u64 = 4 * (KEY_BYTES_MAX + VALUE_BYTES_MAX) as u64 + 3;

fn durability(sync: bool) -> Durability {
    if sync {
        Durability::PowerLoss
    } else {
        Durability::ProcessCrash
    }
}

/// Stores one value.
pub(super) fn put(args: &Put) -> Result<(), Failure> {
    let style = Style::from(args.notation);
    let key = style.parse(&args.key)?;
    let value = if args.value == "-" {
        let mut value = Vec::new();
        // One byte more than is accepted, so that what is too long is refused and not cut.
        io::stdin()
            .lock()
            .take(VALUE_BYTES_MAX as u64 + 1)
            .read_to_end(&mut value)
            .map_err(|e| Failure::file("read", Path::new("standard input"), e))?;
        value
    } else {
        style.parse(&args.value)?
    };
    let db = open_or_create(&args.db)?;
    let mut batch = WriteBatch::new();
    match args.ttl {
        Some(lifetime) => batch.put_with_ttl(&key, &value, lifetime),
        None => batch.put(&key, &value),
    }
    db.write(&batch, durability(args.sync))?;
    Ok(db.close()?)
}

/// Deletes keys, all or none.
pub(super) fn delete(args: &Delete) -> Result<(), Failure> {
    let style = Style::from(args.notation);
    let mut batch = WriteBatch::new();
    for key in &args.keys {
        batch.delete(&style.parse(key)?);
    }
    for range in args.range.chunks(2) {
        if let [from, to] = range {
            let end = (to != "-").then(|| style.parse(to)).transpose()?;
            batch.delete_range(&style.parse(from)?, end.as_deref());
        }
    }
    for prefix in &args.prefix {
        batch.delete_prefix(&style.parse(prefix)?);
    }
    let db = open_existing(&args.db)?;
    db.write(&batch, durability(args.sync))?;
    Ok(db.close()?)
}

/// What an import did, as JSON.
#[derive(Serialize)]
struct Imported {
    lines: u64,
    key_and_value_bytes: u64,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    offload: Option<OffloadStats>,
}

/// Stores lines `key<TAB>value`, in atomic batches.
pub(super) fn import(context: &mut Context, args: &Import) -> Result<(), Failure> {
    let style = Style::from(args.notation);
    let (source, total): (Box<dyn Read>, u64) = if args.file.as_os_str() == "-" {
        (Box::new(io::stdin().lock()), 0)
    } else {
        let file = File::open(&args.file).map_err(|e| Failure::file("open", &args.file, e))?;
        let total = file.metadata().map_or(0, |metadata| metadata.len());
        (Box::new(file), total)
    };
    let db = open_with_worker(&args.db, true, &args.worker)?;
    let progress = bar("importing", Unit::Bytes, total, context.quiet);
    let result = import_lines(&db, source, style, args.batch, |bytes| progress.inc(bytes));
    progress.finish_and_clear();
    let elapsed = progress.elapsed();
    let offload = db.stats().tree.offload;
    // Whole batches before a bad line stay: close before saying what was wrong.
    db.close()?;
    let (lines, key_and_value_bytes) = result?;

    let seconds = elapsed.as_secs_f64();
    if context.output.is_json() {
        context.output.json(&Imported {
            lines,
            key_and_value_bytes,
            seconds,
            offload,
        })?;
    } else {
        #[expect(clippy::cast_sign_loss, reason = "a rate is not negative")]
        let rate = (lines as f64 / seconds.max(1e-9)) as u64;
        context.output.line(format_args!(
            "{} entries, {} of keys and values, in {seconds:.2} s ({} entries/s)",
            count_text(lines),
            bytes_text(key_and_value_bytes),
            count_text(rate)
        ))?;
        if let Some(offload) = &offload {
            context.output.line(offload_text(offload))?;
        }
    }
    Ok(())
}

/// Reads and writes all lines; how many, and their bytes.
fn import_lines(
    db: &Db,
    source: impl Read,
    style: Style,
    lines_per_batch: u32,
    mut advance: impl FnMut(u64),
) -> Result<(u64, u64), Failure> {
    let mut reader = BufReader::with_capacity(1 << 20, source);
    let mut batch = WriteBatch::new();
    let (mut line, mut lines, mut bytes) = (Vec::new(), 0_u64, 0_u64);
    loop {
        line.clear();
        let length = (&mut reader)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .map_err(|e| Failure::file("read", Path::new("the input"), e))?;
        if length == 0 {
            break;
        }
        advance(length as u64);
        let parsed = if length as u64 == LINE_BYTES_MAX {
            Err("it is longer than any key and value can be".to_owned())
        } else {
            parse_line(&line, style)
        };
        let (key, value) = parsed.map_err(|reason| {
            Failure::new(
                USAGE,
                format!(
                    "line {} of the input: {reason}; the lines before its batch are stored",
                    lines + 1
                ),
            )
        })?;
        batch.put(&key, &value);
        lines += 1;
        bytes += (key.len() + value.len()) as u64;
        if batch.len() >= lines_per_batch as usize {
            db.write(&batch, Durability::ProcessCrash)?;
            batch.clear();
        }
    }
    if !batch.is_empty() {
        db.write(&batch, Durability::ProcessCrash)?;
    }
    Ok((lines, bytes))
}

/// One line `key<TAB>value`.
fn parse_line(line: &[u8], style: Style) -> Result<(Vec<u8>, Vec<u8>), String> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = std::str::from_utf8(line)
        .map_err(|_| "it is not UTF-8; write other bytes as \\xNN".to_owned())?;
    let (key, value) = line
        .split_once('\t')
        .ok_or("a line is a key, a tab and a value, and here is no tab")?;
    let parse = |text| style.parse(text).map_err(|error| error.to_string());
    Ok((parse(key)?, parse(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_key_a_tab_and_a_value() {
        assert_eq!(
            parse_line(b"k\tv w\n", Style::Text),
            Ok((b"k".to_vec(), b"v w".to_vec()))
        );
        assert_eq!(
            parse_line(b"k\t", Style::Text),
            Ok((b"k".to_vec(), b"".to_vec()))
        );
        assert_eq!(
            parse_line(b"6b\t76", Style::Hex),
            Ok((b"k".to_vec(), b"v".to_vec()))
        );
        assert!(
            parse_line(b"k v\n", Style::Text)
                .expect_err("no tab")
                .contains("no tab")
        );
        assert!(
            parse_line(b"\xff\tv\n", Style::Text)
                .expect_err("not UTF-8")
                .contains("UTF-8")
        );
        assert!(parse_line(b"a\\q\tv\n", Style::Text).is_err());
    }
}
