//! Scans: the readings of a device, page by page, and the newest of each sensor.
//!
//! A scan goes sensor by sensor. It seeks to the first time it wants, reads to the last one, and seeks to the next sensor,
//! so readings outside the range cost nothing. A page ends after a number of readings, or of keys that it passed over, and
//! names its last key; the next page begins behind it. No cursor is held between pages, so a slow client holds nothing.

use crate::Reading;
use crate::key::{Layout, push_time};
use crate::store::{Error, Readings};
use crate::value::Value;
use waystation::{DbIterator, IterOptions};

/// Readings that one step of a scan looks at, and as many keys that it passes over.
pub const SCANNED_MAX: usize = 20_000;
/// Sensors of a device whose newest readings are told.
pub const SENSORS_MAX: usize = 10_000;
/// A page of readings ends after about so many bytes.
const PAGE_BYTES: usize = 256 << 10;

/// Which readings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// Of this device; `None`: of all, for followers alone.
    pub device: Option<String>,
    /// Of this sensor; `None`: of all.
    pub sensor: Option<String>,
    /// From this time on.
    pub from: i64,
    /// Before this time; [`i64::MAX`]: without an end.
    pub to: i64,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            device: None,
            sensor: None,
            from: i64::MIN,
            to: i64::MAX,
        }
    }
}

impl Selection {
    /// All readings of `device`.
    pub fn of(device: &str) -> Self {
        Self {
            device: Some(device.to_owned()),
            ..Self::default()
        }
    }

    /// Whether it holds `reading`.
    pub fn chooses(&self, reading: &Reading) -> bool {
        let same = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|it| it == is);
        same(&self.device, &reading.device)
            && same(&self.sensor, &reading.sensor)
            && self.holds(reading.time)
    }

    fn holds(&self, time: i64) -> bool {
        time >= self.from && (time < self.to || self.to == i64::MAX)
    }

    fn device_name(&self) -> &str {
        self.device.as_deref().unwrap_or_default()
    }
}

/// A part of a scan. It may be empty and not be the last one.
#[derive(Debug, Clone, PartialEq)]
pub struct Page<T> {
    /// What was found.
    pub rows: Vec<T>,
    /// Where the next page begins; `None`: this is the last one.
    pub next: Option<Vec<u8>>,
}

/// Whether a walk goes on.
#[derive(PartialEq, Eq)]
pub(crate) enum Go {
    On,
    Stop,
}

impl Readings {
    /// The readings of `selection` behind the key `after`, in the order of sensors and times.
    ///
    /// # Errors
    /// [`Error::Wrong`] if no device or sensor can have the name; [`Error::Unreadable`], [`Error::Engine`].
    pub fn page(
        &self,
        selection: &Selection,
        after: Option<&[u8]>,
        rows_max: usize,
    ) -> Result<Page<Reading>, Error> {
        let mut rows = Vec::new();
        let mut bytes = 0;
        let rows_max = rows_max.clamp(1, SCANNED_MAX);
        let next = self.walk(selection, after, |sensor, time, value| {
            bytes += sensor.len() + value.len();
            rows.push(Reading {
                device: selection.device_name().to_owned(),
                sensor: sensor.to_owned(),
                time,
                value: Value::decode(value)?,
            });
            let is_full = rows.len() >= rows_max || bytes >= PAGE_BYTES;
            Ok(if is_full { Go::Stop } else { Go::On })
        })?;
        Ok(Page { rows, next })
    }

