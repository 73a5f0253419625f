//! What stands in for LevelDB where it is not installed: nothing can be opened.

use crate::{Operation, Settings};
use std::convert::Infallible;
use std::path::Path;

/// A LevelDB database; here there is none.
#[derive(Debug)]
pub struct LevelDb(Infallible);

impl LevelDb {
    /// Fails, and says what to install.
    pub fn open(_: &Path, _: Settings) -> Result<Self, String> {
        Err("libleveldb is not installed (apt-get install libleveldb-dev)".to_owned())
    }

    /// Never called.
    pub fn write(&self, _: &[Operation], _: bool) -> Result<(), String> {
        match self.0 {}
    }

    /// Never called.
    pub fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, String> {
        match self.0 {}
    }

    /// Never called.
    pub fn entries(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, String> {
        match self.0 {}
    }

    /// Never called.
    pub fn entries_backwards(&self) -> Result<Vec<(Vec<u8>, Vec<u8>)>, String> {
        match self.0 {}
    }

    /// Never called.
    pub fn seek(&self, _: &[u8]) -> Result<Option<(Vec<u8>, Vec<u8>)>, String> {
        match self.0 {}
    }

    /// Never called.
    pub fn compact(&self) {
        match self.0 {}
    }

    /// Never called.
    pub fn files_at_level(&self, _: usize) -> usize {
        match self.0 {}
    }
}
