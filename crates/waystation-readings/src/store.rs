//! A database as readings: one door for every write, and a tail that follows them.
//!
//! A write becomes one batch of the engine. When the engine has acknowledged it, the tail has it: followers see what was
//! written through this door, in this process, in the order of the acknowledgements. The tail keeps a bounded number of
//! batches, long ones in pieces, and a follower that falls behind loses the oldest and is told how many.

use crate::key::{Layout, Wrong};
use crate::value::Unreadable;
use crate::{Reading, Selection};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use waystation::{Db, DeviceError, DeviceInfo, Durability, Extractor, WriteBatch};

/// Pieces that the tail keeps for followers: a batch, or as much of it
const TAIL_PIECES: usize = 256;
/// as has about so many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Why readings were not written or read.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A reading has no key.
    #[error(transparent)]
    Wrong(#[from] Wrong),
    /// A value on storage is no reading's.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] waystation::Error),
    /// Rows have no place in a Parquet file.
    #[error("the rows cannot be written as Parquet: {0}; ask for ndjson")]
    Parquet(String),
}

impl From<::parquet::errors::ParquetError> for Error {
    fn from(error: ::parquet::errors::ParquetError) -> Self {
        Self::Parquet(error.to_string())
    }
}

impl Error {
    /// Whether the reading itself is the reason, so that it fails again however often it is tried.
    pub fn is_of_the_reading(&self) -> bool {
        matches!(
            self,
            Self::Wrong(_)
                | Self::Engine(
                    waystation::Error::InvalidArgument(_) | waystation::Error::Device(_)
                )
        )
    }
}

/// What was written through this door since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Readings.
    pub readings: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Batches.
    pub batches: u64,
    /// Departures.
    pub departures: u64,
}

#[derive(Default)]
struct Counters {
    readings: AtomicU64,
    bytes: AtomicU64,
    batches: AtomicU64,
    departures: AtomicU64,
}

/// A database of readings. Clones share it.
#[derive(Clone)]
pub struct Readings {
    name: Arc<str>,
    db: Arc<Db>,
    layout: Layout,
    tail: broadcast::Sender<Arc<[Reading]>>,
    counters: Arc<Counters>,
}

impl std::fmt::Debug for Readings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Readings");
        shown.field("name", &self.name).finish_non_exhaustive()
    }
}

impl Readings {
    /// The database `db`, which callers know as `name` and whose devices `extractor` names.
    pub fn new(name: &str, db: Arc<Db>, extractor: Extractor) -> Self {
        Self {
            name: name.into(),
            db,
            layout: Layout::new(extractor),
            tail: broadcast::channel(TAIL_PIECES).0,
            counters: Arc::default(),
        }
    }

    /// What callers know it as.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The engine below.
    pub fn db(&self) -> &Arc<Db> {
        &self.db
    }

    /// How keys are laid out.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Writes all of `readings` or none, and shows them to followers.
    ///
    /// # Errors
    /// [`Error::Wrong`] if one has no key; [`Error::Engine`].
    pub fn write(
        &self,
        readings: impl Into<Arc<[Reading]>>,
        durability: Durability,
    ) -> Result<(), Error> {
        let readings = readings.into();
        if readings.is_empty() {
            return Ok(());
        }
        let mut batch = WriteBatch::new();
        let mut bytes = 0;
        for reading in &*readings {
            let key = self
                .layout
                .key(&reading.device, &reading.sensor, reading.time)?;
            let value = reading.value.encode();
            batch.put(&key, &value);
            bytes += key.len() + value.len();
        }
        self.db.write(&batch, durability)?;
        let counters = &self.counters;
        counters.readings.fetch_add(readings.len() as u64, Relaxed);
        counters.bytes.fetch_add(bytes as u64, Relaxed);
        counters.batches.fetch_add(1, Relaxed);
        self.show(readings, bytes);
        Ok(())
    }

    /// Shows followers, if there are any, what was written: a slow one holds no more memory than the pieces that are kept.
    fn show(&self, readings: Arc<[Reading]>, bytes: usize) {
        let pieces = bytes.div_ceil(PIECE_BYTES).max(1);
        if self.tail.receiver_count() == 0 {
            return;
        }
        // Followers may have left since.
        if pieces == 1 {
            let _ = self.tail.send(readings);
            return;
        }
        for piece in readings.chunks(readings.len().div_ceil(pieces)) {
            let _ = self.tail.send(piece.into());
        }
    }

    /// Lets `device` depart. `false`: it had no data.
    ///
    /// # Errors
    /// As [`waystation::DeviceHandle::depart`], except that of a device that has no data.
    pub fn depart(&self, device: &str, durability: Durability) -> Result<bool, Error> {
        self.layout.device(device)?;
        let had_data = match self.db.devices().depart(device.as_bytes()) {
            Ok(()) => true,
            Err(waystation::Error::Device(DeviceError::Unknown { .. })) => false,
            Err(error) => return Err(error.into()),
        };
        if durability == Durability::PowerLoss {
            self.db.sync()?;
        }
        self.counters
            .departures
            .fetch_add(u64::from(had_data), Relaxed);
        Ok(had_data)
    }

    /// Lets `device` write here again after it was handed on to another engine. `false`: it was not.
    ///
    /// # Errors
    /// [`Error`].
    pub fn arrive(&self, device: &str) -> Result<bool, Error> {
        self.layout.device(device)?;
        match self.db.devices().lift_stub(device.as_bytes()) {
            Ok(()) => Ok(true),
            Err(waystation::Error::Device(DeviceError::Unknown { .. })) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The devices.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub fn devices(&self) -> Result<Vec<DeviceInfo>, Error> {
        Ok(self.db.devices().list()?)
    }

    /// Follows what is written from now on.
    pub fn tail(&self, selection: Selection) -> Tail {
        Tail {
            receiver: self.tail.subscribe(),
            selection,
        }
    }

    /// What was written so far.
    pub fn counts(&self) -> Counts {
        let counters = &self.counters;
        Counts {
            readings: counters.readings.load(Relaxed),
            bytes: counters.bytes.load(Relaxed),
            batches: counters.batches.load(Relaxed),
            departures: counters.departures.load(Relaxed),
        }
    }
}

/// Follows the writes of a database.
pub struct Tail {
    receiver: broadcast::Receiver<Arc<[Reading]>>,
    selection: Selection,
}

/// What a follower meets.
#[derive(Debug, Clone, PartialEq)]
pub enum TailEvent {
    /// Readings of the selection, of one piece of a batch.
    Readings(Vec<Reading>),
    /// The follower was too slow: so many pieces were passed over.
    Lost(u64),
}

impl Tail {
    /// What comes next; `None` when the database is gone.
    pub async fn next(&mut self) -> Option<TailEvent> {
        loop {
            match self.receiver.recv().await {
                Ok(piece) => {
                    let chosen = piece.iter().filter(|it| self.selection.chooses(it));
                    let chosen: Vec<Reading> = chosen.cloned().collect();
                    if !chosen.is_empty() {
                        return Some(TailEvent::Readings(chosen));
                    }
                }
                Err(RecvError::Lagged(pieces)) => return Some(TailEvent::Lost(pieces)),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}