    /// The newest reading of each sensor of `selection`, of at most [`SENSORS_MAX`] sensors.
    ///
    /// # Errors
    /// As [`page`](Self::page).
    pub fn latest(&self, selection: &Selection) -> Result<Vec<Reading>, Error> {
        let layout = self.layout();
        let mut range = Range::new(layout, selection)?;
        let mut cursor = self.db().iter(IterOptions::prefix(range.prefix.clone()))?;
        let mut found = Vec::new();
        cursor.seek_to_first()?;
        while cursor.valid() && found.len() < SENSORS_MAX {
            let Some((_, sensor, _)) = layout.parts(cursor.key()) else {
                cursor.next()?;
                continue;
            };
            let sensor = sensor.to_owned();
            range.enter(&sensor);
            // The newest one before the end of the range; it may be older than its beginning, or another sensor's.
            cursor.seek_for_prev(&range.end)?;
            if cursor.valid() && cursor.key() == range.end && selection.to != i64::MAX {
                cursor.prev()?;
            }
            if cursor.valid()
                && let Some((_, of, time)) = layout.parts(cursor.key())
                && of == sensor
                && time >= selection.from
            {
                let value = Value::decode(cursor.value())?;
                let device = selection.device_name().to_owned();
                found.push(Reading {
                    device,
                    sensor,
                    time,
                    value,
                });
            }
            cursor.seek(&range.beyond)?;
        }
        Ok(found)
    }

    /// Shows every reading of `selection` behind the key `after` to `visit`, until it says stop or too many keys were passed
    /// over. The last key seen then; `None` at the end.
    pub(crate) fn walk(
        &self,
        selection: &Selection,
        after: Option<&[u8]>,
        mut visit: impl FnMut(&str, i64, &[u8]) -> Result<Go, Error>,
    ) -> Result<Option<Vec<u8>>, Error> {
        let layout = self.layout();
        let mut range = Range::new(layout, selection)?;
        let mut cursor = self.db().iter(IterOptions::prefix(range.prefix.clone()))?;
        start(&mut cursor, after)?;
        let mut passed = 0;
        while cursor.valid() {
            let parts = layout.parts(cursor.key());
            let go = match parts {
                Some((_, sensor, time)) if selection.holds(time) => {
                    visit(sensor, time, cursor.value())?
                }
                _ if passed == SCANNED_MAX => Go::Stop,
                _ => {
                    passed += 1;
                    Go::On
                }
            };
            if go == Go::Stop {
                return Ok(Some(cursor.key().to_vec()));
            }
            match parts {
                Some((_, sensor, time)) if time < selection.from => {
                    range.enter(sensor);
                    cursor.seek(&range.begin)?;
                }
                Some((_, sensor, time)) if !selection.holds(time) => {
                    range.enter(sensor);
                    cursor.seek(&range.beyond)?;
                }
                _ => cursor.next()?,
            }
        }
        Ok(None)
    }
}

/// Puts the cursor on the first key, or on the one behind `after`.
fn start(cursor: &mut DbIterator, after: Option<&[u8]>) -> Result<(), Error> {
    let Some(after) = after else {
        return Ok(cursor.seek_to_first()?);
    };
    cursor.seek(after)?;
    if cursor.valid() && cursor.key() == after {
        cursor.next()?;
    }
    Ok(())
}

/// The keys of a selection: its prefix, and the borders of the times within the sensor that a cursor is at.
struct Range<'a> {
    selection: &'a Selection,
    prefix: Vec<u8>,
    device_bytes: usize,
    begin: Vec<u8>,
    end: Vec<u8>,
    /// Behind every reading of the sensor.
    beyond: Vec<u8>,
}

impl<'a> Range<'a> {
    fn new(layout: Layout, selection: &'a Selection) -> Result<Self, Error> {
        let device = layout.device(selection.device_name())?;
        let prefix = match &selection.sensor {
            Some(sensor) => layout.sensor(selection.device_name(), sensor)?,
            None => device.clone(),
        };
        Ok(Self {
            selection,
            prefix,
            device_bytes: device.len(),
            begin: Vec::new(),
            end: Vec::new(),
            beyond: Vec::new(),
        })
    }

    /// Computes the borders within `sensor`.
    fn enter(&mut self, sensor: &str) {
        let device = &self.prefix[..self.device_bytes];
        let of_sensor = [device, sensor.as_bytes()].concat();
        let border = |time| {
            let mut key = of_sensor.clone();
            key.push(0);
            push_time(&mut key, time);
            key
        };
        self.begin = border(self.selection.from);
        self.end = border(self.selection.to);
        self.beyond = of_sensor;
        // Sensors have no zero byte: the next one begins with a larger byte at this place.
        self.beyond.push(1);
    }
}
