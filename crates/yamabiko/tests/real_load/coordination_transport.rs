//! Shards that meet over a real nats-server: TLS and credentials, a server without JetStream, and deaths while the runs
//! are carried back.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::coordination::{TIMEOUT, Volume, kill, nats, nats_with, start, start_all, store};
use super::machines::{Lan, MACHINES, SERVER, folder, served};
use crate::support::document::{assert_checks_passed, check, count};
use crate::support::tls::Authority;
use crate::support::workspace::{Running, Workspace, str_of, wait_until};

const OPTIONS: &str = "-r 100/s -d 3s --warmup 0s";

fn lan() -> (Workspace, Lan, Running) {
    let workspace = Workspace::concurrent_as_root();
    let lan = Lan::new(&workspace);
    let nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    (workspace, lan, nginx)
}

#[test]
fn certificates_of_both_ends_and_a_password_are_used() {
    let (workspace, lan, _nginx) = lan();
    let authority = Authority::new(&workspace, "authority");
    let (server, client) = (authority.sign(&[SERVER], 2100), authority.sign(&["shard"], 2100));
    let trusted = authority.file();
    let [server_cert, server_key] = [&server.cert, &server.key].map(str_of);
    let data = workspace.file("nats");
    let ends = ["--tlsverify", "--tlscacert", str_of(&trusted)];
    let tls = [&["--tls", "--tlscert", server_cert, "--tlskey", server_key][..], &ends].concat();
    let options = [&["-js", "-sd", str_of(&data), "--user", "load", "--pass", "secret"][..], &tls].concat();
    let _nats = nats_with(&workspace, &lan, &options);
    let files = [("CA", &trusted), ("CERT", &client.cert), ("KEY", &client.key)];
    let trust = files.map(|(name, file)| format!("NATS_{name}={}", file.display()));
    let one = |index: usize, trust: &[String], user: [&str; 2]| {
        let settings: Vec<&str> = trust.iter().map(String::as_str).chain(user).collect();
        start(&workspace, &lan, (index, Volume::Shared), &settings, OPTIONS)
    };
    let user = ["NATS_USER=load", "NATS_PASSWORD=secret"];
    // Refused at once, not after the time in which the others may come.
    let wrong = one(0, &trust, ["NATS_USER=load", "NATS_PASSWORD=other"]);
    wrong.finish_within(TIMEOUT).refused(1, &["uthorization"]);
    let unknown = one(0, &[], user);
    // Sometimes the server, which wants a certificate, closes the connection before the client has seen the server's.
    let output = unknown.finish_within(TIMEOUT);
    assert!(output.code == Some(1) && output.stderr.contains("invalid peer certificate"), "{output}");
    assert_eq!(served(&workspace), 0);
    let running: Vec<Running> = (0..MACHINES).map(|index| one(index, &trust, user)).collect();
    let outputs: Vec<_> = running.into_iter().map(|running| running.finish_within(TIMEOUT)).collect();
    let merged = outputs[0].json();
    assert_checks_passed(&merged, &["shards_complete", "shards_cover_schedule"]);
    assert_eq!(count(&merged, "load.offered_requests"), 300);
    assert!(outputs.iter().all(|output| !output.stderr.contains("secret")));
}

#[test]
fn without_jetstream_runs_stay_where_they_are_and_are_named() {
    let (workspace, lan, _nginx) = lan();
    let _nats = nats_with(&workspace, &lan, &[]);
    let volume = |index| if index == 2 { Volume::Private } else { Volume::Shared };
    let running: Vec<Running> =
        (0..MACHINES).map(|index| start(&workspace, &lan, (index, volume(index)), &[], OPTIONS)).collect();
    let outputs: Vec<_> = running.into_iter().map(|running| running.finish_within(TIMEOUT)).collect();
    let merged = outputs[0].json();
    assert!(outputs[0].stderr.contains("JetStream is enabled by nats-server's option -js"), "{}", outputs[0].stderr);
    let complete = check(&merged, "shards_complete");
    assert!(complete["why"].as_str().unwrap().contains("(2/4)"), "{complete}");
    assert_eq!(merged["run"]["shards"].as_array().unwrap().len(), MACHINES);
    assert_eq!(count(&merged, "load.offered_requests"), 225);
}

