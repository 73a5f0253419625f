//! Requests of Mango: what `_find`, `_explain` and `_index` take, checked as CouchDB does.

use crate::error::{Error, Result};
use crate::json::{Json, Kind, unquote};
use crate::mango::{Aggregate, Projection, Selector, Sort};
use crate::partition::check_partition;

/// Documents that a query answers with, unless it says otherwise.
const LIMIT: u64 = 25;

/// The members of a query.
const MEMBERS: [&str; 17] = [
    "selector",
    "sort",
    "fields",
    "limit",
    "skip",
    "bookmark",
    "use_index",
    "r",
    "allow_fallback",
    "conflicts",
    "execution_stats",
    "update",
    "stable",
    "stale",
    "partition",
    "aggregate",
    "guard",
];

/// A query.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the protocol has these switches"
)]
pub struct FindRequest {
    /// Which documents are wanted.
    pub selector: Selector,
    /// The same as canonical JSON.
    pub selector_text: String,
    /// In which order.
    pub sort: Sort,
    /// The same as canonical JSON.
    pub sort_text: String,
    /// Which of their fields.
    pub fields: Projection,
    /// The same as canonical JSON.
    pub fields_text: String,
    /// How many at most.
    pub limit: u64,
    /// How many to pass over.
    pub skip: u64,
    /// Where an earlier answer ended; empty: the query begins.
    pub bookmark: String,
    /// The design document, without `_design/`, and the index in it, if they are named.
    pub use_index: Vec<String>,
    /// Whether another index may serve if the named one does not.
    pub allow_fallback: bool,
    /// Whether conflicts are wanted with the documents.
    pub conflicts: bool,
    /// Whether the cost is wanted with the answer.
    pub execution_stats: bool,
    /// Whether the cost of each shard is wanted, too.
    pub shard_stats: bool,
    /// What is wanted of all documents that match, and not they: no part of CouchDB's interface, as the next ones.
    pub aggregate: Option<Aggregate>,
    /// Documents that may be read.
    pub guard_documents: Option<u64>,
    /// Bytes of documents that may be read.
    pub guard_bytes: Option<u64>,
    /// Whether a query that no index serves is refused.
    pub refuses_scans: bool,
    /// The partition whose documents are wanted; `None`: all documents are asked.
    pub partition: Option<String>,
}

/// An index that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexRequest {
    /// The names of its columns' fields, and the direction of all.
    pub columns: Vec<String>,
    /// Whether the columns are named in descending order.
    pub is_descending: bool,
    /// The canonical JSON of a selector: other documents are left out.
    pub partial: Option<String>,
    /// Its design document, without `_design/`; `None`: named after the definition.
    pub design: Option<String>,
    /// Its name; `None`: named after the definition.
    pub name: Option<String>,
    /// Whether it is of partitions; `None`: if the database has some.
    pub is_partitioned: Option<bool>,
}

impl FindRequest {
    /// Reads a query from canonical JSON.
    ///
    /// # Errors
    /// The protocol's words for whatever member is wrong.
    pub fn parse(json: Json<'_>) -> Result<Self> {
        check_object(json)?;
        let selector = json.member("selector").ok_or_else(|| missing("selector"))?;
        let sort = json.member("sort").map_or("[]", Json::text);
        let fields = match json.member("fields") {
            Some(fields) if fields.text() != "\"all_fields\"" => fields.text(),
            _ => "[]",
        };
        let stats = json.member("execution_stats");
        let stats = stats.filter(|it| it.text() == "\"shards\"");
        let guard = json.member("guard").unwrap_or(Json::new("{}"));
        check_object(guard)?;
        let request = Self {
            selector: Selector::parse(selector)?,
            selector_text: selector.text().to_owned(),
            sort: Sort::parse(Json::new(sort))?,
            sort_text: sort.to_owned(),
            fields: Projection::parse(Json::new(fields))?,
            fields_text: fields.to_owned(),
            limit: whole(json, "limit", LIMIT)?,
            skip: whole(json, "skip", 0)?,
            bookmark: bookmark(json)?,
            use_index: use_index(json)?,
            allow_fallback: boolean(json, "allow_fallback", true)?,
            conflicts: boolean(json, "conflicts", false)?,
            execution_stats: match stats {
                Some(_) => true,
                None => boolean(json, "execution_stats", false)?,
            },
            shard_stats: stats.is_some(),
            aggregate: json.member("aggregate").map(Aggregate::parse).transpose()?,
            guard_documents: bound(guard, "docs")?,
            guard_bytes: bound(guard, "bytes")?,
            refuses_scans: !boolean(guard, "scan", true)?,
            partition: partition(json)?,
        };
        check_members(guard, &["docs", "bytes", "scan"])?;
        if request.aggregate.is_some() && !request.bookmark.is_empty() {
            let reason = "An aggregate is of all documents; a bookmark leads behind some.";
            return Err(Error::query("invalid_aggregate", reason));
        }
        boolean(json, "update", true)?;
        boolean(json, "stable", false)?;
        if json
            .member("r")
            .is_some_and(|it| it.integer().is_none_or(|it| it < 1))
        {
            let reason = "r is not an integer greater than zero";
            return Err(Error::query("invalid_pos_integer", reason));
        }
        check_members(json, &MEMBERS)?;
        Ok(request)
    }
}

