//! The agent of a drive: it listens, greets hosts, and answers their calls beside the data.
//!
//! Each connection has a thread, and one call at a time: a host that wants more at once opens more connections. So the
//! host decides how parallel a query is on a drive, and the agent only bounds it.

use crate::connections::Connections;
use crate::error::{AgentError, Result};
use crate::frame::{self, MESSAGE_BYTES_MAX};
use crate::greeting::{DRIVES, Refusal, Token};
use crate::message::{Answer, Call, RowsBegun, RowsPage};
use crate::store::Store;
use crate::tls::Identity;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use waystation::Options;
use waystation_documents::shard::{CopySource, Shard, ShardSnapshot, ViewRows};
use waystation_documents::wire::{decode, encode};
use waystation_documents::{Error, Result as DocumentResult};

/// A host has so long to greet.
const GREETING: Duration = Duration::from_secs(10);
/// A host that takes nothing of an answer for so long is cut off.
const PATIENCE: Duration = Duration::from_secs(60);
/// A listener that does not take a connection in this time is busy with others, and looks whether to stop by itself.
const WAKING: Duration = Duration::from_millis(100);
/// Rows of a page.
const PAGE_ROWS: usize = 512;
/// A page of rows ends when it has this many bytes.
const PAGE_BYTES: usize = 1 << 20;
/// The stack of a connection's thread (bytes): functions of design documents take 512 KiB of it.
const STACK_BYTES: usize = 2 << 20;

/// How an agent works.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// The directory of the shards, made if it is missing.
    pub directory: PathBuf,
    /// Where to listen. Port 0: any that is free.
    pub listen: SocketAddr,
    /// What hosts have to know.
    pub token: Token,
    /// Connections speak TLS with this; `None`: none does.
    pub tls: Option<Identity>,
    /// How shards are opened.
    pub options: Options,
    /// Shards that stay open when nothing uses them.
    pub open_max: usize,
    /// Connections at once; more are closed.
    pub connections_max: usize,
}

impl AgentSettings {
    /// The defaults for the shards in `directory`.
    pub fn new(directory: impl Into<PathBuf>, listen: SocketAddr, token: Token) -> Self {
        Self {
            directory: directory.into(),
            listen,
            token,
            tls: None,
            options: waystation_documents::database::Settings::default().options,
            open_max: 64,
            connections_max: 256,
        }
    }
}

struct Inner {
    store: Store,
    token: Token,
    tls: Option<Identity>,
    connections: Arc<Connections<TcpStream>>,
}

/// An agent that listens. See the module.
pub struct Agent {
    inner: Arc<Inner>,
    listener: TcpListener,
    address: SocketAddr,
}

/// Stops an agent.
#[derive(Clone)]
pub struct Stopper {
    inner: Arc<Inner>,
    address: SocketAddr,
}

impl Stopper {
    /// Has the agent take no more connections, and close those it has.
    pub fn stop(&self) {
        self.inner.connections.stop();
        // The listener waits for a connection: this is one.
        let _ = TcpStream::connect_timeout(&self.address, WAKING);
    }
}

impl Agent {
    /// Takes the directory and listens.
    ///
    /// # Errors
    /// [`AgentError`].
    pub fn bind(settings: &AgentSettings) -> Result<Self> {
        let options = settings.options.clone();
        let store = Store::open(&settings.directory, options, settings.open_max)?;
        let address = settings.listen;
        let refused = |source| AgentError::Listen {
            address: address.into(),
            source,
        };
        let listener = TcpListener::bind(address).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self {
            inner: Arc::new(Inner {
                store,
                token: settings.token.clone(),
                tls: settings.tls.clone(),
                connections: Arc::new(Connections::new(settings.connections_max)),
            }),
            listener,
            address,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What stops it.
    pub fn stopper(&self) -> Stopper {
        Stopper {
            inner: Arc::clone(&self.inner),
            address: self.address,
        }
    }

    /// Answers hosts until it is told to stop.
    pub fn run(self) {
        let Self {
            inner, listener, ..
        } = self;
        let take = |(stream, host)| {
            let thread = std::thread::Builder::new().name("waystation-drive".to_owned());
            let thread = thread.stack_size(STACK_BYTES);
            let serving = Arc::clone(&inner);
            inner
                .connections
                .take(stream, host, thread, move |stream| serving.serve(stream));
        };
        inner.connections.run(|| listener.accept(), take);
    }
}

impl Inner {
    fn serve(&self, stream: &TcpStream) -> Result<(), Refusal> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(GREETING))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        match &self.tls {
            None => self.converse(stream, stream),
            Some(identity) => self.converse(stream, identity.accept(stream)?),
        }
    }

