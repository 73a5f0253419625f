//! The catalogue: which databases there are.
//!
//! ```text
//!   DIR/catalogue/              an engine directory: names, definitions, and what a server keeps of itself
//!   DIR/databases/UUID/RANGE/   an engine directory for each shard
//! ```
//!
//! A database exists while the catalogue names it. Its directories are made before that, and removed after: what a
//! crash leaves without a name is removed at the next opening. A database that is created again has another directory,
//! so it waits for nothing that is left of the one before.

use super::book::{Book, ShardCopy, ShardKey, Standing};
use super::definition::{Definition, SHARDS_MAX, decode, encode};
use super::mend::Fills;
use super::{Database, LOCAL_NODE, NodeState, Nodes, ShardPlace, layout, ring};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use waystation::{Db, Durability, IterOptions, Options, WriteBatch};

/// What keys of databases begin with.
const DATABASE: u8 = b'd';
/// What keys of the server's own records begin with.
const RECORD: u8 = b'r';
/// What keys of shards on drives begin with that are still to be removed: the database's uuid, and the node.
const LEFT: u8 = b'x';
/// The longest name of a database (bytes).
const NAME_BYTES_MAX: usize = 238;
/// Digits of a database's uuid.
const UUID_DIGITS: usize = 32;

/// Copies that a shard may have.
const COPIES_MAX: usize = 3;
/// Bytes that copies are filled with in a second, unless the settings say otherwise.
const COPY_BYTES_PER_SECOND: u64 = 64 << 20;

/// How databases are kept.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How shards are opened.
    pub options: Options,
    /// Databases that are open at once, at least; of more, those used longest ago are closed as soon as nothing uses
    /// them.
    pub open_max: usize,
    /// The drives; `None`: there are none.
    pub nodes: Option<Arc<dyn Nodes>>,
    /// Bytes that copies are filled with in a second, at most.
    pub copy_bytes_per_second: u64,
}

impl Default for Settings {
    fn default() -> Self {
        let options = Options {
            memtable_bytes: 8 << 20,
            cache_bytes: 16 << 20,
            ring_bytes: 1 << 20,
            log_segment_bytes: 4 << 20,
            // An open table has some 20 KB of index, and a database has several shards.
            max_open_tables: 250,
            ..Options::default()
        };
        Self {
            options,
            open_max: 100,
            nodes: None,
            copy_bytes_per_second: COPY_BYTES_PER_SECOND,
        }
    }
}

/// The databases in a directory. See the module.
pub struct Catalogue {
    pub(super) directory: PathBuf,
    pub(super) settings: Settings,
    db: Arc<Db>,
    pub(super) book: Book,
    pub(super) fills: Fills,
    databases: RwLock<BTreeMap<String, Arc<Database>>>,
    /// Held while the catalogue changes.
    changing: Mutex<()>,
    /// When databases were used last, counted in uses.
    uses: Mutex<HashMap<String, u64>>,
}

impl Catalogue {
    /// Opens the databases in `directory`, which is made if it is missing.
    ///
    /// # Errors
    /// [`Error::Engine`], among others if another process has it open; [`Error::File`], [`Error::Damaged`].
    pub fn open(directory: impl AsRef<Path>, settings: Settings) -> Result<Self> {
        let directory = directory.as_ref().to_owned();
        make_directory(&directory.join("databases"))?;
        let db = Db::open(directory.join("catalogue"), settings.options.clone())?;
        let db = Arc::new(db);
        let catalogue = Self {
            directory,
            settings,
            book: Book::new(&db),
            fills: Fills::default(),
            db,
            databases: RwLock::default(),
            changing: Mutex::default(),
            uses: Mutex::default(),
        };
        let named = catalogue.read()?;
        catalogue.remove_unnamed(&named)?;
        catalogue.remove_left();
        *catalogue
            .databases
            .write()
            .unwrap_or_else(PoisonError::into_inner) = named;
        Ok(catalogue)
    }

