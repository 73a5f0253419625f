//! Commands about the connection: who the client is, transactions, channels, durability, itself.

use super::{Call, find, integer, is, text};
use crate::client::{After, Info, Replies, Shown, Transaction};
use crate::failure::{Failure, NOT_INTEGER, Outcome, SYNTAX};
use crate::glob;
use crate::session::carry_out;
use crate::settings::Durability;
use crate::store::{STRIPES, Store, lock};
use crate::work::{WRITTEN_BYTES_MAX, Work};
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// The name of a client, or of its library, which the server keeps (bytes).
const NAME_BYTES_MAX: usize = 1024;

pub(super) fn begin(call: &mut Call<'_, '_>, _: &[&[u8]]) -> Outcome {
    if call.client.transaction.is_some() {
        return Err(Failure::new("ERR MULTI calls can not be nested"));
    }
    call.client.transaction = Some(Transaction::default());
    call.out.ok();
    Ok(())
}

pub(super) fn watch(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    if call.client.transaction.is_some() {
        return Err(Failure::new("ERR WATCH inside MULTI is not allowed"));
    }
    // The session has committed what this run wrote before: it is no change by another.
    let database = call.client.database;
    for key in &args[1..] {
        call.work.store.watch(key, &call.client.is_dirty);
        call.client.watched.push((database, key.to_vec()));
    }
    call.out.ok();
    Ok(())
}

pub(super) fn unwatch(call: &mut Call<'_, '_>, _: &[&[u8]]) -> Outcome {
    if !call.client.is_executing {
        call.client.unwatch(call.shared);
    }
    call.out.ok();
    Ok(())
}

pub(super) fn discard(call: &mut Call<'_, '_>, _: &[&[u8]]) -> Outcome {
    if call.client.transaction.take().is_none() {
        return Err(Failure::new("ERR DISCARD without MULTI"));
    }
    call.client.unwatch(call.shared);
    call.out.ok();
    Ok(())
}

/// Carries the queued commands out. Their keys, and the watched ones, are held.
pub(super) fn exec(call: &mut Call<'_, '_>, _: &[&[u8]]) -> Outcome {
    let Some(transaction) = call.client.transaction.take() else {
        return Err(Failure::new("ERR EXEC without MULTI"));
    };
    let is_dirty = call.client.is_dirty.load(SeqCst);
    call.client.unwatch(call.shared);
    if transaction.is_broken {
        return Err(Failure::new(
            "EXECABORT Transaction discarded because of previous errors.",
        ));
    }
    if is_dirty {
        call.out.null_array();
        return Ok(());
    }
    let first = call.out.bytes.len();
    call.out.array(transaction.commands.len());
    call.client.is_executing = true;
    tokio::task::block_in_place(|| {
        for queued in &transaction.commands {
            let args: Vec<&[u8]> = queued.iter().map(|it| &it[..]).collect();
            let Some(spec) = find(args[0]) else {
                continue;
            };
            let begun = call.out.bytes.len();
            let carried_out =
                check_executed(call, begun - first).and_then(|()| carry_out(call, spec, &args));
            if let Err(failure) = carried_out {
                call.out.bytes.truncate(begun);
                call.out.error(&failure.0);
            }
        }
    });
    call.client.is_executing = false;
    Ok(())
}

/// Refuses the next command of a transaction whose writes or answers have grown too long in memory.
fn check_executed(call: &Call<'_, '_>, answer_bytes: usize) -> Outcome {
    if call.work.batch_bytes() > WRITTEN_BYTES_MAX {
        return Err(Failure::new("ERR the transaction writes too much"));
    }
    call.shared.check_answer(answer_bytes)
}

pub(super) fn flushall(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let stores = &call.shared.stores;
    if stores.len() > 1 && call.client.is_executing {
        return Err(Failure::new(
            "ERR a transaction is about one database: FLUSHDB empties it",
        ));
    }
    super::keys::flush(call, args)?;
    if stores.len() == 1 {
        return Ok(());
    }
    // One database is held at a time: two clients that each hold their own would wait for each other.
    call.work.commit()?;
    make_durable(call, call.work.store)?;
    for store in stores {
        if std::ptr::eq(Arc::as_ptr(store), call.work.store) {
            continue;
        }
        let mut work = Work::new(store);
        work.hold_all(&mut (0..STRIPES).map(|it| (it, true)).collect());
        work.delete_range(b"", None);
        work.commit()?;
        make_durable(call, store)?;
    }
    Ok(())
}

/// Syncs writes outside the run's batch, if writes are acknowledged only then.
pub(super) fn make_durable(call: &Call<'_, '_>, store: &Store) -> Outcome {
    if call.shared.live().durability == Durability::Power {
        store.db.sync()?;
    }
    Ok(())
}

