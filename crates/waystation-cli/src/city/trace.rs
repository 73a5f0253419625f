//! The trace: when which vehicle arrives in and leaves which cell.
//!
//! Rows `t_s,device,cell,event`, sorted by time, `A` for arrives and `L` for leaves; plain or compressed with gzip. A
//! line that is not so is an error with its number: a trace with a hole in it would make an audit without a meaning.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

/// The trace that comes with the command: Bologna's morning peak (`data/README.md`).
static BOLOGNA: &[u8] = include_bytes!("../../../../data/bologna_hex250m.csv.gz");
/// Whose it is; shown wherever it is used.
pub(crate) const BOLOGNA_TERMS: &str = "the trace is derived from the \"joined\" Bologna scenario of DLR-TS/sumo-scenarios (DLR-TS and the iTETRIS project, EPL-2.0)";

const HEADER: &str = "t_s,device,cell,event";
/// Each cell is an engine with threads and files of its own.
const CELLS_MAX: usize = 512;
/// Seconds, about 12 days.
const TIME_MAX: u32 = 1_000_000;
/// The highest vehicle's number that its name has digits for.
const VEHICLE_MAX: u32 = 9_999_999;

/// A trace that cannot be used: where and why.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TraceError {
    /// A line is not what it should be.
    #[error("{}, line {line}: {reason}", .file.display())]
    Malformed {
        /// The trace.
        file: PathBuf,
        /// The number of the line, from 1.
        line: u64,
        /// What does not hold.
        reason: String,
    },
    /// The file cannot be read.
    #[error("{} cannot be read: {source}", .file.display())]
    Unreadable {
        /// The trace.
        file: PathBuf,
        /// The operating system's, or the decompressor's, answer.
        source: io::Error,
    },
}

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The vehicle arrives.
    Arrives,
    /// The vehicle leaves.
    Leaves,
}

/// A line of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Event {
    /// When (seconds).
    pub(crate) at: u32,
    /// Which vehicle.
    pub(crate) vehicle: u32,
    /// Which cell: its place in [`Trace::cells`].
    pub(crate) cell: usize,
    /// What.
    pub(crate) kind: Kind,
}

/// A whole trace. Every vehicle is in one cell at a time, and leaves no cell but the one that it is in.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    /// What it is called in reports.
    pub(crate) name: String,
    /// In order of time.
    pub(crate) events: Vec<Event>,
    /// The cells' numbers in the file, ascending.
    pub(crate) cells: Vec<u32>,
}

impl Trace {
    /// The trace in `path`, or the one that comes with the command.
    pub(crate) fn load(path: Option<&Path>) -> Result<Self, TraceError> {
        let Some(path) = path else {
            let name = Path::new("bologna_hex250m.csv.gz");
            return Self::read(name, Cursor::new(BOLOGNA));
        };
        let unreadable = |source| TraceError::Unreadable {
            file: path.to_owned(),
            source,
        };
        let file = File::open(path).map_err(unreadable)?;
        Self::read(path, BufReader::new(file))
    }

    /// What `input` holds; `path` is for messages.
    pub(crate) fn read(path: &Path, mut input: impl BufRead) -> Result<Self, TraceError> {
        let unreadable = |source| TraceError::Unreadable {
            file: path.to_owned(),
            source,
        };
        let is_gzip = input
            .fill_buf()
            .map_err(unreadable)?
            .starts_with(&[0x1f, 0x8b]);
        let text: Box<dyn Read> = if is_gzip {
            Box::new(flate2::bufread::MultiGzDecoder::new(input))
        } else {
            Box::new(input)
        };
        let mut parser = Parser::default();
        let mut lines = BufReader::new(text);
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            if lines.read_until(b'\n', &mut line).map_err(unreadable)? == 0 {
                break;
            }
            parser
                .line(number, &line)
                .map_err(|reason| TraceError::Malformed {
                    file: path.to_owned(),
                    line: number,
                    reason,
                })?;
        }
        parser.finish(path)
    }

    /// Leaves out what does not matter to who looks no farther than the beginning of second `until`.
    pub(crate) fn cut(mut self, until: u32) -> Self {
        // A leaving just before is understood by the arrival just after.
        self.events
            .retain(|event| event.at <= until.saturating_add(1));
        self
    }

    /// The end of the last second in which something happens.
    pub(crate) fn end(&self) -> u32 {
        self.events.last().map_or(0, |event| event.at + 1)
    }

    /// How many vehicles there are.
    pub(crate) fn vehicles(&self) -> usize {
        let mut vehicles: Vec<u32> = self.events.iter().map(|event| event.vehicle).collect();
        vehicles.sort_unstable();
        vehicles.dedup();
        vehicles.len()
    }
}

