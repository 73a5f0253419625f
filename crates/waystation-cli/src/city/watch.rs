//! A run as it is seen on a terminal; and Ctrl-C, which ends it at the next step, with report and audit.

use super::drive::Watch;
use super::error::CityError;
use super::meters::Counts;
use crate::output::count_text;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The exit status that shells give for an interrupt.
const EXIT_INTERRUPTED: i32 = 130;

static IS_STOPPED: AtomicBool = AtomicBool::new(false);

/// From here on Ctrl-C ends the run gracefully; a second one ends the process.
pub(crate) fn catch_interrupts() -> Result<(), CityError> {
    ctrlc::set_handler(|| {
        if IS_STOPPED.swap(true, Ordering::SeqCst) {
            std::process::exit(EXIT_INTERRUPTED);
        }
        eprintln!("stopping: audit and report follow; once more to end at once");
    })
    .map_err(|error| CityError::Usage(format!("Ctrl-C cannot be handled: {error}")))
}

/// Whether somebody wants the run to end.
pub(crate) fn is_stopped() -> bool {
    IS_STOPPED.load(Ordering::SeqCst)
}

/// A bar that counts the city's seconds.
pub(crate) struct Bar {
    bar: ProgressBar,
    engine: &'static str,
}

impl Bar {
    /// A bar for a run of `seconds` on `engine`; invisible if `quiet`, or off a terminal.
    pub(crate) fn new(engine: &'static str, seconds: u32, quiet: bool) -> Self {
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(Some(u64::from(seconds)), target);
        let template = "{prefix} {wide_bar} {msg} [{elapsed}, {eta} left]";
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(engine);
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, engine }
    }
}

impl Watch for Bar {
    fn tick(&mut self, now: u32, vehicles: usize, counts: &Counts) {
        let (minutes, seconds) = (now / 60, now % 60);
        self.bar.set_position(u64::from(now));
        self.bar.set_message(format!(
            "{minutes}:{seconds:02} in the city, {} vehicles, {} readings, {} hand-offs",
            count_text(vehicles as u64),
            count_text(counts.readings),
            count_text(counts.hand_offs),
        ));
    }

    fn say(&mut self, what: &'static str) {
        self.bar.set_prefix(if what.is_empty() {
            self.engine.to_owned()
        } else {
            format!("{}: {what}", self.engine)
        });
    }

    fn is_stopped(&self) -> bool {
        is_stopped()
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
