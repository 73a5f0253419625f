//! One compaction on a drive that does nothing else: how long it takes.

use super::calendar::Nanos;
use super::config::{Load, Machine, ModelError};
use super::drive::{Drive, Side};
use super::job::{HostThreads, Job, Place, Step};
use super::layout::pages_of;
use super::shape::{Merge, Table};

/// The compaction, in records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records {
    /// Of each table of the upper level.
    pub upper: Vec<u64>,
    /// Of the next level.
    pub lower: Option<u64>,
    /// Of the result.
    pub made: u64,
    /// Bytes of a value.
    pub value_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
enum Tag {
    /// A page of an input is on flash.
    Stored,
    Job(Step),
}

/// The time from the command to the last page of the result on flash.
pub fn single(machine: &Machine, place: Place, records: &Records) -> Result<Nanos, ModelError> {
    let load = Load {
        value_bytes: records.value_bytes.max(1),
        ..Load::default()
    };
    let upper = records.upper.iter().copied();
    let mut tables = upper.chain(records.lower).enumerate().map(table_of);
    let merge = Merge {
        level: 0,
        upper: tables.by_ref().take(records.upper.len()).collect(),
        lower: tables.collect(),
        records_out: records.made,
    };
    let pages = |records| pages_of(records, &load, machine);
    let inputs = merge.upper.iter().chain(&merge.lower);
    let sizes: Vec<usize> = inputs.map(|table| pages(table.records)).collect();
    let made = pages(records.made);
    let small = with_room(machine, sizes.iter().sum::<usize>() + made);
    let mut drive = Drive::new(&small, true)?;
    let mut free = 0..drive.capacity() as u32;
    let mut take = |count: usize| {
        let taken: Vec<u32> = free.by_ref().take(count).collect();
        let full = ModelError::Full { pages: count };
        if taken.len() == count {
            Ok(taken)
        } else {
            Err(full)
        }
    };
    let stored = sizes.into_iter().map(&mut take);
    let stored: Vec<Vec<u32>> = stored.collect::<Result<_, _>>()?;
    let outputs = take(made)?;
    for page in stored.iter().flatten() {
        drive.write(*page, Side::Inside, 0, Tag::Stored)?;
    }
    while drive.next_done().is_some() {}
    let mut host = HostThreads::default();
    let lies = |table: &Table| stored[table.id].clone();
    let mut job = Job::new(place, machine, &load, merge, lies, outputs);
    job.start(&mut drive, &mut host, Tag::Job);
    loop {
        let stuck = ModelError::Stuck(drive.now());
        if let Tag::Job(step) = drive.next_done().ok_or(stuck)?
            && job.handle(step, &mut drive, &mut host, &Tag::Job)?
        {
            return Ok(drive.now() - job.begun());
        }
    }
}

fn table_of((id, records): (usize, u64)) -> Table {
    Table {
        id,
        from: 0.0,
        to: 1.0,
        records,
    }
}

/// The machine with no more blocks than such a job needs: an idle drive does not clean, and its map takes memory.
fn with_room(machine: &Machine, pages: usize) -> Machine {
    let mut small = machine.clone();
    let flash = &mut small.flash;
    let dies = flash.channels * flash.dies_per_channel;
    let per_die = 2 * pages.div_ceil(dies * flash.pages_per_block) + BLOCKS_MIN;
    flash.blocks_per_die = per_die.min(flash.blocks_per_die);
    small
}

/// The fewest blocks of a die that are simulated: enough to write and to have spare ones.
const BLOCKS_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn job(upper: usize, records: u64) -> Records {
        Records {
            upper: vec![records; upper],
            lower: Some(2 * records),
            made: (upper as u64 + 2) * records,
            value_bytes: 100,
        }
    }

    fn time(place: Place, records: &Records) -> Nanos {
        let machine = Machine::parse(Machine::COSMOS_PLUS).unwrap();
        single(&machine, place, records).unwrap()
    }

    #[test]
    fn twice_the_records_take_twice_the_time() {
        let place = Place::Drive { decoders: 9 };
        let (one, two) = (time(place, &job(4, 50_000)), time(place, &job(4, 100_000)));
        let ratio = two as f64 / one as f64;
        assert!((1.9..2.1).contains(&ratio), "{one} {two}");
    }

    #[test]
    fn stages_cost_time_and_the_drive_is_faster_than_the_host() {
        let records = job(8, 50_000);
        let drive = |decoders| time(Place::Drive { decoders }, &records);
        assert!(drive(2) > drive(9));
        assert!(time(Place::Host, &records) > drive(9));
    }

    #[test]
    fn the_same_job_takes_the_same_time() {
        let place = Place::Drive { decoders: 4 };
        assert_eq!(time(place, &job(6, 20_000)), time(place, &job(6, 20_000)));
    }
}
