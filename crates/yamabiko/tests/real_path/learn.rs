//! A round trip: a run under a known profile is captured at the server's end, the learned profile matches the known
//! one, and a run under the learned profile configures the same RTTs.

use std::fs;
use std::path::Path;

use crate::support::document::{assert_checks_passed, check, count, disturbed, number};
use crate::support::processes::{start_in_network, wait_for_server};
use crate::support::servers::{bench, yamabiko_serve};
use crate::support::workspace::{Workspace, str_of, wait_until, yamabiko};
use nix::sys::signal::Signal;
use path::Profile;
use serde_json::Value;

const CLIENTS: u32 = 200;
/// Permitted relative error of a learned RTT.
const MAX_ERROR_SHARE: f64 = 0.03;

#[test]
fn a_learned_profile_reproduces_the_koshien_profile() {
    let workspace = Workspace::new();
    let (server, capture) = (yamabiko_serve(&workspace), workspace.file("koshien.pcap"));
    // 1400 connections, seven of each client: quantiles over connections equal those over clients.
    let load = format!("--clients {CLIENTS} --rate 200/s --close --warmup 2s -d 5s --json --no-save");
    let mut run = workspace.start(&bench(&server, &format!("--path koshien-2001 {load}")));
    let pid = wait_for_server(&mut run, "serve", 1)[0];
    let dump = ["tcpdump", "-i", "s0", "-w", str_of(&capture), "-n", "-s96", "-B32768", "-Zroot", "tcp"];
    let tcpdump = start_in_network(&workspace, pid, &dump);
    wait_until("tcpdump listens", || tcpdump.stderr().contains("listening on s0"));
    let known = run.finish().json();
    tcpdump.signal(Signal::SIGINT);
    tcpdump.finish();
    assert_checks_passed(&known, &["conservation", "no_unintended_drops", "responses_whole"]);

    let file = workspace.file("learned.toml");
    let document =
        workspace.run(&["profile", "learn", str_of(&capture), "-o", str_of(&file), "--json"]).success().json();
    let learned = &document["learned"];
    assert_eq!((count(learned, "connections"), count(learned, "clients")), (1400, u64::from(CLIENTS)));
    assert_eq!(count(learned, "half_open"), 0);
    // Clients with an RTT above one second cause retransmitted SYN-ACKs and are measured nevertheless, except the last
    // ones, whose pages were in transit at the end.
    assert!(count(learned, "handshakes_repeated") > 0, "{learned}");
    assert!(count(learned, "untold") * 2 < count(learned, "handshakes_repeated"), "{learned}");
    assert!((number(learned, "arrivals.connections.rate_per_s") / 200.0 - 1.0).abs() < 0.5);
    let slack_ns = slack_ns(&known);
    let configured = Profile::builtin("koshien-2001").unwrap();
    compare(&rtts_ns(&configured), &rtts_ns(&read_profile(&file)), slack_ns);

    // Replayed from another folder: the configured RTTs equal the learned ones to the nanosecond.
    let again = workspace.run(&bench(&server, &format!("--path {} {load}", file.display()))).json();
    let [configured, learned] = [&again["path"]["configured_rtt_ns"], &learned["replay"]["configured_rtt_ns"]];
    for quantile in ["count", "min", "p50", "p75", "p90", "p95", "p99", "max"] {
        assert_eq!(configured[quantile], learned[quantile], "{quantile}");
    }
    assert_checks_passed(&again, &["conservation", "no_unintended_drops", "responses_whole"]);
    assert_eq!(count(&again, "load.completed"), 1000);
    if !disturbed(&again) {
        assert_checks_passed(&again, &["rtt_as_configured"]);
        assert_eq!(again["validity"]["verdict"], "valid", "{}", again["validity"]);
    }
}

