//! What is damaged is caught, or does no harm; nothing hangs and nothing is silent.

use crate::common::{Keys, Recipe, Values, build, record};
use std::collections::BTreeMap;
use waystation_drive::ip::image::{self, Image, Region};
use waystation_drive::ip::{
    Engine, FailureKind, IpError, Job, MemoryTiming, Output, Settings, TableImage, reference, sizes,
};
use waystation_format::key::{MAX_SEQUENCE, ValueKind};

/// An engine with a watchdog that does not wait long.
fn engine_of(size: usize) -> Engine {
    let mut engine = Engine::new(size).unwrap();
    engine.set_watchdog(3000);
    engine.set_timing(MemoryTiming {
        latency: 4,
        ..MemoryTiming::default()
    });
    engine
}

/// The smallest engine with two inputs or more.
fn engine() -> Engine {
    engine_of(sizes().into_iter().find(|&size| size >= 2).unwrap())
}

/// Two inputs of two blocks, keys of several lengths, one shared by all inputs, a deletion; the other inputs are
/// one record each.
fn small_job(inputs: usize) -> Job {
    let input = |first: u64| {
        let many = if first < 2 { 12 } else { 0 };
        let mut records: Vec<_> = (0..many)
            .map(|number| {
                let kind = if number == 5 {
                    ValueKind::Deletion
                } else {
                    ValueKind::Value
                };
                let key = format!(
                    "key{:0width$}",
                    number * 2 + first,
                    width = 2 + first as usize
                );
                let value = vec![
                    number as u8;
                    if kind == ValueKind::Value {
                        number as usize * 2
                    } else {
                        0
                    }
                ];
                record(key.as_bytes(), 10 + number * 2 + first, kind, &value)
            })
            .collect();
        records.push(record(b"last", 90 + first, ValueKind::Value, b"of all"));
        vec![build(&records, 256, 4)]
    };
    Job {
        inputs: (0..inputs as u64).map(input).collect(),
        settings: Settings::default(),
    }
}

#[derive(Default, Debug)]
struct Tally {
    caught: u64,
    harmless: u64,
    silent: u64,
    hanging: u64,
    kinds: BTreeMap<FailureKind, u64>,
}

/// Flips every bit of a region, one at a time.
fn flip_all(
    engine: &mut Engine,
    job: &Job,
    image: &mut Image,
    region: Region,
    expected: &Output,
) -> Tally {
    let mut tally = Tally::default();
    for bit in 0..region.bytes as usize * 8 {
        let at = region.address as usize + bit / 8;
        image.memory[at] ^= 1 << (bit % 8);
        match engine.run_image(job, image, &mut |_| ()) {
            Err(IpError::Failed(failure)) if failure.kind == FailureKind::Watchdog => {
                tally.hanging += 1;
            }
            Err(IpError::Failed(failure)) => {
                tally.caught += 1;
                *tally.kinds.entry(failure.kind).or_default() += 1;
            }
            Err(IpError::Hanging(_)) => tally.hanging += 1,
            Err(error) => panic!("bit {bit}: {error}"),
            Ok((output, traffic)) => {
                assert_eq!(traffic.violations, 0);
                if output == *expected {
                    tally.harmless += 1;
                } else {
                    tally.silent += 1;
                }
            }
        }
        image.memory[at] ^= 1 << (bit % 8);
    }
    println!("{tally:?}");
    tally
}

/// All that a checksum covers, of one input: the data blocks of its tables with their trailers, and its descriptors.
fn regions(job: &Job, image: &Image, input: usize) -> Vec<Region> {
    let mut regions = vec![image.lists[input]];
    regions.extend(&image.block_lists[input]);
    for (table, region) in job.inputs[input].iter().zip(&image.tables[input]) {
        let end = table.blocks[table.blocks.len() - 1].end().unwrap();
        regions.push(Region {
            bytes: end as u32,
            ..*region
        });
    }
    regions
}

