//! One load from several machines: each a network namespace with its own path, all to one server, merged into one run.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::document::{assert_checks_passed, check, count, number};
use crate::support::host::Host;
use crate::support::workspace::{Running, Workspace, str_of, wait_until};

/// The server's address.
pub const SERVER: &str = "192.0.2.9";
/// Machines of the load.
pub const MACHINES: usize = 4;

/// The server's host with a bridge, and the machines' hosts on it.
pub struct Lan {
    pub server: Host,
    pub machines: Vec<Host>,
}

impl Lan {
    pub fn new(workspace: &Workspace) -> Lan {
        Lan::of(workspace, MACHINES)
    }

    fn of(workspace: &Workspace, machines: usize) -> Lan {
        let server = Host::new(workspace);
        let address = format!("{SERVER}/24");
        server.ip(&["link", "add", "br0", "type", "bridge"]);
        server.ip(&["addr", "add", &address, "dev", "br0"]);
        for device in ["lo", "br0"] {
            server.ip(&["link", "set", device, "up"]);
        }
        let machines = (0..machines).map(|index| Lan::machine(workspace, &server, index)).collect();
        Lan { server, machines }
    }

    fn machine(workspace: &Workspace, server: &Host, index: usize) -> Host {
        let machine = Host::new(workspace);
        let (port, pid, address) =
            (format!("p{index}"), machine.pid().to_string(), format!("192.0.2.{}/24", 20 + index));
        server.ip(&["link", "add", &port, "type", "veth", "peer", "name", "up0", "netns", &pid]);
        server.ip(&["link", "set", &port, "master", "br0", "up"]);
        machine.ip(&["addr", "add", &address, "dev", "up0"]);
        for device in ["lo", "up0"] {
            machine.ip(&["link", "set", device, "up"]);
        }
        machine
    }

    /// Starts every machine's shard of a load with these options.
    fn start(&self, workspace: &Workspace, options: &str) -> Vec<Running> {
        let count = self.machines.len();
        let at = SystemTime::now() + Duration::from_secs(3 + count as u64);
        let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().to_string();
        let url = format!("http://{SERVER}/10k.bin");
        let machines = self.machines.iter().enumerate();
        machines
            .map(|(index, machine)| {
                let shard = format!("{index}/{count}");
                let mut arguments = vec!["bench", &url, "--shard", &shard, "--start-at", &at, "--json"];
                arguments.extend(options.split_whitespace());
                machine.start(workspace, &arguments)
            })
            .collect()
    }
}

/// A run's folder.
pub fn folder(document: &Value) -> PathBuf {
    PathBuf::from(document["run"]["dir"].as_str().unwrap())
}

fn merge(workspace: &Workspace, runs: &[PathBuf]) -> Value {
    let runs = runs.iter().map(str_of);
    workspace.run_json(&["merge", "--json"].into_iter().chain(runs).collect::<Vec<_>>())
}

/// Requests that the server logged.
pub fn served(workspace: &Workspace) -> usize {
    fs::read_to_string(workspace.file("machines.log")).unwrap().lines().count()
}

#[test]
fn four_machines_with_paths_make_one_load() {
    let workspace = Workspace::new();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let options = "-r 200/s -d 3s --warmup 1s --arrivals poisson --clients 10 --rtt 30ms --loss 0.5%";
    let shards: Vec<Value> =
        lan.start(&workspace, options).into_iter().map(|running| running.finish().json()).collect();
    let merged = merge(&workspace, &shards.iter().map(folder).collect::<Vec<_>>());
    assert_checks_passed(
        &merged,
        &[
            "shards_complete",
            "shards_ended_together",
            "shards_cover_schedule",
            "shards_aligned",
            "conservation",
            "littles_law_requests",
            "littles_law_connections",
            "no_unintended_drops",
            "records_stored",
        ],
    );
    // The server counted each request once.
    let rows: Vec<schema::RequestRecord> =
        store::read_requests(&folder(&merged)).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), served(&workspace));
    let mut sequences: Vec<u64> = rows.iter().map(|row| row.sequence).collect();
    sequences.sort_unstable();
    assert_eq!(sequences, (0..rows.len() as u64).collect::<Vec<_>>());
    // Clients 2 and 6 are on machine 2 with their addresses and links.
    let files = fs::read_dir(folder(&merged).join("requests")).unwrap().count();
    assert_eq!(files, MACHINES);
    let third = store::read_requests(&folder(&shards[2])).unwrap().map(|row| row.unwrap().client);
    let clients: std::collections::BTreeSet<u32> = third.collect();
    assert_eq!(clients, [2, 6].into());
    // The paths' packets are added, and handshakes took the configured time.
    let packets: u64 = shards.iter().map(|shard| count(shard, "path.packets")).sum();
    assert_eq!(count(&merged, "path.packets"), packets);
    assert_eq!(count(&merged, "path.clients"), 10);
    let rtt = number(&merged, "path.measured_rtt_ns.p50");
    assert!((30e6..45e6).contains(&rtt), "{rtt}");
    // Each shard has captured handshakes of its measured phase; merged are those of the loads, warm-up included.
    let captured: u64 = shards.iter().map(|shard| count(shard, "path.measured_rtt_ns.count")).sum();
    assert!(count(&merged, "path.measured_rtt_ns.count") >= captured, "{}", merged["path"]);
    let source = merged["path"]["measured_rtt_source"].as_str().unwrap();
    assert!(source.starts_with("handshakes, by the load's clock"), "{source}");
    assert_eq!(merged["load"]["by_distance"][0]["completed"], merged["load"]["completed"]);
}

