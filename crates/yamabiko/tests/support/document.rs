//! Reads a run's JSON document as another program would: by the names of its fields.

use std::collections::BTreeSet;

use serde_json::Value;

/// The required fields of each object. [`assert_fields`] also checks the fields of distributions and gauges.
const REQUIRED_FIELDS: [(&str, &str); 10] = [
    ("", "schema run validity load path watch server"),
    ("run", "id dir command seed started_at duration_s host"),
    ("validity", "verdict checks"),
    ("validity.checks.*", "name state unit why"),
    (
        "load",
        "offered_requests offered_rate_per_s completed achieved_rate_per_s failed status response_time_ns \
         service_time_ns send_lag_ns connect_ns first_byte_ns connection_duration_ns bytes_received bytes_sent \
         in_flight connections by_distance",
    ),
    ("load.by_distance.*", "rtt_ns_from rtt_ns_to clients completed response_time_ns"),
    ("path", "profile clients configured_rtt_ns measured_rtt_ns timing_error_ns packets bytes drops"),
    (
        "watch",
        "packets capture_drops connections in_flight request_rate_per_s connection_rate_per_s sessions handshake_rtt_ns \
         service_time_ns retransmitted",
    ),
    ("watch.connections", "mean p50 max count"),
    ("server", "cpu_user_s cpu_system_s cpu_us_per_request rss_bytes_max"),
];

/// The permitted additional fields of each object. An unlisted field is an error.
const OPTIONAL_FIELDS: [(&str, &str); 10] = [
    ("", ""),
    ("run", "warmup_s interrupted recorded"),
    ("validity", ""),
    ("validity.checks.*", "weight value limit"),
    (
        "load",
        "loop in_flight_at_end connections_opened backlog requests_sent requests_retried early_responses stray_lines \
         unsolicited malformed_responses generator_delay",
    ),
    ("load.by_distance.*", "failed"),
    (
        "path",
        "rtt_error_ns measured_rtt_source timing_error_isolated_ns timing_error_burst_ns timing_error_own_ns \
         late_wakeups_ns run_queue_wait_ns packet_capture up down",
    ),
    (
        "watch",
        "source capture_point bytes tcp_packets malformed_packets later_fragments missing_bytes requests responses \
         response_rate_per_s status incomplete by_direction data_packets retransmit_share out_of_order",
    ),
    ("watch.connections", "states evicted"),
    ("server", "command cpu_receive_s cpu_receive_interval_s cpu_us_per_request_interval cores throttled_s source tcp"),
];

const DISTRIBUTION: &str = "count mean stddev min p50 p75 p90 p95 p99 p99_9 p99_99 max";
const GAUGE: &str = "mean p50 max";

/// Asserts that the document of a run through a path to the testbed's server has the required fields and no unknown
/// ones.
pub fn assert_fields(document: &Value) {
    for ((part, required), (_, optional)) in REQUIRED_FIELDS.iter().zip(OPTIONAL_FIELDS) {
        for object in parts(document, part) {
            let has: BTreeSet<&str> = object.as_object().unwrap().keys().map(String::as_str).collect();
            let required: BTreeSet<&str> = words(required);
            let missing: Vec<_> = required.difference(&has).collect();
            let unknown: Vec<_> =
                has.iter().filter(|name| !required.contains(**name) && !words(optional).contains(**name)).collect();
            assert!(missing.is_empty() && unknown.is_empty(), "`{part}`: missing {missing:?}, unknown {unknown:?}");
        }
    }
    for part in ["load", "path", "watch"] {
        for (name, value) in document[part].as_object().unwrap() {
            let expected = match name.as_str() {
                "connections" if part == "watch" => continue,
                // Sums, not distributions.
                "late_wakeups_ns" | "run_queue_wait_ns" => continue,
                "in_flight" | "connections" | "backlog" | "sessions" => GAUGE,
                name if name.ends_with("_ns") => DISTRIBUTION,
                _ => continue,
            };
            let has: BTreeSet<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
            assert_eq!(has, words(expected), "{part}.{name}");
        }
    }
    assert_eq!(document["schema"], "yamabiko.run/2");
}

/// A number by the path of its field, such as `load.response_time_ns.p99`.
pub fn number(document: &Value, path: &str) -> f64 {
    let found = path.split('.').fold(document, |value, name| &value[name]);
    found.as_f64().unwrap_or_else(|| panic!("`{path}` is {found}"))
}

/// A count by the path of its field.
pub fn count(document: &Value, path: &str) -> u64 {
    let found = path.split('.').fold(document, |value, name| &value[name]);
    found.as_u64().unwrap_or_else(|| panic!("`{path}` is {found}"))
}

/// Asserts that these checks ran and passed.
pub fn assert_checks_passed(document: &Value, names: &[&str]) {
    for name in names {
        let check = check(document, name);
        assert_eq!(check["state"], "ok", "{check}");
    }
}

