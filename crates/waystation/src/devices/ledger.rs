//! The ledger of hand-offs: what must be remembered so that a device has one owner, and no longer than that.
//!
//! - **Stubs.** A device that was handed on leaves one, so that its stragglers do not make it arrive again. The
//!   oldest go when there are too many.
//! - **Sent.** Per destination, the hand-offs that are not over, and those whose end is not durable yet. A list of them
//!   travels with the next hand-off: earlier answers that are not in the list the destination may forget. So one that never
//!   ends costs the destination its own answer, and no later one.
//! - **Received.** Per source (and name under which it knows us), the tickets that were admitted or refused, the
//!   sequence number below which everything is over, and the exceptions. A ticket that is over is answered by neither.

use crate::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use crate::sync::{Arc, Mutex, lock};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use waystation_format::FormatError;
use waystation_format::handoff::{Digest, EngineId, OPEN_MAX, Ticket, put_open, take_open};
use waystation_format::varint::{Reader, put_length_prefixed};

/// At most this many stubs are kept: some megabytes.
pub(crate) const STUBS_MAX: usize = 65_536;

type Prefix = Box<[u8]>;

/// What a device leaves that was handed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stub {
    /// The ticket's sequence number.
    pub(crate) ticket: u64,
    pub(crate) destination: Arc<str>,
}

/// What was answered to a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It was admitted, and this is what came.
    Admitted(Digest),
    Refused,
    /// Its source has said that it is over.
    Over,
    /// Another hand-off has the same source and number.
    Mistaken,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Ledger {
    books: Mutex<Books>,
    /// How many stubs there are, for writers.
    stubs: AtomicUsize,
}

#[derive(Default)]
struct Books {
    stubs: HashMap<Prefix, (u64, Stub)>,
    /// By the sequence numbers at which they were left.
    stubs_by_age: BTreeMap<u64, Prefix>,
    sent: HashMap<Arc<str>, Sent>,
    received: BTreeMap<(EngineId, String), Received>,
}

#[derive(Default)]
struct Sent {
    open: BTreeSet<u64>,
    /// The moves that are over: the sequence number of their end, and their own.
    ended: Vec<(u64, u64)>,
}

#[derive(Default)]
struct Received {
    finished_below: u64,
    /// Tickets below that are not over.
    open: BTreeSet<u64>,
    /// By their sequence numbers; with what came, if they were admitted.
    tickets: BTreeMap<u64, (Ticket, Option<Digest>)>,
}

impl Ledger {
    /// The stub of the device of `prefix`.
    #[inline]
    pub(crate) fn stub(&self, prefix: &[u8]) -> Option<Stub> {
        if self.stubs.load(SeqCst) == 0 {
            return None;
        }
        let books = lock(&self.books);
        books.stubs.get(prefix).map(|(_, stub)| stub.clone())
    }

    /// Leaves a stub at `sequence`.
    pub(super) fn leave_stub(&self, prefix: &[u8], sequence: u64, stub: Stub) {
        let mut books = lock(&self.books);
        books.lift(prefix);
        books.stubs.insert(prefix.into(), (sequence, stub));
        books.stubs_by_age.insert(sequence, prefix.into());
        while books.stubs.len() > STUBS_MAX
            && let Some((_, oldest)) = books.stubs_by_age.pop_first()
        {
            books.stubs.remove(&oldest);
        }
        self.stubs.store(books.stubs.len(), SeqCst);
    }

    /// Removes the stub of the device of `prefix`. Returns whether there was one.
    pub(crate) fn lift_stub(&self, prefix: &[u8]) -> bool {
        let mut books = lock(&self.books);
        let was_there = books.lift(prefix);
        self.stubs.store(books.stubs.len(), SeqCst);
        was_there
    }

    /// All stubs, the oldest first.
    pub(crate) fn stubs(&self) -> Vec<(Vec<u8>, Stub)> {
        let books = lock(&self.books);
        let by_age = books.stubs_by_age.values();
        let named = |prefix: &Prefix| Some((prefix.to_vec(), books.stubs.get(prefix)?.1.clone()));
        by_age.filter_map(named).collect()
    }

    /// All tickets that were answered, and whether they were admitted.
    pub(crate) fn answers(&self) -> Vec<(Ticket, bool)> {
        let books = lock(&self.books);
        let all = books.received.values().flat_map(|it| it.tickets.values());
        let answer =
            |(ticket, digest): &(Ticket, Option<Digest>)| (ticket.clone(), digest.is_some());
        all.map(answer).collect()
    }

