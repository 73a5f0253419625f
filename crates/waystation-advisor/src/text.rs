//! Text files that a caller names: rules, machines, tables of measurements. They are read whole, within a limit: a
//! device file or a trace in their place is an error before it fills the memory.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The longest text file that is read, in bytes.
const BYTES_MAX: u64 = 16 << 20;

/// Reads the text file at `path`. Longer than 16 MiB, or not UTF-8, is `InvalidData`.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    File::open(path)?
        .take(BYTES_MAX + 1)
        .read_to_end(&mut text)?;
    if text.len() as u64 > BYTES_MAX {
        let reason = format!("the file is longer than {BYTES_MAX} bytes: it is no settings file");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    String::from_utf8(text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let error = read_text(Path::new("/dev/zero")).unwrap_err();
        assert!(error.to_string().contains("longer than"), "{error}");
    }

    #[test]
    fn text_is_read_and_other_bytes_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("machine.toml");
        std::fs::write(&path, "fast = 1").unwrap();
        assert_eq!(read_text(&path).unwrap(), "fast = 1");
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(
            read_text(&path).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }
}
