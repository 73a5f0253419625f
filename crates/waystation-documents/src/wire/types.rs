//! How the model's own values travel. Values with invariants check them when they are read.

use super::{Wire, malformed, wire_enum, wire_struct};
use crate::attachment::{Attachment, AttachmentInfo, Given};
use crate::document::Document;
use crate::mango::KeyRange;
use crate::revision::Revision;
use crate::shard::{
    Change, Edits, IndexDefinition, LocalDocument, Opened, Revisions, ScanOptions, ScanStats,
    ShardInfo, Version, ViewsInfo,
};
use crate::tree::RevisionTree;
use crate::views::{DesignDocument, Limits, Link, RowOrder, Signature, Update, ViewQuery, ViewRow};
use std::time::Duration;
use waystation::Durability;
use waystation_format::FormatError;
use waystation_format::varint::Reader;

/// Values that storage knows travel as they are stored.
macro_rules! wire_as_stored {
    ($($type:ty),*) => { $(
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                <$type>::put(self, out);
            }

            fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
                <$type>::take(reader)
            }
        }
    )* };
}

wire_as_stored!(Revision, RevisionTree, AttachmentInfo);

wire_struct! {
    Document { id, revision, deleted, body, attachments, history }
    Attachment { name, content_type, revpos, content }
    Version { revision, deleted, sequence, body, attachments }
    Opened { version, tree }
    LocalDocument { name, version, body }
    ScanOptions { from, is_behind, to, is_before, descending, deleted }
    ScanStats { examined, bodies, bytes }
    ShardInfo { documents, deleted, update_sequence, purge_sequence, revs_limit }
    Change { sequence, id, leaves, deleted }
    IndexDefinition { name, columns, partial }
    KeyRange { begin, end, is_point }
    ViewsInfo { update_sequence, rows, bytes }
    ViewRow { key, id, value, sort_key, place, number }
    Link { id, revision }
    Limits { memory_bytes, stack_bytes, time }
    ViewQuery {
        keys, start_key, start_id, end_key, end_id, inclusive_end, descending, skip, limit, include_docs, conflicts,
        reduce, group, group_level, update, update_seq, sorted, partition,
    }
}

wire_enum! {
    Given { 1 => Bytes(bytes), 2 => Stub, 3 => Follows(length) }
    Revisions { 1 => Leaves, 2 => Named(revisions) }
    Edits { 1 => Interactive, 2 => Replicated }
    Durability { 1 => ProcessCrash, 2 => PowerLoss }
    Update { 1 => Before, 2 => Never, 3 => Lazy }
    RowOrder { 1 => Unicode, 2 => Raw }
}

impl Wire for Duration {
    fn put(&self, out: &mut Vec<u8>) {
        u64::try_from(self.as_nanos()).unwrap_or(u64::MAX).put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        u64::take(reader).map(Self::from_nanos)
    }
}

impl Wire for Signature {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let mut signature = [0; 16];
        signature.copy_from_slice(reader.take(16, "a signature")?);
        Ok(Self(signature))
    }
}

/// A design document travels as its text, and is read again where it arrives.
impl Wire for DesignDocument {
    fn put(&self, out: &mut Vec<u8>) {
        self.id().to_owned().put(out);
        self.body().to_owned().put(out);
        self.is_partitioned.put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let (id, body) = (String::take(reader)?, String::take(reader)?);
        let body = crate::json::canonical(body.as_bytes())
            .map_err(|_| malformed(reader, "a design document is no JSON"))?;
        let design = Self::parse(&id, &body);
        let design = design.map_err(|_| malformed(reader, "a design document is none"))?;
        Ok(if bool::take(reader)? {
            design.of_partitions()
        } else {
            design
        })
    }
}
