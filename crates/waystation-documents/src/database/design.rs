//! Indexes as design documents define them.
//!
//! A design document with `"language": "query"` defines indexes in its `views`, as CouchDB writes them; so indexes come
//! along when design documents are replicated. The shards' indexes are made equal to the definitions before the next
//! query that follows a change of design documents.

use super::part::{Part, each};
use super::request::field_names;
use super::{Database, IndexRequest};
use crate::document::Document;
use crate::error::{Error, Result};
use crate::json::{Json, quote, unquote};
use crate::mango::{Candidate, FieldPath};
use crate::revision::Revision;
use crate::shard::{Edits, IndexDefinition, ScanOptions};
use md5::{Digest, Md5};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use waystation::Durability;

/// Design documents that are read of a shard at once.
const DESIGNS_AT_ONCE: u64 = 100;
/// Fewer are read once they have this many bytes.
const DESIGN_BYTES: u64 = 4 << 20;
/// Between a design document's identifier and an index's name.
const SEPARATOR: char = '\0';
/// The field of a document that its identifier's partition is; bodies have no such field.
const PARTITION: &str = "_partition";

/// An index of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexInfo {
    /// Its design document; `None`: the index of all documents by their identifiers.
    pub design: Option<String>,
    /// Its name in that.
    pub name: String,
    /// The names of its columns' fields.
    pub columns: Vec<String>,
    /// `asc` or `desc`.
    pub direction: &'static str,
    /// The canonical JSON of its partial filter.
    pub partial: Option<String>,
    /// Whether it serves queries of one partition, and no others.
    pub is_partitioned: bool,
}

impl IndexInfo {
    /// The index that every database has.
    pub(super) fn all_documents() -> Self {
        Self {
            design: None,
            name: "_all_docs".to_owned(),
            columns: vec!["_id".to_owned()],
            direction: "asc",
            partial: None,
            is_partitioned: false,
        }
    }

    /// The names of its columns in a shard: the partition comes first, if it is of partitions.
    pub(super) fn shard_columns(&self) -> Vec<String> {
        let partition = self.is_partitioned.then(|| PARTITION.to_owned());
        partition
            .into_iter()
            .chain(self.columns.iter().cloned())
            .collect()
    }

    /// Its name in a shard.
    pub(super) fn shard_name(&self) -> String {
        let design = self.design.as_deref().unwrap_or_default();
        format!("{design}{SEPARATOR}{}", self.name)
    }

    fn definition(&self) -> IndexDefinition {
        IndexDefinition {
            name: self.shard_name(),
            columns: self.shard_columns(),
            partial: self.partial.clone(),
        }
    }

    /// Whether a query that names `use_index` means it.
    pub(super) fn is_named_by(&self, use_index: &[String]) -> bool {
        let design = self
            .design
            .as_deref()
            .and_then(|it| it.strip_prefix("_design/"));
        match use_index {
            [named] => design == Some(named),
            [named, name] => design == Some(named) && self.name == *name,
            _ => false,
        }
    }

    /// As it stands in answers: canonical JSON.
    pub fn to_json(&self) -> String {
        let kind = if self.design.is_some() {
            "json"
        } else {
            "special"
        };
        let design = self.design.as_deref().map_or("null".to_owned(), quote);
        let column = |name: &String| format!("{{{}:\"{}\"}}", quote(name), self.direction);
        let columns = crate::array(self.columns.iter().map(column));
        let partial = self.partial.as_ref().map_or(String::new(), |text| {
            format!(",\"partial_filter_selector\":{text}")
        });
        let partitioned = match self.design {
            Some(_) => format!(",\"partitioned\":{}", self.is_partitioned),
            None => String::new(),
        };
        format!(
            "{{\"ddoc\":{design},\"name\":{},\"type\":\"{kind}\"{partitioned},\"def\":{{\"fields\":{columns}{partial}}}}}",
            quote(&self.name)
        )
    }

    /// As it stands in its design document.
    fn to_view(&self) -> String {
        let column = |name: &String| format!("{}:\"{}\"", quote(name), self.direction);
        let columns: Vec<String> = self.columns.iter().map(column).collect();
        let names = crate::array(self.columns.iter().map(|name| quote(name)));
        let partial = self.partial.as_ref().map_or(String::new(), |text| {
            format!(",\"partial_filter_selector\":{text}")
        });
        format!(
            "{{\"map\":{{\"fields\":{{{}}}{partial}}},\"reduce\":\"_count\",\"options\":{{\"def\":{{\"fields\":{names}{partial}}}}}}}",
            columns.join(",")
        )
    }
}

/// A design document with its indexes.
pub(super) struct Design {
    pub(super) id: String,
    revision: Revision,
    pub(super) body: String,
}

