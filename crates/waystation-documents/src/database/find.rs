//! Queries over a database: each shard goes through its part of the index, and what matches is merged, page by page.
//!
//! The shards go at once, in [lanes](super::lanes). A page ends when it has enough for the client, or when much was read
//! for it, even if nothing matched; the next one goes on where the lanes stand.

use super::lanes::{Bounds, Guard, Lanes};
use super::part::each;
use super::partition::selector_within;
use super::request::invalid_bookmark;
use super::{Database, FindRequest, IndexInfo, Shards};
use crate::error::{Error, Result};
use crate::json::{Json, quote};
use crate::mango::{Direction, FieldPath, Groups, KeyRange, Plan, Selector};
use crate::partition::bounds_of;
use crate::shard::{FindQuery, ScanOptions, ScanStats};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::sync::Arc;

/// A page ends when its lanes have read this many documents.
const PAGE_EXAMINED: u64 = 1 << 17;
/// A page ends when its documents have this many bytes.
const PAGE_BYTES: usize = 1 << 20;
/// More documents read for each that is found are worth a warning.
const WARNING_RATIO: u64 = 10;

/// What a query has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FindStats {
    /// Documents whose head was read.
    pub examined: u64,
    /// Documents that were found.
    pub returned: u64,
}

/// A query on its way.
#[derive(Debug)]
pub struct Finder {
    request: FindRequest,
    /// Which documents are wanted, in the partition that is asked.
    selector: Selector,
    /// The same as canonical JSON.
    selector_text: String,
    index: IndexInfo,
    /// Ranges of the index; `None`: all of it.
    ranges: Option<Vec<KeyRange>>,
    /// Nothing can match.
    is_empty: bool,
    /// Where an earlier answer ended.
    after: Option<Vec<u8>>,
    /// The ways through the shards, once they have begun.
    lanes: Option<Lanes>,
    /// What was aggregated.
    groups: Groups,
    /// Where the last document was found.
    found_at: Option<Vec<u8>>,
    stats: FindStats,
}

/// Documents that were found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindPage {
    /// As canonical JSON.
    pub documents: Vec<String>,
    /// Whether there are no more.
    pub is_end: bool,
}

impl Finder {
    /// Where a query goes on that wants more, for its bookmark.
    pub fn bookmark(&self) -> String {
        match &self.found_at {
            Some(position) => {
                let kind = if self.is_by_id() { b'd' } else { b'i' };
                URL_SAFE_NO_PAD.encode([&[kind], &position[..]].concat())
            }
            None if self.request.bookmark.is_empty() => "nil".to_owned(),
            None => self.request.bookmark.clone(),
        }
    }

    /// What it has cost.
    pub fn stats(&self) -> FindStats {
        self.stats
    }

    /// What was aggregated, as canonical JSON, if that was asked for.
    pub fn aggregates(&self) -> Option<String> {
        let aggregate = self.request.aggregate.as_ref();
        aggregate.map(|aggregate| aggregate.to_json(&self.groups))
    }

    /// What each part of the database has cost: the number of its range, and the figures; none if that was not asked for.
    pub fn shard_stats(&self) -> Vec<(usize, ScanStats)> {
        let lanes = self.lanes.as_ref().filter(|_| self.request.shard_stats);
        let stats = lanes.map(Lanes::stats).unwrap_or_default();
        stats.into_iter().collect()
    }

    /// Whether nothing can match: the protocol's shortest answer.
    pub fn is_empty(&self) -> bool {
        self.is_empty && self.request.aggregate.is_none()
    }

