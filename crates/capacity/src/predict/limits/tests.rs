//! Predictions from invented demands against figures by hand; each limit once.

use plan::PathPlan;

use super::*;
use crate::predict::model::Estimate;

/// Two milliseconds per request, known to 5 %.
fn two_ms() -> WorkloadDemand {
    WorkloadDemand { light: None, at_saturation: Estimate { value: 0.002, half: 0.0001 }, saturated: true, idle: 0.0 }
}

const FIVE_MS: Duration = Duration::from_millis(5);
const CLOSING: ConnectionUse = ConnectionUse { close: true, tls_round_trips: 0.0, initcwnd: 10 };
const TRAFFIC: Traffic = Traffic {
    up_bytes: 500.0,
    down_bytes: 11_000.0,
    up_packets: 8.0,
    down_packets: 10.0,
    response_body_bytes: 10_240.0,
};

fn known() -> PredictionInputs<'static> {
    PredictionInputs {
        processor: Processor { quota: Some((0.2, FIVE_MS)), cores: 1.0 },
        processes: two_ms(),
        cores: WorkloadDemand { at_saturation: Estimate { value: 0.0025, half: 0.0001 }, ..two_ms() },
        classes: vec![(1.0, 1.0)],
        extra_s: 0.0,
        path: None,
        workers: None,
        worker_occupied_s: None,
        connection_s: None,
        connections_by_memory: None,
        connections_by_descriptors: None,
        disk: None,
        slo: None,
        seed: 1,
    }
}

fn path(rtt: &str, down: Option<&str>) -> PathModel {
    let plan = PathPlan {
        rtt: Some(units::parse_duration(rtt).unwrap()),
        down: down.map(|rate| rate.parse().unwrap()),
        ..PathPlan::default()
    };
    PathModel::of(&testbed::distances::spec(&plan, 100).unwrap())
}

fn least(known: &PredictionInputs<'_>) -> (String, f64) {
    let least = &limits(known)[0];
    (least.resource.clone(), least.rate_per_s)
}

fn near(a: f64, b: f64) {
    assert!((a / b - 1.0).abs() < 1e-9, "{a} {b}");
}

#[test]
fn each_resource_is_the_limit_once() {
    // 0.2 cores at 2 ms.
    let (resource, rate) = least(&known());
    assert_eq!(resource, "cpu_quota");
    near(rate, 100.0);
    let all = limits(&known());
    assert_eq!(all.len(), 2);
    near(all[1].rate_per_s, 400.0);
    let [low, high] = all[0].interval.unwrap();
    near(low, 0.2 / 0.0021);
    near(high, 0.2 / 0.0019);

    // One core at 2.5 ms, receive processing included.
    let (resource, rate) = least(&PredictionInputs { processor: Processor { quota: None, cores: 1.0 }, ..known() });
    assert_eq!(resource, "cores");
    near(rate, 400.0);
    let (resource, rate) =
        least(&PredictionInputs { processor: Processor { quota: Some((0.9, FIVE_MS)), cores: 1.0 }, ..known() });
    assert_eq!(resource, "cores");
    near(rate, 400.0);

    // 5 workers, each occupied for 98 ms on the path and 2 ms of CPU.
    let (resource, rate) = least(&PredictionInputs { workers: Some(5), worker_occupied_s: Some(0.098), ..known() });
    assert_eq!(resource, "workers");
    near(rate, 50.0);
    // With 11 workers the CPU limit is lower.
    assert_eq!(
        least(&PredictionInputs { workers: Some(11), worker_occupied_s: Some(0.098), ..known() }).0,
        "cpu_quota"
    );

    // 30 connections of half a second each.
    let (resource, rate) =
        least(&PredictionInputs { connection_s: Some(0.5), connections_by_memory: Some(30.0), ..known() });
    assert_eq!(resource, "memory");
    near(rate, 60.0);
    let with = PredictionInputs { connection_s: Some(0.5), connections_by_descriptors: Some(20.0), ..known() };
    let (resource, rate) = least(&with);
    assert_eq!(resource, "descriptors");
    near(rate, 40.0);
    // With keep-alive neither memory nor descriptors limit the rate.
    assert_eq!(least(&PredictionInputs { connection_s: None, ..with }).0, "cpu_quota");

    // 100 clients with 40 kbit/s: 500 kB/s for 11 kB per request.
    let narrow = path("0ms", Some("40kbit"));
    let (resource, rate) = least(&PredictionInputs { path: Some((&narrow, CLOSING, TRAFFIC)), ..known() });
    assert_eq!(resource, "link_down");
    near(rate, 100.0 * 5_000.0 / 11_000.0);
    let up = Traffic { up_bytes: 11_000.0, down_bytes: 500.0, ..TRAFFIC };
    let plan = PathPlan { rtt: Some(Duration::ZERO), up: Some("40kbit".parse().unwrap()), ..PathPlan::default() };
    let narrow = PathModel::of(&testbed::distances::spec(&plan, 100).unwrap());
    assert_eq!(least(&PredictionInputs { path: Some((&narrow, CLOSING, up)), ..known() }).0, "link_up");
}

