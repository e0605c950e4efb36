//! `--change` in a load of several machines: every shard takes its times from the plan and counts them from the common
//! start. The server's packets show when each shard's path changes, by one clock.

use std::collections::BTreeMap;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::coordination::{TIMEOUT, Volume, clocks, nats, start_with};
use super::machines::{Lan, MACHINES, SERVER};
use crate::support::document::assert_checks_passed;
use crate::support::workspace::{Running, Workspace, wait_until};

/// Between two packets of a shard, longer than the time between any two of its requests and shorter than the outage.
const SILENCE: Duration = Duration::from_millis(600);
/// Time between two requests of a shard.
const INTERVAL: Duration = Duration::from_millis(5);
/// A loop that is late by this much on a busy machine sends its last requests before the outage too late for it.
const LATE: Duration = Duration::from_millis(25);

/// Captures packets to the server on its host.
fn tcpdump(workspace: &Workspace, lan: &Lan) -> Running {
    let filter = format!("dst host {SERVER} and tcp dst port 80");
    let options = ["-i", "br0", "-n", "-tt", "-l", "--immediate-mode", &filter];
    let running = workspace.start_command(lan.server.command("tcpdump", &options));
    wait_until("tcpdump captures", || running.stderr().contains("listening on"));
    running
}

/// Times of the packets by machine, in microseconds since 1970, from lines such as
/// `1795815515.123456 IP 192.0.2.20.51234 > 192.0.2.9.80: ..`.
fn times(text: &str) -> BTreeMap<String, Vec<u64>> {
    let mut times: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(time), Some("IP"), Some(from)) = (words.next(), words.next(), words.next()) else { continue };
        let (Some((seconds, micros)), Some((address, _))) = (time.split_once('.'), from.rsplit_once('.')) else {
            continue;
        };
        let (Ok(seconds), Ok(micros)) = (seconds.parse::<u64>(), micros.parse::<u64>()) else { continue };
        times.entry(address.to_owned()).or_default().push(seconds * 1_000_000 + micros);
    }
    times
}

/// The last packet before the outage and the first one after it. Connections are closed a while after the load.
fn outage(times: &[u64]) -> (u64, u64) {
    let pairs = times.windows(2).map(|pair| (pair[0], pair[1]));
    let mut silences = pairs.filter(|(last, first)| Duration::from_micros(first.saturating_sub(*last)) > SILENCE);
    silences.next().expect("an outage")
}

#[test]
fn machines_apply_a_change_at_the_same_time_within_the_bounds_of_their_clocks() {
    let workspace = Workspace::new();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let _nats = nats(&workspace, &lan);
    let tcpdump = tcpdump(&workspace, &lan);
    let rate = format!("{}/s", MACHINES as u128 * 1_000_000 / INTERVAL.as_micros());
    let options =
        ["-r", &rate, "-d", "5s", "--warmup", "1s", "--clients", "8", "--rtt", "10ms", "--change", "2s for 1s: outage"];
    let running: Vec<Running> =
        (0..MACHINES).map(|index| start_with(&workspace, &lan, (index, Volume::Shared), &[], &options)).collect();
    let outputs: Vec<_> = running.into_iter().map(|running| running.finish_within(TIMEOUT)).collect();
    let merged = outputs[0].json();
    assert_checks_passed(&merged, &["shards_complete", "shards_ended_together", "shards_cover_schedule"]);
    tcpdump.signal(Signal::SIGINT);
    let captured = tcpdump.finish();
    let times = times(&captured.stdout);
    assert_eq!(times.len(), MACHINES, "{:?}", times.keys());
    let outages: Vec<(u64, u64)> = times.values().map(|times| outage(times)).collect();
    // Both edges of the outage, by the server's clock.
    let spread = |edges: Vec<u64>| Duration::from_micros(edges.iter().max().unwrap() - edges.iter().min().unwrap());
    let (begins, ends) = outages.iter().copied().unzip::<u64, u64, Vec<u64>, Vec<u64>>();
    let clocks = clocks(&merged);
    let bound = clocks.iter().map(|[before, _]| before.0.unsigned_abs() + before.1.unsigned_abs()).max().unwrap();
    let most = INTERVAL + 2 * Duration::from_nanos(bound) + LATE;
    let (begins, ends) = (spread(begins), spread(ends));
    eprintln!("the outage begins within {begins:?} and ends within {ends:?} on all shards; clocks: {bound} ns");
    assert!(begins <= most && ends <= most, "{begins:?} {ends:?}: expected at most {most:?}");
}
