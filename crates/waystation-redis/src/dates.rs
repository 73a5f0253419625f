//! Dates at which keys are over that the engine does not delete by itself: those of devices, and collections.
//!
//! Such a key is hidden from its date on, whatever happens here. What is done here gives its room back.

use crate::encoding::Tag;
use crate::failure::Outcome;
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
            let swept = Arc::clone(&store);
            let done = tokio::task::spawn_blocking(move || sweep(&swept)).await;
            if let Ok(Err(failure)) = done {
                log::debug!(
                    "keys of {} that are over were not deleted: {}",
                    store.name,
                    failure.0
                );
                // The next round begins anew.
                store.next_date.fetch_min(0, SeqCst);
            }
        }
        sleep(ROUND).await;
    }
}

/// Deletes keys that are over, and notes the next date.
fn sweep(store: &Store) -> Outcome {
    // Before the look: a date that is committed behind it notes itself.
    store.next_date.store(u64::MAX, SeqCst);
    let mut work = Work::new(store);
    let first = store.encoding.dates();
    let end = [&first[..first.len() - 1], &[first[first.len() - 1] + 1]].concat();
    let mut scan = work.scan(first, Some(end), false)?;
    let mut due = Vec::new();
    while scan.advance()? {
        let Some((over_at, key)) = store.encoding.decode_date(scan.key()) else {
            continue;
        };
        if over_at > work.now || due.len() >= DATES_MAX {
            store.next_date.fetch_min(over_at, SeqCst);
            break;
        }
        due.push((scan.key().to_vec(), over_at, key));
    }
    drop(scan);
    for (date, over_at, key) in due {
        work.hold_all(&mut vec![(store.stripe(&key), true)]);
        let bytes = work.get_under(&key, Tag::Head, b"")?;
        let head = bytes.and_then(Head::read);
        if let Some(head) = head.filter(|it| it.over_at == Some(over_at)) {
            work.remove(&key, head.kind)?;
        }
        work.delete_date(&date);
        work.commit()?;
    }
    Ok(())
}
