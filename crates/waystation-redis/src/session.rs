//! Commands of one client, run by run.
//!
//! A run is what the client sent at once. Its writes are one batch; its answers leave when the batch is committed. A run
//! ends early where it grows too large, where another database is selected, and where a command needs the batch to be
//! durable. A key that another connection holds ends the batch, and a new one begins.

use crate::client::{After, Client, Replies};
use crate::commands::{Call, Holding, Run, Spec, find, is};
use crate::failure::{Failure, Outcome};
use crate::resp::{Limits, Out, Parsed, Parser, ProtocolError};
use crate::server::Shared;
use crate::store::{STRIPES, Store};
use crate::work::Work;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A run of more commands is cut.
const COMMANDS_MAX: usize = 2048;
/// A run with a longer batch is cut (bytes).
const BATCH_BYTES: usize = 1 << 20;
/// A run with longer answers is cut (bytes).
const ANSWER_BYTES: usize = 256 << 10;
/// The commands of one transaction (bytes of their arguments).
const TRANSACTION_BYTES_MAX: usize = 64 << 20;
/// What an argument that is kept takes beside its bytes.
const ARGUMENT_BYTES: usize = 32;
/// Commands of up to so many arguments need no memory of their own for them.
const ARGUMENTS_FEW: usize = 8;

/// A client's commands, and where they are.
pub(crate) struct Session {
    pub(crate) client: Client,
    parser: Parser,
    /// Answers to writes that are not committed: places in the output.
    pending: Vec<(usize, usize)>,
    /// The stripes of a command: one piece of memory for all commands of a run.
    stripes: Vec<(usize, bool)>,
    /// The command that `CLIENT LIST` shows.
    noted: &'static str,
    /// The commands of a transaction that it shows.
    noted_queued: Option<usize>,
}

/// What came of a run.
pub(crate) struct Ran {
    /// Bytes of input that were read.
    pub(crate) consumed: usize,
    pub(crate) commands: usize,
    /// The database that it was about.
    pub(crate) database: usize,
    /// Something was written.
    pub(crate) has_written: bool,
    /// Places of all answers to writes of this run, for a failure that comes later.
    pub(crate) writes: Vec<(usize, usize)>,
}

impl Ran {
    fn new(database: usize) -> Self {
        Self {
            consumed: 0,
            commands: 0,
            database,
            has_written: false,
            writes: Vec::new(),
        }
    }
}

