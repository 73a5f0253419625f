//! Settings that change while the server runs: `_node/_local/_config`.
//!
//! The settings with which the server starts are the defaults. What is put over them is kept in the catalogue and holds
//! after the next start, too. A setting that would have no effect is refused, and so is a value that it cannot have:
//! what the answer shows is what the server does.

use crate::auth::HashedAdmin;
use crate::failure::{Failure, Outcome};
use crate::settings::Settings;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use waystation_documents::json::{Json, canonical, quote, unquote};
use waystation_documents::{Catalogue, Error};

/// The section of administrators: their names, and hashes of their passwords.
pub(crate) const ADMINS: &str = "admins";
/// The catalogue's record.
const RECORD: &str = "config";
/// What is shown of a password that was given when the server started.
const HIDDEN: &str = "-hidden-";

/// What values a setting has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `true` or `false`.
    Switch,
    /// A number from 1 on.
    Number,
    /// Any text.
    Text,
    /// What it was when the server started.
    Fixed,
}

/// All settings but administrators. Several names of one setting stand together; the first one that was put counts.
const ENTRIES: [(&str, &str, Kind); 20] = [
    ("chttpd", "enable_cors", Kind::Switch),
    ("httpd", "enable_cors", Kind::Switch),
    ("cors", "origins", Kind::Text),
    ("cors", "credentials", Kind::Switch),
    ("cors", "headers", Kind::Text),
    ("cors", "methods", Kind::Text),
    ("chttpd", "require_valid_user", Kind::Switch),
    ("chttpd_auth", "require_valid_user", Kind::Switch),
    ("chttpd", "WWW-Authenticate", Kind::Text),
    ("httpd", "WWW-Authenticate", Kind::Text),
    ("chttpd_auth", "timeout", Kind::Number),
    ("couch_httpd_auth", "timeout", Kind::Number),
    ("couchdb", "max_document_size", Kind::Number),
    ("chttpd", "max_http_request_size", Kind::Number),
    ("chttpd", "bind_address", Kind::Fixed),
    ("chttpd", "port", Kind::Fixed),
    ("chttpd_auth", "iterations", Kind::Fixed),
    ("cluster", "n", Kind::Fixed),
    ("cluster", "q", Kind::Fixed),
    ("couchdb", "max_attachment_size", Kind::Fixed),
];

/// What browsers from other origins may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cors {
    pub(crate) origins: Vec<String>,
    pub(crate) has_credentials: bool,
    /// The headers that they may send; `None`: those that they ask for.
    pub(crate) headers: Option<String>,
    /// The methods that they may use; `None`: all that there are.
    pub(crate) methods: Option<String>,
}

/// The settings as they are now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Effective {
    /// `None`: browsers from other origins are not let in.
    pub(crate) cors: Option<Cors>,
    pub(crate) requires_user: bool,
    /// The challenge in answers to callers that are not named.
    pub(crate) challenge: Option<String>,
    pub(crate) session_seconds: u64,
    pub(crate) document_bytes_max: usize,
    pub(crate) body_bytes_max: usize,
    /// Administrators that were put.
    pub(crate) admins: Vec<HashedAdmin>,
}

type Put = BTreeMap<(String, String), String>;

/// See the module.
pub(crate) struct Config {
    settings: Settings,
    put: Mutex<Put>,
    effective: RwLock<Arc<Effective>>,
}

impl Config {
    /// What `settings` say, and what the catalogue keeps.
    pub(crate) fn open(settings: &Settings, catalogue: &Catalogue) -> Result<Self, Error> {
        let record = catalogue.record(RECORD)?.unwrap_or_else(|| b"{}".to_vec());
        let text = canonical(&record).map_err(|error| Error::Damaged {
            what: "the server's configuration".to_owned(),
            reason: error.to_string(),
        })?;
        let mut put = Put::new();
        for (section, keys) in Json::new(&text).members() {
            for (key, value) in keys.members() {
                let name = (unquote(section).into_owned(), unquote(key).into_owned());
                put.insert(name, value.string().unwrap_or_default().into_owned());
            }
        }
        Ok(Self {
            effective: RwLock::new(Arc::new(Effective::of(settings, &put))),
            settings: settings.clone(),
            put: Mutex::new(put),
        })
    }

    /// The settings as they are now.
    pub(crate) fn now(&self) -> Arc<Effective> {
        let effective = self.effective.read();
        Arc::clone(&effective.unwrap_or_else(PoisonError::into_inner))
    }

    fn put(&self) -> MutexGuard<'_, Put> {
        self.put.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a setting.
    pub(crate) fn get(&self, section: &str, key: &str) -> Option<String> {
        let name = (section.to_owned(), key.to_owned());
        let value = self.put().get(&name).cloned();
        value.or_else(|| default(&self.settings, section, key))
    }

