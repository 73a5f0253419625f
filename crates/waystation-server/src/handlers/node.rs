//! The only node: its settings, and figures about its process.

use crate::auth::HashedAdmin;
use crate::config::ADMINS;
use crate::failure::{Failure, Outcome};
use crate::handlers::server::NODE;
use crate::reply::{self, Reply};
use crate::request::Call;
use hyper::StatusCode;
use std::fmt::Write;
use waystation_documents::json::{Json, quote};

pub(crate) async fn node(call: Call) -> Outcome<Reply> {
    call.user.require_admin()?;
    let Some(node) = call.segments.get(1) else {
        return Err(Failure::bad_request("Incomplete path to _node request"));
    };
    if !matches!(node.as_str(), "_local" | "nonode@nohost") {
        return Err(Failure::not_found(format!("no such node: {node}")));
    }
    let names: Vec<String> = call.segments[2..].to_vec();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    match names.as_slice() {
        [] => {
            call.allow("GET")?;
            Ok(reply::ok(format!("{{\"name\":{NODE}}}")))
        }
        ["_config", rest @ ..] => config(call, rest).await,
        ["_stats", path @ ..] => stats(&call, path),
        ["_system"] => system(&call),
        ["_prometheus"] => prometheus(&call),
        ["_versions"] => {
            call.allow("GET")?;
            let text =
                r#"{"collation_driver":{"name":"icu4x"},"javascript_engine":{"name":"quickjs"}}"#;
            Ok(reply::ok(text))
        }
        [
            "_restart" | "_smoosh" | "_nodes" | "_dbs" | "_expected_shards",
            ..,
        ] => Err(Failure::not_implemented()),
        _ => Err(Failure::not_found("missing")),
    }
}

async fn config(mut call: Call, names: &[&str]) -> Outcome<Reply> {
    match names {
        [] => {
            call.allow("GET")?;
            Ok(reply::ok(call.app.config.all()))
        }
        ["_reload"] => {
            call.allow("POST")?;
            Ok(reply::ok(r#"{"ok":true}"#))
        }
        [section] => {
            call.allow("GET")?;
            Ok(reply::ok(call.app.config.section(section)))
        }
        [section, key] => {
            call.allow("GET,PUT,DELETE")?;
            if call.method == "GET" {
                let value = call.app.config.get(section, key);
                let value = value.ok_or_else(|| Failure::not_found("unknown_config_value"))?;
                return Ok(reply::ok(quote(&value)));
            }
            let value = if call.method == "PUT" {
                let text = call.take_json().await?;
                let value = Json::new(&text).string();
                let value =
                    value.ok_or_else(|| Failure::bad_request("the value must be a string"))?;
                Some(value.trim().to_owned())
            } else {
                None
            };
            let (section, key) = ((*section).to_owned(), (*key).to_owned());
            let work = move |app: &crate::app::App| {
                let value = match value {
                    Some(password) if section == ADMINS => Some(HashedAdmin::hash(
                        &password,
                        app.settings.password_iterations,
                    )),
                    value => value,
                };
                app.config.set(&app.catalogue, &section, &key, value)
            };
            Ok(reply::ok(quote(&call.app.run(work).await?)))
        }
        _ => Err(Failure::not_found("missing")),
    }
}

fn counter(value: u64, description: &str) -> String {
    format!(
        "{{\"value\":{value},\"type\":\"counter\",\"desc\":{}}}",
        quote(description)
    )
}

fn stats(call: &Call, path: &[&str]) -> Outcome<Reply> {
    call.allow("GET")?;
    let counts = call.app.stats.counts();
    let methods = counts.methods.iter().map(|(name, count)| {
        let description = format!("number of HTTP {name} requests");
        format!("{}:{}", quote(name), counter(*count, &description))
    });
    let methods: Vec<String> = methods.collect();
    let statuses = counts.statuses.iter().map(|(status, count)| {
        let description = format!("number of HTTP {status} responses");
        format!("\"{status}\":{}", counter(*count, &description))
    });
    let statuses: Vec<String> = statuses.collect();
    let requests = counter(counts.requests, "number of HTTP requests");
    let text = format!(
        "{{\"couchdb\":{{\"httpd\":{{\"requests\":{requests}}},\"httpd_request_methods\":{{{}}},\
         \"httpd_status_codes\":{{{}}}}}}}",
        methods.join(","),
        statuses.join(",")
    );
    let mut json = Json::new(&text);
    for name in path {
        let member = json.member(name);
        json = member.ok_or_else(|| Failure::not_found("missing"))?;
    }
    Ok(reply::ok(json.text()))
}

/// The memory that the process has (bytes), as the operating system counts it; 0 where that does not tell.
fn memory_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next());
    kib.and_then(|it| it.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn system(call: &Call) -> Outcome<Reply> {
    call.allow("GET")?;
    let (uptime, memory) = (call.app.stats.uptime_seconds(), memory_bytes());
    Ok(reply::ok(format!(
        "{{\"uptime\":{uptime},\"memory\":{{\"processes\":{memory}}}}}"
    )))
}

fn prometheus(call: &Call) -> Outcome<Reply> {
    call.allow("GET")?;
    let counts = call.app.stats.counts();
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = writeln!(
        text,
        "# TYPE couchdb_uptime_seconds counter\ncouchdb_uptime_seconds {}",
        call.app.stats.uptime_seconds()
    );
    let _ = writeln!(
        text,
        "# TYPE couchdb_process_memory_bytes gauge\ncouchdb_process_memory_bytes {}",
        memory_bytes()
    );
    let _ = writeln!(
        text,
        "# TYPE couchdb_httpd_requests_total counter\ncouchdb_httpd_requests_total {}",
        counts.requests
    );
    let _ = writeln!(text, "# TYPE couchdb_httpd_request_methods counter");
    for (name, count) in &counts.methods {
        let _ = writeln!(
            text,
            "couchdb_httpd_request_methods{{method=\"{name}\"}} {count}"
        );
    }
    let _ = writeln!(text, "# TYPE couchdb_httpd_status_codes counter");
    for (status, count) in &counts.statuses {
        let _ = writeln!(
            text,
            "couchdb_httpd_status_codes{{code=\"{status}\"}} {count}"
        );
    }
    Ok(reply::bytes(
        StatusCode::OK,
        "text/plain; version=0.0.4",
        text,
    ))
}
