//! Agents and hosts in one process.

pub(crate) mod certificates;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use waystation_documents::database::{FindRequest, Settings};
use waystation_documents::json::Json;
use waystation_documents::{Catalogue, Database, Document, Edits, Error};
use waystation_nodes::{Agent, AgentSettings, DriveSettings, Drives, Stopper, Token};

pub(crate) const TOKEN: &str = "0123456789abcdef0123456789abcdef";

pub(crate) fn token(text: &str) -> Token {
    Token::new(text).expect("a token")
}

/// An agent that runs until it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(directory: &Path) -> Self {
        Self::start_at(directory, ([127, 0, 0, 1], 0).into())
    }

    pub(crate) fn start_at(directory: &Path, listen: SocketAddr) -> Self {
        Self::start_with(directory, listen, |_| ())
    }

    pub(crate) fn start_with(
        directory: &Path,
        listen: SocketAddr,
        change: impl FnOnce(&mut AgentSettings),
    ) -> Self {
        let mut settings = AgentSettings::new(directory, listen, token(TOKEN));
        settings.options.memtable_bytes = 64 << 10;
        settings.options.ring_bytes = 256 << 10;
        settings.open_max = 2;
        change(&mut settings);
        let agent = Agent::bind(&settings).expect("an agent");
        let (address, stopper) = (agent.address(), agent.stopper());
        let thread = std::thread::Builder::new().spawn(|| agent.run());
        Self {
            address,
            stopper,
            thread: Some(thread.expect("a thread")),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the agent ends");
        }
    }
}

pub(crate) fn drive(name: &str, address: SocketAddr, secret: &str) -> DriveSettings {
    DriveSettings {
        name: name.to_owned(),
        address,
        token: token(secret),
        authorities: None,
    }
}

/// The databases in `directory`, with drives.
pub(crate) fn host(directory: &Path, drives: Vec<DriveSettings>) -> Catalogue {
    let drives = Drives::new(drives).with_patience(Duration::from_secs(20));
    let mut settings = Settings {
        nodes: Some(Arc::new(drives)),
        ..Settings::default()
    };
    settings.options.memtable_bytes = 64 << 10;
    settings.options.ring_bytes = 256 << 10;
    Catalogue::open(directory, settings).expect("a catalogue")
}

/// Weights of nodes.
pub(crate) fn weights(weights: &[(&str, f64)]) -> Vec<(String, f64)> {
    let weights = weights.iter();
    weights
        .map(|(name, it)| ((*name).to_owned(), *it))
        .collect()
}

pub(crate) fn write(database: &Database, documents: &[String]) -> Vec<Result<String, String>> {
    let parsed = documents
        .iter()
        .map(|text| Document::parse(text.as_bytes()).expect(text));
    let updated = database.update(
        parsed.collect(),
        Edits::Interactive,
        waystation::Durability::ProcessCrash,
    );
    let shown = |outcome: Result<waystation_documents::Revision, Error>| {
        outcome
            .map(|it| it.to_string())
            .map_err(|error| error.to_string())
    };
    updated.expect("an update").into_iter().map(shown).collect()
}

/// All that a query finds, and its bookmark.
pub(crate) fn find(database: &Database, query: &str) -> Result<(Vec<String>, String), Error> {
    let mut finder = database.finder(FindRequest::parse(Json::new(query))?)?;
    let mut found = Vec::new();
    loop {
        let page = database.find(&mut finder)?;
        found.extend(page.documents);
        if page.is_end {
            return Ok((found, finder.bookmark()));
        }
    }
}
