//! How many blocks were last accessed at or before a time: counts in three levels of 64, 64 and 16.
//!
//! A change touches one count in each level, a question adds up at most one row of each; rows are short and lie side
//! by side, which is several times as fast as a tree of single steps.

/// Times; a block's last access is one of them.
pub(super) const POSITIONS: usize = ROW * ROW * 16;
const ROW: usize = 64;

pub(super) struct Positions {
    /// Blocks at each time: at most those of one chunk.
    single: Vec<u8>,
    /// In each 64 times.
    rows: Vec<u16>,
    /// In each 64 rows.
    fields: [u32; 16],
    total: u32,
}

impl Positions {
    pub(super) fn new() -> Self {
        Self {
            single: vec![0; POSITIONS],
            rows: vec![0; POSITIONS / ROW],
            fields: [0; 16],
            total: 0,
        }
    }

    /// Blocks at all times.
    pub(super) fn total(&self) -> u32 {
        self.total
    }

    #[inline]
    pub(super) fn add(&mut self, position: u32, blocks: u8) {
        let at = position as usize;
        self.single[at] += blocks;
        self.rows[at / ROW] += u16::from(blocks);
        self.fields[at / ROW / ROW] += u32::from(blocks);
        self.total += u32::from(blocks);
    }

    #[inline]
    pub(super) fn subtract(&mut self, position: u32, blocks: u8) {
        let at = position as usize;
        self.single[at] -= blocks;
        self.rows[at / ROW] -= u16::from(blocks);
        self.fields[at / ROW / ROW] -= u32::from(blocks);
        self.total -= u32::from(blocks);
    }

    /// Blocks at later times.
    #[inline]
    pub(super) fn after(&self, position: u32) -> u32 {
        let at = position as usize;
        let (row, field) = (at / ROW, at / ROW / ROW);
        let singles: u16 = self.single[row * ROW..=at]
            .iter()
            .map(|count| u16::from(*count))
            .sum();
        let rows: u32 = self.rows[field * ROW..row]
            .iter()
            .map(|count| u32::from(*count))
            .sum();
        let fields: u32 = self.fields[..field].iter().sum();
        self.total - u32::from(singles) - rows - fields
    }

    pub(super) fn clear(&mut self) {
        self.single.fill(0);
        self.rows.fill(0);
        self.fields.fill(0);
        self.total = 0;
    }
}
