//! Progress files of a run, read by another process; and those of a killed run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use crate::support::document::count;
use crate::support::model_server;
use crate::support::processes::{children, command_line, stat};
use crate::support::serving::Serving;
use crate::support::workspace::{Running, Workspace, wait_until};
use model_server::ModelServer;
use nix::sys::signal::Signal;
use schema::{CheckState, DistributionRecord, RunPhase, RunProgress, SecondRecord};
use store::{RunStore, Tail, read_progress};

/// Waits for the folder of the run of this verb. (An experiment's first run soon has a folder beside it.)
fn folder(workspace: &Workspace, running: &mut Running, verb: &str) -> PathBuf {
    let mut found = None;
    wait_until("the run has a folder", || {
        let dirs = RunStore::at(workspace.runs()).dirs().unwrap();
        found = dirs.into_iter().find(|dir| {
            let snapshot = read_progress(dir).unwrap_or_default();
            snapshot.is_some_and(|snapshot| snapshot.verb == verb)
        });
        found.is_some() || running.ended()
    });
    found.unwrap_or_else(|| panic!("{}", running.stderr()))
}

/// A table as a page reads it: new rows of the provisional table, and all rows of the exact table once it exists.
struct Table<R: schema::Record> {
    tail: Tail<R>,
    rows: Vec<R>,
    /// Rows of the provisional table, once the exact table exists.
    provisional: Option<Vec<R>>,
}

impl<R: schema::Record> Table<R> {
    fn of(dir: &Path) -> Self {
        Table { tail: Tail::new(dir), rows: Vec::new(), provisional: None }
    }

    fn read_new_rows(&mut self) {
        let fresh = self.tail.poll().unwrap();
        if fresh.replaces_earlier {
            assert!(self.provisional.is_none(), "the exact table appears once");
            self.provisional = Some(std::mem::take(&mut self.rows));
        }
        self.rows.extend(fresh.rows);
    }
}

