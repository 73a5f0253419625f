//! A job: an order that is carried out, and what is told of it.
//!
//! ```text
//!   added -> started -> completed
//!               |  ^
//!               v  |        a job of a document waits 30 s after its first fault, and twice as long after each further
//!            crashed        one, up to 8.5 hours; a run that went well for two minutes makes its fault a first one
//! ```

use super::fault::Fault;
use super::order::{Endpoint, Order};
use super::session::{Progress, Session};
use super::{Replicator, documents};
use crate::app::App;
use crate::auth::User;
use crate::clock;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use waystation_documents::array;
use waystation_documents::json::quote;

/// Events that are remembered of a job.
const EVENTS_MAX: usize = 20;
/// The wait after a fault doubles so often.
const BACKOFF_DOUBLINGS_MAX: u32 = 10;
/// A run of so many seconds went well for a while.
const HEALTHY_SECONDS: u64 = 120;

#[derive(Debug, Clone, PartialEq, Eq)]
enum EventKind {
    Added,
    Started,
    Crashed(Fault),
    Stopped,
}

#[derive(Debug, Clone)]
struct Event {
    kind: EventKind,
    seconds: u64,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Running,
    Crashing,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Crashing => "crashing",
        }
    }
}

/// What a job came to.
pub(crate) type Ending = Result<String, Fault>;

/// See the module.
pub(crate) struct Job {
    id: String,
    base_id: String,
    order: Arc<Order>,
    user: User,
    document: Option<String>,
    begun: u64,
    progress: Arc<Mutex<Progress>>,
    events: Mutex<VecDeque<Event>>,
    /// Faults one after the other.
    crashes: Mutex<u32>,
    stop: watch::Sender<bool>,
    ending: watch::Sender<Option<Ending>>,
}

impl Job {
    pub(super) fn new(server: &str, order: Order, user: User, document: Option<String>) -> Self {
        let base_id = order.base_id(server, user.name.as_deref());
        let job = Self {
            id: format!("{base_id}{}", order.id_suffix()),
            base_id,
            order: Arc::new(order),
            user,
            document,
            begun: clock::seconds(),
            progress: Arc::default(),
            events: Mutex::default(),
            crashes: Mutex::default(),
            stop: watch::channel(false).0,
            ending: watch::channel(None).0,
        };
        job.note(EventKind::Added);
        job
    }

