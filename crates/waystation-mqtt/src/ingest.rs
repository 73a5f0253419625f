//! The connection's life: connect, subscribe, take messages, and after a failure wait and begin again.
//!
//! Waits double from a tenth of a second to half a minute, and half of each is random, so that many gateways do not come
//! back to a broker at once. They begin anew when a connection has held for half a minute. A message takes its place among the waiting bytes before the next one is read: when the database
//! takes nothing, the broker keeps what is not acknowledged.

use crate::figures::Figures;
use crate::link::{self, Happened, Link, Message, Outgoing};
use crate::mapping::Mapping;
use crate::settings::{Error, Settings, Survives};
use crate::writer::{Waiting, Writer};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use waystation::Durability;
use waystation_readings::{Readings, time};

/// The first wait after a failure, and the longest one.
const WAITS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// A connection that held for so long shows that the broker is well: a failure behind it begins with the first wait again.
const STEADY: Duration = Duration::from_secs(30);
/// How long an ingest that is to stop may take to write what it has.
const STOPPING: Duration = Duration::from_secs(5);
/// The unit of waiting bytes.
const UNIT: usize = 256;
/// What a waiting message takes beside its topic and payload (bytes).
const MESSAGE_BYTES: usize = 256;

/// An ingest that runs until it is stopped.
pub struct Ingest {
    figures: Arc<Figures>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Ingest {
    /// Starts an ingest into `readings`. Call it within a tokio runtime, with its timers and sockets. The broker may be
    /// away.
    ///
    /// # Errors
    /// [`Error`].
    pub fn start(settings: &Settings, readings: Readings) -> Result<Self, Error> {
        settings.check()?;
        let mapping = Mapping::new(settings)?;
        let (sender, link) = link::open(settings)?;
        let figures = Arc::new(Figures::default());
        let outgoing = Outgoing::new(sender);
        let (waiting_in, waiting_out) = mpsc::unbounded_channel();
        let (stop, stopping) = watch::channel(false);
        let intake = Intake {
            broker: settings.broker.clone(),
            subscriptions: mapping.subscriptions.clone(),
            figures: Arc::clone(&figures),
            outgoing: Arc::clone(&outgoing),
            room: Arc::new(Semaphore::new(settings.waiting_bytes_max / UNIT)),
            room_units: settings.waiting_bytes_max / UNIT,
            waiting: Some(waiting_in),
            is_subscribed: false,
        };
        let writer = Writer {
            readings,
            mapping: Arc::new(mapping),
            durability: match settings.durability {
                Survives::Process => Durability::ProcessCrash,
                Survives::Power => Durability::PowerLoss,
            },
            dead_letter: settings.dead_letter.clone(),
            batch_messages: settings.batch_messages,
            batch_delay: settings.batch_delay(),
            figures: Arc::clone(&figures),
            outgoing,
            stopping: stopping.clone(),
        };
        let writing = tokio::spawn(writer.run(waiting_out));
        let task = tokio::spawn(intake.run(link, writing, stopping));
        Ok(Self {
            figures,
            stop,
            task,
        })
    }

    /// What it counts.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.figures
    }

    /// Writes and acknowledges what it has, and leaves the broker. The session stays there.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        if let Err(error) = self.task.await {
            log::error!("MQTT ingest ended by a panic: {error}");
        }
    }
}

/// The receiving side.
struct Intake {
    broker: String,
    subscriptions: Vec<crate::mapping::Subscription>,
    figures: Arc<Figures>,
    outgoing: Arc<Outgoing>,
    room: Arc<Semaphore>,
    /// All the room there is.
    room_units: usize,
    /// `None`: no more messages are taken.
    waiting: Option<mpsc::UnboundedSender<Waiting>>,
    is_subscribed: bool,
}

impl Intake {
    async fn run(
        mut self,
        mut link: Link,
        writing: JoinHandle<()>,
        mut stopping: watch::Receiver<bool>,
    ) {
        let mut wait = WAITS.0;
        let mut connected: Option<Instant> = None;
        loop {
            let happened = tokio::select! {
                happened = link.next() => happened,
                _ = stopping.wait_for(|is_told| *is_told) => break,
            };
            match happened {
                Ok(happened) => {
                    if matches!(happened, Happened::Connected { .. }) {
                        connected = Some(Instant::now());
                    }
                    self.take(happened).await;
                }
                Err(error) => {
                    // A broker may accept connections and end them at once, as one of two clients with one name sees it.
                    if connected.take().is_some_and(|it| it.elapsed() >= STEADY) {
                        wait = WAITS.0;
                    }
                    self.lose(&mut link, &error, wait);
                    let pause = with_jitter(wait);
                    wait = (wait * 2).min(WAITS.1);
                    tokio::select! {
                        () = sleep(pause) => {}
                        _ = stopping.wait_for(|is_told| *is_told) => break,
                    }
                }
            }
        }
        self.waiting = None;
        self.finish(link, writing).await;
        self.figures.is_connected.store(false, Relaxed);
    }

