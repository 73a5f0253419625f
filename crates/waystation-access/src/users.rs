//! Users and their rights.

use crate::Secret;
use std::sync::{Arc, PoisonError, RwLock};

/// What may be done with keys that begin with `prefix`, and so with devices whose keys do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Right {
    /// The first bytes of the keys. Empty: all keys, and commands about all of them.
    pub prefix: String,
    /// They may be read.
    pub read: bool,
    /// They may be written.
    pub write: bool,
    /// Devices may be let depart.
    pub depart: bool,
}

/// A user.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password; `None`: there is none.
    pub password: Option<Secret>,
    /// What names the user without a password; `None`: nothing does.
    pub token: Option<Secret>,
    /// The certificate that names the user, by its DER; `None`: none does.
    pub certificate: Option<Secret>,
    /// What the user may do with keys and devices.
    pub rights: Vec<Right>,
    /// Whether the user may see figures and the state of the daemon.
    pub is_monitor: bool,
    /// Whether the user may do everything.
    pub is_admin: bool,
}

impl User {
    /// Whether the user may do with `key` what a right needs for it.
    pub fn may(&self, key: &[u8], needed: impl Fn(&Right) -> bool) -> bool {
        let holds = |it: &Right| needed(it) && key.starts_with(it.prefix.as_bytes());
        self.is_admin || self.rights.iter().any(holds)
    }

    /// Whether the user may read `key`.
    pub fn may_read(&self, key: &[u8]) -> bool {
        self.may(key, |it| it.read)
    }

    /// Whether the user may write `key`.
    pub fn may_write(&self, key: &[u8]) -> bool {
        self.may(key, |it| it.write)
    }
}

/// All users. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Users(Arc<[Arc<User>]>);

impl Users {
    /// These users.
    pub fn new(users: impl IntoIterator<Item = User>) -> Self {
        Self(users.into_iter().map(Arc::new).collect())
    }

    /// These and another one.
    #[must_use]
    pub fn and(&self, user: User) -> Self {
        Self(self.0.iter().cloned().chain([Arc::new(user)]).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a client may go on as `user`: nothing about the user has changed since.
    pub fn have(&self, user: &User) -> bool {
        self.is_empty() || self.0.iter().any(|it| **it == *user)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<User>> {
        self.0.iter()
    }

    /// The user of this name.
    pub fn named(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.0.iter().find(|it| it.name.as_bytes() == name)
    }

    /// The user of this name, if the password is right. A name that is not known takes as long.
    pub fn with_password(&self, name: &[u8], password: &[u8]) -> Option<&Arc<User>> {
        let user = self.named(name);
        let known = user.and_then(|user| user.password);
        let given = Secret::of(password);
        let is_right = known.unwrap_or(Secret::of(b"")).is_same(&given);
        user.filter(|_| known.is_some() && is_right)
    }

    /// The user whom `token` names.
    pub fn with_token(&self, token: &[u8]) -> Option<&Arc<User>> {
        self.with(&Secret::of(token), |it| it.token)
    }

    /// The user whom a certificate names. Its client has to have shown that the key is its own.
    pub fn with_certificate(&self, certificate: &Secret) -> Option<&Arc<User>> {
        self.with(certificate, |it| it.certificate)
    }

    /// Every user is compared, so that the time does not tell whose secret the given one is like.
    fn with(&self, given: &Secret, of: impl Fn(&User) -> Option<Secret>) -> Option<&Arc<User>> {
        let is_of = |it: &User| of(it).is_some_and(|secret| secret.is_same(given));
        let users = self.0.iter();
        users.fold(
            None,
            |found, user| if is_of(user) { Some(user) } else { found },
        )
    }

    /// Whether a token names one of them.
    pub fn have_tokens(&self) -> bool {
        self.0.iter().any(|it| it.token.is_some())
    }
}

/// Users that may change while servers run. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct LiveUsers(Arc<RwLock<Users>>);

impl LiveUsers {
    /// Begins with these users.
    pub fn new(users: Users) -> Self {
        Self(Arc::new(RwLock::new(users)))
    }

    /// The users now.
    pub fn now(&self) -> Users {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Puts others in their place.
    pub fn set(&self, users: Users) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = users;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_what_only_they_know() {
        let ann = User {
            name: "ann".to_owned(),
            password: Some(Secret::of(b"secret")),
            ..User::default()
        };
        let probe = User {
            name: "probe".to_owned(),
            token: Some(Secret::of(b"t0")),
            ..User::default()
        };
        let users = Users::new([ann, probe]);
        assert!(users.with_password(b"ann", b"secret").is_some());
        for (name, password) in [
            ("ann", "wrong"),
            ("bob", "secret"),
            ("bob", ""),
            ("probe", ""),
        ] {
            let found = users.with_password(name.as_bytes(), password.as_bytes());
            assert!(found.is_none(), "{name}");
        }
        let name = |token: &[u8]| users.with_token(token).map(|it| it.name.clone());
        assert_eq!(name(b"t0").as_deref(), Some("probe"));
        assert_eq!((name(b""), name(b"secret")), (None, None));
        assert!(users.with_certificate(&Secret::of(b"t0")).is_none());
    }

    #[test]
    fn rights_hold_for_what_begins_with_their_prefix() {
        let right = Right {
            prefix: "car".to_owned(),
            read: true,
            ..Right::default()
        };
        let user = User {
            rights: vec![right],
            ..User::default()
        };
        assert!(user.may_read(b"car17:speed") && !user.may_read(b"bus1:speed"));
        assert!(!user.may_write(b"car17:speed") && !user.may_read(b"ca"));
        let admin = User {
            is_admin: true,
            ..User::default()
        };
        assert!(admin.may_write(b"bus1:speed"));
    }
}
