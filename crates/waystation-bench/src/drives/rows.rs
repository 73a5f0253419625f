//! What is measured, and how: each row is a database of its own, loaded, scanned, and removed.

use super::http::Server;
use super::process::Spinner;
use super::rig::{DRIVES, Rig, Used};
use crate::clock;
use crate::error::{Error, Result};
use crate::stats::median;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::time::Duration;

/// The number of which one document in so many is found.
const FOUND_OF: u64 = 100;
/// A request of documents has about so many bytes.
const REQUEST_BYTES: usize = 8 << 20;
/// The name of the database by whose scans weights are measured.
const LEARNED: &str = "learned";
/// It has one document of so many.
const LEARNED_OF: u64 = 8;
/// It has at least so many bytes: of less, much would not have been written to tables.
const LEARNED_BYTES_MIN: u64 = 2 << 30;
/// Weights are measured for so long.
const LEARNING: Duration = Duration::from_secs(8);
/// The name of the database that a row is measured on.
const DATABASE: &str = "drives";

/// What the scan looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Filter {
    /// A field inside of another one.
    Nested,
    /// A top-level field.
    Top,
    /// A field inside of another one, while the host is busy with something else.
    Busy,
}

impl Filter {
    fn selector(self) -> &'static str {
        match self {
            Self::Nested | Self::Busy => r#"{"car":{"number":7}}"#,
            Self::Top => r#"{"number":7}"#,
        }
    }
}

/// Which rows are measured: those of a figure of the paper, and the host alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Figure {
    /// All rows.
    All,
    /// One to three drives with one to eight shards each, even shares.
    Shards,
    /// Three drives, weights by hand and measured.
    Weights,
    /// Three drives with measured weights, each filter.
    Filters,
}

/// How shards are shared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Weights {
    /// The host gets what each drive gets.
    Even,
    /// The host gets so many times what a drive gets.
    Host(u32),
    /// By the speed that scans had.
    Measured,
}

impl Weights {
    fn name(self) -> String {
        match self {
            Self::Even => "even".to_owned(),
            Self::Host(weight) => weight.to_string(),
            Self::Measured => "measured".to_owned(),
        }
    }
}

/// A row that is to be measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) filter: Filter,
    pub(crate) drives: usize,
    pub(crate) shards_per_drive: usize,
    pub(crate) weights: Weights,
    /// The drives scan another database meanwhile.
    pub(crate) drives_are_busy: bool,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DrivesRow {
    pub(crate) engine: String,
    pub(crate) workload: String,
    pub(crate) filter: Filter,
    pub(crate) drives: usize,
    pub(crate) shards_per_drive: usize,
    pub(crate) weights: String,
    pub(crate) documents: u64,
    pub(crate) document_bytes: usize,
    pub(crate) docs_per_s: f64,
    /// Whether the drives scan another database meanwhile: of rows of the host alone.
    pub(crate) drives_are_busy: bool,
    /// Of the row of the host alone with the same filter, its drives idle.
    pub(crate) ratio_to_host: Option<f64>,
    /// Of the row of the host alone whose drives were busy with something else, which takes the machine's own coupling of
    /// its cores out of the ratio.
    pub(crate) ratio_to_coupled_host: Option<f64>,
    /// How many times the host's time the drives take.
    pub(crate) calibration: Option<f64>,
    pub(crate) cpu_us_per_doc: Option<f64>,
    /// Cores that the host used, of the 0.85 that it has.
    pub(crate) host_cores: Option<f64>,
    /// Cores that all drives used together.
    pub(crate) drive_cores: Option<f64>,
    /// Cores that a hypervisor kept from the machine: the row is of a machine that was smaller by so much.
    pub(crate) stolen_cores: Option<f64>,
    pub(crate) peak_rss_mb: Option<f64>,
}

