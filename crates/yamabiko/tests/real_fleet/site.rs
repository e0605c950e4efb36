//! A manager on loopback, its tokens, and clients that can send anything.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::fleet::parties;
use crate::support::readers;
use crate::support::serving::{Client, Serving, Tls};
use crate::support::workspace::{Workspace, str_of, wait_until, yamabiko};

/// A manager under test; ends with the test.
pub struct Site {
    pub serving: Serving,
    /// The page, with its secret.
    pub page: String,
    pub data: PathBuf,
    pub workspace: Workspace,
}

/// A response of the manager.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    /// JSON, or null.
    pub body: Value,
}

impl Site {
    /// Starts a manager with these further options.
    pub fn start(options: &[&str]) -> Site {
        let workspace = Workspace::new();
        let data = workspace.file("manager");
        fs::create_dir(&data).unwrap();
        Site::start_in(workspace, data, options)
    }

    /// Starts a manager with existing data.
    pub fn start_in(workspace: Workspace, data: PathBuf, options: &[&str]) -> Site {
        let arguments = parties::manager_arguments("127.0.0.1:0", "localhost", &data);
        let mut running = workspace.start(&[&arguments[..], options].concat());
        let mut found = None;
        wait_until("the manager listens", || {
            assert!(!running.ended(), "the manager exited early: {}", running.stderr());
            found = parties::listening(&running.stdout());
            found.is_some()
        });
        let listening = found.unwrap();
        let serving = Serving { running, address: listening.agents.parse().unwrap() };
        Site { serving, page: listening.page, data, workspace }
    }

    /// Creates a token while the manager runs.
    pub fn token(&self, name: &str, role: &str) -> String {
        let file = self.workspace.file(&format!("{name}.{role}.token"));
        parties::token(&yamabiko(), &self.data, name, role, &file).unwrap();
        fs::read_to_string(file).unwrap().trim().to_owned()
    }

    /// The URL of a route below `/api/1`.
    pub fn url(&self, route: &str) -> String {
        format!("https://{}/api/1{route}", self.serving.address)
    }

    /// Runs curl with these arguments; returns the response.
    pub fn curl(&self, arguments: &[&str]) -> Response {
        self.curl_with(arguments, b"")
    }

    /// Runs curl with these arguments and this standard input (`@-`).
    pub fn curl_with(&self, arguments: &[&str], input: &[u8]) -> Response {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "60", "-w", "\n%{http_code}", "--cacert", str_of(&self.authority())]);
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // curl may exit before it has read all input if the request is refused early.
        let _ = child.stdin.take().unwrap().write_all(input);
        let output = child.wait_with_output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = stdout.rsplit_once('\n').unwrap_or(("", "0"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_ne!(status, "000", "curl {arguments:?}: {stderr}");
        Response { status: status.parse().unwrap(), body: serde_json::from_str(body).unwrap_or(Value::Null) }
    }

    /// Sends a POST of JSON, gzip or plain, with this token.
    pub fn post(&self, token: &str, route: &str, more: &[&str], body: &[u8]) -> Response {
        let (bearer, url) = (format!("Authorization: Bearer {token}"), self.url(route));
        let arguments = ["-H", &bearer, "-H", "Content-Type: application/json", "--data-binary", "@-"];
        self.curl_with(&[&arguments[..], more, &[&url]].concat(), body)
    }

    /// Sends a GET with this token.
    pub fn get(&self, token: &str, route: &str) -> Response {
        let (bearer, url) = (format!("Authorization: Bearer {token}"), self.url(route));
        self.curl(&["-H", &bearer, &url])
    }

    /// The manager's certificate.
    pub fn authority(&self) -> PathBuf {
        parties::certificate(&self.data)
    }

    /// A raw TLS connection.
    pub fn connect(&self) -> Client<Tls> {
        self.serving.connect_tls(&self.authority(), "localhost")
    }

    /// A raw TLS connection from this loopback address.
    pub fn connect_from(&self, from: [u8; 4]) -> Client<Tls> {
        self.serving.tls_connector_from(Some(from.into()), &self.authority(), "localhost")()
    }

    /// Counts of the index, read by Python's SQLite: rows, last batch of each stream, refusals by kind.
    pub fn stored(&self) -> Value {
        readers::python(&self.workspace, &readers::script("fleet.py"), &["stored", str_of(&self.data)], &[]).json()
    }

    /// The part of the index that a refused request must not change: rows and streams.
    pub fn index_state(&self) -> Value {
        let stored = self.stored();
        json!([stored["rows"], stored["streams"]])
    }

    /// Total number of requests refused for this reason.
    pub fn refused(&self, why: &str) -> u64 {
        self.stored()["refused"][why].as_u64().unwrap_or(0)
    }
}

/// The wall clock in nanoseconds since 1970.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// A simulated agent, whose messages the test can modify.
pub struct SimulatedAgent {
    pub name: String,
    pub token: String,
    pub stream: String,
    /// Sequence number of the next batch.
    pub sequence: u64,
}

/// Age of the zero of the agent's timestamps in ns; batches are sealed now.
const UP_NS: u64 = 3_600_000_000_000;

