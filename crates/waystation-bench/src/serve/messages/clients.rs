//! Publishers, the subscriber that drops, and the one that follows the daemon's tail.

use crate::clock;
use crate::error::{Error, Result};
use crate::interrupt::lock;
use crate::measure::Latencies;
use crate::serve::mqtt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

/// Messages of a publisher that are not acknowledged.
const WINDOW: u32 = 100;
/// Devices of a publisher.
const DEVICES: u32 = 100;
/// A paced publisher sends so often.
const TICK: Duration = Duration::from_millis(5);
/// And each time so many messages, and one whose latency is measured: 5,200 messages a second.
const AT_A_TICK: u32 = 25;
/// The device of that one.
const PROBE: &str = "probe";
/// How long the last message may take.
const LAST: Duration = Duration::from_secs(5);

fn failed(source: std::io::Error) -> Error {
    Error::io("exchange messages with", "the broker or the daemon", source)
}

/// Times of messages from publisher to subscriber.
#[derive(Clone)]
pub(super) struct Times {
    begun: Instant,
    latencies: Arc<Mutex<(u64, Latencies)>>,
    _task: Option<Arc<Task>>,
}

struct Task(JoinHandle<()>);

impl std::ops::Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Times {
    fn new() -> Self {
        Self {
            begun: clock::now(),
            latencies: Arc::new(Mutex::new((0, Latencies::new()))),
            _task: None,
        }
    }

    /// Times of messages that the daemon at `http` has written and shows.
    pub(super) async fn follow(http: &str) -> Result<Self> {
        let database = crate::serve::daemon::DATABASE;
        let mut stream = TcpStream::connect(http).await.map_err(failed)?;
        let request = format!(
            "GET /_waystation/databases/{database}/tail?device={PROBE} HTTP/1.1\r\nHost: {http}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.map_err(failed)?;
        let mut lines = BufReader::new(stream).lines();
        let status = lines.next_line().await.map_err(failed)?.unwrap_or_default();
        if !status.contains(" 200 ") {
            return Err(Error::Refused(format!("the tail answers {status}")));
        }
        let times = Self::new();
        let noted = times.clone();
        let task = tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(reading) = line.strip_prefix("data: ") {
                    noted.note(reading.as_bytes());
                }
            }
        });
        Ok(Self {
            _task: Some(Arc::new(Task(task))),
            ..times
        })
    }

    fn microseconds(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// A message has come whose value is when it was sent.
    fn note(&self, reading: &[u8]) {
        let text = String::from_utf8_lossy(reading);
        let value = text.split_once("\"value\":").map_or("", |it| it.1);
        let digits = value.split(|it: char| !it.is_ascii_digit()).next();
        let Some(sent) = digits.and_then(|it| it.parse::<u64>().ok()) else {
            return;
        };
        let latency = Duration::from_micros(self.microseconds().saturating_sub(sent));
        let mut latencies = lock(&self.latencies);
        latencies.0 += 1;
        latencies.1.record(latency);
    }

    fn count(&self) -> u64 {
        lock(&self.latencies).0
    }

    /// The latency, in microseconds, that this share of messages does not exceed.
    pub(super) fn quantile_us(&self, share: f64) -> f64 {
        lock(&self.latencies).1.quantile_us(share)
    }
}

/// A subscriber that acknowledges and drops.
pub(super) struct Drop {
    taken: Arc<AtomicU64>,
    times: Times,
}

impl Drop {
    /// Subscribes at the broker on `port`.
    pub(super) async fn subscribe(port: u16) -> Result<Self> {
        let mut stream = mqtt::connect(port, "dropper").await?;
        mqtt::subscribe(&mut stream, "sensors/+/+").await?;
        let taken = Arc::new(AtomicU64::new(0));
        let times = Times::new();
        let (counted, noted) = (Arc::clone(&taken), times.clone());
        let task = tokio::spawn(async move {
            // When the broker is gone, nothing comes any more, and the measurement says so.
            let _ = take(stream, &counted, &noted).await;
        });
        let times = Times {
            _task: Some(Arc::new(Task(task))),
            ..times
        };
        Ok(Self { taken, times })
    }

    /// Messages that it has acknowledged.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    pub(super) fn times(&self) -> &Times {
        &self.times
    }
}

async fn take(mut stream: TcpStream, taken: &AtomicU64, times: &Times) -> std::io::Result<()> {
    let (mut input, mut out) = (Vec::with_capacity(1 << 17), Vec::new());
    let probe = format!("sensors/{PROBE}/");
    loop {
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        let (mut read, mut count) = (0, 0);
        while let Some(packet) = mqtt::packet(&input[read..]) {
            read += packet.length;
            if let Some(message) = packet.message() {
                mqtt::acknowledge(&mut out, message.packet);
                count += 1;
                if message.topic.starts_with(probe.as_bytes()) {
                    times.note(message.payload);
                }
            }
        }
        input.drain(..read);
        stream.write_all(&out).await?;
        out.clear();
        taken.fetch_add(count, Relaxed);
    }
}

