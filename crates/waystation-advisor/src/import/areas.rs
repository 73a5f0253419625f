//! Which device, and which range of it, is which area.
//!
//! Public traces have no areas and a disk with partitions has several, so the user says it, either on the command
//! line (`--area 7:1=journal`, `--area 8:0@10GiB-12GiB=swap`) or in a TOML file:
//!
//! ```toml
//! [[rule]]
//! device = "8:0"          # absent: every device
//! from = "10GiB"          # absent: 0
//! to = "12GiB"            # absent: the end
//! area = "swap"
//! role = "swap"           # absent: by the area's name
//!
//! [[ext4]]                # finds the internal journal of an ext4 file system
//! device = "8:0"
//! image = "/dev/sda1"     # where its blocks can be read
//! start = "1MiB"          # where it begins on the device; absent: 0
//! area = "fs"
//! journal = "journal"
//! ```
//! The first rule that matches wins; a device without a rule is an area of its own name.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::RowError;
use super::ext4;
use crate::error::{Error, Result};
use crate::event::{Area, Role};
use crate::text::read_text;
use crate::units::parse_bytes;

/// Areas are numbered by one byte.
const AREAS_MAX: usize = 255;

/// One range of one device (or of every device) and its area.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AreaRule {
    /// The device, or every device.
    pub device: Option<String>,
    /// First byte.
    pub from: u64,
    /// End (exclusive).
    pub to: u64,
    /// The area's name.
    pub area: String,
    /// What it is for.
    pub role: Role,
}

/// An ordered list of rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AreaRules {
    /// The first that matches wins.
    pub rules: Vec<AreaRule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    #[serde(default)]
    rule: Vec<RuleEntry>,
    #[serde(default)]
    ext4: Vec<Ext4Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleEntry {
    device: Option<String>,
    from: Option<String>,
    to: Option<String>,
    area: String,
    role: Option<Role>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ext4Entry {
    device: Option<String>,
    image: PathBuf,
    start: Option<String>,
    area: String,
    journal: String,
}

impl AreaRules {
    /// Reads a rule file.
    pub fn from_file(path: &Path) -> Result<Self> {
        let text = read_text(path).map_err(|source| Error::io("read", path, source))?;
        let file: RuleFile = toml::from_str(&text).map_err(|error| {
            Error::Usage(format!(
                "the rule file {} is wrong: {error}",
                path.display()
            ))
        })?;
        let mut rules = Vec::new();
        for entry in file.ext4 {
            let start = entry.start.as_deref().map_or(Ok(0), parse_bytes)?;
            let layout = ext4::layout(&entry.image)?;
            for range in layout.journal {
                rules.push(AreaRule {
                    device: entry.device.clone(),
                    from: start + range.start,
                    to: start + range.end,
                    area: entry.journal.clone(),
                    role: Role::Journal,
                });
            }
            rules.push(AreaRule {
                device: entry.device,
                from: start,
                to: start + layout.bytes,
                area: entry.area,
                role: Role::FileSystem,
            });
        }
        for entry in file.rule {
            rules.push(AreaRule {
                device: entry.device,
                from: entry.from.as_deref().map_or(Ok(0), parse_bytes)?,
                to: entry.to.as_deref().map_or(Ok(u64::MAX), parse_bytes)?,
                role: entry.role.unwrap_or_else(|| Role::of_name(&entry.area)),
                area: entry.area,
            });
        }
        Ok(Self { rules })
    }

    /// Adds a rule in the short notation `DEVICE[@FROM-TO]=AREA`.
    pub fn add(&mut self, text: &str) -> Result<()> {
        let wrong = || {
            Error::Usage(format!(
                "an area is given as DEVICE=AREA or DEVICE@FROM-TO=AREA (for instance 7:1=journal), not as \"{text}\""
            ))
        };
        let (place, area) = text.rsplit_once('=').ok_or_else(wrong)?;
        let (device, range) = place
            .split_once('@')
            .map_or((place, None), |(device, range)| (device, Some(range)));
        if device.is_empty() || area.is_empty() {
            return Err(wrong());
        }
        let (from, to) = match range {
            None => (0, u64::MAX),
            Some(range) => {
                let (from, to) = range.split_once('-').ok_or_else(wrong)?;
                (parse_bytes(from)?, parse_bytes(to)?)
            }
        };
        if from >= to {
            return Err(wrong());
        }
        self.rules.push(AreaRule {
            device: (device != "*").then(|| device.to_owned()),
            from,
            to,
            area: area.to_owned(),
            role: Role::of_name(area),
        });
        Ok(())
    }
}

/// Applies rules and numbers the areas as they appear.
pub(super) struct Resolver {
    rules: AreaRules,
    by_name: HashMap<String, u8>,
    by_device: HashMap<String, u8>,
}

impl Resolver {
    pub(super) fn new(rules: AreaRules) -> Result<Self> {
        if let Some(rule) = rules.rules.iter().find(|rule| rule.from >= rule.to) {
            return Err(Error::Usage(format!(
                "the rule for area {} covers no bytes",
                rule.area
            )));
        }
        Ok(Self {
            rules,
            by_name: HashMap::new(),
            by_device: HashMap::new(),
        })
    }

    /// The number of the area that `offset` on `device` belongs to.
    pub(super) fn area(
        &mut self,
        device: &str,
        offset: u64,
        areas: &mut Vec<Area>,
    ) -> Result<u8, RowError> {
        if self.rules.rules.is_empty()
            && let Some(number) = self.by_device.get(device)
        {
            return Ok(*number);
        }
        let rule = self.rules.rules.iter().find(|rule| {
            rule.device.as_deref().is_none_or(|wanted| wanted == device)
                && (rule.from..rule.to).contains(&offset)
        });
        let (name, role) = rule.map_or_else(
            || (device, Role::of_name(device)),
            |rule| (rule.area.as_str(), rule.role),
        );
        if let Some(number) = self.by_name.get(name) {
            return Ok(*number);
        }
        if areas.len() >= AREAS_MAX {
            return Err(RowError::new(
                "there are more areas than 255; name areas by a rule file",
                name,
            ));
        }
        let number = areas.len() as u8;
        areas.push(Area {
            name: name.to_owned(),
            device: device.to_owned(),
            role,
            extent_bytes: 0,
        });
        self.by_name.insert(name.to_owned(), number);
        self.by_device.insert(device.to_owned(), number);
        Ok(number)
    }
}
