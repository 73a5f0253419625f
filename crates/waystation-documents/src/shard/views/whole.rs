//! Documents as functions and clients see them: with the members that begin with an underscore.

use super::super::read::Opened;
use super::super::{Shard, Version};
use crate::error::{Error, Result};
use crate::json::quote;
use crate::revision::Revision;
use crate::views::Link;

/// Which members an answer wants beside `_id`, `_rev`, `_deleted` and `_attachments` (stubs).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Members {
    pub(crate) conflicts: bool,
    pub(crate) deleted_conflicts: bool,
    pub(crate) local_sequence: bool,
}

/// The JSON of the document `id`, opened at a version.
pub(crate) fn whole(id: &str, opened: &Opened, members: Members) -> String {
    let version = &opened.version;
    let mut out = format!(
        r#"{{"_id":{},"_rev":{}"#,
        quote(id),
        quote(&version.revision.to_string())
    );
    if version.deleted {
        out.push_str(r#","_deleted":true"#);
    }
    let body = version.body.trim_start_matches('{');
    if let Some(rest) = body.strip_suffix('}').filter(|rest| !rest.is_empty()) {
        out.push(',');
        out.push_str(rest);
    }
    if members.local_sequence {
        out.push_str(r#","_local_seq":"#);
        out.push_str(&version.sequence.to_string());
    }
    if members.conflicts {
        put_revisions(&mut out, "_conflicts", &opened.conflicts());
    }
    if members.deleted_conflicts {
        put_revisions(&mut out, "_deleted_conflicts", &opened.deleted_conflicts());
    }
    put_attachments(&mut out, version);
    out.push('}');
    out
}

fn put_revisions(out: &mut String, name: &str, revisions: &[&Revision]) {
    if revisions.is_empty() {
        return;
    }
    let revisions: Vec<String> = revisions.iter().map(|it| quote(&it.to_string())).collect();
    out.extend([",\"", name, "\":[", &revisions.join(","), "]"]);
}

fn put_attachments(out: &mut String, version: &Version) {
    if version.attachments.is_empty() {
        return;
    }
    let stub = |info: &crate::AttachmentInfo| {
        let [name, content_type] = [&info.name, &info.content_type].map(|it| quote(it));
        let (revpos, digest, length) = (info.revpos, info.digest, info.length);
        format!(
            r#"{name}:{{"content_type":{content_type},"revpos":{revpos},"digest":"{digest}","length":{length},"stub":true}}"#
        )
    };
    let stubs: Vec<String> = version.attachments.iter().map(stub).collect();
    out.extend([r#","_attachments":{"#, &stubs.join(","), "}"]);
}

impl Shard {
    /// The document that is included beside a row, as JSON, with `_conflicts` if they are wanted. `None` if it is not
    /// there or deleted. It may be in another shard than the row: the caller knows in which.
    ///
    /// # Errors
    /// [`Error::Engine`], [`Error::Damaged`].
    pub fn linked_document(&self, link: &Link, conflicts: bool) -> Result<Option<String>> {
        let opened = match &link.revision {
            None => self.open_winner(&link.id),
            Some(revision) => self.open_revision(&link.id, revision),
        };
        let members = Members {
            // A revision that is named has no conflicts: the winner has.
            conflicts: conflicts && link.revision.is_none(),
            ..Members::default()
        };
        match opened {
            Ok(opened) => Ok(Some(whole(&link.id, &opened, members))),
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
