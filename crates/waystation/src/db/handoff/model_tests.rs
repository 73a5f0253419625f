//! Hand-offs under shuttle: a device is exported twice at once, in the midst of writes to it, and taken back in the midst
//! of an export.
//!
//! Run with `make models`.

use super::super::WriteBatch;
use super::{Db, Digest, Receipt, Refusal, Ticket};
use crate::error::{DeviceError, Error, Result};
use crate::log::model_storage::Watched;
use crate::options::{DeviceOptions, Durability, Extractor, Options};
use crate::storage::SimStorage;
use crate::sync::Arc;
use crate::sync::models::explore;
use crate::sync::thread::{self, JoinHandle};
use shuttle::rand::{Rng, thread_rng};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const WRITERS: usize = 2;
const EXPORTERS: usize = 2;
const PUTS: usize = 3;

struct Model {
    db: Db,
    /// Records of the device whose puts were acknowledged. Not seen by the scheduler.
    acknowledged: AtomicU64,
}

impl Model {
    /// An engine with one record of a device.
    fn start() -> Arc<Self> {
        let machine = SimStorage::new(thread_rng().r#gen());
        let options = Options {
            memtable_bytes: 64 << 10,
            ring_bytes: 256 << 10,
            log_segment_bytes: 256 << 10,
            background_jobs: 1,
            devices: Some(DeviceOptions::new(Extractor::until(b':'))),
            ..Options::default()
        };
        let db = Db::open_with(Watched::over(machine), "/db", options).unwrap();
        let model = Self {
            db,
            acknowledged: AtomicU64::new(0),
        };
        model.put("car:first").unwrap();
        Arc::new(model)
    }

    fn put(&self, key: &str) -> Result<()> {
        // Not `Db::put`: what that keeps for a thread, all threads of a model would share.
        let mut batch = WriteBatch::new();
        batch.put(key.as_bytes(), &[7; 1000]);
        self.db.write(&batch, Durability::ProcessCrash)?;
        self.acknowledged.fetch_add(1, SeqCst);
        Ok(())
    }

    /// Writes until the device moves.
    fn write(&self, writer: usize) {
        for number in 0..PUTS {
            match self.put(&format!("car:{writer}-{number}")) {
                Ok(()) => {}
                Err(Error::Device(DeviceError::Moving { .. })) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn export(&self) -> (Ticket, Digest) {
        let durability = Durability::ProcessCrash;
        let mut export = self
            .db
            .devices()
            .export(b"car", "east", durability)
            .unwrap();
        let digest = export.read_through().unwrap();
        (export.ticket().clone(), digest)
    }

    /// Takes the device back from the hand-off `ticket`, as if its destination had refused it.
    fn abort(&self, ticket: Ticket) {
        self.db.devices().abort(&Refusal { ticket }).unwrap();
    }

    fn end(self: Arc<Self>) {
        Arc::into_inner(self).unwrap().db.close().unwrap();
    }
}

fn spawn<T: Send + 'static>(
    model: &Arc<Model>,
    run: impl FnOnce(&Model) -> T + Send + 'static,
) -> JoinHandle<T> {
    let model = Arc::clone(model);
    thread::spawn(move || run(&model))
}

fn two_exports_beside_writers() {
    let model = Model::start();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| spawn(&model, move |model| model.write(writer)))
        .collect();
    let exporters: Vec<_> = (0..EXPORTERS)
        .map(|_| spawn(&model, Model::export))
        .collect();
    let sent: Vec<_> = exporters.into_iter().map(|it| it.join().unwrap()).collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let acknowledged = model.acknowledged.load(SeqCst);
    for (ticket, digest) in sent {
        assert_eq!(
            digest.records, acknowledged,
            "what was acknowledged is sent"
        );
        let receipt = Receipt { ticket, digest };
        model.db.devices().complete(&receipt).unwrap();
    }
    model.end();
}

fn an_export_beside_an_abort() {
    let model = Model::start();
    let (first, _) = model.export();
    let other = spawn(&model, Model::export);
    model.abort(first.clone());
    // It takes writes, unless it is frozen by the next hand-off already.
    let is_written = model.put("car:late").is_ok();
    let (ticket, digest) = other.join().unwrap();
    let records = if ticket == first || !is_written { 1 } else { 2 };
    assert_eq!(digest.records, records, "all of the ticket's content");
    let receipt = Receipt {
        ticket: ticket.clone(),
        digest,
    };
    let completed = model.db.devices().complete(&receipt);
    assert_eq!(completed.is_ok(), ticket != first, "{completed:?}");
    model.end();
}

#[test]
fn two_exports_at_once_send_all_that_was_acknowledged() {
    explore(two_exports_beside_writers, 300);
}

#[test]
fn an_export_beside_an_abort_sends_the_content_of_its_ticket() {
    explore(an_export_beside_an_abort, 300);
}
