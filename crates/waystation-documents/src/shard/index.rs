//! Indexes: documents in the order of some of their fields.
//!
//! An index holds an entry for each document that has all of its columns (and that its partial filter matches); the
//! entry's key is the columns' sort keys and the identifier. Entries change in the batch of the update that changes
//! the document, so an index never disagrees with its documents. A new index is filled in steps between updates, and
//! serves queries once it is whole; a crash meanwhile begins it anew.

use super::record::Head;
use super::update::Pending;
use super::{Shard, State, decode_head, keys};
use crate::collate::{KEY_VERSION, put_key};
use crate::error::{Error, Result};
use crate::json::{Json, canonical, quote};
use crate::mango::{Candidate, FieldPath, Fields, Selector};
use crate::partition::partition_of;
use std::sync::Arc;
use waystation::{IterOptions, WriteBatch};
use waystation_format::FormatError;
use waystation_format::varint::{Reader, put_length_prefixed, put_u64};

/// Documents that are put into a new index while updates wait.
const AT_ONCE: usize = 256;

/// What an index is to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexDefinition {
    /// Its name, unique in the shard.
    pub name: String,
    /// The names of its columns' fields, the leading one first.
    pub columns: Vec<String>,
    /// The canonical JSON of a selector: other documents are left out.
    pub partial: Option<String>,
}

/// An index of a shard.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) definition: IndexDefinition,
    pub(super) number: u64,
    pub(super) columns: Vec<FieldPath>,
    filter: Option<Selector>,
    /// It holds every document that it should.
    pub(super) is_whole: bool,
}

impl Index {
    fn new(definition: IndexDefinition, number: u64, is_whole: bool) -> Result<Self> {
        let columns = definition.columns.iter().map(|name| FieldPath::parse(name));
        let columns: Vec<_> = columns.collect::<Result<_>>()?;
        if columns.is_empty() {
            let reason = "An index needs at least one field.";
            return Err(Error::query("invalid_index", reason));
        }
        let parse = |text: &String| -> Result<Selector> {
            let text =
                canonical(text.as_bytes()).map_err(|error| Error::damaged("a filter", &error))?;
            Selector::parse(Json::new(&text))
        };
        Ok(Self {
            filter: definition.partial.as_ref().map(parse).transpose()?,
            columns,
            definition,
            number,
            is_whole,
        })
    }

    /// The key of the entry for `document`, if it has one.
    fn entry(&self, document: &Indexed<'_>) -> Option<Vec<u8>> {
        if self
            .filter
            .as_ref()
            .is_some_and(|filter| !filter.matches(document))
        {
            return None;
        }
        let mut values = Vec::new();
        for column in &self.columns {
            put_key(&mut values, column.value(document)?);
        }
        Some(keys::entry(self.number, &values, document.id))
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_u64(&mut out, self.number);
        out.push(u8::from(self.is_whole));
        put_length_prefixed(&mut out, KEY_VERSION.as_bytes());
        put_u64(&mut out, self.definition.columns.len() as u64);
        for column in &self.definition.columns {
            put_length_prefixed(&mut out, column.as_bytes());
        }
        let partial = self.definition.partial.as_deref().unwrap_or_default();
        put_length_prefixed(&mut out, partial.as_bytes());
        out
    }

    pub(super) fn decode(name: String, bytes: &[u8]) -> Result<Self> {
        let what = format!("index {name}");
        let damaged = |error: &FormatError| Error::damaged(what.clone(), error);
        let mut reader = Reader::new(bytes);
        let mut read = || -> Result<_, FormatError> {
            let number = reader.var_u64("number of an index")?;
            let is_whole = reader.u8("flag of an index")? != 0;
            let version = reader.length_prefixed("version of keys")? == KEY_VERSION.as_bytes();
            let mut texts = Vec::new();
            for _ in 0..=reader.var_u64("count of columns")? {
                texts.push(reader.length_prefixed("column")?.to_vec());
            }
            Ok((number, is_whole && version, texts))
        };
        let (number, is_whole, texts) = read().map_err(|error| damaged(&error))?;
        let texts: Result<Vec<String>, _> = texts.into_iter().map(String::from_utf8).collect();
        let mut columns = texts.map_err(|error| Error::damaged(what.clone(), &error))?;
        let partial = columns.pop().filter(|text| !text.is_empty());
        let definition = IndexDefinition {
            name,
            columns,
            partial,
        };
        Self::new(definition, number, is_whole)
    }
}

