//! The examples do what they say: each runs to its end, with its assertions.

#[path = "../../examples/backup.rs"]
mod backup;
#[path = "../../examples/devices.rs"]
mod devices;
#[path = "../../examples/hand_off.rs"]
mod hand_off;
#[path = "../../examples/quick_start.rs"]
mod quick_start;
#[path = "../../examples/time_to_live.rs"]
mod time_to_live;

#[test]
fn quick_start_runs() {
    quick_start::main().expect("the example");
}

#[test]
fn devices_run() {
    devices::main().expect("the example");
}

#[test]
fn time_to_live_runs() {
    time_to_live::main().expect("the example");
}

#[test]
fn backup_runs() {
    backup::main().expect("the example");
}

#[test]
fn hand_off_runs() {
    hand_off::main().expect("the example");
}