/// The lines so far. Cells are their numbers until the end.
#[derive(Default)]
struct Parser {
    events: Vec<(u32, u32, u32, Kind)>,
    cells: BTreeMap<u32, usize>,
    /// Where each vehicle is.
    places: HashMap<u32, u32>,
    lines: u64,
}

impl Parser {
    fn line(&mut self, number: u64, line: &[u8]) -> Result<(), String> {
        self.lines = number;
        let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8 text".to_owned())?;
        let text = text.trim_end_matches(['\n', '\r']);
        if number == 1 {
            let found: String = text.chars().take(60).collect();
            return if text == HEADER {
                Ok(())
            } else {
                Err(format!("the header must be `{HEADER}`, found `{found}`"))
            };
        }
        let fields: Vec<&str> = text.split(',').collect();
        let &[at, vehicle, cell, kind] = fields.as_slice() else {
            return Err(format!(
                "expected 4 fields ({HEADER}), found {}",
                fields.len()
            ));
        };
        let at = field("t_s", at, TIME_MAX)?;
        let vehicle = field("device", vehicle, VEHICLE_MAX)?;
        let cell = field("cell", cell, u32::MAX)?;
        let kind = match kind {
            "A" => Kind::Arrives,
            "L" => Kind::Leaves,
            other => return Err(format!("event must be A or L, found `{}`", clip(other))),
        };
        let last = self.events.last().map_or(0, |event| event.0);
        if at < last {
            return Err(format!("the time goes back from {last} to {at}"));
        }
        self.happen(vehicle, cell, kind)?;
        self.cells.insert(cell, 0);
        if self.cells.len() > CELLS_MAX {
            return Err(format!(
                "more than {CELLS_MAX} cells; each would be an engine"
            ));
        }
        self.events.push((at, vehicle, cell, kind));
        Ok(())
    }

    fn happen(&mut self, vehicle: u32, cell: u32, kind: Kind) -> Result<(), String> {
        let place = self.places.get(&vehicle).copied();
        match (kind, place) {
            (Kind::Arrives, Some(other)) => Err(format!(
                "vehicle {vehicle} arrives in cell {cell} and has not left cell {other}"
            )),
            (Kind::Leaves, None) => Err(format!(
                "vehicle {vehicle} leaves cell {cell} and is in none"
            )),
            (Kind::Leaves, Some(other)) if other != cell => Err(format!(
                "vehicle {vehicle} leaves cell {cell} and is in cell {other}"
            )),
            (Kind::Arrives, None) => {
                self.places.insert(vehicle, cell);
                Ok(())
            }
            (Kind::Leaves, Some(_)) => {
                self.places.remove(&vehicle);
                Ok(())
            }
        }
    }

    fn finish(mut self, path: &Path) -> Result<Trace, TraceError> {
        if self.events.is_empty() {
            return Err(TraceError::Malformed {
                file: path.to_owned(),
                line: self.lines.max(1),
                reason: "the trace ends without an event".to_owned(),
            });
        }
        for (place, index) in self.cells.values_mut().enumerate() {
            *index = place;
        }
        let event = |(at, vehicle, cell, kind): (u32, u32, u32, Kind)| Event {
            at,
            vehicle,
            cell: self.cells[&cell],
            kind,
        };
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok(Trace {
            name: name.to_string_lossy().into_owned(),
            events: self.events.iter().copied().map(event).collect(),
            cells: self.cells.keys().copied().collect(),
        })
    }
}

