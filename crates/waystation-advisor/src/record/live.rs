//! The advice against this very machine: real programs in the laboratory, on the machine's own disk and memory.
//!
//! Each program runs with everything slow, with each area fast and with everything fast. From the recording of the
//! all-slow run, and device models fitted to the latencies of that and of the all-fast run, the others are predicted.
//! Here the simulator does not share a disk model with anything. What cannot run says "not run" and why, which is
//! never a success.

use std::path::Path;

use serde::Serialize;

use super::Stop;
use super::rig::{RigSettings, record_in_rig};
use crate::error::{Error, Result};
use crate::event::{Op, Request};
use crate::native::{Trace, load};
use crate::simulate::model::Size;
use crate::simulate::{Chain, DeviceModel, FlashModel, Machine, Placement, Residence, simulate};
use crate::units::seconds;

const AREAS: [&str; 3] = ["fs", "journal", "swap"];
/// Runs of each arrangement; the fastest counts.
const RUNS: usize = 3;

/// Rewrites random rows, a transaction each, with a rollback journal.
const SQLITE_PREPARE: &str = "sqlite3 app.db 'PRAGMA journal_mode=DELETE; CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<20000) INSERT INTO t SELECT i, randomblob(1000) FROM n;' >/dev/null && awk 'BEGIN { srand(7); for (n = 0; n < 300; n++) { print \"BEGIN;\"; for (k = 0; k < 4; k++) print \"UPDATE t SET v=randomblob(1000) WHERE id=\" int(rand() * 20000) + 1 \";\"; print \"COMMIT;\" } }' >work.sql";
const SQLITE: &str = "sqlite3 app.db <work.sql";
const WEB_PREPARE: &str = "mkdir -p www && i=0; while [ $i -lt 1500 ]; do head -c $((4096 + i % 40 * 1000)) /dev/urandom >www/$i; echo http://127.0.0.1:18080/$i; i=$((i+1)); done >urls && printf 'daemon off; pid nginx.pid; error_log error.log; events {} http { access_log access.log; server { listen 127.0.0.1:18080; root www; } }' >nginx.conf";
const WEB: &str = "nginx -p \"$PWD\" -c nginx.conf & sleep 0.5; wget -q -i urls -P mirror; sync -f .; kill %1; wait";
/// `PageRank` in plain Python over arrays that do not fit into the memory it may use.
const GRAPH: &str = "import array,random\nn,m=1<<15,6_000_000\nr=random.Random(3)\ns=array.array('I',[0])*m;d=array.array('I',[0])*m\nfor i in range(0,m,1024):\n  a=r.randrange(n)\n  for j in range(i,min(m,i+1024)): s[j]=a;d[j]=(a*31+j*17)%n\nrank=array.array('d',[1/n])*n\nfor _ in range(3):\n  out=array.array('d',bytes(8*n))\n  for i in range(0,m,128): out[d[i]]+=rank[s[i]]\n  rank=out\n";

struct Program {
    name: &'static str,
    needs: &'static [&'static str],
    prepare: String,
    run: String,
    memory_mib: u64,
}

fn programs() -> [Program; 3] {
    [
        Program {
            name: "database (SQLite)",
            needs: &["sqlite3", "awk"],
            prepare: SQLITE_PREPARE.to_owned(),
            run: SQLITE.to_owned(),
            memory_mib: 24,
        },
        Program {
            name: "web (nginx and wget)",
            needs: &["nginx", "wget"],
            prepare: WEB_PREPARE.to_owned(),
            run: WEB.to_owned(),
            memory_mib: 24,
        },
        Program {
            name: "graph (PageRank that swaps)",
            needs: &["python3"],
            prepare: format!("cat >graph.py <<'END'\n{GRAPH}END"),
            run: "python3 graph.py".to_owned(),
            memory_mib: 44,
        },
    ]
}

/// One arrangement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LiveCell {
    /// What was fast.
    pub fast: String,
    /// Predicted seconds.
    pub predicted_s: f64,
    /// Measured seconds, fastest run.
    pub measured_s: f64,
}

