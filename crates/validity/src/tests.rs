//! Each check just inside its limit and just outside, with synthetic documents.

use std::time::Duration;

use load::{DelayBounds, GaugeStatistics, Levels, LittleTerms};
use schema::Verdict;
use schema::document::{CheckState, Document, Host, Load, Path, Quantiles, Run, SCHEMA, Unsolicited, Validity};

use super::checks;
use crate::evidence::Evidence;
use crate::evidence::LoopHealth;
use crate::evidence::UnintendedDrops;
use crate::evidence::Watched;
use crate::evidence::WireFigures;
use crate::evidence::WireGauges;
use crate::evidence::{Agreed, WireEvidence};
use plan::Plan;

mod packets;
mod server_cpu;
mod timing;

/// A valid run; each test changes one property.
struct Case {
    document: Document,
    plan: Plan,
    health: LoopHealth,
    delays: DelayBounds,
    little: LittleTerms,
    levels: Levels,
    seconds: Vec<f64>,
    unintended_drops: Option<UnintendedDrops>,
    cap_hits: u64,
    table: Option<crate::evidence::StoredRows>,
    store_error: Option<&'static str>,
    server_ended: Option<&'static str>,
    gave_up: bool,
    all_refused: Option<u64>,
    handshake_error: Option<Quantiles>,
    rtt_varies: bool,
    only_delays: bool,
    /// The packet capture; every limit is just reached.
    wire: Option<(Watched, WireFigures)>,
}

/// A phase of ten seconds, as in the document.
const PHASE_NS: f64 = 10e9;

/// A distribution in which every figure has the same value.
fn alike(count: u64, value: u64) -> Quantiles {
    let [p50, p75, p90, p95, p99, p99_9, p99_99, max] = [value; 8];
    Quantiles { count, mean: value as f64, p50, p75, p90, p95, p99, p99_9, p99_99, max, ..Quantiles::default() }
}

/// The capture of the same run: a thousand requests, one a connection, ten open at a time.
fn wire() -> (Watched, WireFigures) {
    let level =
        |mean| GaugeStatistics { level: schema::Level { mean, p50: mean as u64, max: 12 }, standard_error: 0.001 };
    let watched = Watched {
        levels: WireGauges { connections: level(10.0), in_flight: level(1.0), samples: 9000, ..WireGauges::default() },
        lag: Duration::from_secs(1),
        clock_deviation_ns: 100_000,
        ..Watched::default()
    };
    let mut agreed = Agreed {
        both: 1000,
        load_called: 1000,
        load_established: 1000,
        wire_opened: 1000,
        // Three of these failed: they need not have reached the server's end.
        load_sent: 1003,
        load_sent_in_vain: 3,
        wire_requests: 1003,
        ..Agreed::default()
    };
    let mut figures = WireFigures {
        requests: 1000,
        connections_ns: 100_000_000_000,
        in_flight_ns: 10_000_000_000,
        ..WireFigures::default()
    };
    for _ in 0..1000 {
        agreed.differences.add(30_000);
        figures.handshake_error.record(30_000);
    }
    figures.agreed = Some(agreed);
    (watched, figures)
}

