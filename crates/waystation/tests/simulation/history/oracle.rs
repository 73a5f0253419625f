//! What is found after a life: of each client the state after the first so many batches, and a prefix of all together.

use super::looks::count_of;
use super::plan::{Plan, Written};
use super::told::{Counts, Told};
use crate::looks::{Keys, difference, read};
use crate::support::Content;
use waystation::{Db, IterOptions};

/// What a life promised.
pub(crate) struct Promised {
    pub(crate) told: Told,
    /// Batches that have to be there, beyond those of earlier lives.
    pub(crate) least: Counts,
    /// And those that a power cut before the next recovery would leave.
    pub(crate) least_of_power_cut: Counts,
    /// How it ended.
    pub(crate) how: String,
}

impl Promised {
    /// Of a database that is not there yet.
    pub(crate) fn nothing(clients: usize) -> Self {
        Self {
            told: Told::new(clients),
            least: vec![0; clients],
            least_of_power_cut: vec![0; clients],
            how: "creation".to_owned(),
        }
    }
}

/// What the clients have written, as far as it was found again.
pub(crate) struct Oracle<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) written: Vec<Written>,
}

impl Oracle<'_> {
    /// Takes what a life left.
    pub(crate) fn take(&mut self, db: &Db, promised: &Promised) {
        let told = format!("seed {}, after {}", self.plan.seed, promised.how);
        let found = self.count(db, promised, &told);
        if let Err(hole) = promised.told.judge(&found) {
            panic!("{told}: no prefix: {hole}");
        }
        for (client, count) in found.iter().enumerate() {
            let written = &mut self.written[client];
            let count = written.count + count;
            written.go_to(self.plan, client, count);
        }
        let mut state = read(db, IterOptions::default(), false, Keys::All).expect("iterate");
        self.take_half_departures(&state);
        for backwards in [false, true] {
            if backwards {
                state = read(db, IterOptions::default(), true, Keys::All).expect("iterate");
            }
            let expected: Content = self
                .written
                .iter()
                .flat_map(|it| it.state.clone())
                .collect();
            assert!(
                state == expected,
                "{told}: wrong state of {found:?} more batches (backwards: {backwards}): {}",
                difference(&state, &expected)
            );
        }
        for (key, value) in self.written.iter().flat_map(|it| &it.state) {
            let got = db.get(key).expect("get");
            assert!(got.as_ref() == Some(value), "{told}: get differs");
        }
        let report = db.check().expect("check");
        assert!(report.problems.is_empty(), "{told}: {report:?}");
    }

    /// How many batches of each client there are, beyond those of earlier lives.
    fn count(&self, db: &Db, promised: &Promised, told: &str) -> Counts {
        let most = promised.told.begun();
        let count = |client: usize| {
            let counter = db.get(&Plan::counter(client)).expect("get");
            let count = count_of(counter.as_deref());
            let before = self.written[client].count;
            let (least, most) = (before + promised.least[client], before + most[client]);
            assert!(
                (least..=most).contains(&count),
                "{told}: {count} batches of client {client} found, {least} to {most} expected"
            );
            count - before
        };
        (0..self.plan.clients).map(count).collect()
    }

    /// The next step of a client may have been half done: its departure, and not its batch.
    fn take_half_departures(&mut self, found: &Content) {
        for (client, written) in self.written.iter_mut().enumerate() {
            let Some(departed) = written.half_done(self.plan, client) else {
                continue;
            };
            let region = Plan::region(client);
            let in_region = found.iter().filter(|(key, _)| key.starts_with(&region));
            if in_region.eq(&departed) {
                written.state = departed;
            }
        }
    }
}
