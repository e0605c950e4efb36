//! A server under attack: other clients get correct responses, attackers are disconnected, memory stays limited.
//!
//! Nothing here is timed: `cargo xtask bench attack` measures the response times of other clients.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

#[path = "support/attackers.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod attackers;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use attackers::churn::{self, churn};
use attackers::{Tally, Target};
use support::serving::{Client, Serving, VerifyingClients};
use support::tls::Authority;
use support::workspace::{Workspace, wait_until};

/// Running attacks.
struct Attacks {
    stop: Arc<AtomicBool>,
    threads: Vec<(&'static str, JoinHandle<Tally>)>,
}

impl Attacks {
    fn start(names: &[&'static str], target: &Target) -> Attacks {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = names
            .iter()
            .map(|&name| {
                let (stop, target) = (Arc::clone(&stop), target.clone());
                let attack = attackers::named(name).unwrap();
                (name, thread::spawn(move || attack.run(&target, &stop)))
            })
            .collect();
        Attacks { stop, threads }
    }

    fn stop(self) -> Vec<(&'static str, Tally)> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().map(|(name, thread)| (name, thread.join().unwrap())).collect()
    }
}

/// A workspace with an additional large page.
fn workspace() -> Workspace {
    let workspace = Workspace::concurrent();
    std::fs::write(workspace.www().join("20m.bin"), vec![b'b'; 20 << 20]).unwrap();
    workspace
}

fn target(serving: &Serving, max_concurrent: usize) -> Target {
    Target { address: serving.address, small: "/10k.bin".into(), big: "/20m.bin".into(), sources: 40, max_concurrent }
}

/// Runs attacks for `duration` together with well-behaved clients; returns the tallies. Asserts that the server is then
/// in its initial state.
fn run_attacks(
    serving: &Serving,
    names: &[&'static str],
    target: &Target,
    duration: Duration,
    verifying_clients: VerifyingClients,
) -> Vec<(&'static str, Tally)> {
    let attacks = Attacks::start(names, target);
    thread::sleep(duration);
    let tallies = attacks.stop();
    for (name, tally) in &tallies {
        println!("{name}: {tally}");
    }
    let responses = verifying_clients.stop();
    println!("{responses} responses to well-behaved clients; peak memory {} KiB", serving.peak_kib());
    assert!(responses > 0);
    // The attackers' sockets are closed: the server detects that and keeps no state.
    wait_until("all connections are closed", || serving.sockets() <= 2);
    assert!(serving.connect().get("/10k.bin", "").is_ok());
    tallies
}

/// The server closes the connections of slow clients after a timeout.
#[test]
fn slow_clients_time_out_and_others_are_served() {
    let workspace = workspace();
    // Longer than a busy machine delays a well-behaved client.
    let timeouts =
        ["--head-time", "1500ms", "--idle-time", "1500ms", "--stall-time", "1500ms", "--body-time", "1500ms"];
    let serving = Serving::start(&workspace, &timeouts);
    let verifying_clients = VerifyingClients::start(&workspace, 4, serving.connector());
    let names = ["slow-heads", "slow-bodies", "slow-readers", "no-readers", "idle", "idle-persistent"];
    let tallies = run_attacks(&serving, &names, &target(&serving, 400), Duration::from_secs(5), verifying_clients);
    for (name, tally) in &tallies {
        assert!(tally.closed_by_server > 100, "{name}: {tally}");
        assert_eq!(tally.not_opened, 0, "{name}: {tally}");
    }
    assert!(tallies[0].1.responses.contains_key("408"), "{}", tallies[0].1);
    assert!(serving.peak_kib() < 64 << 10, "{} KiB", serving.peak_kib());
}

/// Clients that send at full speed do not block other clients.
#[test]
fn floods_do_not_block_other_clients() {
    let workspace = workspace();
    let serving = Serving::start(&workspace, &[]);
    let verifying_clients = VerifyingClients::start(&workspace, 4, serving.connector());
    let names = ["long-heads", "many-fields", "connections", "resets", "pipelining", "unread-pipelining", "garbage"];
    let tallies = run_attacks(&serving, &names, &target(&serving, 64), Duration::from_millis(2500), verifying_clients);
    let assert_only_status = |at: usize, status: &str| {
        let tally = &tallies[at].1;
        assert!(tally.responses.contains_key(status), "{}: {tally}", tallies[at].0);
        assert!(tally.responses.len() == 1, "{}: {tally}", tallies[at].0);
    };
    assert_only_status(0, "431");
    assert_only_status(1, "431");
    assert_only_status(3, "200");
    assert_only_status(4, "200");
    assert_only_status(6, "400");
    // A pipelining client that does not read gets a limited number of responses: those that fit into the kernel's
    // buffers.
    let not_reading = &tallies[5].1;
    assert!(not_reading.sent_bytes < not_reading.opened * (16 << 20), "{not_reading}");
    assert!(serving.peak_kib() < 64 << 10, "{} KiB", serving.peak_kib());
}

/// Three times as many connections as the limit.
#[test]
fn the_longest_idle_connections_are_displaced_at_the_limit() {
    let workspace = workspace();
    let serving = Serving::start(&workspace, &["--connections", "500"]);
    let verifying_clients = VerifyingClients::start(&workspace, 4, serving.connector());
    let tallies = run_attacks(
        &serving,
        &["idle", "idle-persistent"],
        &target(&serving, 750),
        Duration::from_millis(1500),
        verifying_clients,
    );
    assert!(tallies.iter().map(|(_, tally)| tally.closed_by_server).sum::<u64>() > 0);
}

/// The server refuses further connections of one address with status 503.
#[test]
fn one_address_is_limited_to_its_share_of_connections() {
    let workspace = workspace();
    let serving = Serving::start(&workspace, &["--connections-per-address", "20"]);
    let verifying_clients = VerifyingClients::start(&workspace, 4, serving.connector());
    let target = Target { sources: 2, ..target(&serving, 100) };
    let tallies = run_attacks(&serving, &["idle-persistent"], &target, Duration::from_millis(1000), verifying_clients);
    let tally = &tallies[0].1;
    assert!(tally.responses.contains_key("503") && tally.closed_by_server > 0, "{tally}");
}

/// Without free descriptors the server neither spins nor exits.
#[test]
fn the_server_survives_descriptor_exhaustion() {
    let workspace = workspace();
    let limited = format!(
        "ulimit -n 400; exec {} serve {} --listen 127.0.0.1:0",
        support::workspace::yamabiko().display(),
        workspace.www().display()
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &limited]);
    let serving = Serving::start_command(&workspace, command);
    let verifying_clients = VerifyingClients::start(&workspace, 4, serving.connector());
    run_attacks(&serving, &["idle", "resets"], &target(&serving, 700), Duration::from_millis(1500), verifying_clients);
}

/// Files are created and deleted while they are served: every response is one complete version of a file, or is reset.
#[test]
fn changing_files_are_served_complete_or_reset() {
    let workspace = workspace();
    let secret = workspace.path().join("secret.txt");
    churn::prepare(&workspace.www(), &secret).unwrap();
    let serving = Serving::start(&workspace, &["--threads", "2"]);
    let stop = Arc::new(AtomicBool::new(false));
    let changing = {
        let (stop, www, secret) = (Arc::clone(&stop), workspace.www(), secret.clone());
        thread::spawn(move || churn(&www, &secret, &stop).unwrap())
    };
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (stop, address) = (Arc::clone(&stop), serving.address);
            thread::spawn(move || read_while_it_changes(&stop, address))
        })
        .collect();
    let verifying_clients = VerifyingClients::start(&workspace, 2, serving.connector());
    thread::sleep(Duration::from_millis(2500));
    stop.store(true, Ordering::Relaxed);
    let last = changing.join().unwrap();
    let seen: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    println!("{last} versions, {seen} responses");
    assert!(last > 20 && seen > 20 && verifying_clients.stop() > 0);
    // The current version is served within a second, whatever was cached.
    for (name, lines) in [(churn::REPLACED, churn::LINES), (churn::BIG, churn::LINES_BIG)] {
        let now = std::fs::read(workspace.www().join(name)).unwrap();
        assert_eq!(now.len(), churn::page(last, lines).len());
        wait_until(&format!("the current version of {name} is served"), || {
            serving.connect().get(&format!("/{name}"), "").is_ok_and(|response| response.body == now)
        });
    }
    assert!(serving.peak_kib() < 64 << 10, "{} KiB", serving.peak_kib());
}

