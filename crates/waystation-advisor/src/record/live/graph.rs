//! A graph computation that does not fit into memory: `PageRank` over a power-law graph.
//!
//! The graph is made once (not measured) and written as a file: vertices u32, edges u32, the first edge of each vertex
//! and an end u32, sources of the edges u32, little-endian. The computation reads it into memory and goes over all
//! edges several times, as graph programs do; with less memory than edges, each pass swaps them in again.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use crate::error::{Error, Result};

/// Vertices, as a power of two.
const SCALE: u32 = 17;
const VERTICES: u32 = 1 << SCALE;
const DAMPING: f32 = 0.85;

/// A small generator of random numbers (`xorshift64*`): graphs are the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// One edge of a Kronecker graph (probabilities 57, 19, 19 and 5 of 100 per bit).
    fn edge(&mut self) -> (u32, u32) {
        let (mut from, mut to) = (0, 0);
        for _ in 0..SCALE {
            let (high, low) = match self.next() % 100 {
                0..57 => (0, 0),
                57..76 => (0, 1),
                76..95 => (1, 0),
                _ => (1, 1),
            };
            from = from << 1 | high;
            to = to << 1 | low;
        }
        (from, to)
    }
}

/// The edges, sorted by the vertex that they lead to.
struct Graph {
    /// First edge of each vertex, and the end.
    first: Vec<u32>,
    /// Where each edge comes from.
    sources: Vec<u32>,
}

fn generate(edges: u32) -> Graph {
    const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut first = vec![0_u32; VERTICES as usize + 1];
    let mut random = Random(SEED);
    for _ in 0..edges {
        first[random.edge().1 as usize + 1] += 1;
    }
    for vertex in 0..VERTICES as usize {
        first[vertex + 1] += first[vertex];
    }
    let mut next = first.clone();
    let mut sources = vec![0; edges as usize];
    let mut random = Random(SEED);
    for _ in 0..edges {
        let (from, to) = random.edge();
        let at = &mut next[to as usize];
        sources[*at as usize] = from;
        *at += 1;
    }
    Graph { first, sources }
}

/// Makes a graph and writes it.
pub(crate) fn make(path: &Path, edges: u32) -> Result<()> {
    let graph = generate(edges);
    let write = || -> std::io::Result<()> {
        let mut out = BufWriter::new(File::create(path)?);
        for number in [VERTICES, edges]
            .iter()
            .chain(&graph.first)
            .chain(&graph.sources)
        {
            out.write_all(&number.to_le_bytes())?;
        }
        out.into_inner()?.sync_all()
    };
    write().map_err(|source| Error::io("write", path, source))
}

fn read(path: &Path) -> std::io::Result<Graph> {
    let mut input = BufReader::new(File::open(path)?);
    let mut number = || -> std::io::Result<u32> {
        let mut bytes = [0; 4];
        input.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    };
    let (vertices, edges) = (number()?, number()?);
    let mut first = Vec::with_capacity(vertices as usize + 1);
    for _ in 0..=vertices {
        first.push(number()?);
    }
    let mut sources = Vec::with_capacity(edges as usize);
    for _ in 0..edges {
        sources.push(number()?);
    }
    Ok(Graph { first, sources })
}

impl Graph {
    fn rank(&self, passes: u32) -> Vec<f32> {
        let vertices = self.first.len() - 1;
        let mut leaving = vec![0_u32; vertices];
        for source in &self.sources {
            leaving[*source as usize] += 1;
        }
        let mut rank = vec![1.0 / vertices as f32; vertices];
        for _ in 0..passes {
            // What each vertex gives along each of its edges.
            let given: Vec<f32> = rank
                .iter()
                .zip(&leaving)
                .map(|(rank, edges)| rank / (*edges).max(1) as f32)
                .collect();
            for (vertex, rank) in rank.iter_mut().enumerate() {
                let edges = self.first[vertex] as usize..self.first[vertex + 1] as usize;
                let got: f32 = self.sources[edges]
                    .iter()
                    .map(|source| given[*source as usize])
                    .sum();
                *rank = (1.0 - DAMPING) / vertices as f32 + DAMPING * got;
            }
        }
        rank
    }
}

/// Reads a graph and ranks its vertices; returns the highest rank.
pub(crate) fn rank(path: &Path, passes: u32) -> Result<f32> {
    let graph = read(path).map_err(|source| Error::io("read", path, source))?;
    Ok(graph.rank(passes).into_iter().fold(0.0, f32::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_comes_back_from_its_file_and_vertex_0_is_the_hub() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("graph");
        make(&path, 300_000).unwrap();
        let graph = read(&path).unwrap();
        assert_eq!(graph.sources.len(), 300_000);
        let ranks = graph.rank(3);
        let sum: f32 = ranks.iter().sum();
        // Vertices that nothing leaves from keep their rank to themselves.
        assert!((0.1..=1.01).contains(&sum), "{sum}");
        let highest = rank(&path, 3).unwrap();
        assert!((ranks[0] - highest).abs() < f32::EPSILON);
        assert!(highest > 100.0 / ranks.len() as f32);
    }
}
