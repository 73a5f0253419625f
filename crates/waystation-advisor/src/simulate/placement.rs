//! Which blocks are on the fast device.

use std::collections::HashSet;

use crate::event::{BLOCK_BYTES, Op, Request};

/// How much of one area is fast.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Residence {
    /// Nothing.
    Slow,
    /// The whole area, whatever its size.
    Fast,
    /// The blocks touched first, until this many bytes are full: what a swap device of higher priority or a fresh
    /// file system does.
    FirstTouch(u64),
    /// These blocks.
    Blocks(HashSet<u64>),
}

/// One residence per area, by its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// By area number.
    pub areas: Vec<Residence>,
}

impl Placement {
    /// Everything slow.
    pub fn slow(areas: usize) -> Self {
        Self {
            areas: vec![Residence::Slow; areas],
        }
    }

    /// Everything fast.
    pub fn fast(areas: usize) -> Self {
        Self {
            areas: vec![Residence::Fast; areas],
        }
    }

    /// One area with a residence, the others slow.
    pub fn one(areas: usize, area: usize, residence: Residence) -> Self {
        let mut placement = Self::slow(areas);
        placement.areas[area] = residence;
        placement
    }
}

/// A piece of a request on one device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// The request.
    pub(super) request: u32,
    /// Whether it goes to the fast device.
    pub(super) fast: bool,
    /// First byte on its device (before layout).
    pub(super) offset: u64,
    /// Bytes; 0 for a flush.
    pub(super) length: u64,
}

/// Splits every request into its pieces; `first[i]..first[i + 1]` are those of request `i`.
pub(super) fn route(requests: &[Request], placement: &Placement) -> (Vec<u32>, Vec<Piece>) {
    let mut first = Vec::with_capacity(requests.len() + 1);
    let mut pieces = Vec::with_capacity(requests.len() + requests.len() / 4);
    let mut touched: Vec<HashSet<u64>> = placement.areas.iter().map(|_| HashSet::new()).collect();
    for (index, request) in requests.iter().enumerate() {
        first.push(pieces.len() as u32);
        let area = usize::from(request.area);
        let piece = |fast, offset, length| Piece {
            request: index as u32,
            fast,
            offset,
            length,
        };
        let length = u64::from(request.length);
        match &placement.areas[area] {
            Residence::Slow => pieces.push(piece(false, request.offset, length)),
            Residence::Fast => pieces.push(piece(true, request.offset, length)),
            // A device that holds only a part of the area cannot answer a flush for it alone.
            _ if !request.moves_data() => pieces.push(piece(false, request.offset, length)),
            Residence::FirstTouch(bytes) => {
                let room = (bytes / BLOCK_BYTES) as usize;
                let touched = &mut touched[area];
                split(request, &mut pieces, piece, |block| {
                    touched.contains(&block) || (touched.len() < room && touched.insert(block))
                });
            }
            Residence::Blocks(blocks) => {
                split(request, &mut pieces, piece, |block| blocks.contains(&block));
            }
        }
    }
    first.push(pieces.len() as u32);
    (first, pieces)
}

fn split(
    request: &Request,
    pieces: &mut Vec<Piece>,
    piece: impl Fn(bool, u64, u64) -> Piece,
    mut is_fast: impl FnMut(u64) -> bool,
) {
    debug_assert!(request.op != Op::Flush, "flushes are not split");
    let end = request.offset + u64::from(request.length);
    let mut run: Option<(bool, u64)> = None;
    for block in request.blocks() {
        let fast = is_fast(block);
        let at = (block * BLOCK_BYTES).max(request.offset);
        match run {
            Some((known, _)) if known == fast => {}
            Some((known, from)) => {
                pieces.push(piece(known, from, at - from));
                run = Some((fast, at));
            }
            None => run = Some((fast, at)),
        }
    }
    if let Some((known, from)) = run {
        pieces.push(piece(known, from, end - from));
    }
}