/// One program's outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Live {
    /// It could not run here.
    NotRun {
        /// The program.
        program: String,
        /// Why.
        reason: String,
    },
    /// It ran.
    Compared {
        /// The program.
        program: String,
        /// All slow, each area fast, all fast.
        cells: Vec<LiveCell>,
        /// The area that the simulation advises.
        advised: String,
        /// How much slower than the best measured area it was, as a share.
        regret: f64,
    },
}

/// Runs every program; `directory` is where the slow images go.
pub fn live(directory: &Path, stop: &Stop, mut say: impl FnMut(&str)) -> Vec<Live> {
    programs()
        .iter()
        .map(|program| {
            say(program.name);
            compare(program, directory, stop).unwrap_or_else(|error| Live::NotRun {
                program: program.name.to_owned(),
                reason: error.to_string(),
            })
        })
        .collect()
}

fn compare(program: &Program, directory: &Path, stop: &Stop) -> Result<Live> {
    if let Some(missing) = program.needs.iter().find(|tool| !installed(tool)) {
        return Err(Error::Refused(format!("{missing} is not installed")));
    }
    let (slow_s, slow) = arm(program, directory, &[], stop)?;
    let (fast_s, fast) = arm(program, directory, &AREAS, stop)?;
    let machine = Machine {
        slow: fit(&slow.requests),
        fast: fit(&fast.requests),
        layout: std::collections::BTreeMap::new(),
    };
    let chain = Chain::of(&slow.requests);
    let areas = slow.info.areas.len();
    // The trace ends with its last request; the run, with the program.
    let rest_s = (slow_s - seconds(slow.info.end_ns)).max(0.0);
    let predict = |placement: &Placement| {
        seconds(
            simulate(
                &slow.info,
                &slow.requests,
                &chain,
                placement,
                &machine,
                false,
            )
            .run_ns,
        ) + rest_s
    };
    let mut cells = vec![LiveCell {
        fast: "nothing".to_owned(),
        predicted_s: predict(&Placement::slow(areas)),
        measured_s: slow_s,
    }];
    for area in AREAS {
        let (measured_s, _) = arm(program, directory, &[area], stop)?;
        let at = slow.info.areas.iter().position(|known| known.name == area);
        let placement = at.map_or_else(
            || Placement::slow(areas),
            |at| Placement::one(areas, at, Residence::Fast),
        );
        cells.push(LiveCell {
            fast: area.to_owned(),
            predicted_s: predict(&placement),
            measured_s,
        });
    }
    let single = &cells[1..];
    let advised = single
        .iter()
        .min_by(|one, other| one.predicted_s.total_cmp(&other.predicted_s));
    let best = single
        .iter()
        .min_by(|one, other| one.measured_s.total_cmp(&other.measured_s));
    let (advised, regret) = match (advised, best) {
        (Some(advised), Some(best)) => (
            advised.fast.clone(),
            advised.measured_s / best.measured_s - 1.0,
        ),
        _ => (String::new(), 0.0),
    };
    cells.push(LiveCell {
        fast: "everything".to_owned(),
        predicted_s: predict(&Placement::fast(areas)),
        measured_s: fast_s,
    });
    Ok(Live::Compared {
        program: program.name.to_owned(),
        cells,
        advised,
        regret,
    })
}

fn installed(tool: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(crate::SYSTEM_PATH.split(':'))
        .any(|directory| Path::new(directory).join(tool).exists())
}

