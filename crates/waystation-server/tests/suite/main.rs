//! Tests of whole servers, in one program: it links once, and its tests run beside each other.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod access;
mod aggregates;
mod attachments;
mod clients;
mod console;
mod gateway;
mod http;
mod limits;
mod node;
mod partitions;
mod replicate;
mod support;
mod tls;
mod views;
