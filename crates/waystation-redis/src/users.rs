//! Who may do what: users with passwords, and rights for keys that begin with a prefix.

use crate::commands::{Access, Holding, Spec};
use crate::failure::{Failure, Outcome};
use std::sync::Arc;

/// A user.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// The name; `default` is who gives a password alone.
    pub name: String,
    /// The password.
    pub password: Password,
    /// What the user may do with keys.
    pub rights: Vec<Right>,
    /// Whether the user may do everything.
    pub is_admin: bool,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("User");
        shown
            .field("name", &self.name)
            .field("rights", &self.rights)
            .field("is_admin", &self.is_admin)
            .finish_non_exhaustive()
    }
}

/// The SHA-256 of a password.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Password([u8; 32]);

impl Password {
    /// Of a password in clear.
    pub fn of(clear: &[u8]) -> Self {
        let mut hash = [0; 32];
        let digest = ring::digest::digest(&ring::digest::SHA256, clear);
        hash.copy_from_slice(digest.as_ref());
        Self(hash)
    }

    /// Of the 64 hexadecimal digits of its SHA-256.
    pub fn of_digest(digits: &str) -> Option<Self> {
        if digits.len() != 64 || !digits.is_ascii() {
            return None;
        }
        let mut hash = [0; 32];
        for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(hash))
    }

    /// Whether `clear` is the password. Takes as long for one that is nearly right.
    fn is(&self, clear: &[u8]) -> bool {
        let other = Self::of(clear);
        let differences = self.0.iter().zip(&other.0).map(|(one, other)| one ^ other);
        differences.fold(0, |all, it| all | it) == 0
    }
}

/// What may be done with keys that begin with `prefix`; channels have the same names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    /// What the keys begin with. Empty: all keys, and commands about all of them.
    pub prefix: Vec<u8>,
    /// Commands that read.
    pub read: bool,
    /// Commands that write.
    pub write: bool,
    /// Devices may be let depart.
    pub depart: bool,
}

/// All users; none: every client may do everything.
#[derive(Debug, Clone, Default)]
pub struct Users(Vec<Arc<User>>);

impl Users {
    /// These users.
    pub fn new(users: impl IntoIterator<Item = User>) -> Self {
        Self(users.into_iter().map(Arc::new).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a client may go on as `user`: nothing about the user has changed since.
    pub(crate) fn have(&self, user: &User) -> bool {
        self.is_empty() || self.0.iter().any(|it| **it == *user)
    }

    pub(crate) fn named(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.0.iter().find(|it| it.name.as_bytes() == name)
    }

    /// The user with this name and password.
    pub(crate) fn check(&self, name: &[u8], password: &[u8]) -> Outcome<Arc<User>> {
        let user = self.named(name);
        // A name that is not there takes as long.
        let is_right = match user {
            Some(user) => user.password.is(password),
            None => Password([0; 32]).is(password),
        };
        user.filter(|_| is_right).cloned().ok_or(Failure::new(
            "WRONGPASS invalid username-password pair or user is disabled.",
        ))
    }
}

impl User {
    /// Every client, where there are no users.
    pub(crate) fn anyone() -> Arc<Self> {
        Arc::new(Self {
            name: "default".to_owned(),
            password: Password([0; 32]),
            rights: Vec::new(),
            is_admin: true,
        })
    }

    fn may(&self, key: &[u8], needed: fn(&Right) -> bool) -> bool {
        self.is_admin
            || self
                .rights
                .iter()
                .any(|it| needed(it) && key.starts_with(&it.prefix))
    }

    pub(crate) fn may_read(&self, key: &[u8]) -> bool {
        self.may(key, |it| it.read)
    }

    pub(crate) fn may_write(&self, key: &[u8]) -> bool {
        self.may(key, |it| it.write)
    }

    /// Refuses a command that the user may not give.
    pub(crate) fn check(&self, spec: &Spec, args: &[&[u8]]) -> Outcome {
        if self.is_admin {
            return Ok(());
        }
        if matches!(spec.access, Access::Admin | Access::Admit) {
            return Err(no_command(spec));
        }
        let needed: fn(&Right) -> bool = match spec.access {
            Access::Depart => |it| it.depart,
            Access::Read | Access::ReadMany => |it| it.read,
            Access::Control | Access::Open => return Ok(()),
            Access::Put => |it| it.write,
            Access::Set if spec.holding(args) == Holding::Shared => |it| it.write,
            // They tell something of what was there, as does `SET` with some options.
            _ => |it| it.write && it.read,
        };
        if spec.is_about_all() && !self.may(b"", needed) {
            return Err(no_command(spec));
        }
        if spec.keys(args).all(|key| self.may(key, needed)) {
            return Ok(());
        }
        Err(Failure::new(
            "NOPERM this user has no permissions to access one of the keys used as arguments",
        ))
    }
}

fn no_command(spec: &Spec) -> Failure {
    let name = spec.name.to_ascii_lowercase();
    Failure::of(format!(
        "NOPERM this user has no permissions to run the '{name}' command"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::find;

    #[test]
    fn rights_hold_for_prefixes() {
        let user = User {
            name: "ann".to_owned(),
            password: Password::of(b"secret"),
            rights: vec![Right {
                prefix: b"car".to_vec(),
                read: true,
                write: true,
                depart: false,
            }],
            is_admin: false,
        };
        let may = |args: &[&[u8]]| user.check(find(args[0]).unwrap(), args).is_ok();
        assert!(may(&[b"SET", b"car1:x", b"1"]) && may(&[b"PING"]));
        assert!(!may(&[b"GET", b"bus1:x"]) && !may(&[b"MGET", b"car1", b"bus"]));
        assert!(!may(&[b"KEYS", b"*"]) && !may(&[b"FLUSHDB"]) && !may(&[b"CONFIG", b"GET", b"x"]));
        assert!(!may(&[b"DEVICE.DEPART", b"car1"]));
        let writer = User {
            rights: vec![Right {
                read: false,
                ..user.rights[0].clone()
            }],
            ..user.clone()
        };
        let may_write = |args: &[&[u8]]| writer.check(find(args[0]).unwrap(), args).is_ok();
        assert!(may_write(&[b"SET", b"car1:x", b"1", b"EX", b"5"]));
        assert!(!may_write(&[b"SET", b"car1:x", b"1", b"GET"]));
        let users = Users::new([user]);
        assert!(users.check(b"ann", b"secret").is_ok());
        assert!(users.check(b"ann", b"wrong").is_err() && users.check(b"bob", b"secret").is_err());
        let digest = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        assert!(Password::of_digest(digest).unwrap().is(b"secret"));
        assert!(Password::of_digest("2b").is_none());
    }
}
