//! The state of the live page for the folder of a running, an ended and a killed run.

#[path = "support/documents.rs"]
mod documents;

use std::time::{Duration, SystemTime};

use report::export;
use report::live::state::{Chart, Heat, Piece};
use report::live::{Follower, POINTS_MAX, RunList, State, step};
use schema::document::{Run, SCHEMA};
use schema::{
    Bracket, Bucket, CapacityDocument, CapacityPart, DistributionRecord, LoadProgress, Measure, PathProgress, RunPhase,
    RunProgress, SecondRecord, TrialPart, Validity, WatchSecond,
};
use store::{DistributionsWriter, RunEntry, RunFolder, RunState, RunStore, SeriesWriter, WatchSeriesWriter};
use tempfile::TempDir;

/// A run that writes its tables as a real run does.
struct LiveRun {
    folder: RunFolder,
    series: SeriesWriter,
    wire: WatchSeriesWriter,
    spread: DistributionsWriter,
}

fn run_store() -> (TempDir, RunStore) {
    let root = tempfile::tempdir().unwrap();
    let run_store = RunStore::at(root.path());
    (root, run_store)
}

fn begin(run_store: &RunStore, name: &str) -> LiveRun {
    let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_167_005);
    let folder = run_store.create(name, started, 7).unwrap();
    let (series, wire, spread) = (folder.series(), folder.watch_series(), folder.distributions());
    LiveRun { folder, series, wire, spread }
}

impl LiveRun {
    /// Seconds of 100 requests each, most of them short.
    fn seconds(&mut self, seconds: std::ops::Range<u32>) {
        for second in seconds {
            self.series.push(&[row(second)]).unwrap();
            let wire = WatchSecond {
                second: second.into(),
                watched_ns: 1_000_000_000,
                requests: 100,
                ..WatchSecond::default()
            };
            self.wire.push(&[wire]).unwrap();
            let times = [(2_000_000, 90), (40_000_000, 10)].map(|(value, count)| {
                let bucket = Bucket::of(value);
                let (from_ns, to_ns) = (bucket.from_ns(), bucket.to_ns());
                DistributionRecord { second, measure: Measure::ResponseTime, from_ns, to_ns, count }
            });
            self.spread.push(&times).unwrap();
        }
        self.series.close_part().unwrap();
        self.wire.close_part().unwrap();
        self.spread.close_part().unwrap();
    }

    fn write_progress(&self, progress: &RunProgress) {
        self.folder.progress_file().write(progress).unwrap();
    }

    fn follower(&self) -> Follower {
        Follower::new(self.folder.path())
    }
}

fn row(second: u32) -> SecondRecord {
    SecondRecord {
        second,
        measured: true,
        offered: 100,
        started: 100,
        completed: 99,
        connections_mean: 5.0 + f64::from(second % 3),
        response_p50_ns: 2_000_000,
        response_p99_ns: 40_000_000,
        response_max_ns: 41_000_000,
        ..SecondRecord::default()
    }
}

fn progress(at_s: f64) -> RunProgress {
    let document = documents::document();
    let load = document.load.unwrap();
    RunProgress {
        verb: "bench".into(),
        command: "yamabiko bench 'http://server/<script>alert(1)</script>'".into(),
        phase: RunPhase::Measured,
        at_s,
        duration_s: Some(60.0),
        load: Some(LoadProgress {
            loop_kind: "open".into(),
            offered: 3000,
            completed: 2970,
            failed: [("<img src=x onerror=alert(1)>".to_owned(), 30)].into(),
            in_flight: 6,
            connections: 7,
            response_time_ns: load.response_time_ns,
            by_distance: load.by_distance,
            ..LoadProgress::default()
        }),
        path: Some(PathProgress {
            profile: "koshien-2001".into(),
            configured_rtt_ns: document.path.as_ref().unwrap().configured_rtt_ns,
            measured_rtt_ns: document.path.as_ref().unwrap().measured_rtt_ns,
            ..PathProgress::default()
        }),
        validity: Some(Validity::from_checks(documents::green())),
        ..RunProgress::default()
    }
}