impl Session {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            parser: Parser::default(),
            pending: Vec::new(),
            stripes: Vec::new(),
            noted: "",
            noted_queued: None,
        }
    }

    /// Memory that it keeps (bytes).
    pub(crate) fn held_bytes(&self) -> usize {
        let client = &self.client;
        let queued = client.transaction.as_ref().map_or(0, |it| it.bytes);
        let watched = client.watched.iter().map(|it| &it.1);
        let names = watched.chain(&client.channels).chain(&client.patterns);
        let kept: usize = names.map(|it| it.len() + ARGUMENT_BYTES).sum();
        self.parser.held_bytes() + queued + kept
    }

    /// Carries out whole commands at the head of `input`, as many as make one run.
    pub(crate) fn run(
        &mut self,
        shared: &Shared,
        input: &[u8],
        out: &mut Out,
    ) -> (Ran, Option<ProtocolError>) {
        let store = Arc::clone(&shared.stores[self.client.database]);
        let database = self.client.database;
        let mut work = Work::new(&store);
        let mut ran = Ran::new(database);
        let mut parser = std::mem::take(&mut self.parser);
        let bulk_bytes_max = shared.live().bulk_bytes_max;
        let refused = loop {
            let limits = if self.client.user.is_some() {
                Limits::new(bulk_bytes_max)
            } else {
                Limits::stranger()
            };
            // As when the rights of its user were taken away.
            if self.client.info.is_killed.load(Relaxed) {
                break None;
            }
            let rest = &input[ran.consumed..];
            match parser.parse(rest, limits) {
                Err(error) => break Some(error),
                Ok(Parsed::Incomplete) => break None,
                Ok(Parsed::Command(length)) => {
                    let arguments = parser.arguments(rest);
                    let count = arguments.len();
                    let mut few = [b"".as_slice(); ARGUMENTS_FEW];
                    let many: Vec<&[u8]>;
                    let args = if count <= ARGUMENTS_FEW {
                        for (place, argument) in few.iter_mut().zip(arguments) {
                            *place = argument;
                        }
                        &few[..count]
                    } else {
                        many = arguments.collect();
                        &many[..]
                    };
                    self.command(shared, &mut work, args, out, &mut ran);
                    ran.consumed += length;
                    ran.commands += 1;
                }
            }
            let is_full = ran.commands >= COMMANDS_MAX
                || work.batch_bytes() >= BATCH_BYTES
                || out.bytes.len() >= ANSWER_BYTES;
            let is_over = self.client.after != After::Continue || self.client.database != database;
            if is_full || is_over {
                break None;
            }
        };
        self.parser = parser;
        self.stripes = Vec::new();
        self.note_queued();
        self.commit(shared, &mut work, out, &mut ran);
        shared.commands.fetch_add(ran.commands as u64, Relaxed);
        (ran, refused)
    }

    /// Commits and sends the messages of transactions, while their keys are held: messages have the order of commits. Turns
    /// the answers into refusals if the commit fails.
    fn commit(&mut self, shared: &Shared, work: &mut Work<'_>, out: &mut Out, ran: &mut Ran) {
        ran.has_written |= !work.is_empty();
        let messages = std::mem::take(&mut self.client.messages);
        let send = || {
            for (channel, text) in &messages {
                shared.pubsub.publish(channel, text);
            }
        };
        if let Err(failure) = work.commit_and(send) {
            refuse(out, &mut self.pending, &failure);
        }
        ran.writes.append(&mut self.pending);
    }

    fn command(
        &mut self,
        shared: &Shared,
        work: &mut Work<'_>,
        args: &[&[u8]],
        out: &mut Out,
        ran: &mut Ran,
    ) {
        if args.is_empty() {
            return;
        }
        let begun = out.bytes.len();
        let spec = match self.admit(args, out) {
            Ok(Some(spec)) => spec,
            Ok(None) => return self.end_reply(begun, false, out),
            Err(failure) => {
                if let Some(transaction) = &mut self.client.transaction {
                    transaction.is_broken = true;
                }
                out.error(&failure.0);
                return self.end_reply(begun, false, out);
            }
        };
        self.note(spec);
        if self.commits_first(spec) {
            self.commit(shared, work, out, ran);
        }
        let mut stripes = std::mem::take(&mut self.stripes);
        self.find_stripes(work.store, spec, args, &mut stripes);
        if !work.try_hold(&stripes) {
            self.commit(shared, work, out, ran);
            work.hold_all(&mut stripes);
        }
        self.stripes = stripes;
        // A commit that failed has put refusals, shorter or longer, in the place of answers.
        let begun = out.bytes.len();
        let mut call = Call {
            work,
            out,
            client: &mut self.client,
            shared,
        };
        let carried_out = carry_out(&mut call, spec, args);
        let is_message = carried_out.is_ok() && spec.name.ends_with("SUBSCRIBE");
        if let Err(failure) = carried_out {
            out.bytes.truncate(begun);
            out.error(&failure.0);
        }
        self.end_reply(begun, is_message, out);
        if spec.writes() || spec.name == "EXEC" {
            self.pending.push((begun, out.bytes.len()));
        }
    }

    /// The command to carry out now; `None`: it was put off. Refuses what the client may not give.
    fn admit(&mut self, args: &[&[u8]], out: &mut Out) -> Outcome<Option<&'static Spec>> {
        let client = &mut self.client;
        let Some(spec) = find(args[0]) else {
            if HTTP.iter().any(|it| is(args[0], it)) {
                client.after = After::Close;
            }
            return Err(if client.user.is_some() {
                unknown(args)
            } else {
                NO_AUTH
            });
        };
        if !client.is_known_for(spec.access) {
            return Err(NO_AUTH);
        }
        if !spec.takes(args.len()) {
            return Err(Failure::arguments(spec.name));
        }
        if let Some(user) = &client.user {
            crate::users::check(user, spec, args)?;
        }
        if client.is_listening() && !out.is_third && !WHILE_LISTENING.contains(&spec.name) {
            let name = spec.name.to_ascii_lowercase();
            return Err(Failure::of(format!(
                "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
            )));
        }
        let Some(transaction) = &mut client.transaction else {
            return Ok(Some(spec));
        };
        match spec.run {
            Run::Connection(_) if AT_ONCE.contains(&spec.name) => return Ok(Some(spec)),
            Run::Connection(_) => {
                return Err(Failure::new("ERR Command not allowed inside a transaction"));
            }
            Run::Data(_) => {}
        }
        let bytes: usize = args.iter().map(|it| it.len() + ARGUMENT_BYTES).sum();
        if transaction.bytes + bytes > TRANSACTION_BYTES_MAX {
            return Err(Failure::new("ERR the transaction is too long"));
        }
        transaction.bytes += bytes;
        transaction
            .commands
            .push(args.iter().map(|it| it.to_vec()).collect());
        out.simple("QUEUED");
        Ok(None)
    }

    /// Whether commands before this one have to be committed when it is carried out. Devices, messages and other
    /// databases are no part of the batch, and what this client itself changed undoes its watch as well.
    fn commits_first(&self, spec: &Spec) -> bool {
        match spec.name {
            "WATCH" | "PUBLISH" | "FLUSHALL" => true,
            "EXEC" => !self.client.watched.is_empty(),
            name => name.starts_with("DEVICE."),
        }
    }

    /// The stripes that a command holds; a transaction, those of all its commands and of what it watches.
    fn find_stripes(
        &self,
        store: &Store,
        spec: &Spec,
        args: &[&[u8]],
        stripes: &mut Vec<(usize, bool)>,
    ) {
        stripes.clear();
        if spec.name != "EXEC" {
            add_stripes(store, spec, args, stripes);
            return;
        }
        for queued in self.client.transaction.iter().flat_map(|it| &it.commands) {
            let args: Vec<&[u8]> = queued.iter().map(|it| &it[..]).collect();
            if let Some(spec) = find(args[0]) {
                add_stripes(store, spec, &args, stripes);
            }
        }
        let watched = self.client.watched.iter();
        let here = watched.filter(|it| it.0 == self.client.database);
        stripes.extend(here.map(|it| (store.stripe(&it.1), true)));
        // A stripe that is first shared and then held alone would wait for itself.
        stripes.sort_unstable_by_key(|(stripe, alone)| (*stripe, !alone));
        stripes.dedup_by_key(|it| it.0);
    }

    fn note(&mut self, spec: &'static Spec) {
        if self.noted != spec.name {
            self.noted = spec.name;
            crate::store::lock(&self.client.info.shown).command = spec.name;
        }
    }

    fn note_queued(&mut self) {
        let transaction = self.client.transaction.as_ref();
        let queued = transaction.map(|it| it.commands.len());
        if self.noted_queued != queued {
            self.noted_queued = queued;
            crate::store::lock(&self.client.info.shown).queued = queued;
        }
    }

    /// Takes an answer back that the client does not want. What it listens to is told as a message is, which it wants.
    fn end_reply(&mut self, begun: usize, is_message: bool, out: &mut Out) {
        let replies = self.client.replies;
        self.client.replies = match replies {
            Replies::SkipNext => Replies::Skip,
            Replies::Skip => Replies::On,
            other => other,
        };
        if !is_message && matches!(replies, Replies::Off | Replies::Skip) {
            out.bytes.truncate(begun);
        }
    }
}