    /// Notes that a hand-off to `destination` begins.
    pub(super) fn sent(&self, destination: &Arc<str>, ticket: u64) {
        let mut books = lock(&self.books);
        let sent = books.sent.entry(Arc::clone(destination)).or_default();
        sent.open.insert(ticket);
    }

    /// Notes that it is over: for good once the log is durable through `end`.
    pub(super) fn ended(&self, destination: &str, ticket: u64, end: u64) {
        let mut books = lock(&self.books);
        if let Some(sent) = books.sent.get_mut(destination)
            && sent.open.remove(&ticket)
        {
            sent.ended.push((end, ticket));
        }
    }

    /// The sequence number below which every hand-off to `destination` is over for good, where the log is durable
    /// through `durable`, but for those in the list; `limit` at most, and less if the list would be too long.
    pub(crate) fn finished_below(
        &self,
        destination: &str,
        durable: u64,
        limit: u64,
    ) -> (u64, Vec<u64>) {
        let mut books = lock(&self.books);
        let Some(sent) = books.sent.get_mut(destination) else {
            return (limit, Vec::new());
        };
        sent.ended.retain(|(end, _)| *end > durable);
        let ended = sent.ended.iter().map(|(_, ticket)| *ticket);
        let mut open: Vec<u64> = ended.filter(|ticket| *ticket < limit).collect();
        open.extend(sent.open.range(..limit));
        open.sort_unstable();
        let below = open.get(OPEN_MAX).copied().unwrap_or(limit);
        open.truncate(OPEN_MAX);
        (below, open)
    }

    /// What was answered to `ticket`, if anything was.
    pub(crate) fn decision(&self, ticket: &Ticket) -> Option<Decision> {
        let books = lock(&self.books);
        let received = books.received.get(&key_of(ticket))?;
        match received.tickets.get(&ticket.sequence) {
            Some((other, _)) if other != ticket => Some(Decision::Mistaken),
            Some((_, Some(digest))) => Some(Decision::Admitted(*digest)),
            Some((_, None)) => Some(Decision::Refused),
            None => received.is_over(ticket.sequence).then_some(Decision::Over),
        }
    }

    /// Answers `ticket`: with what came if it is admitted, else with a refusal.
    pub(super) fn decide(&self, ticket: &Ticket, admitted: Option<Digest>) {
        let mut books = lock(&self.books);
        let received = books.received.entry(key_of(ticket)).or_default();
        let answer = (ticket.clone(), admitted);
        received.tickets.insert(ticket.sequence, answer);
    }

    /// Answers `ticket` with a refusal.
    pub(crate) fn refuse(&self, ticket: &Ticket) {
        self.decide(ticket, None);
    }

    /// Notes what the source of `ticket` says of earlier hand-offs: those below a sequence number are over, but for some.
    pub(super) fn forget_below(&self, ticket: &Ticket, finished_below: u64, open: &[u64]) {
        let mut books = lock(&self.books);
        let received = books.received.entry(key_of(ticket)).or_default();
        let is_open = |sequence: &u64| open.binary_search(sequence).is_ok();
        // An earlier word may come later: what was over before stays so.
        (received.open).retain(|sequence| *sequence >= finished_below || is_open(sequence));
        let news = open.iter().filter(|it| **it >= received.finished_below);
        received.open.extend(news);
        received.finished_below = received.finished_below.max(finished_below);
        // This one's own answer stays until a later hand-off's word.
        let mut tickets = std::mem::take(&mut received.tickets);
        tickets.retain(|sequence, _| !received.is_over(*sequence));
        received.tickets = tickets;
    }

    /// Appends what a checkpoint has to keep; what was sent is with the devices. Returns whether open hand-offs are
    /// listed with each source, which is done if there are any, and if it `lists` in any case.
    pub(super) fn put(&self, out: &mut Vec<u8>, lists: bool) -> bool {
        let books = lock(&self.books);
        let lists = lists || books.received.values().any(|it| !it.open.is_empty());
        out.extend_from_slice(&(books.stubs.len() as u32).to_le_bytes());
        for (sequence, prefix) in &books.stubs_by_age {
            if let Some((_, stub)) = books.stubs.get(prefix) {
                put_length_prefixed(out, prefix);
                out.extend_from_slice(&sequence.to_le_bytes());
                out.extend_from_slice(&stub.ticket.to_le_bytes());
                put_length_prefixed(out, stub.destination.as_bytes());
            }
        }
        out.extend_from_slice(&(books.received.len() as u32).to_le_bytes());
        for ((source, destination), received) in &books.received {
            out.extend_from_slice(&source.0);
            put_length_prefixed(out, destination.as_bytes());
            out.extend_from_slice(&received.finished_below.to_le_bytes());
            if lists {
                put_open(&received.open.iter().copied().collect::<Vec<_>>(), out);
            }
            out.extend_from_slice(&(received.tickets.len() as u32).to_le_bytes());
            for (ticket, admitted) in received.tickets.values() {
                ticket.put(out);
                out.push(u8::from(admitted.is_some()));
                if let Some(digest) = admitted {
                    digest.put(out);
                }
            }
        }
        lists
    }

