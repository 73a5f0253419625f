//! Images of the upper level: drawn by the keeper ([`draw`]), taken by the next opening ([`load`]).
//!
//! Reading the log back takes a second for each gigabyte, and the upper level may need tens of them. So its indexes are
//! saved now and then, and an opening reads the log behind that alone. How an image is kept from telling anything but what
//! the log tells:
//!
//! - it shows the upper level at *one* sequence number: what was logged later is left out, whenever it is drawn;
//! - what had happened to devices by then is told by the device table's checkpoint, which is written after the image is drawn
//!   and before it counts; so a stay that has gone meanwhile is known by its absence there, and skipped;
//! - the log is durable through what it shows, before it counts: places in the log stay true.

mod draw;
mod load;

pub(super) use draw::Drawing;
pub(super) use load::{Spared, load};
