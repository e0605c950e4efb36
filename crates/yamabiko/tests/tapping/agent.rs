//! `tap agent`, its status, and programs that opt in, with a minimal manager in the test.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use flate2::read::GzDecoder;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::canned_responses::{self, Server};
use crate::support::workspace::{Output, Running, Workspace, wait_until};

/// A manager that stores messages in memory, on plain HTTP. Its threads end with the test process.
#[derive(Clone)]
struct Manager {
    address: SocketAddr,
    received: Arc<Mutex<Received>>,
}

#[derive(Default)]
struct Received {
    through: u64,
    rows: Vec<Value>,
    losses: Vec<Value>,
    heads: Vec<String>,
    /// Whether the manager refuses every token.
    refuses: bool,
    /// Whether the manager closes every connection without a response.
    is_away: bool,
}

impl Manager {
    fn start() -> Manager {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let manager = Manager { address: listener.local_addr().unwrap(), received: Arc::default() };
        let serving = manager.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let serving = serving.clone();
                std::thread::spawn(move || while serving.respond(stream.as_ref().unwrap()) {});
            }
        });
        manager
    }

    /// Responds to one request; returns `false` if the connection has ended.
    fn respond(&self, mut stream: &TcpStream) -> bool {
        let mut head = Vec::new();
        let mut byte = [0; 1];
        while !head.ends_with(b"\r\n\r\n") {
            if !matches!(stream.read(&mut byte), Ok(1)) {
                return false;
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
        let mut body = vec![0; length.unwrap()];
        stream.read_exact(&mut body).unwrap();
        let mut received = self.received.lock().unwrap();
        if received.is_away {
            return false;
        }
        let (status, response) = received.process(&head, &body);
        received.heads.push(head);
        drop(received);
        let response = response.to_string();
        let response = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{response}", response.len());
        stream.write_all(response.as_bytes()).is_ok()
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn received<T>(&self, inspect: impl FnOnce(&mut Received) -> T) -> T {
        inspect(&mut self.received.lock().unwrap())
    }
}

impl Received {
    fn process(&mut self, head: &str, body: &[u8]) -> (u16, Value) {
        let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64;
        if self.refuses {
            return (401, json!({"error": "unauthenticated", "message": "There is no such token."}));
        }
        let settings = json!({"version": 1, "only": [], "programs": [], "share": 1.0});
        if head.starts_with("POST /api/1/agents/web-1/hello ") {
            let times = json!({"received_unix_ns": now(), "answered_unix_ns": now()});
            let mut welcome = json!({"stored_through": self.through, "settings": settings});
            welcome.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
            return (200, welcome);
        }
        assert!(head.starts_with("POST /api/1/agents/web-1/batches "), "{head}");
        let mut text = String::new();
        GzDecoder::new(body).read_to_string(&mut text).unwrap();
        let batch: Value = serde_json::from_str(&text).unwrap();
        let number = batch["sequence"].as_u64().unwrap();
        if number != self.through + 1 {
            let error = if number <= self.through { "already_stored" } else { "sequence_gap" };
            return (409, json!({"error": error, "message": "Not this one.", "stored_through": self.through}));
        }
        self.through = number;
        self.rows.extend(batch["rows"].as_array().unwrap().iter().cloned());
        self.losses.push(batch["losses"].clone());
        (200, json!({"stored_through": number, "received_unix_ns": now(), "answered_unix_ns": now()}))
    }
}

/// The files of an agent.
struct Machine {
    workspace: Workspace,
    token: PathBuf,
}

impl Machine {
    fn new() -> Machine {
        let workspace = Workspace::concurrent();
        let token = workspace.path().join("token");
        fs::write(&token, format!("web-1.{}\n", "s".repeat(43))).unwrap();
        fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
        Machine { workspace, token }
    }

    fn path(&self, name: &str) -> String {
        self.workspace.path().join(name).to_str().unwrap().to_owned()
    }

    fn arguments(&self, url: &str, more: &[&str]) -> Vec<String> {
        let (token, folder, data) = (self.token.to_str().unwrap(), self.path("tap"), self.path("data"));
        let first = [
            "tap",
            "agent",
            "--manager",
            url,
            "--token",
            token,
            "--folder",
            &folder,
            "--data",
            &data,
            "--threads",
            "16",
        ];
        first.iter().chain(more).map(|&word| word.to_owned()).collect()
    }

    /// Starts an agent, and waits until programs can use its tap.
    fn agent(&self, url: &str, more: &[&str]) -> Running {
        let arguments = self.arguments(url, more);
        let mut agent = self.workspace.start(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        wait_until("the agent's tap is ready", || {
            assert!(!agent.ended(), "{}", agent.stderr());
            agent.stdout().lines().count() == 3
        });
        agent
    }

    fn refused(&self, url: &str) -> Output {
        let arguments = self.arguments(url, &[]);
        self.workspace.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Runs curl under the agent's tap, with one request to the server.
    fn curl(&self, server: &Server) {
        let folder = format!("--agent={}", self.path("tap"));
        let output = self.workspace.run(&[
            "tap",
            &folder,
            "--",
            "curl",
            "-s",
            "-w",
            "%{http_code}",
            "-o",
            "/dev/null",
            &server.url(),
        ]);
        assert_eq!((output.code, output.stdout.as_str(), output.stderr.as_str()), (Some(0), "200", ""));
    }

    fn status(&self) -> (Output, Value) {
        let output = self.workspace.run(&["tap", "agent", "status", "--data", &self.path("data"), "--json"]);
        let status = serde_json::from_str(&output.stdout).unwrap();
        (output, status)
    }
}

fn server() -> Server {
    Server::start(|_| canned_responses::response("200 OK", 100))
}

/// Number of successful exchanges with the server; asserts that none is duplicated.
fn exchanges(manager: &Manager, server: &Server) -> usize {
    manager.received(|received| {
        let port = u64::from(server.address.port());
        let rows: Vec<String> = received
            .rows
            .iter()
            .filter(|row| row["peer"]["port"] == port && row["outcome"] == "succeeded")
            .map(Value::to_string)
            .collect();
        assert_eq!(rows.iter().collect::<HashSet<_>>().len(), rows.len(), "no row is duplicated");
        rows.len()
    })
}

#[test]
fn rows_arrive_exactly_once_despite_failures_of_agent_and_manager() {
    let (machine, manager, server) = (Machine::new(), Manager::start(), server());
    let agent = machine.agent(&manager.url(), &[]);
    machine.curl(&server);
    wait_until("the first exchange is reported", || exchanges(&manager, &server) == 1);
    // The manager is away and the agent is killed; a program runs without both.
    manager.received(|received| received.is_away = true);
    machine.curl(&server);
    agent.signal(Signal::SIGKILL);
    drop(agent);
    machine.curl(&server);
    let agent = machine.agent(&manager.url(), &[]);
    machine.curl(&server);
    manager.received(|received| received.is_away = false);
    wait_until("all four exchanges are reported", || exchanges(&manager, &server) == 4);
    // A regular end sends the remaining rows immediately.
    machine.curl(&server);
    wait_until("the agent has read the records", || machine.status().1["rows"]["made"].as_u64() >= Some(2));
    agent.signal(Signal::SIGTERM);
    let output = agent.finish();
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    wait_until("the fifth exchange is reported", || exchanges(&manager, &server) == 5);
    let lost: u64 =
        manager.received(|received| received.losses.iter().map(|losses| losses["records"].as_u64().unwrap()).sum());
    assert_eq!(lost, 0);
    let heads = manager.received(|received| received.heads.clone());
    assert!(heads.iter().all(|head| head.contains("Bearer web-1.sss")), "each request has the token");
    assert!(heads.iter().filter(|head| head.contains("/batches")).all(|head| head.contains("yamabiko-zero: 1")));
    let (output, status) = machine.status();
    assert_eq!((output.code, &status["rows"]["dropped"]), (Some(2), &json!(0)), "the agent is not running");
    assert!(!output.stdout.contains("sss"));
}

#[test]
fn addresses_are_hashed_before_they_reach_the_send_queue() {
    let (machine, manager, server) = (Machine::new(), Manager::start(), server());
    let _agent = machine.agent(&manager.url(), &["--hash-addresses"]);
    machine.curl(&server);
    wait_until("the exchange is reported", || exchanges(&manager, &server) == 1);
    manager.received(|received| {
        let of = |row: &Value, end: &str| row[end]["address"].as_str().map(str::to_owned);
        for row in &received.rows {
            for address in [of(row, "peer"), of(row, "local")].into_iter().flatten() {
                assert!(address.starts_with("h:") && address.len() == 18, "{address}");
            }
        }
    });
    // The status file is written every second.
    wait_until("the status reports it", || {
        let page = machine.workspace.run(&["tap", "agent", "status", "--data", &machine.path("data")]);
        assert_eq!(page.code, Some(0), "{page}");
        ["agent     web-1", "connected for", "addresses hashed", "0 B of 256 MB"]
            .iter()
            .all(|part| page.stdout.contains(part))
    });
}

#[test]
fn a_refused_token_is_reported_and_a_new_token_is_used() {
    let (machine, manager) = (Machine::new(), Manager::start());
    manager.received(|received| received.refuses = true);
    let agent = machine.agent(&manager.url(), &[]);
    wait_until("the agent reports the refusal", || agent.stderr().contains("There is no such token."));
    wait_until("the status reports it", || {
        let (output, status) = machine.status();
        output.code == Some(0) && status["link"]["state"] == "refused"
    });
    assert!(!agent.stderr().contains("sss"));
}

#[test]
fn invalid_agent_options_are_refused_with_the_fix() {
    let machine = Machine::new();
    let url = "https://127.0.0.1:1/";
    machine.refused("http://192.0.2.1/").refused(1, &["--manager", "loopback"]);
    fs::set_permissions(&machine.token, Permissions::from_mode(0o640)).unwrap();
    machine.refused(url).refused(1, &["640", "chmod 600"]);
    fs::set_permissions(&machine.token, Permissions::from_mode(0o600)).unwrap();
    fs::write(&machine.token, "no token\n").unwrap();
    machine.refused(url).refused(1, &["NAME.SECRET"]);
    fs::write(&machine.token, format!("web-1.{}", "s".repeat(43))).unwrap();
    let workspace = &machine.workspace;
    workspace.run(&["tap", "agent", "status", "--data", &machine.path("none")]).refused(1, &["no agent"]);
    let folder = format!("--agent={}", machine.path("none"));
    let output = workspace.run(&["tap", &folder, "--", "true"]);
    assert!(output.code != Some(0) && output.stderr.contains("agent"), "{output}");
    let manager = Manager::start();
    let _agent = machine.agent(&manager.url(), &[]);
    machine.refused(&manager.url()).refused(1, &["another agent", "--data"]);
}
