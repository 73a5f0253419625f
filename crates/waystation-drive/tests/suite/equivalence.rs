//! The hardware gives what the software reference gives, byte for byte.

use crate::common::coverage::Coverage;
use crate::common::random::Random;
use crate::common::{self, Keys, Recipe, Values, build, record};
use std::env;
use waystation_drive::ip::{
    Engine, Job, MemoryTiming, Output, Settings, Traffic, reference, sizes,
};
use waystation_format::key::ValueKind;

/// Runs a job both ways and compares; what the hardware gave.
fn compare(engine: &mut Engine, job: &Job, what: &str) -> (Output, Traffic) {
    let expected = reference::run(job).unwrap();
    let (output, traffic) = match engine.run(job, |_| ()) {
        Ok(done) => done,
        Err(error) => panic!("{what}: {error}"),
    };
    assert_eq!(output.counters, expected.counters, "{what}");
    assert_eq!(output.blocks, expected.blocks, "{what}");
    let differs = output
        .bytes
        .iter()
        .zip(&expected.bytes)
        .position(|(a, b)| a != b);
    assert_eq!(differs, None, "{what}: the first byte that differs");
    assert_eq!(output.bytes.len(), expected.bytes.len(), "{what}");
    assert_eq!(
        traffic.violations, 0,
        "{what}: rules of the channels broken"
    );
    (output, traffic)
}

/// Memory that hesitates, each channel in its own way.
fn hesitating(seed: u64) -> MemoryTiming {
    let mut random = Random::new(seed ^ 0xbac4);
    let levels = [0, 0, 40, 128, 230];
    MemoryTiming {
        latency: random.pick(&[1, 5, 30, 200]),
        hesitations: std::array::from_fn(|_| random.pick(&levels)),
        seed,
    }
}

