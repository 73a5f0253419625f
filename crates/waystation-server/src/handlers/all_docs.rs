//! Documents in the order of their identifiers: `_all_docs` and its kin.

use crate::app::App;
use crate::failure::{Failure, Outcome};
use crate::handlers::open::Wanted;
use crate::handlers::rows::Rows;
use crate::query::Query;
use crate::reply::{self, Pages, Reply};
use crate::request::Call;
use std::collections::VecDeque;
use std::sync::Arc;
use waystation_documents::Database;
use waystation_documents::database::{Listed, Listing};
use waystation_documents::json::{Json, Kind, quote};
use waystation_documents::partition::{bounds_of, check_partition};
use waystation_documents::shard::ScanOptions;

/// Keys that are looked up at once.
const KEYS_AT_ONCE: usize = 256;
/// What stands between two rows.
const BETWEEN: &str = ",\r\n";

/// A listing as it was asked for.
#[derive(Clone)]
struct Request {
    listing: Listing,
    /// These documents and no others, in this order: canonical JSON of the keys.
    keys: Option<VecDeque<String>>,
    wanted: Wanted,
    with_documents: bool,
    /// Whether the end of the changes is wanted with the rows.
    with_sequence: bool,
}

pub(crate) async fn all_documents(call: Call) -> Outcome<Reply> {
    list(call, None).await
}

pub(crate) async fn design_documents(call: Call) -> Outcome<Reply> {
    list(call, Some(("_design/", "_design0"))).await
}

async fn list(mut call: Call, within: Option<(&str, &str)>) -> Outcome<Reply> {
    call.allow("GET,POST")?;
    let database = call.database().await?;
    call.user.require_all(&database)?;
    if call.method == "POST" {
        let text = call.take_object().await?;
        take_members(&mut call.query, Json::new(&text));
    }
    let request = Request::parse(&call.query, within)?;
    if request.listing.partition.is_some() && !database.is_partitioned() {
        return Err(Failure::bad_request("database is not partitioned"));
    }
    let app = call.app;
    let begin = request.head(&app, &database).await?;
    Ok(reply::pages("application/json", move |pages| async move {
        let written = request.write(&app, &database, &pages, begin).await;
        if written == Ok(true) {
            // If the client has gone, the answer is at its end too.
            let _ = pages.send("\n").await;
        }
        (pages, written.map(drop))
    }))
}

pub(crate) async fn queries(mut call: Call) -> Outcome<Reply> {
    call.allow("POST")?;
    let database = call.database().await?;
    call.user.require_all(&database)?;
    let text = call.take_object().await?;
    let queries = Json::new(&text).member("queries");
    let queries = queries.filter(|queries| queries.kind() == Kind::Array);
    let queries =
        queries.ok_or_else(|| Failure::bad_request("`queries` member must be an array."))?;
    let parse = |json| {
        let mut query = call.query.clone();
        take_members(&mut query, json);
        Request::parse(&query, None)
    };
    let requests: Vec<Request> = queries.elements().map(parse).collect::<Outcome<_>>()?;
    let app = call.app;
    Ok(reply::pages("application/json", move |pages| async move {
        let written = async {
            let mut lead = "{\"results\":[\r\n";
            for request in requests {
                let begin = lead.to_owned() + &request.head(&app, &database).await?;
                lead = ",\r\n";
                if !request.write(&app, &database, &pages, begin).await? {
                    return Ok(());
                }
            }
            let begun = if lead.starts_with('{') { lead } else { "" };
            // If the client has gone, the answer is at its end too.
            let _ = pages.send(format!("{begun}\r\n]}}\n")).await;
            Ok(())
        };
        let written = written.await;
        (pages, written)
    }))
}

/// Takes the members of a body as parameters: texts as they stand, other values as JSON.
fn take_members(query: &mut Query, json: Json<'_>) {
    for (name, value) in json.members() {
        query.set(&waystation_documents::json::unquote(name), value.text());
    }
}

