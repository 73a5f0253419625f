//! Projections: the fields of a document that a query wants.

use super::Fields;
use super::path::FieldPath;
use crate::error::{Error, Result};
use crate::json::{Json, Kind, quote};

/// Which fields of its documents a query answers with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Projection {
    /// None: all of them.
    paths: Vec<FieldPath>,
}

/// A document that is put together again from some of its fields.
enum Tree {
    Leaf(String),
    Object(Vec<(String, Tree)>),
}

impl Projection {
    /// Reads the canonical JSON of `fields`: an array of names.
    ///
    /// # Errors
    /// The protocol's `invalid_fields`, `invalid_field`, `invalid_field_name`.
    pub fn parse(json: Json<'_>) -> Result<Self> {
        let shown = super::term::term;
        if json.kind() != Kind::Array {
            let reason = format!("Fields must be an array of strings, not: {}", shown(json));
            return Err(Error::query("invalid_fields", reason));
        }
        let path = |name: Json<'_>| {
            let text = name.string().ok_or_else(|| {
                let reason = format!("Invalid JSON for field spec: {}", shown(name));
                Error::query("invalid_field", reason)
            })?;
            FieldPath::parse(&text)
        };
        let paths = json.elements().map(path).collect::<Result<_>>()?;
        Ok(Self { paths })
    }

    /// The fields, if not all are wanted.
    pub fn paths(&self) -> Option<&[FieldPath]> {
        (!self.paths.is_empty()).then_some(self.paths.as_slice())
    }

    /// What is wanted of `document`, as canonical JSON.
    ///
    /// Steps into an array become members named by their places, as CouchDB has them.
    pub fn extract(&self, document: &(impl Fields + ?Sized)) -> String {
        let Some(paths) = self.paths() else {
            return document.whole().text().to_owned();
        };
        let mut tree = Tree::Object(Vec::new());
        for path in paths {
            if let Some(value) = path.value(document) {
                tree.set(path.steps(), value.text());
            }
        }
        let mut out = String::new();
        tree.put(&mut out);
        out
    }
}

impl Tree {
    fn set(&mut self, steps: &[String], text: &str) {
        let Some((name, rest)) = steps.split_first() else {
            *self = Self::Leaf(text.to_owned());
            return;
        };
        if matches!(self, Self::Leaf(_)) {
            // A field within one that is wanted whole.
            return;
        }
        if let Self::Object(members) = self {
            let at = members.iter().position(|(other, _)| other == name);
            let at = at.unwrap_or_else(|| {
                members.push((name.clone(), Self::Object(Vec::new())));
                members.len() - 1
            });
            members[at].1.set(rest, text);
        }
    }

    fn put(&self, out: &mut String) {
        match self {
            Self::Leaf(text) => out.push_str(text),
            Self::Object(members) => {
                out.push('{');
                for (at, (name, tree)) in members.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    out.push_str(&quote(name));
                    out.push(':');
                    tree.put(out);
                }
                out.push('}');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_put_together_again() {
        let document =
            Json::new(r#"{"_id":"a","o":{"x":1,"y":{"z":2}},"arr":[0,1,{"x":3}],"s":"t"}"#);
        let cases = [
            (r#"["_id","s"]"#, r#"{"_id":"a","s":"t"}"#),
            (r#"["o.x","o.y.z"]"#, r#"{"o":{"x":1,"y":{"z":2}}}"#),
            (r#"["arr.2.x"]"#, r#"{"arr":{"2":{"x":3}}}"#),
            (r#"["missing","s.x"]"#, "{}"),
            (r#"["o","o.x"]"#, r#"{"o":{"x":1,"y":{"z":2}}}"#),
            ("[]", document.text()),
        ];
        for (fields, expected) in cases {
            let projection = Projection::parse(Json::new(fields)).expect(fields);
            assert_eq!(projection.extract(&document), expected, "{fields}");
        }
        for (fields, word) in [
            ("1", "invalid_fields"),
            ("[1]", "invalid_field"),
            (r#"[""]"#, "invalid_field_name"),
        ] {
            assert_eq!(
                Projection::parse(Json::new(fields))
                    .expect_err(fields)
                    .word(),
                word
            );
        }
    }
}