impl Case {
    fn good() -> Self {
        let plan = "[load]\nurl = \"http://server/\"\nrate = \"100/s\"\nduration = \"10s\"\n[path]\nrtt = \"48ms\"\n[server]\n\
                    command = \"true\"\n";
        let level =
            |mean| GaugeStatistics { level: schema::Level { mean, p50: mean as u64, max: 12 }, standard_error: 0.001 };
        Case {
            document: Document {
                schema: SCHEMA.into(),
                run: Run {
                    duration_s: 10.0,
                    host: Host { steal_share: Some(0.0), ..Host::default() },
                    ..Run::default()
                },
                validity: Validity::from_checks(vec![]),
                load: Some(Load {
                    offered_requests: 1000,
                    completed: 1000,
                    status: [("200".to_owned(), 991), ("404".to_owned(), 9)].into(),
                    achieved_rate_per_s: 96.67,
                    in_flight: schema::Level { mean: 10.0, p50: 10, max: 12 },
                    response_time_ns: alike(20_000, 100_000_000),
                    send_lag_ns: alike(1_000, 1_000_000),
                    early_responses: 9,
                    requests_retried: 10,
                    ..Load::default()
                }),
                path: Some(Path {
                    configured_rtt_ns: alike(1_000, 48_000_000),
                    timing_error_ns: alike(2_000, 1_000_000),
                    rtt_error_ns: Some(alike(1_000, 1_000_000)),
                    ..Path::default()
                }),
                server: None,
                watch: None,
                tap: None,
                slo: None,
                cache: None,
            },
            plan: Plan::from_toml(plan, "test").unwrap(),
            health: LoopHealth {
                run_queue_wait: None,
                longest_stall: Duration::from_millis(20),
                idle: Duration::from_secs(5),
                wall: Duration::from_secs(100),
                cpu: Duration::ZERO,
            },
            delays: DelayBounds {
                all: alike(500, 1_000_000),
                by_stalls: alike(500, 1_000_000),
                stalls: 3,
                ..DelayBounds::default()
            },
            little: LittleTerms { in_flight: 10.0, connections: 10.0, ..LittleTerms::default() },
            levels: Levels {
                in_flight: level(10.0),
                connections: level(10.0),
                backlog: level(0.0),
                samples: 9000,
                seconds: vec![],
                spans: vec![],
            },
            seconds: vec![10.0; 10],
            unintended_drops: Some(UnintendedDrops::default()),
            cap_hits: 0,
            table: Some(crate::evidence::StoredRows { rows: 1000, one_in: 1 }),
            store_error: None,
            server_ended: None,
            gave_up: false,
            all_refused: None,
            handshake_error: Some(alike(2_000, 1_000_000)),
            rtt_varies: false,
            only_delays: true,
            wire: Some(wire()),
        }
    }

    fn judge(&self) -> Validity {
        Validity::from_checks(checks(
            &self.document,
            &Evidence {
                plan: &self.plan,
                loop_health: &self.health,
                delays: &self.delays,
                little: &self.little,
                levels: &self.levels,
                in_flight_by_second: &self.seconds,
                unintended_drops: self.unintended_drops.clone(),
                cap_hits: self.cap_hits,
                wall_drift: None,
                table: self.table,
                store_error: self.store_error,
                server_ended: self.server_ended,
                gave_up: self.gave_up,
                all_refused: self.all_refused,
                target: "127.0.0.1:8080",
                handshake_error: self.handshake_error,
                rtt_varies: self.rtt_varies,
                beyond: false,
                only_delays: self.only_delays,
                wire: self.wire.as_ref().map(|(watched, figures)| WireEvidence {
                    watched,
                    figures,
                    phase_ns: PHASE_NS,
                }),
            },
        ))
    }

    fn watched(&mut self) -> &mut Watched {
        &mut self.wire.as_mut().unwrap().0
    }

    fn figures(&mut self) -> &mut WireFigures {
        &mut self.wire.as_mut().unwrap().1
    }

    fn agreed(&mut self) -> &mut Agreed {
        self.figures().agreed.as_mut().unwrap()
    }

    /// The state of one check.
    fn state(&self, name: &str) -> CheckState {
        self.judge().checks.iter().find(|check| check.name == name).unwrap_or_else(|| panic!("no {name}")).state
    }

    fn load(&mut self) -> &mut Load {
        self.document.load.as_mut().unwrap()
    }

    fn path(&mut self) -> &mut Path {
        self.document.path.as_mut().unwrap()
    }
}

/// The verdict of a valid run after `change`. Asserts that the check `name`, and no other, has changed.
fn verdict_after(name: &str, change: impl FnOnce(&mut Case)) -> Verdict {
    let mut case = Case::good();
    change(&mut case);
    let validity = case.judge();
    let failed: Vec<&str> = validity
        .checks
        .iter()
        .filter(|check| matches!(check.state, CheckState::Failed | CheckState::CouldNotRun))
        .map(|check| check.name.as_str())
        .collect();
    assert_eq!(failed, [name]);
    assert!(validity.checks.iter().all(|check| !check.why.is_empty()), "every check has a reason");
    validity.verdict
}

