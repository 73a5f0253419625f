//! Several parts in one body: a document with its attachments (`multipart/related`), and several documents
//! (`multipart/mixed`).

use crate::failure::{Failure, Outcome};
use crate::request::gunzip;
use crate::uuids::{hex, random};
use waystation_documents::{Document, Given};

/// A part that was received.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    /// Names in lower case, and values.
    headers: Vec<(String, String)>,
    pub(crate) body: &'a [u8],
}

impl Part<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The name of the file that the part is said to be.
    fn file_name(&self) -> Option<&str> {
        let disposition = self.header("content-disposition")?;
        let (_, rest) = disposition.split_once("filename=")?;
        let name = rest.split(';').next().unwrap_or(rest);
        Some(name.trim().trim_matches('"'))
    }
}

/// What separates the parts of a body of the type `content_type`.
pub(crate) fn boundary(content_type: &str) -> Outcome<&str> {
    let found = content_type
        .split(';')
        .find_map(|it| it.trim().strip_prefix("boundary="));
    let boundary = found
        .map(|it| it.trim_matches('"'))
        .filter(|it| !it.is_empty());
    boundary.ok_or_else(|| Failure::bad_request("the multipart body has no boundary"))
}

/// The parts of `body`.
pub(crate) fn parts<'a>(body: &'a [u8], boundary: &str) -> Outcome<Vec<Part<'a>>> {
    let cut = || Failure::bad_request("the multipart body is cut or malformed");
    let first = format!("--{boundary}");
    let next = format!("\r\n--{boundary}");
    let begin = find(body, first.as_bytes()).ok_or_else(cut)?;
    let mut rest = &body[begin + first.len()..];
    let mut parts = Vec::new();
    while !rest.starts_with(b"--") {
        let line = find(rest, b"\r\n").ok_or_else(cut)?;
        rest = &rest[line + 2..];
        // A part without headers begins with an empty line.
        let (head, body) = if let Some(body) = rest.strip_prefix(b"\r\n") {
            (&rest[..0], body)
        } else {
            let end = find(rest, b"\r\n\r\n").ok_or_else(cut)?;
            (&rest[..end], &rest[end + 4..])
        };
        let end = find(body, next.as_bytes()).ok_or_else(cut)?;
        parts.push(Part {
            headers: headers(head),
            body: &body[..end],
        });
        rest = &body[end + next.len()..];
    }
    Ok(parts)
}

fn headers(head: &[u8]) -> Vec<(String, String)> {
    let text = String::from_utf8_lossy(head);
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
    };
    text.split("\r\n").filter_map(header).collect()
}

fn find(body: &[u8], wanted: &[u8]) -> Option<usize> {
    body.windows(wanted.len())
        .position(|window| window == wanted)
}

