//! What the load can do works over HTTP/1.1, HTTP/2 and HTTP/3 alike, or is refused by name: the same requests arrive,
//! with the same outcomes. `serve` relays them to a scripted program, so that its relay is tried as well.

use std::fs;

use serde_json::{Value, json};

use crate::support::document::check;
use crate::support::scripted::{ReceivedRequest, Scripted, response};
use crate::support::serving::Serving;
use crate::support::tls::Authority;
use crate::support::workspace::{Workspace, str_of};

const VERSIONS: [&str; 3] = ["1.1", "2", "3"];

/// The program behind the relay: a login, pages, a redirect, a form.
fn program(request: &ReceivedRequest) -> Vec<u8> {
    let path = request.target.split('?').next().unwrap_or_default();
    match (request.method.as_str(), path) {
        (_, "/app/old") => response("302 Found", &["Location: /app/new"], b""),
        (_, "/app/login") => response("200 OK", &["Set-Cookie: id=7; Path=/"], b"{\"token\": \"t 1\"}"),
        (_, "/app/missing") => response("404 Not Found", &[], b"no"),
        ("POST", _) => response("201 Created", &[], &request.body),
        _ => response("200 OK", &["Cache-Control: no-store"], format!("page {}", request.target).as_bytes()),
    }
}

/// A server of all three versions, and what reaches the program behind it.
struct Site {
    workspace: Workspace,
    behind: Scripted,
    url: String,
    ca: String,
    _serving: Serving,
}

impl Site {
    fn new() -> Site {
        let workspace = Workspace::concurrent();
        let authority = Authority::new(&workspace, "authority");
        let certificate = authority.sign(&["127.0.0.1"], 2090);
        let behind = Scripted::start(program);
        let route = format!("/app={}", behind.url(""));
        let (cert, key) = (str_of(&certificate.cert), str_of(&certificate.key));
        // On a machine that stalls, a whole warm-up arrives at once by HTTP/2: the relay must queue it.
        let queue = ["--dynamic-queue", "1000", "--dynamic-queue-time", "60s"];
        let options = [&["--tls", cert, key, "--http3", "--dynamic", &route], &queue[..]].concat();
        let serving = Serving::start(&workspace, &options);
        let url = format!("https://{}", serving.address);
        let ca = str_of(&authority.file()).to_owned();
        Site { workspace, behind, url, ca, _serving: serving }
    }

    /// The outcomes of a load by version, and the requests that reached the program.
    fn measure(&self, version: &str, arguments: &[String]) -> (Value, Vec<String>) {
        let before = self.behind.requests().len();
        let mut words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        // The options of a plan's run are in the plan.
        match arguments {
            [verb, plan] if verb == "run" => {
                let text = fs::read_to_string(plan).unwrap();
                fs::write(plan, with_version(&text, version)).unwrap();
            }
            _ => words.extend(["--cacert", &self.ca, "--http", version, "--seed", "5"]),
        }
        words.extend(["--json", "--no-save"]);
        let document = self.workspace.run_json(&words);
        assert_eq!(check(&document, "conservation")["state"], "ok", "HTTP/{version} {arguments:?}: {document}");
        let mut arrived: Vec<String> = self.behind.requests()[before..].iter().map(described).collect();
        arrived.sort();
        let load = &document["load"];
        let by_url = load["by_url"].as_array().map(|urls| {
            urls.iter().map(|url| json!([url["url"], url["completed"], url["failed"]])).collect::<Vec<_>>()
        });
        (json!([load["completed"], load["failed"], load["status"], by_url]), arrived)
    }
}

