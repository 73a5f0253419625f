//! The processes of the experiment, and their calibration.

use super::http::Server;
use super::process::{Held, Spinner, stolen_seconds};
use super::rows::{Filter, load, scan};
use crate::error::{Error, Result};
use crate::stats::median;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What the host gets of its core.
const HOST_SHARE: f64 = 0.85;
/// How much slower than the host a drive is to be: the paper's drives.
const SLOWNESS: f64 = 2.9;
/// What counts as that.
const SLOWNESS_RANGE: std::ops::RangeInclusive<f64> = 2.8..=3.0;
/// Corrections of the quotas before the machine counts as unfit.
const CORRECTIONS: usize = 12;
/// Takes of one calibration; their median counts.
const TAKES: usize = 3;
/// In a take all four scan again and again for so long: a single scan ends within a few of the quotas' periods, and its
/// time depends on where in one it began.
const TAKE: Duration = Duration::from_secs(2);
/// How often it is looked whether host and drives rest.
const LOOK: Duration = Duration::from_millis(300);
/// They rest once they took less than a tenth of the time in so many looks.
const QUIET_LOOKS: usize = 3;
/// They are not waited for longer.
const SETTLING_MAX: Duration = Duration::from_secs(60);
/// Drives of the experiment.
pub(crate) const DRIVES: usize = 3;

/// What the experiment runs.
#[derive(Debug, Clone)]
pub(crate) struct RigSettings {
    /// The command line of this workspace.
    pub(crate) program: PathBuf,
    /// Where the data lies.
    pub(crate) directory: PathBuf,
    /// Documents of the databases by which the quotas are calibrated.
    pub(crate) calibration_documents: u64,
    /// The length of a document (bytes).
    pub(crate) document_bytes: usize,
}

/// The command line whose server is measured: `named`, or the one beside this program.
pub(crate) fn program_beside(named: Option<&Path>) -> Result<PathBuf> {
    let program = match named {
        Some(program) => program.to_owned(),
        None => std::env::current_exe()
            .map_err(|error| Error::io("find", "this program", error))?
            .with_file_name("waystation"),
    };
    if program.is_file() {
        return Ok(program);
    }
    Err(Error::Refused(format!(
        "{} is not there; build it with `cargo build --release -p waystation-cli`, or name it with --waystation",
        program.display()
    )))
}

/// Processor time so far (seconds), or in a while.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    pub(crate) host: f64,
    /// All drives together.
    pub(crate) drives: f64,
    /// What a hypervisor kept from the machine.
    pub(crate) stolen: f64,
}

impl Used {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            host: self.host - before.host,
            drives: self.drives - before.drives,
            stolen: self.stolen - before.stolen,
        }
    }
}

/// A host and its drives.
pub(crate) struct Rig {
    host: Held,
    drives: Vec<Held>,
    share: f64,
    server: Server,
    /// Databases of the drives alone, by which they were calibrated, and how many documents each has.
    busy_databases: Vec<String>,
    busy_documents: u64,
    /// How much slower the drives are, once that is known.
    pub(crate) slowness: Option<f64>,
}

impl Rig {
    /// Starts host and drives.
    pub(crate) fn start(settings: &RigSettings) -> Result<Self> {
        let directory = &settings.directory;
        fs::create_dir_all(directory).map_err(|error| Error::io("make", directory, error))?;
        let token = directory.join("token");
        let secret = format!(
            "{:032x}",
            u128::from(crate::clock::unix_millis()) << 64 | 0x5a5a
        );
        fs::write(&token, secret).map_err(|error| Error::io("write", &token, error))?;
        let token = token.display().to_string();
        let share = HOST_SHARE / SLOWNESS;
        let mut drives = Vec::new();
        for number in 1..=DRIVES {
            let data = directory
                .join(format!("drive-{number}"))
                .display()
                .to_string();
            let listen = "127.0.0.1:0";
            let arguments = [
                "drive",
                "--listen",
                listen,
                "--dir",
                &data,
                "--token-file",
                &token,
            ];
            let arguments = arguments.map(ToOwned::to_owned);
            let name = format!("drive-{number}");
            drives.push(Held::start(&name, &settings.program, &arguments, 1, share)?);
        }
        let data = directory.join("host").display().to_string();
        let mut arguments: Vec<String> = ["serve", &data, "--listen", "127.0.0.1:0"]
            .map(ToOwned::to_owned)
            .into();
        arguments.extend(["--drive-token-file".to_owned(), token]);
        for (number, drive) in drives.iter().enumerate() {
            arguments.push("--drive".to_owned());
            arguments.push(format!("d{}={}", number + 1, drive.address));
        }
        let host = Held::start("host", &settings.program, &arguments, 0, HOST_SHARE)?;
        let server = Server::new(&host.address)?;
        Ok(Self {
            host,
            drives,
            share,
            server,
            busy_databases: Vec::new(),
            busy_documents: 0,
            slowness: None,
        })
    }

    /// The host's interface.
    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    /// Keeps the host busy with something else until the result is dropped.
    pub(crate) fn busy(&self) -> Result<Spinner> {
        self.host.spin(0)
    }

