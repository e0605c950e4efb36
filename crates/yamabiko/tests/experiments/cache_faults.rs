//! `yamabiko cache` against caches with one known fault each: every fault is detected, distinguished from the others,
//! and reported with a request on the terminal, in the document and by the exit status. A correct cache gets no fault.

use crate::support::document::count;
use crate::support::proxy::{Fault, Proxy};
use crate::support::serving::Serving;
use crate::support::workspace::{Output, Workspace, str_of};
use serde_json::Value;

/// Every kind of error is provoked within seconds: objects that change every second, uncacheable ones, two codings,
/// reloads and conditions, other methods, and disconnecting clients.
const WORKLOAD: &str = r#"
name = "everything"
recurrence = 0.75
gzip_clients = 0.5
client_abort = 0.01
forms = { ims200 = 0.08, ims304 = 0.05, reload = 0.08 }
methods = { head = 0.02, post = 0.02 }
post_body = "unif(0,2KB)"

[[kinds]]
name = "page"
ext = ".html"
media_type = "text/html"
share = 0.5
size = "exp(6KB)"
cacheable = 0.7
gzip = true
vary = "accept_encoding"
life = { cycle = "1000000", last_modified = 1.0, expires = "next_change" }

[[kinds]]
name = "image"
ext = ".png"
media_type = "image/png"
share = 0.2
size = "exp(4KB)"
cacheable = 0.9
life = { cycle = "1000000", last_modified = 1.0, etag = 0.5, expires = { max_age = "86400" } }

[[kinds]]
name = "news"
ext = ".txt"
media_type = "text/plain"
share = 0.3
size = "exp(2KB)"
cacheable = 1.0
life = { cycle = "1", last_modified = 1.0, expires = "next_change" }
"#;

/// A workspace and an origin with the workload [`WORKLOAD`].
fn origin() -> (Workspace, Serving) {
    let workspace = Workspace::concurrent();
    let file = workspace.path().join("mix.toml");
    std::fs::write(&file, WORKLOAD).unwrap();
    let command = workspace.command(&["serve", "--workload", str_of(&file), "--seed", "1", "--listen", "127.0.0.1:0"]);
    let origin = Serving::start_command(&workspace, command);
    (workspace, origin)
}

/// A fault, the kind of wrong response that it must cause, and further kinds that it may cause.
type Case = (Fault, &'static str, &'static [&'static str]);

const CASES: [Case; 10] = [
    (Fault::RespondsItself, "foreign", &[]),
    (Fault::WrongObject, "wrong_object", &[]),
    (Fault::IgnoresVary, "wrong_variant", &[]),
    (Fault::CorruptsByte, "wrong_body", &[]),
    (Fault::Extends, "wrong_body", &[]),
    (Fault::Truncates, "truncated", &[]),
    (Fault::AlwaysNotModified, "false_not_modified", &[]),
    (Fault::StoresUncacheable, "hit_on_uncacheable", &[]),
    (Fault::MixesRequestIds, "false_hit", &[]),
    // A stale stored response also causes wrong responses to conditional requests.
    (Fault::NeverExpires, "stale", &["false_not_modified"]),
];

/// A sweep of one point through a cache with this fault.
fn sweep(workspace: &Workspace, origin: &Serving, fault: Fault, rest: &[&str]) -> Output {
    let proxy = Proxy::forward(fault);
    let file = workspace.path().join("mix.toml");
    let (at, behind) = (proxy.address().to_string(), origin.address.to_string());
    let words = ["cache", "--proxy", &at, "--origin-at", &behind, "--workload", str_of(&file), "--rate", "120/s"];
    let more = ["-d", "4s", "--warmup", "0", "--stop-errors", "none", "--json"];
    workspace.run(&[&words[..], &more, rest].concat())
}

fn point(document: &Value) -> &Value {
    &document["cache"]["points"][0]
}

/// Kinds of wrong responses.
fn wrong_kinds(document: &Value) -> Vec<&str> {
    let wrong = point(document)["wrong"].as_object().unwrap();
    wrong.keys().map(String::as_str).filter(|kind| *kind != "false_miss").collect()
}

/// The sweep's check with this name, which follows the rate in the check's full name.
fn check<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    let checks = document["validity"]["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"].as_str().is_some_and(|its| its.contains(name)))
}

/// All sweeps run concurrently on one origin, each in its own world.
#[test]
fn every_cache_fault_is_reported() {
    let (workspace, origin) = origin();
    let (workspace, origin) = (&workspace, &origin);
    std::thread::scope(|scope| {
        for case in CASES {
            scope.spawn(move || named_with_a_request(workspace, &sweep(workspace, origin, case.0, &[]), case));
        }
        for other in [
            a_cache_that_ignores_reloads_is_suspect,
            a_cache_that_stores_nothing_is_correct,
            a_cache_that_drops_request_ids_is_invalid,
        ] {
            scope.spawn(move || other(workspace, origin));
        }
    });
}

