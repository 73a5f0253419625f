//! Topic patterns: `sensors/{device}/{sensor}`, with MQTT's wildcards for what has no meaning here.

use std::str::FromStr;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Level {
    Exactly(String),
    Device,
    Sensor,
    Any,
    /// Any number of levels, at the end.
    Rest,
}

/// A pattern of topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
    levels: Vec<Level>,
}

/// What a topic says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Named<'a> {
    pub(crate) device: Option<&'a str>,
    pub(crate) sensor: Option<&'a str>,
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let level = |level: &str| match level {
            "{device}" => Ok(Level::Device),
            "{sensor}" => Ok(Level::Sensor),
            "+" => Ok(Level::Any),
            "#" => Ok(Level::Rest),
            other if other.contains(['{', '}', '+', '#', '\0']) => Err(format!(
                "the level {other:?} of the topic {text:?} is neither text nor one of {{device}}, {{sensor}}, + and #"
            )),
            other => Ok(Level::Exactly(other.to_owned())),
        };
        let levels = text.split('/').map(level).collect::<Result<Vec<_>, _>>()?;
        let count = |wanted| levels.iter().filter(|level| **level == wanted).count();
        if text.is_empty() || text.len() > usize::from(u16::MAX) {
            return Err("a topic has 1 to 65535 bytes".to_owned());
        }
        if count(Level::Device) > 1 || count(Level::Sensor) > 1 {
            return Err(format!(
                "the topic {text:?} names a device or a sensor twice"
            ));
        }
        let before_last = levels.split_last().map_or(&[][..], |(_, before)| before);
        if before_last.contains(&Level::Rest) {
            return Err(format!("# is not the last level of the topic {text:?}"));
        }
        Ok(Self { levels })
    }
}

impl Pattern {
    /// The filter to subscribe to, in a group of subscribers or alone.
    pub(crate) fn filter(&self, group: Option<&str>) -> String {
        let level = |level: &Level| match level {
            Level::Exactly(text) => text.clone(),
            Level::Rest => "#".to_owned(),
            Level::Device | Level::Sensor | Level::Any => "+".to_owned(),
        };
        let filter: Vec<String> = self.levels.iter().map(level).collect();
        let filter = filter.join("/");
        group.map_or(filter.clone(), |group| format!("$share/{group}/{filter}"))
    }

    /// Whether topics name a device, and whether they name a sensor.
    pub(crate) fn names(&self) -> (bool, bool) {
        let has = |level| self.levels.contains(&level);
        (has(Level::Device), has(Level::Sensor))
    }

    /// What `topic` says; `None` if it is of another pattern.
    pub(crate) fn read<'a>(&self, topic: &'a str) -> Option<Named<'a>> {
        let mut named = Named::default();
        let mut parts = topic.split('/');
        for level in &self.levels {
            if *level == Level::Rest {
                return Some(named);
            }
            let part = parts.next()?;
            match level {
                Level::Exactly(text) if text != part => return None,
                Level::Device => named.device = Some(part),
                Level::Sensor => named.sensor = Some(part),
                _ => {}
            }
        }
        parts.next().is_none().then_some(named)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read() -> Result<(), String> {
        let pattern: Pattern = "sensors/{device}/+/{sensor}".parse()?;
        assert_eq!(pattern.filter(None), "sensors/+/+/+");
        assert_eq!(pattern.filter(Some("g")), "$share/g/sensors/+/+/+");
        let named = pattern.read("sensors/car17/x/speed");
        let expected = Named {
            device: Some("car17"),
            sensor: Some("speed"),
        };
        assert_eq!(named, Some(expected));
        for other in [
            "sensors/car17/x",
            "sensors/car17/x/speed/y",
            "other/car17/x/speed",
        ] {
            assert_eq!(pattern.read(other), None, "{other}");
        }
        let rest: Pattern = "{device}/#".parse()?;
        assert_eq!(rest.filter(None), "+/#");
        assert!(rest.read("car17").is_some() && rest.read("car17/a/b").is_some());
        for wrong in [
            "",
            "a/#/b",
            "{device}/{device}",
            "a/x{device}",
            "a/b+",
            "{unit}",
        ] {
            assert!(wrong.parse::<Pattern>().is_err(), "{wrong}");
        }
        Ok(())
    }
}
