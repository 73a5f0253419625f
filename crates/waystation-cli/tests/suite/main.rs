//! Tests of the command, in one program: it links once, and its tests run beside each other.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod backup;
mod bad_input;
mod city;
mod command;
mod daemon;
mod drives;
mod gateway;
mod leveldb;
mod moves;
mod packaging;
mod place;
mod rig;
mod serve;
mod support;
mod worker;
