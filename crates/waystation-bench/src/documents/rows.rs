//! What is measured, and how.

use super::ServerProcess;
use super::body::{Shape, put_document};
use super::feeds::Feeds;
use crate::clock;
use crate::drives::Server;
use crate::error::{Error, Result};
use crate::stats::median;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A request of documents has about so many bytes: 500 documents of 8 KB.
const REQUEST_BYTES: usize = 4 << 20;
/// Processor time that a take of a filter is repeated for.
const TAKE: f64 = 1.0;
/// A take has at most so many queries.
const QUERIES_MAX: u32 = 1_000;
/// How long the server is left alone before its idle memory is read.
const CALM: Duration = Duration::from_secs(3);
/// The database that everything is measured on.
const DATABASE: &str = "documents";
/// A body that CouchDB was measured with (bytes).
pub(crate) const BODY_BYTES: usize = 8_192;
/// A large one.
pub(crate) const LARGE_BODY_BYTES: usize = 118_784;

/// What is measured.
pub(crate) struct Subject<'a> {
    /// The interface.
    pub(crate) server: &'a Server,
    /// The process, if it is one of this program's.
    pub(crate) process: Option<&'a ServerProcess>,
    /// Takes of each figure.
    pub(crate) runs: u32,
}

/// A row.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DocumentsRow {
    pub(crate) engine: String,
    pub(crate) workload: String,
    /// What the server did: `find top`, `load`, `idle`, ...
    pub(crate) work: String,
    pub(crate) body: Option<Shape>,
    pub(crate) body_bytes: Option<usize>,
    pub(crate) documents: Option<u64>,
    /// Connections that worked at once.
    pub(crate) clients: u32,
    pub(crate) docs_per_s: Option<f64>,
    /// The median time of one request that goes through all documents.
    pub(crate) query_ms: Option<f64>,
    /// Processor time of the server.
    pub(crate) cpu_us_per_doc: Option<f64>,
    /// The memory of the server while the work went on, at its most.
    pub(crate) peak_rss_mb: Option<f64>,
}

