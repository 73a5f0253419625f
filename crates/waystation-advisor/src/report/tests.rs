//! Figures of a characterisation worked out by hand, and the shape of what is printed.

use super::*;
use crate::event::{Area, Role};

fn info(end_ns: u64) -> TraceInfo {
    TraceInfo {
        areas: vec![Area {
            name: "fs".to_owned(),
            device: "fs".to_owned(),
            role: Role::FileSystem,
            extent_bytes: 1 << 30,
        }],
        comms: vec![String::new()],
        end_ns,
        requests: 1,
        completed: 1,
        flushes: 1,
        ..TraceInfo::default()
    }
}

fn read(issue_ns: u64, block: u64, blocks: u32) -> Request {
    Request {
        issue_ns,
        complete_ns: issue_ns + 100,
        offset: block * 4096,
        length: blocks * 4096,
        pid: 0,
        comm: 0,
        area: 0,
        op: Op::Read,
        flags: Flags::default(),
    }
}

fn report_of(requests: &[Request]) -> Report {
    let end = requests.last().map_or(0, |last| last.complete_ns);
    let mut characteriser = Characteriser::new(&info(end));
    for request in requests {
        characteriser.add(request);
    }
    characteriser.finish()
}

#[test]
fn counts_are_exact_while_they_fit() {
    // Blocks 0..100 once, blocks 0..10 twice more.
    let mut requests: Vec<Request> = (0..100)
        .map(|block| read(block * 1_000, block, 1))
        .collect();
    for round in 0..2 {
        requests
            .extend((0..10).map(|block| read(100_000 + round * 10_000 + block * 1_000, block, 1)));
    }
    let report = report_of(&requests);
    let area = &report.areas[0];
    assert_eq!(report.sampled.to_bits(), 1.0_f64.to_bits());
    assert_eq!(area.unique_bytes, 100 * 4096);
    assert!((area.multiplicity.single_of_blocks - 0.9).abs() < 1e-9);
    assert!((area.multiplicity.single_of_accesses - 90.0 / 120.0).abs() < 1e-9);
    assert!((area.multiplicity.hottest_tenth_of_accesses - 30.0 / 120.0).abs() < 1e-9);
    assert_eq!(area.growth.len(), TIME_COLUMNS);
    assert_eq!(*area.growth.last().unwrap(), 100 * 4096);
    assert_eq!(area.read.requests, 120);
    assert_eq!(area.busy_ns, 120 * 100);
    assert_eq!(report.think_ns, report.duration_ns - 120 * 100);
    assert_eq!(
        area.heat.iter().flat_map(|row| &row.read).sum::<u64>(),
        120 * 4096
    );
}

#[test]
fn miss_ratios_match_an_lru_cache_simulated_exactly() {
    // A cycle over 64 blocks: everything misses below 64 blocks, only first accesses above. Positions are used up twice.
    let requests: Vec<Request> = (0..192_000_u64)
        .map(|index| read(index * 200, index % 64, 1))
        .collect();
    let area = &report_of(&requests).areas[0];
    let at = |blocks: u64| {
        area.miss_ratio
            .iter()
            .rfind(|point| point.cache_bytes <= blocks * 4096)
            .map_or(1.0, |point| point.miss_ratio)
    };
    assert!((at(32) - 1.0).abs() < 1e-9);
    assert!((at(64) - 1.0 / 3_000.0).abs() < 1e-9);
}

#[test]
fn sampling_keeps_footprint_and_curve_within_a_few_percent() {
    // Two rounds over 200,000 chunks with 20 blocks in every two: half as many again as the table holds, and 61 times
    // the blocks that the sampler follows.
    let mut requests = Vec::new();
    for round in 0..2_u64 {
        for index in 0..100_000_u64 {
            requests.push(read((round * 100_000 + index) * 1_000, index * 32, 20));
        }
    }
    let report = report_of(&requests);
    let area = &report.areas[0];
    assert!(report.sampled < 1.0);
    let unique = area.unique_bytes as f64 / (2_000_000.0 * 4096.0);
    assert!((0.99..1.01).contains(&unique), "{unique}");
    let first = area.reuse[0] / area.reuse.iter().sum::<f64>();
    assert!((0.45..0.55).contains(&first), "{first}");
    // Every second access comes after two million blocks, which is in the class up to 2^21.
    let far: f64 = area.reuse[21..].iter().sum();
    assert!((far / area.reuse[0] - 1.0).abs() < 0.1, "{far}");
    assert!(area.multiplicity.single_of_blocks < 0.01);
}

