//! What selectors mean, by CouchDB 3.5.0's answers.

use super::*;
use crate::json::canonical;

fn matches(selector: &str, document: &str) -> bool {
    let text = canonical(selector.as_bytes()).expect(selector);
    let selector = Selector::parse(Json::new(&text)).expect("a selector");
    let document = canonical(document.as_bytes()).expect(document);
    selector.matches(&Json::new(&document))
}

/// The word and the sentence with which `selector` is refused.
fn refusal(selector: &str) -> (String, String) {
    let text = canonical(selector.as_bytes()).expect(selector);
    let error = Selector::parse(Json::new(&text)).expect_err(selector);
    (error.word().to_owned(), error.to_string())
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table: a selector a line")]
fn operators_match_as_couchdb_has_them() {
    let document = r#"{"_id":"b","n":12,"f":1.0,"s":"Straße","a":[1,2,{"x":3}],"o":{"k":1,"d.t":5},"z":null,"t":true,
        "big":123456789012345678901234567891,"m":-7,"e":[],"l":["x",["y"]]}"#;
    let hits = [
        "{}",
        r#"{"n":12}"#,
        r#"{"n":12.0}"#,
        r#"{"n":{"$gt":1,"$lt":13}}"#,
        r#"{"s":{"$gt":1}}"#,
        r#"{"a":{"$gt":"zzz"}}"#,
        r#"{"z":{"$gte":null}}"#,
        r#"{"s":"Straße\u0001"}"#,
        r#"{"n":{"$ne":11}}"#,
        r#"{"a":{"$in":[2]}}"#,
        r#"{"n":{"$in":[1,12]}}"#,
        r#"{"n":{"$nin":[]}}"#,
        r#"{"missing":{"$exists":false}}"#,
        r#"{"o.x":{"$exists":false}}"#,
        r#"{"o":{"k":1}}"#,
        r#"{"o.d\\.t":5}"#,
        r#"{"a.2.x":3}"#,
        r#"{"a.2":{"x":3}}"#,
        r#"{"a":{"$size":3}}"#,
        r#"{"n":{"$mod":[5,2]}}"#,
        r#"{"m":{"$mod":[5,-2]}}"#,
        r#"{"big":{"$mod":[10,1]}}"#,
        r#"{"s":{"$regex":"^Str"}}"#,
        r#"{"s":{"$regex":"(?i)STRA(?=ß)"}}"#,
        r#"{"s":{"$beginsWith":"Str"}}"#,
        r#"{"a":{"$all":[1,2]}}"#,
        r#"{"e":{"$all":[[]]}}"#,
        r#"{"l":{"$all":[["y"]]}}"#,
        r#"{"a":{"$elemMatch":{"$gte":2,"$lt":3}}}"#,
        r#"{"a":{"$elemMatch":{"x":3}}}"#,
        r#"{"a":{"$elemMatch":{"$not":{"y":1}}}}"#,
        r#"{"a":{"$elemMatch":{"$nor":[{"$lt":2},{"$gt":2}]}}}"#,
        r#"{"l":{"$allMatch":{"$gt":"a"}}}"#,
        r#"{"o":{"$keyMapMatch":{"$eq":"k"}}}"#,
        r#"{"t":{"$type":"boolean"}}"#,
        r#"{"z":{"$type":"null"}}"#,
        r#"{"$and":[]}"#,
        r#"{"$or":[]}"#,
        r#"{"$or":[{"n":1},{"n":12}]}"#,
        r#"{"$nor":[{"n":1},{"n":2}]}"#,
        r#"{"$not":{"n":1}}"#,
        r#"{"$not":{"$not":{"n":12}}}"#,
        r#"{"$not":{"$and":[{"n":12},{"n":1}]}}"#,
        r#"{"$not":{"missing":{"$exists":true}}}"#,
        r#"{"n":{"$not":{"$regex":"x"}}}"#,
        r#"{"n":{"$or":[{"$eq":1},{"$gt":10}]}}"#,
        r#"{"_id":{"$gt":"B"}}"#,
        r#"{"_id":{"$gt":"a","$lt":"c"}}"#,
        r#"{"o":{"k":1,"d.t":{"$exists":false}}}"#,
    ];
    for selector in hits {
        assert!(matches(selector, document), "{selector}");
    }
    let misses = [
        r#"{"n":"12"}"#,
        r#"{"o":{}}"#,
        r#"{"missing":{"$ne":1}}"#,
        r#"{"missing":{"$nin":[1]}}"#,
        r#"{"missing":null}"#,
        r#"{"$not":{"missing":1}}"#,
        r#"{"missing":{"$not":{"$regex":"x"}}}"#,
        r#"{"n":{"$exists":false}}"#,
        r#"{"n.x":{"$exists":false}}"#,
        r#"{"a.9":{"$exists":false}}"#,
        r#"{"f":{"$mod":[1,0]}}"#,
        r#"{"n":{"$in":[]}}"#,
        r#"{"a":{"$nin":[2,9]}}"#,
        r#"{"a":{"$all":[]}}"#,
        r#"{"n":{"$all":[12]}}"#,
        r#"{"s":{"$all":["Straße"]}}"#,
        r#"{"e":{"$allMatch":{"$gt":0}}}"#,
        r#"{"e":{"$elemMatch":{"$gt":0}}}"#,
        r#"{"n":{"$regex":"1"}}"#,
        r#"{"n":{"$beginsWith":"1"}}"#,
        r#"{"o":{"$size":2}}"#,
        r#"{"_id":{"$lt":"B"}}"#,
        r#"{"$and":[{"n":12},{"n":1}]}"#,
    ];
    for selector in misses {
        assert!(!matches(selector, document), "{selector}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table: a selector a line")]
fn wrong_selectors_get_couchdbs_words() {
    let cases = [
        (
            "[1]",
            "invalid_selector_json",
            "Selector must be a JSON object, not: [1]",
        ),
        (
            r#"{"a":{"$foo":1}}"#,
            "invalid_operator",
            "Invalid operator: $foo",
        ),
        (
            r#"{"$and":{}}"#,
            "bad_arg",
            "Bad argument for operator $and: {[]}",
        ),
        (
            r#"{"a":{"$in":1}}"#,
            "bad_arg",
            "Bad argument for operator $in: 1",
        ),
        (
            r#"{"a":{"$exists":"x"}}"#,
            "bad_arg",
            "Bad argument for operator $exists: <<120>>",
        ),
        (
            r#"{"a":{"$size":-1}}"#,
            "bad_arg",
            "Bad argument for operator $size: -1",
        ),
        (
            r#"{"a":{"$mod":[1.0,0]}}"#,
            "bad_arg",
            "Bad argument for operator $mod: [1.0,0]",
        ),
        (
            r#"{"a":{"$mod":[0,0]}}"#,
            "bad_arg",
            "Bad argument for operator $mod: [0,0]",
        ),
        (
            r#"{"a":{"$regex":"("}}"#,
            "bad_arg",
            "Bad argument for operator $regex: <<40>>",
        ),
        (
            r#"{"a":{"$elemMatch":[]}}"#,
            "bad_arg",
            "Bad argument for operator $elemMatch: []",
        ),
        (
            r#"{"a":{"$not":1}}"#,
            "bad_arg",
            "Bad argument for operator $not: 1",
        ),
        (
            r#"{"a":{"$where":1}}"#,
            "not_supported",
            "Unsupported operator: $where",
        ),
        (
            r#"{"a..b":1}"#,
            "invalid_field_name",
            "Invalid field name: a..b",
        ),
        (
            r#"{"$gt":1}"#,
            "invalid_selector",
            "One or more conditions is missing a field name.",
        ),
    ];
    for (selector, word, reason) in cases {
        assert_eq!(
            refusal(selector),
            (word.to_owned(), reason.to_owned()),
            "{selector}"
        );
    }
    let deep = format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200));
    assert_eq!(refusal(&deep).0, "invalid_selector");
}
