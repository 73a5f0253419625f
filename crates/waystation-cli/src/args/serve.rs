//! What `waystation serve` is told.

use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
The interface is CouchDB's, so its clients and replicators work: PouchDB, nano, couch_replicator. docs/reference/http.md
lists what is there and what is not.

Without an administrator every caller may do everything, and the server listens on loopback addresses only. Ctrl-C (or
SIGTERM) lets requests end, and stops; a second one stops at once.

Examples:
  waystation serve /data/documents
  curl -X PUT http://127.0.0.1:5984/cars
  waystation serve /data/documents --listen 0.0.0.0:5984 --admin-file /etc/waystation/admin
  waystation serve /data/documents --listen 0.0.0.0:6984 --admin-file /etc/waystation/admin --tls-cert edge.pem --tls-key edge.key
  WAYSTATION_ADMIN=ann:secret waystation serve /data/documents --sync --cors-origin https://app.example";

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The directory of the databases, made if it is missing
    pub(crate) directory: PathBuf,
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5984")]
    pub(crate) listen: SocketAddr,
    /// An administrator; on a command line others can see the password, so prefer --admin-file or the environment (`WAYSTATION_ADMIN`)
    #[arg(long, value_name = "NAME:PASSWORD")]
    pub(crate) admin: Vec<String>,
    /// A file with administrators, one NAME:PASSWORD a line
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_file: Option<PathBuf>,
    /// Speak TLS with this certificate (PEM, with those that lead to one which clients trust)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Take tokens (JWT) that name callers; the file has the sections `jwt_auth` and `jwt_keys` of `CouchDB`'s settings
    #[arg(long, value_name = "FILE")]
    pub(crate) jwt_file: Option<PathBuf>,
    /// Authorities (PEM) that replications trust beside the system's
    #[arg(long, value_name = "FILE")]
    pub(crate) replication_ca: Option<PathBuf>,
    /// Shards of a new database that asks for no other number
    #[arg(short, long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) q: u8,
    /// Answer a write only when it survives a power cut, and not only the death of the process
    #[arg(long)]
    pub(crate) sync: bool,
    /// Let browsers call from this origin; `*` for all
    #[arg(long, value_name = "ORIGIN")]
    pub(crate) cors_origin: Vec<String>,
}
