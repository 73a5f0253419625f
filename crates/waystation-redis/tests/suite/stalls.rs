//! Writes that the storage holds back hold up their own client, and the clients that wait for the same keys.

use crate::support::{self, Answer, Served};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};
use waystation::Options;
use waystation::storage::OsStorage;
use waystation::storage::fault::{Fault, FaultRules, Operation, Refusal, Rule};

/// A write of this length goes through the storage before it is over (bytes).
const LONG: usize = 300 << 10;

fn start(directory: &Path, rules: &FaultRules, threads: usize) -> Served {
    let options = Options {
        ring_bytes: LONG.next_power_of_two() / 2,
        ..Options::default()
    };
    let storage = OsStorage::new().with_faults(rules);
    Served::start_on(&storage, directory, (threads, &options), |_| {})
}

fn pong() -> Answer {
    Answer::Simple("PONG".to_owned())
}

/// One thread serves all connections. The first slow write holds it up; writes soon after it do not.
#[test]
fn writes_that_are_held_back_hold_up_no_other_client() {
    let directory = tempfile::tempdir().unwrap();
    let rules = FaultRules::new();
    let served = start(directory.path(), &rules, 1);
    let (mut writer, mut waiting, mut other) = (served.client(), served.client(), served.client());
    other
        .stream
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let stall = || rules.add(Rule::new(Operation::Write, Fault::Stall).on("plain"));
    let text = "x".repeat(LONG);
    let long = ["SETRANGE", "key", "0", &text];
    let tries = 50;
    for left in (0..tries).rev() {
        let first = stall();
        writer.send(&long);
        std::thread::sleep(Duration::from_millis(10));
        rules.remove(first);
        writer.read();
        let second = stall();
        writer.send(&long);
        std::thread::sleep(Duration::from_millis(10));
        other.send(&["PING"]);
        // On a busy machine the second write may come too late to be one that comes soon after the first.
        let is_answered = other.try_read() == Some(pong());
        if is_answered {
            waiting.send(&["SETRANGE", "key", "0", "y"]);
            std::thread::sleep(Duration::from_millis(10));
            assert_eq!(other.say("PING"), pong(), "a client waits for a key");
        }
        rules.remove(second);
        writer.read();
        if is_answered {
            assert!(matches!(waiting.read(), Answer::Integer(_)));
            return;
        }
        assert_eq!(other.read(), pong());
        assert!(left > 0, "a write held up the clients of its thread");
    }
}

/// Messages of a transaction are sent in order, and none if it is not written.
#[test]
fn a_transaction_that_fails_has_published_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let rules = FaultRules::new();
    let served = start(directory.path(), &rules, 2);
    let (mut writer, mut listener) = (served.client(), served.client());
    listener.say("SUBSCRIBE news");
    let mut publish = |text: &str| {
        for command in ["MULTI", "SET a 1", text, "PUBLISH news last"] {
            writer.say(command);
        }
        writer.say("EXEC")
    };
    let Answer::Array(answers) = publish("PUBLISH news first") else {
        panic!("no array")
    };
    assert_eq!(answers[1..], [Answer::Integer(1), Answer::Integer(1)]);
    for text in ["first", "last"] {
        assert_eq!(listener.read().texts(), ["message", "news", text]);
    }
    let fails = Fault::Fail(Refusal::InputOutput);
    rules.add(Rule::new(Operation::Write, fails).on("plain"));
    let text = "x".repeat(1000);
    let mut other = served.client();
    while other.ask(&["SET", "b", &text]) == Answer::Simple("OK".to_owned()) {}
    assert!(matches!(publish("PUBLISH news lost"), Answer::Error(_)));
    other.say("PUBLISH news end");
    assert_eq!(listener.read().texts(), ["message", "news", "end"]);
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the clients are real, and so is the time that they wait"
)]
fn a_client_that_sends_more_than_it_may_is_read_from_later() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = Served::start_with(directory.path(), |settings| {
        settings.live.commands_per_second = 100;
    });
    let begun = Instant::now();
    let mut client = served.client();
    let flood = support::encode(&["PING"]).repeat(150);
    client.stream.write_all(&flood).unwrap();
    for _ in 0..150 {
        assert_eq!(client.read().text(), "PONG");
    }
    assert_eq!(client.say("PING").text(), "PONG");
    assert!(begun.elapsed() >= Duration::from_millis(500));
    assert!(served.handle.figures().delays >= 1);
    // A server that stops does not wait for a client that has to.
    let mut live = served.handle.live();
    live.commands_per_second = 1;
    served.handle.set_live(live);
    client.stream.write_all(&flood).unwrap();
    client.read();
    let stopping = Instant::now();
    served.stop_and_wait();
    assert!(stopping.elapsed() < Duration::from_secs(8));
}
