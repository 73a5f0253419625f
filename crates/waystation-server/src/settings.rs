//! What a server is told when it starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use waystation::Resources;
use waystation::offload::Offload;
use waystation_access::LiveUsers;
use waystation_documents::database::Nodes;

/// A server administrator, who may do everything.
#[derive(Clone, PartialEq, Eq)]
pub struct Admin {
    /// The name.
    pub name: String,
    /// The password, in clear.
    pub password: String,
}

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Admin");
        shown.field("name", &self.name).finish_non_exhaustive()
    }
}

/// How a server speaks TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// A PEM file: the server's certificate, and its chain up to a certificate that clients trust.
    pub certificate: PathBuf,
    /// A PEM file: the key of the certificate.
    pub key: PathBuf,
    /// A PEM file: authorities. A client has to show a certificate of one of them; `None`: none has to.
    pub clients: Option<PathBuf>,
}

/// How a server serves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The directory of the databases, made if it is missing.
    pub directory: PathBuf,
    /// Where to listen. Port 0: any that is free.
    pub listen: SocketAddr,
    /// The administrators. Without one, and without `users`, every caller is one, and the server listens on loopback
    /// addresses only.
    pub admins: Vec<Admin>,
    /// Users beside the administrators and those in `_users`.
    pub users: LiveUsers,
    /// Connections speak TLS; `None`: none does.
    pub tls: Option<Tls>,
    /// Tokens that name callers; `None`: none does.
    pub jwt: Option<crate::Jwt>,
    /// A PEM file with authorities that replications trust beside the system's.
    pub replication_trust: Option<PathBuf>,
    /// Replications that run at once; more wait.
    pub replications_max: usize,
    /// The wait of a replication of `_replicator` after its first fault; it doubles with each further one.
    pub replication_backoff: Duration,
    /// Shards of a new database that asks for no other number.
    pub shards: usize,
    /// The drives on which shards may lie; `None`: there are none.
    pub nodes: Option<Arc<dyn Nodes>>,
    /// Bytes that copies of shards are filled with in a second, at most.
    pub copy_bytes_per_second: u64,
    /// Memory that the databases here share with others of the process; `None`: each has its own.
    pub resources: Option<Resources>,
    /// What merges for the databases here, in another process.
    pub offload: Option<Offload>,
    /// Whether each write survives a power cut before it is answered, and not only the death of the process.
    pub sync: bool,
    /// Origins that browsers may call from; `*` for all.
    pub cors_origins: Vec<String>,
    /// Names of this server, beside its addresses and `localhost`. While the server has no users it answers requests to
    /// these alone.
    pub hosts: Vec<String>,
    /// Requests in a second of one address; more are refused. 0: any number.
    pub requests_per_second: u32,
    /// Connections at once; more wait.
    pub connections_max: usize,
    /// Requests that work in the engine at once; more wait.
    pub workers: usize,
    /// The longest body of a request (bytes).
    pub body_bytes_max: usize,
    /// All bodies that are in memory at once (bytes), at least `body_bytes_max`.
    pub bodies_bytes_max: usize,
    /// The longest document (bytes of JSON, without attachments).
    pub document_bytes_max: usize,
    /// What it serves beside documents.
    pub gateway: crate::Gateway,
    /// How long a connection may be idle, or take to send the head of a request.
    pub idle_timeout: Duration,
    /// How long a client may send or take nothing in the middle of a body.
    pub stall_timeout: Duration,
    /// How long requests may go on once the server is to stop.
    pub stop_timeout: Duration,
    /// How long a session lasts that is not used.
    pub session_timeout: Duration,
    /// Rounds of PBKDF2 for new passwords.
    pub password_iterations: u32,
}

impl Settings {
    /// The defaults for the databases in `directory`.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 5984)),
            admins: Vec::new(),
            users: LiveUsers::default(),
            tls: None,
            jwt: None,
            replication_trust: None,
            replications_max: 500,
            replication_backoff: Duration::from_secs(30),
            shards: 2,
            nodes: None,
            copy_bytes_per_second: 64 << 20,
            resources: None,
            offload: None,
            sync: false,
            cors_origins: Vec::new(),
            hosts: Vec::new(),
            requests_per_second: 0,
            connections_max: 1024,
            workers: 16,
            body_bytes_max: 64 << 20,
            bodies_bytes_max: 256 << 20,
            document_bytes_max: 8_000_000,
            gateway: crate::Gateway::default(),
            idle_timeout: Duration::from_secs(120),
            stall_timeout: Duration::from_secs(60),
            stop_timeout: Duration::from_secs(10),
            session_timeout: Duration::from_secs(600),
            password_iterations: 600_000,
        }
    }
}