#[test]
fn objective_is_the_limit_where_it_is_missed_first() {
    // M/D/1-PS on a whole core with 2.5 ms: the mean is D / (1 - U), 10 ms at U = 0.75, 300/s.
    let slo: Slo = "mean < 10ms".parse().unwrap();
    let whole = PredictionInputs {
        processor: Processor { quota: None, cores: 1.0 },
        processes: WorkloadDemand { at_saturation: Estimate::exact(0.0025), ..two_ms() },
        slo: Some(&slo),
        ..known()
    };
    let all = limits(&whole);
    assert_eq!(all[0].resource, "objective");
    assert!((all[0].rate_per_s / 300.0 - 1.0).abs() < 0.03, "{all:?}");
    // The interval is proportional to that of the CPU limit.
    let [low, high] = all[0].interval.unwrap();
    assert!(low < all[0].rate_per_s && all[0].rate_per_s < high);

    let lax: Slo = "p99 < 100s".parse().unwrap();
    assert_eq!(least(&PredictionInputs { slo: Some(&lax), ..whole.clone() }).0, "cores");
    let never: Slo = "p50 < 1ms".parse().unwrap();
    let all = limits(&PredictionInputs { slo: Some(&never), ..whole.clone() });
    assert!(all[0].words.contains("already"), "{all:?}");
    // The path counts: no response from 48 ms away arrives within 40 ms.
    let far = path("48ms", None);
    let slo: Slo = "p50 < 40ms".parse().unwrap();
    let all = limits(&PredictionInputs { slo: Some(&slo), path: Some((&far, CLOSING, TRAFFIC)), ..whole });
    assert!(all[0].words.contains("already"), "{all:?}");
}

#[test]
fn curve_matches_processor_sharing_plus_path_times() {
    let far = path("48ms", None);
    let whole = PredictionInputs {
        processor: Processor { quota: None, cores: 1.0 },
        processes: WorkloadDemand { at_saturation: Estimate::exact(0.0025), ..two_ms() },
        path: Some((&far, CLOSING, TRAFFIC)),
        ..known()
    };
    let points = curve(&whole);
    assert_eq!(points.len(), CURVE_LOAD_SHARES.len());
    let half = points.iter().find(|point| (point.busy - 0.5).abs() < 1e-9).unwrap();
    near(half.rate_per_s, 200.0);
    // Two round trips and 2.5 ms / (1 - 0.5), simulated.
    assert!((half.mean_s - 0.096 - 0.005).abs() < 0.000_25, "{half:?}");
    assert!(half.p50_s > 0.096 && half.p99_s > half.p50_s);
    assert!(points.windows(2).all(|pair| pair[0].mean_s < pair[1].mean_s && pair[0].p99_s <= pair[1].p99_s * 1.05));
    // Time besides CPU and path is added to each request.
    let slower = curve(&PredictionInputs { extra_s: 0.001, ..whole });
    let at_half = slower.iter().find(|point| (point.busy - 0.5).abs() < 1e-9).unwrap();
    assert!((at_half.mean_s - half.mean_s - 0.001).abs() < 1e-8);
    assert!((at_half.p99_s - half.p99_s - 0.001).abs() < 1e-4);
    // A quota of 0.2 has no closed formula; at a tenth of it throttling is rare.
    let curve_with_limit = curve(&PredictionInputs { path: None, ..known() });
    near(curve_with_limit[1].rate_per_s, 10.0);
    assert!(curve_with_limit[1].mean_s >= 0.002 && curve_with_limit[1].mean_s < 0.012, "{curve_with_limit:?}");
    assert!(curve_with_limit.last().unwrap().p99_s > 0.02, "{curve_with_limit:?}");
}

