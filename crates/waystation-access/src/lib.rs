//! Users: who may do what, and how often, in every protocol that the daemon speaks.
//!
//! ```text
//!   secret   the SHA-256 of a password, a token or a certificate
//!   users    names, and rights for keys that begin with a prefix
//!   rate     requests of a client in a second
//! ```
//!
//! A user has rights for prefixes of keys. The keys of a device begin with its name, so a prefix names devices as well: `car`
//! names all keys of `car1` and of `car17`, and with the extractor `until/3a` `car17:` names those of `car17` alone.
//!
//! Invariants: secrets are kept as digests and compared in a time that does not tell where they differ. No `Debug` of this
//! crate shows one.

mod rate;
mod secret;
mod users;

pub use rate::Rates;
pub use secret::Secret;
pub use users::{LiveUsers, Right, User, Users};
