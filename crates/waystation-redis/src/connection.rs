//! Bytes of one connection.
//!
//! A connection that waits keeps no buffers: what it reads arrives in memory of the thread, and only the rest of a command
//! that has not come whole is kept. What all connections keep is counted, and a connection that would pass the limit is
//! ended. A client that does not take its answers is read from no further.

use crate::client::{After, Client, Info};
use crate::failure::Failure;
use crate::resp::{Out, ProtocolError};
use crate::server::{ROUND, Shared};
use crate::session::{Ran, Session, refuse};
use crate::settings::Durability;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::Ordering::SeqCst;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{sleep, timeout};

/// What is read at once (bytes).
const READ_BYTES: usize = 128 << 10;
/// Buffers up to this size are not counted, and kept by threads for the next connection (bytes).
const SMALL_BYTES: usize = 64 << 10;

thread_local! {
    static ARRIVAL: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer of the thread's.
fn take_buffer() -> Vec<u8> {
    SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Gives a buffer back, unless it is large or there are enough.
fn give_buffer(mut buffer: Vec<u8>) {
    const KEPT: usize = 4;
    if buffer.capacity() > 4 * SMALL_BYTES {
        return;
    }
    buffer.clear();
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < KEPT {
            spare.push(buffer);
        }
    });
}

/// Appends what has arrived; 0 bytes: the client sends no more.
async fn read_some<S: AsyncRead + Unpin>(stream: &mut S, input: &mut Vec<u8>) -> io::Result<usize> {
    poll_fn(|context| {
        ARRIVAL.with_borrow_mut(|arrival| {
            let mut buffer = ReadBuf::new(arrival);
            match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
                Poll::Pending => Poll::Pending,
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => {
                    if input.capacity() == 0 {
                        *input = take_buffer();
                    }
                    input.extend_from_slice(buffer.filled());
                    Poll::Ready(Ok(buffer.filled().len()))
                }
            }
        })
    })
    .await
}

/// Writes as many bytes as the stream takes without waiting.
async fn write_now<S: AsyncWrite + Unpin>(
    stream: &mut S,
    bytes: &[u8],
) -> io::Result<Option<usize>> {
    poll_fn(
        |context| match Pin::new(&mut *stream).poll_write(context, bytes) {
            Poll::Pending => Poll::Ready(Ok(None)),
            Poll::Ready(written) => Poll::Ready(written.map(Some)),
        },
    )
    .await
}

/// What a connection has in memory, counted with the others.
struct Held<'a> {
    shared: &'a Shared,
    bytes: usize,
}

impl Held<'_> {
    /// Counts `bytes`; `false`: all together are too many.
    fn set(&mut self, bytes: usize) -> bool {
        let bytes = bytes.saturating_sub(SMALL_BYTES);
        if bytes == self.bytes {
            return true;
        }
        let grows = bytes > self.bytes;
        let all = &self.shared.held;
        let total = all.fetch_add(bytes, SeqCst) + bytes - self.bytes;
        all.fetch_sub(self.bytes, SeqCst);
        self.bytes = bytes;
        !grows || total <= self.shared.live().buffers_bytes_max
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.shared.held.fetch_sub(self.bytes, SeqCst);
    }
}

/// Why a connection ends.
enum End {
    /// The client has gone, or does not take its answers.
    Gone,
    /// Something has to be said first.
    Refused(String),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> Self {
        Self::Gone
    }
}

/// What a connection waited for.
enum Event {
    Arrived(usize),
    Message(crate::pubsub::Message),
    Killed,
}

/// Answers a client until its end.
pub(crate) async fn converse<S>(stream: S, shared: &Shared, client: Client)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut conversation = Conversation {
        stream,
        shared,
        session: Session::new(client),
        input: Vec::new(),
        commands: 0,
        is_third: false,
        held: Held { shared, bytes: 0 },
    };
    let ended = conversation.go_on().await;
    if let Err(End::Refused(reason)) = ended {
        let mut out = Out::default();
        out.error(&reason);
        // A client that does not hear why is gone.
        let _ = conversation.write(&out.bytes).await;
    }
    let _ = conversation.stream.shutdown().await;
    conversation.session.client.leave(shared);
}

