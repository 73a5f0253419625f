//! The greeting: both sides say their version, and prove that they know the token.
//!
//! ```text
//!   host    magic (8) | version u32 | nonce of the host (32)
//!   drive   0 | version u32 | nonce of the drive (32) | HMAC-SHA-256(token, "drive" + both nonces)
//!           or 1 | version u32 | why it refuses, as text
//!   host    HMAC-SHA-256(token, "host" + both nonces)
//!   drive   0, or 1 and why it refuses
//! ```
//!
//! Each of them is a frame. The first one has this form in every version. The token itself is never sent; a nonce is
//! used once. Never give these bytes another meaning.
//!
//! A [`Protocol`] says what the two sides are called: host and drive, as above, or engine and worker.

use crate::error::{AgentError, Result};
use crate::frame::{self, GREETING_BYTES_MAX};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::io::{self, Read, Write};
use std::sync::Arc;
use waystation_documents::wire::VERSION;

/// The protocol behind the greeting.
#[derive(Debug)]
pub(crate) struct Protocol {
    /// What the first frame begins with.
    magic: &'static [u8; 8],
    version: u32,
    /// What the side is called that connects.
    client: &'static str,
    /// What the side is called that listens.
    server: &'static str,
}

/// What hosts and drives speak.
pub(crate) const DRIVES: Protocol = Protocol {
    magic: b"WAYDRIVE",
    version: VERSION,
    client: "host",
    server: "drive",
};

/// What engines and compaction workers speak.
pub(crate) const WORKERS: Protocol = Protocol {
    magic: b"WAYMERGE",
    version: 1,
    client: "engine",
    server: "worker",
};

/// Bytes of a nonce.
const NONCE_BYTES: usize = 32;
/// Bytes of a proof.
const PROOF_BYTES: usize = 32;
/// A shorter token is no secret (bytes).
const TOKEN_BYTES_MIN: usize = 16;

/// The secret that hosts and drives share, or engines and workers.
#[derive(Clone)]
pub struct Token(Arc<[u8]>);

impl Token {
    /// The token `text`; white space around it does not count.
    ///
    /// # Errors
    /// [`AgentError::Token`] if it has less than 16 bytes.
    pub fn new(text: &str) -> Result<Self> {
        let text = text.trim().as_bytes();
        if text.len() < TOKEN_BYTES_MIN {
            return Err(AgentError::Token(text.len()));
        }
        Ok(Self(text.into()))
    }

    /// None: what both sides have that rely on the permissions of a Unix socket.
    pub(crate) fn none() -> Self {
        Self(Arc::default())
    }

    fn mac(&self, side: &[u8], host: &[u8], drive: &[u8]) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        for part in [side, host, drive] {
            mac.update(part);
        }
        mac
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").finish_non_exhaustive()
    }
}

/// Why a greeting failed.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The connection broke off.
    Io(io::Error),
    /// One side does not take the other one; the sentence says why.
    Refused(String),
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

fn nonce() -> io::Result<[u8; NONCE_BYTES]> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(nonce)
}

fn next(stream: &mut impl Read) -> Result<Vec<u8>, Refusal> {
    let message = frame::read(stream, GREETING_BYTES_MAX)?;
    message.ok_or_else(|| Refusal::Io(io::ErrorKind::UnexpectedEof.into()))
}

/// Splits the first bytes off.
fn split<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    Some((*first, rest))
}

impl Protocol {
    fn strange(&self) -> Refusal {
        let server = self.server;
        let reason = format!("the other side does not speak the protocol of {server}s");
        Refusal::Refused(reason)
    }

    fn without_token(who: &str) -> Refusal {
        let reason = format!("{who} does not know the token; give both sides the same");
        Refusal::Refused(reason)
    }

    /// Greets the side that listens.
    pub(crate) fn greet(
        &self,
        stream: &mut (impl Read + Write),
        token: &Token,
    ) -> Result<(), Refusal> {
        let own = nonce()?;
        let hello = [&self.magic[..], &self.version.to_le_bytes(), &own].concat();
        frame::write(stream, &hello)?;
        let welcome = next(stream)?;
        let strange = || self.strange();
        let ([verdict], rest) = split::<1>(&welcome).ok_or_else(strange)?;
        let (version, rest) = split::<4>(rest).ok_or_else(strange)?;
        let version = u32::from_le_bytes(version);
        if verdict != 0 {
            let reason = String::from_utf8_lossy(rest).into_owned();
            return Err(Refusal::Refused(reason));
        }
        if version != self.version {
            let Self { client, .. } = self;
            let own = self.version;
            return Err(Refusal::Refused(format!(
                "it speaks version {version} of the protocol, and this {client} version {own}; update the older one"
            )));
        }
        let (other, proof) = split::<NONCE_BYTES>(rest).ok_or_else(strange)?;
        let mac = token.mac(self.server.as_bytes(), &own, &other);
        if mac.verify_slice(proof).is_err() {
            return Err(Self::without_token("it"));
        }
        let mac = token.mac(self.client.as_bytes(), &own, &other);
        frame::write(stream, &mac.finalize().into_bytes())?;
        let verdict = next(stream)?;
        match verdict.split_first() {
            Some((0, [])) => Ok(()),
            Some((_, reason)) => Err(Refusal::Refused(
                String::from_utf8_lossy(reason).into_owned(),
            )),
            None => Err(strange()),
        }
    }

