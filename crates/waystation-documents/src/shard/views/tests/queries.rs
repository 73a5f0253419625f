//! Queries: ranges, lists of keys, groups, several shards, and the documents beside rows.

use super::*;

const MAP: &str = "function(doc) { emit(doc.k, doc.n); }";

/// Names and values of parameters.
type Parameters<'a> = &'a [(&'a str, &'a str)];

/// The documents of two shards: id, key, number.
const DOCUMENTS: [(&str, &str, u32); 8] = [
    ("a", "1", 1),
    ("b", "1", 2),
    ("B", "1", 3),
    ("c", "2", 4),
    ("d", "\"x\"", 5),
    ("e", "[1,\"a\"]", 6),
    ("f", "[1,\"b\"]", 7),
    ("g", "[2]", 8),
];

struct Shards {
    _dirs: [tempfile::TempDir; 2],
    shards: [Shard; 2],
}

fn shards() -> Result<Shards> {
    let ((one_dir, one), (other_dir, other)) = (shard(), shard());
    let shards = [one, other];
    for (at, (id, key, number)) in DOCUMENTS.iter().enumerate() {
        put(
            &shards[at % 2],
            &format!(r#"{{"_id":"{id}","k":{key},"n":{number}}}"#),
        )?;
    }
    Ok(Shards {
        _dirs: [one_dir, other_dir],
        shards,
    })
}

/// The identifiers of the rows over both shards.
fn ids(shards: &Shards, parameters: &[(&str, &str)]) -> Result<String> {
    let design = design(&[("v", MAP, "")]);
    let both: Vec<&Shard> = shards.shards.iter().collect();
    let rows = rows(&both, &design, &query(parameters))?;
    let ids: Vec<&str> = rows
        .iter()
        .filter_map(|row| row.split(' ').next())
        .collect();
    Ok(ids.join(""))
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table: a query a line")]
fn ranges_lists_and_directions() -> Result<()> {
    let shards = shards()?;
    let cases: [(&[(&str, &str)], &str); 26] = [
        (&[], "Babcdefg"),
        (&[("descending", "true")], "gfedcbaB"),
        (&[("key", "1")], "Bab"),
        (&[("key", "1.0"), ("descending", "true")], "baB"),
        (&[("key", "3")], ""),
        (&[("keys", "[2,1,2,7]")], "cBabc"),
        (&[("keys", "[2,1]"), ("descending", "true")], "baBc"),
        (&[("keys", "[2,1]"), ("skip", "1"), ("limit", "2")], "Ba"),
        (&[("keys", "[]")], ""),
        (&[("startkey", "2")], "cdefg"),
        (&[("startkey", "1"), ("startkey_docid", "a")], "abcdefg"),
        (&[("startkey", "1"), ("startkey_docid", "aa")], "bcdefg"),
        (&[("endkey", "1")], "Bab"),
        (&[("endkey", "1"), ("endkey_docid", "a")], "Ba"),
        (&[("endkey", "2"), ("inclusive_end", "false")], "Bab"),
        (
            &[
                ("endkey", "1"),
                ("endkey_docid", "a"),
                ("inclusive_end", "false"),
            ],
            "B",
        ),
        (&[("startkey", "[1]"), ("endkey", "[1,{}]")], "ef"),
        (&[("startkey", "2"), ("descending", "true")], "cbaB"),
        (
            &[
                ("startkey", "1"),
                ("startkey_docid", "a"),
                ("descending", "true"),
            ],
            "aB",
        ),
        (&[("endkey", "1"), ("descending", "true")], "gfedcbaB"),
        (
            &[
                ("endkey", "1"),
                ("inclusive_end", "false"),
                ("descending", "true"),
            ],
            "gfedc",
        ),
        (
            &[
                ("endkey", "1"),
                ("endkey_docid", "a"),
                ("descending", "true"),
            ],
            "gfedcba",
        ),
        (
            &[
                ("endkey", "1"),
                ("endkey_docid", "a"),
                ("inclusive_end", "false"),
                ("descending", "true"),
            ],
            "gfedcb",
        ),
        (&[("skip", "2"), ("limit", "3")], "bcd"),
        (&[("limit", "0")], ""),
        (&[("skip", "100")], ""),
    ];
    for (parameters, expected) in cases {
        assert_eq!(ids(&shards, parameters)?, expected, "{parameters:?}");
    }
    let unsorted = ids(&shards, &[("sorted", "false"), ("endkey", "2")])?;
    assert_eq!(unsorted, "Babc", "the rows of the first shard come first");
    Ok(())
}

#[test]
fn offsets_count_the_rows_before() -> Result<()> {
    let shards = shards()?;
    let design = design(&[("v", MAP, "")]);
    let cases: [(&[(&str, &str)], u64); 4] = [
        (&[], 0),
        (&[("startkey", "2")], 3),
        (&[("key", "\"x\"")], 4),
        (&[("startkey", "2"), ("descending", "true")], 4),
    ];
    for (parameters, expected) in cases {
        let query = query(parameters);
        let (mut offset, mut total, mut read) = (0, 0, 0);
        for shard in &shards.shards {
            let mut rows = shard.view_rows(&design, "v", &query, Limits::default())?;
            offset += rows.offset(u64::MAX - 1)?;
            total += rows.total_rows();
            read += rows.count();
        }
        assert_eq!((offset, total), (expected, 8), "{parameters:?}");
        assert!(read > 0, "counting has not moved the rows");
    }
    Ok(())
}

#[test]
fn groups_of_several_shards_are_reduced_again() -> Result<()> {
    let shards = shards()?;
    let both: Vec<&Shard> = shards.shards.iter().collect();
    let script = "function(keys, values, again) { return sum(values); }";
    let cases: [(Parameters<'_>, &[&str]); 11] = [
        (&[], &["null 36"]),
        (
            &[("group", "true")],
            &[
                "1 6",
                "2 4",
                "\"x\" 5",
                "[1,\"a\"] 6",
                "[1,\"b\"] 7",
                "[2] 8",
            ],
        ),
        (
            &[("group_level", "1")],
            &["1 6", "2 4", "\"x\" 5", "[1] 13", "[2] 8"],
        ),
        (
            &[("group_level", "1"), ("descending", "true"), ("limit", "2")],
            &["[2] 8", "[1] 13"],
        ),
        (
            &[("group", "true"), ("skip", "4")],
            &["[1,\"b\"] 7", "[2] 8"],
        ),
        (
            &[("group", "true"), ("keys", "[2,1,2]")],
            &["2 4", "1 6", "2 4"],
        ),
        (
            &[("group", "true"), ("keys", "[2,1]"), ("descending", "true")],
            &["2 4", "1 6"],
        ),
        (&[("key", "1")], &["null 6"]),
        (&[("startkey", "2"), ("endkey", "[1,\"a\"]")], &["null 15"]),
        (&[("key", "77")], &[]),
        (&[("limit", "0")], &[]),
    ];
    for reducer in ["_sum", script] {
        let design = design(&[("v", MAP, reducer)]);
        for (parameters, expected) in cases {
            assert_eq!(
                groups(&both, &design, &query(parameters))?,
                expected,
                "{reducer} {parameters:?}"
            );
        }
    }
    let counts = [
        ("_count", "null 8"),
        ("_approx_count_distinct", "null 6"),
        (
            "_stats",
            r#"null {"sum":36,"count":8,"min":1,"max":8,"sumsqr":204}"#,
        ),
    ];
    for (reducer, expected) in counts {
        assert_eq!(
            groups(&both, &design(&[("v", MAP, reducer)]), &query(&[]))?,
            [expected]
        );
    }
    let unreduced = design(&[("v", MAP, "")]);
    assert!(groups(&both, &unreduced, &query(&[])).is_err());
    Ok(())
}

#[test]
fn rows_can_stand_in_raw_order() -> Result<()> {
    let shards = shards()?;
    let both: Vec<&Shard> = shards.shards.iter().collect();
    let body = format!(r#"{{"options":{{"collation":"raw"}},"views":{{"v":{{"map":"{MAP}"}}}}}}"#);
    let design = design_of(&body);
    let ids = |parameters: &[(&str, &str)]| -> Result<String> {
        let rows = rows(&both, &design, &query(parameters))?;
        Ok(rows.iter().filter_map(|row| row.chars().next()).collect())
    };
    assert_eq!(ids(&[])?, "Babcefgd", "strings are the last");
    assert_eq!(ids(&[("startkey", "[2]"), ("endkey", "\"x\"")])?, "gd");
    Ok(())
}
