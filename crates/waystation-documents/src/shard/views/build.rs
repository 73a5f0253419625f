//! Building: documents go through the map functions of a group, in the order of their update sequences.
//!
//! A step takes some changed documents at a snapshot, maps them without a lock, and writes what follows in one batch
//! under the lock of updates. A purge takes the rows of a document away at once, and a step must not bring them back: if
//! something was purged since the snapshot, a step writes rows only of documents that are as it has seen them. Others
//! are gone, or have a later change and are mapped again. One thread at a time builds a group of a shard;
//! others wait, and find the work done.

use super::super::{Opened, Shard, State, decode_head, keys};
use super::record::{self, Group, Place};
use crate::error::{Error, Result};
use crate::json::{Json, canonical};
use crate::partition::partition_of;
use crate::views::{Defined, DesignDocument, Limits, PREFIX, RowOrder, Sandbox, Signature};
use crate::{Rendering, render};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use waystation::{Durability, IterOptions, KEY_BYTES_MAX, Snapshot, WriteBatch};

/// Changed documents of a step, and bytes of rows that end it early.
const STEP_DOCUMENTS: usize = 256;
const STEP_BYTES: usize = 4 << 20;

/// Who builds which group.
#[derive(Debug, Default)]
pub(in crate::shard) struct Builds(Mutex<HashMap<Signature, Arc<Mutex<()>>>>);

impl Builds {
    fn of(&self, signature: Signature) -> Arc<Mutex<()>> {
        let mut builds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(builds.entry(signature).or_default())
    }

    fn forget(&self, signature: Signature) {
        let mut builds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        builds.remove(&signature);
    }
}

/// What the map functions made of a document.
struct Mapped {
    id: String,
    /// The update sequence of what was mapped.
    sequence: u64,
    rows: Vec<(Place, Vec<u8>)>,
}

/// Some changed documents, mapped.
struct Step {
    documents: Vec<Mapped>,
    /// The group has everything up to here once the step is written.
    sequence: u64,
    /// What had been purged when it was read.
    purges: u64,
}

/// Maps documents of one group.
struct Mapper<'a> {
    design: &'a DesignDocument,
    sandbox: Sandbox,
    functions: String,
}

impl<'a> Mapper<'a> {
    fn new(design: &'a DesignDocument, limits: Limits) -> Result<Self> {
        let (sandbox, functions) = design.mappers(limits)?;
        Ok(Self {
            design,
            sandbox,
            functions: Defined::list(&functions),
        })
    }

    /// The rows of the document `id`.
    fn map(&mut self, id: &str, opened: &Opened) -> Result<Vec<(Place, Vec<u8>)>> {
        let rendering = Rendering {
            conflicts: true,
            deleted_conflicts: true,
            local_sequence: self.design.has_local_sequence,
            ..Rendering::default()
        };
        let json = render(id, opened, &rendering);
        let lines = self.sandbox.call("map", &[&json, &self.functions])?;
        let mut rows = Vec::new();
        for (map, line) in lines.split('\n').enumerate() {
            let Ok(line) = canonical(line.as_bytes()) else {
                log::warn!(
                    "{}: what is emitted for {id} is nested too deeply and left out",
                    self.design.id()
                );
                continue;
            };
            let mut pairs: Vec<Json<'_>> = Json::new(&line).elements().collect();
            // Rows of one key and document stand in the raw order of their values, as in CouchDB.
            if pairs.len() > 1 {
                pairs.sort_by_cached_key(|pair| {
                    let key = pair.element(0).map(|key| self.design.order.key_of(key));
                    (
                        key,
                        pair.element(1).map(|value| RowOrder::Raw.key_of(value)),
                    )
                });
            }
            for (number, pair) in (0..).zip(pairs) {
                rows.extend(self.row(id, map, number, pair));
            }
        }
        Ok(rows)
    }

    fn row(&self, id: &str, map: usize, number: u32, pair: Json<'_>) -> Option<(Place, Vec<u8>)> {
        let (key, value) = (pair.element(0)?, pair.element(1)?);
        let mut sort_key = Vec::new();
        if self.design.is_partitioned {
            record::put_partition(&mut sort_key, partition_of(id).unwrap_or_default());
        }
        sort_key.extend(self.design.order.key_of(key));
        // The key of a row has its document's identifier, too, and numbers.
        if sort_key.len() + 2 * id.len() + 64 > KEY_BYTES_MAX {
            log::warn!(
                "{}: a key that is emitted for {id} is too long and left out",
                self.design.id()
            );
            return None;
        }
        let place = Place {
            map,
            sort_key,
            number,
        };
        Some((place, record::encode_row(key.text(), value.text())))
    }
}

