//! What reducers make of rows, whether they come together or in parts.

use super::*;

fn row(number: usize, key: &str, value: &str) -> ViewRow {
    ViewRow {
        key: key.to_owned(),
        id: format!("d{number}"),
        value: value.to_owned(),
        sort_key: crate::collate::key_of(Json::new(key)),
        place: 0,
        number: 0,
    }
}

/// Reduces the values at once, then split at every place and merged.
fn reduced(source: &str, values: &[&str]) -> Result<String> {
    let mut reduction = Reduction::new(&Reducer::parse(source)?, Limits::default())?;
    let mut results = Vec::new();
    for split in 0..=values.len() {
        let mut parts = [reduction.begin(), reduction.begin()];
        for (at, value) in values.iter().enumerate() {
            let row = row(at, &format!("[{at}]"), value);
            reduction.add(&mut parts[usize::from(at >= split)], &row)?;
        }
        let [mut one, other] = parts;
        reduction.merge(&mut one, other)?;
        results.push(reduction.finish(one)?);
    }
    assert!(
        results.windows(2).all(|pair| pair[0] == pair[1]),
        "{results:?}"
    );
    Ok(results.remove(0))
}

#[test]
fn sums_are_couchdbs() -> Result<()> {
    let cases: [(&[&str], &str); 9] = [
        (&["1", "2", "3"], "6"),
        (&["1", "0.5"], "1.5"),
        (&["0.5", "0.5"], "1.0"),
        (&["9007199254740993", "1"], "9007199254740994"),
        (&["1", "[1,4,6]"], "[2,4,6]"),
        (&["[3,2,4]", "[0,3]", "1"], "[4,5,4]"),
        (
            &[
                r#"{"a":1,"b":[1,2],"c":{"d":3}}"#,
                r#"{"a":2,"b":3,"c":{"e":5},"f":1}"#,
            ],
            r#"{"a":3,"b":[4,2],"c":{"d":3,"e":5},"f":1}"#,
        ),
        (&["[]"], "[0]"),
        (&[], "0"),
    ];
    for (values, expected) in cases {
        assert_eq!(reduced("_sum", values)?, expected, "{values:?}");
    }
    for wrong in [
        &["1", "\"x\""],
        &["\"x\"", "1"],
        &["1", "[\"x\"]"],
        &["1", "null"],
    ] {
        let sum = reduced("_sum", wrong)?;
        assert!(
            sum.starts_with(
                r#"{"error":"builtin_reduce_error","reason":"The _sum function requires"#
            ),
            "{sum}"
        );
    }
    Ok(())
}

#[test]
fn a_sum_that_grows_with_its_input_is_an_error() {
    let values: Vec<String> = (0..3000)
        .map(|at| format!(r#"{{"member-{at}":1}}"#))
        .collect();
    let mut total = Total::default();
    for value in &values {
        total.add(Json::new(value));
    }
    assert!(
        total
            .finish()
            .contains("Reduce output must shrink more rapidly")
    );
}

#[test]
fn figures_are_couchdbs() -> Result<()> {
    let cases: [(&[&str], &str); 4] = [
        (&["2"], r#"{"sum":2,"count":1,"min":2,"max":2,"sumsqr":4}"#),
        (
            &["1", "10", "-2.5"],
            r#"{"sum":8.5,"count":3,"min":-2.5,"max":10,"sumsqr":107.25}"#,
        ),
        (
            &["[1,2]", "[3,5]"],
            r#"[{"sum":4,"count":2,"min":1,"max":3,"sumsqr":10},{"sum":7,"count":2,"min":2,"max":5,"sumsqr":29}]"#,
        ),
        (
            &[r#"{"sum":1,"count":1,"min":1,"max":1,"sumsqr":1}"#, "2"],
            r#"{"sum":3,"count":2,"min":1,"max":2,"sumsqr":5}"#,
        ),
    ];
    for (values, expected) in cases {
        assert_eq!(reduced("_stats", values)?, expected, "{values:?}");
    }
    let error = reduced("_stats", &["1", "\"x\""]).expect_err("a text");
    assert_eq!(error.word(), "invalid_value");
    let text = "The _stats function requires that map values be numbers or arrays of numbers, not '<<\"x\">>'";
    assert_eq!(error.to_string(), text);
    for wrong in [r#"{"sum":1}"#, r#"{"sum":"1"}"#, "null"] {
        assert_eq!(
            reduced("_stats", &[wrong]).expect_err(wrong).word(),
            "invalid_value"
        );
    }
    assert!(reduced("_stats", &["[1]", "[1,2]"]).is_err());
    Ok(())
}

#[test]
fn counts_are_exact_and_distinct_keys_about_right() -> Result<()> {
    assert_eq!(reduced("_count", &["1", "null", "[]"])?, "3");
    assert_eq!(reduced("_approx_count_distinct", &["1", "1", "1"])?, "3");
    for count in [100_u32, 5_000, 200_000] {
        let mut distinct = Distinct::default();
        for round in 0..2 {
            (0..count).for_each(|key| distinct.add(&key.to_le_bytes()));
            let off = distinct.estimate().abs_diff(count.into());
            assert!(
                off * 100 < u64::from(count) * 7,
                "{count} in round {round}: off by {off}"
            );
        }
    }
    Ok(())
}

#[test]
fn functions_reduce_and_reduce_again() -> Result<()> {
    let count = "function(keys, values, again) { return again ? sum(values) : keys.length; }";
    let values = vec!["1"; 10];
    assert_eq!(reduced(count, &values)?, "10");
    let mut reduction = Reduction::new(&Reducer::parse(count)?, Limits::default())?;
    let mut accumulator = reduction.begin();
    for at in 0..150_000 {
        reduction.add(&mut accumulator, &row(at, "1", "1"))?;
    }
    let Accumulator::Script(chunks) = &accumulator else {
        panic!("a function reduces in chunks");
    };
    assert!(format!("{chunks:?}").len() < 1 << 19, "memory is bounded");
    assert_eq!(reduction.finish(accumulator)?, "150000");
    assert_eq!(
        reduced("function(keys, values) { throw new Error('x'); }", &["1"])?,
        "null"
    );
    let growing = "function(keys, values) { return values; }";
    let long = format!("\"{}\"", "x".repeat(6000));
    assert!(
        reduced(growing, &[&long])?.starts_with(r#"{"reduce_overflow_error":"Reduce output must"#)
    );
    let endless = Reduction::new(
        &Reducer::parse("function() { for (;;) {} }")?,
        Limits {
            time: std::time::Duration::from_millis(100),
            ..Limits::default()
        },
    );
    let mut endless = endless?;
    let mut accumulator = endless.begin();
    endless.add(&mut accumulator, &row(0, "1", "1"))?;
    assert_eq!(
        endless.finish(accumulator).expect_err("a loop").word(),
        "timeout"
    );
    Ok(())
}
