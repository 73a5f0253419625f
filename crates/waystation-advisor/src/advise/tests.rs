//! Splits, recommendations and their reasons on small made-up traces.

use std::path::{Path, PathBuf};

use super::*;
use crate::engine::SOURCE;
use crate::event::{Flags, NOT_COMPLETED, Op};
use crate::import::{AreaRules, Format, ImportSettings, import};

fn recorded(name: &str) -> Trace {
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(format!("{name}.allHDD.csv.gz"));
    let mut trace = Trace::default();
    let settings = ImportSettings {
        files: vec![file],
        format: Format::Csv,
        rules: AreaRules::default(),
        columns: None,
    };
    assert!(import(&settings, &mut trace).unwrap().is_empty());
    trace
}

fn advice(name: &str, capacity: u64) -> Advice {
    advise(
        &recorded(name),
        &Machine::laboratory(),
        &[capacity],
        |_, _| {},
    )
    .unwrap()
}

#[test]
fn each_application_gets_its_own_answer() {
    let graph = &advice("graph-pr.ordered", 64 << 20).capacities[0];
    let best = &graph.candidates[graph.advised.unwrap()];
    assert!(
        best.shares.iter().any(|share| share.area == "swap"),
        "{}",
        graph.sentence
    );
    assert!(
        graph
            .scripts
            .iter()
            .any(|script| script.text.contains("\nswap_first ")),
        "{:?}",
        graph.scripts
    );

    let web = &advice("web-mirror.ordered", 100 << 20).capacities[0];
    let best = &web.candidates[web.advised.unwrap()];
    assert!(
        best.shares.iter().any(|share| share.area == "fs"),
        "{}",
        web.sentence
    );
}

#[test]
fn a_split_beats_every_single_area_for_sqlite() {
    let advice = advice("db-sqlite-del.ordered", 20_000_000);
    let capacity = &advice.capacities[0];
    let best = &capacity.candidates[capacity.advised.unwrap()];
    assert_eq!(best.shares.len(), 2, "{}", capacity.sentence);
    assert!(best.bytes <= capacity.capacity);
    let single = capacity
        .candidates
        .iter()
        .filter(|candidate| candidate.shares.len() == 1)
        .map(|candidate| candidate.seconds);
    assert!(
        single.fold(f64::INFINITY, f64::min) >= 2.0 * best.seconds,
        "{}",
        capacity.sentence
    );
    assert!(
        capacity.sentence.contains("because"),
        "{}",
        capacity.sentence
    );
    assert!(render::text(&advice).contains(&capacity.sentence));
    assert!(render::html(&advice, &advice).contains("<svg"));
    // Nothing beats everything fast, nothing promised is slower than it is.
    for candidate in &capacity.candidates {
        assert!(
            candidate.seconds >= advice.fast_s * 0.99,
            "{}",
            candidate.name
        );
        assert!(candidate.band_s.0 < candidate.seconds && candidate.seconds < candidate.band_s.1);
    }
}

#[test]
fn a_small_journal_is_what_linux_alone_can_do_for_sqlite() {
    let capacity = advice("db-sqlite-del.journal", 8 << 20)
        .capacities
        .remove(0);
    let here = &capacity.candidates[capacity.advised_here.unwrap()];
    assert_eq!(
        here.shares[0].how,
        How::JournalSized,
        "{}",
        capacity.sentence
    );
    assert_eq!(here.bytes, 6 << 20);
    assert!(
        capacity.scripts.iter().any(|script| script
            .text
            .contains("\nmove_journal \"$FAST\" \"$MOUNTPOINT\" 6291456\n")),
        "{:?}",
        capacity.scripts
    );
}

#[test]
fn the_error_band_is_that_of_the_validation() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let validation =
        crate::validate::validate(&directory, &Machine::laboratory(), |_, _| {}).unwrap();
    let all = validation.whole.iter().chain(&validation.capacity);
    let measured = crate::validate::quantile(all, 0.9);
    assert!(
        measured <= ERROR_BAND && ERROR_BAND < measured + 0.06,
        "{measured}"
    );
}

#[test]
fn impossible_questions_are_refused_with_the_reason() {
    let mut trace = recorded("web-mirror.ordered");
    let machine = Machine::laboratory();
    let ask = |trace: &Trace, capacities: &[u64]| {
        advise(trace, &machine, capacities, |_, _| {})
            .unwrap_err()
            .to_string()
    };
    assert!(ask(&trace, &[]).contains("--fast"));
    assert!(ask(&trace, &[0]).contains("nothing to place"));
    assert!(ask(&trace, &[1 << 50]).contains("beyond the devices"));
    for request in &mut trace.requests {
        request.complete_ns = NOT_COMPLETED;
    }
    trace.info.completed = 0;
    assert!(ask(&trace, &[1 << 20]).contains("no completions"));
}

