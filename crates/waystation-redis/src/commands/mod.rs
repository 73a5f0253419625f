//! The commands: one file for each kind of data, and one table with all of them.
//!
//! What a command wrote before it was refused is taken back: a refusal leaves nothing behind in the batch of its run.

#![allow(
    clippy::unnecessary_wraps,
    reason = "all commands have one form, infallible ones included"
)]

mod acl;
mod devices;
mod hashes;
mod keys;
mod multi;
mod scans;
mod series;
mod series_read;
mod server;
mod sets;
mod strings;
mod table;
mod zcombine;
mod zsets;
mod ztake;

pub(crate) use table::{Access, Holding, Places, Run, Spec, find, specs};

use crate::client::Client;
use crate::failure::{NOT_INTEGER, Outcome};
use crate::number::parse_integer;
use crate::resp::Out;
use crate::server::Shared;
use crate::work::Work;

/// What a command works with.
pub(crate) struct Call<'a, 's> {
    pub(crate) work: &'a mut Work<'s>,
    pub(crate) out: &'a mut Out,
    pub(crate) client: &'a mut Client,
    pub(crate) shared: &'a Shared,
}

/// Carries a command out: its name is the first argument.
pub(crate) type Handler = fn(&mut Call<'_, '_>, &[&[u8]]) -> Outcome;

/// Whether an argument is this word, in capitals or not.
pub(crate) fn is(argument: &[u8], word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

fn integer(argument: &[u8]) -> Outcome<i64> {
    parse_integer(argument).ok_or(NOT_INTEGER)
}

/// The part of a sequence of `length` that `start` and `end` name, both included, from its end if they are negative.
fn slice(start: i64, end: i64, length: usize) -> Option<(usize, usize)> {
    let length = i64::try_from(length).ok()?;
    let from_end = |it: i64| {
        if it < 0 {
            it.saturating_add(length)
        } else {
            it
        }
    };
    let (start, end) = (from_end(start).max(0), from_end(end).min(length - 1));
    let ends = usize::try_from(start).ok().zip(usize::try_from(end).ok());
    ends.filter(|_| start <= end)
}

/// Refuses keys that the database cannot hold, before a command of several keys writes the first.
fn check_keys<'a>(call: &Call<'_, '_>, keys: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut base = Vec::new();
    for key in keys {
        call.work.store.encoding.base(key, &mut base)?;
    }
    Ok(())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
