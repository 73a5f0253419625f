//! What a block device can do, measured: the figures of a [`FlashModel`] from a second of direct requests.
//!
//! One request at a time gives the latencies, several threads how many requests are served at once, large requests
//! the bandwidths. Medians count: on a shared machine the tail is somebody else's work.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;

use super::session::now;
use crate::error::{Error, Result};
use crate::simulate::FlashModel;
use crate::simulate::model::Size;

/// Bytes of a small request.
const SMALL: usize = 4096;
/// Bytes of a large one.
const LARGE: usize = 1 << 20;
/// Small requests measured of each kind.
const SMALL_COUNT: u32 = 400;
const LARGE_COUNT: u32 = 32;
const FLUSH_COUNT: u32 = 100;
/// Requests kept outstanding to find how many are served at once.
const THREADS: u32 = 8;

/// A buffer as direct requests want it: its address is a multiple of 4096.
struct Aligned {
    bytes: Vec<u8>,
    from: usize,
}

impl Aligned {
    fn new(length: usize) -> Self {
        let bytes = vec![0x5a; length + SMALL];
        let from = bytes.as_ptr().align_offset(SMALL).min(SMALL);
        Self { bytes, from }
    }

    fn part(&mut self, length: usize) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + length]
    }
}

/// Places over the device, none near the one before.
fn place(number: u32, blocks: u64) -> u64 {
    u64::from(number.wrapping_mul(2_654_435_761)) % blocks * SMALL as u64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Median microseconds of so many calls.
fn median_us(count: u32, mut call: impl FnMut(u32) -> std::io::Result<()>) -> std::io::Result<f64> {
    let mut times = Vec::new();
    for number in 0..count {
        let started = now();
        call(number)?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(times))
}

/// Measures a device (or file) of `bytes`, whose content is lost.
pub(super) fn calibrate(path: &Path, bytes: u64) -> Result<FlashModel> {
    let direct = rustix::fs::OFlags::DIRECT.bits().cast_signed();
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(direct)
        .open(path)
        .and_then(|file| measure(&file, bytes))
        .map_err(|source| Error::io("measure", path, source))
}

fn measure(file: &File, bytes: u64) -> std::io::Result<FlashModel> {
    let blocks = (bytes / SMALL as u64).max(1);
    let mut buffer = Aligned::new(LARGE);
    let small = buffer.part(SMALL);
    let write_us = median_us(SMALL_COUNT, |number| {
        file.write_all_at(small, place(number, blocks))
    })?;
    let read_us = median_us(SMALL_COUNT, |number| {
        file.read_exact_at(small, place(number, blocks))
    })?;
    let flush_us = {
        let both = median_us(FLUSH_COUNT, |number| {
            file.write_all_at(small, place(number, blocks))?;
            file.sync_data()
        })?;
        (both - write_us).max(0.0)
    };
    let large_count = LARGE_COUNT.min((bytes / LARGE as u64) as u32).max(1);
    let large = buffer.part(LARGE.min(bytes as usize / SMALL * SMALL));
    let length = large.len() as f64;
    let at = |number: u32| u64::from(number % large_count) * length as u64;
    let write_large_us = median_us(large_count, |number| file.write_all_at(large, at(number)))?;
    let read_large_us = median_us(large_count, |number| file.read_exact_at(large, at(number)))?;
    let bandwidth = |large_us: f64, small_us: f64| {
        Size((length / (large_us - small_us).max(large_us / 10.0) * 1e6).max(1e6) as u64)
    };
    Ok(FlashModel {
        read_us,
        write_us,
        flush_us,
        read_bandwidth: bandwidth(read_large_us, read_us),
        write_bandwidth: bandwidth(write_large_us, write_us),
        channels: channels(file, blocks, read_us)?,
        pause_every: Size(0),
        pause_us: 0.0,
        path_us: 0.0,
        path_bandwidth: Size(u64::MAX / 2),
    })
}

/// Requests served at once: throughput with many outstanding times the latency of one.
fn channels(file: &File, blocks: u64, read_us: f64) -> std::io::Result<u32> {
    let each = SMALL_COUNT / 4;
    let started = now();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|worker| {
                scope.spawn(move || {
                    let mut buffer = Aligned::new(SMALL);
                    (0..each).try_for_each(|number| {
                        file.read_exact_at(
                            buffer.part(SMALL),
                            place(worker * each + number + 7, blocks),
                        )
                    })
                })
            })
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| match worker.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
    })?;
    let elapsed_us = started.elapsed().as_secs_f64() * 1e6;
    let at_once = f64::from(THREADS * each) * read_us / elapsed_us;
    Ok((at_once.round() as u32).clamp(1, THREADS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_measured_and_the_figures_are_possible() {
        // Not in memory: some kernels refuse direct requests there.
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("image");
        std::fs::write(&path, vec![0; 8 << 20]).unwrap();
        let model = calibrate(&path, 8 << 20).unwrap();
        assert!(model.read_us > 0.0 && model.write_us > 0.0, "{model:?}");
        assert!(model.read_bandwidth.0 >= 1_000_000, "{model:?}");
        assert!((1..=8).contains(&model.channels), "{model:?}");
    }

    #[test]
    fn what_cannot_be_measured_is_an_error() {
        let error = calibrate(Path::new("/nonexistent/device"), 1 << 20).unwrap_err();
        assert!(error.to_string().contains("measure"), "{error}");
    }
}
