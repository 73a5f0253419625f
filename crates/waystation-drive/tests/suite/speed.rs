//! The cycle law, checked, and the budgets of cycles per byte. Cycles are deterministic, so the limits are strict;
//! the simulation's speed is printed only.

use crate::common::random::Random;
use crate::common::{Keys, Recipe, Values, build, record};
use waystation_drive::ip::law::{Even, Law};
use waystation_drive::ip::{Engine, Job, Output, Settings, reference, sizes};
use waystation_format::key::ValueKind;

/// A job of so many inputs with 16-byte keys out of a space eight times as large, and values of this length.
fn job(inputs: usize, records: u64, value_bytes: usize) -> Job {
    let mut random = Random::new(value_bytes as u64 * 31 + inputs as u64);
    let space = records * inputs as u64 * 8;
    let inputs = (0..inputs as u64)
        .map(|input| {
            let mut keys: Vec<u64> = (0..records).map(|_| random.below(space)).collect();
            keys.sort_unstable();
            keys.dedup();
            let records: Vec<_> = keys
                .iter()
                .map(|key| {
                    let mut value = vec![0; value_bytes];
                    random.fill(&mut value);
                    let sequence = 1 + key * 13 + input;
                    record(
                        format!("{key:016}").as_bytes(),
                        sequence,
                        ValueKind::Value,
                        &value,
                    )
                })
                .collect();
            vec![build(&records, 4096, 16)]
        })
        .collect();
    Job {
        inputs,
        settings: Settings::default(),
    }
}

/// Processor time of this thread so far, which other work on the machine does not lengthen.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text
        .split(' ')
        .next()
        .and_then(|first| first.parse::<f64>().ok());
    nanoseconds.unwrap_or(0.0) / 1e9
}

/// A run: the job, what came out, and the cycles it took.
struct Run {
    what: String,
    job: Job,
    output: Output,
    cycles: u64,
}

impl Run {
    fn new(engine: &mut Engine, what: String, job: Job) -> Self {
        let (output, traffic) = engine.run(&job, |_| ()).unwrap();
        assert_eq!(traffic.violations, 0);
        let prediction = Law::default().predict(&job, &output).unwrap();
        assert_eq!(prediction.reading, traffic.words_read, "{what}");
        Self {
            what,
            job,
            output,
            cycles: traffic.cycles,
        }
    }

    /// What the law says, as a part of what was measured.
    fn ratio(&self, law: Law) -> f64 {
        law.predict(&self.job, &self.output).unwrap().cycles as f64 / self.cycles as f64
    }

    fn print(&self) {
        let counters = &self.output.counters;
        println!(
            "| {:36} | {:7.2} | {:6.4} | {:6.1} | {:5.3} |",
            self.what,
            counters.bytes_in as f64 / 1e6,
            self.cycles as f64 / counters.bytes_in as f64,
            self.cycles as f64 / counters.records_in as f64,
            self.ratio(Law::default()),
        );
    }
}

const HEADING: &str = "| run | MB in | cycles per byte | cycles per record | law / measured |";

/// How many records per input make so many bytes of input in all.
fn records(total_bytes: usize, inputs: usize, value_bytes: usize) -> u64 {
    (total_bytes / (inputs * (30 + value_bytes))) as u64
}

/// The root of the mean square of the law's errors.
fn misfit(runs: &[Run], law: Law) -> f64 {
    let errors = runs.iter().map(|run| run.ratio(law).ln().powi(2));
    (errors.sum::<f64>() / runs.len() as f64).sqrt()
}

/// A constant of the law: its name, where it is, and by how much it is moved.
type Step = (&'static str, fn(&mut Law) -> &mut u64, u64);

/// The law's constants were found on these runs: moving any of them by a step fits no better.
#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn the_cycle_law_fits_the_runs_it_was_found_on() {
    let mut runs = Vec::new();
    for inputs in [1, 4, 9] {
        let Ok(mut engine) = Engine::new(inputs) else {
            return; // found with these sizes: nothing to say without them
        };
        for value_bytes in [0, 100, 1024] {
            let what = format!("N={inputs}, values of {value_bytes}");
            let job = job(inputs, records(400_000, inputs, value_bytes), value_bytes);
            runs.push(Run::new(&mut engine, what, job));
        }
    }
    println!("{HEADING}");
    for run in &runs {
        run.print();
        let ratio = run.ratio(Law::default());
        assert!((0.95..1.05).contains(&ratio), "{}: {ratio:.3}", run.what);
    }
    let law = Law::default();
    let best = misfit(&runs, law);
    println!("root of the mean square error: {best:.4}");
    let steps: [Step; 4] = [
        ("record", |law| &mut law.record, 1),
        ("decode_block", |law| &mut law.decode_block, 2),
        ("start", |law| &mut law.start, 100),
        ("ahead", |law| &mut law.ahead, 200),
    ];
    for (name, constant, step) in steps {
        let found = *constant(&mut law.clone());
        for neighbour in [found + step, found - step] {
            let mut other = law;
            *constant(&mut other) = neighbour;
            let worse = misfit(&runs, other);
            println!("{name} {neighbour} instead of {found}: {worse:.4}");
            assert!(worse >= best, "{name} {neighbour} fits better than {found}");
        }
    }
}

