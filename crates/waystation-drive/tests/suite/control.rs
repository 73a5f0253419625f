//! The life of a job: given up in the middle, given up by the watchdog, refused before it begins.

use crate::common::{self, Keys, Recipe, Values};
use waystation_drive::ip::image;
use waystation_drive::ip::{
    Engine, FailureKind, IpError, Job, MemoryTiming, Settings, reference, sizes,
};

fn recipe(inputs: usize) -> Recipe {
    Recipe {
        seed: 3,
        inputs,
        records: 400,
        keys: Keys::Digits,
        values: Values::Mixed,
        deletions: 20,
        chains: false,
        block_bytes: 1024,
        restart_interval: 16,
        settings: Settings::default(),
    }
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn a_soft_reset_at_any_moment_leaves_an_engine_that_works() {
    for size in sizes() {
        let mut engine = Engine::new(size).unwrap();
        let job = recipe(size).job();
        let expected = reference::run(&job).unwrap();
        let image = image::build(&job, job.input_bytes() as usize + 4096).unwrap();
        for cycles in [0, 1, 2, 3, 10, 57, 100, 333, 1000, 2001, 3000, 4999, 8000] {
            engine.set_timing(MemoryTiming {
                hesitations: if cycles % 2 == 0 { [0; 4] } else { [100; 4] },
                seed: cycles,
                ..MemoryTiming::default()
            });
            engine.interrupt(&job, &image, cycles).unwrap();
            let (output, traffic) = engine.run_image(&job, &image, &mut |_| ()).unwrap();
            assert!(output == expected, "{size} inputs, {cycles} cycles");
            assert_eq!(traffic.violations, 0);
        }
    }
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn a_memory_that_never_answers_is_noticed() {
    let size = sizes()[0];
    let mut engine = Engine::new(size).unwrap();
    let job = recipe(size).job();
    engine.set_watchdog(500);
    engine.set_timing(MemoryTiming {
        latency: 2000,
        ..MemoryTiming::default()
    });
    match engine.run(&job, |_| ()) {
        Err(IpError::Failed(failure)) => assert_eq!(failure.kind, FailureKind::Watchdog),
        other => panic!("{other:?}"),
    }
    engine.set_watchdog(100_000);
    engine.set_timing(MemoryTiming::default());
    let (output, _) = engine.run(&job, |_| ()).unwrap();
    assert!(output == reference::run(&job).unwrap());
}

#[test]
#[cfg_attr(not(verilator), ignore = "verilator is not installed")]
fn what_does_not_fit_is_refused_before_anything_begins() {
    let size = sizes()[0];
    let mut engine = Engine::new(size).unwrap();
    let wide = Job {
        inputs: vec![Vec::new(); size + 1],
        settings: Settings::default(),
    };
    assert!(matches!(
        engine.run(&wide, |_| ()),
        Err(IpError::Refused(_))
    ));
    let interval = Settings {
        restart_interval: 0,
        ..Settings::default()
    };
    let job = Job {
        inputs: Vec::new(),
        settings: interval,
    };
    assert!(matches!(engine.run(&job, |_| ()), Err(IpError::Refused(_))));
    assert!(matches!(Engine::new(77), Err(IpError::NoSuchSize(77))));
}

#[test]
fn compressed_blocks_and_long_keys_are_found_beforehand() {
    use waystation_format::key::ValueKind;
    let long = common::build(
        &[common::record(&[1; 65], 1, ValueKind::Value, b"")],
        4096,
        16,
    );
    let job = |table| Job {
        inputs: vec![vec![table]],
        settings: Settings::default(),
    };
    let refused = |job: &Job| image::survey(job).unwrap_err().to_string();
    assert!(refused(&job(long)).contains("a key has 65 bytes"));
    let large = common::build(
        &[common::record(b"k", 1, ValueKind::Value, &vec![0; 1 << 21])],
        4096,
        16,
    );
    assert!(refused(&job(large)).contains("2097152 bytes"));
    let mut snappy = common::build(&[common::record(b"k", 1, ValueKind::Value, b"v")], 4096, 16);
    let at = (snappy.blocks[0].offset + snappy.blocks[0].length) as usize;
    snappy.bytes[at] = 1;
    assert!(refused(&job(snappy)).contains("compressed"));
    let good = common::build(&[common::record(b"k", 1, ValueKind::Value, b"v")], 4096, 16);
    image::survey(&job(good)).unwrap();
}
