//! Progress of a run in the testbed: path, capture and server, second by second.

use std::thread::sleep;
use std::time::Duration;

use crate::support::document::count;
use crate::support::servers::{bench, yamabiko_serve};
use crate::support::workspace::{Workspace, wait_until};
use schema::{RunPhase, RunProgress, ServerSecond, WatchSecond};
use store::{RunStore, Tail, read_histogram, read_progress};

#[test]
fn progress_of_a_run_includes_path_wire_and_server() {
    let workspace = Workspace::new();
    let server = yamabiko_serve(&workspace);
    let mut running =
        workspace.start(&bench(&server, "--rtt 20ms --clients 20 --rate 200/s --warmup 1s -d 4s --close --json"));
    let mut dir = None;
    wait_until("the run has a folder", || {
        assert!(!running.ended(), "{}", running.stderr());
        dir = RunStore::at(workspace.runs()).dirs().unwrap().into_iter().next();
        dir.is_some()
    });
    let dir = dir.unwrap();
    let (mut server_series, mut watch_series) = (Tail::<ServerSecond>::new(&dir), Tail::<WatchSecond>::new(&dir));
    let (mut server_rows, mut watch_rows) = (0, 0);
    let mut midway: Option<RunProgress> = None;
    while !running.ended() {
        let (server, watch) = (server_series.poll().unwrap(), watch_series.poll().unwrap());
        server_rows += if server.replaces_earlier { 0 } else { server.rows.len() };
        watch_rows += if watch.replaces_earlier { 0 } else { watch.rows.len() };
        if let Some(snapshot) = read_progress(&dir).unwrap()
            && snapshot.phase == RunPhase::Measured
        {
            midway = Some(snapshot);
        }
        sleep(Duration::from_millis(20));
    }
    let document = running.finish().json();
    assert!(server_rows >= 1 && watch_rows >= 1, "{server_rows} and {watch_rows} rows before the end");
    let midway = midway.expect("a snapshot was in the measured phase");
    let (path, watch) = (midway.path.unwrap(), midway.watch.unwrap());
    assert_eq!((path.clients, path.configured_rtt_ns.p50), (20, 20_000_000));
    assert!(path.packets > 0 && path.bytes > path.packets && path.drops.is_empty(), "{path:?}");
    assert!(path.timing_error_ns.is_some_and(|timing_error| timing_error.count > 0), "{path:?}");
    assert!(path.measured_rtt_ns.is_some_and(|rtt| rtt.count > 0 && rtt.p50 >= 20_000_000), "{path:?}");
    assert!(watch.packets > 0 && watch.requests > 0 && watch.responses > 0, "{watch:?}");
    assert_eq!(midway.load.unwrap().by_distance.len(), 1);
    let names: Vec<String> = midway.validity.unwrap().checks.into_iter().map(|check| check.name).collect();
    for name in ["path_on_time", "rtt_as_configured", "client_cpu", "server_alive", "wire_capture_drops"] {
        assert!(names.iter().any(|known| known == name), "{name} in {names:?}");
    }
    // Figures that a page would otherwise compute from the tables.
    assert_eq!(read_histogram(&dir, "wire_rtt").unwrap().len(), count(&document, "watch.handshake_rtt_ns.count"));
    assert_eq!(read_histogram(&dir, "wire_service").unwrap().len(), count(&document, "watch.service_time_ns.count"));
    assert_eq!(read_progress(&dir).unwrap().unwrap().phase, RunPhase::Done);
}
