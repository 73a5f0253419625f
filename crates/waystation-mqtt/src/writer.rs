//! From waiting messages to readings: batches, retries, dead letters and acknowledgements.
//!
//! A batch is what came while the one before was written. Its readings are one batch of the engine, cut where a device
//! departs or arrives, so that everything happens in the order of the messages. When the engine refuses a batch for one of its
//! readings, the batch is halved until the refused readings are alone, and their messages become dead letters. When it takes
//! nothing at all, the batch is tried again until it does, and nothing is acknowledged meanwhile.

use crate::figures::Figures;
use crate::link::{Message, Outgoing};
use crate::mapping::{Content, Mapping, Meaning, Poison, held_bytes};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout_at};
use waystation::Durability;
use waystation_readings::{Error, Reading, Readings};

/// The first wait when the database takes nothing, and the longest one.
const WAITS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// A piece of a batch ends behind the message with which its readings take so much in memory (bytes).
const PIECE_BYTES: usize = 4 << 20;
/// The longest payload that a dead letter quotes (bytes). A broker ends the connection over a packet that is too long for it,
/// and sends the message again through the next one.
const QUOTED_BYTES_MAX: usize = 64 << 10;

/// A message that waits to be written.
pub(crate) struct Waiting {
    pub(crate) message: Message,
    /// The number of the connection it came through.
    pub(crate) connection: u64,
    pub(crate) arrival: i64,
    pub(crate) since: Instant,
    pub(crate) _place: OwnedSemaphorePermit,
}

/// The writing side of an ingest.
pub(crate) struct Writer {
    pub(crate) readings: Readings,
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) durability: Durability,
    pub(crate) dead_letter: String,
    pub(crate) batch_messages: usize,
    pub(crate) batch_delay: Duration,
    pub(crate) figures: Arc<Figures>,
    pub(crate) outgoing: Arc<Outgoing>,
    pub(crate) stopping: watch::Receiver<bool>,
}

/// A part of a batch, and the messages that it comes from.
enum Step {
    /// Readings, and for each its message.
    Write(Vec<usize>, Arc<[Reading]>),
    Arrive(usize, String),
    Depart(usize, String),
}

/// A batch on its way into the engine. Its messages are read a piece at a time: readings take many times the bytes of the
/// payload that they come from.
#[derive(Default)]
struct Work {
    /// The steps of the piece that are left.
    steps: VecDeque<Step>,
    /// By message that was read: why it has no meaning.
    poisons: Vec<Option<Poison>>,
}

impl Writer {
    pub(crate) async fn run(mut self, mut waiting: UnboundedReceiver<Waiting>) {
        while let Some(first) = waiting.recv().await {
            let batch: Arc<[Waiting]> = self.collect(first, &mut waiting).await.into();
            let Some(poisons) = self.apply(&batch).await else {
                return;
            };
            self.answer(&batch, &poisons);
        }
    }

    async fn collect(
        &self,
        first: Waiting,
        waiting: &mut UnboundedReceiver<Waiting>,
    ) -> Vec<Waiting> {
        let until = Instant::now() + self.batch_delay;
        let mut batch = vec![first];
        while batch.len() < self.batch_messages {
            match waiting.try_recv() {
                Ok(next) => batch.push(next),
                Err(_) if self.batch_delay.is_zero() => break,
                Err(_) => match timeout_at(until, waiting.recv()).await {
                    Ok(Some(next)) => batch.push(next),
                    _ => break,
                },
            }
        }
        batch
    }

    /// Writes a batch, however long it takes; `None`: the ingest is to stop before it could.
    async fn apply(&mut self, batch: &Arc<[Waiting]>) -> Option<Vec<Option<Poison>>> {
        let mut begun: Option<Work> = None;
        let mut wait = WAITS.0;
        loop {
            let (readings, durability) = (self.readings.clone(), self.durability);
            let (mapping, figures) = (Arc::clone(&self.mapping), Arc::clone(&self.figures));
            let batch = Arc::clone(batch);
            let done = tokio::task::spawn_blocking(move || {
                // Payloads are read here as well: long ones take a while.
                let mut work = begun.unwrap_or_default();
                let done = work.go_on(&readings, durability, (&mapping, &batch, &figures));
                (work, done)
            });
            let Ok((work, done)) = done.await else {
                let fault =
                    "a write ended by a panic; nothing is written until the process starts again";
                log::error!("MQTT: {fault}");
                self.figures.set_write_fault(Some(fault.to_owned()));
                return None;
            };
            let Err(error) = done else {
                if self.figures.set_write_fault(None) {
                    log::warn!("MQTT: readings are written again");
                }
                return Some(work.poisons);
            };
            begun = Some(work);
            self.figures.retries.fetch_add(1, Relaxed);
            if self.figures.set_write_fault(Some(error.to_string())) {
                log::warn!("MQTT: nothing is acknowledged, as readings cannot be written: {error}");
            }
            tokio::select! {
                () = sleep(wait) => {}
                _ = self.stopping.wait_for(|is_told| *is_told) => return None,
            }
            wait = (wait * 2).min(WAITS.1);
        }
    }

    /// Sends dead letters and acknowledgements, in the order of the messages.
    fn answer(&self, batch: &[Waiting], poisons: &[Option<Poison>]) {
        for (waiting, poison) in batch.iter().zip(poisons) {
            self.figures.waiting.fetch_sub(1, Relaxed);
            if let Some(poison) = poison {
                self.bury(waiting, poison);
            }
            let Some(packet) = waiting.message.packet else {
                continue;
            };
            // The dead letter is before it in the same stream.
            let sent = self
                .outgoing
                .on(waiting.connection, |sender| sender.acknowledge(packet));
            if sent.is_ok() {
                log::trace!("acknowledged {}", waiting.message.topic);
                self.figures.acknowledged.fetch_add(1, Relaxed);
                let seconds = waiting.since.elapsed().as_secs_f64();
                self.figures.latency.note(seconds, 1);
            }
        }
    }

