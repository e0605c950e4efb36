//! `yamabiko cache` against a test cache with known faults: measurement, output and stored run.

use crate::support::document::count;
use crate::support::proxy::{Fault, Proxy};
use crate::support::serving::Serving;
use crate::support::workspace::{Output, Workspace};
use serde_json::Value;

/// A workspace with an origin without think time.
fn origin(workload: &str) -> (Workspace, Serving) {
    let workspace = Workspace::concurrent();
    let command = workspace.command(&[
        "serve",
        "--workload",
        workload,
        "--seed",
        "1",
        "--think",
        "none",
        "--listen",
        "127.0.0.1:0",
    ]);
    let origin = Serving::start_command(&workspace, command);
    (workspace, origin)
}

fn sweep(workspace: &Workspace, origin: &Serving, proxy: &Proxy, rest: &[&str]) -> Output {
    let (proxy, origin) = (proxy.address().to_string(), origin.address.to_string());
    let mut words = vec!["cache", "--proxy", &proxy, "--origin-at", &origin, "--think", "none"];
    words.extend(rest);
    workspace.run(&words)
}

fn points(document: &Value) -> &Vec<Value> {
    document["cache"]["points"].as_array().unwrap()
}

#[test]
fn a_cache_sweep_is_stored_and_reported_again_completely() {
    let (workspace, origin) = origin("polymix-1");
    let proxy = Proxy::forward(Fault::None);
    let output =
        sweep(&workspace, &origin, &proxy, &["--rate", "100,200/s", "-d", "2s", "--cache-size", "1MB", "--json"]);
    output.assert_measured();
    assert_eq!(output.stderr, "", "{output}");
    let document = output.json();
    assert_eq!(document["schema"], "yamabiko.run/2");
    assert_eq!(document["cache"]["workload"], "polymix-1");
    assert_eq!(points(&document).len(), 2);
    for point in points(&document) {
        let of = |name: &str| point[name].as_f64().unwrap_or_else(|| panic!("{name}: {point}"));
        assert!(of("offered_rate_per_s") > 50.0 && of("achieved_rate_per_s") > 50.0, "{point}");
        for ratio in ["hit_ratio", "byte_hit_ratio"] {
            for which in ["offered", "ideal", "ideal_lru", "measured"] {
                let share = point[ratio][which].as_f64().unwrap_or_else(|| panic!("{ratio}.{which}: {point}"));
                assert!((0.0..=1.0).contains(&share), "{ratio}.{which}: {point}");
            }
        }
        assert_eq!(of("error_ratio"), 0.0, "{point}");
        assert_eq!(
            point["wrong"].as_object().unwrap().keys().filter(|kind| *kind != "false_miss").count(),
            0,
            "{point}"
        );
        for times in ["response_time_ns", "hits_response_time_ns", "misses_response_time_ns"] {
            assert!(point[times]["count"].as_u64().unwrap() > 0, "{times}: {point}");
        }
        // The origin's own count contains the misses.
        let (reached, saved) = (count(point, "origin.requests"), point["origin"]["saved_requests"].as_i64().unwrap());
        assert!(reached > 0 && saved > 0, "{point}");
        // The origin's count includes warm-up and drain, unlike the figures of the virtual users.
        assert!(reached + saved as u64 > count(point, "requests"), "{point}");
        assert!(point["run"].as_str().unwrap().contains("-cache-"), "{point}");
    }
    let counted = proxy.counters();
    let fetched: u64 = points(&document).iter().map(|point| count(point, "origin.requests")).sum();
    assert_eq!(fetched, counted.fetched, "the cache counts the same misses");
    let saved: i64 = points(&document).iter().filter_map(|point| point["origin"]["saved_requests"].as_i64()).sum();
    assert_eq!(saved, counted.hits as i64, "saved requests are the cache's hits");
    assert_eq!(counted.hits + counted.fetched, counted.requests);
    // On a busy machine all points may be invalid: then the result has a message instead of a number.
    let notes = document["cache"]["notes"].to_string();
    assert!(
        document["cache"]["clients_supported"]["clients"].is_u64()
            != notes.contains("No number of clients supported is stated"),
        "{document:#}"
    );

    // The last run of the run store is that of the last point; the sweep has its own name.
    let id = document["run"]["id"].as_str().unwrap().to_owned();
    let again = workspace.run(&["report", &id, "--json"]);
    assert_eq!((again.json(), again.code), (document, output.code));
    let text = workspace.run(&["report", &id]).stdout;
    assert!(text.contains("an earlier request could have stored") && text.contains("polymix-1"), "{text}");
    let page = workspace.run(&["report", &id, "--html", "-"]).stdout;
    assert!(page.contains("Hit ratio") && page.contains("Error ratio"));
}

