//! Writes an index snapshot, part by part.

use super::section::{Head, Versions, put_part};
use super::{End, FRAME_BYTES, Header, SECTION_BYTES, section_checksum};
use crate::devices::index::{Entry, Window};
use crate::directory::INDEX_SNAPSHOT_DRAFT;
use crate::error::Result;
use crate::storage::{Output, Storage};
use std::path::Path;

/// Writes an index snapshot under the name of its draft.
pub(crate) struct SnapshotWriter {
    output: Output,
    /// Where in the file the section begins that is being filled.
    offset: u64,
    section: Vec<u8>,
    versions: Versions,
    through: u64,
    end: End,
}

impl SnapshotWriter {
    /// Begins an index snapshot in `dir`.
    pub(crate) fn create(storage: &dyn Storage, dir: &Path, header: &Header) -> Result<Self> {
        let mut output = Output::create(storage, &dir.join(INDEX_SNAPSHOT_DRAFT))?;
        let bytes = header.encode();
        output.append(&bytes)?;
        Ok(Self {
            output,
            offset: bytes.len() as u64,
            section: Vec::new(),
            versions: Versions::default(),
            through: header.through,
            end: End::default(),
        })
    }

    /// Appends those of `versions` that the index snapshot is to show, as a part of `head`'s residency or several.
    pub(crate) fn add(&mut self, head: &Head<'_>, versions: &Window) -> Result<()> {
        let through = self.through;
        let is_shown = |(_, entry): &(&[u8], &Entry)| entry.sequence <= through;
        for (key, entry) in versions.iter().filter(is_shown) {
            self.versions.push(key, entry);
            if self.versions.bytes() >= SECTION_BYTES {
                self.end_part(head)?;
            }
        }
        self.end_part(head)
    }

    fn end_part(&mut self, head: &Head<'_>) -> Result<()> {
        put_part(&mut self.section, head, &self.versions);
        self.end.parts += 1;
        self.end.versions += self.versions.len();
        self.versions.clear();
        if self.section.len() >= SECTION_BYTES {
            self.end_section()?;
        }
        Ok(())
    }

    fn end_section(&mut self) -> Result<()> {
        let section = std::mem::take(&mut self.section);
        self.frame(section.len() as u32, &section)?;
        self.section = section;
        self.section.clear();
        Ok(())
    }

    fn frame(&mut self, length: u32, content: &[u8]) -> Result<()> {
        let checksum = section_checksum(content, self.offset);
        self.output.append(&length.to_le_bytes())?;
        self.output.append(&checksum.to_le_bytes())?;
        self.output.append(content)?;
        self.offset += (FRAME_BYTES + content.len()) as u64;
        Ok(())
    }

    /// Completes it and makes its content durable. Up to `needless` all that is not of the upper level is in tables.
    pub(crate) fn finish(mut self, needless: u64) -> Result<()> {
        if !self.section.is_empty() {
            self.end_section()?;
        }
        self.end.needless = needless;
        let end = self.end.encode();
        self.frame(0, &end)?;
        self.output.finish()?;
        Ok(())
    }
}
