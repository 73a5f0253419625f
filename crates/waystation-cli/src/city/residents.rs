//! Who is in which cell since when, as the coordinator of a run sees it: by what has happened.

use super::drive::CellFigures;
use super::residency::Learner;
use super::worker::Move;
use std::collections::HashMap;

/// A vehicle in a cell.
#[derive(Debug, Clone, Copy)]
struct Resident {
    since: u32,
    has_settled: bool,
}

/// One cell.
#[derive(Debug, Clone)]
struct Place {
    vehicles: HashMap<u32, Resident>,
    learner: Learner,
    visits: u64,
    settled: u64,
}

/// All cells.
#[derive(Debug)]
pub(super) struct Residents(Vec<Place>);

impl Residents {
    pub(super) fn new(cells: usize) -> Self {
        let place = Place {
            vehicles: HashMap::new(),
            learner: Learner::new(),
            visits: 0,
            settled: 0,
        };
        Self(vec![place; cells])
    }

    /// Takes in moves, in each vehicle's order.
    pub(super) fn moved(&mut self, moves: &mut Vec<Move>) {
        for moved in moves.drain(..) {
            let left = moved.from.map(|from| &mut self.0[from]);
            if let Some(place) = left
                && let Some(resident) = place.vehicles.remove(&moved.vehicle)
            {
                place.learner.left(moved.at - resident.since);
                place.visits += 1;
                place.settled += u64::from(resident.has_settled);
            }
            if let Some(to) = moved.to {
                let resident = Resident {
                    since: moved.at,
                    has_settled: false,
                };
                self.0[to].vehicles.insert(moved.vehicle, resident);
            }
        }
    }

    /// Who has stayed longer than the cell's residency at second `now`, cell by cell; each is named once.
    pub(super) fn due(&mut self, now: u32) -> Vec<(usize, Vec<u32>)> {
        let mut due = Vec::new();
        for (cell, place) in self.0.iter_mut().enumerate() {
            let residency = place.learner.residency();
            let mut vehicles = Vec::new();
            for (vehicle, resident) in &mut place.vehicles {
                if !resident.has_settled && resident.since.saturating_add(residency) <= now {
                    resident.has_settled = true;
                    vehicles.push(*vehicle);
                }
            }
            if !vehicles.is_empty() {
                vehicles.sort_unstable();
                due.push((cell, vehicles));
            }
        }
        due
    }

    /// The least, the median and the most of the cells' residencies (seconds).
    pub(super) fn residencies(&self) -> [u32; 3] {
        let residency = |place: &Place| place.learner.residency();
        let mut all: Vec<u32> = self.0.iter().map(residency).collect();
        all.sort_unstable();
        [0, all.len() / 2, all.len().saturating_sub(1)]
            .map(|index| all.get(index).copied().unwrap_or(0))
    }

    /// What each cell has seen; `names` are theirs in the trace.
    pub(super) fn figures(&self, names: &[String]) -> Vec<CellFigures> {
        let figures = |(name, place): (&String, &Place)| CellFigures {
            cell: name.clone(),
            visits: place.visits,
            settled: place.settled,
            residency_s: place.learner.residency(),
        };
        names.iter().zip(&self.0).map(figures).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(at: u32, vehicle: u32, from: Option<usize>, to: Option<usize>) -> Move {
        Move {
            at,
            vehicle,
            from,
            to,
        }
    }

    #[test]
    fn who_stays_longer_than_the_residency_is_named_once() {
        let mut residents = Residents::new(2);
        residents.moved(&mut vec![
            moved(0, 1, None, Some(0)),
            moved(100, 2, None, Some(0)),
        ]);
        assert_eq!(residents.due(119), []);
        assert_eq!(residents.due(120), [(0, vec![1])]);
        assert_eq!(residents.due(130), []);
        residents.moved(&mut vec![moved(150, 1, Some(0), Some(1))]);
        assert_eq!(residents.due(269), [(0, vec![2])]);
        assert_eq!(
            residents.due(270),
            [(1, vec![1])],
            "in a new cell it begins anew"
        );
        let figures = residents.figures(&["7".to_owned(), "8".to_owned()]);
        assert_eq!((figures[0].visits, figures[0].settled), (1, 1));
        assert_eq!((figures[1].cell.as_str(), figures[1].visits), ("8", 0));
    }

    #[test]
    fn a_cell_learns_from_those_who_have_left_and_from_no_others() {
        let all: Vec<Move> = (0..100)
            .flat_map(|car| {
                let arrives = moved(car, car, None, Some(0));
                [arrives, moved(car + 10 + car, car, Some(0), None)]
            })
            .collect();
        let mut early = Residents::new(1);
        let mut past: Vec<Move> = all.iter().copied().filter(|it| it.at < 80).collect();
        past.sort_by_key(|it| it.at);
        early.moved(&mut past.clone());
        // The same past with another future gives the same residency.
        let mut other = Residents::new(1);
        past.extend(std::iter::once(moved(80, 500, None, Some(0))));
        other.moved(&mut past);
        assert_eq!(early.residencies(), other.residencies());
        assert!(early.residencies()[0] < 45, "{:?}", early.residencies());
        early.moved(&mut all.iter().copied().filter(|it| it.at >= 80).collect());
        assert!(early.residencies()[0] > 80, "{:?}", early.residencies());
    }
}
