//! Replications as clients order, watch and cancel them: `_replicate`, `_scheduler`, `_active_tasks`.

use crate::failure::{Failure, Outcome};
use crate::handlers::server::NODE;
use crate::replicator::{Fault, Job, Order, Replicator, State, documents};
use crate::reply::{self, Reply};
use crate::request::Call;
use hyper::StatusCode;
use waystation_documents::array;
use waystation_documents::database::Listing;
use waystation_documents::json::{Json, quote};

/// Rows of an answer that names no limit.
const LIMIT: usize = 100;

pub(crate) async fn replicate(mut call: Call) -> Outcome<Reply> {
    call.allow("POST")?;
    if call.user.name.is_none() && !call.user.is_admin() {
        return Err(Failure::unauthorized(
            "You are not authorized to replicate.",
        ));
    }
    let text = call.take_object().await?;
    let json = Json::new(&text);
    let is_cancel = match json.member("cancel") {
        None => false,
        Some(cancel) => cancel
            .boolean()
            .ok_or_else(|| Fault::BadRequest("parameter `cancel` must be a boolean".to_owned()))?,
    };
    if is_cancel {
        return cancel(&call, json);
    }
    let order = Order::parse(json)?;
    let continuous = order.continuous;
    let job = Replicator::start(&call.app, order, call.user.clone(), None);
    if continuous {
        let id = quote(job.id());
        let text = format!("{{\"ok\":true,\"_local_id\":{id}}}");
        return Ok(reply::json(StatusCode::ACCEPTED, text));
    }
    Ok(reply::ok(job.ended().await?))
}

fn cancel(call: &Call, json: Json<'_>) -> Outcome<Reply> {
    let named = ["_local_id", "replication_id", "id"];
    let named = named.iter().find_map(|name| json.member(name)?.string());
    let id = if let Some(id) = named {
        id.into_owned()
    } else {
        let order = Order::parse(json)?;
        let base = order.base_id(&call.app.uuid, call.user.name.as_deref());
        format!("{base}{}", order.id_suffix())
    };
    let job = call.app.replicator.job(&id);
    let job = job.ok_or_else(|| Failure::not_found("missing"))?;
    if job.user().name != call.user.name {
        call.user.require_admin()?;
    }
    call.app.replicator.cancel(&job);
    Ok(reply::ok(format!(
        "{{\"ok\":true,\"_local_id\":{}}}",
        quote(&id)
    )))
}

fn or_null(text: Option<&str>) -> String {
    text.map_or("null".to_owned(), quote)
}

/// The database that ordered the job, if one did.
fn database_of(job: &Job) -> String {
    or_null(job.document().map(|_| documents::DATABASE))
}

/// A row of `_active_tasks` for each replication that runs.
pub(crate) fn tasks(call: &Call) -> Vec<String> {
    let jobs = call.app.replicator.jobs().into_iter();
    let running = jobs.filter(|job| job.state() == State::Running);
    let task = |job: std::sync::Arc<Job>| {
        let figures = job.figures();
        let figures = if figures.is_empty() {
            figures
        } else {
            format!(",{figures}")
        };
        let order = job.order();
        format!(
            "{{\"node\":{NODE},\"type\":\"replication\",\"replication_id\":{},\"user\":{},\"database\":{},\"doc_id\":{},\
             {},\"continuous\":{},\"checkpoint_interval\":{},\"started_on\":{},\"updated_on\":{}{figures}}}",
            quote(job.id()),
            or_null(job.user().name.as_deref()),
            database_of(&job),
            or_null(job.document()),
            job.ends_json(),
            order.continuous,
            order.checkpoint_interval.as_millis(),
            job.since(),
            crate::clock::seconds(),
        )
    };
    running.map(task).collect()
}

pub(crate) async fn scheduler(call: Call) -> Outcome<Reply> {
    call.user.require_admin()?;
    call.allow("GET")?;
    let names: Vec<&str> = call.segments[1..].iter().map(String::as_str).collect();
    match names.as_slice() {
        ["jobs"] => jobs(&call),
        ["jobs", id] => {
            let job = call.app.replicator.job(id);
            let job = job.ok_or_else(|| Failure::not_found("missing"))?;
            Ok(reply::ok(job_json(&job)))
        }
        ["docs"] | ["docs", documents::DATABASE] => docs(&call).await,
        ["docs", documents::DATABASE, id] => doc(&call, id).await,
        ["docs", ..] => Err(Failure::bad_request("Invalid path")),
        _ => Err(Failure::not_found("missing")),
    }
}

/// The rows that `skip` and `limit` leave, and how many stand before them.
fn cut(call: &Call, rows: Vec<String>) -> Outcome<(Vec<String>, usize)> {
    let whole = |name: &str| -> Outcome<Option<usize>> {
        let given = call.query.whole(name)?;
        Ok(given.map(|it| usize::try_from(it).unwrap_or(usize::MAX)))
    };
    let skip = whole("skip")?.unwrap_or(0).min(rows.len());
    let limit = whole("limit")?.unwrap_or(LIMIT);
    Ok((rows.into_iter().skip(skip).take(limit).collect(), skip))
}

