//! Tests of the Redis interface, in one program: it links once, and its tests run beside each other.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod behaviour;
mod clients;
mod edges;
mod like_redis;
mod power;
mod stalls;
mod support;
