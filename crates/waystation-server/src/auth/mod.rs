//! Who calls, and what the caller may do.
//!
//! A caller is named by a password in each request (Basic), by a session's cookie, or by a token (Bearer): a user's own, or
//! one that another service has signed, if the settings know its key. Without any of them the certificate of the
//! connection names the caller. Server administrators and other users come from the
//! settings or by tokens; further users are documents in `_users`. Without any administrator or user in the settings every
//! caller is an administrator: such a server listens on loopback addresses only.
//!
//! What a user of the settings may do stands in roles, as it does for all others: see [`roles`].

mod admin;
mod jwt;
mod password;
pub(crate) mod roles;
mod session;
mod users;

pub(crate) use admin::HashedAdmin;
pub use jwt::Jwt;
pub(crate) use users::prepare as prepare_user;

use crate::app::App;
use crate::failure::{Failure, Outcome};
use crate::route::Peer;
use crate::settings::Settings;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{AUTHORIZATION, COOKIE, HeaderMap};
use password::Verified;
use roles::ADMIN;
use std::sync::Arc;
use waystation_documents::json::{Json, Kind, quote};
use waystation_documents::{Database, array};

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct User {
    /// `None`: not said.
    pub(crate) name: Option<String>,
    pub(crate) roles: Vec<String>,
    /// How the caller was named.
    pub(crate) by: Option<&'static str>,
    /// A cookie that prolongs the session.
    pub(crate) cookie: Option<String>,
}

/// What a server knows of its users.
pub(crate) struct Authority {
    admins: Vec<crate::settings::Admin>,
    secret: [u8; 32],
    pub(crate) password_iterations: u32,
    verified: Verified,
}

impl Authority {
    pub(crate) fn new(settings: &Settings, secret: [u8; 32]) -> Self {
        Self {
            admins: settings.admins.clone(),
            secret,
            password_iterations: settings.password_iterations,
            verified: Verified::default(),
        }
    }
}

/// Whether there is no administrator, and no user in the settings.
pub(crate) fn has_no_users(app: &App) -> bool {
    app.authority.admins.is_empty()
        && app.config.now().admins.is_empty()
        && app.settings.users.now().is_empty()
}

/// Whether every caller is an administrator. Never where other machines reach the server, nor where its last user went.
pub(crate) fn is_open(app: &App) -> bool {
    app.began_without_users && has_no_users(app) && app.settings.listen.ip().is_loopback()
}

/// A caller that has no name: an administrator, if there is no other one.
fn nameless(app: &App) -> User {
    let role = is_open(app).then(|| ADMIN.to_owned());
    User {
        roles: role.into_iter().collect(),
        ..User::default()
    }
}

/// Names the caller of a request of `peer` with these headers.
pub(crate) async fn identify(app: &Arc<App>, peer: &Peer, headers: &HeaderMap) -> Outcome<User> {
    let text = |name| headers.get(name).and_then(|it| it.to_str().ok());
    if let Some(basic) = text(AUTHORIZATION).and_then(|it| it.strip_prefix("Basic ")) {
        let (name, password) = credentials(basic)?;
        let user = login(app, name, password).await?;
        return user.ok_or_else(|| Failure::unauthorized("Name or password is incorrect."));
    }
    if let Some(token) = text(AUTHORIZATION).and_then(|it| it.strip_prefix("Bearer "))
        && let Some(user) = bearer(app, token.trim())?
    {
        return Ok(user);
    }
    let cookies = text(COOKIE).unwrap_or_default().split(';');
    let mut sessions = cookies.filter_map(|it| it.trim().strip_prefix("AuthSession="));
    if let Some(cookie) = sessions.next().filter(|cookie| !cookie.is_empty()) {
        let cookie = cookie.to_owned();
        let user = app.run(move |app| session::resume(app, &cookie)).await?;
        if let Some(user) = user {
            return Ok(user);
        }
    }
    let users = app.settings.users.now();
    let certified = peer.certificate.as_ref();
    let certified = certified.and_then(|it| users.with_certificate(it));
    Ok(certified.map_or_else(|| nameless(app), |user| known(user, "certificate")))
}

