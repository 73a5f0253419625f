//! A slow device that the machine does not have, for the laboratory: the images of its areas on one emulated disk.
//!
//! ```text
//!   /dev/loopA /dev/loopB /dev/loopC      direct I/O
//!     fs.img   journal.img  swap.img      files of a FUSE file system, one process behind it
//!            \     |     /
//!           one device model              answers each request when the model's device would have
//!                  |
//!           files in memory               hold the data
//! ```
//! The kernels at hand have no device-mapper and no network block device, so the delay has to come from user space.
//! The process speaks the kernel's protocol itself ([`protocol`]); the model is the simulator's ([`crate::simulate`]),
//! without its software path, in whose place the real one stands. Writing `1` to the file [`CONTROL_FILE`] begins to
//! delay requests: preparing costs no time.

mod protocol;
mod server;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::simulate::DeviceModel;

pub use server::serve;

/// Its first byte says whether requests are delayed (`1`) or not (`0`).
pub const CONTROL_FILE: &str = "timed";

/// What the process is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Emulation {
    /// Where to mount it.
    pub mount: PathBuf,
    /// The one device behind all images.
    pub model: DeviceModel,
    /// Its files.
    pub images: Vec<Image>,
}

/// One file of the emulated device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Image {
    /// Its name below the mount point.
    pub name: String,
    /// Where it begins on the device.
    pub base: u64,
    /// Its length.
    pub bytes: u64,
    /// The file that holds its data.
    pub data: PathBuf,
}
