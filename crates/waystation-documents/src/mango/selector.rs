//! From a selector's JSON to what is matched.
//!
//! Normalisation follows CouchDB, step by step in one descent: several members are an implicit `$and`, a bare value an
//! implicit `$eq`; names of nested objects become one path; `$not` and `$nor` go down to the conditions by De Morgan's
//! rules. So a negated comparison is a comparison, which a missing field does not satisfy. Selectors on elements
//! (`$elemMatch` and its like) keep their negations, as CouchDB's do: there a missing field satisfies `$not`.

use super::condition::{Condition, bad_argument};
use super::path::FieldPath;
use crate::error::{Error, Result};
use crate::json::{Json, Kind};

/// Containers in a selector are nested at most this deep.
const DEPTH_MAX: usize = 128;

/// A part of a selector.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// All of them hold; true if there are none.
    And(Vec<Node>),
    /// One of them holds; true, too, if there are none.
    Or(Vec<Node>),
    Not(Box<Node>),
    Field(FieldPath, Condition),
}

/// Which documents a query is about.
///
/// ```
/// use waystation_documents::{json::Json, mango::Selector};
/// let selector = Selector::parse(Json::new(r#"{"car":{"speed":{"$gt":50}}}"#))?;
/// assert!(selector.matches(&Json::new(r#"{"_id":"a","car":{"speed":52}}"#)));
/// assert!(!selector.matches(&Json::new(r#"{"_id":"b","car":{}}"#)));
/// # Ok::<(), waystation_documents::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Selector {
    pub(super) root: Node,
}

impl Selector {
    /// Parses the canonical JSON of a selector.
    ///
    /// # Errors
    /// [`Error::Query`] in CouchDB's words: `invalid_selector_json`, `bad_arg`, `invalid_operator`, `not_supported`,
    /// `invalid_field_name`, `invalid_selector`.
    pub fn parse(json: Json<'_>) -> Result<Self> {
        if json.kind() != Kind::Object {
            let shown = super::term::term(json);
            let reason = format!("Selector must be a JSON object, not: {shown}");
            return Err(Error::query("invalid_selector_json", reason));
        }
        if json.members().next().is_none() {
            let root = Node::And(Vec::new());
            return Ok(Self { root });
        }
        let parser = Parser {
            pushes_negations: true,
        };
        let root = parser.node(json, &FieldPath::default(), false, 0)?;
        if matches!(&root, Node::Field(path, _) if path.steps().is_empty()) {
            let reason = "One or more conditions is missing a field name.";
            return Err(Error::query("invalid_selector", reason));
        }
        Ok(Self { root })
    }
}

struct Parser {
    /// Negations go down to the conditions.
    pushes_negations: bool,
}

impl Parser {
    /// Parses what `json` asks of the field at `path`; `negated`: the opposite of it.
    fn node(&self, json: Json<'_>, path: &FieldPath, negated: bool, depth: usize) -> Result<Node> {
        if depth > DEPTH_MAX {
            let reason = format!("The selector is nested more than {DEPTH_MAX} deep.");
            return Err(Error::query("invalid_selector", reason));
        }
        if json.members().next().is_none() {
            return self.operator("$eq", json, path, negated, depth);
        }
        let parse = |(name, argument)| {
            let name = crate::json::unquote(name);
            if name.starts_with('$') {
                return self.operator(&name, argument, path, negated, depth);
            }
            let path = path.then(&FieldPath::parse(&name)?);
            self.node(argument, &path, negated, depth + 1)
        };
        let mut parts = json.members().map(parse).collect::<Result<Vec<_>>>()?;
        if parts.len() == 1 {
            return Ok(parts.remove(0));
        }
        Ok(if negated {
            Node::Or(parts)
        } else {
            Node::And(parts)
        })
    }

    fn operator(
        &self,
        name: &str,
        argument: Json<'_>,
        path: &FieldPath,
        negated: bool,
        depth: usize,
    ) -> Result<Node> {
        let parts = |negated: bool| -> Result<Vec<Node>> {
            if argument.kind() != Kind::Array {
                return Err(bad_argument(name, argument));
            }
            let part = |json| self.node(json, path, negated, depth + 1);
            argument.elements().map(part).collect()
        };
        match name {
            // An empty list holds, negated or not: it has nothing that could be negated.
            "$and" if negated => Ok(Node::Or(parts(true)?)),
            "$and" => Ok(Node::And(parts(false)?)),
            "$or" if negated => Ok(Node::And(parts(true)?)),
            "$or" => Ok(Node::Or(parts(false)?)),
            "$nor" if !self.pushes_negations => Ok(Node::Not(Box::new(Node::Or(parts(false)?)))),
            "$nor" if negated => Ok(Node::Or(parts(false)?)),
            "$nor" => Ok(Node::And(parts(true)?)),
            "$not" => {
                if argument.kind() != Kind::Object {
                    return Err(bad_argument(name, argument));
                }
                if self.pushes_negations {
                    return self.node(argument, path, !negated, depth + 1);
                }
                let inner = self.node(argument, path, false, depth + 1)?;
                Ok(Node::Not(Box::new(inner)))
            }
            _ => {
                let nested = Self {
                    pushes_negations: false,
                };
                let parse =
                    |json: Json<'_>| nested.node(json, &FieldPath::default(), false, depth + 1);
                let condition = Condition::parse(name, argument, parse)?;
                let condition = if negated {
                    condition.negated()
                } else {
                    condition
                };
                Ok(Node::Field(path.clone(), condition))
            }
        }
    }
}
