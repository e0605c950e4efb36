//! `yamabiko gateway` without privilege: a server and a client on this host, their output, and refused options.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;

use crate::support::workspace::{Running, Workspace, set_mode, str_of, wait_until};
use serde_json::Value;

const TOKEN: &str = "a-secret-of-this-test-1234";
const OTHER: &str = "another-secret-of-it-12345";

fn token(workspace: &Workspace, name: &str, text: &str) -> PathBuf {
    let file = workspace.file(name);
    fs::write(&file, text).unwrap();
    set_mode(&file, 0o600);
    file
}

/// Starts a server with the token; returns its address.
fn server(workspace: &Workspace) -> (Running, String) {
    let file = token(workspace, "token", TOKEN);
    listening(workspace, &["--token-file", str_of(&file)])
}

/// Starts a server with these arguments; returns its address.
fn listening(workspace: &Workspace, words: &[&str]) -> (Running, String) {
    let running = workspace.start(&[&["gateway", "server", "--listen", "127.0.0.1:0"], words].concat());
    let mut at = String::new();
    wait_until("the server listens", || {
        let stderr = running.stderr();
        let Some((_, rest)) = stderr.split_once("listening on ") else { return false };
        at = rest.split([',', ' ']).next().unwrap_or_default().to_owned();
        !at.is_empty()
    });
    (running, at)
}

/// A client's arguments: short trials, stored in the workspace only.
fn client<'a>(at: &'a str, file: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["gateway", "client", at, "--token-file", file, "--json", "-d", "500ms", "--trials", "2"], more].concat()
}

