//! The live page in a real browser during a run: charts change, figures equal summary.json, the console has no errors,
//! and the page sends no requests to other hosts. Screenshots are written to the folder in `YAMABIKO_SHOTS`.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::browser::{Browser, Tab};
use crate::support::hostile;
use crate::support::servers::{bench, yamabiko_serve};
use crate::support::workspace::{Running, TEST_TIMEOUT, Workspace, str_of, wait_until};
use hostile::Hostile;

/// `yamabiko live`, which ends with the test.
pub struct Page {
    child: Child,
    url: String,
}

impl Page {
    pub fn open(workspace: &Workspace, arguments: &[&str]) -> Page {
        let mut command: Command = workspace.command(&[&["live"], arguments].concat());
        command.env("YAMABIKO_RUNS", workspace.runs()).env_remove("YAMABIKO_TOKEN").current_dir(workspace.path());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim_end().to_owned();
        assert!(url.starts_with("http://"), "{url:?}");
        Page { child, url }
    }

    /// Address and port of the page.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://").split('/').next().unwrap()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The file of a screenshot.
fn screenshot_file(name: &str) -> PathBuf {
    let folder = std::env::var_os("YAMABIKO_SHOTS").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    fs::create_dir_all(&folder).unwrap();
    folder.join(format!("live-{name}.png"))
}

const DESKTOP: (u32, u32) = (1280, 900);
const PHONE: (u32, u32) = (390, 844);

/// No console errors, and no requests to other hosts.
fn assert_clean(tab: &mut Tab<'_>, page: &Page) {
    assert_eq!(tab.errors_and_warnings(), Vec::<String>::new());
    let origin = format!("http://{}/", page.address());
    for url in tab.requests() {
        assert!(url.starts_with(&origin) || url.starts_with("data:,"), "{url}");
    }
    // The page is not wider than the window.
    assert_eq!(tab.value("document.documentElement.scrollWidth <= innerWidth"), true);
}

/// The bytes of every drawn chart, as one string.
const DRAWN: &str = "[...document.querySelectorAll('canvas')].map((canvas) => canvas.toDataURL()).join()";

/// Scrolls through the page until all charts are drawn: charts are drawn when they become visible, and a running run
/// can get further charts.
fn scroll_through(tab: &mut Tab<'_>) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    let script = "(async () => { for (let y = 0; y < document.body.scrollHeight; y += 400) { scrollTo(0, y); \
                  await new Promise(requestAnimationFrame); await new Promise(requestAnimationFrame); } scrollTo(0, 0); \
                  return [...document.querySelectorAll('figure[data-id]')].every((figure) => figure.querySelector('canvas')); })()";
    while tab.value(script) != true {
        assert!(Instant::now() < deadline, "all charts are drawn before the timeout");
    }
}

fn id_of_the_run(workspace: &Workspace, running: &mut Running) -> String {
    let mut found = None;
    wait_until("the run's folder", || {
        assert!(!running.ended(), "{}", running.stderr());
        found = fs::read_dir(workspace.runs())
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name().into_string().unwrap())
            .next();
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn the_live_page_shows_a_running_and_a_finished_run() {
    let workspace = Workspace::concurrent_as_root();
    let options = "--path koshien-2001 --clients 100 --rate 200/s --close -d 300s --warmup 2s --json";
    let mut running = workspace.start(&bench(&yamabiko_serve(&workspace), options));
    let id = id_of_the_run(&workspace, &mut running);
    let page = Page::open(&workspace, &["last"]);
    let mut browser = Browser::start(&workspace);
    let mut tab = browser.tab(DESKTOP.0, DESKTOP.1, false);
    tab.open(&page.url);
    tab.wait_for(&format!("document.getElementById('title').textContent === {id:?}"));
    tab.wait_for("document.querySelectorAll('figure[data-id]').length >= 4");
    tab.wait_for("document.getElementById('status').textContent === 'Measuring'");
    // Charts change.
    scroll_through(&mut tab);
    tab.value("document.querySelector('figure[data-id]').scrollIntoView()");
    for _ in 0..2 {
        let before = tab.value(DRAWN);
        tab.wait_for(&format!("({DRAWN}) !== {before}"));
    }
    tab.wait_for("document.querySelector('#progress progress').value > 0.03");
    scroll_through(&mut tab);
    tab.screenshot(&screenshot_file("going-desktop"), true);
    {
        let facts = tab.value("[...document.querySelectorAll('#facts dt')].map((name) => name.textContent)");
        assert_eq!(
            facts,
            serde_json::json!(["Offered", "Achieved", "p50", "p99", "In flight", "Connections", "Failed"])
        );
    }

    // The run is long enough for a slow browser. Measured data stay on the page.
    running.signal(Signal::SIGINT);
    let output = running.finish();
    output.assert_measured();
    tab.wait_for("document.body.dataset.over === 'true'");
    let summary: Value =
        serde_json::from_slice(&fs::read(workspace.runs().join(&id).join("summary.json")).unwrap()).unwrap();
    let load = &summary["load"];
    let figures = "Object.fromEntries([...document.querySelectorAll('#facts div')].map((box) => \
                   [box.children[0].textContent, +box.children[1].dataset.value]))";
    let on_page = tab.value(figures);
    for (name, figure) in [
        ("Offered", &load["offered_rate_per_s"]),
        ("Achieved", &load["achieved_rate_per_s"]),
        ("p50", &load["response_time_ns"]["p50"]),
        ("p99", &load["response_time_ns"]["p99"]),
        ("In flight", &load["in_flight"]["mean"]),
        ("Connections", &load["connections"]["mean"]),
    ] {
        assert_eq!(on_page[name].as_f64(), figure.as_f64(), "{name}: {on_page}");
    }
    let verdict = tab.value("document.querySelector('#judged strong').textContent");
    assert_eq!(verdict.as_str().unwrap().to_lowercase(), summary["validity"]["verdict"].as_str().unwrap());
    // Every second of the exact table is on the page, also as table rows for screen readers.
    tab.value("document.querySelectorAll('figure details').forEach((details) => (details.open = true))");
    scroll_through(&mut tab);
    tab.wait_for("document.querySelectorAll('figure table').length >= 5");
    tab.value("document.querySelectorAll('figure details').forEach((details) => (details.open = false))");
    tab.screenshot(&screenshot_file("ended-desktop"), true);
    assert_clean(&mut tab, &page);
    drop(tab);

    for (name, (width, height), is_dark) in
        [("ended-dark", DESKTOP, true), ("ended-phone", PHONE, false), ("ended-phone-dark", PHONE, true)]
    {
        let mut tab = browser.tab(width, height, is_dark);
        tab.open(&page.url);
        tab.wait_for(
            "document.body.dataset.over === 'true' && document.querySelectorAll('figure[data-id]').length >= 4",
        );
        scroll_through(&mut tab);
        tab.screenshot(&screenshot_file(name), true);
        assert_clean(&mut tab, &page);
    }
}

#[test]
fn text_of_a_hostile_server_is_escaped_on_the_live_page() {
    let (workspace, server) = (Workspace::concurrent_as_root(), Hostile::start());
    let wild = "X-Wild: </script><script>window.ran=1</script><img src=x onerror=window.ran=1>";
    let url = server.url("/now-and-then?a=%3Cscript%3Ewindow.ran=1%3C/script%3E");
    let output = workspace.run(&["bench", &url, &server.url("/ok/1000"), "-n", "200", "-H", wild, "--json"]);
    output.assert_measured();
    // Text of a run can be hostile, since run stores can be copied from other hosts.
    let id = output.json()["run"]["id"].as_str().unwrap().to_owned();
    let file = workspace.runs().join(&id).join("summary.json");
    let mut summary: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let markup = "<img src=x onerror=window.ran=1>";
    summary["load"]["status"][markup] = 7.into();
    summary["load"]["failed"][markup] = 7.into();
    summary["run"]["id"] = markup.into();
    summary["validity"]["checks"][0]["why"] = markup.into();
    summary["validity"]["checks"][0]["state"] = "failed".into();
    fs::write(&file, summary.to_string()).unwrap();

    let page = Page::open(&workspace, &["last"]);
    let mut browser = Browser::start(&workspace);
    let mut tab = browser.tab(PHONE.0, PHONE.1, false);
    tab.open(&page.url);
    tab.wait_for("document.body.dataset.over === 'true'");
    let words = tab.value("document.body.innerText");
    assert!(words.as_str().unwrap().matches(markup).count() >= 3, "{words}");
    assert_eq!(tab.value("document.querySelectorAll('img, main script, iframe, object').length"), 0);
    assert_eq!(tab.value("window.ran === undefined"), true);
    assert_clean(&mut tab, &page);
}

#[test]
fn the_live_page_reconnects_and_works_by_keyboard() {
    let (workspace, server) = (Workspace::concurrent_as_root(), Hostile::start());
    for _ in 0..2 {
        let output = workspace.run(&["bench", &server.url("/ok/1000"), "-n", "300", "--rate", "300/s", "--json"]);
        output.assert_measured();
    }
    let file = workspace.file("secret");
    fs::write(&file, "correct-horse-battery").unwrap();
    // At an address that no other test uses: its port is still unused when the second process wants it.
    let first = Page::open(&workspace, &["--listen", "127.0.88.2:0", "--token-file", str_of(&file)]);
    let (url, listen) = (first.url.clone(), first.address().to_owned());
    let mut browser = Browser::start(&workspace);
    let mut tab = browser.tab(DESKTOP.0, DESKTOP.1, false);
    tab.open(&url);
    tab.wait_for("document.querySelectorAll('#sections a').length === 2");
    tab.screenshot(&screenshot_file("list-desktop"), true);
    assert_clean(&mut tab, &first);
    // The page's process is killed and restarted at the same address.
    drop(first);
    tab.wait_for("!document.getElementById('lost').hidden");
    let second = Page::open(&workspace, &["--listen", &listen, "--token-file", str_of(&file)]);
    tab.wait_for("document.getElementById('lost').hidden");

    // With the keyboard only: to the first run of the list, and opening it.
    let mut steps = 0;
    while tab.value("document.activeElement.closest('#sections a') !== null") != true {
        tab.press("Tab");
        steps += 1;
        assert!(steps < 20, "{}", tab.value("document.activeElement.outerHTML"));
        let outline = tab.value("getComputedStyle(document.activeElement).outlineStyle");
        assert_eq!(
            outline,
            "solid",
            "the focused element is visible: {}",
            tab.value("document.activeElement.outerHTML")
        );
    }
    tab.press("Enter");
    tab.wait_for(
        "location.pathname.startsWith('/correct-horse-battery/run/') && document.body?.dataset.over === 'true'",
    );
    // Landmarks, headings, and text alternatives of the charts.
    assert_eq!(tab.value("document.querySelectorAll('main, header, footer, h1').length"), 4);
    assert_eq!(tab.value("document.getElementById('aloud').getAttribute('aria-live')"), "polite");
    tab.wait_for("document.getElementById('aloud').textContent.includes('Achieved')");
    tab.wait_for("[...document.querySelectorAll('figure [role=img]')].some((chart) => chart.getAttribute('aria-label')?.includes('Latest: '))");
    assert_eq!(
        tab.value("[...document.querySelectorAll('button, select')].every((one) => one.textContent.trim())"),
        true
    );
    drop(tab);
    drop(second);
}

/// A thousand seconds of sixty series, added second by second: every series is drawn. The time is printed but not
/// checked, since it depends on the machine.
#[test]
fn the_live_page_draws_a_long_run_quickly() {
    let (workspace, server) = (Workspace::concurrent_as_root(), Hostile::start());
    let output = workspace.run(&["bench", &server.url("/ok/1000"), "-n", "20", "--json"]);
    output.assert_measured();
    let page = Page::open(&workspace, &["last"]);
    let mut browser = Browser::start(&workspace);
    let mut tab = browser.tab(DESKTOP.0, DESKTOP.1, false);
    // The test replaces the page's event stream.
    tab.call(
        "Page.addScriptToEvaluateOnNewDocument",
        serde_json::json!({ "source": "window.EventSource = class extends EventTarget { constructor() { super(); window.stream = this; } close() {} };" }),
    );
    tab.open(&page.url);
    tab.wait_for("window.stream");
    let measured = tab.value(
        "(async () => {\n\
         const charts = 12, lines = 5, count = 1000, ids = [...Array(charts).keys()];\n\
         const series = [...Array(lines).keys()].map((at) => ({ name: `line ${at}`, color: at, dash: false, fill: at === 0 }));\n\
         const value = (chart, line, x) => 100 + 50 * Math.sin(x / (10 + line) + chart) + line * 20;\n\
         const xs = [...Array(count).keys()];\n\
         const pieces = ids.map((id) => ({ kind: 'chart', id: `c${id}`, title: `Chart ${id}`, about: '', quantity: 'count', log: false,\n\
             wide: false, series, bands: [], xs, ys: series.map((one, line) => xs.map((x) => value(id, line, x))) }));\n\
         const head = { title: 't', status: { word: 'Measuring', tone: 'going' }, lead: '', facts: [], foot: [], aloud: '', is_over: false };\n\
         const send = (name, data) => stream.dispatchEvent(new MessageEvent(name, { data: JSON.stringify(data), lastEventId: 'x.1' }));\n\
         const frame = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));\n\
         send('snapshot', { ...head, sections: [{ id: 's', heading: 'h', pieces }] });\n\
         await frame();\n\
         const took = [];\n\
         for (let x = count; x < count + 20; x++) {\n\
             const grown = ids.map((id) => ({ id: `c${id}`, from: x, xs: [x], ys: series.map((one, line) => [value(id, line, x)]) }));\n\
             const before = performance.now();\n\
             send('step', { grown });\n\
             await frame();\n\
             took.push(performance.now() - before);\n\
         }\n\
         const last = [...document.querySelectorAll('.u-legend')].map((legend) => legend.querySelector('.u-value').textContent);\n\
         return { took: took.sort((a, b) => a - b), last, lines: document.querySelectorAll('.u-legend .u-series').length };\n\
         })()",
    );
    // With the time axis in each legend.
    let drawn = measured["lines"].as_u64().unwrap();
    assert!(drawn >= 12, "{measured}");
    // Visible charts show the newest second.
    assert_eq!(measured["last"][0], "1019 s", "{measured}");
    let median = measured["took"][10].as_f64().unwrap();
    println!("a step of 60 series at 1,000 points: {median:.1} ms in the median, {} ms at most", measured["took"][19]);
}

/// A killed run is shown up to its end.
#[test]
fn the_live_page_reports_a_killed_run() {
    let workspace = Workspace::concurrent_as_root();
    let mut running = workspace
        .start(&bench(&yamabiko_serve(&workspace), "--path koshien-2001 --clients 50 --rate 100/s -d 300s --json"));
    let id = id_of_the_run(&workspace, &mut running);
    let page = Page::open(&workspace, &["last"]);
    let mut browser = Browser::start(&workspace);
    let mut tab = browser.tab(PHONE.0, PHONE.1, true);
    tab.open(&page.url);
    tab.wait_for("document.querySelectorAll('figure[data-id]').length >= 4");
    scroll_through(&mut tab);
    tab.screenshot(&screenshot_file("going-phone-dark"), true);
    running.signal(Signal::SIGKILL);
    tab.wait_for("document.getElementById('status').textContent === 'Killed'");
    assert_eq!(tab.value("document.getElementById('title').textContent"), id.as_str());
    assert!(
        tab.value("document.querySelectorAll('canvas').length").as_u64().unwrap() >= 2,
        "what it had is still there"
    );
    assert_clean(&mut tab, &page);
}