/// How many random jobs per size: `WAYSTATION_IP_JOBS`, which `make soak` raises.
fn jobs() -> u64 {
    env::var("WAYSTATION_IP_JOBS").map_or(60, |jobs| jobs.parse().unwrap())
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn random_jobs_are_bit_identical_and_cover_every_situation() {
    let mut coverage = Coverage::default();
    for inputs in sizes() {
        let mut engine = Engine::new(inputs).unwrap();
        for job_number in 0..jobs() {
            let seed = job_number * 100 + inputs as u64;
            let recipe = Recipe::random(seed, inputs);
            let job = recipe.job();
            let timing = if job_number % 2 == 0 {
                MemoryTiming::default()
            } else {
                hesitating(seed)
            };
            engine.set_timing(timing);
            let (output, traffic) = compare(&mut engine, &job, &format!("{recipe:?}, {timing:?}"));
            coverage.note(&job, &output, &traffic);
        }
    }
    let missed = coverage.report();
    assert!(
        missed == 0 || sizes().len() < 5,
        "{missed} situations were never met"
    );
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn values_up_to_two_megabytes_pass() {
    for inputs in sizes() {
        let mut engine = Engine::new(inputs).unwrap();
        let job = Job {
            inputs: (0..inputs as u64)
                .map(|input| {
                    // The largest there are, spread over the inputs.
                    let large = [1 << 20, (2 << 20) - 1, 1_000_003];
                    let bytes = large.get(input as usize).copied().unwrap_or(9000);
                    let second = if inputs == 1 { large[1] } else { 7 };
                    let values = [bytes, second, 16_384, 16_383, 128, 127, 0];
                    let records: Vec<_> = (0..7u64)
                        .map(|at| {
                            let mut value = vec![0; values[at as usize]];
                            Random::new(input * 7 + at).fill(&mut value);
                            let key = format!("{at}{input}");
                            record(
                                key.as_bytes(),
                                1 + at * 13 + input,
                                ValueKind::Value,
                                &value,
                            )
                        })
                        .collect();
                    vec![build(&records, 4096, 16)]
                })
                .collect(),
            settings: Settings::default(),
        };
        compare(&mut engine, &job, &format!("{inputs} inputs"));
        engine.set_timing(MemoryTiming {
            hesitations: [60; 4],
            ..MemoryTiming::default()
        });
        compare(
            &mut engine,
            &job,
            &format!("{inputs} inputs, hesitating memory"),
        );
    }
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn an_empty_input_at_any_place_is_passed_over() {
    for inputs in sizes() {
        let mut engine = Engine::new(inputs).unwrap();
        for empty in 0..inputs {
            let mut job = Recipe {
                seed: empty as u64,
                inputs,
                records: 40 * inputs,
                keys: Keys::Tricky,
                values: Values::Fixed(30),
                deletions: 40,
                chains: false,
                block_bytes: 300,
                restart_interval: 4,
                settings: Settings::default(),
            }
            .job();
            job.inputs[empty].clear();
            compare(&mut engine, &job, &format!("{empty} of {inputs} is empty"));
            // The last inputs may be left out altogether.
            job.inputs.truncate(empty);
            compare(&mut engine, &job, &format!("{empty} of {inputs} are there"));
        }
    }
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn empty_keys_and_keys_of_64_bytes_stand_beside_each_other() {
    for inputs in sizes() {
        let mut engine = Engine::new(inputs).unwrap();
        for (timing, restart_interval) in [(MemoryTiming::default(), 16), (hesitating(8), 1)] {
            engine.set_timing(timing);
            let job = Job {
                inputs: (0..inputs as u64)
                    .map(|input| {
                        let mut records = Vec::new();
                        for version in (0..3).rev() {
                            let sequence = 1 + version * 20 + input;
                            records.push(record(b"", sequence, ValueKind::Value, b"of nothing"));
                        }
                        // Keys that differ in their last byte only, and one that is a prefix of them.
                        records.push(record(&[9; 63], 500 + input, ValueKind::Value, b""));
                        for last in 0..20u8 {
                            let mut key = [9; 64];
                            key[63] = last * 12 + input as u8;
                            records.push(record(&key, 600 + input, ValueKind::Value, &[last; 64]));
                        }
                        vec![build(&records, 256, restart_interval)]
                    })
                    .collect(),
                settings: Settings {
                    smallest_snapshot: 25,
                    block_bytes: 256,
                    restart_interval: restart_interval as u8,
                    ..Settings::default()
                },
            };
            let (output, _) = compare(&mut engine, &job, &format!("{inputs} inputs, {timing:?}"));
            let keys = common::user_keys(&common::records(&output));
            assert!(keys.contains(&b""[..]) && keys.iter().any(|key| key.len() == 64));
            assert_eq!(keys.len(), 2 + 20 * inputs.min(12) + inputs / 13);
        }
    }
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn many_versions_of_a_key_survive_block_ends_on_both_sides() {
    for inputs in sizes() {
        let mut engine = Engine::new(inputs).unwrap();
        for snapshot in [0, 90, u64::MAX >> 8] {
            let tables = (0..inputs as u64)
                .map(|input| {
                    let records: Vec<_> = (0..120)
                        .rev()
                        .map(|version| {
                            let kind = if version % 5 == 0 {
                                ValueKind::Deletion
                            } else {
                                ValueKind::Value
                            };
                            record(
                                b"the only key",
                                1 + version * inputs as u64 + input,
                                kind,
                                b"value",
                            )
                        })
                        .collect();
                    vec![build(&records, 200, 16)]
                })
                .collect();
            let job = Job {
                inputs: tables,
                settings: Settings {
                    smallest_snapshot: snapshot,
                    block_bytes: 256,
                    ..Settings::default()
                },
            };
            let (output, _) = compare(&mut engine, &job, &format!("snapshot {snapshot}"));
            assert!(output.counters.balance());
            let one = snapshot == u64::MAX >> 8;
            assert_eq!(
                output.counters.records_out == 1,
                one,
                "{:?}",
                output.counters
            );
        }
    }
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn nothing_in_gives_nothing_out() {
    for inputs in sizes() {
        let mut engine = Engine::new(inputs).unwrap();
        let nothing = Job {
            inputs: vec![Vec::new(); inputs],
            settings: Settings::default(),
        };
        let (output, _) = compare(&mut engine, &nothing, "no tables");
        assert!(output.bytes.is_empty() && output.blocks.is_empty());
        let recipe = Recipe {
            seed: 7,
            inputs,
            records: 500,
            keys: Keys::Digits,
            values: Values::Fixed(50),
            deletions: 256,
            chains: true,
            block_bytes: 1024,
            restart_interval: 16,
            settings: Settings {
                bottom: true,
                ..Settings::default()
            },
        };
        let (output, _) = compare(&mut engine, &recipe.job(), "deletions only");
        assert_eq!(output.counters.records_out, 0);
        assert_eq!(output.counters.records_in, 500);
    }
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn equal_internal_keys_keep_the_order_of_their_inputs() {
    for inputs in sizes() {
        let mut engine = Engine::new(inputs).unwrap();
        let job = Job {
            inputs: (0..inputs)
                .map(|input| {
                    let value = format!("from {input}");
                    vec![build(
                        &[record(b"same", 9, ValueKind::Value, value.as_bytes())],
                        4096,
                        16,
                    )]
                })
                .collect(),
            settings: Settings {
                smallest_snapshot: 3,
                ..Settings::default()
            },
        };
        let (output, _) = compare(&mut engine, &job, "a tie");
        assert_eq!(common::records(&output)[0].1, b"from 0");
    }
}
