//! Design documents: what is to be computed from the documents of a database.
//!
//! A design document is a document whose identifier begins with `_design/`. Of its members this crate knows `views`,
//! `language`, `options`, `filters` and `validate_doc_update`. All of its map functions are one *group*: they see each
//! document together and are indexed together. The group's [`Signature`] is a digest of all that decides its rows, so
//! that a changed reduce function, a renamed view or a new filter keeps the index, and two design documents with equal
//! maps share one.

use super::order::RowOrder;
use super::reduce::Reducer;
use super::script::{Defined, Limits, Sandbox, ScriptError};
use crate::collate::KEY_VERSION;
use crate::error::{Error, Result};
use crate::json::{Json, Kind, quote, unquote};
use md5::{Digest, Md5};
use std::collections::BTreeMap;
use std::fmt;

/// What the identifiers of design documents begin with.
pub(crate) const PREFIX: &str = "_design/";
const JAVASCRIPT: &str = "javascript";

/// Names the rows of a group of views: equal signatures, equal rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature(pub(crate) [u8; 16]);

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A view of a design document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The place of its map function in the group.
    pub(crate) place: usize,
    /// How its rows are reduced, if they are.
    pub(crate) reducer: Option<Reducer>,
}

impl View {
    /// Whether it has a reduce function.
    pub fn is_reduced(&self) -> bool {
        self.reducer.is_some()
    }
}

/// A design document that was read.
///
/// ```
/// use waystation_documents::views::DesignDocument;
/// let body = r#"{"views":{"fast":{"map":"doc => emit(doc.speed)","reduce":"_count"}}}"#;
/// let design = DesignDocument::parse("_design/cars", body)?;
/// assert!(design.view("fast")?.is_reduced());
/// assert!(design.view("slow").is_err());
/// # Ok::<(), waystation_documents::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesignDocument {
    id: String,
    /// The whole body, for `require`.
    body: String,
    language: String,
    /// The distinct sources of the maps, in order.
    maps: Vec<String>,
    views: BTreeMap<String, View>,
    /// The object in which maps look for modules.
    lib: String,
    filters: BTreeMap<String, String>,
    validation: Option<String>,
    pub(crate) order: RowOrder,
    pub(crate) has_local_sequence: bool,
    pub(crate) includes_design: bool,
    /// Whether its rows are of partitions.
    pub(crate) is_partitioned: bool,
    signature: Signature,
}

