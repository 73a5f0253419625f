//! Progress of long work, on standard error, where that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// What a bar counts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unit {
    /// Bytes of a known total.
    Bytes,
    /// Entries, without a known total.
    Entries,
}

/// A bar of `total` steps (0: unknown) that says what is going on. Invisible if `quiet`, or off a terminal.
pub(crate) fn bar(what: &'static str, unit: Unit, total: u64, quiet: bool) -> ProgressBar {
    let target = if quiet {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let bar = ProgressBar::with_draw_target((total > 0).then_some(total), target);
    let template = match (unit, total) {
        (Unit::Bytes, 1..) => {
            "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} ({decimal_bytes_per_sec}, {eta} left)"
        }
        (Unit::Bytes, 0) => "{msg} {spinner} {decimal_bytes} ({decimal_bytes_per_sec})",
        (Unit::Entries, _) => "{msg} {spinner} {human_pos} entries ({per_sec})",
    };
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style);
    bar.set_message(what);
    bar
}

/// A sign of life for work whose steps are not seen from here.
pub(crate) fn spinner(what: &'static str, quiet: bool) -> ProgressBar {
    let target = if quiet {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let bar = ProgressBar::with_draw_target(None, target);
    let style = ProgressStyle::with_template("{msg} {spinner} {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
    bar.set_message(what);
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
