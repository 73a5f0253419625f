//! Random lives of one file, against a model that remembers every version of every byte.

use crate::storage::sim::Crash;
use crate::storage::{Area, File, OpenMode, SimStorage, Storage, Transfer};
use proptest::collection::vec;
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/db";
const FILE: &str = "/db/file";
const LENGTH_MAX: usize = 12_000;

/// What happens to the file.
#[derive(Debug, Clone)]
enum Step {
    Write { offset: usize, length: usize },
    Preallocate { length: usize },
    Sync,
    ProcessCrash { seed: u64 },
    PowerCut { seed: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let offset = 0..LENGTH_MAX / 2;
    let write =
        (offset, 1..LENGTH_MAX / 2).prop_map(|(offset, length)| Step::Write { offset, length });
    prop_oneof![
        8 => write,
        2 => (0..LENGTH_MAX).prop_map(|length| Step::Preallocate { length }),
        4 => Just(Step::Sync),
        1 => any::<u64>().prop_map(|seed| Step::ProcessCrash { seed }),
        3 => any::<u64>().prop_map(|seed| Step::PowerCut { seed }),
    ]
}

/// What the file holds, and what a power cut may make of it.
struct Model {
    newest: Vec<u8>,
    /// For each byte, every value it had since the last sync, the synced one included.
    versions: Vec<Vec<u8>>,
    /// The shortest and the longest the file was since the last sync.
    lengths: (usize, usize),
    /// What the last write wrote; each writes another byte.
    written: u8,
}

impl Model {
    fn settled(newest: Vec<u8>) -> Self {
        let mut versions: Vec<_> = newest.iter().map(|&byte| vec![byte]).collect();
        versions.resize(LENGTH_MAX, vec![0]);
        let lengths = (newest.len(), newest.len());
        Self {
            newest,
            versions,
            lengths,
            written: 0,
        }
    }

    fn changed(&mut self) {
        for (byte, versions) in self.newest.iter().zip(&mut self.versions) {
            if versions.last() != Some(byte) {
                versions.push(*byte);
            }
        }
        let (shortest, longest) = self.lengths;
        self.lengths = (
            shortest.min(self.newest.len()),
            longest.max(self.newest.len()),
        );
    }

    fn grow(&mut self, length: usize) {
        self.newest.resize(length, 0);
        self.changed();
    }

    fn allows(&self, left: &[u8]) -> Result<(), TestCaseError> {
        let (shortest, longest) = self.lengths;
        prop_assert!(
            (shortest..=longest).contains(&left.len()),
            "length {}",
            left.len()
        );
        for (place, byte) in left.iter().enumerate() {
            let allowed = self.versions[place].contains(byte);
            prop_assert!(
                allowed,
                "byte {place} is {byte}: {:?}",
                self.versions[place]
            );
        }
        Ok(())
    }
}

fn open(storage: &SimStorage, mode: OpenMode) -> Arc<dyn File> {
    storage
        .open(Path::new(FILE), mode, Transfer::Buffered, Area::Journal)
        .unwrap()
}

fn content(file: &dyn File) -> Vec<u8> {
    let mut bytes = vec![0; file.size().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    bytes
}

fn live(seed: u64, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut storage = SimStorage::new(seed);
    storage.create_dir(Path::new(DIR)).unwrap();
    let mut file = open(&storage, OpenMode::Create);
    storage.sync_dir(Path::new(DIR)).unwrap();
    let mut model = Model::settled(Vec::new());
    for step in steps {
        match *step {
            Step::Write { offset, length } => {
                model.written = model.written.wrapping_add(1).max(1);
                let data = vec![model.written; length];
                file.write_at(&data, offset as u64).unwrap();
                let end = model.newest.len().max(offset + length);
                model.newest.resize(end, 0);
                model.newest[offset..offset + length].copy_from_slice(&data);
                model.changed();
            }
            Step::Preallocate { length } => {
                file.preallocate(length as u64).unwrap();
                let length = length.max(model.newest.len());
                model.grow(length);
            }
            Step::Sync => {
                file.sync().unwrap();
                model = Model {
                    written: model.written,
                    ..Model::settled(model.newest)
                };
            }
            Step::ProcessCrash { seed } => {
                storage = storage.crash(seed, Crash::Process);
                file = open(&storage, OpenMode::ReadWrite);
            }
            Step::PowerCut { seed } => {
                storage = storage.crash(seed, Crash::PowerCut);
                file = open(&storage, OpenMode::ReadWrite);
                let left = content(&*file);
                model.allows(&left)?;
                model = Model {
                    written: model.written,
                    ..Model::settled(left)
                };
            }
        }
        prop_assert!(content(&*file) == model.newest, "after {step:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_byte_is_synced_or_a_later_version(seed: u64, steps in vec(step(), 1..25)) {
        live(seed, &steps)?;
    }

    /// A file of whole sectors, rewritten once: each sector is entirely old or entirely new.
    #[test]
    fn sectors_are_atomic_and_independent(seed: u64, cut: u64, sectors in 1..40_usize) {
        let storage = SimStorage::new(seed);
        storage.create_dir(Path::new(DIR)).unwrap();
        let file = open(&storage, OpenMode::Create);
        file.write_at(&vec![1; sectors * 512], 0).unwrap();
        file.sync().unwrap();
        storage.sync_dir(Path::new(DIR)).unwrap();
        file.write_at(&vec![2; sectors * 512], 0).unwrap();
        let left = content(&*open(&storage.crash(cut, Crash::PowerCut), OpenMode::Read));
        prop_assert_eq!(left.len(), sectors * 512);
        for sector in left.chunks(512) {
            prop_assert!(sector == [1; 512] || sector == [2; 512]);
        }
    }
}

#[test]
fn power_cuts_leave_old_new_and_mixed_files() {
    let mut seen = [0; 3];
    for seed in 0..100 {
        let storage = SimStorage::new(seed);
        storage.create_dir(Path::new(DIR)).unwrap();
        let file = open(&storage, OpenMode::Create);
        file.write_at(&vec![1; 65_536], 0).unwrap();
        file.sync().unwrap();
        storage.sync_dir(Path::new(DIR)).unwrap();
        file.write_at(&vec![2; 65_536], 0).unwrap();
        let left = content(&*open(
            &storage.crash(seed, Crash::PowerCut),
            OpenMode::Read,
        ));
        let new: usize = left.iter().map(|&byte| usize::from(byte == 2)).sum();
        seen[usize::from(new > 0) + usize::from(new == left.len())] += 1;
    }
    assert!(seen.iter().all(|&count| count >= 10), "{seen:?}");
}