/// A publisher's messages: each reading has a time of its own.
struct Messages {
    publisher: u32,
    number: u64,
    time: u64,
    packet: u16,
}

impl Messages {
    fn new(publisher: u32) -> Self {
        Self {
            publisher,
            number: 0,
            time: clock::unix_millis() * 1000,
            packet: 0,
        }
    }

    fn next(&mut self, out: &mut Vec<u8>) {
        let car = self.publisher * DEVICES + (self.number % u64::from(DEVICES)) as u32;
        let value = self.number;
        self.add(out, &format!("sensors/car{car}/speed"), value);
    }

    fn add(&mut self, out: &mut Vec<u8>, topic: &str, value: u64) {
        self.number += 1;
        self.packet = self.packet.checked_add(1).unwrap_or(1);
        let time = self.time + self.number;
        let payload = format!("{{\"time\":{time},\"value\":{value}}}");
        mqtt::publish(out, topic.as_bytes(), self.packet, payload.as_bytes());
    }
}

/// Publishes one message, and waits until the broker has it.
pub(super) async fn publish_one(port: u16) -> Result<()> {
    publish_some(
        port,
        "first".to_owned(),
        Messages::new(PUBLISHER_OF_ONE),
        |sent| sent < 1,
    )
    .await
    .map(|_| ())
}

/// A number that no other publisher has.
const PUBLISHER_OF_ONE: u32 = 1_000;

/// `publishers` publish as fast as the broker takes it; how many messages they sent.
pub(super) async fn publish(port: u16, publishers: u32, seconds: f64) -> Result<u64> {
    let until = clock::now() + Duration::from_secs_f64(seconds);
    let mut tasks = JoinSet::new();
    for number in 0..publishers {
        let name = format!("publisher{number}");
        let is_wanted = move |_| clock::now() < until;
        tasks.spawn(publish_some(port, name, Messages::new(number), is_wanted));
    }
    let mut sent = 0;
    while let Some(ended) = tasks.join_next().await {
        sent += ended.map_err(|error| Error::Refused(format!("a publisher ended: {error}")))??;
    }
    Ok(sent)
}

/// One publisher: it sends as long as `is_wanted` says so of the messages sent, and waits until all are acknowledged.
async fn publish_some(
    port: u16,
    name: String,
    mut messages: Messages,
    is_wanted: impl Fn(u64) -> bool,
) -> Result<u64> {
    let mut stream = mqtt::connect(port, &name).await?;
    let (mut input, mut out) = (Vec::with_capacity(1 << 14), Vec::new());
    let (mut sent, mut open) = (0, 0);
    loop {
        while open < WINDOW && is_wanted(sent) {
            messages.next(&mut out);
            open += 1;
            sent += 1;
        }
        if open == 0 {
            return Ok(sent);
        }
        stream.write_all(&out).await.map_err(failed)?;
        out.clear();
        if stream.read_buf(&mut input).await.map_err(failed)? == 0 {
            return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
        }
        let mut read = 0;
        while let Some(packet) = mqtt::packet(&input[read..]) {
            read += packet.length;
            open -= u32::from(packet.head == mqtt::PUBACK);
        }
        input.drain(..read);
    }
}

/// Publishes at the pace for `seconds`, one message of each tick with the time at which it left; messages a second.
pub(super) async fn publish_paced(port: u16, times: &Times, seconds: f64) -> Result<f64> {
    let mut stream = mqtt::connect(port, "paced").await?;
    let mut messages = Messages::new(PUBLISHER_OF_ONE + 1);
    let (mut input, mut out) = (vec![0; 1 << 14], Vec::new());
    let mut ticks = tokio::time::interval(TICK);
    let begun = clock::now();
    let mut probes = 0;
    while begun.elapsed() < Duration::from_secs_f64(seconds) {
        ticks.tick().await;
        for _ in 0..AT_A_TICK {
            messages.next(&mut out);
        }
        let topic = format!("sensors/{PROBE}/latency");
        messages.add(&mut out, &topic, times.microseconds());
        probes += 1;
        stream.write_all(&out).await.map_err(failed)?;
        out.clear();
        // Acknowledgements are read only to make room for more.
        while matches!(stream.try_read(&mut input), Ok(read) if read > 0) {}
    }
    let rate = messages.number as f64 / begun.elapsed().as_secs_f64();
    let ended = clock::now();
    while times.count() < probes {
        if ended.elapsed() > LAST {
            return Err(Error::Refused(format!(
                "{} of {probes} timed messages came",
                times.count()
            )));
        }
        tokio::time::sleep(TICK).await;
    }
    Ok(rate)
}
