//! `yamabiko predict` of `yamabiko serve` with a CPU limit of a tenth of a core: the bottleneck is known. The accuracy
//! is measured by the bench on a quiet machine.

use std::process::Stdio;

use crate::support::document::number;
use crate::support::servers::yamabiko_serve;
use crate::support::workspace::{TEST_TIMEOUT, Workspace, str_of};

#[test]
fn a_cpu_limit_limits_the_predicted_capacity() {
    let workspace = Workspace::new();
    let server = format!("{} --threads 1", yamabiko_serve(&workspace));
    let mut words = vec!["predict", "http://server:8080/10k.bin", "--server", &server, "--server-cpu", "10%"];
    words.extend(["--loads", "3", "--load-time", "300ms", "--warmup", "100ms", "--no-memory", "--json"]);
    let document = workspace.run_json(&words);
    let predict = &document["predict"];
    let kinds: Vec<&str> =
        predict["loads"].as_array().unwrap().iter().map(|load| load["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "light").count(), 3, "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| **kind == "saturated").count(), 3, "{kinds:?}");
    assert_eq!(predict["bound_by"], "cpu_quota", "{predict}");
    let rate = number(&document, "predict.rate_per_s");
    assert!(rate > 0.0);
    let limits = predict["limits"].as_array().unwrap();
    assert!(
        limits.iter().any(|limit| limit["resource"] == "cores" && limit["rate_per_s"].as_f64().unwrap() >= rate),
        "{limits:?}"
    );
    // On a busy machine the interval from three loads may have no upper end, and is then absent.
    if let Some(interval) = predict["interval"].as_array() {
        let [low, high] = [0, 1].map(|end| interval[end].as_f64().unwrap());
        assert!(low <= rate && rate <= high, "{low} {rate} {high}");
    }
    // A request uses CPU time, less than the complete share of a second. If the generator is too slow, no load counts
    // as limited.
    let demands = predict["demands"].as_array().unwrap();
    let of = |loads: &str| demands.iter().find(|demand| demand["loads"] == loads && demand["resource"] == "processes");
    let seconds = of("saturated").or_else(|| of("light")).unwrap()["seconds"].as_f64().unwrap();
    assert!(seconds > 0.0 && seconds < 0.1, "{demands:?}");
}

/// For a modelled server, the prediction starts only its components.
#[test]
fn components_predict_a_server_that_was_not_run() {
    let workspace = Workspace::new();
    let page = workspace.file("page.html");
    let mut words = vec!["predict", "http://server:8080/10k.bin", "--components", "--close", "--rtt", "20ms"];
    words.extend(["--object", "1KB:3", "--object", "100KB", "--model-body", "read", "--model-log", "line"]);
    words.extend(["--model-cpu", "10%", "--workers", "1000", "--load-time", "500ms", "--warmup", "100ms"]);
    words.extend(["--html", str_of(&page), "--json"]);
    // About thirty sequential loads.
    let mut command = workspace.command(&words);
    command.stdin(Stdio::null());
    let output = workspace.start_command(command).finish_within(TEST_TIMEOUT * 4);
    output.assert_measured();
    let document = output.json();
    let predict = &document["predict"];
    let names: Vec<&str> = predict["components"]
        .as_array()
        .unwrap()
        .iter()
        .map(|component| component["component"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["receive", "send", "connection", "parse", "open-read", "log-line"]);
    assert!(predict["loads"].as_array().unwrap().iter().all(|load| load["kind"] == "component"), "{predict}");
    assert!(predict["demands"].as_array().unwrap().is_empty());
    // The service demands of a request are a sum, and the workload is the weighted sum of its classes.
    let sum = &predict["component_sum"];
    let float = |value: &serde_json::Value| value.as_f64().unwrap();
    let mut weighted_sum = 0.0;
    for class in sum["classes"].as_array().unwrap() {
        let terms: f64 = class["terms"].as_array().unwrap().iter().map(|term| float(&term["processes_s"])).sum();
        assert!((terms / float(&class["processes_s"]) - 1.0).abs() < 1e-9, "{class}");
        weighted_sum += float(&class["share"]) * terms;
    }
    let processes_s = float(&sum["processes_s"]);
    assert!((weighted_sum / processes_s - 1.0).abs() < 1e-9 && processes_s > 1e-6 && processes_s < 1e-2, "{sum}");
    // With a tenth of a core, and a thousand workers for at least 20 ms each, the CPU is the bottleneck.
    let of = |resource: &str| {
        let limits = predict["limits"].as_array().unwrap();
        limits.iter().find(|limit| limit["resource"] == resource).map(|limit| float(&limit["rate_per_s"]))
    };
    assert!((of("cpu_quota").unwrap() * processes_s / 0.1 - 1.0).abs() < 1e-9, "{predict}");
    // Mean and percentiles of response times come from one queue, whose service time includes receive processing, and
    // from the same path.
    let cores_s = float(&sum["cores_s"]);
    assert!(cores_s >= processes_s, "{sum}");
    let curve = predict["curve"].as_array().unwrap();
    assert!(!curve.is_empty());
    for point in curve {
        let [mean, p50, p99] = ["mean_s", "p50_s", "p99_s"].map(|name| float(&point[name]));
        assert!(p50 <= p99 && mean <= p99 && mean >= 0.02 + cores_s && p99 >= 0.02 + cores_s, "{point}");
    }
    // 100 KB need further congestion windows, each of which takes a round trip.
    assert!(of("workers").unwrap() < 1000.0 / 0.020, "{predict}");
    assert_eq!(sum["rate_per_s"], predict["rate_per_s"]);
    assert!(std::fs::read_to_string(page).unwrap().contains("<h2>Components</h2>"));
}

/// A short version of the complete experiment compares both predictions with the measured capacity.
#[test]
fn both_predictions_are_compared_with_the_measured_capacity() {
    let workspace = Workspace::new();
    let server = format!("{} --threads 1", yamabiko_serve(&workspace));
    let mut words = vec!["predict", "http://server:8080/10k.bin", "--server", &server, "--server-cpu", "5%"];
    words.extend(["--components", "--object", "10KiB", "--loads", "3", "--load-time", "300ms", "--warmup", "100ms"]);
    words.extend(["--no-memory", "--check", "--check-trial", "2s", "--slo", "p99 < 1s, errors < 1%", "--json"]);
    // About sixty sequential runs.
    let mut command = workspace.command(&words);
    command.stdin(Stdio::null());
    let output = workspace.start_command(command).finish_within(TEST_TIMEOUT * 4);
    output.assert_measured();
    let document = output.json();
    let predict = &document["predict"];
    let kinds = |kind: &str| predict["loads"].as_array().unwrap().iter().filter(|load| load["kind"] == kind).count();
    assert!(kinds("component") >= 18 && kinds("light") == 3, "{predict}");
    let rate = number(&document, "predict.component_sum.rate_per_s");
    assert!(rate > 0.0 && predict["component_sum"]["bound_by"] == "cpu_quota", "{predict}");
    assert!(number(&document, "predict.component_sum.cost_error") > -1.0);
    // On a busy machine the search may find no sustained load; then the result has no comparison, and reports that.
    match predict["measured_rate_per_s"].as_f64() {
        Some(measured) => {
            let error = number(&document, "predict.component_sum.error");
            assert!((error - (rate / measured - 1.0)).abs() < 1e-9, "{predict}");
            assert!(predict["error"].is_number(), "{predict}");
        }
        None => assert!(predict["component_sum"]["error"].is_null() && predict["error"].is_null(), "{predict}"),
    }
}
