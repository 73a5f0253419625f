//! Makes a failing list smaller: pieces are left out as long as it fails, large ones first, then single ones.

use super::operations::Operation;

/// A list on which `fails` still says yes, and of which nothing can be left out.
pub(crate) fn reduce(
    operations: &[Operation],
    fails: impl Fn(&[Operation]) -> bool,
) -> Vec<Operation> {
    let mut kept = operations.to_vec();
    let mut piece = kept.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let before = kept.len();
        while at < kept.len() {
            let mut fewer = kept.clone();
            fewer.drain(at..kept.len().min(at + piece));
            if fails(&fewer) {
                kept = fewer;
            } else {
                at += piece;
            }
        }
        if piece > 1 {
            piece = piece.div_ceil(2);
        } else if kept.len() == before {
            return kept;
        }
    }
}
