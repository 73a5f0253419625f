//! The closed loop on traces small enough to reckon by hand.

use super::*;
use crate::event::{Area, Flags, NOT_COMPLETED, Op, Request, Role, TraceInfo};

fn info(areas: &[&str]) -> TraceInfo {
    TraceInfo {
        areas: areas
            .iter()
            .map(|name| Area {
                name: (*name).to_owned(),
                device: (*name).to_owned(),
                role: Role::of_name(name),
                extent_bytes: 1 << 30,
            })
            .collect(),
        comms: vec![String::new()],
        ..TraceInfo::default()
    }
}

/// Issue and completion in microseconds.
fn request(issue: u64, complete: u64, area: u8, op: Op, offset: u64, length: u32) -> Request {
    Request {
        issue_ns: issue * 1_000,
        complete_ns: if complete == 0 {
            NOT_COMPLETED
        } else {
            complete * 1_000
        },
        offset,
        length,
        pid: 1,
        comm: 0,
        area,
        op,
        flags: if op == Op::Write {
            Flags::SYNC
        } else {
            Flags::default()
        },
    }
}

/// 100 us slow, 10 us fast, nothing else.
fn machine() -> Machine {
    Machine::from_toml(
        r#"
        [slow]
        kind = "flash"
        read_us = 100
        write_us = 100
        flush_us = 1000
        read_bandwidth = "1000GB"
        write_bandwidth = "1000GB"
        channels = 64
        path_us = 0
        path_bandwidth = "1000GB"
        [fast]
        kind = "flash"
        read_us = 10
        write_us = 10
        flush_us = 0
        read_bandwidth = "1000GB"
        write_bandwidth = "1000GB"
        channels = 64
        path_us = 0
        path_bandwidth = "1000GB"
        "#,
    )
    .unwrap()
}

fn run_us(requests: &[Request], placement: &Placement) -> u64 {
    let info = info(&["fs", "journal"]);
    let chain = Chain::of(requests);
    (simulate(&info, requests, &chain, placement, &machine(), false).run_ns + 500) / 1_000
}

#[test]
fn a_chain_of_waits_scales_with_the_device_and_keeps_the_thinking() {
    // Three reads, each 50 us after the one before completed.
    let requests: Vec<Request> = (0..3)
        .map(|step| request(step * 250, step * 250 + 200, 0, Op::Read, step * 8192, 4096))
        .collect();
    assert_eq!(run_us(&requests, &Placement::slow(2)), 3 * 100 + 2 * 50);
    assert_eq!(run_us(&requests, &Placement::fast(2)), 3 * 10 + 2 * 50);
}

#[test]
fn requests_issued_together_stay_parallel() {
    let requests: Vec<Request> = (0..8)
        .map(|step| request(step, 500, 0, Op::Read, step * 8192, 4096))
        .collect();
    assert_eq!(run_us(&requests, &Placement::slow(2)), 7 + 100);
}

#[test]
fn a_follower_of_asynchronous_write_back_follows_the_reader_instead() {
    let mut requests = vec![
        request(0, 300, 0, Op::Read, 0, 4096),
        request(10, 310, 0, Op::Write, 1 << 20, 4096),
        request(320, 400, 0, Op::Read, 8192, 4096),
    ];
    requests[1].flags = Flags::default();
    assert_eq!(Chain::of(&requests).cause(2), Cause::Completion(0));
    requests[1].flags = Flags::SYNC;
    assert_eq!(Chain::of(&requests).cause(2), Cause::Completion(1));
}

#[test]
fn write_back_comes_by_the_clock_and_is_no_part_of_a_shorter_run() {
    // A reader that always waits, and beside it write-back to the journal's device, as often as in the recording.
    let mut requests = Vec::new();
    for step in 0..20 {
        requests.push(request(
            step * 1_000,
            step * 1_000 + 1_000,
            0,
            Op::Read,
            0,
            4096,
        ));
        for back in 1..10 {
            let at = step * 1_000 + back * 100;
            let mut write = request(at, at + 100, 1, Op::Write, at * 4096, 4096);
            write.flags = Flags::default();
            requests.push(write);
        }
    }
    let fast = Placement::one(2, 0, Residence::Fast);
    assert_eq!(run_us(&requests, &fast), 20 * 10);
    assert_eq!(run_us(&requests, &Placement::slow(2)), 20 * 100);
    // A trace of nothing else is as long as it takes.
    requests.retain(|request| request.op == Op::Write);
    assert_eq!(run_us(&requests, &Placement::slow(2)), 20_000);
}

