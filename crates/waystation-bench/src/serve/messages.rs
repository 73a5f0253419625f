//! Readings through Mosquitto: publishers, the broker on its core, and on the other core a subscriber: the daemon, or one
//! that acknowledges and drops.
//!
//! `PUBLISH` is all messages over the time from the first one until the subscriber has acknowledged the last one, with
//! publishers as fast as the broker takes it. `PACED` is the latency at a rate that leaves everybody time: from the
//! publisher until the message has come to the subscriber and, with the daemon, is written and shown to another client.

use super::broker;
use super::daemon::{Config, DATABASE, Daemon};
use super::instance::Rig;
use super::process::Process;
use super::rows::ServeRow;
use super::whole;
use crate::clock;
use crate::cores::on_core;
use crate::drives::Server;
use crate::error::{Error, Result};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

mod clients;

use clients::{Drop as Dropper, Times};

/// Messages that the broker sends to a subscriber ahead of acknowledgements: Mosquitto's default, and many.
const INFLIGHT: [u32; 2] = [20, 1_000];
/// Publishers at full speed.
const PUBLISHERS: u32 = 4;
/// How long the daemon may take to subscribe, or to acknowledge the messages that are left.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(10);
/// The bytes of a payload, about.
const PAYLOAD_BYTES: u32 = 45;

/// What takes the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subscriber {
    /// Acknowledges and drops.
    Empty,
    /// The daemon, with what its readings survive.
    Daemon(&'static str),
}

const SUBSCRIBERS: [Subscriber; 3] = [
    Subscriber::Empty,
    Subscriber::Daemon("process"),
    Subscriber::Daemon("power"),
];

impl Subscriber {
    fn engine(self) -> &'static str {
        match self {
            Self::Empty => "mosquitto",
            Self::Daemon(_) => "waystation",
        }
    }

    fn durability(self) -> &'static str {
        match self {
            Self::Empty => "none",
            Self::Daemon(durability) => durability,
        }
    }
}

/// All runs.
pub(crate) fn message_rows(
    rig: &Rig<'_>,
    runs: u32,
    step: &mut dyn FnMut(&str),
) -> Result<Vec<ServeRow>> {
    let mut rows = Vec::new();
    for round in 1..=runs {
        for inflight in INFLIGHT {
            for subscriber in SUBSCRIBERS {
                let (engine, durability) = (subscriber.engine(), subscriber.durability());
                step(&format!(
                    "{engine} ({durability}), {inflight} messages ahead"
                ));
                let bench = Bench::start(rig, inflight, subscriber)?;
                let measured = || bench.measure(rig.seconds);
                let seen = match rig.cores.load {
                    Some(core) => on_core(core, measured)??,
                    None => measured()?,
                };
                for (command, seen) in ["PUBLISH", "PACED"].into_iter().zip(seen) {
                    rows.push(ServeRow {
                        protocol: Some("mqtt".to_owned()),
                        pipeline: inflight,
                        value_bytes: PAYLOAD_BYTES,
                        clients: PUBLISHERS,
                        durability: durability.to_owned(),
                        ..seen.named(engine, "mqtt", command, round)
                    });
                }
            }
        }
    }
    rig.clear()?;
    Ok(rows)
}

/// A broker and its subscriber.
struct Bench {
    subscriber: Option<Daemon>,
    broker_port: u16,
    _broker: Process,
}

impl Bench {
    fn start(rig: &Rig<'_>, inflight: u32, subscriber: Subscriber) -> Result<Self> {
        rig.clear()?;
        let directory = rig.place.path("broker");
        let (broker, broker_port) = broker::start(&directory, rig.cores.server, inflight)?;
        let subscriber = match subscriber {
            Subscriber::Empty => None,
            Subscriber::Daemon(durability) => {
                let directory: PathBuf = rig.place.path("serve");
                let more = format!(
                    "\n[mqtt]\nbroker = \"mqtt://127.0.0.1:{broker_port}\"\ndatabase = \"{DATABASE}\"\n\
                     durability = \"{durability}\"\n\n[[mqtt.readings]]\ntopic = \"sensors/{{device}}/{{sensor}}\"\n\
                     value = \"$.value\"\ntime = \"$.time\"\ntime_unit = \"us\"\n"
                );
                let config = Config {
                    durability: "process",
                    database: "extractor = \"until/3a\"\n",
                    more: &more,
                };
                let core = rig.cores.load;
                Some(Daemon::start(rig.program, &directory, core, &config)?)
            }
        };
        Ok(Self {
            subscriber,
            broker_port,
            _broker: broker,
        })
    }

