//! Streams that stall, or whose reader dies: what had come of them is given up, so that the log is freed and writers go
//! on; and the same hand-off goes through when it is tried again.

use crate::support::{content_by, options_with_devices, wait_until};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use waystation::storage::SimStorage;
use waystation::{Db, DeviceError, DeviceOptions, Durability, Error, IterOptions, Options};

/// Longer than any test takes, by the simulated clock.
const FOREVER: Duration = Duration::from_secs(1 << 40);

fn open(seed: u64, residency: Duration, upper_bytes: u64) -> Db {
    let options = options_with_devices(residency);
    let devices = options.devices.map(|devices| DeviceOptions {
        upper_bytes: Some(upper_bytes),
        ..devices
    });
    let options = Options { devices, ..options };
    Db::open_with(SimStorage::new(seed), Path::new("/db"), options).expect("open")
}

/// A stream so long that it is admitted in parts.
fn long_stream(west: &Db) -> Vec<u8> {
    for number in 0..2_000_u32 {
        let key = format!("car:{number:05}");
        west.put(key.as_bytes(), &[7; 600]).expect("put");
    }
    let mut export = west
        .devices()
        .export(b"car", "east", Durability::PowerLoss)
        .expect("export");
    let mut stream = Vec::new();
    export.read_to_end(&mut stream).expect("read");
    stream
}

/// Reads a part of a stream, says so, and goes on when it is told to.
struct Stalling<'a> {
    rest: &'a [u8],
    before: usize,
    stalled: SyncSender<()>,
    go_on: Receiver<()>,
}

impl<'a> Stalling<'a> {
    fn new(stream: &'a [u8]) -> (Self, Receiver<()>, SyncSender<()>) {
        let (stalled, is_stalled) = sync_channel(1);
        let (tell, go_on) = sync_channel(1);
        let reader = Self {
            rest: stream,
            before: stream.len() - 1000,
            stalled,
            go_on,
        };
        (reader, is_stalled, tell)
    }
}

impl Read for Stalling<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.before == 0 {
            self.before = usize::MAX;
            self.stalled.send(()).expect("heard");
            self.go_on.recv().expect("told");
        }
        let length = out.len().min(self.before);
        let length = self.rest.read(&mut out[..length])?;
        self.before -= length;
        Ok(length)
    }
}

/// A fifth of a residency for each read, and some residencies for all.
struct Slow<'a>(&'a [u8], &'a SimStorage);
impl Read for Slow<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        waystation::storage::Storage::sleep(self.1, Duration::from_secs(200_000));
        let length = out.len().min(40_000);
        self.0.read(&mut out[..length])
    }
}

/// Dies before the end.
struct Dying<'a>(&'a [u8]);
impl Read for Dying<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        assert!(self.0.len() > 1000, "the reader dies");
        let length = out.len().min(1000);
        self.0.read(&mut out[..length])
    }
}

fn index_bytes(db: &Db) -> u64 {
    db.stats().devices.expect("devices").index_bytes
}

fn records(db: &Db) -> usize {
    content_by(db, IterOptions::prefix(&b"car:"[..])).len()
}

/// Lets an admission stall until what had come is given up, does `meanwhile`, and lets it go on.
fn stall(east: &Db, stream: &[u8], meanwhile: impl FnOnce()) -> waystation::Result<()> {
    std::thread::scope(|scope| {
        let (reader, is_stalled, tell) = Stalling::new(stream);
        let admitted = scope.spawn(|| east.devices().admit(reader));
        is_stalled.recv().expect("it comes to the stall");
        meanwhile();
        tell.send(()).expect("it waits");
        admitted.join().expect("no panic").map(|_| ())
    })
}

#[track_caller]
fn assert_stalled(answer: &waystation::Result<()>) {
    match answer {
        Err(error @ Error::Device(DeviceError::Stream { .. })) => {
            assert!(error.to_string().contains("too slowly"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

/// Nothing presses: it may take as long as a stay.
#[test]
fn what_came_of_a_stalled_stream_is_given_up_after_a_residency() {
    let (west, east) = (
        open(1, FOREVER, 8 << 30),
        open(2, Duration::from_secs(60), 8 << 30),
    );
    let stream = long_stream(&west);
    let answer = stall(&east, &stream, || {
        wait_until("it is never given up", || index_bytes(&east) == 0);
    });
    assert_stalled(&answer);
    assert_eq!(records(&east), 0);
    let receipt = east.devices().admit(&stream[..]).expect("admit");
    west.devices().complete(&receipt).expect("complete");
    assert_eq!(records(&east), 2_000);
}

/// The upper level's budget presses: writers are not held up, and the log is freed behind them.
#[test]
fn a_stalled_stream_makes_way_for_writers() {
    let upper_bytes = 4 << 20;
    let (west, east) = (open(1, FOREVER, 8 << 30), open(2, FOREVER, upper_bytes));
    let stream = long_stream(&west);
    let answer = stall(&east, &stream, || {
        for number in 0..12_000_u32 {
            let key = format!("bus:{number:05}");
            east.put(key.as_bytes(), &[9; 1000]).expect("put");
        }
        wait_until("the log is not freed", || {
            east.stats().log.live_bytes < upper_bytes
        });
        // Another reader brings it, while the first one still waits.
        let receipt = east.devices().admit(&stream[..]).expect("admit");
        west.devices().complete(&receipt).expect("complete");
    });
    // The hand-off that it was about has gone through.
    answer.expect("the same answer");
    assert_eq!(records(&east), 2_000);
}

/// A slow stream that goes on is no stalled one; nor is one whose engine is slow.
#[test]
fn a_stream_that_goes_on_is_not_given_up() {
    let machine = SimStorage::new(2);
    let options = options_with_devices(Duration::from_secs(1_000_000));
    let east = Db::open_with(machine.clone(), Path::new("/db"), options).expect("open");
    let west = open(1, FOREVER, 8 << 30);
    let stream = long_stream(&west);
    east.devices()
        .admit(Slow(&stream, &machine))
        .expect("admit");
    assert_eq!(records(&east), 2_000);
}

#[test]
fn a_reader_that_panics_leaves_nothing() {
    let (west, east) = (open(1, FOREVER, 8 << 30), open(2, FOREVER, 8 << 30));
    let stream = long_stream(&west);
    let dead = catch_unwind(AssertUnwindSafe(|| east.devices().admit(Dying(&stream))));
    assert!(dead.is_err());
    assert_eq!(index_bytes(&east), 0);
    east.put(b"bus:1", b"goes on").expect("put");
    let receipt = east.devices().admit(&stream[..]).expect("admit");
    west.devices().complete(&receipt).expect("complete");
    assert_eq!(records(&east), 2_000);
    east.devices().settle(b"car").expect("settle");
    east.close().expect("close");
}
