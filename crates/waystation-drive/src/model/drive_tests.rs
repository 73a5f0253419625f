//! Laws that any drive obeys (closed forms), and that the host's work does not wait for compaction's.

use super::*;

fn cosmos() -> Machine {
    Machine::parse(Machine::COSMOS_PLUS).expect("it is sound")
}

/// Keeps `depth` requests under way until `count` are done; the time, and the sum of all latencies.
fn closed_loop(
    drive: &mut Drive<u32>,
    (depth, count): (u32, u32),
    mut issue: impl FnMut(&mut Drive<u32>, u32),
) -> (Nanos, Nanos) {
    let begun = drive.now();
    let mut issued_at = vec![0; count as usize];
    let mut next = 0;
    let mut latencies = 0;
    let mut done = vec![false; count as usize];
    while next < depth.min(count) {
        issued_at[next as usize] = drive.now();
        issue(drive, next);
        next += 1;
    }
    while let Some(tag) = drive.next_done() {
        assert!(
            !std::mem::replace(&mut done[tag as usize], true),
            "{tag} came twice"
        );
        latencies += drive.now() - issued_at[tag as usize];
        if next < count {
            issued_at[next as usize] = drive.now();
            issue(drive, next);
            next += 1;
        }
    }
    assert!(done.iter().all(|&it| it), "a request never came back");
    (drive.now() - begun, latencies)
}

/// A drive with `pages` pages written.
fn filled(machine: &Machine, pages: u32) -> Drive<u32> {
    let mut drive = Drive::new(machine, true).expect("it is sound");
    closed_loop(&mut drive, (64, pages), |drive, page| {
        drive.write(page, Side::Inside, 0, page).expect("room");
    });
    drive
}

#[test]
fn a_single_read_takes_the_sum_of_its_steps() {
    let machine = cosmos();
    let (flash, front) = (&machine.flash, &machine.front);
    let carry = transfer(
        flash.page_bytes + flash.page_spare_bytes,
        flash.transfer_mb_s,
    );
    let memory = transfer(2 * flash.page_bytes, machine.memory.mb_s);
    let inside = front.operation_ns + flash.command_ns + flash.read_ns + carry + memory;
    let link = front.link_setup_ns + transfer(flash.page_bytes, front.link_mb_s);
    for (side, expected) in [(Side::Inside, inside), (Side::Host, inside + link)] {
        let mut drive = filled(&machine, 32);
        let (time, latencies) = closed_loop(&mut drive, (1, 10), |drive, page| {
            drive.read(page, side, 0, page);
        });
        assert_eq!((time, latencies), (10 * expected, 10 * expected));
    }
}

#[test]
fn many_reads_fill_the_channels_and_obey_littles_law() {
    let machine = cosmos();
    let flash = &machine.flash;
    let carry = transfer(
        flash.page_bytes + flash.page_spare_bytes,
        flash.transfer_mb_s,
    );
    let ideal = (flash.command_ns + carry) as f64 / flash.channels as f64;
    for (depth, least) in [(64, 0.95), (32, 0.90), (16, 0.75)] {
        let count = 4000;
        let mut drive = filled(&machine, count);
        let (time, latencies) = closed_loop(&mut drive, (depth, count), |drive, page| {
            drive.read(page, Side::Inside, 0, page);
        });
        let used = ideal * f64::from(count) / time as f64;
        assert!((least..=1.0).contains(&used), "depth {depth}: {used}");
        let under_way = latencies as f64 / time as f64;
        assert!(
            (under_way / f64::from(depth) - 1.0).abs() < 0.02,
            "{under_way}"
        );
    }
}

#[test]
fn writes_are_bound_by_channels_or_by_dies() {
    for program_ns in [50_000, 350_000, 1_300_000] {
        let mut machine = cosmos();
        machine.flash.program_ns = program_ns;
        let flash = &machine.flash;
        let sent = flash.command_ns
            + transfer(
                flash.page_bytes + flash.page_spare_bytes,
                flash.transfer_mb_s,
            );
        let by_channel = sent as f64 / flash.channels as f64;
        let dies = flash.channels * flash.dies_per_channel;
        let by_dies = (sent + program_ns) as f64 / dies as f64;
        let mut drive: Drive<u32> = Drive::new(&machine, true).expect("it is sound");
        let count = 4000;
        let (time, _) = closed_loop(&mut drive, (64, count), |drive, page| {
            drive.write(page, Side::Inside, 0, page).expect("room");
        });
        let used = by_channel.max(by_dies) * f64::from(count) / time as f64;
        assert!((0.93..=1.0).contains(&used), "{program_ns}: {used}");
    }
}

/// The longest of the host's reads, one after another, while compaction keeps 256 reads under way.
fn slowest_read(priority: bool) -> Nanos {
    const HOST: u32 = u32::MAX;
    let mut drive: Drive<u32> = Drive::new(&cosmos(), priority).expect("it is sound");
    let request = |drive: &mut Drive<u32>, number: u32| {
        if number < 1024 {
            drive.write(number, Side::Inside, 0, number).expect("room");
        } else {
            drive.read(number % 1024, Side::Inside, 0, number);
        }
    };
    (0..256).for_each(|number| request(&mut drive, number));
    let (mut written, mut issued, mut slowest) = (256, None, 0);
    while let Some(tag) = drive.next_done() {
        if tag == HOST {
            slowest = slowest.max(drive.now() - issued.take().expect("it was issued"));
        } else if written < 6000 {
            request(&mut drive, written);
            written += 1;
        }
        if issued.is_none() && (2000..5500).contains(&written) {
            issued = Some(drive.now());
            drive.read(written * 7 % 200, Side::Host, 0, HOST);
        }
    }
    slowest
}

#[test]
fn the_host_waits_for_no_queued_work_of_compaction() {
    let flash = cosmos().flash;
    let carry = transfer(
        flash.page_bytes + flash.page_spare_bytes,
        flash.transfer_mb_s,
    );
    // At most what the die has begun, what the channel carries before each of its steps, the read itself, and a little for
    // firmware, memory and link.
    let one = flash.program_ns + 5 * carry + flash.read_ns + 100_000;
    let slowest = slowest_read(true);
    assert!(slowest < one, "{slowest}");
    assert!(slowest_read(false) > 3 * slowest);
}
