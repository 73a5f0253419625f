//! Commands about the server: what it is, what it does, what it is told; and messages.

use super::{Access, Call, Places, Spec, find, is, specs, text};
use crate::clock::wall;
use crate::failure::{Failure, Outcome};
use crate::glob;
use crate::settings::Durability;
use crate::store::lock;
use std::fmt::Write as _;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

/// The version of Redis whose commands these are.
pub(super) const REDIS_VERSION: &str = "7.0.15";

pub(super) fn ping(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    match args[1..] {
        _ if call.client.is_listening() && !call.out.is_third => {
            call.out.array(2);
            call.out.bulk(b"pong");
            call.out.bulk(args.get(1).copied().unwrap_or_default());
        }
        [] => call.out.simple("PONG"),
        [message] => call.out.bulk(message),
        _ => return Err(Failure::arguments("ping")),
    }
    Ok(())
}

pub(super) fn echo(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    call.out.bulk(args[1]);
    Ok(())
}

pub(super) fn time(call: &mut Call<'_, '_>, _: &[&[u8]]) -> Outcome {
    let now = wall();
    call.out.array(2);
    call.out.bulk(now.as_secs().to_string().as_bytes());
    call.out.bulk(now.subsec_micros().to_string().as_bytes());
    Ok(())
}

/// Everything is saved when it is acknowledged.
pub(super) fn lastsave(call: &mut Call<'_, '_>, _: &[&[u8]]) -> Outcome {
    call.out.integer(wall().as_secs().cast_signed());
    Ok(())
}

pub(super) fn publish(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    if !call
        .client
        .user
        .as_ref()
        .is_some_and(|it| it.may_write(args[1]))
    {
        return Err(Failure::new(
            "NOPERM this user has no permissions to access one of the channels used as arguments",
        ));
    }
    let pubsub = &call.shared.pubsub;
    let receivers = if call.client.is_executing {
        let message = (args[1].to_vec(), args[2].to_vec());
        call.client.messages.push(message);
        pubsub.receivers(args[1])
    } else {
        pubsub.publish(args[1], args[2])
    };
    call.out.count(receivers);
    Ok(())
}

pub(super) fn pubsub(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let pubsub = &call.shared.pubsub;
    match (args[1], &args[2..]) {
        (it, rest @ ([] | [_])) if is(it, "CHANNELS") => {
            let channels = pubsub.channels(rest.first().copied());
            call.out.array(channels.len());
            for channel in channels {
                call.out.bulk(&channel);
            }
        }
        (it, channels) if is(it, "NUMSUB") => {
            call.out.map(channels.len());
            for channel in channels {
                call.out.bulk(channel);
                call.out.count(pubsub.listeners(channel));
            }
        }
        (it, []) if is(it, "NUMPAT") => call.out.count(pubsub.patterns()),
        (other, _) => {
            let other = text(other);
            return Err(Failure::of(format!(
                "ERR unknown subcommand or wrong number of arguments for '{other}'. Try PUBSUB HELP."
            )));
        }
    }
    Ok(())
}

fn show_spec(call: &mut Call<'_, '_>, spec: &Spec) {
    let (first, last, step) = match spec.places {
        Places::Range(first, last, step) => (
            first.cast_signed() as i64,
            i64::from(last),
            step.cast_signed() as i64,
        ),
        Places::Numbered(2) => (1, 1, 1),
        Places::None | Places::Numbered(_) => (0, 0, 0),
    };
    let flags: &[&str] = match spec.access {
        Access::Read => &["readonly", "fast"],
        Access::ReadMany => &["readonly"],
        Access::Put | Access::Set | Access::Write | Access::WriteMany => &["write", "denyoom"],
        Access::WriteAll | Access::Depart | Access::Admit => &["write"],
        Access::Control => &["loading", "stale", "fast"],
        Access::Open => &["no_auth", "loading", "stale", "fast"],
        Access::Admin => &["admin", "loading", "stale"],
    };
    let out = &mut *call.out;
    out.array(7);
    out.bulk(spec.name.to_ascii_lowercase().as_bytes());
    out.integer(spec.arity.into());
    out.array(flags.len());
    for flag in flags {
        out.simple(flag);
    }
    for number in [first, last, step] {
        out.integer(number);
    }
    out.array(0);
}

