//! The server: CouchDB's HTTP interface over the document database.
//!
//! ```text
//!   server       sockets, limits of connections, stopping
//!   route        from a path to a handler
//!   handlers     one file for each topic of the interface
//!   gateway      readings over HTTP, figures for Prometheus, the console
//!   auth         who calls, and what the caller may do; hosts: the names under which a server without users answers
//!   tls          certificates of the listener, and trust in other servers
//!   replicator   documents on their way between databases, here and elsewhere
//!   config       settings that change while the server runs; stats: what it counts
//!   app          what all requests share: the databases, bounded blocking work, wake-ups of feeds
//!   request, query, reply, failure, multipart    HTTP on the way in and out
//! ```
//!
//! The engine blocks, so all of its work runs on blocking threads of a bounded number ([`app`]); the reactor only moves
//! bytes. Long answers are read page by page, each when the client has taken the one before: a slow client holds no
//! thread and no more memory than a page. The answer of a view alone holds a snapshot, until the client has taken it.

mod app;
mod auth;
mod clock;
mod config;
mod failure;
mod gateway;
mod handlers;
mod hosts;
mod impatient;
mod lenient;
mod mending;
mod multipart;
mod query;
mod replicator;
mod reply;
mod request;
mod route;
mod server;
mod settings;
mod stats;
mod tls;
mod uuids;

pub use auth::Jwt;
pub use gateway::{Event, Events, Gateway};
pub use server::{Server, ServerError, Stopper};
pub use settings::{Admin, Settings, Tls};