    /// Reads what [`Ledger::put`] wrote.
    pub(super) fn take(reader: &mut Reader<'_>, lists: bool) -> Result<Self, FormatError> {
        let ledger = Self::default();
        for _ in 0..reader.fixed_u32("count of stubs")? {
            let prefix = reader.length_prefixed("prefix")?;
            let sequence = reader.fixed_u64("sequence number of a stub")?;
            let stub = Stub {
                ticket: reader.fixed_u64("ticket of a stub")?,
                destination: take_text(reader)?.into(),
            };
            ledger.leave_stub(prefix, sequence, stub);
        }
        for _ in 0..reader.fixed_u32("count of sources")? {
            let source = EngineId::from_bytes(reader.take(16, "source")?);
            let destination = take_text(reader)?;
            let mut received = Received {
                finished_below: reader.fixed_u64("finished hand-offs")?,
                ..Received::default()
            };
            if lists {
                received.open = take_open(reader, received.finished_below)?
                    .into_iter()
                    .collect();
            }
            for _ in 0..reader.fixed_u32("count of tickets")? {
                let ticket = Ticket::take(reader)?;
                let admitted = match reader.u8("answer to a ticket")? {
                    0 => None,
                    _ => Some(Digest::take(reader)?),
                };
                received.tickets.insert(ticket.sequence, (ticket, admitted));
            }
            let mut books = lock(&ledger.books);
            books.received.insert((source, destination), received);
        }
        Ok(ledger)
    }
}

impl Received {
    /// Whether the source has said that its hand-off `sequence` is over.
    fn is_over(&self, sequence: u64) -> bool {
        sequence < self.finished_below && !self.open.contains(&sequence)
    }
}

impl Books {
    fn lift(&mut self, prefix: &[u8]) -> bool {
        let lifted = self.stubs.remove(prefix);
        if let Some((sequence, _)) = &lifted {
            self.stubs_by_age.remove(sequence);
        }
        lifted.is_some()
    }
}

fn key_of(ticket: &Ticket) -> (EngineId, String) {
    (ticket.source, ticket.destination.clone())
}

