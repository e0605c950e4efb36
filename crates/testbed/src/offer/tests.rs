//! Loads from files: their contents become arrivals and requests, and invalid files are refused with the line.

use std::path::{Path, PathBuf};

use load::workload::Choice;

use super::*;
use plan::{LoadPlan, ReplayPlan};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("yamabiko-offer-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, text: &[u8]) -> PathBuf {
        std::fs::write(self.0.join(name), text).unwrap();
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn plan(change: impl FnOnce(&mut LoadPlan)) -> Plan {
    let mut plan = Plan::from_toml("[load]\nurl = \"http://server:8080/\"\nduration = \"10s\"", "x").unwrap();
    plan.load.duration = None;
    change(&mut plan.load);
    plan
}

fn replaying(file: &Path, change: impl FnOnce(&mut LoadPlan)) -> Result<Offer, TestbedError> {
    of(&plan(|load| {
        load.replay = Some(ReplayPlan::of(file.to_owned()));
        change(load);
    }))
}

const LOG: &str = "\
192.0.2.1 - - [21/Nov/2026:00:00:00 +0000] \"GET /a HTTP/1.1\" 200 1
192.0.2.2 - - [21/Nov/2026:00:00:00 +0000] \"GET /b HTTP/1.1\" 200 1

192.0.2.1 - - [21/Nov/2026:00:00:02 +0000] \"POST /a HTTP/1.1\" 200 1
192.0.2.1 - - [21/Nov/2026:00:00:02 +0000] \"BREW /a HTTP/1.1\" 418 1
192.0.2.3 - - [21/Nov/2026:00:00:01 +0000] \"HEAD /a HTTP/1.1\" 200 1
garbage
192.0.2.3 - - [21/Nov/2026:00:00:01 +0000] \"-\" 408 1";

#[test]
fn a_log_is_replayed_once_and_every_line_is_accounted_for() {
    let folder = Folder::new("once");
    let mut log = LOG.as_bytes().to_vec();
    log.extend_from_slice(b"\n\xff\xfe\n");
    log.extend_from_slice(&vec![b'x'; 200_000]);
    log.extend_from_slice(b"\n192.0.2.1 - - [21/Nov/2026:00:00:03 +0000] \"GET /b HTTP/1.1\" 200 1");
    let offer = replaying(&folder.file("access.log", &log), |_| {}).unwrap();
    let replay = offer.replay.unwrap();
    assert_eq!((replay.lines, replay.requests_logged, replay.urls), (11, 5, 4));
    assert_eq!(replay.requests_logged + replay.left_out.values().sum::<u64>(), replay.lines);
    assert_eq!(replay.left_out["longer than 64 KiB"], 1);
    assert_eq!(replay.left_out["unsupported method"], 1);
    assert_eq!(replay.left_out["not of the log's format"], 2);
    assert_eq!((replay.left_out["empty"], replay.left_out["no request in it"]), (1, 1));
    assert_eq!((replay.rounds, replay.requests_planned, replay.bodies_empty), (Some(1), Some(5), 1));
    assert_eq!((replay.clients, offer.plan.load.clients), (3, 3));
    assert_eq!(offer.plan.load.duration, Some(Duration::from_secs(4)));
    let Arrivals::Logged(logged) = &offer.arrivals else { panic!("{:?}", offer.arrivals) };
    assert_eq!(logged.arrivals.iter().map(|a| a.offset_ns / 1_000_000).collect::<Vec<_>>(), [0, 500, 1000, 2000, 3000]);
    let labels: Vec<String> = offer.workload.unwrap().requests.iter().map(|r| r.label().to_owned()).collect();
    assert_eq!(labels[..2], ["http://server:8080/a", "http://server:8080/b"]);
    assert_eq!(labels[2], "POST http://server:8080/a");
    let notes = offer.notes.join("\n");
    for expected in [
        "empty body",
        "the log is replayed once: 5 requests in 4s",
        "2: not of the log's format (first: line 7)",
        "1: longer than 64 KiB (first: line 10)",
    ] {
        assert!(notes.contains(expected), "{notes}");
    }
    assert_eq!((replay.left_out_first["empty"], replay.left_out_first["no request in it"]), (3, 8));
}

#[test]
fn a_replay_has_rounds_or_a_duration() {
    let folder = Folder::new("rounds");
    let file = folder.file(
        "log.json",
        br#"{"time":100.0,"client":"a","path":"/"}
{"time":101.5,"client":"b","path":"/"}
{"time":103.0,"client":"a","path":"/"}"#,
    );
    let of = |change: fn(&mut LoadPlan)| {
        let offer = replaying(&file, change).unwrap();
        (offer.plan.load.duration, offer.replay.unwrap().rounds)
    };
    let seconds = |s: f64| Some(Duration::from_secs_f64(s));
    let length_note = |change: fn(&mut LoadPlan)| replaying(&file, change).unwrap().notes[1].clone();
    assert_eq!(
        length_note(|load| load.replay.as_mut().unwrap().loops = Some(3)),
        "the log is replayed 3 times: 9 requests in 13.5s"
    );
    assert_eq!(
        length_note(|load| load.duration = Some(Duration::from_secs(60))),
        "the log is replayed repeatedly for 60s: 3 requests in each round of 4.5s"
    );
    let cut = length_note(|load| {
        load.replay.as_mut().unwrap().loops = Some(3);
        load.duration = Some(Duration::from_secs(6));
    });
    assert_eq!(cut, "the log is replayed 3 times: 9 requests in 13.5s, of which the first 6s are run");
    // One mean gap after the last request.
    assert_eq!(of(|_| {}), (seconds(4.5), Some(1)));
    assert_eq!(of(|load| load.replay.as_mut().unwrap().loops = Some(3)), (seconds(13.5), Some(3)));
    assert_eq!(of(|load| load.replay.as_mut().unwrap().time_scale = 2.0), (seconds(9.0), Some(1)));
    assert_eq!(of(|load| load.duration = Some(Duration::from_secs(60))), (seconds(60.0), None));
    assert_eq!(of(|load| load.warmup = Duration::from_secs(1)), (seconds(3.5), Some(1)));
    let all_warmup = replaying(&file, |load| load.warmup = Duration::from_secs(5)).unwrap_err().to_string();
    assert!(all_warmup.contains("--warmup"), "{all_warmup}");
}

#[test]
fn logs_without_replayable_requests_are_refused_with_the_reason() {
    let folder = Folder::new("bad");
    for (text, why) in [
        (&b""[..], "the file is empty"),
        (b"a\nb\n", "2 not of the log's format, first: line 1"),
        (b"\x1f\x8b\x08\x00", "compressed"),
    ] {
        let error = replaying(&folder.file("bad.log", text), |_| {}).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let missing = replaying(&folder.0.join("none"), |_| {}).unwrap_err().to_string();
    assert!(missing.contains("--replay") && missing.contains("No such file"), "{missing}");
}

#[test]
fn a_rate_file_sets_the_duration() {
    let folder = Folder::new("rates");
    let file = folder.file("shop.arrivals.csv", b"start_s,length_s,connections,requests\n0,1,5,20\n1,2,9,80\n");
    let offer = of(&plan(|load| {
        load.rate_file = Some(file.clone());
        load.warmup = Duration::from_secs(5);
    }))
    .unwrap();
    assert_eq!(offer.plan.load.duration, Some(Duration::from_secs(3)));
    let Arrivals::Open { rate, .. } = &offer.arrivals else { panic!() };
    assert_eq!([1, 5, 6, 9].map(|s| rate.per_second(Duration::from_secs(s))), [20.0, 20.0, 40.0, 40.0]);
    assert!(offer.notes[0].contains("column requests"), "{:?}", offer.notes);
    // No arrivals follow a table that ends at 0: the run would wait forever for more requests.
    let ends = folder.file("ends.csv", b"length_s,rate_per_s\n2,10\n3,0\n");
    for (file, expected) in [(&ends, Some(Duration::from_secs(5))), (&file, None)] {
        let offer = of(&plan(|load| {
            (load.rate_file, load.requests) = (Some(file.clone()), Some(1_000));
        }));
        assert_eq!(offer.unwrap().plan.load.duration, expected);
    }
    let missing = of(&plan(|load| load.rate_file = Some("/nonexistent.csv".into()))).unwrap_err().to_string();
    assert!(missing.contains("--rate-file /nonexistent.csv"), "{missing}");
}

#[test]
fn a_browsers_recording_becomes_sessions() {
    let folder = Folder::new("har");
    let entry = |at: &str, url: &str| {
        format!(
            r#"{{"startedDateTime":"2026-11-21T00:00:0{at}Z","request":{{"method":"GET","url":"{url}","headers":[{{"name":"Accept","value":"text/css"}}]}}}}"#
        )
    };
    let text = format!(
        r#"{{"log":{{"entries":[{},{},{}]}}}}"#,
        entry("0", "https://shop/"),
        entry("1.5", "https://shop/a.css"),
        entry("2", "https://ads/")
    );
    let file = folder.file("visit.har", text.as_bytes());
    let offer = of(&plan(|load| {
        load.har = Some(plan::HarPlan { file });
        load.headers = vec!["accept: */*".into()];
        load.rate = "5/s".parse().ok();
        load.duration = Some(Duration::from_secs(5));
    }))
    .unwrap();
    let har = offer.har.unwrap();
    assert_eq!((har.entries, har.requests, har.left_out["of another host"], har.host.as_str()), (3, 2, 1, "shop"));
    let workload = offer.workload.unwrap();
    assert_eq!(workload.requests[1].headers.len(), 1, "the plan's header replaces the recorded one");
    let Choice::Sessions(sessions) = workload.choice else { panic!() };
    assert_eq!(sessions[0].steps.len(), 2);
    assert!(offer.arrivals.is_open());
}

/// Arrivals of a plan's schedule in each second of its first `seconds`.
fn counts(arrivals: &str, seconds: usize, seed: u64) -> Vec<f64> {
    let text = format!("[load]\nurl = \"http://h/\"\nrate = \"200/s\"\nduration = \"1s\"\narrivals = {arrivals}");
    let offer = of(&Plan::from_toml(&text, "x").unwrap()).unwrap();
    let mut schedule = load::arrivals::Schedule::new(&offer.arrivals, units::Timestamp::ZERO, seed).unwrap();
    let mut counts = vec![0.0; seconds];
    while let Some(count) = counts.get_mut((schedule.take().as_nanos() / 1_000_000_000) as usize) {
        *count += 1.0;
    }
    counts
}

fn mean_of(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Variance over mean of sums of `factor` neighbours.
fn dispersion(counts: &[f64], factor: usize) -> f64 {
    let sums: Vec<f64> = counts.chunks_exact(factor).map(|chunk| chunk.iter().sum()).collect();
    let mean = mean_of(&sums);
    sums.iter().map(|sum| (sum - mean).powi(2)).sum::<f64>() / sums.len() as f64 / mean
}

/// Correlation of the counts of seconds `lag` apart.
fn correlation(counts: &[f64], lag: usize) -> f64 {
    let mean = mean_of(counts);
    let products = counts.windows(lag + 1).map(|w| (w[0] - mean) * (w[lag] - mean));
    products.sum::<f64>() / counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>()
}

/// Hurst parameter from the slope of the dispersion over the scale, 4 to 256 s: it grows as m^(2H - 1).
fn hurst(counts: &[f64]) -> f64 {
    let points: Vec<(f64, f64)> =
        (2..=8).map(|power| (f64::from(power), dispersion(counts, 1 << power).log2())).collect();
    let (x, y) = (
        mean_of(&points.iter().map(|p| p.0).collect::<Vec<_>>()),
        mean_of(&points.iter().map(|p| p.1).collect::<Vec<_>>()),
    );
    let slope = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>()
        / points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>();
    (slope + 1.0) / 2.0
}

/// All four arrival processes from the plan's text to the schedule: each has the dispersion, memory and Hurst parameter
/// that docs/concepts/arrivals.md states. Seeded, so the figures never change.
#[test]
fn every_arrival_process_of_a_plan_has_its_statistics() {
    let seeds = 0..6;
    let figures = |arrivals: &str| {
        let runs: Vec<Vec<f64>> = seeds.clone().map(|seed| counts(arrivals, 20_000, seed)).collect();
        let over = |figure: &dyn Fn(&[f64]) -> f64| mean_of(&runs.iter().map(|run| figure(run)).collect::<Vec<_>>());
        let measured = [
            over(&|run| mean_of(run)),
            over(&|run| dispersion(run, 1)),
            over(&|run| dispersion(run, 100)),
            over(&|run| correlation(run, 1)),
            over(&hurst),
        ];
        println!(
            "{arrivals}: {:.1}/s, dispersion {:.3} (1 s) {:.2} (100 s), correlation of neighbours {:.3}, Hurst {:.2}",
            measured[0], measured[1], measured[2], measured[3], measured[4]
        );
        measured
    };
    let [rate, one, hundred, ..] = figures("\"constant\"");
    assert!((rate, one, hundred) == (200.0, 0.0, 0.0), "{rate} {one} {hundred}");

    let [rate, one, hundred, neighbours, hurst] = figures("\"poisson\"");
    assert!((rate - 200.0).abs() < 1.0 && (one - 1.0).abs() < 0.03 && (hundred - 1.0).abs() < 0.3, "{one} {hundred}");
    assert!(neighbours.abs() < 0.02 && (hurst - 0.5).abs() < 0.08, "{neighbours} {hurst}");

    let [rate, one, hundred, neighbours, _] = figures("{ bursts = { factor = 3.0, on = \"2s\", off = \"6s\" } }");
    assert!((rate - 200.0).abs() < 4.0, "{rate}");
    // Fischer and Meier-Hellstern, rates 600 and 66.7: expected dispersion of the counts of t seconds.
    let expected = |t: f64| {
        let (leave_on, leave_off, fast, slow) = (0.5_f64, 1.0 / 6.0, 600.0_f64, 200.0 / 3.0);
        let both = leave_on + leave_off;
        let limit =
            2.0 * (fast - slow).powi(2) * leave_on * leave_off / (both * both * (fast * leave_off + slow * leave_on));
        1.0 + limit * (1.0 - (1.0 - (-both * t).exp()) / (both * t))
    };
    assert!(
        (one / expected(1.0) - 1.0).abs() < 0.1 && (hundred / expected(100.0) - 1.0).abs() < 0.15,
        "{one} {hundred}"
    );
    assert!(neighbours > 0.4, "{neighbours}");

    let [rate, one, hundred, neighbours, hurst] =
        figures("{ self_similar = { sources = 100, alpha = 1.4, on = \"1s\", off = \"2s\" } }");
    assert!((rate / 200.0 - 1.0).abs() < 0.1, "{rate}");
    assert!(one > 1.5 && hundred > 4.0 * one && neighbours > 0.3, "{one} {hundred} {neighbours}");
    assert!((hurst - 0.8).abs() < 0.1, "{hurst}");
}
