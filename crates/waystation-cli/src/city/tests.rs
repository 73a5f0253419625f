//! The city as a whole: it comes out clean on sound engines, and does not on others.

use super::audit::{Audit, Verdict};
use super::drive::{Run, Setup, Watch, run};
use super::edge::memory::{Fault, Faulty, MemoryEdge};
use super::edge::{Edge, MEMORY_MIN, WaystationEdge, options_within};
use super::journey;
use super::meters::Counts;
use super::reading::Plan;
use super::trace::Trace;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const PLAN: Plan = Plan {
    interval_us: 1_500_000,
    sensors: 3,
    value_bytes: 40,
};
/// Seconds of the trace.
const UNTIL: u32 = 300;

struct Silent {
    stop_at: u32,
    now: u32,
}

impl Watch for Silent {
    fn tick(&mut self, now: u32, _vehicles: usize, _counts: &Counts) {
        self.now = now;
    }
    fn say(&mut self, _what: &'static str) {}
    fn is_stopped(&self) -> bool {
        self.now >= self.stop_at
    }
}

fn city<E: Edge>(
    trace: &Trace,
    until: u32,
    stop_at: u32,
    open: impl Fn(usize) -> super::edge::Result<E> + Sync,
) -> Run {
    let actions = journey::actions(trace);
    let setup = Setup {
        actions: &actions,
        cells: &trace.cells,
        plan: PLAN,
        queries_per_million: 50_000,
        threads: 3,
        until,
        reopen_every: 250,
        directory: Path::new("/nowhere"),
    };
    let audit = Audit::new(trace, PLAN);
    run(&setup, &audit, &open, &mut Silent { stop_at, now: 0 }).unwrap()
}

fn bologna() -> Trace {
    Trace::load(None).unwrap().cut(UNTIL)
}

/// The city in memory, where something goes wrong once.
fn with(fault: Fault, at: u64, until: u32) -> Verdict {
    let trace = bologna();
    let stores: Vec<MemoryEdge> = trace.cells.iter().map(|_| MemoryEdge::default()).collect();
    let count = Arc::new(AtomicU64::new(0));
    let open = |cell: usize| {
        Ok(Faulty {
            inner: stores[cell].clone(),
            fault,
            at,
            count: Arc::clone(&count),
        })
    };
    city(&trace, until, u32::MAX, open).verdict
}

fn counts(verdict: &Verdict) -> [u64; 4] {
    [
        verdict.lost,
        verdict.doubled,
        verdict.left_behind,
        verdict.wrong_answers,
    ]
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let verdict = with(Fault::None, 0, UNTIL);
    assert!(verdict.is_clean(), "{verdict}");
    assert!(verdict.readings > 50_000, "{verdict}");
    let text = format!(
        "audit: {} readings, 0 lost, 0 doubled, 0 left behind",
        verdict.readings
    );
    assert_eq!(verdict.to_string(), text);
}

#[test]
fn whatever_goes_wrong_once_is_found() {
    for (fault, at, until, expected) in [
        (Fault::LosesAPut, 3_000, UNTIL, [1, 0, 0]),
        // The last but one: nobody leaves after it, the whole cells' audit finds it.
        (Fault::LosesAPut, 2, 20, [1, 0, 0]),
        (Fault::AltersAPut, 2_000, UNTIL, [1, 0, 0]),
        (Fault::InventsAPut, 2_000, UNTIL, [0, 1, 0]),
        (Fault::LosesInAHandOff, 100, UNTIL, [1, 0, 0]),
        (Fault::KeepsAfterAHandOff, 100, UNTIL, [0, 0, 1]),
    ] {
        let verdict = with(fault, at, until);
        assert!(!verdict.is_clean());
        assert_eq!(counts(&verdict)[..3], expected, "{fault:?}: {verdict}");
    }
    let verdict = with(Fault::IgnoresADeparture, 5, UNTIL);
    assert!(
        verdict.left_behind > 0 && verdict.lost + verdict.doubled == 0,
        "{verdict}"
    );
    let verdict = with(Fault::ShowsTwice, 5_000, UNTIL);
    assert!(verdict.doubled > 0 && verdict.lost == 0, "{verdict}");
    let verdict = with(Fault::AnswersOld, 20, UNTIL);
    assert_eq!(counts(&verdict), [0, 0, 0, 1], "{verdict}");
}

#[test]
fn what_changes_while_the_engines_are_closed_is_found() {
    let trace = bologna();
    for (what, expected) in [
        ("lost", [1, 0, 0, 0]),
        ("back", [0, 0, 1, 0]),
        ("foreign", [0, 1, 0, 0]),
    ] {
        let stores: Vec<MemoryEdge> = trace.cells.iter().map(|_| MemoryEdge::default()).collect();
        let opened = AtomicU64::new(0);
        let open = |cell: usize| {
            let store = stores[cell].clone();
            // All are opened twice before anybody leaves; the last time nobody drives after it.
            let times = opened.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            if times == 30 {
                let fullest = stores
                    .iter()
                    .max_by_key(|store| store.0.lock().unwrap().len());
                let mut entries = fullest.unwrap().0.lock().unwrap();
                match what {
                    "lost" => drop(entries.pop_first().unwrap()),
                    "back" => drop(entries.insert(b"car9999999:speed:1".to_vec(), vec![])),
                    _ => drop(entries.insert(b"letter".to_vec(), vec![])),
                }
            }
            Ok(store)
        };
        let mut verdict = city(&trace, 60, u32::MAX, open).verdict;
        verdict.wrong_answers = 0;
        assert_eq!(counts(&verdict), expected, "{what}: {verdict}");
    }
}

/// The busiest cells of the trace: a city of six, whose vehicles come and go as they do there.
fn six_cells() -> Trace {
    let mut trace = bologna();
    let mut counts = vec![0; trace.cells.len()];
    trace
        .events
        .iter()
        .for_each(|event| counts[event.cell] += 1);
    let mut places: Vec<usize> = (0..counts.len()).collect();
    places.sort_by_key(|place| std::cmp::Reverse(counts[*place]));
    places.truncate(6);
    trace.events.retain_mut(|event| {
        let place = places.iter().position(|place| *place == event.cell);
        event.cell = place.unwrap_or(0);
        place.is_some()
    });
    trace.cells.truncate(6);
    trace
}

#[test]
fn waystation_comes_out_clean_and_settles_those_who_stay() {
    let trace = six_cells();
    let directory = tempfile::tempdir().unwrap();
    for durability in [
        waystation::Durability::ProcessCrash,
        waystation::Durability::PowerLoss,
    ] {
        let cells = trace.cells.len();
        let options = options_within((cells * MEMORY_MIN) as u64, cells, 0).unwrap();
        let opened = |cell: usize| {
            let path = directory.path().join(format!("{durability:?}/{cell}"));
            WaystationEdge::open(&path, options.clone(), durability)
        };
        let until = if durability == waystation::Durability::PowerLoss {
            120
        } else {
            UNTIL
        };
        let ran = city(&trace, until, u32::MAX, opened);
        assert!(ran.verdict.is_clean(), "{}", ran.verdict);
        let counted = ran.meters.counts;
        assert_eq!(ran.verdict.readings, counted.readings);
        assert!(counted.handed_records > counted.hand_offs && counted.hand_offs > 20);
        assert_eq!((ran.city_s, ran.was_stopped), (until, false));
        let last = ran.samples.last().unwrap();
        assert_eq!(last.city_s, until);
        if until == UNTIL {
            assert!(
                counted.departures > 20 && counted.settled > 30,
                "{counted:?}"
            );
            assert!(last.occupancy.tree_vehicles > 0 && last.occupancy.upper_vehicles > 0);
            assert_eq!(ran.reopened, 2);
        }
    }
}

#[test]
fn a_run_that_is_stopped_is_audited_as_it_stands() {
    let trace = bologna();
    let stores: Vec<MemoryEdge> = trace.cells.iter().map(|_| MemoryEdge::default()).collect();
    let ran = city(&trace, UNTIL, 100, |cell| Ok(stores[cell].clone()));
    assert!(ran.was_stopped && ran.city_s == 100);
    assert!(
        ran.verdict.is_clean() && ran.verdict.readings > 0,
        "{}",
        ran.verdict
    );
}

#[test]
fn all_that_happens_within_a_second_is_audited() {
    let lines = "t_s,device,cell,event\n0.0,a,x,A\n5.1,a,x,L\n5.2,a,y,A\n5.3,a,y,L\n5.4,a,x,A\n5.5,a,x,L\n\
                 8.5,b,x,A\n8.5,b,x,L\n8.75,b,x,A\n9.75,b,x,L\n9.75,b,y,A\n9.8,b,y,L\n9.9,b,y,A\n9.95,b,y,L\n";
    let trace = Trace::read(Path::new("t"), lines.as_bytes()).unwrap();
    for until in 1..=10 {
        let stores = [MemoryEdge::default(), MemoryEdge::default()];
        let ran = city(&trace, until, u32::MAX, |cell| Ok(stores[cell].clone()));
        assert!(ran.verdict.is_clean(), "{until}: {}", ran.verdict);
        assert_eq!(ran.verdict.readings, ran.meters.counts.readings);
    }
}

#[test]
fn gaps_stops_and_returns_are_audited_too() {
    let lines = "t_s,device,cell,event\n0,1,0,A\n30,1,0,L\n31,1,3,A\n60,1,3,L\n60,1,3,A\n80,1,3,L\n90,1,0,A\n\
                 95,2,3,A\n120,1,0,L\n120,1,3,A\n120,1,3,L\n120,1,0,A\n150,1,0,L\n";
    let trace = Trace::read(Path::new("t"), lines.as_bytes()).unwrap();
    for until in [31, 60, 85, 120, 121, 151] {
        let stores = [MemoryEdge::default(), MemoryEdge::default()];
        let ran = city(&trace, until, u32::MAX, |cell| Ok(stores[cell].clone()));
        assert!(ran.verdict.is_clean(), "{until}: {}", ran.verdict);
        assert_eq!(ran.verdict.readings, ran.meters.counts.readings);
    }
}
