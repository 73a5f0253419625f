//! What a message means: readings, an arrival, a departure, nothing, or nothing that anyone could mean.

use crate::path::Path;
use crate::pattern::{Named, Pattern};
use crate::settings::{DeviceTopic, Error, Payload, ReadingTopic, Settings, TimeUnit};
use serde_json::Value as Json;
use waystation_readings::{DEVICE_BYTES_MAX, Reading, Value, time};

/// The readings of one message take at most so much in memory (bytes). Each member of `$.*` has a copy of the device's name.
const READINGS_BYTES_MAX: usize = 16 << 20;

/// What a message says.
#[derive(Debug, Clone, PartialEq)]
pub enum Meaning {
    /// A device measured this.
    Readings(Vec<Reading>),
    /// The device of this name has arrived.
    Arrive(String),
    /// The device of this name has departed.
    Depart(String),
    /// It is passed over.
    Nothing,
}

/// A message without a meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poison {
    /// A word for counting.
    pub kind: &'static str,
    /// A sentence for the dead letter.
    pub reason: String,
}

/// Words of poison, in the order of their counters.
pub(crate) const POISONS: [&str; 7] = [
    "topic",
    "payload",
    "value",
    "time",
    "name",
    "too_large",
    "refused",
];

impl Poison {
    pub(crate) fn new(kind: &'static str, reason: impl Into<String>) -> Self {
        Self {
            kind,
            reason: reason.into(),
        }
    }
}

/// A message, as far as its meaning goes.
#[derive(Debug, Clone, Copy)]
pub struct Content<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The payload.
    pub payload: &'a [u8],
    /// The broker kept it: it was not sent now.
    pub is_retained: bool,
    /// When it arrived (microseconds since 1970).
    pub arrival: i64,
}

struct ReadingRule {
    pattern: Pattern,
    payload: Payload,
    device: Option<Path>,
    sensor: Option<Path>,
    value: Path,
    time: Option<Path>,
    unit: TimeUnit,
}

struct DeviceRule {
    pattern: Pattern,
    payload: Option<String>,
}

/// A topic to subscribe to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subscription {
    pub(crate) filter: String,
    pub(crate) qos: u8,
}

/// All rules of an ingest.
///
/// # Example
/// ```
/// use waystation_mqtt::{Content, Mapping, Meaning, Settings};
/// let file = "broker = 'localhost'\nreadings = [{ topic = 'sensors/{device}/{sensor}', payload = 'raw' }]";
/// let mapping = Mapping::new(&toml::from_str(file).unwrap()).unwrap();
/// let (topic, payload) = ("sensors/car17/speed", b"50");
/// let meaning = mapping.read(Content { topic, payload, is_retained: false, arrival: 1_000_000 });
/// assert!(matches!(meaning, Ok(Meaning::Readings(readings)) if readings[0].device == "car17"));
/// ```
pub struct Mapping {
    readings: Vec<ReadingRule>,
    arrive: Vec<DeviceRule>,
    depart: Vec<DeviceRule>,
    pub(crate) subscriptions: Vec<Subscription>,
    payload_bytes_max: usize,
}

impl Mapping {
    /// The rules of `settings`.
    ///
    /// # Errors
    /// A topic, a place in JSON or the topic of dead letters is wrong.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let mut subscriptions = Vec::new();
        let wrong = |setting| move |reason| Error::Setting { setting, reason };
        let mut readings = Vec::new();
        for topic in &settings.readings {
            let rule = reading_rule(topic).map_err(wrong("readings"))?;
            subscriptions.push(Subscription {
                filter: rule.pattern.filter(topic.share.as_deref()),
                qos: topic.qos,
            });
            readings.push(rule);
        }
        let mut devices = |setting, topics: &[DeviceTopic]| {
            let rule = |topic| device_rule(topic, &mut subscriptions).map_err(wrong(setting));
            topics.iter().map(rule).collect::<Result<Vec<_>, _>>()
        };
        let (arrive, depart) = (
            devices("arrive", &settings.arrive)?,
            devices("depart", &settings.depart)?,
        );
        let mapping = Self {
            readings,
            arrive,
            depart,
            subscriptions,
            payload_bytes_max: settings.payload_bytes_max,
        };
        if mapping.subscriptions.is_empty() {
            let reason = "there is no topic; add [[mqtt.readings]] with topic = \"sensors/{device}/{sensor}\"";
            return Err(wrong("readings")(reason.to_owned()));
        }
        let letter = &settings.dead_letter;
        if letter.contains(['+', '#', '\0']) {
            let reason = format!("{letter:?} is a pattern; messages are sent to a topic");
            return Err(wrong("dead_letter")(reason));
        }
        if !letter.is_empty() && mapping.has(letter) {
            let reason =
                format!("{letter:?} is subscribed to as well, so dead letters would come back");
            return Err(wrong("dead_letter")(reason));
        }
        Ok(mapping)
    }

    fn has(&self, topic: &str) -> bool {
        let devices = self.arrive.iter().chain(&self.depart);
        let patterns = devices.map(|rule| &rule.pattern);
        let mut patterns = patterns.chain(self.readings.iter().map(|rule| &rule.pattern));
        patterns.any(|pattern| pattern.read(topic).is_some())
    }

    /// What `content` means.
    ///
    /// # Errors
    /// It has no meaning: its topic, payload, names, time or value are none.
    pub fn read(&self, content: Content<'_>) -> Result<Meaning, Poison> {
        if content.payload.len() > self.payload_bytes_max {
            let reason = format!(
                "the payload has {} bytes, and {} are allowed",
                content.payload.len(),
                self.payload_bytes_max
            );
            return Err(Poison::new("too_large", reason));
        }
        if let Some(device) = named_by(&self.depart, &content) {
            // What the broker kept was said before the device came back.
            return if content.is_retained {
                Ok(Meaning::Nothing)
            } else {
                device.map(Meaning::Depart)
            };
        }
        if let Some(device) = named_by(&self.arrive, &content) {
            return Ok(Meaning::Arrive(device?));
        }
        for rule in &self.readings {
            if let Some(named) = rule.pattern.read(content.topic) {
                return rule.read(named, &content);
            }
        }
        if self.has(content.topic) {
            return Ok(Meaning::Nothing);
        }
        Err(Poison::new("topic", "no pattern fits the topic"))
    }
}

