//! Random histories of three engines that hand devices round, against a plain model of the protocol: streams are
//! delivered late, twice, or to an engine that said no; answers are used late and twice; engines die meanwhile.

use crate::support::options_with_resting_devices;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use waystation::storage::sim::Crash;
use waystation::storage::{SimStorage, Storage};
use waystation::{Db, DeviceError, Durability, Error, IterOptions, Receipt, Refusal, Ticket};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

const EDGES: usize = 3;
const DEVICES: usize = 3;

#[derive(Debug, Clone)]
enum Step {
    /// Edge, device, key, and a value of this length or a deletion.
    Write(usize, usize, u8, Option<u16>),
    Depart(usize, usize),
    Settle(usize, usize),
    Lift(usize, usize),
    /// Edge, device, destination.
    Export(usize, usize, usize),
    /// These are about the hand-off with this number, modulo how many there are.
    Deliver(usize),
    Refuse(usize),
    Complete(usize),
    Abort(usize),
    /// A whole one.
    HandOn(usize, usize, usize),
    Reopen(usize),
    Kill(usize),
    /// After a sync.
    PowerCut(usize),
    Flush(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (edge, device) = (0..EDGES, 0..DEVICES);
    let place = (edge.clone(), device.clone());
    let way = (edge.clone(), device, edge.clone());
    prop_oneof![
        12 => (place.clone(), 0..10_u8, prop::option::weighted(0.8, 0..9_000_u16))
            .prop_map(|((edge, device), key, value)| Step::Write(edge, device, key, value)),
        1 => place.clone().prop_map(|(edge, device)| Step::Depart(edge, device)),
        2 => place.clone().prop_map(|(edge, device)| Step::Settle(edge, device)),
        1 => place.prop_map(|(edge, device)| Step::Lift(edge, device)),
        6 => way.clone().prop_map(|(edge, device, to)| Step::Export(edge, device, to)),
        6 => (0..100_usize).prop_map(Step::Deliver),
        3 => (0..100_usize).prop_map(Step::Refuse),
        6 => (0..100_usize).prop_map(Step::Complete),
        3 => (0..100_usize).prop_map(Step::Abort),
        3 => way.prop_map(|(edge, device, to)| Step::HandOn(edge, device, to)),
        1 => edge.clone().prop_map(Step::Reopen),
        2 => edge.clone().prop_map(Step::Kill),
        2 => edge.clone().prop_map(Step::PowerCut),
        1 => edge.prop_map(Step::Flush),
    ]
}

fn name(device: usize) -> Vec<u8> {
    format!("car-{device}").into_bytes()
}

fn destination(edge: usize) -> String {
    format!("edge-{edge}")
}

/// What an edge knows of a device.
#[derive(Debug, Clone, Default)]
struct Known {
    rows: Option<Rows>,
    /// The hand-off it is frozen by.
    frozen: Option<usize>,
    /// The hand-off it left a stub by.
    stub: Option<usize>,
}

/// A hand-off, as its two sides see it.
struct HandOff {
    from: usize,
    device: usize,
    to: usize,
    ticket: Ticket,
    stream: Vec<u8>,
    rows: Rows,
    receipt: Option<Receipt>,
    refusal: Option<Refusal>,
}

struct Edge {
    machine: Arc<SimStorage>,
    db: Option<Db>,
    devices: Vec<Known>,
}

struct World {
    edges: Vec<Edge>,
    hand_offs: Vec<HandOff>,
    count: u64,
}

fn open(machine: &Arc<SimStorage>) -> Db {
    let storage: Arc<dyn Storage> = machine.clone();
    Db::open_with(storage, Path::new("/db"), options_with_resting_devices()).expect("open")
}

impl World {
    fn new() -> Self {
        let edge = |seed: usize| {
            let machine = SimStorage::new(seed as u64);
            let db = Some(open(&machine));
            let devices = vec![Known::default(); DEVICES];
            Edge {
                machine,
                db,
                devices,
            }
        };
        Self {
            edges: (0..EDGES).map(edge).collect(),
            hand_offs: Vec::new(),
            count: 0,
        }
    }

    fn db(&self, edge: usize) -> &Db {
        self.edges[edge].db.as_ref().expect("open")
    }

    fn known(&mut self, edge: usize, device: usize) -> &mut Known {
        &mut self.edges[edge].devices[device]
    }

