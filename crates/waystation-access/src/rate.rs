//! How often a client may ask.
//!
//! A client is an address: a user who has not said a name has one, and a program with many connections has one. Each may
//! ask for a second's worth at once, and then at the rate (the generic cell rate algorithm of ITU-T I.371: one time for
//! each client, at which everything it asked would have been asked at the rate). A client whose time has passed is
//! forgotten. When as many clients are known as are kept, new ones share one time, so that addresses without number take
//! neither memory nor rate.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Clients that are kept; looking through them for those that can be forgotten takes a millisecond.
const CLIENTS_MAX: usize = 1 << 16;
/// What may be asked at once: the requests of so long.
const BURST: Duration = Duration::from_secs(1);
/// The client in whose name all others ask when too many are known.
const OTHERS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The times of all clients. All `now` are of one clock that never goes back, from any beginning.
#[derive(Debug, Default)]
pub struct Rates {
    times: Mutex<HashMap<IpAddr, Duration>>,
}

impl Rates {
    /// Counts `requests` of a client that have been answered. Returns how long it has to wait until its next one, so that
    /// it keeps to `per_second`; 0 allows any number.
    ///
    /// ```
    /// use std::time::Duration;
    /// let rates = waystation_access::Rates::default();
    /// let (client, now) = ([192, 168, 1, 7].into(), Duration::from_secs(100));
    /// assert_eq!(rates.count(client, 10, 10, now), Duration::ZERO);
    /// assert_eq!(rates.count(client, 5, 10, now), Duration::from_millis(500));
    /// ```
    pub fn count(&self, client: IpAddr, requests: u64, per_second: u32, now: Duration) -> Duration {
        let Some(each) = interval(per_second) else {
            return Duration::ZERO;
        };
        let all = each.saturating_mul(u32::try_from(requests).unwrap_or(u32::MAX));
        self.change(client, now, |time| {
            *time = time.saturating_add(all);
            time.saturating_sub(now + BURST)
        })
    }

    /// Counts a request of a client, if it keeps to `per_second` with it; 0 allows any number.
    ///
    /// # Errors
    /// How long the client has to wait; the request is not counted.
    pub fn admit(&self, client: IpAddr, per_second: u32, now: Duration) -> Result<(), Duration> {
        let Some(each) = interval(per_second) else {
            return Ok(());
        };
        self.change(client, now, |time| {
            let next = time.saturating_add(each);
            let wait = next.saturating_sub(now + BURST);
            if !wait.is_zero() {
                return Err(wait);
            }
            *time = next;
            Ok(())
        })
    }

    fn change<T>(
        &self,
        client: IpAddr,
        now: Duration,
        change: impl FnOnce(&mut Duration) -> T,
    ) -> T {
        let mut client = network(client);
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        if times.len() >= CLIENTS_MAX && !times.contains_key(&client) {
            times.retain(|_, time| *time > now);
            if times.len() >= CLIENTS_MAX {
                client = OTHERS;
            }
        }
        let time = times.entry(client).or_default();
        *time = (*time).max(now);
        change(time)
    }
}

/// The time between two requests at a rate; `None`: there is no limit.
fn interval(per_second: u32) -> Option<Duration> {
    (per_second > 0).then(|| Duration::from_secs(1) / per_second)
}

/// What one client has of addresses: of the sixth version a network of 64 bits, in which it takes any.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) => {
            let [a, b, c, d, ..] = six.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        four @ IpAddr::V4(_) => four,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1000);

    fn client(number: u32) -> IpAddr {
        Ipv4Addr::from(number).into()
    }

    #[test]
    fn a_client_has_a_second_at_once_and_the_rate_from_then_on() {
        let rates = Rates::default();
        for _ in 0..10 {
            assert_eq!(rates.admit(client(1), 10, NOW), Ok(()));
        }
        let wait = Duration::from_millis(100);
        assert_eq!(rates.admit(client(1), 10, NOW), Err(wait));
        assert_eq!(rates.admit(client(2), 10, NOW), Ok(()));
        assert_eq!(rates.admit(client(1), 10, NOW + wait), Ok(()));
        assert_eq!(rates.admit(client(1), 10, NOW + wait), Err(wait));
        let later = NOW + Duration::from_secs(60);
        let admitted = (0..100).filter(|_| rates.admit(client(1), 10, later).is_ok());
        assert_eq!(admitted.count(), 10);
    }

    #[test]
    fn without_a_limit_nothing_is_counted() {
        let rates = Rates::default();
        assert_eq!(rates.count(client(1), u64::MAX, 0, NOW), Duration::ZERO);
        assert_eq!(rates.admit(client(1), 0, NOW), Ok(()));
        assert_eq!(rates.admit(client(1), 1, NOW), Ok(()));
    }

    #[test]
    fn what_was_asked_beyond_the_rate_is_waited_for() {
        let rates = Rates::default();
        let wait = rates.count(client(1), 25, 10, NOW);
        assert_eq!(wait, Duration::from_millis(1500));
        assert_eq!(rates.count(client(1), 0, 10, NOW + wait), Duration::ZERO);
        assert!(rates.count(client(1), u64::MAX, 1, NOW) > Duration::from_secs(1 << 31));
    }

    #[test]
    fn a_network_of_the_sixth_version_is_one_client() {
        let rates = Rates::default();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(rates.admit(address("2001:db8::1"), 1, NOW), Ok(()));
        assert!(rates.admit(address("2001:db8::2"), 1, NOW).is_err());
        assert_eq!(rates.admit(address("2001:db8:0:1::1"), 1, NOW), Ok(()));
        assert_eq!(rates.admit(address("::ffff:10.0.0.1"), 1, NOW), Ok(()));
        assert!(rates.admit(address("10.0.0.1"), 1, NOW).is_err());
    }

    #[test]
    fn clients_without_number_take_no_more_memory() {
        let rates = Rates::default();
        let many = u32::try_from(CLIENTS_MAX).unwrap();
        for number in 1..=many {
            assert_eq!(rates.admit(client(number), 1, NOW), Ok(()));
        }
        assert_eq!(rates.admit(client(many + 1), 1, NOW), Ok(()));
        assert!(rates.admit(client(many + 2), 1, NOW).is_err());
        assert!(rates.times.lock().unwrap().len() <= CLIENTS_MAX + 1);
        let later = NOW + Duration::from_secs(10);
        assert_eq!(rates.admit(client(many + 3), 1, later), Ok(()));
        assert_eq!(rates.times.lock().unwrap().len(), 1);
    }
}
