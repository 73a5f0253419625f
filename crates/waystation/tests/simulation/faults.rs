//! Faults of one life: something fails for a while, then heals; or the machine ends at one call of its storage.

use crate::support::Random;
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule, RuleId};

/// Something fails for a while.
pub(crate) fn add_faults(rules: &FaultRules, random: &mut Random) -> Vec<RuleId> {
    let faults = 1 + random.below(3);
    let fault = |_| {
        let operation = [
            Operation::Write,
            Operation::Sync,
            Operation::Preallocate,
            Operation::Open,
            Operation::Rename,
            Operation::SyncDir,
            Operation::Read,
        ][random.below(7) as usize];
        let refusal = if random.one_in(2) {
            Refusal::InputOutput
        } else {
            Refusal::NoSpace
        };
        let fault = match random.below(3) {
            0 => Fault::Torn(4096 * random.below(4) as usize, refusal),
            1 => Fault::FailAfter(refusal),
            _ => Fault::Fail(refusal),
        };
        let rule = Rule::new(operation, fault).after(random.below(60));
        rules.add(rule.times(1 + random.below(4)))
    };
    let mut added: Vec<_> = (0..faults).map(fault).collect();
    if random.one_in(3) {
        // What was made durable for a flush or a merge is there, and the version that it belongs to is not.
        let operation = [Operation::Write, Operation::Sync][random.below(2) as usize];
        let rule = Rule::new(operation, Fault::Fail(Refusal::InputOutput)).on("MANIFEST");
        added.push(rules.add(rule.after(random.below(4))));
    }
    added
}

/// The machine ends at one call: after it was made, or in its midst.
pub(crate) fn add_end(rules: &FaultRules, random: &mut Random) {
    let (operation, part, spared) = match random.below(12) {
        0..3 => (Operation::Sync, "MANIFEST", 5),
        3 => (Operation::Rename, "", 6),
        4 => (Operation::SyncDir, "", 12),
        5 => (Operation::Sync, ".ldb", 6),
        6 => (Operation::Remove, "", 10),
        7 => (Operation::Sync, "GRAVES", 3),
        8 => (Operation::Sync, "", 30),
        9 => (Operation::Rename, "GRAVES", 4),
        10 => (Operation::SyncDir, "", 4),
        _ => (Operation::Write, "", 60),
    };
    let fault = match random.below(4) {
        0 => Fault::Torn(512 * random.below(9) as usize, Refusal::InputOutput),
        _ => Fault::FailAfter(Refusal::InputOutput),
    };
    let rule = Rule::new(operation, fault).on(part);
    rules.add(rule.after(random.below(spared)).halting());
}