impl DesignDocument {
    /// Reads the design document `id` from its body in canonical text.
    ///
    /// # Errors
    /// [`Error::Query`] `invalid_design_doc` if a member is of another kind than it has to be, or a reducer unknown.
    pub fn parse(id: &str, body: &str) -> Result<Self> {
        let json = Json::new(body);
        let views = object(json, "views")?;
        let options = object(json, "options")?;
        let flag = |name: &str| {
            options
                .and_then(|it| it.member(name))
                .and_then(Json::boolean)
        };
        let collation = options.and_then(|it| it.member("collation"));
        let language = json.member("language").and_then(Json::string);
        let lib = views.and_then(|views| views.member("lib")).map(Json::text);
        let mut design = Self {
            id: id.to_owned(),
            body: body.to_owned(),
            language: language.map_or_else(|| JAVASCRIPT.to_owned(), Into::into),
            maps: Vec::new(),
            views: BTreeMap::new(),
            lib: lib.map_or_else(String::new, |it| format!(r#"{{"views":{{"lib":{it}}}}}"#)),
            filters: BTreeMap::new(),
            validation: function(json, "validate_doc_update")?,
            order: match collation.and_then(Json::string).as_deref() {
                Some("raw") => RowOrder::Raw,
                _ => RowOrder::Unicode,
            },
            has_local_sequence: flag("local_seq").unwrap_or(false),
            includes_design: flag("include_design").unwrap_or(false),
            is_partitioned: false,
            signature: Signature([0; 16]),
        };
        // Functions in other languages, as Mango's indexes have, are not for this module.
        if design.language == JAVASCRIPT {
            design.read_views(views)?;
            design.read_filters(object(json, "filters")?)?;
        }
        design.signature = design.sign();
        Ok(design)
    }

    /// The same in a partitioned database, where its rows are of partitions unless it says otherwise.
    #[must_use]
    pub fn of_partitions(mut self) -> Self {
        self.is_partitioned = self.said_of_partitions() != Some(false);
        self.signature = self.sign();
        self
    }

    /// Whether it says that its rows are of partitions.
    pub(crate) fn wants_partitions(&self) -> bool {
        self.said_of_partitions() == Some(true)
    }

    fn said_of_partitions(&self) -> Option<bool> {
        let options = Json::new(&self.body).member("options")?;
        options.member("partitioned").and_then(Json::boolean)
    }

    fn read_views(&mut self, views: Option<Json<'_>>) -> Result<()> {
        let mut sources = BTreeMap::new();
        for (name, view) in views.iter().flat_map(|views| views.members()) {
            let name = unquote(name).into_owned();
            if name == "lib" {
                continue;
            }
            if view.kind() != Kind::Object {
                return Err(invalid(&format!("The view `{name}` must be an object")));
            }
            let Some(map) = function(view, "map")? else {
                continue;
            };
            let reducer = function(view, "reduce")?.filter(|it| !it.is_empty());
            let reducer = reducer.map(|it| Reducer::parse(&it)).transpose()?;
            sources.insert(name, (map, reducer));
        }
        self.maps = sources.values().map(|(map, _)| map.clone()).collect();
        self.maps.sort();
        self.maps.dedup();
        let place = |map: &String| self.maps.binary_search(map).unwrap_or_default();
        let view = |(name, (map, reducer)): (String, (String, Option<Reducer>))| {
            let place = place(&map);
            (name, View { place, reducer })
        };
        self.views = sources.into_iter().map(view).collect();
        Ok(())
    }

    fn read_filters(&mut self, filters: Option<Json<'_>>) -> Result<()> {
        for (name, source) in filters.iter().flat_map(|filters| filters.members()) {
            let name = unquote(name).into_owned();
            let source = source.string();
            let source =
                source.ok_or_else(|| invalid(&format!("The filter `{name}` must be a string")))?;
            self.filters.insert(name, source.into_owned());
        }
        Ok(())
    }

    fn sign(&self) -> Signature {
        let mut digest = Md5::new();
        let mut add = |text: &str| {
            let length = u64::try_from(text.len()).unwrap_or(u64::MAX);
            digest.update(length.to_le_bytes());
            digest.update(text);
        };
        add(KEY_VERSION);
        add(&self.language);
        add(&self.lib);
        add(self.order.name());
        add(if self.has_local_sequence {
            "local_seq"
        } else {
            ""
        });
        add(if self.includes_design {
            "include_design"
        } else {
            ""
        });
        if self.is_partitioned {
            add("partitioned");
        }
        self.maps.iter().for_each(|map| add(map));
        Signature(digest.finalize().into())
    }

    /// Its identifier, with `_design/`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The language of its functions.
    pub fn language(&self) -> &str {
        &self.language
    }

    /// The signature of its group of views.
    pub fn signature(&self) -> Signature {
        self.signature
    }

    /// Whether it has views to be indexed.
    pub fn has_views(&self) -> bool {
        !self.maps.is_empty()
    }

    /// The names of its views.
    pub fn view_names(&self) -> impl Iterator<Item = &str> {
        self.views.keys().map(String::as_str)
    }

    /// The view `name`.
    ///
    /// # Errors
    /// [`Error::Query`] `not_found`, or `unknown_query_language` if its functions are not in JavaScript.
    pub fn view(&self, name: &str) -> Result<&View> {
        if self.language != JAVASCRIPT {
            return Err(Error::query(
                "unknown_query_language",
                self.language.as_str(),
            ));
        }
        let view = self.views.get(name);
        view.ok_or_else(|| Error::query("not_found", "missing_named_view"))
    }

    /// Whether it has a say about updates.
    pub fn validates(&self) -> bool {
        self.validation.is_some() && self.language == JAVASCRIPT
    }

    pub(crate) fn validation(&self) -> Option<&str> {
        self.validation.as_deref().filter(|_| self.validates())
    }

    pub(crate) fn filter(&self, name: &str) -> Result<&str> {
        let filter = self.filters.get(name);
        let missing = || Error::query("not_found", format!("missing json key: {name}"));
        filter.map(String::as_str).ok_or_else(missing)
    }

    pub(crate) fn map_of(&self, view: &View) -> &str {
        &self.maps[view.place]
    }

    /// How many map functions its group has.
    pub(crate) fn map_count(&self) -> usize {
        self.maps.len()
    }

    pub(crate) fn body(&self) -> &str {
        &self.body
    }

    /// A sandbox for its map functions, and the functions.
    pub(crate) fn mappers(&self, limits: Limits) -> Result<(Sandbox, Vec<Defined>), ScriptError> {
        let root = if self.lib.is_empty() { "{}" } else { &self.lib };
        let mut sandbox = Sandbox::new(limits, root)?;
        let maps = self.maps.iter().map(|map| sandbox.define(map));
        let maps = maps.collect::<Result<_, _>>()?;
        Ok((sandbox, maps))
    }

    /// Compiles all functions of its views, as a server does before it stores a design document.
    ///
    /// # Errors
    /// [`Error::Query`] `compilation_error`, with the function and the view; [`Error::Script`].
    pub fn check(&self, limits: Limits) -> Result<()> {
        let mut sandbox = Sandbox::new(limits, "{}")?;
        let mut compile = |kind: &str, name: &str, source: &str| match sandbox.define(source) {
            Err(ScriptError::Compilation(reason)) => {
                let reason = format!(
                    "Compilation of the {kind} function in the '{name}' view failed: {reason}"
                );
                Err(Error::query("compilation_error", reason))
            }
            compiled => compiled.map(drop).map_err(Error::from),
        };
        for (name, view) in &self.views {
            compile("map", name, self.map_of(view))?;
            if let Some(Reducer::Script(source)) = &view.reducer {
                compile("reduce", name, source)?;
            }
        }
        Ok(())
    }
}

/// The object `name` of `json`, if it has one.
fn object<'a>(json: Json<'a>, name: &str) -> Result<Option<Json<'a>>> {
    match json.member(name) {
        Some(member) if member.kind() != Kind::Object => Err(invalid(&format!(
            "`{name}` must be an object, not {}",
            quote(member.text())
        ))),
        member => Ok(member),
    }
}

