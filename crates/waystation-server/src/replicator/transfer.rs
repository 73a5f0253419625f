//! Documents from the source to the target: what of some changes is missing there is fetched and written as it is.
//!
//! Revisions without attachments go in bulk. A revision with attachments goes alone, as the source sends it: its bytes
//! stream from one side to the other, and no attachment is ever whole in memory. What the target refuses for its own
//! reasons (a validation, a limit) counts as a failed write and does not hold up the others.

use super::checkpoint::Stats;
use super::fault::Fault;
use super::peer::{Answer, Peer, Sent};
use crate::query::encode;
use hyper::Method;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};
use std::collections::HashMap;
use waystation_documents::array;
use waystation_documents::json::{Json, Kind, quote, unquote};

/// Revisions that are fetched in one request.
const REVISIONS_AT_ONCE: usize = 100;
/// A request to write ends when its documents have this many bytes.
const WRITE_BYTES: usize = 4 << 20;
/// What a source is to send of one revision with attachments.
const PARTS: &str = "multipart/related";

/// A revision that the target does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Missing {
    id: String,
    revision: String,
    /// Revisions of the target from which it may descend: a JSON array.
    ancestors: String,
}

/// Both sides, and what was done so far.
pub(super) struct Transfer<'a> {
    pub(super) source: &'a Peer,
    pub(super) target: &'a Peer,
    pub(super) use_bulk_get: bool,
    pub(super) stats: Stats,
}

/// The path of document `id`.
fn path_of(id: &str) -> String {
    match id.strip_prefix("_design/") {
        Some(name) => format!("/_design/{}", encode(name)),
        None => format!("/{}", encode(id)),
    }
}

