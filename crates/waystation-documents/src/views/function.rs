//! Functions of a design document that are called for single documents: validation of updates, and filters.

use super::design::DesignDocument;
use super::script::{Defined, Limits, Sandbox};
use crate::error::{Error, Result};
use crate::json::{Json, Kind, canonical};
use std::collections::HashMap;

/// The validation and the filters of a design document, ready to be called. Documents, and what else the functions
/// get, are JSON.
///
/// ```
/// use waystation_documents::Error;
/// use waystation_documents::views::{DesignDocument, DesignFunctions, Limits};
/// let body = r#"{"validate_doc_update":"function(doc) { if (!doc.speed) throw({forbidden: 'no speed'}); }"}"#;
/// let design = DesignDocument::parse("_design/cars", body)?;
/// let mut functions = DesignFunctions::new(&design, Limits::default())?;
/// functions.validate(r#"{"_id":"car-7","speed":52}"#, None, "{}", "{}")?;
/// let refused = functions.validate(r#"{"_id":"car-8"}"#, None, "{}", "{}");
/// assert!(matches!(refused, Err(Error::Forbidden(reason)) if reason == "no speed"));
/// # Ok::<(), Error>(())
/// ```
pub struct DesignFunctions {
    design: DesignDocument,
    sandbox: Sandbox,
    /// What was compiled, by its source.
    defined: HashMap<String, Defined>,
}

impl DesignFunctions {
    /// A sandbox for the functions of `design`; `require` finds all of the design document.
    ///
    /// # Errors
    /// [`Error::Script`].
    pub fn new(design: &DesignDocument, limits: Limits) -> Result<Self> {
        Ok(Self {
            sandbox: Sandbox::new(limits, design.body())?,
            design: design.clone(),
            defined: HashMap::new(),
        })
    }

    /// Asks `validate_doc_update`, if there is one, about an update: the document as it is to be written and as it is
    /// (`None`: it is not), the context of the user, and the security object of the database.
    ///
    /// # Errors
    /// [`Error::Forbidden`], [`Error::Unauthorized`], [`Error::Query`] `unknown_error` for other things that it
    /// throws; [`Error::Script`].
    pub fn validate(
        &mut self,
        document: &str,
        before: Option<&str>,
        user: &str,
        security: &str,
    ) -> Result<()> {
        let Some(source) = self.design.validation().map(str::to_owned) else {
            return Ok(());
        };
        let function = self.define(&source)?;
        let before = before.unwrap_or("null");
        let thrown = self.call(
            "validate",
            &[function.number(), document, before, user, security],
        )?;
        if thrown.is_empty() {
            return Ok(());
        }
        Err(refusal(Json::new(&readable(&thrown)?)))
    }

    /// Which of `documents` pass the filter `name`, for the request `request`.
    ///
    /// # Errors
    /// [`Error::Query`] `not_found`; [`Error::Script`].
    pub fn filter(&mut self, name: &str, documents: &[&str], request: &str) -> Result<Vec<bool>> {
        let source = self.design.filter(name)?.to_owned();
        let function = self.define(&source)?;
        let passes = self.call("filter", &[function.number(), &list(documents), request])?;
        Ok(booleans(&passes))
    }

    /// For which of `documents` the view `name` emits a row: the filter `_view`.
    ///
    /// # Errors
    /// [`Error::Query`] `not_found`; [`Error::Script`].
    pub fn filter_by_view(&mut self, name: &str, documents: &[&str]) -> Result<Vec<bool>> {
        let source = self.design.map_of(self.design.view(name)?).to_owned();
        let function = self.define(&source)?;
        let passes = self.call("filter_by_map", &[function.number(), &list(documents)])?;
        Ok(booleans(&passes))
    }

    fn define(&mut self, source: &str) -> Result<Defined> {
        if let Some(defined) = self.defined.get(source) {
            return Ok(defined.clone());
        }
        let defined = self.sandbox.define(source)?;
        self.defined.insert(source.to_owned(), defined.clone());
        Ok(defined)
    }

    fn call(&mut self, function: &str, arguments: &[&str]) -> Result<String> {
        let answer = self.sandbox.call(function, arguments);
        self.sandbox.pass_on_log(self.design.id());
        Ok(answer?)
    }
}

