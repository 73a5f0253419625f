//! Every engine of this build answers alike: what is compared does the same work.

use super::*;
use crate::workload::Key;

fn settings(engine: EngineKind, directory: &tempfile::TempDir) -> OpenSettings {
    let directory = directory.path().join("db");
    OpenSettings {
        engine,
        directory,
        memtable_bytes: None,
        executor: ExecutorSettings::default(),
        residency: None,
        tiers: None,
    }
}

fn keys_forward(engine: &impl Engine) -> Vec<Vec<u8>> {
    let mut cursor = engine.cursor().expect("a cursor");
    let mut keys = Vec::new();
    let mut is_valid = cursor.seek_to_first().expect("a first entry or none");
    while is_valid {
        keys.push(cursor.key().to_vec());
        is_valid = cursor.next().expect("a next entry or none");
    }
    keys
}

fn keys_backward(engine: &impl Engine) -> Vec<Vec<u8>> {
    let mut cursor = engine.cursor().expect("a cursor");
    let mut keys = Vec::new();
    let mut is_valid = cursor.seek_to_last().expect("a last entry or none");
    while is_valid {
        keys.push(cursor.key().to_vec());
        is_valid = cursor.prev().expect("an entry before or none");
    }
    keys
}

fn put_groups(engine: &impl Engine) {
    let mut group = Group::default();
    for (sync, first) in [(false, 6000), (true, 7000)] {
        group.push(b"forgotten", b"");
        group.clear();
        for number in first..first + 10 {
            let value = format!("value {number}");
            group.push(Key::new(number).as_bytes(), value.as_bytes());
        }
        engine.put_group(&group, sync).expect("a batch");
    }
}

fn find_groups(engine: &impl Engine) {
    let mut value = Vec::new();
    for number in (6000..6010).chain(7000..7010) {
        let found = engine.get(Key::new(number).as_bytes(), &mut value);
        assert!(found.expect("a get of the batch's"));
        assert_eq!(value, format!("value {number}").as_bytes());
    }
    assert!(!engine.get(b"forgotten", &mut value).expect("a get"));
}

fn behaves<E: Engine>(kind: EngineKind) {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = settings(kind, &directory);
    let engine = E::open(&settings).expect("a fresh database opens");
    for number in 0..1000 {
        let key = Key::new(number);
        engine
            .put(key.as_bytes(), &[number as u8; 100])
            .expect("a put");
    }
    engine
        .put_sync(Key::new(5000).as_bytes(), b"synced")
        .expect("a synced put");
    put_groups(&engine);
    for number in (0..1000).step_by(2) {
        engine
            .delete(Key::new(number).as_bytes())
            .expect("a delete");
    }
    engine.close().expect("it closes");

    let engine = E::open(&settings).expect("it opens again");
    let mut value = vec![1, 2, 3];
    assert!(
        engine
            .get(Key::new(7).as_bytes(), &mut value)
            .expect("a get")
    );
    assert_eq!(value, [7; 100]);
    assert!(
        engine
            .get(Key::new(5000).as_bytes(), &mut value)
            .expect("a get")
    );
    assert_eq!(value, b"synced");
    find_groups(&engine);
    assert!(
        !engine
            .get(Key::new(8).as_bytes(), &mut value)
            .expect("a get of the deleted")
    );
    assert!(
        !engine
            .get(Key::new(7).missing(), &mut value)
            .expect("a get of the missing")
    );

    let mut keys = keys_forward(&engine);
    assert_eq!(keys.len(), 521);
    assert_eq!(keys[0], Key::new(1).as_bytes());
    assert_eq!(keys[500], Key::new(5000).as_bytes());
    assert_eq!(keys[520], Key::new(7009).as_bytes());
    keys.reverse();
    assert_eq!(keys, keys_backward(&engine));

    let mut cursor = engine.cursor().expect("a cursor");
    assert!(cursor.seek(Key::new(10).as_bytes()).expect("a seek"));
    assert_eq!(cursor.key(), Key::new(11).as_bytes());
    assert_eq!(cursor.value(), [11; 100]);
    assert!(!cursor.seek(b"9").expect("a seek past the end"));
    drop(cursor);
    engine.wait_while_due().expect("it does what is due");
    engine.wait_idle().expect("it comes to rest");
    engine.close().expect("it closes");
}

#[test]
fn waystation_behaves() {
    behaves::<Waystation>(EngineKind::Waystation);
    behaves::<Waystation>(EngineKind::WaystationTuned);
}

#[cfg(feature = "rivals")]
#[test]
fn leveldb_behaves() {
    behaves::<LevelDb>(EngineKind::LevelDb);
    behaves::<LevelDb>(EngineKind::LevelDbTuned);
}

#[cfg(feature = "rivals")]
#[test]
fn rocksdb_behaves() {
    behaves::<RocksDb>(EngineKind::RocksDb);
    behaves::<RocksDb>(EngineKind::RocksDbTuned);
    behaves::<RocksDb>(EngineKind::RocksDbTombstones);
}

#[cfg(feature = "rivals")]
#[test]
fn fjall_behaves() {
    behaves::<Fjall>(EngineKind::Fjall);
}

fn lets_depart<E: Engine>(kind: EngineKind) {
    let directory = tempfile::tempdir().expect("a directory");
    let settings = OpenSettings {
        residency: Some(Duration::from_secs(60)),
        tiers: None,
        ..settings(kind, &directory)
    };
    let engine = E::open(&settings).expect("a fresh database opens");
    let key = |device: u32, number: u32| format!("host{device}:{number:03}").into_bytes();
    for number in 0..300 {
        let device = [1, 11, 2][number as usize % 3];
        engine.put(&key(device, number), b"x").expect("a put");
    }
    let keys = (0..300).step_by(3).map(|number| key(1, number));
    engine.depart(b"host1", keys).expect("a departure");
    let left: Vec<Vec<u8>> = keys_forward(&engine);
    assert_eq!(left.len(), 200);
    assert!(left.iter().all(|key| !key.starts_with(b"host1:")));
    engine.close().expect("it closes");
}

#[test]
fn a_device_departs_from_every_engine_and_no_other_does() {
    lets_depart::<Waystation>(EngineKind::Waystation);
    #[cfg(feature = "rivals")]
    {
        lets_depart::<LevelDb>(EngineKind::LevelDb);
        lets_depart::<RocksDb>(EngineKind::RocksDb);
        lets_depart::<RocksDb>(EngineKind::RocksDbTuned);
        lets_depart::<Fjall>(EngineKind::Fjall);
    }
}

#[test]
fn an_engine_that_is_not_built_names_the_way_to_it() {
    let result = check_built(&[EngineKind::Waystation, EngineKind::LevelDb]);
    if cfg!(feature = "rivals") {
        assert!(result.is_ok());
    } else {
        let message = result.expect_err("it is not there").to_string();
        assert!(
            message.contains("leveldb") && message.contains("make bench-build"),
            "{message}"
        );
    }
}

#[test]
fn names_are_those_of_the_command_line_and_of_json() {
    for kind in EngineKind::value_variants() {
        let value = kind.to_possible_value().expect("all are offered");
        assert_eq!(value.get_name(), kind.name());
        let json = serde_json::to_string(kind).expect("a plain enum");
        assert_eq!(json, format!("\"{kind}\""));
    }
}
