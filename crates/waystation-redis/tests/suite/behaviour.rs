//! What Redis does not tell this server apart by: devices, time series, durability, limits, hostile clients.

use crate::support::{Answer, Client, Served, encode};
use std::io::Write;
use std::thread::sleep;
use std::time::Duration;
use waystation::Db;

fn ok() -> Answer {
    Answer::Simple("OK".to_owned())
}

fn error(answer: &Answer) -> &str {
    match answer {
        Answer::Error(text) => text,
        other => panic!("no refusal: {other:?}"),
    }
}

#[test]
fn a_pipeline_is_one_batch() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    client.say("PING");
    let before = served.handle.figures().batches;
    let pipeline: Vec<u8> = (0..100)
        .flat_map(|it| encode(&["SET", &format!("key{it}"), "value"]))
        .collect();
    client.stream.write_all(&pipeline).unwrap();
    for _ in 0..100 {
        assert_eq!(client.read(), ok());
    }
    let batches = served.handle.figures().batches - before;
    assert!(batches <= 3, "{batches} batches for what was sent at once");
    assert_eq!(client.say("GET key99").text(), "value");
}

#[test]
fn increments_of_many_clients_add_up() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut client = served.client();
                for round in 0..50 {
                    let pipeline = [
                        encode(&["INCR", "count"]),
                        encode(&["HINCRBY", "hash", "field", "1"]),
                    ]
                    .concat();
                    client.stream.write_all(&pipeline).unwrap();
                    client.read();
                    client.read();
                    client.ask(&["ZADD", "set", "1", &format!("member{round}")]);
                }
            });
        }
    });
    let mut client = served.client();
    assert_eq!(client.say("GET count").text(), "400");
    assert_eq!(client.say("HGET hash field").text(), "400");
    assert_eq!(client.say("ZCARD set"), Answer::Integer(50));
    assert_eq!(client.say("ZCOUNT set 0 5"), Answer::Integer(50));
}

#[test]
fn watched_keys_that_change_undo_a_transaction() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let (mut one, mut other) = (served.client(), served.client());
    one.say("WATCH a");
    one.say("MULTI");
    one.say("SET a 1");
    other.say("SET a 2");
    assert_eq!(one.say("EXEC"), Answer::Null);
    one.say("WATCH a h");
    other.say("SET b 2");
    one.say("MULTI");
    one.say("SET a 3");
    assert_eq!(one.say("EXEC"), Answer::Array(vec![ok()]));
    for change in ["HSET h f 1", "DEL h", "HSET h f 2", "FLUSHDB"] {
        one.say("WATCH h");
        other.say(change);
        one.say("MULTI");
        one.say("PING");
        assert_eq!(one.say("EXEC"), Answer::Null, "{change}");
    }
}

#[test]
fn devices_leave_with_all_their_keys() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    client.say("SELECT fleet");
    for device in ["car1", "car2"] {
        client.ask(&["SET", &format!("{device}:speed"), "50"]);
        client.ask(&["HSET", &format!("{device}:state"), "doors:front", "open"]);
        client.ask(&["ZADD", &format!("{device}:trips"), "5", "home:work"]);
    }
    client.say("SET settings plain");
    client.say("HSET limits car1:speed 130");
    assert_eq!(client.say("DEVICE.LIST").texts(), ["car1", "car2"]);
    assert!(error(&client.say("DEVICE.INFO bus1")).starts_with("NODEVICE"));
    assert_eq!(client.say("DEVICE.DEPART car1 bus1"), Answer::Integer(1));
    assert_eq!(client.say("DEVICE.LIST").texts(), ["car2"]);
    assert_eq!(
        client.say("EXISTS car1:speed car1:state car1:trips"),
        Answer::Integer(0)
    );
    assert_eq!(client.say("HGET car2:state doors:front").text(), "open");
    assert_eq!(client.say("HGET limits car1:speed").text(), "130");
    assert_eq!(client.say("GET settings").text(), "plain");
    assert!(error(&client.say("SET car2:speed 1 EX 0")).contains("invalid expire"));
}

