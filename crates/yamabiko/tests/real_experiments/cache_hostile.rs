//! Sweeps with an origin and a cache in the testbed: a server that is not a cache, a cache that crashes, and a killed
//! sweep. Nothing remains after them.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::hostile::Hostile;
use crate::support::leftovers::{Leftovers, devices, mounts};
use crate::support::servers::yamabiko_serve;
use crate::support::workspace::{Output, Running, Workspace, wait_until};

/// A sweep in the workspace, whose processes are identified by their folder. `rest` selects the cache.
fn start(workspace: &Workspace, rest: &[&str]) -> Running {
    let words =
        ["cache", "--think", "none", "--warmup", "0", "--rate", "40/s", "-d", "60s", "--timeout", "500ms", "--json"];
    let mut command = workspace.command(&[&words[..], rest].concat());
    command.env("VICTIM", workspace.path());
    workspace.start_command(command)
}

/// Asserts that every request failed with `cause` (or timed out, on a busy machine), and that the origin received none.
fn assert_all_failed(output: &Output, cause: &str) {
    assert_eq!(output.code, Some(3), "{output}");
    let document = output.json();
    let point = &document["cache"]["points"][0];
    let causes = point["errors"].as_object().unwrap();
    assert!(causes.contains_key(cause) && causes.keys().all(|of| of == cause || of == "response_timeout"), "{output}");
    assert_eq!(point["answered"], 0, "{output}");
    assert_eq!(point["ended_early"], true, "{output}");
    let has_failed =
        |check: &Value| check["name"].as_str().unwrap().ends_with("origin reached") && check["state"] == "failed";
    assert!(document["validity"]["checks"].as_array().unwrap().iter().any(has_failed), "{output}");
}

fn assert_nothing_left(leftovers: &Leftovers) {
    leftovers.wait_until_gone();
    assert_eq!(devices(), Vec::<&str>::new());
}

#[test]
fn a_sweep_of_a_misbehaving_cache_leaves_nothing_behind() {
    let workspace = Workspace::concurrent_as_root();
    let mounts_before = mounts();
    // The server responds with its own pages instead of the requested objects: it is not a cache.
    let no_cache = yamabiko_serve(&workspace);
    let leftovers = Leftovers::new(workspace.path());
    assert_all_failed(
        &start(&workspace, &["--proxy", "server:8080", "--server", &no_cache, "--rtt", "2ms"]).finish(),
        "unexpected_status",
    );
    assert_nothing_left(&leftovers);
    // A hanging proxy in front of an origin that the sweep started on this host.
    let proxy = Hostile::always("/silent");
    let at = proxy.address().to_string();
    assert_all_failed(&start(&workspace, &["--proxy", &at]).finish(), "response_timeout");
    assert_nothing_left(&leftovers);
    assert_eq!(mounts(), mounts_before);
    let runs = fs::read_dir(workspace.runs()).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
    assert_eq!(runs, 4, "two sweeps and their points");
}

#[test]
fn a_killed_sweep_leaves_nothing_behind() {
    let workspace = Workspace::concurrent_as_root();
    let mounts_before = mounts();
    let proxy = Hostile::always("/silent");
    let (at, own) = (proxy.address().to_string(), yamabiko_serve(&workspace));
    let behind_host: &[&str] = &["--proxy", &at];
    let in_testbed: &[&str] = &["--proxy", "server:8080", "--server", &own, "--rtt", "2ms", "--stop-errors", "none"];
    for place in [behind_host, in_testbed] {
        let mut leftovers = Leftovers::new(workspace.path());
        let mut victim = start(&workspace, place);
        // Wait until the origin runs and load is offered.
        wait_until("the sweep has started its processes", || leftovers.processes().len() >= 3);
        sleep(Duration::from_millis(300));
        assert!(!victim.ended(), "{}", victim.stderr());
        leftovers.note_networks(victim.pid());
        victim.signal(Signal::SIGKILL);
        assert_eq!(victim.finish().signal, Some(9));
        assert_nothing_left(&leftovers);
    }
    assert_eq!(mounts(), mounts_before);
}