/// The law holds on runs that had no part in finding it: other sizes, values, keys and lengths.
#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn the_cycle_law_holds_on_runs_it_has_not_seen() {
    println!("{HEADING}");
    for inputs in sizes() {
        let mut engine = Engine::new(inputs).unwrap();
        let mut runs = Vec::new();
        for value_bytes in [0, 20, 100, 300, 1024] {
            let seen = [1, 4, 9].contains(&inputs) && [0, 100, 1024].contains(&value_bytes);
            let total = if seen { 1_200_000 } else { 400_000 };
            let what = format!("N={inputs}, values of {value_bytes}");
            let job = job(inputs, records(total, inputs, value_bytes), value_bytes);
            runs.push(Run::new(&mut engine, what, job));
        }
        for keys in [Keys::Digits, Keys::Tricky, Keys::Long] {
            let recipe = Recipe {
                seed: inputs as u64,
                inputs,
                records: 4000,
                keys,
                values: Values::Mixed,
                deletions: 26,
                chains: false,
                block_bytes: 4096,
                restart_interval: 16,
                settings: Settings::default(),
            };
            let what = format!("N={inputs}, {keys:?} keys, mixed values");
            runs.push(Run::new(&mut engine, what, recipe.job()));
        }
        let kept = Recipe {
            seed: 77,
            inputs,
            records: 6000,
            keys: Keys::Few,
            values: Values::Fixed(40),
            deletions: 26,
            chains: true,
            block_bytes: 1024,
            restart_interval: 1,
            settings: Settings {
                smallest_snapshot: 0,
                block_bytes: 1024,
                restart_interval: 1,
                ..Settings::default()
            },
        };
        let what = format!("N={inputs}, all versions kept");
        runs.push(Run::new(&mut engine, what, kept.job()));
        for run in &runs {
            run.print();
        }
        for run in runs {
            let ratio = run.ratio(Law::default());
            assert!((0.93..1.07).contains(&ratio), "{}: {ratio:.3}", run.what);
        }
    }
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
#[allow(
    clippy::disallowed_methods,
    reason = "prints how fast the simulation runs"
)]
fn four_inputs_stay_within_their_budget() {
    let Ok(mut engine) = Engine::new(4) else {
        return;
    };
    for (value_bytes, records, budget) in [(100, 5000, 0.14), (1024, 600, 0.13)] {
        let job = job(4, records, value_bytes);
        let started = processor_seconds();
        let (output, traffic) = engine.run(&job, |_| ()).unwrap();
        let seconds = processor_seconds() - started;
        let bytes = output.counters.bytes_in as f64;
        let per_byte = traffic.cycles as f64 / bytes;
        println!(
            "values of {value_bytes}: {per_byte:.4} cycles per byte, {:.1} MB/s simulated",
            bytes / seconds / 1e6
        );
        assert!(per_byte <= budget, "values of {value_bytes}: {per_byte:.4}");
    }
}

/// Where one input is alone for most of a job, different rooms bound its two parts, and the law, which knows sums over
/// the whole job only, says too little: this is how much.
#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn the_cycle_law_says_too_little_of_jobs_with_phases() {
    println!("{HEADING}");
    for inputs in sizes() {
        let mut engine = Engine::new(inputs).unwrap();
        let number = |input| if input == 0 { 3000 } else { 300 };
        let skewed = Job {
            inputs: (0..inputs)
                .map(|input| job(inputs, number(input), 100).inputs.swap_remove(input))
                .collect(),
            settings: Settings::default(),
        };
        let what = format!("N={inputs}, one input ten times as long");
        let run = Run::new(&mut engine, what, skewed);
        run.print();
        let ratio = run.ratio(Law::default());
        assert!((0.80..1.05).contains(&ratio), "{}: {ratio:.3}", run.what);
    }
}

/// What the law says of each record of a long job is what it says of whole jobs.
#[test]
fn the_law_of_records_is_the_law_of_jobs() {
    for inputs in [2, 4, 9] {
        for value_bytes in [0, 100, 300, 1024] {
            let job = job(inputs, records(1_500_000, inputs, value_bytes), value_bytes);
            let output = reference::run(&job).unwrap();
            let counters = &output.counters;
            let each = Law::default().per_record(Even {
                inputs: inputs as u64,
                user_bytes: 16,
                shared_bytes: 12,
                value_bytes: value_bytes as u64,
                kept: counters.records_out as f64 / counters.records_in as f64,
                block_bytes: 4096,
            });
            let whole = Law::default().predict(&job, &output).unwrap().cycles;
            let ratio = each * counters.records_in as f64 / whole as f64;
            println!("{inputs} inputs, values of {value_bytes}: {ratio:.3}");
            assert!(
                (0.92..1.05).contains(&ratio),
                "{inputs} {value_bytes}: {ratio}"
            );
        }
    }
}