    fn take(&mut self, step: &Step) {
        self.count += 1;
        match *step {
            Step::Write(edge, device, key, value) => self.write(edge, device, key, value),
            Step::Depart(edge, device) => self.depart(edge, device),
            Step::Settle(edge, device) => {
                let answer = self.db(edge).devices().settle(&name(device));
                assert_eq!(answer.is_ok(), self.known(edge, device).rows.is_some());
            }
            Step::Lift(edge, device) => {
                let answer = self.db(edge).devices().lift_stub(&name(device));
                let stub = self.known(edge, device).stub.take();
                assert_eq!(answer.is_ok(), stub.is_some());
            }
            Step::Export(edge, device, to) => {
                self.export(edge, device, to);
            }
            Step::HandOn(edge, device, to) => {
                if let Some(number) = self.export(edge, device, to) {
                    self.deliver(number);
                    self.complete(number);
                }
            }
            Step::Reopen(edge) => {
                let db = self.edges[edge].db.take().expect("open");
                db.close().expect("close");
                self.edges[edge].db = Some(open(&self.edges[edge].machine));
            }
            Step::Kill(edge) => self.crash(edge, Crash::Process),
            Step::PowerCut(edge) => {
                self.db(edge).sync().expect("sync");
                self.crash(edge, Crash::PowerCut);
            }
            Step::Flush(edge) => self.db(edge).flush().expect("flush"),
            Step::Deliver(_) | Step::Refuse(_) | Step::Complete(_) | Step::Abort(_)
                if self.hand_offs.is_empty() => {}
            // Mostly the last ones.
            Step::Deliver(number) => self.deliver(self.pick(number)),
            Step::Refuse(number) => self.refuse(self.pick(number)),
            Step::Complete(number) => self.complete(self.pick(number)),
            Step::Abort(number) => self.abort(self.pick(number)),
        }
    }

    fn pick(&self, number: usize) -> usize {
        let count = self.hand_offs.len();
        let back = if number < 50 { number % 2 } else { number };
        count - 1 - back % count
    }

    fn crash(&mut self, edge: usize, crash: Crash) {
        let machine = self.edges[edge].machine.crash(self.count, crash);
        self.edges[edge].machine = machine;
        drop(self.edges[edge].db.take());
        self.edges[edge].db = Some(open(&self.edges[edge].machine));
    }

