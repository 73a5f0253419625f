//! A worker: some of the vehicles, through the whole city.
//!
//! Vehicles are dealt to workers once, so what happens to a vehicle happens in order, and a hand-off is made by the
//! one worker that writes for that vehicle. Within a second first come arrivals, hand-offs and departures, then what
//! the vehicles send, then questions about them. The audit looks on at every leave.

use super::audit::Audit;
use super::edge::{Edge, Result};
use super::error::EdgeError;
use super::journey::{Action, Deed};
use super::machine;
use super::meters::Meters;
use super::query::Query;
use super::reading::{Plan, mix, name};
use std::collections::HashMap;
use std::mem;

/// One of so many queries is watched for reading storage.
const WATCHED: u64 = 16;

/// What all workers know.
pub(crate) struct Common<'a> {
    pub(crate) plan: Plan,
    pub(crate) audit: &'a Audit,
    /// Questions a vehicle is asked about in 1,000,000 seconds.
    pub(crate) queries_per_million: u64,
}

/// A vehicle that is in the city.
#[derive(Debug, Clone, Copy)]
struct Present {
    vehicle: u32,
    cell: usize,
    /// When its stay began.
    since: u32,
    is_paused: bool,
}

/// A vehicle that came to a cell, or left it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Move {
    pub(crate) at: u32,
    pub(crate) vehicle: u32,
    pub(crate) from: Option<usize>,
    pub(crate) to: Option<usize>,
}

/// A failure and the cell that it is about.
pub(crate) type CellResult<T> = std::result::Result<T, (usize, EdgeError)>;

/// One worker's vehicles and what it has counted.
pub(crate) struct Worker {
    actions: Vec<Action>,
    next: usize,
    present: Vec<Present>,
    /// Places in `present`.
    places: HashMap<u32, usize>,
    pub(crate) meters: Meters,
    pub(crate) moves: Vec<Move>,
    key: Vec<u8>,
    value: Vec<u8>,
    asked: u64,
}

impl Worker {
    /// Deals the vehicles to `count` workers.
    pub(crate) fn deal(actions: &[Action], count: usize) -> Vec<Self> {
        let mut dealt: Vec<Vec<Action>> = vec![Vec::new(); count];
        for action in actions {
            let hash = mix(u64::from(action.vehicle));
            dealt[(hash % count as u64) as usize].push(*action);
        }
        let worker = |actions| Self {
            actions,
            next: 0,
            present: Vec::new(),
            places: HashMap::new(),
            meters: Meters::default(),
            moves: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
            asked: 0,
        };
        dealt.into_iter().map(worker).collect()
    }

    /// Vehicles in the city.
    pub(crate) fn present(&self) -> usize {
        self.present.len()
    }

    /// Does what there is to do from second `from` up to second `until`.
    pub(crate) fn drive<E: Edge>(
        &mut self,
        common: &Common<'_>,
        cells: &[E],
        from: u32,
        until: u32,
    ) -> CellResult<()> {
        for second in from..until {
            while let Some(action) = self.actions.get(self.next).copied()
                && action.at <= second
            {
                self.next += 1;
                self.act(common, cells, action)?;
            }
            for place in 0..self.present.len() {
                let present = self.present[place];
                if !present.is_paused {
                    let edge = &cells[present.cell];
                    self.send(common, edge, present.vehicle, second)
                        .and_then(|()| self.ask(common, edge, present, second))
                        .map_err(|error| (present.cell, error))?;
                }
            }
        }
        Ok(())
    }

    /// Sends what vehicles have that stay long to the tree of `cell`.
    pub(crate) fn settle<E: Edge>(&mut self, edge: &E, vehicles: &[u32]) -> Result<()> {
        let names: Vec<Vec<u8>> = vehicles.iter().map(|vehicle| name(*vehicle)).collect();
        let started = machine::now();
        if edge.settle(&names)? {
            self.meters.settle.record(started.elapsed());
            self.meters.counts.settled += vehicles.len() as u64;
        }
        Ok(())
    }

