//! The directory of a database: the names of its files, small files that are replaced at once, and directories that
//! are made of others.
//!
//! All rooms that keep a file take its name from here, so that one table says which files a directory may have.

mod destroy;
mod files;
mod job;
mod names;
mod unfinished;

pub(crate) use destroy::destroy;
pub(crate) use files::{read_file, replace_file};
pub(crate) use job::{JobDirectory, remove_job_directories};
pub(crate) use names::*;
pub(crate) use unfinished::{Unfinished, refuse_used, sync_parent};
