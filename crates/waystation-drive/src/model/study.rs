//! The three places compared: on the paper's terms, and by what each figure of the machine does to the result.

use super::bench::{Compactions, Outcome, run};
use super::config::{Load, Machine, ModelError};
use super::job::Place;
use serde::Serialize;

/// The places of the comparison: the host, then card and drive with 4 and with 9 decoders.
pub const PLACES: [(&str, Place); 5] = [
    ("host", Place::Host),
    ("card, 4 decoders", Place::Card { decoders: 4 }),
    ("card, 9 decoders", Place::Card { decoders: 9 }),
    ("drive, 4 decoders", Place::Drive { decoders: 4 }),
    ("drive, 9 decoders", Place::Drive { decoders: 9 }),
];
const HOST: usize = 0;
const CARD: [usize; 2] = [1, 2];
const DRIVE: [usize; 2] = [3, 4];

/// How a figure of the model came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Figures of the machine were chosen so that this one comes near the paper's.
    Fitted,
    /// It follows.
    Predicted,
}

/// A figure, beside the paper's where the paper is of this machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What it is.
    pub name: &'static str,
    /// The paper's, and whether the model was fitted to it.
    pub paper: Option<(f64, Origin)>,
    /// The model's.
    pub model: f64,
}

impl Row {
    /// By how much the model is off, in percent.
    pub fn off_percent(&self) -> Option<f64> {
        self.paper
            .map(|(paper, _)| (self.model / paper - 1.0) * 100.0)
    }
}

/// A machine under a load, in all places.
#[derive(Debug, Clone, Serialize)]
pub struct Study {
    /// The machine.
    pub machine: Machine,
    /// The load.
    pub load: Load,
    /// One outcome for each of [`PLACES`].
    pub outcomes: Vec<Outcome>,
}

impl Study {
    /// Runs the load in all places; `each` hears of a place before it is run.
    pub fn run(
        machine: &Machine,
        load: &Load,
        mut each: impl FnMut(&str),
    ) -> Result<Self, ModelError> {
        let outcomes = PLACES.iter().map(|&(name, place)| {
            each(name);
            run(machine, load, place, true)
        });
        Ok(Self {
            machine: machine.clone(),
            load: load.clone(),
            outcomes: outcomes.collect::<Result<_, _>>()?,
        })
    }

    /// The figures that the paper reports, fitted ones first.
    pub fn rows(&self) -> Vec<Row> {
        let row = |origin| {
            move |(name, paper, model)| Row {
                name,
                paper: self.machine.paper.then_some((paper, origin)),
                model,
            }
        };
        let fitted = self.fitted().into_iter().map(row(Origin::Fitted));
        let predicted = self.predicted().into_iter();
        fitted
            .chain(predicted.map(row(Origin::Predicted)))
            .collect()
    }

    /// Compactions below level 0: how much faster in one place than in another.
    fn deeper(&self, fast: usize, slow: usize) -> f64 {
        ratio(&self.outcomes[fast].deeper, &self.outcomes[slow].deeper)
    }

    /// The same for the whole load.
    fn total(&self, fast: usize, slow: usize) -> f64 {
        self.outcomes[slow].ns as f64 / self.outcomes[fast].ns as f64
    }

    /// The same for compactions of level 0.
    fn level0(&self, fast: usize, slow: usize) -> f64 {
        ratio(&self.outcomes[fast].level0, &self.outcomes[slow].level0)
    }

