//! kill -9 while devices write, settle, depart and are handed back and forth between two engines.
//!
//! The child (this test binary started again) has both engines open. Each of its threads drives devices of its own,
//! by steps that follow from the seed alone, and tells each step once it is acknowledged. After each kill this
//! process opens both engines, ends the hand-offs that were on their way, half of them by going on and half by going
//! back, and compares: every device is in one engine, with what its thread wrote to it up to what was told, or with
//! one more step. It shares no memory with the child. `WAYSTATION_KILLS` sets the number of cycles (default 100).

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use waystation::{
    Db, DeviceOptions, Durability, Error, Extractor, IterOptions, Options, WriteBatch,
};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

const THREADS: u64 = 4;
const DEVICES: u64 = 5;
const CHILD: &str = "WAYSTATION_HANDOFF_CHILD";
const NAMES: [&str; 2] = ["west", "east"];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// What a thread does to one of its devices.
enum Act {
    Write(Vec<(Vec<u8>, Option<Vec<u8>>)>),
    Depart,
    /// Hands it on to the other engine.
    HandOn,
}

struct Step {
    device: Vec<u8>,
    act: Act,
    durability: Durability,
}

/// The `index`th step of `thread`.
fn step(seed: u64, thread: u64, index: u64) -> Step {
    let mut random = Random(seed ^ (thread << 48) ^ index.wrapping_mul(0x5851_f42d_4c95_7f2d));
    let device = format!("car{thread}-{}", random.below(DEVICES)).into_bytes();
    let act = match random.below(100) {
        0..70 => {
            let count = 1 + random.below(8);
            let mut changes: Vec<_> = (0..count)
                .map(|_| {
                    let key = format!("/{:03}", random.below(150)).into_bytes();
                    let value = (random.below(5) != 0).then(|| {
                        let length = match random.below(200) {
                            // Handed on in parts.
                            0 => 150_000,
                            1..20 => 4_000,
                            _ => random.below(300) as usize,
                        };
                        vec![random.next() as u8; length]
                    });
                    ([&device[..], &key].concat(), value)
                })
                .collect();
            // Each write shows.
            let count = [&device[..], b"/~"].concat();
            changes.push((count, Some(index.to_le_bytes().to_vec())));
            Act::Write(changes)
        }
        70..74 => Act::Depart,
        _ => Act::HandOn,
    };
    let durability = if random.below(4) == 0 {
        Durability::PowerLoss
    } else {
        Durability::ProcessCrash
    };
    Step {
        device,
        act,
        durability,
    }
}

/// What `thread`'s devices hold after its first `count` steps, given what they held after `from`.
fn advance(seed: u64, thread: u64, from: u64, count: u64, state: &mut State) {
    for index in from..count {
        let step = step(seed, thread, index);
        match step.act {
            Act::Write(changes) => {
                for (key, value) in changes {
                    match value {
                        Some(value) => state.insert(key, value),
                        None => state.remove(&key),
                    };
                }
            }
            Act::Depart => {
                let prefix = [&step.device[..], b"/"].concat();
                state.retain(|key, _| !key.starts_with(&prefix));
            }
            Act::HandOn => {}
        }
    }
}

fn options() -> Options {
    Options {
        memtable_bytes: 512 << 10,
        table_bytes: 256 << 10,
        ring_bytes: 512 << 10,
        log_segment_bytes: 1 << 20,
        cache_bytes: 1 << 20,
        devices: Some(DeviceOptions {
            residency: Duration::from_millis(60),
            ..DeviceOptions::new(Extractor::until(b'/'))
        }),
        ..Options::default()
    }
}

fn open(dir: &Path) -> [Db; 2] {
    NAMES.map(|name| Db::open(dir.join(name), options()).expect("open"))
}

fn hand_on(device: &[u8], engines: &[Db; 2], from: usize, durability: Durability) {
    let (source, destination) = (&engines[from], &engines[1 - from]);
    let stream = source
        .export_device(device, NAMES[1 - from], durability)
        .expect("export");
    let receipt = destination.admit_device(stream).expect("admit");
    source.complete_export(&receipt).expect("complete");
}