/// A reverse proxy in front of the origin, with and without persistent connections.
#[test]
fn a_reverse_proxy_gets_requests_for_its_own_address() {
    // Not the fourth workload: its origin truncates one response in a thousand, which a proxy may turn into 502.
    let (workspace, origin) = origin("polymix-3");
    let proxy = Proxy::reverse(Fault::None, origin.address);
    let (url, at) = (format!("http://{}", proxy.address()), origin.address.to_string());
    let words = [
        "cache",
        "--reverse",
        &url,
        "--origin-at",
        &at,
        "--workload",
        "polymix-3",
        "--think",
        "none",
        "--rate",
        "100/s",
        "-d",
        "2s",
    ];
    let output = workspace.run(&[&words[..], &["--clients", "20", "--json"]].concat());
    let document = output.json();
    assert_eq!(document["cache"]["proxy"], url.replace("http", "reverse http"), "{output}");
    let point = &points(&document)[0];
    assert_eq!(point["error_ratio"], 0.0, "{point}");
    assert!(count(point, "hits") > 0 && count(point, "origin.requests") > 0, "{point}");
    let wrong = point["wrong"].as_object().unwrap();
    assert!(wrong.keys().all(|kind| kind == "false_miss"), "{point}");
}

#[test]
fn wrong_responses_are_reported_with_their_request() {
    let (workspace, origin) = origin("polymix-1");
    let proxy = Proxy::forward(Fault::WrongObject);
    let output =
        sweep(&workspace, &origin, &proxy, &["--rate", "100/s", "-d", "2s", "--stop-errors", "none", "--no-save"]);
    assert_eq!(output.code, Some(3), "{output}");
    assert!(output.stdout.contains("WRONG") && output.stdout.contains("wrong object"), "{output}");
    assert!(output.stdout.contains("GET /y/"), "{output}");
    assert!(output.stderr.contains("WRONG RESPONSES: wrong object"), "printed during the sweep: {output}");
}

#[test]
fn a_cache_point_ends_early_after_too_many_failures() {
    let (workspace, origin) = origin("polymix-1");
    let proxy = Proxy::forward(Fault::Fails(6));
    let output = sweep(&workspace, &origin, &proxy, &["--rate", "100/s", "-d", "60s", "--warmup", "0", "--json"]);
    let document = output.json();
    let point = &points(&document)[0];
    assert_eq!(point["ended_early"], true, "{point}");
    // The failures end the point within two seconds; the rest of the limit is for a slow machine.
    assert!(point["duration_s"].as_f64().unwrap() < 15.0, "{point}");
    assert!(count(point, "errors.unexpected_status") > 0, "{point}");
    assert_eq!(count(&document, "cache.clients_supported.clients"), 0, "{document:#}");
    // Six of ten requests fail: a higher limit does not end the point.
    let output = sweep(&workspace, &origin, &proxy, &["--rate", "100/s", "-d", "2s", "--stop-errors", "90%", "--json"]);
    assert_eq!(points(&output.json())[0]["ended_early"], false, "{output}");
}

