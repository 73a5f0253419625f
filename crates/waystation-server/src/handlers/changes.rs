//! The feed of changes: read once, waited for, or followed for as long as the client listens.
//!
//! ```text
//!   normal        what has changed; then the end
//!   longpoll      the same, and if there is nothing, what changes next
//!   continuous    a line for each change, without end
//!   eventsource   the same as events for browsers
//! ```

use crate::app::App;
use crate::failure::{Failure, Outcome};
use crate::handlers::databases::security_of;
use crate::handlers::open::Wanted;
use crate::handlers::rows::Rows;
use crate::query::Query;
use crate::reply::{self, Gone, Pages, Reply};
use crate::request::Call;
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, COOKIE, HeaderName};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use waystation_documents::database::{Feed, FeedRow, Filter, FilterFunction, SelectorFilter};
use waystation_documents::json::{Json, Kind, quote};
use waystation_documents::views::{DesignDocument, Limits};
use waystation_documents::{Database, array};

/// A feed waits this long for a change, unless it says otherwise.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FeedKind {
    Normal,
    LongPoll,
    Continuous,
    Events,
}

/// A feed as it was asked for.
#[derive(Clone)]
struct Request {
    kind: FeedKind,
    feed: Feed,
    /// All leaves, and not only winners.
    all_leaves: bool,
    with_documents: bool,
    wanted: Wanted,
    /// Something is sent so often, to show that the connection lives.
    heartbeat: Option<Duration>,
    timeout: Duration,
}

pub(crate) async fn changes(mut call: Call) -> Outcome<Reply> {
    call.allow("GET,POST")?;
    let database = call.database().await?;
    call.user.require_all(&database)?;
    let body = match call.method.as_str() {
        "POST" => call.take_object().await?,
        _ => "{}".to_owned(),
    };
    let since = since(&call, Json::new(&body));
    let seen = seen(&call, &database);
    let (parsed, query) = (Arc::clone(&database), call.query.clone());
    let work = move |_: &App| {
        let request = Request::parse(&parsed, &query, Json::new(&body), &since, seen)?;
        Ok((request, format!("\"{}\"", parsed.update_sequence()?)))
    };
    let (request, tag) = call.app.run(work).await?;
    let is_tagged = request.kind == FeedKind::Normal && call.method == "GET";
    if is_tagged && call.has(&tag) {
        let mut reply = reply::empty(StatusCode::NOT_MODIFIED);
        reply::set(&mut reply, "ETag", &tag);
        return Ok(reply);
    }
    let content_type = match request.kind {
        FeedKind::Events => "text/event-stream",
        _ => "application/json",
    };
    let follower = Follower {
        updates: call.app.watch(&database),
        stopping: call.app.stopping.clone(),
        app: call.app,
        database,
        request,
        rows: 0,
    };
    let mut reply = reply::pages(content_type, move |pages| async move {
        let outcome = match follower.follow(&pages).await {
            Ok(()) | Err(End::Gone) => Ok(()),
            Err(End::Failed(failure)) => Err(failure),
        };
        (pages, outcome)
    });
    if is_tagged {
        reply::set(&mut reply, "ETag", &tag);
    }
    Ok(reply)
}

/// Where the feed is to begin: browsers that come back say it in a header.
fn since(call: &Call, body: Json<'_>) -> String {
    let header = call.header("last-event-id");
    if call.query.get("feed") == Some("eventsource") && !header.is_empty() {
        return header.to_owned();
    }
    let named = call.query.get("since").or(call.query.get("last-event-id"));
    let in_body = body.member("since").map(|since| match since.string() {
        Some(text) => text.into_owned(),
        None => since.text().to_owned(),
    });
    named
        .map(ToOwned::to_owned)
        .or(in_body)
        .unwrap_or_else(|| "0".to_owned())
}

impl Request {
    fn parse(
        database: &Database,
        query: &Query,
        body: Json<'_>,
        since: &str,
        seen: String,
    ) -> Outcome<Self> {
        let kind = match query.get("feed") {
            None | Some("normal") => FeedKind::Normal,
            Some("longpoll") => FeedKind::LongPoll,
            Some("continuous" | "live") => FeedKind::Continuous,
            Some("eventsource") => FeedKind::Events,
            Some(_) => {
                return Err(Failure::bad_request(
                    "Supported `feed` types: normal, continuous, live, longpoll, eventsource",
                ));
            }
        };
        let all_leaves = match query.get("style") {
            None | Some("main_only") => false,
            Some("all_docs") => true,
            Some(_) => {
                return Err(Failure::bad_request(
                    "Supported `style` values: main_only, all_docs",
                ));
            }
        };
        let number = |name: &str, reason: &str| -> Outcome<Option<u64>> {
            let text = query.get(name);
            let parsed = text.map(|text| text.parse().map_err(|_| Failure::bad_request(reason)));
            parsed.transpose()
        };
        let limit = number(
            "limit",
            "The limit parameter should be a non-negative integer",
        )?;
        let timeout = number(
            "timeout",
            "The timeout parameter should be a non-negative integer",
        )?;
        let heartbeat = match query.get("heartbeat") {
            None | Some("false") => None,
            Some("true") => Some(TIMEOUT),
            Some(_) => {
                let reason = "Invalid heartbeat value. Expecting a positive integer value (in milliseconds).";
                number("heartbeat", reason)?
                    .filter(|it| *it > 0)
                    .map(Duration::from_millis)
            }
        };
        let with_documents = query.is_true("include_docs");
        let descending = query.is_true("descending");
        Ok(Self {
            kind,
            all_leaves,
            feed: Feed {
                since: database.sequence(since)?,
                until: descending.then_some(u64::MAX),
                filter: if all_leaves {
                    filter(database, query, body, seen)?.of_all_leaves()
                } else {
                    filter(database, query, body, seen)?
                },
                // A feed of no changes is one of one change, as CouchDB has it.
                limit: limit.map(|limit| limit.max(1)),
                with_documents,
            },
            with_documents,
            wanted: Wanted::parse(query)?,
            heartbeat,
            timeout: timeout.map_or(TIMEOUT, Duration::from_millis),
        })
    }