    /// The settings of `section` that have a value, or of all: JSON.
    pub(crate) fn section(&self, section: &str) -> String {
        let named = ENTRIES.iter().filter(|(other, ..)| *other == section);
        let mut keys: Vec<String> = named.map(|(_, key, _)| (*key).to_owned()).collect();
        if section == ADMINS {
            keys.extend(self.settings.admins.iter().map(|it| it.name.clone()));
            let put = self.put();
            let names = put.keys().filter(|(other, _)| other == ADMINS);
            keys.extend(names.map(|(_, name)| name.clone()));
        }
        let member = |key: &String| {
            let value = self.get(section, key)?;
            Some(format!("{}:{}", quote(key), quote(&value)))
        };
        let members: Vec<String> = keys.iter().filter_map(member).collect();
        format!("{{{}}}", members.join(","))
    }

    /// All sections: JSON.
    pub(crate) fn all(&self) -> String {
        let mut sections: Vec<&str> = ENTRIES.iter().map(|(section, ..)| *section).collect();
        sections.push(ADMINS);
        sections.sort_unstable();
        sections.dedup();
        let section = |name: &&str| format!("{}:{}", quote(name), self.section(name));
        let sections: Vec<String> = sections.iter().map(section).collect();
        format!("{{{}}}", sections.join(","))
    }

    /// Has a setting be `value` from now on, or its default again; the value before.
    pub(crate) fn set(
        &self,
        catalogue: &Catalogue,
        section: &str,
        key: &str,
        value: Option<String>,
    ) -> Outcome<String> {
        self.check(section, key, value.as_deref())?;
        let before = self.get(section, key);
        if before.is_none() && value.is_none() {
            return Err(Failure::not_found("unknown_config_value"));
        }
        let mut put = self.put();
        let mut changed = put.clone();
        let name = (section.to_owned(), key.to_owned());
        match value {
            Some(value) => drop(changed.insert(name, value)),
            None => drop(changed.remove(&name)),
        }
        catalogue.put_record(RECORD, to_json(&changed).as_bytes())?;
        let effective = Arc::new(Effective::of(&self.settings, &changed));
        *self
            .effective
            .write()
            .unwrap_or_else(PoisonError::into_inner) = effective;
        *put = changed;
        Ok(before.unwrap_or_default())
    }

    fn check(&self, section: &str, key: &str, value: Option<&str>) -> Outcome<()> {
        if section == ADMINS {
            let is_given = self.settings.admins.iter().any(|it| it.name == key);
            return if is_given {
                let reason = format!(
                    "{key} is an administrator since the server started; start it with another password"
                );
                Err(Failure::bad_request(reason))
            } else {
                Ok(())
            };
        }
        let known = ENTRIES
            .iter()
            .find(|(other, name, _)| *other == section && *name == key);
        let reason = match (known, value) {
            (None, None) => return Err(Failure::not_found("unknown_config_value")),
            (None, Some(_)) => format!("{section}/{key} is no setting of this server"),
            (Some((_, _, Kind::Fixed)), _) => {
                format!("{section}/{key} is fixed when the server starts")
            }
            (Some((_, _, Kind::Switch)), Some(value)) if !matches!(value, "true" | "false") => {
                format!("{section}/{key} is true or false")
            }
            (Some((_, _, Kind::Number)), Some(value)) if !is_number(value) => {
                format!("{section}/{key} is a number from 1 on")
            }
            _ => return Ok(()),
        };
        Err(Failure::bad_request(reason))
    }
}

fn is_number(value: &str) -> bool {
    value.parse::<u64>().is_ok_and(|number| number > 0)
}

fn to_json(put: &Put) -> String {
    let mut sections: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for ((section, key), value) in put {
        let member = format!("{}:{}", quote(key), quote(value));
        sections.entry(section).or_default().push(member);
    }
    let section =
        |(name, members): (&str, Vec<String>)| format!("{}:{{{}}}", quote(name), members.join(","));
    let sections: Vec<String> = sections.into_iter().map(section).collect();
    format!("{{{}}}", sections.join(","))
}