/// Flips every bit of every region of these inputs, one at a time: each must be caught; how many were.
fn flip_inputs(engine: &mut Engine, job: &Job, inputs: &[usize]) -> u64 {
    let expected = reference::run(job).unwrap();
    let mut image = image::build(job, job.input_bytes() as usize + 4096).unwrap();
    let (output, _) = engine.run_image(job, &image, &mut |_| ()).unwrap();
    assert!(output == expected);
    let mut caught = 0;
    for &input in inputs {
        for region in regions(job, &image, input) {
            let tally = flip_all(engine, job, &mut image, region, &expected);
            assert_eq!(tally.silent + tally.hanging, 0);
            // Every bit of these is covered by a checksum, so none is without effect.
            assert_eq!(tally.harmless, 0);
            assert_eq!(tally.caught, u64::from(region.bytes) * 8);
            caught += tally.caught;
        }
    }
    let (output, _) = engine.run_image(job, &image, &mut |_| ()).unwrap();
    assert!(output == expected, "the engine is as good as new");
    caught
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn every_single_flipped_bit_is_caught() {
    for size in sizes() {
        let mut engine = engine_of(size);
        let job = small_job(size);
        assert!(job.inputs[0][0].blocks.len() > 1, "there is a block border");
        let mut inputs = vec![0, size - 1];
        inputs.dedup();
        let caught = flip_inputs(&mut engine, &job, &inputs);
        println!("{size} inputs: {caught} flipped bits, all caught");
    }
}

/// The same over every input of larger jobs, with chains of tables and memory that hesitates: `make soak-ip`.
#[test]
#[ignore = "takes an hour; make soak-ip runs it"]
fn every_single_flipped_bit_of_larger_jobs_is_caught() {
    for size in sizes() {
        let mut engine = engine_of(size);
        for (seed, keys) in [(1, Keys::Tricky), (2, Keys::Digits), (3, Keys::Few)] {
            let job = Recipe {
                seed,
                inputs: size,
                records: 20 * size,
                keys,
                values: Values::Fixed(9),
                deletions: 30,
                chains: true,
                block_bytes: 128,
                restart_interval: 4,
                settings: Settings {
                    smallest_snapshot: 10,
                    block_bytes: 256,
                    ..Settings::default()
                },
            }
            .job();
            engine.set_timing(MemoryTiming {
                latency: 4,
                hesitations: [[0; 4], [90; 4]][usize::from(seed == 2)],
                seed,
            });
            let inputs: Vec<usize> = (0..size).filter(|&i| !job.inputs[i].is_empty()).collect();
            let caught = flip_inputs(&mut engine, &job, &inputs);
            println!("{size} inputs, {keys:?} keys: {caught} flipped bits, all caught");
        }
    }
}

/// Runs a job that must fail; how, and at which input.
fn failure(engine: &mut Engine, job: &Job) -> (FailureKind, Option<u8>) {
    let image = image::build(job, 1 << 20).unwrap();
    match engine.run_image(job, &image, &mut |_| ()) {
        Err(IpError::Failed(failure)) => (failure.kind, failure.input),
        other => panic!("{other:?}"),
    }
}

fn job_of(tables: Vec<TableImage>) -> Job {
    Job {
        inputs: tables.into_iter().map(|table| vec![table]).collect(),
        settings: Settings::default(),
    }
}

/// Seals a block again after its contents were changed.
fn seal(table: &mut TableImage) {
    let handle = table.blocks[0];
    let end = (handle.offset + handle.length + 1) as usize;
    let crc = waystation_format::checksum::crc32c(&table.bytes[handle.offset as usize..end]);
    let crc = waystation_format::checksum::mask(crc).to_le_bytes();
    table.bytes[end..end + 4].copy_from_slice(&crc);
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn what_the_engine_does_not_take_is_named_with_its_input() {
    let mut engine = engine();
    let good = || {
        build(
            &[
                record(b"a", 1, ValueKind::Value, b"x"),
                record(b"b", 2, ValueKind::Value, b"y"),
            ],
            4096,
            16,
        )
    };
    let changed = |change: &dyn Fn(&mut Vec<u8>, usize)| {
        let mut table = good();
        let handle = table.blocks[0];
        change(&mut table.bytes, handle.length as usize);
        seal(&mut table);
        table
    };
    // Entry 0: 00 09 01 'a' trailer 'x' is 13 bytes long; then entry 1, the restart array, the type.
    let cases: Vec<(TableImage, FailureKind)> = vec![
        (
            build(&[record(&[7; 65], 1, ValueKind::Value, b"")], 4096, 16),
            FailureKind::Key,
        ),
        (
            build(
                &[record(b"a", 1, ValueKind::Value, &vec![1; 1 << 21])],
                4096,
                16,
            ),
            FailureKind::Entry,
        ),
        (
            changed(&|bytes, length| bytes[length] = 1),
            FailureKind::BlockType,
        ),
        (
            changed(&|bytes, length| bytes[length - 4] = 200),
            FailureKind::Restarts,
        ),
        (
            changed(&|bytes, length| bytes[length - 4] = 0),
            FailureKind::Restarts,
        ),
        (changed(&|bytes, _| bytes[0] = 1), FailureKind::Key),
        (changed(&|bytes, _| bytes[1] = 7), FailureKind::Key),
        (changed(&|bytes, _| bytes[2] = 100), FailureKind::Entry),
        (changed(&|bytes, _| bytes[3] = b'z'), FailureKind::Order),
        (changed(&|bytes, _| bytes[4] = 2), FailureKind::Kind),
    ];
    for (number, (table, kind)) in cases.into_iter().enumerate() {
        let found = failure(&mut engine, &job_of(vec![good(), table]));
        assert_eq!(found, (kind, Some(1)), "case {number}");
    }
    let mut broken = good();
    broken.bytes[3] ^= 0x40;
    assert_eq!(
        failure(&mut engine, &job_of(vec![broken, good()])),
        (FailureKind::BlockChecksum, Some(0))
    );
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn descriptors_of_other_places_are_refused() {
    let mut engine = engine();
    let job = small_job(2);
    let good = image::build(&job, 4096).unwrap();
    let swap = |a: Region, b: Region, bytes: usize| {
        let mut image = good.clone();
        for at in 0..bytes {
            image
                .memory
                .swap(a.address as usize + at, b.address as usize + at);
        }
        image
    };
    let blocks = good.block_lists[0][0];
    let second = Region {
        address: blocks.address + 16,
        bytes: 16,
    };
    for image in [
        swap(good.lists[0], good.lists[1], 32),
        swap(blocks, second, 16),
    ] {
        match engine.run_image(&job, &image, &mut |_| ()) {
            Err(IpError::Failed(failure)) => assert_eq!(failure.kind, FailureKind::DescriptorField),
            other => panic!("{other:?}"),
        }
    }
    // An address outside of memory, under a valid checksum.
    let mut far = good.clone();
    far.lists[0].address = 0x7000_0000;
    match engine.run_image(&job, &far, &mut |_| ()) {
        Err(IpError::Failed(failure)) => {
            assert_eq!((failure.kind, failure.input), (FailureKind::Bus, None));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn too_little_room_is_an_error_and_more_is_found() {
    let mut engine = engine();
    let job = small_job(2);
    let image = image::build(&job, 64).unwrap();
    match engine.run_image(&job, &image, &mut |_| ()) {
        Err(IpError::Failed(failure)) => {
            assert_eq!((failure.kind, failure.input), (FailureKind::Space, None));
        }
        other => panic!("{other:?}"),
    }
    // Keys that share almost everything grow manyfold when every entry is a restart point.
    let records: Vec<_> = (0..3000u64)
        .map(|number| record(&[b'k'; 64], MAX_SEQUENCE - number, ValueKind::Value, b""))
        .collect();
    let settings = Settings {
        smallest_snapshot: 0,
        restart_interval: 1,
        ..Settings::default()
    };
    let job = Job {
        inputs: vec![vec![build(&records, 65536, 3000)]],
        settings,
    };
    let (output, _) = engine.run(&job, |_| ()).unwrap();
    assert!(
        output.bytes.len()
            > 4 * job.inputs[0][0]
                .blocks
                .iter()
                .map(|block| block.length as usize)
                .sum::<usize>()
    );
    assert!(output == reference::run(&job).unwrap());
}
