//! Random queries over several shards: the answers are those of a filter and a sort over all rows.

use super::*;
use crate::collate::compare;
use crate::json::{Json, quote};
use crate::views::Update;
use proptest::prelude::*;
use std::cmp::Ordering;

/// Keys that documents emit and queries name.
const KEYS: [&str; 9] = [
    "null",
    "1",
    "1.0",
    "2",
    "\"a\"",
    "\"B\"",
    "[1]",
    "[1,\"a\"]",
    "[1,\"b\"]",
];
const IDS: [&str; 5] = ["a", "b", "B", "a\u{e9}", "ab"];

/// A row that must be there: key, document, number.
type Row = (&'static str, &'static str, usize);

/// For each document the places of its keys.
fn documents() -> impl Strategy<Value = Vec<Vec<usize>>> {
    prop::collection::vec(prop::collection::vec(0..KEYS.len(), 0..4), IDS.len())
}

fn key() -> impl Strategy<Value = Option<String>> {
    prop::option::of(prop::sample::select(KEYS.to_vec()).prop_map(str::to_owned))
}

fn id() -> impl Strategy<Value = Option<String>> {
    prop::option::of(prop::sample::select(IDS.to_vec()).prop_map(str::to_owned))
}

prop_compose! {
    fn queries()(
        keys in prop::option::weighted(0.3, prop::collection::vec(key(), 0..4)),
        (start_key, start_id, end_key, end_id) in (key(), id(), key(), id()),
        (inclusive_end, descending) in any::<(bool, bool)>(),
        (skip, limit) in (0_u64..4, prop::option::of(0_u64..8)),
        group in any::<bool>(),
        group_level in prop::option::weighted(0.3, 0_usize..3),
    ) -> ViewQuery {
        let keys: Option<Vec<String>> = keys.map(|keys| keys.into_iter().flatten().collect());
        let has_keys = keys.is_some();
        ViewQuery {
            start_key: start_key.filter(|_| !has_keys),
            end_key: end_key.filter(|_| !has_keys),
            keys, start_id, end_id, inclusive_end, descending, skip, limit, group, group_level,
            ..ViewQuery::default()
        }
    }
}

/// Whether a row lies in the range from `start` to `end`, as the protocol describes it.
fn is_within(row: &Row, query: &ViewQuery, start: Option<&str>, end: Option<&str>) -> bool {
    let in_direction = |order: Ordering| {
        if query.descending {
            order.reverse()
        } else {
            order
        }
    };
    let to = |key: &str, id: Option<&String>| {
        let by_key = in_direction(compare(Json::new(row.0), Json::new(key)));
        by_key.then_with(|| id.map_or(Ordering::Equal, |id| in_direction(row.1.cmp(id))))
    };
    let is_behind_start = start.is_none_or(|start| to(start, query.start_id.as_ref()).is_ge());
    let is_before_end = end.is_none_or(|end| {
        let order = to(end, query.end_id.as_ref());
        order.is_lt() || order.is_eq() && query.inclusive_end
    });
    is_behind_start && is_before_end
}

fn compare_in_order(one: &Row, other: &Row) -> Ordering {
    let by_key = compare(Json::new(one.0), Json::new(other.0));
    by_key.then_with(|| (one.1, one.2).cmp(&(other.1, other.2)))
}

/// The rows of an answer without `skip` and `limit`, by the place in `keys`.
fn selected(documents: &[Vec<usize>], query: &ViewQuery) -> Vec<(usize, Row)> {
    let mut all: Vec<Row> = Vec::new();
    for (id, keys) in IDS.iter().zip(documents) {
        all.extend(
            keys.iter()
                .enumerate()
                .map(|(number, key)| (KEYS[*key], *id, number)),
        );
    }
    all.sort_by(compare_in_order);
    if query.descending {
        all.reverse();
    }
    let ranges: Vec<(Option<&str>, Option<&str>)> = match &query.keys {
        None => vec![(query.start_key.as_deref(), query.end_key.as_deref())],
        // Rows are turned round as a whole, groups stay in the order of the keys.
        Some(keys) if query.descending && query.reduce == Some(false) => keys
            .iter()
            .rev()
            .map(|key| (Some(key.as_str()), Some(key.as_str())))
            .collect(),
        Some(keys) => keys
            .iter()
            .map(|key| (Some(key.as_str()), Some(key.as_str())))
            .collect(),
    };
    let within = |(place, (start, end)): (usize, (Option<&str>, Option<&str>))| {
        let rows = all.iter().filter(|row| is_within(row, query, start, end));
        rows.map(|row| (place, *row)).collect::<Vec<_>>()
    };
    ranges.into_iter().enumerate().flat_map(within).collect()
}

