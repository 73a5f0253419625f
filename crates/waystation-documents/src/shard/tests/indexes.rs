//! Indexes against scans: the same documents, in the index's order, with less work.

use super::*;
use crate::collate::compare;
use crate::mango::{Direction, FieldPath, KeyRange, Plan, Sort};
use proptest::prelude::*;

pub(super) fn definition(name: &str, columns: &[&str]) -> IndexDefinition {
    IndexDefinition {
        name: name.to_owned(),
        columns: columns.iter().map(ToString::to_string).collect(),
        partial: None,
    }
}

fn paths(columns: &[&str]) -> Vec<FieldPath> {
    columns
        .iter()
        .map(|name| FieldPath::parse(name).expect(name))
        .collect()
}

pub(super) fn selector(json: &str) -> Selector {
    let text = canonical(json.as_bytes()).expect(json);
    Selector::parse(Json::new(&text)).expect(json)
}

fn all(shard: &Shard, selector: &Selector) -> Vec<String> {
    let mut scan = shard.scan(&ScanOptions::default()).expect("a scan");
    let mut found = Vec::new();
    while let Some(document) = scan.next_document().expect("a document") {
        if document.is_matched_by(selector).expect("a match") {
            found.push(document.id().to_owned());
        }
    }
    found
}

pub(super) fn by_index(
    shard: &Shard,
    name: &str,
    ranges: Option<&[KeyRange]>,
    direction: Direction,
    selector: &Selector,
) -> (Vec<String>, u64) {
    let mut scan = shard
        .scan_index(name, ranges, direction, None)
        .expect("a scan");
    let mut found = Vec::new();
    while let Some(document) = scan.next_document().expect("a document") {
        if document.is_matched_by(selector).expect("a match") {
            found.push(document.id().to_owned());
        }
    }
    (found, scan.stats().examined)
}

