//! The validation as tables for a terminal.

use std::fmt::Write as _;

use super::{Cell, Choice, HeldOut, Validation, quantile};

impl Validation {
    /// The tables for a terminal.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (title, cells) in [
            ("Whole areas", &self.whole),
            ("Parts of areas (first touch)", &self.capacity),
        ] {
            let _ = writeln!(
                text,
                "{title}: seconds, predicted from the all-slow trace and measured (fastest .. slowest run)"
            );
            write_cells(&mut text, cells);
            let _ = writeln!(text, "  {}\n", errors(cells));
        }
        text.push_str("Which area to make fast\n");
        write_choices(&mut text, &self.choices);
        if let Some((split, single)) = self.split_s {
            let _ = writeln!(
                text,
                "\nSQLite ordered, 20 MB as 6 MiB journal and hot blocks: {split:.1} s simulated; best single area of any size {single:.1} s: {:.1} times as fast",
                single / split
            );
        }
        for reason in &self.left_out {
            let _ = writeln!(text, "left out: {reason}");
        }
        text
    }
}

impl HeldOut {
    /// The tables for a terminal.
    pub fn to_text(&self) -> String {
        let mut text =
            "Held out: constants fitted on the other applications only, then this one predicted\n"
                .to_owned();
        for fold in &self.folds {
            let _ = writeln!(
                text,
                "  {:<14} path {:.0} us, command {:.0} us, fast path {:.0} us, {}: mean error of the others {:.1} %, its own {:.1} %",
                fold.application,
                fold.path_us,
                fold.command_us,
                fold.fast_path_us,
                if fold.write_back_causes {
                    "write-back causes"
                } else {
                    "write-back causes nothing"
                },
                fold.others_error * 100.0,
                fold.own_error * 100.0,
            );
        }
        let _ = writeln!(text, "  whole areas: {}", errors(&self.whole));
        let _ = writeln!(text, "  parts of areas: {}", errors(&self.capacity));
        write_choices(&mut text, &self.choices);
        text
    }
}

fn errors(cells: &[Cell]) -> String {
    format!(
        "{} cells, median error {:.1} %, 90 % below {:.1} %, worst {:.1} %",
        cells.len(),
        quantile(cells, 0.5) * 100.0,
        quantile(cells, 0.9) * 100.0,
        quantile(cells, 1.0) * 100.0
    )
}

fn write_cells(text: &mut String, cells: &[Cell]) {
    for cell in cells {
        let size = cell
            .fast_mib
            .map_or_else(|| "whole".to_owned(), |mib| format!("{mib} MiB"));
        let _ = writeln!(
            text,
            "  {:<14} {:<8} {:<8} {:>7}  {:>6.1}  {:>6.1} ..{:>5.1}  {:>+6.1} %",
            cell.application,
            cell.mode,
            cell.fast,
            size,
            cell.predicted_s,
            cell.measured_s,
            cell.measured_max_s,
            cell.error * 100.0
        );
    }
}

fn write_choices(text: &mut String, choices: &[Choice]) {
    for choice in choices {
        let _ = writeln!(
            text,
            "  {:<14} {:<8} advised {:<8} measured best {:<8} regret {:.1} %",
            choice.application,
            choice.mode,
            choice.advised,
            choice.best,
            choice.regret * 100.0
        );
    }
    let highest = choices
        .iter()
        .map(|choice| choice.regret)
        .fold(0.0, f64::max);
    let _ = writeln!(
        text,
        "  {} choices, highest top-1 regret {:.1} %",
        choices.len(),
        highest * 100.0
    );
}