/// Figures about the index of a group of views.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ViewsInfo {
    /// Documents up to this update sequence are in it.
    pub update_sequence: u64,
    /// Rows of all its maps.
    pub rows: u64,
    /// About how many bytes of storage they take; what is in memory still counts for nothing.
    pub bytes: u64,
}

impl Shard {
    /// Brings the index of the views of `design` up to the update sequence at which the call began. Returns the
    /// sequence that it reached. Work that was done is kept if it fails or the process ends: the next call goes on.
    ///
    /// # Errors
    /// [`Error::Script`] if a function is wrong or exceeds its limits; [`Error::Query`] `not_found` if
    /// [`Shard::clean_up_views`] removes the index meanwhile; [`Error::Engine`], [`Error::Damaged`].
    pub fn build_views(&self, design: &DesignDocument, limits: Limits) -> Result<u64> {
        self.build_views_some(design, limits, u64::MAX)
    }

    /// As [`Shard::build_views`], and ends after `steps` steps: the sequence that it reached may be an earlier one.
    ///
    /// # Errors
    /// As [`Shard::build_views`].
    pub fn build_views_some(
        &self,
        design: &DesignDocument,
        limits: Limits,
        steps: u64,
    ) -> Result<u64> {
        let target = self.lock().sequence;
        if !design.has_views() {
            return Ok(target);
        }
        let build = self.builds.of(design.signature());
        let _alone = build.lock().unwrap_or_else(PoisonError::into_inner);
        let mut group = self.group_or_new(design)?;
        if group.sequence >= target {
            return Ok(group.sequence);
        }
        let mut mapper = Mapper::new(design, limits)?;
        let mut left = steps;
        while group.sequence < target && left > 0 {
            left -= 1;
            let step = self.map_step(&group, &mut mapper);
            mapper.sandbox.pass_on_log(design.id());
            group = self.write_step(design.signature(), &group, step?)?;
        }
        Ok(group.sequence)
    }

