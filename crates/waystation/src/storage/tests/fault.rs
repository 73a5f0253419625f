//! Injected faults meet the retries, the fall-back and the latches, over both storages.

use super::meter;
use crate::error::Error;
use crate::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule, RuleCount};
use crate::storage::sim::Crash;
use crate::storage::{
    AlignedBuffer, Area, File, OpenMode, OsStorage, SimStorage, Storage, Transfer,
};
use std::path::Path;
use std::sync::{Arc, Barrier};
use std::thread;

/// A storage under rules, and a directory in it.
struct Subject<'a> {
    storage: &'a dyn Storage,
    dir: &'a Path,
    rules: FaultRules,
}

impl Subject<'_> {
    fn open(&self, name: &str, mode: OpenMode, transfer: Transfer) -> crate::Result<Arc<dyn File>> {
        self.storage
            .open(&self.dir.join(name), mode, transfer, Area::Journal)
    }

    fn create(&self, name: &str, transfer: Transfer) -> Arc<dyn File> {
        self.open(name, OpenMode::Create, transfer).unwrap()
    }

    fn content(&self, name: &str) -> Vec<u8> {
        self.rules.clear();
        let file = self.open(name, OpenMode::Read, Transfer::Buffered).unwrap();
        let mut bytes = vec![0; file.size().unwrap() as usize];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        bytes
    }

    fn fallbacks(&self) -> u64 {
        meter(self.storage, Area::Journal).direct_fallbacks
    }
}

