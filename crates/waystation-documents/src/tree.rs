//! The revision tree: all versions of one document that this replica knows of.
//!
//! ```text
//!   1-a ── 2-b ── 3-c          the winner: not deleted, highest generation, highest identifier
//!      └── 2-d ── 3-e (deleted)
//! ```
//!
//! An ordinary update extends a leaf. Replication merges a path that another replica sends, and may so make
//! branches; branches that end in versions that are not deleted are *conflicts*. Every replica chooses the same
//! winner from the same leaves. The tree remembers no more than `revs_limit` ancestors of each leaf.
//!
//! Invariants: a parent stands before its children in `nodes`; a node's generation is its parent's plus one; no
//! node has two children of the same name.

use crate::error::Result;
use crate::revision::Revision;
use std::cmp::Ordering;
use waystation_format::FormatError;
use waystation_format::varint::{Reader, put_u64};

/// What is stored of a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// The update sequence at which it was written.
    pub sequence: u64,
    /// Whether it deletes the document.
    pub deleted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Node {
    revision: Revision,
    parent: Option<usize>,
    /// `None`: only the name is known.
    stored: Option<Stored>,
    is_leaf: bool,
}

/// A leaf of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaf<'a> {
    /// Its name.
    pub revision: &'a Revision,
    /// The update sequence at which it was written.
    pub sequence: u64,
    /// Whether it deletes the document.
    pub deleted: bool,
}

impl<'a> Leaf<'a> {
    fn of(node: &'a Node) -> Option<Self> {
        let stored = node.stored?;
        Some(Self {
            revision: &node.revision,
            sequence: stored.sequence,
            deleted: stored.deleted,
        })
    }

    /// The winner stands first.
    fn order(one: &Self, other: &Self) -> Ordering {
        let by_life = one.deleted.cmp(&other.deleted);
        by_life.then_with(|| other.revision.cmp(one.revision))
    }
}

/// What a merge did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merged {
    /// The version was known already.
    Known,
    /// It extends what was a leaf, or begins the tree.
    Extends,
    /// It begins another branch.
    Branches,
}

/// The versions of one document. See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RevisionTree {
    nodes: Vec<Node>,
}

impl RevisionTree {
    /// Adds the version `path[0]`, whose ancestors are the rest of `path`, newest first.
    ///
    /// The generations of `path` go down by one.
    pub fn merge(&mut self, path: &[Revision], stored: Stored) -> Merged {
        let is_path = |pair: &[Revision]| pair[0].generation == pair[1].generation + 1;
        assert!(path.windows(2).all(is_path), "a path goes back one by one");
        let mut parent = None;
        let mut extends_leaf = self.nodes.is_empty();
        let mut is_new = false;
        for revision in path.iter().rev() {
            let known = self.find_below(revision, parent);
            is_new = known.is_none();
            if let Some(known) = known {
                if let Some(parent) = parent {
                    self.nodes[known].parent = Some(parent);
                    self.nodes[parent].is_leaf = false;
                }
                extends_leaf = self.nodes[known].is_leaf;
                parent = Some(known);
                continue;
            }
            self.nodes.push(Node {
                revision: revision.clone(),
                parent,
                stored: None,
                is_leaf: false,
            });
            if let Some(parent) = parent {
                self.nodes[parent].is_leaf = false;
            }
            parent = Some(self.nodes.len() - 1);
        }
        let Some(leaf) = parent.filter(|_| is_new) else {
            self.order();
            return Merged::Known;
        };
        self.nodes[leaf].stored = Some(stored);
        self.nodes[leaf].is_leaf = true;
        self.order();
        if extends_leaf {
            Merged::Extends
        } else {
            Merged::Branches
        }
    }

    /// The node called `revision` that may be a child of `parent`.
    fn find_below(&self, revision: &Revision, parent: Option<usize>) -> Option<usize> {
        let fits = |node: &Node| {
            node.revision == *revision
                && (parent.is_none() || node.parent.is_none() || node.parent == parent)
        };
        self.nodes.iter().position(fits)
    }

