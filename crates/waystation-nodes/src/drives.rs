//! The drives of a host.

use crate::cursor::{RemoteCopy, RemoteRows};
use crate::greeting::Token;
use crate::link::Link;
use crate::message::{Answer, Call, ShardName};
use crate::tls::Authorities;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use waystation_documents::database::{LOCAL_NODE, Meter, NodeState, Nodes, ShardPlace};
use waystation_documents::shard::{CopySource, Replica, Request, Told, Turn, ViewRows, ViewSource};
use waystation_documents::views::{DesignDocument, Limits, ViewQuery};
use waystation_documents::{Error, NodeFault, Result};

/// No database has more updates than this: it is the largest number that every reader of JSON takes.
const SEQUENCE_MAX: u64 = 1 << 53;

/// A drive of a host.
#[derive(Debug, Clone)]
pub struct DriveSettings {
    /// Its name, which stands in the catalogue: never give it to another drive.
    pub name: String,
    /// Where its agent listens.
    pub address: SocketAddr,
    /// What both sides have to know.
    pub token: Token,
    /// Whom the host trusts to vouch for the agent, which speaks TLS; `None`: it does not.
    pub authorities: Option<Authorities>,
}

struct Drive {
    link: Arc<Link>,
    meter: Arc<Meter>,
}

/// The drives of a host.
pub struct Drives {
    all: Vec<Drive>,
    /// Measures the scans of the host itself.
    meter: Arc<Meter>,
    patience: Patience,
}

/// How long answers may take.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// Of pages and of single documents.
    usual: Duration,
    /// Of what goes through a whole shard: building indexes, compaction.
    long: Duration,
}

impl Drives {
    /// The drives that `settings` name. Nothing is connected yet: a drive that is away costs the databases that lie on
    /// it, and no other.
    pub fn new(settings: Vec<DriveSettings>) -> Self {
        let drive = |settings: DriveSettings| Drive {
            link: Arc::new(Link::new(settings)),
            meter: Arc::default(),
        };
        Self {
            all: settings.into_iter().map(drive).collect(),
            meter: Arc::default(),
            patience: Patience {
                usual: Duration::from_secs(60),
                long: Duration::from_secs(3600),
            },
        }
    }

    /// The same drives, whose usual answers may take as long as `patience`: a minute, if nothing else is said.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience.usual = patience;
        self
    }

    fn drive(&self, name: &str) -> Result<&Drive> {
        let known = self.all.iter().find(|it| it.link.name() == name);
        known.ok_or_else(|| Error::Node {
            fault: NodeFault::Down,
            reason: format!(
                "there is no drive {name}; name it and its address when the server starts"
            ),
        })
    }

    fn done(&self, node: &str, call: &Call) -> Result<()> {
        let drive = self.drive(node)?;
        let (answer, connection) = drive.link.call(call, self.patience.usual, true)?;
        drive.link.give_back(connection);
        match answer {
            Answer::Done { outcome } => outcome,
            _ => Err(drive.link.confused()),
        }
    }
}

impl Nodes for Drives {
    fn states(&self) -> Vec<NodeState> {
        let drives = self.all.iter();
        let drives = drives.map(|drive| (drive.link.name(), &drive.meter));
        let all = [(LOCAL_NODE, &self.meter)].into_iter().chain(drives);
        let state = |(name, meter): (&str, &Arc<Meter>)| {
            let speed = meter.speed();
            NodeState {
                name: name.to_owned(),
                documents_per_second: speed.map(|(documents, _)| documents),
                bytes_per_second: speed.map(|(_, bytes)| bytes),
            }
        };
        all.map(state).collect()
    }

    fn meter(&self, node: &str) -> Option<Arc<Meter>> {
        if node == LOCAL_NODE {
            return Some(Arc::clone(&self.meter));
        }
        self.drive(node).ok().map(|drive| Arc::clone(&drive.meter))
    }

    fn reach(&self, place: &ShardPlace) -> Result<Arc<dyn Replica>> {
        Ok(Arc::new(RemoteShard {
            link: Arc::clone(&self.drive(&place.node)?.link),
            name: name_of(place),
            patience: self.patience,
        }))
    }