    fn act<E: Edge>(&mut self, common: &Common<'_>, cells: &[E], action: Action) -> CellResult<()> {
        let Action { at, vehicle, deed } = action;
        let mut moved = |from, to| {
            self.moves.push(Move {
                at,
                vehicle,
                from,
                to,
            });
        };
        match deed {
            Deed::Arrive { cell } => {
                moved(None, Some(cell));
                let welcome = cells[cell].welcome(&name(vehicle));
                welcome.map_err(|error| (cell, error))?;
                self.places.insert(vehicle, self.present.len());
                self.present.push(Present {
                    vehicle,
                    cell,
                    since: at,
                    is_paused: false,
                });
            }
            Deed::Pause => self.present[self.places[&vehicle]].is_paused = true,
            Deed::Resume => self.present[self.places[&vehicle]].is_paused = false,
            Deed::HandOff { from, to } => {
                moved(Some(from), Some(to));
                let handed = self.hand_off(common, cells, (from, to), vehicle, at);
                handed.map_err(|error| (from, error))?;
                let present = &mut self.present[self.places[&vehicle]];
                (present.cell, present.is_paused) = (to, false);
            }
            Deed::Depart { from } => {
                moved(Some(from), None);
                let departed = self.depart(common, &cells[from], from, vehicle, at);
                departed.map_err(|error| (from, error))?;
                let place = self.places.remove(&vehicle).unwrap_or(usize::MAX);
                self.present.swap_remove(place);
                if let Some(moved) = self.present.get(place) {
                    self.places.insert(moved.vehicle, place);
                }
            }
        }
        Ok(())
    }

    fn hand_off<E: Edge>(
        &mut self,
        common: &Common<'_>,
        cells: &[E],
        (from, to): (usize, usize),
        vehicle: u32,
        at: u32,
    ) -> Result<()> {
        let (source, target) = (&cells[from], &cells[to]);
        let name = name(vehicle);
        let looked = machine::now();
        common.audit.leaving(source, from, vehicle, at, false)?;
        let started = machine::now();
        let carried = source.hand_off(&name, target)?;
        let done = machine::now();
        common.audit.left(source, vehicle)?;
        self.meters.audit += (started - looked) + done.elapsed();
        self.meters.hand_off.record(done - started);
        let counts = &mut self.meters.counts;
        counts.hand_offs += 1;
        counts.handed_records += carried.records;
        counts.handed_bytes += carried.bytes;
        Ok(())
    }

    fn depart<E: Edge>(
        &mut self,
        common: &Common<'_>,
        edge: &E,
        cell: usize,
        vehicle: u32,
        at: u32,
    ) -> Result<()> {
        let looked = machine::now();
        common.audit.leaving(edge, cell, vehicle, at, true)?;
        let started = machine::now();
        edge.depart(&name(vehicle))?;
        let done = machine::now();
        common.audit.left(edge, vehicle)?;
        self.meters.audit += (started - looked) + done.elapsed();
        self.meters.depart.record(done - started);
        self.meters.counts.departures += 1;
        Ok(())
    }

    /// What a vehicle sends in a second.
    fn send<E: Edge>(
        &mut self,
        common: &Common<'_>,
        edge: &E,
        vehicle: u32,
        second: u32,
    ) -> Result<()> {
        for reading in common.plan.readings(vehicle, second, second + 1) {
            reading.key(&mut self.key);
            reading.value(common.plan.value_bytes, &mut self.value);
            let started = machine::now();
            edge.put(&self.key, &self.value)?;
            self.meters.put.record(started.elapsed());
            self.meters.counts.readings += 1;
            self.meters.counts.reading_bytes += (self.key.len() + self.value.len()) as u64;
        }
        Ok(())
    }

    /// A question about a vehicle, now and then.
    fn ask<E: Edge>(
        &mut self,
        common: &Common<'_>,
        edge: &E,
        present: Present,
        second: u32,
    ) -> Result<()> {
        let random = mix(mix(u64::from(present.vehicle)) ^ u64::from(second));
        if random % 1_000_000 >= common.queries_per_million {
            return Ok(());
        }
        let query = Query::choose(common.plan, present.vehicle, present.since, second, random);
        let is_watched = self.asked.is_multiple_of(WATCHED);
        self.asked += 1;
        let before = if is_watched {
            machine::thread_read_bytes()
        } else {
            0
        };
        let started = machine::now();
        let answers = query.ask(edge)?;
        let done = machine::now();
        self.meters.queries[query.kind()].record(done - started);
        let counts = &mut self.meters.counts;
        counts.answered_rows += answers.iter().map(|answer| answer.count).sum::<u64>();
        if is_watched {
            counts.watched_queries += 1;
            counts.storage_queries += u64::from(machine::thread_read_bytes() > before);
        }
        let checked = machine::now();
        if !query.is_right(common.audit, second, &answers) {
            common.audit.wrong_answer();
        }
        self.meters.audit += checked.elapsed();
        Ok(())
    }

    /// What was counted since this was asked last.
    pub(crate) fn take_meters(&mut self) -> Meters {
        mem::take(&mut self.meters)
    }
}