/// How much a row measures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) documents: u64,
    pub(crate) document_bytes: usize,
    /// Scans, at least.
    pub(crate) runs: usize,
    /// They go on for so long, at least.
    pub(crate) time: Duration,
}

/// The rows of a server alone.
pub(crate) fn single_plans() -> Vec<Plan> {
    let plan = |filter| Plan {
        filter,
        drives: 0,
        shards_per_drive: 0,
        weights: Weights::Even,
        drives_are_busy: false,
    };
    [Filter::Nested, Filter::Top].map(plan).into()
}

/// The rows of `figure`: the host alone first, for each filter.
pub(crate) fn plans(figure: Figure) -> Vec<Plan> {
    let plan = |filter, drives, shards_per_drive, weights| Plan {
        filter,
        drives,
        shards_per_drive,
        weights,
        drives_are_busy: false,
    };
    let has = |it| figure == Figure::All || figure == it;
    let filters = if has(Figure::Filters) {
        vec![Filter::Nested, Filter::Top, Filter::Busy]
    } else {
        vec![Filter::Nested]
    };
    let alone = filters.iter();
    let mut plans: Vec<Plan> = alone
        .map(|filter| plan(*filter, 0, 0, Weights::Even))
        .collect();
    plans.push(Plan {
        drives_are_busy: true,
        ..plan(Filter::Nested, 0, 0, Weights::Even)
    });
    if has(Figure::Shards) {
        for drives in 1..=DRIVES {
            for shards in [1, 2, 4, 8] {
                plans.push(plan(Filter::Nested, drives, shards, Weights::Even));
            }
        }
    }
    if has(Figure::Weights) {
        plans.extend((1..=5).map(|weight| plan(Filter::Nested, DRIVES, 4, Weights::Host(weight))));
    }
    if has(Figure::Weights) || has(Figure::Filters) {
        let measured = filters.iter();
        plans.extend(measured.map(|filter| plan(*filter, DRIVES, 8, Weights::Measured)));
    }
    plans
}

impl Plan {
    /// The parameters of the database; `has_drives`: the server has some.
    fn parameters(&self, has_drives: bool) -> String {
        if self.drives == 0 {
            let here = if has_drives {
                "&placement=_local:1"
            } else {
                ""
            };
            return format!("q=4{here}");
        }
        if self.weights == Weights::Measured {
            // As many shards as with the weight that is expected.
            return format!("q={}", (self.drives + 3) * self.shards_per_drive);
        }
        let host = match self.weights {
            Weights::Host(weight) => weight as usize,
            Weights::Even | Weights::Measured => 1,
        };
        self.placement(host)
    }

    /// The host gets `host` times what a drive gets.
    fn placement(&self, host: usize) -> String {
        let shards = (self.drives + host) * self.shards_per_drive;
        let mut placement = format!("q={shards}&placement=_local:{host}");
        for number in 1..=self.drives {
            let _ = write!(placement, ",d{number}:1");
        }
        placement
    }

    pub(crate) fn name(&self) -> String {
        let (drives, shards) = (self.drives, self.shards_per_drive);
        let weights = self.weights.name();
        let busy = if self.drives_are_busy {
            ", drives busy"
        } else {
            ""
        };
        format!(
            "{:?}, {drives} drives of {shards} shards, weights {weights}{busy}",
            self.filter
        )
    }
}

