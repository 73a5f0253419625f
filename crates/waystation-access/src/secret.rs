//! Passwords, tokens and certificates, known by their SHA-256. The daemon's file may hold the digest, and a file of its own the text.

use ring::digest::{SHA256, digest};

/// Bytes of a digest.
const BYTES: usize = 32;

/// The SHA-256 of a password, a token or a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret([u8; BYTES]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Of a text in clear.
    pub fn of(clear: &[u8]) -> Self {
        let mut hash = [0; BYTES];
        hash.copy_from_slice(digest(&SHA256, clear).as_ref());
        Self(hash)
    }

    /// Of the 64 hexadecimal digits of a text's SHA-256; `None` if `digits` are others.
    pub fn of_digest(digits: &str) -> Option<Self> {
        if digits.len() != 2 * BYTES || !digits.bytes().all(|it| it.is_ascii_hexdigit()) {
            return None;
        }
        let mut hash = [0; BYTES];
        for (byte, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(hash))
    }

    /// Whether `clear` is the text. Takes as long for a text that is nearly right.
    pub fn is(&self, clear: &[u8]) -> bool {
        self.is_same(&Self::of(clear))
    }

    /// The digest, for values that derive from it.
    pub fn digest(&self) -> &[u8; BYTES] {
        &self.0
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let differences = self.0.iter().zip(&other.0).map(|(one, other)| one ^ other);
        differences.fold(0, |all, it| all | it) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_the_one_of_its_text() {
        let digits = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
        let secret = Secret::of_digest(digits).unwrap();
        assert!(secret.is(b"secret") && !secret.is(b"Secret"));
        assert_eq!(format!("{secret:?}"), "Secret");
        let sign = format!("+{}", &digits[1..]);
        for wrong in ["", "2b", &digits[1..], &sign] {
            assert!(Secret::of_digest(wrong).is_none(), "{wrong}");
        }
    }
}
