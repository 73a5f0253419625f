//! What all requests share: the databases, blocking work of a bounded number, and wake-ups of feeds.

use crate::auth::Authority;
use crate::config::Config;
use crate::failure::{Failure, Outcome};
use crate::gateway::BackupJobs;
use crate::mending::Mending;
use crate::replicator::Replicator;
use crate::server::ServerError;
use crate::settings::Settings;
use crate::stats::Stats;
use crate::tls::Outgoing;
use crate::uuids::{Uuids, hex, random};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use waystation::Durability;
use waystation_access::Rates;
use waystation_documents::database::Settings as DatabaseSettings;
use waystation_documents::{Catalogue, Database, Error};

/// The unit in which bodies take of the memory for all of them (bytes).
const BODY_UNIT: usize = 1024;
/// Databases that a server always has.
const SYSTEM_DATABASES: [&str; 2] = ["_users", "_replicator"];

/// The state of a server.
pub(crate) struct App {
    pub(crate) catalogue: Catalogue,
    pub(crate) settings: Settings,
    pub(crate) authority: Authority,
    pub(crate) config: Config,
    pub(crate) stats: Stats,
    pub(crate) rates: Rates,
    pub(crate) uuids: Uuids,
    /// Names this server.
    pub(crate) uuid: String,
    /// True once the server is to stop.
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) replicator: Replicator,
    pub(crate) mending: Mending,
    /// Whom replications trust.
    pub(crate) outgoing: Arc<Outgoing>,
    pub(crate) backups: BackupJobs,
    /// Where the logs of databases of readings ended when the server started, by their names.
    pub(crate) log_begun: HashMap<String, u64>,
    /// Whether the settings named no users when the server started.
    pub(crate) began_without_users: bool,
    workers: Arc<Semaphore>,
    bodies: Arc<Semaphore>,
    /// For attachments on their way out.
    attachments: Arc<Semaphore>,
    /// By the uuid of a database: a number that grows with its updates.
    updates: Mutex<HashMap<String, watch::Sender<u64>>>,
}

impl App {
    /// Opens the databases.
    pub(crate) fn open(
        settings: Settings,
        stopping: watch::Receiver<bool>,
    ) -> Result<Self, ServerError> {
        let outgoing = Outgoing::new(settings.replication_trust.as_deref())?;
        let mut databases = DatabaseSettings {
            nodes: settings.nodes.clone(),
            copy_bytes_per_second: settings.copy_bytes_per_second,
            ..DatabaseSettings::default()
        };
        databases.options.offload.clone_from(&settings.offload);
        databases.options.resources.clone_from(&settings.resources);
        let catalogue = Catalogue::open(&settings.directory, databases)?;
        for name in SYSTEM_DATABASES {
            if matches!(catalogue.get(name), Err(Error::NoDatabase)) {
                catalogue.create(name, 1, None)?;
            }
        }
        let secret = record(&catalogue, "secret")?;
        let uuid = hex(&record(&catalogue, "uuid")?[..16]);
        Ok(Self {
            authority: Authority::new(&settings, secret),
            config: Config::open(&settings, &catalogue)?,
            stats: Stats::default(),
            rates: Rates::default(),
            uuids: Uuids::default(),
            uuid,
            stopping,
            replicator: Replicator::new(settings.replications_max),
            mending: Mending::default(),
            outgoing: Arc::new(outgoing),
            backups: BackupJobs::default(),
            log_begun: log_ends(&settings),
            began_without_users: settings.users.now().is_empty(),
            workers: Arc::new(Semaphore::new(settings.workers)),
            bodies: Arc::new(Semaphore::new(units(settings.bodies_bytes_max))),
            attachments: Arc::new(Semaphore::new(units(settings.bodies_bytes_max))),
            updates: Mutex::default(),
            catalogue,
            settings,
        })
    }

    /// Does `work` on a blocking thread, when one is free.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Outcome<T> + Send + 'static,
    ) -> Outcome<T> {
        let stopped = || Failure::internal("the server is stopping");
        let permit = Arc::clone(&self.workers).acquire_owned().await;
        let permit = permit.map_err(|_| stopped())?;
        let app = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || {
            let outcome = work(&app);
            drop(permit);
            outcome
        });
        done.await.map_err(|error| {
            log::error!("a request ended by a panic: {error}");
            Failure::internal("the request met a fault of the server; its log says more")
        })?
    }

    /// Waits until there is memory for a body of `bytes`.
    pub(crate) async fn admit_body(&self, bytes: usize) -> Outcome<OwnedSemaphorePermit> {
        admit(&self.bodies, bytes).await
    }

    /// Waits until there is memory for attachments that an answer holds `bytes` of at once.
    pub(crate) async fn admit_attachments(&self, bytes: u64) -> Outcome<OwnedSemaphorePermit> {
        let most = self.settings.bodies_bytes_max;
        let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= most);
        let reason = format!(
            "the attachments of this answer take more than {most} bytes of memory; ask for them one by one"
        );
        let too_large = Failure {
            reason,
            ..Failure::too_large()
        };
        admit(&self.attachments, bytes.ok_or(too_large)?).await
    }

    /// What writes survive before they are answered.
    pub(crate) fn durability(&self) -> Durability {
        if self.settings.sync {
            Durability::PowerLoss
        } else {
            Durability::ProcessCrash
        }
    }

    /// Wakes the feeds of `database`.
    pub(crate) fn announce(&self, database: &Database) {
        if let Some(updates) = self.updates().get(database.uuid()) {
            updates.send_modify(|number| *number += 1);
        }
    }

    /// Tells of updates of `database`; ends when it is deleted.
    pub(crate) fn watch(&self, database: &Database) -> watch::Receiver<u64> {
        let mut updates = self.updates();
        let sender = updates
            .entry(database.uuid().to_owned())
            .or_insert_with(|| watch::channel(0).0);
        sender.subscribe()
    }

    /// Ends the feeds of `database`, which is deleted.
    pub(crate) fn forget(&self, database: &Database) {
        self.updates().remove(database.uuid());
    }

    fn updates(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<u64>>> {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the logs of databases of readings end.
fn log_ends(settings: &Settings) -> HashMap<String, u64> {
    let readings = settings.gateway.readings.iter();
    let end = |it: &waystation_readings::Readings| it.db().stats().log.reserved_lsn;
    readings.map(|it| (it.name().to_owned(), end(it))).collect()
}

/// The memory of `bytes`, in units.
fn units(bytes: usize) -> usize {
    bytes.div_ceil(BODY_UNIT)
}

async fn admit(memory: &Arc<Semaphore>, bytes: usize) -> Outcome<OwnedSemaphorePermit> {
    let units = u32::try_from(units(bytes)).map_err(|_| Failure::too_large())?;
    let permit = Arc::clone(memory).acquire_many_owned(units).await;
    permit.map_err(|_| Failure::internal("the server is stopping"))
}

/// 32 random bytes that stay the same for a directory.
fn record(catalogue: &Catalogue, name: &str) -> Result<[u8; 32], Error> {
    if let Some(bytes) = catalogue.record(name)?
        && let Ok(bytes) = bytes.try_into()
    {
        return Ok(bytes);
    }
    let bytes = random();
    catalogue.put_record(name, &bytes)?;
    Ok(bytes)
}
