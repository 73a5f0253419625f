//! Makes the fixtures of the present format anew: `cargo run -p waystation-fuzz --example fixtures -- DIRECTORY`, with
//! an empty directory to work in. Only when a new format begins; the old ones are kept beside.

use std::path::Path;
use waystation_fuzz::fixture::Kind;
use waystation_fuzz::image::Image;
use waystation_oracle::{LevelDb, Operation, Settings};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let work = std::env::args()
        .nth(1)
        .ok_or("name an empty directory to work in")?;
    for kind in Kind::ALL {
        let image = match kind.make()? {
            Some(image) => image,
            None => leveldb(Path::new(&work))?,
        };
        kind.save(&image)?;
        println!("{}: {} files", kind.name(), image.files.len());
    }
    Ok(())
}

/// LevelDB's directory with tables and a log, as it lies there while LevelDB runs.
fn leveldb(dir: &Path) -> Result<Image, Box<dyn std::error::Error>> {
    let [tables, log] = Kind::leveldb_operations().map(|changes| {
        let operation = |(key, value): (Vec<u8>, Option<Vec<u8>>)| match value {
            Some(value) => Operation::Put(key, value),
            None => Operation::Delete(key),
        };
        changes.into_iter().map(operation).collect::<Vec<_>>()
    });
    let settings = Settings {
        filter_bits_per_key: 10,
        block_bytes: 1024,
        ..Settings::default()
    };
    let db = LevelDb::open(dir, settings)?;
    db.write(&tables, true)?;
    db.compact();
    for operation in log {
        db.write(&[operation], true)?;
    }
    let mut image = Image::default();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !name.starts_with("LOG") {
            image.files.push((name, std::fs::read(&path)?));
        }
    }
    image.files.sort();
    Ok(image)
}