/// Ends the hand-offs that were on their way.
fn end_hand_offs(engines: &[Db; 2]) {
    for from in [0, 1] {
        for ticket in engines[from].exports().expect("exports") {
            let goes_back = ticket.sequence % 2 == 0;
            let refused = goes_back.then(|| engines[1 - from].refuse_device(&ticket));
            match refused {
                Some(Ok(refusal)) => engines[from].abort_export(&refusal).expect("abort"),
                Some(Err(Error::Ticket { .. })) | None => {
                    let durability = Durability::ProcessCrash;
                    hand_on(&ticket.device, engines, from, durability);
                }
                Some(Err(error)) => panic!("refuse: {error}"),
            }
        }
    }
}

fn has_any(db: &Db, device: &[u8]) -> bool {
    let prefix = [device, b"/"].concat();
    let mut entries = db.iter(IterOptions::prefix(prefix)).expect("iter");
    entries.seek_to_first().expect("seek");
    entries.valid()
}

/// Body of the child: drives until killed. `from` says how far each thread got.
fn drive_until_killed(dir: &Path, seed: u64, from: &[u64]) {
    let engines = open(dir);
    end_hand_offs(&engines);
    let out = std::io::stdout();
    std::thread::scope(|scope| {
        for (thread, start) in (0..THREADS).zip(from) {
            let (engines, out) = (&engines, &out);
            scope.spawn(move || {
                for index in *start.. {
                    let step = step(seed, thread, index);
                    take(&step, engines);
                    let mut out = out.lock();
                    out.write_all(format!("{thread} {}\n", index + 1).as_bytes())
                        .expect("tell");
                    out.flush().expect("tell");
                }
            });
        }
    });
}

fn take(step: &Step, engines: &[Db; 2]) {
    let device = &step.device;
    let owner = usize::from(has_any(&engines[1], device));
    let is_anywhere = owner == 1 || has_any(&engines[0], device);
    match &step.act {
        Act::Write(changes) => {
            let mut batch = WriteBatch::new();
            for (key, value) in changes {
                match value {
                    Some(value) => batch.put(key, value),
                    None => batch.delete(key),
                }
            }
            // One that has departed for good comes anew, wherever it was.
            if !is_anywhere && engines[owner].moved_to(device).expect("stub").is_some() {
                engines[owner].lift_stub(device).expect("lift");
            }
            engines[owner]
                .write(&batch, step.durability)
                .expect("write");
        }
        Act::Depart => match engines[owner].depart(device) {
            Ok(()) => {}
            Err(Error::UnknownDevice { .. } | Error::Moved { .. }) if !is_anywhere => {}
            Err(error) => panic!("depart: {error}"),
        },
        Act::HandOn if is_anywhere => hand_on(device, engines, owner, step.durability),
        Act::HandOn => {}
    }
}

/// What both engines hold together; no device is in both.
fn whole_state(engines: &[Db; 2]) -> State {
    let mut state = State::new();
    for db in engines {
        let mut entries = db.iter(IterOptions::default()).expect("iter");
        entries.seek_to_first().expect("seek");
        while entries.valid() {
            let (key, value) = (entries.key().to_vec(), entries.value().to_vec());
            let doubled = state.insert(key, value);
            assert_eq!(doubled, None, "a key is in both engines");
            entries.next().expect("next");
        }
    }
    state
}

struct Oracle {
    seed: u64,
    done: Vec<u64>,
    states: Vec<State>,
}

impl Oracle {
    fn verify(&mut self, dir: &Path, told: &[u64], cycle: u64) {
        let copy = tempfile::tempdir().expect("tempdir");
        let closes = cycle.is_multiple_of(10);
        let dir = if closes {
            dir
        } else {
            for name in NAMES {
                copy_files(dir, copy.path(), name);
            }
            copy.path()
        };
        let engines = open(dir);
        end_hand_offs(&engines);
        let mut found = whole_state(&engines);
        for thread in 0..THREADS {
            let at = thread as usize;
            let own = format!("car{thread}-").into_bytes();
            let next = format!("car{thread}.").into_bytes();
            let mut part = found.split_off(&own);
            let mut rest = part.split_off(&next);
            found.append(&mut rest);
            advance(
                self.seed,
                thread,
                self.done[at],
                told[at],
                &mut self.states[at],
            );
            self.done[at] = told[at];
            if part != self.states[at] {
                let last = told[at] + 1;
                advance(self.seed, thread, told[at], last, &mut self.states[at]);
                self.done[at] = last;
            }
            assert!(
                part == self.states[at],
                "cycle {cycle}, seed {}: thread {thread} was told {} steps",
                self.seed,
                told[at]
            );
        }
        assert!(found.is_empty(), "nobody wrote {} keys", found.len());
        for db in engines {
            if closes {
                assert!(db.check().expect("check").problems.is_empty());
            }
            db.close().expect("close");
        }
    }
}