    fn row(&self, database: &Database, row: FeedRow, rows: &mut Rows) -> Outcome<()> {
        let count = if self.all_leaves { row.leaves.len() } else { 1 };
        let leaves = row.leaves.iter().take(count);
        let leaves = array(leaves.map(|leaf| format!("{{\"rev\":{}}}", quote(&leaf.to_string()))));
        let deleted = if row.deleted { ",\"deleted\":true" } else { "" };
        let (sequence, id) = (quote(&row.sequence.to_string()), quote(&row.id));
        if self.kind == FeedKind::Events {
            rows.push("data: ");
        }
        rows.push(&format!(
            "{{\"seq\":{sequence},\"id\":{id},\"changes\":{leaves}{deleted}"
        ));
        if self.with_documents {
            rows.push(",\"doc\":");
            match row.opened {
                None => rows.push("null"),
                Some(opened) => rows.push_document(database, &row.id, opened, &self.wanted)?,
            }
        }
        rows.push("}");
        match self.kind {
            FeedKind::Events => rows.push(&format!("\nid: {sequence}\n\n")),
            FeedKind::Continuous => rows.push("\n"),
            FeedKind::Normal | FeedKind::LongPoll => {}
        }
        Ok(())
    }

    /// Whether rows stand in one JSON object.
    fn is_framed(&self) -> bool {
        matches!(self.kind, FeedKind::Normal | FeedKind::LongPoll)
    }
}

/// The request as functions of design documents see it: JSON.
fn seen(call: &Call, database: &Database) -> String {
    let pair = |(name, value): (&str, &str)| format!("{}:{}", quote(name), quote(value));
    let query: Vec<String> = call.query.iter().map(pair).collect();
    // What proves who calls is nothing for functions that others wrote.
    let is_secret = |name: &HeaderName| *name == AUTHORIZATION || *name == COOKIE;
    let headers = call.headers.iter().filter(|(name, _)| !is_secret(name));
    let headers = headers.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
    let headers: Vec<String> = headers.map(pair).collect();
    let path = array(call.segments.iter().map(|segment| quote(segment)));
    format!(
        "{{\"method\":{},\"path\":{path},\"query\":{{{}}},\"headers\":{{{}}},\"userCtx\":{},\"secObj\":{}}}",
        quote(call.method.as_str()),
        query.join(","),
        headers.join(","),
        call.user.context(database.name()),
        security_of(database)
    )
}

/// The design document and the function in it that `name` names.
fn function<'a>(
    database: &Database,
    name: &'a str,
    malformed: &str,
) -> Outcome<(DesignDocument, &'a str)> {
    let parts = name.split_once('/');
    let (design, function) = parts.ok_or_else(|| Failure::bad_request(malformed))?;
    let design = database.design_document(&format!("_design/{design}"))?;
    Ok((design, function))
}

fn filter(database: &Database, query: &Query, body: Json<'_>, seen: String) -> Outcome<Filter> {
    match query.get("filter") {
        None | Some("") => Ok(Filter::All),
        Some("_design") => Ok(Filter::Design),
        Some("_doc_ids") => {
            let in_query = query.json("doc_ids")?;
            let ids = match &in_query {
                Some(text) => Some(Json::new(text)),
                None => body.member("doc_ids"),
            };
            let ids = ids.filter(|ids| ids.kind() == Kind::Array);
            let missing =
                || Failure::bad_request("`doc_ids` filter parameter is not a list of doc ids.");
            let ids = ids.ok_or_else(missing)?.elements().filter_map(Json::string);
            Ok(Filter::Ids(
                ids.map(Into::into).collect::<HashSet<String>>(),
            ))
        }
        Some("_selector") => {
            let missing = || Failure::bad_request("Selector must be specified in POST payload");
            let selector = body.member("selector").ok_or_else(missing)?;
            if selector.kind() != Kind::Object {
                let reason = "Selector error: expected a JSON object";
                return Err(Failure::bad_request(reason));
            }
            let filter = SelectorFilter::parse(selector);
            let wrong = |error| Failure::bad_request(format!("Selector error: {error}"));
            Ok(Filter::Selector(filter.map_err(wrong)?))
        }
        Some("_view") => {
            let missing = || Failure::bad_request("`view` filter parameter is not provided.");
            let name = query.get("view").ok_or_else(missing)?;
            let malformed = "`view` must be of the form `designname/viewname`";
            let (design, name) = function(database, name, malformed)?;
            let view = FilterFunction::of_view(design, name, Limits::default())?;
            Ok(Filter::Function(view))
        }
        Some(name) => {
            let malformed = "`filter` parameter must be of the form `designname/filtername`";
            let (design, name) = function(database, name, malformed)?;
            let filter = FilterFunction::of_filter(design, name, seen, Limits::default())?;
            Ok(Filter::Function(filter))
        }
    }
}

