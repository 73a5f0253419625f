//! Shares: how many shards each node gets, by weights.
//!
//! A weight is a node's speed. Shares follow the weights by the method of largest remainders: each node gets the whole
//! part of its quota, and the shards that are left go to the largest remainders. So no share is a whole shard away from
//! its quota, and the shares are all the shards.

/// Divides `shards` by `weights`. Weights that are not positive numbers count nothing; without any other all count the
/// same.
///
/// ```
/// use waystation_documents::database::shares;
/// assert_eq!(shares(&[3.0, 1.0, 1.0, 1.0], 24), [12, 4, 4, 4]);
/// assert_eq!(shares(&[2.9, 1.0], 8), [6, 2]);
/// ```
pub fn shares(weights: &[f64], shards: usize) -> Vec<usize> {
    let is_weight = |weight: f64| weight.is_finite() && weight > 0.0;
    let mut weights: Vec<f64> = weights
        .iter()
        .map(|weight| if is_weight(*weight) { *weight } else { 0.0 })
        .collect();
    // Weights near the largest number would have no sum.
    let largest = weights.iter().copied().fold(0.0, f64::max);
    for weight in &mut weights {
        *weight = if largest > 0.0 {
            *weight / largest
        } else {
            1.0
        };
    }
    let sum: f64 = weights.iter().sum();
    let quota = |weight: &f64| weight / sum * shards as f64;
    #[expect(
        clippy::cast_sign_loss,
        reason = "a quota is between 0 and the number of shards"
    )]
    let mut shares: Vec<usize> = weights
        .iter()
        .map(|it| quota(it).floor() as usize)
        .collect();
    let mut by_remainder: Vec<usize> = (0..weights.len()).collect();
    // Of equal remainders the first is served first: the order is stable.
    by_remainder.sort_by(|one, other| {
        let [one, other] = [one, other].map(|at| quota(&weights[*at]).fract());
        other.total_cmp(&one)
    });
    let left = shards.saturating_sub(shares.iter().sum());
    for at in by_remainder.into_iter().cycle().take(left) {
        shares[at] += 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shares_follow_weights_by_largest_remainders() {
        assert_eq!(shares(&[1.0, 1.0, 1.0], 8), [3, 3, 2]);
        assert_eq!(shares(&[2.6, 1.0, 1.0, 1.0], 16), [7, 3, 3, 3]);
        assert_eq!(shares(&[5.0, 1.0], 1), [1, 0]);
        assert_eq!(shares(&[0.0, 0.0], 3), [2, 1]);
        assert_eq!(
            shares(&[f64::NAN, 1.0, f64::INFINITY, -1.0], 4),
            [0, 4, 0, 0]
        );
        assert_eq!(shares(&[f64::MAX, f64::MAX], 4), [2, 2]);
        assert_eq!(shares(&[], 4), Vec::<usize>::new());
    }

    proptest! {
        #[test]
        fn all_shards_are_shared_and_no_share_is_a_shard_off(
            weights in prop::collection::vec(0.01..100.0f64, 1..10),
            shards in 0..100usize,
        ) {
            let shares = shares(&weights, shards);
            prop_assert_eq!(shares.iter().sum::<usize>(), shards);
            let sum: f64 = weights.iter().sum();
            for (share, weight) in shares.iter().zip(&weights) {
                let quota = weight / sum * shards as f64;
                prop_assert!((*share as f64 - quota).abs() < 1.0 + 1e-9, "{} of {}", share, quota);
            }
        }
    }
}