impl Subject<'_> {
    fn row(&self, work: &str) -> DocumentsRow {
        let engine = if self.process.is_some() {
            "waystation"
        } else {
            "server"
        };
        DocumentsRow {
            engine: engine.to_owned(),
            workload: "documents".to_owned(),
            work: work.to_owned(),
            clients: 1,
            ..DocumentsRow::default()
        }
    }

    fn cpu_seconds(&self) -> Option<f64> {
        self.process.map(ServerProcess::cpu_seconds)
    }

    /// Makes the database with `documents` documents; the time that this took.
    fn load(&self, shape: Shape, bytes: usize, documents: u64, loaders: u64) -> Result<f64> {
        self.server.ask("PUT", &format!("/{DATABASE}"), "")?;
        let per_request = (REQUEST_BYTES / bytes).max(1) as u64;
        let next = AtomicU64::new(0);
        let begin = clock::now();
        let load = |loader: u64| -> Result<()> {
            let mut seed = 0x9e37_79b9_7f4a_7c15 + loader;
            loop {
                let first = next.fetch_add(per_request, Ordering::SeqCst);
                if first >= documents {
                    return Ok(());
                }
                let mut body = String::with_capacity(REQUEST_BYTES + 2 * bytes);
                body.push_str("{\"docs\":[");
                for number in first..documents.min(first + per_request) {
                    if number > first {
                        body.push(',');
                    }
                    put_document(&mut body, number, shape, bytes, &mut seed);
                }
                body.push_str("]}");
                let answer = self
                    .server
                    .ask("POST", &format!("/{DATABASE}/_bulk_docs"), &body)?;
                if answer.windows(7).any(|it| it == b"\"error\"") {
                    return Err(refused("_bulk_docs refused a document".to_owned()));
                }
            }
        };
        let loaded: Result<()> = thread::scope(|scope| {
            let load = &load;
            let begun: Vec<_> = (0..loaders)
                .map(|loader| scope.spawn(move || load(loader)))
                .collect();
            begun
                .into_iter()
                .try_for_each(|thread| match thread.join() {
                    Ok(outcome) => outcome,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
        });
        loaded.map(|()| begin.elapsed().as_secs_f64())
    }

    fn drop_database(&self) -> Result<()> {
        self.server
            .ask("DELETE", &format!("/{DATABASE}"), "")
            .map(drop)
    }

    /// Goes through all `documents` documents, and checks that one in a hundred is found.
    fn query(&self, selector: &str, documents: u64) -> Result<()> {
        let query = format!(r#"{{"selector":{selector},"fields":["_id"],"limit":{documents}}}"#);
        let answer = self
            .server
            .ask("POST", &format!("/{DATABASE}/_find"), &query)?;
        let answer: serde_json::Value = serde_json::from_slice(&answer)
            .map_err(|error| refused(format!("the answer of _find is no JSON: {error}")))?;
        let found = answer["docs"].as_array().map_or(0, Vec::len) as u64;
        let expected = documents / 100 + u64::from(documents % 100 > 7);
        if found == expected {
            return Ok(());
        }
        Err(refused(format!(
            "_find found {found} documents of {documents}, and not {expected}: the figure would mean nothing"
        )))
    }

    /// One take of a filter: the median time of a query, and the processor time of a document.
    fn take(&self, selector: &str, documents: u64) -> Result<(f64, Option<f64>)> {
        let before = self.cpu_seconds();
        let begin = clock::now();
        let mut times = Vec::new();
        let worked = || match (self.cpu_seconds(), before) {
            (Some(after), Some(before)) => after - before,
            _ => begin.elapsed().as_secs_f64(),
        };
        while times.is_empty() || worked() < TAKE && (times.len() as u32) < QUERIES_MAX {
            let begin = clock::now();
            self.query(selector, documents)?;
            times.push(begin.elapsed().as_secs_f64());
        }
        let cpu = self
            .process
            .map(|_| worked() * 1e6 / (documents as f64 * times.len() as f64));
        Ok((median(&times), cpu))
    }
}

fn refused(reason: String) -> Error {
    Error::Refused(reason)
}

/// Filters without an index, on a field at the top and on one inside of another.
pub(crate) fn find_rows(
    subject: &Subject<'_>,
    docs: u64,
    large_docs: u64,
) -> Result<Vec<DocumentsRow>> {
    let shapes = [
        (Shape::String, BODY_BYTES, docs),
        (Shape::Fields, BODY_BYTES, docs),
        (Shape::String, LARGE_BODY_BYTES, large_docs),
        (Shape::Fields, LARGE_BODY_BYTES, large_docs),
    ];
    let mut rows = Vec::new();
    for (shape, bytes, documents) in shapes {
        subject.load(shape, bytes, documents, 1)?;
        for (work, selector) in [
            ("find top", r#"{"number":7}"#),
            ("find nested", r#"{"car":{"number":7}}"#),
        ] {
            subject.query(selector, documents)?;
            let takes = (0..subject.runs).map(|_| subject.take(selector, documents));
            let takes = takes.collect::<Result<Vec<_>>>()?;
            let times: Vec<f64> = takes.iter().map(|take| take.0).collect();
            let cpu: Option<Vec<f64>> = takes.iter().map(|take| take.1).collect();
            rows.push(DocumentsRow {
                body: Some(shape),
                body_bytes: Some(bytes),
                documents: Some(documents),
                docs_per_s: Some(documents as f64 / median(&times)),
                query_ms: Some(median(&times) * 1e3),
                cpu_us_per_doc: cpu.as_deref().map(median),
                ..subject.row(work)
            });
        }
        subject.drop_database()?;
    }
    Ok(rows)
}

/// `_bulk_docs`, by one connection and by two.
pub(crate) fn load_rows(subject: &Subject<'_>, documents: u64) -> Result<Vec<DocumentsRow>> {
    let mut rows = Vec::new();
    for shape in [Shape::String, Shape::Fields] {
        for loaders in [1, 2] {
            let (mut times, mut cpu) = (Vec::new(), Vec::new());
            for _ in 0..subject.runs {
                let before = subject.cpu_seconds();
                times.push(subject.load(shape, BODY_BYTES, documents, loaders)?);
                let after = subject
                    .cpu_seconds()
                    .zip(before)
                    .map(|(after, before)| after - before);
                cpu.extend(after.map(|cpu| cpu * 1e6 / documents as f64));
                subject.drop_database()?;
            }
            rows.push(DocumentsRow {
                body: Some(shape),
                body_bytes: Some(BODY_BYTES),
                documents: Some(documents),
                clients: loaders as u32,
                docs_per_s: Some(documents as f64 / median(&times)),
                cpu_us_per_doc: (!cpu.is_empty()).then(|| median(&cpu)),
                ..subject.row("load")
            });
        }
    }
    Ok(rows)
}

/// The memory of `process`: idle, during a scan of many documents, and with many feeds.
pub(crate) fn memory_rows(
    process: &ServerProcess,
    docs: u64,
    bytes: usize,
    feeds: u32,
) -> Result<Vec<DocumentsRow>> {
    let subject = Subject {
        server: process.server(),
        process: Some(process),
        runs: 1,
    };
    let server = process.server();
    server.ask("PUT", &format!("/{DATABASE}"), "")?;
    thread::sleep(CALM);
    let idle = DocumentsRow {
        peak_rss_mb: Some(process.peak_rss_mb()),
        ..subject.row("idle")
    };
    process.forget_peak()?;
    let waiting = Feeds::begin(server, DATABASE, feeds)?;
    thread::sleep(CALM);
    server.ask("PUT", &format!("/{DATABASE}/change"), "{}")?;
    let told = waiting.told_of("change");
    if told != feeds as usize {
        return Err(refused(format!(
            "{told} of {feeds} feeds told of the change: the figure would mean nothing"
        )));
    }
    let feeding = DocumentsRow {
        clients: feeds,
        peak_rss_mb: Some(process.peak_rss_mb()),
        ..subject.row("feeds")
    };
    subject.drop_database()?;
    process.forget_peak()?;
    let loading = subject.load(Shape::String, bytes, docs, 2)?;
    let loaded = DocumentsRow {
        body: Some(Shape::String),
        body_bytes: Some(bytes),
        documents: Some(docs),
        clients: 2,
        docs_per_s: Some(docs as f64 / loading),
        peak_rss_mb: Some(process.peak_rss_mb()),
        ..subject.row("load before the scan")
    };
    process.forget_peak()?;
    let (time, cpu) = subject.take(r#"{"car":{"number":7}}"#, docs)?;
    let scanned = DocumentsRow {
        body: Some(Shape::String),
        body_bytes: Some(bytes),
        documents: Some(docs),
        docs_per_s: Some(docs as f64 / time),
        query_ms: Some(time * 1e3),
        cpu_us_per_doc: cpu,
        peak_rss_mb: Some(process.peak_rss_mb()),
        ..subject.row("scan nested")
    };
    subject.drop_database()?;
    Ok(vec![idle, feeding, loaded, scanned])
}