    /// Rows without names: at full speed, and paced.
    fn measure(&self, seconds: f64) -> Result<[ServeRow; 2]> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| Error::io("start", "a runtime", source))?;
        runtime.block_on(async {
            match &self.subscriber {
                None => self.measure_empty(seconds).await,
                Some(daemon) => self.measure_daemon(daemon, seconds).await,
            }
        })
    }

    async fn measure_empty(&self, seconds: f64) -> Result<[ServeRow; 2]> {
        let port = self.broker_port;
        let dropper = Dropper::subscribe(port).await?;
        let begun = clock::now();
        let sent = clients::publish(port, PUBLISHERS, seconds).await?;
        while dropper.taken() < sent {
            check_patience(begun.elapsed(), seconds, dropper.taken(), sent)?;
            tokio::time::sleep(POLL / 10).await;
        }
        let ops_per_s = sent as f64 / begun.elapsed().as_secs_f64();
        let times = dropper.times();
        let paced = clients::publish_paced(port, times, seconds).await?;
        let full = ServeRow {
            ops_per_s: Some(ops_per_s),
            ..ServeRow::default()
        };
        Ok([full, paced_row(paced, times)])
    }

    async fn measure_daemon(&self, daemon: &Daemon, seconds: f64) -> Result<[ServeRow; 2]> {
        let port = self.broker_port;
        let server = Server::new(&format!("http://{}", daemon.http))?;
        let taken = await_subscription(&server, port).await?;
        let cpu = daemon.process.cpu_seconds();
        let begun = clock::now();
        let sent = clients::publish(port, PUBLISHERS, seconds).await?;
        loop {
            let now = figure(&server, "waystation_mqtt_messages_acknowledged_total")? - taken;
            if now >= sent {
                break;
            }
            check_patience(begun.elapsed(), seconds, now, sent)?;
            tokio::time::sleep(POLL).await;
        }
        let ops_per_s = sent as f64 / begun.elapsed().as_secs_f64();
        let cpu = daemon.process.cpu_seconds() - cpu;
        let times = Times::follow(&daemon.http).await?;
        let paced = clients::publish_paced(port, &times, seconds).await?;
        let full = ServeRow {
            ops_per_s: Some(ops_per_s),
            rss_mb: Some(daemon.process.rss_mb()),
            cpu_us_per_op: Some(cpu * 1e6 / sent as f64),
            ..ServeRow::default()
        };
        let paced = ServeRow {
            rss_mb: Some(daemon.process.rss_mb()),
            ..paced_row(paced, &times)
        };
        Ok([full, paced])
    }
}

fn paced_row(ops_per_s: f64, times: &Times) -> ServeRow {
    ServeRow {
        ops_per_s: Some(ops_per_s),
        p99_us: Some(times.quantile_us(0.99)),
        ..ServeRow::default()
    }
}

fn check_patience(elapsed: Duration, seconds: f64, taken: u64, sent: u64) -> Result<()> {
    if elapsed < PATIENCE + Duration::from_secs_f64(seconds) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "{taken} of {sent} messages came in {} s",
        elapsed.as_secs()
    )))
}

/// Publishes until the daemon acknowledges; how many it has acknowledged then.
async fn await_subscription(server: &Server, port: u16) -> Result<u64> {
    let begun = clock::now();
    let acknowledged = || figure(server, "waystation_mqtt_messages_acknowledged_total");
    while acknowledged()? == 0 {
        if begun.elapsed() > PATIENCE {
            return Err(Error::Refused("the daemon does not subscribe".to_owned()));
        }
        // A message of which the subscription was too late is dropped by the broker.
        clients::publish_one(port).await?;
        thread::sleep(POLL * 20);
    }
    acknowledged()
}

/// A figure without labels of the daemon.
fn figure(server: &Server, name: &str) -> Result<u64> {
    let text = server.ask("GET", "/metrics", "")?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|it| it.trim().parse::<f64>().ok());
    let value = value.ok_or_else(|| Error::Refused(format!("/metrics does not have {name}")))?;
    Ok(whole(value))
}