    /// Puts parents before their children again.
    fn order(&mut self) {
        let in_order = |(at, node): (usize, &Node)| node.parent.is_none_or(|parent| parent < at);
        if self.nodes.iter().enumerate().all(in_order) {
            return;
        }
        let mut order: Vec<usize> = (0..self.nodes.len()).collect();
        order.sort_by_key(|at| self.nodes[*at].revision.generation);
        self.keep(&order);
    }

    /// Keeps the nodes at the places `kept`, in that order.
    fn keep(&mut self, kept: &[usize]) {
        let mut places = vec![None; self.nodes.len()];
        for (new, old) in kept.iter().enumerate() {
            places[*old] = Some(new);
        }
        let moved = |at: &usize| {
            let mut node = self.nodes[*at].clone();
            node.parent = node.parent.and_then(|parent| places[parent]);
            node
        };
        self.nodes = kept.iter().map(moved).collect();
    }

    /// Forgets all but `limit` (at least one) versions back from each leaf. Returns the names that are forgotten.
    pub fn stem(&mut self, limit: usize) -> Vec<Revision> {
        let mut is_kept = vec![false; self.nodes.len()];
        for (at, _) in self.leaf_nodes() {
            for at in self.back_from(at).take(limit.max(1)) {
                is_kept[at] = true;
            }
        }
        if is_kept.iter().all(|kept| *kept) {
            return Vec::new();
        }
        let kept: Vec<usize> = (0..self.nodes.len()).filter(|at| is_kept[*at]).collect();
        let forgotten = (0..self.nodes.len()).filter(|at| !is_kept[*at]);
        let forgotten = forgotten
            .map(|at| self.nodes[at].revision.clone())
            .collect();
        self.keep(&kept);
        forgotten
    }

    /// Removes the leaf `revision` and its ancestors that no other leaf has. Returns the names that are gone; none, if
    /// it is no leaf.
    pub fn purge(&mut self, revision: &Revision) -> Vec<Revision> {
        let leaf = self
            .leaf_nodes()
            .find(|(_, node)| node.revision == *revision);
        let Some(leaf) = leaf.map(|(at, _)| at) else {
            return Vec::new();
        };
        let mut is_kept = vec![false; self.nodes.len()];
        for (at, _) in self.leaf_nodes().filter(|(at, _)| *at != leaf) {
            for at in self.back_from(at) {
                is_kept[at] = true;
            }
        }
        let gone = (0..self.nodes.len()).filter(|at| !is_kept[*at]);
        let gone = gone.map(|at| self.nodes[at].revision.clone()).collect();
        let kept: Vec<usize> = (0..self.nodes.len()).filter(|at| is_kept[*at]).collect();
        self.keep(&kept);
        gone
    }

