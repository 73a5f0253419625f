//! Trees that grow by updates and by replication.

use super::*;
use proptest::prelude::*;

fn revision(text: &str) -> Revision {
    text.parse().expect("a revision")
}

fn path(texts: &[&str]) -> Vec<Revision> {
    texts.iter().map(|text| revision(text)).collect()
}

fn live(sequence: u64) -> Stored {
    Stored {
        sequence,
        deleted: false,
    }
}

fn dead(sequence: u64) -> Stored {
    Stored {
        sequence,
        deleted: true,
    }
}

fn winner(tree: &RevisionTree) -> String {
    tree.winner()
        .map_or_else(String::new, |leaf| leaf.revision.to_string())
}

#[test]
fn updates_extend_and_replicas_branch() {
    let mut tree = RevisionTree::default();
    assert_eq!(tree.merge(&path(&["1-a"]), live(1)), Merged::Extends);
    assert_eq!(tree.merge(&path(&["2-b", "1-a"]), live(2)), Merged::Extends);
    assert_eq!(tree.merge(&path(&["2-b", "1-a"]), live(3)), Merged::Known);
    assert_eq!(
        tree.merge(&path(&["2-c", "1-a"]), live(4)),
        Merged::Branches
    );
    assert_eq!(winner(&tree), "2-c");
    assert_eq!(
        tree.merge(&path(&["3-d", "2-c", "1-a"]), dead(5)),
        Merged::Extends
    );
    assert_eq!(winner(&tree), "2-b", "what is not deleted wins");
    assert_eq!(tree.leaves().len(), 2);
    assert_eq!(tree.superseded().len(), 2);
}

#[test]
fn a_known_name_gets_its_older_ancestors() {
    let mut tree = RevisionTree::default();
    tree.merge(&path(&["4-d", "3-c"]), live(1));
    tree.merge(&path(&["5-e", "4-d", "3-c", "2-b", "1-a"]), live(2));
    let names: Vec<String> = (tree.path(&revision("5-e")).iter())
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["5-e", "4-d", "3-c", "2-b", "1-a"]);
    assert_eq!(tree.leaves().len(), 1);
}

#[test]
fn paths_that_share_nothing_are_roots_of_their_own() {
    let mut tree = RevisionTree::default();
    tree.merge(&path(&["2-b", "1-a"]), live(1));
    assert_eq!(tree.merge(&path(&["9-z"]), live(2)), Merged::Branches);
    assert_eq!(winner(&tree), "9-z");
    assert_eq!(tree.possible_ancestors(9), [&revision("2-b")]);
}

#[test]
fn stemming_keeps_the_newest_of_each_branch() {
    let mut tree = RevisionTree::default();
    tree.merge(&path(&["4-d", "3-c", "2-b", "1-a"]), live(1));
    tree.merge(&path(&["2-x", "1-a"]), live(2));
    assert_eq!(tree.stem(2), [revision("2-b")]);
    assert_eq!(tree.path(&revision("4-d")).len(), 2);
    assert_eq!(tree.path(&revision("2-x")).len(), 2);
    assert_eq!(tree.stem(1).len(), 2);
    assert!(tree.stem(0).is_empty(), "leaves stay");
}

#[test]
fn purging_takes_a_branch() {
    let mut tree = RevisionTree::default();
    tree.merge(&path(&["3-c", "2-b", "1-a"]), live(1));
    tree.merge(&path(&["2-x", "1-a"]), live(2));
    assert!(tree.purge(&revision("2-b")).is_empty(), "no leaf");
    assert_eq!(tree.purge(&revision("3-c")).len(), 2);
    assert_eq!(winner(&tree), "2-x");
    assert_eq!(tree.purge(&revision("2-x")).len(), 2);
    assert!(tree.is_empty());
}

#[test]
fn the_leaf_of_a_branch_is_found() {
    let mut tree = RevisionTree::default();
    tree.merge(&path(&["3-c", "2-b", "1-a"]), live(1));
    tree.merge(&path(&["2-x", "1-a"]), live(2));
    let leaf = |of: &str| {
        tree.leaf_of(&revision(of))
            .map(|leaf| leaf.revision.to_string())
    };
    assert_eq!(leaf("2-b").as_deref(), Some("3-c"));
    assert_eq!(leaf("1-a").as_deref(), Some("3-c"));
    assert_eq!(leaf("2-x").as_deref(), Some("2-x"));
    assert_eq!(leaf("7-y"), None);
}

/// Random paths through a world of revisions in which each has one parent.
fn histories() -> impl Strategy<Value = Vec<(Vec<Revision>, bool)>> {
    let one = (1_u64..6, 0_u8..3, 1_usize..6, any::<bool>());
    prop::collection::vec(one, 1..12).prop_map(|list| {
        let name = |generation: u64, branch: u8| {
            // Branches meet in their parents: 3-1 descends from 2-0.
            let branch = u64::from(branch) >> (6 - generation).min(2);
            revision(&format!("{generation}-{branch}"))
        };
        let paths = list
            .into_iter()
            .map(|(generation, branch, length, deleted)| {
                let oldest = generation.saturating_sub(length as u64 - 1).max(1);
                let path = (oldest..=generation)
                    .rev()
                    .map(|it| name(it, branch))
                    .collect();
                (path, deleted)
            });
        paths.collect()
    })
}

proptest! {
    #[test]
    fn the_same_versions_in_any_order_have_the_same_winner(
        history in histories(),
        turn in 0_usize..12,
    ) {
        // A version is deleted or not, whoever sends it.
        let deleted = |revision: &Revision| {
            let mut sent = history.iter().filter(|(path, _)| path[0] == *revision);
            sent.next().is_some_and(|(_, deleted)| *deleted)
        };
        let grow = |order: &[(Vec<Revision>, bool)]| {
            let mut tree = RevisionTree::default();
            for (path, _) in order {
                let stored = Stored { sequence: 1, deleted: deleted(&path[0]) };
                // An ancestor may come after its descendant: then it is known by its name alone.
                tree.merge(path, stored);
            }
            tree
        };
        let mut turned = history.clone();
        turned.rotate_left(turn % history.len());
        let (one, other) = (grow(&history), grow(&turned));
        let names = |tree: &RevisionTree| -> Vec<String> {
            tree.leaves().iter().map(|leaf| leaf.revision.to_string()).collect()
        };
        prop_assert_eq!(names(&one), names(&other));
    }

    #[test]
    fn trees_are_read_back(history in histories(), limit in 1_usize..5) {
        let mut tree = RevisionTree::default();
        for (at, (path, deleted)) in history.iter().enumerate() {
            tree.merge(path, Stored { sequence: at as u64, deleted: *deleted });
        }
        let whole = tree.clone();
        tree.stem(limit);
        let mut bytes = Vec::new();
        tree.put(&mut bytes);
        let mut reader = Reader::new(&bytes);
        prop_assert_eq!(RevisionTree::take(&mut reader).ok(), Some(tree.clone()));
        prop_assert!(reader.is_empty());
        for leaf in whole.leaves() {
            let path = whole.path(leaf.revision);
            let kept = path.len().min(limit);
            prop_assert_eq!(&tree.path(leaf.revision)[..kept], &path[..kept]);
        }
        for cut in 0..bytes.len() {
            prop_assert!(RevisionTree::take(&mut Reader::new(&bytes[..cut])).is_err());
        }
    }
}