/// The device of the first rule that the message fits.
fn named_by(rules: &[DeviceRule], content: &Content<'_>) -> Option<Result<String, Poison>> {
    let fits = |rule: &&DeviceRule| {
        let wanted = rule.payload.as_ref();
        wanted.is_none_or(|wanted| wanted.as_bytes() == content.payload)
    };
    let mut named = rules.iter().filter(fits);
    let named = named.find_map(|rule| rule.pattern.read(content.topic))?;
    let device = named.device.filter(|device| !device.is_empty());
    let missing = || Poison::new("name", "the topic names no device");
    Some(device.map(ToOwned::to_owned).ok_or_else(missing))
}

fn device_rule(
    topic: &DeviceTopic,
    subscriptions: &mut Vec<Subscription>,
) -> Result<DeviceRule, String> {
    let pattern: Pattern = topic.topic.parse()?;
    if !pattern.names().0 {
        return Err(format!("the topic {:?} has no {{device}}", topic.topic));
    }
    let subscription = Subscription {
        filter: pattern.filter(None),
        qos: 1,
    };
    if !subscriptions.contains(&subscription) {
        subscriptions.push(subscription);
    }
    Ok(DeviceRule {
        pattern,
        payload: topic.payload.clone(),
    })
}

fn reading_rule(topic: &ReadingTopic) -> Result<ReadingRule, String> {
    let pattern: Pattern = topic.topic.parse()?;
    let path = |text: &Option<String>| text.as_deref().map(str::parse::<Path>).transpose();
    let value = path(&topic.value)?.map_or_else(|| "$".parse(), Ok)?;
    let (device, sensor, time) = (
        path(&topic.device)?,
        path(&topic.sensor)?,
        path(&topic.time)?,
    );
    let (names_device, names_sensor) = pattern.names();
    let is_raw = topic.payload == Payload::Raw;
    if is_raw && (device.is_some() || sensor.is_some() || time.is_some() || topic.value.is_some()) {
        return Err(format!(
            "{:?}: device, sensor, value and time are places in JSON; the payload is raw",
            topic.topic
        ));
    }
    for (path, name) in [(&device, "device"), (&sensor, "sensor"), (&time, "time")] {
        if path.as_ref().is_some_and(|path| path.each) {
            return Err(format!(
                "{:?}: * is a place for value alone, not for {name}",
                topic.topic
            ));
        }
    }
    if names_device == device.is_some() {
        return Err(format!(
            "{:?}: the device is named by {{device}} in the topic or by the setting device, one of them",
            topic.topic
        ));
    }
    let names = [names_sensor, sensor.is_some(), value.each];
    if names.iter().filter(|it| **it).count() != 1 {
        return Err(format!(
            "{:?}: the sensor is named by {{sensor}} in the topic, by the setting sensor or by .* in value, one of them",
            topic.topic
        ));
    }
    if topic.qos > 1 {
        return Err(format!("{:?}: qos is 0 or 1", topic.topic));
    }
    let is_group = |group: &String| !group.is_empty() && !group.contains(['/', '+', '#']);
    if !topic.share.as_ref().is_none_or(is_group) {
        return Err(format!(
            "{:?}: share names a group, without /, + and #",
            topic.topic
        ));
    }
    Ok(ReadingRule {
        pattern,
        payload: topic.payload,
        device,
        sensor,
        value,
        time,
        unit: topic.time_unit,
    })
}

