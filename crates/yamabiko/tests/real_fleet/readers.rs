//! Other programs: DuckDB reads the day files while the manager writes them, an OpenTelemetry receiver (rotel) gets the
//! OTLP export, schemathesis tests the API against its description, and more.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::once::plan;
use super::site::{Paper, Site};
use crate::fleet::TEST_TIMEOUT;
use crate::fleet::process::Process;
use crate::fleet::trial::{Plan, Stage, Trial};
use crate::support::readers;
use crate::support::workspace::{Workspace, str_of};

/// In the manager's network, which is the trial's own.
const OTLP: [&str; 2] = ["127.0.0.1:4318", "127.0.0.1:4317"];

#[test]
fn day_files_are_readable_while_written_and_otlp_arrives() {
    let _alone = Workspace::new();
    let url = format!("http://{}", OTLP[0]);
    let words = ["--otlp", &url].map(str::to_owned).to_vec();
    let trial = Trial::start(Plan { manager_words: words, harm_every: None, ..plan((6, 15, 50)) }).unwrap();
    let rotel = rotel(&trial);
    let (mut readings, mut said) = (Vec::new(), BTreeMap::new());
    let mut last = Instant::now();
    let held = trial
        .run_beside(|trial, stage| {
            if stage == Stage::Working && last.elapsed() < Duration::from_millis(500) {
                return Ok(());
            }
            last = Instant::now();
            readings.push(trial.read(&["days"])?);
            if stage == Stage::Stored {
                let stored = trial.read(&["stored"])?["rows"].as_f64().unwrap_or(0.0);
                let deadline = Instant::now() + TEST_TIMEOUT;
                // Rows are stored first and reported afterwards.
                while said.get("attempts").copied().unwrap_or(0.0) < wanted(trial)? && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(500));
                    said = sums(&rotel.said());
                }
                println!("{stored} rows stored; by OTLP {said:?}");
                readings.push(trial.read(&["days"])?);
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(held.faults(), [""; 0], "{:#}", held.found);
    // Every intermediate result of DuckDB is a part of the final one: it never shrinks, and no row is duplicated.
    let rows: Vec<u64> = readings.iter().map(|reading| reading["rows"].as_u64().unwrap()).collect();
    assert!(rows.is_sorted() && rows.iter().filter(|&&rows| rows > 0).count() > 3, "{rows:?}");
    let of = |name: &str| held.found[name].as_u64().unwrap();
    assert_eq!(rows.last(), Some(&of("found")), "the last reading, before the manager ended");
    let attempts = of("exchanges") + of("refused");
    assert_eq!((said["attempts"], said["failed"]), (attempts as f64, of("refused") as f64), "{said:?}");
    let sent: i64 =
        readings.last().unwrap()["agents"].as_object().unwrap().values().map(|one| one["sent"].as_i64().unwrap()).sum();
    assert_eq!(said["sent"], sent as f64, "{said:?}");
}

/// Attempts that the accounts come to.
fn wanted(trial: &Trial) -> crate::fleet::Result<f64> {
    let mut lines = 0;
    for account in fs::read_dir(trial.folder().join("accounts"))? {
        lines += fs::read_to_string(account?.path())?.lines().filter(|line| !line.contains(",unused,")).count() - 1;
    }
    Ok(lines as f64)
}

/// A receiver in the manager's network, which shows each point that comes.
fn rotel(trial: &Trial) -> Process {
    let python = readers::folder().join("venv/bin/python");
    let (pid, log) = (trial.folder().join("rotel.pid"), trial.folder().join("rotel-own.log"));
    let mut words = vec![str_of(&python), "-c", FIND, "start", "--exporter", "blackhole", "--debug-log", "metrics"];
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

/// The receiver's binary is inside its package.
const FIND: &str = "import os, rotel, sys; agent = os.path.join(os.path.dirname(rotel.__file__), 'rotel-agent'); \
                    os.execv(agent, [agent] + sys.argv[1:])";

/// Of each shown sum the newest value of each series, added up: attempts, failures, bytes sent. Sums are cumulative:
/// the last value counts.
fn sums(shown: &str) -> BTreeMap<&'static str, f64> {
    let mut newest = BTreeMap::new();
    let (mut agent, mut metric, mut attributes) = ("", "", Vec::new());
    for line in shown.lines().map(str::trim) {
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

/// Bounded by the number of examples, and on a slow machine by their time; the seed makes them the same each time.
#[test]
fn responses_of_the_api_match_its_openapi_description() {
    let site = Site::start(&[]);
    let mut shop = Paper::known(&site, "shop", "a");
    for _ in 0..3 {
        shop.goes_on(&site);
    }
    let boss = site.token("boss", "operator");
    let description = site.get(&boss, "/openapi.json");
    assert_eq!(description.status, 200);
    assert!(description.body["openapi"].as_str().unwrap().starts_with("3."));
    let file = site.workspace.file("openapi.json");
    let mut description = description.body;
    // Names that were listed are tried again: it must not revoke the token that it comes with.
    site.token("ghost", "reader");
    always(&mut description["paths"]["/api/1/tokens/{name}"], "ghost");

    let kept = site.kept();
    // Unauthenticated and as an operator, with every permission except the agents'; then as an agent, about itself.
    for (who, token) in [("nobody", "nobody.x"), ("operator", &*boss), ("agent", &shop.token)] {
        if who == "agent" {
            assert_eq!(site.kept(), kept, "nobody but an agent stores anything");
            let paths = description["paths"].as_object_mut().unwrap();
            paths.retain(|path, _| path.ends_with("/hello") || path.ends_with("/batches"));
            assert_eq!(paths.len(), 2);
            always(&mut description, &shop.name);
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
            if who == "nobody" { "10" } else { SECONDS },
            "--request-timeout",
            "20",
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
        println!("as {who}: {}", output.stdout.lines().rev().take(12).collect::<Vec<_>>().join(" | "));
        assert_eq!(output.code, Some(0), "as {who}: {output}");
    }
    // The manager runs, and the authenticated agent continues. (Rows stored with its token meanwhile belong to other
    // streams.)
    assert_eq!(site.get(&boss, "/agents").status, 200);
    shop.goes_on(&site);
    assert_eq!(site.stored()["streams"][&shop.stream], json!(4));
    let log = site.serving.running.stderr();
    assert!(!log.contains("panicked"), "{log}");
}

/// Whatever stands in a path is this name.
fn always(description: &mut Value, name: &str) {
    match description {
        Value::Object(fields) if fields.get("in") == Some(&json!("path")) => {
            fields.insert("schema".into(), json!({ "type": "string", "enum": [name] }));
        }
        Value::Object(fields) => fields.values_mut().for_each(|inner| always(inner, name)),
        Value::Array(items) => items.iter_mut().for_each(|inner| always(inner, name)),
        _ => {}
    }
}

/// No status from 500 on, none outside of the description, and no body of another form.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance";
const SECONDS: &str = if cfg!(feature = "full") { "300" } else { "30" };
const EXAMPLES: &str = if cfg!(feature = "full") { "200" } else { "25" };