#[test]
fn a_device_moves_through_clients() {
    let directory = tempfile::tempdir().unwrap();
    let (north, south) = (
        directory.path().join("north"),
        directory.path().join("south"),
    );
    std::fs::create_dir_all(&north).unwrap();
    std::fs::create_dir_all(&south).unwrap();
    let (north, south) = (Served::start(&north), Served::start(&south));
    let (mut from, mut to) = (north.client(), south.client());
    from.say("SELECT fleet");
    to.say("SELECT fleet");
    from.say("SET car1:speed 50");
    let Answer::Bulk(stream) = from.say("DEVICE.EXPORT car1 south") else {
        panic!("no stream")
    };
    assert!(error(&from.say("SET car1:speed 51")).starts_with("TRYAGAIN"));
    let Answer::Bulk(receipt) = to.ask(&[&b"DEVICE.ADMIT"[..], &stream]) else {
        panic!("no receipt")
    };
    assert_eq!(from.ask(&[&b"DEVICE.COMPLETE"[..], &receipt]), ok());
    assert!(error(&from.say("SET car1:speed 51")).starts_with("GONE"));
    assert_eq!(to.say("GET car1:speed").text(), "50");
}

/// The device takes no writes, so that batches with one are refused.
#[test]
fn a_refused_batch_refuses_what_was_sent_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    client.say("SELECT fleet");
    client.ask(&["SET", "car1:speed", &"5".repeat(1000)]);
    client.say("SET car1:over 1 PX 300");
    client.say("SET car2:over 1 PX 400");
    client.say("DEVICE.EXPORT car1 south");
    for (then, answer) in [
        ("WATCH other", ok()),
        ("PUBLISH news x", Answer::Integer(0)),
        ("GET other", Answer::Null),
    ] {
        let then: Vec<&str> = then.split(' ').collect();
        let pipeline = [encode(&["GETSET", "car1:speed", "6"]), encode(&then)].concat();
        client.stream.write_all(&pipeline).unwrap();
        assert!(error(&client.read()).starts_with("TRYAGAIN"), "{then:?}");
        assert_eq!(client.read(), answer, "{then:?}");
    }
    assert_eq!(client.say("GET car1:speed").text().len(), 1000);
    // A key that cannot be deleted keeps no later one from it.
    sleep(Duration::from_millis(2800));
    assert_eq!(served.fleet.get(b"car2:over\0\0").unwrap(), None);
}

#[test]
fn a_transaction_sees_own_changes_that_came_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    let pipeline: Vec<u8> = ["WATCH a", "SET a 1", "MULTI", "GET a", "EXEC"]
        .iter()
        .flat_map(|it| encode(&it.split(' ').collect::<Vec<_>>()))
        .collect();
    client.stream.write_all(&pipeline).unwrap();
    for _ in 0..4 {
        client.read();
    }
    assert_eq!(client.read(), Answer::Null);
}

#[test]
fn series_answer_ranges_and_windows() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    client.say("SELECT fleet");
    for time in 0..10 {
        let words = format!(
            "TS.ADD car1:speed {} {time} LABELS kind speed",
            1000 + time * 100
        );
        assert_eq!(client.say(&words), Answer::Integer(1000 + time * 100));
    }
    assert!(error(&client.say("TS.ADD car1:speed 1000 5")).contains("BLOCK"));
    assert_eq!(
        client.say("TS.ADD car1:speed 1000 5 ON_DUPLICATE MAX"),
        Answer::Integer(1000)
    );
    let pair = |time: i64, value: &str| {
        Answer::Array(vec![
            Answer::Integer(time),
            Answer::Simple(value.to_owned()),
        ])
    };
    assert_eq!(client.say("TS.GET car1:speed"), pair(1900, "9"));
    assert_eq!(
        client.say("TS.RANGE car1:speed 1700 + COUNT 2"),
        Answer::Array(vec![pair(1700, "7"), pair(1800, "8")])
    );
    assert_eq!(
        client.say("TS.REVRANGE car1:speed - + AGGREGATION max 500"),
        Answer::Array(vec![pair(1500, "9"), pair(1000, "5")])
    );
    assert_eq!(
        client.say("TS.RANGE car1:speed - + AGGREGATION avg 500"),
        Answer::Array(vec![pair(1000, "3"), pair(1500, "7")])
    );
    client.say("TS.CREATE car2:speed LABELS kind speed");
    client.say("TS.MADD car2:speed 5 1.5 nothing:x 6 2");
    assert_eq!(
        client.say("TS.QUERYINDEX kind=speed").texts(),
        ["car1:speed", "car2:speed"]
    );
    assert_eq!(client.say("TYPE car1:speed").text(), "TSDB-TYPE");
    assert_eq!(
        client.say("TS.DEL car1:speed 1000 1400"),
        Answer::Integer(5)
    );
    assert_eq!(client.say("DEVICE.DEPART car1"), Answer::Integer(1));
    assert!(error(&client.say("TS.GET car1:speed")).contains("does not exist"));
    client.say("TS.CREATE t RETENTION 1000");
    for time in [1000, 1500, 3000] {
        client.say(&format!("TS.ADD t {time} 1"));
    }
    assert_eq!(
        client.say("TS.RANGE t - +"),
        Answer::Array(vec![pair(3000, "1")])
    );
    assert!(error(&client.say("TS.ADD t 1999 1")).contains("retention"));
}