    /// What the caller of the query should know, a sentence a line.
    pub fn warning(&self) -> Option<String> {
        let mut warnings = Vec::new();
        let use_index = &self.request.use_index;
        if !use_index.is_empty() && !self.index.is_named_by(use_index) {
            warnings.push(match use_index.as_slice() {
                [design, name, ..] => format!(
                    "_design/{design}, {name} was not used because it is not a valid index for this query."
                ),
                _ => format!(
                    "_design/{} was not used because it does not contain a valid index for this query.",
                    use_index[0]
                ),
            });
        }
        if self.is_by_id() {
            let text = "No matching index found, create an index to optimize query time.";
            warnings.push(text.to_owned());
        }
        let found = self.stats.returned.max(1);
        if self.stats.examined / found > WARNING_RATIO {
            let text = "The number of documents examined is high in proportion to the number of results returned. \
                        Consider adding a more specific index to improve this.";
            warnings.push(text.to_owned());
        }
        (!warnings.is_empty()).then(|| warnings.join("\n"))
    }

    fn is_by_id(&self) -> bool {
        self.index.design.is_none()
    }

    fn is_descending(&self) -> bool {
        self.request.sort.direction == Direction::Descending
    }

    /// What is asked of each shard.
    fn query(&self) -> FindQuery {
        let request = &self.request;
        FindQuery {
            selector: self.selector.clone(),
            selector_text: self.selector_text.clone(),
            fields: request.fields.clone(),
            fields_text: request.fields_text.clone(),
            conflicts: request.conflicts,
            index: (!self.is_by_id()).then(|| self.index.shard_name()),
            ranges: self.ranges.clone(),
            descending: self.is_descending(),
            aggregate: request.aggregate.clone(),
        }
    }

    /// The ways through the shards. A scan of all documents goes several through each shard that is large.
    fn bounds(&self, shards: &Shards<'_>) -> Result<Vec<Bounds>> {
        let range = self.selector.id_range();
        let is_whole = range.begin.is_none() && range.end.is_none() && self.after.is_none();
        let (from, to) = match (self.is_by_id(), self.is_descending()) {
            (false, _) => (None, None),
            (true, true) => (range.end, range.begin),
            (true, false) => (range.begin, range.end),
        };
        let scan = ScanOptions {
            from,
            to,
            ..ScanOptions::default()
        };
        if let Some(partition) = &self.request.partition {
            let part = shards.number_of(&bounds_of(partition).0);
            return Ok(vec![Bounds { part, scan }]);
        }
        let splits = self.is_by_id() && is_whole;
        let points = each(shards.iter().map(|part| (part, ())), |part, ()| {
            if !splits {
                return Ok(Vec::new());
            }
            let together = shards.iter().filter(|other| other.is_on_node_of(part));
            part.split(together.count() as u64)
        })?;
        let mut bounds = Vec::new();
        for (part, points) in points.into_iter().enumerate() {
            let mut begin = None;
            for point in points {
                let piece = self.piece(begin.replace(point.clone()), Some(point));
                bounds.push(Bounds { part, scan: piece });
            }
            let scan = match begin {
                None => scan.clone(),
                begin => self.piece(begin, None),
            };
            bounds.push(Bounds { part, scan });
        }
        Ok(bounds)
    }

    /// From the identifier `begin` to before `end`, in the direction of the query.
    fn piece(&self, begin: Option<String>, end: Option<String>) -> ScanOptions {
        if self.is_descending() {
            ScanOptions {
                is_behind: end.is_some(),
                from: end,
                to: begin,
                ..ScanOptions::default()
            }
        } else {
            ScanOptions {
                is_before: end.is_some(),
                from: begin,
                to: end,
                ..ScanOptions::default()
            }
        }
    }
}

