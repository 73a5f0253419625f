//! Numbers as the protocol writes and reads them.
//!
//! Whole numbers are read strictly: no blanks, no sign `+`, no leading zeros. Fractions are written with the fewest digits
//! that read back as the same number, and without an exponent while they have at most 17 digits.

/// The digits of a whole number, on the stack.
pub(crate) struct Digits {
    text: [u8; 20],
    start: usize,
}

impl Digits {
    pub(crate) fn unsigned(mut number: u64) -> Self {
        let mut digits = Self {
            text: [0; 20],
            start: 20,
        };
        loop {
            digits.push(b'0' + (number % 10) as u8);
            number /= 10;
            if number == 0 {
                return digits;
            }
        }
    }

    pub(crate) fn signed(number: i64) -> Self {
        let mut digits = Self::unsigned(number.unsigned_abs());
        if number < 0 {
            digits.push(b'-');
        }
        digits
    }

    fn push(&mut self, byte: u8) {
        self.start -= 1;
        self.text[self.start] = byte;
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.text[self.start..]
    }
}

/// A whole number, written as it would be printed.
pub(crate) fn parse_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_canonical = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_canonical {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A number with or without a fraction, infinite ones too; not what is no number.
pub(crate) fn parse_double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: f64 = text.parse().ok()?;
    // Rust reads "infinity" and "nan" in any case, as C does.
    (!number.is_nan()).then_some(number)
}

/// The shortest text that reads back as `number`.
pub(crate) fn show_double(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    // Also the zero below zero.
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let magnitude = number.abs();
    if (1e-5..1e17).contains(&magnitude) {
        return number.to_string();
    }
    // Rust writes 1e21 where C writes 1e+21, and -7 where C writes -07.
    let text = format!("{number:e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => match exponent.strip_prefix('-') {
            Some(digits) => format!("{mantissa}e-{digits:0>2}"),
            None => format!("{mantissa}e+{exponent:0>2}"),
        },
        None => text,
    }
}

/// The digits behind the point with which fractions are added.
const PLACES: usize = 17;

/// A number with a point, counted in units of its last place; `None`: it has an exponent, or too many digits.
fn decimal(text: &str) -> Option<i128> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_decimal = |it: &str| it.bytes().all(|byte| byte.is_ascii_digit());
    let is_short = whole.len() <= 19 && fraction.len() <= PLACES;
    if !is_short
        || !is_decimal(whole)
        || !is_decimal(fraction)
        || digits.len() < 2 && fraction.is_empty() && whole.is_empty()
    {
        return None;
    }
    let all: i128 = format!("{whole}{fraction:0<PLACES$}").parse().ok()?;
    Some(sign * all)
}

/// The sum of two numbers with fractions, as `INCRBYFLOAT` writes it: exact up to 17 places, without zeros at the end. The
/// outer `None`: one of them is no number; the inner one: the sum is none.
#[expect(
    clippy::option_option,
    reason = "two ways to fail, which callers tell apart"
)]
pub(crate) fn add_fractions(one: &[u8], other: &[u8]) -> Option<Option<String>> {
    let (first, second) = (parse_double(one)?, parse_double(other)?);
    let exact = |text: &[u8]| decimal(std::str::from_utf8(text).ok()?);
    if let (Some(first), Some(second)) = (exact(one), exact(other)) {
        let sum = first + second;
        let digits = format!("{:0>width$}", sum.unsigned_abs(), width = PLACES + 1);
        let (whole, fraction) = digits.split_at(digits.len() - PLACES);
        let fraction = fraction.trim_end_matches('0');
        let sign = if sum < 0 { "-" } else { "" };
        let point = if fraction.is_empty() { "" } else { "." };
        return Some(Some(format!("{sign}{whole}{point}{fraction}")));
    }
    let sum = first + second;
    Some(sum.is_finite().then(|| {
        let shown = sum.to_string();
        if shown == "-0" { "0".to_owned() } else { shown }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_strictly() {
        for number in [0, 7, -7, i64::MAX, i64::MIN] {
            let digits = Digits::signed(number);
            assert_eq!(parse_integer(digits.as_bytes()), Some(number));
        }
        for wrong in [
            "",
            "-",
            "-0",
            "+1",
            "01",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
        ] {
            assert_eq!(parse_integer(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn fractions_are_short() {
        let shown = [
            (1.0, "1"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e20, "1e+20"),
            (1.5e-7, "1.5e-07"),
            (1_700_000_000_123.0, "1700000000123"),
            (f64::INFINITY, "inf"),
        ];
        for (number, text) in shown {
            assert_eq!(show_double(number), text);
        }
        assert_eq!(parse_double(b"inf"), Some(f64::INFINITY));
        assert_eq!(parse_double(b"nan"), None);
        assert_eq!(parse_double(b""), None);
    }

    #[test]
    fn fractions_add_up() {
        let sums = [
            ("0.1", "0.2", "0.3"),
            ("3", "-3.5", "-0.5"),
            ("5.0e3", "2.0e2", "5200"),
            ("-1", "1", "0"),
        ];
        for (one, other, sum) in sums {
            let found = add_fractions(one.as_bytes(), other.as_bytes());
            assert_eq!(found, Some(Some(sum.to_owned())));
        }
        assert_eq!(add_fractions(b"1", b"inf"), Some(None));
        assert_eq!(add_fractions(b"", b"1"), None);
        assert_eq!(add_fractions(b".", b"1"), None);
    }
}