    /// Takes the quotas away, as for loading, or sets them again.
    pub(crate) fn hold(&self, is_held: bool) -> Result<()> {
        let (host, drives) = if is_held {
            (HOST_SHARE, self.share)
        } else {
            (1.0, 1.0)
        };
        self.host.set_share(host)?;
        self.drives.iter().try_for_each(|it| it.set_share(drives))
    }

    /// Waits until host and drives have written what is still to be written after a load: it would take time of the
    /// scans that follow.
    pub(crate) fn settle(&self) {
        let (mut quiet, mut before) = (0, self.cpu_seconds());
        let begin = crate::clock::now();
        while quiet < QUIET_LOOKS && begin.elapsed() < SETTLING_MAX {
            std::thread::sleep(LOOK);
            let now = self.cpu_seconds();
            quiet = if now - before < LOOK.as_secs_f64() / 10.0 {
                quiet + 1
            } else {
                0
            };
            before = now;
        }
    }

    /// Processor time so far.
    pub(crate) fn used(&self) -> Used {
        Used {
            host: self.host.cpu_seconds(),
            drives: self.drives.iter().map(Held::cpu_seconds).sum(),
            stolen: stolen_seconds(),
        }
    }

    /// Processor time of host and drives so far (seconds).
    fn cpu_seconds(&self) -> f64 {
        let used = self.used();
        used.host + used.drives
    }

    /// The most memory that host and drives have had (10^6 bytes).
    pub(crate) fn peak_rss_mb(&self) -> f64 {
        let drives = self.drives.iter().map(Held::peak_rss_mb);
        self.host.peak_rss_mb() + drives.sum::<f64>()
    }

    /// Moves the drives' quotas until the same scan takes them 2.8 to 3.0 times the host's time, all four at work.
    pub(crate) fn calibrate(&mut self, settings: &RigSettings) -> Result<f64> {
        let documents = settings.calibration_documents;
        let names: Vec<String> = (0..=DRIVES).map(|it| format!("calibration-{it}")).collect();
        self.hold(false)?;
        for (number, name) in names.iter().enumerate() {
            let node = if number == 0 {
                "_local".to_owned()
            } else {
                format!("d{number}")
            };
            let path = format!("/{name}?q=4&placement={node}:1");
            self.server.ask("PUT", &path, "")?;
            load(&self.server, name, documents, settings.document_bytes)?;
        }
        self.settle();
        let mut seen = Vec::new();
        for _ in 0..CORRECTIONS {
            self.hold(true)?;
            let ratios: Result<Vec<f64>> = (0..TAKES)
                .map(|_| self.slowness_of(&names, documents))
                .collect();
            let slowness = median(&ratios?);
            seen.push(format!("{slowness:.2}"));
            if SLOWNESS_RANGE.contains(&slowness) {
                self.slowness = Some(slowness);
                self.busy_databases = names[1..].to_vec();
                self.busy_documents = documents;
                self.server.ask("DELETE", &format!("/{}", names[0]), "")?;
                return Ok(slowness);
            }
            self.share = (self.share * slowness / SLOWNESS).clamp(0.2, 0.33);
        }
        Err(Error::Refused(format!(
            "drives: the drives took {} times the host's time, never 2.8 to 3.0: the machine is too busy with other things, or has less than two cores; nothing was measured",
            seen.join(", ")
        )))
    }

    /// Does `work` while each drive scans a database of its own. The drives are processes of this machine, whose cores
    /// share caches, memory and clock: they slow the host, which drives of another machine would not.
    pub(crate) fn beside_busy_drives<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for name in &self.busy_databases {
                let is_over = &is_over;
                scope.spawn(move || {
                    while !is_over.load(Ordering::SeqCst) {
                        let scanned = scan(&self.server, name, Filter::Nested, self.busy_documents);
                        if let Err(error) = scanned {
                            eprintln!("waystation-bench: a busy drive failed: {error}");
                            return;
                        }
                    }
                });
            }
            let done = work();
            is_over.store(true, Ordering::SeqCst);
            done
        })
    }

    /// How many times the host's time the drives take for the same scan, all at work; the mean of the drives.
    fn slowness_of(&self, names: &[String], documents: u64) -> Result<f64> {
        let times: Result<Vec<f64>> = std::thread::scope(|scope| {
            let scans = names
                .iter()
                .map(|name| scope.spawn(|| self.time_of_scan(name, documents)));
            let begun: Vec<_> = scans.collect();
            let done = begun.into_iter().map(|thread| match thread.join() {
                Ok(time) => time,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            done.collect()
        });
        let times = times?;
        let drives: f64 = times[1..].iter().sum::<f64>() / DRIVES as f64;
        Ok(drives / times[0])
    }

    /// How long a scan of `name` takes (seconds), in the mean of a take.
    fn time_of_scan(&self, name: &str, documents: u64) -> Result<f64> {
        let (begin, mut scans) = (crate::clock::now(), 0);
        while begin.elapsed() < TAKE {
            scan(&self.server, name, Filter::Nested, documents)?;
            scans += 1;
        }
        Ok(begin.elapsed().as_secs_f64() / f64::from(scans))
    }
}