impl IndexRequest {
    /// Reads the definition of an index from canonical JSON.
    ///
    /// # Errors
    /// The protocol's words for whatever member is wrong.
    pub fn parse(json: Json<'_>) -> Result<Self> {
        check_object(json)?;
        let index = json.member("index").ok_or_else(|| missing("index"))?;
        let kind = match json.member("type") {
            None => "json".into(),
            Some(kind) => text("type", kind)?,
        };
        let name = name(json, "name")?;
        let design = name_of_design(json)?;
        check_members(json, &["index", "type", "name", "ddoc", "w", "partitioned"])?;
        if matches!(kind.as_str(), "text" | "nouveau") {
            return Err(Error::query("required index service unavailable", kind));
        }
        if kind != "json" {
            let reason = format!("Invalid type for index: {kind}");
            return Err(Error::query("invalid_index", reason));
        }
        let fields = index
            .member("fields")
            .filter(|_| index.kind() == Kind::Object);
        let Some(fields) = fields else {
            let reason = format!("JSON indexes must be an object, not: {}", index.text());
            return Err(Error::query("invalid_index", reason));
        };
        let sort = Sort::parse(fields)?;
        if sort.fields.is_empty() {
            let reason = "Index is missing its definition.";
            return Err(Error::query("invalid_index", reason));
        }
        let partial = index.member("partial_filter_selector");
        let partial = partial.map(Selector::parse).transpose()?;
        check_members(index, &["fields", "partial_filter_selector"])?;
        Ok(Self {
            columns: field_names(fields),
            is_descending: sort.direction == crate::mango::Direction::Descending,
            partial: partial.map(|it| it.to_json()).filter(|it| it != "{}"),
            design,
            name,
            is_partitioned: match json.member("partitioned") {
                Some(_) => Some(boolean(json, "partitioned", false)?),
                None => None,
            },
        })
    }
}

/// The names in an array of names and of objects `{name: direction}`.
pub(super) fn field_names(fields: Json<'_>) -> Vec<String> {
    let name = |field: Json<'_>| match field.string() {
        Some(name) => Some(name.into_owned()),
        None => field
            .members()
            .next()
            .map(|(name, _)| unquote(name).into_owned()),
    };
    fields.elements().filter_map(name).collect()
}

fn check_object(json: Json<'_>) -> Result<()> {
    if json.kind() == Kind::Object {
        return Ok(());
    }
    Err(Error::BadRequest(
        "Request body must be a JSON object".into(),
    ))
}

fn check_members(json: Json<'_>, known: &[&str]) -> Result<()> {
    let unknown = json
        .members()
        .map(|(name, _)| unquote(name))
        .find(|name| !known.contains(&name.as_ref()));
    unknown.map_or(Ok(()), |name| {
        let reason = format!("Invalid key {name} for this request.");
        Err(Error::query("invalid_key", reason))
    })
}

fn missing(name: &str) -> Error {
    Error::query(
        "missing_required_key",
        format!("Missing required key: {name}"),
    )
}

fn boolean(json: Json<'_>, name: &str, default: bool) -> Result<bool> {
    let Some(value) = json.member(name) else {
        return Ok(default);
    };
    value.boolean().ok_or_else(|| {
        let reason = format!("Invalid boolean value: {}", value.text());
        Error::query("invalid_boolean", reason)
    })
}

fn whole(json: Json<'_>, name: &str, default: u64) -> Result<u64> {
    let Some(value) = json.member(name) else {
        return Ok(default);
    };
    let number = value.integer().and_then(|it| u64::try_from(it).ok());
    number.ok_or_else(|| {
        let reason = format!(
            "{} is not an integer greater than or equal to zero",
            value.text()
        );
        Error::query("invalid_non_neg_integer", reason)
    })
}

/// A number that a guard sets; `None`: it sets none.
fn bound(guard: Json<'_>, name: &str) -> Result<Option<u64>> {
    let is_set = guard.member(name).is_some();
    Ok(is_set.then_some(whole(guard, name, 0)?))
}

fn text(_name: &str, value: Json<'_>) -> Result<String> {
    let invalid = || {
        Error::query(
            "invalid_string",
            format!("Invalid string: {}", value.text()),
        )
    };
    Ok(value.string().ok_or_else(invalid)?.into_owned())
}

fn name(json: Json<'_>, member: &str) -> Result<Option<String>> {
    let Some(value) = json.member(member) else {
        return Ok(None);
    };
    let name = text(member, value)?;
    if name.is_empty() {
        let reason = "Index name or ddoc cannot be empty string";
        return Err(Error::query("invalid_empty_string", reason));
    }
    Ok(Some(name))
}

fn name_of_design(json: Json<'_>) -> Result<Option<String>> {
    let name = name(json, "ddoc")?;
    Ok(name.map(|name| name.strip_prefix("_design/").unwrap_or(&name).to_owned()))
}

