//! Dates at which keys are over that the engine does not delete by itself: those of devices, and collections.
//!
//! Such a key is hidden from its date on, whatever happens here. What is done here gives its room back.

use crate::encoding::Tag;
use crate::failure::{Failure, Outcome};
use crate::head::Head;
use crate::server::ROUND;
use crate::store::Store;
use crate::work::Work;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use tokio::time::sleep;

/// Dates that are looked at in one go.
const DATES_MAX: usize = 1000;

/// Deletes what is over, as long as it runs.
pub(crate) async fn follow(store: Arc<Store>) {
    loop {
        if store.next_date.load(SeqCst) <= store.clock.millis() {
            // Before the look: a date that is committed behind it notes itself.
            store.next_date.store(u64::MAX, SeqCst);
            let mut next = Some(store.encoding.dates());
            while let Some(first) = next.take() {
                let swept = Arc::clone(&store);
                let done = tokio::task::spawn_blocking(move || sweep(&swept, first)).await;
                let failure = match done {
                    Ok(Ok(swept)) => {
                        next = swept.next;
                        swept.failure
                    }
                    Ok(Err(failure)) => Some(failure),
                    Err(_) => Some(Failure::new("ERR the thread ended")),
                };
                if let Some(failure) = failure {
                    log::debug!(
                        "keys of {} that are over were not deleted: {}",
                        store.name,
                        failure.0
                    );
                    // The next round begins anew.
                    store.next_date.store(0, SeqCst);
                }
            }
        }
        sleep(ROUND).await;
    }
}

/// What came of a look at some dates.
struct Swept {
    /// Where more dates lie that have come.
    next: Option<Vec<u8>>,
    /// Why a key is still there, as one of a device that is being handed on. It keeps no other key.
    failure: Option<Failure>,
}

/// Deletes keys that are over, from the date `first` on, and notes the next date.
fn sweep(store: &Store, first: Vec<u8>) -> Outcome<Swept> {
    let mut work = Work::new(store);
    let dates = store.encoding.dates();
    let end = [&dates[..dates.len() - 1], &[dates[dates.len() - 1] + 1]].concat();
    let mut scan = work.scan(first, Some(end), false)?;
    let mut due = Vec::new();
    let mut next = None;
    while scan.advance()? {
        let Some((over_at, key)) = store.encoding.decode_date(scan.key()) else {
            continue;
        };
        if over_at > work.now {
            store.next_date.fetch_min(over_at, SeqCst);
            break;
        }
        if due.len() >= DATES_MAX {
            next = Some(scan.key().to_vec());
            break;
        }
        due.push((scan.key().to_vec(), over_at, key));
    }
    drop(scan);
    let mut failure = None;
    for (date, over_at, key) in due {
        if let Err(error) = end_key(store, &date, over_at, &key) {
            failure = failure.or(Some(error));
        }
    }
    Ok(Swept { next, failure })
}

/// Deletes a key whose date has come, if the key still has it, and the date.
fn end_key(store: &Store, date: &[u8], over_at: u64, key: &[u8]) -> Outcome {
    let mut work = Work::new(store);
    work.hold_all(&mut vec![(store.stripe(key), true)]);
    let bytes = work.get_under(key, Tag::Head, b"")?;
    let head = bytes.and_then(Head::read);
    if let Some(head) = head.filter(|it| it.over_at == Some(over_at)) {
        work.remove(key, head.kind)?;
    }
    work.delete_date(date);
    work.commit()
}
