//! Names in a trace, of vehicles or of cells: any text that fits into a field.
//!
//! Each name gets a number when it is first met. Names that all turn out to be plain numbers are ordered as such; others
//! as text.

use std::collections::HashMap;
use std::fmt::Write as _;

/// Names by their numbers.
#[derive(Debug, Default)]
pub(super) struct Names {
    numbers: HashMap<Box<str>, u32>,
    names: Vec<Box<str>>,
}

impl Names {
    /// The number of `name`, a new one if it was not met before.
    pub(super) fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.numbers.insert(name.into(), number);
        self.names.push(name.into());
        number
    }

    /// The name that has this number.
    pub(super) fn name(&self, number: u32) -> &str {
        &self.names[number as usize]
    }

    /// The names as the numbers that they are, by number, if each is one of at most `highest`, without zeros ahead.
    pub(super) fn plain(&self, highest: u32) -> Option<Vec<u32>> {
        let plain = |name: &str| {
            let number = name.parse::<u32>().ok()?;
            (number <= highest && number.to_string() == *name).then_some(number)
        };
        self.names.iter().map(|name| plain(name)).collect()
    }

    /// The numbers in the order of their names: as numbers if all are, else as text.
    pub(super) fn in_order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.names.len() as u32).collect();
        match self.plain(u32::MAX) {
            Some(plain) => order.sort_by_key(|number| plain[*number as usize]),
            None => order.sort_by_key(|number| self.name(*number)),
        }
        order
    }
}

/// `name` as a part of a file's name: letters, digits, `-` and `_` as they are, other bytes as `%` and two digits.
pub(super) fn in_a_path(name: &str) -> String {
    let mut path = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') {
            path.push(char::from(byte));
        } else {
            let _ = write!(path, "%{byte:02x}");
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Names {
        let mut names = Names::default();
        for (number, name) in all.iter().enumerate() {
            assert_eq!(names.number(name), number as u32);
        }
        names
    }

    #[test]
    fn numbers_stay_numbers_and_text_is_ordered_as_text() {
        let numbers = names(&["30", "2", "4294967295"]);
        assert_eq!(numbers.in_order(), [1, 0, 2]);
        assert_eq!(numbers.plain(u32::MAX), Some(vec![30, 2, u32::MAX]));
        assert_eq!(numbers.plain(1_000), None);
        for other in ["taxi", "-1", "1.5", "+1", "007", ""] {
            let mixed = names(&["30", other]);
            assert_eq!(mixed.plain(u32::MAX), None, "{other}");
        }
        assert_eq!(names(&["b", "10", "9"]).in_order(), [1, 2, 0]);
        let mut again = names(&["a", "b"]);
        assert_eq!((again.number("a"), again.name(1)), (0, "b"));
    }

    #[test]
    fn no_two_names_share_a_path_and_none_leads_out_of_it() {
        assert_eq!(in_a_path("5"), "5");
        assert_eq!(in_a_path("../a b"), "%2e%2e%2fa%20b");
        assert_ne!(in_a_path("a/b"), in_a_path("a%2fb"));
        assert_eq!(in_a_path("é"), "%c3%a9");
    }
}
