//! The simulated hardware as an object: registers, memory and time, and a job from beginning to end.

#[cfg(verilator)]
use super::ffi;
use super::image::{self, Image};
use super::job::{Counters, Failure, FailureKind, IpError, Job, Output};
use serde::Serialize;

/// The numbers of inputs there are engines for in this build; none without Verilator.
pub fn sizes() -> Vec<usize> {
    let list = option_env!("WAYSTATION_IP_BUILT").unwrap_or_default();
    list.split(',')
        .filter_map(|size| size.parse().ok())
        .collect()
}

/// How the memory beside the engine behaves.
#[derive(Debug, Clone, Copy)]
pub struct MemoryTiming {
    /// Cycles from a read's address to its first word.
    pub latency: u32,
    /// Of 256 cycles, in how many a channel is not ready: read address, read data, write address, write data.
    pub hesitations: [u8; 4],
    /// Seed of the hesitations.
    pub seed: u64,
}

impl Default for MemoryTiming {
    /// DRAM behind a fabric at 200 MHz, with nobody else using it.
    fn default() -> Self {
        Self {
            latency: 30,
            hesitations: [0; 4],
            seed: 1,
        }
    }
}

/// What passed the engine's memory channels, and where time was lost.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Traffic {
    /// Cycles of the job.
    pub cycles: u64,
    /// Words of eight bytes read, with descriptors.
    pub words_read: u64,
    /// Words written, with index entries.
    pub words_written: u64,
    /// Cycles in which answers were awaited.
    pub waits_memory: u64,
    /// Cycles in which the merger lacked a key.
    pub waits_key: u64,
    /// Cycles in which the merger's choice was not taken.
    pub waits_filter: u64,
    /// Cycles in which the encoder lacked a value's bytes.
    pub waits_value: u64,
    /// Cycles in which the encoder had nothing to do.
    pub waits_record: u64,
    /// Cycles in which the output buffer was full.
    pub waits_write: u64,
    /// Breaches of the channels' rules and failed assertions; always zero.
    pub violations: u64,
}

/// How far a job is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Cycles so far.
    pub cycles: u64,
    /// Bytes of blocks whose reading has begun.
    pub bytes_in: u64,
    /// Bytes of all blocks.
    pub bytes_total: u64,
}

mod register {
    pub(super) const CONTROL: u8 = 0x04;
    pub(super) const STATUS: u8 = 0x08;
    pub(super) const FAILURE: u8 = 0x0c;
    pub(super) const SNAPSHOT_LOW: u8 = 0x10;
    pub(super) const SNAPSHOT_HIGH: u8 = 0x14;
    pub(super) const FLAGS: u8 = 0x18;
    pub(super) const BLOCK_BYTES: u8 = 0x1c;
    pub(super) const OUT_BASE: u8 = 0x20;
    pub(super) const OUT_WORDS: u8 = 0x24;
    pub(super) const INDEX_BASE: u8 = 0x28;
    pub(super) const INDEX_ENTRIES: u8 = 0x2c;
    pub(super) const WATCHDOG: u8 = 0x30;
    /// The first of the counters, four bytes apart.
    pub(super) const COUNTERS: u8 = 0x40;
    /// The lists of the inputs, eight bytes apart: address, count.
    pub(super) const LISTS: u8 = 0x80;
}

const START: u32 = 1;
const SOFT_RESET: u32 = 2;
const STATUS_BUSY: u32 = 1;
const STATUS_DONE: u32 = 2;
const STATUS_FAILED: u32 = 4;

/// Cycles between two reports of progress.
const REPORT_CYCLES: u64 = 1 << 18;

/// A compaction engine of a given size.
#[derive(Debug)]
pub struct Engine {
    #[cfg(verilator)]
    simulator: ffi::Simulator,
    inputs: usize,
    timing: MemoryTiming,
    watchdog_cycles: u32,
}

#[cfg(not(verilator))]
impl Engine {
    /// Fails: there is no simulator in this build.
    pub fn new(_: usize) -> Result<Self, IpError> {
        Err(IpError::NotBuilt)
    }

    fn write(&mut self, _: u8, _: u32) {}

    fn read(&mut self, _: u8) -> u32 {
        0
    }

    fn advance(&mut self, _: u64) -> bool {
        false
    }

    fn load(&mut self, _: &Image) {}

    fn bytes(&mut self, _: image::Region) -> &[u8] {
        &[]
    }

    fn channel_counts(&self) -> [u64; 3] {
        [0; 3]
    }
}

