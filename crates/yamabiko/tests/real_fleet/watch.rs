//! Watches publish their seconds to a real nats-server, from which two receivers read.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;
use schema::WatchSecond;
use serde_json::Value;

use super::nats::{nats, nats_at};
use crate::fleet::TEST_TIMEOUT;
use crate::support::workspace::{Output, Running, Workspace, wait_until};

fn runs_named(workspace: &Workspace, part: &str) -> Vec<PathBuf> {
    let runs = fs::read_dir(workspace.runs()).unwrap().map(|entry| entry.unwrap().path());
    let mut named: Vec<PathBuf> = runs.filter(|path| path.to_string_lossy().contains(part)).collect();
    named.sort();
    named
}

fn series(run: &Path) -> Vec<WatchSecond> {
    store::read_watch_series(run).unwrap().collect::<Result<_, _>>().unwrap()
}

fn stop(running: Running) -> Output {
    running.signal(Signal::SIGINT);
    running.finish()
}

fn summary(run: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(run.join("summary.json")).unwrap()).unwrap()
}

#[test]
fn two_receivers_store_the_senders_series_although_the_server_is_killed() {
    let workspace = Workspace::concurrent_as_root();
    let out = workspace.path().join("out");
    let (server, port) = nats(&out, "watched", &["-js"]);
    let stream = format!("nats://127.0.0.1:{port}/SECONDS");
    let receivers = ["first", "second"].map(|name| {
        let receiver = workspace.start(&["watch", "--from", &stream, "--name", name]);
        wait_until("the receiver reads", || receiver.stderr().contains("reading nats://"));
        receiver
    });
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let watched = listener.local_addr().unwrap();
    let watch = workspace.start(&[
        "watch",
        "-i",
        "lo",
        "--port",
        &watched.port().to_string(),
        "--to",
        &stream,
        "--name",
        "near",
    ]);
    let seconds = |running: &Running| running.stderr().matches(" concurrent connections").count();
    wait_until("both receive seconds", || receivers.iter().all(|receiver| seconds(receiver) >= 2));
    let connections: Vec<TcpStream> = (0..5).map(|_| TcpStream::connect(watched).unwrap()).collect();
    server.end(Signal::SIGKILL, TEST_TIMEOUT).unwrap();
    wait_until("the sender queues", || watch.stderr().contains("s queued"));
    let _server = nats_at(&out, "watched", &port);
    let before = receivers.each_ref().map(seconds);
    wait_until("both receive seconds again", || {
        receivers.iter().zip(before).all(|(receiver, before)| seconds(receiver) > before + 3)
    });
    drop(connections);
    sleep(Duration::from_secs(1));
    let output = stop(watch).success();
    assert!(output.stderr.contains(&format!("sent to {stream}")) && !output.stderr.contains(" s lost"), "{output}");
    for receiver in &receivers {
        wait_until("the series has ended", || receiver.stderr().contains("has ended, stored as"));
    }
    receivers.into_iter().for_each(|receiver| drop(stop(receiver).success()));
    let near = runs_named(&workspace, "-near-");
    let expected = series(&near[0]);
    assert!(expected.iter().map(|second| second.connections_max).max() == Some(5), "{expected:?}");
    for name in ["-first-", "-second-"] {
        let run = runs_named(&workspace, name);
        assert_eq!((near.len(), run.len()), (1, 1), "{name}");
        assert_eq!(series(&run[0]), expected, "{name}");
        assert_eq!(summary(&run[0])["watch"]["connections"], summary(&near[0])["watch"]["connections"]);
    }
}
