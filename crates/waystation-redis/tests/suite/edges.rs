//! Where commands meet their limits: answers of many parts, several keys of which one is refused, users, several databases.

use crate::support::{self, Answer, Client, Served};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Builder;
use waystation::{Db, DeviceOptions, Extractor, Options};
use waystation_access::{Right, Secret, User, Users};
use waystation_redis::{Database, Server, Settings};

fn ok() -> Answer {
    Answer::Simple("OK".to_owned())
}

fn error(answer: &Answer) -> &str {
    match answer {
        Answer::Error(text) => text,
        other => panic!("no refusal: {other:?}"),
    }
}

const TOO_LONG: &str = "longer than the server allows";

#[test]
fn getkeys_refuses_a_command_without_its_arguments() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    let refused = client.say("COMMAND GETKEYS ZUNIONSTORE");
    assert!(error(&refused).contains("Invalid number of arguments"));
    assert_eq!(
        client.say("COMMAND GETKEYS ZUNIONSTORE t 1 a").texts(),
        ["t", "a"]
    );
}

#[test]
fn two_clients_flush_all_databases_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    std::thread::scope(|scope| {
        for database in ["plain", "fleet"] {
            let served = &served;
            scope.spawn(move || {
                let mut client = served.client();
                client.say(&format!("SELECT {database}"));
                for _ in 0..100 {
                    assert_eq!(client.say("FLUSHALL"), ok());
                }
            });
        }
    });
    let mut client = served.client();
    client.say("SET a 1");
    client.say("MULTI");
    client.say("FLUSHALL");
    let Answer::Array(answers) = client.say("EXEC") else {
        panic!("no array")
    };
    assert!(error(&answers[0]).contains("FLUSHDB"));
    assert_eq!(client.say("GET a").text(), "1");
}

#[test]
fn answers_of_many_parts_are_limited() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start_with(directory.path(), |it| it.live.answer_bytes_max = 10_000);
    let mut client = served.client();
    let value = "v".repeat(4000);
    client.ask(&["SET", "s", &value]);
    client.ask(&["HSET", "h", "f", &value]);
    for number in 0..900 {
        client.say(&format!("ZADD z {number} member{number}"));
        client.say(&format!("TS.ADD t {number} 1 LABELS kind long"));
    }
    for refused in [
        "MGET s s s",
        "HMGET h f f f",
        "ZPOPMIN z 900",
        "ZUNION 1 z",
        "TS.RANGE t - + AGGREGATION sum 1",
        "TS.MRANGE - + FILTER kind=long",
    ] {
        assert!(error(&client.say(refused)).contains(TOO_LONG), "{refused}");
    }
    assert_eq!(client.say("ZCARD z"), Answer::Integer(900));
    client.say("MULTI");
    for _ in 0..4 {
        client.say("GET s");
    }
    client.say("SET s new");
    let Answer::Array(answers) = client.say("EXEC") else {
        panic!("no array")
    };
    assert_eq!(answers[2].text(), value);
    assert!(error(&answers[3]).contains(TOO_LONG));
    assert!(error(&answers[4]).contains(TOO_LONG));
    assert_eq!(client.say("GET s").text(), value);
}

#[test]
fn a_long_scan_ends_early_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    let value = "v".repeat(300_000);
    for number in 0..10 {
        client.ask(&["HSET", "h", &format!("field{number}"), &value]);
    }
    let (mut cursor, mut found, mut rounds) = ("0".to_owned(), 0, 0);
    loop {
        let Answer::Array(parts) = client.say(&format!("HSCAN h {cursor} COUNT 1000")) else {
            panic!("no array")
        };
        cursor = parts[0].text();
        found += parts[1].texts().len() / 2;
        rounds += 1;
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(found, 10);
    assert!(rounds > 1, "{rounds}");
}

/// A command of several keys writes none of them if the database cannot hold one.
#[test]
fn a_key_that_is_too_short_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let extractor = Extractor::fixed(4);
    let options = Options {
        devices: Some(DeviceOptions::new(extractor)),
        ..Options::default()
    };
    let db = Arc::new(Db::open(directory.path().join("db"), options).unwrap());
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let database = Database {
        name: "db".to_owned(),
        db,
        extractor: Some(extractor),
    };
    let settings = Settings::new("127.0.0.1:0".parse().unwrap());
    let server = runtime
        .block_on(Server::bind(settings, vec![database]))
        .unwrap();
    let (address, handle) = (server.address(), server.handle());
    runtime.spawn(server.run());
    let mut client = Client::connect(address);
    assert!(error(&client.say("MSET car1a 1 x 2")).contains("shorter"));
    assert_eq!(client.say("GET car1a"), Answer::Null);
    assert_eq!(client.say("SET car1a 1"), ok());
    assert!(error(&client.say("DEL car1a x")).contains("shorter"));
    assert_eq!(client.say("GET car1a").text(), "1");
    handle.stop();
    runtime.shutdown_timeout(Duration::from_secs(5));
}

