//! Frames: messages of a bounded size, each behind its length and its checksum.
//!
//! ```text
//!   length u32 | masked CRC-32C of the message u32 | message          numbers little endian
//! ```
//!
//! A frame that is longer than its reader allows, or whose checksum is another one, ends the connection: nothing behind
//! it can be trusted.

use std::io::{self, Read, Write};
use waystation_format::checksum::{crc32c, mask};

/// The longest message (bytes): a request of the server's largest body, and what stands around it.
pub(crate) const MESSAGE_BYTES_MAX: usize = 160 << 20;
/// The longest message before both sides know each other (bytes).
pub(crate) const GREETING_BYTES_MAX: usize = 1 << 10;
/// Memory that is taken at once for a message that is only announced (bytes).
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes before a message.
const HEAD_BYTES: usize = 8;

/// Writes `message` as a frame.
pub(crate) fn write(out: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = u32::try_from(message.len()).ok();
    let length = length.filter(|_| message.len() <= MESSAGE_BYTES_MAX);
    let length = length.ok_or_else(|| {
        let reason = format!("a message of {} bytes is too long", message.len());
        io::Error::new(io::ErrorKind::InvalidInput, reason)
    })?;
    let mut frame = Vec::with_capacity(HEAD_BYTES + message.len());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&mask(crc32c(message)).to_le_bytes());
    frame.extend_from_slice(message);
    out.write_all(&frame)?;
    // With TLS a part may still wait.
    out.flush()
}

/// Reads the next message; `None` if the other side has closed the connection between two.
pub(crate) fn read(from: &mut impl Read, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; HEAD_BYTES];
    let first = from.read(&mut head)?;
    if first == 0 {
        return Ok(None);
    }
    from.read_exact(&mut head[first..])?;
    let [length, checksum] = [0, 4].map(|at| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&head[at..at + 4]);
        u32::from_le_bytes(bytes)
    });
    let damaged = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason.to_owned());
    let length = length as usize;
    if length > bytes_max {
        return Err(damaged("a message is longer than it may be"));
    }
    let mut message = Vec::with_capacity(length.min(CHUNK_BYTES));
    let read = from.take(length as u64).read_to_end(&mut message)?;
    if read < length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if mask(crc32c(&message)) != checksum {
        return Err(damaged("a message has another checksum than its frame"));
    }
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_back_until_the_end() -> io::Result<()> {
        let mut bytes = Vec::new();
        write(&mut bytes, b"hello")?;
        write(&mut bytes, b"")?;
        let mut from = bytes.as_slice();
        assert_eq!(read(&mut from, 5)?.as_deref(), Some(&b"hello"[..]));
        assert_eq!(read(&mut from, 5)?.as_deref(), Some(&b""[..]));
        assert_eq!(read(&mut from, 5)?, None);
        Ok(())
    }

    #[test]
    fn damage_cuts_and_excess_are_noticed() -> io::Result<()> {
        let mut bytes = Vec::new();
        write(&mut bytes, b"hello")?;
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert!(read(&mut damaged.as_slice(), 100).is_err(), "{at}");
        }
        for cut in 1..bytes.len() {
            assert!(read(&mut &bytes[..cut], 100).is_err(), "{cut}");
        }
        assert!(read(&mut bytes.as_slice(), 4).is_err());
        Ok(())
    }
}
