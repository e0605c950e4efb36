//! Each exchange of a program is stored as exactly one correct row, also if agents and manager are killed and the
//! network is cut.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fleet::parties::wait;
use crate::fleet::trial::{Outcome, Plan, Stage, Trial};
use crate::support::readers;
use crate::support::workspace::{Workspace, yamabiko};

/// Agents, seconds, and exchanges per second: the complete size with `--full`, otherwise a smaller one.
const SIZE: (usize, u64, u64) = if cfg!(feature = "full") { (200, 180, 25) } else { (24, 20, 25) };

/// A plan with this number of agents, duration in seconds, and exchanges per second of each machine.
pub fn plan((agents, seconds, rate): (usize, u64, u64)) -> Plan {
    Plan {
        agents,
        seconds,
        rate,
        fault_interval: None,
        yamabiko: yamabiko(),
        tests: Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"),
        python: readers::folder().join("venv/bin/python"),
        manager_arguments: Vec::new(),
        agent_arguments: |_| &[],
        over_nats: false,
    }
}

/// A count of the comparison.
pub fn count(outcome: &Outcome, name: &str) -> u64 {
    outcome.found[name].as_u64().unwrap_or_else(|| panic!("{name} of {}", outcome.found))
}

#[test]
fn every_exchange_is_stored_exactly_once() {
    let _alone = Workspace::new();
    let fault_interval = Duration::from_secs(SIZE.1) / 12;
    let trial = Trial::start(Plan { fault_interval: Some(fault_interval), ..plan(SIZE) }).unwrap();
    let outcome = trial.run().unwrap();
    println!("{outcome:#?}");
    assert_eq!(outcome.failures(), [""; 0], "{:#}", outcome.found);
    // All machines took part, most rows are exchanges, and faults were injected into all parts.
    assert_eq!(count(&outcome, "agents"), SIZE.0 as u64);
    assert_eq!(count(&outcome, "exchanges"), (SIZE.2 / 2) * 2 * SIZE.1 * SIZE.0 as u64);
    assert!(count(&outcome, "refused") > 0 && count(&outcome, "unused") > 0);
    let faults_injected = outcome.faults_injected;
    assert!(
        faults_injected.manager_kills >= 3 && faults_injected.cuts >= 2 && faults_injected.agent_kills >= SIZE.0,
        "{faults_injected:?}"
    );
    // The wall clocks differ by minutes, the manager has measured the offsets, and no row has the time of a wrong
    // clock.
    assert_eq!(count(&outcome, "clocks_wrong"), 0, "{:#}", outcome.found);
}

/// Rows that the spool's limit, a filter or a share omit are counted: generated rows = stored + dropped + filtered +
/// not drawn.
#[test]
fn omitted_exchanges_are_counted() {
    let _alone = Workspace::new();
    let small_spool: fn(usize) -> &'static [&'static str] =
        |number| if number == 0 { &["--spool", "1MB"] } else { &[] };
    // 1 MB has about 10,000 rows.
    let mut trial = Trial::start(Plan { agent_arguments: small_spool, ..plan((4, 16, 2_000)) }).unwrap();
    let settings = [
        ("m001", json!({ "only": ["7001", "7002"] })),
        ("m002", json!({ "programs": ["till"] })),
        ("m003", json!({ "share": 0.5 })),
    ];
    for (name, new_settings) in &settings {
        trial.operate("PUT", &format!("/agents/{name}/settings"), Some(new_settings)).unwrap();
    }
    wait("three agents use their settings", || {
        let agents = trial.operate("GET", "/agents", None)?;
        let uses_settings = |one: &&Value| {
            one["settings_seen"].as_u64() > Some(1) && one["settings_seen"] == one["settings"]["version"]
        };
        Ok(agents["agents"].as_array().into_iter().flatten().filter(uses_settings).count() == 3)
    })
    .unwrap();
    trial
        .without_manager(|trial| {
            let status = trial.agent(0).data.join("status.json");
            wait("the agent with the small spool drops rows", || {
                let status: Value = serde_json::from_slice(&std::fs::read(&status)?)?;
                Ok(status["rows"]["dropped"].as_u64() > Some(0))
            })
        })
        .unwrap();
    let mut agents = json!(null);
    let outcome = trial
        .run_with_observer(|trial, stage| {
            if stage == Stage::Stored {
                agents = trial.operate("GET", "/agents", None)?;
            }
            Ok(())
        })
        .unwrap();
    println!("{outcome:#?}\n{agents:#}");
    let left_out = ["dropped_rows", "filtered_rows", "not_drawn_rows"].map(|name| count(&outcome, name));
    assert!(left_out.iter().all(|rows| *rows > 0), "{left_out:?}");
    assert_eq!(count(&outcome, "unaccounted"), 0, "{:#}", outcome.found);
    assert_eq!(count(&outcome, "expected"), count(&outcome, "found") + left_out.iter().sum::<u64>());
    // The stored rows are otherwise correct.
    for name in
        ["duplicated", "unexpected", "wrong_order", "wrong_connection", "wrong_day", "wrong_time", "lost_records"]
    {
        assert_eq!(count(&outcome, name), 0, "{name}: {:#}", outcome.found);
    }
}
