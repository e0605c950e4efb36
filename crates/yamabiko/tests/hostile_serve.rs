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
use support::serving::{Client, Faithful, Serving};
use support::tls::Authority;
use support::workspace::{Workspace, wait_until};

/// Attacks under way.
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
    let workspace = Workspace::shared();
    std::fs::write(workspace.www().join("20m.bin"), vec![b'b'; 20 << 20]).unwrap();
    workspace
}

fn target(serving: &Serving, members_max: usize) -> Target {
    Target { address: serving.address, small: "/10k.bin".into(), big: "/20m.bin".into(), sources: 40, members_max }
}

/// Runs attacks for a time, with well-behaved clients; returns the tallies. Afterwards the server must be in its
/// initial state.
fn endure(
    serving: &Serving,
    names: &[&'static str],
    target: &Target,
    lasting: Duration,
    good: Faithful,
) -> Vec<(&'static str, Tally)> {
    let attacks = Attacks::start(names, target);
    thread::sleep(lasting);
    let tallies = attacks.stop();
    for (name, tally) in &tallies {
        println!("{name}: {tally}");
    }
    let answers = good.stop();
    println!("{answers} good answers; at most {} KiB", serving.peak_kib());
    assert!(answers > 0);
    // The attackers' sockets are closed: the server notices that and keeps no state.
    wait_until("all connections are closed", || serving.sockets() <= 2);
    assert!(serving.connect().get("/10k.bin", "").is_ok());
    tallies
}

/// What slow ones hold is theirs for a time only.
#[test]
fn slow_clients_time_out_and_others_are_served() {
    let workspace = workspace();
    // Longer than a busy machine delays a well-behaved client.
    let patience =
        ["--head-time", "1500ms", "--idle-time", "1500ms", "--stall-time", "1500ms", "--body-time", "1500ms"];
    let serving = Serving::start(&workspace, &patience);
    let good = Faithful::start(&workspace, 4, serving.connector());
    let names = ["slow-heads", "slow-bodies", "slow-readers", "no-readers", "idle", "idle-kept"];
    let tallies = endure(&serving, &names, &target(&serving, 400), Duration::from_secs(5), good);
    for (name, tally) in &tallies {
        assert!(tally.sent_away > 100, "{name}: {tally}");
        assert_eq!(tally.not_begun, 0, "{name}: {tally}");
    }
    assert!(tallies[0].1.answered.contains_key("408"), "{}", tallies[0].1);
    assert!(serving.peak_kib() < 64 << 10, "{} KiB", serving.peak_kib());
}

/// Whatever comes as fast as it can: the others still have their turns.
#[test]
fn floods_do_not_block_other_clients() {
    let workspace = workspace();
    let serving = Serving::start(&workspace, &[]);
    let good = Faithful::start(&workspace, 4, serving.connector());
    let names = ["long-heads", "many-fields", "connections", "resets", "pipelining", "deaf-pipelining", "garbage"];
    let tallies = endure(&serving, &names, &target(&serving, 64), Duration::from_millis(2500), good);
    let answered = |at: usize, status: &str| {
        let tally = &tallies[at].1;
        assert!(tally.answered.contains_key(status), "{}: {tally}", tallies[at].0);
        assert!(tally.answered.len() == 1, "{}: {tally}", tallies[at].0);
    };
    answered(0, "431");
    answered(1, "431");
    answered(3, "200");
    answered(4, "200");
    answered(6, "400");
    // A pipeline that is never read gets a limited number of responses: what the kernel buffers, and no more.
    let deaf = &tallies[5].1;
    assert!(deaf.sent_bytes < deaf.begun * (16 << 20), "{deaf}");
    assert!(serving.peak_kib() < 64 << 10, "{} KiB", serving.peak_kib());
}

/// Three times as many connections as there may be.
#[test]
fn the_longest_idle_connections_are_displaced_at_the_limit() {
    let workspace = workspace();
    let serving = Serving::start(&workspace, &["--connections", "500"]);
    let good = Faithful::start(&workspace, 4, serving.connector());
    let tallies = endure(&serving, &["idle", "idle-kept"], &target(&serving, 750), Duration::from_millis(1500), good);
    assert!(tallies.iter().map(|(_, tally)| tally.sent_away).sum::<u64>() > 0);
}

/// One address may not have everything, and hears why.
#[test]
fn one_address_is_limited_to_its_share_of_connections() {
    let workspace = workspace();
    let serving = Serving::start(&workspace, &["--connections-per-address", "20"]);
    let good = Faithful::start(&workspace, 4, serving.connector());
    let target = Target { sources: 2, ..target(&serving, 100) };
    let tallies = endure(&serving, &["idle-kept"], &target, Duration::from_millis(1000), good);
    let tally = &tallies[0].1;
    assert!(tally.answered.contains_key("503") && tally.sent_away > 0, "{tally}");
}

/// Where descriptors are few the server neither spins nor fails.
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
    let good = Faithful::start(&workspace, 4, serving.connector());
    endure(&serving, &["idle", "resets"], &target(&serving, 700), Duration::from_millis(1500), good);
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
    let good = Faithful::start(&workspace, 2, serving.connector());
    thread::sleep(Duration::from_millis(2500));
    stop.store(true, Ordering::Relaxed);
    let last = changing.join().unwrap();
    let seen: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
    println!("{last} versions, {seen} answers");
    assert!(last > 20 && seen > 20 && good.stop() > 0);
    // The current version is served within a second, whatever was cached.
    for (name, lines) in [(churn::REPLACED, churn::LINES), (churn::BIG, churn::LINES_BIG)] {
        let now = std::fs::read(workspace.www().join(name)).unwrap();
        assert_eq!(now.len(), churn::page(last, lines).len());
        wait_until(&format!("{name} is served as it is"), || {
            serving.connect().get(&format!("/{name}"), "").is_ok_and(|response| response.body == now)
        });
    }
    assert!(serving.peak_kib() < 64 << 10, "{} KiB", serving.peak_kib());
}