#[test]
fn without_flushes_nothing_is_said_about_a_journal() {
    let mut trace = recorded("db-sqlite-del.ordered");
    trace.requests.retain(|request| request.op != Op::Flush);
    trace.info.flushes = 0;
    let advice = advise(&trace, &Machine::laboratory(), &[20_000_000], |_, _| {}).unwrap();
    assert!(advice.notes.iter().any(|note| note.contains("no flushes")));
    let sized = advice.capacities[0].candidates.iter().any(|candidate| {
        candidate
            .shares
            .iter()
            .any(|share| share.how == How::JournalSized)
    });
    assert!(!sized);
}

/// Reads of a database: some blocks of its tables again and again, others once.
fn of_engine() -> Trace {
    let mut trace = recorded("db-sqlite-del.ordered");
    trace.info.source = SOURCE.to_owned();
    trace.info.areas.truncate(2);
    for (area, name) in trace.info.areas.iter_mut().zip(["log", "tables"]) {
        name.clone_into(&mut area.name);
        area.role = Role::Other;
        area.extent_bytes = 1 << 30;
    }
    let mut request = trace.requests[0];
    (request.op, request.flags, request.area) = (Op::Read, Flags::SYNC, 1);
    request.length = 4096;
    let read = |number: u64| {
        let block = if number.is_multiple_of(2) {
            number % 64
        } else {
            number
        };
        request.offset = block * 97 * 4096;
        request.issue_ns = number * 10_000_000;
        request.complete_ns = request.issue_ns + 9_000_000;
        request
    };
    trace.requests = (0..2_000).map(read).collect();
    (trace.info.requests, trace.info.completed) = (2_000, 2_000);
    trace
}

#[test]
fn a_database_is_advised_its_own_fast_directory() {
    let advice = advise(&of_engine(), &Machine::laboratory(), &[1 << 20], |_, _| {}).unwrap();
    let capacity = &advice.capacities[0];
    let here = &capacity.candidates[capacity.advised_here.unwrap()];
    assert_eq!(here.realisable, Realisable::Engine);
    assert!(here.seconds < 0.8 * advice.slow_s, "{}", capacity.sentence);
    assert!(
        capacity.sentence.contains("`fast_bytes`") && !capacity.sentence.contains("Linux"),
        "{}",
        capacity.sentence
    );
    assert!(capacity.scripts.is_empty(), "{:?}", capacity.scripts);
    // The areas are files of one directory: no tool of Linux moves one of them.
    let is_own = |it: &Candidate| it.realisable == Realisable::Here;
    assert!(!capacity.candidates.iter().any(is_own));
}

#[test]
fn a_wrong_model_of_the_slow_device_is_noticed() {
    let trace = recorded("db-sqlite-del.ordered");
    let mut machine = Machine::of_presets("nvme", "optane").unwrap();
    let typo = ("jurnal".to_owned(), crate::simulate::model::Size(1 << 30));
    machine.layout.extend([typo]);
    let advice = advise(&trace, &machine, &[20_000_000], |_, _| {}).unwrap();
    assert!(
        advice
            .notes
            .iter()
            .any(|note| note.contains("does not fit the recording")),
        "{:?}",
        advice.notes
    );
    assert!(advice.notes.iter().any(|note| note.contains("jurnal")));
}

#[test]
fn blocks_are_explained() {
    let trace = recorded("db-sqlite-del.ordered");
    let target = explain::target(&trace, "fs:36859904", None).unwrap();
    let explained = |target: &explain::Target| {
        let explanation = explain::explain(&trace, target, 8 << 20).unwrap();
        explanation.to_text()
    };
    let text = explained(&target);
    assert!(
        text.contains("area fs") && text.contains("it is on the fast device"),
        "{text}"
    );
    let cold = explain::target(&trace, "fs:3GiB", None).unwrap();
    assert!(explained(&cold).contains("Nothing in the trace touches it"));
    let nothing = explain::explain(&trace, &target, 0).unwrap_err();
    assert!(
        nothing.to_string().contains("nothing to place"),
        "{nothing}"
    );
    let error = explain::target(&trace, "floppy:0", None)
        .unwrap_err()
        .to_string();
    assert!(error.contains("its areas are fs, journal, swap"), "{error}");
    assert!(explain::target(&trace, "nonsense", None).is_err());
}
