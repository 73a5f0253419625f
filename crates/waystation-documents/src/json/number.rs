//! The order of numbers as they are written.
//!
//! CouchDB reads a number without fraction and exponent as an integer of any size, and every other one as a double.
//! Integers compare exactly, doubles as doubles, and an integer with a double by their exact values.

use std::cmp::Ordering;

/// Integers up to here are doubles, too, without rounding.
const EXACT_MAX: i64 = 1 << 53;

/// Compares two JSON numbers by value.
///
/// ```
/// use std::cmp::Ordering;
/// use waystation_documents::json::compare_numbers;
/// assert_eq!(compare_numbers("1", "1.0"), Ordering::Equal);
/// assert_eq!(compare_numbers("9007199254740993", "9007199254740992.0"), Ordering::Greater);
/// ```
pub fn compare_numbers(one: &str, other: &str) -> Ordering {
    match (Number::read(one), Number::read(other)) {
        (Number::Small(one), Number::Small(other)) => one.cmp(&other),
        (Number::Double(one), Number::Double(other)) => compare_doubles(one, other),
        (Number::Small(one), Number::Double(other)) => compare_mixed(one, other),
        (Number::Double(one), Number::Small(other)) => compare_mixed(other, one).reverse(),
        (Number::Large(one), other) => compare_large(&one, &other),
        (one, Number::Large(other)) => compare_large(&other, &one).reverse(),
    }
}

enum Number {
    Small(i64),
    /// An integer beyond 64 bits.
    Large(Large),
    Double(f64),
}

/// An integer by its sign and digits, without leading zeros.
struct Large {
    is_negative: bool,
    digits: String,
}

impl Number {
    fn read(text: &str) -> Self {
        let is_integer = !text.bytes().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
        if !is_integer {
            return Self::Double(text.parse().unwrap_or(0.0));
        }
        text.parse()
            .map_or_else(|_| Self::Large(Large::read(text)), Self::Small)
    }
}

impl Large {
    fn read(text: &str) -> Self {
        Self {
            is_negative: text.starts_with('-'),
            digits: text.trim_start_matches('-').to_owned(),
        }
    }

    /// The exact value of a double without fraction.
    fn of(double: f64) -> Self {
        Self::read(&format!("{double:.0}"))
    }

    fn compare(&self, other: &Self) -> Ordering {
        let by_sign = other.is_negative.cmp(&self.is_negative);
        let by_length = self.digits.len().cmp(&other.digits.len());
        let by_digits = by_length.then_with(|| self.digits.cmp(&other.digits));
        let by_size = if self.is_negative {
            by_digits.reverse()
        } else {
            by_digits
        };
        by_sign.then(by_size)
    }
}

fn compare_doubles(one: f64, other: f64) -> Ordering {
    one.partial_cmp(&other).unwrap_or(Ordering::Equal)
}

fn compare_mixed(integer: i64, double: f64) -> Ordering {
    if integer.abs_diff(0) <= EXACT_MAX as u64 || !double.is_finite() {
        return compare_doubles(integer as f64, double);
    }
    // A double of this size has no fraction; one that is smaller is smaller than any part of the integer.
    if double.abs() < EXACT_MAX as f64 {
        return if integer > 0 {
            Ordering::Greater
        } else {
            Ordering::Less
        };
    }
    Large::read(&integer.to_string()).compare(&Large::of(double))
}

fn compare_large(one: &Large, other: &Number) -> Ordering {
    match other {
        Number::Large(other) => one.compare(other),
        Number::Double(other) if other.is_finite() && other.abs() >= EXACT_MAX as f64 => {
            one.compare(&Large::of(*other))
        }
        Number::Double(other) if !other.is_finite() => compare_doubles(0.0, *other),
        _ if one.is_negative => Ordering::Less,
        _ => Ordering::Greater,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_in_order() {
        let ordered = [
            "-1e400",
            "-123456789012345678901234567891",
            "-123456789012345678901234567890",
            "-9223372036854775809",
            "-9223372036854775808",
            "-1.5",
            "-1",
            "0",
            "0.1",
            "1",
            "2.5",
            "10",
            "9007199254740992",
            "9007199254740993",
            "9223372036854775807",
            "9223372036854775808",
            "123456789012345678901234567890",
            "1e300",
            "1e400",
        ];
        for (at, one) in ordered.iter().enumerate() {
            for (place, other) in ordered.iter().enumerate() {
                assert_eq!(compare_numbers(one, other), at.cmp(&place), "{one} {other}");
            }
        }
    }

    #[test]
    fn equal_values_are_equal_however_they_are_written() {
        let equal = [
            ("1", "1.0"),
            ("100", "1e2"),
            ("-0", "0.0"),
            ("9007199254740992", "9007199254740992.0"),
        ];
        for (one, other) in equal {
            assert_eq!(
                compare_numbers(one, other),
                Ordering::Equal,
                "{one} {other}"
            );
        }
        let beyond = ("100000000000000000000", "1e20");
        assert_eq!(compare_numbers(beyond.0, beyond.1), Ordering::Equal);
    }

    proptest! {
        #[test]
        fn the_order_is_one(one in any::<i64>(), other in any::<f64>().prop_filter("finite", |it| it.is_finite())) {
            let (integer, double) = (one.to_string(), format!("{other:e}"));
            let forth = compare_numbers(&integer, &double);
            prop_assert_eq!(compare_numbers(&double, &integer), forth.reverse());
            prop_assert_eq!(compare_numbers(&double, &double), Ordering::Equal);
            if (one as f64) < other {
                prop_assert_ne!(forth, Ordering::Greater);
            }
        }
    }
}