impl SimulatedAgent {
    /// An agent with its own token that has sent hello.
    pub fn known(site: &Site, name: &str, stream: &str) -> SimulatedAgent {
        let agent = SimulatedAgent {
            name: name.to_owned(),
            token: site.token(name, "agent"),
            stream: stream.repeat(32),
            sequence: 1,
        };
        let response = site.post(&agent.token, &agent.route("hello"), &[], agent.hello().to_string().as_bytes());
        assert_eq!((response.status, &response.body["stored_through"]), (200, &json!(0)), "{response:?}");
        agent
    }

    /// One of the agent's routes: `hello` or `batches`.
    pub fn route(&self, which: &str) -> String {
        format!("/agents/{}/{which}", self.name)
    }

    /// A valid hello.
    pub fn hello(&self) -> Value {
        json!({
            "stream": self.stream, "boot": BOOT, "host": "paper", "version": "1.0.0", "kernel": "6.1.0",
            "spool": { "batches": 0, "rows": 0, "bytes": 0, "bytes_max": 1_000_000, "oldest": 0 },
            "now_ns": UP_NS, "zero_own_unix_ns": now_ns() - UP_NS, "settings": 0,
        })
    }

    /// A valid batch with this sequence number and number of rows.
    pub fn batch_of(&self, sequence: u64, rows: u64) -> Value {
        let rows: Vec<Value> = (0..rows).map(|number| row(sequence * 1_000_000 + number)).collect();
        json!({
            "stream": self.stream, "sequence": sequence, "boot": BOOT, "zero_own_unix_ns": now_ns() - UP_NS,
            "sealed_at_ns": UP_NS, "settings": 1, "share": 1.0,
            "gauges": { "processes": 1, "open": 0, "in_flight": 0 },
            "losses": { "records": 0, "rows_dropped": 0, "connections_left_out": 0, "rows_filtered": 0, "rows_not_drawn": 0 },
            "programs": [{ "name": "till", "seen": 1, "unseen": 0, "connections": 1, "unseen_bytes": 0, "why": "" }],
            "rows": rows,
        })
    }

    /// The next batch, with two rows.
    pub fn batch(&self) -> Value {
        self.batch_of(self.sequence, 2)
    }

    /// Sends a batch as an agent does: in gzip, and with the zero by the manager's clock in a header.
    pub fn send(&self, site: &Site, batch: &Value) -> Response {
        self.send_bytes(site, &gzip(batch.to_string().as_bytes()))
    }

    /// Sends any bytes as a batch.
    pub fn send_bytes(&self, site: &Site, body: &[u8]) -> Response {
        let zero = format!("yamabiko-zero: {}", now_ns() - UP_NS);
        let more = ["-H", "Content-Encoding: gzip", "-H", &zero, "-H", "yamabiko-zero-error: 1000"];
        site.post(&self.token, &self.route("batches"), &more, body)
    }

    /// Sends the next batch, which must be stored; returns it.
    pub fn sends_next_batch(&mut self, site: &Site) -> Value {
        let batch = self.batch();
        let response = self.send(site, &batch);
        assert_eq!((response.status, &response.body["stored_through"]), (200, &json!(self.sequence)), "{response:?}");
        self.sequence += 1;
        batch
    }

    /// The bytes of a request with the next batch. Increments the sequence number as if the batch were stored.
    pub fn request(&mut self, rows: u64) -> Vec<u8> {
        let body = gzip(self.batch_of(self.sequence, rows).to_string().as_bytes());
        self.sequence += 1;
        let head = self.head(&format!("Content-Encoding: gzip\r\nContent-Length: {}\r\n", body.len()));
        [head.as_bytes(), &body].concat()
    }

    /// The head of a request with a batch, with these additional lines.
    pub fn head(&self, lines: &str) -> String {
        format!(
            "POST /api/1{} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
             yamabiko-zero: {}\r\nyamabiko-zero-error: 1000\r\n{lines}\r\n",
            self.route("batches"),
            self.token,
            now_ns() - UP_NS
        )
    }
}

/// A valid row, one second before the batch is sealed. The connection number makes it unique.
pub fn row(number: u64) -> Value {
    let began = UP_NS - 1_000_000_000;
    json!({
        "connection": number, "exchange": 0, "last": true, "pid": 100, "program": "till", "side": "client",
        "peer": { "address": "192.0.2.7", "port": 443 }, "local": { "address": "192.0.2.9", "port": 40_000 },
        "opened_at_ns": began, "setup_ns": 1_000, "sent_first_at_ns": began + 2_000, "sent_last_at_ns": began + 3_000,
        "received_first_at_ns": began + 4_000, "received_last_at_ns": began + 5_000, "sent_bytes": 10,
        "received_bytes": 20, "calls": 2, "blocked_ns": 100, "outcome": "succeeded", "closed_at_ns": began + 6_000,
        "connection_bytes": 30, "retransmits": 0, "unseen_bytes": 0,
    })
}

/// Compresses by gzip(1).
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new("gzip").arg("-c").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(bytes).unwrap());
        child.wait_with_output().unwrap()
    });
    assert!(output.status.success());
    output.stdout
}

const BOOT: &str = "6d3c1f5e-8a8e-4b0f-9d57-3c2b1a000001";
