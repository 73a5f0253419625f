//! Administrators that were put into the configuration: names, and hashes of their passwords.

use super::password::derive;
use crate::uuids::{hex, random};

/// What a hash begins with: PBKDF2 over HMAC-SHA-256, then the key, the salt and the rounds.
const SCHEME: &str = "-pbkdf2:sha256-";

/// An administrator whose password is known as a hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HashedAdmin {
    pub(super) name: String,
    pub(super) key: String,
    pub(super) salt: String,
    pub(super) iterations: u32,
}

impl HashedAdmin {
    /// The administrator `name` with the hash `text`; `None` if it is none.
    pub(crate) fn parse(name: &str, text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix(SCHEME)?.split(',');
        let (key, salt, iterations) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self {
            name: name.to_owned(),
            key: key.to_owned(),
            salt: salt.to_owned(),
            iterations: iterations.parse().ok()?,
        })
    }

    /// The hash of `password`; what is one already stays as it is. It takes long.
    pub(crate) fn hash(password: &str, iterations: u32) -> String {
        if Self::parse("", password).is_some() {
            return password.to_owned();
        }
        let salt = hex(&random::<16>());
        let key = derive(password, &salt, iterations);
        format!("{SCHEME}{key},{salt},{iterations}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_back_and_not_hashed_again() {
        let text = HashedAdmin::hash("secret", 2);
        assert!(!text.contains("secret"));
        assert_eq!(HashedAdmin::hash(&text, 2), text);
        let admin = HashedAdmin::parse("ann", &text).expect("a hash");
        assert_eq!(derive("secret", &admin.salt, admin.iterations), admin.key);
        for text in ["", "secret", "-pbkdf2:sha256-a,b", "-pbkdf2:sha256-a,b,c"] {
            assert_eq!(HashedAdmin::parse("ann", text), None, "{text}");
        }
    }
}
