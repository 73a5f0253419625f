//! The questions that a cell answers about a vehicle that is in it.
//!
//! - *latest*: the newest reading of a sensor;
//! - *range*: a sensor's readings of the first minute of the vehicle's stay, which lie where old data lies;
//! - *windows*: count, mean, least and most of a sensor in the last minute, beside those of a minute of the half hour
//!   before (the pair of TPCx-IoT).

use super::audit::{Answer, Audit};
use super::edge::{Edge, Result};
use super::reading::{Plan, Reading, measured, mix};

/// How long a range, or a window, is (milliseconds).
const SPAN_MS: u64 = 60_000;
/// How far back the second window may begin (milliseconds).
const BACK_MS: u64 = 1_800_000;

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query {
    vehicle: u32,
    sensor: u32,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// The newest reading before a time.
    Latest(u64),
    /// From a time on, before another.
    Range(u64, u64),
    /// Two ranges to be summed up.
    Windows([(u64, u64); 2]),
}

/// What a window holds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Aggregate {
    count: u64,
    sum: u64,
    least: u64,
    most: u64,
}

impl Query {
    /// A question by chance about a vehicle whose stay began at second `since`, at the end of second `now`.
    pub(crate) fn choose(plan: Plan, vehicle: u32, since: u32, now: u32, random: u64) -> Self {
        let random = mix(random);
        let sensor = (random >> 32) as u32 % plan.sensors;
        let (start, end) = (u64::from(since) * 1_000, u64::from(now + 1) * 1_000);
        let what = match random % 3 {
            0 => What::Latest(end),
            1 => What::Range(start, (start + SPAN_MS).min(end)),
            _ => {
                let last = end.saturating_sub(SPAN_MS);
                let earliest = last.saturating_sub(BACK_MS).max(start.min(last));
                let earlier = earliest + mix(random) % (last - earliest + 1);
                What::Windows([(last, end), (earlier, (earlier + SPAN_MS).min(end))])
            }
        };
        Self {
            vehicle,
            sensor,
            what,
        }
    }

    /// Its place in [`QUERIES`](super::meters::QUERIES).
    pub(crate) fn kind(&self) -> usize {
        match self.what {
            What::Latest(_) => 0,
            What::Range(..) => 1,
            What::Windows(_) => 2,
        }
    }

    /// Asks `edge`: one answer for each span.
    pub(crate) fn ask<E: Edge>(&self, edge: &E) -> Result<Vec<Answer>> {
        match &self.what {
            What::Latest(end) => {
                let (from, to) = (self.key(0), self.key(*end));
                let found = edge.last(&from, &to)?;
                Ok(vec![found.map_or_else(Answer::default, |(key, _)| {
                    Answer {
                        count: 1,
                        last_ms: time_of(&key),
                    }
                })])
            }
            What::Range(from, to) => Ok(vec![self.range(edge, (*from, *to))?.0]),
            What::Windows(spans) => {
                let mut answers = Vec::with_capacity(spans.len());
                for span in spans {
                    let (answer, aggregate) = self.range(edge, *span)?;
                    // What a caller would be told.
                    std::hint::black_box((aggregate, aggregate.sum / aggregate.count.max(1)));
                    answers.push(answer);
                }
                Ok(answers)
            }
        }
    }

    /// Whether `answers` are what the trace says.
    pub(crate) fn is_right(&self, audit: &Audit, now: u32, answers: &[Answer]) -> bool {
        let expected = |span| audit.answer(self.vehicle, self.sensor, now, span);
        match &self.what {
            What::Latest(end) => {
                // The audit counts them all; one is asked for.
                let all = expected((0, *end));
                let one = Answer {
                    count: all.count.min(1),
                    ..all
                };
                answers == [one]
            }
            What::Range(from, to) => answers == [expected((*from, *to))],
            What::Windows(spans) => answers == spans.map(expected),
        }
    }

    fn range<E: Edge>(&self, edge: &E, (from, to): (u64, u64)) -> Result<(Answer, Aggregate)> {
        let mut answer = Answer::default();
        let mut aggregate = Aggregate {
            count: 0,
            sum: 0,
            least: u64::MAX,
            most: 0,
        };
        edge.scan(&self.key(from), &self.key(to), &mut |key, value| {
            let measured = measured(value);
            answer.count += 1;
            answer.last_ms = time_of(key);
            aggregate.count += 1;
            aggregate.sum += measured;
            aggregate.least = aggregate.least.min(measured);
            aggregate.most = aggregate.most.max(measured);
        })?;
        Ok((answer, aggregate))
    }

    fn key(&self, at_ms: u64) -> Vec<u8> {
        let mut key = Vec::new();
        let reading = Reading {
            vehicle: self.vehicle,
            sensor: self.sensor,
            at_ms,
        };
        reading.key(&mut key);
        key
    }
}

/// The time that a key ends with.
fn time_of(key: &[u8]) -> Option<u64> {
    let digits = key.rsplit(|byte| *byte == b':').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_lie_within_the_stay() {
        let plan = Plan {
            interval_us: 500_000,
            sensors: 4,
            value_bytes: 8,
        };
        let mut kinds = [0; 3];
        for random in 0..3_000 {
            let (since, now) = (100, 100 + random as u32 % 2_500);
            let query = Query::choose(plan, 5, since, now, random);
            kinds[query.kind()] += 1;
            assert!(query.sensor < 4);
            let end = u64::from(now + 1) * 1_000;
            let spans = match query.what {
                What::Latest(at) => vec![(0, at)],
                What::Range(from, to) => vec![(from, to)],
                What::Windows(spans) => spans.to_vec(),
            };
            assert!(
                spans.iter().all(|(from, to)| from < to && *to <= end),
                "{spans:?}"
            );
        }
        assert!(kinds.iter().all(|count| *count > 800), "{kinds:?}");
    }

    #[test]
    fn a_key_ends_with_its_time() {
        assert_eq!(time_of(b"car0000001:speed:0000012345"), Some(12_345));
        assert_eq!(time_of(b"nothing"), None);
    }
}
