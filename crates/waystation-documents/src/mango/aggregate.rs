//! Aggregates: what is counted, summed and compared over the documents that a selector matches, in groups.
//!
//! Each shard aggregates its own documents, and the groups of several shards are merged: only groups travel. A group is
//! named by the values of its fields, and values that are equal by collation are one; a document without a field is in
//! the group of `null`. Sums take numbers alone; lowest and highest take any value that is there, by collation.

use super::{FieldPath, Fields};
use crate::collate::{compare, put_key};
use crate::error::{Error, Result};
use crate::json::{Json, Kind, quote};
use crate::wire::{Wire, malformed, wire_struct};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use waystation_format::FormatError;
use waystation_format::varint::Reader;

/// More groups are refused: they are held in memory.
const GROUPS_MAX: usize = 1 << 16;
/// Fields that an aggregate names for one purpose, at most.
const FIELDS_MAX: usize = 64;
/// Whole numbers below this are exact (2^53).
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A field and its name.
type Named = (String, FieldPath);

/// What is aggregated.
#[derive(Debug, Clone)]
pub struct Aggregate {
    /// Its canonical JSON.
    text: String,
    group: Vec<Named>,
    count: bool,
    sum: Vec<Named>,
    min: Vec<Named>,
    max: Vec<Named>,
}

/// The figures of a group.
#[derive(Debug, Clone, PartialEq, Default)]
struct Figures {
    /// The values of the group's fields, as JSON.
    values: Vec<String>,
    count: u64,
    sums: Vec<f64>,
    /// As JSON; `None`: no document has the field.
    lowest: Vec<Option<String>>,
    highest: Vec<Option<String>>,
}

/// Groups, in the order of their values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Groups(BTreeMap<Vec<u8>, Figures>);

wire_struct! {
    Figures { values, count, sums, lowest, highest }
}

impl Wire for f64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bits().to_le_bytes());
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        reader.fixed_u64("a number").map(Self::from_bits)
    }
}

impl Wire for Groups {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.len().put(out);
        for (key, figures) in &self.0 {
            key.put(out);
            figures.put(out);
        }
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let count = usize::take(reader)?;
        let mut groups = BTreeMap::new();
        for _ in 0..count {
            groups.insert(Vec::take(reader)?, Figures::take(reader)?);
        }
        Ok(Self(groups))
    }
}

impl Wire for Aggregate {
    fn put(&self, out: &mut Vec<u8>) {
        self.text.put(out);
    }

    fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let text = String::take(reader)?;
        let text = crate::json::canonical(text.as_bytes());
        let text = text.map_err(|_| malformed(reader, "an aggregate is no JSON"))?;
        Self::parse(Json::new(&text)).map_err(|_| malformed(reader, "an aggregate is none"))
    }
}

fn invalid(reason: &str) -> Error {
    Error::query("invalid_aggregate", reason)
}

impl Aggregate {
    /// Parses canonical JSON: an object with `group`, `sum`, `min` and `max` (names of fields) and `count`.
    ///
    /// # Errors
    /// [`Error::Query`] `invalid_aggregate`, `invalid_field_name`.
    pub fn parse(json: Json<'_>) -> Result<Self> {
        if json.kind() != Kind::Object {
            return Err(invalid("`aggregate` must be an object"));
        }
        let known = ["\"group\"", "\"count\"", "\"sum\"", "\"min\"", "\"max\""];
        if let Some((name, _)) = json.members().find(|(name, _)| !known.contains(name)) {
            let reason =
                format!("`aggregate` has no member {name}; it has group, count, sum, min and max");
            return Err(invalid(&reason));
        }
        let count = json.member("count").map(|it| it.boolean().ok_or(()));
        let count = count.transpose();
        let count = count.map_err(|()| invalid("`count` must be true or false"))?;
        let aggregate = Self {
            text: json.text().to_owned(),
            group: names(json, "group")?,
            count: count.unwrap_or(false),
            sum: names(json, "sum")?,
            min: names(json, "min")?,
            max: names(json, "max")?,
        };
        let lists = [&aggregate.sum, &aggregate.min, &aggregate.max];
        if !aggregate.count && lists.iter().all(|list| list.is_empty()) {
            return Err(invalid(
                "`aggregate` asks for nothing; name count, sum, min or max",
            ));
        }
        Ok(aggregate)
    }