/// Two classes of clients, the distant ones with downstream loss, learned live at the server.
#[test]
fn a_live_capture_learns_two_client_classes_and_their_loss() {
    let workspace = Workspace::new();
    let (server, known) = (yamabiko_serve(&workspace), workspace.file("known.toml"));
    let text = "name = 'two'\n[[clients]]\nshare = 0.5\nrtt = '20ms'\n[[clients]]\nshare = 0.5\nrtt = '120ms'\n\
                down = { loss = '2%' }\n";
    fs::write(&known, text).unwrap();
    let options = format!(
        "--path {} --clients 100 --rate 100/s --close --warmup 1s -d 8s --json --no-save --server-tcp cc=cubic",
        known.display()
    );
    let url = "http://server:8080/100k.bin";
    let arguments = [&["bench", url, "--server", &server][..], &options.split(' ').collect::<Vec<_>>()].concat();
    let mut run = workspace.start(&arguments);
    let pid = wait_for_server(&mut run, "serve", 1)[0];
    let (program, file) = (yamabiko(), workspace.file("two.toml"));
    // The live capture ends by itself before the run, since the device exists only during the run.
    let learn = ["profile", "learn", "-i", "s0", "-d", "4s", "--port", "8080", "-o", str_of(&file)];
    let learn = start_in_network(&workspace, pid, &[&[str_of(&program)][..], &learn].concat());
    let output = learn.finish().success();
    let known = run.finish().json();
    assert_checks_passed(&known, &["conservation", "no_unintended_drops"]);

    let rtts_ns = rtts_ns(&read_profile(&file));
    let slack_ns = slack_ns(&known);
    for (client, configured_ms) in [(20, 20.0), (60, 20.0), (90, 20.0), (110, 120.0), (150, 120.0), (190, 120.0)] {
        let (configured, learned) = (configured_ms * 1e6, rtts_ns[client] as f64);
        assert!(
            (learned - configured).abs() <= configured * MAX_ERROR_SHARE + slack_ns,
            "client {client}: {learned} ns, configured {configured}\n{output}"
        );
    }
    // Half of the packets have a loss of 2 %. Spurious retransmissions after a timeout add to it.
    let profile = &read_profile(&file).clients(1)[0];
    let loss = profile.down.loss();
    assert!((0.006..0.02).contains(&loss), "{loss}\n{output}");
    assert_eq!(profile.up.loss(), 0.0, "{output}");
    let text = output.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in ["captured at the server", "connections of 100 clients", "replay yamabiko bench", "--close"] {
        assert!(text.contains(words), "{words} in\n{output}");
    }
}

fn read_profile(file: &Path) -> Profile {
    Profile::read(file, &|file| fs::read_to_string(file)).unwrap()
}

fn rtts_ns(profile: &Profile) -> Vec<u64> {
    profile.clients(CLIENTS).iter().map(|client| client.rtt().as_nanos() as u64).collect()
}

/// Compares the percentiles from the 10th to the 99th.
fn compare(configured_ns: &[u64], learned_ns: &[u64], slack_ns: f64) {
    let errors: Vec<f64> = configured_ns
        .iter()
        .zip(learned_ns)
        .map(|(&configured, &learned)| {
            ((learned as f64 - configured as f64).abs() - slack_ns).max(0.0) / configured as f64
        })
        .collect();
    let (from, to) = (CLIENTS as usize / 10, CLIENTS as usize * 99 / 100);
    let worst = (from..to).max_by(|&a, &b| errors[a].total_cmp(&errors[b])).unwrap();
    let worst_client = format!("client {worst}: {} ns for {} ns", learned_ns[worst], configured_ns[worst]);
    println!("worst from p10 to p99: {:.2} %, {worst_client}", errors[worst] * 100.0);
    assert!(errors[worst] <= MAX_ERROR_SHARE, "{worst_client}");
}

/// The machine's contribution to an RTT, as the run reports it: each of two handshake packets may have the p99 of the
/// timing error, and may have waited for the longest stall of the loop.
fn slack_ns(document: &Value) -> f64 {
    let stall = check(document, "loop_not_stalled")["value"].as_f64().unwrap_or(0.0);
    let late = number(document, "path.timing_error_ns.p99");
    2.0 * if disturbed(document) { stall.max(late) } else { late }
}
