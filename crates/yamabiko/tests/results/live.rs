//! `yamabiko live` as a program: output, permitted clients, events, and end.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use crate::support::hostile;
use crate::support::workspace::{TEST_TIMEOUT, Workspace, set_mode, str_of, wait_until};
use hostile::Hostile;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// A `yamabiko live` process that serves a page until this is dropped.
struct Page {
    child: Child,
    host: String,
    root: String,
}

impl Page {
    /// Starts `yamabiko live` and reads the URL that it prints.
    fn open(workspace: &Workspace, arguments: &[&str]) -> Page {
        Page::start(workspace, workspace.command(&[&["live"], arguments].concat()))
    }

    fn start(workspace: &Workspace, mut command: Command) -> Page {
        command.env("YAMABIKO_RUNS", workspace.runs()).env_remove("YAMABIKO_TOKEN").current_dir(workspace.path());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let rest = line.trim_end().strip_prefix("http://").unwrap_or_else(|| panic!("no URL: {line:?}"));
        let (host, root) = rest.split_once('/').unwrap();
        Page { child, host: host.to_owned(), root: format!("/{root}") }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        stream
    }

    /// Sends a request and reads the complete response; returns head and body.
    fn request(&self, method: &str, host: &str, path: &str) -> (String, String) {
        let mut stream = self.connect();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {response:?}"));
        (head.to_owned(), body.to_owned())
    }

    fn get(&self, path: &str) -> (String, String) {
        self.request("GET", &self.host, &format!("{}{path}", self.root))
    }

