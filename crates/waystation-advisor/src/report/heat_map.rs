//! Which addresses were touched when, in rows that leave out what was never touched.
//!
//! A file system of gigabytes whose program touches some megabytes would be an empty picture. So bytes are counted in
//! many fine rows, of which only the touched ones take memory, and the picture is made of those.

use serde::Serialize;

use super::{MANY_AREAS, TIME_COLUMNS};
use crate::event::{Op, Request};

/// Fine rows of an area; all of them touched take 6 MiB.
const FINE_ROWS: u64 = 4096;
/// The same where there are many areas.
const FINE_ROWS_OF_MANY: u64 = 256;
/// Rows of the picture at most.
const ROWS_MAX: usize = 64;

/// One row of the picture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeatRow {
    /// First address.
    pub from: u64,
    /// The address behind the last one.
    pub to: u64,
    /// Bytes read by time column.
    pub read: Vec<u64>,
    /// Bytes written by time column.
    pub written: Vec<u64>,
}

type Fine = Box<[[u64; TIME_COLUMNS]; 2]>;

pub(super) struct HeatMap {
    row_bytes: u64,
    rows: Vec<Option<Fine>>,
}

impl HeatMap {
    pub(super) fn new(extent_bytes: u64, areas: usize) -> Self {
        let rows = if areas > MANY_AREAS {
            FINE_ROWS_OF_MANY
        } else {
            FINE_ROWS
        };
        Self {
            row_bytes: extent_bytes.div_ceil(rows).next_multiple_of(4096).max(4096),
            rows: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, request: &Request, column: usize) {
        let row = (request.offset / self.row_bytes).min(FINE_ROWS - 1) as usize;
        if row >= self.rows.len() {
            self.rows.resize_with(row + 1, || None);
        }
        let fine = self.rows[row].get_or_insert_with(|| Box::new([[0; TIME_COLUMNS]; 2]));
        fine[usize::from(request.op == Op::Write)][column] += u64::from(request.length);
    }

    /// The touched rows from the lowest address on, neighbours joined as far as needed.
    pub(super) fn finish(self) -> Vec<HeatRow> {
        let touched: Vec<(u64, Fine)> = (0..)
            .zip(self.rows)
            .filter_map(|(row, fine)| Some((row, fine?)))
            .collect();
        let together = touched.len().div_ceil(ROWS_MAX).max(1);
        touched
            .chunks(together)
            .map(|rows| {
                let sum = |which: usize| {
                    (0..TIME_COLUMNS)
                        .map(|column| rows.iter().map(|(_, fine)| fine[which][column]).sum())
                        .collect()
                };
                let first = rows.first().map_or(0, |(row, _)| *row);
                let last = rows.last().map_or(0, |(row, _)| *row);
                HeatRow {
                    from: first * self.row_bytes,
                    to: (last + 1) * self.row_bytes,
                    read: sum(0),
                    written: sum(1),
                }
            })
            .collect()
    }
}