/// A plan with this version in place of its own.
fn with_version(plan: &str, version: &str) -> String {
    let line = |line: &str| if line.starts_with("http = ") { format!("http = \"{version}\"") } else { line.to_owned() };
    plan.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// What of a request must not depend on the version.
fn described(request: &ReceivedRequest) -> String {
    let of = |name: &str| request.field(name).unwrap_or_default();
    let body = String::from_utf8_lossy(&request.body);
    format!("{} {} [{}] [{}] {body}", request.method, request.target, of("cookie"), of("x-client"))
}

/// Arguments of a load of each kind; `completed` requests are whole, and `failed` by cause.
fn loads(site: &Site) -> Vec<(Vec<String>, u64, Value)> {
    let file = |name: &str, text: String| {
        fs::write(site.workspace.path().join(name), text).unwrap();
        str_of(&site.workspace.path().join(name)).to_owned()
    };
    let (url, ca) = (&site.url, &site.ca);
    let bench = |path: &str, rest: &str| -> Vec<String> {
        let rest = rest.split_whitespace().map(str::to_owned);
        ["bench".to_owned(), format!("{url}{path}")].into_iter().chain(rest).collect()
    };
    let list = file("urls.txt", "/app/a 3\n/app/b 1\n/10k.bin 2\n".into());
    let log: String = (0..20)
        .map(|number| {
            format!("10.0.0.{} - - [10/Oct/2025:13:55:36 +0000] \"GET /app/{number} HTTP/1.1\" 200 5\n", number % 3)
        })
        .collect();
    let log = file("access.log", log);
    let entry = |path: &str, at: u32| {
        format!(
            "{{\"startedDateTime\": \"2025-10-10T13:55:36.{at:03}Z\", \"time\": 5, \"request\": {{\"method\": \"GET\", \
             \"url\": \"https://shop.example{path}\", \"httpVersion\": \"h2\", \"headers\": [{{\"name\": \":path\", \
             \"value\": \"{path}\"}}]}}, \"response\": {{\"status\": 200}}}}"
        )
    };
    let har = file(
        "visit.har",
        format!(
            "{{\"log\": {{\"version\": \"1.2\", \"entries\": [{}, {}]}}}}",
            entry("/app/page", 0),
            entry("/app/style.css", 20)
        ),
    );
    let sessions = file(
        "sessions.toml",
        format!(
            "seed = 5\n[load]\nurl = \"{url}\"\nhttp = \"1.1\"\nduration = \"1s\"\nrate = \"10/s\"\ncookies = true\n\
             [load.tls]\ncacert = \"{ca}\"\n[[load.request]]\nname = \"login\"\n\
             url = \"/app/login\"\nextract = {{ token = {{ json = \"/token\" }} }}\n[[load.request]]\nname = \"page\"\n\
             url = \"/app/page?t={{token}}\"\n[[load.session]]\nsteps = [{{ request = \"login\" }}, {{ request = \
             \"page\" }}]\n"
        ),
    );
    let one = |cause: &str, count: u64| json!({ cause: count });
    vec![
        (bench("/10k.bin", "-n 30 -c 3"), 30, json!({})),
        (bench("/10k.bin", "-n 12 -c 2 --close"), 12, json!({})),
        (bench("/app/x?n={sequence}", "-n 30 -r 300/s"), 30, json!({})),
        (bench("/app/x", "-n 40 -r 400/s --arrivals poisson --threads 2"), 40, json!({})),
        (bench("", &format!("--urls {list} -n 60 -r 600/s")), 60, json!({})),
        (bench("/app/head", "-n 6 -c 1 --method HEAD"), 6, json!({})),
        (bench("/app/form", "-n 6 -c 1 --body a={sequence} -H X-Client:{client}"), 6, json!({})),
        (bench("/app/old", "-d 500ms -r 20/s --follow-redirects 5"), 20, json!({})),
        (bench("/app/login", "-n 6 -r 10/s --cookies"), 6, json!({})),
        (bench("/app/missing", "-n 6 -c 1 --expect-status 200"), 0, one("unexpected_status", 6)),
        (bench("/app/x", "-n 6 -c 1 --expect-length 1KB.."), 0, one("unexpected_length", 6)),
        (bench("/app/x", "-n 6 -c 1 --expect-body other"), 0, one("unexpected_body", 6)),
        (bench("/", &format!("--replay {log}")), 20, json!({})),
        (bench("/", &format!("--har {har} -n 6 -r 50/s")), 6, json!({})),
        (vec!["run".into(), sessions], 20, json!({})),
    ]
}

#[test]
fn every_kind_of_load_sends_the_same_requests_by_each_version() {
    let site = Site::new();
    for (arguments, completed, failed) in loads(&site) {
        let by_version = VERSIONS.map(|version| site.measure(version, &arguments));
        let (outcome, arrived) = &by_version[0];
        assert_eq!((&outcome[0], &outcome[1]), (&json!(completed), &failed), "{arguments:?}");
        assert!(!arrived.is_empty() || arguments[1].ends_with("10k.bin"), "{arguments:?}");
        for (version, measured) in VERSIONS.iter().zip(&by_version) {
            assert_eq!(measured.0, *outcome, "HTTP/{version}: {arguments:?}");
            assert!(measured.1 == *arrived, "HTTP/{version}: {arguments:?}: other requests arrived");
        }
    }
}

#[test]
fn searches_and_comparisons_work_over_http3() {
    let site = Site::new();
    let url = format!("{}/10k.bin", site.url);
    let words = |rest: &'static str| rest.split_whitespace().chain(["--cacert", &site.ca, "--http", "3", "--json"]);
    let compare = ["compare", "--url", &url, "--url", &url].into_iter();
    let compare = compare.chain(words("--blocks 3 -d 200ms -c 2 --warmup 100ms")).collect::<Vec<_>>();
    let document = site.workspace.run_json(&compare);
    assert!(document["compare"]["blocks"].as_array().is_some_and(|blocks| blocks.len() >= 3), "{document}");
    let slo = "--slo p99<1s --start 100/s --max 400/s --short 500ms --trial 500ms --confirm 500ms --width 50% --searches 1 \
               --warmup 100ms";
    let capacity = ["capacity", url.as_str()].into_iter().chain(words(slo)).collect::<Vec<_>>();
    let output = site.workspace.run(&capacity);
    let document = output.json();
    assert!(document["capacity"]["trials"].as_array().is_some_and(|trials| !trials.is_empty()), "{output}");
}

#[test]
fn what_http3_cannot_do_is_refused_by_name() {
    let workspace = Workspace::concurrent();
    let refuse = |rest: &[&str], words: &[&str]| {
        let arguments = [&["bench", "https://127.0.0.1:9/", "--http", "3", "-n", "1"], rest].concat();
        workspace.run(&arguments).refused(1, &[&["HTTP/3"], words].concat());
    };
    refuse(&["--open-connections", "5", "-r", "1/s"], &["--open-connections"]);
    refuse(&["-H", "Connection: close"], &["Connection"]);
    let refuse = |rest: &[&str], words: &[&str]| {
        let arguments = [&["bench", "https://127.0.0.1:9/", "--http", "3", "-n", "1"], rest].concat();
        workspace.run(&arguments).refused(1, words);
    };
    refuse(&["--unix", "/run/x"], &["--http 3", "--unix"]);
    refuse(&["--proxy", "127.0.0.1:3128"], &["--http 3", "--proxy"]);
    refuse(&["--engine", "io_uring"], &["HTTP/3", "--engine"]);
    refuse(&["--tls-version", "1.2"], &["QUIC", "--tls-version"]);
    refuse(&["--http3-keep-alive", "40s"], &["--http3-keep-alive", "--http3-idle-timeout"]);
}