    /// Opens an event stream, and reads the head of the response: the server has joined the viewer then.
    fn events(&self, path: &str) -> Events {
        let mut stream = self.connect();
        write!(stream, "GET {}{path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.root, self.host).unwrap();
        let mut events = Events(BufReader::new(stream));
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert_ne!(events.0.read_line(&mut line).unwrap(), 0, "the head of the response ended");
        }
        events
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    /// Waits until the process ends, with success.
    fn wait_for_end(&mut self) {
        wait_until("the process ends", || self.child.try_wait().unwrap().is_some());
        assert!(self.child.try_wait().unwrap().unwrap().success());
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An event stream.
struct Events(BufReader<TcpStream>);

struct Event {
    name: String,
    id: String,
    data: Value,
}

impl Events {
    /// The next event. Chunk sizes and keep-alive comments are ignored.
    fn next(&mut self) -> Event {
        let (mut name, mut id) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the stream ended");
            if let Some(rest) = line.strip_prefix("event: ") {
                rest.trim_end().clone_into(&mut name);
            } else if let Some(rest) = line.strip_prefix("id: ") {
                rest.trim_end().clone_into(&mut id);
            } else if let Some(rest) = line.strip_prefix("data: ") {
                return Event { name, id, data: serde_json::from_str(rest).unwrap() };
            }
        }
    }

    /// Reads events up to one with this name, which is returned.
    fn until(&mut self, name: &str) -> Event {
        loop {
            let event = self.next();
            if event.name == name {
                return event;
            }
        }
    }
}

/// A workspace with one stored run whose command contains markup.
fn with_a_run() -> (Workspace, String) {
    let (workspace, server) = (Workspace::concurrent(), Hostile::start());
    let wild = "X-Wild: </script><img src=x onerror=alert(1)>";
    let output = workspace.run(&["bench", &server.url("/ok/1000"), "-n", "50", "-H", wild, "--json"]);
    // The machine's noise can make the run invalid, which does not affect its page.
    output.assert_measured();
    let id = output.json()["run"]["id"].as_str().unwrap().to_owned();
    (workspace, id)
}

fn code(head: &str) -> &str {
    head.split(' ').nth(1).unwrap()
}

#[test]
fn the_live_page_of_a_finished_run_has_the_figures_of_its_document() {
    let (workspace, id) = with_a_run();
    let summary: Value =
        serde_json::from_slice(&fs::read(workspace.runs().join(&id).join("summary.json")).unwrap()).unwrap();
    let mut page = Page::open(&workspace, &["last"]);
    let (head, html) = page.get("");
    assert!(code(&head) == "200" && html.contains("live.js") && !html.contains("onerror"), "{head}\n{html}");
    for file in ["live.css", "live.js", "uplot.js"] {
        let (head, body) = page.get(file);
        assert!(code(&head) == "200" && body.len() > 1000, "{file}: {head}");
    }
    let snapshot = page.events("events").until("snapshot").data;
    assert_eq!((snapshot["title"].as_str(), snapshot["is_over"].as_bool()), (Some(&*id), Some(true)));
    let fact = |name: &str| {
        let facts = snapshot["facts"].as_array().unwrap();
        facts.iter().find(|fact| fact["name"] == name).unwrap_or_else(|| panic!("{name}: {snapshot}"))["value"].clone()
    };
    let load = &summary["load"];
    assert_eq!(fact("Achieved").as_f64(), load["achieved_rate_per_s"].as_f64());
    assert_eq!(fact("Offered").as_f64(), load["offered_rate_per_s"].as_f64());
    assert_eq!(fact("p50").as_f64(), load["response_time_ns"]["p50"].as_f64());
    assert_eq!(fact("p99").as_f64(), load["response_time_ns"]["p99"].as_f64());
    assert_eq!(fact("Failed").as_f64(), Some(0.0));
    // Snapshots contain user input unescaped; the script of the page inserts it as text.
    assert!(snapshot.to_string().contains("<img src=x onerror=alert(1)>"));
    assert!(snapshot.to_string().contains(&format!("yamabiko report {id}")));
    let verdict = summary["validity"]["verdict"].as_str().unwrap();
    assert_eq!(snapshot["judged"]["word"].as_str().unwrap().to_lowercase(), verdict);
    page.signal(Signal::SIGINT);
    page.wait_for_end();
}

/// The value of the first sample with this name and label.
fn sample(text: &str, name: &str, label: &str) -> f64 {
    let is_it = |line: &&str| line.split_once('{').is_some_and(|(front, rest)| front == name && rest.contains(label));
    let line = text.lines().find(is_it).unwrap_or_else(|| panic!("{name} {label}: {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn the_metrics_endpoint_has_the_counters_of_the_document() {
    let (workspace, id) = with_a_run();
    let summary: Value =
        serde_json::from_slice(&fs::read(workspace.runs().join(&id).join("summary.json")).unwrap()).unwrap();
    let page = Page::open(&workspace, &["last"]);
    let (head, text) = page.get("metrics");
    assert!(code(&head) == "200" && head.contains("content-type: text/plain; version=0.0.4"), "{head}\n{text}");
    let load = &summary["load"];
    let run = format!("run=\"{id}\"");
    let (offered, completed) = (load["offered_requests"].as_f64(), load["completed"].as_f64());
    assert_eq!(Some(sample(&text, "yamabiko_measured_requests_offered", &run)), offered);
    assert_eq!(Some(sample(&text, "yamabiko_measured_requests_completed", &run)), completed);
    assert_eq!(Some(sample(&text, "yamabiko_measured_responses", "status=\"200\"")), load["status"]["200"].as_f64());
    // Counters include the warm-up.
    let counted = sample(&text, "yamabiko_requests_total", "outcome=\"completed\"");
    assert!(Some(counted) >= completed, "{counted} of {completed:?}");
    let verdict = summary["validity"]["verdict"].as_str().unwrap();
    assert_eq!(sample(&text, "yamabiko_run_verdict", &format!("verdict=\"{verdict}\"")), 1.0);
    // The same run by its name, requested twice.
    assert_eq!(page.get(&format!("run/{id}/metrics")).1, text);
    assert_eq!(page.get("metrics").1, text);
    // A page without a run.
    let list = Page::open(&workspace, &[]);
    for path in ["metrics", "run/nosuch/metrics", "runs/metrics", "run/%2e%2e/metrics"] {
        let (head, body) = list.get(path);
        assert_eq!(code(&head), "404", "{path}: {body}");
    }
    assert_eq!(list.get(&format!("run/{id}/metrics")).1, text);
}

#[test]
fn the_live_page_without_a_run_lists_stored_runs() {
    let (workspace, id) = with_a_run();
    let page = Page::open(&workspace, &[]);
    let snapshot = page.events("events").until("snapshot").data;
    assert_eq!(snapshot["title"], "Runs");
    let table = &snapshot["sections"][0]["pieces"][0];
    assert_eq!((table["rows"][0][0].as_str(), table["links"][0].as_str()), (Some(&*id), Some(&*format!("run/{id}/"))));
    // The chosen run.
    let (head, html) = page.get(&format!("run/{id}/"));
    assert!(code(&head) == "200" && html.contains("href=\"../../live.css\""));
    assert_eq!(page.events(&format!("run/{id}/events")).until("snapshot").data["title"].as_str(), Some(&*id));
    // Invalid names, and paths out of the run store.
    for path in [
        "run/nosuch/",
        "run/nosuch/events",
        "run/%2e%2e/",
        "run/..%2f..%2fetc%2fpasswd/events",
        "run//events",
        "etc",
        "summary.json",
    ] {
        let (head, body) = page.get(path);
        assert_eq!(code(&head), "404", "{path}: {body}");
    }
}

#[test]
fn the_live_page_refuses_foreign_hosts_and_missing_secrets() {
    let (workspace, _) = with_a_run();
    let page = Page::open(&workspace, &["last", "--token", "--allow-host", "bench.example"]);
    assert!(page.root.len() > 20, "{}", page.root);
    let (events, metrics) = (format!("{}events", page.root), format!("{}metrics", page.root));
    for host in ["evil.example", "127.0.0.1.evil.example"] {
        for path in [&page.root, &events, &metrics] {
            let (head, body) = page.request("GET", host, path);
            assert!(code(&head) == "403" && body.contains("--allow-host"), "{head}\n{body}");
        }
    }
    for path in [&page.root, &metrics] {
        assert_eq!(code(&page.request("GET", "bench.example", path).0), "200", "{path}");
    }
    for path in ["/", "/events", "/metrics", "/live.js", "/wrong-secret-of-some-length/", "/runs/events"] {
        let (head, body) = page.request("GET", &page.host, path);
        assert!(code(&head) == "403" && !body.contains(page.root.trim_matches('/')), "{path}: {head}");
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS"] {
        assert_eq!(code(&page.request(method, &page.host, &page.root).0), "405", "{method}");
    }
    let (head, _) = page.get("");
    let policy = head.lines().find(|line| line.starts_with("content-security-policy: ")).unwrap();
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe") && !policy.contains("http"),
        "{policy}"
    );
}

#[test]
fn a_given_secret_keeps_the_url_after_a_restart() {
    let (workspace, _) = with_a_run();
    let file = workspace.file("secret");
    fs::write(&file, "correct-horse-battery\n").unwrap();
    set_mode(&file, 0o600);
    // At an address that no other test uses: its port is still unused when the second process wants it.
    let at = ["last", "--listen", "127.0.88.1:0", "--token-file", str_of(&file)];
    let first = Page::open(&workspace, &at);
    assert_eq!(first.root, "/correct-horse-battery/");
    let before = first.events("events").until("snapshot");
    let listen = first.host.clone();
    drop(first);
    // Another process at the same address: ids of the first are unknown, so a snapshot is sent.
    let second = Page::open(&workspace, &["last", "--listen", &listen, "--token-file", str_of(&file)]);
    let after = second.events(&format!("events?after={}", before.id)).next();
    assert_eq!((after.name.as_str(), &after.data), ("snapshot", &before.data));
    assert_ne!(after.id, before.id);
    // A viewer that has the latest snapshot does not get it again: the next event is the end.
    let mut again = second.events(&format!("events?after={}", after.id));
    second.signal(Signal::SIGTERM);
    assert_eq!(again.next().name, "end");
    fs::write(&file, "with/slashes/in/it/all/along\n").unwrap();
    workspace.run(&["live", "last", "--token-file", str_of(&file)]).refused(1, &["secret"]);
}

#[test]
fn the_live_child_process_shows_its_input_and_ends_with_its_parent() {
    let (workspace, id) = with_a_run();
    let mut page = Page::open(&workspace, &["--follow-stdin"]);
    let mut events = page.events("events");
    assert_eq!(events.next().data["is_over"], false);
    let mut input = page.child.stdin.take().unwrap();
    writeln!(input, "{}", workspace.runs().join(&id).display()).unwrap();
    assert_eq!(events.until("snapshot").data["title"].as_str(), Some(&*id));
    drop(input);
    assert_eq!(events.until("end").data, serde_json::json!({}));
    page.wait_for_end();
}

/// Viewers get the final snapshot even if it is the only one.
#[test]
fn the_final_snapshot_precedes_the_end_event() {
    let (workspace, id) = with_a_run();
    let mut page = Page::open(&workspace, &["--follow-stdin"]);
    let mut events = page.events("events");
    events.next();
    let mut input = page.child.stdin.take().unwrap();
    writeln!(input, "{}", workspace.runs().join(&id).display()).unwrap();
    drop(input);
    let last = events.until("snapshot");
    assert_eq!((last.data["title"].as_str(), last.data["is_over"].as_bool()), (Some(&*id), Some(true)));
    events.until("end");
    page.wait_for_end();
}

#[test]
fn live_reports_an_unusable_address_in_one_line() {
    let (workspace, _) = with_a_run();
    let page = Page::open(&workspace, &["last"]);
    workspace.run(&["live", "last", "--listen", &page.host]).refused(2, &["cannot listen on", &page.host]);
    workspace.run(&["live", "nosuch"]).refused(1, &["nosuch"]);
    workspace.run(&["live", "--listen", "nowhere"]).refused(1, &["127.0.0.1:8080"]);
    workspace.run(&["live", "last", "--follow-stdin"]).refused(1, &["--follow-stdin"]);
}

/// The number of viewers is limited, and a disconnected viewer frees its slot.
#[test]
fn viewers_of_the_live_page_are_limited() {
    let (workspace, _) = with_a_run();
    let page = Page::open(&workspace, &["last"]);
    let mut streams: Vec<Events> = (0..64).map(|_| page.events("events")).collect();
    let first = streams[0].until("snapshot");
    for events in &mut streams[1..] {
        assert_eq!(events.until("snapshot").data, first.data);
    }
    let (head, body) = page.get("events");
    assert!(code(&head) == "503" && body.contains("Too many"), "{head}\n{body}");
    drop(streams);
    wait_until("the page accepts a viewer again", || {
        let mut stream = page.connect();
        write!(stream, "GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", page.host).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.contains(" 200 ")
    });
}
