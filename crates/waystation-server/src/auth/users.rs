//! Users: those of the settings, and documents in `_users`.

use super::Authority;
use super::password::{are_equal, derive, sign};
use super::roles::{self, ADMIN};
use crate::app::App;
use crate::failure::{Failure, Outcome};
use crate::uuids::{hex, random};
use std::borrow::Cow;
use waystation_documents::json::{Json, Kind, quote, unquote};
use waystation_documents::{Database, Document, Error};

/// The database of users.
pub(super) const DATABASE: &str = "_users";
/// What identifiers of users' documents begin with.
const PREFIX: &str = "org.couchdb.user:";
/// Members that hold a password in one form or another.
const PASSWORD_MEMBERS: [&str; 7] = [
    "password",
    "derived_key",
    "iterations",
    "password_scheme",
    "password_sha",
    "pbkdf2_prf",
    "salt",
];

/// How a user's password is checked.
enum Secret {
    Clear(String),
    Digest(waystation_access::Secret),
    Derived {
        key: String,
        iterations: u32,
    },
    /// None was set that this server can check.
    None,
}

/// A user.
pub(super) struct Known {
    name: String,
    pub(super) roles: Vec<String>,
    pub(super) salt: String,
    secret: Secret,
}

impl Known {
    /// Whether `password` is the user's.
    pub(super) fn verify(&self, authority: &Authority, password: &str) -> bool {
        match &self.secret {
            Secret::None => false,
            Secret::Clear(clear) => {
                let digest = |text: &str| sign(&authority.secret, &[text]);
                are_equal(&digest(clear), &digest(password))
            }
            Secret::Digest(secret) => secret.is(password.as_bytes()),
            Secret::Derived { key, iterations } => {
                let digest = sign(&authority.secret, &[&self.name, &self.salt, key, password]);
                authority.verified.check(digest, || {
                    let derived = derive(password, &self.salt, *iterations);
                    are_equal(derived.as_bytes(), key.as_bytes())
                })
            }
        }
    }
}

/// The document of the user `name`.
pub(super) fn id_of(name: &str) -> String {
    format!("{PREFIX}{name}")
}

/// The user `name`; one of the settings before one in `_users`.
pub(super) fn find(app: &App, name: &str) -> Outcome<Option<Known>> {
    match of_settings(app, name) {
        Some(known) => Ok(Some(known)),
        None => of_database(app, name),
    }
}

fn of_settings(app: &App, name: &str) -> Option<Known> {
    let authority = &app.authority;
    if let Some(admin) = authority.admins.iter().find(|admin| admin.name == name) {
        return Some(Known {
            name: name.to_owned(),
            roles: vec![ADMIN.to_owned()],
            // A new password ends sessions.
            salt: hex(&sign(&authority.secret, &[&admin.password])),
            secret: Secret::Clear(admin.password.clone()),
        });
    }
    let put = app.config.now();
    if let Some(admin) = put.admins.iter().find(|admin| admin.name == name) {
        return Some(Known {
            name: name.to_owned(),
            roles: vec![ADMIN.to_owned()],
            salt: admin.salt.clone(),
            secret: Secret::Derived {
                key: admin.key.clone(),
                iterations: admin.iterations,
            },
        });
    }
    let users = app.settings.users.now();
    let user = users.named(name.as_bytes())?;
    let digest = user.password.as_ref().map(|it| hex(it.digest()));
    Some(Known {
        name: name.to_owned(),
        roles: roles::of(user),
        salt: hex(&sign(&authority.secret, &[&digest.unwrap_or_default()])),
        secret: user.password.map_or(Secret::None, Secret::Digest),
    })
}

fn of_database(app: &App, name: &str) -> Outcome<Option<Known>> {
    let opened = app
        .catalogue
        .get(DATABASE)
        .and_then(|it| it.open_winner(&id_of(name)));
    let opened = match opened {
        Err(Error::NotFound(_) | Error::NoDatabase) => return Ok(None),
        opened => opened?,
    };
    let body = Json::new(&opened.version.body);
    let text = |member: &str| {
        body.member(member)
            .and_then(Json::string)
            .map(Cow::into_owned)
    };
    let roles = body.member("roles");
    let roles = roles.iter().flat_map(|roles| roles.elements());
    let iterations = body.member("iterations").and_then(Json::integer);
    let iterations = iterations.and_then(|it| u32::try_from(it).ok());
    let is_sha256 = text("pbkdf2_prf").as_deref() == Some("sha256");
    let secret = match (text("derived_key"), iterations) {
        (Some(key), Some(iterations)) if is_sha256 => Secret::Derived { key, iterations },
        _ => Secret::None,
    };
    Ok(Some(Known {
        name: name.to_owned(),
        roles: roles
            .filter_map(Json::string)
            .map(Cow::into_owned)
            .collect(),
        salt: text("salt").unwrap_or_default(),
        secret,
    }))
}