    /// `groups` as canonical JSON: an array of objects. Where nothing is grouped, there is one even of no documents.
    pub fn to_json(&self, groups: &Groups) -> String {
        if self.group.is_empty() && groups.0.is_empty() {
            let none = Figures {
                sums: vec![0.0; self.sum.len()],
                lowest: vec![None; self.min.len()],
                highest: vec![None; self.max.len()],
                ..Figures::default()
            };
            return crate::array([self.group_to_json(&none)]);
        }
        crate::array(groups.0.values().map(|figures| self.group_to_json(figures)))
    }

    fn group_to_json(&self, figures: &Figures) -> String {
        let object = |names: &[Named], values: &[String]| {
            let member = |((name, _), value): (&Named, &String)| format!("{}:{value}", quote(name));
            let members: Vec<String> = names.iter().zip(values).map(member).collect();
            format!("{{{}}}", members.join(","))
        };
        let or_null = |values: &[Option<String>]| -> Vec<String> {
            let null = || "null".to_owned();
            values
                .iter()
                .map(|it| it.clone().unwrap_or_else(null))
                .collect()
        };
        let mut members = Vec::new();
        if !self.group.is_empty() {
            members.push(format!(
                "\"group\":{}",
                object(&self.group, &figures.values)
            ));
        }
        if self.count {
            members.push(format!("\"count\":{}", figures.count));
        }
        let sums: Vec<String> = figures.sums.iter().copied().map(number).collect();
        for (name, list, values) in [
            ("sum", &self.sum, sums),
            ("min", &self.min, or_null(&figures.lowest)),
            ("max", &self.max, or_null(&figures.highest)),
        ] {
            if !list.is_empty() {
                members.push(format!("\"{name}\":{}", object(list, &values)));
            }
        }
        format!("{{{}}}", members.join(","))
    }
}

impl Groups {
    /// Counts `document` in.
    ///
    /// # Errors
    /// [`Error::Query`] `too_many_groups`.
    pub(crate) fn add(&mut self, aggregate: &Aggregate, document: &impl Fields) -> Result<()> {
        let (mut key, mut values) = (Vec::new(), Vec::new());
        for (_, path) in &aggregate.group {
            let value = path.value(document).unwrap_or(Json::new("null"));
            put_key(&mut key, value);
            values.push(value.text().to_owned());
        }
        let texts = |names: &[Named]| -> Vec<Option<String>> {
            let value = |path: &FieldPath| path.value(document).map(|it| it.text().to_owned());
            names.iter().map(|(_, path)| value(path)).collect()
        };
        let figure = |path: &FieldPath| {
            let value = path.value(document).filter(|it| it.kind() == Kind::Number);
            value.and_then(|it| it.text().parse().ok()).unwrap_or(0.0)
        };
        let one = Figures {
            values,
            count: 1,
            sums: aggregate.sum.iter().map(|(_, path)| figure(path)).collect(),
            lowest: texts(&aggregate.min),
            highest: texts(&aggregate.max),
        };
        self.join(key, one)
    }

    /// Adds the groups of another shard, which has aggregated the same.
    ///
    /// # Errors
    /// [`Error::Query`] `too_many_groups`.
    pub(crate) fn merge(&mut self, other: Self) -> Result<()> {
        other
            .0
            .into_iter()
            .try_for_each(|(key, figures)| self.join(key, figures))
    }

    fn join(&mut self, key: Vec<u8>, figures: Figures) -> Result<()> {
        if let Some(known) = self.0.get_mut(&key) {
            known.join(figures);
            return Ok(());
        }
        if self.0.len() >= GROUPS_MAX {
            let reason = format!(
                "The query has more than {GROUPS_MAX} groups; group by fewer fields, or narrow the selector."
            );
            return Err(Error::query("too_many_groups", reason));
        }
        self.0.insert(key, figures);
        Ok(())
    }

    /// Whether its groups have the figures that `aggregate` asks for.
    pub(crate) fn is_of(&self, aggregate: &Aggregate) -> bool {
        self.0.values().all(|figures| {
            figures.values.len() == aggregate.group.len()
                && figures.sums.len() == aggregate.sum.len()
                && figures.lowest.len() == aggregate.min.len()
                && figures.highest.len() == aggregate.max.len()
        })
    }
}

impl Figures {
    fn join(&mut self, other: Self) {
        self.count += other.count;
        for (sum, more) in self.sums.iter_mut().zip(other.sums) {
            *sum += more;
        }
        replace(&mut self.lowest, other.lowest, Ordering::Less);
        replace(&mut self.highest, other.highest, Ordering::Greater);
    }
}