/// Requests the changing files until `stop` and checks every response; returns the number of responses.
fn read_while_it_changes(stop: &AtomicBool, address: std::net::SocketAddr) -> u64 {
    let mut responses = 0;
    let mut tags: std::collections::HashMap<(String, &str), u64> = std::collections::HashMap::new();
    let mut client = Client::connect(address);
    while !stop.load(Ordering::Relaxed) {
        for name in [churn::REPLACED, churn::LINK, churn::REWRITTEN, churn::BIG] {
            // A file that is truncated during a transfer can only be reset.
            let Ok(response) = client.get(&format!("/{name}"), "") else {
                // The port of the old connection is not free immediately, and a machine has 28,000 of them.
                thread::sleep(Duration::from_millis(1));
                client = Client::connect(address);
                break;
            };
            match response.status() {
                200 => {}
                // The file is missing between two changes, or the link points outside.
                404 => continue,
                other => panic!("{name}: {other}: {}", response.head),
            }
            let body = &response.body;
            assert_ne!(body, churn::SECRET, "{name} has the content of a file outside of the folder");
            let version = if name == churn::BIG { big_version(body) } else { churn::version(body) };
            let Some(version) = version else { panic!("{name}: {} bytes of several versions", body.len()) };
            if name == churn::LINK {
                assert_eq!(version, 1);
            }
            // A strong validator identifies one content.
            if let Some(tag) = response.field("etag").filter(|tag| !tag.starts_with("W/")) {
                let first = *tags.entry((tag.to_owned(), name)).or_insert(version);
                assert_eq!(first, version, "{name}: two versions have the tag {tag}");
            }
            responses += 1;
        }
    }
    responses
}