    fn create(&self, place: &ShardPlace) -> Result<()> {
        let shard = name_of(place);
        self.done(&place.node, &Call::Create { shard })
    }

    fn remove_shard(&self, place: &ShardPlace) -> Result<()> {
        let shard = name_of(place);
        self.done(&place.node, &Call::RemoveShard { shard })
    }

    fn remove(&self, node: &str, database: &str) -> Result<()> {
        let database = database.to_owned();
        self.done(node, &Call::Remove { database })
    }
}

fn name_of(place: &ShardPlace) -> ShardName {
    ShardName {
        database: place.database.clone(),
        range: place.range.clone(),
    }
}

impl std::fmt::Debug for Drives {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.all.iter().map(|drive| drive.link.name());
        f.debug_list().entries(names).finish()
    }
}

/// A shard on a drive.
struct RemoteShard {
    link: Arc<Link>,
    name: ShardName,
    patience: Patience,
}

impl RemoteShard {
    /// Names the drive in an error that happened on it.
    fn named(&self, error: Error) -> Error {
        match error {
            Error::Node { fault, reason } => self.link.fault(fault, &format!("failed: {reason}")),
            error => error,
        }
    }
}

impl Replica for RemoteShard {
    fn follow(&self, turn: Turn, request: Request) -> Result<Told> {
        let is_repeatable = request.is_repeatable();
        let patience = match request {
            Request::BuildViews { .. }
            | Request::CreateIndex { .. }
            | Request::Compact
            | Request::Reload => self.patience.long,
            _ => self.patience.usual,
        };
        let shard = self.name.clone();
        let call = Call::Ask {
            shard,
            turn,
            request,
        };
        let (answer, connection) = self.link.call(&call, patience, is_repeatable)?;
        self.link.give_back(connection);
        let Answer::Replied { told } = answer else {
            return Err(self.link.confused());
        };
        let told = told.map_err(|error| self.named(error))?;
        if told.latest > SEQUENCE_MAX || told.turns.begun > SEQUENCE_MAX {
            let did = "answered an update sequence that no clock reaches; restart its agent";
            return Err(self.link.fault(NodeFault::Lying, did));
        }
        Ok(Told {
            reply: told.reply.map_err(|error| self.named(error)),
            ..told
        })
    }

    fn begin_copy(&self) -> Result<Box<dyn CopySource>> {
        let shard = self.name.clone();
        let (answer, connection) =
            self.link
                .call(&Call::Copy { shard }, self.patience.usual, true)?;
        match answer {
            Answer::Done { outcome: Ok(()) } => {
                let link = Arc::clone(&self.link);
                Ok(Box::new(RemoteCopy::new(
                    link,
                    connection,
                    self.patience.usual,
                )))
            }
            Answer::Done {
                outcome: Err(error),
            } => {
                self.link.give_back(connection);
                Err(self.named(error))
            }
            _ => Err(self.link.confused()),
        }
    }
}

impl ViewSource for RemoteShard {
    fn view_rows(
        &self,
        design: &DesignDocument,
        name: &str,
        query: &ViewQuery,
        limits: Limits,
    ) -> Result<ViewRows> {
        let call = Call::Rows {
            shard: self.name.clone(),
            design: design.clone(),
            name: name.to_owned(),
            query: query.clone(),
            limits,
        };
        // The index is built before the first row.
        let (answer, connection) = self.link.call(&call, self.patience.long, true)?;
        let Answer::Rows { begun } = answer else {
            return Err(self.link.confused());
        };
        let begun = match begun {
            Ok(begun) => begun,
            Err(error) => {
                self.link.give_back(connection);
                return Err(self.named(error));
            }
        };
        let rows = RemoteRows::new(Arc::clone(&self.link), connection, self.patience.usual);
        let rows = Box::new(rows);
        Ok(ViewRows::over(rows, design, begun.total, begun.sequence))
    }

    fn is_remote(&self) -> bool {
        true
    }
}