fn field(name: &str, text: &str, highest: u32) -> Result<u32, String> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_plain.then(|| text.parse::<u32>().ok()).flatten();
    number.filter(|number| *number <= highest).ok_or_else(|| {
        format!(
            "{name} must be a number from 0 to {highest}, found `{}`",
            clip(text)
        )
    })
}

fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Trace, TraceError> {
        Trace::read(Path::new("some/trace.csv"), text.as_bytes())
    }

    fn with_lines(lines: &str) -> Result<Trace, TraceError> {
        read(&format!("{HEADER}\n{lines}"))
    }

    #[test]
    fn the_trace_that_comes_along_is_what_its_page_says() {
        let trace = Trace::load(None).unwrap();
        assert_eq!(trace.events.len(), 143_402);
        assert_eq!((trace.cells.len(), trace.vehicles()), (30, 11_176));
        assert_eq!(trace.end(), 5_103);
    }

    #[test]
    fn cells_are_numbered_by_their_place() {
        let trace = with_lines("0,7,30,A\r\n1,8,2,A\n1,7,30,L\n").unwrap();
        assert_eq!(trace.cells, [2, 30]);
        assert_eq!(trace.name, "trace.csv");
        let last = trace.events[2];
        assert_eq!(
            (last.at, last.vehicle, last.cell, last.kind),
            (1, 7, 1, Kind::Leaves)
        );
    }

    #[test]
    fn every_malformed_line_is_named_with_file_line_and_reason() {
        for (lines, line, reason) in [
            ("0,1,2\n", 2, "expected 4 fields"),
            ("0,1,2,A,B\n", 2, "found 5"),
            ("\n", 2, "found 1"),
            ("0,1,2,A\n-1,1,2,L\n", 3, "t_s must be a number"),
            ("0,+1,2,A\n", 2, "device must be"),
            ("0,10000000,2,A\n", 2, "device must be"),
            ("0,1,4294967296,A\n", 2, "cell must be"),
            ("0,1,,A\n", 2, "cell must be"),
            ("0,1,2,X\n", 2, "A or L, found `X`"),
            ("5,1,2,A\n4,3,2,A\n", 3, "goes back from 5 to 4"),
            ("0,1,2,A\n0,1,3,A\n", 3, "has not left cell 2"),
            ("0,1,2,L\n", 2, "is in none"),
            ("0,1,2,A\n0,1,3,L\n", 3, "is in cell 2"),
            ("", 1, "without an event"),
        ] {
            let said = with_lines(lines).unwrap_err().to_string();
            let place = format!("some/trace.csv, line {line}: ");
            assert!(
                said.starts_with(&place) && said.contains(reason),
                "{lines:?}: {said}"
            );
        }
        let said = read("time,car\n").unwrap_err().to_string();
        assert!(said.contains("line 1: the header must be"), "{said}");
        let not_text = Trace::read(Path::new("t"), &b"t_s,device,cell,event\n\xff,1,2,A\n"[..]);
        assert!(
            not_text
                .unwrap_err()
                .to_string()
                .contains("line 2: it is not UTF-8")
        );
    }

    #[test]
    fn too_many_cells_and_cut_files_are_refused() {
        let lines: Vec<String> = (0..600).map(|cell| format!("0,{cell},{cell},A")).collect();
        let said = with_lines(&lines.join("\n")).unwrap_err().to_string();
        assert!(said.contains("line 514: more than 512 cells"), "{said}");
        let cut = Trace::read(Path::new("cut.gz"), &BOLOGNA[..BOLOGNA.len() / 2]);
        assert!(matches!(cut, Err(TraceError::Unreadable { .. })), "{cut:?}");
        let missing = Trace::load(Some(Path::new("/nowhere/trace.csv"))).unwrap_err();
        assert!(
            missing
                .to_string()
                .starts_with("/nowhere/trace.csv cannot be read")
        );
    }
}
