//! Rights: which thing a caller may do, and with which devices.
//!
//! Administrators have all rights; others have those of their roles. A role may name a prefix, and then holds for the
//! devices whose keys begin with it. A request about one device, or a reading of one, is refused if the right does not
//! reach it; lists and tails show the devices that it reaches.

use crate::auth::roles;
use crate::failure::{Failure, Outcome};
use crate::request::Call;
use waystation_readings::Readings;

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    Read,
    Write,
    Depart,
    Monitor,
    Admin,
}

impl Right {
    /// The role that has it.
    fn role(self) -> &'static str {
        match self {
            Self::Read => roles::READ,
            Self::Write => roles::WRITE,
            Self::Depart => roles::DEPART,
            Self::Monitor => roles::MONITOR,
            Self::Admin => roles::ADMIN,
        }
    }
}

/// The devices that a caller's right reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reach {
    right: Right,
    is_named: bool,
    /// What keys begin with; `None`: all are reached.
    prefixes: Option<Vec<String>>,
}

/// Refuses callers without the right, and says which devices it reaches. About the whole server there are no prefixes.
pub(super) fn require(call: &Call, right: Right) -> Outcome<Reach> {
    let user = &call.user;
    let role = right.role();
    let prefixes: Vec<String> = roles::prefixes(&user.roles, role)
        .map(ToOwned::to_owned)
        .collect();
    let is_whole = user.is_admin() || prefixes.iter().any(String::is_empty);
    let has_part = !prefixes.is_empty() && !matches!(right, Right::Monitor | Right::Admin);
    let reach = Reach {
        right,
        is_named: user.name.is_some(),
        prefixes: (!is_whole).then_some(prefixes),
    };
    if is_whole || has_part {
        return Ok(reach);
    }
    Err(reach.refusal("this"))
}

impl Reach {
    /// Whether it reaches a device of `readings`.
    pub(super) fn holds(&self, readings: &Readings, device: &[u8]) -> bool {
        let Some(prefixes) = &self.prefixes else {
            return true;
        };
        // A name that no device can have is refused as such later.
        let key = readings.layout().extractor().prefix_of(device);
        let key = key.as_deref().unwrap_or(device);
        prefixes.iter().any(|it| key.starts_with(it.as_bytes()))
    }

    /// Refuses a device that it does not reach.
    pub(super) fn check(&self, readings: &Readings, device: &str) -> Outcome<()> {
        if self.holds(readings, device.as_bytes()) {
            return Ok(());
        }
        Err(self.refusal(&format!("device {device:?}")))
    }

    fn refusal(&self, what: &str) -> Failure {
        let role = self.right.role();
        let reason = format!("{what} needs the role {role}, or a server admin");
        if self.is_named {
            Failure::forbidden(reason)
        } else {
            Failure::unauthorized(reason)
        }
    }
}
