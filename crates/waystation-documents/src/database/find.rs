//! Queries over a database: each shard goes through its part of the index, and what matches is merged, page by page.
//!
//! A shard's way is cut into *strides* of some hundred documents that end with a match or without one. Strides are taken in the
//! order of where they end. So the merge is in the order of the index, a page ends in bounded time even if nothing
//! matches, and the next one goes on behind the last stride.

use super::request::invalid_bookmark;
use super::{Database, FindRequest, IndexInfo};
use crate::error::{Error, Result};
use crate::json::{Json, quote};
use crate::mango::{Direction, FieldPath, KeyRange, Plan};
use crate::shard::{IndexScan, Scan, ScanOptions, ScanStats, Shard, StoredDocument};
use crate::{Rendering, render};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Documents of a stride.
const STRIDE: usize = 256;
/// Strides of a page.
const PAGE_STRIDES: usize = 64;
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
#[derive(Debug, Clone)]
pub struct Finder {
    request: FindRequest,
    index: IndexInfo,
    /// Ranges of the index; `None`: all of it.
    ranges: Option<Vec<KeyRange>>,
    /// Nothing can match.
    is_empty: bool,
    /// Where the last stride ended.
    position: Option<Vec<u8>>,
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

/// A part of a shard's way.
struct Stride {
    /// Where it ended: behind the documents that were read.
    end: Vec<u8>,
    /// What was found at its end.
    found: Option<String>,
}

enum Way<'a> {
    Identifiers(Scan<'a>),
    Index(IndexScan<'a>),
}

struct Lane<'a> {
    way: Way<'a>,
    next: Option<Stride>,
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

    /// Whether nothing can match: the protocol's shortest answer.
    pub fn is_empty(&self) -> bool {
        self.is_empty
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

    /// What is answered of `document`, if it is found.
    fn answer(&self, document: &StoredDocument<'_>) -> Result<Option<String>> {
        if document.id().starts_with("_design/")
            || !document.is_matched_by(&self.request.selector)?
        {
            return Ok(None);
        }
        let paths = self.request.fields.paths();
        let is_stored = |path: &FieldPath| {
            let name = path.steps()[0].as_str();
            !name.starts_with('_') || matches!(name, "_id" | "_rev")
        };
        if !self.request.conflicts && paths.is_some_and(|paths| paths.iter().all(is_stored)) {
            return Ok(Some(self.request.fields.extract(document)));
        }
        let rendering = Rendering {
            conflicts: self.request.conflicts,
            ..Rendering::default()
        };
        let text = render(document.id(), &document.opened()?, &rendering);
        Ok(Some(self.request.fields.extract(&Json::new(&text))))
    }

    fn lane<'a>(&self, shard: &'a Shard) -> Result<Lane<'a>> {
        let way = if self.is_by_id() {
            Way::Identifiers(shard.scan(&self.identifiers()?)?)
        } else {
            let (ranges, position) = (self.ranges.as_deref(), self.position.as_deref());
            let direction = self.request.sort.direction;
            Way::Index(shard.scan_index(&self.index.shard_name(), ranges, direction, position)?)
        };
        let mut lane = Lane { way, next: None };
        lane.advance(self)?;
        Ok(lane)
    }

    fn identifiers(&self) -> Result<ScanOptions> {
        let range = self.request.selector.id_range();
        let (mut from, to) = if self.is_descending() {
            (range.end, range.begin)
        } else {
            (range.begin, range.end)
        };
        let is_behind = self.position.is_some();
        if let Some(position) = &self.position {
            let id = String::from_utf8(position.clone());
            from = Some(id.map_err(|_| invalid_bookmark(&quote(&self.request.bookmark)))?);
        }
        Ok(ScanOptions {
            from,
            is_behind,
            to,
            descending: self.is_descending(),
            ..ScanOptions::default()
        })
    }
}

impl Way<'_> {
    /// The next document and its place; `None` at the end.
    fn next_document(&mut self) -> Result<Option<StoredDocument<'_>>> {
        match self {
            Self::Identifiers(scan) => scan.next_document(),
            Self::Index(scan) => scan.next_document(),
        }
    }

    fn stats(&self) -> ScanStats {
        match self {
            Self::Identifiers(scan) => scan.stats(),
            Self::Index(scan) => scan.stats(),
        }
    }
}

impl Lane<'_> {
    fn advance(&mut self, finder: &Finder) -> Result<()> {
        self.next = None;
        for _ in 0..STRIDE {
            let Some(document) = self.way.next_document()? else {
                return Ok(());
            };
            let found = finder.answer(&document)?;
            let id = document.id().as_bytes().to_vec();
            drop(document);
            let end = match &self.way {
                Way::Identifiers(_) => id,
                Way::Index(scan) => scan.position().to_vec(),
            };
            let is_found = found.is_some();
            self.next = Some(Stride { end, found });
            if is_found {
                break;
            }
        }
        Ok(())
    }
}