fn named_with_a_request(workspace: &Workspace, output: &Output, (fault, kind, also): Case) {
    assert_eq!(output.code, Some(3), "{fault:?}: {output}");
    let document = output.json();
    assert_eq!(document["validity"]["verdict"], "invalid", "{fault:?}");
    let found = wrong_kinds(&document);
    assert!(found.contains(&kind), "{fault:?}: {}", point(&document));
    assert!(
        found.iter().all(|found| *found == kind || also.contains(found)),
        "{fault:?} causes no other kind: {found:?}"
    );

    let examples = point(&document)["examples"].as_array().unwrap();
    let example = examples.iter().find(|example| example["kind"] == kind).unwrap();
    let request = example["request"].as_str().unwrap();
    assert!(request.contains(" /y/"), "{fault:?}: {example}");
    assert!(!example["why"].as_str().unwrap().is_empty(), "{fault:?}: {example}");
    let check = check(&document, "cache_responses_correct").unwrap_or_else(|| panic!("{fault:?}: {output}"));
    assert_eq!((&check["state"], &check["weight"]), (&"failed".into(), &"invalid".into()), "{fault:?}");
    let words = kind.replace('_', " ");
    let why = check["why"].as_str().unwrap();
    assert!(why.contains(&words) && why.contains(" /y/"), "{fault:?}: {why}");

    // The text output.
    let report = workspace.run(&["report", document["run"]["id"].as_str().unwrap()]);
    assert_eq!(report.code, Some(3), "{fault:?}: {report}");
    assert!(report.stdout.contains("WRONG") && report.stdout.contains(&words), "{fault:?}: {report}");
    assert!(report.stdout.contains(request), "{fault:?}: {report}");
}

/// Many caches ignore reloads by default: the sweep is suspect, with the reason.
fn a_cache_that_ignores_reloads_is_suspect(workspace: &Workspace, origin: &Serving) {
    let output = sweep(workspace, origin, Fault::IgnoresReload, &["--strict"]);
    assert_eq!(output.code, Some(3), "a suspect verdict fails with --strict: {output}");
    let document = output.json();
    assert_eq!(wrong_kinds(&document), ["hit_on_reload"], "{}", point(&document));
    let check = check(&document, "cache_responses_correct").unwrap();
    assert_eq!((&check["state"], &check["weight"]), (&"failed".into(), &"suspect".into()), "{check}");
    let why = check["why"].as_str().unwrap();
    assert!(why.contains("hit on reload") && why.contains("(reload)"), "{why}");
}

/// A cache that stores nothing is correct and has no hits.
fn a_cache_that_stores_nothing_is_correct(workspace: &Workspace, origin: &Serving) {
    let output = sweep(workspace, origin, Fault::StoresNothing, &[]);
    let document = output.json();
    let point = point(&document);
    assert_eq!(wrong_kinds(&document), [""; 0], "{point}");
    assert_eq!(check(&document, "cache_responses_correct"), None, "{output}");
    assert!(count(point, "wrong.false_miss") > 0 && count(point, "offered") > 0, "{point}");
    assert_eq!(count(point, "hits_of_all"), 0, "{point}");
    let report = workspace.run(&["report", document["run"]["id"].as_str().unwrap()]);
    assert!(report.stdout.contains("false misses") && !report.stdout.contains("WRONG"), "{report}");
}

/// A header field that the cache must forward identifies the request of a response: without it every response would
/// count as a hit.
fn a_cache_that_drops_request_ids_is_invalid(workspace: &Workspace, origin: &Serving) {
    let output = sweep(workspace, origin, Fault::DropsRequestId, &[]);
    assert_eq!(output.code, Some(3), "{output}");
    let document = output.json();
    let check = check(&document, "request ids reached the origin").unwrap_or_else(|| panic!("{output}"));
    assert_eq!((&check["state"], &check["weight"]), (&"failed".into(), &"invalid".into()), "{check}");
    let why = check["why"].as_str().unwrap();
    assert!(why.contains("X-Yamabiko-Request-Id"), "{why}");
    assert_eq!(wrong_kinds(&document), [""; 0], "{}", point(&document));
    let report = workspace.run(&["report", document["run"]["id"].as_str().unwrap()]);
    assert!(report.stdout.contains("X-Yamabiko-Request-Id"), "{report}");
}

#[test]
fn a_correct_cache_is_reported_without_faults() {
    let (workspace, origin) = origin();
    let output = sweep(&workspace, &origin, Fault::None, &[]);
    let document = output.json();
    let one = point(&document);
    assert!(one["wrong"].as_object().unwrap().is_empty(), "{one}");
    assert!(one["errors"].as_object().unwrap().is_empty(), "{one}");
    for name in
        ["cache_responses_correct", "cache_forwards_request_ids", "request ids reached the origin", "origin reached"]
    {
        assert_eq!(check(&document, name), None, "{output}");
    }
    // False misses are only those of responses that had not arrived yet or had expired.
    let of = |name: &str| count(one, name);
    assert!(of("offered_expired") > 0 && of("hits") > 0, "{one}");
    assert!(of("hits") - of("hits_not_offered") <= of("offered"), "{one}");
    assert!(of("hits") + of("offered_while_fetching") + of("offered_expired") >= of("offered"), "{one}");
}

/// Without expiry and with plain requests only, the measured hit ratio equals the offered one exactly.
#[test]
fn the_measured_hit_ratio_matches_the_offered_one() {
    let workspace = Workspace::concurrent();
    let command = workspace.command(&[
        "serve",
        "--workload",
        "polymix-1",
        "--seed",
        "7",
        "--think",
        "none",
        "--listen",
        "127.0.0.1:0",
    ]);
    let origin = Serving::start_command(&workspace, command);
    let proxy = Proxy::forward(Fault::None);
    let (at, behind) = (proxy.address().to_string(), origin.address.to_string());
    let words = ["cache", "--proxy", &at, "--origin-at", &behind, "--seed", "7", "--rate", "100,200/s", "-d", "2s"];
    let output = workspace.run(&[&words[..], &["--think", "none", "--warmup", "0", "--json"]].concat());
    let document = output.json();
    for point in document["cache"]["points"].as_array().unwrap() {
        for ratio in [&point["hit_ratio"], &point["byte_hit_ratio"]] {
            assert!(ratio["offered"].as_f64().unwrap() > 0.2, "{point}");
            assert_eq!((&ratio["measured"], &ratio["ideal"]), (&ratio["offered"], &ratio["offered"]), "{point}");
        }
        assert!(point["wrong"].as_object().unwrap().is_empty(), "{point}");
    }
}
