//! A selector as CouchDB shows it once it is normalised: every condition with its operator, names as paths.

use super::condition::{Argument, Comparison, Condition};
use super::path::FieldPath;
use super::selector::{Node, Selector};
use crate::json::quote;

impl Selector {
    /// The normalised selector as canonical JSON, which parses to itself.
    ///
    /// ```
    /// use waystation_documents::{json::Json, mango::Selector};
    /// let selector = Selector::parse(Json::new(r#"{"car":{"speed":52}}"#))?;
    /// assert_eq!(selector.to_json(), r#"{"car.speed":{"$eq":52}}"#);
    /// # Ok::<(), waystation_documents::Error>(())
    /// ```
    pub fn to_json(&self) -> String {
        self.root.to_json()
    }
}

impl Node {
    fn to_json(&self) -> String {
        let list = |parts: &[Self]| crate::array(parts.iter().map(Self::to_json));
        match self {
            Self::And(parts) if parts.is_empty() => "{}".to_owned(),
            Self::And(parts) => member("$and", &list(parts)),
            Self::Or(parts) => member("$or", &list(parts)),
            Self::Not(part) => member("$not", &part.to_json()),
            Self::Field(path, condition) if path.steps().is_empty() => condition.to_json(),
            Self::Field(path, condition) => member(&name(path), &condition.to_json()),
        }
    }
}

impl Condition {
    fn to_json(&self) -> String {
        let list = |list: &[Argument]| {
            crate::array(
                list.iter()
                    .map(|argument| argument.json().text().to_owned()),
            )
        };
        match self {
            Self::Compare(comparison, argument) => {
                member(comparison.operator(), argument.json().text())
            }
            Self::In(arguments) => member("$in", &list(arguments)),
            Self::NotIn(arguments) => member("$nin", &list(arguments)),
            Self::Exists(expected) => member("$exists", &expected.to_string()),
            Self::Type(kind) => member("$type", &quote(kind)),
            Self::Size(size) => member("$size", &size.to_string()),
            Self::Modulo(divisor, remainder) => member("$mod", &format!("[{divisor},{remainder}]")),
            Self::Regex(regex) => member("$regex", &quote(regex.as_str())),
            Self::BeginsWith(prefix) => member("$beginsWith", &quote(prefix)),
            Self::All(arguments) => member("$all", &list(arguments)),
            Self::AnyElement(node) => member("$elemMatch", &node.to_json()),
            Self::EveryElement(node) => member("$allMatch", &node.to_json()),
            Self::AnyName(node) => member("$keyMapMatch", &node.to_json()),
            Self::Not(condition) => member("$not", &condition.to_json()),
        }
    }
}

impl Comparison {
    fn operator(self) -> &'static str {
        match self {
            Self::Less => "$lt",
            Self::LessOrEqual => "$lte",
            Self::Equal => "$eq",
            Self::Unequal => "$ne",
            Self::GreaterOrEqual => "$gte",
            Self::Greater => "$gt",
        }
    }
}

fn member(name: &str, value: &str) -> String {
    format!("{{{}:{value}}}", quote(name))
}

/// The name of a field, dots within its steps escaped.
fn name(path: &FieldPath) -> String {
    let steps = path.steps().iter().map(|step| step.replace('.', "\\."));
    steps.collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;

    #[test]
    fn selectors_are_shown_with_all_operators_and_parse_to_themselves() {
        let cases = [
            ("{}", "{}"),
            (
                r#"{"a":1,"b\\.c":null}"#,
                r#"{"$and":[{"a":{"$eq":1}},{"b\\.c":{"$eq":null}}]}"#,
            ),
            (r#"{"$not":{"a":{"$in":[1]}}}"#, r#"{"a":{"$nin":[1]}}"#),
            (
                r#"{"a":{"$elemMatch":{"$gt":1,"$lt":3}}}"#,
                r#"{"a":{"$elemMatch":{"$and":[{"$gt":1},{"$lt":3}]}}}"#,
            ),
            (
                r#"{"$or":[{"a":{"$exists":true}},{"a":{"$regex":"x"}}]}"#,
                r#"{"$or":[{"a":{"$exists":true}},{"a":{"$regex":"x"}}]}"#,
            ),
            (r#"{"a":{"$mod":[2,1]}}"#, r#"{"a":{"$mod":[2,1]}}"#),
        ];
        for (text, expected) in cases {
            let shown = Selector::parse(Json::new(text)).expect(text).to_json();
            assert_eq!(shown, expected, "{text}");
            let again = Selector::parse(Json::new(&shown)).expect(&shown);
            assert_eq!(again.to_json(), shown);
        }
    }
}