impl ReadingRule {
    fn read(&self, named: Named<'_>, content: &Content<'_>) -> Result<Meaning, Poison> {
        // A kept message says when it was sent in its payload alone.
        if content.is_retained && self.time.is_none() {
            return Ok(Meaning::Nothing);
        }
        let json = match self.payload {
            Payload::Raw => {
                return Ok(Meaning::Readings(vec![Reading {
                    device: named.device.unwrap_or_default().to_owned(),
                    sensor: named.sensor.unwrap_or_default().to_owned(),
                    time: content.arrival,
                    value: Value::of_raw(content.payload),
                }]));
            }
            Payload::Json => serde_json::from_slice::<Json>(content.payload),
        };
        let json = json
            .map_err(|error| Poison::new("payload", format!("the payload is no JSON: {error}")))?;
        let name = |path: &Option<Path>, given: Option<&str>, word| match path {
            Some(path) => path.text(&json).ok_or_else(|| {
                Poison::new("name", format!("the payload does not name the {word}"))
            }),
            None => Ok(given.unwrap_or_default().to_owned()),
        };
        let device = name(&self.device, named.device, "device")?;
        // Each reading has a copy of the name, and a payload may have a great many.
        if device.len() > DEVICE_BYTES_MAX {
            let reason = format!("the device name has more than {DEVICE_BYTES_MAX} bytes");
            return Err(Poison::new("name", reason));
        }
        let time = match &self.time {
            Some(path) => path.find(&json).and_then(|time| micros(time, self.unit)),
            None => Some(content.arrival),
        };
        let time = time.ok_or_else(|| {
            Poison::new(
                "time",
                "the payload has no time where the settings say, or none in their unit",
            )
        })?;
        let missing = || Poison::new("value", "the payload has no value where the settings say");
        let place = self.value.find(&json).ok_or_else(missing)?;
        let reading = |sensor: String, value: &Json| {
            Value::of_json(value).map(|value| Reading {
                device: device.clone(),
                sensor,
                time,
                value,
            })
        };
        if !self.value.each {
            let sensor = name(&self.sensor, named.sensor, "sensor")?;
            let reading = reading(sensor, place).ok_or_else(missing)?;
            return Ok(Meaning::Readings(vec![reading]));
        }
        let members = place.as_object().ok_or_else(missing)?;
        let sensors = members
            .iter()
            .filter(|(_, value)| !self.is_time(value, &json))
            .filter_map(|(sensor, value)| reading(sensor.clone(), value));
        let mut readings = Vec::new();
        let mut bytes = 0;
        for reading in sensors {
            bytes += held_bytes(&reading);
            if bytes > READINGS_BYTES_MAX {
                let reason = format!(
                    "the readings of the payload take more than {READINGS_BYTES_MAX} bytes"
                );
                return Err(Poison::new("too_large", reason));
            }
            readings.push(reading);
        }
        Ok(Meaning::Readings(readings))
    }

    /// Whether a member is the time itself, which is no sensor.
    fn is_time(&self, value: &Json, json: &Json) -> bool {
        let time = self.time.as_ref().and_then(|path| path.find(json));
        time.is_some_and(|time| std::ptr::eq(time, value))
    }
}

/// What a reading takes in memory (bytes).
pub(crate) fn held_bytes(reading: &Reading) -> usize {
    let value = match &reading.value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    size_of::<Reading>() + reading.device.len() + reading.sensor.len() + value
}

/// Microseconds since 1970 of a time in `unit`, or in RFC 3339.
fn micros(json: &Json, unit: TimeUnit) -> Option<i64> {
    let scaled = |number: f64| {
        let micros = match unit {
            TimeUnit::Seconds => number * 1e6,
            TimeUnit::Millis => number * 1e3,
            TimeUnit::Micros => number,
            TimeUnit::Nanos => number / 1e3,
        };
        (micros.abs() < i64::MAX as f64).then_some(micros as i64)
    };
    let whole = |number: i64| match unit {
        TimeUnit::Seconds => number.checked_mul(1_000_000),
        TimeUnit::Millis => number.checked_mul(1000),
        TimeUnit::Micros => Some(number),
        TimeUnit::Nanos => Some(number.div_euclid(1000)),
    };
    match json {
        Json::Number(number) => match number.as_i64() {
            Some(number) => whole(number),
            None => scaled(number.as_f64()?),
        },
        Json::String(text) => match (text.parse(), text.parse::<f64>()) {
            (Ok(number), _) => whole(number),
            (_, Ok(number)) => scaled(number),
            _ => time::parse(text),
        },
        _ => None,
    }
}

#[cfg(test)]
#[path = "mapping_tests.rs"]
mod tests;
