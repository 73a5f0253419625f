//! Orders that stand in the database `_replicator`: each document is one, and the server carries out those that it
//! finds, today's and tomorrow's. A document is told the end: `completed`, or `failed` if it is no order. What lies in
//! between is told by `_scheduler/docs`.
//!
//! A document belongs to the user who wrote it, its `owner`, and replicates with that user's rights. Server
//! administrators may name another user in `user_ctx`.

use super::order::{Order, with_members};
use super::{Job, Replicator};
use crate::app::App;
use crate::auth::{self, User};
use crate::clock;
use crate::failure::{Failure, Outcome};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use waystation_documents::database::{Feed, FeedRow, Filter};
use waystation_documents::json::{Json, Kind, quote};
use waystation_documents::{Database, Document, Edits, Error};

/// The database of orders.
pub(crate) const DATABASE: &str = "_replicator";
/// Between two looks for the database, if there is none.
const PAUSE: Duration = Duration::from_secs(1);
/// A state is written again so often if an update of the document comes between.
const ATTEMPTS: usize = 10;

/// Checks a document that `user` is to write to `database`, and if it is an order notes its owner.
pub(crate) fn prepare(database: &Database, user: &User, document: &mut Document) -> Outcome<()> {
    let is_plain = document.id.starts_with("_design/") || document.id.starts_with("_local/");
    if database.name() != DATABASE || is_plain || document.deleted {
        return Ok(());
    }
    let body = Json::new(&document.body);
    let text = |name: &str| body.member(name).and_then(Json::string);
    if text("_replication_state").as_deref() != Some("failed") {
        Order::parse(body).map_err(|fault| Failure::forbidden(fault.to_string()))?;
    }
    if !user.is_admin() && body.member("user_ctx").is_some() {
        let reason = "Only server admins may replicate as another user.";
        return Err(Failure::forbidden(reason));
    }
    let owner = body.member("owner").filter(|it| it.kind() != Kind::Null);
    let owner = owner.and_then(Json::string);
    match (owner, &user.name) {
        (Some(owner), Some(name)) if *owner == **name => Ok(()),
        (Some(_), _) if user.is_admin() => Ok(()),
        (Some(_), _) => Err(Failure::forbidden(
            "Can't update replication documents from other users.",
        )),
        (None, name) => {
            let name = name.as_deref().map_or("null".to_owned(), quote);
            document.body = with_members(body, &[], &[("owner", name)]);
            Ok(())
        }
    }
}

/// Follows the database of orders until the server stops.
pub(crate) async fn follow(app: Arc<App>) {
    let mut stopping = app.stopping.clone();
    tokio::select! {
        () = keep_following(&app) => {}
        _ = stopping.wait_for(|is_told| *is_told) => {}
    }
}

