//! Rows of a view that a drive reads from one snapshot, page by page.

use crate::link::{Connection, Link};
use crate::message::{Answer, Call};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use waystation_documents::Result;
use waystation_documents::shard::RowSource;
use waystation_documents::views::ViewRow;

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