    /// Removes the rows of all groups of views but those with the signatures `kept`: what `_view_cleanup` does with
    /// the signatures of all design documents. Returns how many groups it removed.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn clean_up_views(&self, kept: &[Signature]) -> Result<usize> {
        let _updates = self.lock();
        let mut groups = self.groups()?;
        groups.retain(|(signature, _)| !kept.contains(signature));
        let mut batch = WriteBatch::new();
        for (signature, group) in &groups {
            batch.delete(&record::group(*signature));
            for space in record::spaces_of(group.number) {
                batch.delete_prefix(&space);
            }
            self.builds.forget(*signature);
        }
        self.db.write(&batch, Durability::ProcessCrash)?;
        Ok(groups.len())
    }

    /// Figures about the index of the views of `design`: all zero if there is none.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn views_info(&self, design: &DesignDocument) -> Result<ViewsInfo> {
        let Some(group) = self.group_at(design.signature(), &self.db.snapshot())? else {
            return Ok(ViewsInfo::default());
        };
        let mut bytes = 0;
        for space in record::spaces_of(group.number) {
            let end = [space.as_slice(), &[0xff]].concat();
            bytes += self.db.approximate_bytes(&space, &end)?;
        }
        Ok(ViewsInfo {
            update_sequence: group.sequence,
            rows: group.counts.iter().sum(),
            bytes,
        })
    }

    pub(super) fn group_at(
        &self,
        signature: Signature,
        snapshot: &Snapshot,
    ) -> Result<Option<Group>> {
        decode_group(self.db.get_at(&record::group(signature), snapshot)?)
    }

    fn group_or_new(&self, design: &DesignDocument) -> Result<Group> {
        let key = record::group(design.signature());
        let mut state = self.lock();
        if let Some(known) = decode_group(self.db.get(&key)?)? {
            return Ok(known);
        }
        let group = Group::new(state.next_index, design.map_count());
        let mut batch = WriteBatch::new();
        batch.put(&key, &group.encode());
        let changed = State {
            next_index: state.next_index + 1,
            ..*state
        };
        self.commit(&mut state, changed, batch)?;
        Ok(group)
    }

    fn groups(&self) -> Result<Vec<(Signature, Group)>> {
        let mut entries = self.db.iter(IterOptions::prefix([keys::GROUP]))?;
        entries.seek_to_first()?;
        let mut groups = Vec::new();
        while entries.valid() {
            let signature = record::signature_of(entries.key());
            let signature = signature.ok_or_else(|| damaged("its key is no signature"))?;
            groups.extend(
                decode_group(Some(entries.value().to_vec()))?.map(|group| (signature, group)),
            );
            entries.next()?;
        }
        Ok(groups)
    }

    /// Maps the next documents that have changed.
    fn map_step(&self, group: &Group, mapper: &mut Mapper<'_>) -> Result<Step> {
        let snapshot = self.db.snapshot();
        let state = self.db.get_at(keys::SHARD, &snapshot)?.unwrap_or_default();
        let state = State::decode(&state).map_err(|error| Error::damaged("the shard", &error))?;
        let mut step = Step {
            documents: Vec::new(),
            sequence: group.sequence,
            purges: state.purges,
        };
        let mut bytes = 0;
        let mut changes = self.changes_at(group.sequence, snapshot.clone())?;
        while step.documents.len() < STEP_DOCUMENTS && bytes < STEP_BYTES {
            let Some((change, head)) = changes.read()? else {
                step.sequence = state.sequence;
                return Ok(step);
            };
            let is_mapped = mapper.design.includes_design || !change.id.starts_with(PREFIX);
            let rows = match change.leaves.first() {
                Some(winner) if is_mapped && !change.deleted => {
                    let opened = self.opened(&change.id, head, winner, &snapshot)?;
                    mapper.map(&change.id, &opened)?
                }
                _ => Vec::new(),
            };
            let row_bytes = |(place, row): &(Place, Vec<u8>)| place.sort_key.len() + row.len();
            bytes += rows.iter().map(row_bytes).sum::<usize>();
            step.sequence = change.sequence;
            step.documents.push(Mapped {
                id: change.id,
                sequence: change.sequence,
                rows,
            });
        }
        Ok(step)
    }

    /// Writes what follows from a step. Returns the group as it is then.
    fn write_step(&self, signature: Signature, group: &Group, step: Step) -> Result<Group> {
        let state = self.lock();
        let known = decode_group(self.db.get(&record::group(signature))?)?;
        let Some(mut changed) = known.filter(|known| known.number == group.number) else {
            let reason = "The index of the view was removed while it was built; query it again.";
            return Err(Error::query("not_found", reason));
        };
        let is_certain = state.purges == step.purges;
        let mut batch = WriteBatch::new();
        for Mapped {
            id,
            sequence,
            mut rows,
        } in step.documents
        {
            if !is_certain && !self.is_at(&id, sequence)? {
                rows.clear();
            }
            let places: Vec<Place> = rows.iter().map(|(place, _)| place.clone()).collect();
            self.forget_rows(&id, &mut changed, &places, &mut batch)?;
            for (place, row) in &rows {
                batch.put(&place.key(changed.number, &id), row);
                if let Some(count) = changed.counts.get_mut(place.map) {
                    *count += 1;
                }
            }
            if !places.is_empty() {
                batch.put(
                    &record::places_of(changed.number, &id),
                    &record::encode_places(&places),
                );
            }
        }
        changed.sequence = step.sequence;
        batch.put(&record::group(signature), &changed.encode());
        self.db.write(&batch, Durability::ProcessCrash)?;
        Ok(changed)
    }

    /// Whether document `id` is there, and its latest update sequence is `sequence`.
    fn is_at(&self, id: &str, sequence: u64) -> Result<bool> {
        let head = decode_head(id, self.db.get(&keys::head(id))?)?;
        Ok(head.is_some_and(|head| head.sequence == sequence))
    }

    /// Takes the rows of document `id` out of the group; the ones at `replaced` are written over.
    fn forget_rows(
        &self,
        id: &str,
        group: &mut Group,
        replaced: &[Place],
        batch: &mut WriteBatch,
    ) -> Result<bool> {
        let key = record::places_of(group.number, id);
        let Some(places) = self.db.get(&key)? else {
            return Ok(false);
        };
        let places = record::decode_places(&places);
        let places = places
            .map_err(|error| Error::damaged(format!("the rows of {id} in a view"), &error))?;
        let replaced: HashSet<&Place> = replaced.iter().collect();
        for place in places {
            if let Some(count) = group.counts.get_mut(place.map) {
                *count = count.saturating_sub(1);
            }
            if !replaced.contains(&place) {
                batch.delete(&place.key(group.number, id));
            }
        }
        if replaced.is_empty() {
            batch.delete(&key);
        }
        Ok(true)
    }

    /// Takes the rows of document `id`, which is purged, out of all groups.
    pub(in crate::shard) fn purge_rows(&self, id: &str, batch: &mut WriteBatch) -> Result<()> {
        for (signature, mut group) in self.groups()? {
            if self.forget_rows(id, &mut group, &[], batch)? {
                batch.put(&record::group(signature), &group.encode());
            }
        }
        Ok(())
    }
}

fn decode_group(bytes: Option<Vec<u8>>) -> Result<Option<Group>> {
    let group = bytes.map(|bytes| Group::decode(&bytes)).transpose();
    group.map_err(|error| damaged(&error.to_string()))
}

fn damaged(reason: &str) -> Error {
    Error::damaged("a group of views", reason)
}
