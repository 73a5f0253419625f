//! All commands: their names, arguments, keys, and what they may do.

use super::{
    Handler, acl, devices, hashes, keys, multi, scans, series, series_read, server, sets, strings,
    zcombine, zsets, ztake,
};
use std::collections::HashMap;
use std::sync::OnceLock;

/// What a command does to keys, and who may give it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads some keys.
    Read,
    /// Reads many entries, from storage perhaps.
    ReadMany,
    /// Writes without reading.
    Put,
    /// `SET`, which reads if its options say so.
    Set,
    /// Reads and writes.
    Write,
    /// Reads and writes many entries.
    WriteMany,
    /// Writes all keys.
    WriteAll,
    /// Lets devices depart.
    Depart,
    /// Has devices come from other engines, or go there.
    Admit,
    /// Is about the connection.
    Control,
    /// Is about the connection, and for clients that have not said who they are.
    Open,
    /// Is about the server.
    Admin,
}

/// Which keys a command holds until its run is committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holding {
    Nothing,
    Shared,
    Alone,
    Everything,
}

/// Where the keys are among the arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Places {
    None,
    /// From the first one to the last one (-1: to the end), each so many arguments behind the one before.
    Range(usize, i32, usize),
    /// As many as the argument at this place says; with a target before it, or without.
    Numbered(usize),
}

/// How a command is carried out.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Run {
    /// By itself, in a transaction or not.
    Data(Handler),
    /// By the connection, and never in a transaction.
    Connection(Handler),
}

/// A command.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spec {
    pub(crate) name: &'static str,
    /// Arguments with the name; at least so many, if it is negative.
    pub(crate) arity: i32,
    pub(crate) access: Access,
    pub(crate) places: Places,
    pub(crate) run: Run,
}

const NONE: Places = Places::None;
const ONE: Places = Places::Range(1, 1, 1);
const TWO: Places = Places::Range(1, 2, 1);
const EACH: Places = Places::Range(1, -1, 1);
const PAIRS: Places = Places::Range(1, -1, 2);
const TRIPLES: Places = Places::Range(1, -1, 3);

