//! Random histories against a map, with crashes of the process and of the power between.

use super::*;
use proptest::prelude::*;

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    Put(u8, u16),
    Delete(u8),
    Purge(u8),
    Compact,
    Reopen,
    Crash(bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (0_u8..6, any::<u16>()).prop_map(|(id, value)| Step::Put(id, value)),
        3 => (0_u8..6).prop_map(Step::Delete),
        1 => (0_u8..6).prop_map(Step::Purge),
        1 => Just(Step::Compact),
        1 => Just(Step::Reopen),
        1 => any::<bool>().prop_map(Step::Crash),
    ];
    prop::collection::vec(step, 1..40)
}

/// What must be there: of each document its body, if it is not deleted, and its latest sequence.
type Expected = BTreeMap<String, (Option<String>, u64)>;

fn check(shard: &Shard, expected: &Expected) {
    let known: Vec<(u64, String, bool)> = changes(shard, 0);
    let mut by_sequence: Vec<(u64, String, bool)> = (expected.iter())
        .map(|(id, (body, sequence))| (*sequence, id.clone(), body.is_none()))
        .collect();
    by_sequence.sort();
    assert_eq!(known, by_sequence);
    let mut there = expected
        .iter()
        .filter_map(|(id, (body, _))| Some((id, body.as_ref()?)));
    let mut scan = shard.scan(&ScanOptions::default()).expect("a scan");
    while let Some(document) = scan.next_document().expect("a document") {
        let (id, body) = there
            .next()
            .expect("no more documents than there should be");
        assert_eq!(
            (document.id(), document.body().expect("a body")),
            (id.as_str(), body.as_str())
        );
        let selector = canonical(body.as_bytes()).expect("JSON");
        let selector = Selector::parse(Json::new(&selector)).expect("a selector");
        assert!(
            document.is_matched_by(&selector).expect("a match"),
            "{body}"
        );
    }
    assert_eq!(there.next(), None);
    let deleted = expected.values().filter(|(body, _)| body.is_none()).count() as u64;
    let info = shard.info();
    assert_eq!(
        (info.documents, info.deleted),
        (expected.len() as u64 - deleted, deleted)
    );
}

/// Does one step; every update survives a loss of power.
fn apply(shard: &Shard, step: &Step, expected: &mut Expected) {
    let name = |id: &u8| format!("d{id}");
    let rev = |id: &str| {
        shard
            .open_winner(id)
            .ok()
            .map(|opened| opened.version.revision)
    };
    let update = |json: String| {
        let updated = shard.update(
            &[document(&json)],
            Edits::Interactive,
            Durability::PowerLoss,
        );
        updated
            .expect("the engine takes it")
            .remove(0)
            .expect("no conflict")
    };
    match step {
        Step::Put(id, value) => {
            let id = name(id);
            let rev = rev(&id).map_or_else(String::new, |rev| format!(r#","_rev":"{rev}""#));
            update(format!(r#"{{"_id":"{id}"{rev},"value":{value}}}"#));
            let body = format!(r#"{{"value":{value}}}"#);
            expected.insert(id, (Some(body), shard.info().update_sequence));
        }
        Step::Delete(id) => {
            let id = name(id);
            if let Some(rev) = rev(&id) {
                update(format!(
                    r#"{{"_id":"{id}","_rev":"{rev}","_deleted":true}}"#
                ));
                expected.insert(id, (None, shard.info().update_sequence));
            }
        }
        Step::Purge(id) => {
            let id = name(id);
            if let Some(rev) = rev(&id) {
                assert_eq!(shard.purge(&id, &[rev]).expect("a purge").len(), 1);
                shard.db().sync().expect("a sync");
                expected.remove(&id);
            }
        }
        Step::Compact => drop(shard.compact().expect("a compaction")),
        Step::Reopen | Step::Crash(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_shard_is_a_map_with_a_feed_through_every_crash(steps in steps(), seed in any::<u64>()) {
        let mut storage = SimStorage::new(seed);
        let mut shard = open_simulated(&storage);
        let mut expected = Expected::new();
        for step in &steps {
            apply(&shard, step, &mut expected);
            match step {
                Step::Reopen => {
                    drop(shard);
                    shard = open_simulated(&storage);
                }
                Step::Crash(power) => {
                    let crash = if *power { Crash::PowerCut } else { Crash::Process };
                    let after = storage.crash(seed, crash);
                    drop(shard);
                    storage = after;
                    shard = open_simulated(&storage);
                }
                _ => {}
            }
            check(&shard, &expected);
        }
    }
}