/// The document in the first of `parts`, with the attachments that follow: by their names, or in its order.
pub(crate) fn document(parts: &[Part<'_>], limit: usize) -> Outcome<Document> {
    let missing =
        || Failure::bad_request("the multipart body has fewer parts than its document says");
    let (first, rest) = parts.split_first().ok_or_else(missing)?;
    let mut document = Document::parse(first.body)?;
    let mut in_order = rest.iter().filter(|part| part.file_name().is_none());
    for attachment in &mut document.attachments {
        let Given::Follows(length) = attachment.content else {
            continue;
        };
        let by_name = rest
            .iter()
            .find(|part| part.file_name() == Some(&attachment.name));
        let part = by_name.or_else(|| in_order.next()).ok_or_else(missing)?;
        let bytes = match part.header("content-encoding") {
            Some("gzip") => gunzip(part.body, limit)?,
            _ => part.body.to_vec(),
        };
        if bytes.len() as u64 != length {
            let name = &attachment.name;
            return Err(Failure::bad_request(format!(
                "the attachment {name} has {} bytes, and not the {length} of its document",
                bytes.len()
            )));
        }
        attachment.content = Given::Bytes(bytes);
    }
    Ok(document)
}

/// A body that is being put together.
pub(crate) struct Writer {
    boundary: String,
    body: Vec<u8>,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self {
            boundary: hex(&random::<16>()),
            body: Vec::new(),
        }
    }

    /// Adds a part with `headers`, each with its line's end.
    pub(crate) fn part(&mut self, headers: &str, body: &[u8]) {
        let lead = if self.body.is_empty() { "" } else { "\r\n" };
        let head = format!("{lead}--{}\r\n{headers}\r\n", self.boundary);
        self.body.extend_from_slice(head.as_bytes());
        self.body.extend_from_slice(body);
    }

    /// The type of the body, of the kind `related` or `mixed`, and the body.
    pub(crate) fn finish(mut self, kind: &str) -> (String, Vec<u8>) {
        let lead = if self.body.is_empty() { "" } else { "\r\n" };
        let tail = format!("{lead}--{}--", self.boundary);
        self.body.extend_from_slice(tail.as_bytes());
        let content_type = format!("multipart/{kind}; boundary=\"{}\"", self.boundary);
        (content_type, self.body)
    }
}

/// A document with the attachments that follow it, in their order: name, type and bytes.
pub(crate) fn related(text: &str, attachments: &[(&str, &str, &[u8])]) -> (String, Vec<u8>) {
    let mut writer = Writer::new();
    writer.part("Content-Type: application/json\r\n", text.as_bytes());
    for (name, content_type, bytes) in attachments {
        let name = in_header(name);
        let (content_type, length) = (in_header(content_type), bytes.len());
        let headers = format!(
            "Content-Disposition: attachment; filename=\"{name}\"\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n"
        );
        writer.part(&headers, bytes);
    }
    writer.finish("related")
}

/// What of `text` can stand in a header.
fn in_header(text: &str) -> String {
    text.chars()
        .filter(|it| !it.is_control() && *it != '"')
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() -> Outcome<()> {
        let text = r#"{"_id":"a","_attachments":{"x":{"follows":true,"length":3},"y":{"follows":true,"length":0}}}"#;
        let (content_type, body) =
            related(text, &[("y", "text/plain", b""), ("x", "a/b", b"\r\n-")]);
        let parts = parts(&body, boundary(&content_type)?)?;
        assert_eq!(parts.len(), 3);
        let document = document(&parts, 100)?;
        assert_eq!(
            document.attachments[0].content,
            Given::Bytes(b"\r\n-".to_vec())
        );
        assert_eq!(document.attachments[1].content, Given::Bytes(Vec::new()));
        Ok(())
    }

    #[test]
    fn parts_without_names_are_taken_in_order() -> Outcome<()> {
        let body = b"--b\r\n\r\n{\"_attachments\":{\"x\":{\"follows\":true,\"length\":1}}}\r\n--b\r\n\r\nz\r\n--b--";
        let document = document(&parts(body, "b")?, 100)?;
        assert_eq!(document.attachments[0].content, Given::Bytes(b"z".to_vec()));
        Ok(())
    }

    #[test]
    fn malformed_bodies_are_refused() -> Outcome<()> {
        for body in [
            "",
            "x",
            "--b",
            "--b\r\n",
            "--b\r\nx",
            "--b\r\n\r\nx",
            "--b\r\na: b\r\n\r\nx\r\n--c--",
        ] {
            assert!(parts(body.as_bytes(), "b").is_err(), "{body}");
        }
        assert!(boundary("multipart/related").is_err());
        let short = b"--b\r\n\r\n{\"_attachments\":{\"x\":{\"follows\":true,\"length\":2}}}\r\n--b\r\n\r\nz\r\n--b--";
        assert!(document(&parts(short, "b")?, 100).is_err());
        assert!(document(&parts(b"--b--", "b")?, 100).is_err());
        Ok(())
    }
}