/// A document that is put into indexes.
struct Indexed<'a> {
    id: &'a str,
    quoted_id: String,
    quoted_revision: String,
    quoted_partition: Option<String>,
    body: Json<'a>,
}

impl Fields for Indexed<'_> {
    fn field(&self, name: &str) -> Option<Json<'_>> {
        match name {
            "_id" => Some(Json::new(&self.quoted_id)),
            "_rev" => Some(Json::new(&self.quoted_revision)),
            "_partition" => self.quoted_partition.as_deref().map(Json::new),
            _ => self.body.member(name),
        }
    }

    fn whole(&self) -> Json<'_> {
        self.body
    }

    fn is_object(&self) -> bool {
        true
    }
}

/// The indexes of a shard, replaced as one when one comes or goes.
pub(super) type Indexes = Arc<Vec<Arc<Index>>>;

impl Shard {
    /// Makes an index, and fills it. One of the same name and definition is left as it is, filled if it is not whole.
    ///
    /// # Errors
    /// [`Error::Query`] if the name is taken by another definition, or the definition is wrong; [`Error::Engine`].
    pub fn create_index(&self, definition: IndexDefinition) -> Result<()> {
        let number = {
            let mut state = self.lock();
            let known = self
                .indexes()
                .iter()
                .find(|it| it.definition.name == definition.name)
                .cloned();
            match known {
                Some(known) if known.definition != definition => {
                    let reason = "An index of this name has another definition.";
                    return Err(Error::query("invalid_index", reason));
                }
                Some(known) if known.is_whole => return Ok(()),
                Some(known) => known.number,
                None => {
                    let number = state.next_index;
                    let index = Index::new(definition, number, false)?;
                    self.save_index(&mut state, index)?;
                    number
                }
            }
        };
        self.fill_index(number)
    }

