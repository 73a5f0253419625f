//! What a client of the Redis protocol sends: to the parser alone, and to a whole server.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use waystation::storage::SimStorage;
use waystation::{Db, DeviceOptions, Extractor, Options};
use waystation_redis::{Database, Handle, Limits, Parsed, Parser, Server, Settings};

/// What clients say.
const SAID: [&str; 14] = [
    "PING\r\n",
    "SET car1:a 1 EX 100|GET car1:a|APPEND car1:a 2|INCRBY car1:a 3|TTL car1:a|GETDEL car1:a",
    "MSET a 1 b 2|MGET a b c|RENAME a c|COPY c d REPLACE|DEL b c|EXISTS d|TYPE d|KEYS [a-d]*",
    "HSET car1:h f 1 g 2|HINCRBYFLOAT car1:h f 1.5|HGETALL car1:h|HSCAN car1:h 0 MATCH * COUNT 1|HDEL car1:h f g",
    "SADD s 1 2 x|SREM s x|SMEMBERS s|OBJECT ENCODING s|SSCAN s 0",
    "ZADD z NX CH 1 a 2.5 b -inf c|ZRANGE z (1 +inf BYSCORE LIMIT 0 1 WITHSCORES|ZRANGEBYLEX z [a (c|ZPOPMIN z 2",
    "ZADD y 1 a|ZUNIONSTORE x 2 y z WEIGHTS 2 3 AGGREGATE MAX|ZREMRANGEBYRANK x 0 -1",
    "TS.CREATE car1:t RETENTION 5 LABELS k v|TS.ADD car1:t 1000 1.5|TS.RANGE car1:t - + AGGREGATION avg 10",
    "TS.MRANGE 0 9 FILTER k=(v,w)|TS.DEL car1:t 0 9|TS.INFO car1:t",
    "HELLO 3 SETNAME me|CLIENT LIST|CLIENT REPLY SKIP|PING|RESET",
    "WATCH a|MULTI|SET a 1|PUBLISH ch m|EXEC|MULTI|DISCARD|UNWATCH",
    "SUBSCRIBE ch|PSUBSCRIBE c*|PUBLISH ch m|UNSUBSCRIBE|PUNSUBSCRIBE|PUBSUB NUMSUB ch",
    "DEVICE.LIST c*|DEVICE.INFO car1|DEVICE.DEPART car1|DEVICE.ADMIT stream|DEVICE.REFUSE stream",
    "SCAN 0 MATCH ca* TYPE hash|DBSIZE|RANDOMKEY|INFO server|COMMAND GETKEYS MSET a 1|WAITAOF 1 0 0|FLUSHDB|QUIT",
];

fn encode(command: &str) -> Vec<u8> {
    let words: Vec<&str> = command.split(' ').collect();
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let inline = SAID[0].as_bytes().to_vec();
    let pipeline = |said: &&str| said.split('|').flat_map(encode).collect();
    let pipelines = SAID[1..].iter().map(pipeline);
    std::iter::once(inline).chain(pipelines).collect()
}

/// The commands of a stream that arrives whole, or a part at a time; whether it was refused.
fn commands(bytes: &[u8], step: usize) -> (Vec<Vec<Vec<u8>>>, bool) {
    let mut parser = Parser::default();
    let (mut found, mut at, mut end) = (Vec::new(), 0, 0);
    loop {
        match parser.parse(&bytes[at..end], Limits::new(1 << 20)) {
            Err(_) => return (found, true),
            Ok(Parsed::Command(length)) => {
                let arguments = parser.arguments(&bytes[at..end]);
                found.push(arguments.map(<[u8]>::to_vec).collect());
                at += length;
            }
            Ok(Parsed::Incomplete) if end == bytes.len() => return (found, false),
            Ok(Parsed::Incomplete) => end = bytes.len().min(end + step),
        }
    }
}

/// The same commands are found however the bytes arrive.
pub(super) fn parser(bytes: &[u8]) {
    let whole = commands(bytes, bytes.len().max(1));
    for step in [1, 7] {
        assert_eq!(commands(bytes, step), whole, "in parts of {step} bytes");
    }
}

/// A server that clients of many inputs talk to.
struct Served {
    address: SocketAddr,
    handle: Handle,
    /// A client that behaves.
    good: TcpStream,
    runtime: Option<Runtime>,
    inputs: usize,
}

/// A server is replaced after so many inputs: what they wrote stays in memory.
const INPUTS: usize = 1000;
/// A server that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// A pause behind each connection, so that the system has ports left for others.
const PAUSE: Duration = Duration::from_millis(3);

impl Served {
    fn start() -> Self {
        let extractor = Extractor::until(b':');
        let options = Options {
            ring_bytes: 256 << 10,
            devices: Some(DeviceOptions::new(extractor)),
            ..Options::default()
        };
        let machine = SimStorage::new(1);
        machine.set_capacity(Some(1 << 30));
        let db = Db::open_with(machine, "/data", options).expect("an empty database opens");
        let database = Database {
            name: "db".to_owned(),
            db: Arc::new(db),
            extractor: Some(extractor),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("threads start");
        let settings = Settings::new(SocketAddr::from(([127, 0, 0, 1], 0)));
        let server = runtime
            .block_on(Server::bind(settings, vec![database]))
            .expect("a port is free");
        let (address, handle) = (server.address(), server.handle());
        runtime.spawn(server.run());
        let good = connect(address);
        Self {
            address,
            handle,
            good,
            runtime: Some(runtime),
            inputs: 0,
        }
    }

    /// Sends the bytes of a hostile client, waits for the end of its connection, and asks whether the server is well.
    fn try_bytes(&mut self, bytes: &[u8]) {
        let mut client = connect(self.address);
        let mut answers = client.try_clone().expect("a socket has two ends");
        // The server may end the connection before it has read all.
        let sent = client.write_all(bytes);
        let _ = client.shutdown(Shutdown::Write);
        let ended = std::io::copy(&mut answers, &mut std::io::sink());
        let hangs = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(!sent.is_err_and(|it| hangs(&it)), "nothing is read");
        assert!(!ended.is_err_and(|it| hangs(&it)), "no end comes");
        let mut pong = [0; 7];
        self.good.write_all(b"PING\r\n").expect("the server reads");
        self.good.read_exact(&mut pong).expect("the server answers");
        assert_eq!(&pong, b"+PONG\r\n");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.handle.stop();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(PATIENCE);
        }
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
        set(&stream, Some(PATIENCE)).expect("a time limit");
    }
    stream
}

/// A client of any bytes gets answers and an end, and others notice nothing.
pub(super) fn session(bytes: &[u8]) {
    static SERVED: Mutex<Option<Served>> = Mutex::new(None);
    let mut served = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
    if served.as_ref().is_some_and(|it| it.inputs >= INPUTS) {
        *served = None;
    }
    let served = served.get_or_insert_with(Served::start);
    served.inputs += 1;
    served.try_bytes(bytes);
    std::thread::sleep(PAUSE);
}