impl Database {
    /// Plans the query `request`.
    ///
    /// # Errors
    /// The protocol's `no_usable_index`, `invalid_index`, `invalid_bookmark`; [`Error::NoDatabase`], [`Error::Engine`].
    pub fn finder(&self, request: FindRequest) -> Result<Finder> {
        let (selector, selector_text) = self.wanted(&request)?;
        self.refresh_indexes()?;
        let mut indexes = self.indexes()?;
        let is_of_partition = request.partition.is_some();
        indexes.retain(|it| it.design.is_none() || it.is_partitioned == is_of_partition);
        let mut candidates = Self::candidates(&indexes)?;
        // The plan knows the index of all documents by itself.
        candidates.remove(0);
        let is_named = |index: &&IndexInfo| index.is_named_by(&request.use_index);
        let named: Vec<String> = indexes
            .iter()
            .filter(is_named)
            .map(IndexInfo::shard_name)
            .collect();
        let plan = Plan::choose(&selector, &request.sort, &candidates, &named)?;
        let index = match &plan {
            Plan::AllDocuments => None,
            Plan::Index(name) => indexes.iter().find(|index| index.shard_name() == *name),
        };
        let index = index.cloned().unwrap_or_else(IndexInfo::all_documents);
        if !request.allow_fallback && !index.is_named_by(&request.use_index) {
            let is_any = request.use_index.is_empty() && index.design.is_some();
            if !is_any {
                return Err(refused_fallback(&request.use_index));
            }
        }
        let by_id = selector.id_range();
        let is_scan = index.design.is_none() && (by_id.begin.is_none() || by_id.end.is_none());
        if request.refuses_scans && is_scan {
            let reason = "The query would go through all documents, which its `guard` refuses; create an index for it.";
            return Err(Error::query("guard_exceeded", reason));
        }
        let columns = index.shard_columns();
        let columns = columns.iter().map(|name| FieldPath::parse(name));
        let columns: Vec<FieldPath> = columns.collect::<Result<_>>()?;
        let ranges = index
            .design
            .is_some()
            .then(|| selector.ranges(&columns))
            .flatten();
        let is_crossed =
            matches!((&by_id.begin, &by_id.end), (Some(begin), Some(end)) if begin > end);
        let is_empty =
            ranges.as_ref().is_some_and(Vec::is_empty) || index.design.is_none() && is_crossed;
        let after = position_of(&request.bookmark, index.design.is_none())?;
        Ok(Finder {
            request,
            selector,
            selector_text,
            index,
            ranges,
            is_empty,
            after,
            lanes: None,
            groups: Groups::default(),
            found_at: None,
            stats: FindStats::default(),
        })
    }

    /// The selector of `request`, in its partition.
    fn wanted(&self, request: &FindRequest) -> Result<(Selector, String)> {
        let Some(partition) = &request.partition else {
            return Ok((request.selector.clone(), request.selector_text.clone()));
        };
        if !self.is_partitioned {
            return Err(Error::BadRequest("database is not partitioned".into()));
        }
        let text = selector_within(partition, &request.selector_text);
        Ok((Selector::parse(Json::new(&text))?, text))
    }

    /// The next documents of a query.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`], [`Error::Damaged`]; [`Error::Query`] if its index has gone meanwhile.
    pub fn find(&self, finder: &mut Finder) -> Result<FindPage> {
        let mut page = FindPage {
            documents: Vec::new(),
            is_end: true,
        };
        let is_aggregate = finder.request.aggregate.is_some();
        if finder.is_empty || finder.request.limit == 0 && !is_aggregate {
            return Ok(page);
        }
        let shards = self.shards()?;
        let lanes = if let Some(lanes) = finder.lanes.take() {
            lanes
        } else {
            let bounds = finder.bounds(&shards)?;
            let query = Arc::new(finder.query());
            let guard = Guard {
                documents: finder.request.guard_documents,
                bytes: finder.request.guard_bytes,
            };
            Lanes::new(query, bounds, &shards, finder.after.as_deref(), guard)
        };
        let wanted = finder.request.limit.saturating_add(finder.request.skip);
        let mut bytes = 0;
        let outcome = lanes.page(&shards, wanted, PAGE_EXAMINED, |place, document| {
            if finder.request.skip > 0 {
                finder.request.skip -= 1;
                return false;
            }
            bytes += document.len();
            page.documents.push(document);
            finder.found_at = Some(place);
            finder.request.limit -= 1;
            finder.stats.returned += 1;
            finder.request.limit == 0 || bytes >= PAGE_BYTES
        });
        let stats = lanes.stats();
        finder.stats.examined = stats.values().map(|stats| stats.examined).sum();
        finder.groups.merge(lanes.take_groups())?;
        finder.lanes = Some(lanes);
        page.is_end = outcome? || finder.request.limit == 0 && !is_aggregate;
        Ok(page)
    }

