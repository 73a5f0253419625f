//! Who may give which command: users, and rights for keys that begin with a prefix. Channels have the same names.

use crate::commands::{Access, Holding, Spec};
use crate::failure::{Failure, Outcome};
use std::sync::Arc;
use waystation_access::{Right, User, Users};

/// Every client, where there are no users.
pub(crate) fn anyone() -> Arc<User> {
    Arc::new(User {
        name: "default".to_owned(),
        is_admin: true,
        ..User::default()
    })
}

/// The user with this name and password.
pub(crate) fn sign_in(users: &Users, name: &[u8], password: &[u8]) -> Outcome<Arc<User>> {
    let user = users.with_password(name, password);
    user.cloned().ok_or(Failure::new(
        "WRONGPASS invalid username-password pair or user is disabled.",
    ))
}

/// Refuses a command that `user` may not give.
pub(crate) fn check(user: &User, spec: &Spec, args: &[&[u8]]) -> Outcome {
    if user.is_admin {
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
    if spec.is_about_all() && !user.may(b"", needed) {
        return Err(no_command(spec));
    }
    if spec.keys(args).all(|key| user.may(key, needed)) {
        return Ok(());
    }
    Err(Failure::new(
        "NOPERM this user has no permissions to access one of the keys used as arguments",
    ))
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
    use waystation_access::Secret;

    #[test]
    fn rights_hold_for_prefixes() {
        let user = User {
            name: "ann".to_owned(),
            password: Some(Secret::of(b"secret")),
            rights: vec![Right {
                prefix: "car".to_owned(),
                read: true,
                write: true,
                depart: false,
            }],
            ..User::default()
        };
        let may = |args: &[&[u8]]| check(&user, find(args[0]).unwrap(), args).is_ok();
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
        let may_write = |args: &[&[u8]]| check(&writer, find(args[0]).unwrap(), args).is_ok();
        assert!(may_write(&[b"SET", b"car1:x", b"1", b"EX", b"5"]));
        assert!(!may_write(&[b"SET", b"car1:x", b"1", b"GET"]));
        let users = Users::new([user]);
        assert!(sign_in(&users, b"ann", b"secret").is_ok());
        assert!(sign_in(&users, b"ann", b"wrong").is_err());
    }
}
