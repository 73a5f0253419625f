//! Where every vehicle is, and what it has sent: from the trace alone.
//!
//! A *stay* is the time from a vehicle's arrival from outside to its departure; all it sends meanwhile travels with it.

use super::Sum;
use crate::city::reading::Plan;
use crate::city::trace::{Event, Kind, Trace};
use std::collections::HashMap;

/// From a vehicle's arrival in a cell to its leaving.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Visit {
    cell: usize,
    /// It sends from this second on.
    from: u32,
    /// It sends nothing from this second on.
    until: u32,
    /// Its data is in the cell until this second: that of its next arrival, if it goes on.
    gone_at: u32,
    /// Which of the vehicle's visits its stay began with.
    first: usize,
    /// Whether the stay ends with this visit.
    departs: bool,
    /// All that it has sent in this stay by the end of the visit.
    pub(super) sum: Sum,
}

/// Everything that should be.
#[derive(Debug)]
pub(super) struct Expected {
    plan: Plan,
    visits: HashMap<u32, Vec<Visit>>,
}

impl Expected {
    pub(super) fn new(trace: &Trace, plan: Plan) -> Self {
        let mut events: HashMap<u32, Vec<Event>> = HashMap::new();
        for event in &trace.events {
            events.entry(event.vehicle).or_default().push(*event);
        }
        let visits = events
            .into_iter()
            .map(|(vehicle, events)| (vehicle, visits(plan, &events)))
            .collect();
        Self { plan, visits }
    }

    /// A visit to `cell` whose data is gone at second `at`, to another cell or (`departs`) for good. There may be several
    /// within a second; nothing is sent between them.
    pub(super) fn leaving(
        &self,
        vehicle: u32,
        cell: usize,
        at: u32,
        departs: bool,
    ) -> Option<&Visit> {
        let mut visits = self.visits.get(&vehicle)?.iter();
        visits.find(|visit| visit.gone_at == at && visit.cell == cell && visit.departs == departs)
    }

    /// Who has data in a cell at the beginning of second `now`.
    pub(super) fn residents(&self, cell: usize, now: u32) -> Vec<(u32, &Visit)> {
        let here = |visit: &&Visit| visit.cell == cell && visit.from < now && now <= visit.gone_at;
        let residents = self.visits.iter().filter_map(|(vehicle, visits)| {
            visits.iter().find(here).map(|visit| (*vehicle, visit))
        });
        residents.collect()
    }

    /// What a vehicle has sent in the stay of `visit` until the beginning of second `now`.
    pub(super) fn sum_at(&self, visit: &Visit, vehicle: u32, now: u32) -> Sum {
        if now >= visit.until {
            return visit.sum;
        }
        let mut sum = Sum::default();
        for (from, until) in self.spans(vehicle, now) {
            add(&mut sum, self.plan, vehicle, from, until);
        }
        sum
    }

    /// When a vehicle sends in the stay that it is in shortly before second `now`, up to `now`.
    pub(super) fn spans(&self, vehicle: u32, now: u32) -> Vec<(u32, u32)> {
        let visits = self.visits.get(&vehicle).map_or(&[][..], Vec::as_slice);
        let begun = visits.partition_point(|visit| visit.from < now);
        let Some(current) = begun.checked_sub(1) else {
            return Vec::new();
        };
        visits[visits[current].first..=current]
            .iter()
            .map(|visit| (visit.from, visit.until.min(now)))
            .collect()
    }

    /// How many readings are sent until the beginning of second `now`, by all.
    pub(super) fn total(&self, now: u32) -> u64 {
        let sent = self.visits.iter().map(|(vehicle, visits)| {
            let spans = visits.iter().filter(|visit| visit.from < now);
            spans
                .map(|visit| {
                    self.plan
                        .readings(*vehicle, visit.from, visit.until.min(now))
                })
                .map(|readings| readings.count() as u64)
                .sum::<u64>()
        });
        sent.sum()
    }
}

fn add(sum: &mut Sum, plan: Plan, vehicle: u32, from: u32, until: u32) {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for reading in plan.readings(vehicle, from, until) {
        reading.key(&mut key);
        reading.value(plan.value_bytes, &mut value);
        sum.add(&key, &value);
    }
}

/// The visits of a vehicle, whose events alternate.
fn visits(plan: Plan, events: &[Event]) -> Vec<Visit> {
    let mut visits: Vec<Visit> = Vec::with_capacity(events.len() / 2 + 1);
    for pair in events.chunks(2) {
        let arrival = pair[0];
        debug_assert_eq!(arrival.kind, Kind::Arrives);
        let continues = visits
            .last()
            .is_some_and(|last| arrival.at - last.until <= 1);
        let index = visits.len();
        let (first, mut sum) = match visits.last_mut() {
            Some(last) if continues => {
                last.departs = false;
                last.gone_at = arrival.at;
                (last.first, last.sum)
            }
            _ => (index, Sum::default()),
        };
        let until = pair.get(1).map_or(u32::MAX, |leaving| leaving.at);
        if until != u32::MAX {
            add(&mut sum, plan, arrival.vehicle, arrival.at, until);
        }
        visits.push(Visit {
            cell: arrival.cell,
            from: arrival.at,
            until,
            gone_at: until,
            first,
            departs: until != u32::MAX,
            sum,
        });
    }
    visits
}