    /// Answers the greeting of the side that connects.
    pub(crate) fn welcome(
        &self,
        stream: &mut (impl Read + Write),
        token: &Token,
    ) -> Result<(), Refusal> {
        let hello = next(stream)?;
        let strange = || self.strange();
        let (magic, rest) = split::<8>(&hello).ok_or_else(strange)?;
        let (version, rest) = split::<4>(rest).ok_or_else(strange)?;
        let version = u32::from_le_bytes(version);
        if magic != *self.magic {
            return Err(strange());
        }
        let Self { client, server, .. } = self;
        let own_version = self.version;
        if version != own_version {
            let reason = format!(
                "the {server} speaks version {own_version} of the protocol, and the {client} version {version}; update the older one"
            );
            let refusal = [&[1], &own_version.to_le_bytes()[..], reason.as_bytes()].concat();
            frame::write(stream, &refusal)?;
            return Err(Refusal::Refused(reason));
        }
        let (other, _) = split::<NONCE_BYTES>(rest).ok_or_else(strange)?;
        let own = nonce()?;
        let mac = token.mac(server.as_bytes(), &other, &own);
        let proof = mac.finalize().into_bytes();
        let welcome = [&[0], &own_version.to_le_bytes()[..], &own, &proof].concat();
        frame::write(stream, &welcome)?;
        let proof = next(stream)?;
        let mac = token.mac(client.as_bytes(), &other, &own);
        if proof.len() != PROOF_BYTES || mac.verify_slice(&proof).is_err() {
            let refusal = Self::without_token(&format!("the {client}"));
            if let Refusal::Refused(reason) = &refusal {
                frame::write(stream, &[&[1], reason.as_bytes()].concat())?;
            }
            return Err(refusal);
        }
        Ok(frame::write(stream, &[0])?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one side has recorded of the other, and what is said to it.
    struct Recorded<'a> {
        heard: &'a [u8],
        said: Vec<u8>,
    }

    impl Read for Recorded<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.heard.read(into)
        }
    }

    impl Write for Recorded<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.said.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame::write(&mut bytes, message).expect("a frame");
        bytes
    }

    fn token() -> Token {
        Token::new("0123456789abcdef").expect("a token")
    }

    fn reason<T: std::fmt::Debug>(outcome: Result<T, Refusal>) -> String {
        match outcome {
            Err(Refusal::Refused(reason)) => reason,
            other => panic!("expected a refusal, got {other:?}"),
        }
    }

    #[test]
    fn a_host_of_version_1_is_told_what_to_do() {
        let hello = [&b"WAYDRIVE\x01\0\0\0"[..], &[7; NONCE_BYTES]].concat();
        let mut stream = Recorded {
            heard: &framed(&hello),
            said: Vec::new(),
        };
        let refused = reason(DRIVES.welcome(&mut stream, &token()));
        assert!(refused.contains("the host version 1"), "{refused}");
        let told = frame::read(&mut stream.said.as_slice(), GREETING_BYTES_MAX);
        let told = told.expect("a frame").expect("a message");
        // The place of verdict and version is the same in every version.
        assert_eq!(told[..5], [1, 2, 0, 0, 0]);
        assert_eq!(&told[5..], refused.as_bytes());
    }

    #[test]
    fn a_drive_of_version_1_refuses_and_is_named() {
        let said = "the drive speaks version 1 of the protocol, and the host version 2; update the older one";
        let refusal = [&[1, 1, 0, 0, 0], said.as_bytes()].concat();
        let mut stream = Recorded {
            heard: &framed(&refusal),
            said: Vec::new(),
        };
        assert_eq!(reason(DRIVES.greet(&mut stream, &token())), said);
        let hello = frame::read(&mut stream.said.as_slice(), GREETING_BYTES_MAX);
        let hello = hello.expect("a frame").expect("a message");
        assert_eq!(&hello[..12], b"WAYDRIVE\x02\0\0\0");
        // One that welcomes all the same is refused here.
        let welcome = [&[0, 1, 0, 0, 0][..], &[7; NONCE_BYTES + PROOF_BYTES]].concat();
        let mut stream = Recorded {
            heard: &framed(&welcome),
            said: Vec::new(),
        };
        let refused = reason(DRIVES.greet(&mut stream, &token()));
        assert!(refused.contains("speaks version 1"), "{refused}");
    }
}