fn page<T>(all: Vec<T>, query: &ViewQuery) -> Vec<T> {
    let limit = query.limit.map_or(usize::MAX, |limit| limit as usize);
    all.into_iter()
        .skip(query.skip as usize)
        .take(limit)
        .collect()
}

/// Whether all rows are one group.
fn is_whole(query: &ViewQuery) -> bool {
    query.group_level.map_or(!query.group, |level| level == 0)
}

/// What makes rows one group.
fn group_key(row: &Row, query: &ViewQuery) -> String {
    match query.group_level {
        _ if is_whole(query) => "null".to_owned(),
        Some(level) if row.0.starts_with('[') => {
            let first: Vec<&str> = Json::new(row.0)
                .elements()
                .take(level)
                .map(Json::text)
                .collect();
            format!("[{}]", first.join(","))
        }
        _ => row.0.to_owned(),
    }
}

/// The counts of the groups: neighbours of one place and of equal keys.
fn counted(rows: &[(usize, Row)], query: &ViewQuery) -> Vec<(String, u64)> {
    let mut groups: Vec<(usize, String, u64)> = Vec::new();
    for (place, row) in rows {
        let key = group_key(row, query);
        let place = if is_whole(query) { 0 } else { *place };
        match groups.last_mut() {
            Some((last_place, last, count))
                if *last_place == place && compare(Json::new(last), Json::new(&key)).is_eq() =>
            {
                *count += 1;
            }
            _ => groups.push((place, key, 1)),
        }
    }
    groups
        .into_iter()
        .map(|(_, key, count)| (key, count))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn answers_are_a_filter_and_a_sort(
        documents in documents(),
        queries in prop::collection::vec(queries(), 12),
    ) {
        let ((_one, one), (_other, other)) = (shard(), shard());
        for (at, (id, keys)) in IDS.iter().zip(&documents).enumerate() {
            let keys: Vec<&str> = keys.iter().map(|key| KEYS[*key]).collect();
            let json = format!(r#"{{"_id":{},"keys":[{}]}}"#, quote(id), keys.join(","));
            put([&one, &other][at % 2], &json).expect("it is written");
        }
        let shards = [&one, &other];
        let map = "function(doc) { doc.keys.forEach(function(key, at) { emit(key, at); }); }";
        let design = design(&[("v", map, "_count")]);
        for query in queries {
            let mut plain = ViewQuery { reduce: Some(false), group: false, group_level: None, ..query.clone() };
            let view = design.view("v").expect("it is there");
            if plain.check(&design, view).is_err() {
                // The range is the wrong way round.
                let keys_only = ViewQuery { start_id: None, end_id: None, ..plain };
                let none = selected(&documents, &keys_only).is_empty();
                prop_assert!(none);
                continue;
            }
            let expected = page(selected(&documents, &plain), &plain);
            // JavaScript writes 1.0 as 1.
            let expected: Vec<String> = expected
                .iter()
                .map(|(_, (key, id, number))| format!("{id} {} {number}", key.replace("1.0", "1")))
                .collect();
            prop_assert_eq!(&rows(&shards, &design, &plain).expect("rows"), &expected, "{:?}", plain);
            plain.update = Update::Never;
            prop_assert_eq!(&rows(&shards, &design, &plain).expect("rows"), &expected, "{:?}", plain);
            if query.check(&design, view).is_err() {
                continue;
            }
            let expected = page(counted(&selected(&documents, &query), &query), &query);
            let expected: Vec<String> = expected
                .iter()
                .map(|(key, count)| format!("{} {count}", key.replace("1.0", "1")))
                .collect();
            prop_assert_eq!(&groups(&shards, &design, &query).expect("groups"), &expected, "{:?}", query);
        }
    }
}
