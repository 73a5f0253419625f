//! A stream whose requests may have a URL with characters that a URL cannot have, such as the quotes of `?key="a"`.
//!
//! CouchDB takes them, and its clients send them. Here they are replaced by their percent encoding on the way in, where
//! they mean the same. So the reader has to know where requests begin:
//!
//! ```text
//!   method SP target SP version CRLF     the target is mended
//!   (field CRLF)*  CRLF                  tells how long the body is
//!   body                                 passed on as it is
//! ```
//!
//! Invariants: only bytes of a request line change. Where the length of a body is told in a way that readers might
//! understand differently, nothing changes any more until the connection ends.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A line is kept up to this length (bytes): the length of a body in a longer one counts as unclear.
const LINE_BYTES_MAX: usize = 1 << 10;

/// See the module.
pub(crate) struct Lenient<S> {
    stream: S,
    requests: Requests,
    /// Bytes that did not fit into a reader's buffer once they were mended.
    left: Vec<u8>,
}

impl<S> Lenient<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            requests: Requests::default(),
            left: Vec::new(),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lenient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let begin = buffer.filled().len();
        if self.left.is_empty() {
            let read = Pin::new(&mut self.stream).poll_read(context, buffer);
            if !matches!(read, Poll::Ready(Ok(()))) {
                return read;
            }
            let Some(mended) = self.requests.mend(&buffer.filled()[begin..]) else {
                return Poll::Ready(Ok(()));
            };
            buffer.set_filled(begin);
            self.left = mended;
        }
        let now = self.left.len().min(buffer.remaining());
        buffer.put_slice(&self.left[..now]);
        self.left.drain(..now);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lenient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Where the reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum At {
    /// In a request line, or in the empty lines before it.
    #[default]
    Request,
    /// In a line of fields.
    Field,
    /// In a body, or a chunk of one with its line end, of which so many bytes are left.
    Body { left: u64, is_chunk: bool },
    /// In the line before a chunk.
    Chunk,
    /// In a line behind the last chunk.
    Trailer,
    /// Lost: all that comes is passed on.
    Lost,
}

/// What the fields of a request say of its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Length {
    #[default]
    None,
    Bytes(u64),
    Chunks,
    Unclear,
}

/// Follows the requests of a connection.
#[derive(Debug, Default)]
struct Requests {
    at: At,
    /// The line so far.
    line: Vec<u8>,
    is_line_too_long: bool,
    length: Length,
}

impl Requests {
    /// Follows `bytes`, and returns them mended if one of them had to be.
    fn mend(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut mended: Option<Vec<u8>> = None;
        let mut place = 0;
        while let Some(rest) = bytes.get(place..).filter(|rest| !rest.is_empty()) {
            let passed = match self.at {
                At::Lost => rest.len(),
                At::Body { left, is_chunk } => self.pass(rest.len(), left, is_chunk),
                _ => {
                    let byte = rest[0];
                    if self.at == At::Request && is_foreign(byte) {
                        let out = mended.get_or_insert_with(|| bytes[..place].to_vec());
                        out.extend_from_slice(format!("%{byte:02X}").as_bytes());
                        place += 1;
                        continue;
                    }
                    self.read(byte);
                    1
                }
            };
            if let Some(out) = &mut mended {
                out.extend_from_slice(&rest[..passed]);
            }
            place += passed;
        }
        mended
    }

    /// Goes through a body of which `left` bytes are left and `here` are here; how many of these belong to it.
    fn pass(&mut self, here: usize, left: u64, is_chunk: bool) -> usize {
        let passed = left.min(here as u64);
        self.at = match (left - passed, is_chunk) {
            (0, true) => At::Chunk,
            (0, false) => At::Request,
            (left, is_chunk) => At::Body { left, is_chunk },
        };
        // It is no more than `here`.
        passed as usize
    }