impl Design {
    fn json(&self) -> Json<'_> {
        Json::new(&self.body)
    }

    fn is_of_indexes(&self) -> bool {
        let language = self.json().member("language").and_then(Json::string);
        language.as_deref() == Some("query")
    }

    /// Whether its indexes are of partitions, in a partitioned database.
    fn is_partitioned(&self) -> bool {
        let options = self.json().member("options");
        let said = options.and_then(|it| it.member("partitioned"));
        said.and_then(Json::boolean) != Some(false)
    }

    /// Its indexes; what is no definition of one is passed over.
    fn indexes(&self, in_partitions: bool) -> Vec<IndexInfo> {
        if !self.is_of_indexes() {
            return Vec::new();
        }
        let is_partitioned = in_partitions && self.is_partitioned();
        let views = self.json().member("views");
        let index = |(name, view): (&str, Json<'_>)| {
            let map = view.member("map")?;
            let fields = map.member("fields")?;
            let columns: Vec<String> = fields.members().map(|(it, _)| unquote(it).into()).collect();
            let columns = if columns.is_empty() {
                field_names(fields)
            } else {
                columns
            };
            let is_named = columns.iter().all(|it| FieldPath::parse(it).is_ok());
            let direction = fields
                .members()
                .next()
                .and_then(|(_, direction)| direction.string());
            let is_descending = direction.as_deref() == Some("desc");
            let partial = map
                .member("partial_filter_selector")
                .map(|it| it.text().to_owned());
            (is_named && !columns.is_empty()).then(|| IndexInfo {
                design: Some(self.id.clone()),
                name: unquote(name).into_owned(),
                columns,
                direction: if is_descending { "desc" } else { "asc" },
                partial: partial.filter(|it| it != "{}"),
                is_partitioned,
            })
        };
        let views = views.iter().flat_map(|views| views.members());
        views.filter_map(index).collect()
    }

    /// Its body with the view `name` replaced by `view`, or removed; `None` if no view is left.
    fn with_view(&self, name: &str, view: Option<&str>) -> Option<String> {
        let views = self.json().member("views");
        let others = views.iter().flat_map(|views| views.members());
        let mut kept: Vec<String> = others
            .filter(|(other, _)| unquote(other) != name)
            .map(|(other, view)| format!("{other}:{}", view.text()))
            .collect();
        kept.extend(view.map(|view| format!("{}:{view}", quote(name))));
        let mut members: Vec<String> = self
            .json()
            .members()
            .filter(|(other, _)| *other != "\"views\"")
            .map(|(other, value)| format!("{other}:{}", value.text()))
            .collect();
        let is_left = !kept.is_empty();
        members.push(format!("\"views\":{{{}}}", kept.join(",")));
        is_left.then(|| format!("{{{}}}", members.join(",")))
    }
}

/// The design documents of a part.
fn designs_of(part: &Part, mut options: ScanOptions) -> Result<Vec<Design>> {
    let mut designs: Vec<Design> = Vec::new();
    loop {
        let (rows, is_end) = part.list(&options, DESIGNS_AT_ONCE, DESIGN_BYTES, true)?;
        for row in rows {
            let opened = row
                .opened
                .ok_or_else(|| part.lies("no document beside its row"))?;
            designs.push(Design {
                id: row.id,
                revision: row.revision,
                body: opened.version.body,
            });
        }
        if is_end {
            return Ok(designs);
        }
        options.from = designs.last().map(|design| design.id.clone());
        options.is_behind = true;
    }
}

impl Database {
    /// All indexes: that of all documents first, then by design document and name.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`], [`Error::Damaged`].
    pub fn indexes(&self) -> Result<Vec<IndexInfo>> {
        let mut indexes: Vec<IndexInfo> = Vec::new();
        for design in self.designs()? {
            indexes.extend(design.indexes(self.is_partitioned));
        }
        indexes.sort_by_key(IndexInfo::shard_name);
        indexes.insert(0, IndexInfo::all_documents());
        Ok(indexes)
    }

    /// The design documents.
    pub(super) fn designs(&self) -> Result<Vec<Design>> {
        let options = ScanOptions {
            from: Some("_design/".to_owned()),
            to: Some("_design0".to_owned()),
            is_before: true,
            ..ScanOptions::default()
        };
        let shards = self.shards()?;
        let found = each(
            shards.iter().map(|part| (part, options.clone())),
            designs_of,
        )?;
        Ok(found.into_iter().flatten().collect())
    }

