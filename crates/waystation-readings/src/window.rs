//! Windows: what a sensor measured in stretches of equal length, computed while a scan goes by.
//!
//! Windows begin at multiples of their width since 1970. A scan keeps one window at a time, so memory does not depend on the
//! number of readings. A window that a page cuts goes on in the next page.

use crate::scan::{Go, Page, SCANNED_MAX, Selection};
use crate::store::{Error, Readings};
use crate::value::Value;

/// What a sensor measured in a stretch of time. Values that are no numbers are left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// The sensor.
    pub sensor: String,
    /// Where the window begins.
    pub start: i64,
    /// Numbers in it, at least one.
    pub count: u64,
    /// The least one.
    pub min: f64,
    /// The largest one.
    pub max: f64,
    /// All of them together.
    pub sum: f64,
}

impl Window {
    /// The mean.
    pub fn average(&self) -> f64 {
        self.sum / self.count as f64
    }
}

/// A scan for windows.
#[derive(Debug, Clone)]
pub struct Windows {
    selection: Selection,
    width: i64,
    open: Option<Window>,
    after: Option<Vec<u8>>,
    is_over: bool,
}

impl Windows {
    /// Windows of `width` microseconds, at least one, over the readings of `selection`.
    pub fn new(selection: Selection, width: i64) -> Self {
        Self {
            selection,
            width: width.max(1),
            open: None,
            after: None,
            is_over: false,
        }
    }

    /// The next windows that are complete; `None` at the end. A page may be empty.
    ///
    /// # Errors
    /// As [`Readings::page`].
    pub fn next(&mut self, readings: &Readings) -> Result<Option<Vec<Window>>, Error> {
        if self.is_over {
            return Ok(None);
        }
        let page = self.step(readings)?;
        self.after = page.next;
        let mut rows = page.rows;
        if self.after.is_none() {
            self.is_over = true;
            rows.extend(self.open.take());
        }
        Ok(Some(rows))
    }

    fn step(&mut self, readings: &Readings) -> Result<Page<Window>, Error> {
        let mut rows = Vec::new();
        let mut scanned = 0;
        let (width, open) = (self.width, &mut self.open);
        let after = self.after.as_deref();
        let next = readings.walk(&self.selection, after, |sensor, time, value| {
            if let Some(number) = Value::decode(value)?.number() {
                let start = time.div_euclid(width).saturating_mul(width);
                rows.extend(add(open, sensor, start, number));
            }
            scanned += 1;
            let is_full = scanned >= SCANNED_MAX;
            Ok(if is_full { Go::Stop } else { Go::On })
        })?;
        Ok(Page { rows, next })
    }
}

/// Adds a number to the open window, or closes that and opens another one.
fn add(open: &mut Option<Window>, sensor: &str, start: i64, number: f64) -> Option<Window> {
    if let Some(window) = open
        && window.start == start
        && window.sensor == sensor
    {
        window.count += 1;
        window.min = window.min.min(number);
        window.max = window.max.max(number);
        window.sum += number;
        return None;
    }
    open.replace(Window {
        sensor: sensor.to_owned(),
        start,
        count: 1,
        min: number,
        max: number,
        sum: number,
    })
}