/// What MQTT and HTTP write are samples without a head.
#[test]
fn readings_are_series() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    // 1,700,000,000,123,000 microseconds since 1970, and the highest bit.
    let time = [0x80, 0x06, 0x0a, 0x24, 0x18, 0x20, 0x20, 0x78];
    let key = [&b"car9:speed\0"[..], &time].concat();
    served
        .fleet
        .put(&key, &[&[2][..], &42i64.to_le_bytes()].concat())
        .unwrap();
    let mut client = served.client();
    client.say("SELECT fleet");
    let sample = Answer::Array(vec![
        Answer::Integer(1_700_000_000_123),
        Answer::Simple("42".to_owned()),
    ]);
    assert_eq!(client.say("TS.GET car9:speed"), sample);
    assert_eq!(client.say("KEYS car9*").texts(), ["car9:speed"]);
    assert_eq!(client.say("SCAN 0 TYPE TSDB-TYPE"), client.say("SCAN 0"));
    assert_eq!(client.say("TYPE car9:speed").text(), "TSDB-TYPE");
    assert!(error(&client.say("HSET car9:speed f 1")).starts_with("WRONGTYPE"));
    assert_eq!(
        client.say("TS.ADD car9:speed 1700000000124 43"),
        Answer::Integer(1_700_000_000_124)
    );
    assert_eq!(client.say("DEL car9:speed"), Answer::Integer(1));
    assert_eq!(served.fleet.get(&key).unwrap(), None);
}

#[test]
fn keys_end_at_their_time_and_give_room_back() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    for database in ["plain", "fleet"] {
        client.say(&format!("SELECT {database}"));
        client.say("SET car1:a 1 PX 300");
        client.say("HSET car1:h f 1");
        client.say("PEXPIRE car1:h 300");
        client.say("SET stays 1 PX 300");
        client.say("PERSIST stays");
        assert_eq!(client.say("EXISTS car1:a car1:h stays"), Answer::Integer(3));
    }
    sleep(Duration::from_millis(2800));
    for (database, db) in [("plain", &served.plain), ("fleet", &served.fleet)] {
        client.say(&format!("SELECT {database}"));
        assert_eq!(client.say("EXISTS car1:a car1:h stays"), Answer::Integer(1));
        assert_eq!(client.say("KEYS *").texts(), ["stays"]);
        let left = db.range::<&[u8]>(..).count();
        assert_eq!(left, 1, "{database}: what is over was not deleted");
    }
}

/// A string over a collection, and a collection over what a string left.
#[test]
fn a_string_hides_the_collection_that_it_was_put_over() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    client.say("HSET k a 1 b 2");
    client.say("SET k text");
    assert_eq!(client.say("GET k").text(), "text");
    assert!(error(&client.say("HGET k a")).starts_with("WRONGTYPE"));
    client.say("DEL k");
    client.say("HSET k b 3");
    assert_eq!(client.say("HGETALL k").texts(), ["b", "3"]);
    assert_eq!(served.plain.range::<&[u8]>(..).count(), 2);
}