pub(super) fn select(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let mut stores = call.shared.stores.iter();
    let by_name = stores.position(|it| it.name.as_bytes() == args[1]);
    let number = if let Some(number) = by_name {
        number
    } else {
        let number = integer(args[1]).map_err(|_| Failure::new("ERR invalid DB index"))?;
        usize::try_from(number)
            .ok()
            .filter(|it| *it < call.shared.stores.len())
            .ok_or(Failure::new("ERR DB index is out of range"))?
    };
    call.client.database = number;
    call.client.info.database.store(number, SeqCst);
    call.out.ok();
    Ok(())
}

/// There are no replicas.
pub(super) fn wait(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    integer(args[1])?;
    integer(args[2])?;
    call.out.integer(0);
    Ok(())
}

pub(super) fn waitaof(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let (local, _, millis) = (integer(args[1])?, integer(args[2])?, integer(args[3])?);
    if !(0..=1).contains(&local) {
        return Err(Failure::new(
            "ERR value is out of range, must be between 0 and 1",
        ));
    }
    let millis = u64::try_from(millis).map_err(|_| Failure::new("ERR timeout is negative"))?;
    if call.client.is_executing {
        call.out.array(2);
        call.out.integer(0);
        call.out.integer(0);
        return Ok(());
    }
    let is_told = matches!(call.client.replies, Replies::On);
    call.client.after = After::Durable(millis, is_told);
    Ok(())
}

pub(super) fn auth(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let (name, password) = match args[1..] {
        [password] => (&b"default"[..], password),
        [name, password] => (name, password),
        _ => return Err(SYNTAX),
    };
    sign_in(call, name, password)?;
    call.out.ok();
    Ok(())
}

fn sign_in(call: &mut Call<'_, '_>, name: &[u8], password: &[u8]) -> Outcome {
    let users = &call.shared.live().users;
    if users.is_empty() {
        return Err(Failure::new(
            "ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?",
        ));
    }
    let user = crate::users::sign_in(users, name, password)?;
    call.client.be(user, call.shared);
    Ok(())
}

