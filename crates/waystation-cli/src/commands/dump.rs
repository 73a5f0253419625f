//! dump: everything in one file.

use super::Context;
use crate::args::Dump;
use crate::failure::{DAMAGED, Failure};
use crate::notation::Style;
use crate::output::Output;
use serde::Serialize;
use std::io;
use std::ops::ControlFlow;
use waystation::inspect::{DumpedVersion, Item};
use waystation::storage::OsStorage;

/// Prints what is in a file.
pub(super) fn dump(context: &mut Context, args: &Dump) -> Result<(), Failure> {
    let mut printer = Printer {
        output: &mut context.output,
        style: Style::from(args.notation),
        entries_left: args.entries.unwrap_or(u64::MAX),
        problems: 0,
        failure: None,
    };
    waystation::inspect::dump(&*OsStorage::new(), &args.file, &mut |item| {
        printer.item(item)
    })?;
    let printed = printer.failure.map_or(Ok(()), |error| Err(error.into()));
    if printer.problems > 0 {
        Failure::found(DAMAGED, printed)
    } else {
        printed
    }
}

/// An item as JSON, keys and values in the notation asked for.
#[derive(Serialize)]
#[serde(tag = "item", rename_all = "snake_case")]
enum Line {
    Fact {
        name: &'static str,
        value: String,
    },
    Block {
        offset: u64,
        stored_bytes: u64,
        what: String,
    },
    Edit {
        offset: u64,
        fields: Vec<String>,
    },
    TableAdded {
        level: u32,
        number: u64,
        bytes: u64,
        smallest: Version,
        largest: Version,
    },
    TableRemoved {
        level: u32,
        number: u64,
    },
    Batch {
        position: u64,
        first_sequence: u64,
        operations: u32,
        bytes: u64,
    },
    RangeDeletion {
        start: String,
        end: Option<String>,
        sequence: u64,
    },
    Expiry {
        key: String,
        sequence: u64,
        at_micros: u64,
    },
    Version(Version),
    Device {
        prefix: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        sequence: Option<u64>,
        what: String,
    },
    Problem {
        offset: u64,
        reason: String,
    },
}

#[derive(Serialize)]
struct Version {
    key: String,
    sequence: u64,
    value: Option<String>,
}

struct Printer<'a> {
    output: &'a mut Output,
    style: Style,
    entries_left: u64,
    problems: u64,
    failure: Option<io::Error>,
}

impl Printer<'_> {
    fn item(&mut self, item: Item) -> ControlFlow<()> {
        if matches!(item, Item::Version(_)) {
            if self.entries_left == 0 {
                return ControlFlow::Continue(());
            }
            self.entries_left -= 1;
        }
        self.problems += u64::from(matches!(item, Item::Problem { .. }));
        let line = self.line(item);
        let printed = if self.output.is_json() {
            self.output.json_line(&line)
        } else {
            self.print(&line)
        };
        match printed {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failure = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    fn version(&self, version: &DumpedVersion) -> Version {
        Version {
            key: self.style.show(&version.key),
            sequence: version.sequence,
            value: version.value.as_deref().map(|value| self.style.show(value)),
        }
    }

    fn line(&self, item: Item) -> Line {
        match item {
            Item::Fact { name, value } => Line::Fact { name, value },
            Item::Block {
                offset,
                stored_bytes,
                what,
            } => Line::Block {
                offset,
                stored_bytes,
                what,
            },
            Item::Edit { offset, fields } => Line::Edit { offset, fields },
            Item::TableAdded {
                level,
                number,
                bytes,
                smallest,
                largest,
            } => Line::TableAdded {
                level,
                number,
                bytes,
                smallest: self.version(&smallest),
                largest: self.version(&largest),
            },
            Item::TableRemoved { level, number } => Line::TableRemoved { level, number },
            Item::Batch {
                position,
                first_sequence,
                operations,
                bytes,
            } => Line::Batch {
                position,
                first_sequence,
                operations,
                bytes,
            },
            Item::RangeDeletion {
                start,
                end,
                sequence,
            } => Line::RangeDeletion {
                start: self.style.show(&start),
                end: end.map(|end| self.style.show(&end)),
                sequence,
            },
            Item::Expiry {
                key,
                sequence,
                at_micros,
            } => Line::Expiry {
                key: self.style.show(&key),
                sequence,
                at_micros,
            },
            Item::Version(version) => Line::Version(self.version(&version)),
            Item::Device {
                prefix,
                sequence,
                what,
            } => Line::Device {
                prefix: self.style.show(&prefix),
                sequence,
                what,
            },
            Item::Problem { offset, reason } => Line::Problem { offset, reason },
        }
    }

    #[expect(clippy::too_many_lines, reason = "a table: an arm for each kind")]
    fn print(&mut self, line: &Line) -> io::Result<()> {
        match line {
            Line::Fact { name, value } => self.output.line(format_args!("{name}: {value}")),
            Line::Block {
                offset,
                stored_bytes,
                what,
            } => self
                .output
                .line(format_args!("[{offset}, {stored_bytes} bytes] {what}")),
            Line::Edit { offset, fields } => self
                .output
                .line(format_args!("[{offset}] edit: {}", fields.join(", "))),
            Line::TableAdded {
                level,
                number,
                bytes,
                smallest,
                largest,
            } => self.output.line(format_args!(
                "  + table {number} at level {level}, {bytes} bytes, {} @ {} to {} @ {}",
                smallest.key, smallest.sequence, largest.key, largest.sequence
            )),
            Line::Device {
                prefix,
                sequence,
                what,
            } => match sequence {
                Some(sequence) => {
                    (self.output).line(format_args!("  device {prefix} @ {sequence} {what}"))
                }
                None => self.output.line(format_args!("device {prefix} {what}")),
            },
            Line::TableRemoved { level, number } => self
                .output
                .line(format_args!("  - table {number} at level {level}")),
            Line::Batch {
                position,
                first_sequence,
                operations,
                bytes,
            } => self.output.line(format_args!(
                "[{position}] batch of {operations} from sequence {first_sequence}, {bytes} bytes"
            )),
            Line::Version(Version {
                key,
                sequence,
                value: Some(value),
            }) => self
                .output
                .line(format_args!("  {key} @ {sequence} = {value}")),
            Line::Version(Version {
                key,
                sequence,
                value: None,
            }) => self
                .output
                .line(format_args!("  {key} @ {sequence} deleted")),
            Line::Expiry {
                key,
                sequence,
                at_micros,
            } => self.output.line(format_args!(
                "  {key} @ {sequence} expires at {at_micros} us"
            )),
            Line::RangeDeletion {
                start,
                end,
                sequence,
            } => {
                let end = end.as_deref().map_or("the last key", |end| end);
                let line = format_args!("  {start} to {end} @ {sequence} deleted");
                self.output.line(line)
            }
            Line::Problem { offset, reason } => self
                .output
                .line(format_args!("[{offset}] PROBLEM: {reason}")),
        }
    }
}