#[test]
fn an_unreachable_cache_is_reported_without_hanging() {
    let (workspace, origin) = origin("polymix-1");
    // A recently freed port.
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let at = origin.address.to_string();
    let output = workspace.run(&[
        "cache",
        "--proxy",
        &nowhere,
        "--origin-at",
        &at,
        "--think",
        "none",
        "--rate",
        "100/s",
        "-d",
        "20s",
    ]);
    assert_eq!(output.code, Some(3), "{output}");
    // The sweep ends in the warm-up, as soon as all connections are refused.
    assert!(output.stdout.contains(&format!("nothing listens on {nowhere}: the first ")), "{output}");
    let unwrapped = output.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(unwrapped.contains("No responses: no request was sent in a measured phase."), "{output}");
    assert!(output.stdout.lines().any(|line| line.starts_with("  0.00/s ") && line.ends_with(" early")), "{output}");
}

#[test]
fn a_missing_or_foreign_origin_is_reported_before_the_load() {
    let (workspace, origin) = origin("polymix-4");
    let proxy = Proxy::forward(Fault::None);
    let output = sweep(&workspace, &origin, &proxy, &["--rate", "10/s"]);
    assert_eq!(output.code, Some(2), "{output}");
    assert!(output.stderr.contains("it has the workload polymix-4, expected polymix-1"), "{output}");
    // A workload with the same name and other content.
    let output =
        sweep(&workspace, &origin, &proxy, &["--rate", "10/s", "--workload", "polymix-4", "--set", "origin_abort=0.5"]);
    assert_eq!(output.code, Some(2), "{output}");
    assert!(output.stderr.contains("differs from this sweep's of the same name in origin_abort;"), "{output}");
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let listen = proxy.address().to_string();
    let output = workspace.run(&["cache", "--proxy", &listen, "--origin-at", &nowhere, "--rate", "10/s"]);
    assert_eq!(output.code, Some(2), "{output}");
    assert!(output.stderr.contains("yamabiko serve --workload"), "{output}");
    assert_eq!(proxy.counters().requests, 0, "no request is sent to the cache");
    assert_eq!(std::fs::read_dir(workspace.runs()).map_or(0, Iterator::count), 0, "no run is stored");
}

#[test]
fn a_printed_cache_plan_is_complete_and_runnable() {
    let (workspace, origin) = origin("polymix-1");
    let printed =
        workspace.run(&["cache", "--proxy", "127.0.0.1:3128", "--full", "--set", "recurrence=0.5", "--print-plan"]);
    assert_eq!(printed.code, Some(0), "{printed}");
    assert!(printed.stdout.contains("point = \"1800s\"") && printed.stdout.contains("timeout = \"180s\""), "{printed}");
    let file = workspace.path().join("cache-full.toml");
    std::fs::write(&file, &printed.stdout).unwrap();
    let again = workspace.run(&["run", file.to_str().unwrap(), "--print-plan"]);
    assert_eq!(again.stdout, printed.stdout, "{again}");

    // The class of the school gateway study in a few seconds: all clients get what the teacher fetched from the cache.
    let proxy = Proxy::forward(Fault::None);
    let plan = format!(
        "[cache]\nproxy = \"{}\"\norigin_at = \"{}\"\nrates = [\"100/s\"]\narrivals = \"constant\"\n\
         [[cache.phase]]\nname = \"teacher\"\nduration = \"1s\"\nrecurrence = [0, 0]\n\
         [[cache.phase]]\nname = \"pause\"\nduration = \"1s\"\nload = 0.0\n\
         [[cache.phase]]\nname = \"class\"\nduration = \"1s\"\nrecurrence = [1, 1]\ngrows = false\nmeasured = true\n\
         [workload]\nname = \"polymix-1\"\nset = {{ think = \"none\" }}\n",
        proxy.address(),
        origin.address
    );
    let file = workspace.path().join("cache-class.toml");
    std::fs::write(&file, plan).unwrap();
    let output = workspace.run(&["run", file.to_str().unwrap(), "--json"]);
    let document = output.json();
    let [point] = &points(&document)[..] else { panic!("{output}") };
    assert_eq!(point["phase"], "class");
    let ratio = &point["hit_ratio"];
    // 80 % of the pages are cacheable; all of those are stored before the measured phase.
    assert!((0.6..1.0).contains(&ratio["offered"].as_f64().unwrap()), "{point}");
    assert_eq!(ratio["measured"], ratio["offered"], "{point}");
    assert_eq!(ratio["ideal"], ratio["offered"], "{point}");
}
