//! The order of user keys: that of their bytes, or one that a program brings along.
//!
//! Nearly every database is ordered by bytes, and searches of every kind are made for that: so the byte order is a case
//! of its own, known where keys are compared, and never a call through a pointer.
//!
//! A comparator may call two keys equal whose bytes differ. They are then one key: the later one replaces the earlier.

use crate::key::split;
use crate::version_edit::BYTEWISE_COMPARATOR;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// An order of keys that a program brings along.
pub trait Comparator: Send + Sync {
    /// Its name, which the database remembers: it is opened with no comparator of another name. A program that changes the order
    /// of any two keys changes the name. Always the same.
    fn name(&self) -> &str;

    /// How `a` lies to `b`. A total order: the same answer for the same bytes always; `a` before `b` and `b` before `c`
    /// is `a` before `c`; `b` to `a` is the reverse of `a` to `b`. It must not panic. A database whose comparator breaks
    /// this loses its order, and with it data.
    fn compare(&self, a: &[u8], b: &[u8]) -> Ordering;
}

/// How the user keys of a database are ordered.
#[derive(Clone, Default)]
pub enum Order {
    /// By their bytes.
    #[default]
    Bytewise,
    /// As a program says.
    Custom(Arc<dyn Comparator>),
}

impl Order {
    /// The order of `comparator`; that of bytes if there is none.
    pub fn of(comparator: Option<&Arc<dyn Comparator>>) -> Self {
        comparator.map_or(Self::Bytewise, |it| Self::Custom(Arc::clone(it)))
    }

    /// The name that a MANIFEST has for it.
    pub fn name(&self) -> &str {
        match self {
            Self::Bytewise => BYTEWISE_COMPARATOR,
            Self::Custom(comparator) => comparator.name(),
        }
    }

    /// Whether it is the order of bytes.
    #[inline]
    pub fn is_bytewise(&self) -> bool {
        matches!(self, Self::Bytewise)
    }

    /// The first key of all, where that is known: among bytes it is the empty one.
    #[inline]
    pub fn least_key(&self) -> Option<&'static [u8]> {
        self.is_bytewise().then_some(&[])
    }

    /// How user key `a` lies to user key `b`.
    #[inline]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Bytewise => a.cmp(b),
            Self::Custom(comparator) => comparator.compare(a, b),
        }
    }

    /// Whether user key `a` comes before user key `b`.
    #[inline]
    pub fn is_before(&self, a: &[u8], b: &[u8]) -> bool {
        self.compare(a, b) == Ordering::Less
    }

    /// Whether `a` and `b` are one user key.
    #[inline]
    pub fn is_same(&self, a: &[u8], b: &[u8]) -> bool {
        match self {
            Self::Bytewise => a == b,
            Self::Custom(comparator) => a == b || comparator.compare(a, b) == Ordering::Equal,
        }
    }

    /// How internal key `a` lies to internal key `b`. Keys shorter than a trailer come first; no valid key is.
    #[inline]
    pub fn compare_internal(&self, a: &[u8], b: &[u8]) -> Ordering {
        match (split(a), split(b)) {
            (Some((a_key, a_trailer)), Some((b_key, b_trailer))) => {
                self.compare(a_key, b_key).then(b_trailer.cmp(&a_trailer))
            }
            (a, b) => a.is_some().cmp(&b.is_some()),
        }
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Order({:?})", self.name())
    }
}

/// Two orders are the same if they are one comparator: of two with one name that is unknown.
impl PartialEq for Order {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Bytewise, Self::Bytewise) => true,
            (Self::Custom(one), Self::Custom(another)) => Arc::ptr_eq(one, another),
            _ => false,
        }
    }
}

impl Eq for Order {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{ValueKind, append};

    /// The last byte counts first, and letters' cases do not.
    struct FromBehind;

    impl Comparator for FromBehind {
        fn name(&self) -> &'static str {
            "test.FromBehind"
        }

        fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
            let key = |bytes: &[u8]| {
                bytes
                    .to_ascii_lowercase()
                    .into_iter()
                    .rev()
                    .collect::<Vec<_>>()
            };
            key(a).cmp(&key(b))
        }
    }

    fn internal(key: &[u8], sequence: u64) -> Vec<u8> {
        let mut out = Vec::new();
        append(&mut out, key, sequence, ValueKind::Value);
        out
    }

    #[test]
    fn keys_that_compare_equal_are_one_key_and_the_newest_comes_first() {
        let order = Order::Custom(Arc::new(FromBehind));
        assert!(order.is_before(b"zA", b"ab"));
        assert!(order.is_same(b"Ab", b"aB") && !Order::Bytewise.is_same(b"Ab", b"aB"));
        let (older, newer) = (internal(b"Ab", 1), internal(b"aB", 2));
        assert!(order.compare_internal(&newer, &older).is_lt());
        assert!(order.compare_internal(b"short", &newer).is_lt());
        assert_eq!(
            (order.name(), Order::Bytewise.name()),
            ("test.FromBehind", BYTEWISE_COMPARATOR)
        );
        assert!(order == order.clone() && order != Order::Custom(Arc::new(FromBehind)));
    }
}
