//! A directory as bytes: read from a simulated machine, changed, and put onto another.

use std::path::Path;
use std::sync::Arc;
use waystation::storage::{Area, OpenMode, SimStorage, Storage, Transfer};
use waystation::{Error, Result};

/// The files of a directory, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    /// Names and contents, in the order of the names.
    pub files: Vec<(String, Vec<u8>)>,
}

impl Image {
    /// Reads every file of `dir`.
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<Self> {
        let mut files = Vec::new();
        for entry in storage.list(dir)? {
            if !entry.is_dir {
                let content = read_file(storage, &dir.join(&entry.name))?;
                files.push((entry.name, content));
            }
        }
        files.sort();
        Ok(Self { files })
    }

    /// Writes every file into `dir` on a new simulated machine.
    pub fn boot(&self, dir: &Path) -> Result<Arc<SimStorage>> {
        let storage = SimStorage::new(7);
        storage.create_dir(dir)?;
        for (name, content) in &self.files {
            write_file(&*storage, &dir.join(name), content)?;
        }
        storage.sync_dir(dir)?;
        Ok(storage)
    }

    /// The content of a file, if there is one of that name.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        let found = self.files.iter().find(|(other, _)| other == name);
        found.map(|(_, content)| &content[..])
    }

    /// The same with other content in one file.
    #[must_use]
    pub fn with(&self, name: &str, content: Vec<u8>) -> Self {
        let mut image = self.clone();
        image.files.retain(|(other, _)| other != name);
        image.files.push((name.to_owned(), content));
        image
    }
}

/// The whole content of a file.
pub fn read_file(storage: &dyn Storage, path: &Path) -> Result<Vec<u8>> {
    let file = storage.open(path, OpenMode::Read, Transfer::Buffered, Area::Tables)?;
    let mut content = vec![0; usize::try_from(file.size()?).unwrap_or(usize::MAX)];
    let read = file.read_at(&mut content, 0)?;
    if read == content.len() {
        Ok(content)
    } else {
        Err(Error::corruption(
            path,
            read as u64,
            "it is shorter than its length",
        ))
    }
}

/// Makes a file of `content`, synced.
pub fn write_file(storage: &dyn Storage, path: &Path, content: &[u8]) -> Result<()> {
    let file = storage.open(path, OpenMode::Create, Transfer::Buffered, Area::Tables)?;
    file.write_at(content, 0)?;
    file.sync()
}