/// Number, client and scheduled time, from the first one, of each request.
fn schedule(rows: &[schema::RequestRecord]) -> Vec<(u64, u32, u64)> {
    let first = rows.iter().map(|row| row.scheduled_at.as_nanos()).min().unwrap();
    let of = |row: &schema::RequestRecord| (row.sequence, row.client, row.scheduled_at.as_nanos() - first);
    let mut schedule: Vec<_> = rows.iter().map(of).collect();
    schedule.sort_unstable();
    schedule
}

/// What one machine schedules, eight do together; and merged percentiles are those of all rows.
#[test]
fn eight_machines_make_the_rows_of_one_and_their_percentiles() {
    let workspace = Workspace::new();
    let lan = Lan::of(&workspace, 8);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let options = "-r 500/s -d 4s --warmup 0s --arrivals poisson --clients 16 --rtt 20ms --loss 0.5%";
    let shards: Vec<Value> =
        lan.start(&workspace, options).into_iter().map(|running| running.finish().json()).collect();
    let merged = merge(&workspace, &shards.iter().map(folder).collect::<Vec<_>>());
    assert_checks_passed(&merged, &["shards_complete", "shards_cover_schedule", "conservation", "records_stored"]);
    let url = format!("http://{SERVER}/10k.bin");
    let mut arguments = vec!["bench", &url, "--json"];
    arguments.extend(options.split_whitespace());
    let one = lan.machines[0].start(&workspace, &arguments).finish().json();
    let rows = |document: &Value| -> Vec<schema::RequestRecord> {
        store::read_requests(&folder(document)).unwrap().map(Result::unwrap).collect()
    };
    let together = rows(&merged);
    assert!(together.len() > 1_500, "{}", together.len());
    let [eight, one] = [schedule(&together), schedule(&rows(&one))];
    let differ = eight.iter().zip(&one).find(|(ours, theirs)| ours != theirs);
    assert_eq!((differ, eight.len()), (None, one.len()));
    let mut times: Vec<u64> = together.iter().map(|row| row.done_at.as_nanos() - row.scheduled_at.as_nanos()).collect();
    times.sort_unstable();
    for (name, share) in
        [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99_9", 0.999), ("p99_99", 0.9999)]
    {
        let rank = ((share * times.len() as f64).ceil() as usize).clamp(1, times.len());
        let (exact, figure) = (times[rank - 1] as f64, number(&merged, &format!("load.response_time_ns.{name}")));
        assert!((figure / exact - 1.0).abs() < 2e-3, "{name}: {figure}, of the rows {exact}");
    }
}

#[test]
fn a_killed_machine_is_missing_by_name_and_the_others_are_merged() {
    let workspace = Workspace::concurrent_as_root();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let mut running = lan.start(&workspace, "-r 100/s -d 4s --warmup 0s");
    wait_until("the load has begun", || served(&workspace) > 100);
    let killed = running.remove(1);
    killed.signal(Signal::SIGKILL);
    let complete: Vec<PathBuf> = running.into_iter().map(|running| folder(&running.finish().json())).collect();
    let mut all: Vec<PathBuf> = fs::read_dir(workspace.runs()).unwrap().map(|run| run.unwrap().path()).collect();
    all.retain(|run| run.join("plan.toml").exists());
    assert_eq!(all.len(), MACHINES);
    for (runs, run) in [(&all, false), (&complete, true)] {
        let merged = merge(&workspace, runs);
        assert_eq!(merged["validity"]["verdict"], "invalid");
        let complete = check(&merged, "shards_complete");
        assert_eq!(complete["state"], "failed");
        assert!(complete["why"].as_str().unwrap().contains("(1/4)"), "{complete}");
        assert_eq!(merged["run"]["shards"][1]["run"].as_str().unwrap().is_empty(), run);
        let offered: u64 =
            [0, 2, 3].map(|index| merged["run"]["shards"][index]["offered_requests"].as_u64().unwrap()).iter().sum();
        assert_eq!((count(&merged, "load.offered_requests"), offered), (300, 300));
    }
}
