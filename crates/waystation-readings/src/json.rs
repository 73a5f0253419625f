//! Readings and windows as lines of JSON and of CSV.
//!
//! ```text
//! {"device":"car17","sensor":"speed","time":1683000000000000,"value":50}
//! ```
//!
//! Times are microseconds since 1970; on the way in RFC 3339 does as well, and a reading without a time has that of its
//! arrival.

use crate::rows::Row;
use crate::{Reading, Value, Window, time};
use serde_json::{Value as Json, json};
use std::fmt::Write;

impl Reading {
    /// A reading of a JSON object. `device`, `sensor`: of objects that do not name theirs.
    ///
    /// # Errors
    /// A sentence that says what is missing or wrong.
    pub fn of_json(
        json: &Json,
        device: Option<&str>,
        sensor: Option<&str>,
        arrival: i64,
    ) -> Result<Self, String> {
        let name = |member: &str, given: Option<&str>| {
            let own = json.get(member).map(|it| it.as_str());
            let found = own.unwrap_or(given);
            let missing = || format!("a reading is an object with a text {member:?}");
            found.map(ToOwned::to_owned).ok_or_else(missing)
        };
        let value = json.get("value").and_then(Value::of_json);
        Ok(Self {
            device: name("device", device)?,
            sensor: name("sensor", sensor)?,
            time: json.get("time").map_or(Ok(arrival), time_of)?,
            value: value.ok_or("a reading has a \"value\" other than null")?,
        })
    }

    /// The reading as a JSON object.
    pub fn to_json(&self) -> Json {
        json!({
            "device": self.device,
            "sensor": self.sensor,
            "time": self.time,
            "value": self.value.to_json(),
        })
    }
}

impl Row for Reading {
    const CSV_HEAD: &'static str = "device,sensor,time,value\r\n";

    fn push_json(&self, text: &mut String) {
        push_line(&self.to_json(), text);
    }

    fn push_csv(&self, text: &mut String) {
        let value = match self.value.to_json() {
            Json::String(text) => text,
            other => other.to_string(),
        };
        let (device, sensor) = (quoted(&self.device), quoted(&self.sensor));
        // Writing into a string cannot fail.
        let _ = write!(
            text,
            "{device},{sensor},{},{}\r\n",
            self.time,
            quoted(&value)
        );
    }
}

impl Window {
    /// The window as a JSON object.
    pub fn to_json(&self) -> Json {
        json!({
            "sensor": self.sensor,
            "start": self.start,
            "count": self.count,
            "min": self.min,
            "max": self.max,
            "avg": self.average(),
            "sum": self.sum,
        })
    }
}

impl Row for Window {
    const CSV_HEAD: &'static str = "sensor,start,count,min,max,avg,sum\r\n";

    fn push_json(&self, text: &mut String) {
        push_line(&self.to_json(), text);
    }

    fn push_csv(&self, text: &mut String) {
        let (sensor, average) = (quoted(&self.sensor), self.average());
        let Self {
            start,
            count,
            min,
            max,
            sum,
            ..
        } = self;
        // Writing into a string cannot fail.
        let _ = write!(
            text,
            "{sensor},{start},{count},{min},{max},{average},{sum}\r\n"
        );
    }
}

fn push_line(json: &Json, text: &mut String) {
    // Writing into a string cannot fail.
    let _ = writeln!(text, "{json}");
}

/// The time of a JSON value: microseconds, or RFC 3339.
fn time_of(json: &Json) -> Result<i64, String> {
    let parsed = match json {
        Json::String(text) => time::parse(text),
        other => other.as_i64(),
    };
    parsed.ok_or_else(|| {
        format!("the time {json} is neither whole microseconds since 1970 nor RFC 3339")
    })
}

/// A field of CSV, in quotes if it needs them. A field that a spreadsheet would take for a formula gets no quotes that
/// hide it: readings are data, and are written as they are.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_come_and_go_as_json_and_csv() {
        let json = json!({"device": "a,b", "sensor": "s", "time": "1970-01-01T00:00:01Z", "value": "say \"x\""});
        let reading = Reading::of_json(&json, None, None, 7);
        let expected = Reading {
            device: "a,b".into(),
            sensor: "s".into(),
            time: 1_000_000,
            value: Value::Text("say \"x\"".into()),
        };
        assert_eq!(reading, Ok(expected.clone()));
        let mut csv = String::new();
        expected.push_csv(&mut csv);
        assert_eq!(csv, "\"a,b\",s,1000000,\"say \"\"x\"\"\"\r\n");
        let again = Reading::of_json(&expected.to_json(), None, None, 7);
        assert_eq!(again, Ok(expected));
    }

    #[test]
    fn what_is_missing_is_said() {
        let of = |json: Json| Reading::of_json(&json, Some("d"), None, 7);
        let (no_sensor, no_value) = (json!({"value": 1}), json!({"sensor": "s", "value": null}));
        assert!(of(no_sensor).is_err_and(|it| it.contains("sensor")));
        assert!(of(no_value).is_err_and(|it| it.contains("value")));
        let wrong_time = json!({"sensor": "s", "value": 1, "time": 1.5});
        assert!(of(wrong_time).is_err_and(|it| it.contains("1.5")));
        let not_text = json!({"device": 5, "sensor": "s", "value": 1});
        assert!(of(not_text).is_err_and(|it| it.contains("device")));
        assert!(of(json!(5)).is_err());
        let now = of(json!({"sensor": "s", "value": 1}));
        assert!(now.is_ok_and(|it| it.time == 7 && it.device == "d"));
    }
}
