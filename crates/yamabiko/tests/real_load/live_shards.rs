//! The live page of shard 0, read by its data endpoint while four machines make a load: each shard's row, and the sums.

use serde_json::Value;

use super::coordination::{TIMEOUT, Volume, kill, nats, start};
use super::machines::{Lan, MACHINES, served};
use crate::support::workspace::{Running, Workspace, wait_until};

/// Columns of the table.
const STATE: usize = 2;
const OFFERED: usize = 3;
const ACHIEVED: usize = 4;
const P99: usize = 7;
const CLOCK: usize = 8;

/// The stream of events of shard 0's page, read on its machine until it ends.
fn events(workspace: &Workspace, lan: &Lan, leader: &Running) -> Running {
    let mut url = None;
    wait_until("the page's URL", || {
        let text = leader.stderr();
        url = text.lines().find_map(|line| line.split_once("live: ").map(|(_, url)| url.trim().to_owned()));
        url.is_some()
    });
    let events = format!("{}events", url.unwrap());
    workspace.start_command(lan.machines[0].command("curl", &["-sSN", "--max-time", "150", &events]))
}

/// Every table of all shards in a stream of events: its rows.
fn tables(stream: &str) -> Vec<Vec<Vec<String>>> {
    let mut found = Vec::new();
    for line in stream.lines().filter_map(|line| line.strip_prefix("data: ")) {
        collect(&serde_json::from_str(line).unwrap(), &mut found);
    }
    found
}

fn collect(value: &Value, found: &mut Vec<Vec<Vec<String>>>) {
    match value {
        Value::Object(fields) if fields.get("id").is_some_and(|id| id == "shards-table") => {
            found.push(serde_json::from_value(fields["rows"].clone()).unwrap());
        }
        Value::Object(fields) => fields.values().for_each(|value| collect(value, found)),
        Value::Array(values) => values.iter().for_each(|value| collect(value, found)),
        _ => {}
    }
}

/// A rate per second as the page prints it; `None` if it is not known.
fn rate(cell: &str) -> Option<f64> {
    cell.split_once("/s")?.0.replace(',', "").parse().ok()
}

fn assert_near(cell: &str, expected: f64) {
    let rate = rate(cell).unwrap_or_else(|| panic!("no rate: {cell}"));
    assert!((rate / expected - 1.0).abs() < 0.25, "{cell}: expected about {expected}");
}

#[test]
fn the_page_of_shard_0_shows_all_shards_with_their_rates_and_clocks() {
    let workspace = Workspace::new();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let _nats = nats(&workspace, &lan);
    let options = "-r 200/s -d 12s --warmup 1s";
    let running: Vec<Running> = (0..MACHINES)
        .map(|index| {
            let live = if index == 0 { " --live=127.0.0.1:0" } else { "" };
            let volume = if index == 0 { Volume::Shared } else { Volume::Private };
            start(&workspace, &lan, (index, volume), &[], &format!("{options}{live}"))
        })
        .collect();
    let events = events(&workspace, &lan, &running[0]);
    for running in running {
        running.finish_within(TIMEOUT);
    }
    let tables = tables(&events.finish_within(TIMEOUT).stdout);
    let is_measuring = |rows: &&Vec<Vec<String>>| {
        rows[..MACHINES].iter().all(|row| row[STATE] == "measuring" && row[OFFERED] != "-" && row[P99] != "-")
    };
    let measuring: Vec<_> = tables.iter().filter(is_measuring).collect();
    assert!(measuring.len() >= 4, "{} of {}: {:#?}", measuring.len(), tables.len(), tables.last());
    for rows in measuring {
        for (index, row) in rows[..MACHINES].iter().enumerate() {
            assert_eq!(row[0], index.to_string());
            assert!(if index == 0 { row[CLOCK] == "reference" } else { row[CLOCK].contains(" ± ") }, "{row:?}");
        }
        let sum = &rows[MACHINES];
        let of_rows: f64 = rows[..MACHINES].iter().map(|row| rate(&row[OFFERED]).unwrap()).sum();
        // Each cell is rounded.
        assert!((rate(&sum[OFFERED]).unwrap() / of_rows - 1.0).abs() < 0.01, "{rows:?}");
        assert_eq!((sum[0].as_str(), sum[P99].as_str()), ("Sum", ""));
    }
    // Reports are about a second apart, and a busy machine delays some: the usual one has the planned rate.
    let middle = |column: usize| {
        let mut cells: Vec<&String> = tables.iter().filter(is_measuring).map(|rows| &rows[MACHINES][column]).collect();
        cells.sort_by(|a, b| rate(a).unwrap().total_cmp(&rate(b).unwrap()));
        cells[cells.len() / 2].clone()
    };
    assert_near(&middle(OFFERED), 200.0);
    assert_near(&middle(ACHIEVED), 200.0);
    // At the end all runs were received.
    let last = tables.last().unwrap();
    assert!(last[..MACHINES].iter().all(|row| row[STATE] == "done" && row[OFFERED] == "-"), "{last:#?}");
}

#[test]
fn a_killed_shard_is_shown_as_lost_and_its_rates_leave_the_sums() {
    let workspace = Workspace::concurrent_as_root();
    let lan = Lan::new(&workspace);
    let _nginx = lan.server.nginx(&workspace, "machines", &["listen 80;"]);
    let _nats = nats(&workspace, &lan);
    let options = "-r 40/s -d 25s --warmup 0s";
    let leader = start(&workspace, &lan, (0, Volume::Shared), &[], &format!("{options} --live=127.0.0.1:0"));
    let events = events(&workspace, &lan, &leader);
    let mut members: Vec<Running> =
        (1..MACHINES).map(|index| start(&workspace, &lan, (index, Volume::Shared), &[], options)).collect();
    wait_until("the load has begun", || served(&workspace) > 40);
    kill(&members.remove(1));
    leader.finish_within(TIMEOUT);
    for member in members {
        member.finish_within(TIMEOUT);
    }
    let tables = tables(&events.finish_within(TIMEOUT).stdout);
    // The others may end at different times.
    let is_lost = |rows: &&Vec<Vec<String>>| {
        let is_measuring = |index: usize| rows[index][STATE] == "measuring" && rows[index][OFFERED] != "-";
        rows[2][STATE] == "lost" && [0, 1, 3].into_iter().all(is_measuring)
    };
    let lost: Vec<_> = tables.iter().filter(is_lost).collect();
    assert!(!lost.is_empty(), "{:#?}", tables.last());
    for rows in lost {
        assert_eq!((rows[2][OFFERED].as_str(), rows[2][ACHIEVED].as_str()), ("-", "-"), "{rows:?}");
        assert!(rows[MACHINES][OFFERED].ends_with("/s of 3"), "{rows:?}");
    }
}
