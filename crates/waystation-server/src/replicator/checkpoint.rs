//! Checkpoints: how far a replication has come, in a local document of the same name on both sides.
//!
//! ```text
//!   _local/ID   {"session_id", "source_last_seq", "replication_id_version", "history": [...]}
//! ```
//!
//! Each run of a replication is a session, and each side notes the sessions that it knows, the newest first. A
//! replication goes on where both sides agree: at the newest session that both know. A side that was restored from a
//! backup, or deleted and created again, knows less, and is brought up to date from there.
//!
//! A checkpoint is written when the target has made durable what it says, so that no crash leaves it ahead of the
//! documents.

use super::fault::Fault;
use super::order::with_members;
use super::peer::Peer;
use crate::clock;
use hyper::Method;
use waystation_documents::array;
use waystation_documents::json::{Json, Kind, quote};

/// Sessions that are remembered.
const HISTORY_MAX: usize = 50;
/// The form of checkpoints, as CouchDB counts them.
const VERSION: u32 = 4;
/// The place before all changes, as JSON.
const BEGINNING: &str = "0";

/// What a session has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Stats {
    pub(crate) checked: u64,
    pub(crate) missing: u64,
    pub(crate) read: u64,
    pub(crate) written: u64,
    pub(crate) failures: u64,
    pub(crate) bulk_attempts: u64,
    pub(crate) bulk_documents: u64,
}

impl Stats {
    /// What was read and written, as members of an object.
    pub(crate) fn transfers(&self) -> String {
        format!(
            "\"docs_read\":{},\"docs_written\":{},\"doc_write_failures\":{},\"bulk_get_docs\":{},\
             \"bulk_get_attempts\":{}",
            self.read, self.written, self.failures, self.bulk_documents, self.bulk_attempts,
        )
    }
}

/// The checkpoint documents of both sides.
pub(super) struct Checkpoint {
    path: String,
    /// The documents as they were read or written last; empty objects if there are none.
    source: String,
    target: String,
    session: String,
    begin: u64,
    /// Where this session began: a sequence of the source, as JSON.
    pub(super) start: String,
    /// The sessions before this one that both sides agree about, as JSON.
    earlier: Vec<String>,
}

impl Checkpoint {
    /// Reads what both sides know of the replication `id`.
    pub(super) async fn read(source: &Peer, target: &Peer, id: &str) -> Result<Self, Fault> {
        let mut checkpoint = Self::none(id);
        checkpoint.source = known(source, &checkpoint.path).await?;
        checkpoint.target = known(target, &checkpoint.path).await?;
        let (ours, theirs) = (Json::new(&checkpoint.source), Json::new(&checkpoint.target));
        (checkpoint.start, checkpoint.earlier) = agreement(ours, theirs);
        Ok(checkpoint)
    }

    /// The replication `id`, of which no side knows anything.
    pub(super) fn none(id: &str) -> Self {
        Self {
            path: format!("/_local/{id}"),
            source: "{}".to_owned(),
            target: "{}".to_owned(),
            session: crate::uuids::hex(&crate::uuids::random::<16>()),
            begin: clock::seconds(),
            start: BEGINNING.to_owned(),
            earlier: Vec::new(),
        }
    }

    /// Whether both sides know a session.
    pub(super) fn is_known(&self) -> bool {
        self.start != BEGINNING
    }

    /// Writes that all changes up to `sequence` are on the target, and durable there.
    pub(super) async fn write(
        &mut self,
        source: &Peer,
        target: &Peer,
        sequence: &str,
        stats: &Stats,
    ) -> Result<(), Fault> {
        for (side, peer) in [("source", source), ("target", target)] {
            let synced = peer.json(Method::POST, "/_ensure_full_commit", Some("{}"));
            synced
                .await
                .map_err(|fault| Fault::Checkpoint(format!("Failure on {side} commit: {fault}")))?;
        }
        let body = self.body(sequence, stats);
        for (side, peer, known) in [
            ("source", source, &mut self.source),
            ("target", target, &mut self.target),
        ] {
            *known = put(peer, &self.path, known, &body).await.map_err(|fault| {
                Fault::Checkpoint(format!(
                    "Error updating the {side} checkpoint document: {fault}"
                ))
            })?;
        }
        Ok(())
    }

    /// The members of the document, in JSON.
    fn body(&self, sequence: &str, stats: &Stats) -> String {
        let session = quote(&self.session);
        let mut history = vec![self.entry(sequence, stats)];
        history.extend(self.earlier.iter().take(HISTORY_MAX - 1).cloned());
        format!(
            "{{\"session_id\":{session},\"source_last_seq\":{sequence},\
             \"replication_id_version\":{VERSION},\"history\":{}}}",
            array(history)
        )
    }

    fn entry(&self, sequence: &str, stats: &Stats) -> String {
        let date = |seconds| quote(&clock::http_date(seconds));
        format!(
            "{{\"session_id\":{},\"start_time\":{},\"end_time\":{},\"start_last_seq\":{},\
             \"end_last_seq\":{sequence},\"recorded_seq\":{sequence},\"missing_checked\":{},\
             \"missing_found\":{},{}}}",
            quote(&self.session),
            date(self.begin),
            date(clock::seconds()),
            self.start,
            stats.checked,
            stats.missing,
            stats.transfers(),
        )
    }

