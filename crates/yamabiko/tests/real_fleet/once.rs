//! Each exchange that programs had is one row, in its place, whatever happens to agents, manager and network.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fleet::parties::wait;
use crate::fleet::trial::{Held, Plan, Stage, Trial};
use crate::support::readers;
use crate::support::workspace::{Workspace, yamabiko};

/// The judged size with `--full`, one that a change can wait for without.
const SIZE: (usize, u64, u64) = if cfg!(feature = "full") { (200, 180, 25) } else { (24, 20, 25) };

/// Some machines at work for so long, each with so many exchanges a second.
pub fn plan((agents, seconds, rate): (usize, u64, u64)) -> Plan {
    Plan {
        agents,
        seconds,
        rate,
        harm_every: None,
        yamabiko: yamabiko(),
        tests: Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"),
        python: readers::folder().join("venv/bin/python"),
        manager_words: Vec::new(),
        agent_words: |_| &[],
    }
}

fn count(held: &Held, name: &str) -> u64 {
    held.found[name].as_u64().unwrap_or_else(|| panic!("{name} of {}", held.found))
}

#[test]
fn every_exchange_is_stored_exactly_once() {
    let _alone = Workspace::new();
    let every = Duration::from_secs(SIZE.1) / 12;
    let trial = Trial::start(Plan { harm_every: Some(every), ..plan(SIZE) }).unwrap();
    let held = trial.run().unwrap();
    println!("{held:#?}");
    assert_eq!(held.faults(), [""; 0], "{:#}", held.found);
    // The trial was one: all machines took part, most of what they did is exchanges, and harm was done to everything.
    assert_eq!(count(&held, "agents"), SIZE.0 as u64);
    assert_eq!(count(&held, "exchanges"), (SIZE.2 / 2) * 2 * SIZE.1 * SIZE.0 as u64);
    assert!(count(&held, "refused") > 0 && count(&held, "unused") > 0);
    let harms = held.harms;
    assert!(harms.manager_kills >= 3 && harms.cuts >= 2 && harms.agent_kills >= SIZE.0, "{harms:?}");
    // Wall clocks were minutes apart, the manager knows by how much, and no row is where such a clock would have put it.
    assert_eq!(count(&held, "clocks_wrong"), 0, "{:#}", held.found);
}

/// What the spool's bound, a filter and a share leave out is counted: rows made = stored + dropped + filtered + not drawn.
#[test]
fn omitted_exchanges_are_counted() {
    let _alone = Workspace::new();
    let small: fn(usize) -> &'static [&'static str] = |number| if number == 0 { &["--spool", "1MB"] } else { &[] };
    // A MB is some 10,000 rows.
    let mut trial = Trial::start(Plan { agent_words: small, ..plan((4, 16, 2_000)) }).unwrap();
    let settings = [
        ("m001", json!({ "only": ["7001", "7002"] })),
        ("m002", json!({ "programs": ["till"] })),
        ("m003", json!({ "share": 0.5 })),
    ];
    for (name, wanted) in &settings {
        trial.operate("PUT", &format!("/agents/{name}/settings"), Some(wanted)).unwrap();
    }
    wait("three agents go by their settings", || {
        let agents = trial.operate("GET", "/agents", None)?;
        let go_by = |one: &&Value| {
            one["settings_seen"].as_u64() > Some(1) && one["settings_seen"] == one["settings"]["version"]
        };
        Ok(agents["agents"].as_array().into_iter().flatten().filter(go_by).count() == 3)
    })
    .unwrap();
    trial
        .without_manager(|trial| {
            let status = trial.agent(0).data.join("status.json");
            wait("the agent without much room lets go", || {
                let status: Value = serde_json::from_slice(&std::fs::read(&status)?)?;
                Ok(status["rows"]["dropped"].as_u64() > Some(0))
            })
        })
        .unwrap();
    let mut agents = json!(null);
    let held = trial
        .run_beside(|trial, stage| {
            if stage == Stage::Stored {
                agents = trial.operate("GET", "/agents", None)?;
            }
            Ok(())
        })
        .unwrap();
    println!("{held:#?}\n{agents:#}");
    let left_out = ["dropped_rows", "filtered_rows", "not_drawn_rows"].map(|name| count(&held, name));
    assert!(left_out.iter().all(|rows| *rows > 0), "{left_out:?}");
    assert_eq!(count(&held, "unaccounted"), 0, "{:#}", held.found);
    assert_eq!(count(&held, "expected"), count(&held, "found") + left_out.iter().sum::<u64>());
    // Nothing else is wrong with what was stored.
    for name in ["doubled", "strange", "wrong_order", "wrong_connection", "wrong_day", "out_of_time", "lost_records"] {
        assert_eq!(count(&held, name), 0, "{name}: {:#}", held.found);
    }
}
