//! How a shard in this process answers: each request is a call of [`Shard`].

use super::request::{Replica, Reply, Request, ShardAccess, ViewSource};
use super::{CopySource, Shard, Told, Turn, ViewRows};
use crate::error::Result;
use crate::views::{DesignDocument, Limits, ViewQuery};
use std::ops::Bound;

impl ViewSource for Shard {
    fn view_rows(
        &self,
        design: &DesignDocument,
        name: &str,
        query: &ViewQuery,
        limits: Limits,
    ) -> Result<ViewRows> {
        Self::view_rows(self, design, name, query, limits)
    }

    fn is_remote(&self) -> bool {
        false
    }
}

impl ShardAccess for Shard {
    fn ask(&self, request: Request) -> Result<Reply> {
        self.answer(request)
    }
}

impl Replica for Shard {
    fn follow(&self, turn: Turn, request: Request) -> Result<Told> {
        Ok(Self::follow(self, turn, request))
    }

    fn begin_copy(&self) -> Result<Box<dyn CopySource>> {
        Ok(Box::new(Self::begin_copy(self)?))
    }
}

impl Shard {
    /// Answers `request`, here.
    ///
    /// # Errors
    /// What the call of its name fails of.
    pub fn answer(&self, request: Request) -> Result<Reply> {
        Ok(match request {
            Request::Update {
                documents,
                edits,
                durability,
            } => {
                let outcomes = self.update(&documents, edits, durability)?;
                Reply::Updated { outcomes }
            }
            Request::PutLocal {
                name,
                version,
                body,
                durability,
            } => {
                let number = self.put_local(&name, version, &body, durability)?;
                Reply::Number { number }
            }
            Request::DeleteLocal { name, version } => {
                self.delete_local(&name, version)?;
                Reply::Done
            }
            Request::Purge { id, revisions } => {
                let revisions = self.purge(&id, &revisions)?;
                Reply::Purged { revisions }
            }
            Request::SetRevsLimit { limit } => {
                self.set_revs_limit(limit)?;
                Reply::Done
            }
            Request::CreateIndex { definition } => {
                self.create_index(definition)?;
                Reply::Done
            }
            Request::DropIndex { name } => {
                self.drop_index(&name)?;
                Reply::Done
            }
            Request::BuildViews {
                design,
                limits,
                steps,
            } => {
                let number = self.build_views_some(&design, limits, steps)?;
                Reply::Number { number }
            }
            other => self.answer_upkeep(other)?,
        })
    }

    /// Answers a request about the shard as a whole.
    fn answer_upkeep(&self, request: Request) -> Result<Reply> {
        Ok(match request {
            Request::CleanUpViews { kept } => {
                self.clean_up_views(&kept)?;
                Reply::Done
            }
            Request::Compact => {
                self.compact()?;
                self.db()
                    .compact_range(Bound::Unbounded, Bound::Unbounded)?;
                Reply::Done
            }
            Request::Sync => {
                self.db().sync()?;
                Reply::Done
            }
            Request::Fill { span, entries } => {
                self.fill(&span, &entries)?;
                Reply::Done
            }
            Request::Reload => {
                self.reload()?;
                Reply::Done
            }
            Request::SetTurn { number } => {
                self.set_turn(number)?;
                Reply::Done
            }
            reading => self.answer_reading(reading)?,
        })
    }

    /// Answers a request that changes nothing.
    fn answer_reading(&self, request: Request) -> Result<Reply> {
        Ok(match request {
            Request::Info => Reply::Info { info: self.info() },
            Request::Sizes => Reply::Sizes {
                file_bytes: super::sizes::bytes_below(self.db().path())?,
                active_bytes: self.db().approximate_bytes(&[], &[0xff])?,
            },
            Request::OpenWinner { id } => Reply::Opened {
                opened: self.open_winner(&id)?,
            },
            Request::OpenRevision { id, revision } => Reply::Opened {
                opened: self.open_revision(&id, &revision)?,
            },
            Request::OpenRevisions {
                id,
                revisions,
                latest,
            } => Reply::OpenedRevisions {
                found: self.open_revisions(&id, &revisions, latest)?,
            },
            Request::MissingRevisions { id, revisions } => {
                let (missing, ancestors) = self.missing_revisions(&id, &revisions)?;
                Reply::Missing { missing, ancestors }
            }
            Request::Winner { id } => Reply::Winner {
                winner: self.winner(&id)?,
            },
            Request::Attachment { info } => Reply::Bytes {
                bytes: self.attachment(&info)?,
            },
            Request::OpenLocal { name } => Reply::Local {
                document: self.open_local(&name)?,
            },
            Request::LocalDocuments => Reply::Locals {
                documents: self.local_documents()?,
            },
            Request::CountChanges { since } => Reply::Number {
                number: self.count_changes(since)?,
            },
            Request::Find { step } => Reply::Found {
                part: self.find(&step)?,
            },
            Request::Split { shards } => Reply::Points {
                ids: self.split(shards)?,
            },
            Request::Digest { span } => Reply::Bytes {
                bytes: self.digest(&span)?,
            },
            Request::IndexDefinitions => Reply::Indexes {
                definitions: self.index_definitions(),
            },
            Request::ViewsInfo { design } => Reply::Views {
                info: self.views_info(&design)?,
            },
            paged => self.answer_paged(&paged)?,
        })
    }
}
