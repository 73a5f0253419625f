//! What a replication is to do, as a request or a document of `_replicator` says it.
//!
//! Names of members and the sentences of errors are CouchDB's. Where CouchDB takes URLs alone, the name of a database
//! of this server will do too.

use super::fault::Fault;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::Uri;
use sha2::{Digest, Sha256};
use std::time::Duration;
use waystation_documents::json::{Json, Kind, quote, unquote};

/// Changes that are worked on at once, unless the request says otherwise.
const BATCH: u64 = 500;
/// The most that a request may say.
const BATCH_MAX: u64 = 5000;
/// Between two checkpoints.
const CHECKPOINT_INTERVAL: Duration = Duration::from_secs(30);
/// How long the other side may say nothing.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a request is tried again.
const RETRIES: u64 = 5;

/// One of the two databases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// Of this server.
    Here(String),
    /// Of any server.
    There {
        /// Without credentials and without a slash at the end.
        url: Uri,
        /// Headers of each request, the `Authorization` among them.
        headers: Vec<(String, String)>,
    },
}

/// Which changes are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    All,
    /// Of these documents: a JSON array.
    Ids(String),
    /// Those that the selector matches: JSON.
    Selector(String),
    /// Those that a filter of the source lets pass: its name and parameters.
    Filter(String, Vec<(String, String)>),
}

/// A replication.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a member of an order"
)]
pub(crate) struct Order {
    pub(crate) source: Endpoint,
    pub(crate) target: Endpoint,
    pub(crate) choice: Choice,
    pub(crate) continuous: bool,
    pub(crate) create_target: bool,
    /// Parameters of a target that is created.
    pub(crate) create_parameters: Vec<(String, String)>,
    pub(crate) winners_only: bool,
    pub(crate) use_checkpoints: bool,
    pub(crate) use_bulk_get: bool,
    /// Where to begin if there is no checkpoint: as JSON.
    pub(crate) since: Option<String>,
    pub(crate) checkpoint_interval: Duration,
    pub(crate) batch: u64,
    pub(crate) retries: u64,
    pub(crate) patience: Duration,
}

fn wrong(reason: impl Into<String>) -> Fault {
    Fault::BadRequest(reason.into())
}

fn boolean(json: Json<'_>, name: &str) -> Result<Option<bool>, Fault> {
    let Some(value) = json.member(name) else {
        return Ok(None);
    };
    let known = value.boolean();
    let known = known.ok_or_else(|| wrong(format!("parameter `{name}` must be a boolean")))?;
    Ok(Some(known))
}

fn whole(json: Json<'_>, name: &str) -> Result<Option<u64>, Fault> {
    let Some(value) = json.member(name) else {
        return Ok(None);
    };
    let text = value.string().unwrap_or(value.text().into());
    let number = text.parse();
    let number = number.map_err(|_| wrong(format!("parameter `{name}` must be an integer")))?;
    Ok(Some(number))
}

/// The members of an object as parameters of a request: strings as they are, other values as JSON.
fn parameters(json: Json<'_>) -> Vec<(String, String)> {
    let text = |value: Json<'_>| value.string().unwrap_or(value.text().into()).into_owned();
    let members = json.members();
    members
        .map(|(name, value)| (unquote(name).into_owned(), text(value)))
        .collect()
}

impl Order {
    /// Reads a request or a document.
    ///
    /// # Errors
    /// [`Fault::BadRequest`].
    pub(crate) fn parse(json: Json<'_>) -> Result<Self, Fault> {
        let missing = || wrong("Missing replicator database");
        let endpoint = |name: &str| Endpoint::parse(json.member(name).ok_or_else(missing)?, name);
        if ["proxy", "source_proxy", "target_proxy"]
            .iter()
            .any(|name| json.member(name).is_some())
        {
            return Err(wrong("proxies are not supported"));
        }
        let interval = whole(json, "checkpoint_interval")?.map(Duration::from_millis);
        let patience = whole(json, "connection_timeout")?.map(Duration::from_millis);
        let create = json.member("create_target_params");
        if create.is_some_and(|it| it.kind() != Kind::Object) {
            return Err(wrong(
                "parameter `create_target_params` must be a JSON object",
            ));
        }
        let since = json
            .member("since_seq")
            .filter(|it| it.kind() != Kind::Null);
        Ok(Self {
            source: endpoint("source")?,
            target: endpoint("target")?,
            choice: choice(json)?,
            continuous: boolean(json, "continuous")?.unwrap_or_default(),
            create_target: boolean(json, "create_target")?.unwrap_or_default(),
            create_parameters: create.map(parameters).unwrap_or_default(),
            winners_only: boolean(json, "winning_revs_only")?.unwrap_or_default(),
            use_checkpoints: boolean(json, "use_checkpoints")?.unwrap_or(true),
            use_bulk_get: boolean(json, "use_bulk_get")?.unwrap_or(true),
            since: since.map(|since| since.text().to_owned()),
            checkpoint_interval: interval.unwrap_or(CHECKPOINT_INTERVAL),
            batch: whole(json, "worker_batch_size")?.map_or(BATCH, |it| it.clamp(1, BATCH_MAX)),
            retries: whole(json, "retries_per_request")?.unwrap_or(RETRIES),
            patience: patience.unwrap_or(PATIENCE),
        })
    }