/// The version of a page that is sent from its file. If the file is truncated in place, the kernel sends zeros for the
/// part not sent yet, with every server that uses sendfile. Another version must never follow.
fn big_version(body: &[u8]) -> Option<u64> {
    // The truncated file counts as version 0.
    if body.len() == 1000 {
        return Some(0);
    }
    let version = churn::version(body.get(..29)?)?;
    let page = churn::page(version, churn::LINES_BIG);
    let same =
        body.len() == page.len() && body.iter().zip(&page).all(|(received, sent)| received == sent || *received == 0);
    same.then_some(version)
}

/// Incomplete handshakes, and random bytes.
#[test]
fn tls_attacks_do_not_block_other_clients() {
    let workspace = workspace();
    let authority = Authority::new(&workspace, "authority");
    let certificate = authority.sign(&["server"], 2090);
    let files = [support::workspace::str_of(&certificate.cert), support::workspace::str_of(&certificate.key)];
    let serving = Serving::start(&workspace, &["--tls", files[0], files[1], "--head-time", "600ms"]);
    let trusted = authority.file();
    let verifying_clients = VerifyingClients::start(&workspace, 4, serving.tls_connector(&trusted, "server"));
    let attacks = Attacks::start(&["tls-hellos", "tls-slow", "tls-garbage"], &target(&serving, 200));
    thread::sleep(Duration::from_millis(2500));
    let tallies = attacks.stop();
    for (name, tally) in &tallies {
        println!("{name}: {tally}");
        // Responses are TLS records, never plain HTTP.
        assert!(tally.responses.keys().all(|status| status == "400"), "{name}: {tally}");
    }
    assert!(verifying_clients.stop() > 0);
    assert!(tallies[0].1.read_bytes > 0 && tallies[1].1.closed_by_server > 0 && tallies[2].1.closed_by_server > 0);
    wait_until("all connections are closed", || serving.sockets() <= 2);
    assert!(serving.peak_kib() < 64 << 10, "{} KiB", serving.peak_kib());
    // Plain HTTP gets an explanation.
    let response = serving.connect().get("/10k.bin", "").unwrap();
    assert_eq!(response.status(), 400);
    assert!(String::from_utf8_lossy(&response.body).contains("https://"));
}