type Row = (&'static str, i32, Access, Places, Handler);

use Access::{
    Admin, Admit, Control, Depart, Open, Put, Read, ReadMany, Set, Write, WriteAll, WriteMany,
};

const STRINGS: &[Row] = &[
    ("GET", 2, Read, ONE, strings::get),
    ("SET", -3, Set, ONE, strings::set),
    ("MGET", -2, Read, EACH, strings::mget),
    ("MSET", -3, Put, PAIRS, strings::mset),
    ("MSETNX", -3, Write, PAIRS, strings::msetnx),
    ("GETDEL", 2, Write, ONE, strings::getdel),
    ("GETEX", -2, Write, ONE, strings::getex),
    ("GETSET", 3, Write, ONE, strings::getset),
    ("SETEX", 4, Put, ONE, strings::setex),
    ("PSETEX", 4, Put, ONE, strings::psetex),
    ("SETNX", 3, Write, ONE, strings::setnx),
    ("SETRANGE", 4, Write, ONE, strings::setrange),
    ("GETRANGE", 4, Read, ONE, strings::getrange),
    ("SUBSTR", 4, Read, ONE, strings::getrange),
    ("APPEND", 3, Write, ONE, strings::append),
    ("STRLEN", 2, Read, ONE, strings::strlen),
    ("INCR", 2, Write, ONE, strings::incr),
    ("DECR", 2, Write, ONE, strings::decr),
    ("INCRBY", 3, Write, ONE, strings::incrby),
    ("DECRBY", 3, Write, ONE, strings::decrby),
    ("INCRBYFLOAT", 3, Write, ONE, strings::incrbyfloat),
];

const KEYS: &[Row] = &[
    ("DEL", -2, Write, EACH, keys::del),
    ("UNLINK", -2, Write, EACH, keys::del),
    ("EXISTS", -2, Read, EACH, keys::exists),
    ("TOUCH", -2, Read, EACH, keys::exists),
    ("TYPE", 2, Read, ONE, keys::kind),
    ("EXPIRE", -3, Write, ONE, keys::expire),
    ("PEXPIRE", -3, Write, ONE, keys::pexpire),
    ("EXPIREAT", -3, Write, ONE, keys::expireat),
    ("PEXPIREAT", -3, Write, ONE, keys::pexpireat),
    ("EXPIRETIME", 2, Read, ONE, keys::expiretime),
    ("PEXPIRETIME", 2, Read, ONE, keys::pexpiretime),
    ("TTL", 2, Read, ONE, keys::ttl),
    ("PTTL", 2, Read, ONE, keys::pttl),
    ("PERSIST", 2, Write, ONE, keys::persist),
    ("RENAME", 3, WriteMany, TWO, keys::rename),
    ("RENAMENX", 3, WriteMany, TWO, keys::renamenx),
    ("COPY", -3, WriteMany, TWO, keys::copy),
    ("OBJECT", -2, Read, Places::Range(2, 2, 1), keys::object),
    ("MEMORY", -2, ReadMany, Places::Range(2, 2, 1), keys::memory),
    ("SCAN", -2, ReadMany, NONE, scans::scan),
    ("KEYS", 2, ReadMany, NONE, scans::keys),
    ("DBSIZE", 1, ReadMany, NONE, scans::dbsize),
    ("RANDOMKEY", 1, ReadMany, NONE, scans::randomkey),
    ("FLUSHDB", -1, WriteAll, NONE, keys::flush),
    ("FLUSHALL", -1, WriteAll, NONE, multi::flushall),
];

const HASHES: &[Row] = &[
    ("HSET", -4, Write, ONE, hashes::hset),
    ("HMSET", -4, Write, ONE, hashes::hmset),
    ("HSETNX", 4, Write, ONE, hashes::hsetnx),
    ("HGET", 3, Read, ONE, hashes::hget),
    ("HMGET", -3, Read, ONE, hashes::hmget),
    ("HGETALL", 2, ReadMany, ONE, hashes::hgetall),
    ("HDEL", -3, Write, ONE, hashes::hdel),
    ("HLEN", 2, Read, ONE, hashes::hlen),
    ("HEXISTS", 3, Read, ONE, hashes::hexists),
    ("HKEYS", 2, ReadMany, ONE, hashes::hkeys),
    ("HVALS", 2, ReadMany, ONE, hashes::hvals),
    ("HSTRLEN", 3, Read, ONE, hashes::hstrlen),
    ("HINCRBY", 4, Write, ONE, hashes::hincrby),
    ("HINCRBYFLOAT", 4, Write, ONE, hashes::hincrbyfloat),
    ("HSCAN", -3, ReadMany, ONE, scans::hscan),
    ("SADD", -3, Write, ONE, sets::sadd),
    ("SREM", -3, Write, ONE, sets::srem),
    ("SCARD", 2, Read, ONE, sets::scard),
    ("SISMEMBER", 3, Read, ONE, sets::sismember),
    ("SMISMEMBER", -3, Read, ONE, sets::smismember),
    ("SMEMBERS", 2, ReadMany, ONE, sets::smembers),
    ("SSCAN", -3, ReadMany, ONE, scans::sscan),
];

const SORTED_SETS: &[Row] = &[
    ("ZADD", -4, Write, ONE, zsets::zadd),
    ("ZINCRBY", 4, Write, ONE, zsets::zincrby),
    ("ZREM", -3, Write, ONE, zsets::zrem),
    ("ZCARD", 2, Read, ONE, zsets::zcard),
    ("ZSCORE", 3, Read, ONE, zsets::zscore),
    ("ZMSCORE", -3, Read, ONE, zsets::zmscore),
    ("ZRANK", 3, ReadMany, ONE, zsets::zrank),
    ("ZREVRANK", 3, ReadMany, ONE, zsets::zrevrank),
    ("ZRANGE", -4, ReadMany, ONE, ztake::zrange),
    ("ZREVRANGE", -4, ReadMany, ONE, ztake::zrevrange),
    ("ZRANGEBYSCORE", -4, ReadMany, ONE, ztake::zrangebyscore),
    (
        "ZREVRANGEBYSCORE",
        -4,
        ReadMany,
        ONE,
        ztake::zrevrangebyscore,
    ),
    ("ZRANGEBYLEX", -4, ReadMany, ONE, ztake::zrangebylex),
    ("ZREVRANGEBYLEX", -4, ReadMany, ONE, ztake::zrevrangebylex),
    ("ZCOUNT", 4, ReadMany, ONE, ztake::zcount),
    ("ZLEXCOUNT", 4, ReadMany, ONE, ztake::zlexcount),
    ("ZREMRANGEBYRANK", 4, WriteMany, ONE, ztake::zremrangebyrank),
    (
        "ZREMRANGEBYSCORE",
        4,
        WriteMany,
        ONE,
        ztake::zremrangebyscore,
    ),
    ("ZREMRANGEBYLEX", 4, WriteMany, ONE, ztake::zremrangebylex),
    ("ZPOPMIN", -2, Write, ONE, ztake::zpopmin),
    ("ZPOPMAX", -2, Write, ONE, ztake::zpopmax),
    ("ZSCAN", -3, ReadMany, ONE, scans::zscan),
    (
        "ZUNIONSTORE",
        -4,
        WriteMany,
        Places::Numbered(2),
        zcombine::zunionstore,
    ),
    (
        "ZINTERSTORE",
        -4,
        WriteMany,
        Places::Numbered(2),
        zcombine::zinterstore,
    ),
    (
        "ZDIFFSTORE",
        -4,
        WriteMany,
        Places::Numbered(2),
        zcombine::zdiffstore,
    ),
    (
        "ZUNION",
        -3,
        ReadMany,
        Places::Numbered(1),
        zcombine::zunion,
    ),
    (
        "ZINTER",
        -3,
        ReadMany,
        Places::Numbered(1),
        zcombine::zinter,
    ),
    ("ZDIFF", -3, ReadMany, Places::Numbered(1), zcombine::zdiff),
];

const SERIES: &[Row] = &[
    ("TS.CREATE", -2, Write, ONE, series::ts_create),
    ("TS.ALTER", -2, Write, ONE, series::ts_alter),
    ("TS.ADD", -4, Write, ONE, series::ts_add),
    ("TS.MADD", -4, Write, TRIPLES, series::ts_madd),
    ("TS.DEL", 4, WriteMany, ONE, series::ts_del),
    ("TS.GET", -2, Read, ONE, series_read::ts_get),
    ("TS.INFO", -2, ReadMany, ONE, series_read::ts_info),
    ("TS.RANGE", -4, ReadMany, ONE, series_read::ts_range),
    ("TS.REVRANGE", -4, ReadMany, ONE, series_read::ts_revrange),
    ("TS.MRANGE", -4, ReadMany, NONE, series_read::ts_mrange),
    (
        "TS.MREVRANGE",
        -4,
        ReadMany,
        NONE,
        series_read::ts_mrevrange,
    ),
    (
        "TS.QUERYINDEX",
        -2,
        ReadMany,
        NONE,
        series_read::ts_queryindex,
    ),
    ("DEVICE.LIST", -1, ReadMany, NONE, devices::list),
    ("DEVICE.INFO", 2, ReadMany, ONE, devices::info),
    ("DEVICE.DEPART", -2, Depart, EACH, devices::depart),
    ("DEVICE.EXPORT", 3, Admin, ONE, devices::export),
    ("DEVICE.ADMIT", 2, Admit, NONE, devices::admit),
    ("DEVICE.REFUSE", 2, Admin, NONE, devices::refuse),
    ("DEVICE.COMPLETE", 2, Admit, NONE, devices::complete),
    ("DEVICE.ABORT", 2, Admin, NONE, devices::abort),
];

const CONTROL: &[Row] = &[
    ("PING", -1, Control, NONE, server::ping),
    ("ECHO", 2, Control, NONE, server::echo),
    ("TIME", 1, Control, NONE, server::time),
    ("COMMAND", -1, Control, NONE, server::command),
    ("INFO", -1, Control, NONE, server::info),
    ("LASTSAVE", 1, Control, NONE, server::lastsave),
    ("PUBLISH", 3, Control, NONE, server::publish),
    ("PUBSUB", -2, Control, NONE, server::pubsub),
    ("CONFIG", -2, Admin, NONE, server::config),
    ("WAIT", 3, Control, NONE, multi::wait),
    ("WAITAOF", 4, Control, NONE, multi::waitaof),
    ("UNWATCH", 1, Control, NONE, multi::unwatch),
    ("ACL", -2, Control, NONE, acl::acl),
    ("CLIENT", -2, Control, NONE, multi::client),
];

const CONNECTION: &[Row] = &[
    ("MULTI", 1, Control, NONE, multi::begin),
    ("WATCH", -2, Read, EACH, multi::watch),
    ("SELECT", 2, Control, NONE, multi::select),
    ("DISCARD", 1, Control, NONE, multi::discard),
    ("EXEC", 1, Control, NONE, multi::exec),
    ("SUBSCRIBE", -2, Control, NONE, multi::subscribe),
    ("PSUBSCRIBE", -2, Control, NONE, multi::psubscribe),
    ("UNSUBSCRIBE", -1, Control, NONE, multi::unsubscribe),
    ("PUNSUBSCRIBE", -1, Control, NONE, multi::punsubscribe),
    ("AUTH", -2, Open, NONE, multi::auth),
    ("HELLO", -1, Open, NONE, multi::hello),
    ("RESET", 1, Open, NONE, multi::reset),
    ("QUIT", -1, Open, NONE, multi::quit),
];

/// All commands, in the order of the table.
pub(crate) fn specs() -> impl Iterator<Item = Spec> {
    let spec = |run: fn(Handler) -> Run| {
        move |row: &Row| Spec {
            name: row.0,
            arity: row.1,
            access: row.2,
            places: row.3,
            run: run(row.4),
        }
    };
    let data = [STRINGS, KEYS, HASHES, SORTED_SETS, SERIES, CONTROL];
    let data = data.into_iter().flatten().map(spec(Run::Data));
    data.chain(CONNECTION.iter().map(spec(Run::Connection)))
}

/// The command with this name, in capitals or not.
pub(crate) fn find(name: &[u8]) -> Option<&'static Spec> {
    const LENGTH: usize = 24;
    static ALL: OnceLock<HashMap<&'static [u8], Spec>> = OnceLock::new();
    let all = ALL.get_or_init(|| specs().map(|it| (it.name.as_bytes(), it)).collect());
    let mut capitals = [0; LENGTH];
    let capitals = capitals.get_mut(..name.len())?;
    capitals.copy_from_slice(name);
    capitals.make_ascii_uppercase();
    all.get(&*capitals)
}

