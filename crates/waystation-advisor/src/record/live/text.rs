//! The outcomes for a terminal.

use std::fmt::Write as _;

use super::{Live, LiveCell, SlowDevice};

/// The outcomes for a terminal.
pub fn render(outcomes: &[Live]) -> String {
    let mut text = String::new();
    for (slow, title) in [
        (
            SlowDevice::Own,
            "Live, on this machine's own disk and memory",
        ),
        (
            SlowDevice::Emulated,
            "Live, on an emulated disk (which shares the simulator's model) and this machine's memory",
        ),
    ] {
        let mut errors = Vec::new();
        for (number, outcome) in outcomes
            .iter()
            .filter(|outcome| outcome.slow() == slow)
            .enumerate()
        {
            if number == 0 {
                let _ = writeln!(text, "{title}");
            }
            write_outcome(&mut text, outcome);
            errors.extend(outcome.cells().iter().map(|cell| cell.error().abs()));
        }
        errors.sort_by(f64::total_cmp);
        if let (Some(middle), Some(last)) = (errors.get(errors.len() / 2), errors.last()) {
            let _ = writeln!(
                text,
                "  all: {} cells, median error {:.1} %, worst {:.1} %",
                errors.len(),
                middle * 100.0,
                last * 100.0
            );
        }
    }
    text
}

impl Live {
    fn slow(&self) -> SlowDevice {
        match self {
            Self::NotRun { slow, .. } | Self::Compared { slow, .. } => *slow,
        }
    }

    fn cells(&self) -> &[LiveCell] {
        match self {
            Self::NotRun { .. } => &[],
            Self::Compared { cells, .. } => cells,
        }
    }
}

fn write_outcome(text: &mut String, outcome: &Live) {
    match outcome {
        Live::NotRun {
            program, reason, ..
        } => {
            let _ = writeln!(text, "  {program}: not run: {reason}");
        }
        Live::Compared {
            program,
            cells,
            advised,
            regret,
            ..
        } => {
            let _ = writeln!(
                text,
                "  {program}: advised {advised}, regret {:.1} %",
                regret * 100.0
            );
            for cell in cells {
                let failed = match cell.failed_runs {
                    0 => String::new(),
                    count => format!("  ({count} runs failed)"),
                };
                let _ = writeln!(
                    text,
                    "    {:<12} predicted {:>6.2} s  measured {:>6.2} .. {:>5.2} s  {:>+6.1} %{failed}",
                    cell.fast,
                    cell.predicted_s,
                    cell.measured_s,
                    cell.measured_max_s,
                    cell.error() * 100.0
                );
            }
        }
    }
}