#[test]
fn scans_show_every_key_once() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    client.say("SELECT fleet");
    for number in 0..300 {
        client.ask(&["SET", &format!("car{number}:x"), "1"]);
        client.ask(&["HSET", &format!("hash{number}"), "a:b", "1", "c", "2"]);
    }
    for (pattern, expected) in [("*", 600), ("car1*", 111), ("hash?", 10), ("car29?:x", 10)] {
        let (mut cursor, mut found) = ("0".to_owned(), Vec::new());
        loop {
            let Answer::Array(parts) =
                client.ask(&["SCAN", &cursor, "MATCH", pattern, "COUNT", "7"])
            else {
                panic!("no answer")
            };
            found.extend(parts[1].texts());
            cursor = parts[0].text();
            if cursor == "0" {
                break;
            }
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), expected, "{pattern}");
    }
    assert_eq!(client.say("DBSIZE"), Answer::Integer(600));
    assert_eq!(client.say("KEYS hash29*").texts().len(), 11);
    assert!(error(&client.say("SCAN 999999")).contains("invalid cursor"));
}

#[test]
fn what_was_acknowledged_is_there_after_an_opening() {
    let directory = tempfile::tempdir().unwrap();
    {
        let served = Served::start(directory.path());
        let mut client = served.client();
        client.say("SET a 1");
        client.say("ZADD z 1.5 m");
        assert_eq!(
            client.say("WAITAOF 1 0 1000"),
            Answer::Array(vec![Answer::Integer(1), Answer::Integer(0)])
        );
        client.say("CONFIG SET appendfsync always");
        assert_eq!(client.say("SET b 2"), ok());
        assert_eq!(
            client.say("CONFIG GET appendfsync").texts(),
            ["appendfsync", "always"]
        );
    }
    let db = Db::open(
        directory.path().join("plain"),
        waystation::Options::default(),
    )
    .unwrap();
    assert_eq!(db.get(b"b\0\0").unwrap().as_deref(), Some(&b"\x002"[..]));
    assert_eq!(db.range::<&[u8]>(..).count(), 5);
}

#[test]
fn messages_reach_who_listens() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let (mut listener, mut speaker) = (served.client(), served.client());
    assert_eq!(
        listener.say("SUBSCRIBE news").texts(),
        ["subscribe", "news", "1"]
    );
    assert_eq!(
        listener.say("PSUBSCRIBE n*").texts(),
        ["psubscribe", "n*", "2"]
    );
    assert!(error(&listener.say("GET a")).contains("allowed in this context"));
    assert_eq!(speaker.say("PUBLISH news hello"), Answer::Integer(2));
    assert_eq!(listener.read().texts(), ["message", "news", "hello"]);
    assert_eq!(listener.read().texts(), ["pmessage", "n*", "news", "hello"]);
    assert_eq!(speaker.say("PUBSUB NUMSUB news").texts(), ["news", "1"]);
    listener.say("UNSUBSCRIBE");
    listener.say("PUNSUBSCRIBE");
    assert_eq!(speaker.say("PUBLISH news again"), Answer::Integer(0));
    assert_eq!(listener.say("PING").text(), "PONG");
}