/// Why a feed ends before its time.
enum End {
    Gone,
    Failed(Failure),
}

impl From<Gone> for End {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A client that follows a feed.
struct Follower {
    app: Arc<App>,
    database: Arc<Database>,
    request: Request,
    updates: watch::Receiver<u64>,
    stopping: watch::Receiver<bool>,
    /// Rows that were sent.
    rows: u64,
}

impl Follower {
    async fn follow(mut self, pages: &Pages) -> Result<(), End> {
        if self.request.is_framed() {
            pages.send("{\"results\":[\n").await?;
        }
        loop {
            // What changes from here on wakes the feed, whether this page has it or not.
            self.updates.borrow_and_update();
            let (rows, is_end) = self.read().await?;
            if !rows.send(&self.app, &self.database, pages).await? {
                return Err(End::Gone);
            }
            if is_end && (self.is_done() || !self.wait(pages).await?) {
                break;
            }
        }
        self.finish(pages).await
    }

    /// Reads the next page.
    async fn read(&mut self) -> Outcome<(Rows, bool)> {
        let (database, mut request) = (Arc::clone(&self.database), self.request.clone());
        let mut count = self.rows;
        let work = move |_: &App| {
            let mut rows = Rows::default();
            let page = match database.changes(&mut request.feed) {
                // The feed of a deleted database ends.
                Err(waystation_documents::Error::NoDatabase) => {
                    return Ok((request, rows, count, true));
                }
                page => page?,
            };
            for row in page.rows {
                if request.is_framed() && count > 0 {
                    rows.push(",\n");
                }
                count += 1;
                request.row(&database, row, &mut rows)?;
            }
            Ok((request, rows, count, page.is_end))
        };
        let (request, rows, count, is_end) = self.app.run(work).await?;
        (self.request, self.rows) = (request, count);
        Ok((rows, is_end))
    }

    /// Whether the client has all that it wants, once there are no more changes.
    fn is_done(&self) -> bool {
        let is_full = self.request.feed.limit == Some(0);
        let is_upwards = self.request.feed.until.is_none();
        is_full
            || !is_upwards
            || match self.request.kind {
                FeedKind::Normal => true,
                FeedKind::LongPoll => self.rows > 0,
                FeedKind::Continuous | FeedKind::Events => false,
            }
    }

    /// Waits for a change, and shows meanwhile that the connection lives; whether there may be one.
    async fn wait(&mut self, pages: &Pages) -> Result<bool, Gone> {
        let deadline = Instant::now() + self.request.timeout;
        let stopping = &mut self.stopping;
        let stopped = async move {
            // Without a server to tell it, a feed ends too.
            let _ = stopping.wait_for(|is_told| *is_told).await.is_ok();
        };
        tokio::pin!(stopped);
        loop {
            let until = match self.request.heartbeat {
                Some(heartbeat) => Instant::now() + heartbeat,
                None => deadline,
            };
            tokio::select! {
                changed = self.updates.changed() => return Ok(changed.is_ok()),
                () = &mut stopped => return Ok(false),
                () = pages.gone() => return Err(Gone),
                () = sleep_until(until) => {
                    if self.request.heartbeat.is_none() {
                        return Ok(false);
                    }
                    let beat = match self.request.kind {
                        FeedKind::Events => "event: heartbeat\ndata: \n\n",
                        _ => "\n",
                    };
                    pages.send(beat).await?;
                }
            }
        }
    }

    async fn finish(self, pages: &Pages) -> Result<(), End> {
        let (database, feed) = (Arc::clone(&self.database), self.request.feed.clone());
        let is_cut = feed.limit.is_some();
        let work = move |_: &App| {
            let pending = if is_cut {
                database.pending(&feed)
            } else {
                Ok(0)
            };
            match pending {
                Err(waystation_documents::Error::NoDatabase) => Ok(0),
                pending => Ok(pending?),
            }
        };
        let pending = self.app.run(work).await?;
        let last = quote(&self.request.feed.since.to_string());
        let end = format!("\"last_seq\":{last},\"pending\":{pending}}}\n");
        let text = match self.request.kind {
            FeedKind::Normal | FeedKind::LongPoll => format!("\n],\n{end}"),
            FeedKind::Continuous => format!("{{{end}"),
            FeedKind::Events => String::new(),
        };
        Ok(pages.send(text).await?)
    }
}