    /// Answers the calls that come through `io`, which is `stream` or what TLS makes of it.
    fn converse(&self, stream: &TcpStream, mut io: impl Read + Write) -> Result<(), Refusal> {
        DRIVES.welcome(&mut io, &self.token)?;
        stream.set_read_timeout(None)?;
        let mut held = None;
        while let Some(message) = frame::read(&mut io, MESSAGE_BYTES_MAX)? {
            let call = decode(&message).map_err(io::Error::other)?;
            drop(message);
            let answer = self.answer(call, &mut held);
            frame::write(&mut io, &encode(&answer))?;
            if self.connections.is_stopping() {
                break;
            }
        }
        Ok(())
    }

    fn answer(&self, call: Call, held: &mut Option<Held>) -> Answer {
        match call {
            Call::Create { shard } => Answer::Done {
                outcome: self.store.create(&shard),
            },
            Call::Remove { database } => Answer::Done {
                outcome: self.store.remove(&database),
            },
            Call::RemoveShard { shard } => Answer::Done {
                outcome: self.store.remove_shard(&shard),
            },
            Call::Ask {
                shard,
                turn,
                request,
            } => Answer::Replied {
                told: self
                    .store
                    .get(&shard)
                    .map(|shard| shard.follow(turn, request)),
            },
            Call::Rows {
                shard,
                design,
                name,
                query,
                limits,
            } => {
                let begun = self.store.get(&shard);
                let begun = begun.and_then(|it| it.view_rows(&design, &name, &query, limits));
                Answer::Rows {
                    begun: begun.map(|begun| {
                        let (total, sequence) = (begun.total_rows(), begun.update_sequence());
                        *held = Some(Held::Rows(begun));
                        RowsBegun { total, sequence }
                    }),
                }
            }
            Call::Offset { most } => Answer::Offset {
                offset: rows(held).and_then(|rows| rows.offset(most)),
            },
            Call::MoreRows => Answer::MoreRows {
                page: rows(held).and_then(page),
            },
            Call::EndRows => {
                *held = None;
                Answer::Done { outcome: Ok(()) }
            }
            Call::Copy { shard } => Answer::Done {
                outcome: self.store.get(&shard).and_then(|shard| {
                    *held = Some(Held::Copy {
                        copy: Box::new(shard.begin_copy()?),
                        _shard: shard,
                    });
                    Ok(())
                }),
            },
            Call::NextPage => Answer::Page {
                page: copy(held).and_then(CopySource::next_page),
            },
            Call::PageEntries => Answer::Entries {
                entries: copy(held).and_then(CopySource::entries),
            },
        }
    }
}

/// What a connection is for, between calls that belong together.
enum Held {
    Rows(ViewRows),
    /// The shard is not closed meanwhile.
    Copy {
        copy: Box<ShardSnapshot>,
        _shard: Arc<Shard>,
    },
}

/// The rows that the connection is for.
fn rows(held: &mut Option<Held>) -> DocumentResult<&mut ViewRows> {
    match held {
        Some(Held::Rows(rows)) => Ok(rows),
        _ => Err(Error::BadRequest(
            "no rows are being read on this connection".into(),
        )),
    }
}

/// The copy that the connection is for.
fn copy(held: &mut Option<Held>) -> DocumentResult<&mut ShardSnapshot> {
    match held {
        Some(Held::Copy { copy, .. }) => Ok(&mut **copy),
        _ => Err(Error::BadRequest(
            "no shard is being copied on this connection".into(),
        )),
    }
}

/// The next page of `rows`.
fn page(rows: &mut ViewRows) -> DocumentResult<RowsPage> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    while page.len() < PAGE_ROWS && bytes < PAGE_BYTES {
        let Some(row) = rows.next().transpose()? else {
            let (rows, is_end) = (page, true);
            return Ok(RowsPage { rows, is_end });
        };
        bytes += row.key.len() + row.id.len() + row.value.len();
        page.push(row);
    }
    let (rows, is_end) = (page, false);
    Ok(RowsPage { rows, is_end })
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Agent");
        shown
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Stopper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Stopper");
        shown
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
