//! The end of an edge, and its next life: it must hold what it held after one of the events that it may go back to.

use super::model::{Events, FrozenBy, HandOff, Holdings, Known};
use super::{DEVICES, World, destination, name};
use crate::looks::{Keys, read};
use crate::support::Content;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use waystation::storage::SimStorage;
use waystation::storage::sim::Crash;
use waystation::{DeviceLevel, IterOptions, Ticket};

/// What a database shows of a device.
struct Shown {
    is_present: bool,
    rows: Content,
    ticket: Option<Ticket>,
    stub: Option<String>,
}

/// A machine that has ended already, and how.
pub(super) type Left = (Arc<SimStorage>, Crash);

impl World<'_> {
    pub(super) fn random_crash(&mut self) -> Crash {
        if self.random.one_in(3) {
            Crash::Process
        } else {
            Crash::PowerCut
        }
    }

    /// Ends `edge`, unless what is `left` of it is known, and opens it again.
    pub(super) fn end(&mut self, edge: usize, left: Option<Left>) {
        let (machine, crash) = left.unwrap_or_else(|| {
            let crash = self.random_crash();
            let seed = self.random.next();
            (self.edges[edge].machine.crash(seed, crash), crash)
        });
        let ends = match crash {
            Crash::Process => &self.tally.process_deaths,
            Crash::PowerCut => &self.tally.power_cuts,
        };
        ends.fetch_add(1, SeqCst);
        drop(self.edges[edge].db.take());
        self.edges[edge].machine = machine;
        self.start(edge);
        self.edges[edge].lost_power |= crash == Crash::PowerCut;
        self.find(edge, &format!("{crash:?}"));
    }

    /// Closes `edge` and opens it again.
    pub(super) fn reopen(&mut self, edge: usize) {
        if let Some(db) = self.edges[edge].db.take()
            && let Err(error) = db.close()
            && !self.edges[edge].rules.is_halted()
        {
            self.fail(&format!("close: {error}"));
        }
        if self.edges[edge].rules.is_halted() {
            return self.end(edge, None);
        }
        self.start(edge);
        self.find(edge, "close");
    }

    /// Finds out which event an edge went back to, which was opened after `how`.
    fn find(&mut self, edge: usize, how: &str) {
        let shown = match self.shown(edge) {
            Ok(shown) => shown,
            Err(_) if self.edges[edge].rules.is_halted() => return self.end(edge, None),
            Err(error) => self.fail(&format!("edge {edge} after {how}: {error}")),
        };
        let is_power_cut = std::mem::take(&mut self.edges[edge].lost_power);
        let events = &self.edges[edge].events;
        let fits = |holdings: &&Holdings| self.fits(holdings, &shown);
        let found = events.left(is_power_cut).find(fits).cloned();
        let Some(holdings) = found else {
            let told = Self::told(&shown, &events.left(is_power_cut).collect::<Vec<_>>());
            self.fail(&format!("edge {edge} after {how}: {told}"));
        };
        let arriving = |it: &&mut HandOff| it.to == edge && it.from != edge;
        for hand_off in self.hand_offs.iter_mut().filter(arriving) {
            let rows = holdings[hand_off.device].rows.as_ref();
            hand_off.is_admitted |= rows.is_some_and(|it| Arc::ptr_eq(it, &hand_off.rows));
        }
        self.edges[edge].events = Events::new(holdings);
        for (device, shown) in shown.into_iter().enumerate() {
            if self.known(edge, device).frozen == Some(FrozenBy::Unknown) {
                self.learn_ticket(edge, device, shown.ticket);
            }
        }
    }

    /// Whether a running edge holds what it should.
    pub(super) fn check(&self, edge: usize) {
        let shown = match self.shown(edge) {
            Ok(shown) => shown,
            Err(_) if self.edges[edge].rules.is_halted() => return,
            Err(error) => self.fail(&format!("edge {edge}: {error}")),
        };
        if !self.fits(self.edges[edge].events.now(), &shown) {
            let told = Self::told(&shown, &[self.edges[edge].events.now()]);
            self.fail(&format!("edge {edge}: {told}"));
        }
    }

    fn shown(&self, edge: usize) -> waystation::Result<Vec<Shown>> {
        let db = self.db(edge);
        let mut tickets = db.devices().exports()?;
        let devices = db.devices().list()?;
        let shown = |device: usize| {
            let prefix = [&name(device)[..], b":"].concat();
            let rows = read(db, IterOptions::prefix(prefix), device == 0, Keys::All)?;
            let mut present = devices
                .iter()
                .filter(|it| it.level != DeviceLevel::Departed);
            let mut of_device = tickets.extract_if(.., |it| it.device == name(device));
            Ok(Shown {
                is_present: present.any(|it| it.name == name(device)),
                rows,
                ticket: of_device.next(),
                stub: db.devices().moved_to(&name(device))?,
            })
        };
        (0..DEVICES).map(shown).collect()
    }

    fn fits(&self, holdings: &Holdings, shown: &[Shown]) -> bool {
        let fits = |known: &Known, shown: &Shown| {
            let rows = known.rows.as_deref();
            let is_frozen = match known.frozen {
                None => shown.ticket.is_none(),
                Some(FrozenBy::Unknown) => shown.ticket.is_some(),
                Some(FrozenBy::HandOff(number)) => {
                    shown.ticket.as_ref() == Some(&self.hand_offs[number].ticket)
                }
            };
            rows.map_or(shown.rows.is_empty(), |rows| *rows == shown.rows)
                && is_frozen
                && known.stub.is_some() == shown.stub.is_some()
                && known.rows.is_some() == shown.is_present
        };
        holdings
            .iter()
            .zip(shown)
            .all(|(known, shown)| fits(known, shown))
    }

    /// What is shown, and what might be.
    fn told(shown: &[Shown], expected: &[&Holdings]) -> String {
        let keys = |rows: &Content| -> Vec<_> {
            let named = rows.iter().map(|(key, value)| {
                let written = value.first_chunk().map(|it| u64::from_le_bytes(*it));
                format!("{}@{written:?}", key.escape_ascii())
            });
            named.collect()
        };
        let mut told = vec!["wrong holdings".to_owned()];
        for (device, shown) in shown.iter().enumerate() {
            let ticket = shown.ticket.as_ref().map(|it| it.sequence);
            let rows = shown.is_present.then(|| keys(&shown.rows));
            let stub = &shown.stub;
            told.push(format!(
                "device {device}: {rows:?} frozen {ticket:?} stub {stub:?}"
            ));
            for known in expected.iter().map(|it| &it[device]) {
                let rows = known.rows.as_deref().map(keys);
                told.push(format!(
                    "  expected: {rows:?} {:?} stub {:?}",
                    known.frozen, known.stub
                ));
            }
        }
        told.join("\n")
    }

    /// Exports a device again that was frozen by a call which failed.
    fn learn_ticket(&mut self, edge: usize, device: usize, ticket: Option<Ticket>) {
        let to = ticket.map(|ticket| ticket.destination);
        let to = (0..super::EDGES).find(|it| Some(destination(*it)) == to);
        self.export(edge, device, to.expect("one of the edges"));
    }
}
