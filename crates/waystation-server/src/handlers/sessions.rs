//! Sessions: login, who is logged in, and logout.

use crate::auth;
use crate::failure::{Failure, Outcome};
use crate::query::Query;
use crate::reply::{self, Reply};
use crate::request::Call;
use hyper::StatusCode;
use hyper::header::CONTENT_TYPE;
use waystation_documents::json::{Json, canonical, quote};

pub(crate) async fn session(call: Call) -> Outcome<Reply> {
    match call.method.as_str() {
        "GET" => current(&call),
        "POST" => open(call).await,
        "DELETE" => {
            let mut reply = reply::ok(r#"{"ok":true}"#);
            reply::set(&mut reply, "Set-Cookie", auth::CLOSING_COOKIE);
            Ok(reply)
        }
        _ => Err(Failure::method("GET,HEAD,POST,DELETE")),
    }
}

fn current(call: &Call) -> Outcome<Reply> {
    let user = &call.user;
    if user.name.is_none() && call.query.is_true("basic") {
        return Err(Failure::unauthorized("Please login."));
    }
    let name = user.name.as_deref().map_or("null".to_owned(), quote);
    let by = user
        .by
        .map_or(String::new(), |by| format!(",\"authenticated\":\"{by}\""));
    let handlers = call.app.settings.jwt.as_ref().map_or("", |_| "\"jwt\",");
    Ok(reply::ok(format!(
        "{{\"ok\":true,\"userCtx\":{{\"name\":{name},\"roles\":{}}},\
         \"info\":{{\"authentication_handlers\":[{handlers}\"cookie\",\"default\"]{by},\"authentication_db\":\"_users\"}}}}",
        user.roles_json()
    )))
}

async fn open(mut call: Call) -> Outcome<Reply> {
    let (name, password) = credentials(&mut call).await?;
    let user = auth::login(&call.app, name.clone(), password).await?;
    let Some(user) = user else {
        let failure = Failure::unauthorized("Name or password is incorrect.");
        let mut reply = reply::failed(&failure);
        reply::set(&mut reply, "Set-Cookie", auth::CLOSING_COOKIE);
        return Ok(reply);
    };
    let cookie = auth::open_session(&call.app, name.clone()).await?;
    let (name, roles) = (quote(&name), user.roles_json());
    let mut reply = reply::ok(format!("{{\"ok\":true,\"name\":{name},\"roles\":{roles}}}"));
    if let Some(next) = call.query.get("next") {
        // Only paths on this server: a link must not lead a user elsewhere.
        if next.starts_with('/') && !next.starts_with("//") {
            *reply.status_mut() = StatusCode::FOUND;
            reply::set(&mut reply, "Location", next);
        }
    }
    reply::set(&mut reply, "Set-Cookie", &cookie);
    Ok(reply)
}

async fn credentials(call: &mut Call) -> Outcome<(String, String)> {
    let media = call.header(CONTENT_TYPE).to_owned();
    let taken = call.take_body().await?;
    if media.starts_with("application/json") {
        let text =
            canonical(&taken.bytes).map_err(|_| Failure::bad_request("invalid UTF-8 JSON"))?;
        let text = |name: &str| {
            let value = Json::new(&text).member(name).and_then(Json::string);
            value.map(std::borrow::Cow::into_owned)
        };
        let name = text("name").or(text("username")).unwrap_or_default();
        return Ok((name, text("password").unwrap_or_default()));
    }
    if media.starts_with("application/x-www-form-urlencoded") {
        let form = String::from_utf8_lossy(&taken.bytes).into_owned();
        let form = Query::parse(&form)?;
        let text = |name: &str| form.get(name).map(ToOwned::to_owned);
        let name = text("name").or(text("username")).unwrap_or_default();
        return Ok((name, text("password").unwrap_or_default()));
    }
    Err(Failure::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "bad_content_type",
        "Content-Type must be 'application/x-www-form-urlencoded' or 'application/json'",
    ))
}