    /// What the client that ordered the replication is told: JSON.
    pub(super) fn outcome(&self, sequence: &str, stats: &Stats, is_idle: bool) -> String {
        if !is_idle {
            return format!("{{\"ok\":true,{}", &self.body(sequence, stats)[1..]);
        }
        let known = with_members(Json::new(&self.source), &["_id", "_rev"], &[]);
        match &known[1..] {
            "}" => "{\"ok\":true,\"no_changes\":true}".to_owned(),
            members => format!("{{\"ok\":true,\"no_changes\":true,{members}"),
        }
    }

    /// The same for a replication of named documents, whose sessions say nothing of the rest.
    pub(super) fn short_outcome(&self, stats: &Stats) -> String {
        let date = |seconds| quote(&clock::http_date(seconds));
        format!(
            "{{\"ok\":true,\"start_time\":{},\"end_time\":{},\"docs_read\":{},\"docs_written\":{},\
             \"doc_write_failures\":{}}}",
            date(self.begin),
            date(clock::seconds()),
            stats.read,
            stats.written,
            stats.failures
        )
    }
}

/// The local document; an empty object if there is none.
async fn known(peer: &Peer, path: &str) -> Result<String, Fault> {
    match peer.json(Method::GET, path, None).await {
        Err(Fault::Refused { status: 404, .. }) => Ok("{}".to_owned()),
        known => known,
    }
}

/// Writes `body` in the place of `known`. Returns the document as it then stands.
async fn put(peer: &Peer, path: &str, known: &str, body: &str) -> Result<String, Fault> {
    let revision = Json::new(known).member("_rev");
    let given = revision.map(|it| ("_rev", it.text().to_owned()));
    let document = with_members(Json::new(body), &[], given.as_slice());
    let answer = match peer.json(Method::PUT, path, Some(&document)).await {
        // The answer to an earlier attempt may have been lost.
        Err(Fault::Refused { status: 409, .. }) => {
            let there = self::known(peer, path).await?;
            if with_members(Json::new(&there), &["_id", "_rev"], &[]) == body {
                return Ok(there);
            }
            return Err(Fault::Checkpoint("conflict".to_owned()));
        }
        answer => answer?,
    };
    let revision = Json::new(&answer).member("rev");
    let revision = revision.map(|it| ("_rev", it.text().to_owned()));
    Ok(with_members(Json::new(body), &[], revision.as_slice()))
}

/// Where both sides agree, as JSON, and the sessions up to there.
fn agreement(source: Json<'_>, target: Json<'_>) -> (String, Vec<String>) {
    let history = |side: Json<'_>| -> Vec<(String, String, String)> {
        let entries = side.member("history").into_iter();
        let entries = entries.flat_map(|it| it.elements().collect::<Vec<_>>());
        let entry = |it: Json<'_>| {
            let session = it.member("session_id").and_then(Json::string)?;
            let recorded = it
                .member("recorded_seq")
                .filter(|it| it.kind() != Kind::Null)?;
            let (recorded, text) = (recorded.text().to_owned(), it.text().to_owned());
            Some((session.into_owned(), recorded, text))
        };
        entries.filter_map(entry).collect()
    };
    let (source, target) = (history(source), history(target));
    let common = source
        .iter()
        .enumerate()
        .find_map(|(at, (session, ours, _))| {
            let (_, theirs, _) = target.iter().find(|(other, ..)| other == session)?;
            // One side may have stopped at an earlier checkpoint of the session.
            let earlier = if number(theirs) < number(ours) {
                theirs
            } else {
                ours
            };
            Some((at, earlier.clone()))
        });
    match common {
        None => (BEGINNING.to_owned(), Vec::new()),
        Some((at, sequence)) => {
            let entries = source.into_iter().skip(at).map(|(.., text)| text);
            (sequence, entries.collect())
        }
    }
}

/// The number that a sequence begins with, whatever else it says.
pub(super) fn number(sequence: &str) -> u64 {
    let digits = sequence.trim_start_matches(['"', '[']);
    let end = digits.find(|it: char| !it.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(sessions: &[(&str, &str)]) -> String {
        let entry = |(session, sequence): &(&str, &str)| {
            format!("{{\"session_id\":\"{session}\",\"recorded_seq\":{sequence}}}")
        };
        format!("{{\"history\":{}}}", array(sessions.iter().map(entry)))
    }

    fn start(source: &[(&str, &str)], target: &[(&str, &str)]) -> (String, usize) {
        let (source, target) = (side(source), side(target));
        let (start, earlier) = agreement(Json::new(&source), Json::new(&target));
        (start, earlier.len())
    }

    #[test]
    fn replications_go_on_at_the_newest_session_that_both_sides_know() {
        let (one, two) = (("a", "\"3-x\""), ("b", "\"7-y\""));
        assert_eq!(start(&[], &[]), ("0".into(), 0));
        assert_eq!(start(&[two, one], &[]), ("0".into(), 0));
        assert_eq!(start(&[two, one], &[two, one]), ("\"7-y\"".into(), 2));
        assert_eq!(start(&[two, one], &[one]), ("\"3-x\"".into(), 1));
        assert_eq!(start(&[one], &[two, one]), ("\"3-x\"".into(), 1));
        assert_eq!(start(&[("b", "\"9-z\"")], &[two]), ("\"7-y\"".into(), 1));
        assert_eq!(start(&[("c", "12")], &[two]), ("0".into(), 0));
    }

    #[test]
    fn sequences_of_every_kind_have_a_number() {
        for (sequence, expected) in [
            ("12", 12),
            ("\"12-g1A\"", 12),
            ("[12,\"x\"]", 12),
            ("null", 0),
        ] {
            assert_eq!(number(sequence), expected, "{sequence}");
        }
    }
}