/// Checks a document that is to be written to `database`, and if it is a user's puts a derived key in the password's
/// place. It takes long.
pub(crate) fn prepare(
    app: &App,
    database: &Database,
    is_admin: bool,
    document: &mut Document,
) -> Outcome<()> {
    let is_plain = document.id.starts_with("_design/") || document.id.starts_with("_local/");
    if database.name() != DATABASE || is_plain || document.deleted {
        return Ok(());
    }
    let roles = if is_admin {
        None
    } else {
        Some(stored_roles(database, &document.id)?)
    };
    check(document, roles.as_deref())?;
    hide_password(&app.authority, document)
}

/// The roles of a user's document, as canonical JSON.
fn stored_roles(database: &Database, id: &str) -> Outcome<String> {
    let opened = match database.open_winner(id) {
        Err(Error::NotFound(_)) => return Ok("[]".to_owned()),
        opened => opened?,
    };
    let roles = Json::new(&opened.version.body).member("roles");
    Ok(roles.map_or("[]", Json::text).to_owned())
}

/// Puts a derived key in the password's place, if there is one.
fn hide_password(authority: &Authority, document: &mut Document) -> Outcome<()> {
    let body = Json::new(&document.body);
    let Some(password) = body.member("password").filter(|it| it.kind() != Kind::Null) else {
        return Ok(());
    };
    let password = password
        .string()
        .ok_or_else(|| Failure::forbidden("doc.password must be a string"))?;
    let salt = hex(&random::<16>());
    let iterations = authority.password_iterations;
    let key = derive(&password, &salt, iterations);
    let mut members = vec![
        "\"password_scheme\":\"pbkdf2\"".to_owned(),
        "\"pbkdf2_prf\":\"sha256\"".to_owned(),
        format!("\"salt\":{}", quote(&salt)),
        format!("\"iterations\":{iterations}"),
        format!("\"derived_key\":{}", quote(&key)),
    ];
    let is_other = |name: &str| !PASSWORD_MEMBERS.contains(&&*unquote(name));
    let others = body.members().filter(|(name, _)| is_other(name));
    members.extend(others.map(|(name, value)| format!("{name}:{}", value.text())));
    document.body = format!("{{{}}}", members.join(","));
    Ok(())
}

/// Checks that a document is a user's; `allowed`: the roles that it must have, if the caller may give no others.
fn check(document: &Document, allowed: Option<&str>) -> Outcome<()> {
    let body = Json::new(&document.body);
    let text = |member: &str| body.member(member).and_then(Json::string);
    let refuse = |reason: &str| Err(Failure::forbidden(reason));
    if text("type").as_deref() != Some("user") {
        return refuse("doc.type must be user");
    }
    let Some(name) = text("name") else {
        return refuse("doc.name is required");
    };
    if document.id != id_of(&name) {
        return refuse("Doc ID must be of the form org.couchdb.user:name");
    }
    let Some(roles) = body
        .member("roles")
        .filter(|roles| roles.kind() == Kind::Array)
    else {
        return refuse("doc.roles must be an array");
    };
    if allowed.is_some_and(|allowed| allowed != roles.text()) {
        return refuse("Only _admin may set roles");
    }
    for role in roles.elements() {
        match role.string() {
            None => return refuse("doc.roles can only contain strings"),
            Some(role) if role.starts_with('_') => {
                return refuse("No system roles (starting with underscore) in users db.");
            }
            Some(_) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    #[test]
    fn a_password_is_replaced_by_its_key() -> Outcome<()> {
        let settings = Settings {
            password_iterations: 2,
            ..Settings::new("")
        };
        let authority = Authority::new(&settings, [7; 32]);
        let json = br#"{"_id":"org.couchdb.user:ann","type":"user","name":"ann","roles":[],"password":"pw","x":1}"#;
        let mut document = Document::parse(json)?;
        check(&document, Some("[]"))?;
        hide_password(&authority, &mut document)?;
        let body = Json::new(&document.body);
        assert_eq!(body.member("password"), None);
        assert_eq!(body.member("x").map(Json::text), Some("1"));
        let salt = body.member("salt").and_then(Json::string).expect("a salt");
        let key = body
            .member("derived_key")
            .and_then(Json::string)
            .expect("a key");
        assert_eq!(key, derive("pw", &salt, 2));
        Ok(())
    }

    #[test]
    fn documents_that_are_no_users_are_refused() -> Outcome<()> {
        let cases = [
            r#"{"_id":"ann","type":"user","name":"ann","roles":[]}"#,
            r#"{"_id":"org.couchdb.user:ann","name":"ann","roles":[]}"#,
            r#"{"_id":"org.couchdb.user:ann","type":"user","name":"ann"}"#,
            r#"{"_id":"org.couchdb.user:ann","type":"user","name":"ann","roles":["_admin"]}"#,
            r#"{"_id":"org.couchdb.user:ann","type":"user","name":"ann","roles":["driver"]}"#,
        ];
        for json in cases {
            let document = Document::parse(json.as_bytes())?;
            assert!(check(&document, Some("[]")).is_err(), "{json}");
        }
        let driver = Document::parse(cases[4].as_bytes())?;
        assert!(check(&driver, Some(r#"["driver"]"#)).is_ok());
        assert!(check(&driver, None).is_ok());
        Ok(())
    }
}
