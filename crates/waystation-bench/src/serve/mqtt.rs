//! As much of MQTT 3.1.1 as publishes with quality of service 1 and subscribes: the bytes of packets.
//!
//! A client of a library would take more of the load's core than the broker takes of its own.

use crate::error::{Error, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CONNECT: u8 = 0x10;
const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x30;
pub(crate) const PUBACK: u8 = 0x40;
const SUBSCRIBE: u8 = 0x82;
const SUBACK: u8 = 0x90;
/// The bit of a `PUBLISH` that asks for an acknowledgement.
const QOS_1: u8 = 0x02;
/// A silent connection is not ended (seconds).
const KEEP_ALIVE: u16 = 0;

/// A packet that has come whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Packet<'a> {
    /// Type and flags.
    pub(crate) head: u8,
    pub(crate) body: &'a [u8],
    /// What it takes in all (bytes).
    pub(crate) length: usize,
}

/// A message that has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) topic: &'a [u8],
    pub(crate) packet: [u8; 2],
    pub(crate) payload: &'a [u8],
}

/// The packet at the head of `bytes`; `None`: it is not whole.
pub(crate) fn packet(bytes: &[u8]) -> Option<Packet<'_>> {
    let (mut length, mut at) = (0, 1);
    loop {
        let byte = *bytes.get(at)?;
        length |= usize::from(byte & 0x7f) << (7 * (at - 1));
        at += 1;
        if byte & 0x80 == 0 || at > 4 {
            break;
        }
    }
    Some(Packet {
        head: bytes[0],
        body: bytes.get(at..at + length)?,
        length: at + length,
    })
}

impl<'a> Packet<'a> {
    /// The message, if it is one with quality of service 1.
    pub(crate) fn message(&self) -> Option<Message<'a>> {
        if self.head & 0xf6 != PUBLISH | QOS_1 {
            return None;
        }
        let (length, rest) = self.body.split_first_chunk::<2>()?;
        let (topic, rest) = rest.split_at_checked(number(*length))?;
        let (packet, payload) = rest.split_first_chunk::<2>()?;
        Some(Message {
            topic,
            packet: *packet,
            payload,
        })
    }
}

/// Two bytes as MQTT writes a number.
fn two(number: u16) -> [u8; 2] {
    [(number >> 8) as u8, (number & 0xff) as u8]
}

fn number([high, low]: [u8; 2]) -> usize {
    usize::from(high) << 8 | usize::from(low)
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&two(text.len() as u16));
    out.extend_from_slice(text);
}

fn add(out: &mut Vec<u8>, head: u8, body: &[u8]) {
    out.push(head);
    let mut left = body.len();
    loop {
        let byte = (left & 0x7f) as u8;
        left >>= 7;
        out.push(if left > 0 { byte | 0x80 } else { byte });
        if left == 0 {
            break;
        }
    }
    out.extend_from_slice(body);
}

/// Appends a message with quality of service 1.
pub(crate) fn publish(out: &mut Vec<u8>, topic: &[u8], packet: u16, payload: &[u8]) {
    let mut body = Vec::with_capacity(topic.len() + payload.len() + 4);
    text(&mut body, topic);
    body.extend_from_slice(&two(packet));
    body.extend_from_slice(payload);
    add(out, PUBLISH | QOS_1, &body);
}

/// Appends the acknowledgement of a message.
pub(crate) fn acknowledge(out: &mut Vec<u8>, packet: [u8; 2]) {
    add(out, PUBACK, &packet);
}

/// Connects to the broker on `port` with a session of its own.
pub(crate) async fn connect(port: u16, client: &str) -> Result<TcpStream> {
    let failed = |source| Error::io("connect to", format!("the broker on port {port}"), source);
    let mut stream = TcpStream::connect(("127.0.0.1", port))
        .await
        .map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let mut body = Vec::new();
    text(&mut body, b"MQTT");
    // Level 4 of the protocol, a clean session.
    body.extend_from_slice(&[4, 2]);
    body.extend_from_slice(&two(KEEP_ALIVE));
    text(&mut body, client.as_bytes());
    ask(&mut stream, CONNECT, &body, CONNACK).await?;
    Ok(stream)
}

/// Subscribes to `filter` with quality of service 1.
pub(crate) async fn subscribe(stream: &mut TcpStream, filter: &str) -> Result<()> {
    let mut body = vec![0, 1];
    text(&mut body, filter.as_bytes());
    body.push(1);
    ask(stream, SUBSCRIBE, &body, SUBACK).await
}

/// Sends a packet, and waits for its answer of four or five bytes.
async fn ask(stream: &mut TcpStream, head: u8, body: &[u8], answer: u8) -> Result<()> {
    let failed = |source| Error::io("ask", "the broker", source);
    let mut out = Vec::new();
    add(&mut out, head, body);
    stream.write_all(&out).await.map_err(failed)?;
    let mut input = vec![0; if answer == SUBACK { 5 } else { 4 }];
    stream.read_exact(&mut input).await.map_err(failed)?;
    // The last byte is the code of the answer; quality of service 1 was asked for.
    let is_granted = input[0] == answer && input.last().is_some_and(|it| *it <= 1);
    if is_granted {
        return Ok(());
    }
    Err(Error::Refused(format!("the broker refused: {input:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_as_it_was_sent() {
        let mut out = Vec::new();
        let payload = vec![b'x'; 300];
        publish(&mut out, b"a/b", 515, &payload);
        let read = packet(&out).unwrap();
        assert_eq!(read.length, out.len());
        let message = read.message().unwrap();
        assert_eq!(message.topic, b"a/b");
        assert_eq!(message.packet, [2, 3]);
        assert_eq!(message.payload, payload);
        assert_eq!(packet(&out[..out.len() - 1]), None);
        assert_eq!(packet(&out[..1]), None);
    }

    #[test]
    fn an_acknowledgement_has_four_bytes() {
        let mut out = Vec::new();
        acknowledge(&mut out, [2, 3]);
        assert_eq!(out, [0x40, 2, 2, 3]);
        assert_eq!(packet(&out).unwrap().message(), None);
    }
}