    /// Name, the paper's figure, and the model's.
    fn fitted(&self) -> [(&'static str, f64, f64); 5] {
        let rate = |place: usize| {
            let it = &self.outcomes[place];
            it.level0.plus(it.deeper).mb_s()
        };
        let (card, drive) = (CARD[0], DRIVE[0]);
        [
            (
                "level 1 and deeper: drive / host",
                1.712,
                self.deeper(drive, HOST),
            ),
            (
                "level 1 and deeper: card / host",
                1.286,
                self.deeper(card, HOST),
            ),
            (
                "level 1 and deeper: drive / card",
                1.33,
                self.deeper(drive, card),
            ),
            ("MB/s during compaction: drive", 639.0, rate(drive)),
            ("MB/s during compaction: card", 505.0, rate(card)),
        ]
    }

    fn predicted(&self) -> [(&'static str, f64, f64); 12] {
        let busy = |place: usize| {
            let share = |it: &Outcome| it.host_cpu_ns as f64 / it.ns as f64;
            share(&self.outcomes[place]) / share(&self.outcomes[HOST])
        };
        let ([card, card9], [drive, drive9]) = (CARD, DRIVE);
        [
            (
                "whole load, 4 decoders: drive / card",
                1.34,
                self.total(drive, card),
            ),
            (
                "whole load, 9 decoders: drive / card",
                1.31,
                self.total(drive9, card9),
            ),
            (
                "whole load, 4 decoders: drive / host",
                1.514,
                self.total(drive, HOST),
            ),
            (
                "whole load, 9 decoders: drive / host",
                1.552,
                self.total(drive9, HOST),
            ),
            (
                "whole load, 4 decoders: card / host",
                1.133,
                self.total(card, HOST),
            ),
            (
                "whole load, 9 decoders: card / host",
                1.181,
                self.total(card9, HOST),
            ),
            (
                "level 0: drive, 9 / 4 decoders",
                1.25,
                self.level0(drive9, drive),
            ),
            (
                "level 0, 4 decoders: drive / host",
                1.063,
                self.level0(drive, HOST),
            ),
            (
                "level 0, 9 decoders: drive / host",
                1.329,
                self.level0(drive9, HOST),
            ),
            (
                "level 0, 9 decoders: card / host",
                1.09,
                self.level0(card9, HOST),
            ),
            ("busy host processor: card / host", 0.763, busy(card)),
            ("busy host processor: drive / host", 0.637, busy(drive)),
        ]
    }

    /// How busy each part was while compactions below level 0 ran: name, and a share for each of [`PLACES`].
    pub fn bottlenecks(&self) -> Vec<(&'static str, Vec<f64>)> {
        let flash = &self.machine.flash;
        let channels = flash.channels as f64;
        let dies = channels * flash.dies_per_channel as f64;
        let parts: [(&'static str, f64, Share); 7] = [
            ("flash channels", channels, |it| it.usage.channels_ns),
            ("flash dies", dies, |it| it.usage.dies_ns),
            ("firmware", 1.0, |it| it.usage.firmware_ns),
            ("drive memory", 1.0, |it| it.usage.memory_ns),
            ("link to the host", 1.0, |it| it.usage.link_ns[0]),
            ("link from the host", 1.0, |it| it.usage.link_ns[1]),
            ("merging", 1.0, |it| it.merging_ns),
        ];
        let share = |count: f64, part: Share, it: &Outcome| {
            part(&it.deeper) as f64 / (count * it.deeper.ns.max(1) as f64)
        };
        let row = |(name, count, part)| {
            let shares = self.outcomes.iter().map(|it| share(count, part, it));
            (name, shares.collect())
        };
        parts.into_iter().map(row).collect()
    }
}

/// A time of compactions.
type Share = fn(&Compactions) -> u64;

/// How much faster `fast` compacts, by bytes per second.
fn ratio(fast: &Compactions, slow: &Compactions) -> f64 {
    fast.mb_s() / slow.mb_s().max(f64::MIN_POSITIVE)
}

/// What a changed figure does to three ratios.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effect {
    /// The figure, and how it was changed.
    pub name: String,
    /// Compactions below level 0: drive / card.
    pub deeper: f64,
    /// The whole load with four decoders: drive / card.
    pub total: f64,
    /// Compactions of level 0 in the drive: 9 / 4 decoders.
    pub level0: f64,
}

/// A figure that is changed, and how.
type Change = (&'static str, fn(&mut Machine, f64));

#[expect(clippy::cast_sign_loss, reason = "figures and factors are positive")]
fn scale(value: &mut u64, factor: f64) {
    *value = (*value as f64 * factor).round().max(1.0) as u64;
}

#[expect(clippy::cast_sign_loss, reason = "figures and factors are positive")]
fn scale_count(value: &mut usize, factor: f64) {
    *value = (*value as f64 * factor).round().max(1.0) as usize;
}

const CHANGES: [Change; 14] = [
    ("flash.read_ns", |it, by| scale(&mut it.flash.read_ns, by)),
    ("flash.program_ns", |it, by| {
        scale(&mut it.flash.program_ns, by);
    }),
    ("flash.transfer_mb_s", |it, by| {
        scale(&mut it.flash.transfer_mb_s, by);
    }),
    ("front.operation_ns", |it, by| {
        scale(&mut it.front.operation_ns, by);
    }),
    ("front.command_ns", |it, by| {
        scale(&mut it.front.command_ns, by);
    }),
    ("front.link_mb_s", |it, by| {
        scale(&mut it.front.link_mb_s, by);
    }),
    ("memory.mb_s", |it, by| scale(&mut it.memory.mb_s, by)),
    ("engine.clock_mhz", |it, by| {
        scale(&mut it.engine.clock_mhz, by);
    }),
    ("engine.reads_in_flight", |it, by| {
        scale_count(&mut it.engine.reads_in_flight, by);
    }),
    ("engine.writes_in_flight", |it, by| {
        scale_count(&mut it.engine.writes_in_flight, by);
    }),
    ("card.link_mb_s", |it, by| scale(&mut it.card.link_mb_s, by)),
    ("card.chunk_bytes", |it, by| {
        scale(&mut it.card.chunk_bytes, by);
    }),
    ("host.put_ns", |it, by| scale(&mut it.host.put_ns, by)),
    ("host.flush_ns_per_kib", |it, by| {
        scale(&mut it.host.flush_ns_per_kib, by);
    }),
];

/// The three ratios of the machine as it is, then with each figure 10 and 20 percent smaller and larger, and for the
/// overlap of the card, which is a choice. `each` hears of every variant before it is run.
pub fn sensitivity(
    machine: &Machine,
    load: &Load,
    mut each: impl FnMut(&str),
) -> Result<Vec<Effect>, ModelError> {
    let mut effects = Vec::new();
    let mut add = |name: String, machine: &Machine| {
        each(&name);
        effects.push(effect(name, machine, load)?);
        Ok::<_, ModelError>(())
    };
    add("as it is".to_owned(), machine)?;
    for (name, change) in CHANGES {
        for percent in [80, 90, 110, 120] {
            let mut other = machine.clone();
            change(&mut other, f64::from(percent) / 100.0);
            add(
                format!("{name} x {:.1}", f64::from(percent) / 100.0),
                &other,
            )?;
        }
    }
    let mut other = machine.clone();
    other.engine.load_ahead = !machine.engine.load_ahead;
    add(
        format!("engine.load_ahead = {}", other.engine.load_ahead),
        &other,
    )?;
    for (overlap, chunks) in [(0.0, 1), (0.5, 1), (1.0, 1), (0.0, 4), (1.0, 4)] {
        let mut other = machine.clone();
        other.card.overlap = overlap;
        other.card.chunks_in_flight = chunks;
        add(format!("card: overlap {overlap}, {chunks} chunks"), &other)?;
    }
    Ok(effects)
}

fn effect(name: String, machine: &Machine, load: &Load) -> Result<Effect, ModelError> {
    let of = |place| run(machine, load, place, true);
    let card = of(Place::Card { decoders: 4 })?;
    let drive = of(Place::Drive { decoders: 4 })?;
    let nine = of(Place::Drive { decoders: 9 })?;
    Ok(Effect {
        name,
        deeper: ratio(&drive.deeper, &card.deeper),
        total: card.ns as f64 / drive.ns as f64,
        level0: ratio(&nine.level0, &drive.level0),
    })
}

#[cfg(test)]
mod tests {
    use super::super::report::ModelReport;
    use super::*;

    /// A tenth of the paper's load, whose tree has a level less: what was fitted holds, and what needs a tree that is as
    /// deep as the paper's is in the book.
    #[test]
    fn compactions_below_level_0_come_near_the_paper() {
        let machine = Machine::parse(Machine::COSMOS_PLUS).expect("it is sound");
        let load = Load {
            records: 10_000_000,
            ..Load::default()
        };
        let study = Study::run(&machine, &load, |_| ()).expect("it runs");
        let rows = study.rows();
        let off = |name: &str| {
            let row = rows.iter().find(|row| row.name == name).expect(name);
            row.off_percent().expect("the paper is of this machine")
        };
        assert!(
            off("level 1 and deeper: drive / card").abs() < 5.0,
            "{rows:?}"
        );
        assert!(
            off("level 1 and deeper: drive / host").abs() < 10.0,
            "{rows:?}"
        );
        assert!(
            off("level 1 and deeper: card / host").abs() < 10.0,
            "{rows:?}"
        );
        assert!(
            off("MB/s during compaction: drive").abs() < 20.0,
            "{rows:?}"
        );
        assert!(off("MB/s during compaction: card").abs() < 20.0, "{rows:?}");
        // Flash limits the drive, the thread's steps the card, the processor the host.
        let busiest = |place: usize| {
            let parts = study.bottlenecks();
            let most = parts
                .iter()
                .max_by(|a, b| a.1[place].total_cmp(&b.1[place]));
            most.expect("there are parts").0
        };
        assert_eq!(busiest(DRIVE[0]), "flash channels");
        assert_eq!(busiest(HOST), "merging");
        let channels = &study.bottlenecks()[0].1;
        assert!(
            channels[CARD[0]] < 0.85 && channels[DRIVE[0]] > 0.9,
            "{channels:?}"
        );
    }

    #[test]
    fn a_report_has_its_rows_and_pictures() {
        let machine = Machine::parse(Machine::MODERN).expect("it is sound");
        let load = Load {
            records: 400_000,
            table_bytes: 4 << 20,
            level1_bytes: 4 << 20,
            ..Load::default()
        };
        let study = Study::run(&machine, &load, |_| ()).expect("it runs");
        let effects = vec![Effect {
            name: "a<b".to_owned(),
            deeper: 1.0,
            total: 1.0,
            level0: 1.0,
        }];
        let report = ModelReport::new(study, effects);
        let (text, page) = (report.to_string(), report.html());
        for name in [
            "drive, 9 decoders",
            "flash channels",
            "level 0: drive, 9 / 4",
        ] {
            assert!(text.contains(name) && page.contains(name), "{name}");
        }
        // The paper measured another machine.
        assert!(!text.contains("fitted") && !page.contains("<td>fitted"));
        assert!(page.contains("a&lt;b") && page.ends_with("</html>"));
    }
}
