//! What the city has to do when: the trace, vehicle by vehicle.
//!
//! A leaving that is followed by an arrival within a second is a hand-off; any other is a true departure. The pair is
//! taken for what it is at the arrival, when both are known.

use super::trace::{Event, Kind, Trace};
use std::collections::HashMap;

/// How long after its leaving a vehicle's arrival elsewhere still continues its journey (seconds).
const GAP_MAX: u32 = 1;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// The vehicle comes from outside the city.
    Arrive {
        /// Where it is then.
        cell: usize,
    },
    /// It has left a cell and has not arrived in another: it sends nothing.
    Pause,
    /// It is back in the cell that it has just left.
    Resume,
    /// All it has goes from one cell to the other.
    HandOff {
        /// The cell that it leaves.
        from: usize,
        /// The cell that it is in then.
        to: usize,
    },
    /// It leaves the city.
    Depart {
        /// The cell that it leaves.
        from: usize,
    },
}

/// One thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Action {
    /// When (seconds).
    pub(crate) at: u32,
    /// For which vehicle.
    pub(crate) vehicle: u32,
    /// What.
    pub(crate) deed: Deed,
}

/// All there is to do, in order of time.
pub(crate) fn actions(trace: &Trace) -> Vec<Action> {
    // The next event of each event's vehicle.
    let mut next: Vec<Option<Event>> = vec![None; trace.events.len()];
    let mut later: HashMap<u32, Event> = HashMap::new();
    for (index, event) in trace.events.iter().enumerate().rev() {
        next[index] = later.insert(event.vehicle, *event);
    }
    let mut left: HashMap<u32, Event> = HashMap::new();
    let mut actions = Vec::with_capacity(trace.events.len());
    for (event, next) in trace.events.iter().zip(next) {
        let deed = match event.kind {
            Kind::Arrives => match left.remove(&event.vehicle) {
                None => Some(Deed::Arrive { cell: event.cell }),
                Some(leaving) if leaving.cell == event.cell => Some(Deed::Resume),
                Some(leaving) => Some(Deed::HandOff {
                    from: leaving.cell,
                    to: event.cell,
                }),
            },
            Kind::Leaves => match next {
                Some(arrival) if arrival.at - event.at <= GAP_MAX => {
                    left.insert(event.vehicle, *event);
                    (arrival.at > event.at || arrival.cell == event.cell).then_some(Deed::Pause)
                }
                _ => Some(Deed::Depart { from: event.cell }),
            },
        };
        actions.extend(deed.map(|deed| Action {
            at: event.at,
            vehicle: event.vehicle,
            deed,
        }));
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_trace_that_comes_along_has_as_many_hand_offs_as_its_page_says() {
        let actions = actions(&Trace::load(None).unwrap());
        let count = |wanted: fn(&Deed) -> bool| {
            actions.iter().filter(|action| wanted(&action.deed)).count()
        };
        assert_eq!(count(|deed| matches!(deed, Deed::HandOff { .. })), 60_524);
        assert_eq!(count(|deed| matches!(deed, Deed::Depart { .. })), 11_177);
        assert_eq!(count(|deed| matches!(deed, Deed::Arrive { .. })), 11_177);
        assert!(actions.is_sorted_by_key(|action| action.at));
    }

    #[test]
    fn a_gap_of_a_second_is_a_hand_off_and_a_longer_one_is_not() {
        let lines = "t_s,device,cell,event\n0,1,0,A\n5,1,0,L\n6,1,3,A\n9,1,3,L\n9,1,3,A\n12,1,3,L\n14,1,0,A\n";
        let trace = Trace::read(Path::new("t"), lines.as_bytes()).unwrap();
        let deeds: Vec<(u32, Deed)> = actions(&trace).iter().map(|it| (it.at, it.deed)).collect();
        let expected = [
            (0, Deed::Arrive { cell: 0 }),
            (5, Deed::Pause),
            (6, Deed::HandOff { from: 0, to: 1 }),
            (9, Deed::Pause),
            (9, Deed::Resume),
            (12, Deed::Depart { from: 1 }),
            (14, Deed::Arrive { cell: 0 }),
        ];
        assert_eq!(deeds, expected);
    }
}
