//! Databases of every format there was open, and are read right.

use std::path::Path;
use waystation::inspect::Inspection;
use waystation_fuzz::fixture::{DIR, Kind, Outcome};

#[test]
fn what_was_kept_opens_and_is_right() {
    for kind in Kind::ALL {
        let machine = kind.load().unwrap().boot(Path::new(DIR)).unwrap();
        let report = Inspection::open(machine.clone(), DIR)
            .unwrap()
            .check(&mut |_| ())
            .unwrap();
        assert_eq!(report.problems, [], "{kind:?}");
        assert!(report.tables > 0, "{kind:?}");
        assert_eq!(
            report.snapshot_versions > 0,
            kind == Kind::Shown,
            "{kind:?}"
        );
        let outcome = kind.read(machine);
        assert!(matches!(outcome, Outcome::Right), "{kind:?}: {outcome:?}");
    }
}

#[test]
fn what_is_made_today_is_right_too() {
    for kind in Kind::ALL {
        if let Some(image) = kind.make().unwrap() {
            let outcome = kind.read(image.boot(Path::new(DIR)).unwrap());
            assert!(matches!(outcome, Outcome::Right), "{kind:?}: {outcome:?}");
        }
    }
}