/// Runs one arrangement and returns the fastest run with its trace.
fn arm(program: &Program, directory: &Path, fast: &[&str], stop: &Stop) -> Result<(f64, Trace)> {
    let settings = RigSettings {
        directory: directory.to_path_buf(),
        fs_bytes: 256 << 20,
        journal_bytes: 32 << 20,
        swap_bytes: 256 << 20,
        memory_bytes: program.memory_mib << 20,
        data_mode: "ordered".to_owned(),
        fast: fast.iter().map(|area| (*area).to_owned()).collect(),
    };
    let output = std::env::temp_dir().join(format!("waystation-live-{}.trace", std::process::id()));
    let shell = |text: &str| vec!["/bin/sh".to_owned(), "-c".to_owned(), text.to_owned()];
    let mut best: Option<(f64, Trace)> = None;
    for _ in 0..RUNS {
        let recorded = record_in_rig(
            &settings,
            &shell(&program.prepare),
            &shell(&program.run),
            &output,
            None,
            stop,
        )?;
        let trace = load(&output);
        std::fs::remove_file(&output).map_err(|source| Error::io("remove", &output, source))?;
        if stop.asked() {
            return Err(Error::Refused("it was interrupted".to_owned()));
        }
        if recorded.exit_code != Some(0) {
            return Err(Error::Refused(format!(
                "the program ended with code {:?}",
                recorded.exit_code
            )));
        }
        let run_s = seconds(recorded.run_ns);
        if best.as_ref().is_none_or(|(known, _)| run_s < *known) {
            best = Some((run_s, trace?));
        }
    }
    best.ok_or_else(|| Error::Refused("no run was made".to_owned()))
}

/// A device without moving parts whose latencies are the means of what was recorded.
fn fit(requests: &[Request]) -> DeviceModel {
    // Means, not medians: what waits adds up, tails included.
    let mean_us = |op: Op, range: std::ops::Range<u32>| {
        let latencies: Vec<u64> = requests
            .iter()
            .filter(|request| request.op == op && range.contains(&request.length))
            .filter_map(Request::latency_ns)
            .collect();
        let sum: u64 = latencies.iter().sum();
        (!latencies.is_empty()).then(|| sum as f64 / latencies.len() as f64 / 1_000.0)
    };
    let bandwidth = |op: Op| {
        let mut rates: Vec<u64> = requests
            .iter()
            .filter(|request| request.op == op && request.length >= 131_072)
            .filter_map(|request| {
                Some(u64::from(request.length) * 1_000_000_000 / request.latency_ns()?.max(1))
            })
            .collect();
        rates.sort_unstable();
        Size(
            rates
                .get(rates.len() / 2)
                .copied()
                .unwrap_or(1_000_000_000)
                .max(1_000_000),
        )
    };
    let small = 1..65_537;
    DeviceModel::Flash(FlashModel {
        read_us: mean_us(Op::Read, small.clone()).unwrap_or(100.0),
        write_us: mean_us(Op::Write, small).unwrap_or(100.0),
        flush_us: mean_us(Op::Flush, 0..u32::MAX).unwrap_or(0.0),
        read_bandwidth: bandwidth(Op::Read),
        write_bandwidth: bandwidth(Op::Write),
        channels: 32,
        pause_every: Size(0),
        pause_us: 0.0,
        path_us: 0.0,
        path_bandwidth: Size(u64::MAX / 2),
    })
}

/// The outcomes for a terminal.
pub fn render(outcomes: &[Live]) -> String {
    use std::fmt::Write as _;
    let mut text = "Live, on this machine's own disk and memory\n".to_owned();
    for outcome in outcomes {
        match outcome {
            Live::NotRun { program, reason } => {
                let _ = writeln!(text, "  {program}: not run: {reason}");
            }
            Live::Compared {
                program,
                cells,
                advised,
                regret,
            } => {
                let _ = writeln!(
                    text,
                    "  {program}: advised {advised}, regret {:.1} %",
                    regret * 100.0
                );
                for cell in cells {
                    let _ = writeln!(
                        text,
                        "    {:<12} predicted {:>6.2} s  measured {:>6.2} s  {:>+6.1} %",
                        cell.fast,
                        cell.predicted_s,
                        cell.measured_s,
                        (cell.predicted_s / cell.measured_s - 1.0) * 100.0
                    );
                }
            }
        }
    }
    text
}