#[cfg(verilator)]
impl Engine {
    /// An engine with so many inputs; those of [`sizes`] are built.
    pub fn new(inputs: usize) -> Result<Self, IpError> {
        let simulator = ffi::Simulator::new(inputs as u32).ok_or(IpError::NoSuchSize(inputs))?;
        Ok(Self {
            simulator,
            inputs,
            timing: MemoryTiming::default(),
            watchdog_cycles: 100_000,
        })
    }

    fn write(&mut self, address: u8, value: u32) {
        self.simulator.write_register(address, value);
    }

    fn read(&mut self, address: u8) -> u32 {
        self.simulator.read_register(address)
    }

    fn advance(&mut self, cycles: u64) -> bool {
        self.simulator.run(cycles)
    }

    fn load(&mut self, image: &Image) {
        self.simulator.configure(&ffi::MemorySettings {
            latency: self.timing.latency,
            hesitate_read_address: u32::from(self.timing.hesitations[0]),
            hesitate_read_data: u32::from(self.timing.hesitations[1]),
            hesitate_write_address: u32::from(self.timing.hesitations[2]),
            hesitate_write_data: u32::from(self.timing.hesitations[3]),
            reserved: 0,
            seed: self.timing.seed,
        });
        self.simulator.resize(image.memory.len());
        self.simulator.memory().copy_from_slice(&image.memory);
    }

    fn bytes(&mut self, region: image::Region) -> &[u8] {
        let start = region.address as usize;
        &self.simulator.memory()[start..start + region.bytes as usize]
    }

    fn channel_counts(&self) -> [u64; 3] {
        let traffic = self.simulator.traffic();
        [
            traffic.read_words,
            traffic.write_words,
            traffic.violations + ffi::assertion_failures(),
        ]
    }
}

impl Engine {
    /// The number of inputs.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Sets how memory behaves from the next job on.
    pub fn set_timing(&mut self, timing: MemoryTiming) {
        self.timing = timing;
    }

    /// Sets after how many cycles without any movement a job is given up.
    pub fn set_watchdog(&mut self, cycles: u32) {
        self.watchdog_cycles = cycles;
    }

    /// Does a job. `report` is called every quarter of a million cycles.
    ///
    /// Room for the output is guessed from the input; should it not suffice the job is done again with more.
    pub fn run(
        &mut self,
        job: &Job,
        mut report: impl FnMut(Progress),
    ) -> Result<(Output, Traffic), IpError> {
        self.run_while(job, |progress| {
            report(progress);
            true
        })
    }

    /// The same, until `goes_on` says no: then the job is given up by a soft reset, and fails as [`IpError::Stopped`].
    pub fn run_while(
        &mut self,
        job: &Job,
        mut goes_on: impl FnMut(Progress) -> bool,
    ) -> Result<(Output, Traffic), IpError> {
        let input_bytes = job.input_bytes() as usize;
        let mut room = input_bytes + input_bytes / 4 + (64 << 10);
        loop {
            let image = image::build(job, room)?;
            let result = self.run_image_while(job, &image, &mut goes_on);
            match result {
                Err(IpError::Failed(failure))
                    if failure.kind == FailureKind::Space && room / 32 <= input_bytes =>
                {
                    room *= 4;
                }
                other => return other,
            }
        }
    }

    /// Does a job whose memory image was made by [`image::build`] (and perhaps damaged since).
    pub fn run_image(
        &mut self,
        job: &Job,
        image: &Image,
        report: &mut dyn FnMut(Progress),
    ) -> Result<(Output, Traffic), IpError> {
        self.run_image_while(job, image, &mut |progress| {
            report(progress);
            true
        })
    }

    fn run_image_while(
        &mut self,
        job: &Job,
        image: &Image,
        goes_on: &mut dyn FnMut(Progress) -> bool,
    ) -> Result<(Output, Traffic), IpError> {
        let bytes_total = image::block_bytes(job);
        // Far above the slowest job: some hundred cycles per byte.
        let cycles_max = 10_000_000 + 400 * bytes_total;
        self.begin(job, image)?;
        let mut cycles = 0;
        while self.advance(REPORT_CYCLES) {
            cycles += REPORT_CYCLES;
            if cycles > cycles_max {
                return Err(IpError::Hanging(cycles_max));
            }
            let bytes_in = u64::from(self.read(register::COUNTERS + 4));
            let progress = Progress {
                cycles,
                bytes_in,
                bytes_total,
            };
            if !goes_on(progress) {
                self.reset()?;
                return Err(IpError::Stopped);
            }
        }
        self.collect(image)
    }

