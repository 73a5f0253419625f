//! One run of a replication: changes of the source in batches, what the target misses of each, and checkpoints.
//!
//! A run that ends by a fault loses nothing: the next one goes on at the last checkpoint, and what was written since is
//! not missing any more.

use super::checkpoint::{Checkpoint, Stats, number};
use super::fault::Fault;
use super::order::{Choice, Order};
use super::peer::{Peer, Sent};
use super::transfer::Transfer;
use crate::app::App;
use crate::auth::User;
use crate::query::encode;
use hyper::{Method, StatusCode};
use sha2::{Digest, Sha256};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};
use waystation_documents::json::{Json, Kind};

/// How often a feed that waits shows that its connection lives, as a part of the patience of its reader.
const HEARTBEATS: u32 = 3;
/// A pause between two looks at a source that answers at once although it has nothing.
const PAUSE: Duration = Duration::from_millis(500);

/// How far a run has come, for those who watch it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Progress {
    pub(crate) stats: Stats,
    /// Sequences of the source, as JSON; empty: none yet.
    pub(crate) through: String,
    pub(crate) checkpointed: String,
    /// Changes that the source has beyond.
    pub(crate) pending: Option<i64>,
}

/// A part of the changes of a source.
struct Changes {
    rows: Vec<(String, Vec<String>)>,
    /// As JSON.
    last: String,
    pending: Option<i64>,
}

/// A run.
pub(super) struct Session {
    order: Arc<Order>,
    source: Peer,
    target: Peer,
    checkpoint: Checkpoint,
    progress: Arc<Mutex<Progress>>,
}

impl Session {
    /// Looks for both databases and for their checkpoints.
    pub(super) async fn open(
        app: &Arc<App>,
        user: &User,
        order: &Arc<Order>,
        base_id: &str,
        progress: Arc<Mutex<Progress>>,
    ) -> Result<Self, Fault> {
        let source = Peer::new(app, user, &order.source, order)?;
        let target = Peer::new(app, user, &order.target, order)?;
        if order.create_target {
            create(&target, order).await?;
        }
        look_for(&source).await?;
        look_for(&target).await?;
        let id = checkpoint_id(&source, order, base_id).await?;
        let mut checkpoint = if order.use_checkpoints {
            Checkpoint::read(&source, &target, &id).await?
        } else {
            Checkpoint::none(&id)
        };
        if let Some(since) = order.since.clone().filter(|_| !checkpoint.is_known()) {
            checkpoint.start = since;
        }
        Ok(Self {
            order: Arc::clone(order),
            source,
            target,
            checkpoint,
            progress,
        })
    }

    /// Replicates to the end of the changes, or until the fault that ends a continuous replication. Returns what the
    /// client is told: JSON.
    pub(super) async fn run(mut self) -> Result<String, Fault> {
        let mut at = self.checkpoint.start.clone();
        let mut committed = at.clone();
        let (mut stats, mut use_bulk_get) = (Stats::default(), self.order.use_bulk_get);
        let mut due = Instant::now() + self.order.checkpoint_interval;
        loop {
            let mut changes = self.changes(&at, false).await?;
            if changes.rows.is_empty() && self.order.continuous {
                changes = self.wait(&at, &mut committed, &stats).await?;
            }
            let is_end = changes.rows.is_empty() && !self.order.continuous;
            let mut transfer = Transfer {
                source: &self.source,
                target: &self.target,
                use_bulk_get,
                stats,
            };
            transfer.bring(&changes.rows).await?;
            (stats, use_bulk_get) = (transfer.stats, transfer.use_bulk_get);
            at.clone_from(&changes.last);
            self.note(stats, &at, &committed, changes.pending);
            if is_end {
                break;
            }
            if Instant::now() >= due {
                self.commit(&at, &mut committed, &stats).await?;
                due = Instant::now() + self.order.checkpoint_interval;
            }
        }
        // Servers may write one place in several ways, but begin them with one number.
        let is_idle = stats == Stats::default() && number(&at) == number(&self.checkpoint.start);
        if !is_idle {
            self.commit(&at, &mut committed, &stats).await?;
        }
        Ok(match (self.order.use_checkpoints, &self.order.choice) {
            (false, _) => "{\"ok\":true,\"use_checkpoints\":false}".to_owned(),
            (true, Choice::Ids(_)) => self.checkpoint.short_outcome(&stats),
            (true, _) => self.checkpoint.outcome(&at, &stats, is_idle),
        })
    }

    /// Waits for changes behind `at`, and writes a checkpoint meanwhile if there is something to note.
    async fn wait(
        &mut self,
        at: &str,
        committed: &mut String,
        stats: &Stats,
    ) -> Result<Changes, Fault> {
        if at != committed {
            let due = Instant::now() + self.order.checkpoint_interval;
            tokio::select! {
                changes = self.changes(at, true) => return changes,
                () = sleep_until(due) => {}
            }
            self.commit(at, committed, stats).await?;
        }
        let changes = self.changes(at, true).await?;
        if changes.rows.is_empty() {
            sleep(PAUSE).await;
        }
        Ok(changes)
    }

    async fn commit(
        &mut self,
        at: &str,
        committed: &mut String,
        stats: &Stats,
    ) -> Result<(), Fault> {
        if self.order.use_checkpoints && at != committed {
            let (source, target) = (&self.source, &self.target);
            self.checkpoint.write(source, target, at, stats).await?;
            at.clone_into(committed);
            at.clone_into(&mut self.watched().checkpointed);
        }
        Ok(())
    }

    fn watched(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, stats: Stats, through: &str, checkpointed: &str, pending: Option<i64>) {
        *self.watched() = Progress {
            stats,
            through: through.to_owned(),
            checkpointed: checkpointed.to_owned(),
            pending,
        };
    }

