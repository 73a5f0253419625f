//! `ACL`: who a client is, and what users may do, in Redis' words.
//!
//! Users stand in the daemon's file, so nothing here changes them. No answer shows a password, nor the digest of one.

use super::{Call, find, is};
use crate::failure::{Failure, Outcome};
use crate::glob;
use crate::users;
use std::sync::Arc;
use waystation_access::{Right, User};

pub(super) fn acl(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let (subcommand, rest) = (args[1], &args[2..]);
    if rest.is_empty() && is(subcommand, "WHOAMI") {
        let user = call.client.user.clone().unwrap_or_else(users::anyone);
        call.out.bulk(user.name.as_bytes());
        return Ok(());
    }
    if !call.client.user.as_ref().is_some_and(|it| it.is_admin) {
        return Err(Failure::new(
            "NOPERM this user has no permissions to run the 'acl' command",
        ));
    }
    match rest {
        [] if is(subcommand, "USERS") => {
            let all = all(call);
            call.out.array(all.len());
            for user in all {
                call.out.bulk(user.name.as_bytes());
            }
        }
        [] if is(subcommand, "LIST") => {
            let all = all(call);
            call.out.array(all.len());
            for user in all {
                call.out.bulk(line(&user).as_bytes());
            }
        }
        [name] if is(subcommand, "GETUSER") => match named(call, name) {
            Some(user) => show(call, &user),
            None => call.out.null(),
        },
        [name, command @ ..] if is(subcommand, "DRYRUN") && !command.is_empty() => {
            return dry_run(call, name, command);
        }
        [] if is(subcommand, "LOAD") || is(subcommand, "SAVE") => return Err(FILE),
        [_, ..] if is(subcommand, "SETUSER") || is(subcommand, "DELUSER") => return Err(FILE),
        _ => {
            let shown = String::from_utf8_lossy(subcommand).into_owned();
            return Err(Failure::of(format!(
                "ERR unknown subcommand or wrong number of arguments for '{shown}'. Try ACL WHOAMI, USERS, LIST, GETUSER or DRYRUN."
            )));
        }
    }
    Ok(())
}

const FILE: Failure = Failure::new(
    "ERR users stand in the configuration file of the server: edit it, and send the process SIGHUP",
);

fn all(call: &Call<'_, '_>) -> Vec<Arc<User>> {
    let users = call.shared.live().users.clone();
    if users.is_empty() {
        return vec![users::anyone()];
    }
    users.iter().cloned().collect()
}

fn named(call: &Call<'_, '_>, name: &[u8]) -> Option<Arc<User>> {
    let mut all = all(call).into_iter();
    all.find(|it| it.name.as_bytes() == name)
}

/// Whether `user` might give a command, without giving it.
fn dry_run(call: &mut Call<'_, '_>, name: &[u8], command: &[&[u8]]) -> Outcome {
    let user = named(call, name).ok_or_else(|| {
        let name = String::from_utf8_lossy(name).into_owned();
        Failure::of(format!("ERR User '{name}' not found"))
    })?;
    let spec = find(command[0]).filter(|spec| spec.takes(command.len()));
    let spec = spec.ok_or_else(|| {
        let name = String::from_utf8_lossy(command[0]).into_owned();
        Failure::of(format!(
            "ERR Command '{name}' not found, or with a wrong number of arguments"
        ))
    })?;
    match users::check(&user, spec, command) {
        Ok(()) => call.out.ok(),
        Err(refusal) => call.out.bulk(refusal.0.as_bytes()),
    }
    Ok(())
}

/// What a user may do: patterns of keys, patterns of channels, commands.
fn rules(user: &User) -> [String; 3] {
    if user.is_admin {
        return ["~*", "&*", "+@all"].map(ToOwned::to_owned);
    }
    let patterns = |show: &dyn Fn(&Right, &str) -> Option<String>| {
        let shown = user.rights.iter().filter_map(|right| {
            let prefix = glob::escaped(&right.prefix);
            show(right, &prefix)
        });
        shown.collect::<Vec<_>>().join(" ")
    };
    let keys = patterns(&|right, prefix| {
        let access = match (right.read, right.write) {
            (true, true) => "~",
            (true, false) => "%R~",
            (false, true) => "%W~",
            (false, false) => return None,
        };
        Some(format!("{access}{prefix}*"))
    });
    let channels = patterns(&|_, prefix| Some(format!("&{prefix}*")));
    let any = |may: fn(&Right) -> bool| user.rights.iter().any(may);
    let commands = [
        (true, "-@all +@connection"),
        (any(|it| it.read), "+@read"),
        (any(|it| it.write), "+@write"),
        (any(|it| it.depart), "+device.depart"),
    ];
    let commands = commands.iter().filter(|it| it.0).map(|it| it.1);
    [keys, channels, commands.collect::<Vec<_>>().join(" ")]
}

fn line(user: &User) -> String {
    let rules = rules(user).into_iter().filter(|it| !it.is_empty());
    let rules = rules.collect::<Vec<_>>().join(" ");
    let passes = if has_secret(user) { "" } else { " nopass" };
    format!("user {} on{passes} {rules}", user.name)
}

fn has_secret(user: &User) -> bool {
    user.password.is_some() || user.token.is_some() || user.certificate.is_some()
}

/// A user as Redis 7 shows one.
fn show(call: &mut Call<'_, '_>, user: &User) {
    let [keys, channels, commands] = rules(user);
    let flags: &[&str] = if has_secret(user) {
        &["on"]
    } else {
        &["on", "nopass"]
    };
    let out = &mut *call.out;
    out.map(6);
    out.bulk(b"flags");
    out.array(flags.len());
    for flag in flags {
        out.bulk(flag.as_bytes());
    }
    out.bulk(b"passwords");
    out.array(0);
    for (name, rules) in [
        ("commands", commands),
        ("keys", keys),
        ("channels", channels),
    ] {
        out.bulk(name.as_bytes());
        out.bulk(rules.as_bytes());
    }
    out.bulk(b"selectors");
    out.array(0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use waystation_access::Secret;

    #[test]
    fn users_are_shown_in_the_words_of_redis() {
        let right = |prefix: &str, read, write, depart| Right {
            prefix: prefix.to_owned(),
            read,
            write,
            depart,
        };
        let user = User {
            name: "ann".to_owned(),
            password: Some(Secret::of(b"secret")),
            rights: vec![
                right("car*:", true, true, false),
                right("bus", true, false, true),
                right("log", false, true, false),
            ],
            ..User::default()
        };
        assert_eq!(
            line(&user),
            "user ann on ~car\\*:* %R~bus* %W~log* &car\\*:* &bus* &log* -@all +@connection +@read +@write +device.depart"
        );
        assert_eq!(line(&users::anyone()), "user default on nopass ~* &* +@all");
    }
}