fn partition(json: Json<'_>) -> Result<Option<String>> {
    let Some(value) = json.member("partition") else {
        return Ok(None);
    };
    let name = text("partition", value)?;
    if name.is_empty() {
        return Ok(None);
    }
    check_partition(&name)?;
    Ok(Some(name))
}

fn bookmark(json: Json<'_>) -> Result<String> {
    match json.member("bookmark") {
        None => Ok(String::new()),
        Some(value) if value.kind() == Kind::Null => Ok(String::new()),
        Some(value) => {
            let invalid = || invalid_bookmark(value.text());
            let bookmark = value.string().ok_or_else(invalid)?;
            let is_none = bookmark == "nil";
            Ok(if is_none {
                String::new()
            } else {
                bookmark.into_owned()
            })
        }
    }
}

/// The protocol's `invalid_bookmark`.
pub(super) fn invalid_bookmark(shown: &str) -> Error {
    Error::query(
        "invalid_bookmark",
        format!("Invalid bookmark value: {shown}"),
    )
}

fn use_index(json: Json<'_>) -> Result<Vec<String>> {
    let Some(value) = json.member("use_index") else {
        return Ok(Vec::new());
    };
    let invalid = || {
        let reason = format!("Invalid index name: {}", value.text());
        Error::query("invalid_index_name", reason)
    };
    let mut names: Vec<String> = match value.kind() {
        Kind::Null => return Ok(Vec::new()),
        Kind::String => {
            let text = value.string().unwrap_or_default();
            text.split('/').map(ToOwned::to_owned).collect()
        }
        Kind::Array => {
            let names = value
                .elements()
                .map(|it| it.string().map(std::borrow::Cow::into_owned));
            names.collect::<Option<_>>().ok_or_else(invalid)?
        }
        _ => return Err(invalid()),
    };
    if names.first().is_some_and(|name| name == "_design") {
        names.remove(0);
    }
    if names.len() > 2 {
        return Err(invalid());
    }
    if let Some(design) = names.first_mut()
        && let Some(bare) = design.strip_prefix("_design/")
    {
        *design = bare.to_owned();
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_queries_are_refused_in_the_protocols_words() {
        let cases = [
            ("[]", "bad_request"),
            ("{}", "missing_required_key"),
            (r#"{"selector":1}"#, "invalid_selector_json"),
            (r#"{"selector":{},"x":1}"#, "invalid_key"),
            (r#"{"selector":{},"limit":-1}"#, "invalid_non_neg_integer"),
            (r#"{"selector":{},"conflicts":1}"#, "invalid_boolean"),
            (
                r#"{"selector":{},"use_index":["a","b","c"]}"#,
                "invalid_index_name",
            ),
            (r#"{"selector":{},"bookmark":1}"#, "invalid_bookmark"),
            (r#"{"selector":{},"r":0}"#, "invalid_pos_integer"),
        ];
        for (text, word) in cases {
            let error = FindRequest::parse(Json::new(text)).expect_err(text);
            assert_eq!(error.word(), word, "{text}");
        }
    }

    #[test]
    fn an_index_is_named_in_several_ways() -> Result<()> {
        let cases = [
            (r#""a""#, &["a"][..]),
            (r#""_design/a""#, &["a"]),
            (r#""_design/a/b""#, &["a", "b"]),
            (r#"["_design/a","b"]"#, &["a", "b"]),
            ("null", &[]),
        ];
        for (use_index, expected) in cases {
            let text = format!(r#"{{"selector":{{}},"use_index":{use_index}}}"#);
            let request = FindRequest::parse(Json::new(&text))?;
            assert_eq!(request.use_index, expected, "{text}");
        }
        Ok(())
    }

    #[test]
    fn wrong_definitions_of_indexes_are_refused() -> Result<()> {
        let cases = [
            ("{}", "missing_required_key"),
            (r#"{"index":{}}"#, "invalid_index"),
            (r#"{"index":{"fields":[]}}"#, "invalid_index"),
            (
                r#"{"index":{"fields":["a"]},"name":""}"#,
                "invalid_empty_string",
            ),
            (r#"{"index":{"fields":["a"]},"name":1}"#, "invalid_string"),
            (
                r#"{"index":{"fields":["a"]},"type":"text"}"#,
                "required index service unavailable",
            ),
            (r#"{"index":{"fields":["a"]},"type":"x"}"#, "invalid_index"),
            (
                r#"{"index":{"fields":[{"a":"asc"},{"b":"desc"}]}}"#,
                "unsupported_mixed_sort",
            ),
        ];
        for (text, word) in cases {
            let error = IndexRequest::parse(Json::new(text)).expect_err(text);
            assert_eq!(error.word(), word, "{text}");
        }
        let text = r#"{"index":{"fields":["a",{"b":"asc"}]},"ddoc":"_design/d","name":"n"}"#;
        let request = IndexRequest::parse(Json::new(text))?;
        assert_eq!(request.columns, ["a", "b"]);
        assert_eq!(request.design.as_deref(), Some("d"));
        Ok(())
    }
}