    /// Names the replication, and with it its checkpoints: the same order of the same server and user has the same name.
    pub(crate) fn base_id(&self, server: &str, user: Option<&str>) -> String {
        let mut digest = Sha256::new();
        let mut add = |text: &str| {
            digest.update((text.len() as u64).to_le_bytes());
            digest.update(text);
        };
        add(server);
        for endpoint in [&self.source, &self.target] {
            add(&endpoint.shown());
            match endpoint {
                Endpoint::Here(_) => add(user.unwrap_or_default()),
                Endpoint::There { headers, .. } => {
                    let user = headers.iter().find(|(name, _)| name == "authorization");
                    add(&user.map_or(String::new(), |(_, value)| user_of(value)));
                }
            }
        }
        match &self.choice {
            Choice::All => add("all"),
            Choice::Ids(ids) => ["ids", ids].into_iter().for_each(&mut add),
            Choice::Selector(selector) => ["selector", selector].into_iter().for_each(&mut add),
            Choice::Filter(name, parameters) => {
                ["filter", name].into_iter().for_each(&mut add);
                for (name, value) in parameters {
                    add(name);
                    add(value);
                }
            }
        }
        add(if self.winners_only {
            "winners"
        } else {
            "leaves"
        });
        crate::uuids::hex(&digest.finalize()[..16])
    }

    /// What stands behind the base in the replication's whole name.
    pub(crate) fn id_suffix(&self) -> &'static str {
        match (self.continuous, self.create_target) {
            (false, false) => "",
            (true, false) => "+continuous",
            (false, true) => "+create_target",
            (true, true) => "+continuous+create_target",
        }
    }
}

fn choice(json: Json<'_>) -> Result<Choice, Fault> {
    let wanted = |name: &str| json.member(name).filter(|it| it.kind() != Kind::Null);
    match (wanted("doc_ids"), wanted("filter"), wanted("selector")) {
        (None, None, None) => Ok(Choice::All),
        (Some(ids), None, None) => {
            let is_text = |id: Json<'_>| id.kind() == Kind::String;
            if ids.kind() != Kind::Array || !ids.elements().all(is_text) {
                return Err(wrong("parameter `doc_ids` must be an array"));
            }
            Ok(Choice::Ids(ids.text().to_owned()))
        }
        (None, Some(filter), None) => {
            let name = filter.string();
            let name = name.ok_or_else(|| wrong("parameter `filter` must be a string"))?;
            let given = json.member("query_params");
            if given.is_some_and(|it| it.kind() != Kind::Object) {
                return Err(wrong("parameter `query_params` must be an object"));
            }
            let given = given.map(parameters).unwrap_or_default();
            Ok(Choice::Filter(name.into_owned(), given))
        }
        (None, None, Some(selector)) => {
            if selector.kind() != Kind::Object {
                return Err(wrong("parameter `selector` must be a JSON object"));
            }
            Ok(Choice::Selector(selector.text().to_owned()))
        }
        _ => {
            let reason = "`doc_ids`,`filter`,`selector` are mutually exclusive";
            Err(wrong(reason))
        }
    }
}

impl Endpoint {
    fn parse(json: Json<'_>, name: &str) -> Result<Self, Fault> {
        let invalid = || wrong(format!("{name} has an invalid url"));
        let object = (json.kind() == Kind::Object).then_some(json);
        let text = match object {
            Some(object) => object.member("url").and_then(Json::string),
            None => json.string(),
        };
        let text = text.ok_or_else(invalid)?;
        if !text.contains("://") {
            let is_name = object.is_none() && !text.is_empty();
            return is_name
                .then(|| Self::Here(text.into_owned()))
                .ok_or_else(invalid);
        }
        let (url, login) = without_login(&text).ok_or_else(invalid)?;
        let mut headers = Vec::new();
        if let Some(given) = object.and_then(|it| it.member("headers")) {
            let lower = |(name, value): (String, String)| (name.to_ascii_lowercase(), value);
            headers.extend(parameters(given).into_iter().map(lower));
        }
        let basic = object.and_then(|it| it.member("auth")?.member("basic"));
        let basic = basic.and_then(|it| {
            let text = |name| it.member(name).and_then(Json::string);
            Some(format!("{}:{}", text("username")?, text("password")?))
        });
        if let Some(login) = basic.or(login) {
            headers.retain(|(name, _)| name != "authorization");
            let login = format!("Basic {}", STANDARD.encode(login));
            headers.push(("authorization".to_owned(), login));
        }
        Ok(Self::There { url, headers })
    }

    /// The endpoint without its credentials.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Here(name) => name.clone(),
            Self::There { url, .. } => format!("{url}/"),
        }
    }
}

