//! The same random commands to a real Redis and to this server: the same answers.
//!
//! `scripts/setup-test.sh` installs the real one. `WAYSTATION_LISTS` sets the number of lists, `WAYSTATION_FIRST_SEED` the
//! first seed; a failing list prints its seed.

#![allow(clippy::cast_sign_loss, reason = "numbers of a test")]

use crate::support::real::Real;
use crate::support::{self, Answer, Client, Served};

const LISTS: u64 = 60;
const COMMANDS: usize = 150;

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.next(all.len())]
    }
}

const KEYS: &[&str] = &[
    "a",
    "b",
    "car1:x",
    "car1:y",
    "car2:x",
    "long:key:with:parts",
];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "-3",
    "7",
    "100",
    "x",
    "9223372036854775807",
    "-9223372036854775808",
];
const WORDS: &[&str] = &["", "v", "17", "-5", "hello", "3.5", "wörter", "10"];
const SCORES: &[&str] = &[
    "0", "1", "-1", "2.5", "-2.5", "inf", "-inf", "3", "nan", "x",
];
const ENDS: &[&str] = &["-inf", "+inf", "0", "(1", "2.5", "(-1", "3", "x"];
const LEX: &[&str] = &["-", "+", "[m1", "(m2", "[m3", "x"];
const MEMBERS: &[&str] = &["m1", "m2", "m3", "m4", ""];

/// Words in capitals, and what stands for the rest: k a key, n a number, v a value, s a score, e an end of a range of
/// scores, l one of members, m a member or a field.
const FORMS: &[&str] = &[
    "SET k v",
    "SET k v NX",
    "SET k v XX",
    "SET k v GET",
    "SET k v EX 100",
    "SET k v KEEPTTL",
    "SET k v EX n",
    "SET k v NX GET",
    "SET k v NX XX",
    "GET k",
    "GETDEL k",
    "GETSET k v",
    "GETEX k PERSIST",
    "GETEX k EX 100",
    "SETNX k v",
    "SETEX k 100 v",
    "SETEX k n v",
    "PSETEX k 100000 v",
    "MGET k k k",
    "MSET k v k v",
    "MSET k v k",
    "MSETNX k v k v",
    "APPEND k v",
    "STRLEN k",
    "GETRANGE k n n",
    "SETRANGE k 3 v",
    "SETRANGE k n v",
    "INCR k",
    "DECR k",
    "INCRBY k n",
    "DECRBY k n",
    "INCRBYFLOAT k 0.5",
    "INCRBYFLOAT k v",
    "DEL k",
    "DEL k k",
    "UNLINK k",
    "EXISTS k k",
    "TYPE k",
    "EXPIRE k 100",
    "EXPIRE k n",
    "EXPIRE k 100 NX",
    // A moment, not a time from now: the same time from now, given twice, is a later moment unless it is the same
    // millisecond.
    "EXPIREAT k 4000000001 GT",
    "EXPIRE k 50 LT",
    "EXPIRE k 5 NX GT",
    "PEXPIRE k 100000",
    "EXPIREAT k 4000000000",
    "EXPIRETIME k",
    "PERSIST k",
    "TTL k",
    "RENAME k k",
    "RENAMENX k k",
    "COPY k k",
    "COPY k k REPLACE",
    "TOUCH k k",
    "DBSIZE",
    "HSET k m v",
    "HSET k m v m v",
    "HSET k m",
    "HMSET k m v",
    "HSETNX k m v",
    "HGET k m",
    "HMGET k m m",
    "HGETALL k",
    "HDEL k m",
    "HDEL k m m",
    "HLEN k",
    "HEXISTS k m",
    "HKEYS k",
    "HVALS k",
    "HSTRLEN k m",
    "HINCRBY k m n",
    "HINCRBYFLOAT k m 1.5",
    "SADD k m m",
    "SREM k m",
    "SCARD k",
    "SISMEMBER k m",
    "SMISMEMBER k m m",
    "SMEMBERS k",
    "ZADD k s m",
    "ZADD k s m s m",
    "ZADD k NX s m",
    "ZADD k XX s m",
    "ZADD k GT CH s m",
    "ZADD k LT s m",
    "ZADD k INCR s m",
    "ZADD k NX GT s m",
    "ZADD k XX INCR s m",
    "ZINCRBY k s m",
    "ZREM k m m",
    "ZCARD k",
    "ZSCORE k m",
    "ZMSCORE k m m",
    "ZRANK k m",
    "ZREVRANK k m",
    "ZRANGE k n n",
    "ZRANGE k 0 -1 WITHSCORES",
    "ZRANGE k n n REV",
    "ZRANGE k e e BYSCORE",
    "ZRANGE k e e BYSCORE REV",
    "ZRANGE k e e BYSCORE LIMIT 1 2",
    "ZRANGE k 0 -1 LIMIT 1 2",
    "ZREVRANGE k 0 -1 WITHSCORES",
    "ZREVRANGE k n n",
    "ZRANGEBYSCORE k e e",
    "ZRANGEBYSCORE k e e WITHSCORES LIMIT n 2",
    "ZREVRANGEBYSCORE k e e",
    "ZCOUNT k e e",
    "ZREMRANGEBYSCORE k e e",
    "ZREMRANGEBYRANK k n n",
    "ZPOPMIN k",
    "ZPOPMAX k 2",
    "ZPOPMIN k n",
    "ZUNIONSTORE k 2 k k",
    "ZUNIONSTORE k 2 k k WEIGHTS 2 3 AGGREGATE MAX",
    "ZINTERSTORE k 2 k k",
    "ZINTERSTORE k 2 k k AGGREGATE MIN",
    "ZDIFFSTORE k 2 k k",
    "ZUNION 2 k k WITHSCORES",
    "ZINTER 2 k k",
    "ZUNIONSTORE k 0 k",
    "MULTI",
    "EXEC",
    "DISCARD",
    "WATCH k",
    "UNWATCH",
    "PING",
    "PING v",
    "ECHO v",
    "NOSUCH k v",
    "GET",
    "FLUSHDB",
    "LPUSH_NOT_HERE k",
];
/// Forms for members in order, whose scores have to be the same.
const LEX_FORMS: &[&str] = &[
    "ZADD k 0 m 0 m",
    "ZADD k 0 m",
    "ZRANGEBYLEX k l l",
    "ZREVRANGEBYLEX k l l",
    "ZLEXCOUNT k l l",
    "ZRANGE k l l BYLEX",
    "ZRANGE k l l BYLEX REV LIMIT 0 2",
    "ZREMRANGEBYLEX k l l",
    "DEL k",
    "ZREM k m",
    "ZCARD k",
];