/// Asserts that these checks passed, or that the run reports a disturbance by the machine: a busy machine can fail
/// them.
pub fn assert_checks_passed_or_disturbed(document: &Value, names: &[&str]) {
    if names.iter().any(|name| check(document, name)["state"] != "ok") && !disturbed(document) {
        assert_checks_passed(document, names);
    }
}

/// What a build without optimisation may take to decrypt and read a response, nanoseconds.
const UNOPTIMISED_NS: f64 = 1e6;

/// Asserts that the packet capture has the requests, responses, statuses and connections of the load, warm-up included,
/// and that both time requests alike, unless the run reports a disturbed machine: to [`UNOPTIMISED_NS`], since between
/// the packet and the load lies the load's own decryption.
pub fn assert_packets_agree(document: &Value) {
    let counts = ["vantage_points_agree_requests", "vantage_points_agree_sends", "vantage_points_agree_connections"];
    assert_checks_passed(document, &counts);
    let service_time = check(document, "vantage_points_agree_service_time");
    let is_near = service_time["value"].as_f64().is_some_and(|difference_ns| difference_ns < UNOPTIMISED_NS);
    if !is_near {
        assert_checks_passed_or_disturbed(document, &["vantage_points_agree_service_time"]);
    }
    let (load, wire) = (&document["load"], &document["watch"]);
    assert!(wire.get("unread").is_none() && wire.get("undecrypted_connections").is_none(), "{wire}");
    // The checks compare every request of the run; the phase's counts differ by those in flight at its ends.
    let completed = count(load, "completed");
    let status = wire["status"].as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>();
    let is_alike = status.abs_diff(completed) <= completed / 10 + 1;
    assert!(is_alike || disturbed(document), "{completed} completed, {wire}");
    assert!(count(wire, "service_time_ns.count") > 0 && count(wire, "handshake_rtt_ns.count") > 0, "{wire}");
}

/// One check by its name.
pub fn check<'a>(document: &'a Value, name: &str) -> &'a Value {
    let checks = document["validity"]["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no check `{name}`"))
}

/// Names of the checks that failed or could not run.
pub fn checks_not_ok(document: &Value) -> Vec<&str> {
    let checks = document["validity"]["checks"].as_array().unwrap();
    let not_ok = checks.iter().filter(|check| check["state"] == "failed" || check["state"] == "could_not_run");
    not_ok.map(|check| check["name"].as_str().unwrap()).collect()
}

/// Whether the run reports a disturbance by the machine. The run's times are then unreliable; its counts are not.
pub fn disturbed(document: &Value) -> bool {
    let not_ok = checks_not_ok(document);
    let disturbed = not_ok.iter().any(|name| MACHINE_CHECKS.contains(name));
    if disturbed {
        println!("the run reports a disturbed machine: {not_ok:?}");
    }
    disturbed
}

/// Checks that fail if other load takes the machine's CPU time; other checks may fail with them.
const MACHINE_CHECKS: [&str; 6] = [
    "generator_on_time",
    "path_on_time",
    "loop_not_stalled",
    "machine_undisturbed",
    "server_cpu_attributable",
    "server_cores_undisturbed",
];

fn parts<'a>(document: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![document];
    for name in path.split('.').filter(|name| !name.is_empty()) {
        found = match name {
            "*" => found.into_iter().flat_map(|value| value.as_array().unwrap()).collect(),
            name => found.into_iter().map(|value| &value[name]).collect(),
        };
    }
    found
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split_whitespace().collect()
}

/// Checks the bracket of a `capacity` search of 5 % width for a server of four workers of 20 ms, 200/s. On a busy machine
/// (a trial was disturbed, or the host was) checks that the result reports doubts instead. True if the bracket was checked.
pub fn assert_known_capacity(document: &Value) -> bool {
    let part = &document["capacity"];
    let trials = part["trials"].as_array().unwrap();
    if trials.iter().any(|trial| trial["verdict"] == "void") {
        let is_doubtful = part["converged"] == true || part["notes"].as_array().is_some_and(|notes| !notes.is_empty());
        assert!(is_doubtful, "{document:#}");
        eprintln!("trials were disturbed: no figure is checked");
        return false;
    }
    assert_eq!(part["converged"], true, "{document:#}");
    if check(document, "host_undisturbed")["state"] == "failed" {
        assert_ne!(document["validity"]["verdict"], "valid", "{document:#}");
        eprintln!("the host was disturbed: no figure is checked");
        return false;
    }
    let bound = |name: &str| part["searches"][0][name].as_f64().unwrap();
    let (lower, upper) = (bound("lower"), bound("upper"));
    eprintln!("bracket: {lower} to {upper}");
    let truth = 200.0;
    // At 2 % above the capacity the queue grows by 4 requests per second: after nine tenths of a 3 s trial a
    // request waits 54 ms, which with its own 20 ms is too long. So the lower bound is at most 2 % above the truth, and
    // the upper one, 5 % wide, at most 7 %.
    assert!(lower < upper, "{lower} {upper}");
    let is_near = (0.94..1.02).contains(&(lower / truth)) && (0.98..1.075).contains(&(upper / truth));
    assert!(is_near, "{lower} to {upper} of {truth}: {document:#}");
    true
}