pub(super) fn command(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    match args.get(1) {
        None => {
            call.out.array(specs().count());
            specs().for_each(|it| show_spec(call, &it));
        }
        Some(it) if is(it, "COUNT") => call.out.count(specs().count()),
        Some(it) if is(it, "LIST") => {
            call.out.array(specs().count());
            for spec in specs() {
                call.out.bulk(spec.name.to_ascii_lowercase().as_bytes());
            }
        }
        Some(it) if is(it, "INFO") => {
            call.out.array(args.len() - 2);
            for name in &args[2..] {
                match find(name) {
                    Some(spec) => show_spec(call, spec),
                    None => call.out.null_array(),
                }
            }
        }
        Some(it) if is(it, "DOCS") => {
            let is_asked =
                |it: &Spec| args.len() == 2 || args[2..].iter().any(|name| is(name, it.name));
            let asked: Vec<Spec> = specs().filter(is_asked).collect();
            call.out.map(asked.len());
            for spec in asked {
                call.out.bulk(spec.name.to_ascii_lowercase().as_bytes());
                call.out.map(1);
                call.out.bulk(b"arity");
                call.out.integer(spec.arity.into());
            }
        }
        Some(it) if is(it, "GETKEYS") && args.len() > 2 => {
            let spec = find(args[2]).ok_or(Failure::new("ERR Invalid command specified"))?;
            if !spec.takes(args.len() - 2) {
                return Err(Failure::new(
                    "ERR Invalid number of arguments specified for command",
                ));
            }
            let keys: Vec<&[u8]> = spec.keys(&args[2..]).collect();
            if keys.is_empty() {
                return Err(Failure::new("ERR The command has no key arguments"));
            }
            call.out.array(keys.len());
            for key in keys {
                call.out.bulk(key);
            }
        }
        Some(other) => {
            let other = text(other);
            return Err(Failure::of(format!(
                "ERR unknown subcommand '{other}'. Try COMMAND HELP."
            )));
        }
    }
    Ok(())
}

/// What `CONFIG GET` shows: the settings that clients look for.
fn parameters(call: &Call<'_, '_>) -> Vec<(&'static str, String)> {
    let live = call.shared.live();
    let dir = call.work.store.db.path().display().to_string();
    vec![
        ("appendonly", "yes".to_owned()),
        ("appendfsync", live.durability.redis_name().to_owned()),
        ("bind", call.shared.address.ip().to_string()),
        ("databases", call.shared.stores.len().to_string()),
        ("dir", dir),
        ("maxclients", live.clients_max.to_string()),
        ("maxmemory", "0".to_owned()),
        ("maxmemory-policy", "noeviction".to_owned()),
        ("port", call.shared.address.port().to_string()),
        ("proto-max-bulk-len", live.bulk_bytes_max.to_string()),
        ("save", String::new()),
        ("timeout", live.idle_timeout.as_secs().to_string()),
    ]
}

pub(super) fn config(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    match (args[1], &args[2..]) {
        (it, patterns) if is(it, "GET") && !patterns.is_empty() => {
            let all = parameters(call);
            let patterns: Vec<Vec<u8>> =
                patterns.iter().map(|it| it.to_ascii_lowercase()).collect();
            let fits = |name: &str| patterns.iter().any(|it| glob::matches(it, name.as_bytes()));
            let found: Vec<_> = all.into_iter().filter(|it| fits(it.0)).collect();
            call.out.map(found.len());
            for (name, value) in found {
                call.out.bulk(name.as_bytes());
                call.out.bulk(value.as_bytes());
            }
        }
        (it, pairs) if is(it, "SET") && !pairs.is_empty() && pairs.len().is_multiple_of(2) => {
            let mut live = (*call.shared.live()).clone();
            for pair in pairs.chunks(2) {
                set(&mut live, pair[0], pair[1])?;
            }
            call.shared.set_live(live);
            call.out.ok();
        }
        (it, []) if is(it, "RESETSTAT") => {
            for counter in [
                &call.shared.connections,
                &call.shared.refused,
                &call.shared.commands,
            ] {
                counter.store(0, SeqCst);
            }
            call.out.ok();
        }
        (it, []) if is(it, "REWRITE") => {
            return Err(Failure::new(
                "ERR the configuration file is not written by the server: edit it, and send the process SIGHUP",
            ));
        }
        (other, _) => {
            let other = text(other);
            return Err(Failure::of(format!(
                "ERR unknown subcommand or wrong number of arguments for '{other}'. Try CONFIG HELP."
            )));
        }
    }
    Ok(())
}