    fn write(&mut self, edge: usize, device: usize, key: u8, length: Option<u16>) {
        let key = [&name(device)[..], format!(":{key:02}").as_bytes()].concat();
        let value = length.map(|length| vec![self.count as u8; usize::from(length)]);
        let answer = match &value {
            Some(value) => self.db(edge).put(&key, value),
            None => self.db(edge).delete(&key),
        };
        let known = self.known(edge, device);
        match answer {
            Ok(()) => {
                assert!(known.frozen.is_none() && known.stub.is_none());
                let rows = known.rows.get_or_insert_default();
                match value {
                    Some(value) => rows.insert(key, value),
                    None => rows.remove(&key),
                };
            }
            Err(Error::Device(DeviceError::Moving { .. })) => assert!(known.frozen.is_some()),
            Err(Error::Device(DeviceError::Moved { .. })) => {
                assert!(known.stub.is_some() && known.rows.is_none());
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn depart(&mut self, edge: usize, device: usize) {
        let answer = self.db(edge).devices().depart(&name(device));
        let known = self.known(edge, device);
        match answer {
            Ok(()) => {
                assert!(known.frozen.is_none() && known.rows.is_some());
                known.rows = None;
            }
            Err(Error::Device(DeviceError::Moving { .. })) => assert!(known.frozen.is_some()),
            Err(Error::Device(DeviceError::Moved { .. })) => assert!(known.stub.is_some()),
            Err(Error::Device(DeviceError::Unknown { .. })) => assert!(known.rows.is_none()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Returns the number of the hand-off.
    fn export(&mut self, edge: usize, device: usize, to: usize) -> Option<usize> {
        let db = self.edges[edge].db.as_ref().expect("open");
        let answer = db
            .devices()
            .export(&name(device), &destination(to), Durability::PowerLoss);
        let known = &self.edges[edge].devices[device];
        let mut export = match answer {
            Ok(export) => export,
            Err(Error::Device(DeviceError::Moving { .. })) => {
                let frozen = known.frozen.expect("frozen");
                assert_ne!(self.hand_offs[frozen].to, to);
                return None;
            }
            Err(Error::Device(DeviceError::Moved { .. })) => {
                assert!(known.stub.is_some());
                return None;
            }
            Err(Error::Device(DeviceError::Unknown { .. })) => {
                assert!(known.rows.is_none());
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let mut stream = Vec::new();
        export.read_to_end(&mut stream).expect("read");
        let ticket = export.ticket().clone();
        let rows = known.rows.clone().expect("it is there");
        assert_eq!(export.digest().expect("read").records, rows.len() as u64);
        drop(export);
        if let Some(number) = known.frozen {
            let hand_off = &mut self.hand_offs[number];
            assert!(hand_off.ticket == ticket && hand_off.rows == rows && hand_off.to == to);
            // Not the same bytes: it may say more of what is over.
            hand_off.stream = stream;
            return Some(number);
        }
        let number = self.hand_offs.len();
        self.known(edge, device).frozen = Some(number);
        self.hand_offs.push(HandOff {
            from: edge,
            device,
            to,
            ticket,
            stream,
            rows,
            receipt: None,
            refusal: None,
        });
        Some(number)
    }

    /// Whether the source waits for the end of this hand-off.
    fn is_open(&self, number: usize) -> bool {
        let hand_off = &self.hand_offs[number];
        self.edges[hand_off.from].devices[hand_off.device].frozen == Some(number)
    }

    fn deliver(&mut self, number: usize) {
        let hand_off = &self.hand_offs[number];
        let (to, device) = (hand_off.to, hand_off.device);
        let answer = self.db(to).devices().admit(&hand_off.stream[..]);
        let is_open = self.is_open(number);
        let hand_off = &mut self.hand_offs[number];
        let known = &mut self.edges[to].devices[device];
        match answer {
            Ok(receipt) if hand_off.receipt.is_none() => {
                assert!(is_open && hand_off.refusal.is_none() && known.rows.is_none());
                known.rows = Some(hand_off.rows.clone());
                known.stub = None;
                hand_off.receipt = Some(receipt);
            }
            Ok(receipt) => assert_eq!(Some(receipt), hand_off.receipt),
            Err(Error::Device(DeviceError::AlreadyHere { .. })) => {
                assert!(hand_off.receipt.is_none() && known.rows.is_some());
            }
            Err(Error::Device(DeviceError::Ticket { .. })) => {
                let is_own = hand_off.from == to;
                assert!(is_own || hand_off.refusal.is_some() || !is_open);
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn refuse(&mut self, number: usize) {
        let hand_off = &self.hand_offs[number];
        let answer = self.db(hand_off.to).devices().refuse(&hand_off.ticket);
        let is_open = self.is_open(number);
        let hand_off = &mut self.hand_offs[number];
        match answer {
            Ok(refusal) => {
                assert!(hand_off.receipt.is_none());
                hand_off.refusal = Some(refusal);
            }
            Err(Error::Device(DeviceError::Ticket { .. })) => {
                assert!(hand_off.receipt.is_some() || !is_open);
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn complete(&mut self, number: usize) {
        let hand_off = &self.hand_offs[number];
        let Some(receipt) = &hand_off.receipt else {
            return;
        };
        let (from, device) = (hand_off.from, hand_off.device);
        let answer = self.db(from).devices().complete(receipt);
        let is_open = self.is_open(number);
        let known = self.known(from, device);
        if is_open {
            answer.expect("complete");
            *known = Known {
                stub: Some(number),
                ..Known::default()
            };
        } else if known.stub == Some(number) && known.frozen.is_none() {
            answer.expect("complete again");
        } else {
            assert!(
                matches!(answer, Err(Error::Device(DeviceError::Ticket { .. }))),
                "{answer:?}"
            );
        }
    }

    fn abort(&mut self, number: usize) {
        let hand_off = &self.hand_offs[number];
        let Some(refusal) = &hand_off.refusal else {
            return;
        };
        let (from, device) = (hand_off.from, hand_off.device);
        self.db(from).devices().abort(refusal).expect("abort");
        if self.is_open(number) {
            self.known(from, device).frozen = None;
        }
    }

    fn check(&self) {
        for (at, edge) in self.edges.iter().enumerate() {
            let db = self.db(at);
            for (device, known) in edge.devices.iter().enumerate() {
                let prefix = [&name(device)[..], b":"].concat();
                let mut entries = db.iter(IterOptions::prefix(prefix)).expect("iter");
                let mut rows = Rows::new();
                entries.seek_to_first().expect("seek");
                while entries.valid() {
                    rows.insert(entries.key().to_vec(), entries.value().to_vec());
                    entries.next().expect("next");
                }
                let expected = known.rows.clone().unwrap_or_default();
                assert!(rows == expected, "edge {at}, device {device}");
                let stub = known
                    .stub
                    .map(|number| destination(self.hand_offs[number].to));
                assert_eq!(db.devices().moved_to(&name(device)).expect("stub"), stub);
            }
            let frozen = edge.devices.iter().filter_map(|known| known.frozen);
            let tickets: Vec<_> = frozen.map(|it| self.hand_offs[it].ticket.clone()).collect();
            assert_eq!(db.devices().exports().expect("exports"), tickets);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 1000, ..ProptestConfig::default() })]

    #[test]
    fn histories_agree_with_the_model(steps in prop::collection::vec(step(), 1..90)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
            world.check();
        }
        for edge in 0..EDGES {
            world.crash(edge, Crash::Process);
        }
        world.check();
    }
}
