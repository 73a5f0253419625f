//! A document as its clients read it: the body with special members before it.

use crate::attachment::AttachmentInfo;
use crate::json::quote;
use crate::revision::Revision;
use crate::shard::Opened;
use crate::tree::RevisionTree;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fmt::Write;

/// How the bytes of an attachment are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shown {
    /// Not at all.
    Stub,
    /// As base64 in the document.
    Data(Vec<u8>),
    /// They follow behind the document.
    Follows,
}

/// Which special members are wanted beside `_id`, `_rev`, `_deleted` and `_attachments`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a parameter of a request"
)]
pub struct Rendering {
    /// `_revisions`: the history of the version.
    pub revisions: bool,
    /// `_revs_info`: the same, with what is stored of each.
    pub revisions_info: bool,
    /// `_conflicts`: leaves in conflict.
    pub conflicts: bool,
    /// `_deleted_conflicts`: leaves that are deleted.
    pub deleted_conflicts: bool,
    /// `_local_seq`: the update sequence of the version.
    pub local_sequence: bool,
    /// How attachments are shown, in the version's order; stubs, if it is shorter than that.
    pub attachments: Vec<Shown>,
}

/// The document `id` as canonical JSON.
pub fn render(id: &str, opened: &Opened, rendering: &Rendering) -> String {
    let version = &opened.version;
    let mut out = String::with_capacity(version.body.len() + 128);
    let revision = &version.revision;
    write_member(&mut out, "_id", &quote(id));
    write_member(&mut out, "_rev", &quote(&revision.to_string()));
    if version.deleted {
        write_member(&mut out, "_deleted", "true");
    }
    let fields = version.body.trim_start_matches('{').trim_end();
    let fields = fields.strip_suffix('}').unwrap_or(fields);
    if !fields.is_empty() {
        out.push(',');
        out.push_str(fields);
    }
    if !version.attachments.is_empty() {
        let attachments = attachments(&version.attachments, &rendering.attachments);
        write_member(&mut out, "_attachments", &attachments);
    }
    let path = opened.tree.path(revision);
    if rendering.revisions {
        write_member(&mut out, "_revisions", &revisions(&path));
    }
    if rendering.revisions_info {
        write_member(&mut out, "_revs_info", &revisions_info(&opened.tree, &path));
    }
    if rendering.local_sequence {
        write_member(&mut out, "_local_seq", &version.sequence.to_string());
    }
    for (is_wanted, name, leaves) in [
        (rendering.conflicts, "_conflicts", opened.conflicts()),
        (
            rendering.deleted_conflicts,
            "_deleted_conflicts",
            opened.deleted_conflicts(),
        ),
    ] {
        if is_wanted && !leaves.is_empty() {
            let names = leaves.iter().map(|leaf| quote(&leaf.to_string()));
            write_member(&mut out, name, &array(names));
        }
    }
    out.push('}');
    out
}

fn write_member(out: &mut String, name: &str, value: &str) {
    out.push(if out.is_empty() { '{' } else { ',' });
    // Writing into a string cannot fail.
    let _ = write!(out, "\"{name}\":{value}");
}

/// A JSON array of texts that are JSON.
pub fn array(texts: impl IntoIterator<Item = String>) -> String {
    let texts: Vec<String> = texts.into_iter().collect();
    format!("[{}]", texts.join(","))
}

/// `_revisions` of a version with this history, newest first.
pub(crate) fn revisions(path: &[&Revision]) -> String {
    let start = path.first().map_or(0, |revision| revision.generation);
    let ids = path.iter().map(|revision| quote(&revision.id.to_string()));
    format!("{{\"start\":{start},\"ids\":{}}}", array(ids))
}

fn revisions_info(tree: &RevisionTree, path: &[&Revision]) -> String {
    array(path.iter().map(|revision| {
        let status = match tree.stored(revision).flatten() {
            Some(stored) if stored.deleted => "deleted",
            Some(_) => "available",
            None => "missing",
        };
        let name = quote(&revision.to_string());
        format!("{{\"rev\":{name},\"status\":\"{status}\"}}")
    }))
}

fn attachments(infos: &[AttachmentInfo], shown: &[Shown]) -> String {
    let mut out = String::from("{");
    for (at, info) in infos.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        let (name, content_type) = (quote(&info.name), quote(&info.content_type));
        let digest = quote(&info.digest.to_string());
        // Writing into a string cannot fail.
        let _ = write!(
            out,
            "{name}:{{\"content_type\":{content_type},\"revpos\":{},\"digest\":{digest},",
            info.revpos
        );
        let length = info.length;
        let _ = match shown.get(at).unwrap_or(&Shown::Stub) {
            Shown::Stub => write!(out, "\"length\":{length},\"stub\":true}}"),
            Shown::Data(bytes) => write!(out, "\"data\":\"{}\"}}", STANDARD.encode(bytes)),
            Shown::Follows => write!(out, "\"length\":{length},\"follows\":true}}"),
        };
    }
    out.push('}');
    out
}
