//! The shard's part of a query: documents that match, in the order of the index, a step at a time.
//!
//! A step ends when it has found or read as much as it may, and says how far it came; the next one goes on behind
//! that. Between steps nothing is held, here or on a drive.

use super::{Scan, ScanOptions, ScanStats, Shard, StoredDocument};
use crate::error::{Error, Result};
use crate::json::{Json, canonical};
use crate::mango::{Aggregate, Direction, FieldPath, Groups, KeyRange, Projection, Selector};
use crate::shard::IndexScan;
use crate::wire::{Wire, malformed, wire_struct};
use crate::{Rendering, render};
use std::sync::Arc;
use waystation_format::FormatError;
use waystation_format::varint::Reader;

/// What a query asks of each shard.
#[derive(Debug, Clone)]
pub struct FindQuery {
    /// Which documents are wanted.
    pub selector: Selector,
    /// The same as canonical JSON.
    pub selector_text: String,
    /// Which of their fields.
    pub fields: Projection,
    /// The same as canonical JSON.
    pub fields_text: String,
    /// Whether conflicts are wanted with the documents.
    pub conflicts: bool,
    /// The index through which it goes; `None`: the identifiers.
    pub index: Option<String>,
    /// Ranges of the index; `None`: all of it.
    pub ranges: Option<Vec<KeyRange>>,
    /// From the end of the index to its beginning.
    pub descending: bool,
    /// What is wanted of all documents that match, and not they.
    pub aggregate: Option<Aggregate>,
}

/// A step on a shard's way.
#[derive(Debug, Clone)]
pub struct FindStep {
    /// The query.
    pub query: Arc<FindQuery>,
    /// Between which identifiers, where the way goes by identifiers.
    pub scan: ScanOptions,
    /// Where the step before ended.
    pub after: Option<Vec<u8>>,
    /// Documents that are found at most.
    pub found_max: u64,
    /// The step ends when what it found has so many bytes.
    pub bytes_max: u64,
    /// Documents that are read at most.
    pub examined_max: u64,
}

/// What a step has come to.
#[derive(Debug, Clone, PartialEq)]
pub struct FindPart {
    /// What was found: its place in the index, and the answer as canonical JSON.
    pub found: Vec<(Vec<u8>, String)>,
    /// How far it came; `None`: nowhere.
    pub reached: Option<Vec<u8>>,
    /// What was aggregated of it.
    pub groups: Groups,
    /// Whether there is nothing behind it.
    pub is_end: bool,
    /// What it has cost.
    pub stats: ScanStats,
}

wire_struct! {
    FindStep { query, scan, after, found_max, bytes_max, examined_max }
    FindPart { found, reached, groups, is_end, stats }
}

impl Wire for Arc<FindQuery> {
    fn put(&self, out: &mut Vec<u8>) {
        self.selector_text.put(out);
        self.fields_text.put(out);
        self.conflicts.put(out);
        self.index.put(out);
        self.ranges.put(out);
        self.descending.put(out);
        self.aggregate.put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let json = |reader: &mut Reader<'_>| {
            let text = String::take(reader)?;
            let text = canonical(text.as_bytes());
            text.map_err(|_| malformed(reader, "a part of a query is no JSON"))
        };
        let (selector_text, fields_text) = (json(reader)?, json(reader)?);
        let selector = Selector::parse(Json::new(&selector_text));
        let fields = Projection::parse(Json::new(&fields_text));
        Ok(Self::new(FindQuery {
            selector: selector.map_err(|_| malformed(reader, "a selector is none"))?,
            fields: fields.map_err(|_| malformed(reader, "a list of fields is none"))?,
            selector_text,
            fields_text,
            conflicts: Wire::take(reader)?,
            index: Wire::take(reader)?,
            ranges: Wire::take(reader)?,
            descending: Wire::take(reader)?,
            aggregate: Wire::take(reader)?,
        }))
    }
}

impl FindQuery {
    /// What is answered of `document`, if it is found and not aggregated.
    fn answer(&self, document: &StoredDocument<'_>, groups: &mut Groups) -> Result<Option<String>> {
        if document.id().starts_with("_design/") || !document.is_matched_by(&self.selector)? {
            return Ok(None);
        }
        if let Some(aggregate) = &self.aggregate {
            groups.add(aggregate, document)?;
            return document.check().map(|()| None);
        }
        let paths = self.fields.paths();
        let is_stored = |path: &FieldPath| {
            let name = path.steps()[0].as_str();
            !name.starts_with('_') || matches!(name, "_id" | "_rev")
        };
        if !self.conflicts && paths.is_some_and(|paths| paths.iter().all(is_stored)) {
            return Ok(Some(self.fields.extract(document)));
        }
        let rendering = Rendering {
            conflicts: self.conflicts,
            ..Rendering::default()
        };
        let text = render(document.id(), &document.opened()?, &rendering);
        Ok(Some(self.fields.extract(&Json::new(&text))))
    }
}

enum Way<'a> {
    Identifiers(Scan<'a>),
    Index(IndexScan<'a>),
}

impl<'a> Way<'a> {
    fn begin(shard: &'a Shard, step: &FindStep) -> Result<Self> {
        let query = &step.query;
        let direction = if query.descending {
            Direction::Descending
        } else {
            Direction::Ascending
        };
        if let Some(index) = &query.index {
            let (ranges, after) = (query.ranges.as_deref(), step.after.as_deref());
            let scan = shard.scan_index(index, ranges, direction, after)?;
            return Ok(Self::Index(scan));
        }
        let after = step.after.clone().map(String::from_utf8).transpose();
        let after = after.map_err(|_| Error::BadRequest("a place in a query is no text".into()))?;
        let mut options = step.scan.clone();
        options.descending = query.descending;
        if let Some(after) = after {
            options.is_behind = true;
            options.from = Some(after);
        }
        Ok(Self::Identifiers(shard.scan(&options)?))
    }

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

impl Shard {
    /// Takes a step.
    ///
    /// # Errors
    /// [`Error::Query`] if the index is not there; [`Error::Engine`], [`Error::Damaged`].
    pub fn find(&self, step: &FindStep) -> Result<FindPart> {
        let mut way = Way::begin(self, step)?;
        let mut part = FindPart {
            found: Vec::new(),
            reached: None,
            groups: Groups::default(),
            is_end: false,
            stats: ScanStats::default(),
        };
        let (mut bytes, mut read) = (0, 0);
        while read < step.examined_max
            && (part.found.len() as u64) < step.found_max
            && bytes < step.bytes_max
        {
            let Some(document) = way.next_document()? else {
                part.is_end = true;
                break;
            };
            read += 1;
            let answer = step.query.answer(&document, &mut part.groups)?;
            let id = document.id().as_bytes().to_vec();
            drop(document);
            let place = match &way {
                Way::Identifiers(_) => id,
                Way::Index(scan) => scan.position().to_vec(),
            };
            if let Some(answer) = answer {
                bytes += answer.len() as u64;
                part.found.push((place.clone(), answer));
            }
            part.reached = Some(place);
        }
        part.stats = way.stats();
        Ok(part)
    }
}