    fn read(&self) -> Result<BTreeMap<String, Arc<Database>>> {
        let mut entries = self.db.iter(IterOptions::prefix([DATABASE]))?;
        entries.seek_to_first()?;
        let mut named = BTreeMap::new();
        while entries.valid() {
            let name = String::from_utf8(entries.key()[1..].to_vec());
            let name = name.map_err(|error| Error::damaged("a database's name", &error))?;
            let definition = decode(&name, entries.value())?;
            named.insert(name.clone(), self.database(&name, &definition));
            entries.next()?;
        }
        Ok(named)
    }

    fn database(&self, name: &str, definition: &Definition) -> Arc<Database> {
        let directory = self.directory.join("databases").join(&definition.uuid);
        let options = self.settings.options.clone();
        let nodes = self.settings.nodes.clone();
        let book = self.book.clone();
        let database = Database::new(name, directory, definition, (options, nodes), book);
        Arc::new(database)
    }

    /// Removes what creations and deletions left that a crash interrupted.
    fn remove_unnamed(&self, named: &BTreeMap<String, Arc<Database>>) -> Result<()> {
        let parent = self.directory.join("databases");
        let refused = |error: &std::io::Error| Error::file("list", &parent, error);
        for entry in std::fs::read_dir(&parent).map_err(|error| refused(&error))? {
            let path = entry.map_err(|error| refused(&error))?.path();
            if !named.values().any(|database| database.directory == path) {
                remove_directory(&path)?;
            }
        }
        Ok(())
    }

    /// What is known of the nodes; none: there is this process alone.
    pub fn node_states(&self) -> Vec<NodeState> {
        let nodes = self.settings.nodes.as_ref();
        nodes.map(|nodes| nodes.states()).unwrap_or_default()
    }

    /// The names of all databases, in order.
    pub fn names(&self) -> Vec<String> {
        let databases = self.databases.read();
        let databases = databases.unwrap_or_else(PoisonError::into_inner);
        databases.keys().cloned().collect()
    }

    /// The database `name`.
    ///
    /// # Errors
    /// [`Error::NoDatabase`]; [`Error::IllegalDatabaseName`].
    pub fn get(&self, name: &str) -> Result<Arc<Database>> {
        check_name(name)?;
        let database = self.get_quietly(name)?;
        self.note_use(name);
        Ok(database)
    }

    /// The databases whose files are open. None of them is used by that, so that it may be closed as before.
    pub fn open_databases(&self) -> Vec<Arc<Database>> {
        let databases = self.databases.read();
        let databases = databases.unwrap_or_else(PoisonError::into_inner);
        let open = databases.values().filter(|it| it.is_open());
        open.cloned().collect()
    }

    /// The database `name`, which is not used by that.
    pub(super) fn get_quietly(&self, name: &str) -> Result<Arc<Database>> {
        let databases = self.databases.read();
        let databases = databases.unwrap_or_else(PoisonError::into_inner);
        databases.get(name).cloned().ok_or(Error::NoDatabase)
    }

    /// Makes the database `name` of `shards` shards, as [`Catalogue::create_copies`] with one copy of each.
    ///
    /// # Errors
    /// As [`Catalogue::create_copies`].
    pub fn create(
        &self,
        name: &str,
        shards: usize,
        weights: Option<&[(String, f64)]>,
    ) -> Result<Arc<Database>> {
        self.create_copies(name, (shards, 1), weights)
    }

    /// Makes the database `name` of `shards` shards with `copies` copies of each, or as many as there are nodes. It
    /// exists when this returns, whatever happens then. Copies lie on nodes by their weights: those that are given, by
    /// name, or else those that were measured. Databases of the server itself, whose names begin with an underscore, stay
    /// in this process.
    ///
    /// # Errors
    /// [`Error::DatabaseExists`], [`Error::IllegalDatabaseName`], [`Error::BadRequest`], also if a node is not known;
    /// [`Error::Engine`], [`Error::Node`].
    pub fn create_copies(
        &self,
        name: &str,
        (shards, copies): (usize, usize),
        weights: Option<&[(String, f64)]>,
    ) -> Result<Arc<Database>> {
        self.create_as(name, (shards, copies), weights, false)
    }