    async fn take(&mut self, happened: Happened) {
        match happened {
            Happened::Connected { resumed } => self.begin(resumed),
            Happened::Message(message) => self.queue(message).await,
            Happened::Subscribed { refused } if refused > 0 => {
                let fault = format!("the broker refused {refused} subscriptions; check its rights");
                log::error!("MQTT: {fault}");
                self.figures.set_connection_fault(Some(fault));
            }
            Happened::Subscribed { .. } | Happened::Nothing => {}
        }
    }

    fn begin(&mut self, resumed: bool) {
        let figures = &self.figures;
        figures.is_connected.store(true, Relaxed);
        let earlier = figures.connections.fetch_add(1, Relaxed);
        figures.set_connection_fault(None);
        let session = if resumed { "resumed" } else { "new" };
        log::info!("MQTT: connected to {}, session {session}", self.broker);
        if !resumed && earlier > 0 {
            log::warn!(
                "MQTT: {} has lost the session; what it kept is gone",
                self.broker
            );
        }
        // The settings may be others than those of the process that began the session.
        if resumed && self.is_subscribed {
            return;
        }
        self.is_subscribed = true;
        if self
            .outgoing
            .sender()
            .subscribe(&self.subscriptions)
            .is_err()
        {
            log::error!("MQTT: too many requests wait; the topics are not subscribed");
            self.is_subscribed = false;
        }
    }

    async fn queue(&mut self, message: Message) {
        self.figures.received.fetch_add(1, Relaxed);
        let bytes = message.topic.len() + message.payload.len() + MESSAGE_BYTES;
        // A message that is longer than all the room has it for itself.
        let units = bytes.div_ceil(UNIT).min(self.room_units) as u32;
        let room = Arc::clone(&self.room);
        let place = if message.packet.is_some() {
            room.acquire_many_owned(units).await.ok()
        } else {
            room.try_acquire_many_owned(units).ok()
        };
        let (Some(place), Some(waiting)) = (place, &self.waiting) else {
            self.figures.dropped.fetch_add(1, Relaxed);
            return;
        };
        self.figures.waiting.fetch_add(1, Relaxed);
        let sent = waiting.send(Waiting {
            message,
            connection: self.outgoing.connection(),
            arrival: time::now(),
            since: Instant::now(),
            _place: place,
        });
        if sent.is_err() {
            log::error!("MQTT: messages are not written any more");
        }
    }

    fn lose(&mut self, link: &mut Link, error: &str, wait: Duration) {
        self.outgoing.failed(link);
        self.figures.is_connected.store(false, Relaxed);
        self.figures.failures.fetch_add(1, Relaxed);
        let fault = format!("no connection to {}: {error}", self.broker);
        if self.figures.set_connection_fault(Some(fault.clone())) {
            log::warn!(
                "MQTT: {fault}; trying again, at first in {} ms",
                wait.as_millis()
            );
        }
    }

    /// Keeps the connection going while the writer ends, then says goodbye.
    async fn finish(&mut self, mut link: Link, mut writing: JoinHandle<()>) {
        let goodbye = async {
            loop {
                tokio::select! {
                    _ = &mut writing => break,
                    happened = link.next() => if happened.is_err() {
                        // What is not acknowledged comes again.
                        self.outgoing.failed(&mut link);
                        let _ = (&mut writing).await;
                        return;
                    }
                }
            }
            if self.outgoing.sender().disconnect().is_ok() {
                while link.next().await.is_ok() {}
            }
        };
        if timeout(STOPPING, goodbye).await.is_err() {
            log::warn!("MQTT: the broker was left without goodbye");
        }
    }
}

/// Half of `wait` for sure, and a random part of the other half.
fn with_jitter(wait: Duration) -> Duration {
    let mut random = [0];
    // Without random numbers everybody waits the same, which is no fault.
    let _ = getrandom::fill(&mut random);
    wait / 2 + wait / 2 * u32::from(random[0]) / 255
}
