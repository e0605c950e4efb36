//! A manager on loopback, tokens for it, and clients that may say anything.

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

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// JSON, or null.
    pub body: Value,
}

impl Site {
    /// Starts it with these further options.
    pub fn start(options: &[&str]) -> Site {
        let workspace = Workspace::new();
        let data = workspace.file("manager");
        fs::create_dir(&data).unwrap();
        Site::start_in(workspace, data, options)
    }

    /// The same with data that is there.
    pub fn start_in(workspace: Workspace, data: PathBuf, options: &[&str]) -> Site {
        let words = parties::manager_words("127.0.0.1:0", "localhost", &data);
        let mut running = workspace.start(&[&words[..], options].concat());
        let mut found = None;
        wait_until("the manager listens", || {
            assert!(!running.ended(), "it ended early: {}", running.stderr());
            found = parties::listening(&running.stdout());
            found.is_some()
        });
        let listening = found.unwrap();
        let serving = Serving { running, address: listening.agents.parse().unwrap() };
        Site { serving, page: listening.page, data, workspace }
    }

    /// A new token; the manager runs meanwhile.
    pub fn token(&self, name: &str, role: &str) -> String {
        let file = self.workspace.file(&format!("{name}.{role}.token"));
        parties::token(&yamabiko(), &self.data, name, role, &file).unwrap();
        fs::read_to_string(file).unwrap().trim().to_owned()
    }

    /// The URL of a route behind `/api/1`.
    pub fn url(&self, route: &str) -> String {
        format!("https://{}/api/1{route}", self.serving.address)
    }

    /// What curl makes of these words.
    pub fn curl(&self, words: &[&str]) -> Answer {
        self.curl_with(words, b"")
    }

    /// The same, with something that it reads from its stdin (`@-`).
    pub fn curl_with(&self, words: &[&str], input: &[u8]) -> Answer {
        let mut command = Command::new("curl");
        command.args(["-sS", "--max-time", "60", "-w", "\n%{http_code}", "--cacert", str_of(&self.authority())]);
        let mut child =
            command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // One that is refused early may not read all.
        let _ = child.stdin.take().unwrap().write_all(input);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (body, status) = said.rsplit_once('\n').unwrap_or(("", "0"));
        let told = String::from_utf8_lossy(&output.stderr);
        assert_ne!(status, "000", "curl {words:?}: {told}");
        Answer { status: status.parse().unwrap(), body: serde_json::from_str(body).unwrap_or(Value::Null) }
    }

    /// POST of JSON, in gzip or plain, with this token, by curl.
    pub fn post(&self, token: &str, route: &str, more: &[&str], body: &[u8]) -> Answer {
        let (bearer, url) = (format!("Authorization: Bearer {token}"), self.url(route));
        let words = ["-H", &bearer, "-H", "Content-Type: application/json", "--data-binary", "@-"];
        self.curl_with(&[&words[..], more, &[&url]].concat(), body)
    }

    /// GET of JSON.
    pub fn get(&self, token: &str, route: &str) -> Answer {
        let (bearer, url) = (format!("Authorization: Bearer {token}"), self.url(route));
        self.curl(&["-H", &bearer, &url])
    }

    /// What to trust it by.
    pub fn authority(&self) -> PathBuf {
        parties::certificate(&self.data)
    }

    /// A raw TLS connection.
    pub fn connect(&self) -> Client<Tls> {
        self.serving.connect_tls(&self.authority(), "localhost")
    }

    /// The same from a unique loopback address.
    pub fn connect_from(&self, from: [u8; 4]) -> Client<Tls> {
        self.serving.tls_connector_from(Some(from.into()), &self.authority(), "localhost")()
    }

    /// What the index counts, read by SQLite of Python: rows, streams and how far, refusals by kind.
    pub fn stored(&self) -> Value {
        readers::python(&self.workspace, &readers::script("fleet.py"), &["stored", str_of(&self.data)], &[]).json()
    }

    /// What of it must not change by a refusal.
    pub fn kept(&self) -> Value {
        let stored = self.stored();
        json!([stored["rows"], stored["streams"]])
    }

    /// How many were refused for this, ever.
    pub fn refused(&self, why: &str) -> u64 {
        self.stored()["refused"][why].as_u64().unwrap_or(0)
    }
}

/// ns since 1970.
pub fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

/// A simulated agent: its messages are made here and can be modified.
pub struct Paper {
    pub name: String,
    pub token: String,
    pub stream: String,
    /// Of its next batch.
    pub sequence: u64,
}

/// The zero of its timestamps is that long ago; its batches are sealed now.
const UP_NS: u64 = 3_600_000_000_000;

impl Paper {
    /// An agent with its own token that has sent hello.
    pub fn known(site: &Site, name: &str, stream: &str) -> Paper {
        let paper =
            Paper { name: name.to_owned(), token: site.token(name, "agent"), stream: stream.repeat(32), sequence: 1 };
        let answer = site.post(&paper.token, &paper.route("hello"), &[], paper.hello().to_string().as_bytes());
        assert_eq!((answer.status, &answer.body["stored_through"]), (200, &json!(0)), "{answer:?}");
        paper
    }

    /// One of its two routes.
    pub fn route(&self, which: &str) -> String {
        format!("/agents/{}/{which}", self.name)
    }

    /// A good hello.
    pub fn hello(&self) -> Value {
        json!({
            "stream": self.stream, "boot": BOOT, "host": "paper", "version": "1.0.0", "kernel": "6.1.0",
            "spool": { "batches": 0, "rows": 0, "bytes": 0, "bytes_max": 1_000_000, "oldest": 0 },
            "now_ns": UP_NS, "zero_own_unix_ns": now_ns() - UP_NS, "settings": 0,
        })
    }

    /// A good batch of so many rows, its number this.
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

    /// Its next batch, of two rows.
    pub fn batch(&self) -> Value {
        self.batch_of(self.sequence, 2)
    }

    /// Sends a batch as an agent does: gzip, and the header with the zero by the manager's clock.
    pub fn send(&self, site: &Site, batch: &Value) -> Answer {
        self.send_bytes(site, &gzip(batch.to_string().as_bytes()))
    }

    /// The same of anything.
    pub fn send_bytes(&self, site: &Site, body: &[u8]) -> Answer {
        let zero = format!("yamabiko-zero: {}", now_ns() - UP_NS);
        let more = ["-H", "Content-Encoding: gzip", "-H", &zero, "-H", "yamabiko-zero-error: 1000"];
        site.post(&self.token, &self.route("batches"), &more, body)
    }

    /// Its next batch is taken; that batch.
    pub fn goes_on(&mut self, site: &Site) -> Value {
        let batch = self.batch();
        let answer = self.send(site, &batch);
        assert_eq!((answer.status, &answer.body["stored_through"]), (200, &json!(self.sequence)), "{answer:?}");
        self.sequence += 1;
        batch
    }

    /// Its next batch as the bytes of a request, and it is reckoned to be taken.
    pub fn request(&mut self, rows: u64) -> Vec<u8> {
        let body = gzip(self.batch_of(self.sequence, rows).to_string().as_bytes());
        self.sequence += 1;
        let head = self.head(&format!("Content-Encoding: gzip\r\nContent-Length: {}\r\n", body.len()));
        [head.as_bytes(), &body].concat()
    }

    /// The head of such a request, these lines included.
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

/// A good row, a second before the sealing; its number makes it unlike others.
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

/// In gzip, by gzip.
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