    /// Its whole name.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn order(&self) -> &Order {
        &self.order
    }

    pub(crate) fn user(&self) -> &User {
        &self.user
    }

    /// The document of `_replicator` that ordered it.
    pub(crate) fn document(&self) -> Option<&str> {
        self.document.as_deref()
    }

    /// Has it end, with the checkpoints that it has written.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&self) -> Ending {
        let mut ending = self.ending.subscribe();
        let ended = ending.wait_for(Option::is_some).await;
        let ended = ended.ok().and_then(|ended| ended.clone());
        ended.unwrap_or(Err(Fault::Stopped))
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, kind: EventKind) {
        let seconds = clock::seconds();
        let mut events = self.events();
        events.push_front(Event { kind, seconds });
        events.truncate(EVENTS_MAX);
    }

    /// Faults one after the other.
    pub(crate) fn crashes(&self) -> u32 {
        *self.crashes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a fault after a run of `seconds`. Returns how many there were one after the other.
    fn crash(&self, fault: &Fault, seconds: u64) -> u32 {
        self.note(EventKind::Crashed(fault.clone()));
        let mut crashes = self.crashes.lock().unwrap_or_else(PoisonError::into_inner);
        *crashes = if seconds > HEALTHY_SECONDS {
            1
        } else {
            *crashes + 1
        };
        *crashes
    }

    pub(crate) fn progress(&self) -> Progress {
        let progress = self.progress.lock();
        progress.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Carries the order out, until it is done, has failed for good, or is stopped.
    pub(super) async fn carry_out(self: Arc<Self>, app: Arc<App>) {
        let (mut stop, mut stopping) = (self.stop.subscribe(), app.stopping.clone());
        let stopped = async {
            tokio::select! {
                _ = stop.wait_for(|is_told| *is_told) => {}
                _ = stopping.wait_for(|is_told| *is_told) => {}
            }
        };
        let ending = tokio::select! {
            ending = self.run(&app) => ending,
            () = stopped => {
                self.note(EventKind::Stopped);
                Err(Fault::Stopped)
            }
        };
        if let (Some(document), Ok(_)) = (&self.document, &ending) {
            documents::complete(&app, &self, document).await;
        }
        app.replicator.forget(&self);
        self.ending.send_replace(Some(ending));
    }

    async fn run(&self, app: &Arc<App>) -> Ending {
        let replicator: &Replicator = &app.replicator;
        loop {
            let place = Arc::clone(&replicator.places).acquire_owned().await;
            self.note(EventKind::Started);
            let begin = clock::seconds();
            let progress = Arc::clone(&self.progress);
            let session = async {
                let opened = Session::open(app, &self.user, &self.order, &self.base_id, progress);
                opened.await?.run().await
            };
            let fault = match session.await {
                Ok(text) => return Ok(text),
                Err(fault) => fault,
            };
            drop(place);
            let crashes = self.crash(&fault, clock::seconds().saturating_sub(begin));
            log::warn!("replication {} failed: {fault}", self.id);
            if self.document.is_none() {
                return Err(fault);
            }
            tokio::time::sleep(backoff(app.settings.replication_backoff, crashes)).await;
        }
    }

    /// Where it stands.
    pub(crate) fn state(&self) -> State {
        match self.events().front().map(|event| &event.kind) {
            Some(EventKind::Started) => State::Running,
            Some(EventKind::Crashed(_)) => State::Crashing,
            _ => State::Pending,
        }
    }

    /// When it entered its state, in seconds since 1970.
    pub(crate) fn since(&self) -> u64 {
        self.events()
            .front()
            .map_or(self.begun, |event| event.seconds)
    }

    /// Its last fault, if it is the last event; else how far it has come: JSON.
    pub(crate) fn info_json(&self) -> String {
        if let Some(EventKind::Crashed(fault)) = self.events().front().map(|it| it.kind.clone()) {
            return format!("{{\"error\":{}}}", quote(&fault.in_lists()));
        }
        let figures = self.figures();
        if figures.is_empty() {
            "null".to_owned()
        } else {
            format!("{{{figures}}}")
        }
    }

    /// How far it has come, as members of an object; empty before its first batch.
    pub(crate) fn figures(&self) -> String {
        let progress = self.progress();
        if progress.through.is_empty() {
            return String::new();
        }
        let stats = progress.stats;
        let pending = progress
            .pending
            .map_or("null".to_owned(), |it| it.to_string());
        format!(
            "\"revisions_checked\":{},\"missing_revisions_found\":{},{},\"changes_pending\":{pending},\
             \"checkpointed_source_seq\":{},\"source_seq\":{},\"through_seq\":{}",
            stats.checked,
            stats.missing,
            stats.transfers(),
            progress.checkpointed,
            progress.through,
            progress.through,
        )
    }

    /// When it was ordered, as people read it.
    pub(crate) fn begun(&self) -> String {
        clock::iso(self.begun)
    }

    /// The events, the newest first: JSON.
    pub(crate) fn history_json(&self) -> String {
        let event = |event: &Event| {
            let time = quote(&clock::iso(event.seconds));
            let (kind, reason) = match &event.kind {
                EventKind::Added => ("added", None),
                EventKind::Started => ("started", None),
                EventKind::Stopped => ("stopped", None),
                EventKind::Crashed(fault) => ("crashed", Some(quote(&fault.in_lists()))),
            };
            let reason = reason.map_or(String::new(), |it| format!(",\"reason\":{it}"));
            format!("{{\"timestamp\":{time},\"type\":\"{kind}\"{reason}}}")
        };
        array(self.events().iter().map(event))
    }

    /// Source and target without their credentials, as members of an object.
    pub(crate) fn ends_json(&self) -> String {
        let shown = |endpoint: &Endpoint| quote(&endpoint.shown());
        let (source, target) = (shown(&self.order.source), shown(&self.order.target));
        format!("\"source\":{source},\"target\":{target}")
    }
}

/// The wait after so many faults (from 1).
fn backoff(first: Duration, crashes: u32) -> Duration {
    first * (1 << crashes.saturating_sub(1).min(BACKOFF_DOUBLINGS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_eight_hours() {
        let first = Duration::from_secs(30);
        let waits: Vec<u64> = [1, 2, 5, 11, 12, 99]
            .map(|crashes| backoff(first, crashes).as_secs())
            .to_vec();
        assert_eq!(waits, [30, 60, 480, 30_720, 30_720, 30_720]);
    }
}
