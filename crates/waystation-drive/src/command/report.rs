//! What `waystation ip run` says when it is done: for people by `Display`, for programs by serde.

use crate::ip::{Counters, Traffic};
use serde::Serialize;
use std::fmt;
use std::path::PathBuf;

/// A job's result in numbers.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The engine's number of inputs.
    pub inputs: usize,
    /// The tables, input by input.
    pub tables: Vec<Vec<String>>,
    /// What was counted.
    pub counters: Counters,
    /// What passed the channels, and where time was lost.
    pub traffic: Traffic,
    /// Cycles per byte of input blocks.
    pub cycles_per_byte_in: f64,
    /// Bytes of input blocks per cycle.
    pub bytes_in_per_cycle: f64,
    /// Bytes of output blocks per cycle.
    pub bytes_out_per_cycle: f64,
    /// Cycles that the cycle law gives.
    pub law_cycles: u64,
    /// Whether the software reference was compared, and gave the same bytes.
    pub verified: bool,
    /// The table that was written.
    pub output: Option<PathBuf>,
}

impl Report {
    /// The report of a job, before anything is verified or written.
    pub(super) fn new(
        inputs: usize,
        tables: Vec<Vec<String>>,
        counters: Counters,
        traffic: Traffic,
        law_cycles: u64,
    ) -> Self {
        let cycles = traffic.cycles.max(1) as f64;
        Self {
            inputs,
            tables,
            counters,
            traffic,
            cycles_per_byte_in: traffic.cycles as f64 / counters.bytes_in.max(1) as f64,
            bytes_in_per_cycle: counters.bytes_in as f64 / cycles,
            bytes_out_per_cycle: counters.bytes_out as f64 / cycles,
            law_cycles,
            verified: false,
            output: None,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (c, t) = (&self.counters, &self.traffic);
        let tables: usize = self.tables.iter().map(Vec::len).sum();
        writeln!(
            f,
            "engine          {tables} tables on {} of {} inputs",
            self.tables.len(),
            self.inputs
        )?;
        writeln!(f, "blocks in       {} ({} bytes)", c.blocks_in, c.bytes_in)?;
        writeln!(
            f,
            "blocks out      {} ({} bytes)",
            c.blocks_out, c.bytes_out
        )?;
        writeln!(
            f,
            "records         {} in = {} out + {} shadowed + {} vanished",
            c.records_in, c.records_out, c.shadowed, c.vanished
        )?;
        writeln!(
            f,
            "cycles          {} = {:.4} per byte in; {:.2} bytes in and {:.2} bytes out per cycle",
            t.cycles, self.cycles_per_byte_in, self.bytes_in_per_cycle, self.bytes_out_per_cycle,
        )?;
        writeln!(f, "the cycle law   {} cycles", self.law_cycles)?;
        writeln!(
            f,
            "words           {} read, {} written",
            t.words_read, t.words_written
        )?;
        writeln!(
            f,
            "cycles waited   memory {}, key {}, filter {}, value {}, record {}, write {}",
            t.waits_memory,
            t.waits_key,
            t.waits_filter,
            t.waits_value,
            t.waits_record,
            t.waits_write
        )?;
        if self.verified {
            writeln!(
                f,
                "verified        the software reference gives the same bytes"
            )?;
        }
        if let Some(path) = &self.output {
            writeln!(f, "written         {}", path.display())?;
        }
        Ok(())
    }
}
