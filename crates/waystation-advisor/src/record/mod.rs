//! Recording block events of the running machine, and the laboratory that gives a command three areas of its own.
//!
//! - [`tracefs`]: the kernel's own event tracing, in an instance of ours, filtered to the named devices. No blktrace,
//!   no eBPF. What the kernel lost is reported.
//! - [`session`]: a recording around a command or for a time.
//! - [`rig`]: loop devices, ext4 with an external journal, swap, a memory-limited group, always taken down again;
//!   on the machine's own disk or on an emulated one ([`emulated`]).
//! - [`live`]: real programs in the laboratory, measured and predicted.

mod calibrate;
mod emulated;
pub mod live;
pub mod rig;
mod session;
mod stop;
mod system;
mod tracefs;

pub use emulated::{CONTROL_FILE, Emulation, Image, serve as serve_emulated};
pub use session::{Recorded, Recording, record};
pub use stop::Stop;
pub(crate) use stop::remove_on_signals;
