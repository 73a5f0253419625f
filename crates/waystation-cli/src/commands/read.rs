//! get, scan.

use super::{Context, open_existing};
use crate::args::{Get, Scan};
use crate::failure::{Failure, NOT_FOUND};
use crate::notation::Style;
use serde::Serialize;
use waystation::{DbIterator, IterOptions};

/// An entry, as JSON; key and value in the notation asked for.
#[derive(Serialize)]
struct Entry {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
}

/// Prints the value of a key.
pub(super) fn get(context: &mut Context, args: &Get) -> Result<(), Failure> {
    let style = Style::from(args.notation);
    let key = style.parse(&args.key)?;
    let db = open_existing(&args.db)?;
    let value = db.get(&key)?;
    db.close()?;
    let Some(value) = value else {
        return Err(Failure::new(
            NOT_FOUND,
            format!("{} holds no key {}", args.db.display(), style.show(&key)),
        ));
    };
    let output = &mut context.output;
    if args.raw {
        output.raw(&value)?;
    } else if output.is_json() {
        output.json(&Entry {
            key: style.show(&key),
            value: Some(style.show(&value)),
        })?;
    } else {
        output.line(style.show(&value))?;
    }
    Ok(())
}

/// Lists entries in order.
pub(super) fn scan(context: &mut Context, args: Scan) -> Result<(), Failure> {
    let style = Style::from(args.notation);
    let parse = |text: Option<String>| text.map(|text| style.parse(&text)).transpose();
    let options = IterOptions {
        prefix: parse(args.prefix)?,
        lower: parse(args.from)?,
        upper: parse(args.to)?,
        ..IterOptions::default()
    };
    let db = open_existing(&args.db)?;
    let mut entries = db.iter(options)?;
    let result = print(
        context,
        &mut entries,
        style,
        args.reverse,
        args.keys_only,
        args.limit.unwrap_or(u64::MAX),
    );
    drop(entries);
    db.close()?;
    result
}

fn print(
    context: &mut Context,
    entries: &mut DbIterator,
    style: Style,
    reverse: bool,
    keys_only: bool,
    limit: u64,
) -> Result<(), Failure> {
    if reverse {
        entries.seek_to_last()?;
    } else {
        entries.seek_to_first()?;
    }
    let mut printed = 0;
    while entries.valid() && printed < limit {
        let key = style.show(entries.key());
        let value = (!keys_only).then(|| style.show(entries.value()));
        let output = &mut context.output;
        if output.is_json() {
            output.json_line(&Entry { key, value })?;
        } else if let Some(value) = value {
            output.line(format_args!("{key}\t{value}"))?;
        } else {
            output.line(key)?;
        }
        printed += 1;
        if reverse {
            entries.prev()?;
        } else {
            entries.next()?;
        }
    }
    Ok(())
}
