//! Power cuts, on a simulated machine: writes that were answered under `power`, or before an answer of `WAITAOF`, are there
//! after one, and under `everysecond` writes before the last sync.

use crate::support::{self, Answer, Client, Served};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use waystation::Options;
use waystation::storage::sim::{Crash, SimStorage};
use waystation_redis::Durability;

/// Machines that lose power.
const MACHINES: u64 = 4;
/// Clients that write at once.
const CLIENTS: usize = 4;

fn serve(machine: &Arc<SimStorage>, durability: Durability) -> Served {
    let options = Options {
        ring_bytes: 256 << 10,
        ..Options::default()
    };
    Served::start_on(machine, Path::new("/data"), (2, &options), |settings| {
        settings.live.durability = durability;
        settings.stop_timeout = Duration::ZERO;
    })
}

fn fleet_client(served: &Served) -> Client {
    let mut client = served.client();
    client.say("SELECT fleet");
    client
}

/// The server that is found on the machine after a power cut.
fn cut(machine: &SimStorage, served: Served, seed: u64) -> Served {
    let left = machine.crash(seed, Crash::PowerCut);
    machine.power_on();
    drop(served);
    serve(&left, Durability::Process)
}

/// Writes numbers under keys of its own until an answer does not come; the last one that was acknowledged. A string, a hash
/// and a date of it are one transaction.
fn write_on(mut client: Client, name: usize) -> u64 {
    for number in 1.. {
        let commands = [
            "MULTI".to_owned(),
            format!("SET car{name}:last {number} EX 1000"),
            format!("HSET car{name}:all f{number} {number}"),
            "EXEC".to_owned(),
        ];
        for command in commands {
            let words: Vec<&str> = command.split(' ').collect();
            let sent = std::io::Write::write_all(&mut client.stream, &support::encode(&words));
            let answer = sent.ok().and_then(|()| client.try_read());
            if matches!(answer, None | Some(Answer::Error(_))) {
                return number - 1;
            }
        }
    }
    unreachable!("a client writes until the machine ends")
}

/// What each client was acknowledged until `end` had ended the machine or the server.
fn write_until(clients: Vec<Client>, end: impl FnOnce()) -> Vec<u64> {
    thread::scope(|scope| {
        let writers: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(name, client)| scope.spawn(move || write_on(client, name)))
            .collect();
        end();
        writers.into_iter().map(|it| it.join().unwrap()).collect()
    })
}

/// What is there is a number that is not before the one that was acknowledged, and the whole of its transaction.
fn check(client: &mut Client, name: usize, acknowledged: u64) {
    client.say("SELECT fleet");
    let last = match client.say(&format!("GET car{name}:last")) {
        Answer::Null => 0,
        text => text.text().parse::<u64>().unwrap(),
    };
    assert!(
        last >= acknowledged,
        "{last} and {acknowledged} was acknowledged"
    );
    let counted = client.say(&format!("HLEN car{name}:all"));
    assert_eq!(counted, Answer::Integer(last.cast_signed()));
    let fields = client.say(&format!("HKEYS car{name}:all")).texts();
    assert_eq!(fields.len() as u64, last);
}

#[test]
fn what_was_answered_under_power_survives_a_power_cut() {
    for seed in 0..MACHINES {
        let machine = SimStorage::new(seed);
        let served = serve(&machine, Durability::Power);
        let clients: Vec<Client> = (0..CLIENTS).map(|_| fleet_client(&served)).collect();
        let mut left = Arc::clone(&machine);
        let acknowledged = write_until(clients, || {
            thread::sleep(Duration::from_millis(20 + 10 * seed));
            left = machine.crash(seed, Crash::PowerCut);
        });
        machine.power_on();
        drop(served);
        let served = serve(&left, Durability::Process);
        let mut client = served.client();
        for (name, acknowledged) in acknowledged.into_iter().enumerate() {
            check(&mut client, name, acknowledged);
        }
    }
}

#[test]
fn what_was_written_before_waitaof_survives_a_power_cut() {
    for seed in 0..MACHINES {
        let machine = SimStorage::new(seed);
        let served = serve(&machine, Durability::Process);
        let mut client = served.client();
        client.say("SELECT fleet");
        client.say("HSET car1:state doors open");
        client.say("SELECT plain");
        client.say("SET a 1");
        let answer = client.say("WAITAOF 1 0 0");
        assert_eq!(
            answer,
            Answer::Array(vec![Answer::Integer(1), Answer::Integer(0)])
        );
        client.say("SET a 2");
        let served = cut(&machine, served, seed);
        let mut client = served.client();
        assert!(["1", "2"].contains(&client.say("GET a").text().as_str()));
        client.say("SELECT fleet");
        assert_eq!(client.say("HGETALL car1:state").texts(), ["doors", "open"]);
    }
}

/// A departure is synced as a write is.
#[test]
fn everysecond_syncs_writes_and_departures() {
    let machine = SimStorage::new(1);
    let served = serve(&machine, Durability::EverySecond);
    let mut client = served.client();
    client.say("SELECT fleet");
    client.say("SET car1:speed 50");
    client.say("SET car2:speed 60");
    client.say("WAITAOF 1 0 0");
    // Nothing but the departure is to be synced.
    thread::sleep(Duration::from_millis(2100));
    assert_eq!(client.say("DEVICE.DEPART car1"), Answer::Integer(1));
    let is_durable = || {
        let log = served.fleet.stats().log;
        log.durable_lsn >= log.reserved_lsn
    };
    let mut patience = 200;
    while !is_durable() {
        patience -= 1;
        assert!(patience > 0, "the departure is not synced");
        thread::sleep(Duration::from_millis(50));
    }
    let served = cut(&machine, served, 1);
    let mut client = served.client();
    client.say("SELECT fleet");
    assert_eq!(client.say("GET car1:speed"), Answer::Null);
    assert_eq!(client.say("GET car2:speed").text(), "60");
}

/// A server that stops while clients write on: acknowledged writes are synced, however soon it had to be over.
#[test]
fn what_was_answered_while_the_server_stopped_survives_a_power_cut() {
    for seed in 0..MACHINES {
        let machine = SimStorage::new(seed);
        let mut served = serve(&machine, Durability::EverySecond);
        let clients: Vec<Client> = (0..CLIENTS).map(|_| fleet_client(&served)).collect();
        let acknowledged = write_until(clients, || {
            thread::sleep(Duration::from_millis(30));
            served.stop_and_wait();
        });
        let served = cut(&machine, served, seed);
        let mut client = served.client();
        for (name, acknowledged) in acknowledged.into_iter().enumerate() {
            check(&mut client, name, acknowledged);
        }
    }
}
