//! Merges that run twice.

use super::super::{History, assert_sound, flush, machine, open_offloading};
use super::{Near, told};
use crate::lsm::compaction::Traffic;
use crate::lsm::compaction::offload::{Offload, OffloadSettings};
use crate::lsm::tree::Tree;
use crate::lsm::tree::entries::Entries;
use crate::storage::Storage;
use crate::sync::Arc;
use waystation_format::compaction::{Call, JobState, Outcome};
use waystation_format::order::Order;

/// Merges everything that is due, and compares the tree with what was written.
fn merged(near: impl FnOnce(&Arc<dyn Storage>) -> Near, shadow_percent: u8) -> Tree {
    let storage: Arc<dyn Storage> = machine(23);
    let settings = OffloadSettings {
        shadow_percent,
        ..OffloadSettings::default()
    };
    let tree = open_offloading(&storage, Offload::new(near(&storage), settings)).unwrap();
    let mut history = History::default();
    for round in 0..20_u64 {
        let mut memtable = Entries::new(&Order::Bytewise);
        for at in 0..80 {
            let key = format!("{:04}", (at * 7 + round) % 300);
            let value = (at % 9 > 0).then(|| format!("{round} {at}").into_bytes());
            history.write(&mut memtable, key.as_bytes(), value.as_deref());
        }
        flush(&tree, &mut memtable, history.last, 0).unwrap();
        let last = history.last;
        while tree.compact_once(&|| last, Traffic::Writes).unwrap() {}
    }
    history.compare(&tree, history.last);
    assert_sound(&tree);
    tree
}

#[test]
fn what_an_honest_worker_made_is_the_same() {
    let stats = told(&merged(Near::honest, 100));
    assert!(stats.jobs > 3, "{stats:?}");
    assert_eq!((stats.shadowed, stats.different), (stats.jobs, 0));
    assert_eq!(stats.local_jobs, 0);
}

#[test]
fn a_part_of_the_merges_runs_twice() {
    let stats = told(&merged(Near::honest, 50));
    assert!((1..stats.jobs).contains(&stats.shadowed), "{stats:?}");
    assert_eq!(told(&merged(Near::honest, 0)).shadowed, 0);
}

/// A worker that drops a key and reports it as overwritten: the one lie that no verification finds.
#[test]
fn a_worker_that_drops_a_key_is_found_out_and_its_tables_go() {
    let stats = told(&merged(dropping, 100));
    assert!(stats.different > 0, "{stats:?}");
    assert_eq!(stats.shadowed, stats.jobs);
}

/// A worker that merges as if no reader needed any version but the newest, deletions neither.
fn dropping(storage: &Arc<dyn Storage>) -> Near {
    Near::with(storage, |desk, request| {
        let mut request = request.clone();
        if let Call::Begin(begin) = &mut request.call {
            begin.job.deeper.clear();
            begin.job.smallest_snapshot = u64::MAX >> 8;
        }
        let answer = desk.answer(&request);
        if let JobState::Over(report) = &answer.state {
            assert!(matches!(report.outcome, Outcome::Done(_)), "{report:?}");
        }
        Ok(answer.encode())
    })
}
