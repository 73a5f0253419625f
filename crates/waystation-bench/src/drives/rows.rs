//! What is measured, and how: each row is a database of its own, loaded, scanned, and removed.

use super::http::Server;
use super::rig::{DRIVES, Rig};
use crate::clock;
use crate::error::{Error, Result};
use crate::stats::median;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The number of which one document in so many is found.
const FOUND_OF: u64 = 100;
/// A request of documents has about so many bytes.
const REQUEST_BYTES: usize = 8 << 20;
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
    /// Of the row of the host alone with the same filter.
    pub(crate) ratio_to_host: Option<f64>,
    /// How many times the host's time the drives take.
    pub(crate) calibration: Option<f64>,
    pub(crate) cpu_us_per_doc: Option<f64>,
    pub(crate) peak_rss_mb: Option<f64>,
}

/// The rows of a server alone.
pub(crate) fn single_plans() -> Vec<Plan> {
    let plan = |filter| Plan {
        filter,
        drives: 0,
        shards_per_drive: 0,
        weights: Weights::Even,
    };
    [Filter::Nested, Filter::Top].map(plan).into()
}

/// All rows: the host alone first, for each filter.
pub(crate) fn plans() -> Vec<Plan> {
    let plan = |filter, drives, shards_per_drive, weights| Plan {
        filter,
        drives,
        shards_per_drive,
        weights,
    };
    let filters = [Filter::Nested, Filter::Top, Filter::Busy];
    let mut plans: Vec<Plan> = filters
        .map(|filter| plan(filter, 0, 0, Weights::Even))
        .into();
    for drives in 1..=DRIVES {
        for shards in [1, 2, 4, 8] {
            plans.push(plan(Filter::Nested, drives, shards, Weights::Even));
        }
    }
    plans.extend((1..=5).map(|weight| plan(Filter::Nested, DRIVES, 4, Weights::Host(weight))));
    plans.extend(filters.map(|filter| plan(filter, DRIVES, 4, Weights::Measured)));
    plans
}

impl Plan {
    /// The parameters of the database.
    fn parameters(&self) -> String {
        if self.drives == 0 {
            return "q=4".to_owned();
        }
        let host = match self.weights {
            Weights::Host(weight) => weight as usize,
            Weights::Even | Weights::Measured => 1,
        };
        let shards = (self.drives + host) * self.shards_per_drive;
        if self.weights == Weights::Measured {
            // The same number of shards as with the weight that is expected.
            return format!("q={}", (self.drives + 3) * self.shards_per_drive);
        }
        let mut placement = format!("q={shards}&placement=_local:{host}");
        for number in 1..=self.drives {
            let _ = write!(placement, ",d{number}:1");
        }
        placement
    }

    pub(crate) fn name(&self) -> String {
        let (drives, shards) = (self.drives, self.shards_per_drive);
        let weights = self.weights.name();
        format!(
            "{:?}, {drives} drives of {shards} shards, weights {weights}",
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

/// Measures `plan` on `server`, with `rig` if its processes are known: the median of `runs` scans, after one that does
/// not count.
pub(crate) fn measure(
    server: &Server,
    rig: Option<&Rig>,
    plan: &Plan,
    (documents, document_bytes): (u64, usize),
    runs: usize,
) -> Result<DrivesRow> {
    let path = format!("/{DATABASE}");
    let parameters = plan.parameters();
    rig.map_or(Ok(()), |rig| rig.hold(false))?;
    server.ask("PUT", &format!("{path}?{parameters}"), "")?;
    load(server, DATABASE, documents, document_bytes)?;
    rig.map_or(Ok(()), |rig| rig.hold(true))?;
    let spinner = match (rig, plan.filter) {
        (Some(rig), Filter::Busy) => Some(rig.busy()?),
        _ => None,
    };
    scan(server, DATABASE, plan.filter, documents)?;
    let cpu_before = rig.map(Rig::cpu_seconds);
    let mut times = Vec::new();
    for _ in 0..runs {
        let begin = clock::now();
        scan(server, DATABASE, plan.filter, documents)?;
        times.push(begin.elapsed().as_secs_f64());
    }
    let cpu = rig.map(Rig::cpu_seconds);
    drop(spinner);
    server.ask("DELETE", &path, "")?;
    let scanned = documents as f64 * runs as f64;
    let cpu = cpu.zip(cpu_before).map(|(after, before)| after - before);
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
        docs_per_s: documents as f64 / median(&times),
        ratio_to_host: None,
        calibration: rig.and_then(|rig| rig.slowness),
        cpu_us_per_doc: cpu.map(|cpu| cpu * 1e6 / scanned),
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
        };
        assert_eq!(plan(Weights::Even, 0).parameters(), "q=4");
        assert_eq!(
            plan(Weights::Even, 2).parameters(),
            "q=12&placement=_local:1,d1:1,d2:1"
        );
        assert_eq!(
            plan(Weights::Host(3), 3).parameters(),
            "q=24&placement=_local:3,d1:1,d2:1,d3:1"
        );
        assert_eq!(plan(Weights::Measured, 3).parameters(), "q=24");
        assert!(plans().iter().filter(|plan| plan.drives == 0).count() == 3);
    }
}
