//! A log that defers: tables take what the ring holds, segments hold little, and every record that is in no table is found again,
//! whenever the process or the machine dies.

use super::growth::{DIR, Life, growing, record};
use super::*;
use crate::directory::JOURNAL_NAME;
use crate::log::deferral::DELAY;
use crate::log::recovery::read_journal;
use crate::storage::sim::Crash;
use crate::storage::{Area, OpenMode};
use crate::sync::atomic::Ordering::SeqCst;
use waystation_format::log::JournalState;

fn deferring() -> LogSettings {
    LogSettings {
        defers: true,
        ..growing()
    }
}

/// A log whose records a flush puts into a table now and then.
struct Flushed {
    life: Life,
    /// Of the last record in a table.
    sequence: u64,
    /// Whether the machine does not say that it was not off.
    has_no_boot_id: bool,
}

impl Flushed {
    fn begin(seed: u64, rules: &FaultRules) -> Self {
        Self {
            life: Life::begin(seed, rules, &deferring()),
            sequence: 0,
            has_no_boot_id: false,
        }
    }

    fn log(&self) -> &Log {
        &self.life.running.log
    }

    /// Does what a flush does of everything up to here. Returns the position.
    fn flush(&mut self) -> u64 {
        let mut border = (0, 0);
        self.log()
            .at_front(|lsn, sequence| border = (lsn, sequence - 1));
        self.sequence = border.1;
        self.log().note_flushed(border.0);
        self.log().release_below(border.0);
        border.0
    }

    /// Waits until nothing can be passed over any more, and nothing is written.
    fn settle(&self) {
        loop {
            while self.log().write_out() == Next::Again {}
            let state = lock(&self.log().writer);
            let may_pass = state.passable(self.log().pass_target()).is_some();
            if !may_pass && state.in_flight.is_empty() && !state.preparing {
                return;
            }
            drop(state);
            std::thread::yield_now();
        }
    }

    /// Waits until all but an open block and a record is written: its clock passes while the jobs wait for it.
    fn wait_written(&self) {
        let appended = self.log().copied_lsn();
        let open_block = 64 * 1024 + 40_000;
        while self.log().released_lsn.load(SeqCst) + open_block < appended {
            std::thread::yield_now();
        }
    }

    fn staged(&self) -> u64 {
        self.log().reserved_lsn() - self.log().released_lsn.load(SeqCst)
    }

    /// What a flush leaves in the ring is less: what is not worth a fresh segment, a block, and a record that is not
    /// behind it.
    fn left_most(&self) -> u64 {
        self.log().pass_target() + 2 * 64 * 1024 + 40_000
    }

    fn written_bytes(&self) -> u64 {
        let meters = self.life.storage.meters();
        let of_log = meters.iter().filter(|(area, _)| *area == Area::Journal);
        of_log.map(|(_, meter)| meter.written_bytes).sum()
    }

    /// What the next life finds behind what is in tables, if the machine ends so; it goes on, and ends so again.
    fn check_end(self, crash: Crash, least: usize) {
        let left = self.life.machine.crash(7, crash);
        self.life.running.log.stop();
        self.life.running.member.leave().expect("no job panics");
        let flushed = self.sequence as usize;
        let expected = &self.life.written[flushed..];
        let storage: Arc<dyn Storage> = left.clone();
        if self.has_no_boot_id {
            forget_boot(&*storage);
        }
        let again = Running::open_on(&storage, Path::new(DIR), &deferring(), self.sequence);
        let again = again.expect("reopen");
        let mut found: Vec<_> = again.replayed.values().cloned().collect();
        assert!(
            found.len() + flushed >= least,
            "{} of {least}",
            found.len() + flushed
        );
        assert!(found[..] == expected[..found.len()]);
        if crash == Crash::Process {
            assert_eq!(found.len(), expected.len());
        }
        let content = payload(99, 5_000);
        for turn in 1..4 {
            let (sequence, _) = again.append(&content);
            assert_eq!(sequence as usize, flushed + found.len() + 1);
            found.push(content.clone());
            if turn == 2 {
                again.log.sync_all().expect("sync");
            }
        }
        let left = left.crash(8, crash);
        again.log.stop();
        again.member.leave().expect("no job panics");
        let storage: Arc<dyn Storage> = left;
        let third = Running::open_on(&storage, Path::new(DIR), &deferring(), self.sequence);
        let third = third.expect("reopen again");
        let kept: Vec<_> = third.replayed.values().cloned().collect();
        assert!(kept.len() + 1 >= found.len() && kept[..] == found[..kept.len()]);
        third.close();
    }
}

/// Has `JOURNAL` not say during which start of the machine the life ran.
fn forget_boot(storage: &dyn Storage) {
    let journal = read_journal(storage, Path::new(DIR))
        .expect("read")
        .expect("a log");
    let without = JournalState {
        boot: None,
        ..journal
    };
    let path = Path::new(DIR).join(JOURNAL_NAME);
    let opened = storage.open(
        &path,
        OpenMode::ReadWrite,
        Transfer::Buffered,
        Area::Journal,
    );
    let file = opened.expect("open");
    file.write_at(&without.encode(), 0).expect("write");
}

