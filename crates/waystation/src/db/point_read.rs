//! Point reads: the value under one key, on both levels.
//!
//! A read now takes what is visible. A write may be acknowledged and not visible, as one before it is not complete; then the
//! read waits, if its own key may be among what was written meanwhile.

use super::Core;
use crate::devices::residency::ReadPoint;
use crate::devices::upper::Step;
use crate::error::Result;
use crate::read_state::ReadState;
use crate::sst::Lookup;

impl Core {
    /// The value under `key` now.
    pub(super) fn get_now(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(acknowledged) = self.log.acknowledged_ahead() {
            self.wait_for_writes(key, acknowledged);
        }
        let Some(devices) = &self.devices else {
            let (read_state, sequence) = self.read_states.visible_point(&self.log);
            let covering = read_state.covering(key, sequence, || self.time())?;
            return self
                .get_below(&read_state, key, sequence, covering)
                .map(found);
        };
        loop {
            let generation = devices.upper.table.generation();
            let (read_state, sequence) = self.read_states.visible_point(&self.log);
            let value = self.get(&read_state, key, sequence, || self.time());
            // Without a snapshot, what was to be read may have been given up meanwhile.
            if devices.upper.table.generation() == generation {
                return value;
            }
        }
    }

    /// Waits until everything up to `acknowledged` is visible, if a write to `key` may be among what is not.
    #[cold]
    fn wait_for_writes(&self, key: &[u8], acknowledged: u64) {
        let (read_state, visible) = self.read_states.visible_point(&self.log);
        let is_written = read_state.is_written_behind(key, visible)
            || self.devices.as_ref().is_some_and(|devices| {
                let point = ReadPoint {
                    snapshot: visible,
                    generation: read_state.generation(),
                };
                devices.upper.may_be_written_behind(key, point)
            });
        if is_written {
            self.log.wait_visible(acknowledged);
        }
    }

    /// The value under `key` at `sequence` and `time`, on both levels.
    pub(super) fn get(
        &self,
        read_state: &ReadState,
        key: &[u8],
        sequence: u64,
        time: impl FnOnce() -> u64,
    ) -> Result<Option<Vec<u8>>> {
        let upper = self.devices.as_ref().map(|devices| &devices.upper);
        let device = upper.and_then(|upper| Some((upper, upper.table.extractor().prefix(key)?)));
        let covering = read_state.covering(key, sequence, time)?;
        let Some((upper, prefix)) = device else {
            return self
                .get_below(read_state, key, sequence, covering)
                .map(found);
        };
        let point = ReadPoint {
            snapshot: sequence,
            generation: read_state.generation(),
        };
        match upper.get(prefix, key, point, covering)? {
            Step::Done(value) => Ok(value),
            Step::Tree(covering, then) => {
                match self.get_below(read_state, key, sequence, covering)? {
                    Lookup::Missing => match then {
                        Lookup::Found(spot) => upper.value(&spot).map(Some),
                        Lookup::Deleted | Lookup::Missing => Ok(None),
                    },
                    answer => Ok(found(answer)),
                }
            }
        }
    }

    /// What memtables and tree say about `key` at `sequence`, where versions below `covering` are hidden.
    fn get_below(
        &self,
        read_state: &ReadState,
        key: &[u8],
        sequence: u64,
        covering: u64,
    ) -> Result<Lookup<Vec<u8>>> {
        for memtable in read_state.memtables() {
            match memtable.get_above(key, sequence, covering) {
                Lookup::Found(value) => return Ok(Lookup::Found(value.to_vec())),
                Lookup::Deleted => return Ok(Lookup::Deleted),
                Lookup::Missing => {}
            }
        }
        self.tree
            .get_above(&read_state.version, key, sequence, covering)
    }
}

fn found(answer: Lookup<Vec<u8>>) -> Option<Vec<u8>> {
    match answer {
        Lookup::Found(value) => Some(value),
        Lookup::Deleted | Lookup::Missing => None,
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use crate::Db;
    use crate::error::Error;
    use crate::options::{DeviceOptions, Extractor, Options};
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;
    use waystation_format::log::RecordKind;

    /// A write that is acknowledged, and behind one that is not complete: a get of its key waits, others do not.
    #[test]
    fn a_get_waits_for_an_acknowledged_write_of_its_key() {
        for has_devices in [false, true] {
            let dir = tempfile::tempdir().expect("tempdir");
            let options = Options {
                devices: has_devices.then(|| DeviceOptions::new(Extractor::until(b':'))),
                ..Options::default()
            };
            let db = Db::open(dir.path(), options).expect("open");
            db.put(b"a:1", b"old").expect("put");
            let reserved = db
                .core
                .log
                .reserve(RecordKind::Batch, 1, 1, |_, _| Ok::<_, Error>(()));
            let (hole, ()) = reserved.expect("reserve");
            db.put(b"a:1", b"new").expect("put");
            assert_eq!(db.get(b"a:2").expect("get"), None);
            let (answer, answered) = channel();
            std::thread::scope(|scope| {
                scope.spawn(|| answer.send(db.get(b"a:1").expect("get")));
                let early = answered.recv_timeout(Duration::from_millis(100));
                assert_eq!(early, Err(RecvTimeoutError::Timeout));
                let payload = [0];
                let checksum = waystation_format::checksum::crc32c(&payload);
                db.core.log.copy(&hole, &payload, checksum);
                db.core.log.publish(hole);
                let late = answered.recv().expect("an answer");
                assert_eq!(late.as_deref(), Some(&b"new"[..]));
            });
        }
    }
}
