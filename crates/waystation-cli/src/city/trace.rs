//! The trace: when which vehicle arrives in and leaves which cell.
//!
//! Rows `t_s,device,cell,event`, sorted by time, `A` for arrives and `L` for leaves; plain or compressed with gzip. A
//! line that is not so is an error with its number: a trace with a hole in it would make an audit without a meaning.
//!
//! Devices and cells are called by any name ([`names`](super::names)). The city's clock ticks in seconds: fractions are
//! read, so that the order can be checked, and cut off. A trace whose times are those of a calendar (seconds since 1970)
//! begins at second 0.

use super::names::Names;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};

/// The trace that comes with the command: Bologna's morning peak (`data/README.md`).
static BOLOGNA: &[u8] = include_bytes!("../../../../data/bologna_hex250m.csv.gz");
/// Whose it is; shown wherever it is used.
pub(crate) const BOLOGNA_TERMS: &str = "the trace is derived from the \"joined\" Bologna scenario of DLR-TS/sumo-scenarios (DLR-TS and the iTETRIS project, EPL-2.0)";

const HEADER: &str = "t_s,device,cell,event";
/// What some programs put before UTF-8 text.
const BYTE_ORDER_MARK: &str = "\u{feff}";
/// Seconds, about 12 days.
const TIME_MAX: u64 = 1_000_000;
/// Times beyond this many seconds are in other units.
const CLOCK_MAX: u64 = 10_000_000_000;
/// Digits of a fraction of a second that are looked at.
const FRACTION_DIGITS: usize = 9;
/// The highest vehicle's number that its keys have digits for.
const VEHICLE_MAX: u32 = 9_999_999;
/// A cell's directory is called like the cell (bytes).
const CELL_NAME_MAX: usize = 64;
/// A longer line is no row of a trace (bytes).
const LINE_MAX: u64 = 1 << 16;

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
    /// The cells' names in the file: ascending if they are numbers, else in the order of text.
    pub(crate) cells: Vec<String>,
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
            let mut limited = (&mut lines).take(LINE_MAX);
            if limited.read_until(b'\n', &mut line).map_err(unreadable)? == 0 {
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

    /// The same traffic in `count` cells, at least as many as there are: each cell's area becomes several, and a vehicle comes
    /// to the same one of them whenever it comes there. So the readings and the hand-offs are the same. A cell's vehicles take
    /// turns at its parts, in the order in which they first come.
    pub(crate) fn split(mut self, count: usize) -> Self {
        let (few, more) = (count / self.cells.len(), count % self.cells.len());
        // The parts of a cell stand together; the first cells have one more.
        let parts = |cell: usize| few + usize::from(cell < more);
        let first = |cell: usize| few * cell + cell.min(more);
        let mut chosen = HashMap::new();
        let mut known = vec![0; self.cells.len()];
        for event in &mut self.events {
            let part = chosen
                .entry((event.vehicle, event.cell))
                .or_insert_with(|| {
                    let order = known[event.cell];
                    known[event.cell] += 1;
                    order % parts(event.cell)
                });
            event.cell = first(event.cell) + *part;
        }
        let names = self.cells.iter().enumerate();
        let names = names.flat_map(|(cell, name)| {
            // No name of a cell with a part is that of another, whatever cells are called.
            (0..parts(cell)).map(move |part| format!("{name}/{part}"))
        });
        self.cells = names.collect();
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

/// The lines so far. Vehicles and cells are the numbers of their names until the end.
#[derive(Default)]
struct Parser {
    events: Vec<Event>,
    vehicles: Names,
    cells: Names,
    /// Where each vehicle is.
    places: HashMap<u32, u32>,
    /// The second that the city's time begins with.
    origin: u64,
    /// When the line before was: seconds and billionths.
    last: (u64, u32),
    lines: u64,
}

impl Parser {
    fn line(&mut self, number: u64, line: &[u8]) -> Result<(), String> {
        self.lines = number;
        if line.len() as u64 == LINE_MAX {
            return Err(format!("it is longer than {LINE_MAX} bytes"));
        }
        let text = std::str::from_utf8(line).map_err(|_| "it is not UTF-8 text".to_owned())?;
        let text = text.trim_end_matches(['\n', '\r']);
        if number == 1 {
            let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
            return if text.split(',').map(str::trim).eq(HEADER.split(',')) {
                Ok(())
            } else {
                let found: String = text.chars().take(60).collect();
                Err(format!("the header must be `{HEADER}`, found `{found}`"))
            };
        }
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        let &[at, vehicle, cell, kind] = fields.as_slice() else {
            return Err(format!(
                "expected 4 fields ({HEADER}), found {}",
                fields.len()
            ));
        };
        let at = self.time(at)?;
        let vehicle = self.vehicle(vehicle)?;
        let cell = self.cell(cell)?;
        let kind = match kind {
            "A" => Kind::Arrives,
            "L" => Kind::Leaves,
            other => return Err(format!("event must be A or L, found `{}`", clip(other))),
        };
        self.happen(vehicle, cell, kind)?;
        self.events.push(Event {
            at,
            vehicle,
            cell: cell as usize,
            kind,
        });
        Ok(())
    }

    /// The second of the city's time that a time lies in.
    fn time(&mut self, text: &str) -> Result<u32, String> {
        let time = seconds(text).ok_or_else(|| {
            format!(
                "t_s must be a number of seconds from 0 to {CLOCK_MAX}, found `{}`",
                clip(text)
            )
        })?;
        if self.events.is_empty() && time.0 > TIME_MAX {
            self.origin = time.0;
        }
        if time < self.last {
            let [last, now] = [self.last, time].map(written);
            return Err(format!("the time goes back from {last} to {now}"));
        }
        self.last = time;
        let at = time.0 - self.origin;
        if at > TIME_MAX {
            return Err(format!(
                "t_s is {at} s after the trace's beginning; a trace is of {TIME_MAX} s at most"
            ));
        }
        Ok(at as u32)
    }

    fn vehicle(&mut self, name: &str) -> Result<u32, String> {
        if name.is_empty() {
            return Err("device must have a name, found none".to_owned());
        }
        let number = self.vehicles.number(name);
        if number > VEHICLE_MAX {
            return Err(format!("more than {} devices", VEHICLE_MAX + 1));
        }
        Ok(number)
    }

    fn cell(&mut self, name: &str) -> Result<u32, String> {
        if name.is_empty() || name.len() > CELL_NAME_MAX {
            return Err(format!(
                "cell must have a name of 1 to {CELL_NAME_MAX} bytes, found `{}`",
                clip(name)
            ));
        }
        Ok(self.cells.number(name))
    }

    fn happen(&mut self, vehicle: u32, cell: u32, kind: Kind) -> Result<(), String> {
        let place = self.places.get(&vehicle).copied();
        let (who, here) = (
            clip(self.vehicles.name(vehicle)),
            clip(self.cells.name(cell)),
        );
        let there = |other| clip(self.cells.name(other));
        match (kind, place) {
            (Kind::Arrives, Some(other)) => Err(format!(
                "vehicle {who} arrives in cell {here} and has not left cell {}",
                there(other)
            )),
            (Kind::Leaves, None) => Err(format!("vehicle {who} leaves cell {here} and is in none")),
            (Kind::Leaves, Some(other)) if other != cell => Err(format!(
                "vehicle {who} leaves cell {here} and is in cell {}",
                there(other)
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
        let order = self.cells.in_order();
        let mut places = vec![0; order.len()];
        for (place, number) in order.iter().enumerate() {
            places[*number as usize] = place;
        }
        // Vehicles that are numbers keep them; others have theirs in the order of their first arrival.
        let plain = self.vehicles.plain(VEHICLE_MAX);
        for event in &mut self.events {
            event.cell = places[event.cell];
            if let Some(plain) = &plain {
                event.vehicle = plain[event.vehicle as usize];
            }
        }
        let name = path.file_name().unwrap_or(path.as_os_str());
        let cells = order.iter().map(|number| self.cells.name(*number));
        Ok(Trace {
            name: name.to_string_lossy().into_owned(),
            cells: cells.map(str::to_owned).collect(),
            events: self.events,
        })
    }
}

/// A number of seconds that may have a fraction: whole seconds, and billionths.
fn seconds(text: &str) -> Option<(u64, u32)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_plain(whole) || !is_plain(fraction) {
        return None;
    }
    let kept = fraction.get(..FRACTION_DIGITS).unwrap_or(fraction);
    let billionths = format!("{kept:0<FRACTION_DIGITS$}").parse().ok()?;
    let whole = whole.parse().ok().filter(|whole| *whole <= CLOCK_MAX)?;
    Some((whole, billionths))
}

fn written((whole, billionths): (u64, u32)) -> String {
    let text = format!("{whole}.{billionths:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn clip(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

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
        assert_eq!(trace.cells, ["2", "30"]);
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
            ("1e3,1,2,A\n", 2, "t_s must be a number"),
            (".5,1,2,A\n", 2, "t_s must be a number"),
            ("1.2.3,1,2,A\n", 2, "t_s must be a number"),
            ("NaN,1,2,A\n", 2, "found `NaN`"),
            ("99999999999999999999,1,2,A\n", 2, "t_s must be"),
            ("1211018404000,1,2,A\n", 2, "from 0 to 10000000000"),
            ("0,1,2,A\n1000001,1,2,L\n", 3, "1000001 s after"),
            ("0,,2,A\n", 2, "device must have a name"),
            ("0,1,,A\n", 2, "cell must have a name"),
            ("5.25,1,2,A\n5.2,3,2,A\n", 3, "goes back from 5.25 to 5.2"),
            (
                "0,taxi,2,A\n0,taxi,3,A\n",
                3,
                "vehicle taxi arrives in cell 3",
            ),
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
    fn traces_as_other_programs_write_them_are_read() {
        let text = "\u{feff}t_s, device, cell, event\r\n0.25,taxi-7,old town,A\r\n5.75,taxi-7,old town,L\r\n\
                    6.125,taxi-7,harbour,A\r\n6.5,007,harbour,A\r\n7.,taxi-7,harbour,L";
        let trace = read(text).unwrap();
        assert_eq!(trace.cells, ["harbour", "old town"]);
        let seen: Vec<_> = trace
            .events
            .iter()
            .map(|it| (it.at, it.vehicle, it.cell))
            .collect();
        assert_eq!(
            seen,
            [(0, 0, 1), (5, 0, 1), (6, 0, 0), (6, 1, 0), (7, 0, 0)]
        );
        assert_eq!(trace.vehicles(), 2);
    }

    #[test]
    fn times_of_a_calendar_begin_at_nought() {
        let trace = with_lines("1211018404.5,a,2,A\n1211018464,a,2,L\n").unwrap();
        let times: Vec<u32> = trace.events.iter().map(|event| event.at).collect();
        assert_eq!(times, [0, 60]);
        let trace = with_lines("900000,a,2,A\n1000000,a,2,L\n").unwrap();
        assert_eq!((trace.events[0].at, trace.end()), (900_000, 1_000_001));
    }

    #[test]
    fn any_number_of_cells_is_read_and_no_line_without_end() {
        let lines: Vec<String> = (0..3_000)
            .map(|cell| format!("0,{cell},{cell},A"))
            .collect();
        assert_eq!(with_lines(&lines.join("\n")).unwrap().cells.len(), 3_000);
        let said = with_lines(&"7".repeat(1 << 20)).unwrap_err().to_string();
        assert!(said.contains("line 2: it is longer than"), "{said}");
        let said = with_lines(&format!("0,1,{},A", "c".repeat(65))).unwrap_err();
        assert!(said.to_string().contains("1 to 64 bytes"), "{said}");
    }

    #[test]
    fn a_cell_is_split_by_its_vehicles() {
        let whole = Trace::load(None).unwrap();
        let split = whole.clone().split(80);
        assert_eq!(split.cells.len(), 80);
        assert_eq!(split.cells[..4], ["0/0", "0/1", "0/2", "1/0"]);
        let mut used = [false; 80];
        let mut vehicles = vec![HashSet::new(); whole.cells.len()];
        for (before, after) in whole.events.iter().zip(&split.events) {
            let (cell, part) = split.cells[after.cell].split_once('/').unwrap();
            assert_eq!(cell, whole.cells[before.cell], "part {part}");
            used[after.cell] = true;
            vehicles[before.cell].insert(before.vehicle);
        }
        // Of 80 parts, 20 cells have three and 10 cells two.
        let come =
            |(cell, them): (usize, &HashSet<u32>)| them.len().min(2 + usize::from(cell < 20));
        let reached: usize = vehicles.iter().enumerate().map(come).sum();
        assert_eq!(used.iter().filter(|it| **it).count(), reached);
        assert!(reached > 75, "{reached}");
        // Who leaves a cell leaves the part that it came to.
        let mut places = HashMap::new();
        for event in &split.events {
            match event.kind {
                Kind::Arrives => assert_eq!(places.insert(event.vehicle, event.cell), None),
                Kind::Leaves => assert_eq!(places.remove(&event.vehicle), Some(event.cell)),
            }
        }
    }

    #[test]
    fn cut_and_missing_files_are_refused() {
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
