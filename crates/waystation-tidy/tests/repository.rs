//! The repository keeps its own rules.

use std::path::Path;

#[test]
fn the_repository_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let files = waystation_tidy::read_repository(&root).expect("the repository can be read");
    assert!(
        files.len() > 10,
        "the repository was not found at {}",
        root.display()
    );

    let mut complaints: Vec<_> = files.iter().flat_map(waystation_tidy::check).collect();
    complaints.extend(waystation_tidy::check_arrows(&files));
    complaints.extend(waystation_tidy::check_words(&files));
    complaints.extend(waystation_tidy::check_dependencies(&files));
    complaints.extend(waystation_tidy::check_unsafe_islands(&files));
    complaints.extend(waystation_tidy::check_links(&root, &files));
    complaints.extend(waystation_tidy::check_contents(&files));
    let list: Vec<String> = complaints.iter().map(ToString::to_string).collect();
    assert!(
        list.is_empty(),
        "{} things to tidy up:\n{}",
        list.len(),
        list.join("\n")
    );
}