fn set(live: &mut crate::settings::Live, name: &[u8], value: &[u8]) -> Outcome {
    let shown = text(name);
    let invalid = || {
        Failure::of(format!(
            "ERR CONFIG SET failed (possibly related to argument '{shown}') - argument couldn't be parsed"
        ))
    };
    let number = || {
        std::str::from_utf8(value)
            .ok()
            .and_then(|it| it.parse::<usize>().ok())
            .ok_or_else(invalid)
    };
    match name {
        it if is(it, "appendfsync") => {
            live.durability = Durability::of_redis(value).ok_or_else(invalid)?;
        }
        it if is(it, "timeout") => live.idle_timeout = Duration::from_secs(number()? as u64),
        it if is(it, "maxclients") => live.clients_max = number()?.max(1),
        _ => {
            return Err(Failure::of(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{shown}'"
            )));
        }
    }
    Ok(())
}

/// Memory of the process, from the operating system (bytes).
fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|it| it.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// The lines of a section.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn say(&mut self, key: &str, value: impl std::fmt::Display) {
        // Writing to a string does not fail.
        let _ = write!(self.0, "{key}:{value}\r\n");
    }
}

fn about_server(call: &Call<'_, '_>, lines: &mut Lines) {
    let uptime = call.shared.clock.uptime().as_secs();
    lines.say("redis_version", REDIS_VERSION);
    lines.say("waystation_version", env!("CARGO_PKG_VERSION"));
    lines.say("redis_mode", "standalone");
    lines.say("os", std::env::consts::OS);
    lines.say("arch_bits", usize::BITS);
    lines.say("process_id", std::process::id());
    lines.say("tcp_port", call.shared.address.port());
    lines.say("uptime_in_seconds", uptime);
    lines.say("uptime_in_days", uptime / 86_400);
}

fn about_clients(call: &Call<'_, '_>, lines: &mut Lines) {
    let shared = call.shared;
    lines.say("connected_clients", lock(&shared.clients).len());
    lines.say("maxclients", shared.live().clients_max);
    lines.say("client_buffers_bytes", shared.held.load(SeqCst));
}

fn about_memory(_: &Call<'_, '_>, lines: &mut Lines) {
    let resident = resident_bytes();
    lines.say("used_memory", resident);
    lines.say("used_memory_rss", resident);
    lines.say("maxmemory", 0);
}

fn about_persistence(call: &Call<'_, '_>, lines: &mut Lines) {
    let mut stores = call.shared.stores.iter();
    let fails = stores.any(|it| it.db.stats().failure.is_some());
    lines.say("loading", 0);
    lines.say("aof_enabled", 1);
    lines.say("aof_last_write_status", if fails { "err" } else { "ok" });
    lines.say("appendfsync", call.shared.live().durability.redis_name());
}

fn about_stats(call: &Call<'_, '_>, lines: &mut Lines) {
    let shared = call.shared;
    let batches: u64 = shared.stores.iter().map(|it| it.commits.load(SeqCst)).sum();
    lines.say(
        "total_connections_received",
        shared.connections.load(SeqCst),
    );
    lines.say("total_commands_processed", shared.commands.load(SeqCst));
    lines.say("rejected_connections", shared.refused.load(SeqCst));
    lines.say("total_batches", batches);
    lines.say("pubsub_channels", shared.pubsub.channels(None).len());
    lines.say("pubsub_patterns", shared.pubsub.patterns());
}

fn about_replication(_: &Call<'_, '_>, lines: &mut Lines) {
    lines.say("role", "master");
    lines.say("connected_slaves", 0);
}

fn about_keyspace(call: &Call<'_, '_>, lines: &mut Lines) {
    for (number, store) in call.shared.stores.iter().enumerate() {
        let stats = store.db.stats();
        let tables: u64 = stats.tree.levels.iter().map(|it| it.bytes).sum();
        let devices = stats.devices.map_or(0, |it| it.devices);
        let value = format!("name={},devices={devices},table_bytes={tables}", store.name);
        lines.say(&format!("db{number}"), value);
    }
}

type About = fn(&Call<'_, '_>, &mut Lines);

const SECTIONS: [(&str, About); 7] = [
    ("Server", about_server),
    ("Clients", about_clients),
    ("Memory", about_memory),
    ("Persistence", about_persistence),
    ("Stats", about_stats),
    ("Replication", about_replication),
    ("Keyspace", about_keyspace),
];

pub(super) fn info(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    const ALL: [&str; 3] = ["all", "everything", "default"];
    let is_asked = |name: &str| {
        args.len() == 1
            || args[1..]
                .iter()
                .any(|it| is(it, name) || ALL.iter().any(|all| is(it, all)))
    };
    let asked = SECTIONS.iter().filter(|it| is_asked(it.0));
    let show = |(name, about): &(&str, About)| {
        let mut lines = Lines::default();
        about(call, &mut lines);
        format!("# {name}\r\n{}", lines.0)
    };
    let sections: Vec<String> = asked.map(show).collect();
    call.out.verbatim(&sections.join("\r\n"));
    Ok(())
}