fn command(random: &mut Random, forms: &[&str]) -> Vec<String> {
    let form = random.of(forms);
    let word = |it: &str| match it {
        "k" => random.of(KEYS).to_owned(),
        "n" => random.of(NUMBERS).to_owned(),
        "v" => random.of(WORDS).to_owned(),
        "s" => random.of(SCORES).to_owned(),
        "e" => random.of(ENDS).to_owned(),
        "l" => random.of(LEX).to_owned(),
        "m" => random.of(MEMBERS).to_owned(),
        other => other.to_owned(),
    };
    form.split(' ').map(word).collect()
}

/// Answers without an order, in one.
fn in_order(command: &str, answer: Answer) -> Answer {
    let Answer::Array(mut parts) = answer else {
        return answer;
    };
    match command {
        "HKEYS" | "HVALS" | "SMEMBERS" | "KEYS" => parts.sort_by_key(Answer::text),
        "HGETALL" => {
            let mut pairs: Vec<(String, String)> = parts
                .chunks(2)
                .map(|it| (it[0].text(), it[1].text()))
                .collect();
            pairs.sort();
            let flat = pairs.into_iter().flat_map(|(key, value)| [key, value]);
            return Answer::Array(flat.map(|it| Answer::Bulk(it.into_bytes())).collect());
        }
        "EXEC" => {
            // What was queued is not known here: maps and sets are compared as bags.
            for part in &mut parts {
                if let Answer::Array(inner) = part {
                    inner.sort_by_key(|it| format!("{it:?}"));
                }
            }
        }
        _ => {}
    }
    Answer::Array(parts)
}

fn compare(seed: u64, forms: &[&str], real: &mut Client, own: &mut Client, database: &str) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    for client in [&mut *real, &mut *own] {
        client.say("DISCARD");
        client.say("UNWATCH");
    }
    real.say("FLUSHALL");
    own.say("FLUSHALL");
    assert_eq!(
        own.say(&format!("SELECT {database}")),
        Answer::Simple("OK".to_owned())
    );
    let mut history = Vec::new();
    for _ in 0..COMMANDS {
        let args = command(&mut random, forms);
        history.push(args.join(" "));
        let expected = in_order(&args[0], real.ask(&args));
        let found = in_order(&args[0], own.ask(&args));
        let is_alike = match (&expected, &found) {
            // The same time to live, but for the moment that passed in between.
            (Answer::Integer(one), Answer::Integer(other)) if args[0].contains("TTL") => {
                (one - other).abs() <= 1
            }
            (one, other) => one == other,
        };
        assert!(
            is_alike,
            "seed {seed}, database {database}: {args:?}\n  Redis: {expected:?}\n  here:  {found:?}\n  after: {history:#?}"
        );
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .map_or(default, |it| it.parse().unwrap())
}

#[test]
fn random_commands_are_answered_as_redis_answers_them() {
    let real = Real::start();
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let (mut one, mut other) = (Client::connect(real.address), served.client());
    let first = number("WAYSTATION_FIRST_SEED", 1);
    for seed in first..first + number("WAYSTATION_LISTS", LISTS) {
        for database in ["plain", "fleet"] {
            compare(seed, FORMS, &mut one, &mut other, database);
            compare(seed, LEX_FORMS, &mut one, &mut other, database);
        }
    }
}

/// A pipeline is answered as its commands one by one are.
#[test]
fn pipelines_are_answered_as_redis_answers_them() {
    let real = Real::start();
    let directory = tempfile::tempdir().unwrap();
    let served = Served::start(directory.path());
    let (mut one, mut other) = (Client::connect(real.address), served.client());
    for seed in 1..=number("WAYSTATION_LISTS", LISTS) {
        let mut random = Random(seed | 1 << 40);
        one.say("FLUSHALL");
        other.say("FLUSHALL");
        let commands: Vec<Vec<String>> =
            (0..COMMANDS).map(|_| command(&mut random, FORMS)).collect();
        for args in &commands {
            one.send(args);
        }
        let all: Vec<u8> = commands.iter().flat_map(|it| support::encode(it)).collect();
        std::io::Write::write_all(&mut other.stream, &all).unwrap();
        for args in &commands {
            let expected = in_order(&args[0], one.read());
            let found = in_order(&args[0], other.read());
            if args[0].contains("TTL") {
                continue;
            }
            assert_eq!(expected, found, "seed {seed}: {args:?}");
        }
        for client in [&mut one, &mut other] {
            client.say("DISCARD");
            client.say("UNWATCH");
        }
    }
}