#[test]
fn a_local_gateway_measurement_is_stored_and_reported_again() {
    let workspace = Workspace::concurrent();
    let (_server, at) = server(&workspace);
    let file = workspace.file("token");
    let tests = "stream,transactions,connections,latency";
    let stat = ["--gateway-stat", "cat /proc/stat", "--condition", "2", "--tests", tests, "--direction", "up"];
    let output = workspace.run(&client(&at, str_of(&file), &stat));
    output.assert_measured();
    let document = output.json();
    assert_eq!(document["schema"], "yamabiko.run/2");
    let gateway = &document["gateway"];
    assert_eq!((gateway["mode"].as_str(), gateway["peer"].as_str()), (Some("remote"), Some(at.as_str())));
    assert_eq!((gateway["trial_s"].as_f64(), gateway["socket_bytes"].as_u64()), (Some(0.5), Some(16_384)));
    assert!(gateway["socket_bytes_actual"][0].as_u64().unwrap() >= 16_384, "{gateway}");
    let conditions = gateway["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 1);
    let condition = &conditions[0];
    assert_eq!(condition["name"], "nat", "the paper's condition number selects the name");
    assert_eq!(condition.get("link"), None, "the links of a real gateway are unknown");
    for figure in ["mbit_per_s", "transactions_per_s", "connections_per_s"] {
        let figure = &condition[figure];
        let trials: Vec<f64> =
            figure["trials"].as_array().unwrap().iter().map(|trial| trial.as_f64().unwrap()).collect();
        assert_eq!(trials.len(), 2, "{condition}");
        assert!(trials.iter().all(|&trial| trial > 0.0), "{condition}");
        let mean = figure["mean"].as_f64().unwrap();
        assert!((mean - (trials[0] + trials[1]) / 2.0).abs() <= 1e-9 * mean, "{figure}");
        let [low, high] = [0, 1].map(|end| figure["interval"][end].as_f64().unwrap());
        assert!(low <= mean && mean <= high, "{figure}");
    }
    assert_eq!(condition.get("mbit_per_s_down"), None, "the option was not given");
    assert_eq!(condition.get("packets"), None);
    for load in ["idle", "stream_up"] {
        assert!(condition["rtt_ns"][load]["count"].as_u64().unwrap() > 5, "{load}: {condition}");
    }
    assert_eq!(condition["cpu"]["stream_up"]["trials"].as_array().unwrap().len(), 2, "{condition}");
    assert!(checks(&document).iter().any(|(name, state)| name == "both_ends_one_version" && state == "ok"));

    // Again from the run store: figures, page, plots.
    let again = workspace.run(&["report", "last"]);
    assert_eq!(again.code, output.code, "{again}");
    for word in ["nat", "transactions/s", "127.0.0.1", "gateway"] {
        assert!(again.stdout.contains(word), "{word}: {again}");
    }
    assert_eq!(workspace.run(&["report", "last", "--json"]).json(), document);
    let dir = PathBuf::from(document["run"]["dir"].as_str().unwrap());
    assert!(fs::read_to_string(dir.join("report.html")).unwrap().contains("One TCP stream"));
    workspace.run(&["report", "last", "--export", "hlog", "-"]).refused(1, &["--export", "gateway"]);
    // The stored plan gives the same measurement.
    let plan = dir.join("plan.toml");
    let printed = workspace.run(&["run", str_of(&plan), "--print-plan"]);
    assert_eq!(printed.stdout, fs::read_to_string(&plan).unwrap(), "{printed}");
}

/// A server without a secret listens on loopback only.
#[test]
fn gateway_server_on_loopback_needs_no_secret() {
    let workspace = Workspace::concurrent();
    let (_server, at) = listening(&workspace, &[]);
    let words = ["--json", "--no-save", "--tests", "transactions", "-d", "500ms", "--trials", "1", "--direction", "up"];
    let output = workspace.run(&[&["gateway", "client", &at], &words[..]].concat());
    output.assert_measured();
    let document = output.json();
    assert!(document["gateway"]["conditions"][0]["transactions_per_s"]["mean"].as_f64().unwrap() > 0.0, "{document}");
}

fn checks(document: &Value) -> Vec<(String, String)> {
    let of = |check: &Value, key: &str| check[key].as_str().unwrap().to_owned();
    let checks = document["validity"]["checks"].as_array().unwrap();
    checks.iter().map(|check| (of(check, "name"), of(check, "state"))).collect()
}

#[test]
fn gateway_errors_name_their_cause() {
    let workspace = Workspace::concurrent();
    let (server, at) = server(&workspace);
    let (file, other) = (workspace.file("token"), token(&workspace, "other", OTHER));
    workspace.run(&client(&at, str_of(&other), &[])).refused(2, &["does not know this secret", "127.0.0.1"]);
    // No server.
    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    workspace.run(&client(&unused, str_of(&file), &[])).refused(2, &["cannot be reached", &unused]);
    // A server of another kind that responds to everything.
    let other_server = TcpListener::bind("127.0.0.1:0").unwrap();
    let other_address = other_server.local_addr().unwrap().to_string();
    let responding = std::thread::spawn(move || {
        let (mut stream, _) = other_server.accept().unwrap();
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    workspace.run(&client(&other_address, str_of(&file), &[])).refused(2, &["is not a gateway server", &other_address]);
    responding.join().unwrap();
    // No secret, or an invalid one.
    let words = ["no token", "--token-file", "YAMABIKO_TOKEN"];
    workspace.run(&["gateway", "client", "192.0.2.7", "--json"]).refused(1, &words);
    workspace
        .run(&["gateway", "client", &at, "--json"])
        .refused(2, &[&words[..], &["does not know this secret"]].concat());
    let short = token(&workspace, "short", "short");
    workspace.run(&client(&at, str_of(&short), &[])).refused(1, &["16 to 256"]);
    workspace
        .run(&client("127.0.0.1:port", str_of(&file), &[]))
        .refused(1, &["`port` is not a valid port", "ADDRESS:PORT"]);
    drop(server);
    let stored =
        fs::read_dir(workspace.runs()).unwrap().filter(|entry| entry.as_ref().unwrap().path().is_dir()).count();
    assert_eq!(stored, 0, "without a measurement no run is stored");
}

#[test]
fn invalid_gateway_options_are_refused_in_one_line() {
    let workspace = Workspace::concurrent();
    let refused = |arguments: &[&str], words: &[&str]| {
        workspace.run(&[&["gateway"], arguments].concat()).refused(1, words);
    };
    refused(&["--condition", "6"], &["nat-proxy-idle", "1 to 5"]);
    refused(&["--link", "fast"], &["--link"]);
    refused(&["--link", "10Mbit,delay=1ms"], &["delay"]);
    refused(&["--tests", "streams"], &["transactions"]);
    refused(&["--sizes", "63"], &["sizes", "64 to 1500"]);
    refused(&["--trials", "0"], &["trials"]);
    refused(&["-d", "100ms"], &["500ms"]);
    refused(&["--gateway-cpu", "0%"], &["--gateway-cpu", "none"]);
    refused(&["--load", "fast"], &["wget"]);
    refused(&["--width", "90%"], &["--width"]);
    refused(&["--server", "true"], &["<CMD>"]);
    refused(&["--json", "--", "true"], &["-- CMD"]);
    refused(&["--condition", "none,nat", "--", "true"], &["--condition"]);
    refused(&["--condition", "proxy-loaded", "--", "true"], &["proxy"]);
    refused(&["client"], &["ADDRESS"]);
    refused(&["client", "127.0.0.1", "--proxy", "127.0.0.1:3128"], &["--origin-at"]);
    refused(&["client", "127.0.0.1", "--link", "10Mbit"], &["--link"]);
    let plan = workspace.file("wrong.toml");
    fs::write(&plan, "[gateway]\ntrials = 3\nsize = [64]\n").unwrap();
    workspace.run(&["run", str_of(&plan)]).refused(1, &["wrong.toml:3:", "size"]);
}

#[test]
fn a_printed_gateway_plan_reads_back() {
    let workspace = Workspace::concurrent();
    let words =
        ["--condition", "2,5", "--link", "10Mbit,queue=128KB,loss=1%", "--gateway-cpu", "none", "--tests", "packets"];
    let more = [
        "--loss",
        "0.1%",
        "--sizes",
        "128",
        "--load",
        "wget",
        "--setup",
        "true",
        "--seed",
        "7",
        "--name",
        "school",
        "--print-plan",
    ];
    let printed = workspace.run(&[&["gateway"], &words[..], &more[..]].concat()).success();
    for line in
        ["name = \"school\"", "\"proxy-loaded\"", "share = \"none\"", "load = \"wget\"", "10Mbit,queue=128KB,loss=0.01"]
    {
        assert!(printed.stdout.contains(line), "{line}: {printed}");
    }
    let plan = workspace.file("plan.toml");
    fs::write(&plan, &printed.stdout).unwrap();
    let again = workspace.run(&["run", str_of(&plan), "--print-plan"]).success();
    assert_eq!(again.stdout, printed.stdout);
}