fn chart<'a>(state: &'a State, id: &str) -> &'a Chart {
    let found = state.pieces().find_map(|piece| match piece {
        Piece::Chart(chart) if chart.head.id == id => Some(chart),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no chart {id}: {:?}", state.pieces().map(Piece::id).collect::<Vec<_>>()))
}

fn heat(state: &State) -> &Heat {
    let found = state.pieces().find_map(|piece| match piece {
        Piece::Heat(heat) => Some(heat),
        _ => None,
    });
    found.expect("a heat map")
}

fn fact(state: &State, name: &str) -> f64 {
    state.facts.iter().find(|fact| fact.name == name).and_then(|fact| fact.value).unwrap_or_else(|| panic!("{name}"))
}

fn polled_state(follower: &mut Follower) -> State {
    follower.poll();
    follower.state()
}

#[test]
fn live_page_ends_with_the_figures_of_the_document() {
    let (_root, run_store) = run_store();
    let mut run = begin(&run_store, "bench");
    let mut follower = run.follower();
    let empty = polled_state(&mut follower);
    assert_eq!((empty.status.word.as_str(), empty.is_over, empty.facts.len()), ("Starting", false, 0));

    run.seconds(0..30);
    run.write_progress(&progress(30.05));
    let going = polled_state(&mut follower);
    assert_eq!(going.status.word, "Measuring");
    assert_eq!(going.progress.as_ref().map(|progress| progress.text.as_str()), Some("30 s of 60 s"));
    assert_eq!((fact(&going, "Offered"), fact(&going, "Achieved"), fact(&going, "Failed")), (100.0, 99.0, 30.0));
    assert_eq!(going.judged.as_ref().map(|judged| judged.word), Some("Valid"));
    let rates = chart(&going, "rates");
    assert_eq!((rates.xs.len(), rates.ys[0][29]), (30, Some(99.0)));
    // Each vantage point has its line of the main figure.
    let names: Vec<_> = chart(&going, "connections").head.series.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(names, ["load", "wire", "max"]);
    // p50 and p99 are exactly those of the report, p90 is from the distributions; 100 requests per second are too few
    // for p99.9.
    let times = chart(&going, "times");
    let names: Vec<_> = times.head.series.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(names, ["p50", "p90", "p99", "max"]);
    let near = |at: usize, expected: f64, by: f64| (times.ys[at][3].unwrap() / expected - 1.0).abs() < by;
    assert!(near(0, 2e6, 1e-6) && near(1, 2e6, 0.13) && near(2, 4e7, 1e-6) && near(3, 4.1e7, 1e-6), "{:?}", times.ys);
    assert_eq!(heat(&going).columns.len(), 30);
    for drawn in ["rtt", "by-distance"] {
        assert!(going.pieces().any(|piece| piece.id().starts_with(drawn)), "{drawn}");
    }

    // A Prometheus scrape, from the same rows.
    let scrape = export::prometheus(&export::metrics(&follower.figures()));
    let id = run.folder.id();
    for line in [
        format!("yamabiko_requests_total{{outcome=\"completed\",run=\"{id}\"}} 2970.0\n"),
        format!("yamabiko_response_time_seconds_count{{run=\"{id}\"}} 3000.0\n"),
        format!("yamabiko_measured_requests_offered{{run=\"{id}\"}} 3000.0\n"),
    ] {
        assert!(scrape.contains(&line), "{line} in {scrape}");
    }

    // After one more second only the changes are sent.
    run.seconds(30..31);
    run.write_progress(&progress(31.05));
    let later = polled_state(&mut follower);
    let sent = step(&going, &later).expect("the same page");
    assert!(
        sent.contains("\"from\":30") && !sent.contains("\"pieces\"") && sent.len() < 4000,
        "{}: {sent}",
        sent.len()
    );

    // The finished tables replace the parts, then the document is written.
    let LiveRun { folder, series, wire, spread } = run;
    series.finish().unwrap();
    wire.finish().unwrap();
    spread.finish().unwrap();
    let before = polled_state(&mut follower);
    assert_eq!(chart(&before, "rates").xs.len(), 31);
    let mut document = documents::document();
    document.run.id = folder.id().to_owned();
    folder.write_summary(&document).unwrap();
    folder.progress_file().write(&RunProgress { phase: RunPhase::Done, ..progress(31.05) }).unwrap();
    let ended = polled_state(&mut follower);
    assert!(ended.is_over && follower.is_over());
    let load = document.load.as_ref().unwrap();
    assert_eq!(fact(&ended, "Achieved"), load.achieved_rate_per_s);
    assert_eq!(fact(&ended, "p99"), load.response_time_ns.p99 as f64);
    assert_eq!(fact(&ended, "Connections"), load.connections.mean);
    assert!(ended.whole().contains(&format!("yamabiko report {} --html", folder.id())));
    assert!(ended.aloud.starts_with("Ended, "), "{}", ended.aloud);
}

#[test]
fn live_page_of_a_killed_run_keeps_its_data() {
    let (_root, run_store) = run_store();
    let mut run = begin(&run_store, "bench");
    run.seconds(0..5);
    run.write_progress(&progress(5.0));
    let mut follower = run.follower();
    assert_eq!(polled_state(&mut follower).status.word, "Measuring");
    drop(run);
    let state = polled_state(&mut follower);
    assert_eq!((state.status.word.as_str(), state.is_over), ("Killed", true));
    assert!(state.lead.starts_with("The run was killed, or could not write its summary. "), "{}", state.lead);
    assert_eq!(chart(&state, "rates").xs.len(), 5);
    // A run without a progress file.
    let mut old = begin(&run_store, "old");
    old.seconds(0..5);
    let mut follower = old.follower();
    assert!(!polled_state(&mut follower).is_over);
    drop(old);
    assert_eq!(polled_state(&mut follower).status.word, "Killed");
}

#[test]
fn live_page_of_a_long_run_has_a_bounded_number_of_points() {
    let (_root, run_store) = run_store();
    let mut run = begin(&run_store, "long");
    run.seconds(0..3600);
    run.write_progress(&progress(3600.0));
    let mut follower = run.follower();
    let hour = polled_state(&mut follower);
    for piece in hour.pieces() {
        match piece {
            Piece::Chart(chart) => {
                assert!(chart.xs.len() <= POINTS_MAX && chart.ys.iter().all(|ys| ys.len() == chart.xs.len()));
                assert!(chart.head.about.contains("4 seconds"), "{}", chart.head.about);
            }
            Piece::Heat(heat) => assert!(heat.columns.len() <= POINTS_MAX / 2),
            _ => {}
        }
    }
    // Percentiles are of all requests of a point, as the legend states; 400 requests are too few for p99.9, too.
    let times = chart(&hour, "times");
    assert!(times.head.about.contains("Percentiles of all requests of a point"), "{}", times.head.about);
    let names: Vec<_> = times.head.series.iter().map(|line| line.name.as_str()).collect();
    assert_eq!(names, ["p50", "p90", "p99", "max"]);
    let near = |at: usize, expected: f64| (times.ys[at][3].unwrap() / expected - 1.0).abs() < 0.13;
    assert!(near(0, 2e6) && near(2, 4e7), "{:?}", (times.ys[0][3], times.ys[2][3]));
    let bytes = hour.whole().len();
    assert!(bytes < 600_000, "{bytes} bytes");
    // One more second is one new point, not a new page.
    run.seconds(3600..3601);
    let later = polled_state(&mut follower);
    let sent = step(&hour, &later).unwrap();
    assert!(sent.len() < 3000, "{} bytes", sent.len());
}

#[test]
fn live_page_of_a_search_includes_the_current_run() {
    let (_root, run_store) = run_store();
    let search = begin(&run_store, "capacity");
    let mut under = begin(&run_store, "trial");
    under.seconds(0..3);
    under.write_progress(&progress(3.0));
    let trial = |load: f64, verdict: &str| TrialPart {
        stage: "short".into(),
        load,
        actual_s: 5.0,
        planned_s: 5.0,
        verdict: verdict.into(),
        ..TrialPart::default()
    };
    let capacity = CapacityPart {
        objective: "p99 < 200ms".into(),
        trials: vec![trial(400.0, "good"), trial(800.0, "good"), trial(1600.0, "bad")],
        ..CapacityPart::default()
    };
    let mut progress = RunProgress {
        verb: "capacity".into(),
        phase: RunPhase::Measured,
        step: Some("trial 4: 1,200/s".into()),
        capacity: Some(capacity),
        under: Some(under.folder.id().to_owned()),
        ..RunProgress::default()
    };
    search.write_progress(&progress);
    let mut follower = search.follower();
    let state = polled_state(&mut follower);
    assert_eq!((state.lead.as_str(), fact(&state, "Trials")), ("Current step: trial 4: 1,200/s.", 3.0));
    assert!(state.sections.iter().any(|section| section.heading == format!("Now: {}", under.folder.id())));
    assert_eq!(chart(&state, "rates").xs.len(), 3);
    let rows = |state: &State| {
        let tables =
            state.pieces().filter_map(|piece| if let Piece::Table(table) = piece { Some(table) } else { None });
        tables.map(|table| table.rows.len()).max().unwrap()
    };
    assert!(rows(&state) >= 3, "every trial");
    assert!(state.pieces().any(|piece| matches!(piece, Piece::Drawing(_))), "trials against load");
    // A path out of the run store is not followed.
    for way in ["../../etc", "/etc", "..", "a/b", ""] {
        progress.under = Some(way.to_owned());
        search.write_progress(&progress);
        assert!(!polled_state(&mut follower).whole().contains("Now: "), "{way}");
    }
}

/// A capacity search writes its document after every trial; the document is not its end.
#[test]
fn live_page_of_a_search_runs_until_its_progress_ends() {
    let (_root, run_store) = run_store();
    let search = begin(&run_store, "capacity");
    let under = begin(&run_store, "trial");
    under.write_progress(&progress(3.0));
    let trial = TrialPart { stage: "short".into(), load: 400.0, verdict: "good".into(), ..TrialPart::default() };
    let capacity = CapacityPart { objective: "p99 < 200ms".into(), trials: vec![trial], ..CapacityPart::default() };
    let document = CapacityDocument {
        schema: SCHEMA.into(),
        run: Run { id: search.folder.id().into(), interrupted: true, ..Run::default() },
        validity: Validity::from_checks(documents::green()),
        capacity: capacity.clone(),
    };
    let mut progress = RunProgress {
        verb: "capacity".into(),
        phase: RunPhase::Measured,
        step: Some("trial 2: 800/s".into()),
        validity: Some(document.validity.clone()),
        capacity: Some(capacity),
        under: Some(under.folder.id().to_owned()),
        ..RunProgress::default()
    };
    search.folder.write_summary(&document).unwrap();
    search.write_progress(&progress);
    let mut follower = search.follower();
    let going = polled_state(&mut follower);
    assert_eq!((going.status.word.as_str(), going.is_over), ("Running", false));
    assert_eq!(going.lead, "Current step: trial 2: 800/s.");
    assert!(
        going.judged.as_ref().is_some_and(|judged| judged.summary.starts_with("Provisional: ")),
        "{:?}",
        going.judged
    );
    assert!(going.whole().contains(&format!("Now: {}", under.folder.id())), "{}", going.whole());
    assert!(!going.whole().contains("Next steps"), "{}", going.whole());
    let entry = || RunEntry::read(search.folder.path()).unwrap().state;
    assert!(matches!(entry(), RunState::Running { .. }), "{:?}", entry());
    let mut list = RunList::default();
    assert_eq!(list.poll(&run_store.dirs().unwrap()).lead, "2 runs are running.");

    // The search ends.
    (progress.phase, progress.under, progress.step) = (RunPhase::Done, None, None);
    search.write_progress(&progress);
    let ended = polled_state(&mut follower);
    assert_eq!((ended.status.word.as_str(), ended.is_over, fact(&ended, "Trials")), ("Ended", true, 1.0));
    assert!(matches!(entry(), RunState::Finished(_)), "{:?}", entry());
    // A resumed and killed search is reported as killed, and keeps the figures of its document.
    progress.phase = RunPhase::Measured;
    search.write_progress(&progress);
    assert!(!polled_state(&mut follower).is_over);
    drop(search);
    let killed = polled_state(&mut follower);
    assert_eq!((killed.status.word.as_str(), killed.is_over, fact(&killed, "Trials")), ("Killed", true, 1.0));
}

/// A search for users has its loads in users, and their achieved rate in requests per second.
#[test]
fn live_page_shows_loads_in_the_unit_of_the_search() {
    let (_root, run_store) = run_store();
    let search = begin(&run_store, "capacity");
    let trial = |stage: &str, load: f64| TrialPart {
        stage: stage.into(),
        load,
        verdict: "good".into(),
        ..TrialPart::default()
    };
    let mut capacity = CapacityPart {
        objective: "p99 < 200ms".into(),
        find: "users".into(),
        unit: "users".into(),
        partial_result: Some(Bracket { lower: Some(1400.0), upper: Some(1500.0) }),
        trials: vec![trial("guess", 64.0), trial("short", 1400.0)],
        ..CapacityPart::default()
    };
    let write_progress = |capacity: &CapacityPart| {
        search.write_progress(&RunProgress {
            verb: "capacity".into(),
            phase: RunPhase::Measured,
            capacity: Some(capacity.clone()),
            ..RunProgress::default()
        });
    };
    let text = |state: &State, name: &str| {
        state
            .facts
            .iter()
            .find(|fact| fact.name == name)
            .unwrap_or_else(|| panic!("{name}: {:?}", state.facts))
            .text
            .clone()
    };
    write_progress(&capacity);
    let mut follower = search.follower();
    let going = polled_state(&mut follower);
    assert_eq!(text(&going, "Sustained so far"), "1,400 users");
    assert_eq!(text(&going, "Too much so far"), "1,500 users");
    assert_eq!(text(&going, "Last trial"), "1,400 users");
    capacity.trials.pop();
    (capacity.result, capacity.rate_per_s, capacity.partial_result) = (Some(1400.0), Some(200.0), None);
    write_progress(&capacity);
    let found = polled_state(&mut follower);
    assert_eq!((text(&found, "Maximum users").as_str(), fact(&found, "Maximum users")), ("1,400 users", 1400.0));
    assert_eq!((fact(&found, "Achieved"), text(&found, "Last trial").as_str()), (200.0, "64 connections"));
    assert!(!found.facts.iter().any(|fact| fact.name == "Capacity"), "{:?}", found.facts);
}

#[test]
fn live_list_has_running_runs_first() {
    let (_root, run_store) = run_store();
    let mut list = RunList::default();
    assert!(list.poll(&run_store.dirs().unwrap()).lead.contains("no stored run"));
    let going = begin(&run_store, "going");
    going.write_progress(&progress(3.0));
    let ended = begin(&run_store, "ended");
    ended.folder.write_summary(&documents::document()).unwrap();
    let killed = begin(&run_store, "killed");
    killed.write_progress(&progress(3.0));
    let (going_id, killed_id) = (going.folder.id().to_owned(), killed.folder.id().to_owned());
    drop(killed);
    let state = list.poll(&run_store.dirs().unwrap());
    assert_eq!(state.lead, "1 run is running.");
    let Piece::Table(on) = &state.sections[0].pieces[0] else { panic!("a table") };
    assert_eq!((on.rows.len(), &on.rows[0][0], &on.links[0]), (1, &going_id, &format!("run/{going_id}/")));
    let Piece::Table(over) = &state.sections[1].pieces[0] else { panic!("a table") };
    assert_eq!(over.rows.len(), 2);
    assert!(over.rows.iter().any(|row| row[0] == killed_id && row[1] == "Killed"));
}

/// A run store from an unknown source: figures without bounds, arbitrary text, invalid tables.
#[test]
fn damaged_run_folder_does_not_break_the_live_page() {
    let (_root, run_store) = run_store();
    let run = begin(&run_store, "wild");
    let mut progress = progress(f64::MAX);
    progress.duration_s = Some(0.0);
    progress.requests = Some(u64::MAX);
    progress.warmup_s = -1.0;
    if let Some(load) = &mut progress.load {
        load.offered = u64::MAX;
        load.completed = u64::MAX;
        load.failed.insert("a\u{1b}[31m\u{202e}\n</script>".into(), u64::MAX);
    }
    run.write_progress(&progress);
    std::fs::create_dir(run.folder.path().join("series")).unwrap();
    std::fs::write(run.folder.path().join("series/000001.parquet"), "no parquet").unwrap();
    std::fs::write(run.folder.path().join("watch_series.parquet"), "PAR1PAR1").unwrap();
    let mut follower = run.follower();
    for _ in 0..3 {
        let state = polled_state(&mut follower);
        assert!(!state.whole().contains('\n'));
        assert!(state.whole().contains("series could not be read"), "{}", state.whole());
    }
    std::fs::write(run.folder.path().join("progress.json"), "{").unwrap();
    std::fs::write(run.folder.path().join("summary.json"), "[]").unwrap();
    let state = polled_state(&mut follower);
    assert!(state.is_over && state.whole().contains("This version cannot read the document: "), "{}", state.whole());
}