/// Keeps of `scan` what lies between the identifiers of `bounds`.
fn narrow(scan: &mut ScanOptions, (begin, end): (String, String)) {
    let (from, to) = (scan.from.take(), scan.to.take());
    let higher =
        |given: Option<String>, bound: String| given.map_or(bound.clone(), |it| it.max(bound));
    let lower =
        |given: Option<String>, bound: String| given.map_or(bound.clone(), |it| it.min(bound));
    if scan.descending {
        scan.from = Some(lower(from, end));
        scan.to = Some(higher(to, begin));
    } else {
        scan.from = Some(higher(from, begin));
        scan.to = Some(lower(to, end));
    }
}

/// The keys that are asked for one by one, the last one first if `descending`.
fn keys_of(query: &Query, descending: bool) -> Outcome<Option<VecDeque<String>>> {
    let Some(text) = query.json("keys")? else {
        return Ok(None);
    };
    let json = Json::new(&text);
    if json.kind() != Kind::Array {
        return Err(Failure::bad_request("`keys` body member must be an array."));
    }
    let keys = json.elements().map(|key| key.text().to_owned());
    let mut keys: VecDeque<String> = keys.collect();
    if descending {
        keys = keys.into_iter().rev().collect();
    }
    Ok(Some(keys))
}

impl Request {
    fn parse(query: &Query, within: Option<(&str, &str)>) -> Outcome<Self> {
        let text = |names: [&str; 2]| -> Outcome<Option<String>> {
            for name in names {
                if let Some(json) = query.json(name)? {
                    let key = Json::new(&json).string().map(std::borrow::Cow::into_owned);
                    return Ok(Some(key.unwrap_or_default()));
                }
            }
            Ok(None)
        };
        let is_range = ["key", "startkey", "start_key", "endkey", "end_key"];
        if query.get("keys").is_some() && is_range.iter().any(|name| query.get(name).is_some()) {
            let reason = "`keys` is incompatible with `key`, `start_key` and `end_key`";
            return Err(Failure::query(reason));
        }
        let descending = query.is_true("descending");
        let mut scan = ScanOptions {
            from: text(["startkey", "start_key"])?,
            to: text(["endkey", "end_key"])?,
            is_before: query.boolean("inclusive_end")? == Some(false),
            descending,
            ..ScanOptions::default()
        };
        if let Some(key) = query.json("key")? {
            let key = Json::new(&key).string().map(std::borrow::Cow::into_owned);
            // No document has a key that is no text.
            let key = key.unwrap_or_default();
            scan.from = Some(key.clone());
            scan.to = Some(key);
            scan.is_before = false;
        }
        if let Some((begin, end)) = within {
            let (first, last) = if descending {
                (end, begin)
            } else {
                (begin, end)
            };
            scan.from.get_or_insert_with(|| first.to_owned());
            scan.to.get_or_insert_with(|| last.to_owned());
        }
        let partition = query.get("partition").map(ToOwned::to_owned);
        if let Some(partition) = &partition {
            check_partition(partition)?;
            narrow(&mut scan, bounds_of(partition));
        }
        let keys = keys_of(query, descending)?;
        let with_documents = query.boolean("include_docs")? == Some(true);
        Ok(Self {
            listing: Listing {
                scan,
                skip: query.whole("skip")?.unwrap_or(0),
                limit: query.whole("limit")?,
                with_documents,
                partition,
            },
            keys,
            wanted: Wanted::parse(query)?,
            with_documents,
            with_sequence: query.boolean("update_seq")? == Some(true),
        })
    }