#[test]
fn series_are_deleted_by_ranges_and_refuse_long_labels() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    let last = (1u64 << 56) / 1000 - 1;
    for time in [1, 2, 3, last] {
        client.say(&format!("TS.ADD t {time} 1"));
    }
    assert_eq!(client.say("TS.DEL t 3 1"), Answer::Integer(0));
    let behind = format!("TS.DEL t {} +", last + 1);
    assert_eq!(client.say(&behind), Answer::Integer(0));
    assert_eq!(client.say("TS.DEL t 1 2"), Answer::Integer(2));
    assert_eq!(client.say("TS.DEL t - +"), Answer::Integer(2));
    assert_eq!(client.say("TS.RANGE t - +"), Answer::Array(Vec::new()));
    let label = "l".repeat(70_000);
    let refused = client.ask(&["TS.ADD", "new", "1", "1", "LABELS", "kind", &label]);
    assert!(error(&refused).contains("65535"));
    assert_eq!(client.say("EXISTS new"), Answer::Integer(0));
}

/// A prefix is no pattern: `car[1]` names channels that begin so, and not `car1`.
#[test]
fn patterns_of_channels_stay_within_rights() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start_with(directory.path(), |settings| {
        settings.live.users = Users::new([User {
            name: "default".to_owned(),
            password: Some(Secret::of(b"secret")),
            rights: vec![Right {
                prefix: "car[1]".to_owned(),
                read: true,
                write: true,
                depart: false,
            }],
            ..User::default()
        }]);
    });
    let mut client = served.client();
    assert_eq!(client.say("AUTH secret"), ok());
    assert!(error(&client.say("PSUBSCRIBE car[1]*")).starts_with("NOPERM"));
    assert!(matches!(client.say("SUBSCRIBE car[1]x"), Answer::Array(_)));
}

#[test]
fn a_transaction_answers_every_command() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    client.say("MULTI");
    client.say("CLIENT REPLY SKIP");
    client.say("SET a 1");
    let Answer::Array(answers) = client.say("EXEC") else {
        panic!("no array")
    };
    assert!(error(&answers[0]).contains("inside a transaction"));
    assert_eq!(answers[1], ok());
}

/// A sample without a head, as MQTT writes it.
#[test]
fn a_series_without_a_head_has_a_time_and_another_name() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let key = [&b"car9:speed\0\x80"[..], &[0, 0, 0, 0, 0, 0x03, 0xe8]].concat();
    let value = [&[2][..], &42i64.to_le_bytes()].concat();
    served.fleet.put(&key, &value).unwrap();
    let mut client = served.client();
    client.say("SELECT fleet");
    assert_eq!(client.say("TTL car9:speed"), Answer::Integer(-1));
    assert_eq!(client.say("TTL car9:none"), Answer::Integer(-2));
    assert_eq!(client.say("SET car9:text x"), ok());
    assert_eq!(client.say("RENAME car9:speed car9:text"), ok());
    assert_eq!(client.say("EXISTS car9:speed"), Answer::Integer(0));
    assert_eq!(client.say("TYPE car9:text").text(), "TSDB-TYPE");
    assert_eq!(client.say("TS.DEL car9:text 1 1"), Answer::Integer(1));
    served.fleet.put(&key, &value).unwrap();
    assert_eq!(client.say("EXPIRE car9:speed 100"), Answer::Integer(1));
    assert_eq!(client.say("TTL car9:speed"), Answer::Integer(100));
}

/// A command that is refused in its middle has written nothing.
#[test]
fn a_refusal_takes_back_what_was_written_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    let long = "f".repeat(1 << 20);
    client.say("HSET h a 1");
    client.say("ZADD z 1 a");
    client.say("SADD s a");
    for refused in [
        ["HSET", "h", "b", "2", &long, "3"].as_slice(),
        &["ZADD", "z", "2", "b", "3", &long],
        &["SADD", "s", "b", &long],
        &["MSET", "b", "1", &long, "2"],
        &["HSET", "new", "a", "1", &long, "2"],
    ] {
        assert!(error(&client.ask(refused)).contains("too long"));
    }
    client.say("HSET h a 2");
    for (command, expected) in [
        ("HLEN h", 1),
        ("ZCARD z", 1),
        ("SCARD s", 1),
        ("EXISTS b", 0),
    ] {
        assert_eq!(client.say(command), Answer::Integer(expected), "{command}");
    }
    assert_eq!(client.say("HGETALL h").texts(), ["a", "2"]);
    assert_eq!(client.say("HGETALL new").texts(), Vec::<String>::new());
    client.say("MULTI");
    client.ask(&["HSET", "h", "b", "2", &long, "3"]);
    client.say("HSET h c 3");
    client.say("EXEC");
    assert_eq!(client.say("HGETALL h").texts(), ["a", "2", "c", "3"]);
}

