//! The nodes: which there are, what of each database lies on them, and how that is changed.

use crate::failure::{Failure, Outcome};
use crate::handlers::server::NODE;
use crate::reply::{self, Reply};
use crate::request::Call;
use hyper::StatusCode;
use waystation_documents::array;
use waystation_documents::database::{
    FillState, LOCAL_NODE, NodeShare, NodeState, RebalanceRequest, ShardCopy, ShardMove, Standing,
};
use waystation_documents::json::{Json, Kind, quote};

/// A node's name as callers write it.
pub(crate) fn node_name(name: &str) -> &str {
    if name == "_local" { LOCAL_NODE } else { name }
}

/// `_membership` and `_rebalance`.
pub(crate) async fn nodes(call: Call) -> Outcome<Reply> {
    match call.segments[0].as_str() {
        "_rebalance" => rebalance(call).await,
        _ => membership(call).await,
    }
}

async fn membership(call: Call) -> Outcome<Reply> {
    call.user.require_admin()?;
    call.allow("GET")?;
    let states = call.app.catalogue.node_states();
    if states.is_empty() {
        return Ok(reply::ok(format!(
            "{{\"all_nodes\":[{NODE}],\"cluster_nodes\":[{NODE}]}}"
        )));
    }
    let names = array(states.iter().map(|state| quote(&state.name)));
    let shares = call.app.run(|app| Ok(app.catalogue.node_shares(None)?));
    let shares = object(shares.await?.iter().map(share));
    let scans = object(states.iter().map(scans));
    Ok(reply::ok(format!(
        "{{\"all_nodes\":{names},\"cluster_nodes\":{names},\"scans\":{scans},\"shares\":{shares}}}"
    )))
}

fn object(members: impl Iterator<Item = String>) -> String {
    let members: Vec<String> = members.collect();
    format!("{{{}}}", members.join(","))
}

/// What the scans of a node read in a second.
fn scans(state: &NodeState) -> String {
    let figure = |figure: Option<f64>| figure.map_or("null".to_owned(), |it| format!("{it:.0}"));
    let documents = figure(state.documents_per_second);
    let bytes = figure(state.bytes_per_second);
    format!(
        "{}:{{\"docs_per_second\":{documents},\"bytes_per_second\":{bytes}}}",
        quote(&state.name)
    )
}

/// The copies of shards that a node has, and is to have.
fn share(share: &NodeShare) -> String {
    let (planned, real) = (share.planned, share.real);
    format!(
        "{}:{{\"planned\":{planned},\"real\":{real}}}",
        quote(&share.node)
    )
}

/// The nodes whose copies may be read.
fn nodes_of(copies: &[ShardCopy]) -> String {
    let whole = copies.iter().filter(|it| it.standing.is_in_service());
    array(whole.map(|copy| quote(&copy.node)))
}

pub(crate) async fn shards(call: Call) -> Outcome<Reply> {
    call.allow("GET")?;
    let database = call.database().await?;
    let id = call.segments.get(2..).filter(|id| !id.is_empty());
    let id = id.map(|id| id.join("/"));
    let has_drives = call.app.settings.nodes.is_some();
    let text = call.app.run(move |app| {
        if let Some(id) = id {
            let (range, copies) = database.place_of(&id)?;
            let nodes = nodes_of(&copies);
            return Ok(format!("{{\"range\":\"{range}\",\"nodes\":{nodes}}}"));
        }
        let places = database.places()?;
        let place = |(range, copies): &(String, Vec<ShardCopy>)| {
            format!("\"{range}\":{}", nodes_of(copies))
        };
        let shards = object(places.iter().map(place));
        if !has_drives {
            return Ok(format!("{{\"shards\":{shards}}}"));
        }
        let unusual = |(range, copies): &(String, Vec<ShardCopy>)| {
            let copies = copies.iter().filter(|it| it.standing != Standing::Whole);
            let copies: Vec<String> = copies
                .map(|copy| format!("{}:\"{}\"", quote(&copy.node), copy.standing.name()))
                .collect();
            (!copies.is_empty()).then(|| format!("\"{range}\":{{{}}}", copies.join(",")))
        };
        let unusual = object(places.iter().filter_map(unusual));
        let shares = app.catalogue.node_shares(Some(&database))?;
        let shares = object(shares.iter().map(share));
        Ok(format!(
            "{{\"shards\":{shards},\"shares\":{shares},\"moving\":{unusual}}}"
        ))
    });
    Ok(reply::ok(text.await?))
}

