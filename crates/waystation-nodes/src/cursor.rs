//! What a drive reads from one snapshot, page by page: rows of a view, and copies of shards.

use crate::link::{Connection, Link};
use crate::message::{Answer, Call};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use waystation_documents::shard::{CopyPage, CopySource, Entry, KeySpan, RowSource};
use waystation_documents::views::ViewRow;
use waystation_documents::{NodeFault, Result};

/// Rows on a drive. The connection is theirs until they end.
pub(crate) struct RemoteRows {
    link: Arc<Link>,
    /// `None` at the end, and after an error.
    connection: Option<Connection>,
    patience: Duration,
    ready: VecDeque<ViewRow>,
}

impl RemoteRows {
    pub(crate) fn new(link: Arc<Link>, connection: Connection, patience: Duration) -> Self {
        Self {
            link,
            connection: Some(connection),
            patience,
            ready: VecDeque::new(),
        }
    }

    /// Calls; an error ends the rows.
    fn call(&mut self, call: &Call) -> Result<Option<Answer>> {
        let Some(mut connection) = self.connection.take() else {
            return Ok(None);
        };
        let answer = self.link.call_on(&mut connection, call, self.patience)?;
        self.connection = Some(connection);
        Ok(Some(answer))
    }

    /// Ends the rows on the drive, and keeps the connection for others.
    fn end(&mut self) -> Result<()> {
        if let Some(Answer::Done { .. }) = self.call(&Call::EndRows)?
            && let Some(connection) = self.connection.take()
        {
            self.link.give_back(connection);
        }
        Ok(())
    }
}

impl RowSource for RemoteRows {
    fn offset(&mut self, most: u64) -> Result<u64> {
        match self.call(&Call::Offset { most })? {
            Some(Answer::Offset { offset }) => offset,
            Some(_) => Err(self.link.confused()),
            None => Ok(0),
        }
    }

    fn next_row(&mut self) -> Result<Option<ViewRow>> {
        loop {
            if let Some(row) = self.ready.pop_front() {
                return Ok(Some(row));
            }
            let page = match self.call(&Call::MoreRows)? {
                Some(Answer::MoreRows { page }) => page?,
                Some(_) => return Err(self.link.confused()),
                None => return Ok(None),
            };
            if page.rows.is_empty() && !page.is_end {
                return Err(self.link.confused());
            }
            self.ready = page.rows.into();
            if page.is_end {
                self.end()?;
            }
        }
    }
}

/// A copy of a shard on a drive. The connection is its own, and is closed with it.
pub(crate) struct RemoteCopy {
    link: Arc<Link>,
    connection: Connection,
    patience: Duration,
    span: KeySpan,
}

impl RemoteCopy {
    pub(crate) fn new(link: Arc<Link>, connection: Connection, patience: Duration) -> Self {
        Self {
            link,
            connection,
            patience,
            span: KeySpan::default(),
        }
    }

    fn call(&mut self, call: &Call) -> Result<Answer> {
        self.link.call_on(&mut self.connection, call, self.patience)
    }
}

impl CopySource for RemoteCopy {
    fn next_page(&mut self) -> Result<CopyPage> {
        let Answer::Page { page } = self.call(&Call::NextPage)? else {
            return Err(self.link.confused());
        };
        let page = page?;
        let is_behind = match (&page.span.after, &page.span.end) {
            (Some(after), Some(end)) => after < end,
            _ => true,
        };
        if page.span.after != self.span.end || !is_behind {
            let did = "copied a shard out of its order; restart its agent";
            return Err(self.link.fault(NodeFault::Lying, did));
        }
        self.span = page.span.clone();
        Ok(page)
    }

    fn entries(&mut self) -> Result<Vec<Entry>> {
        match self.call(&Call::PageEntries)? {
            Answer::Entries { entries } => entries,
            _ => Err(self.link.confused()),
        }
    }
}