#[test]
fn a_request_that_never_completed_holds_nobody_up() {
    let requests = [
        request(0, 0, 0, Op::Read, 0, 4096),
        request(40, 90, 0, Op::Read, 8192, 4096),
    ];
    assert_eq!(run_us(&requests, &Placement::slow(2)), 140);
}

#[test]
fn only_the_fast_area_gets_faster() {
    let requests = [
        request(0, 100, 0, Op::Write, 0, 4096),
        request(100, 200, 1, Op::Write, 0, 4096),
        request(200, 1200, 1, Op::Flush, 0, 0),
    ];
    assert_eq!(run_us(&requests, &Placement::slow(2)), 1200);
    assert_eq!(
        run_us(&requests, &Placement::one(2, 1, Residence::Fast)),
        100 + 10
    );
    assert_eq!(
        run_us(&requests, &Placement::one(2, 0, Residence::Fast)),
        10 + 100 + 1000
    );
}

#[test]
fn first_touch_fills_up_and_then_stops() {
    let requests: Vec<Request> = (0..4)
        .map(|step| {
            request(
                step * 100,
                step * 100 + 100,
                0,
                Op::Read,
                (step % 3) * 4096,
                4096,
            )
        })
        .collect();
    let first_touch = |bytes| {
        run_us(
            &requests,
            &Placement::one(2, 0, Residence::FirstTouch(bytes)),
        )
    };
    assert_eq!(first_touch(0), 400);
    // Blocks 0 and 1 fit: blocks 0, 1, 2, 0 are read.
    assert_eq!(first_touch(8192), 10 + 10 + 100 + 10);
    assert_eq!(first_touch(1 << 20), 40);
}

#[test]
fn a_request_over_both_devices_is_split_and_waits_for_both() {
    let requests = [request(0, 100, 0, Op::Read, 0, 3 * 4096)];
    let placement = Placement::one(2, 0, Residence::Blocks([1].into()));
    let (first, pieces) = placement::route(&requests, &placement);
    assert_eq!(first, [0, 3]);
    let lengths: Vec<(bool, u64, u64)> = pieces
        .iter()
        .map(|piece| (piece.fast, piece.offset, piece.length))
        .collect();
    assert_eq!(
        lengths,
        [(false, 0, 4096), (true, 4096, 4096), (false, 8192, 4096)]
    );
    assert_eq!(run_us(&requests, &placement), 100);
}

#[test]
fn a_synchronous_log_on_a_disk_pays_a_turn_for_each_record() {
    // Write and flush, one behind the other, with a little thinking: each flush just misses its sector.
    let mut requests = Vec::new();
    for record in 0..50_u64 {
        let at = record * 10_000;
        requests.push(request(at, at + 200, 1, Op::Write, record * 4096, 4096));
        requests.push(request(at + 250, at + 9_000, 1, Op::Flush, 0, 0));
    }
    let machine = Machine::laboratory();
    let chain = Chain::of(&requests);
    let outcome = simulate(
        &info(&["fs", "journal"]),
        &requests,
        &chain,
        &Placement::slow(2),
        &machine,
        true,
    );
    let per_record_ms = outcome.run_ns as f64 / 50.0 / 1e6;
    assert!((8.0..20.0).contains(&per_record_ms), "{per_record_ms}");
    // The writes themselves are done when they are in the cache.
    let (issued, completed) = outcome.times_ns[10];
    assert!(completed - issued < 300_000);
}

#[test]
fn a_disk_serves_what_is_near_and_streams_what_is_next() {
    let machine = Machine::laboratory();
    let time = |offsets: &[u64]| {
        let requests: Vec<Request> = offsets
            .iter()
            .enumerate()
            .map(|(index, offset)| {
                request(
                    index as u64 * 20_000,
                    index as u64 * 20_000 + 19_999,
                    0,
                    Op::Read,
                    *offset,
                    32_768,
                )
            })
            .collect();
        let chain = Chain::of(&requests);
        simulate(
            &info(&["fs"]),
            &requests,
            &chain,
            &Placement::slow(1),
            &machine,
            false,
        )
        .slow_busy_ns
    };
    let sequential: Vec<u64> = (0..100).map(|index| index * 32_768).collect();
    let scattered: Vec<u64> = (0..100)
        .map(|index| index * 7_919 % 100 * 100_000_000)
        .collect();
    assert!(time(&scattered) > 10 * time(&sequential));
}

