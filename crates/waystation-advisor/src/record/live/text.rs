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
        let mut worst_regret = 0.0_f64;
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
            worst_regret = worst_regret.max(outcome.regret());
        }
        errors.sort_by(f64::total_cmp);
        if let (Some(middle), Some(last)) = (errors.get(errors.len() / 2), errors.last()) {
            let _ = writeln!(
                text,
                "  all: {} cells, median error {:.1} %, worst {:.1} %; highest top-1 regret {:.1} %\n",
                errors.len(),
                middle * 100.0,
                last * 100.0,
                worst_regret * 100.0
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

    fn regret(&self) -> f64 {
        match self {
            Self::NotRun { .. } => 0.0,
            Self::Compared { regret, .. } => *regret,
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
            best,
            regret,
            told_apart,
            ..
        } => {
            let _ = writeln!(
                text,
                "  {program}: advised {advised}, measured best {best}, top-1 regret {:.1} %; seconds, measured as median (fastest .. slowest)",
                regret * 100.0
            );
            if *regret > 0.0 && !told_apart {
                let _ = writeln!(
                    text,
                    "    (runs with {advised} fast and with {best} fast overlap: they do not tell which is better)"
                );
            }
            for cell in cells {
                let _ = writeln!(
                    text,
                    "    {:<12} predicted {:>6.2} s  measured {:>6.2} s ({:.2} .. {:.2} in {} runs)  {:>+6.1} %{}",
                    cell.fast,
                    cell.predicted_s,
                    cell.measured_s,
                    cell.measured_min_s,
                    cell.measured_max_s,
                    cell.runs,
                    cell.error() * 100.0,
                    incidents(cell)
                );
            }
        }
    }
}

/// What else there is to know of the runs.
fn incidents(cell: &LiveCell) -> String {
    let mut text = String::new();
    if cell.failed_runs > 0 {
        let _ = write!(text, "  {} more runs failed", cell.failed_runs);
    }
    if cell.out_of_memory > 0 {
        let _ = write!(text, "  group out of memory {} times", cell.out_of_memory);
    }
    text
}