/// What a client of the second version may say while it listens.
const WHILE_LISTENING: [&str; 7] = [
    "SUBSCRIBE",
    "PSUBSCRIBE",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "PING",
    "QUIT",
    "RESET",
];

/// What is not put off in a transaction.
const AT_ONCE: [&str; 6] = ["MULTI", "EXEC", "DISCARD", "WATCH", "QUIT", "RESET"];

/// How a browser's request begins, and a header that each has. A page must not give commands in the lines behind them.
const HTTP: [&str; 2] = ["POST", "Host:"];

const NO_AUTH: Failure = Failure::new("NOAUTH Authentication required.");

/// Puts a refusal in the place of each of these answers, which are in order.
pub(crate) fn refuse(out: &mut Out, places: &mut Vec<(usize, usize)>, failure: &Failure) {
    let mut refusal = Out::default();
    refusal.error(&failure.0);
    let mut answers = Vec::with_capacity(out.bytes.len());
    let mut copied = 0;
    // A client that wants no answers has some of no bytes.
    for (start, end) in places.drain(..).filter(|(start, end)| start < end) {
        answers.extend_from_slice(&out.bytes[copied..start]);
        answers.extend_from_slice(&refusal.bytes);
        copied = end;
    }
    answers.extend_from_slice(&out.bytes[copied..]);
    out.bytes = answers;
}

fn add_stripes(store: &Store, spec: &Spec, args: &[&[u8]], stripes: &mut Vec<(usize, bool)>) {
    let alone = match spec.holding(args) {
        Holding::Nothing => return,
        Holding::Everything => {
            stripes.extend((0..STRIPES).map(|it| (it, true)));
            return;
        }
        Holding::Shared => false,
        Holding::Alone => true,
    };
    stripes.extend(spec.keys(args).map(|key| (store.stripe(key), alone)));
}

/// Carries a command out, where it holds up no other connection if it may take long. A refused command has written nothing.
pub(crate) fn carry_out(call: &mut Call<'_, '_>, spec: &Spec, args: &[&[u8]]) -> Outcome {
    let (Run::Data(handler) | Run::Connection(handler)) = spec.run;
    call.work.begin_command();
    let carried_out = if spec.is_long() && !call.client.is_executing {
        tokio::task::block_in_place(|| handler(call, args))
    } else {
        handler(call, args)
    };
    if carried_out.is_err() {
        call.work.undo_command();
    }
    carried_out
}

/// Redis' words for a command that it does not know.
fn unknown(args: &[&[u8]]) -> Failure {
    const SHOWN: usize = 128;
    let cut =
        |it: &[u8], most: usize| String::from_utf8_lossy(&it[..it.len().min(most)]).into_owned();
    let mut shown = String::new();
    for argument in &args[1..] {
        if shown.len() >= SHOWN {
            break;
        }
        let room = SHOWN - shown.len();
        shown.extend(["'", &cut(argument, room), "' "]);
    }
    let name = cut(args[0], SHOWN);
    Failure::of(format!(
        "ERR unknown command '{name}', with args beginning with: {shown}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_take_the_places_of_answers() {
        let mut out = Out::default();
        out.bytes
            .extend_from_slice(b"+OK\r\n:1\r\n$9\r\nlong text\r\n+OK\r\n");
        let mut places = vec![(0, 5), (9, 9), (9, 24)];
        refuse(&mut out, &mut places, &Failure::new("ERR no"));
        assert_eq!(out.bytes, b"-ERR no\r\n:1\r\n-ERR no\r\n+OK\r\n");
        assert!(places.is_empty());
    }
}
