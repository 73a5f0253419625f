//! The cycle law, checked, and the budgets of cycles per byte. Cycles are deterministic, so the limits are strict;
//! the simulation's speed is printed only.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod common;

use common::random::Random;
use common::{build, record};
use waystation_drive::ip::{Engine, Job, Output, Settings, Traffic, sizes};
use waystation_format::key::ValueKind;
use waystation_format::varint;

/// Cycles from one record's key to the next: the merger's and the filter's steps, beside the key's own words.
const MERGE_CYCLES: u64 = 10;

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

/// The chunks an entry is written in.
fn entry_cycles(shared: u64, unshared: u64, value: u64, header: u64) -> u64 {
    let user = unshared - 8;
    let in_word = user.min(8 - shared % 8);
    let in_head = in_word.min(8 - header);
    let key = u64::from(in_word > in_head) + (user - in_word).div_ceil(8);
    1 + key + 1 + value.div_ceil(8)
}

/// The law: the slowest of reading, decoding and writing.
fn law(job: &Job, output: &Output, traffic: &Traffic) -> u64 {
    let mut writing = 0;
    let mut value_bytes = 0;
    for block in &output.blocks {
        let mut at = block.handle.offset as usize;
        for _ in 0..block.entries {
            let (shared, a) = varint::get_u32(&output.bytes[at..]).unwrap();
            let (unshared, b) = varint::get_u32(&output.bytes[at + a..]).unwrap();
            let (value, c) = varint::get_u32(&output.bytes[at + a + b..]).unwrap();
            let header = (a + b + c) as u64;
            let cycles = entry_cycles(shared.into(), unshared.into(), value.into(), header);
            let key_words = (u64::from(shared + unshared) - 8).div_ceil(8) + 1;
            writing += cycles.max(MERGE_CYCLES + key_words);
            at += header as usize + unshared as usize + value as usize;
            value_bytes = u64::from(value);
        }
        // The restart array, its length, the type with the checksum's room, and filling it in.
        writing += u64::from(block.entries).div_ceil(16) + 2 + 2;
    }
    writing += output.counters.shadowed * (value_bytes.div_ceil(8)).max(MERGE_CYCLES + 3);
    // Header in two steps, the key's two words, the trailer, the value; of the fullest input.
    let per_input = output.counters.records_in / job.inputs.len() as u64;
    let decoding = per_input * (5 + value_bytes.div_ceil(8));
    writing.max(traffic.words_read).max(decoding)
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn the_cycle_law_holds() {
    println!("   N  value  cycles/byte  cycles/record  law/measured");
    for inputs in sizes() {
        let mut engine = Engine::new(inputs).unwrap();
        for value_bytes in [0, 20, 100, 300, 1024] {
            let records = 40_000 / (inputs * (30 + value_bytes)) as u64 * 8;
            let job = job(inputs, records, value_bytes);
            let (output, traffic) = engine.run(&job, |_| ()).unwrap();
            let cycles = traffic.cycles as f64;
            let predicted = law(&job, &output, &traffic) as f64;
            println!(
                "{inputs:4}  {value_bytes:5}  {:11.4}  {:13.2}  {:12.3}",
                cycles / output.counters.bytes_in as f64,
                cycles / output.counters.records_in as f64,
                predicted / cycles,
            );
            assert!(
                (0.85..1.05).contains(&(predicted / cycles)),
                "{predicted} of {cycles}"
            );
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