    fn design(&self, id: &str) -> Result<Option<Design>> {
        match self.open_winner(id) {
            Ok(opened) => Ok(Some(Design {
                id: id.to_owned(),
                revision: opened.version.revision,
                body: opened.version.body,
            })),
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes the index that `request` defines, in its design document. Returns it, and whether it is new.
    ///
    /// # Errors
    /// [`Error::Query`] if the design document is of another language; [`Error::Conflict`] if somebody else changes it.
    pub fn create_index(&self, request: &IndexRequest) -> Result<(IndexInfo, bool)> {
        let columns = crate::array(request.columns.iter().map(|name| quote(name)));
        let parts = [
            Some(&columns),
            request.partial.as_ref(),
            request.name.as_ref(),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().map(|it| quote(it)).collect();
        let digest = Md5::digest(parts.concat());
        let generated = format!("{:032x}", u128::from_le_bytes(digest.into()));
        let design = request.design.as_ref().unwrap_or(&generated);
        if request.is_partitioned == Some(true) && !self.is_partitioned {
            let reason = "partitioned option cannot be true in a non-partitioned database.";
            return Err(Error::BadRequest(reason.into()));
        }
        let index = IndexInfo {
            design: Some(format!("_design/{design}")),
            name: request.name.clone().unwrap_or(generated.clone()),
            columns: request.columns.clone(),
            direction: if request.is_descending { "desc" } else { "asc" },
            partial: request.partial.clone(),
            is_partitioned: self.is_partitioned && request.is_partitioned != Some(false),
        };
        let id = format!("_design/{design}");
        let known = self.design(&id)?;
        if known.as_ref().is_some_and(|known| !known.is_of_indexes()) {
            let reason = "Invalid design document query language.";
            return Err(Error::query("invalid_index", reason));
        }
        if let Some(known) = &known {
            if known.indexes(self.is_partitioned).contains(&index) {
                return Ok((index, false));
            }
            if self.is_partitioned && known.is_partitioned() != index.is_partitioned {
                let reason =
                    "Requested partition option does not match existing value on design document";
                return Err(Error::query("invalid_partitioned_option", reason));
            }
        }
        let new = Design {
            id,
            revision: Revision::digest(1, [0; 16]),
            body: if self.is_partitioned {
                let is_partitioned = index.is_partitioned;
                format!(
                    r#"{{"language":"query","views":{{}},"options":{{"partitioned":{is_partitioned}}}}}"#
                )
            } else {
                r#"{"language":"query","views":{}}"#.to_owned()
            },
        };
        let revision = known.as_ref().map(|known| known.revision.clone());
        let design = known.as_ref().unwrap_or(&new);
        let body = design.with_view(&index.name, Some(&index.to_view()));
        let body = body.expect("a design document with a new view has one");
        self.write_design(&design.id, revision, Some(body))?;
        Ok((index, true))
    }

    /// Removes the index `name` of the design document `design`; or all of its indexes. Returns whether there were any.
    ///
    /// # Errors
    /// [`Error::Conflict`] if somebody else changes the design document; [`Error::NoDatabase`], [`Error::Engine`].
    pub fn delete_index(&self, design: &str, name: Option<&str>) -> Result<bool> {
        let Some(design) = self.design(design)? else {
            return Ok(false);
        };
        let indexes = design.indexes(self.is_partitioned);
        let is_there = |name: &str| indexes.iter().any(|index| index.name == name);
        if indexes.is_empty() || name.is_some_and(|name| !is_there(name)) {
            return Ok(false);
        }
        let body = name.and_then(|name| design.with_view(name, None));
        self.write_design(&design.id, Some(design.revision), body)?;
        Ok(true)
    }

    /// Writes a design document, or deletes it.
    fn write_design(
        &self,
        id: &str,
        revision: Option<Revision>,
        body: Option<String>,
    ) -> Result<()> {
        let document = Document {
            id: id.to_owned(),
            revision,
            deleted: body.is_none(),
            body: body.unwrap_or_else(|| "{}".to_owned()),
            ..Document::default()
        };
        self.update_one(document, Edits::Interactive, Durability::ProcessCrash)?;
        Ok(())
    }

    /// Makes the shards' indexes equal to their definitions. The first query after a new definition waits for this.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`], [`Error::Damaged`].
    pub(super) fn refresh_indexes(&self) -> Result<()> {
        let _indexing = self.indexing.lock().unwrap_or_else(PoisonError::into_inner);
        // Opening the shards makes indexes stale.
        drop(self.shards()?);
        if !self.indexes_are_stale.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        let refreshed = self.make_indexes();
        if refreshed.is_err() {
            self.indexes_are_stale.store(true, Ordering::SeqCst);
        }
        refreshed
    }

    fn make_indexes(&self) -> Result<()> {
        let indexes = self.indexes()?;
        let indexes = indexes.iter().filter(|index| index.design.is_some());
        let wanted: Vec<IndexDefinition> = indexes.map(IndexInfo::definition).collect();
        let shards = self.shards()?;
        each(shards.iter().map(|part| (part, ())), |part, ()| {
            for known in part.index_definitions()? {
                if !wanted.contains(&known) {
                    part.drop_index(&known.name)?;
                }
            }
            wanted
                .iter()
                .try_for_each(|it| part.create_index(it.clone()))
        })
        .map(drop)
    }

    /// The indexes that a query may go through.
    pub(super) fn candidates(indexes: &[IndexInfo]) -> Result<Vec<Candidate>> {
        let candidate = |index: &IndexInfo| {
            let columns = index.shard_columns();
            let columns = columns.iter().map(|name| FieldPath::parse(name));
            Ok(Candidate {
                name: index.shard_name(),
                columns: columns.collect::<Result<_>>()?,
                is_partial: index.partial.is_some(),
            })
        };
        indexes.iter().map(candidate).collect()
    }
}