/// Each of these clients is refused or ended, and another one notices nothing.
#[test]
fn hostile_clients_disturb_no_other() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start_with(directory.path(), |settings| {
        settings.live.bulk_bytes_max = 1 << 20;
        settings.live.buffers_bytes_max = 8 << 20;
        settings.live.answer_bytes_max = 4 << 20;
        settings.live.stall_timeout = Duration::from_secs(2);
        settings.live.clients_max = 40;
    });
    let mut calm = served.client();
    calm.say("SET a 1");
    let mut check = |what: &str| assert_eq!(calm.say("GET a").text(), "1", "after {what}");
    for (bytes, said) in [
        (&b"*1\r\n$99999999\r\n"[..], "invalid bulk length"),
        (b"*99999999\r\n", "invalid multibulk length"),
        (b"*2\r\n+GET\r\n", "expected '$'"),
        (b"*-\r\n", "invalid multibulk length"),
        (b"SET \"unclosed\r\n", "unbalanced quotes"),
    ] {
        let mut client = served.client();
        client.stream.write_all(bytes).unwrap();
        assert!(error(&client.read()).contains(said));
        assert_eq!(client.try_read(), None);
        check(said);
    }
    // An endless line.
    let mut client = served.client();
    client.stream.write_all(&vec![b'x'; 70_000]).unwrap();
    assert!(error(&client.read()).contains("too big inline request"));
    // Many arguments that never end, from many clients: more than all may have in memory.
    let mut greedy: Vec<Client> = (0..20).map(|_| served.client()).collect();
    let half = [
        &b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\n"[..],
        &vec![b'x'; 900_000],
    ]
    .concat();
    for client in &mut greedy {
        // One that was ended already does not take it.
        let _ = client.stream.write_all(&half);
    }
    sleep(Duration::from_millis(500));
    let held = served.handle.figures().buffers_bytes;
    assert!(held <= 10 << 20, "{held} bytes are held");
    check("half commands");
    // Answers that are not taken.
    calm_value(&served);
    let mut deaf = served.client();
    let asks: Vec<u8> = (0..2000).flat_map(|_| encode(&["GET", "large"])).collect();
    // The server stops reading, and ends the connection.
    deaf.stream
        .set_write_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    let _ = deaf.stream.write_all(&asks);
    check("a slow reader");
    sleep(Duration::from_secs(5));
    assert_eq!(served.handle.figures().buffers_bytes, 0);
    assert!(
        served.handle.figures().clients <= 2,
        "{:?}",
        served.handle.figures()
    );
    // Too many clients.
    let mut crowd: Vec<Client> = (0..60).map(|_| served.client()).collect();
    let refused = error(&crowd.last_mut().unwrap().read()).to_owned();
    assert!(refused.contains("max number of clients"), "{refused}");
    check("a crowd");
}

#[test]
fn a_page_gives_no_commands_through_a_browser() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut browser = served.client();
    let request = b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\nSET a 2\r\n";
    browser.stream.write_all(request).unwrap();
    assert!(error(&browser.read()).contains("unknown command"));
    assert_eq!(browser.try_read(), None);
    assert_eq!(served.client().say("EXISTS a"), Answer::Integer(0));
}

#[test]
fn a_transaction_that_gathers_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let (mut one, mut other) = (served.client(), served.client());
    one.say("MULTI");
    one.say("SET a 1");
    assert!(
        other
            .say("CLIENT LIST")
            .text()
            .contains("multi=1 cmd=multi")
    );
    one.say("EXEC");
    assert!(
        other
            .say("CLIENT LIST")
            .text()
            .contains("multi=-1 cmd=exec")
    );
}

/// Puts a large value. The memory of clients that have left may be taken for a moment longer: the server says so then and ends
/// the connection, before it has read all of the value.
fn calm_value(served: &Served) {
    let value = vec![b'v'; 500_000];
    let command = encode(&[b"SET", &b"large"[..], &value]);
    for _ in 0..100 {
        let mut client = served.client();
        let _ = client.stream.write_all(&command);
        match client.try_read() {
            Some(Answer::Error(reason)) if reason.contains("try again later") => {}
            // The rest of the value came after the end, and its reset before the answer.
            None => {}
            answer => return assert_eq!(answer, Some(ok())),
        }
        sleep(Duration::from_millis(100));
    }
    panic!("the memory of clients that have left is never given back");
}

#[test]
fn an_answer_that_is_too_long_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start_with(directory.path(), |it| it.live.answer_bytes_max = 10_000);
    let mut client = served.client();
    for number in 0..200 {
        client.ask(&["HSET", "h", &format!("field{number}"), &"v".repeat(100)]);
    }
    assert!(error(&client.say("HGETALL h")).contains("longer than the server allows"));
    assert_eq!(client.say("HLEN h"), Answer::Integer(200));
}

#[test]
fn unknown_commands_are_refused_in_the_words_of_redis() {
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let mut client = served.client();
    assert_eq!(
        error(&client.say("LPUSH a b")),
        "ERR unknown command 'LPUSH', with args beginning with: 'a' 'b' "
    );
    assert_eq!(
        error(&client.say("GET")),
        "ERR wrong number of arguments for 'get' command"
    );
}
