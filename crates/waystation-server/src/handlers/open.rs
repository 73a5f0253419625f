//! Documents on their way out: which members and attachments a request wants.

use crate::failure::{Failure, Outcome};
use crate::handlers::maintenance::revisions_of;
use crate::multipart;
use crate::query::Query;
use waystation_documents::json::{Json, Kind};
use waystation_documents::shard::Opened;
use waystation_documents::{Database, Rendering, Revision, Shown, render};

/// How often the bytes of an attachment are in memory while an answer is made: as they are, and in two longer texts.
const COPIES: u64 = 4;

/// What a request wants of documents.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    rendering: Rendering,
    /// Attachments with their bytes.
    pub(crate) attachments: bool,
    /// Of these, only those that are newer than all of these revisions.
    since: Vec<Revision>,
}

impl Wanted {
    pub(crate) fn parse(query: &Query) -> Outcome<Self> {
        let meta = query.is_true("meta");
        let since = match query.json("atts_since")? {
            Some(text) => revisions_in(&text)?,
            None => Vec::new(),
        };
        Ok(Self {
            rendering: Rendering {
                revisions: query.is_true("revs"),
                revisions_info: meta || query.is_true("revs_info"),
                conflicts: meta || query.is_true("conflicts"),
                deleted_conflicts: meta || query.is_true("deleted_conflicts"),
                local_sequence: query.is_true("local_seq"),
                attachments: Vec::new(),
            },
            attachments: query.is_true("attachments") || !since.is_empty(),
            since,
        })
    }

    /// What is wanted of documents beside the rows of a view.
    pub(crate) fn beside_rows(conflicts: bool, attachments: bool) -> Self {
        let rendering = Rendering {
            conflicts,
            ..Rendering::default()
        };
        Self {
            rendering,
            attachments,
            since: Vec::new(),
        }
    }

    /// The same with the revisions since which attachments are wanted.
    pub(crate) fn since(&self, since: Vec<Revision>) -> Self {
        let attachments = self.attachments || !since.is_empty();
        let rendering = self.rendering.clone();
        Self {
            rendering,
            attachments,
            since,
        }
    }

    /// Whether only what the revision's name vouches for is wanted.
    pub(crate) fn is_plain(&self) -> bool {
        self.rendering == Rendering::default()
    }

    /// Which attachments are wanted with their bytes, in the version's order.
    fn with_bytes(&self, opened: &Opened) -> Vec<bool> {
        let path = opened.tree.path(&opened.version.revision);
        let known = self.since.iter().filter(|since| path.contains(since));
        let newest = known.map(|since| since.generation).max().unwrap_or(0);
        let infos = opened.version.attachments.iter();
        infos
            .map(|info| self.attachments && info.revpos > newest)
            .collect()
    }

    /// The memory that the document's attachments take while an answer with them is made (bytes).
    pub(crate) fn attachment_bytes(&self, opened: &Opened) -> u64 {
        let infos = opened.version.attachments.iter();
        let wanted = infos.zip(self.with_bytes(opened));
        let lengths = wanted.map(|(info, is_wanted)| if is_wanted { info.length } else { 0 });
        COPIES * lengths.sum::<u64>()
    }

    /// The document as JSON, attachments within it.
    pub(crate) fn json(&self, database: &Database, id: &str, opened: &Opened) -> Outcome<String> {
        let mut rendering = self.rendering.clone();
        for (info, is_wanted) in opened
            .version
            .attachments
            .iter()
            .zip(self.with_bytes(opened))
        {
            rendering.attachments.push(if is_wanted {
                Shown::Data(database.attachment(id, info)?)
            } else {
                Shown::Stub
            });
        }
        Ok(render(id, opened, &rendering))
    }

    /// Adds the document to a body of several: alone, or with the attachments that are wanted behind it.
    pub(crate) fn part(
        &self,
        writer: &mut multipart::Writer,
        database: &Database,
        id: &str,
        opened: &Opened,
    ) -> Outcome<()> {
        if let Some((content_type, body)) = self.related(database, id, opened)? {
            writer.part(&format!("Content-Type: {content_type}\r\n"), &body);
        } else {
            let text = self.json(database, id, opened)?;
            writer.part("Content-Type: application/json\r\n", text.as_bytes());
        }
        Ok(())
    }

    /// The document in parts, attachments behind it: the type and the body. `None` if no attachment is wanted.
    pub(crate) fn related(
        &self,
        database: &Database,
        id: &str,
        opened: &Opened,
    ) -> Outcome<Option<(String, Vec<u8>)>> {
        let with_bytes = self.with_bytes(opened);
        if !with_bytes.contains(&true) {
            return Ok(None);
        }
        let mut rendering = self.rendering.clone();
        let mut follow = Vec::new();
        for (info, is_wanted) in opened.version.attachments.iter().zip(with_bytes) {
            rendering.attachments.push(if is_wanted {
                Shown::Follows
            } else {
                Shown::Stub
            });
            if is_wanted {
                follow.push((info, database.attachment(id, info)?));
            }
        }
        let text = render(id, opened, &rendering);
        let follow: Vec<(&str, &str, &[u8])> = follow
            .iter()
            .map(|(info, bytes)| {
                (
                    info.name.as_str(),
                    info.content_type.as_str(),
                    bytes.as_slice(),
                )
            })
            .collect();
        Ok(Some(multipart::related(&text, &follow)))
    }
}

/// The revisions in a JSON array.
pub(crate) fn revisions_in(text: &str) -> Outcome<Vec<Revision>> {
    let json = Json::new(text);
    if json.kind() != Kind::Array {
        return Err(Failure::bad_request("Invalid rev list"));
    }
    revisions_of(json)
}