    /// Counts a message without a meaning, and sends its dead letter.
    fn bury(&self, waiting: &Waiting, poison: &Poison) {
        self.figures.count_poison(poison.kind);
        let message = &waiting.message;
        log::debug!("MQTT: {}: {}", message.topic, poison.reason);
        if self.dead_letter.is_empty() {
            return;
        }
        let is_quoted = poison.kind != "too_large" && message.payload.len() <= QUOTED_BYTES_MAX;
        let payload = is_quoted.then(|| STANDARD.encode(&message.payload));
        let letter = json!({
            "topic": message.topic,
            "kind": poison.kind,
            "reason": poison.reason,
            "time": waiting.arrival,
            "payload_bytes": message.payload.len(),
            "payload_base64": payload,
        });
        let sent = self.outgoing.on(waiting.connection, |sender| {
            sender.publish(&self.dead_letter, letter.to_string().into_bytes())
        });
        // The broker sends the message again through the next connection, and its letter goes there.
        if sent.is_err() && message.packet.is_none() {
            log::warn!("MQTT: a dead letter of {:?} was not sent", message.topic);
        }
    }
}

/// Makes a step of the readings so far.
fn close(steps: &mut VecDeque<Step>, places: &mut Vec<usize>, open: &mut Vec<Reading>) {
    if !open.is_empty() {
        let (places, open) = (std::mem::take(places), std::mem::take(open));
        steps.push_back(Step::Write(places, open.into()));
    }
}

impl Work {
    /// Does the rest of a batch. An error is one of the database, and the step is left.
    fn go_on(
        &mut self,
        readings: &Readings,
        durability: Durability,
        (mapping, batch, figures): (&Mapping, &[Waiting], &Figures),
    ) -> Result<(), Error> {
        loop {
            self.do_steps(readings, durability, figures)?;
            if self.poisons.len() == batch.len() {
                return Ok(());
            }
            self.plan(mapping, batch, figures);
        }
    }

    /// Reads the next piece of a batch.
    fn plan(&mut self, mapping: &Mapping, batch: &[Waiting], figures: &Figures) {
        let (mut places, mut open) = (Vec::new(), Vec::new());
        let mut bytes = 0;
        for (at, waiting) in batch.iter().enumerate().skip(self.poisons.len()) {
            if bytes >= PIECE_BYTES {
                break;
            }
            let meaning = mapping.read(Content {
                topic: &waiting.message.topic,
                payload: &waiting.message.payload,
                is_retained: waiting.message.is_retained,
                arrival: waiting.arrival,
            });
            let step = match meaning {
                Ok(Meaning::Readings(readings)) => {
                    bytes += readings.iter().map(held_bytes).sum::<usize>();
                    places.extend(std::iter::repeat_n(at, readings.len()));
                    open.extend(readings);
                    None
                }
                Ok(Meaning::Arrive(device)) => Some(Step::Arrive(at, device)),
                Ok(Meaning::Depart(device)) => Some(Step::Depart(at, device)),
                Ok(Meaning::Nothing) => {
                    figures.ignored.fetch_add(1, Relaxed);
                    None
                }
                Err(poison) => {
                    self.poisons.push(Some(poison));
                    continue;
                }
            };
            self.poisons.push(None);
            if let Some(step) = step {
                close(&mut self.steps, &mut places, &mut open);
                self.steps.push_back(step);
            }
        }
        close(&mut self.steps, &mut places, &mut open);
    }

    /// Does the steps that are left.
    fn do_steps(
        &mut self,
        readings: &Readings,
        durability: Durability,
        figures: &Figures,
    ) -> Result<(), Error> {
        while let Some(step) = self.steps.front() {
            match step {
                Step::Write(places, write) => match readings.write(Arc::clone(write), durability) {
                    Ok(()) => {
                        figures.readings.fetch_add(write.len() as u64, Relaxed);
                    }
                    Err(error) if !error.is_of_the_reading() => return Err(error),
                    Err(error) if write.len() == 1 => {
                        self.poisons[places[0]] = Some(poison_of(&error));
                    }
                    Err(_) => {
                        self.split();
                        continue;
                    }
                },
                Step::Arrive(at, device) => {
                    let done = readings.arrive(device).map(|_| ());
                    refuse_or_fail(&mut self.poisons[*at], done)?;
                    figures.arrivals.fetch_add(1, Relaxed);
                }
                Step::Depart(at, device) => {
                    let done = readings.depart(device, durability).map(|_| ());
                    refuse_or_fail(&mut self.poisons[*at], done)?;
                    figures.departures.fetch_add(1, Relaxed);
                }
            }
            self.steps.pop_front();
        }
        Ok(())
    }

    /// Puts its two halves in the place of the first step.
    fn split(&mut self) {
        if let Some(Step::Write(mut places, write)) = self.steps.pop_front() {
            let (first, second) = write.split_at(write.len() / 2);
            let rest = places.split_off(first.len());
            self.steps.push_front(Step::Write(rest, second.into()));
            self.steps.push_front(Step::Write(places, first.into()));
        }
    }
}

fn refuse_or_fail(poison: &mut Option<Poison>, done: Result<(), Error>) -> Result<(), Error> {
    match done {
        Err(error) if error.is_of_the_reading() => *poison = Some(poison_of(&error)),
        other => other?,
    }
    Ok(())
}

fn poison_of(error: &Error) -> Poison {
    let kind = match error {
        Error::Wrong(_) => "name",
        _ => "refused",
    };
    Poison::new(kind, error.to_string())
}
