//! Views of design documents: rows and groups, as they are read, in pages that the client takes.
//!
//! All of a request is one text: for each query what stands before the rows, the rows, and the end. A page of it is read
//! on a blocking thread when the client has taken the pages before; what the rows are read from waits in between. The
//! first page is read before the answer begins, so that a query that fails at once has its status.

use crate::app::App;
use crate::failure::{Failure, Outcome};
use crate::handlers::documents;
use crate::handlers::open::Wanted;
use crate::handlers::rows::Rows;
use crate::query::Query;
use crate::reply::{self, Reply};
use crate::request::Call;
use std::sync::Arc;
use waystation_documents::database::{ViewAnswer, ViewEntries};
use waystation_documents::json::{Json, Kind, quote, unquote};
use waystation_documents::views::{DesignDocument, Limits, Update, ViewQuery, ViewRow};
use waystation_documents::{Database, Error};

/// A page ends when it has this many bytes.
const PAGE_BYTES: usize = 1 << 20;

/// What one query asks.
#[derive(Debug, Clone, Default)]
struct Parameters {
    query: ViewQuery,
    /// Included documents have the bytes of their attachments.
    attachments: bool,
}

impl Parameters {
    fn set(&mut self, name: &str, value: &str) -> Outcome<()> {
        if name == "attachments" {
            self.attachments = value == "true";
        } else {
            self.query.set(name, value)?;
        }
        Ok(())
    }

    /// Takes the parameters of the path.
    fn take(mut self, query: &Query) -> Outcome<Self> {
        for (name, value) in query.iter() {
            self.set(name, value)?;
        }
        Ok(self)
    }

    /// Takes the members of a body.
    fn take_members(mut self, json: Json<'_>) -> Outcome<Self> {
        for (name, value) in json.members() {
            self.set(&unquote(name), value.text())?;
        }
        Ok(self)
    }
}

/// Answers queries of a view: one, or the list of a body.
pub(crate) async fn view(mut call: Call) -> Outcome<Reply> {
    let is_list = call.segments.get(5).is_some();
    call.allow(if is_list { "POST" } else { "GET,POST" })?;
    let database = call.database().await?;
    call.user.require_all(&database)?;
    let body = match call.method.as_str() {
        "POST" => call.take_object().await?,
        _ => "{}".to_owned(),
    };
    let (id, name) = (design_id(&call), call.segments[4].clone());
    let (requests, is_list) = requests(&call.query, Json::new(&body), is_list)?;
    let is_lazy = requests.iter().any(|it| it.query.update == Update::Lazy);
    let read = Arc::clone(&database);
    let work = move |_: &App| {
        let design = Arc::new(read.design_document(&id)?);
        let view = design.view(&name)?;
        for request in &requests {
            request.query.check(&design, view)?;
        }
        let mut reading = Reading {
            database: read,
            design: Arc::clone(&design),
            name,
            waiting: requests.into_iter(),
            answer: None,
            lead: if is_list { "{\"results\":[\r\n" } else { "" },
            end: if is_list { "\r\n]}\n" } else { "\n" },
        };
        let first = reading.page()?;
        Ok((design, reading, first))
    };
    let app = call.app;
    let (design, reading, (page, is_end)) = app.run(work).await?;
    Ok(reply::pages("application/json", move |pages| async move {
        let written = write(&app, &pages, &database, reading, (page, is_end)).await;
        if is_lazy {
            build_later(app, database, design);
        }
        (pages, written)
    }))
}

fn design_id(call: &Call) -> String {
    format!("_design/{}", call.segments[2])
}

/// The queries of a request, and whether their answers stand in a list.
fn requests(query: &Query, body: Json<'_>, is_list: bool) -> Outcome<(Vec<Parameters>, bool)> {
    let queries = body.member("queries");
    if queries.is_none() && !is_list {
        let one = Parameters::default().take_members(body)?.take(query)?;
        return Ok((vec![one], false));
    }
    if body.member("keys").is_some() {
        let reason = "`keys` and `queries` are mutually exclusive";
        return Err(Failure::bad_request(reason));
    }
    let queries = queries.filter(|queries| queries.kind() == Kind::Array);
    let queries =
        queries.ok_or_else(|| Failure::bad_request("`queries` member must be an array."))?;
    let all = Parameters::default().take(query)?;
    let each = queries.elements().map(|it| all.clone().take_members(it));
    Ok((each.collect::<Outcome<_>>()?, true))
}

/// Sends the pages after the first one, too.
async fn write(
    app: &Arc<App>,
    pages: &reply::Pages,
    database: &Arc<Database>,
    mut reading: Reading,
    (mut page, mut is_end): (Rows, bool),
) -> Outcome<()> {
    while page.send(app, database, pages).await? && !is_end {
        (reading, (page, is_end)) = app
            .run(move |_| {
                let next = reading.page()?;
                Ok((reading, next))
            })
            .await?;
    }
    Ok(())
}

/// Builds the indexes of `design` after an answer.
fn build_later(app: Arc<App>, database: Arc<Database>, design: Arc<DesignDocument>) {
    tokio::spawn(async move {
        let build = move |_: &App| Ok(database.build_views(&design, Limits::default())?);
        if let Err(failure) = app.run(build).await {
            log::warn!("the views of a design document: {}", failure.reason);
        }
    });
}

