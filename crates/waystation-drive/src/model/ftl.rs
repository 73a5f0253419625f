//! The flash translation layer: where each logical page lies.
//!
//! Pages are written round the dies, channels first, so that a table's pages lie on all of them. A die fills one block
//! after another. Where a die runs low on free blocks, the block with the fewest valid pages is emptied (its valid pages
//! move within the die) and erased. What a file held is trimmed when the file goes, so that blocks of old tables cost
//! no moves.

use super::config::{FlashConfig, ModelError};

/// A page that holds nothing, or lies nowhere.
const NOWHERE: u32 = u32::MAX;
/// Free blocks of a die below which one is made.
const FREE_MIN: usize = 3;

/// Where a page was written, and what had to be done for it first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) die: usize,
    /// Valid pages that were moved to empty a block, which was erased then; none if there was no need.
    pub(super) moved: Option<usize>,
}

/// The map of a drive.
pub(super) struct Ftl {
    /// Physical page of each logical one.
    pages: Vec<u32>,
    /// Logical page of each physical one.
    owners: Vec<u32>,
    dies: Vec<DieMap>,
    pages_per_block: usize,
    /// The die that is written next.
    cursor: usize,
    /// Logical pages that hold data.
    used: usize,
}

struct DieMap {
    /// Valid pages of each block.
    valid: Vec<u32>,
    free: Vec<u32>,
    open: usize,
    /// Pages written in the open block.
    filled: usize,
}

impl Ftl {
    pub(super) fn new(config: &FlashConfig) -> Self {
        let logical = (config.pages() as u64 * (100 - config.spare_percent as u64) / 100) as usize;
        let die = || DieMap {
            valid: vec![0; config.blocks_per_die],
            free: (1..config.blocks_per_die as u32).rev().collect(),
            open: 0,
            filled: 0,
        };
        Self {
            pages: vec![NOWHERE; logical],
            owners: vec![NOWHERE; config.pages()],
            dies: (0..config.channels * config.dies_per_channel)
                .map(|_| die())
                .collect(),
            pages_per_block: config.pages_per_block,
            cursor: 0,
            used: 0,
        }
    }

    /// How many logical pages there are.
    pub(super) fn capacity(&self) -> usize {
        self.pages.len()
    }

    /// The die that holds a page.
    pub(super) fn find(&self, page: u32) -> Option<usize> {
        let at = *self.pages.get(page as usize)?;
        (at != NOWHERE).then(|| at as usize / self.pages_per_die())
    }

    /// Gives a page its place on the next die.
    pub(super) fn write(&mut self, page: u32) -> Result<Placed, ModelError> {
        let die = self.cursor;
        self.cursor = (self.cursor + 1) % self.dies.len();
        self.trim(page);
        let moved = self.make_room(die)?;
        self.put(die, page);
        self.used += 1;
        Ok(Placed { die, moved })
    }

    /// Forgets a page.
    pub(super) fn trim(&mut self, page: u32) {
        let at = std::mem::replace(&mut self.pages[page as usize], NOWHERE);
        if at == NOWHERE {
            return;
        }
        self.owners[at as usize] = NOWHERE;
        let (die, block) = self.block_of(at as usize);
        self.dies[die].valid[block] -= 1;
        self.used -= 1;
    }

    fn pages_per_die(&self) -> usize {
        self.owners.len() / self.dies.len()
    }

    fn block_of(&self, at: usize) -> (usize, usize) {
        let per_die = self.pages_per_die();
        (at / per_die, at % per_die / self.pages_per_block)
    }

    /// Writes a page into the die's open block, which has room or is followed by a free one.
    fn put(&mut self, die: usize, page: u32) {
        let (per_die, per_block) = (self.pages_per_die(), self.pages_per_block);
        let map = &mut self.dies[die];
        if map.filled == per_block
            && let Some(block) = map.free.pop()
        {
            map.open = block as usize;
            map.filled = 0;
        }
        let at = die * per_die + map.open * per_block + map.filled;
        map.filled += 1;
        map.valid[map.open] += 1;
        self.owners[at] = page;
        self.pages[page as usize] = at as u32;
    }

    /// Empties a block if the die has too few; how many pages moved.
    fn make_room(&mut self, die: usize) -> Result<Option<usize>, ModelError> {
        let map = &self.dies[die];
        if map.filled < self.pages_per_block || map.free.len() >= FREE_MIN {
            return Ok(None);
        }
        let full = || ModelError::Full { pages: self.used };
        let victim = victim(&map.valid, map.open, &map.free).ok_or_else(full)?;
        let moved = map.valid[victim] as usize;
        if moved == self.pages_per_block {
            return Err(full());
        }
        let first = die * self.pages_per_die() + victim * self.pages_per_block;
        for at in first..first + self.pages_per_block {
            let page = std::mem::replace(&mut self.owners[at], NOWHERE);
            if page != NOWHERE {
                self.dies[die].valid[victim] -= 1;
                self.put(die, page);
            }
        }
        self.dies[die].free.insert(0, victim as u32);
        Ok(Some(moved))
    }
}

/// The block that is cheapest to empty: a pure decision.
fn victim(valid: &[u32], open: usize, free: &[u32]) -> Option<usize> {
    (0..valid.len())
        .filter(|&block| block != open && !free.contains(&(block as u32)))
        .min_by_key(|&block| valid[block])
}

#[cfg(test)]
mod tests {
    use super::super::config::Machine;
    use super::*;

    fn small() -> FlashConfig {
        FlashConfig {
            channels: 2,
            dies_per_channel: 1,
            blocks_per_die: 8,
            pages_per_block: 4,
            spare_percent: 40,
            ..Machine::parse(Machine::COSMOS_PLUS)
                .expect("it is sound")
                .flash
        }
    }

    #[test]
    fn pages_go_round_the_dies_and_are_found() {
        let mut ftl = Ftl::new(&small());
        let dies: Vec<usize> = (0..4)
            .map(|page| ftl.write(page).expect("room").die)
            .collect();
        assert_eq!(dies, [0, 1, 0, 1]);
        assert_eq!(ftl.find(2), Some(0));
        ftl.trim(2);
        assert_eq!(ftl.find(2), None);
        assert_eq!(ftl.used, 3);
    }

    #[test]
    fn blocks_are_emptied_without_losing_a_page() {
        let mut ftl = Ftl::new(&small());
        let logical = ftl.capacity() as u32;
        let mut moved = 0;
        for round in 0..40 {
            for page in (0..logical).filter(|page| round == 0 || page % 3 == round % 3) {
                moved += ftl.write(page).expect("room").moved.unwrap_or(0);
            }
            let valid: u32 = ftl.dies.iter().flat_map(|die| &die.valid).sum();
            assert_eq!(valid, logical);
            for page in 0..logical {
                let at = ftl.pages[page as usize] as usize;
                assert_eq!(ftl.owners[at], page);
            }
        }
        assert!(moved > 0, "nothing was ever moved");
    }

    #[test]
    fn what_is_trimmed_whole_costs_no_moves() {
        let mut ftl = Ftl::new(&small());
        for _ in 0..20 {
            for page in 0..16 {
                assert_eq!(ftl.write(page).expect("room").moved.unwrap_or(0), 0);
            }
            (0..16).for_each(|page| ftl.trim(page));
        }
    }
}
