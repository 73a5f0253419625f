//! One small merge for the book's waveforms: `make waves` builds the engine so that it records, runs this and draws.

use crate::common::{build, record};
use waystation_drive::ip::{Engine, Job, Settings, reference};
use waystation_format::key::ValueKind;

#[test]
#[ignore = "make waves runs it"]
fn one_merge_of_two_inputs_is_recorded() {
    // Keys 0, 2, 4, ... and 0, 3, 6, ...: every sixth key is in both, and the older version is dropped.
    let input = |step: usize, sequence: u64| {
        let records: Vec<_> = (0..24)
            .step_by(step)
            .map(|number| {
                let key = format!("waystation/{number:05}");
                record(key.as_bytes(), sequence, ValueKind::Value, &[7; 60])
            })
            .collect();
        vec![build(&records, 512, 16)]
    };
    let job = Job {
        inputs: vec![input(2, 9), input(3, 5)],
        settings: Settings {
            block_bytes: 512,
            ..Settings::default()
        },
    };
    let (output, _) = Engine::new(2).unwrap().run(&job, |_| ()).unwrap();
    assert!(output == reference::run(&job).unwrap());
    assert_eq!(output.counters.shadowed, 4);
}