impl Transfer<'_> {
    /// Brings the target what it misses of `changes`: identifiers, and the leaves of each.
    pub(super) async fn bring(&mut self, changes: &[(String, Vec<String>)]) -> Result<(), Fault> {
        let missing = self.missing(changes).await?;
        for some in missing.chunks(REVISIONS_AT_ONCE) {
            let alone = if self.use_bulk_get {
                self.in_bulk(some).await?
            } else {
                some.to_vec()
            };
            for missing in &alone {
                self.one(missing).await?;
            }
        }
        Ok(())
    }

    async fn missing(&mut self, changes: &[(String, Vec<String>)]) -> Result<Vec<Missing>, Fault> {
        // A document that changed twice has one member.
        let mut by_id: HashMap<&str, Vec<String>> = HashMap::new();
        for (id, revisions) in changes {
            self.stats.checked += revisions.len() as u64;
            let known = by_id.entry(id).or_default();
            known.extend(revisions.iter().map(|it| quote(it)));
        }
        if by_id.is_empty() {
            return Ok(Vec::new());
        }
        let members = by_id.iter();
        let members =
            members.map(|(id, revisions)| format!("{}:{}", quote(id), array(revisions.clone())));
        let body = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
        let text = self
            .target
            .json(Method::POST, "/_revs_diff", Some(&body))
            .await?;
        let mut all = Vec::new();
        for (id, what) in Json::new(&text).members() {
            let id = unquote(id).into_owned();
            let malformed = |reason: &str| Fault::Malformed {
                request: format!("POST {}_revs_diff", self.target.shown()),
                reason: format!("{reason} {id}"),
            };
            let asked = by_id.get(&*id);
            let asked = asked.ok_or_else(|| malformed("nothing was asked about"))?;
            let ancestors = what.member("possible_ancestors");
            let ancestors = ancestors.map_or("[]", Json::text);
            let revisions = what.member("missing").into_iter();
            for revision in revisions.flat_map(|it| it.elements().collect::<Vec<_>>()) {
                let was_asked = asked.iter().any(|it| it == revision.text());
                let revision = revision.string().filter(|_| was_asked);
                let revision =
                    revision.ok_or_else(|| malformed("other revisions were asked of"))?;
                all.push(Missing {
                    id: id.clone(),
                    revision: revision.into_owned(),
                    ancestors: ancestors.to_owned(),
                });
            }
        }
        self.stats.missing += all.len() as u64;
        Ok(all)
    }

    /// Fetches and writes those of `wanted` that have no attachments. Returns the others.
    async fn in_bulk(&mut self, wanted: &[Missing]) -> Result<Vec<Missing>, Fault> {
        let row = |it: &Missing| {
            format!(
                "{{\"id\":{},\"rev\":{}}}",
                quote(&it.id),
                quote(&it.revision)
            )
        };
        let body = format!("{{\"docs\":{}}}", array(wanted.iter().map(row)));
        self.stats.bulk_attempts += wanted.len() as u64;
        let path = "/_bulk_get?revs=true&latest=true";
        let text = match self.source.json(Method::POST, path, Some(&body)).await {
            // Older servers have no such endpoint, and of large documents some must do.
            Err(Fault::Refused { status, .. }) if matches!(status, 400 | 404 | 405 | 413 | 501) => {
                self.use_bulk_get = status == 413;
                return Ok(wanted.to_vec());
            }
            Err(Fault::Malformed { .. }) => return Ok(wanted.to_vec()),
            text => text?,
        };
        let malformed = |reason: String| Fault::Malformed {
            request: format!("POST {}_bulk_get", self.source.shown()),
            reason,
        };
        let results = Json::new(&text).member("results");
        let results = results.filter(|it| it.kind() == Kind::Array);
        let results = results.ok_or_else(|| malformed("it has no results".to_owned()))?;
        let mut waiting: HashMap<&str, Vec<&Missing>> = HashMap::new();
        for missing in wanted {
            waiting.entry(&missing.id).or_default().push(missing);
        }
        let (mut alone, mut bulk) = (Vec::new(), Vec::new());
        for result in results.elements() {
            let id = result
                .member("id")
                .and_then(Json::string)
                .unwrap_or_default();
            let asked = waiting.get_mut(&*id).and_then(Vec::pop);
            let asked = asked.ok_or_else(|| malformed(format!("nothing was asked about {id}")))?;
            let docs = result.member("docs").into_iter();
            for doc in docs.flat_map(|it| it.elements().collect::<Vec<_>>()) {
                // A revision that is gone was followed by another one, which is a change of its own.
                let Some(document) = doc.member("ok") else {
                    continue;
                };
                let is_right = document.member("_id").and_then(Json::string) == Some(id.clone());
                if !is_right || document.member("_rev").is_none() {
                    return Err(malformed(format!(
                        "it has another document in the place of {id}"
                    )));
                }
                if document.member("_attachments").is_some() {
                    let revision = document.member("_rev").and_then(Json::string);
                    alone.push(Missing {
                        revision: revision.unwrap_or_default().into_owned(),
                        ..asked.clone()
                    });
                } else {
                    bulk.push(document.text());
                }
            }
        }
        let read = bulk.len() as u64;
        self.stats.read += read;
        self.stats.bulk_documents += read;
        self.write(&bulk).await?;
        Ok(alone)
    }

    /// Writes documents as they are.
    async fn write(&mut self, documents: &[&str]) -> Result<(), Fault> {
        let mut waiting = Vec::new();
        let mut rest = documents;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fit = rest.iter().take_while(|it| {
                bytes += it.len();
                bytes <= WRITE_BYTES
            });
            let (some, others) = rest.split_at(fit.count().max(1));
            waiting.push(some);
            rest = others;
        }
        while let Some(some) = waiting.pop() {
            let docs = some.join(",");
            let body = format!("{{\"docs\":[{docs}],\"new_edits\":false}}");
            let answer = self
                .target
                .json(Method::POST, "/_bulk_docs", Some(&body))
                .await;
            match answer {
                Ok(text) => {
                    let failed = Json::new(&text).elements();
                    let failed = failed.filter(|row| row.member("error").is_some());
                    let failed = failed
                        .inspect(|row| log::debug!("a document was not replicated: {}", row.text()))
                        .count();
                    self.stats.failures += failed as u64;
                    self.stats.written += (some.len() - failed.min(some.len())) as u64;
                }
                Err(Fault::Refused { status: 413, .. }) if some.len() > 1 => {
                    let (one, other) = some.split_at(some.len() / 2);
                    waiting.extend([one, other]);
                }
                Err(Fault::Refused { status: 413, .. }) => self.stats.failures += 1,
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    /// Brings one revision with its attachments.
    async fn one(&mut self, missing: &Missing) -> Result<(), Fault> {
        let source = self.source;
        let outcome = source.patiently(|| self.stream(missing, true)).await?;
        // The target may have other attachments than its ancestors' names promise.
        let outcome = match outcome {
            Streamed::NeedsAll => source.patiently(|| self.stream(missing, false)).await?,
            outcome => outcome,
        };
        match outcome {
            Streamed::Gone => return Ok(()),
            Streamed::Written => self.stats.written += 1,
            Streamed::Refused | Streamed::NeedsAll => self.stats.failures += 1,
        }
        self.stats.read += 1;
        Ok(())
    }

    /// Has the answer of the source be the request to the target.
    async fn stream(&self, missing: &Missing, without_known: bool) -> Result<Streamed, Fault> {
        let path = path_of(&missing.id);
        let known = match missing.ancestors.as_str() {
            ancestors if without_known && ancestors != "[]" => {
                format!("&atts_since={}", encode(ancestors))
            }
            _ => String::new(),
        };
        let revision = encode(&missing.revision);
        let asked = format!("{path}?rev={revision}&revs=true&attachments=true{known}");
        let answer = self.source.ask(Method::GET, &asked, PARTS, Sent::Nothing);
        let answer = answer.await?;
        match answer.status.as_u16() {
            200 => {}
            404 => return Ok(Streamed::Gone),
            _ => return Err(answer.refused().await),
        }
        let media = answer.headers.get(CONTENT_TYPE).cloned();
        let media = media.ok_or_else(|| answer.malformed("it has no type"))?;
        let length = answer.headers.get(CONTENT_LENGTH).cloned();
        let sent = Sent::Stream(media, length, answer.body);
        let asked = format!("{path}?new_edits=false");
        let answer = self
            .target
            .ask(Method::PUT, &asked, "application/json", sent);
        judge(answer.await?).await
    }
}

/// What became of a revision.
enum Streamed {
    Written,
    /// The source has it no more.
    Gone,
    /// The target does not want it.
    Refused,
    /// The target lacks an attachment that it was thought to have.
    NeedsAll,
}

async fn judge(answer: Answer) -> Result<Streamed, Fault> {
    match answer.status.as_u16() {
        200..=299 => Ok(Streamed::Written),
        412 => Ok(Streamed::NeedsAll),
        401 | 403 | 413 => Ok(Streamed::Refused),
        _ => Err(answer.refused().await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_of_design_documents_keep_their_slash() {
        assert_eq!(path_of("_design/a/b"), "/_design/a%2Fb");
        assert_eq!(path_of("a/b c"), "/a%2Fb%20c");
    }
}
