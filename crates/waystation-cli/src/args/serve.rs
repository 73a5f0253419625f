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
  waystation serve /data/edge --redis 127.0.0.1:6379 --extractor until/3a
  waystation serve --config /etc/waystation/waystation.toml
  waystation serve /data/documents --listen 0.0.0.0:5984 --admin-file /etc/waystation/admin
  waystation serve /data/documents --listen 0.0.0.0:6984 --admin-file /etc/waystation/admin --tls-cert edge.pem --tls-key edge.key
  WAYSTATION_ADMIN=ann:secret waystation serve /data/documents --sync --cors-origin https://app.example
  waystation serve /data/documents --drive one=10.0.0.7:5986 --drive-token-file /etc/waystation/token";

pub(super) const DRIVE_EXAMPLES: &str = "\
The agent of a drive holds shards of a server's databases, and evaluates queries beside them: docs/guides/drives.md. Server and
agent have to know the same token. It proves who is who; the connection is not encrypted.

Examples:
  head -c 32 /dev/urandom | base64 > /etc/waystation/token
  waystation drive --listen 10.0.0.7:5986 --dir /data/shards --token-file /etc/waystation/token";

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// The directory of the databases, made if it is missing; the file of --config may name it
    #[arg(required_unless_present = "config")]
    pub(crate) directory: Option<PathBuf>,
    /// Read the settings from this file (docs/reference/daemon.md); SIGHUP has it read again
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "listen", "admin", "admin_file", "tls_cert", "jwt_file", "replication_ca", "q", "sync", "cors_origin", "redis",
    ])]
    pub(crate) config: Option<PathBuf>,
    /// Say whether the file of --config is sound, and serve nothing
    #[arg(long, requires = "config")]
    pub(crate) check_config: bool,
    /// Serve Redis clients here, too, from a key-value database in the directory; only loopback addresses
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) redis: Option<SocketAddr>,
    /// What names the devices of a new key-value database: until/3a (up to a colon), fixed/8 (the first eight bytes)
    #[arg(long, value_name = "EXTRACTOR", requires = "redis")]
    pub(crate) extractor: Option<String>,
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5984")]
    pub(crate) listen: SocketAddr,
    /// An administrator; on a command line others can see the password, so prefer --admin-file or the environment (`WAYSTATION_ADMIN`)
    #[arg(long, value_name = "NAME:PASSWORD")]
    pub(crate) admin: Vec<String>,
    /// A file with administrators, one NAME:PASSWORD a line
    #[arg(long, value_name = "FILE")]
    pub(crate) admin_file: Option<PathBuf>,
    /// Speak TLS with this certificate (PEM, with its chain up to a certificate that clients trust)
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
    /// A drive on which shards may lie, and where its agent listens; never give a name to another drive
    #[arg(long, value_name = "NAME=ADDRESS:PORT", requires = "drive_token_file", value_parser = named_address)]
    pub(crate) drive: Vec<(String, SocketAddr)>,
    /// Megabytes a second with which shards that move, and copies that missed something, are filled
    #[arg(long, value_name = "MB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) copy_rate: u32,
    /// A file with the token that the drives know
    #[arg(long, value_name = "FILE")]
    pub(crate) drive_token_file: Option<PathBuf>,
    /// Speak TLS with the drives, whose certificates these authorities (PEM) signed
    #[arg(long, value_name = "FILE", requires = "drive_token_file")]
    pub(crate) drive_ca: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) worker: super::UseWorker,
}

/// Reads `NAME=ADDRESS:PORT`.
fn named_address(text: &str) -> Result<(String, SocketAddr), String> {
    let (name, address) = text
        .split_once('=')
        .ok_or("write NAME=ADDRESS:PORT, such as one=10.0.0.7:5986")?;
    let is_name = |it: char| it.is_ascii_alphanumeric() || "-_.@".contains(it);
    if name.is_empty() || name.starts_with('_') || !name.chars().all(is_name) {
        return Err("a name has letters, digits and -_.@, and does not begin with _".to_owned());
    }
    let address = address
        .parse()
        .map_err(|_| format!("{address} is no ADDRESS:PORT"))?;
    Ok((name.to_owned(), address))
}

#[derive(Debug, Args)]
pub(crate) struct Drive {
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5986")]
    pub(crate) listen: SocketAddr,
    /// The directory of the shards, made if it is missing
    #[arg(long)]
    pub(crate) dir: PathBuf,
    /// A file with the token that hosts have to know, 16 bytes or more
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: PathBuf,
    /// Speak TLS with this certificate (PEM, with its chain), which names the address of --listen
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) worker: super::UseWorker,
}