/// Loads `documents` documents of `bytes` bytes into the database `name`.
pub(crate) fn load(server: &Server, name: &str, documents: u64, bytes: usize) -> Result<()> {
    let mut next = 0;
    let mut state = 0x9e37_79b9_7f4a_7c15;
    while next < documents {
        let mut body = String::from(r#"{"docs":["#);
        while next < documents && body.len() < REQUEST_BYTES {
            if !body.ends_with('[') {
                body.push(',');
            }
            put_document(&mut body, next, bytes, &mut state);
            next += 1;
        }
        body.push_str("]}");
        server.ask("POST", &format!("/{name}/_bulk_docs"), &body)?;
    }
    Ok(())
}

/// A document: numbers to filter by, and text that does not compress to nothing.
fn put_document(out: &mut String, at: u64, bytes: usize, state: &mut u64) {
    let begin = out.len();
    let number = at % FOUND_OF;
    let _ = write!(
        out,
        r#"{{"_id":"{at:08}","number":{number},"car":{{"number":{number},"plate":"W-{at}"}},"text":""#
    );
    while out.len() < begin + bytes.saturating_sub(2) {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        let _ = write!(out, "{state:016x}");
    }
    out.push_str("\"}");
}

/// Scans the database `name` of `documents` documents, and checks how many are found.
pub(crate) fn scan(server: &Server, name: &str, filter: Filter, documents: u64) -> Result<()> {
    let selector = filter.selector();
    let query = format!(r#"{{"selector":{selector},"fields":["_id"],"limit":{documents}}}"#);
    let answer = server.ask("POST", &format!("/{name}/_find"), &query)?;
    let answer: serde_json::Value = serde_json::from_slice(&answer)
        .map_err(|error| Error::Refused(format!("the answer of _find is no JSON: {error}")))?;
    let found = answer["docs"].as_array().map_or(0, Vec::len) as u64;
    let expected = (0..documents).filter(|at| at % FOUND_OF == 7).count() as u64;
    if found == expected {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "_find found {found} documents of {documents}, and not {expected}: the figure would mean nothing"
    )))
}

/// Has the server learn the weights, by scans of the kind that is measured: with even shares, of which the host does its
/// own in a third of the time, and then with the shares learned from them, so that all nodes are busy to the end.
fn learn(server: &Server, rig: &Rig, plan: &Plan, size: Size) -> Result<()> {
    let least = LEARNED_BYTES_MIN / size.document_bytes.max(1) as u64;
    let documents = (size.documents / LEARNED_OF).max(least);
    let documents = documents.min(size.documents).max(FOUND_OF);
    let path = format!("/{LEARNED}");
    for parameters in [plan.placement(1), plan.parameters(true)] {
        rig.hold(false)?;
        server.ask("PUT", &format!("{path}?{parameters}"), "")?;
        load(server, LEARNED, documents, size.document_bytes)?;
        rig.settle();
        rig.hold(true)?;
        let spinner = busy(Some(rig), plan)?;
        let begin = clock::now();
        while begin.elapsed() < LEARNING {
            scan(server, LEARNED, plan.filter, documents)?;
        }
        drop(spinner);
        server.ask("DELETE", &path, "")?;
    }
    Ok(())
}

/// What else the host does while `plan` is measured.
fn busy(rig: Option<&Rig>, plan: &Plan) -> Result<Option<Spinner>> {
    let rig = rig.filter(|_| plan.filter == Filter::Busy);
    rig.map(Rig::busy).transpose()
}

/// The times of scans, and what they took together.
struct Scanned {
    times: Vec<f64>,
    seconds: f64,
    used: Option<Used>,
}

/// Scans the database as often as `size` says, after one scan that does not count.
fn scan_often(server: &Server, rig: Option<&Rig>, plan: &Plan, size: Size) -> Result<Scanned> {
    scan(server, DATABASE, plan.filter, size.documents)?;
    let (before, begin) = (rig.map(Rig::used), clock::now());
    let mut times = Vec::new();
    while times.len() < size.runs || begin.elapsed() < size.time {
        let begin = clock::now();
        scan(server, DATABASE, plan.filter, size.documents)?;
        times.push(begin.elapsed().as_secs_f64());
    }
    let used = rig.map(Rig::used).zip(before);
    Ok(Scanned {
        times,
        seconds: begin.elapsed().as_secs_f64(),
        used: used.map(|(after, before)| after.since(before)),
    })
}