/// A key whose date does not fit into a key of the engine is refused alone, and not with its run.
#[test]
fn a_long_key_with_a_time_to_live_is_refused_alone() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    client.say("SELECT fleet");
    let long = format!("car1:{}", "k".repeat((1 << 20) - 7));
    assert_eq!(client.ask(&["SET", &long, "1"]), ok());
    let pipeline = [
        support::encode(&["SET", "car1:a", "1"]),
        support::encode(&["SET", &long, "2", "EX", "100"]),
    ];
    std::io::Write::write_all(&mut client.stream, &pipeline.concat()).unwrap();
    assert_eq!(client.read(), ok());
    assert!(error(&client.read()).contains("too long"));
    assert_eq!(client.ask(&["GET", &long]).text(), "1");
}

/// The samples go with the string that was put over them: at once for those who look, and for good with the next round.
#[test]
fn a_string_with_a_time_takes_the_samples_of_a_device_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let key = [&b"car9:speed\0\x80"[..], &[0, 0, 0, 0, 0, 0x03, 0xe8]].concat();
    served
        .fleet
        .put(&key, &[2, 42, 0, 0, 0, 0, 0, 0, 0])
        .unwrap();
    let mut client = served.client();
    client.say("SELECT fleet");
    assert_eq!(client.say("TYPE car9:speed").text(), "TSDB-TYPE");
    assert_eq!(client.say("SET car9:speed text PX 30"), ok());
    assert_eq!(client.say("TYPE car9:speed").text(), "string");
    let mut patience = 1000;
    while served.fleet.get(&key).unwrap().is_some() {
        assert_ne!(client.say("TYPE car9:speed").text(), "TSDB-TYPE");
        patience -= 1;
        assert!(patience > 0, "the samples stay");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.say("EXISTS car9:speed"), Answer::Integer(0));
}

#[test]
fn waitaof_answers_nothing_to_a_client_that_wants_no_answers() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    client.send(&["CLIENT", "REPLY", "OFF"]);
    client.send(&["WAITAOF", "1", "0", "0"]);
    client.send(&["CLIENT", "REPLY", "ON"]);
    assert_eq!(client.read(), ok());
    assert_eq!(client.say("PING"), Answer::Simple("PONG".to_owned()));
}

/// What a client listens to is told as messages are: also to one that wants no answers.
#[test]
fn listening_is_told_to_a_client_that_wants_no_answers() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    client.send(&["CLIENT", "REPLY", "OFF"]);
    client.send(&["PING"]);
    assert_eq!(
        client.say("SUBSCRIBE news").texts(),
        ["subscribe", "news", "1"]
    );
    let heard = served.client().say("PUBLISH news hello");
    assert_eq!(heard, Answer::Integer(1));
    assert_eq!(client.read().texts(), ["message", "news", "hello"]);
    assert_eq!(
        client.say("UNSUBSCRIBE").texts(),
        ["unsubscribe", "news", "0"]
    );
}

#[test]
fn encodings_of_sets_are_those_of_redis() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    client.say("SADD s 1 -2 3");
    assert_eq!(client.say("OBJECT ENCODING s").text(), "intset");
    client.say("SADD s 04");
    assert_eq!(client.say("OBJECT ENCODING s").text(), "hashtable");
    assert!(error(&client.say("HINCRBYFLOAT h f inf")).contains("NaN or Infinity"));
}

