//! Which tables are merged when the engine has fewer inputs than a compaction of level 0 has tables.
//!
//! Tables of level 0 overlap each other, so each needs an input of its own; those of the next level follow each other on
//! one input. With n inputs and m > n - 1 tables of level 0, groups of ceil(m/n) of them (at least two, at most n) are merged into
//! tables that live in the drive's memory only, until n - 1 are left; these are merged with the next level.

/// What a merge takes and gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Its inputs.
    pub inputs: Vec<Source>,
    /// Whether the result stays in memory, for a later stage.
    pub to_memory: bool,
}

/// An input of a merge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A table of the upper level, by its number in the job.
    Upper(usize),
    /// The tables of the next level, one behind the other.
    Lower,
    /// What that stage left in memory.
    Staged(usize),
}

/// The merges of a job with `upper` tables that overlap each other, by an engine with `inputs` inputs.
pub fn plan(upper: usize, has_lower: bool, inputs: usize) -> Vec<Stage> {
    let places = inputs.saturating_sub(usize::from(has_lower)).max(1);
    let mut left: Vec<Source> = (0..upper).map(Source::Upper).collect();
    let mut stages = Vec::new();
    // An engine with a single place cannot merge at all; two are the least that ends.
    while left.len() > places && inputs >= 2 {
        let group = left.len().div_ceil(inputs).clamp(2, inputs);
        let mut merged = Vec::new();
        let mut rest = left.into_iter();
        loop {
            let waiting = rest.len();
            if merged.len() + waiting <= places || waiting < 2 {
                break;
            }
            let taken: Vec<Source> = rest.by_ref().take(group.min(waiting)).collect();
            merged.push(Source::Staged(stages.len()));
            stages.push(Stage {
                inputs: taken,
                to_memory: true,
            });
        }
        merged.extend(rest);
        left = merged;
    }
    left.extend(has_lower.then_some(Source::Lower));
    stages.push(Stage {
        inputs: left,
        to_memory: false,
    });
    stages
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `n m lower` to stages: tables as numbers, L for the next level, s0 for what stage 0 left.
    fn script(inputs: usize, upper: usize, has_lower: bool) -> String {
        let name = |source: &Source| match source {
            Source::Upper(table) => table.to_string(),
            Source::Lower => "L".to_owned(),
            Source::Staged(stage) => format!("s{stage}"),
        };
        let stages = plan(upper, has_lower, inputs);
        let lines = stages.iter().map(|stage| {
            let inputs: Vec<String> = stage.inputs.iter().map(name).collect();
            inputs.join("+")
        });
        lines.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn groups_are_merged_until_the_rest_has_inputs() {
        for (inputs, upper, has_lower, stages) in [
            (4, 1, true, "0+L"),
            (4, 3, true, "0+1+2+L"),
            // As many tables as inputs: one pair is enough.
            (4, 4, true, "0+1 s0+2+3+L"),
            (4, 4, false, "0+1+2+3"),
            (4, 5, true, "0+1 2+3 s0+s1+4+L"),
            // The example of the paper.
            (4, 6, true, "0+1 2+3 4+5 s0+s1+s2+L"),
            (4, 8, true, "0+1 2+3 4+5 6+7 s0+s1 s4+s2+s3+L"),
            (4, 12, true, "0+1+2 3+4+5 6+7+8 9+10+11 s0+s1 s4+s2+s3+L"),
            (9, 8, true, "0+1+2+3+4+5+6+7+L"),
            (9, 12, true, "0+1 2+3 4+5 6+7 s0+s1+s2+s3+8+9+10+11+L"),
            (13, 12, true, "0+1+2+3+4+5+6+7+8+9+10+11+L"),
            (2, 3, true, "0+1 s0+2 s1+L"),
        ] {
            assert_eq!(script(inputs, upper, has_lower), stages, "{inputs} {upper}");
        }
    }

    #[test]
    fn every_table_is_merged_once_and_no_stage_has_too_many() {
        for inputs in 2..=13 {
            for upper in 1..=40 {
                let stages = plan(upper, true, inputs);
                let mut seen = vec![0; upper];
                let mut staged = vec![0; stages.len()];
                for (number, stage) in stages.iter().enumerate() {
                    assert!(stage.inputs.len() <= inputs);
                    assert_eq!(stage.to_memory, number + 1 < stages.len());
                    for source in &stage.inputs {
                        match *source {
                            Source::Upper(table) => seen[table] += 1,
                            Source::Staged(before) => {
                                assert!(before < number);
                                staged[before] += 1;
                            }
                            Source::Lower => {}
                        }
                    }
                }
                assert!(seen.iter().all(|&times| times == 1));
                assert!(staged[..stages.len() - 1].iter().all(|&times| times == 1));
            }
        }
    }
}
