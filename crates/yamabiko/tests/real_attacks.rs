//! More connections than a process may have descriptors, opened by one attacker, while other clients are served.
#![allow(clippy::disallowed_methods, reason = "tests of the whole program wait for it")]

#[path = "support/attackers.rs"]
#[allow(dead_code, reason = "each test file uses its own part")]
mod attackers;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use attackers::Target;
use support::document::count;
use support::serving::Serving;
use support::workspace::{Workspace, wait_until};

/// 20,000 idle connections from 40 addresses: the server keeps as many as its limit, closes the longest idle ones, and
/// other clients get every response.
#[test]
fn twenty_thousand_idle_connections_do_not_block_other_clients() {
    let workspace = Workspace::new();
    for engine in ["io_uring", "epoll"] {
        let serving = Serving::start(&workspace, &["--engine", engine, "--connections", "15000"]);
        let before = serving.peak_kib();
        let stop = Arc::new(AtomicBool::new(false));
        let target = Target {
            address: serving.address,
            small: "/10k.bin".into(),
            big: "/100k.bin".into(),
            sources: 40,
            // The rest of the descriptor limit is for the test process itself.
            max_concurrent: 19_000,
        };
        let attack = {
            let stop = Arc::clone(&stop);
            thread::spawn(move || attackers::named("idle").unwrap().run(&target, &stop))
        };
        wait_until("the server has as many connections as its limit", || serving.sockets() > 14_000);
        let url = format!("http://{}/10k.bin", serving.address);
        for how in ["--keepalive", "--close"] {
            let options = ["bench", &url, "--rate", "300/s", "-n", "200", "-c", "20", "--warmup", "0s", how];
            let document = workspace.run_json(&[&options[..], &["--json", "--no-save"]].concat());
            assert_eq!(count(&document, "load.completed"), 200, "{engine} {how}: {}", document["load"]["failed"]);
        }
        stop.store(true, Ordering::Relaxed);
        let tally = attack.join().unwrap();
        println!("{engine}: {tally}; {} KiB before, peak {} KiB", before, serving.peak_kib());
        assert!(tally.max_concurrent > 15_000 && tally.closed_by_server > 0, "{tally}");
        // An idle connection is a descriptor and some hundred bytes.
        assert!(serving.peak_kib() < before + (32 << 10), "{} KiB", serving.peak_kib());
        wait_until("all connections are closed", || serving.sockets() <= 2);
    }
}
