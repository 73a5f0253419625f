//! Where in a JSON payload something stands: `$`, `$.temperature`, `$.samples[0].value`, `$.state.*`.
//!
//! A star at the end stands for each member of an object: its name is the sensor.

use serde_json::Value as Json;
use std::str::FromStr;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Member(String),
    Index(usize),
}

/// A place in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path {
    steps: Vec<Step>,
    /// Each member of the object there.
    pub(crate) each: bool,
}

impl FromStr for Path {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no path; write $ for the payload, $.name for a member, [0] for an element"
            )
        };
        let mut rest = text.strip_prefix('$').ok_or_else(wrong)?;
        let each = rest.ends_with(".*");
        rest = rest.strip_suffix(".*").unwrap_or(rest);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(behind) = rest.strip_prefix('[') {
                let (index, behind) = behind.split_once(']').ok_or_else(wrong)?;
                steps.push(Step::Index(index.parse().map_err(|_| wrong())?));
                rest = behind;
                continue;
            }
            let behind = rest.strip_prefix('.').ok_or_else(wrong)?;
            let end = behind.find(['.', '[']).unwrap_or(behind.len());
            let (name, behind) = behind.split_at(end);
            if name.is_empty() || name == "*" {
                return Err(wrong());
            }
            steps.push(Step::Member(name.to_owned()));
            rest = behind;
        }
        Ok(Self { steps, each })
    }
}

impl Path {
    /// What stands there.
    pub(crate) fn find<'a>(&self, json: &'a Json) -> Option<&'a Json> {
        self.steps.iter().try_fold(json, |at, step| match step {
            Step::Member(name) => at.get(name),
            Step::Index(index) => at.get(index),
        })
    }

    /// A text or a number there, as text.
    pub(crate) fn text(&self, json: &Json) -> Option<String> {
        match self.find(json)? {
            Json::String(text) => Some(text.clone()),
            Json::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_to_their_places() -> Result<(), String> {
        let json = json!({"a": {"b": [1, {"c": "x"}]}, "n": 5});
        let find = |text: &str| Ok::<_, String>(text.parse::<Path>()?.find(&json).cloned());
        assert_eq!(find("$")?, Some(json.clone()));
        assert_eq!(find("$.a.b[1].c")?, Some(json!("x")));
        assert_eq!(find("$.a.b[2]")?, None);
        assert_eq!(find("$.a.x.y")?, None);
        assert!("$.a.*".parse::<Path>()?.each);
        assert_eq!("$.n".parse::<Path>()?.text(&json).as_deref(), Some("5"));
        for wrong in ["", "a", "$a", "$.", "$..a", "$[x]", "$[1", "$.*.a", "$.a."] {
            assert!(wrong.parse::<Path>().is_err(), "{wrong}");
        }
        Ok(())
    }
}
