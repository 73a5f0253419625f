//! Placement decisions as pure functions.
