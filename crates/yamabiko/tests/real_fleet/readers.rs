//! Other programs as readers: DuckDB reads the day files while the manager writes them, an OpenTelemetry receiver
//! (rotel) gets the OTLP export, and schemathesis tests the API against its OpenAPI description.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::once::plan;
use super::site::{SimulatedAgent, Site};
use crate::fleet::TEST_TIMEOUT;
use crate::fleet::process::Process;
use crate::fleet::trial::{Plan, Stage, Trial};
use crate::support::readers;
use crate::support::workspace::{Workspace, str_of};

/// Addresses of the receiver (HTTP, gRPC), in the manager's network of the trial.
const OTLP: [&str; 2] = ["127.0.0.1:4318", "127.0.0.1:4317"];

#[test]
fn day_files_are_readable_while_written_and_otlp_arrives() {
    let _alone = Workspace::new();
    let url = format!("http://{}", OTLP[0]);
    let words = ["--otlp", &url].map(str::to_owned).to_vec();
    let trial = Trial::start(Plan { manager_arguments: words, fault_interval: None, ..plan((6, 15, 50)) }).unwrap();
    let rotel = rotel(&trial);
    let (mut readings, mut received) = (Vec::new(), BTreeMap::new());
    let mut last = Instant::now();
    let outcome = trial
        .run_with_observer(|trial, stage| {
            if stage == Stage::Working && last.elapsed() < Duration::from_millis(500) {
                return Ok(());
            }
            last = Instant::now();
            readings.push(trial.read(&["days"])?);
            if stage == Stage::Stored {
                let stored = trial.read(&["stored"])?["rows"].as_f64().unwrap_or(0.0);
                let deadline = Instant::now() + TEST_TIMEOUT;
                // Rows are stored first and reported afterwards.
                while received.get("attempts").copied().unwrap_or(0.0) < expected_attempts(trial)?
                    && Instant::now() < deadline
                {
                    std::thread::sleep(Duration::from_millis(500));
                    received = sums(&rotel.log_text());
                }
                println!("{stored} rows stored; by OTLP {received:?}");
                readings.push(trial.read(&["days"])?);
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(outcome.failures(), [""; 0], "{:#}", outcome.found);
    // Every intermediate result of DuckDB is a part of the final one: it never shrinks, and no row is duplicated.
    let rows: Vec<u64> = readings.iter().map(|reading| reading["rows"].as_u64().unwrap()).collect();
    assert!(rows.is_sorted() && rows.iter().filter(|&&rows| rows > 0).count() > 3, "{rows:?}");
    let of = |name: &str| outcome.found[name].as_u64().unwrap();
    assert_eq!(rows.last(), Some(&of("found")), "the last reading has all rows");
    let attempts = of("exchanges") + of("refused");
    assert_eq!((received["attempts"], received["failed"]), (attempts as f64, of("refused") as f64), "{received:?}");
    let sent: i64 =
        readings.last().unwrap()["agents"].as_object().unwrap().values().map(|one| one["sent"].as_i64().unwrap()).sum();
    assert_eq!(received["sent"], sent as f64, "{received:?}");
}

/// Number of attempts in the programs' accounts.
fn expected_attempts(trial: &Trial) -> crate::fleet::Result<f64> {
    let mut lines = 0;
    for account in fs::read_dir(trial.folder().join("accounts"))? {
        lines += fs::read_to_string(account?.path())?.lines().filter(|line| !line.contains(",unused,")).count() - 1;
    }
    Ok(lines as f64)
}

/// Starts a receiver in the manager's network that prints each received data point.
fn rotel(trial: &Trial) -> Process {
    let python = readers::folder().join("venv/bin/python");
    let (pid, log) = (trial.folder().join("rotel.pid"), trial.folder().join("rotel-own.log"));
    let mut words =
        vec![str_of(&python), "-c", EXEC_ROTEL, "start", "--exporter", "blackhole", "--debug-log", "metrics"];
    words.extend([
        "--debug-log-verbosity",
        "detailed",
        "--otlp-http-endpoint",
        OTLP[0],
        "--otlp-grpc-endpoint",
        OTLP[1],
    ]);
    words.extend(["--pid-file", str_of(&pid), "--log-file", str_of(&log)]);
    Process::start(trial.networks().at_manager(&words), &trial.folder().join("rotel.log")).unwrap()
}

/// Python code that executes the receiver's binary, which is inside its package.
const EXEC_ROTEL: &str = "import os, rotel, sys; agent = os.path.join(os.path.dirname(rotel.__file__), 'rotel-agent'); \
                    os.execv(agent, [agent] + sys.argv[1:])";

/// The sum over all series of the newest printed value, by metric: attempts, failures, bytes sent. OTLP sums are
/// cumulative, so the last value counts.
fn sums(printed: &str) -> BTreeMap<&'static str, f64> {
    let mut newest = BTreeMap::new();
    let (mut agent, mut metric, mut attributes) = ("", "", Vec::new());
    for line in printed.lines().map(str::trim) {
        if let Some((_, name)) = line.split_once("service.instance.id: Str(") {
            agent = name;
        } else if let Some((_, name)) = line.split_once("Name: ") {
            metric = name;
            attributes.clear();
        } else if line.starts_with("NumberDataPoints #") {
            attributes.clear();
        } else if line.contains(": Str(") {
            attributes.push(line);
        } else if let Some(value) = line.strip_prefix("Value:").and_then(|value| value.trim().parse::<f64>().ok()) {
            newest.insert((agent, metric, attributes.clone()), value);
        }
    }
    let mut sums = BTreeMap::new();
    for ((_, metric, attributes), value) in newest {
        let sent = || attributes.iter().any(|attribute: &&str| attribute.contains("direction: Str(transmit)"));
        let sum = match metric {
            "yamabiko.tap.attempts" => "attempts",
            "yamabiko.tap.failures" => "failed",
            "yamabiko.tap.io" if sent() => "sent",
            _ => continue,
        };
        *sums.entry(sum).or_insert(0.0) += value;
    }
    sums
}

/// The number of examples is limited, and on a slow machine also their time. The seed makes them the same in each run.
#[test]
fn responses_of_the_api_match_its_openapi_description() {
    let site = Site::start(&[]);
    let mut shop = SimulatedAgent::known(&site, "shop", "a");
    for _ in 0..3 {
        shop.sends_next_batch(&site);
    }
    let boss = site.token("boss", "operator");
    let description = site.get(&boss, "/openapi.json");
    assert_eq!(description.status, 200);
    assert!(description.body["openapi"].as_str().unwrap().starts_with("3."));
    let file = site.workspace.file("openapi.json");
    let mut description = description.body;
    // schemathesis reuses names from responses: it must not revoke the token that it uses.
    site.token("ghost", "reader");
    restrict_path_parameters(&mut description["paths"]["/api/1/tokens/{name}"], "ghost");

    let before = site.index_state();
    // Unauthenticated; as an operator, with every permission except the agents'; then as an agent, on its own routes.
    for (role, token) in [("unauthenticated", "unknown.x"), ("operator", &*boss), ("agent", &shop.token)] {
        if role == "agent" {
            assert_eq!(site.index_state(), before, "only an agent stores rows");
            let paths = description["paths"].as_object_mut().unwrap();
            paths.retain(|path, _| path.ends_with("/hello") || path.ends_with("/batches"));
            assert_eq!(paths.len(), 2);
            restrict_path_parameters(&mut description, &shop.name);
        }
        fs::write(&file, description.to_string()).unwrap();
        let mut command = Command::new(readers::folder().join("venv/bin/schemathesis"));
        command.args(["run", str_of(&file), "--url", &format!("https://{}", site.serving.address)]);
        command.args(["-H", &format!("Authorization: Bearer {token}"), "--tls-verify", str_of(&site.authority())]);
        command.args([
            "--checks",
            CHECKS,
            "--max-examples",
            EXAMPLES,
            "--seed",
            "12",
            "--max-time",
            if role == "unauthenticated" { "10" } else { SECONDS },
            // As long as the manager's own.
            "--request-timeout",
            "60",
            // A busy machine generates examples slowly.
            "--suppress-health-check",
            "too_slow",
            "--no-color",
        ]);
        command.args([
            "--phases",
            "examples,coverage,fuzzing",
            "--continue-on-failure",
            "--generation-database",
            "none",
        ]);
        command.env("HOME", site.workspace.path()).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null());
        let output = site.workspace.start_command(command).finish_within(Duration::from_secs(600));
        println!("as {role}: {}", output.stdout.lines().rev().take(12).collect::<Vec<_>>().join(" | "));
        assert_eq!(output.code, Some(0), "as {role}: {output}");
    }
    // The manager runs, and the authenticated agent continues. (Rows stored with its token meanwhile belong to other
    // streams.)
    assert_eq!(site.get(&boss, "/agents").status, 200);
    shop.sends_next_batch(&site);
    assert_eq!(site.stored()["streams"][&shop.stream], json!(4));
    let log = site.serving.running.stderr();
    assert!(!log.contains("panicked"), "{log}");
}

/// Restricts every path parameter of the description to this name.
fn restrict_path_parameters(description: &mut Value, name: &str) {
    match description {
        Value::Object(fields) if fields.get("in") == Some(&json!("path")) => {
            fields.insert("schema".into(), json!({ "type": "string", "enum": [name] }));
        }
        Value::Object(fields) => fields.values_mut().for_each(|inner| restrict_path_parameters(inner, name)),
        Value::Array(items) => items.iter_mut().for_each(|inner| restrict_path_parameters(inner, name)),
        _ => {}
    }
}

/// Checks: no 5xx status, no undocumented status, and no body that differs from its schema.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
const SECONDS: &str = if cfg!(feature = "full") { "300" } else { "30" };
const EXAMPLES: &str = if cfg!(feature = "full") { "200" } else { "25" };