    /// What stands before the rows.
    async fn head(&self, app: &Arc<App>, database: &Arc<Database>) -> Outcome<String> {
        let (database, listing) = (Arc::clone(database), self.listing.clone());
        let (by_key, with_sequence) = (self.keys.is_some(), self.with_sequence);
        let work = move |_: &App| {
            let info = database.info()?;
            let total = match &listing.partition {
                None => info.documents,
                Some(partition) => database.count_partition(partition)?,
            };
            let offset = if by_key {
                None
            } else {
                database.offset(&listing)?
            };
            let offset = offset.map(|offset| offset.min(total));
            let offset = offset.map_or("null".to_owned(), |offset| offset.to_string());
            let sequence = if with_sequence {
                format!(
                    ",\"update_seq\":{}",
                    quote(&info.update_sequence.to_string())
                )
            } else {
                String::new()
            };
            Ok(format!(
                "{{\"total_rows\":{total},\"offset\":{offset}{sequence},\"rows\":[\r\n"
            ))
        };
        app.run(work).await
    }

    /// Writes `begin`, all rows and the end; whether the client is still there.
    async fn write(
        mut self,
        app: &Arc<App>,
        database: &Arc<Database>,
        pages: &Pages,
        begin: String,
    ) -> Outcome<bool> {
        let mut rows = Rows::default();
        rows.push(&begin);
        let mut lead = "";
        loop {
            let source = Arc::clone(database);
            let work = move |_: &App| {
                let is_end = self.next(&source, &mut rows, &mut lead)?;
                Ok((self, rows, lead, is_end))
            };
            let (request, mut page, next_lead, is_end) = app.run(work).await?;
            (self, lead) = (request, next_lead);
            if is_end {
                page.push("\r\n]}");
            }
            if !page.send(app, database, pages).await? {
                return Ok(false);
            }
            if is_end {
                return Ok(true);
            }
            rows = Rows::default();
        }
    }

    /// Adds the next rows to `rows`, each behind `lead`; whether they are the last.
    fn next(
        &mut self,
        database: &Database,
        rows: &mut Rows,
        lead: &mut &'static str,
    ) -> Outcome<bool> {
        let Some(keys) = &mut self.keys else {
            let page = database.list(&self.listing)?;
            for row in page.rows {
                rows.push(std::mem::replace(lead, BETWEEN));
                self.row(database, &quote(&row.id), row, rows)?;
            }
            let is_end = page.rest.is_none();
            if let Some(rest) = page.rest {
                self.listing = rest;
            }
            return Ok(is_end);
        };
        let mut some = Vec::new();
        while some.len() < KEYS_AT_ONCE && self.listing.limit != Some(0) {
            let Some(key) = keys.pop_front() else { break };
            if self.listing.skip > 0 {
                self.listing.skip -= 1;
                continue;
            }
            self.listing.limit = self.listing.limit.map(|limit| limit - 1);
            some.push(key);
        }
        let is_end = keys.is_empty() || self.listing.limit == Some(0);
        let bounds = self.listing.partition.as_deref().map(bounds_of);
        let is_outside = |id: &str| {
            bounds
                .as_ref()
                .is_some_and(|(begin, end)| id < begin.as_str() || id >= end.as_str())
        };
        for key in &some {
            rows.push(std::mem::replace(lead, BETWEEN));
            let id = Json::new(key).string().filter(|id| !is_outside(id));
            let listed = match id {
                Some(id) => database.list_one(&id, self.with_documents)?,
                None => None,
            };
            match listed {
                Some(listed) => self.row(database, key, listed, rows)?,
                None => rows.push(&format!("{{\"key\":{key},\"error\":\"not_found\"}}")),
            }
        }
        Ok(is_end)
    }

    fn row(&self, database: &Database, key: &str, listed: Listed, rows: &mut Rows) -> Outcome<()> {
        let revision = quote(&listed.revision.to_string());
        let deleted = if listed.deleted {
            ",\"deleted\":true"
        } else {
            ""
        };
        let id = quote(&listed.id);
        rows.push(&format!(
            "{{\"id\":{id},\"key\":{key},\"value\":{{\"rev\":{revision}{deleted}}}"
        ));
        if self.with_documents {
            rows.push(",\"doc\":");
            match listed.opened {
                None => rows.push("null"),
                Some(opened) => rows.push_document(database, &listed.id, opened, &self.wanted)?,
            }
        }
        rows.push("}");
        Ok(())
    }
}