    /// How `request` would be answered, as canonical JSON.
    ///
    /// # Errors
    /// As [`Database::finder`].
    pub fn explain(&self, request: FindRequest) -> Result<String> {
        let finder = self.finder(request)?;
        let request = &finder.request;
        let others = self
            .indexes()?
            .into_iter()
            .filter(|index| *index != finder.index);
        let candidates = crate::array(others.map(|index| {
            let (index, covering) = (index.to_json(), "null");
            format!(
                "{{\"index\":{index},\"analysis\":{{\"usable\":false,\"reasons\":[],\"ranking\":1,\"covering\":{covering}}}}}"
            )
        }));
        let use_index = crate::array(request.use_index.iter().map(|name| quote(name)));
        let direction = if finder.is_descending() { "rev" } else { "fwd" };
        let (conflicts, fields) = (request.conflicts, &request.fields_text);
        let (limit, skip) = (request.limit, request.skip);
        let opts = format!(
            "{{\"use_index\":{use_index},\"bookmark\":{},\"limit\":{limit},\"skip\":{skip},\"sort\":{},\"fields\":{fields},\
             \"partition\":{},\"r\":1,\"conflicts\":{conflicts},\"stale\":false,\"update\":true,\"stable\":false,\
             \"execution_stats\":{},\"allow_fallback\":{}}}",
            quote(if request.bookmark.is_empty() {
                "nil"
            } else {
                &request.bookmark
            }),
            request.sort_text,
            quote(request.partition.as_deref().unwrap_or_default()),
            request.execution_stats,
            request.allow_fallback,
        );
        let ranges = finder
            .ranges
            .as_ref()
            .map_or("null".to_owned(), |it| it.len().to_string());
        Ok(format!(
            "{{\"dbname\":{},\"index\":{},\"partitioned\":{},\"selector\":{},\"opts\":{opts},\"limit\":{limit},\
             \"skip\":{skip},\"fields\":{fields},\"index_candidates\":{candidates},\"selector_hints\":[],\
             \"mrargs\":{{\"include_docs\":true,\"view_type\":\"map\",\"reduce\":false,\"partition\":{},\
             \"start_key\":null,\"end_key\":null,\"direction\":\"{direction}\",\"stable\":false,\"update\":true,\
             \"conflicts\":{conflicts}}},\"covering\":false,\"ranges\":{ranges}}}",
            quote(&self.name),
            finder.index.to_json(),
            request.partition.is_some(),
            request.selector.to_json(),
            request
                .partition
                .as_deref()
                .map_or("null".to_owned(), quote),
        ))
    }
}

/// The place that a bookmark names, in the index of identifiers or another one.
fn position_of(bookmark: &str, is_by_id: bool) -> Result<Option<Vec<u8>>> {
    if bookmark.is_empty() {
        return Ok(None);
    }
    let kind = if is_by_id { b'd' } else { b'i' };
    let bytes = URL_SAFE_NO_PAD.decode(bookmark).ok();
    let position = bytes.as_deref().and_then(<[u8]>::split_first);
    let position = position.filter(|(first, _)| **first == kind);
    let position = position.map(|(_, position)| position.to_vec());
    // A place among identifiers is one.
    let position = position.filter(|it| !is_by_id || std::str::from_utf8(it).is_ok());
    position
        .map(Some)
        .ok_or_else(|| invalid_bookmark(&quote(bookmark)))
}

fn refused_fallback(use_index: &[String]) -> Error {
    let reason = match use_index {
        [] => "You must specify an index with the `use_index` parameter.".to_owned(),
        [design] => format!(
            "_design/{design} specified by `use_index` could not be found or it is not suitable."
        ),
        [design, name, ..] => format!(
            "_design/{design}, {name} specified by `use_index` could not be found or it is not suitable."
        ),
    };
    Error::query("invalid_index", reason)
}
