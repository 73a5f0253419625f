//! Fills a server with keys and values, as fast as one connection goes.

use super::resp::Client;
use crate::cores::on_core;
use crate::error::{Error, Result};

/// Commands that are sent at once.
const AT_ONCE: u64 = 200;

/// What fills a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Filling {
    pub(crate) keys: u64,
    pub(crate) value_bytes: u32,
    /// 0: keys are those of `redis-benchmark`; else they belong to so many devices.
    pub(crate) devices: u64,
}

impl Filling {
    /// The key with this number.
    pub(crate) fn key(&self, number: u64) -> Vec<u8> {
        match self.devices {
            0 => format!("key:{number:012}"),
            devices => format!("car{}:speed:{:012}", number % devices, number / devices),
        }
        .into_bytes()
    }
}

/// Values of as many letters as there are in base 64, so that they hardly compress.
pub(crate) struct Values {
    seed: u64,
    value: Vec<u8>,
}

impl Values {
    pub(crate) fn new(seed: u64, bytes: u32) -> Self {
        Self {
            seed: seed.wrapping_mul(2).wrapping_add(1),
            value: vec![b'0'; bytes as usize],
        }
    }

    /// A number that looks random.
    pub(crate) fn number(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }

    /// Another value.
    pub(crate) fn next(&mut self) -> &[u8] {
        for at in (0..self.value.len()).step_by(10) {
            let mut bits = self.number();
            let end = self.value.len().min(at + 10);
            for letter in &mut self.value[at..end] {
                *letter = b'0' + (bits & 63) as u8;
                bits >>= 6;
            }
        }
        &self.value
    }
}

/// Fills the server on `port` from `core`. A refusal is an error.
pub(crate) fn fill(port: u16, core: Option<usize>, filling: &Filling) -> Result<()> {
    let filled = || -> Result<()> {
        let client = Client::connect(port);
        let mut client =
            client.map_err(|source| Error::io("connect to", port.to_string(), source))?;
        let mut values = Values::new(filling.keys, filling.value_bytes);
        let mut answers = 0;
        for first in (0..filling.keys).step_by(AT_ONCE as usize) {
            let end = filling.keys.min(first + AT_ONCE);
            for number in first..end {
                client.put(&[b"SET", &filling.key(number), values.next()]);
            }
            client.flush()?;
            // While these are carried out the next ones are made.
            for _ in 0..answers {
                client.answer()?;
            }
            answers = end - first;
        }
        for _ in 0..answers {
            client.answer()?;
        }
        Ok(())
    };
    match core {
        Some(core) => on_core(core, filled)?,
        None => filled(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_redis_benchmark_or_of_devices() {
        let plain = Filling {
            keys: 9,
            value_bytes: 1,
            devices: 0,
        };
        assert_eq!(plain.key(7), b"key:000000000007");
        let cars = Filling {
            devices: 5,
            ..plain
        };
        assert_eq!(cars.key(7), b"car2:speed:000000000001");
    }

    #[test]
    fn values_differ_and_have_their_length() {
        let mut values = Values::new(1, 1001);
        let first = values.next().to_vec();
        assert_eq!(first.len(), 1001);
        assert_ne!(values.next(), first);
    }
}