    /// Reads a byte of a line.
    fn read(&mut self, byte: u8) {
        if byte != b'\n' {
            if self.line.len() < LINE_BYTES_MAX {
                self.line.push(byte);
            } else {
                self.is_line_too_long = true;
            }
            return;
        }
        let line = std::mem::take(&mut self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        let is_too_long = std::mem::take(&mut self.is_line_too_long);
        self.at = match self.at {
            At::Request | At::Trailer if line.is_empty() => At::Request,
            At::Field if line.is_empty() => self.begin_body(),
            At::Request => At::Field,
            At::Field => {
                self.length = self.length.after(line, is_too_long);
                At::Field
            }
            At::Chunk => chunk(line).map_or(At::Lost, |bytes| match bytes {
                0 => At::Trailer,
                bytes => At::Body {
                    // With the line end behind it.
                    left: bytes.saturating_add(2),
                    is_chunk: true,
                },
            }),
            other => other,
        };
    }

    fn begin_body(&mut self) -> At {
        match std::mem::take(&mut self.length) {
            Length::None | Length::Bytes(0) => At::Request,
            Length::Bytes(left) => At::Body {
                left,
                is_chunk: false,
            },
            Length::Chunks => At::Chunk,
            Length::Unclear => At::Lost,
        }
    }
}

impl Length {
    /// The length once the field `line` was read. A field of a length beside another one makes it unclear.
    fn after(self, line: &[u8], is_too_long: bool) -> Self {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        let told = if name.eq_ignore_ascii_case(b"content-length") {
            let digits = value.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(value).ok().filter(|_| digits);
            let number = text.and_then(|text| text.parse().ok());
            number.map_or(Self::Unclear, Self::Bytes)
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if value.eq_ignore_ascii_case(b"chunked") {
                Self::Chunks
            } else {
                Self::Unclear
            }
        } else {
            return self;
        };
        if self == Self::None && !is_too_long {
            told
        } else {
            Self::Unclear
        }
    }
}

/// The bytes of the chunk that `line` begins.
fn chunk(line: &[u8]) -> Option<u64> {
    let end = line.iter().position(|byte| *byte == b';');
    let digits = line[..end.unwrap_or(line.len())].trim_ascii();
    let digits = std::str::from_utf8(digits).ok()?;
    let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_hexdigit());
    is_number.then(|| u64::from_str_radix(digits, 16).ok())?
}

/// Whether a request line has no place for `byte`, and readers of URLs refuse it.
fn is_foreign(byte: u8) -> bool {
    b"\"<>\\^`{|}".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::future::poll_fn;

    /// All of `text`, mended in pieces of `size` bytes.
    fn mended(text: &str, size: usize) -> String {
        let mut requests = Requests::default();
        let pieces = text.as_bytes().chunks(size);
        let pieces = pieces.map(|piece| requests.mend(piece).unwrap_or_else(|| piece.to_vec()));
        String::from_utf8(pieces.collect::<Vec<_>>().concat()).expect("UTF-8")
    }

    const QUOTED: &str = "GET /cars/_all_docs?key=\"a\" HTTP/1.1\r\nX-Said: \"b\"\r\n";
    const ENCODED: &str = "GET /cars/_all_docs?key=%22a%22 HTTP/1.1\r\nX-Said: \"b\"\r\n";

    #[test]
    fn request_lines_are_mended_and_nothing_else() {
        let bodies = [
            ("\r\n", ""),
            ("Content-Length: 11\r\n\r\n", "{\"a\":\"\\n\"}\n"),
            (
                "transfer-encoding:  Chunked\r\n\r\n",
                "5;x=\"y\"\r\n{\"a\":\r\n4\r\n\"b\"}\r\n0\r\nX: \"c\"\r\n\r\n",
            ),
        ];
        for (fields, body) in bodies {
            for size in [1, 2, 3, 7, 1000] {
                let text = format!("{QUOTED}{fields}{body}\r\n{QUOTED}\r\n");
                let expected = format!("{ENCODED}{fields}{body}\r\n{ENCODED}\r\n");
                assert_eq!(mended(&text, size), expected, "{size}");
            }
        }
    }

    #[test]
    fn nothing_changes_where_a_body_might_end_elsewhere() {
        let long = format!("Content-Length: {}5\r\n\r\n", " ".repeat(LINE_BYTES_MAX));
        for fields in [
            "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
            "Content-Length: 2\r\nContent-Length: 2\r\n\r\n",
            "Content-Length: +2\r\n\r\n",
            "Transfer-Encoding: gzip, chunked\r\n\r\n",
            "Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
            &long,
        ] {
            let text = format!("{QUOTED}{fields}{QUOTED}\r\n");
            assert_eq!(mended(&text, 5), format!("{ENCODED}{fields}{QUOTED}\r\n"));
        }
    }

    #[tokio::test]
    async fn a_reader_with_a_small_buffer_gets_all_of_it() -> io::Result<()> {
        let text = format!("{QUOTED}\r\n");
        let mut stream = Lenient::new(text.as_bytes());
        let (mut all, mut some) = (Vec::new(), [0; 3]);
        loop {
            let mut buffer = ReadBuf::new(&mut some);
            poll_fn(|context| Pin::new(&mut stream).poll_read(context, &mut buffer)).await?;
            if buffer.filled().is_empty() {
                break;
            }
            all.extend_from_slice(buffer.filled());
        }
        assert_eq!(String::from_utf8_lossy(&all), format!("{ENCODED}\r\n"));
        Ok(())
    }

    proptest! {
        #[test]
        fn bytes_without_foreign_ones_pass_as_they_are(bytes: Vec<u8>, size in 1..20usize) {
            let plain: Vec<u8> = bytes.into_iter().filter(|byte| !is_foreign(*byte)).collect();
            let mut requests = Requests::default();
            for piece in plain.chunks(size) {
                prop_assert_eq!(requests.mend(piece), None);
            }
        }
    }
}
