//! Single flipped bits: each detected or harmless.
//!
//! Every 16th by default; `WAYSTATION_FLIP_PART=8` takes every eighth, as `make test` does, and `WAYSTATION_FLIP_PART=1` all
//! of them, as `make soak` does: some minutes on two cores.

use std::path::Path;
use std::thread;
use waystation_fuzz::fixture::{DIR, Kind, Outcome};
use waystation_fuzz::flips::{Tally, flip_all};

const THREADS: usize = 2;

#[test]
fn every_flipped_bit_is_detected_or_harmless() {
    let part = std::env::var("WAYSTATION_FLIP_PART");
    let part: usize = part.map_or(16, |part| part.parse().unwrap());
    let parts = THREADS * part;
    let mut harm = Vec::new();
    let mut sum = Tally::default();
    for kind in Kind::ALL {
        let image = kind.load().unwrap();
        for (name, _) in &image.files {
            // Its other files are as those of the devices without an image.
            if kind == Kind::Shown && !name.starts_with("INDEXES") {
                continue;
            }
            // And here those of one that crashed.
            if kind == Kind::Gap && !name.to_lowercase().starts_with("journal") {
                continue;
            }
            let mut tally = Tally::default();
            thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|rest| {
                        scope.spawn({
                            let image = &image;
                            move || flip_all(kind, image, name, (rest * part, parts))
                        })
                    })
                    .collect();
                for thread in threads {
                    tally.add(thread.join().unwrap());
                }
            });
            println!(
                "{:<10} {name:<24} harmless {:>6}, refused {:>6}, a read failed {:>6}, cut {:>5}, harm {}",
                kind.name(),
                tally.harmless,
                tally.refused,
                tally.detected,
                tally.cut,
                tally.harm.len()
            );
            harm.extend(
                tally
                    .harm
                    .iter()
                    .map(|what| format!("{}/{name}: {what}", kind.name())),
            );
            sum.add(tally);
        }
    }
    println!(
        "{} harmless, {} refused, {} failed a read, {} cut",
        sum.harmless, sum.refused, sum.detected, sum.cut
    );
    assert!(sum.refused > 0 && sum.detected > 0, "nothing was damaged");
    harm.truncate(20);
    assert_eq!(harm, Vec::<String>::new());
}

#[test]
fn a_cut_or_lost_vault_is_missed() {
    let image = Kind::Spilled.load().unwrap();
    let is_vault = |name: &str| Path::new(name).extension().is_some_and(|it| it == "vault");
    let vaults: Vec<_> = image.files.iter().filter(|it| is_vault(&it.0)).collect();
    assert_eq!(vaults.len(), 2, "one with dates and one without");
    for (name, content) in vaults {
        let cut = (0..content.len()).map(|length| image.with(name, content[..length].to_vec()));
        let mut lost = image.clone();
        lost.files.retain(|it| it.0 != *name);
        for damaged in cut.chain([lost]) {
            let outcome = Kind::Spilled.read(damaged.boot(Path::new(DIR)).unwrap());
            let Outcome::Refused(error) = &outcome else {
                panic!("{name}: {outcome:?}");
            };
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
