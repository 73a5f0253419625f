//! Random histories with crashes: rows are those that the maps make of all documents, sorted.

use super::*;
use crate::collate::key_of;
use crate::json::Json;
use crate::shard::tests::open_simulated;
use proptest::prelude::*;
use waystation::storage::SimStorage;
use waystation::storage::sim::Crash;

/// One step of a history.
#[derive(Debug, Clone)]
enum Step {
    /// Writes a document with these keys to emit.
    Put(u8, Vec<usize>),
    Delete(u8),
    Purge(u8),
    Build,
    Reopen,
    Crash(bool),
}

/// The keys that documents emit.
const KEYS: [&str; 7] = ["null", "1", "-2.5", "\"a\"", "\"B\"", "[1]", "[1,{}]"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let keys = prop::collection::vec(0..KEYS.len(), 0..4);
    let step = prop_oneof![
        8 => (0_u8..6, keys).prop_map(|(id, keys)| Step::Put(id, keys)),
        2 => (0_u8..6).prop_map(Step::Delete),
        1 => (0_u8..6).prop_map(Step::Purge),
        4 => Just(Step::Build),
        1 => Just(Step::Reopen),
        2 => any::<bool>().prop_map(Step::Crash),
    ];
    prop::collection::vec(step, 1..30)
}

/// The rows that a brute-force map and sort makes of all documents.
fn expected(shard: &Shard) -> Vec<String> {
    let mut rows = Vec::new();
    for (_, id, deleted) in changes(shard, 0) {
        if deleted {
            continue;
        }
        let body = shard.open_winner(&id).expect("a document").version.body;
        let keys = Json::new(&body).member("keys").expect("keys");
        for (number, key) in keys.elements().enumerate() {
            rows.push((key_of(key), id.clone(), number, key.text().to_owned()));
        }
    }
    rows.sort();
    rows.iter()
        .map(|(_, id, number, key)| format!("{id} {key} {number}"))
        .collect()
}

fn update(shard: &Shard, json: &str) {
    let updated = shard.update(
        &[document(json)],
        Edits::Interactive,
        Durability::ProcessCrash,
    );
    updated
        .expect("the engine takes it")
        .remove(0)
        .expect("no conflict");
}

fn apply(shard: &Shard, step: &Step, design: &DesignDocument) {
    let known = |id: &u8| {
        shard
            .open_winner(&format!("d{id}"))
            .ok()
            .map(|it| it.version.revision)
    };
    match step {
        Step::Put(id, keys) => {
            let rev = known(id).map_or_else(String::new, |rev| format!(r#","_rev":"{rev}""#));
            let keys: Vec<&str> = keys.iter().map(|at| KEYS[*at]).collect();
            update(
                shard,
                &format!(r#"{{"_id":"d{id}"{rev},"keys":[{}]}}"#, keys.join(",")),
            );
        }
        Step::Delete(id) => {
            if let Some(rev) = known(id) {
                update(
                    shard,
                    &format!(r#"{{"_id":"d{id}","_rev":"{rev}","_deleted":true}}"#),
                );
            }
        }
        Step::Purge(id) => {
            if let Some(rev) = known(id) {
                shard.purge(&format!("d{id}"), &[rev]).expect("a purge");
            }
        }
        Step::Build => drop(
            shard
                .build_views(design, Limits::default())
                .expect("it is built"),
        ),
        Step::Reopen | Step::Crash(_) => {}
    }
}

/// An index never has more documents than the shard, and after an update it has all of them.
fn check(shard: &Shard, design: &DesignDocument) {
    let sequence = shard.views_info(design).expect("figures").update_sequence;
    assert!(
        sequence <= shard.info().update_sequence,
        "the index is ahead of its documents"
    );
    let is_current = sequence == shard.info().update_sequence && sequence > 0;
    if is_current {
        let stale = query(&[("update", "false"), ("reduce", "false")]);
        assert_eq!(
            rows(&[shard], design, &stale).expect("rows"),
            expected(shard),
            "as it stands"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn an_index_is_what_the_maps_make_of_the_documents_through_every_crash(
        steps in steps(),
        seed in any::<u64>(),
    ) {
        let map = "function(doc) { doc.keys.forEach(function(key, at) { emit(key, at); }); }";
        let design = design(&[("v", map, "_count")]);
        let mut storage = SimStorage::new(seed);
        let mut shard = open_simulated(&storage);
        for step in &steps {
            apply(&shard, step, &design);
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
            check(&shard, &design);
        }
        let expected = expected(&shard);
        prop_assert_eq!(&rows(&[&shard], &design, &query(&[("reduce", "false")])).expect("rows"), &expected);
        let mut backwards = expected.clone();
        backwards.reverse();
        let descending = query(&[("reduce", "false"), ("descending", "true")]);
        prop_assert_eq!(&rows(&[&shard], &design, &descending).expect("rows"), &backwards);
        let total = shard.view_rows(&design, "v", &descending, Limits::default()).expect("rows").total_rows();
        prop_assert_eq!(total, expected.len() as u64);
        let counted: Vec<String> = groups(&[&shard], &design, &query(&[])).expect("a group");
        let expected = if expected.is_empty() { Vec::new() } else { vec![format!("null {}", expected.len())] };
        prop_assert_eq!(counted, expected);
    }
}