/// The source of the function `name` of `json`, if it has one.
fn function(json: Json<'_>, name: &str) -> Result<Option<String>> {
    let Some(member) = json.member(name) else {
        return Ok(None);
    };
    let source = member.string().map(std::borrow::Cow::into_owned);
    let wrong = || invalid(&format!("`{name}` must be a string with a function"));
    source.ok_or_else(wrong).map(Some)
}

fn invalid(reason: &str) -> Error {
    Error::query("invalid_design_doc", reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(body: &str) -> Signature {
        let design = DesignDocument::parse("_design/d", body).expect(body);
        design.signature()
    }

    #[test]
    fn the_signature_changes_with_what_decides_the_rows_only() {
        let plain = signature(r#"{"views":{"a":{"map":"1"},"b":{"map":"2"}}}"#);
        let same = [
            r#"{"views":{"b":{"map":"2"},"a":{"map":"1","reduce":"_sum"}}}"#,
            r#"{"views":{"x":{"map":"1"},"y":{"map":"2"},"z":{"map":"1"}},"filters":{"f":"3"}}"#,
            r#"{"language":"javascript","views":{"a":{"map":"1"},"b":{"map":"2"}},"options":{"partitioned":true}}"#,
        ];
        for body in same {
            assert_eq!(signature(body), plain, "{body}");
        }
        let other = [
            r#"{"views":{"a":{"map":"1"}}}"#,
            r#"{"views":{"a":{"map":"12"}}}"#,
            r#"{"views":{"a":{"map":"1"},"b":{"map":"2"},"lib":{}}}"#,
            r#"{"views":{"a":{"map":"1"},"b":{"map":"2"}},"options":{"local_seq":true}}"#,
            r#"{"views":{"a":{"map":"1"},"b":{"map":"2"}},"options":{"include_design":true}}"#,
            r#"{"views":{"a":{"map":"1"},"b":{"map":"2"}},"options":{"collation":"raw"}}"#,
        ];
        for body in other {
            assert_ne!(signature(body), plain, "{body}");
        }
    }

    #[test]
    fn wrong_design_documents_are_refused() {
        let cases = [
            r#"{"views":1}"#,
            r#"{"views":{"a":"x"}}"#,
            r#"{"views":{"a":{"map":1}}}"#,
            r#"{"views":{"a":{"map":"1","reduce":1}}}"#,
            r#"{"views":{"a":{"map":"1","reduce":"_product"}}}"#,
            r#"{"filters":{"a":1}}"#,
            r#"{"options":[]}"#,
            r#"{"validate_doc_update":{}}"#,
        ];
        for body in cases {
            let error = DesignDocument::parse("_design/d", body).expect_err(body);
            assert_eq!(error.word(), "invalid_design_doc", "{body}");
        }
    }

    #[test]
    fn functions_are_compiled_before_they_are_stored() -> Result<()> {
        let check = |body: &str| DesignDocument::parse("_design/d", body)?.check(Limits::default());
        check(r#"{"views":{"a":{"map":"function(doc) {}","reduce":"(k, v) => v.length"}}}"#)?;
        check(r#"{"language":"query","views":{"a":{"map":{"fields":{"a":"asc"}}}}}"#)?;
        for body in [
            r#"{"views":{"a":{"map":"function("}}}"#,
            r#"{"views":{"a":{"map":"x => x","reduce":"7"}}}"#,
        ] {
            let error = check(body).expect_err(body);
            assert_eq!(error.word(), "compilation_error");
            assert!(
                error
                    .to_string()
                    .contains("function in the 'a' view failed"),
                "{error}"
            );
        }
        Ok(())
    }
}
