//! Scripts of decisions: blocks of questions; below the dashes of each, its answer.

use std::path::Path;

/// Compares the answers in `testdata/NAME.txt` with those of `answer`.
///
/// `WAYSTATION_REWRITE=1 cargo test -p waystation background` writes the present answers into the scripts, for review by
/// `git diff`.
pub(in crate::background) fn run(name: &str, answer: impl Fn(&str) -> String) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/background/testdata");
    let path = directory.join(name).with_extension("txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let blocks = text.trim_end().split("\n\n").map(|block| {
        let question = block.split_once("----").map_or(block, |(head, _)| head);
        let question = question.trim_end();
        format!("{question}\n----\n{}", answer(question).trim_end())
    });
    let answered: Vec<String> = blocks.collect();
    assert!(answered.len() > 2, "only {} blocks", answered.len());
    let answered = answered.join("\n\n") + "\n";
    if std::env::var_os("WAYSTATION_REWRITE").is_some() {
        std::fs::write(&path, answered).unwrap();
    } else {
        assert_eq!(text, answered, "{} answers otherwise now", path.display());
    }
}