#[test]
fn the_working_set_counts_a_block_until_its_window_ends() {
    // One block read once at the beginning of 100 seconds: present for 1, 10 and 60 of them.
    let mut requests = vec![read(0, 5, 1)];
    requests.push(Request {
        complete_ns: 100_000_000_000,
        op: Op::Flush,
        length: 0,
        ..read(99_999_999_000, 0, 0)
    });
    let sets = report_of(&requests).areas[0].working_set;
    assert_eq!(sets, [40, 409, 2457]);
}

#[test]
fn histograms_are_right_within_their_resolution() {
    let mut histogram = Histogram::new();
    for value in 1..=10_000 {
        histogram.add(value * 1_000);
    }
    for (share, expected) in [(0.5, 5e6), (0.99, 9.9e6), (0.999, 9.99e6)] {
        let found = histogram.quantile(share) as f64;
        assert!((found / expected - 1.0).abs() < 0.07, "{share}: {found}");
    }
    histogram.add(0);
    histogram.add(u64::MAX);
    assert!(histogram.quantile(1.0) == 0 || histogram.quantile(1.0) > 1 << 62);
}

#[test]
fn all_renderings_hold_every_area_and_note() {
    let mut info = info(1_000);
    info.flushes = 0;
    let mut characteriser = Characteriser::new(&info);
    characteriser.add(&read(0, 1, 1));
    let report = characteriser.finish();
    let text = text::render(&report);
    let html = html::render(&report, None);
    let json = serde_json::to_string(&report).unwrap();
    for rendering in [&text, &html, &json] {
        assert!(rendering.contains("fs"), "{rendering}");
        assert!(rendering.contains("no flushes"), "{rendering}");
    }
    assert!(html.starts_with("<!doctype html>") && html.contains("<svg"));
    assert!(!html.contains("http://") || html.contains("http://www.w3.org/2000/svg"));
}

#[test]
fn of_many_areas_the_busiest_are_drawn_and_all_are_in_the_tables() {
    let mut many = info(1_000);
    let one = many.areas.remove(0);
    for number in 0..12_u8 {
        many.areas.push(Area {
            name: format!("volume-with-a-long-name-{number}"),
            ..one.clone()
        });
    }
    let mut characteriser = Characteriser::new(&many);
    for number in 0..12_u8 {
        characteriser.add(&Request {
            area: number,
            ..read(u64::from(number), 1, u32::from(number) + 1)
        });
    }
    let report = characteriser.finish();
    let page = html::render(&report, None);
    assert!(page.contains("the 7 areas with the most traffic; tables show all 12"));
    assert!(page.contains("all others") && page.contains("volu\u{2026}me-11: blocks"));
    assert_eq!(page.matches("Addresses over time").count(), 7);
    assert!(page.contains("<td>volume-with-a-long-name-0</td>"));
    // Names that are longer than others shift no column.
    let text = text::render(&report);
    let header = text.lines().find(|line| line.contains("written")).unwrap();
    let row = text.lines().find(|line| line.contains("name-3 ")).unwrap();
    assert_eq!(
        header.find("of bytes").map(|at| at + 8),
        row.find('%').map(|at| at + 1)
    );
}

#[test]
fn an_empty_trace_has_an_empty_report() {
    let report = Characteriser::new(&TraceInfo::default()).finish();
    assert_eq!(report.requests, 0);
    assert!(text::render(&report).contains("0 requests"));
    assert!(html::render(&report, None).contains("</html>"));
}

#[test]
fn a_heat_map_leaves_out_what_was_never_touched() {
    // Two places far from each other, and one request at the very end of the addresses.
    let requests = [
        read(0, 0, 1),
        read(1_000, 200_000, 2),
        read(2_000, (1 << 18) - 1, 1),
    ];
    let heat = &report_of(&requests).areas[0].heat;
    let shown: u64 = heat.iter().map(|row| row.to - row.from).sum();
    assert_eq!(heat.len(), 3);
    assert!(shown < 1 << 20, "of {} addresses", 1 << 30);
    assert_eq!(heat[1].read.iter().sum::<u64>(), 2 * 4096);
    assert!(heat.windows(2).all(|rows| rows[0].to < rows[1].from));
}