pub(super) fn hello(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let version = match args.get(1) {
        None => None,
        Some(version) => match integer(version) {
            Ok(version @ (2 | 3)) => Some(version),
            Ok(_) => return Err(Failure::new("NOPROTO unsupported protocol version")),
            Err(_) => {
                return Err(Failure::new(
                    "ERR Protocol version is not an integer or out of range",
                ));
            }
        },
    };
    let mut name = None;
    let mut rest = args.get(2..).unwrap_or_default();
    while let [option, more @ ..] = rest {
        rest = match more {
            [user, password, after @ ..] if is(option, "AUTH") => {
                sign_in(call, user, password)?;
                after
            }
            [given, after @ ..] if is(option, "SETNAME") => {
                name = Some(check_name(given)?);
                after
            }
            _ => {
                let option = text(option);
                return Err(Failure::of(format!(
                    "ERR Syntax error in HELLO option '{option}'"
                )));
            }
        };
    }
    if call.client.user.is_none() {
        return Err(Failure::new(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        lock(&call.client.info.shown).name = name.to_vec();
    }
    if let Some(version) = version {
        call.out.is_third = version == 3;
        lock(&call.client.info.shown).is_third = version == 3;
    }
    let out = &mut *call.out;
    out.map(7);
    for (key, value) in [
        ("server", "redis"),
        ("version", super::server::REDIS_VERSION),
    ] {
        out.bulk(key.as_bytes());
        out.bulk(value.as_bytes());
    }
    out.bulk(b"proto");
    out.integer(if out.is_third { 3 } else { 2 });
    out.bulk(b"id");
    out.integer(call.client.info.id.cast_signed());
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        out.bulk(key.as_bytes());
        out.bulk(value.as_bytes());
    }
    out.bulk(b"modules");
    out.array(0);
    Ok(())
}

pub(super) fn reset(call: &mut Call<'_, '_>, _: &[&[u8]]) -> Outcome {
    let client = &mut *call.client;
    client.leave(call.shared);
    client.transaction = None;
    client.database = 0;
    client.replies = Replies::On;
    client.info.is_listening.store(false, SeqCst);
    client.info.database.store(0, SeqCst);
    *lock(&client.info.shown) = Shown::default();
    client.be_nameless(call.shared);
    call.out.is_third = false;
    call.out.simple("RESET");
    Ok(())
}

pub(super) fn quit(call: &mut Call<'_, '_>, _: &[&[u8]]) -> Outcome {
    call.client.after = After::Close;
    call.out.ok();
    Ok(())
}

/// Notes how much a client listens to, and says so.
fn tell_listening(call: &mut Call<'_, '_>, kind: &str, name: Option<&[u8]>) {
    let (channels, patterns) = (call.client.channels.len(), call.client.patterns.len());
    let mut shown = lock(&call.client.info.shown);
    (shown.channels, shown.patterns) = (channels, patterns);
    drop(shown);
    let is_listening = call.client.is_listening();
    call.client.info.is_listening.store(is_listening, SeqCst);
    call.out.push(3);
    call.out.bulk(kind.as_bytes());
    call.out.bulk_or_null(name);
    call.out.count(channels + patterns);
}

fn listen(call: &mut Call<'_, '_>, args: &[&[u8]], by_pattern: bool) -> Outcome {
    for name in &args[1..] {
        let user = call.client.user.as_ref();
        // Every channel that fits a pattern begins so.
        let start = if by_pattern {
            glob::literal_prefix(name)
        } else {
            *name
        };
        if !user.is_some_and(|it| it.may_read(start)) {
            return Err(Failure::new(
                "NOPERM this user has no permissions to access one of the channels used as arguments",
            ));
        }
    }
    for name in &args[1..] {
        let listener = call.client.listener();
        call.shared.pubsub.subscribe(by_pattern, name, listener);
        if by_pattern {
            call.client.patterns.insert(name.to_vec());
        } else {
            call.client.channels.insert(name.to_vec());
        }
        let kind = if by_pattern {
            "psubscribe"
        } else {
            "subscribe"
        };
        tell_listening(call, kind, Some(name));
    }
    Ok(())
}

fn stop_listening(call: &mut Call<'_, '_>, args: &[&[u8]], by_pattern: bool) {
    let kind = if by_pattern {
        "punsubscribe"
    } else {
        "unsubscribe"
    };
    let held = if by_pattern {
        &call.client.patterns
    } else {
        &call.client.channels
    };
    let names: Vec<Vec<u8>> = if args.len() > 1 {
        args[1..].iter().map(|it| it.to_vec()).collect()
    } else {
        held.iter().cloned().collect()
    };
    if names.is_empty() {
        tell_listening(call, kind, None);
    }
    for name in names {
        call.shared
            .pubsub
            .unsubscribe(by_pattern, &name, call.client.info.id);
        if by_pattern {
            call.client.patterns.remove(&name);
        } else {
            call.client.channels.remove(&name);
        }
        tell_listening(call, kind, Some(&name));
    }
}

pub(super) fn subscribe(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    listen(call, args, false)
}

pub(super) fn psubscribe(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    listen(call, args, true)
}

pub(super) fn unsubscribe(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    stop_listening(call, args, false);
    Ok(())
}

pub(super) fn punsubscribe(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    stop_listening(call, args, true);
    Ok(())
}

fn check_name(name: &[u8]) -> Outcome<&[u8]> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Failure::new(
            "ERR Client names cannot be longer than 1024 bytes",
        ));
    }
    if name.iter().all(|it| (b'!'..=b'~').contains(it)) {
        return Ok(name);
    }
    Err(Failure::new(
        "ERR Client names cannot contain spaces, newlines or special characters.",
    ))
}

/// One line of `CLIENT LIST`.
fn line(info: &Info, now: u64) -> String {
    let shown = lock(&info.shown).clone();
    let seconds = |since: u64| now.saturating_sub(since) / 1000;
    let mut line = String::new();
    let name = text(&shown.name);
    let user = shown.user.as_ref().map_or("default", |it| &it.name);
    let command = if shown.command.is_empty() {
        "NULL"
    } else {
        shown.command
    };
    let queued = shown.queued.map_or(-1, usize::cast_signed);
    // Writing to a string does not fail.
    let _ = write!(
        line,
        "id={} addr={} name={name} age={} idle={} flags=N db={} sub={} psub={} multi={queued} cmd={} user={user} resp={} lib-name={} lib-ver={}",
        info.id,
        info.address,
        seconds(info.since),
        seconds(info.active_at.load(SeqCst)),
        info.database.load(SeqCst),
        shown.channels,
        shown.patterns,
        command.to_ascii_lowercase(),
        if shown.is_third { 3 } else { 2 },
        text(&shown.library),
        text(&shown.library_version),
    );
    line
}