async fn keep_following(app: &Arc<App>) {
    loop {
        match app.run(|app| Ok(app.catalogue.get(DATABASE)?)).await {
            Ok(database) => {
                if let Err(failure) = follow_one(app, database).await {
                    log::warn!("the orders of replications: {}", failure.reason);
                }
            }
            Err(failure) => log::debug!("no orders of replications: {}", failure.reason),
        }
        for job in app.replicator.jobs() {
            if job.document().is_some() {
                app.replicator.cancel(&job);
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Carries out what `database` orders, until it is deleted.
async fn follow_one(app: &Arc<App>, database: Arc<Database>) -> Outcome<()> {
    let mut updates: watch::Receiver<u64> = app.watch(&database);
    let mut feed = Feed {
        since: database.sequence("0")?,
        until: None,
        filter: Filter::All,
        limit: None,
        with_documents: true,
    };
    loop {
        updates.borrow_and_update();
        let source = Arc::clone(&database);
        let page = app.run(move |_| {
            let page = source.changes(&mut feed)?;
            Ok((feed, page))
        });
        let (reader, page) = page.await?;
        feed = reader;
        for row in &page.rows {
            take(app, row).await;
        }
        if page.is_end && updates.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// Does what a document that was written or deleted means.
async fn take(app: &Arc<App>, row: &FeedRow) {
    if row.id.starts_with("_design/") {
        return;
    }
    let present = app.replicator.job_of(&row.id);
    let body = row.opened.as_ref().filter(|_| !row.deleted);
    let body = body.map(|opened| opened.version.body.as_str());
    let order = match body {
        Some(body) if !is_over(body) => Order::parse(Json::new(body)),
        _ => {
            if let Some(job) = present {
                app.replicator.cancel(&job);
            }
            return;
        }
    };
    let user = body.map(|body| acting(app, body.to_owned()));
    let user = match user {
        Some(user) => user.await,
        None => return,
    };
    let (order, user) = match (order, user) {
        (Ok(order), Ok(user)) => (order, user),
        (Err(fault), _) => return fail(app, &row.id, &fault.to_string()).await,
        (_, Err(failure)) => return fail(app, &row.id, &failure.reason).await,
    };
    if let Some(job) = present {
        if *job.order() == order && *job.user() == user {
            return;
        }
        app.replicator.cancel(&job);
    }
    let job = Replicator::start(app, order, user, Some(row.id.clone()));
    if job.document() != Some(&row.id) {
        let by = match job.document() {
            Some(other) => format!("document `{other}`"),
            None => "a request to _replicate".to_owned(),
        };
        let (id, document) = (job.id(), &row.id);
        let reason = format!(
            "Replication `{id}` specified by document `{document}` was already triggered by {by}"
        );
        fail(app, &row.id, &reason).await;
    }
}

fn is_over(body: &str) -> bool {
    let state = Json::new(body).member("_replication_state");
    let state = state.and_then(Json::string);
    matches!(state.as_deref(), Some("completed" | "failed"))
}

/// Whom the order in `body` acts for.
async fn acting(app: &Arc<App>, body: String) -> Outcome<User> {
    app.run(move |app| {
        let body = Json::new(&body);
        let text = |json: Json<'_>, name: &str| {
            let text = json.member(name).and_then(Json::string);
            text.map(std::borrow::Cow::into_owned)
        };
        if let Some(context) = body.member("user_ctx") {
            let roles = context.member("roles").into_iter();
            let roles = roles.flat_map(|it| it.elements().collect::<Vec<_>>());
            return Ok(User {
                name: text(context, "name"),
                roles: roles.filter_map(|it| it.string().map(Into::into)).collect(),
                ..User::default()
            });
        }
        auth::known_user(app, text(body, "owner"))
    })
    .await
}

/// Tells the document that its replication is done.
pub(super) async fn complete(app: &Arc<App>, job: &Job, id: &str) {
    let figures = format!(
        "{{\"start_time\":{},{}}}",
        quote(&job.begun()),
        job.figures()
    );
    let members = vec![
        ("_replication_state", quote("completed")),
        ("_replication_id", quote(job.id())),
        ("_replication_stats", figures),
    ];
    note(app, id, members).await;
}

/// Tells the document that it is no order that can be carried out.
async fn fail(app: &Arc<App>, id: &str, reason: &str) {
    let members = vec![
        ("_replication_state", quote("failed")),
        ("_replication_state_reason", quote(reason)),
    ];
    note(app, id, members).await;
}

/// Writes `members` into the document, if it is still there.
async fn note(app: &Arc<App>, id: &str, mut members: Vec<(&'static str, String)>) {
    let time = quote(&clock::iso(clock::seconds()));
    members.push(("_replication_state_time", time));
    let wanted = id.to_owned();
    let noted = app.run(move |app| {
        let database = app.catalogue.get(DATABASE)?;
        for _ in 0..ATTEMPTS {
            let opened = match database.open_winner(&wanted) {
                Err(Error::NotFound(_)) => return Ok(()),
                opened => opened?,
            };
            let old = [
                "_replication_state_reason",
                "_replication_stats",
                "_replication_id",
            ];
            let body = with_members(Json::new(&opened.version.body), &old, &members);
            let document = Document {
                id: wanted.clone(),
                revision: Some(opened.version.revision),
                body,
                ..Document::default()
            };
            match database.update_one(document, Edits::Interactive, app.durability()) {
                Err(Error::Conflict) => {}
                updated => {
                    updated?;
                    app.announce(&database);
                    return Ok(());
                }
            }
        }
        Err(Error::Conflict.into())
    });
    if let Err(failure) = noted.await {
        log::warn!(
            "the state of replication document {id} was not written: {}",
            failure.reason
        );
    }
}