fn copy_files(source: &Path, target: &Path, name: &str) {
    std::fs::create_dir(target.join(name)).expect("create");
    let Ok(entries) = std::fs::read_dir(source.join(name)) else {
        return;
    };
    for entry in entries {
        let entry = entry.expect("entry");
        std::fs::copy(entry.path(), target.join(name).join(entry.file_name())).expect("copy");
    }
}

fn start_child(dir: &Path, seed: u64, from: &[u64]) -> Child {
    let from: Vec<String> = from.iter().map(u64::to_string).collect();
    Command::new(std::env::current_exe().expect("own path"))
        .args(["hand_offs_survive_kill_9", "--exact", "--nocapture"])
        .env(
            CHILD,
            format!("{seed} {} {}", from.join(","), dir.display()),
        )
        .stdout(Stdio::piped())
        .spawn()
        .expect("start child")
}

#[test]
fn hand_offs_survive_kill_9() {
    if let Ok(child) = std::env::var(CHILD) {
        let mut words = child.splitn(3, ' ');
        let mut word = || words.next().expect("seed, steps and directory");
        let (seed, from, dir) = (word(), word(), word());
        let from: Result<Vec<u64>, _> = from.split(',').map(str::parse).collect();
        let seed = seed.parse().expect("seed");
        drive_until_killed(Path::new(dir), seed, &from.expect("steps"));
    }
    let kills: u64 =
        std::env::var("WAYSTATION_KILLS").map_or(100, |n| n.parse().expect("a number"));
    let seed = std::env::var("WAYSTATION_SEED").map_or_else(
        |_| u64::from(std::process::id()),
        |n| n.parse().expect("a number"),
    );
    println!("hand-off kill test: {kills} cycles, WAYSTATION_SEED={seed}");
    let dir = tempfile::tempdir().expect("tempdir");
    let mut oracle = Oracle {
        seed,
        done: vec![0; THREADS as usize],
        states: vec![State::new(); THREADS as usize],
    };
    let mut random = Random(seed);
    for cycle in 1..=kills {
        let told = one_life(dir.path(), seed, &oracle.done, &mut random);
        oracle.verify(dir.path(), &told, cycle);
    }
    let steps: u64 = oracle.done.iter().sum();
    println!("hand-off kill test: {kills} kills, {steps} steps, nothing lost or doubled");
    assert!(steps > kills, "the children came to something");
}

/// Starts a child, kills it, and returns how far its threads told that they were.
fn one_life(dir: &Path, seed: u64, done: &[u64], random: &mut Random) -> Vec<u64> {
    let mut child = start_child(dir, seed, done);
    let mut pipe = child.stdout.take().expect("pipe");
    let reader = std::thread::Builder::new()
        .spawn(move || {
            let mut told = Vec::new();
            pipe.read_to_end(&mut told).expect("read pipe");
            told
        })
        .expect("reader");
    std::thread::sleep(Duration::from_millis(30 + random.below(250)));
    child.kill().expect("kill");
    child.wait().expect("wait");
    let told = reader.join().expect("reader");
    let mut acknowledged = done.to_vec();
    for line in BufReader::new(&told[..]).lines().map_while(Result::ok) {
        let Some((thread, index)) = line.split_once(' ') else {
            continue;
        };
        if let (Ok(thread), Ok(index)) = (thread.parse::<usize>(), index.parse()) {
            acknowledged[thread] = index;
        }
    }
    acknowledged
}