#[test]
fn a_run_at_every_limit_is_valid() {
    let validity = Case::good().judge();
    assert_eq!(validity.verdict, Verdict::Valid, "{validity:?}");
}

#[test]
fn a_run_just_past_a_limit_is_invalid() {
    let invalid = |name, change: fn(&mut Case)| assert_eq!(verdict_after(name, change), Verdict::Invalid, "{name}");
    invalid("generator_on_time", |case| case.gave_up = true);
    invalid("generator_on_time", |case| case.load().send_lag_ns.count = 989);
    invalid("no_unintended_drops", |case| {
        case.unintended_drops = Some(UnintendedDrops { packets: 1, places: "1 somewhere".into(), not_received: 0 });
    });
    invalid("client_cpu", |case| case.health.idle = Duration::from_millis(4_999));
    for cause in ["no_ports", "no_descriptors", "local_error"] {
        let verdict = verdict_after("client_descriptors_and_ports", |case| {
            case.load().completed -= 1;
            case.load().failed.insert(cause.into(), 1);
        });
        assert_eq!(verdict, Verdict::Invalid);
    }
    invalid("littles_law_requests", |case| case.little.in_flight = 10.21);
    invalid("littles_law_connections", |case| case.little.connections = 9.79);
    invalid("conservation", |case| case.load().completed -= 1);
    invalid("server_answers", |case| {
        case.load().completed = 0;
        case.load().failed.insert("connect_refused".into(), 1000);
    });
    invalid("responses_solicited", |case| {
        case.load().unsolicited = Some(Unsolicited { connections: 1, responses: 2 });
    });
    invalid("server_alive", |case| case.server_ended = Some("exit status 1"));
}

#[test]
fn failed_checks_of_weight_suspect_make_the_run_suspect() {
    let suspect = |name, change: fn(&mut Case)| assert_eq!(verdict_after(name, change), Verdict::Suspect, "{name}");
    suspect("connection_cap", |case| case.cap_hits = 1);
    suspect("steady_state", |case| case.seconds = (0..12).map(|second| f64::from(second) * 10.0).collect());
    suspect("server_host_receives", |case| case.unintended_drops.as_mut().unwrap().not_received = 1);
    // 2 % and three standard deviations of the number in flight: 33.4 of 1000.
    suspect("achieved_as_offered", |case| case.load().achieved_rate_per_s = 96.65);
    suspect("responses_whole", |case| {
        case.load().completed -= 1;
        case.load().failed.insert("closed_early".into(), 1);
    });
    suspect("server_host_receives", |case| case.unintended_drops.as_mut().unwrap().not_received = 1);
    // 2 % and three standard deviations of the number in flight: 33.4 of 1000.
    suspect("achieved_as_offered", |case| case.load().achieved_rate_per_s = 96.65);
    suspect("responses_whole", |case| {
        case.load().completed -= 1;
        case.load().failed.insert("reset".into(), 1);
    });
    suspect("error_rate", |case| {
        case.load().status = [("200".to_owned(), 989), ("404".to_owned(), 11)].into();
    });
    // Any cause counts: two failures and nine error pages are more than 1 % of a thousand.
    suspect("error_rate", |case| {
        case.load().completed -= 2;
        case.load().failed.insert("response_timeout".into(), 2);
    });
    suspect("early_responses", |case| case.load().early_responses = 11);
    suspect("requests_retried", |case| case.load().requests_retried = 11);
    // A small share makes the run suspect, a larger share makes it invalid.
    suspect("responses_solicited", |case| {
        case.load().unsolicited = Some(Unsolicited { connections: 1, responses: 1 });
    });
    let mut case = Case::good();
    case.table = Some(crate::evidence::StoredRows { rows: 500, one_in: 2 });
    assert_eq!((case.state("records_stored"), case.judge().verdict), (CheckState::Failed, Verdict::Suspect));
    suspect("records_stored", |case| case.store_error = Some("write: No space left on device"));
}