fn jobs(call: &Call) -> Outcome<Reply> {
    let jobs = call.app.replicator.jobs();
    let total = jobs.len();
    let rows = jobs.iter().map(|job| job_json(job)).collect();
    let (rows, offset) = cut(call, rows)?;
    let rows = array(rows);
    Ok(reply::ok(format!(
        "{{\"total_rows\":{total},\"offset\":{offset},\"jobs\":{rows}}}"
    )))
}

fn job_json(job: &Job) -> String {
    let id = quote(job.id());
    // Jobs are no processes here: the name of a running one tells it from one that waits.
    let process = if job.state() == State::Running {
        id.as_str()
    } else {
        "null"
    };
    format!(
        "{{\"database\":{},\"id\":{id},\"pid\":{process},{},\"user\":{},\"doc_id\":{},\"info\":{},\"history\":{},\
         \"node\":{NODE},\"start_time\":{}}}",
        database_of(job),
        job.ends_json(),
        or_null(job.user().name.as_deref()),
        or_null(job.document()),
        job.info_json(),
        job.history_json(),
        quote(&job.begun()),
    )
}

/// What becomes of the orders in `_replicator`.
async fn docs(call: &Call) -> Outcome<Reply> {
    let wanted = call.query.get("states").filter(|it| !it.is_empty());
    let wanted: Option<Vec<&str>> = wanted.map(|it| it.split(',').map(str::trim).collect());
    let listed = call.app.run(|app| {
        let database = app.catalogue.get(documents::DATABASE)?;
        let mut listing = Listing {
            with_documents: true,
            ..Listing::default()
        };
        let mut found = Vec::new();
        loop {
            let page = database.list(&listing)?;
            for listed in page.rows {
                let body = listed.opened.map(|opened| opened.version.body);
                found.push((listed.id, body.unwrap_or_default()));
            }
            match page.rest {
                Some(rest) => listing = rest,
                None => return Ok(found),
            }
        }
    });
    let listed = listed.await?;
    let orders = listed.iter().filter(|(id, _)| !id.starts_with("_design/"));
    let rows = orders.map(|(id, body)| doc_json(call, id, body));
    let is_wanted = |(state, _): &(String, String)| {
        let wanted = wanted.as_ref();
        wanted.is_none_or(|wanted| wanted.contains(&state.as_str()))
    };
    let rows: Vec<String> = rows.filter(is_wanted).map(|(_, row)| row).collect();
    let total = rows.len();
    let (rows, offset) = cut(call, rows)?;
    let rows = array(rows);
    Ok(reply::ok(format!(
        "{{\"total_rows\":{total},\"offset\":{offset},\"docs\":{rows}}}"
    )))
}

async fn doc(call: &Call, id: &str) -> Outcome<Reply> {
    let wanted = id.to_owned();
    let opened = call.app.run(move |app| {
        let database = app.catalogue.get(documents::DATABASE)?;
        Ok(database.open_winner(&wanted)?.version.body)
    });
    let body = opened.await?;
    Ok(reply::ok(doc_json(call, id, &body).1))
}

/// The state of an order, and what is told of it: of one that is carried out by its job, of others by what they say.
fn doc_json(call: &Call, id: &str, body: &str) -> (String, String) {
    let (database, document) = (quote(documents::DATABASE), quote(id));
    let head = format!("\"database\":{database},\"doc_id\":{document},\"node\":{NODE}");
    if let Some(job) = call.app.replicator.job_of(id) {
        let state = job.state().name();
        let row = format!(
            "{{{head},\"id\":{},{},\"state\":\"{state}\",\"info\":{},\"error_count\":{},\"last_updated\":{},\"start_time\":{}}}",
            quote(job.id()),
            job.ends_json(),
            job.info_json(),
            job.crashes(),
            quote(&crate::clock::iso(job.since())),
            quote(&job.begun()),
        );
        return (state.to_owned(), row);
    }
    let json = Json::new(body);
    let text = |name: &str| json.member(name).and_then(Json::string);
    let state = text("_replication_state").unwrap_or("initializing".into());
    let time = or_null(text("_replication_state_time").as_deref());
    let stats = json.member("_replication_stats");
    let (info, start, errors) = if &*state == "failed" {
        let reason = text("_replication_state_reason").unwrap_or_default();
        let info = format!("{{\"error\":{}}}", quote(&reason));
        (info, time.clone(), 1)
    } else {
        let start = stats.and_then(|it| it.member("start_time"));
        let start = start.map_or("null", Json::text).to_owned();
        (stats.map_or("null", Json::text).to_owned(), start, 0)
    };
    let ends = match Order::parse(json) {
        Ok(order) => {
            let (source, target) = (order.source.shown(), order.target.shown());
            format!(
                "\"source\":{},\"target\":{}",
                quote(&source),
                quote(&target)
            )
        }
        Err(_) => "\"source\":null,\"target\":null".to_owned(),
    };
    let row = format!(
        "{{{head},\"id\":null,{ends},\"state\":{},\"info\":{info},\"error_count\":{errors},\"last_updated\":{time},\"start_time\":{start}}}",
        quote(&state)
    );
    (state.into_owned(), row)
}