fn readable(json: &str) -> Result<String> {
    canonical(json.as_bytes()).map_err(|error| Error::query("unknown_error", error.to_string()))
}

/// What it means that a validation threw `thrown`.
fn refusal(thrown: Json<'_>) -> Error {
    let text = |json: Json<'_>| {
        json.string()
            .map_or_else(|| json.text().to_owned(), Into::into)
    };
    if thrown.kind() == Kind::Object {
        if let Some(reason) = thrown.member("forbidden") {
            return Error::Forbidden(text(reason));
        }
        if let Some(reason) = thrown.member("unauthorized") {
            return Error::Unauthorized(text(reason));
        }
    }
    Error::query("unknown_error", text(thrown))
}

fn list(documents: &[&str]) -> String {
    format!("[{}]", documents.join(","))
}

fn booleans(json: &str) -> Vec<bool> {
    let elements = Json::new(json).elements();
    elements.map(|it| it.boolean().unwrap_or(false)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(body: &str) -> Result<DesignFunctions> {
        let body = canonical(body.as_bytes()).expect(body);
        let design = DesignDocument::parse("_design/d", &body)?;
        let limits = Limits {
            time: std::time::Duration::from_secs(1),
            ..Limits::default()
        };
        DesignFunctions::new(&design, limits)
    }

    #[test]
    fn validations_see_both_documents_the_user_and_the_security() -> Result<()> {
        let mut functions = functions(
            r#"{"rule": "exports.is_right = function(role) { return role === 'driver'; };",
                "validate_doc_update": "function(now, before, user, security) {
                    if (user.name === null) throw({unauthorized: 'log in'});
                    if (!require('rule').is_right(user.roles[0])) throw({forbidden: security.members.names[0]});
                    if (before && before.x > now.x) throw({forbidden: 'x only grows'});
                    if (now.x === 'text') throw 'a text';
                    now.none.there;
                }"}"#
                .replace('\n', " ")
                .as_str(),
        )?;
        let security = r#"{"members":{"names":["ann"]}}"#;
        let mut word = |now: &str, before: Option<&str>, user: &str| {
            let error = functions.validate(now, before, user, security);
            let error = error.expect_err("it throws in any case");
            (error.word(), error.to_string())
        };
        let user = r#"{"name":"bob","roles":["driver"]}"#;
        let cases = [
            (
                word("{}", None, r#"{"name":null}"#),
                "unauthorized",
                "log in",
            ),
            (
                word("{}", None, r#"{"name":"bob","roles":[]}"#),
                "forbidden",
                "ann",
            ),
            (
                word(r#"{"x":1}"#, Some(r#"{"x":2}"#), user),
                "forbidden",
                "x only grows",
            ),
            (
                word(r#"{"x":"text"}"#, None, user),
                "unknown_error",
                "a text",
            ),
        ];
        for (got, word, reason) in cases {
            assert_eq!((got.0, got.1.as_str()), (word, reason));
        }
        assert_eq!(word("{}", None, user).0, "TypeError");
        Ok(())
    }

    #[test]
    fn filters_let_documents_pass() -> Result<()> {
        let mut functions = functions(
            r#"{"filters": {"fast": "function(doc, req) { return doc.speed >= Number(req.query.speed); }",
                            "endless": "function() { for (;;) {} }"},
                "views": {"named": {"map": "doc => { if (doc.name) emit(doc.name); }"}}}"#,
        )?;
        let documents = [r#"{"speed":50}"#, r#"{"speed":10,"name":"a"}"#, "{}"];
        let request = r#"{"query":{"speed":"30"}}"#;
        assert_eq!(
            functions.filter("fast", &documents, request)?,
            [true, false, false]
        );
        assert_eq!(
            functions.filter_by_view("named", &documents)?,
            [false, true, false]
        );
        assert_eq!(
            functions
                .filter("slow", &documents, "{}")
                .expect_err("none")
                .word(),
            "not_found"
        );
        assert_eq!(
            functions
                .filter_by_view("slow", &documents)
                .expect_err("none")
                .word(),
            "not_found"
        );
        assert_eq!(
            functions
                .filter("endless", &documents, "{}")
                .expect_err("a loop")
                .word(),
            "timeout"
        );
        assert_eq!(functions.filter("fast", &documents[..1], request)?, [true]);
        Ok(())
    }
}
