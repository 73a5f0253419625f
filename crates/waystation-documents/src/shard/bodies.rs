//! Bodies in the engine: a short one is one record, a long one is several, so that a field of it is read without the rest.
//!
//! ```text
//!   short   b id revision         the body with its text
//!   long    b id revision         the body, and how long its text is
//!           c id revision place   piece `place` of the text, PIECE_BYTES long
//!           f id revision         its outline
//! ```

use super::outline::{Outline, Span};
use super::record::{Body, PIECE_BYTES, StoredBody, StoredText};
use super::update::Pending;
use super::{Shard, keys};
use crate::error::{Error, Result};
use crate::revision::Revision;
use waystation::{Snapshot, WriteBatch};

/// Puts all records of a body.
pub(super) fn put_body(batch: &mut WriteBatch, id: &str, revision: &Revision, body: &Body) {
    batch.put(&keys::body(id, revision), &body.encode());
    if body.is_in_pieces() {
        let pieces = body.text.as_bytes().chunks(PIECE_BYTES);
        for (place, piece) in pieces.enumerate() {
            batch.put(&keys::piece(id, revision, place), piece);
        }
        let outline = Outline::of(&body.text).encode();
        batch.put(&keys::outline(id, revision), &outline);
    }
}

/// Deletes them: there are pieces of `length` bytes, or none.
fn delete_records(batch: &mut WriteBatch, id: &str, revision: &Revision, length: usize) {
    batch.delete(&keys::body(id, revision));
    if length > 0 {
        for place in 0..length.div_ceil(PIECE_BYTES) {
            batch.delete(&keys::piece(id, revision, place));
        }
        batch.delete(&keys::outline(id, revision));
    }
}

impl Shard {
    /// Deletes all records of a body, if it is there.
    pub(super) fn delete_body(
        &self,
        batch: &mut WriteBatch,
        id: &str,
        revision: &Revision,
    ) -> Result<()> {
        if let Some(bytes) = self.db.get(&keys::body(id, revision))? {
            let length = match read_stored(id, bytes)?.text {
                StoredText::Here { .. } => 0,
                StoredText::Pieces { length } => length,
            };
            delete_records(batch, id, revision, length);
        }
        Ok(())
    }

    /// The same, where the body may be one of the batch.
    pub(super) fn delete_pending_body(
        &self,
        pending: &mut Pending,
        id: &str,
        revision: &Revision,
    ) -> Result<()> {
        let Some(body) = pending.bodies.remove(&keys::body(id, revision)) else {
            return self.delete_body(&mut pending.batch, id, revision);
        };
        let length = if body.is_in_pieces() {
            body.text.len()
        } else {
            0
        };
        delete_records(&mut pending.batch, id, revision, length);
        Ok(())
    }

    /// The body of `revision`, which the head says is stored.
    pub(super) fn body_at(
        &self,
        id: &str,
        revision: &Revision,
        snapshot: &Snapshot,
    ) -> Result<Body> {
        let stored = self.stored_body_at(id, revision, snapshot)?;
        let StoredText::Pieces { length } = stored.text else {
            return stored.into_body().map_err(|error| damaged(id, &error));
        };
        let all = Span { offset: 0, length };
        Ok(Body {
            text: self.text_at(id, revision, all, snapshot)?,
            attachments: stored.attachments,
        })
    }

    /// Its first record.
    pub(super) fn stored_body_at(
        &self,
        id: &str,
        revision: &Revision,
        snapshot: &Snapshot,
    ) -> Result<StoredBody> {
        let bytes = self.db.get_at(&keys::body(id, revision), snapshot)?;
        let bytes =
            bytes.ok_or_else(|| Error::damaged(format!("document {id}"), "a body is missing"))?;
        read_stored(id, bytes)
    }

    /// The outline of a body in pieces.
    pub(super) fn outline_at(
        &self,
        id: &str,
        revision: &Revision,
        snapshot: &Snapshot,
    ) -> Result<(Outline, usize)> {
        let bytes = self.db.get_at(&keys::outline(id, revision), snapshot)?;
        let bytes = bytes.ok_or_else(|| damaged(id, &"its outline is missing"))?;
        let outline = Outline::decode(&bytes).map_err(|error| damaged(id, &error))?;
        Ok((outline, bytes.len()))
    }

    /// What stands at `span` in the text of a body in pieces.
    pub(super) fn text_at(
        &self,
        id: &str,
        revision: &Revision,
        span: Span,
        snapshot: &Snapshot,
    ) -> Result<String> {
        let mut text = Vec::new();
        let end = span.offset.saturating_add(span.length);
        let (first, behind) = (span.offset / PIECE_BYTES, end.div_ceil(PIECE_BYTES));
        for place in first..behind {
            let piece = self
                .db
                .get_at(&keys::piece(id, revision, place), snapshot)?;
            let piece = piece.ok_or_else(|| damaged(id, &"a piece is missing"))?;
            let begin = place * PIECE_BYTES;
            let wanted = span.offset.saturating_sub(begin)..(end - begin).min(PIECE_BYTES);
            let wanted = piece.get(wanted);
            text.extend_from_slice(wanted.ok_or_else(|| damaged(id, &"a piece is cut"))?);
        }
        String::from_utf8(text).map_err(|_| damaged(id, &"a part of it is no text"))
    }
}

fn read_stored(id: &str, bytes: Vec<u8>) -> Result<StoredBody> {
    StoredBody::read(bytes).map_err(|error| damaged(id, &error))
}

fn damaged(id: &str, reason: &dyn std::fmt::Display) -> Error {
    Error::damaged(format!("the body of document {id}"), reason)
}
