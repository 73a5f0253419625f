//! Roles that give rights for readings.
//!
//! ```text
//!   waystation:read        every device may be read
//!   waystation:read:car    devices whose keys begin with car
//!   waystation:monitor     figures, and the state of the daemon
//! ```
//!
//! Users in `_users` and tokens carry them as they are; the rights of a user of the settings are written as roles. So a
//! request, a session and a replication find one answer to what a caller may do.

use waystation_access::{Right, User};

/// The role of server administrators.
pub(crate) const ADMIN: &str = "_admin";
/// Of these rights, a role of a prefix holds for some devices.
pub(crate) const READ: &str = "waystation:read";
pub(crate) const WRITE: &str = "waystation:write";
pub(crate) const DEPART: &str = "waystation:depart";
/// Of the whole server.
pub(crate) const MONITOR: &str = "waystation:monitor";

/// The roles of a user of the settings.
pub(super) fn of(user: &User) -> Vec<String> {
    let of_server = [(user.is_admin, ADMIN), (user.is_monitor, MONITOR)];
    let of_server = of_server.into_iter().filter(|it| it.0);
    let of_server = of_server.map(|(_, role)| role.to_owned());
    of_server
        .chain(user.rights.iter().flat_map(of_right))
        .collect()
}

fn of_right(right: &Right) -> impl Iterator<Item = String> {
    let all = [
        (right.read, READ),
        (right.write, WRITE),
        (right.depart, DEPART),
    ];
    let prefix = right.prefix.clone();
    all.into_iter().filter(|it| it.0).map(move |(_, role)| {
        if prefix.is_empty() {
            role.to_owned()
        } else {
            format!("{role}:{prefix}")
        }
    })
}

/// The prefixes for which `roles` give the right `role`; an empty one: for every device.
pub(crate) fn prefixes<'a>(roles: &'a [String], role: &str) -> impl Iterator<Item = &'a str> {
    roles.iter().filter_map(move |own| {
        let rest = own.strip_prefix(role)?;
        if rest.is_empty() {
            return Some(rest);
        }
        // A role that names no prefix names no device.
        rest.strip_prefix(':').filter(|prefix| !prefix.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_become_roles_and_are_found_in_them() {
        let right = |prefix: &str, write| Right {
            prefix: prefix.to_owned(),
            read: true,
            write,
            depart: false,
        };
        let user = User {
            rights: vec![right("car17:", true), right("", false)],
            is_monitor: true,
            ..User::default()
        };
        let roles = of(&user);
        let expected = [
            MONITOR,
            "waystation:read:car17:",
            "waystation:write:car17:",
            READ,
        ];
        assert_eq!(roles, expected);
        let found = |role| prefixes(&roles, role).collect::<Vec<_>>();
        assert_eq!(found(READ), ["car17:", ""]);
        assert_eq!(found(WRITE), ["car17:"]);
        assert!(found(DEPART).is_empty());
        for other in ["waystation:reader", "waystation:read:"] {
            assert_eq!(prefixes(&[other.to_owned()], READ).count(), 0, "{other}");
        }
    }
}