    /// Makes a partitioned database, as [`Catalogue::create_copies`] makes others.
    ///
    /// # Errors
    /// As [`Catalogue::create_copies`]; [`Error::BadRequest`] for databases of the server itself.
    pub fn create_partitioned(
        &self,
        name: &str,
        (shards, copies): (usize, usize),
        weights: Option<&[(String, f64)]>,
    ) -> Result<Arc<Database>> {
        if name.starts_with('_') {
            let reason = "Cannot partition a system database";
            return Err(Error::BadRequest(reason.into()));
        }
        self.create_as(name, (shards, copies), weights, true)
    }

    fn create_as(
        &self,
        name: &str,
        (shards, copies): (usize, usize),
        weights: Option<&[(String, f64)]>,
        is_partitioned: bool,
    ) -> Result<Arc<Database>> {
        check_name(name)?;
        if shards == 0 || shards > SHARDS_MAX {
            let reason = format!("The `q` value should be a positive integer up to {SHARDS_MAX}.");
            return Err(Error::BadRequest(reason.into()));
        }
        if copies == 0 || copies > COPIES_MAX {
            let reason = format!("The `n` value should be a positive integer up to {COPIES_MAX}.");
            return Err(Error::BadRequest(reason.into()));
        }
        let _changing = self.change();
        if self.get(name).is_ok() {
            return Err(Error::DatabaseExists);
        }
        let places = self.places(name, (shards, copies), weights)?;
        let is_local =
            |nodes: &Vec<String>| matches!(nodes.as_slice(), [only] if only == LOCAL_NODE);
        let definition = Definition {
            uuid: random_uuid()?,
            shards,
            nodes: if places.iter().all(is_local) {
                Vec::new()
            } else {
                places.iter().map(|nodes| nodes[0].clone()).collect()
            },
            is_partitioned,
            security: String::new(),
        };
        let database = self.database(name, &definition);
        make_directory(&database.directory)?;
        self.create_on_drives(&definition, &places)?;
        drop(database.shards()?);
        // A name in the catalogue leads to files that a power cut leaves.
        sync_directory(&database.directory)?;
        sync_directory(&self.directory.join("databases"))?;
        self.save(name, &definition)?;
        let mut databases = self
            .databases
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        databases.insert(name.to_owned(), Arc::clone(&database));
        drop(databases);
        self.note_use(name);
        Ok(database)
    }

    /// The nodes of the copies of each shard of a new database.
    fn places(
        &self,
        name: &str,
        (shards, copies): (usize, usize),
        weights: Option<&[(String, f64)]>,
    ) -> Result<Vec<Vec<String>>> {
        let nodes = self.settings.nodes.as_ref();
        let Some(nodes) = nodes.filter(|_| !name.starts_with('_')) else {
            return Ok(vec![vec![LOCAL_NODE.to_owned()]; shards]);
        };
        let states = nodes.states();
        check_nodes(weights.unwrap_or_default(), &states)?;
        let weights = layout::weights_of(weights, &states);
        Ok(layout::places(&weights, shards, copies))
    }

    /// Makes the copies of the shards of a new database that lie on drives, and notes them in the book. They are noted as
    /// left before, so that a crash or an error leaves none without a trace.
    fn create_on_drives(&self, definition: &Definition, places: &[Vec<String>]) -> Result<()> {
        let Some(nodes) = &self.settings.nodes else {
            return Ok(());
        };
        let names: Vec<&str> = drives(places.iter().flatten()).collect();
        if names.is_empty() {
            return Ok(());
        }
        self.note_left(&definition.uuid, &names)?;
        for (number, copies) in places.iter().enumerate() {
            let range = ring::range_name(number, definition.shards);
            for node in drives(copies.iter()) {
                nodes.create(&ShardPlace {
                    node: node.to_owned(),
                    database: definition.uuid.clone(),
                    range: range.clone(),
                })?;
            }
            if copies.len() > 1 {
                let copy = |node: &String| ShardCopy {
                    node: node.clone(),
                    standing: Standing::Whole,
                };
                let shard = ShardKey {
                    database: definition.uuid.clone(),
                    range,
                };
                let copies: Vec<ShardCopy> = copies.iter().map(copy).collect();
                self.book.save(&shard, &copies, None)?;
            }
        }
        Ok(())
    }

