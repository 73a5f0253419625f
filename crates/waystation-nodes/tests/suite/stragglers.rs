//! A drive that becomes really slow in the middle of a database's life: another copy does its part of a query.

use crate::support::{Running, TOKEN, drive, find, host, weights, write};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use waystation_documents::Error;

/// How long the slow drive takes for each answer.
const SLOW: Duration = Duration::from_secs(20);

/// A way to an agent, on which each of its answers takes `delay` milliseconds.
struct Way {
    address: SocketAddr,
    delay: Arc<AtomicU64>,
}

impl Way {
    fn to(agent: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("an address");
        let address = listener.local_addr().expect("an address");
        let delay = Arc::new(AtomicU64::new(0));
        let slow = Arc::clone(&delay);
        start(move || {
            for host in listener.incoming() {
                let Ok(host) = host else { return };
                let Ok(drive) = TcpStream::connect(agent) else {
                    return;
                };
                let (to_drive, from_drive) = (drive.try_clone(), drive);
                let (to_host, from_host) = (host.try_clone(), host);
                let slow = Arc::clone(&slow);
                let fast = Arc::new(AtomicU64::new(0));
                start(move || pass(from_host, to_drive.expect("a socket"), &fast));
                start(move || pass(from_drive, to_host.expect("a socket"), &slow));
            }
        });
        Self { address, delay }
    }

    fn set_delay(&self, delay: Duration) {
        let milliseconds = u64::try_from(delay.as_millis()).expect("a delay");
        self.delay.store(milliseconds, Ordering::SeqCst);
    }
}

/// Starts a thread that ends with the sockets it uses, or with the test.
fn start(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().spawn(work).expect("a thread");
}

fn pass(mut from: TcpStream, mut to: TcpStream, delay: &AtomicU64) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        let wait = Duration::from_millis(delay.load(Ordering::SeqCst));
        std::thread::sleep(wait);
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    // The other side may be closed already.
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a drive is slow in real time")]
fn a_copy_elsewhere_does_the_part_of_a_slow_drive() -> Result<(), Error> {
    let directory = || tempfile::tempdir().expect("a directory");
    let (own, data, other) = (directory(), directory(), directory());
    let (one, two) = (Running::start(data.path()), Running::start(other.path()));
    let way = Way::to(one.address);
    let drives = vec![
        drive("one", way.address, TOKEN),
        drive("two", two.address, TOKEN),
    ];
    let catalogue = host(own.path(), drives);
    let both = weights(&[("one", 1.0), ("two", 1.0)]);
    let database = catalogue.create_copies("cars", (2, 2), Some(&both))?;
    for begin in (0..2000).step_by(200) {
        let documents = (begin..begin + 200).map(|at| format!(r#"{{"_id":"{at:06}","n":{at}}}"#));
        let written = write(&database, &documents.collect::<Vec<_>>());
        assert!(written.iter().all(Result::is_ok), "{written:?}");
    }
    let query = r#"{"selector":{"n":{"$gte":500}},"limit":10000,"fields":["_id"]}"#;
    // Both drives get to be known as fast.
    for _ in 0..5 {
        assert_eq!(find(&database, query)?.0.len(), 1500);
    }
    way.set_delay(SLOW);
    for _ in 0..3 {
        let begun = Instant::now();
        assert_eq!(find(&database, query)?.0.len(), 1500);
        assert!(begun.elapsed() < SLOW / 2, "{:?}", begun.elapsed());
    }
    Ok(())
}