/// Checked responses.
fn read_while_it_changes(stop: &AtomicBool, address: std::net::SocketAddr) -> u64 {
    let mut answers = 0;
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
                // The file is missing for a moment, or a link leads outside.
                404 => continue,
                other => panic!("{name}: {other}: {}", response.head),
            }
            let body = &response.body;
            assert_ne!(body, churn::SECRET, "{name} leads outside");
            let version = if name == churn::BIG { big_version(body) } else { churn::version(body) };
            let Some(version) = version else { panic!("{name}: {} bytes of several versions", body.len()) };
            if name == churn::LINK {
                assert_eq!(version, 1);
            }
            // A strong validator names one content.
            if let Some(tag) = response.field("etag").filter(|tag| !tag.starts_with("W/")) {
                let first = *tags.entry((tag.to_owned(), name)).or_insert(version);
                assert_eq!(first, version, "{name}: {tag} is the tag of two versions");
            }
            answers += 1;
        }
    }
    answers
}

/// The version of a page that is sent from its file. If the file is truncated in place, the kernel sends zeros for the
/// part not sent yet, with every server that uses sendfile. Another version must never follow.
fn big_version(body: &[u8]) -> Option<u64> {
    // The truncated file: a version of its own.
    if body.len() == 1000 {
        return Some(0);
    }
    let version = churn::version(body.get(..29)?)?;
    let page = churn::page(version, churn::LINES_BIG);
    let same = body.len() == page.len() && body.iter().zip(&page).all(|(got, sent)| got == sent || *got == 0);
    same.then_some(version)
}

/// Handshakes that are not completed, and garbage.
#[test]
fn tls_attacks_do_not_block_other_clients() {
    let workspace = workspace();
    let authority = Authority::new(&workspace, "authority");
    let certificate = authority.sign(&["server"], 2090);
    let files = [support::workspace::str_of(&certificate.cert), support::workspace::str_of(&certificate.key)];
    let serving = Serving::start(&workspace, &["--tls", files[0], files[1], "--head-time", "600ms"]);
    let trusted = authority.file();
    let good = Faithful::start(&workspace, 4, serving.tls_connector(&trusted, "server"));
    let attacks = Attacks::start(&["tls-hellos", "tls-slow", "tls-garbage"], &target(&serving, 200));
    thread::sleep(Duration::from_millis(2500));
    let tallies = attacks.stop();
    for (name, tally) in &tallies {
        println!("{name}: {tally}");
        // Responses are TLS records, never plain HTTP.
        assert!(tally.answered.keys().all(|status| status == "400"), "{name}: {tally}");
    }
    assert!(good.stop() > 0);
    assert!(tallies[0].1.read_bytes > 0 && tallies[1].1.sent_away > 0 && tallies[2].1.sent_away > 0);
    wait_until("all connections are closed", || serving.sockets() <= 2);
    assert!(serving.peak_kib() < 64 << 10, "{} KiB", serving.peak_kib());
    // Plain HTTP gets an explanation.
    let told = serving.connect().get("/10k.bin", "").unwrap();
    assert_eq!(told.status(), 400);
    assert!(String::from_utf8_lossy(&told.body).contains("https://"));
}