/// What a setting is if nothing was put.
fn default(settings: &Settings, section: &str, key: &str) -> Option<String> {
    let has_origins = !settings.cors_origins.is_empty();
    Some(match (section, key) {
        (ADMINS, name) => {
            settings.admins.iter().find(|admin| admin.name == name)?;
            HIDDEN.to_owned()
        }
        ("chttpd" | "httpd", "enable_cors") => has_origins.to_string(),
        ("cors", "origins") if has_origins => settings.cors_origins.join(", "),
        ("cors", "credentials") => "true".to_owned(),
        ("chttpd" | "chttpd_auth", "require_valid_user") => "false".to_owned(),
        ("chttpd_auth" | "couch_httpd_auth", "timeout") => {
            settings.session_timeout.as_secs().to_string()
        }
        ("couchdb", "max_document_size") => settings.document_bytes_max.to_string(),
        ("chttpd", "max_http_request_size") | ("couchdb", "max_attachment_size") => {
            settings.body_bytes_max.to_string()
        }
        ("chttpd", "bind_address") => settings.listen.ip().to_string(),
        ("chttpd", "port") => settings.listen.port().to_string(),
        ("chttpd_auth", "iterations") => settings.password_iterations.to_string(),
        ("cluster", "n") => "1".to_owned(),
        ("cluster", "q") => settings.shards.to_string(),
        _ => return None,
    })
}

impl Effective {
    fn of(settings: &Settings, put: &Put) -> Self {
        let first = |names: &[(&str, &str)]| {
            let mut values = names.iter().filter_map(|(section, key)| {
                put.get(&((*section).to_owned(), (*key).to_owned()))
                    .cloned()
            });
            values.next()
        };
        let number = |names: &[(&str, &str)], default: u64| {
            first(names).map_or(default, |text| text.parse().unwrap_or(default))
        };
        let size = |names: &[(&str, &str)], default: usize| {
            usize::try_from(number(names, default as u64)).unwrap_or(usize::MAX)
        };
        let is_on = |names: &[(&str, &str)], default: bool| {
            first(names).map_or(default, |text| text == "true")
        };
        let list = |text: String| text.split(',').map(|it| it.trim().to_owned()).collect();
        let origins: Option<Vec<String>> = first(&[("cors", "origins")]).map(list);
        let has_cors = is_on(
            &[("chttpd", "enable_cors"), ("httpd", "enable_cors")],
            !settings.cors_origins.is_empty(),
        );
        let admins = put.iter().filter(|((section, _), _)| section == ADMINS);
        let sizes = [("chttpd", "max_http_request_size")];
        Self {
            cors: has_cors.then(|| Cors {
                origins: origins.unwrap_or_else(|| settings.cors_origins.clone()),
                has_credentials: is_on(&[("cors", "credentials")], true),
                headers: first(&[("cors", "headers")]),
                methods: first(&[("cors", "methods")]),
            }),
            requires_user: is_on(
                &[
                    ("chttpd", "require_valid_user"),
                    ("chttpd_auth", "require_valid_user"),
                ],
                false,
            ),
            challenge: first(&[
                ("chttpd", "WWW-Authenticate"),
                ("httpd", "WWW-Authenticate"),
            ]),
            session_seconds: number(
                &[("chttpd_auth", "timeout"), ("couch_httpd_auth", "timeout")],
                settings.session_timeout.as_secs(),
            ),
            document_bytes_max: size(
                &[("couchdb", "max_document_size")],
                settings.document_bytes_max,
            ),
            // More than was allowed at the start would not fit into the memory for bodies.
            body_bytes_max: size(&sizes, settings.body_bytes_max).min(settings.body_bytes_max),
            admins: admins
                .filter_map(|((_, name), value)| HashedAdmin::parse(name, value))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(pairs: &[(&str, &str, &str)]) -> Put {
        let pair = |(section, key, value): &(&str, &str, &str)| {
            let name = ((*section).to_owned(), (*key).to_owned());
            (name, (*value).to_owned())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn what_is_put_counts_before_the_settings() {
        let settings = Settings::new("");
        let plain = Effective::of(&settings, &Put::new());
        assert_eq!(plain.cors, None);
        assert_eq!(plain.document_bytes_max, settings.document_bytes_max);
        let changed = put(&[
            ("httpd", "enable_cors", "true"),
            ("cors", "origins", "https://a, https://b"),
            ("couchdb", "max_document_size", "50"),
            ("chttpd", "max_http_request_size", "4294967296"),
            ("chttpd", "require_valid_user", "true"),
        ]);
        let effective = Effective::of(&settings, &changed);
        assert_eq!(
            effective.cors.map(|it| it.origins),
            Some(vec!["https://a".to_owned(), "https://b".to_owned()])
        );
        assert_eq!(effective.document_bytes_max, 50);
        assert_eq!(effective.body_bytes_max, settings.body_bytes_max);
        assert!(effective.requires_user);
    }

    #[test]
    fn the_record_is_read_back() {
        let changed = put(&[
            ("cors", "origins", "\"*\""),
            ("couchdb", "max_document_size", "5"),
        ]);
        assert_eq!(
            to_json(&changed),
            r#"{"cors":{"origins":"\"*\""},"couchdb":{"max_document_size":"5"}}"#
        );
        assert!(canonical(to_json(&changed).as_bytes()).is_ok());
    }
}
