//! Patterns of names: `*`, `?`, `[abc]`, `[^a-c]` and `\` before a byte that stands for itself.
//!
//! A star goes back at most to its own place, so that no pattern takes longer than its length times the text's.

/// Whether `text` has the form of `pattern`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // The last star, and the first byte that it has not taken.
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, t));
            p += 1;
            continue;
        }
        let step = match text.get(t) {
            Some(byte) => one(&pattern[p..], *byte),
            None if p == pattern.len() => return true,
            None => return false,
        };
        if let Some(length) = step {
            p += length;
            t += 1;
            continue;
        }
        match &mut star {
            Some((place, taken)) => {
                *taken += 1;
                (p, t) = (*place + 1, *taken);
            }
            None => return false,
        }
    }
}

/// A pattern that `text` alone fits.
pub(crate) fn escaped(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for it in text.chars() {
        if "*?[]^\\".contains(it) {
            pattern.push('\\');
        }
        pattern.push(it);
    }
    pattern
}

/// If the first element of `pattern` stands for `byte`: its length.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', class @ ..] => {
            let (has, length) = class_has(class, byte);
            has.then_some(1 + length)
        }
        [plain, ..] => (*plain == byte).then_some(1),
    }
}

/// Whether the class that begins behind `[` has `byte`, and its length with the bracket, which may be missing.
fn class_has(class: &[u8], byte: u8) -> (bool, usize) {
    let is_negative = class.first() == Some(&b'^');
    let mut at = usize::from(is_negative);
    let mut has = false;
    loop {
        match &class[at.min(class.len())..] {
            [] => return (has != is_negative, class.len()),
            [b']', ..] => return (has != is_negative, at + 1),
            [b'\\', escaped, ..] => {
                has |= *escaped == byte;
                at += 2;
            }
            [low, b'-', high, ..] => {
                has |= (*low.min(high)..=*low.max(high)).contains(&byte);
                at += 3;
            }
            [plain, ..] => {
                has |= *plain == byte;
                at += 1;
            }
        }
    }
}

/// What every text of the form of `pattern` begins with.
pub(crate) fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern.iter().position(|it| b"*?[\\".contains(it));
    &pattern[..end.unwrap_or(pattern.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match() {
        let cases: [(&str, &str, bool); 15] = [
            ("*", "", true),
            ("h?llo", "hello", true),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            ("*a*b", "xaxxb", true),
            ("*a*b", "xaxxbc", false),
            ("", "", true),
            ("", "a", false),
            ("a*", "a", true),
            ("[a", "a", true),
            ("**c", "abc", true),
        ];
        for (pattern, text, expected) in cases {
            let found = matches(pattern.as_bytes(), text.as_bytes());
            assert_eq!(found, expected, "{pattern} {text}");
        }
        assert_eq!(literal_prefix(b"car*:x"), b"car");
    }

    #[test]
    fn hostile_patterns_end() {
        let pattern = b"*a".repeat(500);
        assert!(!matches(&pattern, &vec![b'a'; 2000][..300]));
    }
}
