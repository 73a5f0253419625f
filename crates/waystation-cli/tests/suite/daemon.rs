//! The daemon as a process, as Redis clients see it: kill -9 in the middle of pipelined writes loses nothing that was
//! acknowledged, SIGHUP changes what may change, and SIGTERM lets it close.

use crate::support::{Process, wait_until};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

/// Kills of the daemon.
const KILLS: usize = 4;
/// Clients that write at once.
const CLIENTS: usize = 4;
/// Commands that a client sends at once.
const PIPELINE: usize = 16;
/// The SHA-256 of `secret`.
const PASSWORD: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
/// An answer comes within this time.
const PATIENCE: Duration = Duration::from_secs(30);

struct Daemon {
    process: Process,
    address: String,
}

impl Daemon {
    fn start(arguments: &[&str]) -> Self {
        Self::run(&mut command(arguments))
    }

    fn run(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = lines
            .map(|line| line.unwrap())
            .find_map(|line| {
                let schemes = ["redis://", "rediss://"];
                let place = schemes.iter().find_map(|it| line.split_once(it))?;
                Some(place.1.to_owned())
            })
            .expect("it says where it listens");
        let address = address.trim_end_matches('/').to_owned();
        Self {
            process: Process(child),
            address,
        }
    }

    fn client(&self) -> Client {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(BufReader::new(stream))
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_waystation"));
    command.arg("serve").args(arguments);
    command
}

struct Client(BufReader<TcpStream>);

impl Client {
    /// Sends one command after the other without waiting.
    fn send(&mut self, commands: &[&[&str]]) -> std::io::Result<()> {
        let mut bytes = String::new();
        for words in commands {
            let _ = write!(bytes, "*{}\r\n", words.len());
            for word in *words {
                let _ = write!(bytes, "${}\r\n{word}\r\n", word.len());
            }
        }
        self.0.get_mut().write_all(bytes.as_bytes())
    }

    /// One answer that is no array: its line, or the text behind it. `None`: the connection has ended.
    fn answer(&mut self) -> Option<String> {
        let mut line = String::new();
        if self.0.read_line(&mut line).ok()? == 0 || !line.ends_with("\r\n") {
            return None;
        }
        let line = line.trim_end().to_owned();
        let Some(length) = line.strip_prefix('$').filter(|it| *it != "-1") else {
            return Some(line);
        };
        let mut text = vec![0; length.parse::<usize>().unwrap() + 2];
        self.0.read_exact(&mut text).ok()?;
        text.truncate(text.len() - 2);
        Some(String::from_utf8(text).unwrap())
    }

    fn ask(&mut self, words: &[&str]) -> String {
        self.send(&[words]).unwrap();
        self.answer().expect("an answer")
    }
}

/// Writes until the connection ends; notes what was acknowledged.
fn write_until_killed(
    mut client: Client,
    name: usize,
    round: usize,
    acknowledged: &Mutex<BTreeMap<String, String>>,
) {
    for batch in 0.. {
        let pairs: Vec<(String, String)> = (0..PIPELINE)
            .map(|at| {
                let number = batch * PIPELINE + at;
                (
                    format!("car{name}:{round}:{number}"),
                    format!("{number}-{}", "x".repeat(number % 300)),
                )
            })
            .collect();
        let commands: Vec<[&str; 3]> = pairs
            .iter()
            .map(|(key, value)| ["SET", key, value])
            .collect();
        let commands: Vec<&[&str]> = commands.iter().map(|it| &it[..]).collect();
        if client.send(&commands).is_err() {
            return;
        }
        for (key, value) in pairs {
            match client.answer() {
                Some(answer) => assert_eq!(answer, "+OK"),
                None => return,
            }
            acknowledged.lock().unwrap().insert(key, value);
        }
    }
}

#[test]
fn kill_9_amid_pipelined_writes_loses_nothing_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let arguments = [
        path,
        "--listen",
        "127.0.0.1:0",
        "--redis",
        "127.0.0.1:0",
        "--extractor",
        "until/3a",
    ];
    let acknowledged = Mutex::new(BTreeMap::new());
    for round in 0..KILLS {
        let daemon = Daemon::start(&arguments);
        thread::scope(|scope| {
            for name in 0..CLIENTS {
                let (client, acknowledged) = (daemon.client(), &acknowledged);
                scope.spawn(move || write_until_killed(client, name, round, acknowledged));
            }
            let enough = (round + 1) * CLIENTS * PIPELINE * 10;
            wait_until("writes are acknowledged", || {
                acknowledged.lock().unwrap().len() >= enough
            });
            daemon.process.signal("-KILL");
        });
    }
    let daemon = Daemon::start(&arguments);
    let mut client = daemon.client();
    for (key, value) in acknowledged.into_inner().unwrap() {
        assert_eq!(client.ask(&["GET", &key]), value, "{key}");
    }
}

