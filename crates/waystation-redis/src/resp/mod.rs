//! The bytes of the protocol: commands on the way in ([`parse`]), answers on the way out ([`write`]).

pub(crate) mod parse;
pub(crate) mod write;

pub use parse::{Limits, Parsed, Parser, ProtocolError};
pub(crate) use write::Out;
