//! A device without moving parts: so many channels, so much bandwidth, a price for flushes.

use super::model::{FlashModel, transfer_ns, us};

/// The state of the device. Every completion time is known at submission.
pub(super) struct Flash {
    model: FlashModel,
    /// When each channel is free.
    channels: Vec<u64>,
    read_bus_ns: u64,
    write_bus_ns: u64,
    writes_done_ns: u64,
    written: u64,
    /// Sum of the channels' work.
    pub(super) busy_ns: u64,
}

impl Flash {
    pub(super) fn new(model: &FlashModel) -> Self {
        Self {
            channels: vec![0; model.channels.min(1024) as usize],
            model: model.clone(),
            read_bus_ns: 0,
            write_bus_ns: 0,
            writes_done_ns: 0,
            written: 0,
            busy_ns: 0,
        }
    }

    /// Software and bus before the device sees a request of `bytes`.
    pub(super) fn path_ns(&self, bytes: u64) -> u64 {
        us(self.model.path_us) + transfer_ns(bytes, self.model.path_bandwidth)
    }

    pub(super) fn read(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let ready_ns = self.channel(now_ns, us(self.model.read_us));
        let begin_ns = ready_ns.max(self.read_bus_ns);
        self.read_bus_ns = begin_ns + transfer_ns(bytes, self.model.read_bandwidth);
        self.read_bus_ns
    }

    pub(super) fn write(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let begin_ns = now_ns.max(self.write_bus_ns);
        self.write_bus_ns = begin_ns + transfer_ns(bytes, self.model.write_bandwidth);
        self.written += bytes;
        let mut latency_ns = us(self.model.write_us);
        if self.model.pause_every.0 > 0 && self.written >= self.model.pause_every.0 {
            self.written = 0;
            latency_ns += us(self.model.pause_us);
        }
        let done_ns = self.channel(self.write_bus_ns, latency_ns);
        self.writes_done_ns = self.writes_done_ns.max(done_ns);
        done_ns
    }

    pub(super) fn flush(&mut self, now_ns: u64) -> u64 {
        now_ns.max(self.writes_done_ns) + us(self.model.flush_us)
    }

    /// Occupies the channel that is free first for `latency_ns`; returns when it is done.
    fn channel(&mut self, now_ns: u64, latency_ns: u64) -> u64 {
        self.busy_ns += latency_ns;
        let Some(channel) = self.channels.iter_mut().min() else {
            return now_ns + latency_ns;
        };
        *channel = now_ns.max(*channel) + latency_ns;
        *channel
    }
}