/// What the service manager heard.
struct Manager(UnixDatagram);

impl Manager {
    fn at(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    /// Waits for `message`; it hears others before it.
    fn hears(&self, message: &str) {
        let mut heard = [0; 64];
        loop {
            let length = self.0.recv(&mut heard).expect(message);
            if &heard[..length] == message.as_bytes() {
                return;
            }
        }
    }
}

#[test]
fn sighup_reads_the_file_again_and_sigterm_closes() {
    let directory = tempfile::tempdir().unwrap();
    let in_directory = |name: &str| directory.path().join(name);
    let (file, password) = (in_directory("waystation.toml"), in_directory("password"));
    let (data, socket) = (in_directory("data"), in_directory("manager"));
    let manager = Manager::at(&socket);
    let write = |clients: &str| {
        let text = format!(
            "directory = {data:?}\n[http]\nenabled = false\n[redis]\nlisten = '127.0.0.1:0'\n\
             password_file = {password:?}\nclients_max = {clients}\n[[database]]\nname = 'fleet'\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    std::fs::write(&password, "first\n").unwrap();
    write("100");
    let mut start = command(&["--config", file.to_str().unwrap()]);
    start.env("NOTIFY_SOCKET", &socket);
    start.env("WATCHDOG_USEC", "100000").stderr(Stdio::piped());
    let mut daemon = Daemon::run(&mut start);
    manager.hears("READY=1");
    let mut client = daemon.client();
    assert!(client.ask(&["SET", "k", "1"]).starts_with("-NOAUTH"));
    assert_eq!(client.ask(&["AUTH", "first"]), "+OK");
    assert_eq!(client.ask(&["SET", "k", "1"]), "+OK");
    manager.hears("WATCHDOG=1");

    // A file that is not sound changes nothing; the next one does.
    std::fs::write(&password, "second\n").unwrap();
    for (clients, counts) in [("'many'", "first"), ("100", "second")] {
        write(clients);
        daemon.process.signal("-HUP");
        manager.hears("RELOADING=1");
        manager.hears("READY=1");
        for word in ["first", "second"] {
            let is_taken = daemon.client().ask(&["AUTH", word]) == "+OK";
            assert_eq!(is_taken, word == counts, "{word} after {clients}");
        }
    }

    daemon.process.signal("-TERM");
    manager.hears("STOPPING=1");
    assert!(daemon.process.succeeds());
    let mut said = String::new();
    let stderr = daemon.process.0.stderr.as_mut().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert!(said.contains("waystation.toml:7"), "{said}");
    assert!(!said.contains("still in use"), "{said}");
    let again = Daemon::start(&["--config", file.to_str().unwrap()]);
    let mut client = again.client();
    assert_eq!(client.ask(&["AUTH", "second"]), "+OK");
    assert_eq!(client.ask(&["GET", "k"]), "1");
}

#[test]
fn a_database_writes_a_trace_from_which_its_fast_directory_is_advised() {
    let directory = tempfile::tempdir().unwrap();
    let in_directory = |name: &str| directory.path().join(name);
    let (file, trace) = (in_directory("waystation.toml"), in_directory("fleet.trace"));
    let (data, cache) = (in_directory("data"), 1 << 20);
    let text = format!(
        "directory = {data:?}\n[http]\nenabled = false\n[redis]\nlisten = '127.0.0.1:0'\n[[database]]\n\
         name = 'fleet'\nio_trace = {trace:?}\nmemtable_bytes = {cache}\ncache_bytes = {cache}\n"
    );
    std::fs::write(&file, text).unwrap();
    let mut daemon = Daemon::start(&["--config", file.to_str().unwrap()]);
    let mut client = daemon.client();
    for number in 0..6000_u32 {
        let value = format!("{:01000x}", u128::from(number).pow(3));
        assert_eq!(
            client.ask(&["SET", &format!("car:{number}"), &value]),
            "+OK"
        );
    }
    for number in (0..6000).step_by(7).chain((0..600).step_by(7)) {
        assert_ne!(client.ask(&["GET", &format!("car:{number}")]), "$-1");
    }
    daemon.process.signal("-TERM");
    assert!(daemon.process.succeeds());

    let place = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waystation"));
        let output = command
            .args(["place", "--json"])
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let trace = trace.to_str().unwrap();
    let report = place(&["report", trace]).to_string();
    for area in ["log", "tables", "spill"] {
        assert!(report.contains(&format!("\"{area}\"")), "{report}");
    }
    let advice = place(&["advise", trace, "--fast", "1MB"]).to_string();
    assert!(advice.contains("the engine's fast directory"), "{advice}");
}

/// The status of an HTTP answer to `GET path` with this token.
fn http_status(address: &str, path: &str, token: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn a_user_has_the_same_rights_in_both_protocols_until_the_file_changes() {
    let directory = tempfile::tempdir().unwrap();
    let (file, data, socket) = (
        directory.path().join("waystation.toml"),
        directory.path().join("data"),
        directory.path().join("manager"),
    );
    let manager = Manager::at(&socket);
    let write = |prefix: &str| {
        let text = format!(
            "directory = {data:?}\n[http]\nlisten = '127.0.0.1:0'\n[redis]\nlisten = '127.0.0.1:0'\n\
             [[database]]\nname = 'fleet'\nextractor = 'until/3a'\n\
             [[user]]\nname = 'ann'\npassword_sha256 = '{PASSWORD}'\ntoken_sha256 = '{PASSWORD}'\n\
             right = [{{ prefix = '{prefix}', allow = ['read', 'write'] }}]\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    write("car");
    let mut start = command(&["--config", file.to_str().unwrap()]);
    let mut child = start
        .env("NOTIFY_SOCKET", &socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let process = Process(child);
    let mut address = |scheme: &str| {
        let line = lines.next().unwrap().unwrap();
        let (_, address) = line.split_once(scheme).expect("where it listens");
        address.trim_end_matches('/').to_owned()
    };
    let (redis, http) = (address("redis://"), address("http://"));
    manager.hears("READY=1");
    let daemon = Daemon {
        process,
        address: redis,
    };
    let latest = |device: &str| {
        let path = format!("/_waystation/databases/fleet/latest?device={device}");
        http_status(&http, &path, "secret")
    };
    let signed_in = || {
        let mut client = daemon.client();
        assert_eq!(client.ask(&["AUTH", "ann", "secret"]), "+OK");
        client
    };
    let mut client = signed_in();
    assert_eq!(client.ask(&["SET", "car1:x", "1"]), "+OK");
    assert!(client.ask(&["SET", "bus1:x", "1"]).starts_with("-NOPERM"));
    assert_eq!(
        (latest("car1"), latest("bus1")),
        ("200".into(), "403".into())
    );
    assert_eq!(http_status(&http, "/metrics", "secret"), "403");
    assert_eq!(http_status(&http, "/metrics", "another"), "401");

    write("bus");
    daemon.process.signal("-HUP");
    manager.hears("RELOADING=1");
    manager.hears("READY=1");
    assert_eq!(
        (latest("car1"), latest("bus1")),
        ("403".into(), "200".into())
    );
    assert!(client.send(&[&["GET", "car1:x"]]).is_err() || client.answer().is_none());
    let mut client = signed_in();
    assert!(client.ask(&["GET", "car1:x"]).starts_with("-NOPERM"));
    assert_eq!(client.ask(&["SET", "bus1:x", "1"]), "+OK");
}

/// The answer that redis-cli gets over TLS, with these arguments more.
fn over_tls(daemon: &Daemon, arguments: &[&str]) -> String {
    let port = daemon.address.rsplit_once(':').unwrap().1;
    let said = Command::new("redis-cli")
        .args(["-h", "localhost", "-p", port, "--tls", "--cacert"])
        .arg(certificate("authority.pem"))
        .args(arguments)
        .output()
        .unwrap();
    String::from_utf8_lossy(&said.stdout).trim().to_owned()
}

/// A certificate of the server's tests.
fn certificate(name: &str) -> String {
    let directory = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../waystation-server/tests/tls"
    );
    format!("{directory}/{name}")
}

#[test]
fn redis_clients_show_a_certificate_where_the_file_asks_for_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("waystation.toml");
    let text = format!(
        "directory = {:?}\n[http]\nenabled = false\n[redis]\nlisten = '127.0.0.1:0'\ntls_cert = {:?}\ntls_key = {:?}\ntls_client_ca = {:?}\n",
        directory.path().join("data"),
        certificate("server.pem"),
        certificate("server.key"),
        certificate("clients-authority.pem"),
    );
    std::fs::write(&file, &text).unwrap();
    let daemon = Daemon::start(&["--config", file.to_str().unwrap()]);
    let (sound, expired) = (certificate("client.pem"), certificate("client-expired.pem"));
    let key = certificate("client.key");
    let shown = ["--cert", &*sound, "--key", &*key];
    let ask = |daemon: &Daemon, command: &[&str]| over_tls(daemon, &[&shown, command].concat());
    assert_eq!(ask(&daemon, &["PING"]), "PONG");
    let late = ["--cert", &*expired, "--key", &*key, "PING"];
    assert_ne!(over_tls(&daemon, &late), "PONG");
    assert_ne!(over_tls(&daemon, &["PING"]), "PONG");
    assert_eq!(ask(&daemon, &["PING"]), "PONG");
    drop(daemon);

    // The certificate names a user.
    let digest = Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in", &sound])
        .output()
        .unwrap();
    let digest = String::from_utf8(digest.stdout).unwrap();
    let digest = digest.trim().rsplit('=').next().unwrap();
    let user = format!(
        "[[user]]\nname = 'car1'\ncertificate_sha256 = '{digest}'\nright = [{{ prefix = 'car1:', allow = ['read', 'write'] }}]\n"
    );
    std::fs::write(&file, format!("{text}{user}")).unwrap();
    let daemon = Daemon::start(&["--config", file.to_str().unwrap()]);
    assert_eq!(ask(&daemon, &["ACL", "WHOAMI"]), "car1");
    assert_eq!(ask(&daemon, &["SET", "car1:speed", "50"]), "OK");
    assert!(ask(&daemon, &["SET", "car2:speed", "50"]).starts_with("NOPERM"));
    assert!(ask(&daemon, &["ACL", "LIST"]).starts_with("NOPERM"));
    drop(daemon);

    // Another certificate of the same authority names nobody.
    let user = user.replace(
        &digest[..2],
        if digest.starts_with("00") { "01" } else { "00" },
    );
    std::fs::write(&file, format!("{text}{user}")).unwrap();
    let daemon = Daemon::start(&["--config", file.to_str().unwrap()]);
    assert!(ask(&daemon, &["GET", "car1:speed"]).starts_with("NOAUTH"));
    assert_eq!(ask(&daemon, &["RESET"]), "RESET");
}

/// Bytes of memory that the process has had at most.
fn most_resident(daemon: &Daemon) -> u64 {
    let status = format!("/proc/{}/status", daemon.process.0.id());
    let status = std::fs::read_to_string(status).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = peak.unwrap().trim().trim_end_matches(" kB");
    kibibytes.parse::<u64>().unwrap() << 10
}

/// Four times the ceiling comes through one protocol, beside the databases of another.
#[test]
fn all_databases_and_requests_stay_below_the_ceiling() {
    const CEILING: u64 = 48 << 20;
    let directory = tempfile::tempdir().unwrap();
    let (file, data) = (
        directory.path().join("waystation.toml"),
        directory.path().join("data"),
    );
    let text = format!(
        "directory = {data:?}\n[memory]\nceiling = {CEILING}\n[http]\nlisten = '127.0.0.1:0'\n\
         [redis]\nlisten = '127.0.0.1:0'\n[[database]]\nname = 'fleet'\nring_bytes = '1 MiB'\n\
         memtable_bytes = '16 MiB'\n"
    );
    std::fs::write(&file, text).unwrap();
    let daemon = Daemon::start(&["--config", file.to_str().unwrap()]);
    let mut client = daemon.client();
    client.ask(&["SET", "warm", "up"]);
    let before = most_resident(&daemon);
    let value = "v".repeat(8 << 10);
    for round in 0..240 {
        let keys: Vec<String> = (0..100)
            .map(|at| format!("car{}", round * 100 + at))
            .collect();
        let commands: Vec<[&str; 3]> = keys.iter().map(|key| ["SET", key, &value]).collect();
        let commands: Vec<&[&str]> = commands.iter().map(|it| &it[..]).collect();
        client.send(&commands).unwrap();
        for key in keys {
            assert_eq!(client.answer().as_deref(), Some("+OK"), "{key}");
        }
    }
    for key in ["car0", "car10000", "car23999"] {
        assert_eq!(client.ask(&["GET", key]), value);
    }
    // Merges and answers take memory for a moment, beside the ceiling.
    let taken = most_resident(&daemon) - before;
    assert!(
        taken < 2 * CEILING,
        "{taken} bytes beyond the {before} of an idle daemon"
    );
    // A command that is longer than the part of its protocol is refused once its length is known.
    let announced = format!("*3\r\n$3\r\nSET\r\n$4\r\nlong\r\n${}\r\n", CEILING / 8 + 1);
    client.0.get_mut().write_all(announced.as_bytes()).unwrap();
    let answer = client.answer().expect("an answer");
    assert!(answer.starts_with("-ERR"), "{answer}");
}

#[test]
fn a_file_that_is_not_sound_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("waystation.toml");
    let fleet = "[[database]]\nname = 'fleet'\n";
    let cases = [
        ("[redis]\nlisen = '127.0.0.1:1'\n", "waystation.toml:3: "),
        ("[http]\nenabled = false\n", "nothing to serve"),
        ("[http]\ntls_cert = 'edge.pem'\n", "TLS needs both"),
        ("[redis]\ntls_key = 'edge.key'\n", "TLS needs both"),
        (
            "[[user]]\nname = 'ann'\ncertificate_sha256 = '00'\n",
            "needs `tls_client_ca`",
        ),
        (
            "[http]\ntls_client_ca = 'clients.pem'\n",
            "needs `tls_cert`",
        ),
        (
            &format!(
                "[mqtt]\ndatabase = 'fleet'\n[[mqtt.readings]]\ntopic = 's/{{device}}/{{sensor}}'\n{fleet}"
            ),
            "mqtt.database",
        ),
        (&format!("{fleet}ring_bytes = 1\n"), "ring_bytes is 1"),
        (&format!("{fleet}fast_directory = '/nvme'\n"), "go together"),
        (&format!("{fleet}fast_durable = true\n"), "go together"),
        (
            &format!("{fleet}fast_directory = '/nvme'\nfast_bytes = '4 KiB'\n"),
            "must be at least 1048576",
        ),
        (
            &format!("{fleet}extractor = 'up to a colon'\n"),
            "`extractor`",
        ),
        (&format!("{fleet}{fleet}"), "is given twice"),
        (
            &format!("{fleet}io_trace = 'a'\n[[database]]\nname = 'cars'\nio_trace = 'a'\n"),
            "a file for each",
        ),
        (
            "[redis]\nlisten = '0.0.0.0:6379'\n",
            "can be reached from other machines",
        ),
        (
            "[redis]\n[[user]]\nname = 'ann'\n",
            "needs `password_file`, `password_sha256`",
        ),
        (
            "[[user]]\nname = 'ann'\ntoken_sha256 = '2b'\n",
            "`token_sha256` that is not 64",
        ),
    ];
    for (text, expected) in cases {
        std::fs::write(&file, format!("directory = '/data'\n{text}")).unwrap();
        let told = command(&["--config", file.to_str().unwrap(), "--check-config"])
            .output()
            .unwrap();
        let reason = String::from_utf8(told.stderr).unwrap();
        assert!(!told.status.success(), "{text}");
        assert!(reason.contains(expected), "{text}: {reason}");
    }
}
