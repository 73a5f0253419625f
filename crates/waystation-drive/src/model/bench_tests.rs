//! Small loads: what must hold of every run, and controls whose outcome is known beforehand.

use super::*;

fn cosmos() -> Machine {
    Machine::parse(Machine::COSMOS_PLUS).expect("it is sound")
}

fn load(records: u64) -> Load {
    Load {
        records,
        table_bytes: 4 << 20,
        level1_bytes: 4 << 20,
        ..Load::default()
    }
}

const IN_DRIVE: Place = Place::Drive { decoders: 4 };
const ON_CARD: Place = Place::Card { decoders: 4 };

fn of(machine: &Machine, place: Place) -> Outcome {
    run(machine, &load(1_500_000), place, true).expect("it runs")
}

#[test]
fn a_run_is_the_same_twice_and_loses_no_page() {
    for place in [Place::Host, ON_CARD, IN_DRIVE] {
        let first = of(&cosmos(), place);
        assert_eq!(first, of(&cosmos(), place));
        let page = cosmos().flash.page_bytes;
        let all = first.level0.plus(first.deeper);
        let pages: u64 = first.usage.pages_read.iter().sum();
        // The last job may be under way: it has read more than is accounted.
        assert!(pages * page >= all.bytes_read, "{place:?}");
        assert!(
            first.level0.count > 3 && first.deeper.count > 3,
            "{first:?}"
        );
        let inside = first.usage.pages_read[Side::Inside as usize];
        assert_eq!(inside > 0, place == IN_DRIVE);
    }
}

#[test]
fn a_slow_engine_makes_the_drive_worse_than_the_host() {
    let mut machine = cosmos();
    machine.engine.clock_mhz = 7; // about 50 MB/s
    let host = of(&cosmos(), Place::Host).deeper.mb_s();
    assert!(of(&machine, IN_DRIVE).deeper.mb_s() < 0.5 * host);
    assert!(of(&cosmos(), IN_DRIVE).deeper.mb_s() > 1.2 * host);
}

#[test]
fn a_card_that_overlaps_everything_comes_near_the_drive() {
    let mut machine = cosmos();
    machine.card.overlap = 1.0;
    machine.card.chunks_in_flight = 8;
    machine.card.link_mb_s = 20_000;
    let (card, drive) = (of(&machine, ON_CARD), of(&machine, IN_DRIVE));
    let ratio = card.deeper.mb_s() / drive.deeper.mb_s();
    assert!((0.9..1.15).contains(&ratio), "{ratio}");
    let serial = of(&cosmos(), ON_CARD);
    assert!(serial.deeper.mb_s() < 0.85 * drive.deeper.mb_s());
}

#[test]
fn slow_flash_brings_all_places_together() {
    let mut machine = cosmos();
    machine.flash.read_ns = 90_000;
    machine.flash.program_ns = 2_000_000;
    let speeds = [Place::Host, ON_CARD, IN_DRIVE].map(|place| of(&machine, place).deeper.mb_s());
    let fastest = speeds.iter().fold(0.0_f64, |a, &b| a.max(b));
    let slowest = speeds.iter().fold(f64::INFINITY, |a, &b| a.min(b));
    assert!(fastest / slowest < 1.25, "{speeds:?}");
    assert!(fastest < 0.6 * of(&cosmos(), IN_DRIVE).deeper.mb_s());
}

#[test]
fn figures_that_make_no_sense_are_named() {
    for (from, to, field) in [
        ("channels = 4\n", "channels = 0\n", "flash.channels"),
        ("channels = 4\n", "channels = 100000\n", "flash.channels"),
        (
            "blocks_per_die = 4096",
            "blocks_per_die = 1000000",
            "channels x dies x blocks x pages",
        ),
        ("page_bytes = 16384", "page_bytes = 3", "flash.page_bytes"),
        (
            "transfer_mb_s = 200 ",
            "transfer_mb_s = 0 ",
            "flash.transfer_mb_s",
        ),
        (
            "read_ns = 45000 ",
            "read_ns = 99999999999 ",
            "flash.read_ns",
        ),
        (
            "spare_percent = 10",
            "spare_percent = 100",
            "flash.spare_percent",
        ),
        ("bytes = 1073741824", "bytes = 1000", "memory.bytes"),
        ("overlap = 0.0", "overlap = 1.5", "card.overlap"),
        ("clock_mhz = 200", "clock_mhz = -1", "invalid value"),
        ("[card]", "[cart]", "unknown field"),
    ] {
        let text = Machine::COSMOS_PLUS.replacen(from, to, 1);
        assert_ne!(text, Machine::COSMOS_PLUS, "{from}");
        let said = Machine::parse(&text).expect_err(to).to_string();
        assert!(said.contains(field), "{to}: {said}");
    }
    Machine::parse(Machine::MODERN).expect("it is sound");
}

#[test]
fn a_drive_that_is_too_small_says_so() {
    let mut machine = cosmos();
    machine.flash.blocks_per_die = 8;
    machine.flash.pages_per_block = 16;
    let error = run(&machine, &load(1_500_000), IN_DRIVE, true).expect_err("it is full");
    assert!(error.to_string().contains("the drive is full"), "{error}");
}