/// The URL without user and password, and both as `user:password`.
fn without_login(text: &str) -> Option<(Uri, Option<String>)> {
    let (scheme, rest) = text.split_once("://")?;
    if scheme != "http" && scheme != "https" {
        return None;
    }
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let (login, host) = match authority.rsplit_once('@') {
        Some((login, host)) => (Some(crate::query::decode(login, false).ok()?), host),
        None => (None, authority),
    };
    let path = path.trim_end_matches('/');
    if path.is_empty() || path.contains(['?', '#']) {
        return None;
    }
    let url: Uri = format!("{scheme}://{host}{path}").parse().ok()?;
    url.host().filter(|host| !host.is_empty())?;
    Some((url, login.filter(|login| login.contains(':'))))
}

/// The user whom an `Authorization` names; the whole value, if it is of another kind.
fn user_of(authorization: &str) -> String {
    let basic = authorization.strip_prefix("Basic ");
    let bytes = basic.and_then(|basic| STANDARD.decode(basic).ok());
    let login = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    let user = login.and_then(|login| login.split_once(':').map(|(user, _)| user.to_owned()));
    user.unwrap_or_else(|| authorization.to_owned())
}

/// A JSON object with the members of `json` but those of `names`, and `added` (names and JSON values) behind them.
pub(crate) fn with_members(json: Json<'_>, names: &[&str], added: &[(&str, String)]) -> String {
    let is_kept = |name: &str| !names.contains(&name) && added.iter().all(|(it, _)| *it != name);
    let kept = json.members().filter(|(name, _)| is_kept(&unquote(name)));
    let kept = kept.map(|(name, value)| format!("{name}:{}", value.text()));
    let added = added
        .iter()
        .map(|(name, value)| format!("{}:{value}", quote(name)));
    let members: Vec<String> = kept.chain(added).collect();
    format!("{{{}}}", members.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(text: &str) -> Result<Order, Fault> {
        Order::parse(Json::new(text))
    }

    #[test]
    fn credentials_come_out_of_urls() -> Result<(), Fault> {
        let order =
            order(r#"{"source":"http://ann:p%40w@host:5984/cars%2Fred/","target":"cars"}"#)?;
        assert_eq!(order.source.shown(), "http://host:5984/cars%2Fred/");
        let Endpoint::There { headers, .. } = &order.source else {
            panic!("a URL is elsewhere");
        };
        assert_eq!(
            headers[0].1,
            format!("Basic {}", STANDARD.encode("ann:p@w"))
        );
        assert_eq!(order.target, Endpoint::Here("cars".to_owned()));
        assert_eq!((order.batch, order.use_checkpoints), (BATCH, true));
        Ok(())
    }

    #[test]
    fn the_name_depends_on_what_is_replicated_and_not_on_the_password() -> Result<(), Fault> {
        let one = order(r#"{"source":"http://ann:x@host/a","target":"b"}"#)?;
        let other = order(
            r#"{"source":{"url":"http://host/a","auth":{"basic":{"username":"ann","password":"y"}}},"target":"b","continuous":true}"#,
        )?;
        assert_eq!(one.base_id("s", None), other.base_id("s", None));
        assert_ne!(one.base_id("s", None), one.base_id("t", None));
        assert_ne!(one.base_id("s", None), one.base_id("s", Some("bob")));
        let some = order(r#"{"source":"http://ann:x@host/a","target":"b","doc_ids":["x"]}"#)?;
        assert_ne!(one.base_id("s", None), some.base_id("s", None));
        assert_eq!((one.id_suffix(), other.id_suffix()), ("", "+continuous"));
        Ok(())
    }

    #[test]
    fn wrong_orders_are_refused() {
        let cases = [
            (r#"{"target":"b"}"#, "Missing replicator database"),
            (
                r#"{"source":"http://","target":"b"}"#,
                "source has an invalid url",
            ),
            (
                r#"{"source":"ftp://h/a","target":"b"}"#,
                "source has an invalid url",
            ),
            (
                r#"{"source":"a","target":"http://h/"}"#,
                "target has an invalid url",
            ),
            (r#"{"source":"a","target":7}"#, "target has an invalid url"),
            (
                r#"{"source":"a","target":"b","continuous":1}"#,
                "parameter `continuous` must be a boolean",
            ),
            (
                r#"{"source":"a","target":"b","doc_ids":{}}"#,
                "parameter `doc_ids` must be an array",
            ),
            (
                r#"{"source":"a","target":"b","filter":"x/y","query_params":[]}"#,
                "parameter `query_params` must be an object",
            ),
            (
                r#"{"source":"a","target":"b","doc_ids":[],"selector":{}}"#,
                "`doc_ids`,`filter`,`selector` are mutually exclusive",
            ),
        ];
        for (text, reason) in cases {
            let refused = order(text).expect_err(text);
            assert_eq!(refused.to_string(), reason, "{text}");
        }
    }
}