/// A reload ends the connections of users who are not there any more, or have other rights, and no others.
#[test]
fn clients_lose_the_rights_that_a_reload_takes() {
    let user = |name: &str, prefix: &str| User {
        name: name.to_owned(),
        password: Some(Secret::of(b"secret")),
        rights: vec![Right {
            prefix: prefix.to_owned(),
            read: true,
            write: true,
            depart: false,
        }],
        ..User::default()
    };
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start_with(directory.path(), |settings| {
        settings.live.users = Users::new([user("ann", "a"), user("bob", "b"), user("eve", "e")]);
    });
    let login = |name: &str| {
        let mut client = served.client();
        assert_eq!(client.say(&format!("AUTH {name} secret")), ok());
        client
    };
    let (mut ann, mut bob, mut eve) = (login("ann"), login("bob"), login("eve"));
    assert!(matches!(bob.say("SUBSCRIBE b"), Answer::Array(_)));
    assert_eq!(eve.say("SET e 1"), ok());
    let mut live = served.handle.live();
    live.users = Users::new([user("ann", "a"), user("eve", "x")]);
    served.handle.set_live(live);
    assert_eq!(ann.say("SET a 1"), ok());
    assert_eq!(bob.try_read(), None);
    // The connection may have ended already.
    let _ = std::io::Write::write_all(&mut eve.stream, &support::encode(&["SET", "e", "2"]));
    assert_eq!(eve.try_read(), None);
    let mut live = served.handle.live();
    live.users = Users::new([User {
        is_admin: true,
        ..user("ann", "a")
    }]);
    served.handle.set_live(live);
    assert_eq!(ann.try_read(), None);
    let mut ann = login("ann");
    assert_eq!(ann.say("GET e").text(), "1");
}

/// A server without users lets every client do everything, until it has some.
#[test]
fn clients_without_a_user_leave_when_users_come() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    assert_eq!(client.say("SET a 1"), ok());
    let mut live = served.handle.live();
    live.users = Users::new([User {
        name: "ann".to_owned(),
        password: Some(Secret::of(b"secret")),
        is_admin: true,
        ..User::default()
    }]);
    served.handle.set_live(live);
    assert_eq!(client.try_read(), None);
    assert!(error(&served.client().say("GET a")).starts_with("NOAUTH"));
}

#[test]
fn users_do_what_they_may() {
    let directory = tempfile::tempdir().unwrap();
    let user = |name: &str, prefix: &str, is_admin| User {
        name: name.to_owned(),
        password: Some(Secret::of(b"secret")),
        rights: vec![Right {
            prefix: prefix.to_owned(),
            read: true,
            write: true,
            depart: false,
        }],
        is_admin,
        ..User::default()
    };
    let served = Served::start_with(directory.path(), |settings| {
        settings.live.users = Users::new([user("default", "", true), user("ann", "car1:", false)]);
    });
    let mut client = served.client();
    assert!(error(&client.say("GET a")).starts_with("NOAUTH"));
    assert!(error(&client.say("NOSUCH")).starts_with("NOAUTH"));
    assert!(error(&client.say("AUTH ann wrong")).starts_with("WRONGPASS"));
    assert_eq!(client.say("AUTH ann secret"), ok());
    assert_eq!(client.say("SET car1:x 1"), ok());
    assert_eq!(client.say("ACL WHOAMI").text(), "ann");
    for refused in [
        "ACL LIST",
        "ACL GETUSER default",
        "SET car2:x 1",
        "KEYS *",
        "FLUSHALL",
        "CONFIG GET *",
        "DEVICE.DEPART car1",
        "CLIENT LIST",
        "PUBLISH bus x",
    ] {
        assert!(
            error(&client.say(refused)).starts_with("NOPERM"),
            "{refused}"
        );
    }
    client.say("MULTI");
    assert!(error(&client.say("SET car2:x 1")).starts_with("NOPERM"));
    assert!(error(&client.say("EXEC")).starts_with("EXECABORT"));
    assert_eq!(client.say("AUTH secret"), ok());
    assert_eq!(client.say("GET car1:x").text(), "1");
    assert_eq!(client.say("ACL USERS").texts(), ["default", "ann"]);
    let listed = client.say("ACL LIST").texts();
    assert!(
        listed[1].starts_with("user ann on ~car1:* &car1:* -@all"),
        "{listed:?}"
    );
    assert_eq!(client.say("ACL GETUSER nobody"), Answer::Null);
    assert_eq!(client.say("ACL DRYRUN ann GET car1:x"), ok());
    let refused = client.say("ACL DRYRUN ann GET car2:x").text();
    assert!(refused.starts_with("NOPERM"), "{refused}");
    for unknown in [
        "DRYRUN bob GET x",
        "DRYRUN ann NOSUCH x",
        "SETUSER bob on",
        "SAVE",
        "X",
    ] {
        assert!(error(&client.say(&format!("ACL {unknown}"))).starts_with("ERR"));
    }
    let mut third = served.client();
    let Answer::Map(hello) = third.say("HELLO 3 AUTH default secret SETNAME me") else {
        panic!("no map")
    };
    assert_eq!(hello.len(), 7);
    assert_eq!(third.say("ZSCORE none m"), Answer::Null);
}
