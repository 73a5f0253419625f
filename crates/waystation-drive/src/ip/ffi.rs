//! The simulated engine behind a C interface (`hw/compaction_ip/tb/simulator.cpp`), wrapped so that safe code can
//! do no harm.
#![expect(
    unsafe_code,
    reason = "calls the Verilator model, which is C++ compiled by build.rs"
)]

use std::ffi::c_int;
use std::ptr::NonNull;

/// An opaque simulator.
enum Raw {}

/// `MemorySettings` of tb/machine.h.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct MemorySettings {
    pub(super) latency: u32,
    pub(super) hesitate_read_address: u32,
    pub(super) hesitate_read_data: u32,
    pub(super) hesitate_write_address: u32,
    pub(super) hesitate_write_data: u32,
    pub(super) reserved: u32,
    pub(super) seed: u64,
}

/// `Traffic` of tb/machine.h.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawTraffic {
    pub(super) cycles: u64,
    pub(super) read_bursts: u64,
    pub(super) read_words: u64,
    pub(super) write_bursts: u64,
    pub(super) write_words: u64,
    pub(super) violations: u64,
}

unsafe extern "C" {
    fn waystation_ip_create(inputs: u32) -> *mut Raw;
    fn waystation_ip_destroy(simulator: *mut Raw);
    fn waystation_ip_configure(simulator: *mut Raw, settings: *const MemorySettings);
    fn waystation_ip_resize(simulator: *mut Raw, bytes: usize);
    fn waystation_ip_memory(simulator: *mut Raw) -> *mut u8;
    fn waystation_ip_write_register(simulator: *mut Raw, address: u8, value: u32);
    fn waystation_ip_read_register(simulator: *mut Raw, address: u8) -> u32;
    fn waystation_ip_run(simulator: *mut Raw, cycles: u64) -> c_int;
    fn waystation_ip_traffic(simulator: *const Raw, traffic: *mut RawTraffic);
    fn waystation_ip_assertion_failures() -> u64;
}

/// A simulated engine beside its memory.
#[derive(Debug)]
pub(super) struct Simulator {
    raw: NonNull<Raw>,
    memory_bytes: usize,
}

// SAFETY: the simulator owns all it uses; Verilator's models share nothing but the counter of failed assertions, an
// integer that is only compared with zero. It is not `Sync`: two threads may not use one at once.
unsafe impl Send for Simulator {}

impl Simulator {
    /// An engine with so many inputs, if there is one of this size.
    pub(super) fn new(inputs: u32) -> Option<Self> {
        // SAFETY: takes a number; gives null or a simulator that is ours.
        let raw = NonNull::new(unsafe { waystation_ip_create(inputs) })?;
        Some(Self {
            raw,
            memory_bytes: 0,
        })
    }

    /// Sets how memory behaves, and the counts of traffic to zero.
    pub(super) fn configure(&mut self, settings: &MemorySettings) {
        // SAFETY: `raw` is alive until `drop`; the settings are copied.
        unsafe { waystation_ip_configure(self.raw.as_ptr(), settings) }
    }

    /// Makes memory exactly so large; what is new is zero.
    pub(super) fn resize(&mut self, bytes: usize) {
        // SAFETY: as above; no slice of the memory is alive, since `self` is borrowed mutably.
        unsafe { waystation_ip_resize(self.raw.as_ptr(), bytes) }
        self.memory_bytes = bytes;
    }

    /// The memory.
    pub(super) fn memory(&mut self) -> &mut [u8] {
        if self.memory_bytes == 0 {
            return &mut [];
        }
        // SAFETY: the vector has `memory_bytes` initialised bytes and does not move while `self` is borrowed.
        unsafe {
            std::slice::from_raw_parts_mut(
                waystation_ip_memory(self.raw.as_ptr()),
                self.memory_bytes,
            )
        }
    }

    /// Writes a register.
    pub(super) fn write_register(&mut self, address: u8, value: u32) {
        // SAFETY: `raw` is alive; any address and value are allowed.
        unsafe { waystation_ip_write_register(self.raw.as_ptr(), address, value) }
    }

    /// Reads a register.
    pub(super) fn read_register(&mut self, address: u8) -> u32 {
        // SAFETY: as above.
        unsafe { waystation_ip_read_register(self.raw.as_ptr(), address) }
    }

    /// Runs until the engine is idle, at most `cycles`; whether it is still busy.
    pub(super) fn run(&mut self, cycles: u64) -> bool {
        // SAFETY: as above; the engine reads and writes the simulator's own memory, bounds checked.
        unsafe { waystation_ip_run(self.raw.as_ptr(), cycles) != 0 }
    }

    /// What was seen on the channels since [`Self::configure`].
    pub(super) fn traffic(&self) -> RawTraffic {
        let mut traffic = RawTraffic::default();
        // SAFETY: writes one `RawTraffic`, whose layout is that of tb/machine.h.
        unsafe { waystation_ip_traffic(self.raw.as_ptr(), &raw mut traffic) }
        traffic
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        // SAFETY: created by `waystation_ip_create`, destroyed once.
        unsafe { waystation_ip_destroy(self.raw.as_ptr()) }
    }
}

/// How many assertions of the design failed in this process.
pub(super) fn assertion_failures() -> u64 {
    // SAFETY: reads an integer.
    unsafe { waystation_ip_assertion_failures() }
}
