//! The server's protocol, tested with other programs (curl, ab) and with `bench`: the cases of
//! crates/serve/src/tests/rfc.txt that curl can send, and common uses of these programs.

use std::fs;
use std::process::{Command, Stdio};

use crate::support::serving::Serving;
use crate::support::workspace::{Workspace, str_of};
use crate::table::Case;

/// A workspace with the table's files and a server of them.
fn served() -> (Workspace, Serving) {
    let workspace = Workspace::concurrent();
    crate::table::create_files(&workspace.www());
    let serving = Serving::start(&workspace, &[]);
    (workspace, serving)
}

impl Serving {
    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// Runs another program, which must succeed; returns its stdout.
fn other(program: &str, arguments: &[&str]) -> Vec<u8> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; `cargo xtask packages` installs it"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn curl(arguments: &[&str]) -> Vec<u8> {
    other("curl", &[&["--silent", "--show-error", "--noproxy", "*"], arguments].concat())
}

/// The output of curl's `-w` for a transfer whose content is discarded.
fn curl_write_out(what: &str, arguments: &[&str]) -> String {
    String::from_utf8(curl(&[&["-o", "/dev/null", "-w", what], arguments].concat())).unwrap()
}

struct Response {
    head: String,
    content: Vec<u8>,
}

impl Response {
    fn of(bytes: &[u8]) -> Response {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("the response has a head") + 4;
        Response { head: String::from_utf8(bytes[..end].to_vec()).unwrap(), content: bytes[end..].to_vec() }
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// Sends a case of the table by curl and checks the response.
fn by_curl(case: &Case, serving: &Serving) {
    let (method, target) = case.lines[0].split_once(' ').unwrap();
    let url = serving.url("/");
    let mut arguments = vec!["--include", "--http1.1", "--request-target", target];
    match method {
        "HEAD" => arguments.push("--head"),
        _ => arguments.extend(["--request", method]),
    }
    for field in &case.lines[1..] {
        arguments.extend(["--header", field]);
    }
    arguments.push(&url);
    let response = Response::of(&curl(&arguments));
    assert!(response.head.starts_with(&format!("HTTP/1.1 {} ", case.status())), "{case}\n{}", response.head);
    for expected in &case.expected[1..] {
        case.check(expected, |name| response.field(name), &response.content);
    }
}

#[test]
fn curl_gets_the_responses_of_the_rfc_table() {
    let (_workspace, serving) = served();
    let etag = curl_write_out("%header{etag}", &[&serving.url("/digits.txt")]);
    let etag = if etag.starts_with('"') {
        etag
    } else {
        // curl before 7.84 does not have this variable.
        Response::of(&curl(&["--include", &serving.url("/digits.txt")])).field("ETag").unwrap().to_owned()
    };
    let cases = crate::table::cases(&etag);
    let by_lines: Vec<&Case> = cases.iter().filter(|case| !case.lines.is_empty()).collect();
    assert!(by_lines.len() > 80);
    for case in by_lines {
        by_curl(case, &serving);
    }
}

#[test]
fn curl_requests_ranges_resumes_and_revalidates() {
    let (workspace, serving) = served();
    let page = fs::read(workspace.www().join("100k.bin")).unwrap();
    let url = serving.url("/100k.bin");
    assert_eq!(curl(&["--range", "1000-1999", &url]), page[1000..2000]);
    assert_eq!(curl(&["--range", "-77", &url]), page[page.len() - 77..]);
    let several = curl(&["--range", "0-9,50000-50009", &url]);
    for part in [&page[..10], &page[50_000..50_010]] {
        assert!(several.windows(10).any(|window| window == part));
    }
    // An interrupted download is resumed.
    let partial = workspace.file("partial");
    fs::write(&partial, &page[..40_000]).unwrap();
    curl(&["--continue-at", "-", "--output", str_of(&partial), &url]);
    assert!(fs::read(&partial).unwrap() == page, "the resumed file is complete");
    // curl sends the date of an existing file.
    let digits = serving.url("/digits.txt");
    let have = workspace.file("have");
    curl(&["--remote-time", "--output", str_of(&have), &digits]);
    assert_eq!(curl_write_out("%{http_code}", &["--time-cond", str_of(&have), &digits]), "304");
    assert_eq!(curl_write_out("%{http_code}", &["--time-cond", "Sat, 05 Nov 1994 08:49:37 GMT", &digits]), "200");
    let tag = workspace.file("tag");
    curl(&["--etag-save", str_of(&tag), "--output", "/dev/null", &digits]);
    assert_eq!(curl_write_out("%{http_code}", &["--etag-compare", str_of(&tag), &digits]), "304");
}

#[test]
fn curl_decompresses_precompressed_files() {
    let (workspace, serving) = served();
    let text = "the mountain echo ".repeat(10_000);
    fs::write(workspace.www().join("long.txt"), &text).unwrap();
    other("gzip", &["--keep", str_of(&workspace.www().join("long.txt"))]);
    let url = serving.url("/long.txt");
    assert_eq!(curl(&[&url]), text.as_bytes());
    assert_eq!(curl(&["--compressed", &url]), text.as_bytes());
    let size = |arguments: &[&str]| -> usize { curl_write_out("%{size_download}", arguments).parse().unwrap() };
    assert_eq!(size(&[&url]), text.len());
    assert!(size(&["--header", "Accept-Encoding: gzip", &url]) < text.len() / 10);
}

#[test]
fn curl_reuses_one_connection_for_many_files() {
    let (_workspace, serving) = served();
    let urls: Vec<String> =
        ["/digits.txt", "/large.bin", "/d", "/absent", "/empty.txt"].map(|path| serving.url(path)).into();
    let mut arguments = vec!["--silent", "--noproxy", "*", "-w", "%{http_code} %{num_connects},"];
    for url in &urls {
        arguments.extend(["-o", "/dev/null", url]);
    }
    let output = String::from_utf8(other("curl", &arguments)).unwrap();
    assert_eq!(output, "200 1,200 0,301 0,404 0,200 0,");
}

/// A figure of ab's report.
fn figure(report: &str, label: &str) -> Option<u64> {
    report.lines().find_map(|line| line.strip_prefix(label))?.split_whitespace().next()?.parse().ok()
}

#[test]
fn apachebench_counts_no_failure() {
    let (workspace, serving) = served();
    let url = serving.url("/10k.bin");
    for options in [&["-n", "200", "-c", "8", "-k"][..], &["-n", "200", "-c", "8"], &["-n", "50", "-i"]] {
        let theirs = String::from_utf8(other("ab", &[&["-q"], options, &[&url]].concat())).unwrap();
        let ours = workspace.run(&[&["ab", "-q"], options, &[&url[..]]].concat());
        ours.assert_measured();
        for report in [&theirs, &ours.stdout] {
            let requests = figure(report, "Complete requests:").unwrap();
            assert_eq!(Some(requests), options[1].parse().ok(), "{report}");
            assert_eq!(figure(report, "Failed requests:"), Some(0), "{report}");
            assert_eq!(figure(report, "Non-2xx responses:"), None, "{report}");
            let expected = options.contains(&"-k").then_some(requests);
            assert_eq!(figure(report, "Keep-Alive requests:"), expected, "{report}");
            let content = if options.contains(&"-i") { 0 } else { requests * 10_240 };
            assert_eq!(figure(report, "HTML transferred:"), Some(content), "{report}");
        }
    }
}

#[test]
fn yamabiko_bench_finds_no_error_at_yamabiko_serve() {
    let (workspace, serving) = served();
    for (path, more) in [
        ("/10k.bin", &["--expect-status", "200", "--expect-length", "10KiB"][..]),
        ("/digits.txt", &["--expect-status", "206", "--expect-body", "2345", "-H", "Range: bytes=2-5"]),
        ("/a.js", &["--expect-status", "200", "--expect-body", "gz", "-H", "Accept-Encoding: gzip"]),
        ("/absent", &["--expect-status", "404"]),
    ] {
        let url = serving.url(path);
        let arguments = [&["bench", &url, "-n", "100", "-c", "4", "--warmup", "0s", "--json"], more].concat();
        let document = workspace.run_json(&arguments);
        assert_eq!(document["load"]["completed"], 100, "{path}: {}", document["load"]);
        assert_eq!(document["load"]["failed"], serde_json::json!({}), "{path}: {}", document["load"]);
    }
}
