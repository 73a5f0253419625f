//! kill -9 while devices write, settle, depart and are handed back and forth between two engines.
//!
//! The child (this test binary started again) has both engines open. Each of its threads drives devices of its own,
//! by steps that follow from the seed alone, and tells each step once it is acknowledged. After each kill this
//! process opens both engines, ends the hand-offs that were on their way, half of them by going on and half by going
//! back, and compares: every device is in one engine, with what its thread wrote to it up to what was told, or with
//! one more step. It shares no memory with the child. `WAYSTATION_KILLS` sets the number of cycles (default 100).

use crate::support::kills::{cycles_and_seed, one_life, options, tell, test_name};
use crate::support::{Random, add_changes, copy_files};
use std::collections::BTreeMap;
use std::path::Path;
use waystation::{Db, DeviceError, Durability, Error, IterOptions, WriteBatch};

type State = BTreeMap<Vec<u8>, Vec<u8>>;

const THREADS: u64 = 4;
const DEVICES: u64 = 5;
const CHILD: &str = "WAYSTATION_HANDOFF_CHILD";
const NAMES: [&str; 2] = ["west", "east"];

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

fn open(dir: &Path) -> [Db; 2] {
    NAMES.map(|name| Db::open(dir.join(name), options(true)).expect("open"))
}

fn hand_on(device: &[u8], engines: &[Db; 2], from: usize, durability: Durability) {
    let (source, destination) = (&engines[from], &engines[1 - from]);
    let stream = source
        .devices()
        .export(device, NAMES[1 - from], durability)
        .expect("export");
    let receipt = destination.devices().admit(stream).expect("admit");
    source.devices().complete(&receipt).expect("complete");
}

/// Ends the hand-offs that were on their way.
fn end_hand_offs(engines: &[Db; 2]) {
    for from in [0, 1] {
        for ticket in engines[from].devices().exports().expect("exports") {
            let goes_back = ticket.sequence % 2 == 0;
            let refused = goes_back.then(|| engines[1 - from].devices().refuse(&ticket));
            match refused {
                Some(Ok(refusal)) => engines[from].devices().abort(&refusal).expect("abort"),
                Some(Err(Error::Device(DeviceError::Ticket { .. }))) | None => {
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
    std::thread::scope(|scope| {
        for (thread, start) in (0..THREADS).zip(from) {
            let engines = &engines;
            scope.spawn(move || {
                for index in *start.. {
                    let step = step(seed, thread, index);
                    take(&step, engines);
                    tell(thread, index + 1);
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
            add_changes(&mut batch, changes);
            // One that has departed for good comes anew, wherever it was.
            if !is_anywhere
                && engines[owner]
                    .devices()
                    .moved_to(device)
                    .expect("stub")
                    .is_some()
            {
                engines[owner].devices().lift_stub(device).expect("lift");
            }
            engines[owner]
                .write(&batch, step.durability)
                .expect("write");
        }
        Act::Depart => match engines[owner].devices().depart(device) {
            Ok(()) => {}
            Err(Error::Device(DeviceError::Unknown { .. } | DeviceError::Moved { .. }))
                if !is_anywhere => {}
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
                let target = copy.path().join(name);
                std::fs::create_dir(&target).expect("create");
                // A kill may have come before there was one.
                if dir.join(name).is_dir() {
                    copy_files(&dir.join(name), &target);
                }
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
    let (kills, seed) = cycles_and_seed();
    let dir = tempfile::tempdir().expect("tempdir");
    let mut oracle = Oracle {
        seed,
        done: vec![0; THREADS as usize],
        states: vec![State::new(); THREADS as usize],
    };
    let mut random = Random(seed);
    for cycle in 1..=kills {
        let done: Vec<String> = oracle.done.iter().map(u64::to_string).collect();
        let value = format!("{seed} {} {}", done.join(","), dir.path().display());
        let child = (CHILD, &value[..]);
        let test = test_name(module_path!(), "hand_offs_survive_kill_9");
        let told = one_life(&test, child, &oracle.done, &mut random);
        oracle.verify(dir.path(), &told, cycle);
    }
    let steps: u64 = oracle.done.iter().sum();
    println!("hand-off kill test: {kills} kills, {steps} steps, nothing lost or doubled");
    assert!(steps > kills, "the children came to something");
}