fn over_both(test: impl Fn(&Subject<'_>)) {
    let rules = FaultRules::new();
    let guard = tempfile::tempdir().unwrap();
    let os = OsStorage::new().with_faults(&rules);
    test(&Subject {
        storage: &*os,
        dir: guard.path(),
        rules,
    });
    let rules = FaultRules::new();
    let sim = SimStorage::new(3).with_faults(&rules);
    sim.create_dir(Path::new("/db")).unwrap();
    test(&Subject {
        storage: &*sim,
        dir: Path::new("/db"),
        rules,
    });
}

fn fail(operation: Operation, refusal: Refusal) -> Rule {
    Rule::new(operation, Fault::Fail(refusal))
}

/// `units` units of 4096 bytes, each filled with its number.
fn units(units: u8) -> AlignedBuffer {
    let mut data = AlignedBuffer::new();
    (1..=units).for_each(|number| data.extend_from_slice(&[number; 4096]));
    data
}

#[test]
fn refused_direct_open_falls_back() {
    for refusal in [Refusal::Invalid, Refusal::Unsupported] {
        over_both(|subject| {
            subject
                .rules
                .add(fail(Operation::Open, refusal).direct_only());
            let file = subject.create("a", Transfer::Direct);
            assert!(!file.is_direct());
            assert_eq!(subject.fallbacks(), 1);
            file.write_at(&units(2), 0).unwrap();
            assert!(matches!(
                file.write_at(b"unaligned", 0),
                Err(Error::InvalidArgument(_))
            ));
            assert_eq!(subject.content("a"), units(2).as_slice());
        });
    }
}

#[test]
fn refused_first_direct_write_falls_back_and_is_done() {
    for refusal in [Refusal::Invalid, Refusal::Unsupported] {
        over_both(|subject| {
            let rule = subject
                .rules
                .add(fail(Operation::Write, refusal).direct_only());
            let file = subject.create("a", Transfer::Direct);
            assert!(file.is_direct());
            file.write_at(&units(3), 0).unwrap();
            assert!(!file.is_direct());
            file.write_at(&units(1), 4096).unwrap();
            assert_eq!(subject.fallbacks(), 1);
            assert_eq!(
                subject.rules.count(rule),
                RuleCount {
                    matched: 1,
                    caught: 1
                }
            );
            let meter = meter(subject.storage, Area::Journal);
            assert_eq!((meter.writes, meter.written_bytes), (2, 4 * 4096));
            let other = subject.create("b", Transfer::Direct);
            other.write_at(&units(1), 0).unwrap();
            assert_eq!(subject.fallbacks(), 2);
            let mut expected = units(3);
            expected[4096..8192].fill(1);
            assert_eq!(subject.content("a"), expected.as_slice());
        });
    }
}

#[test]
fn refused_first_direct_read_falls_back_and_is_done() {
    over_both(|subject| {
        subject
            .create("a", Transfer::Buffered)
            .write_at(&units(2), 0)
            .unwrap();
        for unaligned in [0, 1] {
            subject
                .rules
                .add(fail(Operation::Read, Refusal::Invalid).direct_only());
            let file = subject.open("a", OpenMode::Read, Transfer::Direct).unwrap();
            let mut read = AlignedBuffer::zeroed(8192 - unaligned);
            assert_eq!(file.read_at(&mut read, 0).unwrap(), 8192 - unaligned);
            assert_eq!(read[..], units(2)[..8192 - unaligned]);
            assert!(!file.is_direct());
        }
        assert_eq!(subject.fallbacks(), 2);
    });
}

#[test]
fn threads_that_are_refused_together_fall_back_once() {
    over_both(|subject| {
        subject
            .rules
            .add(fail(Operation::Write, Refusal::Invalid).direct_only());
        for round in 0..20 {
            let file = subject.create("a", Transfer::Direct);
            let together = Barrier::new(4);
            thread::scope(|scope| {
                for writer in 0..4 {
                    let (file, together) = (&file, &together);
                    scope.spawn(move || {
                        let data = units(1);
                        together.wait();
                        file.write_at(&data, writer * 4096).unwrap();
                    });
                }
            });
            assert_eq!(subject.fallbacks(), round + 1);
        }
    });
}

#[test]
fn refusals_of_buffered_files_are_errors() {
    over_both(|subject| {
        let file = subject.create("a", Transfer::Buffered);
        subject
            .rules
            .add(fail(Operation::Write, Refusal::Invalid).times(1));
        assert!(matches!(
            file.write_at(b"x", 0),
            Err(Error::Io {
                operation: "write",
                ..
            })
        ));
        subject
            .rules
            .add(fail(Operation::Open, Refusal::Invalid).times(1));
        assert!(
            subject
                .open("b", OpenMode::Create, Transfer::Buffered)
                .is_err()
        );
        assert_eq!(subject.fallbacks(), 0);
    });
}

#[test]
fn interrupted_calls_are_tried_again() {
    use Operation as O;
    over_both(|subject| {
        let operations = [
            O::Open,
            O::Read,
            O::Write,
            O::Sync,
            O::Preallocate,
            O::Size,
            O::MapRing,
            O::ResizeRing,
            O::Rename,
            O::Link,
            O::Remove,
            O::CreateDir,
            O::RemoveDir,
            O::List,
            O::SyncDir,
            O::Lock,
            O::FreeBytes,
        ];
        let interrupt = |operation| fail(operation, Refusal::Interrupted).times(2);
        let ids = operations.map(|operation| subject.rules.add(interrupt(operation)));
        let (storage, path) = (subject.storage, |name: &str| subject.dir.join(name));
        let file = subject.create("a", Transfer::Direct);
        file.write_at(&units(1), 0).unwrap();
        file.read_at(&mut [0; 10], 5).unwrap();
        file.sync().unwrap();
        file.preallocate(8192).unwrap();
        assert_eq!(file.size().unwrap(), 8192);
        storage.map_ring(&path("r"), 4096).unwrap();
        storage.resize_ring(&path("r"), 4096).unwrap();
        storage.rename(&path("a"), &path("b")).unwrap();
        storage.link(&path("b"), &path("c")).unwrap();
        storage.remove(&path("b")).unwrap();
        storage.create_dir(&path("d")).unwrap();
        storage.remove_dir(&path("d")).unwrap();
        storage.list(subject.dir).unwrap();
        storage.sync_dir(subject.dir).unwrap();
        storage.lock(&path("LOCK")).unwrap();
        storage.free_bytes(subject.dir).unwrap();
        for (operation, id) in operations.iter().zip(ids) {
            assert_eq!(subject.rules.count(id).caught, 2, "{operation:?}");
        }
        assert!(file.is_direct());
    });
}

#[test]
fn short_transfers_are_completed() {
    for transfer in [Transfer::Buffered, Transfer::Direct] {
        over_both(|subject| {
            subject
                .rules
                .add(Rule::new(Operation::Write, Fault::Short(5_000)));
            subject
                .rules
                .add(Rule::new(Operation::Read, Fault::Short(1_000)));
            let file = subject.create("a", transfer);
            file.write_at(&units(9), 0).unwrap();
            for start in [0, 4095, 20_001] {
                let mut read = vec![0; units(9).len()];
                let count = file.read_at(&mut read, start as u64).unwrap();
                assert_eq!(read[..count], units(9)[start..]);
            }
            let meter = meter(subject.storage, Area::Journal);
            assert_eq!(
                (meter.writes, meter.written_bytes, meter.reads),
                (1, 9 * 4096, 3)
            );
            assert_eq!(file.is_direct(), transfer == Transfer::Direct);
        });
    }
}

#[test]
fn torn_write_leaves_its_beginning() {
    for (transfer, left) in [(Transfer::Buffered, 5_000), (Transfer::Direct, 4_096)] {
        over_both(|subject| {
            let file = subject.create("a", transfer);
            file.write_at(&units(3), 0).unwrap();
            let torn = Fault::Torn(5_000, Refusal::NoSpace);
            subject
                .rules
                .add(Rule::new(Operation::Write, torn).times(1));
            let mut data = units(3);
            data.fill(77);
            assert!(file.write_at(&data, 0).unwrap_err().is_out_of_space());
            let content = subject.content("a");
            assert_eq!(content[..left], data[..left]);
            assert_eq!(content[left..], units(3)[left..]);
            file.write_at(&data, 0).unwrap();
            assert_eq!(subject.content("a"), data.as_slice());
        });
    }
}

#[test]
fn a_failed_sync_stays_failed() {
    over_both(|subject| {
        let file = subject.create("a", Transfer::Buffered);
        let other = subject.create("b", Transfer::Buffered);
        subject
            .rules
            .add(fail(Operation::Sync, Refusal::InputOutput).on("a").times(1));
        file.write_at(b"x", 0).unwrap();
        let error = file.sync().unwrap_err();
        assert!(
            error.to_string().contains("sync") && error.to_string().contains("/a"),
            "{error}"
        );
        assert!(file.sync().is_err());
        other.sync().unwrap();
        subject
            .open("a", OpenMode::ReadWrite, Transfer::Buffered)
            .unwrap()
            .sync()
            .unwrap();
    });
}

#[test]
fn unsupported_preallocation_sets_the_length() {
    over_both(|subject| {
        subject
            .rules
            .add(fail(Operation::Preallocate, Refusal::Unsupported));
        let file = subject.create("a", Transfer::Buffered);
        file.preallocate(10_000).unwrap();
        assert_eq!(file.size().unwrap(), 10_000);
        file.preallocate(5_000).unwrap();
        assert_eq!(file.size().unwrap(), 10_000);
        subject.rules.clear();
        for refusal in [Refusal::NoSpace, Refusal::NoQuota] {
            subject
                .rules
                .add(fail(Operation::Preallocate, refusal).times(1));
            assert!(file.preallocate(20_000).unwrap_err().is_out_of_space());
        }
        assert_eq!(file.size().unwrap(), 10_000);
    });
}

#[test]
fn rules_choose_their_calls() {
    over_both(|subject| {
        let fault = Fault::Fail(Refusal::InputOutput);
        let id = subject.rules.add(
            Rule::new(Operation::Write, fault)
                .on(".log")
                .after(2)
                .times(2),
        );
        let log = subject.create("1.log", Transfer::Buffered);
        let table = subject.create("2.ldb", Transfer::Buffered);
        let outcomes = [0; 6].map(|_| {
            table.write_at(b"x", 0).unwrap();
            log.write_at(b"x", 0).is_ok()
        });
        assert_eq!(outcomes, [true, true, false, false, true, true]);
        assert_eq!(
            subject.rules.count(id),
            RuleCount {
                matched: 6,
                caught: 2
            }
        );
        subject.rules.remove(id);
        log.write_at(b"x", 0).unwrap();
        assert_eq!(subject.rules.count(id).matched, 6);
    });
}

#[test]
fn after_a_rule_that_halts_every_call_fails() {
    over_both(|subject| {
        let file = subject.create("file", Transfer::Buffered);
        let fault = Fault::FailAfter(Refusal::InputOutput);
        subject
            .rules
            .add(Rule::new(Operation::Sync, fault).after(1).halting());
        file.write_at(b"one", 0).unwrap();
        file.sync().unwrap();
        assert!(!subject.rules.is_halted());
        file.sync().unwrap_err();
        assert!(subject.rules.is_halted());
        let other = subject.open("file", OpenMode::Read, Transfer::Buffered);
        assert!(other.is_err() && subject.storage.list(subject.dir).is_err());
        // The rules are cleared for it.
        assert_eq!(subject.content("file"), b"one");
    });
}

#[test]
fn the_oldest_of_several_rules_decides() {
    over_both(|subject| {
        subject
            .rules
            .add(fail(Operation::Write, Refusal::NoSpace).times(1));
        let later = subject
            .rules
            .add(fail(Operation::Write, Refusal::InputOutput).times(1));
        let file = subject.create("a", Transfer::Buffered);
        assert!(file.write_at(b"x", 0).unwrap_err().is_out_of_space());
        assert!(!file.write_at(b"x", 0).unwrap_err().is_out_of_space());
        assert_eq!(
            subject.rules.count(later),
            RuleCount {
                matched: 2,
                caught: 1
            }
        );
        file.write_at(b"x", 0).unwrap();
    });
}

#[test]
fn a_call_can_fail_after_it_was_done() {
    over_both(|subject| {
        subject.create("a", Transfer::Buffered);
        subject.rules.add(Rule::new(
            Operation::Rename,
            Fault::FailAfter(Refusal::InputOutput),
        ));
        let target = subject.dir.join("b");
        assert!(
            subject
                .storage
                .rename(&subject.dir.join("a"), &target)
                .is_err()
        );
        assert_eq!(subject.content("b"), b"");
    });
}

#[test]
fn lost_and_misdirected_writes_report_success() {
    over_both(|subject| {
        let file = subject.create("a", Transfer::Buffered);
        file.write_at(b"........", 0).unwrap();
        subject
            .rules
            .add(Rule::new(Operation::Write, Fault::Lie).times(1));
        subject
            .rules
            .add(Rule::new(Operation::Write, Fault::Misdirect(6)).times(1));
        file.write_at(b"lost", 0).unwrap();
        file.write_at(b"ok", 2).unwrap();
        assert_eq!(subject.content("a"), b"......ok");
    });
}

#[test]
fn a_stalled_call_is_made_and_returns_when_its_rule_goes() {
    over_both(|subject| {
        let file = subject.create("a", Transfer::Buffered);
        for operation in [Operation::Write, Operation::Sync, Operation::Read] {
            let rule = (subject.rules).add(Rule::new(operation, Fault::Stall).times(1));
            thread::scope(|scope| {
                let call = scope.spawn(|| match operation {
                    Operation::Write => file.write_at(b"written", 0),
                    Operation::Sync => file.sync(),
                    _ => file.read_at(&mut [0; 7], 0).map(drop),
                });
                while subject.rules.count(rule).caught == 0 {
                    thread::yield_now();
                }
                // Others pass, and see what it did.
                let mut bytes = [0; 7];
                while operation == Operation::Write && &bytes != b"written" {
                    file.read_at(&mut bytes, 0).unwrap();
                }
                file.write_at(b"written", 0).unwrap();
                assert!(!call.is_finished(), "{operation:?}");
                subject.rules.remove(rule);
                call.join().unwrap().unwrap();
            });
        }
        assert_eq!(subject.content("a"), b"written");
    });
}

#[test]
fn a_lying_sync_makes_nothing_durable() {
    let mut kept = [0; 2];
    for seed in 0..40 {
        for (lying, kept) in kept.iter_mut().enumerate() {
            let machine = SimStorage::new(seed);
            machine.create_dir(Path::new("/db")).unwrap();
            let rules = FaultRules::new();
            if lying == 1 {
                rules.add(Rule::new(Operation::Sync, Fault::Lie));
                rules.add(Rule::new(Operation::SyncDir, Fault::Lie));
            }
            let storage = machine.with_faults(&rules);
            let path = Path::new("/db/a");
            let file = storage
                .open(path, OpenMode::Create, Transfer::Buffered, Area::Journal)
                .unwrap();
            file.write_at(b"content", 0).unwrap();
            file.sync().unwrap();
            storage.sync_dir(Path::new("/db")).unwrap();
            let left = machine.crash(seed, Crash::PowerCut);
            let found = left.open(path, OpenMode::Read, Transfer::Buffered, Area::Journal);
            let mut bytes = [0; 7];
            let whole = found.is_ok_and(|file| file.read_at(&mut bytes, 0).unwrap() == 7);
            *kept += u32::from(whole && &bytes == b"content");
            assert!(
                storage.list(Path::new("/db")).is_err(),
                "the faulty view is the same machine"
            );
        }
    }
    assert_eq!(kept[0], 40);
    assert!((1..30).contains(&kept[1]), "{} of 40", kept[1]);
}
