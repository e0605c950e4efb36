//! A real browser over configured RTTs: the browser's own timings match the path.
//!
//! Lower bounds are strict on any machine: nothing arrives before the path permits it. Upper bounds are those of a busy
//! machine.

use std::fs;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::servers::yamabiko_serve;
use crate::support::serving::Serving;
use crate::support::workspace::{Workspace, str_of};

/// Objects of the page besides the page itself: three types, each in its own file.
const OBJECTS: usize = 30;
/// Approximate size of each object: large enough that a slow link needs time for it.
const OBJECT_BYTES: usize = 15_000;

/// The path of the only client of a profile, which is the median client.
struct Distance {
    profile: &'static str,
    /// The configured RTT, and the total deviation of a packet and its response.
    rtt_ms: f64,
    jitter_ms: f64,
    /// Link rate downstream in bytes per millisecond.
    rate: f64,
}

/// Values from crates/path/profiles, as `profile show` prints them.
const DISTANCES: [Distance; 3] = [
    Distance { profile: "3g", rtt_ms: 300.0, jitter_ms: 40.0, rate: 200.0 },
    Distance { profile: "4g", rtt_ms: 70.0, jitter_ms: 12.0, rate: 5187.5 },
    Distance { profile: "fiber", rtt_ms: 16.0, jitter_ms: 1.0, rate: 35_250.0 },
];

/// Browsers round their times to 0.1 ms and shift them slightly, against timing attacks.
const ROUNDED_MS: f64 = 0.3;

/// A page with 30 objects that finally records the browser's timings of each of them.
fn write_page(workspace: &Workspace) {
    let mut html = "<!doctype html><title>page</title><link rel=\"icon\" href=\"data:,\">\n".to_owned();
    for at in 0..OBJECTS {
        let filling: String = (0..OBJECT_BYTES / 10).map(|n| format!("{:09} ", n * 7919 + at)).collect();
        let (name, text, tag) = match at % 3 {
            0 => (
                format!("{at}.svg"),
                format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\" height=\"9\"><!--{filling}--></svg>"),
                format!("<img src=\"{at}.svg\" alt=\"\">"),
            ),
            1 => (
                format!("{at}.js"),
                format!("/*{filling}*/ window.ran = (window.ran || 0) + 1;"),
                format!("<script src=\"{at}.js\" async></script>"),
            ),
            _ => (
                format!("{at}.css"),
                format!("/*{filling}*/ .c{at} {{ color: red }}"),
                format!("<link rel=\"stylesheet\" href=\"{at}.css\">"),
            ),
        };
        fs::write(workspace.www().join(name), text).unwrap();
        html.push_str(&format!("{tag}\n"));
    }
    // The load event fires after the last object; `--dump-dom` prints the page after that event.
    html.push_str(
        "<pre id=\"times\"></pre><script>addEventListener('load', () => {\n\
         const all = performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'));\n\
         const now = performance.now();\n\
         document.getElementById('times').textContent =\n\
         JSON.stringify({ ran: window.ran, loaded: now, entries: all.map(entry => entry.toJSON()) });\n});</script>\n",
    );
    fs::write(workspace.www().join("index.html"), html).unwrap();
}

/// The browser's timings, and the figures of path and packet capture.
struct Visit {
    page: Value,
    document: Value,
}