#[test]
fn a_cache_gains_nothing_from_single_accesses_and_everything_from_repeated_ones() {
    let info = info(&["fs"]);
    let run = |blocks: &[u64], mode| {
        let requests: Vec<Request> = blocks
            .iter()
            .enumerate()
            .map(|(index, block)| {
                request(
                    index as u64 * 100,
                    index as u64 * 100 + 100,
                    0,
                    Op::Read,
                    block * 4096,
                    4096,
                )
            })
            .collect();
        let chain = Chain::of(&requests);
        simulate_cache(&info, &requests, &chain, 16 * 4096, mode, &machine())
    };
    let once: Vec<u64> = (0..64).collect();
    let cold = run(&once, CacheMode::WriteBack);
    assert_eq!((cold.read_hits, cold.reads), (0, 64));
    assert!(cold.outcome.run_ns >= 64 * 100_000);
    assert_eq!(cold.outcome.fast_written, 64 * 4096);
    let repeated: Vec<u64> = (0..64).map(|index| index % 16).collect();
    let warm = run(&repeated, CacheMode::WriteThrough);
    assert_eq!(warm.read_hits, 48);
    // A cycle one block longer than the cache: least recently used misses every time.
    let cycle: Vec<u64> = (0..64).map(|index| index % 17).collect();
    assert_eq!(run(&cycle, CacheMode::WriteBack).read_hits, 0);
}

#[test]
fn write_through_waits_for_the_slow_device_and_write_back_evicts_to_it() {
    let info = info(&["fs"]);
    let requests: Vec<Request> = (0..32)
        .map(|index| {
            request(
                index * 100,
                index * 100 + 100,
                0,
                Op::Write,
                index * 4096,
                4096,
            )
        })
        .collect();
    let chain = Chain::of(&requests);
    let back = simulate_cache(
        &info,
        &requests,
        &chain,
        16 * 4096,
        CacheMode::WriteBack,
        &machine(),
    );
    let through = simulate_cache(
        &info,
        &requests,
        &chain,
        16 * 4096,
        CacheMode::WriteThrough,
        &machine(),
    );
    assert!(through.outcome.run_ns > 5 * back.outcome.run_ns);
    // Half of the blocks had to go, and were read back from the cache for that.
    assert_eq!(back.outcome.fast_read, 16 * 4096);
}

#[test]
fn impossible_models_are_refused() {
    let good = "[slow]\nkind=\"flash\"\nread_us=1\nwrite_us=1\nflush_us=0\nread_bandwidth=1\nwrite_bandwidth=1\nchannels=1\npath_us=0\npath_bandwidth=1\n";
    let whole = format!("{good}{}", good.replace("[slow]", "[fast]"));
    assert!(Machine::from_toml(&whole).is_ok());
    for (from, to) in [
        ("channels=1", "channels=0"),
        ("read_us=1", "read_us=-1"),
        ("flush_us=0", "flush_us=nan"),
        ("path_us=0", "path_us=1e300"),
        ("read_bandwidth=1", "read_bandwidth=0"),
        ("path_us=0", "path_us=0\nturbo=1"),
        ("flash", "tape"),
    ] {
        assert!(
            Machine::from_toml(&whole.replace(from, to)).is_err(),
            "{to}"
        );
    }
    let disk = "[slow]\nkind=\"disk\"\nspan=\"60GiB\"\nseek_min_us=1\nseek_sqrt_us=1\nrotation_us=8333\nbandwidth=1\nread_ahead=0\nwrite_cache=0\nqueue_depth=1\ncommand_us=0\npath_us=0\npath_bandwidth=1\n";
    let whole = format!("{disk}{}", good.replace("[slow]", "[fast]"));
    assert!(Machine::from_toml(&whole).is_ok());
    for (from, to) in [
        ("command_us=0", "command_us=-5"),
        ("seek_min_us=1", "seek_min_us=inf"),
        ("rotation_us=8333", "rotation_us=0"),
    ] {
        let error = Machine::from_toml(&whole.replace(from, to)).unwrap_err();
        assert!(
            error.to_string().contains("slow device is not possible"),
            "{to}"
        );
    }
    assert!(
        Machine::of_presets("hdd", "warp")
            .unwrap_err()
            .to_string()
            .contains("nvme")
    );
    for name in model::PRESETS {
        assert!(DeviceModel::preset(name).is_some(), "{name}");
    }
}