/// Asymptotes: N / (D + Z) for few users, 1 / D for many.
#[test]
fn user_rates_follow_the_asymptotes_of_a_closed_system() {
    let far = path("48ms", None);
    let with = PredictionInputs { path: Some((&far, CLOSING, TRAFFIC)), ..known() };
    let (rows, at) = users(&with, 2000, Duration::from_secs(7));
    // 0.2 cores at 2 ms act as a server of 10 ms.
    near(at.unwrap(), (0.01 + 0.096 + 7.0) / 0.01);
    assert_eq!((rows[0].users, rows.last().unwrap().users), (1, 2000));
    near(rows[0].rate_per_s, 1.0 / 7.106);
    assert!((rows.last().unwrap().rate_per_s / 100.0 - 1.0).abs() < 1e-6, "{rows:?}");
    // 2000 users at 100/s: a cycle of 20 s, 7 s of it think time.
    assert!((rows.last().unwrap().response_s - 13.0).abs() < 0.01, "{rows:?}");
    // 5 workers of 100 ms permit 50/s; further users wait.
    let (rows, at) = users(
        &PredictionInputs { workers: Some(5), worker_occupied_s: Some(0.098), ..with.clone() },
        2000,
        Duration::from_secs(7),
    );
    near(rows.last().unwrap().rate_per_s, 50.0);
    near(rows.last().unwrap().response_s, 33.0);
    near(at.unwrap(), 7.106 * 50.0);
    assert_eq!(users(&with, 3, Duration::ZERO).0.len(), 3);
    assert!(users(&with, 0, Duration::ZERO).0.is_empty());
}

#[test]
fn requests_per_day_and_machines_match_figures_by_hand() {
    near(per_day(231.0, 1.0), 19_958_400.0);
    near(per_day(300.0, 3.0), 8_640_000.0);
    // 1000/s over 0.7 of 100/s: 14.3, so 15, and one spare.
    assert_eq!(
        machines(100.0, 1000.0, 0.3),
        Machines { peak_per_s: 1000.0, headroom: 0.3, at_peak: 15, with_headroom: 16 }
    );
    assert_eq!(machines(100.0, 10.0, 0.3).at_peak, 1);
    assert_eq!(
        (seconds(4.25e-6), seconds(0.00325), seconds(2.0)),
        ("4.25 us".into(), "3.25 ms".into(), "2.00 s".into())
    );
}

#[test]
fn zero_demand_gives_no_prediction() {
    let none = WorkloadDemand { at_saturation: Estimate { value: -1e-6, half: 1e-6 }, ..two_ms() };
    assert!(limits(&PredictionInputs { processes: none, cores: none, ..known() }).is_empty());
    // The demand is so uncertain that there is no upper end.
    let vague = WorkloadDemand { at_saturation: Estimate { value: 0.002, half: 0.003 }, ..two_ms() };
    assert_eq!(limits(&PredictionInputs { processes: vague, ..known() })[0].interval, None);
}