fn take_text(reader: &mut Reader<'_>) -> Result<String, FormatError> {
    let offset = reader.offset() as u64;
    let bytes = reader.length_prefixed("destination")?.to_vec();
    String::from_utf8(bytes).map_err(|_| FormatError::Malformed {
        offset,
        reason: "a destination is no text",
    })
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    fn ticket(sequence: u64) -> Ticket {
        Ticket {
            source: EngineId([1; 16]),
            destination: "here".into(),
            device: b"car".to_vec(),
            sequence,
            tenure: 0,
            survives_power_loss: true,
        }
    }

    fn saved(ledger: &Ledger) -> Vec<u8> {
        let mut out = Vec::new();
        ledger.put(&mut out, false);
        out
    }

    #[test]
    fn tickets_are_remembered_until_their_source_says_they_are_over() {
        let ledger = Ledger::default();
        let digest = Digest {
            records: 4,
            ..Digest::default()
        };
        ledger.decide(&ticket(10), Some(digest));
        ledger.decide(&ticket(20), None);
        assert_eq!(
            ledger.decision(&ticket(10)),
            Some(Decision::Admitted(digest))
        );
        assert_eq!(ledger.decision(&ticket(20)), Some(Decision::Refused));
        assert_eq!(ledger.decision(&ticket(15)), None);
        let other = Ticket {
            device: b"bus".to_vec(),
            ..ticket(10)
        };
        assert_eq!(ledger.decision(&other), Some(Decision::Mistaken));
        ledger.forget_below(&ticket(30), 20, &[]);
        assert_eq!(ledger.decision(&ticket(10)), Some(Decision::Over));
        assert_eq!(ledger.decision(&ticket(20)), Some(Decision::Refused));
        ledger.forget_below(&ticket(25), 15, &[]);
        assert_eq!(ledger.decision(&ticket(19)), Some(Decision::Over));
        let elsewhere = Ticket {
            destination: "there".into(),
            ..ticket(10)
        };
        assert_eq!(ledger.decision(&elsewhere), None);
    }

    #[test]
    fn open_tickets_are_remembered_and_no_others() {
        let ledger = Ledger::default();
        let admitted = |sequence| ledger.decide(&ticket(sequence), Some(Digest::default()));
        let tickets = || ledger.answers().len();
        (10..20).for_each(admitted);
        ledger.forget_below(&ticket(20), 20, &[5, 12, 15]);
        assert_eq!(tickets(), 2);
        assert_eq!(
            ledger.decision(&ticket(5)),
            None,
            "it may still be admitted"
        );
        assert_eq!(ledger.decision(&ticket(11)), Some(Decision::Over));
        assert!(matches!(
            ledger.decision(&ticket(12)),
            Some(Decision::Admitted(_))
        ));
        // Another one that ended late, and a word that comes late.
        ledger.forget_below(&ticket(30), 30, &[5, 15]);
        ledger.forget_below(&ticket(25), 25, &[5, 12, 15, 24]);
        assert_eq!(ledger.decision(&ticket(12)), Some(Decision::Over));
        assert_eq!(ledger.decision(&ticket(24)), Some(Decision::Over));
        assert_eq!(ledger.decision(&ticket(30)), None);
        assert_eq!(tickets(), 1);
        ledger.forget_below(&ticket(40), 40, &[]);
        assert_eq!(tickets(), 0);
        assert_eq!(ledger.decision(&ticket(5)), Some(Decision::Over));
    }

    #[test]
    fn a_list_is_cut_where_it_is_too_long() {
        let ledger = Ledger::default();
        let there: Arc<str> = "there".into();
        let count = OPEN_MAX as u64 + 10;
        (0..count).for_each(|number| ledger.sent(&there, number * 2));
        let (below, open) = ledger.finished_below("there", 0, 1 << 20);
        assert_eq!((below, open.len()), (OPEN_MAX as u64 * 2, OPEN_MAX));
        assert!(open.iter().all(|ticket| *ticket < below));
    }

    #[test]
    fn what_is_over_waits_for_the_log() {
        let ledger = Ledger::default();
        let there: Arc<str> = "there".into();
        assert_eq!(ledger.finished_below("there", 100, 77), (77, vec![]));
        ledger.sent(&there, 10);
        ledger.sent(&there, 20);
        ledger.sent(&there, 30);
        ledger.ended("there", 10, 40);
        ledger.ended("there", 30, 50);
        let open = |durable, limit| ledger.finished_below("there", durable, limit);
        assert_eq!(open(39, 100), (100, vec![10, 20, 30]));
        assert_eq!(open(39, 25), (25, vec![10, 20]));
        assert_eq!(open(40, 100), (100, vec![20, 30]));
        ledger.ended("there", 20, 60);
        assert_eq!(open(40, 100), (100, vec![20, 30]));
        assert_eq!(open(50, 100), (100, vec![20]));
        assert_eq!(open(60, 100), (100, vec![]));
        ledger.ended("there", 20, 90);
        assert_eq!(open(60, 100), (100, vec![]), "only once");
    }

    #[test]
    fn stubs_are_lifted_and_the_oldest_go() {
        let ledger = Ledger::default();
        let stub = |ticket: u64| Stub {
            ticket,
            destination: "there".into(),
        };
        let name = |number: u64| number.to_le_bytes();
        for number in 0..STUBS_MAX as u64 + 2 {
            ledger.leave_stub(&name(number), 100 + number, stub(number));
        }
        assert_eq!(ledger.stub(&name(1)), None);
        assert_eq!(ledger.stub(&name(2)), Some(stub(2)));
        assert!(ledger.lift_stub(&name(2)));
        assert!(!ledger.lift_stub(&name(2)));
        assert_eq!(ledger.stub(&name(2)), None);
    }

    #[test]
    fn a_ledger_is_read_back() -> Result<(), FormatError> {
        for (lists, open) in [(false, &[][..]), (true, &[3, 4])] {
            let ledger = Ledger::default();
            let stub = Stub {
                ticket: 7,
                destination: "there".into(),
            };
            ledger.leave_stub(b"a:", 9, stub.clone());
            ledger.leave_stub(b"b:", 8, stub);
            ledger.decide(&ticket(10), Some(Digest::default()));
            ledger.decide(&ticket(20), None);
            ledger.forget_below(&ticket(20), 5, open);
            let bytes = saved(&ledger);
            let mut reader = Reader::new(&bytes);
            let again = Ledger::take(&mut reader, lists)?;
            assert_eq!(saved(&again), bytes);
            assert_eq!(again.decision(&ticket(4)).is_none(), lists);
            assert!(reader.is_empty());
            for cut in 0..bytes.len() {
                assert!(Ledger::take(&mut Reader::new(&bytes[..cut]), lists).is_err());
            }
        }
        Ok(())
    }
}
