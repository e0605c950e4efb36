//! The RTT of each client as measured by an independent tool, tcpdump at the server's end, compared with the
//! configuration.

use std::collections::HashMap;

use nix::sys::signal::Signal;
use plan::PathPlan;

use crate::support::capture::{Handshake, handshakes};
use crate::support::document::{assert_checks_passed, assert_checks_passed_or_disturbed, check, count, disturbed};
use crate::support::processes::{start_in_network, wait_for_server};
use crate::support::servers::{apache, bench, nginx};
use crate::support::workspace::{Workspace, str_of, wait_until};

/// Maximum median of the RTT error in ns.
const MEDIAN_ERROR_NS: u64 = 300_000;
/// Maximum median of the RTT error in ns if the run reports timing errors.
const MEDIAN_ERROR_DISTURBED_NS: u64 = 1_000_000;
/// Lower bound of the RTT error: a packet never leaves the path early; tcpdump's timestamps have microseconds.
const EARLY_NS: i64 = -20_000;

#[test]
fn handshake_rtts_of_a_hundred_apache_clients_match_their_configuration() {
    let errors = errors_by_client(apache, 100, 110, 4);
    // Each client has at least four handshakes, so that one disturbance does not determine its RTT.
    assert_errors_bounded(&errors, 10_000_000);
}

#[test]
fn handshake_rtts_of_ten_thousand_nginx_clients_match_their_configuration() {
    let errors = errors_by_client(nginx, 10_000, 2500, 4);
    // Each client has one handshake in the measured phase: a pause of the machine affects all handshakes in progress.
    assert_errors_bounded(&errors, 100_000_000);
}

struct Errors {
    /// The smallest error in magnitude of each client, in client order.
    best: Vec<i64>,
    /// Every error.
    all: Vec<i64>,
    /// The longest stall that the run reports.
    stall_ns: i64,
    /// Whether the run reports that its times are unreliable.
    disturbed: bool,
}

fn errors_by_client(server: fn(&Workspace) -> String, clients: u32, rate: u32, seconds: u32) -> Errors {
    let workspace = Workspace::new();
    let (server, capture) = (server(&workspace), workspace.file("handshakes.pcap"));
    let word = if server.contains("nginx") { "nginx" } else { "apache2" };
    let options =
        format!("--path koshien-2001 --clients {clients} --rate {rate}/s --close --warmup 2s -d {seconds}s --json");
    let mut bench = workspace.start(&bench(&server, &options));
    let server_pid = wait_for_server(&mut bench, word, 1)[0];
    let tcpdump = start_in_network(
        &workspace,
        server_pid,
        // A handshake packet fits into 96 bytes; a buffer of 32 MiB is larger than the complete capture.
        &["tcpdump", "-i", "s0", "-w", str_of(&capture), "-n", "-s96", "-B32768", "-Zroot", HANDSHAKE],
    );
    wait_until("tcpdump listens", || tcpdump.stderr().contains("listening on s0"));
    let output = bench.finish();
    // tcpdump keeps the server's namespace alive.
    tcpdump.signal(Signal::SIGINT);
    let dumped = tcpdump.finish();
    assert!(dumped.stderr.contains("\n0 packets dropped by kernel"), "{dumped}");
    let document = output.json();
    assert_checks_passed(&document, &["conservation", "no_unintended_drops", "responses_whole"]);
    assert_checks_passed_or_disturbed(&document, &["rtt_as_configured"]);
    assert_eq!(count(&document, "load.completed"), u64::from(rate * seconds));

    let plan = PathPlan { profile: Some("koshien-2001".into()), ..PathPlan::default() };
    let configured_ns: Vec<i64> = testbed::distances::spec(&plan, clients)
        .unwrap()
        .clients
        .iter()
        .map(|client| client.rtt().as_nanos() as i64)
        .collect();
    let stall_ns = check(&document, "loop_not_stalled")["value"].as_f64().unwrap() as i64;
    let (best, all) = compare(&handshakes(&capture), &configured_ns);
    Errors { best, all, stall_ns, disturbed: disturbed(&document) }
}

/// The smallest error of each client, and all errors.
fn compare(seen: &[Handshake], configured_ns: &[i64]) -> (Vec<i64>, Vec<i64>) {
    let base = u32::from(testbed::topology::FIRST_CLIENT);
    let mut best: HashMap<usize, i64> = HashMap::new();
    let mut all = Vec::new();
    for handshake in seen {
        let client = (u32::from(handshake.client) - base) as usize;
        let error = handshake.rtt_ns as i64 - configured_ns[client];
        all.push(error);
        let entry = best.entry(client).or_insert(error);
        if error.abs() < entry.abs() {
            *entry = error;
        }
    }
    let missing = (0..configured_ns.len()).filter(|client| !best.contains_key(client)).count();
    assert_eq!(missing, 0, "clients without a captured handshake, of {}", configured_ns.len());
    ((0..configured_ns.len()).map(|client| best[&client]).collect(), all)
}

fn assert_errors_bounded(errors: &Errors, worst_ns: i64) {
    let mut sizes: Vec<u64> = errors.all.iter().map(|error| error.unsigned_abs()).collect();
    sizes.sort_unstable();
    let at = |share: f64| sizes[(share * (sizes.len() - 1) as f64) as usize];
    let shown = format!(
        "{} handshakes of {} clients: |error| p50 {} us, p90 {} us, p99 {} us, max {} us, longest stall {} us",
        sizes.len(),
        errors.best.len(),
        at(0.5) / 1000,
        at(0.9) / 1000,
        at(0.99) / 1000,
        at(1.0) / 1000,
        errors.stall_ns / 1000
    );
    println!("{shown}");
    assert!(errors.all.iter().all(|&error| error > EARLY_NS), "no packet is early: {shown}");
    if errors.disturbed {
        assert!(at(0.5) < MEDIAN_ERROR_DISTURBED_NS, "{shown}");
        return;
    }
    assert!(at(0.5) < MEDIAN_ERROR_NS, "{shown}");
    // Pauses too short for a reported disturbance also add to the error, at most once for the SYN-ACK and once for its
    // ACK.
    let worst_ns = worst_ns + 2 * errors.stall_ns;
    let off = errors.best.iter().enumerate().find(|(_, error)| error.abs() > worst_ns);
    assert_eq!(off, None, "client and its error in ns; {shown}");
}

/// tcpdump filter: SYN-ACKs, and packets from the clients.
const HANDSHAKE: &str = "tcp and (tcp[tcpflags] & tcp-syn != 0 or dst host 198.18.0.1)";