/// `predict --components --close`: receive processing costs four times the process, without a CPU limit. Mean and
/// percentiles must both include it; the mean once did and the percentiles did not.
#[test]
fn mean_and_percentiles_use_the_same_demand() {
    let of = |processes: f64, cores: f64, quota: Option<(f64, Duration)>| {
        let of = |value: f64| WorkloadDemand { at_saturation: Estimate { value, half: 0.0 }, ..two_ms() };
        let (processes, cores) = (of(processes), of(cores));
        let cores = cores.covering(&processes);
        PredictionInputs { processor: Processor { quota, cores: 1.0 }, processes, cores, ..known() }
    };
    let dear = of(50e-6, 200e-6, None);
    for point in curve(&dear) {
        // No request is faster than the whole demand, and half of all take less than twice the mean.
        assert!(point.p50_s >= 199e-6 && point.p50_s <= point.mean_s * 1.01 && point.mean_s < point.p99_s, "{point:?}");
        if point.busy < 0.75 {
            let formula = stats::queueing::ps_response(200e-6, point.busy);
            assert!((point.mean_s / formula - 1.0).abs() < 0.05, "{point:?} {formula}");
        }
    }
    // Noise once gave a negative cost of receive processing; the simulated queue then grew without bound, 43 times the
    // mean.
    for point in curve(&of(200e-6, 150e-6, None)) {
        assert!(point.busy < 1.0 && point.p50_s <= point.mean_s * 1.01 && point.mean_s < point.p99_s, "{point:?}");
    }
    // A CPU limit on the processes counts their time only: 0.2 cores at 50 us are 4,000/s, whatever receive processing
    // costs.
    for point in curve(&of(50e-6, 200e-6, Some((0.2, FIVE_MS)))) {
        assert!(point.rate_per_s < 4000.0 && point.mean_s < 0.2, "{point:?}");
    }
    // Both limits in one simulation: a limit of half a core for the processes leaves a quarter after receive
    // processing.
    let both = of(100e-6, 400e-6, Some((0.5, FIVE_MS)));
    assert_eq!(least(&both).0, "cores");
    let most = curve(&both).pop().unwrap();
    assert!(most.p50_s > 5.0 * 400e-6 && most.mean_s < 0.2, "{most:?}");
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn workload_demand() -> impl Strategy<Value = WorkloadDemand> {
        (1e-6..5e-3f64, prop::option::of(0.5..4.0f64), 0.0..0.3f64, 0.0..0.05f64).prop_map(
            |(value, light, half, idle)| {
                let light = light.map(|times| Estimate { value: value * times, half: 0.0 });
                WorkloadDemand {
                    light,
                    at_saturation: Estimate { value, half: value * half },
                    saturated: light.is_none() || idle < 0.025,
                    idle,
                }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

        /// For arbitrary inputs the distribution is consistent: the mean lies between its ends, and percentiles rise.
        #[test]
        fn curve_of_arbitrary_inputs_is_consistent(
            processes in workload_demand(),
            cores in workload_demand(),
            threads in 1u32..5,
            quota in prop::option::of(0.06..1.5f64),
            rtt_ms in prop::option::of(0u64..200),
            classes in prop::collection::vec((0.01..1.0f64, 0.05..20.0f64), 1..4),
            seed: u64,
        ) {
            let far = rtt_ms.map(|ms| path(&format!("{ms}ms"), None));
            let mean: f64 = classes.iter().map(|(share, of)| share * of).sum::<f64>() / classes.iter().map(|(share, _)| share).sum::<f64>();
            let known = PredictionInputs {
                processor: Processor { quota: quota.map(|share| (share, FIVE_MS)), cores: f64::from(threads) },
                processes,
                cores: cores.covering(&processes),
                classes: classes.iter().map(|(share, of)| (*share, of / mean)).collect(),
                path: far.as_ref().map(|far| (far, CLOSING, TRAFFIC)),
                seed,
                ..known()
            };
            let points = curve(&known);
            prop_assert_eq!(points.is_empty(), first(&known).is_none());
            for point in &points {
                let q = simulated(&known, point.rate_per_s).quantiles();
                prop_assert!(q.is_consistent(), "{:?}", q);
                prop_assert_eq!([point.mean_s, point.p50_s, point.p99_s], [q.mean / 1e9, q.p50 as f64 / 1e9, q.p99 as f64 / 1e9]);
                prop_assert!(point.busy > 0.0 && point.busy < 1.0, "{:?}", point);
                // No request is faster than the demand of the cheapest class.
                let service = Service::at(&known, point.rate_per_s);
                let least = known.classes.iter().map(|(_, of)| of).copied().fold(f64::INFINITY, f64::min) * service.demand_s;
                prop_assert!(q.min as f64 / 1e9 >= least * 0.999 - 2e-9, "{:?} {}", q, least);
            }
        }
    }
}
