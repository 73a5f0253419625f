//! Scratch.
use waystation_drive::ip::*;
use waystation_format::key::{ValueKind, pack_trailer};
use waystation_format::table::{Compression, TableOptions, TableWriter};
fn table(records: &[(Vec<u8>, u64, ValueKind, Vec<u8>)]) -> TableImage {
    let mut writer = TableWriter::new(TableOptions { compression: Compression::None, filter_bits_per_key: 0, ..TableOptions::default() });
    for (key, sequence, kind, value) in records {
        let mut internal = key.clone();
        internal.extend_from_slice(&pack_trailer(*sequence, *kind).to_le_bytes());
        writer.add(&internal, value).unwrap();
    }
    writer.finish();
    table::read(writer.pending().to_vec()).unwrap()
}
#[test]
fn smoke() {
    let n: u64 = std::env::var("N").map_or(4, |v| v.parse().unwrap());
    let count: u64 = std::env::var("COUNT").map_or(100, |v| v.parse().unwrap());
    let vlen: usize = std::env::var("VLEN").map_or(100, |v| v.parse().unwrap());
    let mut inputs = Vec::new();
    let mut x = 88172645463325252u64;
    for i in 0..n {
        let mut keys: Vec<u64> = (0..count).map(|_| { x ^= x << 13; x ^= x >> 7; x ^= x << 17; x % (count * n * 8) }).collect();
        keys.sort(); keys.dedup();
        let records: Vec<_> = keys.iter().map(|k| (format!("{k:016}").into_bytes(), k * n + i + 1, ValueKind::Value, vec![*k as u8; vlen])).collect();
        inputs.push(vec![table(&records)]);
    }
    let job = Job { inputs, settings: Settings::default() };
    let expected = reference::run(&job).unwrap();
    let mut engine = Engine::new(n as usize).unwrap();
    let started = std::time::SystemTime::now();
    let (output, traffic) = engine.run(&job, |_| ()).unwrap();
    let seconds = started.elapsed().unwrap().as_secs_f64();
    println!("{:?}\n{traffic:?}", output.counters);
    println!("cycles/byte {:.4} MB/s {:.2}", traffic.cycles as f64 / output.counters.bytes_in as f64, output.counters.bytes_in as f64 / 1e6 / seconds);
    assert_eq!(output.counters, expected.counters);
    assert_eq!(output.blocks.len(), expected.blocks.len());
    for (a, b) in output.blocks.iter().zip(&expected.blocks) { assert_eq!(a, b); }
    let d = output.bytes.iter().zip(&expected.bytes).position(|(a, b)| a != b);
    assert_eq!(d, None);
    assert!(output == expected);
    assert_eq!(traffic.violations, 0);
}