/// A user of the settings.
fn known(user: &waystation_access::User, by: &'static str) -> User {
    User {
        name: Some(user.name.clone()),
        roles: roles::of(user),
        by: Some(by),
        cookie: None,
    }
}

/// The user whom a token names; `None` if this server takes no tokens.
fn bearer(app: &App, token: &str) -> Outcome<Option<User>> {
    let users = app.settings.users.now();
    if let Some(user) = users.with_token(token.as_bytes()) {
        return Ok(Some(known(user, "token")));
    }
    match &app.settings.jwt {
        Some(jwt) => jwt.identify(token).map(Some),
        None if users.have_tokens() => Err(Failure::unauthorized("The token is not known.")),
        None => Ok(None),
    }
}

/// The user `name` with the roles that it has now; without a name, or as a name that is not known, one that has none.
pub(crate) fn known_user(app: &App, name: Option<String>) -> Outcome<User> {
    let Some(name) = name else {
        return Ok(nameless(app));
    };
    let known = users::find(app, &name)?;
    Ok(User {
        roles: known.map(|known| known.roles).unwrap_or_default(),
        name: Some(name),
        ..User::default()
    })
}

/// The user of this name, if the password is right.
pub(crate) async fn login(app: &Arc<App>, name: String, password: String) -> Outcome<Option<User>> {
    app.run(move |app| {
        let Some(known) = users::find(app, &name)? else {
            return Ok(None);
        };
        let is_right = known.verify(&app.authority, &password);
        Ok(is_right.then_some(User {
            name: Some(name),
            roles: known.roles,
            by: Some("default"),
            cookie: None,
        }))
    })
    .await
}

/// A cookie of a new session of `name`.
pub(crate) async fn open_session(app: &Arc<App>, name: String) -> Outcome<String> {
    app.run(move |app| session::open(app, &name)).await
}

/// A cookie that ends the session.
pub(crate) const CLOSING_COOKIE: &str = "AuthSession=; Version=1; Path=/; HttpOnly";

fn credentials(basic: &str) -> Outcome<(String, String)> {
    let wrong = || Failure::bad_request("Authorization header has invalid base64 or no colon");
    let bytes = STANDARD.decode(basic.trim()).map_err(|_| wrong())?;
    let text = String::from_utf8(bytes).map_err(|_| wrong())?;
    let (name, password) = text.split_once(':').ok_or_else(wrong)?;
    Ok((name.to_owned(), password.to_owned()))
}

impl User {
    /// The caller as functions of design documents see it: JSON.
    pub(crate) fn context(&self, database: &str) -> String {
        let name = self.name.as_deref().map_or("null".to_owned(), quote);
        let roles = self.roles_json();
        format!(
            "{{\"db\":{},\"name\":{name},\"roles\":{roles}}}",
            quote(database)
        )
    }

    /// The roles of the caller: JSON.
    pub(crate) fn roles_json(&self) -> String {
        array(self.roles.iter().map(|role| quote(role)))
    }

    /// Whether the caller is a server administrator.
    pub(crate) fn is_admin(&self) -> bool {
        self.roles.iter().any(|role| role == ADMIN)
    }

    /// Refuses other callers than server administrators.
    pub(crate) fn require_admin(&self) -> Outcome<()> {
        let refused = || Failure::unauthorized("You are not a server admin.");
        self.is_admin().then_some(()).ok_or_else(refused)
    }

    /// Whether the caller administrates `database`.
    pub(crate) fn is_admin_of(&self, database: &Database) -> bool {
        self.is_admin() || self.is_listed(&database.security(), "admins")
    }