impl Database {
    /// Plans the query `request`.
    ///
    /// # Errors
    /// The protocol's `no_usable_index`, `invalid_index`, `invalid_bookmark`; [`Error::NoDatabase`], [`Error::Engine`].
    pub fn finder(&self, request: FindRequest) -> Result<Finder> {
        self.refresh_indexes()?;
        let indexes = self.indexes()?;
        let mut candidates = Self::candidates(&indexes)?;
        // The plan knows the index of all documents by itself.
        candidates.remove(0);
        let is_named = |index: &&IndexInfo| index.is_named_by(&request.use_index);
        let named: Vec<String> = indexes
            .iter()
            .filter(is_named)
            .map(IndexInfo::shard_name)
            .collect();
        let plan = Plan::choose(&request.selector, &request.sort, &candidates, &named)?;
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
        let columns = index.columns.iter().map(|name| FieldPath::parse(name));
        let columns: Vec<FieldPath> = columns.collect::<Result<_>>()?;
        let ranges = index
            .design
            .is_some()
            .then(|| request.selector.ranges(&columns))
            .flatten();
        let by_id = request.selector.id_range();
        let is_crossed =
            matches!((&by_id.begin, &by_id.end), (Some(begin), Some(end)) if begin > end);
        let is_empty =
            ranges.as_ref().is_some_and(Vec::is_empty) || index.design.is_none() && is_crossed;
        let position = position_of(&request.bookmark, index.design.is_none())?;
        Ok(Finder {
            request,
            index,
            ranges,
            is_empty,
            position,
            found_at: None,
            stats: FindStats::default(),
        })
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
        if finder.is_empty || finder.request.limit == 0 {
            return Ok(page);
        }
        let shards = self.shards()?;
        let lanes = shards.iter().map(|shard| finder.lane(shard));
        let mut lanes: Vec<Lane<'_>> = lanes.collect::<Result<_>>()?;
        let mut bytes = 0;
        for stride in 0.. {
            let Some(at) = first(&lanes, finder.is_descending()) else {
                break;
            };
            if stride >= PAGE_STRIDES && page.documents.is_empty()
                || stride >= PAGE_STRIDES * 16
                || bytes >= PAGE_BYTES
            {
                page.is_end = false;
                break;
            }
            let stride = lanes[at].next.take().expect("the first lane has a stride");
            if let Some(document) = stride.found {
                if finder.request.skip > 0 {
                    finder.request.skip -= 1;
                } else {
                    bytes += document.len();
                    page.documents.push(document);
                    finder.found_at = Some(stride.end.clone());
                    finder.request.limit -= 1;
                    finder.stats.returned += 1;
                }
            }
            finder.position = Some(stride.end);
            if finder.request.limit == 0 {
                break;
            }
            lanes[at].advance(finder)?;
        }
        let examined = lanes.iter().map(|lane| lane.way.stats().examined);
        finder.stats.examined += examined.sum::<u64>();
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
             \"partition\":\"\",\"r\":1,\"conflicts\":{conflicts},\"stale\":false,\"update\":true,\"stable\":false,\
             \"execution_stats\":{},\"allow_fallback\":{}}}",
            quote(if request.bookmark.is_empty() {
                "nil"
            } else {
                &request.bookmark
            }),
            request.sort_text,
            request.execution_stats,
            request.allow_fallback,
        );
        let ranges = finder
            .ranges
            .as_ref()
            .map_or("null".to_owned(), |it| it.len().to_string());
        Ok(format!(
            "{{\"dbname\":{},\"index\":{},\"partitioned\":false,\"selector\":{},\"opts\":{opts},\"limit\":{limit},\
             \"skip\":{skip},\"fields\":{fields},\"index_candidates\":{candidates},\"selector_hints\":[],\
             \"mrargs\":{{\"include_docs\":true,\"view_type\":\"map\",\"reduce\":false,\"partition\":null,\
             \"start_key\":null,\"end_key\":null,\"direction\":\"{direction}\",\"stable\":false,\"update\":true,\
             \"conflicts\":{conflicts}}},\"covering\":false,\"ranges\":{ranges}}}",
            quote(&self.name),
            finder.index.to_json(),
            request.selector.to_json(),
        ))
    }
}

/// The lane whose stride ends first.
fn first(lanes: &[Lane<'_>], descending: bool) -> Option<usize> {
    let end = |at: &usize| lanes[*at].next.as_ref().map(|stride| &stride.end);
    let there = (0..lanes.len()).filter(|at| lanes[*at].next.is_some());
    if descending {
        there.max_by_key(end)
    } else {
        there.min_by_key(end)
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