fn visit(workspace: &Workspace, profile: &str) -> Visit {
    let server = yamabiko_serve(workspace);
    let json = workspace.file(&format!("{profile}.json"));
    let data = workspace.file(&format!("browser-{profile}"));
    // Without this option the browser opens connections before any request, and no timing contains the first handshake.
    fs::create_dir_all(data.join("Default")).unwrap();
    fs::write(data.join("Default/Preferences"), r#"{"net":{"network_prediction_options":2}}"#).unwrap();
    let mut command =
        workspace.command(&["net", "--path", profile, "--server", &server, "--json", str_of(&json), "--"]);
    command.args(["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]);
    // The browser's own background requests would fail here and cost time.
    command.args(["--disable-background-networking", "--disable-component-update", "--disable-default-apps"]);
    command.args(["--disable-features=OptimizationHints,MediaRouter,Translate", "--no-proxy-server", "--disable-quic"]);
    command.arg(format!("--user-data-dir={}", data.display()));
    command.args(["--timeout=60000", "--dump-dom", "http://server:8080/"]).stdin(Stdio::null());
    let output = workspace.start_command(command).finish().success();
    let times = output.stdout.split_once("<pre id=\"times\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (times, _) = times.unwrap_or_else(|| panic!("the browser did not print the page: {output}"));
    // The printed DOM has entities for three characters, one of which occurs in the figures.
    let page = serde_json::from_str(&times.replace("&amp;", "&")).unwrap_or_else(|error| panic!("{error}: {times}"));
    let document = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    Visit { page, document }
}

impl Visit {
    fn entries(&self) -> &[Value] {
        self.page["entries"].as_array().unwrap()
    }

    fn loaded_ms(&self) -> f64 {
        self.page["loaded"].as_f64().unwrap()
    }

    /// Times between two marks of an entry, of entries that have both, sorted.
    fn spans_ms(&self, from: &str, to: &str) -> Vec<f64> {
        let spans = self.entries().iter().map(|entry| span_ms(entry, from, to));
        let mut spans: Vec<f64> = spans.filter(|&span| span != 0.0).collect();
        spans.sort_by(f64::total_cmp);
        spans
    }
}

/// Time between two marks of an entry in ms.
fn span_ms(entry: &Value, from: &str, to: &str) -> f64 {
    let mark = |name: &str| entry[name].as_f64().unwrap_or_else(|| panic!("{name}: {entry}"));
    mark(to) - mark(from)
}

#[test]
fn page_load_time_in_a_browser_follows_the_configured_rtt() {
    let workspace = Workspace::new();
    write_page(&workspace);
    let mut loaded = Vec::new();
    for distance in &DISTANCES {
        let visit = visit(&workspace, distance.profile);
        let path = &visit.document["path"];
        let asked_ms = path["configured_rtt_ns"]["p50"].as_f64().unwrap() / 1e6;
        assert!((asked_ms - distance.rtt_ms).abs() < 0.1, "{}: {asked_ms} ms", distance.profile);
        let shortest_ms = distance.rtt_ms - distance.jitter_ms - ROUNDED_MS;

        // The page and all its objects arrived completely over the network and ran.
        assert_eq!(visit.entries().len(), OBJECTS + 1);
        assert_eq!(visit.page["ran"], OBJECTS / 3);
        let bytes: f64 = visit.entries().iter().map(|entry| entry["transferSize"].as_f64().unwrap()).sum();
        assert!(bytes > (OBJECTS * OBJECT_BYTES) as f64 * 0.9, "{bytes} bytes");

        // The page's handshake takes one round trip. Those of its objects too, except that a browser measures a
        // connection that it began for another object only from the time when this object was requested.
        let page = &visit.entries()[0];
        let handshake = span_ms(page, "connectStart", "connectEnd");
        assert!(handshake >= shortest_ms, "{}: connected after {handshake} ms", distance.profile);
        let handshakes = visit.spans_ms("connectStart", "connectEnd");
        let (middle, longest) = (handshakes[handshakes.len() / 2], handshakes[handshakes.len() - 1]);
        assert!(longest >= shortest_ms, "{}: {handshakes:?}", distance.profile);
        // A handshake with a lost packet takes a second longer; most have none.
        assert!(middle < distance.rtt_ms + distance.jitter_ms + BUSY_MS, "{}: {handshakes:?}", distance.profile);

        // First bytes take one more round trip from the request. Those of concurrent requests also wait for the link.
        let first_bytes = visit.spans_ms("requestStart", "responseStart");
        assert_eq!(first_bytes.len(), OBJECTS + 1);
        assert!(first_bytes[0] >= shortest_ms, "{}: first bytes after {first_bytes:?} ms", distance.profile);
        let of_page = span_ms(page, "requestStart", "responseStart");
        assert!(of_page < 2.0 * distance.rtt_ms + distance.jitter_ms + BUSY_MS, "{}: {of_page}", distance.profile);
        let responded = span_ms(page, "connectStart", "responseStart");
        assert!(responded >= 2.0 * shortest_ms, "{}: handshake and response in {responded} ms", distance.profile);

        // In total: two round trips for the page and one for each round of objects over six connections, and the
        // transfer time of the link.
        let rounds = 2 + OBJECTS.div_ceil(CONNECTIONS);
        assert!(visit.loaded_ms() >= rounds as f64 * shortest_ms, "{}: {} ms", distance.profile, visit.loaded_ms());
        assert!(visit.loaded_ms() >= bytes / distance.rate, "{}: {} ms", distance.profile, visit.loaded_ms());

        // The packet capture at the server's end saw exactly these requests.
        let watch = &visit.document["watch"];
        assert_eq!(watch["requests"], OBJECTS + 1, "{}: {watch}", distance.profile);
        assert_eq!(watch["status"]["200"], OBJECTS + 1, "{}: {watch}", distance.profile);
        let seen_ms = watch["handshake_rtt_ns"]["min"].as_f64().unwrap() / 1e6;
        assert!(seen_ms >= shortest_ms, "{}: {seen_ms} ms on the wire", distance.profile);
        loaded.push(visit.loaded_ms());
    }
    assert!(loaded[0] > loaded[1] && loaded[1] > loaded[2], "3g, 4g, fiber: {loaded:?} ms");
}

/// Connections that a browser opens to one server over HTTP/1.1.
const CONNECTIONS: usize = 6;

/// Maximum delay that a busy machine adds to one event in the browser, in ms.
const BUSY_MS: f64 = 250.0;

/// A PNG image of one pixel.
const PIXEL: &[u8] = b"\x89PNG\x0d\x0a\x1a\x0a\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\
      \x00\x00\x1f\x15\xc4\x89\x00\x00\x00\x0dIDATx\xdacd`\xf8_\x0f\x00\x02\x87\x01\x80\xebG\xba\
      \x92\x00\x00\x00\x00IEND\xaeB`\x82";

#[test]
fn yamabiko_serve_satisfies_a_browser() {
    let workspace = Workspace::new();
    let www = workspace.www();
    // An image with an unknown extension, a script with a precompressed variant, and requests of a script.
    fs::write(www.join("picture"), PIXEL).unwrap();
    fs::write(www.join("drawing.svg"), "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"7\" height=\"7\"/>").unwrap();
    fs::write(www.join("a.js"), format!("window.ran = true; //{}", "echo ".repeat(5000))).unwrap();
    let packed = Command::new("gzip").arg("--keep").arg(www.join("a.js")).status().unwrap();
    assert!(packed.success());
    fs::write(www.join("digits.txt"), "0123456789abcdef").unwrap();
    let script = r#"addEventListener('load', async () => {
        const ask = async (path, more) => { const got = await fetch(path, more);
            return { status: got.status, text: await got.text(), range: got.headers.get('content-range') }; };
        const printed = { ran: window.ran, widths: [...document.images].map(image => image.naturalWidth) };
        printed.part = await ask('digits.txt', { headers: { Range: 'bytes=2-5' } });
        printed.first = await ask('digits.txt', { cache: 'reload' });
        printed.again = await ask('digits.txt', { cache: 'no-cache' });
        printed.same = await ask('digits.txt', { cache: 'no-store', headers: { 'If-Match': '"other"' } });
        printed.absent = await ask('absent');
        printed.sizes = performance.getEntriesByType('resource').filter(entry => entry.name.endsWith('a.js'))
            .map(entry => [entry.encodedBodySize, entry.decodedBodySize]);
        printed.transfers = performance.getEntriesByType('resource').filter(entry => entry.name.endsWith('digits.txt'))
            .map(entry => entry.transferSize);
        document.getElementById('printed').textContent = JSON.stringify(printed);
    });"#;
    fs::write(
        www.join("index.html"),
        format!(
            "<!doctype html><title>page</title><link rel=\"icon\" href=\"data:,\"><img src=\"picture\"><img src=\"drawing.svg\">\
             <script src=\"a.js\"></script><pre id=\"printed\"></pre><script>{script}</script>"
        ),
    )
    .unwrap();
    let log = workspace.file("own.log");
    let serving = Serving::start(&workspace, &["--log", str_of(&log)]);
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]);
    browser.args(["--disable-background-networking", "--disable-component-update", "--disable-default-apps"]);
    browser.args(["--disable-features=OptimizationHints,MediaRouter,Translate", "--no-proxy-server", "--disable-quic"]);
    browser.arg(format!("--user-data-dir={}", workspace.file("browser-own").display()));
    // Virtual time stops while requests are in flight, so the test waits for the responses only.
    browser.args(["--virtual-time-budget=20000", "--timeout=60000", "--dump-dom"]);
    browser.arg(format!("http://{}/", serving.address)).stdin(Stdio::null());
    let output = workspace.start_command(browser).finish().success();
    let printed = output.stdout.split_once("<pre id=\"printed\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let (printed, _) = printed.unwrap_or_else(|| panic!("the browser did not print the page: {output}"));
    let printed: Value = serde_json::from_str(printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    assert_eq!(printed["ran"], true, "{printed}");
    assert_eq!(printed["widths"], serde_json::json!([1, 7]), "{printed}");
    let part = serde_json::json!({ "status": 206, "text": "2345", "range": "bytes 2-5/16" });
    assert_eq!(printed["part"], part, "{printed}");
    for whole in ["first", "again"] {
        assert_eq!(
            (&printed[whole]["status"], &printed[whole]["text"]),
            (&200.into(), &"0123456789abcdef".into()),
            "{printed}"
        );
    }
    assert_eq!(printed["same"]["status"], 412, "{printed}");
    assert_eq!(printed["absent"]["status"], 404, "{printed}");
    // The precompressed variant was sent and decompressed.
    let sizes = &printed["sizes"][0];
    assert!(sizes[0].as_u64().unwrap() * 10 < sizes[1].as_u64().unwrap(), "{printed}");
    // The second request was conditional and got 304.
    serving.running.signal(Signal::SIGTERM);
    serving.running.finish().success();
    let log = fs::read_to_string(&log).unwrap();
    assert!(log.contains("\"GET /digits.txt HTTP/1.1\" 304 "), "{log}");
}