#[test]
fn expected_error_statuses_are_not_errors() {
    let state = |status: &str, change: fn(&mut plan::LoadPlan)| {
        let mut case = Case::good();
        change(&mut case.plan.load);
        case.load().status = [("200".to_owned(), 500), (status.to_owned(), 500)].into();
        case.state("error_rate")
    };
    for status in ["302", "404"] {
        assert_eq!(state(status, |_| {}), CheckState::Failed);
    }
    assert_eq!(state("302", |load| load.redirects = 1), CheckState::Ok);
    assert_eq!(state("404", |load| load.redirects = 1), CheckState::Failed);
    let with_expected_404: fn(&mut plan::LoadPlan) = |load| {
        load.expect = Some(plan::ExpectPlan { status: "404".parse().ok(), ..Default::default() });
    };
    assert_eq!(state("404", with_expected_404), CheckState::Ok);
    let of_bodies: fn(&mut plan::LoadPlan) = |load| {
        load.expect = Some(plan::ExpectPlan { body_is: Some("x".into()), ..Default::default() });
    };
    assert_eq!(state("404", of_bodies), CheckState::Failed);
}

#[test]
fn checks_that_could_not_run_make_the_run_suspect() {
    assert_eq!(verdict_after("no_unintended_drops", |case| case.unintended_drops = None), Verdict::Suspect);
    assert_eq!(verdict_after("rtt_as_configured", |case| case.path().rtt_error_ns = None), Verdict::Suspect);
    assert_eq!(
        verdict_after("machine_undisturbed", |case| case.document.run.host.steal_share = None),
        Verdict::Suspect
    );
}

#[test]
fn path_checks_do_not_apply_without_a_path() {
    let mut case = Case::good();
    case.document.path = None;
    case.unintended_drops = None;
    let validity = case.judge();
    assert_eq!(validity.verdict, Verdict::Valid);
    for check in &validity.checks {
        let of_the_path = ["path_on_time", "rtt_as_configured", "rtt_tail_as_configured", "no_unintended_drops"]
            .contains(&check.name.as_str());
        assert!(!of_the_path || check.state == CheckState::NotApplicable, "{check:?}");
    }
}

/// If sampling cannot resolve 2 % because few requests were in flight, the limit widens by the sampling error, and the
/// text states the widened limit.
#[test]
fn littles_law_widens_its_limit_by_the_sampling_error() {
    let mut case = Case::good();
    case.levels.in_flight.level.mean = 0.010;
    case.levels.in_flight.standard_error = 0.0004;
    // With this number of requests, counting is precise enough.
    case.levels.samples = 100_000_000;
    case.little.in_flight = 0.0110;
    let validity = case.judge();
    let check = validity.checks.iter().find(|check| check.name == "littles_law_requests").unwrap();
    assert_eq!(check.state, CheckState::Ok);
    assert!(check.limit.unwrap() > 0.02 && check.why.contains("widened"), "{check:?}");
    case.little.in_flight = 0.0115;
    assert_eq!(case.judge().verdict, Verdict::Invalid);
}

/// One short request that no sample saw is not a contradiction.
#[test]
fn littles_law_ignores_one_request_between_samples() {
    let mut case = Case::good();
    case.levels.in_flight = GaugeStatistics::default();
    case.levels.samples = 1000;
    case.little.in_flight = 0.000_35;
    assert_eq!(case.judge().verdict, Verdict::Valid);
    case.little.in_flight = 0.1;
    assert_eq!(case.judge().verdict, Verdict::Invalid);
}

/// Scatter alone is not growth.
#[test]
fn a_noisy_gauge_is_steady() {
    let mut case = Case::good();
    case.seconds = vec![8.0, 30.0, 5.0, 14.0, 9.0, 21.0, 6.0, 12.0, 28.0, 7.0, 16.0, 25.0];
    assert_eq!(case.judge().verdict, Verdict::Valid);
}
