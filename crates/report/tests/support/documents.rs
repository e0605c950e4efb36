//! A synthetic run: 110 requests/s over the distances of Koshien (ENMA).
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::collections::BTreeMap;

use schema::ServerCores;
use schema::document::*;
use stats::{Histogram, quantiles_of};

/// Response times of 100 clients: RTTs of 2 to 770 ms, two of them each.
pub fn response_times() -> Vec<u64> {
    (0..6_588).map(|number| 2 * (2_000_000.0 * (1.0 + number as f64 % 100.0 * 0.06).powf(3.1)) as u64).collect()
}

pub fn histogram() -> Histogram {
    let mut histogram = Histogram::new();
    response_times().into_iter().for_each(|value| histogram.record(value));
    histogram
}

fn scaled(factor: f64) -> Quantiles {
    quantiles_of(&response_times().iter().map(|&value| (value as f64 * factor) as u64).collect::<Vec<_>>())
}

fn counts(pairs: &[(&str, u64)]) -> BTreeMap<String, u64> {
    pairs.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
}

pub fn check(
    name: &str,
    state: CheckState,
    weight: Weight,
    figures: Option<(f64, f64)>,
    unit: &str,
    why: &str,
) -> Check {
    Check {
        name: name.into(),
        state,
        weight,
        value: figures.map(|(value, _)| value),
        limit: figures.map(|(_, limit)| limit),
        unit: unit.into(),
        why: why.into(),
    }
}

pub fn green() -> Vec<Check> {
    let ok = |name| check(name, CheckState::Ok, Weight::Invalid, Some((1.0, 2.0)), "ns", "");
    vec![
        ok("generator_on_time"),
        ok("path_on_time"),
        ok("no_unintended_drops"),
        ok("client_cpu"),
        ok("littles_law_requests"),
        ok("littles_law_connections"),
        ok("conservation"),
        ok("steady_state"),
        check(
            "vantage_points_agree_requests",
            CheckState::NotApplicable,
            Weight::Invalid,
            None,
            "",
            "there is no packet capture",
        ),
    ]
}

pub fn load() -> Load {
    let band = |from: u64, to: u64, clients| DistanceBand {
        rtt_ns_from: from * 1_000_000,
        rtt_ns_to: to.saturating_mul(1_000_000),
        clients,
        completed: clients * 66,
        failed: 0,
        response_time_ns: quantiles_of(&[2 * from * 1_000_000 + 1_000_000, (from + to.min(800)) * 1_000_000]),
    };
    Load {
        loop_kind: "open".into(),
        offered_requests: 6_600,
        offered_rate_per_s: 110.0,
        completed: 6_588,
        achieved_rate_per_s: 109.8,
        failed: counts(&[("response_timeout", 9), ("reset", 3)]),
        malformed_responses: Vec::new(),
        in_flight_at_end: 0,
        generator_delay: Some(GeneratorDelay {
            response_time_ns: Quantiles {
                count: 212,
                p99: 1_900_000,
                p99_9: 4_100_000,
                max: 4_700_000,
                ..Quantiles::default()
            },
            stalls: 3,
            stall_max_ns: 4_700_000,
            stalled_ns: 9_100_000,
            ..GeneratorDelay::default()
        }),
        status: counts(&[("200", 6_585), ("404", 3)]),
        response_time_ns: scaled(1.0),
        service_time_ns: scaled(0.999_9),
        send_lag_ns: Quantiles { count: 6_600, ..quantiles_of(&[8_000, 9_000, 12_000, 40_000]) },
        connect_ns: scaled(0.5),
        tls_handshake_ns: None,
        tls: None,
        quic: None,
        first_byte_ns: scaled(0.999),
        connection_duration_ns: scaled(1.01),
        bytes_received: 68_900_000,
        bytes_sent: 528_000,
        requests_sent: 6_600,
        in_flight: Level { mean: 23.31, p50: 23, max: 41 },
        connections: Level { mean: 24.08, p50: 24, max: 43 },
        connections_opened: 6_600,
        backlog: Level::default(),
        by_distance: vec![band(0, 10, 21), band(10, 50, 33), band(50, 200, 30), band(200, u64::MAX / 1_000_000, 16)],
        by_url: vec![],
        open_connections: None,
        by_url_left_out: None,
        by_phase: vec![],
        sessions: None,
        replay: None,
        har: None,
        ..Load::default()
    }
}

pub fn path() -> Path {
    Path {
        profile: "koshien-2001".into(),
        clients: 100,
        configured_rtt_ns: scaled(0.5),
        measured_rtt_ns: Some(scaled(0.5)),
        rtt_error_ns: Some(quantiles_of(&[31_000, 40_000, 44_000, 96_000])),
        measured_rtt_source: "handshakes".into(),
        timing_error_ns: quantiles_of(&[2_000, 3_000, 11_000]),
        timing_error_isolated_ns: quantiles_of(&[2_000, 3_000, 11_000]),
        timing_error_burst_ns: Quantiles::default(),
        timing_error_own_ns: quantiles_of(&[2_000, 3_000, 11_000]),
        late_wakeups_ns: 0,
        run_queue_wait_ns: None,
        packet_capture: None,
        packets: 118_720,
        bytes: 75_200_000,
        drops: counts(&[("loss", 0), ("queue_full", 0)]),
        up: PathDirection::default(),
        down: PathDirection::default(),
    }
}

pub fn document() -> Document {
    Document {
        schema: SCHEMA.into(),
        run: Run {
            id: "20261120-093005-bench-qzkv".into(),
            shard: None,
            shards: Vec::new(),
            dir: "/home/me/.local/share/yamabiko/runs/20261120-093005-bench-qzkv".into(),
            command:
                "yamabiko bench --server 'nginx -c /etc/nginx/one.conf' --path koshien-2001 --clients 100 --rate 110/s \
                      --close -d 60s --seed 7 http://server:8080/10k.bin"
                    .into(),
            seed: 7,
            started_at: "2026-11-20T09:30:05.000Z".into(),
            duration_s: 60.0,
            warmup_s: 5.0,
            recorded: None,
            interrupted: false,
            host: Host {
                kernel: "6.18.0".into(),
                cpu: "AMD EPYC 9B14".into(),
                cores: 2,
                memory_bytes: 8_320_000_000,
                client_cores: Some("1".into()),
                server_cores: Some("0".into()),
                settings: [("wait", "hybrid"), ("class", "fifo")].map(|(a, b)| (a.into(), b.into())).into(),
                steal_share: Some(0.000_4),
                cpu_probe_ns: Some(11_800),
            },
        },
        validity: Validity::from_checks(green()),
        load: Some(load()),
        path: Some(path()),
        server: Some(Server {
            command: "nginx -c /etc/nginx/one.conf".into(),
            cpu_user_s: 0.21,
            cpu_system_s: 0.52,
            cpu_receive_s: Some(0.08),
            cpu_receive_interval_s: Some([0.076, 0.083]),
            cpu_us_per_request: Some(123.0),
            cpu_us_per_request_interval: Some([121.0, 124.0]),
            cores: Some(ServerCores {
                cores: 1,
                elapsed_s: 10.0,
                other_processes_s: [0.02, 0.02],
                run_queue_wait_s: Some(0.031),
                delayed_by_others_s: 0.004,
                delayed_longest_ns: 60_000,
                source: "cpuacct".into(),
                ..ServerCores::default()
            }),
            rss_bytes_max: 14_200_000,
            throttled_s: None,
            source: "cgroup v1".into(),
            tcp: "cubic, initcwnd 10".into(),
        }),
        watch: None,
        tap: None,
        slo: None,
        cache: None,
    }
}
