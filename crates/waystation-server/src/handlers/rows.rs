//! Rows of an answer, with documents beside them.
//!
//! A row without attachments is text at once. The bytes of attachments are read when the client has taken what stands
//! before them, for one document at a time, and within the memory that all answers share for them. So a page of rows
//! holds documents, however many attachments these have.

use crate::app::App;
use crate::failure::Outcome;
use crate::handlers::open::Wanted;
use crate::reply::Pages;
use std::sync::Arc;
use waystation_documents::Database;
use waystation_documents::shard::Opened;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// What stands before the text that is being written.
    pieces: Vec<Piece>,
    text: String,
}

/// Text, and behind it a document whose attachments are still to be read.
#[derive(Debug)]
struct Piece {
    text: String,
    id: String,
    opened: Opened,
    wanted: Wanted,
}

impl Rows {
    /// Adds text.
    pub(crate) fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds the document `id` as it is wanted.
    pub(crate) fn push_document(
        &mut self,
        database: &Database,
        id: &str,
        opened: Opened,
        wanted: &Wanted,
    ) -> Outcome<()> {
        if wanted.attachment_bytes(&opened) == 0 {
            self.text.push_str(&wanted.json(database, id, &opened)?);
            return Ok(());
        }
        self.pieces.push(Piece {
            text: std::mem::take(&mut self.text),
            id: id.to_owned(),
            opened,
            wanted: wanted.clone(),
        });
        Ok(())
    }

    /// How much memory its text and its documents take (bytes).
    pub(crate) fn bytes(&self) -> usize {
        let piece = |piece: &Piece| piece.text.len() + piece.opened.version.body.len();
        self.text.len() + self.pieces.iter().map(piece).sum::<usize>()
    }

    /// Sends all of it; whether the client is still there.
    pub(crate) async fn send(
        self,
        app: &Arc<App>,
        database: &Arc<Database>,
        pages: &Pages,
    ) -> Outcome<bool> {
        for piece in self.pieces {
            if pages.send(piece.text).await.is_err() {
                return Ok(false);
            }
            let bytes = piece.wanted.attachment_bytes(&piece.opened);
            let held = app.admit_attachments(bytes).await?;
            let database = Arc::clone(database);
            let work = move |_: &App| piece.wanted.json(&database, &piece.id, &piece.opened);
            let document = app.run(work).await?;
            if pages.send_long(&document).await.is_err() {
                return Ok(false);
            }
            drop(held);
        }
        Ok(pages.send(self.text).await.is_ok())
    }
}
