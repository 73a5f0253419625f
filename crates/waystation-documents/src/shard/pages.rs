//! Pages of long answers: of a listing, and of the feed of changes.

use super::request::{ListedDocument, ReadChange, Reply, Request, WantedChanges};
use super::{Opened, ScanOptions, Shard};
use crate::error::{Error, Result};
use crate::json::{Json, canonical};
use crate::mango::Selector;
use crate::{Rendering, render};

/// Which winners a page of changes opens.
struct Choice {
    selector: Option<Selector>,
    with_documents: bool,
}

impl Choice {
    fn of(wanted: &WantedChanges) -> Result<Self> {
        let (selector, with_documents) = match wanted {
            WantedChanges::Bare => (None, false),
            WantedChanges::WithDocuments => (None, true),
            WantedChanges::Matching {
                selector,
                with_documents,
            } => {
                let text = canonical(selector.as_bytes());
                let text = text.map_err(|error| Error::BadRequest(error.to_string().into()))?;
                (Some(Selector::parse(Json::new(&text))?), *with_documents)
            }
        };
        Ok(Self {
            selector,
            with_documents,
        })
    }

    fn matches(&self, id: &str, opened: Option<&Opened>) -> bool {
        let Some(selector) = &self.selector else {
            return true;
        };
        opened.is_some_and(|opened| {
            let text = render(id, opened, &Rendering::default());
            selector.matches(&Json::new(&text))
        })
    }
}

impl Shard {
    /// Answers a request for a page.
    pub(super) fn answer_paged(&self, request: &Request) -> Result<Reply> {
        match request {
            Request::List {
                options,
                rows,
                bytes,
                with_documents,
            } => self.list(options, *rows, *bytes, *with_documents),
            Request::CountDocuments { options, most } => {
                let (mut scan, mut number) = (self.scan(options)?, 0);
                while number <= *most && scan.next_document()?.is_some() {
                    number += 1;
                }
                Ok(Reply::Number { number })
            }
            Request::Changes {
                from,
                descending,
                rows,
                bytes,
                wanted,
            } => self.page_of_changes((*from, *descending), (*rows, *bytes), wanted),
            _ => unreachable!("every other request is answered before"),
        }
    }

    fn list(
        &self,
        options: &ScanOptions,
        rows_max: u64,
        bytes_max: u64,
        with_documents: bool,
    ) -> Result<Reply> {
        let mut scan = self.scan(options)?;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while (rows.len() as u64) < rows_max && bytes < bytes_max {
            let Some(document) = scan.next_document()? else {
                return Ok(Reply::Listed { rows, is_end: true });
            };
            let opened = with_documents.then(|| document.opened()).transpose()?;
            bytes += opened.as_ref().map_or(0, |it| it.version.body.len() as u64);
            rows.push(ListedDocument {
                id: document.id().to_owned(),
                revision: document.revision().clone(),
                opened,
            });
        }
        let is_end = false;
        Ok(Reply::Listed { rows, is_end })
    }

    fn page_of_changes(
        &self,
        (from, descending): (u64, bool),
        (rows_max, bytes_max): (u64, u64),
        wanted: &WantedChanges,
    ) -> Result<Reply> {
        let choice = Choice::of(wanted)?;
        let mut changes = if descending {
            self.changes_before(from)?
        } else {
            self.changes(from)?
        };
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while (rows.len() as u64) < rows_max && bytes < bytes_max {
            let Some(change) = changes.next().transpose()? else {
                return Ok(Reply::Changes { rows, is_end: true });
            };
            let winner = change.leaves.first();
            let opens = choice.selector.is_some() || choice.with_documents;
            let opened = winner.filter(|_| opens).map(|winner| {
                let opened = self.open_revision(&change.id, winner);
                match opened {
                    Err(Error::NotFound(_)) => Ok(None),
                    opened => opened.map(Some),
                }
            });
            let opened = opened.transpose()?.flatten();
            // Of several leaves the one that asks has the say.
            let has_several = choice.selector.is_some() && change.leaves.len() > 1;
            let is_wanted = has_several || choice.matches(&change.id, opened.as_ref());
            let opened = opened.filter(|_| is_wanted && choice.with_documents);
            bytes += opened.as_ref().map_or(0, |it| it.version.body.len() as u64);
            rows.push(ReadChange {
                sequence: change.sequence,
                change: is_wanted.then_some(change),
                opened,
            });
        }
        let is_end = false;
        Ok(Reply::Changes { rows, is_end })
    }
}
