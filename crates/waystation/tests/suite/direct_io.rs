//! Transfers of the log around the page cache: used where they work, left where they are refused, avoided on request.

use std::path::Path;
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};
use waystation::storage::{Area, SimStorage};
use waystation::{Db, Options, Stats};

/// Runs a small database under `rules`, over several segments and tables, and a second life of it.
fn run(rules: &FaultRules, direct_io: bool) -> Stats {
    let machine = SimStorage::new(1);
    let options = Options {
        memtable_bytes: 64 << 10,
        ring_bytes: 256 << 10,
        log_segment_bytes: 256 << 10,
        direct_io,
        ..Options::default()
    };
    let open = || {
        Db::open_with(
            machine.with_faults(rules),
            Path::new("/db"),
            options.clone(),
        )
        .expect("opens")
    };
    let db = open();
    for number in 0..500_u32 {
        db.put(&number.to_le_bytes(), &[7; 2000]).expect("writes");
    }
    db.flush().expect("flushes");
    db.put(b"in the log", b"only").expect("writes");
    db.sync().expect("syncs");
    let stats = db.stats();
    drop(db);
    let db = open();
    for number in 0..500_u32 {
        assert!(db.get(&number.to_le_bytes()).expect("reads").is_some());
    }
    assert!(db.get(b"in the log").expect("reads").is_some());
    db.close().expect("closes");
    stats
}

fn fallbacks(stats: &Stats, area: Area) -> u64 {
    let meters = stats.storage.iter().filter(|it| it.area == area);
    meters.map(|it| it.meter.direct_fallbacks).sum()
}

#[test]
fn direct_transfers_are_the_default() {
    let stats = run(&FaultRules::new(), true);
    assert!(stats.log.direct_io);
    assert_eq!(fallbacks(&stats, Area::Journal), 0);
    assert_eq!(fallbacks(&stats, Area::Tables), 0);
}

#[test]
fn a_refusal_at_open_or_at_the_first_write_leads_to_buffered_transfers_and_is_shown() {
    for operation in [Operation::Open, Operation::Write] {
        let rules = FaultRules::new();
        rules.add(Rule::new(operation, Fault::Fail(Refusal::Invalid)).direct_only());
        let stats = run(&rules, true);
        assert!(!stats.log.direct_io, "{operation:?}");
        assert!(fallbacks(&stats, Area::Journal) > 0, "{operation:?}");
        // Tables go through the page cache in any case.
        assert_eq!(fallbacks(&stats, Area::Tables), 0, "{operation:?}");
    }
}

#[test]
fn without_direct_io_no_file_is_opened_for_it() {
    let rules = FaultRules::new();
    for operation in [Operation::Open, Operation::Write, Operation::Read] {
        // Not an answer that leads to a fall-back.
        rules.add(Rule::new(operation, Fault::Fail(Refusal::InputOutput)).direct_only());
    }
    let stats = run(&rules, false);
    assert!(!stats.log.direct_io);
    assert_eq!(fallbacks(&stats, Area::Journal), 0);
    assert_eq!(fallbacks(&stats, Area::Tables), 0);
}
