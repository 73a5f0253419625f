//! The subcommands: what is run in which order, and what becomes of the figures.

mod compare;
mod db;
mod deletions;
mod depart;
mod documents;
mod drives;
mod iot;
mod offload;
mod placement;
mod plot;
mod reopen;
mod series;
mod serve;
mod stalls;
mod ycsb;

pub(crate) use compare::compare;
pub(crate) use db::db;
pub(crate) use depart::depart;
pub(crate) use documents::documents;
pub(crate) use drives::drives;
pub(crate) use iot::iot;
pub(crate) use offload::offload;
pub(crate) use placement::placement;
pub(crate) use plot::plot;
pub(crate) use reopen::reopen;
pub(crate) use serve::serve;
pub(crate) use stalls::stalls;
pub(crate) use ycsb::ycsb;

use indicatif::{ProgressBar, ProgressStyle};

/// Progress on the terminal, if there is one.
fn progress_bar(steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    let style = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
