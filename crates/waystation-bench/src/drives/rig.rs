//! The processes of the experiment, and their calibration.

use super::http::Server;
use super::process::{Held, Spinner};
use super::rows::{Filter, load, scan};
use crate::error::{Error, Result};
use crate::stats::median;
use std::fs;
use std::path::PathBuf;

/// What the host gets of its core.
const HOST_SHARE: f64 = 0.85;
/// How much slower than the host a drive is to be: the paper's drives.
const SLOWNESS: f64 = 2.9;
/// What counts as that.
const SLOWNESS_RANGE: std::ops::RangeInclusive<f64> = 2.8..=3.0;
/// Corrections of the quotas before the machine counts as unfit.
const CORRECTIONS: usize = 12;
/// Scans of one calibration; their median counts.
const SCANS: usize = 3;
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

/// A host and its drives.
pub(crate) struct Rig {
    host: Held,
    drives: Vec<Held>,
    share: f64,
    server: Server,
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

    /// Processor time of host and drives so far (seconds).
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let drives = self.drives.iter().map(Held::cpu_seconds);
        self.host.cpu_seconds() + drives.sum::<f64>()
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
        let mut seen = Vec::new();
        for _ in 0..CORRECTIONS {
            self.hold(true)?;
            let ratios: Result<Vec<f64>> = (0..SCANS)
                .map(|_| self.slowness_of(&names, documents))
                .collect();
            let slowness = median(&ratios?);
            seen.push(format!("{slowness:.2}"));
            if SLOWNESS_RANGE.contains(&slowness) {
                self.slowness = Some(slowness);
                for name in &names {
                    self.server.ask("DELETE", &format!("/{name}"), "")?;
                }
                return Ok(slowness);
            }
            self.share = (self.share * slowness / SLOWNESS).clamp(0.05, 0.33);
        }
        Err(Error::Refused(format!(
            "drives: the drives took {} times the host's time, never 2.8 to 3.0: the machine is too busy with other things, or has less than two cores; nothing was measured",
            seen.join(", ")
        )))
    }

    /// How many times the host's time the drives take for the same scan, all at once; the mean of the drives.
    fn slowness_of(&self, names: &[String], documents: u64) -> Result<f64> {
        let times: Result<Vec<f64>> = std::thread::scope(|scope| {
            let begun: Vec<_> = names
                .iter()
                .map(|name| {
                    scope.spawn(move || {
                        let begin = crate::clock::now();
                        // The host is done first, and goes on so that all four stay at work.
                        let rounds = if name.ends_with("-0") { 3 } else { 1 };
                        for _ in 0..rounds {
                            scan(&self.server, name, Filter::Nested, documents)?;
                        }
                        Ok(begin.elapsed().as_secs_f64() / f64::from(rounds))
                    })
                })
                .collect();
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
}