/// Starts all, and returns when shard 3 has ended its load and sends its run to a server that stalls.
fn until_sending(workspace: &Workspace, lan: &Lan, nats: &Running, volume: Volume) -> Vec<Running> {
    let running = start_all(workspace, lan, volume, "-r 200/s -d 5s --warmup 0s");
    wait_until("the load has nearly ended", || served(workspace) > 900);
    // As the shard's own mount namespace has it. The archive exists from when it is packed until it is sent.
    let seen = format!("/proc/{}/root{}", running[3].pid(), store(workspace, 3).display());
    let is_sending = || {
        let folders = fs::read_dir(&seen).unwrap().flatten();
        folders.map(|entry| entry.path().join("send-3.tar.gz")).any(|archive| archive.exists())
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_sending() {
        assert!(Instant::now() < deadline, "shard 3 does not send its run: {}", running[3].stderr());
        sleep(Duration::from_micros(200));
    }
    nats.signal(Signal::SIGSTOP);
    // Packed by now, and sent as far as the server's socket has room.
    sleep(Duration::from_secs(1));
    running
}

#[test]
fn a_member_killed_while_it_sends_is_missing_and_its_run_can_be_merged() {
    let (workspace, lan, _nginx) = lan();
    let server = nats(&workspace, &lan);
    let mut running = until_sending(&workspace, &lan, &server, Volume::Shared);
    kill(&running.remove(3));
    server.signal(Signal::SIGCONT);
    let outputs: Vec<_> = running.into_iter().map(|running| running.finish_within(TIMEOUT)).collect();
    let merged = outputs[0].json();
    assert!(check(&merged, "shards_complete")["why"].as_str().unwrap().contains("(3/4)"), "{merged}");
    assert_eq!(merged["run"]["shards"].as_array().unwrap().len(), MACHINES);
    // What it had finished is kept.
    let is_run = |path: &PathBuf| path.join("shard.state").exists();
    let kept = fs::read_dir(store(&workspace, 3)).unwrap().flatten().map(|entry| entry.path()).find(is_run).unwrap();
    let runs: Vec<PathBuf> = outputs[1..].iter().map(|output| folder(&output.json())).chain([kept]).collect();
    let own = fs::read_dir(store(&workspace, 0)).unwrap().flatten().map(|entry| entry.path());
    let own = own.filter(is_run).find(|path| !runs.contains(path)).unwrap();
    let arguments: Vec<&str> = ["merge", "--json"].into_iter().chain(runs.iter().chain([&own]).map(str_of)).collect();
    let whole = workspace.run_json(&arguments);
    assert_checks_passed(&whole, &["shards_complete", "shards_cover_schedule"]);
    assert_eq!(count(&whole, "load.offered_requests"), 1000);
}

#[test]
fn a_nats_server_killed_while_runs_are_sent_loses_none() {
    let (workspace, lan, _nginx) = lan();
    let server = nats(&workspace, &lan);
    let running = until_sending(&workspace, &lan, &server, Volume::Private);
    kill(&server);
    drop(server);
    let _server = nats(&workspace, &lan);
    let outputs: Vec<_> = running.into_iter().map(|running| running.finish_within(TIMEOUT)).collect();
    let merged = outputs[0].json();
    assert!(outputs[0].stderr.contains("NATS is connected again"), "{}", outputs[0].stderr);
    assert_checks_passed(&merged, &["shards_complete", "shards_cover_schedule"]);
    assert_eq!(count(&merged, "load.offered_requests"), 1000);
}
