//! A copy of the repository with all mutants in it. Files that are the same already are not touched, so that what was
//! built of them before is not built again.

use crate::list::List;
use std::fs;
use std::io;
use std::path::Path;

/// What the copied engine asks which mutant is on.
const SWITCH: &str = r#"//! Which mutant is on.
#![allow(missing_docs, clippy::disallowed_methods)]

pub(crate) fn is_on(name: &str) -> bool {
    static ON: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let on = ON.get_or_init(|| std::env::var("WAYSTATION_MUTANT").ok());
    on.as_deref() == Some(name)
}

/// At first, and sometimes later, lets other threads get far ahead of this one.
pub(crate) fn hold_up() {
    static CALLS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let call = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    if call < 16 || call.is_multiple_of(64) {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}
"#;

/// Not needed to build the engine and its tests.
const LEFT_OUT: [&str; 4] = ["target", ".git", "fuzz", "hw"];

/// Makes `target` a copy of the repository `root`, with the mutants of `list`.
pub(crate) fn make(root: &Path, target: &Path, list: &List) -> Result<(), String> {
    let source = root.join("crates/waystation/src");
    let mut changed = list.apply(&source).map_err(|misfits| misfits.join("\n"))?;
    let lib = source.join("lib.rs");
    let text = fs::read_to_string(&lib).map_err(|error| format!("{}: {error}", lib.display()))?;
    changed.insert("lib.rs".into(), format!("{text}\nmod mutants;\n"));
    changed.insert("mutants.rs".into(), SWITCH.to_owned());
    let content = |path: &Path| {
        let name = path.strip_prefix(&source).ok();
        let changed = name.and_then(|name| changed.get(name));
        changed.map_or_else(|| fs::read(path), |text| Ok(text.clone().into_bytes()))
    };
    let switch = target.join("crates/waystation/src/mutants.rs");
    copy(root, target, &content)
        .and_then(|()| write(&switch, SWITCH.as_bytes()))
        .map_err(|error| format!("copying {}: {error}", root.display()))
}

fn copy(
    source: &Path,
    target: &Path,
    content: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> io::Result<()> {
    fs::create_dir_all(target)?;
    let mut names = Vec::new();
    for entry in fs::read_dir(source)? {
        let entry = entry?;
        let name = entry.file_name();
        if LEFT_OUT.iter().any(|left_out| name == *left_out) {
            continue;
        }
        let (from, to) = (entry.path(), target.join(&name));
        if entry.file_type()?.is_dir() {
            copy(&from, &to, content)?;
        } else {
            write(&to, &content(&from)?)?;
        }
        names.push(name);
    }
    for entry in fs::read_dir(target)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && !names.contains(&entry.file_name()) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Writes a file, unless it says so already.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    fs::write(path, content)
}
