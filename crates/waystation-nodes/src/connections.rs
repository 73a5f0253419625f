//! The connections of a server: each has a thread, no more are taken than it may have, and all end when it stops.
//!
//! Invariant: a connection is among [`Open::streams`] from before its thread begins until its thread has ended. So a stop,
//! which closes all of them and lets no more in, leaves none behind.

use crate::greeting::Refusal;
use std::fmt::Display;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

/// A pause after a connection could not be taken, as when there are no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// A stream that another thread can end.
pub(crate) trait Close: Send + Sync + 'static {
    /// Ends reads and writes of the stream, also those under way.
    fn close(&self) -> io::Result<()>;
}

impl Close for TcpStream {
    fn close(&self) -> io::Result<()> {
        self.shutdown(Shutdown::Both)
    }
}

/// See the module.
pub(crate) struct Connections<S> {
    max: usize,
    open: Mutex<Open<S>>,
    one_ended: Condvar,
}

struct Open<S> {
    is_stopping: bool,
    streams: Vec<Arc<S>>,
}

impl<S: Close> Connections<S> {
    /// None yet, and so many at most.
    pub(crate) fn new(max: usize) -> Self {
        Self {
            max,
            open: Mutex::new(Open {
                is_stopping: false,
                streams: Vec::new(),
            }),
            one_ended: Condvar::new(),
        }
    }

    fn open(&self) -> MutexGuard<'_, Open<S>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.open().is_stopping
    }

    /// Takes no more connections, and ends the present ones. The listener may wait for one more.
    pub(crate) fn stop(&self) {
        let mut open = self.open();
        open.is_stopping = true;
        for stream in &open.streams {
            // The other side may have closed it already.
            let _ = stream.close();
        }
    }

    /// Has `take` have each connection that `accept` gives, until the server stops and the last one has ended.
    pub(crate) fn run<T>(&self, accept: impl Fn() -> io::Result<T>, take: impl Fn(T)) {
        loop {
            let accepted = accept();
            if self.is_stopping() {
                break;
            }
            match accepted {
                Ok(connection) => take(connection),
                Err(error) => {
                    log::warn!("a connection was not taken: {error}");
                    std::thread::sleep(PAUSE);
                }
            }
        }
        let has_some = |open: &mut Open<S>| !open.streams.is_empty();
        let ended = self.one_ended.wait_while(self.open(), has_some);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    /// Has `serve` answer what comes from `peer` through `stream`, on a thread of its own.
    pub(crate) fn take(
        self: &Arc<Self>,
        stream: S,
        peer: impl Display + Send + 'static,
        thread: Builder,
        serve: impl FnOnce(&S) -> Result<(), Refusal> + Send + 'static,
    ) {
        let stream = Arc::new(stream);
        {
            let mut open = self.open();
            let before = open.streams.len();
            if open.is_stopping {
                return;
            }
            if before >= self.max {
                drop(open);
                log::warn!("{peer} was refused: there are {before} connections");
                return;
            }
            open.streams.push(Arc::clone(&stream));
        }
        let connection = Connection {
            connections: Arc::clone(self),
            stream,
        };
        let started = thread.spawn(move || match serve(&connection.stream) {
            Ok(()) => {}
            Err(Refusal::Refused(reason)) => log::warn!("{peer} was refused: {reason}"),
            Err(Refusal::Io(error)) => log::debug!("the connection of {peer} ended: {error}"),
        });
        if let Err(error) = started {
            log::warn!("a connection was refused: no thread can be started: {error}");
        }
    }
}

/// A connection, until its thread has ended.
struct Connection<S: Close> {
    connections: Arc<Connections<S>>,
    stream: Arc<S>,
}

impl<S: Close> Drop for Connection<S> {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        open.streams.retain(|it| !Arc::ptr_eq(it, &self.stream));
        drop(open);
        self.connections.one_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::mpsc::channel;

    #[test]
    fn a_stop_ends_every_connection_and_lets_no_more_in() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("an address");
        let connections = Arc::new(Connections::new(2));
        let (taken, wait_taken) = channel();
        let connect = || TcpStream::connect(address).expect("a connection");
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let accept = || listener.accept();
                connections.run(accept, |(stream, peer)| {
                    let taken = taken.clone();
                    connections.take(stream, peer, Builder::new(), move |mut stream| {
                        let _ = taken.send(());
                        // Waits for a peer that says nothing, until it is closed.
                        stream.read(&mut [0]).map(drop).map_err(Refusal::from)
                    });
                });
            });
            let mut peers = [connect(), connect()];
            wait_taken.recv().expect("the first one");
            wait_taken.recv().expect("the second one");
            let closed = connect().read(&mut [0]);
            assert!(!matches!(closed, Ok(1..)), "a third one is too much");
            connections.stop();
            let _ = TcpStream::connect(address);
            server.join().expect("the server ends");
            for peer in &mut peers {
                assert!(!matches!(peer.read(&mut [0]), Ok(1..)));
            }
            assert!(wait_taken.try_recv().is_err(), "no other was served");
        });
    }
}