    /// Notes that the drives have shards of a database that is not named, or not any more.
    fn note_left(&self, uuid: &str, names: &[&str]) -> Result<()> {
        let mut batch = WriteBatch::new();
        for node in names {
            batch.put(&left_key(uuid, node), &[]);
        }
        Ok(self.db.write(&batch, Durability::PowerLoss)?)
    }

    /// Removes what drives have of databases that are not named. What cannot be removed now, as the drive is away, is
    /// removed another time.
    fn remove_left(&self) {
        if let Err(error) = self.try_to_remove_left() {
            log::warn!("shards of deleted databases stay on drives for now: {error}");
        }
    }

    fn try_to_remove_left(&self) -> Result<()> {
        let Some(nodes) = &self.settings.nodes else {
            return Ok(());
        };
        let mut entries = self.db.iter(IterOptions::prefix([LEFT]))?;
        entries.seek_to_first()?;
        let mut gone = WriteBatch::new();
        let mut failure = None;
        while entries.valid() {
            let key = entries.key().to_vec();
            let text = std::str::from_utf8(&key[1..]).ok();
            let (uuid, node) = text
                .and_then(|text| text.split_at_checked(UUID_DIGITS))
                .ok_or_else(|| Error::damaged("a note of shards on drives", "it names none"))?;
            match nodes.remove(node, uuid) {
                Ok(()) => gone.delete(&key),
                Err(error) => failure = Some(error),
            }
            entries.next()?;
        }
        self.db.write(&gone, Durability::ProcessCrash)?;
        failure.map_or(Ok(()), Err)
    }

    /// Deletes the database `name` with all it holds, which is gone when it returns.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::IllegalDatabaseName`], [`Error::Engine`]; [`Error::File`]: then the database is
    /// gone, and the next opening removes what is left of its files.
    pub fn delete(&self, name: &str) -> Result<()> {
        check_name(name)?;
        let database = {
            let _changing = self.change();
            let database = self.get(name)?;
            let mut batch = WriteBatch::new();
            batch.delete(&key(DATABASE, name));
            for node in self.drives_of(&database)? {
                batch.put(&left_key(&database.uuid, &node), &[]);
            }
            Book::forget(&database.uuid, &mut batch);
            self.db.write(&batch, Durability::PowerLoss)?;
            let mut databases = self
                .databases
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            databases.remove(name);
            database
        };
        self.uses().remove(name);
        database.retire();
        if self.settings.nodes.is_some() {
            let _changing = self.change();
            self.remove_left();
        }
        remove_directory(&database.directory)
    }

    /// The drives that have copies of shards of `database`, or may have some left.
    fn drives_of(&self, database: &Database) -> Result<BTreeSet<String>> {
        let mut nodes = BTreeSet::new();
        for (_, copies) in database.places()? {
            nodes.extend(copies.into_iter().map(|copy| copy.node));
        }
        let left = self.book.left()?.into_iter();
        let left = left.filter(|left| left.shard.database == database.uuid);
        nodes.extend(left.map(|left| left.node));
        nodes.remove(LOCAL_NODE);
        Ok(nodes)
    }

    /// Says who may do what in `database`; `security` is canonical JSON.
    ///
    /// # Errors
    /// [`Error::NoDatabase`], [`Error::Engine`].
    pub fn set_security(&self, database: &Database, security: &str) -> Result<()> {
        let _changing = self.change();
        if self.get(&database.name)?.uuid != database.uuid {
            return Err(Error::NoDatabase);
        }
        let definition = Definition {
            uuid: database.uuid.clone(),
            shards: database.shard_count,
            is_partitioned: database.is_partitioned,
            nodes: match drives(database.places.iter()).next() {
                None => Vec::new(),
                Some(_) => database.places.clone(),
            },
            security: security.to_owned(),
        };
        self.save(&database.name, &definition)?;
        let mut kept = database
            .security
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        security.clone_into(&mut kept);
        Ok(())
    }