/// The keys behind an argument that is their number.
pub(super) fn numbered_keys<'b, 'a>(args: &'b [&'a [u8]]) -> Option<&'b [&'a [u8]]> {
    let number = crate::number::parse_integer(args.first()?)?;
    args.get(1..)?.get(..usize::try_from(number).ok()?)
}

impl Spec {
    /// Whether so many arguments, with the name, are right.
    pub(crate) fn takes(&self, arguments: usize) -> bool {
        let least = self.arity.unsigned_abs() as usize;
        if self.arity < 0 {
            arguments >= least
        } else {
            arguments == least
        }
    }

    /// The keys among the arguments.
    pub(crate) fn keys<'b, 'a>(&self, args: &'b [&'a [u8]]) -> impl Iterator<Item = &'a [u8]> + 'b {
        let (first, end, step) = match self.places {
            Places::None => (0, 0, 1),
            Places::Range(first, last, step) => {
                let end = usize::try_from(last).map_or(args.len(), |last| last + 1);
                (first, end.min(args.len()), step)
            }
            Places::Numbered(at) => {
                let keys = args.get(at..).and_then(numbered_keys).map_or(0, <[_]>::len);
                (at + 1, at + 1 + keys, 1)
            }
        };
        let target = args.get(1).filter(|_| self.places == Places::Numbered(2));
        let named = args
            .get(first..end)
            .unwrap_or_default()
            .iter()
            .step_by(step);
        target.into_iter().chain(named).copied()
    }

    pub(crate) fn holding(&self, args: &[&[u8]]) -> Holding {
        match self.access {
            Read | ReadMany | Control | Open | Admin => Holding::Nothing,
            Put => Holding::Shared,
            Set if !strings::set_reads(args) => Holding::Shared,
            Set | Write | WriteMany => Holding::Alone,
            // A device that comes or goes under a command that counts what it read would leave a wrong count.
            WriteAll | Depart | Admit => Holding::Everything,
        }
    }

    /// Whether it may take long: it runs where it holds up no other connection.
    pub(crate) fn is_long(&self) -> bool {
        matches!(
            self.access,
            ReadMany | WriteMany | WriteAll | Depart | Admit | Admin
        )
    }

    pub(crate) fn writes(&self) -> bool {
        matches!(
            self.access,
            Put | Set | Write | WriteMany | WriteAll | Depart | Admit
        )
    }

    /// Whether it is about all keys of a database.
    pub(crate) fn is_about_all(&self) -> bool {
        self.access == WriteAll || (self.access == ReadMany && self.places == NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_keys_named() {
        assert_eq!(specs().count(), {
            let names: std::collections::HashSet<_> = specs().map(|it| it.name).collect();
            names.len()
        });
        assert_eq!(find(b"gEt").unwrap().name, "GET");
        assert!(find(&[b'x'; 100]).is_none() && find(b"").is_none());
        let keys =
            |args: &[&'static [u8]]| -> Vec<&[u8]> { find(args[0]).unwrap().keys(args).collect() };
        assert_eq!(keys(&[b"MSET", b"a", b"1", b"b", b"2"]), [b"a", b"b"]);
        assert_eq!(
            keys(&[b"ZUNIONSTORE", b"t", b"2", b"a", b"b"]),
            [b"t", b"a", b"b"]
        );
        assert_eq!(keys(&[b"ZUNIONSTORE", b"t", b"9", b"a", b"b"]), [b"t"]);
        assert!(keys(&[b"ZUNIONSTORE"]).is_empty());
        assert!(keys(&[b"OBJECT", b"HELP"]).is_empty() && keys(&[b"PING"]).is_empty());
    }
}