pub(super) fn client(call: &mut Call<'_, '_>, args: &[&[u8]]) -> Outcome {
    let info = Arc::clone(&call.client.info);
    let now = call.shared.clock.millis();
    match (args[1], &args[2..]) {
        (it, []) if is(it, "ID") => call.out.integer(info.id.cast_signed()),
        (it, []) if is(it, "GETNAME") => {
            let name = lock(&info.shown).name.clone();
            call.out.bulk_or_null((!name.is_empty()).then_some(&name));
        }
        (it, [name]) if is(it, "SETNAME") => {
            lock(&info.shown).name = check_name(name)?.to_vec();
            call.out.ok();
        }
        (it, [what, value]) if is(it, "SETINFO") => {
            let value = check_name(value)?.to_vec();
            match what {
                it if is(it, "LIB-NAME") => lock(&info.shown).library = value,
                it if is(it, "LIB-VER") => lock(&info.shown).library_version = value,
                other => {
                    let other = text(other);
                    return Err(Failure::of(format!("ERR Unrecognized option '{other}'")));
                }
            }
            call.out.ok();
        }
        (it, []) if is(it, "INFO") => {
            let line = line(&info, now) + "\n";
            call.out.verbatim(&line);
        }
        (it, _) if is(it, "LIST") => {
            check_admin(call)?;
            let mut clients: Vec<_> = lock(&call.shared.clients).values().cloned().collect();
            clients.sort_unstable_by_key(|it| it.id);
            let lines: Vec<String> = clients.iter().map(|it| line(it, now) + "\n").collect();
            call.out.verbatim(&lines.concat());
        }
        (it, rest) if is(it, "KILL") => {
            check_admin(call)?;
            kill(call, rest)?;
        }
        (it, [how]) if is(it, "REPLY") => reply(call, how)?,
        (it, [how])
            if (is(it, "NO-EVICT") || is(it, "NO-TOUCH")) && (is(how, "ON") || is(how, "OFF")) =>
        {
            call.out.ok();
        }
        (other, _) => {
            let other = text(other);
            return Err(Failure::of(format!(
                "ERR unknown subcommand or wrong number of arguments for '{other}'. Try CLIENT HELP."
            )));
        }
    }
    Ok(())
}

fn check_admin(call: &Call<'_, '_>) -> Outcome {
    match &call.client.user {
        Some(user) if user.is_admin => Ok(()),
        _ => Err(Failure::new(
            "NOPERM this user has no permissions to run the 'client' command",
        )),
    }
}

fn reply(call: &mut Call<'_, '_>, how: &[u8]) -> Outcome {
    if call.client.is_executing {
        // The answers of a transaction are one array, which lacks none.
        return Err(Failure::new("ERR Command not allowed inside a transaction"));
    }
    call.client.replies = match how {
        it if is(it, "ON") => {
            call.out.ok();
            Replies::On
        }
        it if is(it, "OFF") => Replies::Off,
        it if is(it, "SKIP") => Replies::SkipNext,
        _ => return Err(SYNTAX),
    };
    Ok(())
}

/// Whether a client is one that is meant.
type Test = Box<dyn Fn(&Info) -> bool>;

fn kill(call: &mut Call<'_, '_>, rest: &[&[u8]]) -> Outcome {
    let clients: Vec<_> = lock(&call.shared.clients).values().cloned().collect();
    let own = call.client.info.id;
    if let [address] = rest {
        let found = clients
            .iter()
            .find(|it| it.address.to_string().as_bytes() == *address);
        found.ok_or(Failure::new("ERR No such client"))?.kill();
        call.out.ok();
        return Ok(());
    }
    let (pairs, odd) = rest.as_chunks::<2>();
    if pairs.is_empty() || !odd.is_empty() {
        return Err(SYNTAX);
    }
    let mut spares_self = true;
    let mut tests: Vec<Test> = Vec::new();
    for [option, value] in pairs {
        let wanted = value.to_vec();
        match option {
            it if is(it, "ID") => {
                let id = u64::try_from(integer(value)?).map_err(|_| NOT_INTEGER)?;
                tests.push(Box::new(move |info| info.id == id));
            }
            it if is(it, "ADDR") => tests.push(Box::new(move |info| {
                info.address.to_string().as_bytes() == wanted
            })),
            it if is(it, "USER") => tests.push(Box::new(move |info| {
                let user = lock(&info.shown).user.clone();
                user.is_some_and(|it| it.name.as_bytes() == wanted)
            })),
            it if is(it, "SKIPME") => spares_self = is(value, "YES"),
            _ => return Err(SYNTAX),
        }
    }
    let fits = |info: &Info| tests.iter().all(|it| it(info)) && !(spares_self && info.id == own);
    let mut killed = 0;
    for info in clients.iter().filter(|it| fits(it)) {
        if info.id == own {
            call.client.after = After::Close;
        } else {
            info.kill();
        }
        killed += 1;
    }
    call.out.integer(killed);
    Ok(())
}
