//! What the daemon logged last, for the console.

use serde_json::{Value as Json, json};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use waystation_readings::time;

/// Events that are kept.
const KEPT: usize = 200;
/// The longest text of an event (bytes).
const TEXT_BYTES_MAX: usize = 1000;

/// A line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Microseconds since 1970.
    pub time: i64,
    /// `warn`, `error` and so on.
    pub level: &'static str,
    /// What was said.
    pub text: String,
}

/// The last lines of the log. The logger of the process adds them.
#[derive(Debug, Default)]
pub struct Events(Mutex<VecDeque<Event>>);

impl Events {
    /// Adds a line.
    pub fn add(&self, level: &'static str, text: &str) {
        let end = (0..=text.len().min(TEXT_BYTES_MAX)).rev();
        let end = end.into_iter().find(|at| text.is_char_boundary(*at));
        let event = Event {
            time: time::now(),
            level,
            text: text[..end.unwrap_or_default()].to_owned(),
        };
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= KEPT {
            kept.pop_front();
        }
        kept.push_back(event);
    }

    /// The last lines, the newest first.
    pub fn last(&self, count: usize) -> Vec<Event> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rev().take(count).cloned().collect()
    }
}

impl Event {
    pub(super) fn to_json(&self) -> Json {
        json!({"time": self.time, "level": self.level, "text": self.text})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let events = Events::default();
        for number in 0..KEPT + 5 {
            events.add("warn", &format!("{number}"));
        }
        events.add("error", &"\u{e9}".repeat(TEXT_BYTES_MAX));
        let last = events.last(2);
        assert_eq!(
            (last[0].level, last[0].text.len()),
            ("error", TEXT_BYTES_MAX)
        );
        assert_eq!(last[1].text, format!("{}", KEPT + 4));
        assert_eq!(events.last(usize::MAX).len(), KEPT);
    }
}