    /// A record of the server itself.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub fn record(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.db.get(&key(RECORD, name))?)
    }

    /// Keeps a record of the server itself, through power cuts.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub fn put_record(&self, name: &str, value: &[u8]) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put(&key(RECORD, name), value);
        Ok(self.db.write(&batch, Durability::PowerLoss)?)
    }

    fn save(&self, name: &str, definition: &Definition) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put(&key(DATABASE, name), &encode(definition));
        for state in self.node_states() {
            batch.delete(&left_key(&definition.uuid, &state.name));
        }
        Ok(self.db.write(&batch, Durability::PowerLoss)?)
    }

    pub(super) fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn uses(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the database is used, and closes others if too many are open.
    fn note_use(&self, name: &str) {
        let mut uses = self.uses();
        let now = uses.values().max().copied().unwrap_or_default() + 1;
        uses.insert(name.to_owned(), now);
        if uses.len() <= self.settings.open_max {
            return;
        }
        let mut by_age: Vec<(u64, String)> =
            uses.iter().map(|(it, at)| (*at, it.clone())).collect();
        by_age.sort();
        let databases = self.databases.read();
        let databases = databases.unwrap_or_else(PoisonError::into_inner);
        let surplus = by_age.len() - self.settings.open_max;
        for (_, name) in by_age.into_iter().take(surplus) {
            let is_closed = databases
                .get(&name)
                .is_none_or(|database| !database.is_open() || database.close());
            if is_closed {
                uses.remove(&name);
            }
        }
    }
}

impl std::fmt::Debug for Catalogue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Catalogue");
        shown
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

/// Checks that the nodes which `weights` name are there.
pub(super) fn check_nodes(weights: &[(String, f64)], states: &[NodeState]) -> Result<()> {
    let is_known =
        |name: &String| name == LOCAL_NODE || states.iter().any(|state| state.name == *name);
    match weights.iter().find(|(name, _)| !is_known(name)) {
        Some((name, _)) => {
            let reason = format!("There is no node {name}.");
            Err(Error::BadRequest(reason.into()))
        }
        None => Ok(()),
    }
}

fn key(space: u8, name: &str) -> Vec<u8> {
    [&[space], name.as_bytes()].concat()
}

fn left_key(uuid: &str, node: &str) -> Vec<u8> {
    [&[LEFT], uuid.as_bytes(), node.as_bytes()].concat()
}

/// The nodes among `places` that are not this process; some may come several times.
fn drives<'a>(places: impl Iterator<Item = &'a String>) -> impl Iterator<Item = &'a str> {
    let places = places.map(String::as_str);
    places.filter(|node| *node != LOCAL_NODE)
}

/// Checks that a database may be called `name`.
fn check_name(name: &str) -> Result<()> {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'$' | b'(' | b')' | b'+' | b'-' | b'/');
    let is_system = matches!(name, "_users" | "_replicator" | "_global_changes");
    let begins = name
        .bytes()
        .next()
        .is_some_and(|it| it.is_ascii_lowercase());
    if is_system || begins && name.bytes().all(is_allowed) && name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    Err(Error::IllegalDatabaseName(name.to_owned()))
}

/// 32 random hexadecimal digits.
fn random_uuid() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| Error::File {
        operation: "take random numbers from",
        path: PathBuf::from("the operating system"),
        reason: error.to_string(),
    })?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

fn make_directory(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).map_err(|error| Error::file("create", path, &error))
}

fn sync_directory(path: &Path) -> Result<()> {
    let synced = std::fs::File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|error| Error::file("sync", path, &error))
}

pub(super) fn remove_directory(path: &Path) -> Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::file("remove", path, &error))
        }
        _ => Ok(()),
    }
}