/// Takes what is on the side of `better`, by collation.
fn replace(known: &mut [Option<String>], others: Vec<Option<String>>, better: Ordering) {
    for (known, other) in known.iter_mut().zip(others) {
        let Some(other) = other else { continue };
        let order = |known: &String| compare(Json::new(&other), Json::new(known));
        if known.as_ref().is_none_or(|known| order(known) == better) {
            *known = Some(other);
        }
    }
}

fn names(json: Json<'_>, member: &str) -> Result<Vec<Named>> {
    let Some(list) = json.member(member) else {
        return Ok(Vec::new());
    };
    let wrong = || {
        invalid(&format!(
            "`{member}` must be an array of up to {FIELDS_MAX} names of fields"
        ))
    };
    if list.kind() != Kind::Array || list.elements().count() > FIELDS_MAX {
        return Err(wrong());
    }
    let named = |name: Json<'_>| {
        let name = name.string().ok_or_else(wrong)?.into_owned();
        let path = FieldPath::parse(&name)?;
        Ok((name, path))
    };
    list.elements().map(named).collect()
}

/// A sum as JSON: whole where it is; one that is beyond all numbers is `null`.
fn number(sum: f64) -> String {
    if !sum.is_finite() {
        "null".to_owned()
    } else if sum.fract() == 0.0 && sum.abs() < EXACT {
        format!("{sum:.0}")
    } else {
        format!("{sum:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aggregate(text: &str) -> Aggregate {
        Aggregate::parse(Json::new(text)).expect(text)
    }

    #[test]
    fn groups_of_two_shards_are_merged() -> Result<()> {
        let all = r#"{"group":["kind"],"count":true,"sum":["n","m.x"],"min":["n"],"max":["n"]}"#;
        let all = aggregate(all);
        let shards = [
            [
                r#"{"kind":"a","n":1,"m":{"x":0.5}}"#,
                r#"{"kind":"b","n":"z"}"#,
                "{}",
            ],
            [
                r#"{"kind":"a","n":-3}"#,
                r#"{"kind":"a","n":[7]}"#,
                r#"{"kind":null,"n":2}"#,
            ],
        ];
        let mut merged = Groups::default();
        for shard in shards {
            let mut groups = Groups::default();
            for document in shard {
                groups.add(&all, &Json::new(document))?;
            }
            assert!(groups.is_of(&all));
            let bytes = crate::wire::encode(&groups);
            assert_eq!(crate::wire::decode::<Groups>(&bytes).as_ref(), Ok(&groups));
            merged.merge(groups)?;
        }
        let expected = concat!(
            r#"[{"group":{"kind":null},"count":2,"sum":{"n":2,"m.x":0},"min":{"n":2},"max":{"n":2}},"#,
            r#"{"group":{"kind":"a"},"count":3,"sum":{"n":-2,"m.x":0.5},"min":{"n":-3},"max":{"n":[7]}},"#,
            r#"{"group":{"kind":"b"},"count":1,"sum":{"n":0,"m.x":0},"min":{"n":"z"},"max":{"n":"z"}}]"#
        );
        assert_eq!(all.to_json(&merged), expected);
        Ok(())
    }

    #[test]
    fn too_many_groups_are_refused() -> Result<()> {
        let by_n = aggregate(r#"{"group":["n"],"count":true}"#);
        let mut groups = Groups::default();
        for n in 0..GROUPS_MAX {
            groups.add(&by_n, &Json::new(&format!(r#"{{"n":{n}}}"#)))?;
        }
        groups.add(&by_n, &Json::new(r#"{"n":1}"#))?;
        let refused = groups.add(&by_n, &Json::new(r#"{"n":-1}"#));
        assert_eq!(refused.expect_err("too many").word(), "too_many_groups");
        Ok(())
    }

    #[test]
    fn wrong_aggregates_are_refused() {
        for text in [
            "1",
            "{}",
            r#"{"count":false}"#,
            r#"{"count":1}"#,
            r#"{"sum":"n"}"#,
            r#"{"sum":[1]}"#,
            r#"{"count":true,"avg":["n"]}"#,
        ] {
            let refused = Aggregate::parse(Json::new(text)).expect_err(text);
            assert_eq!(refused.word(), "invalid_aggregate", "{text}");
        }
        assert_eq!(number(f64::INFINITY), "null");
        assert_eq!(number(0.5), "0.5");
    }
}