    /// Starts a job and leaves it running for `cycles`, then stops it by a soft reset, as a drive that must give up
    /// a job does. The engine can be used again afterwards.
    pub fn interrupt(&mut self, job: &Job, image: &Image, cycles: u64) -> Result<(), IpError> {
        self.begin(job, image)?;
        self.advance(cycles);
        self.reset()
    }

    /// Stops what runs.
    fn reset(&mut self) -> Result<(), IpError> {
        self.write(register::CONTROL, SOFT_RESET);
        if self.advance(1 << 20) {
            return Err(IpError::Hanging(1 << 20));
        }
        Ok(())
    }

    fn begin(&mut self, job: &Job, image: &Image) -> Result<(), IpError> {
        if job.inputs.len() > self.inputs {
            return Err(IpError::Refused(format!(
                "the job has {} inputs, the engine {}",
                job.inputs.len(),
                self.inputs
            )));
        }
        let settings = &job.settings;
        if !(1..=127).contains(&settings.restart_interval) || settings.block_bytes >= 1 << 24 {
            return Err(IpError::Refused(
                "the restart interval is 1 to 127 and a block less than 16 MiB".to_owned(),
            ));
        }
        self.load(image);
        let snapshot = settings
            .smallest_snapshot
            .min(waystation_format::key::MAX_SEQUENCE);
        self.write(register::SNAPSHOT_LOW, snapshot as u32);
        self.write(register::SNAPSHOT_HIGH, (snapshot >> 32) as u32);
        let flags = u32::from(settings.bottom) | u32::from(settings.restart_interval) << 8;
        self.write(register::FLAGS, flags);
        self.write(register::BLOCK_BYTES, settings.block_bytes);
        self.write(register::OUT_BASE, image.out.address);
        self.write(register::OUT_WORDS, image.out.bytes / 8);
        self.write(register::INDEX_BASE, image.index.address);
        self.write(register::INDEX_ENTRIES, image.index.bytes / 128);
        self.write(register::WATCHDOG, self.watchdog_cycles);
        for input in 0..self.inputs {
            let list = image.lists.get(input);
            let address = register::LISTS + 8 * input as u8;
            self.write(address, list.map_or(0, |list| list.address));
            self.write(address + 4, list.map_or(0, |list| list.bytes / 32));
        }
        self.write(register::CONTROL, START);
        Ok(())
    }

    fn collect(&mut self, image: &Image) -> Result<(Output, Traffic), IpError> {
        let status = self.read(register::STATUS);
        if status & STATUS_FAILED != 0 {
            let code = self.read(register::FAILURE) as u8;
            let kind = FailureKind::from_code(code >> 4).ok_or_else(|| {
                IpError::Inconsistent(format!("the engine failed with the unknown code {code:#x}"))
            })?;
            let input = (code & 15 != 15).then_some(code & 15);
            return Err(IpError::Failed(Failure { kind, input }));
        }
        if status & (STATUS_DONE | STATUS_BUSY) != STATUS_DONE {
            return Err(IpError::Inconsistent(format!("the status is {status:#x}")));
        }
        let mut counts = [0u64; 16];
        for (number, count) in counts.iter_mut().enumerate() {
            *count = u64::from(self.read(register::COUNTERS + 4 * number as u8));
        }
        let counters = Counters {
            bytes_in: counts[1],
            blocks_in: counts[2],
            records_in: counts[3],
            shadowed: counts[4],
            vanished: counts[5],
            records_out: counts[6],
            bytes_out: counts[7],
            blocks_out: counts[8],
        };
        let [words_read, words_written, violations] = self.channel_counts();
        let traffic = Traffic {
            cycles: counts[0],
            words_read,
            words_written,
            waits_memory: counts[10],
            waits_key: counts[11],
            waits_filter: counts[12],
            waits_value: counts[13],
            waits_record: counts[14],
            waits_write: counts[15],
            violations,
        };
        if !counters.balance() {
            return Err(IpError::Inconsistent(format!(
                "the records do not balance: {counters:?}"
            )));
        }
        if counts[9] != counters.blocks_in {
            return Err(IpError::Inconsistent(format!(
                "{} of {} blocks were checked",
                counts[9], counters.blocks_in
            )));
        }
        let out_bytes = counters.bytes_out as usize;
        let bytes = self.bytes(image.out).get(..out_bytes).map(<[u8]>::to_vec);
        let blocks = image::index_entries(self.bytes(image.index), counters.blocks_out as usize)?;
        let bytes = bytes.ok_or_else(|| {
            IpError::Inconsistent("the output is longer than its room".to_owned())
        })?;
        Ok((
            Output {
                bytes,
                blocks,
                counters,
            },
            traffic,
        ))
    }
}