    fn leaf_nodes(&self) -> impl Iterator<Item = (usize, &Node)> {
        self.nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.is_leaf)
    }

    fn back_from(&self, at: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(at), |at| self.nodes[*at].parent)
    }

    /// Whether nothing is known of the document.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The leaves, the winner first.
    pub fn leaves(&self) -> Vec<Leaf<'_>> {
        let leaves = self.leaf_nodes().filter_map(|(_, node)| Leaf::of(node));
        let mut leaves: Vec<Leaf<'_>> = leaves.collect();
        leaves.sort_by(Leaf::order);
        leaves
    }

    /// The version that readers get who name none.
    pub fn winner(&self) -> Option<Leaf<'_>> {
        let leaves = self.leaf_nodes().filter_map(|(_, node)| Leaf::of(node));
        leaves.min_by(Leaf::order)
    }

    /// What is stored of `revision`; `None` if it is not known, `Some(None)` if only its name is.
    pub fn stored(&self, revision: &Revision) -> Option<Option<Stored>> {
        let node = self.nodes.iter().find(|node| node.revision == *revision)?;
        Some(node.stored)
    }

    /// `revision` and its ancestors, newest first; empty if it is not known.
    pub fn path(&self, revision: &Revision) -> Vec<&Revision> {
        let found = self
            .nodes
            .iter()
            .position(|node| node.revision == *revision);
        let path = found.into_iter().flat_map(|at| self.back_from(at));
        path.map(|at| &self.nodes[at].revision).collect()
    }

    /// The newest leaf that descends from `revision`, or is it.
    pub fn leaf_of(&self, revision: &Revision) -> Option<Leaf<'_>> {
        let descends = |leaf: &Leaf<'_>| self.path(leaf.revision).contains(&revision);
        self.leaves().into_iter().find(descends)
    }

    /// Stored versions older than `generation`, from which a replica may ask for what it lacks: the leaves first.
    pub fn possible_ancestors(&self, generation: u64) -> Vec<&Revision> {
        let older = |node: &&Node| node.revision.generation < generation && node.stored.is_some();
        let leaves = self.nodes.iter().filter(|node| node.is_leaf).filter(older);
        let mut found: Vec<&Revision> = leaves.map(|node| &node.revision).collect();
        found.sort();
        found
    }

    /// All versions that are stored and no leaves: compaction removes their bodies.
    pub fn superseded(&self) -> Vec<&Revision> {
        let is_superseded = |node: &&Node| !node.is_leaf && node.stored.is_some();
        let superseded = self.nodes.iter().filter(is_superseded);
        superseded.map(|node| &node.revision).collect()
    }

    /// Notes that only the names of superseded versions are known from now on.
    pub fn forget_superseded(&mut self) {
        for node in self.nodes.iter_mut().filter(|node| !node.is_leaf) {
            node.stored = None;
        }
    }

    /// Appends the tree's encoding.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_u64(out, self.nodes.len() as u64);
        for (at, node) in self.nodes.iter().enumerate() {
            node.revision.put(out);
            // How far back the parent is; 0: there is none.
            put_u64(out, node.parent.map_or(0, |parent| at - parent) as u64);
            let stored = node.stored;
            let flags = u8::from(node.is_leaf)
                | u8::from(stored.is_some()) << 1
                | u8::from(stored.is_some_and(|it| it.deleted)) << 2;
            out.push(flags);
            if let Some(stored) = stored {
                put_u64(out, stored.sequence);
            }
        }
    }

    /// Reads what [`RevisionTree::put`] wrote.
    pub(crate) fn take(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let count = reader.var_u64("count of revisions")?;
        let mut tree = Self::default();
        for at in 0..count {
            let revision = Revision::take(reader)?;
            let offset = reader.offset() as u64;
            let malformed = |reason| FormatError::Malformed { offset, reason };
            let back = reader.var_u64("parent")?;
            if back > at {
                return Err(malformed("a parent does not stand before its child"));
            }
            let parent = (back > 0).then(|| (at - back) as usize);
            let is_child = |parent: usize| {
                tree.nodes[parent].revision.generation.checked_add(1) == Some(revision.generation)
            };
            if !parent.is_none_or(is_child) {
                return Err(malformed("a child is not one generation behind its parent"));
            }
            let flags = reader.u8("flags of a revision")?;
            let stored = match flags & 2 {
                0 => None,
                _ => Some(Stored {
                    sequence: reader.var_u64("sequence of a revision")?,
                    deleted: flags & 4 != 0,
                }),
            };
            let is_leaf = flags & 1 != 0;
            if is_leaf && stored.is_none() || flags > 7 {
                return Err(malformed("the flags of a revision contradict each other"));
            }
            tree.nodes.push(Node {
                revision,
                parent,
                stored,
                is_leaf,
            });
        }
        Ok(tree)
    }
}

#[cfg(test)]
mod tests;
