//! The same city on other engines, in the builds that hold them.

use super::args::{City, Rival};
use super::drive::Setup;
use super::error::CityError;
use super::ground::Ground;
use super::report::EngineReport;
use super::trace::Trace;

/// Refuses rivals that this build does not hold.
pub(crate) fn check_built(rivals: &[Rival]) -> Result<(), CityError> {
    if rivals.is_empty() || cfg!(feature = "rivals") {
        return Ok(());
    }
    let reason = "this build of the command holds no other engines: run `make city-rivals`, which fetches and \
                  compiles them";
    Err(CityError::Usage(reason.into()))
}

/// The city on a rival.
#[cfg(feature = "rivals")]
pub(crate) fn run(
    rival: Rival,
    args: &City,
    trace: &Trace,
    setup: &Setup<'_>,
    ground: &Ground,
    quiet: bool,
) -> Result<EngineReport, CityError> {
    use super::args::Survives;
    use super::edge::{LevelDbEdge, RocksDbEdge};
    use super::{one_engine, report};

    let share = args.memory / setup.cells.len() as u64;
    let memory = usize::try_from(share).unwrap_or(usize::MAX);
    let is_synced = args.hand_offs_survive == Survives::PowerLoss;
    let (name, deletes) = match rival {
        Rival::LevelDb => ("leveldb", "each key"),
        Rival::RocksDb => ("rocksdb", "the range"),
    };
    let quarter = crate::output::bytes_text(share / 4);
    let engine = report::Engine {
        name,
        settings: format!(
            "per cell: write buffer {quarter}, cache {quarter}, filter of 10 bits; a hand-off copies, then deletes {deletes}: a crash between leaves two owners"
        ),
    };
    let directory = ground.of(name);
    let setup = Setup {
        directory: &directory,
        ..*setup
    };
    let place = |cell: usize| directory.join(super::cell_directory(setup.cells, cell));
    std::fs::create_dir_all(&directory).map_err(CityError::file("create", &directory))?;
    let ran = match rival {
        Rival::LevelDb => {
            let open = |cell: usize| LevelDbEdge::open(&place(cell), memory, is_synced);
            one_engine(engine, trace, &setup, &open, quiet)
        }
        Rival::RocksDb => {
            let open = |cell: usize| RocksDbEdge::open(&place(cell), memory, is_synced);
            one_engine(engine, trace, &setup, &open, quiet)
        }
    };
    ground.clear(name);
    ran
}

/// The city on a rival: not in this build, as [`check_built`] has said.
#[cfg(not(feature = "rivals"))]
pub(crate) fn run(
    _rival: Rival,
    args: &City,
    _trace: &Trace,
    _setup: &Setup<'_>,
    _ground: &Ground,
    _quiet: bool,
) -> Result<EngineReport, CityError> {
    check_built(&args.against)?;
    Err(CityError::Worker)
}