    /// The next changes behind `since`; waits for some if it is told to.
    async fn changes(&self, since: &str, is_waiting: bool) -> Result<Changes, Fault> {
        let text = Json::new(since).string().unwrap_or(since.into());
        let mut query = vec![
            (
                "style",
                if self.order.winners_only {
                    "main_only"
                } else {
                    "all_docs"
                }
                .to_owned(),
            ),
            ("since", text.into_owned()),
            ("limit", self.order.batch.to_string()),
        ];
        if is_waiting {
            let beat = (self.order.patience / HEARTBEATS).as_millis().max(1);
            query.push(("feed", "longpoll".to_owned()));
            query.push(("heartbeat", beat.to_string()));
        }
        let body = match &self.order.choice {
            Choice::All => None,
            Choice::Ids(ids) => {
                query.push(("filter", "_doc_ids".to_owned()));
                Some(format!("{{\"doc_ids\":{ids}}}"))
            }
            Choice::Selector(selector) => {
                query.push(("filter", "_selector".to_owned()));
                Some(format!("{{\"selector\":{selector}}}"))
            }
            Choice::Filter(name, parameters) => {
                query.push(("filter", name.clone()));
                let given = parameters.iter();
                query.extend(given.map(|(name, value)| (name.as_str(), value.clone())));
                None
            }
        };
        let method = if body.is_some() {
            Method::POST
        } else {
            Method::GET
        };
        let path = format!(
            "/_changes{}",
            query_of(query.iter().map(|(name, value)| (*name, value.as_str())))
        );
        let text = self.source.json(method, &path, body.as_deref()).await?;
        self.parse(since, &text)
    }

    fn parse(&self, since: &str, text: &str) -> Result<Changes, Fault> {
        let malformed = |reason: &str| Fault::Malformed {
            request: format!("GET {}_changes", self.source.shown()),
            reason: reason.to_owned(),
        };
        let json = Json::new(text);
        let results = json.member("results");
        let results = results.filter(|it| it.kind() == Kind::Array);
        let results = results.ok_or_else(|| malformed("it has no results"))?;
        let mut rows = Vec::new();
        for row in results.elements() {
            let id = row.member("id").and_then(Json::string);
            let id = id.ok_or_else(|| malformed("a change has no id"))?;
            let leaves = row.member("changes").into_iter();
            let leaves = leaves.flat_map(|it| it.elements().collect::<Vec<_>>());
            let leaves: Option<Vec<String>> = leaves
                .map(|it| Some(it.member("rev")?.string()?.into_owned()))
                .collect();
            let leaves = leaves.filter(|leaves| !leaves.is_empty());
            let leaves = leaves.ok_or_else(|| malformed("a change has no revisions"))?;
            rows.push((id.into_owned(), leaves));
        }
        if rows.len() as u64 > self.order.batch {
            return Err(malformed("it has more changes than were asked for"));
        }
        let last = json.member("last_seq");
        let last = last.filter(|it| it.kind() != Kind::Null);
        let last = last.ok_or_else(|| malformed("it has no last_seq"))?.text();
        if !rows.is_empty() && last == since {
            return Err(malformed("its changes lead nowhere"));
        }
        Ok(Changes {
            rows,
            last: last.to_owned(),
            pending: json.member("pending").and_then(Json::integer),
        })
    }
}

/// Parameters as they stand behind a path; nothing if there are none.
fn query_of<'a>(parameters: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let pairs = parameters.map(|(name, value)| format!("{}={}", encode(name), encode(value)));
    let pairs: Vec<String> = pairs.collect();
    if pairs.is_empty() {
        return String::new();
    }
    format!("?{}", pairs.join("&"))
}

/// Makes the target if it is not there.
async fn create(target: &Peer, order: &Order) -> Result<(), Fault> {
    let parameters = order.create_parameters.iter();
    let path = query_of(parameters.map(|(name, value)| (name.as_str(), value.as_str())));
    match target.json(Method::PUT, &path, None).await {
        Err(Fault::Refused { status: 412, .. }) => Ok(()),
        Err(Fault::Refused {
            status: 401 | 403, ..
        }) => Err(Fault::Unauthorized(target.shown().to_owned())),
        made => made.map(drop),
    }
}

async fn look_for(peer: &Peer) -> Result<(), Fault> {
    match peer.json(Method::GET, "", None).await {
        Err(Fault::Refused { status: 404, .. }) => Err(Fault::NoDatabase(peer.shown().to_owned())),
        Err(Fault::Refused {
            status: 401 | 403, ..
        }) => Err(Fault::Unauthorized(peer.shown().to_owned())),
        found => found.map(drop),
    }
}

/// The name of the checkpoints: with a filter function it depends on the function, so that another one begins anew.
async fn checkpoint_id(source: &Peer, order: &Order, base_id: &str) -> Result<String, Fault> {
    let Choice::Filter(name, _) = &order.choice else {
        return Ok(base_id.to_owned());
    };
    let Some((design, name)) = name.split_once('/') else {
        return Ok(base_id.to_owned());
    };
    let path = format!("/_design/{}", encode(design));
    let answer =
        source.patiently(|| source.ask(Method::GET, &path, "application/json", Sent::Nothing));
    let answer = answer.await?;
    if answer.status == StatusCode::NOT_FOUND {
        let reason = format!("the source has no filter {design}/{name}");
        return Err(answer.malformed(reason));
    }
    let text = answer.json().await?;
    let filters = Json::new(&text).member("filters");
    let code = filters
        .and_then(|it| it.member(name))
        .map_or("", Json::text);
    let digest = Sha256::digest(format!("{base_id}{code}"));
    Ok(crate::uuids::hex(&digest[..16]))
}
