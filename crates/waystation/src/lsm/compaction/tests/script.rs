//! Scripts: blocks of a tree, what runs, and a question; below the dashes, the choice.
//!
//! `WAYSTATION_REWRITE=1 cargo test -p waystation compaction` writes what is answered now into the scripts, for
//! review by `git diff`.

use super::{LAYOUT, SMALL, facts, internal, shared, table};
use crate::lsm::compaction::{
    Choice, Claim, Context, Hidden, Running, Shape, Traffic, pick, pick_range,
};
use crate::lsm::version::{Change, UserRange, Version};
use crate::sst::TableMeta;
use std::fmt::Write as _;
use std::path::Path;
use waystation_format::order::Order;

#[test]
fn scripts_choose_as_written() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lsm/compaction/testdata");
    let mut seen = 0;
    for entry in std::fs::read_dir(&directory).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut answered = Vec::new();
        for block in text.trim_end().split("\n\n") {
            let question = block
                .split_once("----\n")
                .map_or(block, |(question, _)| question);
            if question.lines().all(|line| line.starts_with('#')) {
                answered.push(question.trim_end().to_owned());
                continue;
            }
            let question = question.trim_end();
            answered.push(format!("{question}\n----\n{}", answer(question).trim_end()));
            seen += 1;
        }
        let answered = answered.join("\n\n") + "\n";
        if std::env::var_os("WAYSTATION_REWRITE").is_some() {
            std::fs::write(&path, answered).unwrap();
        } else {
            assert_eq!(text, answered, "{} answers otherwise now", path.display());
        }
    }
    assert!(
        seen > 10,
        "only {seen} blocks were found in {}",
        directory.display()
    );
}

struct State {
    shape: Shape,
    change: Change,
    running: Running,
    snapshot: u64,
    traffic: Traffic,
    seek_credit_bytes: u64,
}

fn answer(question: &str) -> String {
    let mut state = State {
        shape: SMALL,
        change: Change::default(),
        running: Running::default(),
        snapshot: 1000,
        traffic: Traffic::Writes,
        seek_credit_bytes: 0,
    };
    let mut level = 0;
    let mut out = String::new();
    for line in question.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "shape" => state.shape = parse_shape(&words[1..]),
            "level" => level = words[1].parse().unwrap(),
            "running" => {
                state.running.add(parse_claim(&words[1..]));
            }
            "idle" => state.traffic = Traffic::None,
            "read" => state.traffic = Traffic::Reads,
            "seek_credit" => state.seek_credit_bytes = words[1].parse().unwrap(),
            "snapshot" => state.snapshot = words[1].parse().unwrap(),
            "pick" | "compact" => ask(&state, &words, &mut out),
            _ => state
                .change
                .added
                .push((level, shared(parse_table(&words)))),
        }
    }
    out
}

fn ask(state: &State, words: &[&str], out: &mut String) {
    let version = Version::empty(&Order::Bytewise)
        .with(&state.change)
        .unwrap();
    let context = Context {
        version: &version,
        shape: &state.shape,
        layout: LAYOUT,
        running: &state.running,
        smallest_snapshot: state.snapshot,
        traffic: state.traffic,
        seek_credit_bytes: state.seek_credit_bytes,
        hidden: &Hidden::default(),
    };
    if words[0] == "pick" {
        describe(&pick(&context), out);
        return;
    }
    let (smallest, largest) = field(words, "range").unwrap().split_once("..").unwrap();
    let range = UserRange::new(smallest.as_bytes(), largest.as_bytes());
    match pick_range(
        &context,
        field(words, "level").unwrap().parse().unwrap(),
        &range,
        u64::MAX,
    ) {
        Some(choice) => describe(&choice, out),
        None => out.push_str("wait\n"),
    }
}

fn describe(choice: &Choice, out: &mut String) {
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    match choice {
        Choice::Nothing => out.push_str("nothing\n"),
        Choice::Move(moved) => {
            let numbers = join(moved.tables.iter().map(|table| table.number));
            let _ = writeln!(out, "move {} -> {}: {numbers}", moved.from, moved.to);
        }
        Choice::Drop(discard) => {
            let numbers = join(discard.tables.iter().map(|table| table.number));
            let _ = writeln!(out, "drop from {}: {numbers}", discard.level);
        }
        Choice::Merge(job) => {
            let _ = writeln!(out, "merge -> {}", job.output_level);
            for input in &job.inputs {
                let numbers = join(input.tables.iter().map(|table| table.number));
                let _ = writeln!(out, "  level {}: {numbers}", input.level);
            }
            for (smallest, largest) in &job.deeper {
                let _ = writeln!(out, "  deeper {}..{}", text(smallest), text(largest));
            }
            for table in &job.grandparents {
                let _ = writeln!(
                    out,
                    "  grandparent ..{} bytes={}",
                    text(&table.largest),
                    table.bytes
                );
            }
        }
    }
}

fn join(numbers: impl Iterator<Item = u64>) -> String {
    numbers
        .map(|number| number.to_string())
        .collect::<Vec<_>>()
        .join(" ")
}

fn field<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words
        .iter()
        .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn parse_shape(words: &[&str]) -> Shape {
    let number = |name, default| field(words, name).map_or(default, |text| text.parse().unwrap());
    Shape {
        level0_trigger: number("trigger", SMALL.level0_trigger as u64) as usize,
        level_base_bytes: number("base", SMALL.level_base_bytes),
        fan_out: number("fan-out", SMALL.fan_out),
        table_bytes: number("table", SMALL.table_bytes),
    }
}

/// `12 a@9..c@3 bytes=10 entries=5 deletions=5`
fn parse_table(words: &[&str]) -> TableMeta {
    let (smallest, largest) = words[1].split_once("..").unwrap();
    let key = |text: &str| {
        let (user_key, sequence) = text.split_once('@').unwrap_or((text, "1"));
        internal(user_key, sequence.parse().unwrap())
    };
    let bytes = field(words, "bytes").map_or(10, |text| text.parse().unwrap());
    let mut parsed = table(
        words[0].parse().unwrap(),
        key(smallest),
        key(largest),
        bytes,
    );
    if let Some(deletions) = field(words, "deletions") {
        let entries = field(words, "entries")
            .unwrap_or(deletions)
            .parse()
            .unwrap();
        let newest = field(words, "newest").map_or(500, |text| text.parse().unwrap());
        parsed.facts = Some(facts(entries, deletions.parse().unwrap(), newest)).into();
    }
    parsed
}

/// `tables=4,5 writes=2 range=a..f`
fn parse_claim(words: &[&str]) -> Claim {
    let tables = field(words, "tables").unwrap_or("").split(',');
    let tables = tables
        .filter(|text| !text.is_empty())
        .map(|text| text.parse().unwrap())
        .collect();
    let (smallest, largest) = field(words, "range").unwrap().split_once("..").unwrap();
    let range = UserRange::new(smallest.as_bytes(), largest.as_bytes());
    Claim::new(
        tables,
        field(words, "writes").unwrap().parse().unwrap(),
        &range,
    )
}