struct Conversation<'a, S> {
    stream: S,
    shared: &'a Shared,
    session: Session,
    input: Vec<u8>,
    /// Commands that are not counted against the client's rate.
    commands: u64,
    is_third: bool,
    held: Held<'a>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<'_, S> {
    fn info(&self) -> &Info {
        &self.session.client.info
    }

    async fn go_on(&mut self) -> Result<(), End> {
        loop {
            let event = self.wait().await?;
            match event {
                Event::Killed | Event::Arrived(0) => return Ok(()),
                Event::Message(message) => self.pass_on(message).await?,
                Event::Arrived(_) => {
                    let now = self.shared.clock.millis();
                    self.info().active_at.store(now, SeqCst);
                    if !self.answer().await? {
                        return Ok(());
                    }
                    self.keep_to_rate().await;
                }
            }
            if self.info().is_killed.load(SeqCst) || self.shared.is_stopping() {
                return Ok(());
            }
        }
    }

    /// Waits until the client may send more commands. What arrives meanwhile waits in the socket, and holds the client up.
    async fn keep_to_rate(&mut self) {
        let commands = std::mem::take(&mut self.commands);
        let shared = self.shared;
        let limit = shared.live().commands_per_second;
        if limit == 0 {
            return;
        }
        let info = std::sync::Arc::clone(&self.session.client.info);
        let now = shared.clock.since_epoch();
        let address = info.address.ip();
        let wait = shared.rates.count(address, commands, limit, now);
        if wait.is_zero() {
            return;
        }
        shared.delays.fetch_add(1, SeqCst);
        let until = now + wait;
        while let Some(rest) = until.checked_sub(shared.clock.since_epoch()) {
            tokio::select! {
                () = sleep(rest.min(ROUND)) => {}
                () = info.killed.notified() => return,
            }
            // The server keeps it from going on: it does not stall.
            info.active_at.store(shared.clock.millis(), SeqCst);
        }
    }

    async fn wait(&mut self) -> Result<Event, End> {
        let info = std::sync::Arc::clone(&self.session.client.info);
        tokio::select! {
            arrived = read_some(&mut self.stream, &mut self.input) => Ok(Event::Arrived(arrived?)),
            message = self.session.client.next_message() => Ok(Event::Message(message)),
            () = info.killed.notified() => Ok(Event::Killed),
        }
    }

    /// Sends messages that wait.
    async fn pass_on(&mut self, message: crate::pubsub::Message) -> Result<(), End> {
        let mut out = Out {
            bytes: take_buffer(),
            is_third: self.is_third,
        };
        Client::show(&message, &mut out);
        while out.bytes.len() < SMALL_BYTES
            && let Some(message) = self.session.client.waiting_message()
        {
            Client::show(&message, &mut out);
        }
        self.write(&out.bytes).await?;
        give_buffer(out.bytes);
        Ok(())
    }

    /// Answers all whole commands; `false`: the connection is over.
    async fn answer(&mut self) -> Result<bool, End> {
        let mut at = 0;
        let mut is_over = false;
        while !is_over && at < self.input.len() {
            let mut out = Out {
                bytes: take_buffer(),
                is_third: self.is_third,
            };
            let (mut ran, refused) = self.run(at, &mut out);
            self.is_third = out.is_third;
            self.make_durable(&mut ran, &mut out).await;
            if let Some(error) = refused {
                out.error(&format!("ERR {error}"));
                is_over = true;
            }
            at += ran.consumed;
            self.commands += ran.commands as u64;
            if let After::Durable(millis, is_told) = self.session.client.after {
                self.session.client.after = After::Continue;
                let length = out.bytes.len();
                self.say_durable(millis, &mut out).await;
                out.bytes
                    .truncate(if is_told { usize::MAX } else { length });
            }
            is_over |= self.session.client.after == After::Close;
            self.count(out.bytes.capacity())?;
            self.write(&out.bytes).await?;
            give_buffer(out.bytes);
            if ran.commands == 0 {
                break;
            }
        }
        self.forget(at);
        self.count(0)?;
        Ok(!is_over)
    }

    /// Carries out commands of the input behind `at`.
    fn run(&mut self, at: usize, out: &mut Out) -> (Ran, Option<ProtocolError>) {
        let (session, shared, input) = (&mut self.session, self.shared, &self.input[at..]);
        let store = &shared.stores[session.client.database];
        store.waits.carry_out(shared.clock, || {
            let (ran, refused) = session.run(shared, input, out);
            let commands = ran.commands;
            ((ran, refused), commands)
        })
    }

    /// Lets go of `read` bytes of input, and of the buffer if none is left.
    fn forget(&mut self, read: usize) {
        if read == self.input.len() {
            give_buffer(std::mem::take(&mut self.input));
        } else {
            self.input.drain(..read);
        }
        self.info().has_part.store(!self.input.is_empty(), SeqCst);
    }

    fn count(&mut self, out_bytes: usize) -> Result<(), End> {
        let bytes = self.input.capacity() + self.session.held_bytes() + out_bytes;
        if self.held.set(bytes) {
            return Ok(());
        }
        Err(End::Refused(
            "ERR the memory for commands and answers of all clients is used up: try again later"
                .to_owned(),
        ))
    }

    /// Waits for a sync, if writes are acknowledged only then.
    async fn make_durable(&mut self, ran: &mut Ran, out: &mut Out) {
        if !ran.has_written || self.shared.live().durability != Durability::Power {
            return;
        }
        if let Err(error) = self.shared.stores[ran.database].sync().await {
            refuse(out, &mut ran.writes, &Failure::from(error));
        }
    }

    /// Answers `WAITAOF`: whether the writes are durable here, and on how many replicas.
    async fn say_durable(&mut self, millis: u64, out: &mut Out) {
        // The client may have written to each of them.
        let shared = self.shared;
        let sync = async {
            for store in &shared.stores {
                store.sync().await?;
            }
            Ok::<(), waystation::Error>(())
        };
        let synced = if millis == 0 {
            Ok(sync.await)
        } else {
            timeout(Duration::from_millis(millis), sync).await
        };
        if let Ok(Err(error)) = synced {
            out.error(&Failure::from(error).0);
            return;
        }
        out.array(2);
        out.flag(synced.is_ok());
        out.integer(0);
    }

    /// Writes all of it, as long as the client takes some within the time for that.
    async fn write(&mut self, bytes: &[u8]) -> Result<(), End> {
        let mut rest = bytes;
        // Mostly the socket takes all of it at once, which needs no timer.
        if let Some(written) = write_now(&mut self.stream, rest).await? {
            rest = &rest[written..];
        }
        while !rest.is_empty() {
            let stall = self.shared.live().stall_timeout;
            let info = std::sync::Arc::clone(&self.session.client.info);
            let written = tokio::select! {
                biased;
                written = timeout(stall, self.stream.write(rest)) => written.map_err(|_| End::Gone)??,
                () = info.killed.notified(), if !self.shared.is_stopping() => return Err(End::Gone),
            };
            if written == 0 {
                return Err(End::Gone);
            }
            rest = &rest[written..];
        }
        self.stream.flush().await?;
        Ok(())
    }
}
