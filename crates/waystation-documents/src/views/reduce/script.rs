//! Reduction by a function of the design document: in chunks, and again over the results of the chunks.

use crate::error::Result;
use crate::json::{canonical, quote};
use crate::views::row::ViewRow;
use crate::views::script::{Defined, Sandbox};

/// Rows, and bytes of keys and values, that one call gets.
const CHUNK_ROWS: usize = 1000;
const CHUNK_BYTES: usize = 256 << 10;
/// Results of chunks that are kept before they are reduced again.
const RESULTS_MAX: usize = 64;
/// A result longer than this has to be less than half as long as what was reduced (bytes): CouchDB's limits.
const LENGTH_UNCHECKED_MAX: usize = 4906;

/// Where the sandbox of a reduction is, which only functions have.
pub(super) type Script<'a> = Option<&'a mut (Sandbox, Defined)>;

/// Rows that wait to be reduced, and what was reduced.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chunks {
    /// `[key,id]` of each row, with commas.
    pairs: String,
    /// The values, with commas.
    values: String,
    rows: usize,
    /// Results of chunks, as JSON.
    results: Vec<String>,
    /// The answer instead of a result that did not shrink.
    overflow: Option<String>,
}

impl Chunks {
    pub(super) fn add(&mut self, row: &ViewRow, script: Script<'_>) -> Result<()> {
        if self.overflow.is_some() {
            return Ok(());
        }
        for list in [&mut self.pairs, &mut self.values] {
            if self.rows > 0 {
                list.push(',');
            }
        }
        self.pairs
            .extend(["[", &row.key, ",", &quote(&row.id), "]"]);
        self.values.push_str(&row.value);
        self.rows += 1;
        if self.rows >= CHUNK_ROWS || self.pairs.len() + self.values.len() >= CHUNK_BYTES {
            return self.reduce(script);
        }
        Ok(())
    }

    pub(super) fn merge(&mut self, other: Self, mut script: Script<'_>) -> Result<()> {
        let mut other = other;
        other.reduce(script.as_deref_mut())?;
        self.results.append(&mut other.results);
        self.overflow = self.overflow.take().or(other.overflow);
        if self.results.len() > RESULTS_MAX {
            self.reduce_again(script)?;
        }
        Ok(())
    }

    /// Reduces what waits, so that one result is left.
    pub(super) fn settle(&mut self, mut script: Script<'_>) -> Result<()> {
        self.reduce(script.as_deref_mut())?;
        if self.results.len() > 1 {
            self.reduce_again(script)?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self, script: Script<'_>) -> Result<String> {
        self.settle(script)?;
        let result = self.results.pop().unwrap_or_else(|| "null".to_owned());
        Ok(self.overflow.unwrap_or(result))
    }

    fn reduce(&mut self, mut script: Script<'_>) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let (pairs, values) = (format!("[{}]", self.pairs), format!("[{}]", self.values));
        self.pairs.clear();
        self.values.clear();
        self.rows = 0;
        self.call(script.as_deref_mut(), &pairs, &values, "false")?;
        if self.results.len() > RESULTS_MAX {
            self.reduce_again(script)?;
        }
        Ok(())
    }

    fn reduce_again(&mut self, script: Script<'_>) -> Result<()> {
        let values = format!("[{}]", std::mem::take(&mut self.results).join(","));
        self.call(script, "null", &values, "true")
    }

    /// Calls the function, and keeps its result.
    fn call(&mut self, script: Script<'_>, pairs: &str, values: &str, again: &str) -> Result<()> {
        let (sandbox, function) = script.expect("a function is reduced in a sandbox");
        let result = sandbox.call("reduce", &[function.number(), pairs, values, again])?;
        sandbox.pass_on_log("a reduce function");
        // What is nested too deeply is no value that this database has.
        let result = canonical(result.as_bytes()).unwrap_or_else(|_| "null".to_owned());
        let length = result.len();
        if length > LENGTH_UNCHECKED_MAX && length * 2 > pairs.len() + values.len() {
            let preview: String = result.chars().take(100).collect();
            let reason = quote(&format!(
                "Reduce output must shrink more rapidly: Current output: '{preview}'... (first 100 of {length} bytes)"
            ));
            self.overflow
                .get_or_insert(format!(r#"{{"reduce_overflow_error":{reason}}}"#));
            return Ok(());
        }
        self.results.push(result);
        Ok(())
    }
}
