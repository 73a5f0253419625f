//! Readings over a real database.

#![allow(
    clippy::unwrap_used,
    reason = "a test stops where something is not as it should be"
)]

use std::sync::Arc;
use waystation::{Db, DeviceOptions, Durability, Extractor, Options};
use waystation_readings::{
    Error, Reading, Readings, SCANNED_MAX, Selection, TailEvent, Value, Window, Windows,
};

const SAFE: Durability = Durability::ProcessCrash;

fn open(extractor: Extractor) -> (tempfile::TempDir, Readings) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        devices: Some(DeviceOptions::new(extractor)),
        ..Options::default()
    };
    let db = Db::open(dir.path(), options).unwrap();
    (dir, Readings::new("test", Arc::new(db), extractor))
}

fn reading(device: &str, sensor: &str, time: i64, value: f64) -> Reading {
    Reading {
        device: device.into(),
        sensor: sensor.into(),
        time,
        value: Value::Float(value),
    }
}

fn all(readings: &Readings, selection: &Selection, rows_max: usize) -> Vec<(String, i64)> {
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = readings
            .page(selection, after.as_deref(), rows_max)
            .unwrap();
        assert!(page.rows.len() <= rows_max);
        found.extend(page.rows.into_iter().map(|it| (it.sensor, it.time)));
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

#[test]
fn ranges_pages_and_newest_agree_with_a_list() {
    let (_dir, readings) = open(Extractor::until(b':'));
    let mut expected = Vec::new();
    let mut batch = Vec::new();
    for sensor in ["a", "ab", "b"] {
        for time in (-30_i64..30).map(|it| it * 10) {
            batch.push(reading("car", sensor, time, 1.0));
            expected.push((sensor.to_owned(), time));
        }
    }
    // Neighbours, and a key that is no reading.
    batch.push(reading("ca", "a", 0, 1.0));
    batch.push(reading("car1", "a", 0, 1.0));
    readings.write(batch, SAFE).unwrap();
    readings.db().put(b"car:ab", b"foreign").unwrap();
    expected.sort();

    for rows_max in [1, 7, 1000] {
        assert_eq!(all(&readings, &Selection::of("car"), rows_max), expected);
    }
    for (from, to) in [
        (-55, 55),
        (0, 10),
        (0, 1),
        (1, 10),
        (-300, 300),
        (290, i64::MAX),
        (300, 400),
    ] {
        for sensor in [None, Some("ab".to_owned())] {
            let selection = Selection {
                sensor: sensor.clone(),
                from,
                to,
                ..Selection::of("car")
            };
            let chosen = expected.iter().filter(|(of, time)| {
                sensor.as_ref().is_none_or(|it| it == of) && (from..to).contains(time)
            });
            let chosen: Vec<_> = chosen.cloned().collect();
            assert_eq!(
                all(&readings, &selection, 9),
                chosen,
                "{from}..{to} {sensor:?}"
            );
            let newest = readings.latest(&selection).unwrap();
            let newest: Vec<_> = newest.into_iter().map(|it| (it.sensor, it.time)).collect();
            let mut last: Vec<(String, i64)> = Vec::new();
            for (of, time) in chosen {
                last.retain(|(other, _)| *other != of);
                last.push((of, time));
            }
            assert_eq!(newest, last, "{from}..{to} {sensor:?}");
        }
    }
}

#[test]
fn windows_are_the_same_however_pages_cut_them() {
    let (_dir, readings) = open(Extractor::fixed(3));
    let count = 50_000_i64;
    let mut batch: Vec<_> = (0..count)
        .map(|it| reading("car", "speed", it * 1000, (it % 7) as f64))
        .collect();
    batch.push(reading("car", "wind", 5, 2.0));
    batch.push(Reading {
        value: Value::Text("n/a".into()),
        ..reading("car", "wind", 6, 0.0)
    });
    readings.write(batch, SAFE).unwrap();
    let mut windows = Windows::new(Selection::of("car"), 1_000_000);
    let mut found = Vec::new();
    let mut pages = 0;
    while let Some(page) = windows.next(&readings).unwrap() {
        found.extend(page);
        pages += 1;
    }
    assert!(pages > 1, "the scan was cut");
    assert_eq!(found.len(), 51);
    for (at, window) in (0..50).zip(&found) {
        let numbers = (at * 1000..(at + 1) * 1000).map(|it| (it % 7) as f64);
        let expected = Window {
            sensor: "speed".into(),
            start: at * 1_000_000,
            count: 1000,
            min: 0.0,
            max: 6.0,
            sum: numbers.sum(),
        };
        assert_eq!(*window, expected);
    }
    assert_eq!(
        (found[50].count, found[50].average()),
        (1, 2.0),
        "text is no number"
    );
}

#[test]
fn the_first_and_the_last_time_are_found() {
    let (_dir, readings) = open(Extractor::until(b':'));
    let batch = [i64::MIN, i64::MAX].map(|time| reading("car", "s", time, 1.0));
    readings.write(batch.to_vec(), SAFE).unwrap();
    let selection = Selection::of("car");
    let page = readings.page(&selection, None, 10).unwrap();
    assert_eq!(page.rows, batch);
    assert_eq!(readings.latest(&selection).unwrap(), batch[1..]);
    assert!(selection.chooses(&batch[1]));
}

#[test]
fn a_step_ends_among_keys_that_it_passes_over() {
    let (_dir, readings) = open(Extractor::until(b':'));
    let count = SCANNED_MAX + 5000;
    let old = |at: usize| reading("car", &format!("a{at:06}"), 1, 1.0);
    let mut batch: Vec<_> = (0..count).map(old).collect();
    batch.push(reading("car", "b", 10, 1.0));
    readings.write(batch, SAFE).unwrap();
    let selection = Selection {
        from: 5,
        ..Selection::of("car")
    };
    let first = readings.page(&selection, None, 10).unwrap();
    assert!(first.rows.is_empty() && first.next.is_some());
    assert_eq!(all(&readings, &selection, 10), [("b".to_owned(), 10)]);
}

#[test]
fn a_reading_that_comes_twice_overwrites_itself_and_departs_with_its_device() {
    let (_dir, readings) = open(Extractor::until(b':'));
    readings
        .write(vec![reading("car", "s", 5, 1.0)], SAFE)
        .unwrap();
    readings
        .write(vec![reading("car", "s", 5, 2.0)], SAFE)
        .unwrap();
    let page = readings.page(&Selection::of("car"), None, 10).unwrap();
    assert_eq!(page.rows, [reading("car", "s", 5, 2.0)]);
    assert!(readings.depart("car", SAFE).unwrap());
    assert!(!readings.depart("car", Durability::PowerLoss).unwrap());
    assert!(readings.latest(&Selection::of("car")).unwrap().is_empty());
    let counts = readings.counts();
    assert_eq!((counts.readings, counts.departures), (2, 1));
}

#[test]
fn a_batch_with_a_wrong_name_is_refused_whole() {
    let (_dir, readings) = open(Extractor::until(b':'));
    let batch = vec![reading("car", "s", 5, 1.0), reading("c:r", "s", 5, 1.0)];
    let error = readings.write(batch, SAFE).unwrap_err();
    assert!(matches!(error, Error::Wrong(_)) && error.is_of_the_reading());
    assert!(readings.devices().unwrap().is_empty());
}

#[tokio::test]
async fn followers_see_what_they_chose_and_are_told_what_they_lost() {
    let (_dir, readings) = open(Extractor::until(b':'));
    let mut slow = readings.tail(Selection::default());
    let mut chosen = readings.tail(Selection::of("car"));
    let batch = vec![reading("car", "s", 1, 1.0), reading("bus", "s", 1, 1.0)];
    readings.write(batch, SAFE).unwrap();
    assert_eq!(
        chosen.next().await,
        Some(TailEvent::Readings(vec![reading("car", "s", 1, 1.0)]))
    );
    for time in 2..400 {
        readings
            .write(vec![reading("bus", "s", time, 1.0)], SAFE)
            .unwrap();
    }
    assert!(matches!(slow.next().await, Some(TailEvent::Lost(lost)) if lost > 0));
    assert!(matches!(slow.next().await, Some(TailEvent::Readings(_))));
    drop(readings);
    while let Some(event) = slow.next().await {
        assert!(matches!(event, TailEvent::Readings(_)));
    }
}

#[tokio::test]
async fn a_long_batch_reaches_followers_whole_and_in_pieces() {
    let (_dir, readings) = open(Extractor::until(b':'));
    let mut tail = readings.tail(Selection::default());
    let batch: Vec<_> = (0..10_000)
        .map(|time| reading("car", "speed", time, 1.0))
        .collect();
    readings.write(batch.clone(), SAFE).unwrap();
    drop(readings);
    let (mut seen, mut events) = (Vec::new(), 0);
    while let Some(event) = tail.next().await {
        let TailEvent::Readings(piece) = event else {
            panic!("{event:?}");
        };
        assert!(piece.len() < batch.len());
        seen.extend(piece);
        events += 1;
    }
    assert!(events > 1, "{events}");
    assert_eq!(seen, batch);
}