/// Has shards move until each node has its share; `dry_run` tells what would move.
async fn rebalance(mut call: Call) -> Outcome<Reply> {
    call.user.require_admin()?;
    call.allow("POST")?;
    let text = call.take_object().await?;
    let request = request(Json::new(&text))?;
    let is_dry = request.is_dry;
    let moved = call.app.run(move |app| {
        let moved = app.catalogue.rebalance(&request)?;
        app.mending.wake();
        Ok(moved)
    });
    let moves = array(moved.await?.iter().map(shard_move));
    if is_dry {
        return Ok(reply::ok(format!("{{\"dry_run\":true,\"moves\":{moves}}}")));
    }
    let text = format!("{{\"ok\":true,\"moves\":{moves}}}");
    Ok(reply::json(StatusCode::ACCEPTED, text))
}

fn request(json: Json<'_>) -> Outcome<RebalanceRequest> {
    let mut request = RebalanceRequest::default();
    for (name, value) in json.members() {
        match (name, value.kind()) {
            ("\"dry_run\"", Kind::True | Kind::False) => {
                request.is_dry = value.kind() == Kind::True;
            }
            ("\"databases\"", Kind::Array) => {
                let names = value.elements().map(|it| it.string().map(Into::into));
                let names: Option<Vec<String>> = names.collect();
                let reason = "`databases` must be an array of names";
                request.databases = Some(names.ok_or_else(|| Failure::bad_request(reason))?);
            }
            ("\"weights\"", Kind::Object) => {
                let weight = |(name, value): (&str, Json<'_>)| {
                    let name = Json::new(name).string()?;
                    let weight: f64 = value.text().parse().ok()?;
                    let is_weight = weight.is_finite() && weight >= 0.0;
                    is_weight.then(|| (node_name(&name).to_owned(), weight))
                };
                let weights: Option<Vec<_>> = value.members().map(weight).collect();
                let reason = "`weights` must name nodes, each with a number that is not negative";
                request.weights = Some(weights.ok_or_else(|| Failure::bad_request(reason))?);
            }
            _ => {
                let reason = format!(
                    "{name} is no parameter; there are `dry_run` (a boolean), `databases` (names) and `weights` (numbers of nodes)"
                );
                return Err(Failure::bad_request(reason));
            }
        }
    }
    Ok(request)
}

fn shard_move(it: &ShardMove) -> String {
    let (database, range) = (quote(&it.database), quote(&it.range));
    let (source, target) = (quote(&it.source), quote(&it.target));
    format!("{{\"db\":{database},\"range\":{range},\"source\":{source},\"target\":{target}}}")
}

/// A row of `_active_tasks` for each copy that is being filled, or waits for it.
pub(crate) fn tasks(call: &Call) -> Vec<String> {
    call.app.catalogue.fills().iter().map(task).collect()
}

fn task(fill: &FillState) -> String {
    let text = |text: &Option<String>| text.as_deref().map_or("null".to_owned(), quote);
    let progress = match fill.total {
        0 => 0,
        total => (fill.compared.saturating_mul(100) / total).min(100),
    };
    format!(
        "{{\"node\":{NODE},\"type\":\"shard_copy\",\"database\":{},\"range\":{},\"source\":{},\"target\":{},\
         \"compared_bytes\":{},\"copied_bytes\":{},\"total_bytes\":{},\"progress\":{progress},\"error\":{}}}",
        quote(&fill.database),
        quote(&fill.range),
        text(&fill.source),
        quote(&fill.target),
        fill.compared,
        fill.copied,
        fill.total,
        text(&fill.failure),
    )
}
