//! The planner on cases small enough to reckon by hand.

use proptest::prelude::*;

use super::*;

fn curve(points: &[(u64, f64)]) -> Curve {
    Curve {
        points: points
            .iter()
            .map(|&(bytes, gain)| Point { bytes, gain })
            .collect(),
    }
}

#[test]
fn a_step_that_fits_is_taken_over_a_slope_that_is_steeper_at_first() {
    // Greedy would begin with the slope's first megabyte and never afford the step.
    let slope = curve(&[(1, 5.0), (2, 6.0), (10, 10.0)]);
    let step = curve(&[(10, 40.0)]);
    let best = &split(&[slope, step], 10)[0];
    assert_eq!(best.chosen, [None, Some(0)]);
    assert_eq!(best.bytes, 10);
}

#[test]
fn nothing_is_a_choice_and_losses_are_not() {
    let best = split(&[curve(&[(4, -1.0), (8, 0.0)])], 100);
    assert_eq!(best.len(), 1);
    assert_eq!(best[0].chosen, [None]);
    assert!(split(&[], 5)[0].gain.abs() < 1e-12);
}

#[test]
fn the_hottest_blocks_come_first_and_ties_by_number() {
    let heat = |block, saved| Heat { block, saved };
    let blocks = vec![heat(9, 1), heat(3, 7), heat(1, 7), heat(5, 9)];
    assert_eq!(hottest(blocks, 3), [heat(5, 9), heat(1, 7), heat(3, 7)]);
}

#[test]
fn marginal_worth_falls_where_the_curve_flattens() {
    let steps = marginal(&curve(&[(10, 10.0), (5, 8.0)]));
    assert_eq!(steps, [(5, 1.6), (10, 0.4)]);
}

proptest! {
    /// Against trying every combination.
    #[test]
    fn the_split_is_the_best_of_all(
        curves in prop::collection::vec(prop::collection::vec((1..20_u64, 0..50_u32), 0..5), 0..4),
        capacity in 0..40_u64,
    ) {
        let curves: Vec<Curve> = curves
            .iter()
            .map(|points| curve(&points.iter().map(|&(bytes, gain)| (bytes, f64::from(gain))).collect::<Vec<_>>()))
            .collect();
        let mut best = 0.0_f64;
        let mut stack = vec![(0_usize, 0_u64, 0.0_f64)];
        while let Some((area, bytes, gain)) = stack.pop() {
            if area == curves.len() {
                best = best.max(gain);
                continue;
            }
            stack.push((area + 1, bytes, gain));
            for point in &curves[area].points {
                if bytes + point.bytes <= capacity {
                    stack.push((area + 1, bytes + point.bytes, gain + point.gain));
                }
            }
        }
        let found = &split(&curves, capacity)[0];
        prop_assert!((found.gain - best).abs() < 1e-9);
        prop_assert!(found.bytes <= capacity);
        let again: u64 = found.chosen.iter().zip(&curves).filter_map(|(chosen, curve)| chosen.map(|at| curve.points[at].bytes)).sum();
        prop_assert_eq!(again, found.bytes);
    }
}