#[test]
fn records_that_reach_a_table_are_not_written() {
    let mut log = Flushed::begin(1, &FaultRules::new());
    let begin = log.life.storage.now();
    let mut bytes = 0;
    for number in 0..1_000 {
        let content = record(number);
        bytes += content.len() as u64;
        log.life.append(content);
        if log.staged() > growing().ring_bytes as u64 / 2 {
            log.flush();
            log.settle();
            assert!(log.staged() < log.left_most(), "{}", log.staged());
        }
    }
    let written = log.written_bytes();
    // On a busy machine some waits for long, and is written: no more each time than there is in the ring.
    let passed = log.life.storage.now().saturating_sub(begin);
    let delays = passed.as_millis() / DELAY.as_millis();
    let waited = delays as u64 * growing().ring_bytes as u64;
    assert!(
        written < bytes / 10 + waited,
        "{written} of {bytes}, {waited} may have waited"
    );
    log.check_end(Crash::Process, 1_000);
}

#[test]
fn a_rest_releases_what_the_last_flush_could_not() {
    for cut in 20..40 {
        let mut log = Flushed::begin(cut, &FaultRules::new());
        for number in 0..cut {
            log.life.append(record(number));
        }
        log.wait_written();
        log.flush();
        log.settle();
        log.log().rest().expect("rest");
        assert_eq!(lock(&log.log().writer).sealed.len(), 0, "{cut}");
        let least = log.life.written.len();
        log.check_end(Crash::PowerCut, least);
    }
}

#[test]
fn what_no_table_holds_is_found_wherever_the_process_or_the_machine_dies() {
    for crash in [Crash::Process, Crash::PowerCut] {
        for cut in 1..150 {
            let mut log = Flushed::begin(cut, &FaultRules::new());
            let mut least = 0;
            for number in 0..cut {
                // Some are longer than a block, and begin before what is passed over ends.
                let length =
                    100 + (number as usize * 7919) % 40_000 + 90_000 * usize::from(number % 9 == 4);
                let end = log.life.append(payload(number, length));
                if number % 11 == cut % 11 {
                    log.flush();
                    least = log.life.written.len();
                }
                if number % 13 == cut % 13 {
                    log.settle();
                }
                if number % 29 == cut % 29 {
                    log.log().sync(end).expect("sync");
                    least = log.life.written.len();
                }
            }
            log.check_end(crash, least);
        }
    }
}

#[test]
fn what_waits_for_long_is_written() {
    let mut log = Flushed::begin(3, &FaultRules::new());
    for number in 0..12 {
        log.life.append(record(number));
    }
    log.wait_written();
    assert_eq!(log.sequence, 0, "there was no flush");
    log.check_end(Crash::Process, 12);
}

/// A segment may begin amid a record, and go once tables hold that. Then neither segments nor headers in the ring tell where the
/// next record begins.
#[test]
fn records_behind_the_rest_of_one_that_tables_hold_are_found() {
    for length in (200_000..400_000).step_by(9_000) {
        let mut log = Flushed::begin(length as u64, &FaultRules::new());
        log.has_no_boot_id = length % 2_000 == 0;
        for number in 0..3 {
            log.life.append(payload(number, length));
            log.wait_written();
        }
        log.flush();
        for number in 3..6 {
            log.life.append(payload(number, 50));
        }
        log.check_end(Crash::Process, 6);
    }
}

#[test]
fn a_ring_that_fills_without_a_flush_is_written() {
    let mut log = Flushed::begin(4, &FaultRules::new());
    for number in 0..400 {
        log.life.append(record(number));
    }
    assert!(log.log().stats().segments > 4);
    log.flush();
    log.settle();
    log.flush();
    assert!(log.log().stats().segments <= 2);
    for number in 400..420 {
        log.life.append(record(number));
    }
    log.check_end(Crash::Process, 420);
}

#[test]
fn a_copy_of_the_log_has_all_of_it() {
    let mut log = Flushed::begin(5, &FaultRules::new());
    let pin = Log::pin(&log.life.running.log);
    for number in 0..20 {
        log.life.append(record(number));
    }
    let before = log.log().stats().segments;
    log.flush();
    log.settle();
    assert_eq!(
        log.log().stats().segments,
        before,
        "the log goes on where it was"
    );
    drop(pin);
    log.flush();
    log.settle();
    assert!(log.staged() < log.left_most());
    log.check_end(Crash::Process, 20);
}

/// What is passed over makes room on a disk that has none for the fresh segment, or not: the records stay.
#[test]
fn a_segment_that_cannot_be_made_is_not_needed() {
    for (operation, refusal) in [
        (Operation::Preallocate, Refusal::NoSpace),
        (Operation::Preallocate, Refusal::InputOutput),
        (Operation::Write, Refusal::InputOutput),
        (Operation::Sync, Refusal::InputOutput),
    ] {
        for after in 0..4 {
            let rules = FaultRules::new();
            let mut log = Flushed::begin(6 + after, &rules);
            let fault = Fault::Fail(refusal);
            rules.add(Rule::new(operation, fault).on(".seg").after(after).times(2));
            for number in 0..200 {
                let content = record(number);
                let sent = log.life.running.try_append(&content);
                if sent.is_ok() {
                    log.life.written.push(content);
                } else {
                    std::thread::yield_now();
                }
                if number % 20 == 0 {
                    log.flush();
                }
            }
            let all = log.life.written.len();
            log.check_end(Crash::Process, all);
        }
    }
}

#[test]
fn while_syncs_come_nothing_is_deferred() {
    let dir = tempfile::tempdir().expect("tempdir");
    let running = Running::open(dir.path(), &deferring(), 0).expect("open");
    let log = &running.log;
    let is_due = || log.is_due(&mut lock(&log.writer), log.run_target());
    running.append(&record(1));
    assert!(!is_due());
    log.sync_all().expect("sync");
    assert!(is_due());
    running.close();
}
