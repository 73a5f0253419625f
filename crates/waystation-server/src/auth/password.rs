//! Passwords: PBKDF2 over HMAC-SHA-256, and a short memory of those that were right, as each check takes long.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Bytes of a derived key.
const KEY_BYTES: usize = 32;
/// Passwords that are remembered.
const REMEMBERED_MAX: usize = 1024;
/// How long (seconds).
const REMEMBERED_SECONDS: u64 = 600;

/// The key that `password` makes, as hexadecimal digits.
pub(super) fn derive(password: &str, salt: &str, iterations: u32) -> String {
    let mut key = [0; KEY_BYTES];
    pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), salt.as_bytes(), iterations, &mut key);
    crate::uuids::hex(&key)
}

/// The HMAC-SHA-256 of `parts` under `secret`, with a length before each part.
pub(super) fn sign(secret: &[u8], parts: &[&str]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_le_bytes());
        mac.update(part.as_bytes());
    }
    mac.finalize().into_bytes().into()
}

/// Whether two texts are equal, in a time that does not tell where they differ.
pub(super) fn are_equal(one: &[u8], other: &[u8]) -> bool {
    let differences = one
        .iter()
        .zip(other)
        .fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && differences == 0
}

/// Passwords that were right, as digests under the server's secret.
#[derive(Default)]
pub(super) struct Verified(Mutex<HashMap<[u8; 32], u64>>);

impl Verified {
    /// Whether `digest` was right lately; else whether `check` says so, which is remembered.
    pub(super) fn check(&self, digest: [u8; 32], check: impl FnOnce() -> bool) -> bool {
        let now = crate::clock::seconds();
        let is_fresh = |since: &u64| now.saturating_sub(*since) < REMEMBERED_SECONDS;
        let known = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known().get(&digest).is_some_and(is_fresh) {
            return true;
        }
        if !check() {
            return false;
        }
        let mut known = known();
        known.retain(|_, since| is_fresh(since));
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(digest, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_standard() {
        // RFC 7914, section 11.
        assert!(derive("passwd", "salt", 1).starts_with("55ac046e56e3089fec1691c22544b605"));
    }

    #[test]
    fn what_was_right_is_remembered_and_what_was_wrong_is_not() {
        let verified = Verified::default();
        assert!(!verified.check([1; 32], || false));
        assert!(verified.check([1; 32], || true));
        assert!(verified.check([1; 32], || false));
        assert!(!verified.check([2; 32], || false));
    }
}