    /// Removes the index `name`. Returns whether there was one.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub fn drop_index(&self, name: &str) -> Result<bool> {
        let mut state = self.lock();
        let known = self
            .indexes()
            .iter()
            .find(|it| it.definition.name == name)
            .cloned();
        let Some(index) = known else {
            return Ok(false);
        };
        let mut batch = WriteBatch::new();
        batch.delete(&keys::definition(name));
        batch.delete_prefix(&keys::index(index.number));
        let unchanged = *state;
        self.commit(&mut state, unchanged, batch)?;
        self.replace_indexes(|it| it.number != index.number, None);
        Ok(true)
    }

    /// The indexes that are whole, as a query may choose among them.
    pub fn index_candidates(&self) -> Vec<Candidate> {
        let indexes = self.indexes();
        let whole = indexes.iter().filter(|index| index.is_whole);
        let candidate = |index: &Arc<Index>| Candidate {
            name: index.definition.name.clone(),
            columns: index.columns.clone(),
            is_partial: index.filter.is_some(),
        };
        whole.map(candidate).collect()
    }

    /// What its indexes hold, whether they are whole or not.
    pub fn index_definitions(&self) -> Vec<IndexDefinition> {
        let indexes = self.indexes();
        indexes.iter().map(|it| it.definition.clone()).collect()
    }

    /// Reads the definitions; those that are not whole are filled.
    pub(super) fn load_indexes(&self) -> Result<()> {
        let mut entries = self.db.iter(IterOptions::prefix([keys::DEFINITION]))?;
        entries.seek_to_first()?;
        let mut unfilled = Vec::new();
        while entries.valid() {
            let name = keys::id_of(entries.key());
            let name = name.ok_or_else(|| Error::damaged("an index", "it has no name"))?;
            let index = Index::decode(name, entries.value())?;
            unfilled.extend((!index.is_whole).then_some(index.number));
            self.replace_indexes(|_| true, Some(index));
            entries.next()?;
        }
        unfilled
            .into_iter()
            .try_for_each(|number| self.fill_index(number))
    }

    fn save_index(&self, state: &mut State, index: Index) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put(&keys::definition(&index.definition.name), &index.encode());
        let changed = State {
            next_index: state.next_index.max(index.number + 1),
            ..*state
        };
        self.commit(state, changed, batch)?;
        let number = index.number;
        self.replace_indexes(|it| it.number != number, Some(index));
        Ok(())
    }

    fn fill_index(&self, number: u64) -> Result<()> {
        let mut from = vec![keys::HEAD];
        loop {
            let mut state = self.lock();
            let indexes = self.indexes();
            let Some(index) = indexes.iter().find(|it| it.number == number) else {
                // It was dropped meanwhile.
                return Ok(());
            };
            let ids = self.heads_from(&from, AT_ONCE)?;
            let Some(last) = ids.last() else {
                let whole = Index::new(index.definition.clone(), number, true)?;
                return self.save_index(&mut state, whole);
            };
            from = keys::head(last);
            from.push(0);
            let mut pending = Pending::new(*state);
            for id in &ids {
                if let Some(head) = decode_head(id, self.db.get(&keys::head(id))?)? {
                    self.index_document(id, &head, &mut pending)?;
                }
            }
            self.commit(&mut state, pending.state, pending.batch)?;
        }
    }

    /// Replaces the entries of document `id`, whose head is `head`, in all indexes.
    pub(super) fn index_document(
        &self,
        id: &str,
        head: &Head,
        pending: &mut Pending,
    ) -> Result<()> {
        let indexes = self.indexes();
        if indexes.is_empty() {
            return Ok(());
        }
        let before = match pending.entries.remove(id) {
            Some(before) => before,
            None => decode_entries(id, self.db.get(&keys::entries(id))?)?,
        };
        let mut after = Vec::new();
        if let Some(winner) = head.tree.winner().filter(|winner| !winner.deleted) {
            let body = self.pending_body(id, winner.revision, pending)?;
            let document = Indexed {
                id,
                quoted_id: quote(id),
                quoted_revision: quote(&winner.revision.to_string()),
                quoted_partition: partition_of(id).map(quote),
                body: Json::new(&body.text),
            };
            after.extend(indexes.iter().filter_map(|index| index.entry(&document)));
        }
        for key in before.iter().filter(|key| !after.contains(key)) {
            pending.batch.delete(key);
        }
        for key in after.iter().filter(|key| !before.contains(key)) {
            pending.batch.put(key, &[]);
        }
        if before != after {
            let mut list = Vec::new();
            for key in &after {
                put_length_prefixed(&mut list, key);
            }
            if after.is_empty() {
                pending.batch.delete(&keys::entries(id));
            } else {
                pending.batch.put(&keys::entries(id), &list);
            }
        }
        pending.entries.insert(id.to_owned(), after);
        Ok(())
    }

    /// The body of `revision` of document `id`, from the batch that is pending or the engine.
    pub(super) fn pending_body(
        &self,
        id: &str,
        revision: &crate::Revision,
        pending: &Pending,
    ) -> Result<super::record::Body> {
        match pending.bodies.get(&keys::body(id, revision)) {
            Some(written) => Ok(written.clone()),
            None => self.body_at(id, revision, &self.db.snapshot()),
        }
    }
}

fn decode_entries(id: &str, bytes: Option<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
    let entries = read_entries(&bytes.unwrap_or_default());
    entries.map_err(|error| Error::damaged(format!("the entries of {id}"), &error))
}

/// The keys in the record of a document's entries.
pub(super) fn read_entries(bytes: &[u8]) -> Result<Vec<Vec<u8>>, FormatError> {
    let mut reader = Reader::new(bytes);
    let mut entries = Vec::new();
    while !reader.is_empty() {
        entries.push(reader.length_prefixed("key of an entry")?.to_vec());
    }
    Ok(entries)
}