    /// Refuses other callers than administrators of `database`.
    pub(crate) fn require_admin_of(&self, database: &Database) -> Outcome<()> {
        let refused = || Failure::unauthorized("You are not a db or server admin.");
        self.is_admin_of(database).then_some(()).ok_or_else(refused)
    }

    /// Refuses callers that may not read and write `database`. Users reach their own documents in `_users`; orders of
    /// replications hold passwords, and are for administrators alone.
    pub(crate) fn require_member(&self, database: &Database) -> Outcome<()> {
        let security = database.security();
        let is_public = !security.is_empty() && !has_entries(&security, "members");
        let is_restricted = database.name() == crate::replicator::documents::DATABASE;
        let is_member = is_public && !is_restricted
            || self.is_admin_of(database)
            || self.is_listed(&security, "members") && !is_restricted
            || database.name() == users::DATABASE && self.name.is_some();
        match (is_member, &self.name) {
            (true, _) => Ok(()),
            (false, None) => {
                let reason = "You are not authorized to access this db.";
                Err(Failure::unauthorized(reason))
            }
            (false, Some(_)) => {
                let reason = "You are not allowed to access this db.";
                Err(Failure::forbidden(reason))
            }
        }
    }

    /// Refuses callers that may not read or write document `id` of `database`: in `_users`, others' documents are
    /// hidden, and there is nothing but documents.
    pub(crate) fn require_document(&self, database: &Database, id: &str) -> Outcome<()> {
        if database.name() != users::DATABASE || self.is_admin_of(database) {
            return Ok(());
        }
        let own = self.name.as_ref().map(|name| users::id_of(name));
        if own.as_deref() == Some(id) {
            return Ok(());
        }
        Err(Failure::not_found("missing"))
    }

    /// Refuses callers that may not write document `id`: design documents belong to the administrators.
    pub(crate) fn require_writer(&self, database: &Database, id: &str) -> Outcome<()> {
        if id.starts_with("_design/") {
            self.require_admin_of(database)?;
        }
        Ok(())
    }

    /// Refuses callers that may not read all of `database`, who in `_users` are all but its administrators.
    pub(crate) fn require_all(&self, database: &Database) -> Outcome<()> {
        if database.name() == users::DATABASE {
            self.require_admin_of(database)?;
        }
        Ok(())
    }

    fn is_listed(&self, security: &str, list: &str) -> bool {
        let json = Json::new(security);
        let holds = |kind: &str, value: &str| {
            let values = json.member(list).and_then(|it| it.member(kind));
            let mut values = values.iter().flat_map(|values| values.elements());
            values.any(|it| it.string().as_deref() == Some(value))
        };
        let by_name = self.name.as_ref().is_some_and(|name| holds("names", name));
        by_name || self.roles.iter().any(|role| holds("roles", role))
    }
}

fn has_entries(security: &str, list: &str) -> bool {
    let list = Json::new(security).member(list);
    ["names", "roles"].iter().any(|kind| {
        let values = list.and_then(|list| list.member(kind));
        values.is_some_and(|values| values.elements().next().is_some())
    })
}

/// Checks the security object of a database.
pub(crate) fn check_security(json: Json<'_>) -> Outcome<()> {
    let wrong = |what: &str| {
        Err(Failure::bad_request(format!(
            "{what} must be a JSON list of strings"
        )))
    };
    if json.kind() != Kind::Object {
        return Err(Failure::bad_request("Request body must be a JSON object"));
    }
    for list in ["admins", "members"] {
        let Some(object) = json.member(list) else {
            continue;
        };
        if object.kind() != Kind::Object {
            return Err(Failure::bad_request(format!(
                "{list} must be a JSON object"
            )));
        }
        for kind in ["names", "roles"] {
            let Some(values) = object.member(kind) else {
                continue;
            };
            let is_text = |value: Json<'_>| value.kind() == Kind::String;
            if values.kind() != Kind::Array || !values.elements().all(is_text) {
                return wrong(kind);
            }
        }
    }
    Ok(())
}