/// Measures `plan` on `server`, with `rig` if its processes are known: the median of its scans.
pub(crate) fn measure(
    server: &Server,
    rig: Option<&Rig>,
    plan: &Plan,
    size: Size,
) -> Result<DrivesRow> {
    let (documents, document_bytes) = (size.documents, size.document_bytes);
    let path = format!("/{DATABASE}");
    let parameters = plan.parameters(rig.is_some());
    if let (Some(rig), Weights::Measured) = (rig, plan.weights) {
        learn(server, rig, plan, size)?;
    }
    rig.map_or(Ok(()), |rig| rig.hold(false))?;
    server.ask("PUT", &format!("{path}?{parameters}"), "")?;
    load(server, DATABASE, documents, document_bytes)?;
    if let Some(rig) = rig {
        rig.settle();
        rig.hold(true)?;
    }
    let spinner = busy(rig, plan)?;
    let scans = || scan_often(server, rig, plan, size);
    let scanned = match rig.filter(|_| plan.drives_are_busy) {
        Some(rig) => rig.beside_busy_drives(scans)?,
        None => scans()?,
    };
    drop(spinner);
    server.ask("DELETE", &path, "")?;
    let cores = |seconds: fn(Used) -> f64| scanned.used.map(|used| seconds(used) / scanned.seconds);
    let read = documents as f64 * scanned.times.len() as f64;
    Ok(DrivesRow {
        engine: if rig.is_some() {
            "waystation"
        } else {
            "server"
        }
        .to_owned(),
        workload: "drives".to_owned(),
        filter: plan.filter,
        drives: plan.drives,
        shards_per_drive: plan.shards_per_drive,
        weights: plan.weights.name(),
        documents,
        document_bytes,
        docs_per_s: documents as f64 / median(&scanned.times),
        drives_are_busy: plan.drives_are_busy,
        ratio_to_host: None,
        ratio_to_coupled_host: None,
        calibration: rig.and_then(|rig| rig.slowness),
        // Busy drives take theirs for something else.
        cpu_us_per_doc: scanned
            .used
            .filter(|_| !plan.drives_are_busy)
            .map(|used| (used.host + used.drives) * 1e6 / read),
        host_cores: cores(|used| used.host),
        drive_cores: cores(|used| used.drives),
        stolen_cores: cores(|used| used.stolen),
        peak_rss_mb: rig.map(Rig::peak_rss_mb),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_have_their_length_and_are_json() {
        let (mut text, mut state) = (String::new(), 1);
        put_document(&mut text, 107, 8192, &mut state);
        assert!((8192..8192 + 32).contains(&text.len()), "{}", text.len());
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            (json["number"].as_u64(), json["car"]["number"].as_u64()),
            (Some(7), Some(7))
        );
    }

    #[test]
    fn plans_place_their_shards() {
        let plan = |weights, drives| Plan {
            filter: Filter::Nested,
            drives,
            shards_per_drive: 4,
            weights,
            drives_are_busy: false,
        };
        assert_eq!(plan(Weights::Even, 0).parameters(false), "q=4");
        assert_eq!(
            plan(Weights::Even, 2).parameters(true),
            "q=12&placement=_local:1,d1:1,d2:1"
        );
        assert_eq!(
            plan(Weights::Host(3), 3).parameters(true),
            "q=24&placement=_local:3,d1:1,d2:1,d3:1"
        );
        assert_eq!(plan(Weights::Measured, 3).parameters(true), "q=24");
        // A server with drives would spread them by what it has measured.
        let alone = plan(Weights::Even, 0).parameters(true);
        assert_eq!(alone, "q=4&placement=_local:1");
        let alone = |figure| plans(figure).iter().filter(|it| it.drives == 0).count();
        assert_eq!(
            [Figure::All, Figure::Filters, Figure::Weights].map(alone),
            [4, 4, 2]
        );
        assert_eq!(plans(Figure::Weights).len(), 8);
        assert_eq!(plans(Figure::Shards).len(), 14);
    }
}