/// The answers to queries of one view, on their way.
struct Reading {
    database: Arc<Database>,
    design: Arc<DesignDocument>,
    name: String,
    waiting: std::vec::IntoIter<Parameters>,
    /// The answer that is being read.
    answer: Option<Answer>,
    /// What stands before the next answer.
    lead: &'static str,
    end: &'static str,
}

/// One answer, on its way.
struct Answer {
    view: ViewAnswer,
    /// Included documents, if they are wanted.
    wanted: Option<Wanted>,
    is_begun: bool,
}

impl Reading {
    /// The next page, and whether it is the last.
    fn page(&mut self) -> Outcome<(Rows, bool)> {
        let mut page = Rows::default();
        while page.bytes() < PAGE_BYTES {
            if let Some(answer) = &mut self.answer {
                if !answer.row(&self.database, &mut page)? {
                    page.push("\r\n]}");
                    self.answer = None;
                }
            } else if let Some(parameters) = self.waiting.next() {
                let answer = self.open(&parameters)?;
                page.push(self.lead);
                page.push(&answer.head(&parameters.query));
                self.lead = ",\r\n";
                self.answer = Some(answer);
            } else {
                page.push(if self.lead.starts_with('{') {
                    self.lead
                } else {
                    ""
                });
                page.push(self.end);
                return Ok((page, true));
            }
        }
        Ok((page, false))
    }

    fn open(&self, parameters: &Parameters) -> Outcome<Answer> {
        let query = &parameters.query;
        let wanted = Wanted::beside_rows(query.conflicts, parameters.attachments);
        let view = self
            .database
            .view(&self.design, &self.name, query, Limits::default())?;
        Ok(Answer {
            view,
            wanted: query.include_docs.then_some(wanted),
            is_begun: false,
        })
    }
}

impl Answer {
    /// What stands before the rows.
    fn head(&self, query: &ViewQuery) -> String {
        let sequence = if query.update_seq {
            let sequence = quote(&self.view.update_sequence.to_string());
            format!("\"update_seq\":{sequence},")
        } else {
            String::new()
        };
        let figures = match self.view.entries {
            ViewEntries::Groups(_) => String::new(),
            ViewEntries::Rows(_) => {
                let offset = self.view.offset;
                let offset = offset.map_or("null".to_owned(), |offset| offset.to_string());
                let total = self.view.total_rows;
                format!("\"total_rows\":{total},\"offset\":{offset},")
            }
        };
        format!("{{{figures}{sequence}\"rows\":[\r\n")
    }

    /// Adds the next row to `page`, if there is one.
    fn row(&mut self, database: &Database, page: &mut Rows) -> Outcome<bool> {
        let between = if self.is_begun { ",\r\n" } else { "" };
        match &mut self.view.entries {
            ViewEntries::Groups(groups) => {
                let Some(group) = groups.next().transpose()? else {
                    return Ok(false);
                };
                let (key, value) = (group.key, group.value);
                page.push(&format!("{between}{{\"key\":{key},\"value\":{value}}}"));
            }
            ViewEntries::Rows(rows) => {
                let Some(row) = rows.next().transpose()? else {
                    return Ok(false);
                };
                let (id, key, value) = (quote(&row.id), &row.key, &row.value);
                page.push(&format!(
                    "{between}{{\"id\":{id},\"key\":{key},\"value\":{value}"
                ));
                if let Some(wanted) = &self.wanted {
                    page.push(",\"doc\":");
                    push_linked(database, &row, wanted, page)?;
                }
                page.push("}");
            }
        }
        self.is_begun = true;
        Ok(true)
    }
}

/// Adds the document that stands beside `row`; `null` if there is none.
fn push_linked(
    database: &Database,
    row: &ViewRow,
    wanted: &Wanted,
    page: &mut Rows,
) -> Outcome<()> {
    let Some(link) = row.link() else {
        page.push("null");
        return Ok(());
    };
    match documents::open(database, &link.id, link.revision.as_ref(), false) {
        Ok(opened) => page.push_document(database, &link.id, opened, wanted),
        Err(Error::NotFound(_)) => {
            page.push("null");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Figures about the views of a design document.
pub(crate) async fn info(call: Call) -> Outcome<Reply> {
    call.allow("GET")?;
    let database = call.database().await?;
    call.user.require_all(&database)?;
    let (id, name) = (design_id(&call), quote(&call.segments[2]));
    let work = move |_: &App| {
        let design = database.design_document(&id)?;
        let info = database.views_info(&design)?;
        let (sequence, pending, bytes) = (info.update_sequence, info.pending, info.bytes);
        let (signature, language) = (design.signature(), quote(design.language()));
        Ok(format!(
            "{{\"name\":{name},\"view_index\":{{\"signature\":\"{signature}\",\"language\":{language},\
             \"update_seq\":{sequence},\"purge_seq\":0,\
             \"updates_pending\":{{\"minimum\":{pending},\"preferred\":{pending},\"total\":{pending}}},\
             \"sizes\":{{\"file\":{bytes},\"external\":{bytes},\"active\":{bytes}}},\
             \"compact_running\":false,\"updater_running\":false,\
             \"waiting_clients\":0,\"waiting_commit\":false}}}}"
        ))
    };
    Ok(reply::ok(call.app.run(work).await?))
}