#[test]
fn progress_of_a_run_is_readable_from_its_folder() {
    let workspace = Workspace::concurrent();
    let server = Serving::start(&workspace, &[]);
    let url = format!("http://{}/10k.bin", server.address);
    let mut running = workspace.start(&["bench", &url, "--rate", "200/s", "--warmup", "1s", "-d", "4s", "--json"]);
    let dir = folder(&workspace, &mut running, "bench");
    let mut series = Table::<SecondRecord>::of(&dir);
    let mut distributions = Table::<DistributionRecord>::of(&dir);
    let mut snapshots: Vec<RunProgress> = Vec::new();
    loop {
        let over = running.ended();
        series.read_new_rows();
        distributions.read_new_rows();
        if let Some(snapshot) = read_progress(&dir).unwrap()
            && snapshots.last() != Some(&snapshot)
        {
            snapshots.push(snapshot);
        }
        if over {
            break;
        }
        sleep(Duration::from_millis(20));
    }
    let output = running.finish();
    let document = output.json();

    // Seconds increase, and each occurs once.
    let provisional = series.provisional.unwrap();
    for rows in [&provisional, &series.rows] {
        assert!(rows.iter().map(|row| row.second).eq(0..rows.len() as u32), "{rows:?}");
    }
    assert!(series.tail.is_at_end() && provisional.len() >= 2 && series.rows.len() >= provisional.len(), "{output}");
    for (was, is) in provisional.iter().zip(&series.rows) {
        assert!(was.completed <= is.completed && was.failed <= is.failed, "{was:?} {is:?}");
    }
    // The load loop reports offered requests independently of ended ones.
    let offered = |rows: &[SecondRecord]| rows.iter().map(|row| row.offered).sum::<u64>();
    assert!(offered(&provisional) > 0 && offered(&provisional) <= offered(&series.rows));

    // The distribution of each second contains every request of that second.
    let mut sums = BTreeMap::<u32, u64>::new();
    distributions.rows.iter().for_each(|row| *sums.entry(row.second).or_default() += row.count);
    for row in &series.rows {
        assert_eq!(sums.get(&row.second).copied().unwrap_or(0), row.completed, "{row:?}");
        let of_second = distributions.rows.iter().filter(|bucket| bucket.second == row.second);
        let slowest = of_second.max_by_key(|bucket| bucket.from_ns);
        assert!(slowest.is_none_or(|bucket| (bucket.from_ns..bucket.to_ns).contains(&row.response_max_ns)), "{row:?}");
    }
    assert!(distributions.provisional.is_some_and(|rows| !rows.is_empty()));

    // Progress increases from snapshot to snapshot, and the final snapshot equals the document.
    assert!(
        snapshots.windows(2).all(|two| two[0].phase <= two[1].phase && two[0].at_s <= two[1].at_s),
        "{snapshots:?}"
    );
    let completed = |snapshot: &RunProgress| snapshot.load.as_ref().map_or(0, |load| load.completed);
    assert!(snapshots.windows(2).all(|two| completed(&two[0]) <= completed(&two[1])));
    let midway = snapshots.iter().find(|snapshot| snapshot.phase == RunPhase::Measured && completed(snapshot) > 0);
    let midway = midway.unwrap_or_else(|| panic!("{snapshots:?}"));
    let load = midway.load.as_ref().unwrap();
    assert!(
        load.offered >= load.completed && load.response_time_ns.count >= load.completed && load.loop_kind == "open"
    );
    assert_eq!((midway.verb.as_str(), midway.warmup_s, midway.duration_s), ("bench", 1.0, Some(4.0)));
    let checks = &midway.validity.as_ref().unwrap().checks;
    let check_names: Vec<&str> =
        document["validity"]["checks"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert!(
        checks.iter().all(|check| check_names.contains(&check.name.as_str())),
        "the names of validity checks: {checks:?}"
    );
    assert!(checks.iter().any(|check| check.name == "server_answers" && check.state == CheckState::Ok), "{checks:?}");
    assert!(!checks.iter().any(|check| check.name == "conservation"), "this check runs at the end only");
    let last = snapshots.last().unwrap();
    assert_eq!((last.phase, completed(last)), (RunPhase::Done, count(&document, "load.completed")));
    assert_eq!(last.load.as_ref().unwrap().response_time_ns.p99, count(&document, "load.response_time_ns.p99"));
    assert_eq!(serde_json::to_value(&last.validity).unwrap(), document["validity"]);
}

#[test]
fn a_killed_run_is_reported_with_its_partial_results() {
    let workspace = Workspace::concurrent();
    let server = Serving::start(&workspace, &[]);
    let url = format!("http://{}/10k.bin", server.address);
    let mut running = workspace.start(&["bench", &url, "--rate", "100/s", "-d", "10m"]);
    let dir = folder(&workspace, &mut running, "bench");
    let mut series = Table::<SecondRecord>::of(&dir);
    wait_until("two seconds and a snapshot are stored", || {
        series.read_new_rows();
        let stands = read_progress(&dir).unwrap().is_some_and(|it| it.load.is_some_and(|load| load.completed > 0));
        assert!(!running.ended(), "{}", running.stderr());
        // A second's row is written just before its distribution.
        let counted: u64 = store::read_distributions(&dir).unwrap().map_while(Result::ok).map(|row| row.count).sum();
        stands && series.rows.len() >= 2 && counted == series.rows.iter().map(|row| row.completed).sum::<u64>()
    });
    assert_eq!(read_progress(&dir).unwrap().unwrap().phase, RunPhase::Measured);
    running.signal(Signal::SIGKILL);
    running.finish();
    let snapshot = read_progress(&dir).unwrap().unwrap();
    assert_eq!(snapshot.phase, RunPhase::Killed);
    assert!(snapshot.load.unwrap().completed > 0);
    let rows: Vec<SecondRecord> = store::read_series(&dir).unwrap().map(Result::unwrap).collect();
    assert!(rows.len() >= 2);
    let counted: u64 = store::read_distributions(&dir).unwrap().map(|row| row.unwrap().count).sum();
    assert_eq!(counted, rows.iter().map(|row| row.completed).sum::<u64>());
    assert!(workspace.run(&["runs"]).stdout.contains("unfinished"));
}

/// Without a run there is no page, and an ended run cannot be followed.
#[test]
fn live_is_refused_without_a_stored_or_running_run() {
    let workspace = Workspace::concurrent();
    workspace.run(&["bench", "http://127.0.0.1:9/", "--live", "--no-save"]).refused(1, &["--live", "--no-save"]);
    workspace
        .run(&["capacity", "http://127.0.0.1:9/", "--slo", "p99 < 1s", "--live", "--no-save"])
        .refused(1, &["--live", "--no-save"]);
    workspace.run(&["compare", "last", "last~1", "--live"]).refused(1, &["--live", "yamabiko live RUN"]);
    workspace.run(&["watch", "-r", "x.pcap", "--live"]).refused(1, &["--live", "yamabiko live RUN"]);
    workspace.run(&["tap", "--live", "--no-save", "--", "true"]).refused(1, &["--live", "--no-save"]);
    assert!(RunStore::at(workspace.runs()).dirs().unwrap().is_empty());
}

#[test]
fn progress_of_an_experiment_names_its_current_run() {
    let workspace = Workspace::concurrent();
    let server = ModelServer::start(4, Duration::from_millis(2));
    let (a, b) = (server.url(), server.url());
    let typed = [
        "compare",
        "--url",
        &a,
        "--url",
        &b,
        "--blocks",
        "3",
        "-d",
        "200ms",
        "-c",
        "2",
        "--warmup",
        "100ms",
        "--keep-runs",
    ];
    let mut running = workspace.start(&[&typed[..], &["--json"]].concat());
    let dir = folder(&workspace, &mut running, "compare");
    let (mut under, mut parts) = (Vec::new(), 0);
    while !running.ended() {
        if let Some(snapshot) = read_progress(&dir).unwrap() {
            assert!(snapshot.phase != RunPhase::Killed || running.ended(), "{snapshot:?}");
            under.extend(snapshot.under.filter(|run| under.last() != Some(run)));
            parts = parts.max(snapshot.compare.map_or(0, |part| part.blocks.len()));
        }
        sleep(Duration::from_millis(5));
    }
    let document = running.finish().json();
    let snapshot = read_progress(&dir).unwrap().unwrap();
    assert_eq!((snapshot.phase, snapshot.verb.as_str(), snapshot.under), (RunPhase::Done, "compare", None));
    assert!(
        snapshot.ended.len() >= 16 && snapshot.ended.len().is_multiple_of(4),
        "blocks of four: {:?}",
        snapshot.ended
    );
    assert!(snapshot.ended.iter().all(|run| workspace.runs().join(run).join("summary.json").is_file()));
    assert!(!under.is_empty() && under.iter().all(|run| snapshot.ended.contains(run)), "{under:?}");
    assert!(parts >= 1, "the first block is reported before the end");
    assert_eq!(serde_json::to_value(&snapshot.compare).unwrap(), document["compare"]);
}

/// The live page of a run: its process number, once it has printed its address.
fn page_of(running: &mut Running) -> (i32, String) {
    let mut url = None;
    wait_until("the page prints its URL", || {
        assert!(!running.ended(), "{}", running.stderr());
        url = running.stderr().lines().find_map(|line| line.strip_prefix("live: ").map(str::to_owned));
        url.is_some()
    });
    let is_page = |pid: &i32| command_line(*pid).contains("--follow-stdin");
    (children(running.pid()).into_iter().find(is_page).expect("the page has a process of its own"), url.unwrap())
}

fn has_exited(pid: i32) -> bool {
    stat(pid).is_none_or(|stat| stat.state == 'Z')
}

#[test]
fn a_live_page_responds_and_ends_with_its_run() {
    let workspace = Workspace::concurrent();
    let server = Serving::start(&workspace, &[]);
    let url = format!("http://{}/10k.bin", server.address);
    let mut killed = workspace.start(&["bench", &url, "--rate", "50/s", "-d", "10m", "--live"]);
    let (pid, at) = page_of(&mut killed);
    let response = ureq::get(&at).call().unwrap();
    assert_eq!(response.status(), 200);
    killed.signal(Signal::SIGKILL);
    wait_until("the page's process ends with the killed run", || has_exited(pid));

    let mut ended = workspace.start(&["bench", &url, "--rate", "50/s", "-d", "2s", "--live", "--json"]);
    let (pid, _) = page_of(&mut ended);
    let output = ended.finish();
    assert_eq!(output.json()["schema"], "yamabiko.run/2", "stdout has only the result");
    assert!(has_exited(pid), "the program waits for the page's process");

    // An address in use is reported before the run begins.
    let runs = RunStore::at(workspace.runs()).dirs().unwrap().len();
    let taken = workspace.run(&["bench", &url, "-n", "1", &format!("--live={}", server.address)]);
    assert!(taken.code != Some(0) && taken.stderr.contains("--live"), "{taken}");
    assert_eq!(RunStore::at(workspace.runs()).dirs().unwrap().len(), runs);
}
