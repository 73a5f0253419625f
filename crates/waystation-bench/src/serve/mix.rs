//! Gets and sets mixed by one client program: one write in eleven commands, as memtier has it.
//!
//! All connections are tasks of one thread, which is what the load's core has room for. The latency is that of what one
//! connection sends at once.

use super::load::{Filling, Values};
use super::resp::{answer_length, command};
use crate::clock;
use crate::error::{Error, Result};
use crate::measure::Latencies;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// One command in so many is a write.
const ONE_WRITE_IN: u64 = 11;

/// What the clients do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mix {
    pub(crate) filling: Filling,
    pub(crate) clients: u32,
    pub(crate) pipeline: u32,
    pub(crate) seconds: f64,
}

/// What they saw.
pub(crate) struct Mixed {
    pub(crate) ops: u64,
    pub(crate) seconds: f64,
    pub(crate) latencies: Latencies,
}

/// Runs the mix against the server on `port`, in this thread.
pub(crate) fn run(port: u16, mix: &Mix) -> Result<Mixed> {
    let failed = |source| Error::io("mix commands for", port.to_string(), source);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    runtime.block_on(async {
        let begun = clock::now();
        let until = begun + Duration::from_secs_f64(mix.seconds);
        let mut clients = JoinSet::new();
        for client in 0..mix.clients {
            let stream = TcpStream::connect(("127.0.0.1", port)).await;
            let stream = stream.map_err(failed)?;
            stream.set_nodelay(true).map_err(failed)?;
            clients.spawn(go_on(stream, *mix, u64::from(client) + 1, until));
        }
        let mut mixed = Mixed {
            ops: 0,
            seconds: 0.0,
            latencies: Latencies::new(),
        };
        while let Some(ended) = clients.join_next().await {
            let (ops, latencies) =
                ended.map_err(|error| Error::Refused(format!("a client ended: {error}")))??;
            mixed.ops += ops;
            mixed.latencies.add(&latencies);
        }
        mixed.seconds = begun.elapsed().as_secs_f64();
        Ok(mixed)
    })
}

/// One client until `until`.
async fn go_on(
    mut stream: TcpStream,
    mix: Mix,
    seed: u64,
    until: Instant,
) -> Result<(u64, Latencies)> {
    let failed = |source| Error::io("exchange commands with", "the server", source);
    let mut values = Values::new(seed, mix.filling.value_bytes);
    let (mut ops, mut latencies) = (0, Latencies::new());
    let (mut out, mut input) = (Vec::new(), Vec::with_capacity(1 << 16));
    loop {
        out.clear();
        for _ in 0..mix.pipeline {
            let key = mix.filling.key(values.number() % mix.filling.keys);
            if values.number().is_multiple_of(ONE_WRITE_IN) {
                command(&mut out, &[b"SET", &key, values.next()]);
            } else {
                command(&mut out, &[b"GET", &key]);
            }
        }
        let begun = clock::now();
        if begun >= until {
            return Ok((ops, latencies));
        }
        stream.write_all(&out).await.map_err(failed)?;
        let mut answers = 0;
        input.clear();
        let mut read = 0;
        while answers < mix.pipeline {
            if stream.read_buf(&mut input).await.map_err(failed)? == 0 {
                return Err(failed(std::io::ErrorKind::UnexpectedEof.into()));
            }
            while let Some(length) = answer_length(&input[read..])? {
                read += length;
                answers += 1;
            }
        }
        latencies.record(begun.elapsed());
        ops += u64::from(mix.pipeline);
    }
}