#[test]
fn an_index_reads_what_a_selector_narrows() {
    let (_dir, shard) = shard();
    for number in 0..100 {
        let json = format!(
            r#"{{"_id":"d{number:02}","n":{number},"s":"s{}","o":{{"k":[{number}]}}}}"#,
            number % 3
        );
        put(&shard, &json).expect("a document");
    }
    put(&shard, r#"{"_id":"other","n":50}"#).expect("a document");
    shard
        .create_index(definition("n", &["n"]))
        .expect("an index");
    shard
        .create_index(definition("s,n", &["s", "n"]))
        .expect("an index");
    let cases = [
        ("n", vec!["n"], r#"{"n":{"$gte":90}}"#, 10),
        ("n", vec!["n"], r#"{"n":{"$in":[3,5,1000]}}"#, 2),
        (
            "n",
            vec!["n"],
            r#"{"$or":[{"n":1},{"n":{"$gt":97}}]}"#,
            3 + 1,
        ),
        ("n", vec!["n"], r#"{"n":50}"#, 2),
        ("s,n", vec!["s", "n"], r#"{"s":"s1","n":{"$lt":10}}"#, 3 + 1),
        (
            "s,n",
            vec!["s", "n"],
            r#"{"s":{"$beginsWith":"s2"},"n":{"$gt":0}}"#,
            33,
        ),
    ];
    for (name, columns, json, at_most) in cases {
        let selector = selector(json);
        let ranges = selector.ranges(&paths(&columns)).expect("it narrows");
        let (mut found, examined) =
            by_index(&shard, name, Some(&ranges), Direction::Ascending, &selector);
        found.sort();
        assert_eq!(found, all(&shard, &selector), "{json}");
        assert!(examined <= at_most, "{json}: {examined}");
    }
}

#[test]
fn an_index_is_in_the_order_of_its_columns_and_goes_on_where_it_stopped() {
    let (_dir, shard) = shard();
    for (id, value) in [
        ("a", "\"b\""),
        ("b", "\"B\""),
        ("c", "1"),
        ("d", "null"),
        ("e", "[1]"),
        ("f", "1.5"),
    ] {
        put(&shard, &format!(r#"{{"_id":"{id}","v":{value}}}"#)).expect("a document");
    }
    shard
        .create_index(definition("v", &["v"]))
        .expect("an index");
    let any = selector("{}");
    let (ascending, _) = by_index(&shard, "v", None, Direction::Ascending, &any);
    assert_eq!(ascending.concat(), "dcfabe");
    let (descending, _) = by_index(&shard, "v", None, Direction::Descending, &any);
    assert_eq!(descending.concat(), "ebafcd");
    for direction in [Direction::Ascending, Direction::Descending] {
        let mut after: Option<Vec<u8>> = None;
        let mut found = String::new();
        loop {
            let mut scan = shard
                .scan_index("v", None, direction, after.as_deref())
                .expect("a scan");
            match scan.next_document().expect("a document") {
                Some(document) => found.push_str(document.id()),
                None => break,
            }
            after = Some(scan.position().to_vec());
        }
        let expected = if direction == Direction::Ascending {
            &ascending
        } else {
            &descending
        };
        assert_eq!(found, expected.concat());
    }
}

#[test]
fn indexes_follow_updates_and_survive_reopening() {
    let dir = tempfile::tempdir().expect("a directory");
    let shard = Shard::open(dir.path(), Options::default()).expect("a shard");
    let partial = IndexDefinition {
        partial: Some(r#"{"on":true}"#.into()),
        ..definition("p", &["v"])
    };
    shard.create_index(partial.clone()).expect("an index");
    shard.create_index(partial.clone()).expect("the same one");
    assert!(
        shard.create_index(definition("p", &["v"])).is_err(),
        "another definition"
    );
    let first = put(&shard, r#"{"_id":"a","v":1,"on":true}"#).expect("a document");
    put(&shard, r#"{"_id":"b","v":2,"on":false}"#).expect("a document");
    put(&shard, r#"{"_id":"c","on":true}"#).expect("a document");
    let any = selector("{}");
    let found = |shard: &Shard| {
        by_index(shard, "p", None, Direction::Ascending, &any)
            .0
            .concat()
    };
    assert_eq!(found(&shard), "a");
    drop(shard);
    let shard = Shard::open(dir.path(), Options::default()).expect("a shard");
    assert!(shard.index_candidates()[0].is_partial);
    let off = format!(r#"{{"_id":"a","_rev":"{first}","v":1,"on":false}}"#);
    let second = put(&shard, &off).expect("a document");
    assert_eq!(found(&shard), "");
    put(
        &shard,
        &format!(r#"{{"_id":"a","_rev":"{second}","v":3,"on":true}}"#),
    )
    .expect("a document");
    assert_eq!(found(&shard), "a");
    let leaf = shard.open_winner("a").expect("a document").version.revision;
    shard.purge("a", &[leaf]).expect("a purge");
    assert_eq!(found(&shard), "");
    assert!(shard.drop_index("p").expect("it is there"));
    assert!(!shard.drop_index("p").expect("it is gone"));
    assert!(
        shard
            .scan_index("p", None, Direction::Ascending, None)
            .is_err()
    );
}

#[test]
fn plans_follow_couchdbs_order() {
    let candidate = |name: &str, columns: &[&str]| crate::mango::Candidate {
        name: name.to_owned(),
        columns: paths(columns),
        is_partial: name.starts_with('p'),
    };
    let candidates = [
        candidate("a", &["a"]),
        candidate("ab", &["a", "b"]),
        candidate("b", &["b"]),
        candidate("p", &["a"]),
    ];
    let choose = |json: &str, sort: &str, named: &[&str]| {
        let named: Vec<String> = named.iter().map(ToString::to_string).collect();
        let sort = Sort::parse(Json::new(sort)).expect(sort);
        match Plan::choose(&selector(json), &sort, &candidates, &named) {
            Ok(Plan::Index(name)) => name,
            Ok(Plan::AllDocuments) => "all".to_owned(),
            Err(error) => error.word().to_owned(),
        }
    };
    assert_eq!(choose(r#"{"a":1}"#, "[]", &[]), "a");
    assert_eq!(choose(r#"{"a":1,"b":2}"#, "[]", &[]), "ab");
    assert_eq!(choose(r#"{"b":2,"c":1}"#, "[]", &[]), "b");
    assert_eq!(choose(r#"{"c":1}"#, "[]", &[]), "all");
    assert_eq!(choose(r#"{"a":{"$exists":false}}"#, "[]", &[]), "all");
    assert_eq!(choose(r#"{"$or":[{"a":1},{"b":1}]}"#, "[]", &[]), "all");
    assert_eq!(choose(r#"{"a":1}"#, "[]", &["p"]), "p");
    assert_eq!(
        choose(r#"{"a":1}"#, r#"["b"]"#, &[]),
        "ab",
        "a is the same in all"
    );
    assert_eq!(choose(r#"{"a":{"$gt":1}}"#, r#"["a","b"]"#, &[]), "ab");
    assert_eq!(choose(r#"{"a":1}"#, r#"["c"]"#, &[]), "no_usable_index");
    assert_eq!(choose(r#"{"_id":{"$gt":"a"}}"#, r#"["_id"]"#, &[]), "all");
    assert_eq!(choose("{}", r#"["_id"]"#, &[]), "no_usable_index");
    for (sort, word) in [
        ("1", "invalid_sort_json"),
        ("[1]", "invalid_sort_field"),
        (r#"[{"a":"up"}]"#, "invalid_sort_dir"),
        (r#"["a",{"b":"desc"}]"#, "unsupported_mixed_sort"),
    ] {
        assert_eq!(Sort::parse(Json::new(sort)).expect_err(sort).word(), word);
    }
}

#[test]
fn the_range_of_identifiers_holds_every_match() {
    let range = |json: &str| {
        let range = selector(json).id_range();
        (
            range.begin.unwrap_or_default(),
            range.end.unwrap_or_default(),
        )
    };
    let expected = |begin: &str, end: &str| (begin.to_owned(), end.to_owned());
    assert_eq!(
        range(r#"{"_id":{"$gt":"b","$lte":"d"}}"#),
        expected("b", "d")
    );
    assert_eq!(range(r#"{"_id":"x"}"#), expected("x", "x"));
    assert_eq!(range(r#"{"$or":[{"_id":"x"}]}"#), expected("", ""));
    assert_eq!(range(r#"{"_id":{"$gt":null}}"#), expected("", ""));
}

fn values() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        (-3_i32..4).prop_map(|it| it.to_string()),
        "[abA]{0,2}".prop_map(|it| crate::json::quote(&it)),
        prop::collection::vec(0_u8..3, 0..3).prop_map(|it| format!("{it:?}").replace(' ', "")),
    ]
}

fn conditions() -> impl Strategy<Value = String> {
    let operator = prop::sample::select(vec!["$eq", "$gt", "$gte", "$lt", "$lte", "$ne"]);
    let condition = prop_oneof![
        6 => (operator, values()).prop_map(|(operator, value)| format!(r#"{{"{operator}":{value}}}"#)),
        2 => prop::collection::vec(values(), 0..3).prop_map(|it| format!(r#"{{"$in":[{}]}}"#, it.join(","))),
        1 => "[ab]{0,1}".prop_map(|it| format!(r#"{{"$beginsWith":"{it}"}}"#)),
        1 => Just(r#"{"$size":1}"#.to_owned()),
        1 => Just(r#"{"$type":"string"}"#.to_owned()),
        1 => Just(r#"{"$elemMatch":{"$gt":0}}"#.to_owned()),
        1 => Just(r#"{"$exists":true}"#.to_owned()),
    ];
    let field = (prop::sample::select(vec!["a", "b", "o.k"]), condition)
        .prop_map(|(name, condition)| format!(r#"{{"{name}":{condition}}}"#));
    field.prop_recursive(2, 6, 3, |inner| {
        let operator = prop::sample::select(vec!["$and", "$or", "$nor"]);
        (operator, prop::collection::vec(inner, 1..3))
            .prop_map(|(operator, parts)| format!(r#"{{"{operator}":[{}]}}"#, parts.join(",")))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_index_that_serves_finds_what_a_scan_finds(
        documents in prop::collection::vec((values(), values(), values()), 1..30),
        selectors in prop::collection::vec(conditions(), 1..20),
        descends in any::<bool>(),
    ) {
        let storage: Arc<dyn Storage> = SimStorage::new(1);
        let db = Db::open_with(storage, "/shard", Options::default()).expect("the engine opens");
        let shard = Shard::over(Arc::new(db), Clock::default()).expect("a shard");
        let columns = [vec!["a"], vec!["a", "b"], vec!["o.k", "a"]];
        for (at, (a, b, k)) in documents.iter().enumerate() {
            if at == documents.len() / 2 {
                for columns in &columns {
                    shard.create_index(definition(&columns.join(","), columns)).expect("an index");
                }
            }
            put(&shard, &format!(r#"{{"_id":"{at}","a":{a},"b":{b},"o":{{"k":{k}}}}}"#)).expect("a document");
        }
        let direction = if descends { Direction::Descending } else { Direction::Ascending };
        for json in &selectors {
            let selector = selector(json);
            let mut expected = all(&shard, &selector);
            expected.sort();
            for candidate in shard.index_candidates() {
                if !candidate.columns.iter().all(|column| selector.requires(column)) {
                    continue;
                }
                let ranges = selector.ranges(&candidate.columns);
                let (mut found, _) =
                    by_index(&shard, &candidate.name, ranges.as_deref(), direction, &selector);
                let values: Vec<String> = found.iter().map(|id| {
                    let body = shard.open_winner(id).expect("a document").version.body;
                    candidate.columns[0].value(&Json::new(&body)).expect("a column").text().to_owned()
                }).collect();
                for pair in values.windows(2) {
                    let order = compare(Json::new(&pair[0]), Json::new(&pair[1]));
                    prop_assert!(if descends { order.is_ge() } else { order.is_le() }, "{json} {pair:?}");
                }
                found.sort();
                prop_assert_eq!(&found, &expected, "{} by {}", json, candidate.name);
            }
        }
    }
}
