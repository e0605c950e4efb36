//! The manager's page in a real browser, with two hundred simulated agents: figures equal the API's, settings reach the
//! agents, text of agents is escaped, the console has no errors, and the page sends no requests to other hosts.
//! Screenshots are written to the folder in `YAMABIKO_SHOTS`.

#[allow(dead_code, reason = "other tests use the rest of it")]
#[path = "../../../manager/tests/support/scripted.rs"]
mod scripted;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use manager::tokens::{self, Role};
use manager::{Data, settings};
use scripted::{DISCONNECTED_AGENT, HOSTILE, HOSTILE_AT, HOSTILE_PROGRAM, ScriptedAgent, agents};
use serde::Serialize;
use serde_json::{Value, json};
use web::post::{Post, Receiver, Roots};

use crate::support::browser::{Browser, Tab};
use crate::support::workspace::{TEST_TIMEOUT, Workspace};

const SECOND_NS: u64 = 1_000_000_000;
const AGENTS: usize = 200;
const DESKTOP: (u32, u32) = (1280, 900);
const PHONE: (u32, u32) = (390, 844);

/// `yamabiko tap manager`, which ends with the test.
struct Manager {
    child: Child,
    agents_url: String,
    page_url: String,
    data: PathBuf,
}

impl Manager {
    fn start(workspace: &Workspace) -> Manager {
        Manager::start_with_page(workspace, "127.0.0.1:0")
    }

    /// Starts a manager with its page at this address.
    fn start_with_page(workspace: &Workspace, page: &str) -> Manager {
        let data = workspace.file("data");
        let folder = data.to_str().unwrap();
        let mut command: Command =
            workspace.command(&["tap", "manager", "--listen", "127.0.0.1:0", "--page", page, "--data", folder]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut url = |name: &str| {
            let line = lines.next().unwrap().unwrap();
            let url = line.strip_prefix(name).unwrap_or_else(|| panic!("{line:?} does not begin with {name}"));
            url.trim().to_owned()
        };
        let (agents_url, page_url) = (url("agents"), url("page"));
        Manager { child, agents_url, page_url, data }
    }

    /// Scheme, address and port of the page.
    fn origin(&self) -> String {
        self.page_url.splitn(4, '/').take(3).collect::<Vec<_>>().join("/")
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A simulated agent and its connection to the manager.
struct Sender {
    agent: ScriptedAgent,
    post: Post,
}

impl Sender {
    fn new(agent: ScriptedAgent, manager: &Manager, data: &Data) -> Sender {
        let token = tokens::add(data, &agent.name, Role::Agent, now_ns()).unwrap();
        let headers = vec![
            (HeaderName::from_static(tap_protocol::ZERO), HeaderValue::from(agent.zero_ns)),
            (HeaderName::from_static(tap_protocol::ZERO_ERROR), HeaderValue::from(300_000)),
            (AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap()),
        ];
        let url = format!("{}api/1/agents/{}", manager.agents_url, agent.name);
        let roots = Roots::File(certificate(&manager.data));
        let post = Post::new(Receiver { url, headers, roots, timeout: Duration::from_secs(60) }).unwrap();
        Sender { agent, post }
    }

    fn post(&self, what: &str, body: &impl Serialize) -> Value {
        let body = serde_json::to_vec(body).unwrap();
        let reply = self.post.exchange(&format!("/{what}"), &body, &[("content-type", "application/json")]).unwrap();
        assert_eq!(reply.status, 200, "{what}: {}", String::from_utf8_lossy(&reply.body));
        serde_json::from_slice(&reply.body).unwrap()
    }

    fn send_batch(&mut self, from_ns: u64, until_ns: u64, interval_ns: u64) -> Value {
        let batch = self.agent.batch(from_ns, until_ns, interval_ns, until_ns);
        self.post("batches", &batch)
    }
}

fn certificate(data: &Path) -> PathBuf {
    data.join("ca.pem")
}

fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64
}

fn screenshot_file(name: &str) -> PathBuf {
    let folder = std::env::var_os("YAMABIKO_SHOTS").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from);
    fs::create_dir_all(&folder).unwrap();
    folder.join(format!("fleet-{name}.png"))
}

/// No console errors, and no requests to other hosts.
fn assert_clean(tab: &mut Tab<'_>, manager: &Manager) {
    assert_eq!(tab.errors_and_warnings(), Vec::<String>::new());
    for url in tab.requests() {
        assert!(url.starts_with(&manager.origin()) || url.starts_with("data:,"), "{url}");
    }
    assert_eq!(
        tab.value("document.documentElement.scrollWidth <= innerWidth"),
        true,
        "the page is not wider than the window"
    );
}

/// Calls the API from the page's script context.
fn api(tab: &mut Tab<'_>, path: &str) -> Value {
    tab.value(&format!("fetch('api/1/{path}').then((response) => response.json())"))
}

/// Waits until a JavaScript promise resolves to true.
fn wait_until_so(tab: &mut Tab<'_>, expression: &str) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while tab.value(expression) != true {
        assert!(Instant::now() < deadline, "timeout waiting for {expression}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn navigate(tab: &mut Tab<'_>, hash: &str) {
    tab.value(&format!("location.hash = {hash:?}"));
    let view = hash.trim_start_matches('#').split('?').next().unwrap();
    tab.wait_for(&format!("!document.getElementById('view-{view}').hidden"));
}

#[test]
fn the_fleet_page_shows_and_configures_two_hundred_agents() {
    let workspace = Workspace::new();
    let manager = Manager::start(&workspace);
    let data = Data::open_shared(&manager.data, false).unwrap();
    let now = now_ns();
    let made = agents(AGENTS, now - 30 * 3600 * SECOND_NS);
    let mut senders: Vec<Sender> = made.into_iter().map(|agent| Sender::new(agent, &manager, &data)).collect();
    for sender in &mut senders {
        sender.post("hello", &sender.agent.hello(now));
        let (name, group) = (sender.agent.name.clone(), sender.agent.group);
        data.change(|index| settings::set_group(index, &name, group, now)).unwrap();
        sender.send_batch(now - 3000 * SECOND_NS, now, 60 * SECOND_NS);
    }
    let away = (now - 3 * 3600 * SECOND_NS) as i64;
    let name = senders[DISCONNECTED_AGENT].agent.name.clone();
    data.change(|index| index.execute("UPDATE agents SET last_seen_at = ?2 WHERE name = ?1", (name, away))).unwrap();

    let mut browser = Browser::start(&workspace);
    let mut tab = browser.tab(DESKTOP.0, DESKTOP.1, false);
    tab.open(&manager.page_url);
    tab.wait_for("document.body.dataset.ready");
    tab.wait_for(&format!("document.querySelectorAll('#agents-table tbody tr').length === {AGENTS}"));
    // Rows are written to files within seconds; then every agent that is a client has a line.
    tab.wait_for("document.querySelectorAll('#agents-table .c-p99 svg').length > 100");
    tab.screenshot(&screenshot_file("agents-desktop"), false);

    // The figures equal the API's. A silent agent counts as away after some time, so the test repeats until page and
    // API show the same state.
    wait_until_so(
        &mut tab,
        "fetch('api/1/agents?state=connected').then((response) => response.json()).then(({ all }) => \
         document.getElementById('title').textContent === `${all} of 200 agents are connected`)",
    );
    // All rows are in a file, so that nothing changes between two requests.
    wait_until_so(
        &mut tab,
        "fetch('api/1/health').then((response) => response.json()).then(({ queue }) => queue.rows === 0)",
    );
    navigate(&mut tab, "#quality?by=group&since=6h");
    tab.wait_for("document.querySelectorAll('#quality-table tbody tr').length === 4");
    let on_page = tab.value(
        "[...document.querySelectorAll('#quality-table tbody tr')].map((row) => [row.cells[0].textContent, JSON.parse(row.dataset.values)])",
    );
    let from_api = api(&mut tab, "quality?by=group&since=6h&resolution=auto&side=client");
    let mut attempts = 0;
    for (row, group) in on_page.as_array().unwrap().iter().zip(from_api["groups"].as_array().unwrap()) {
        let name = group["key"].as_str().unwrap_or("in no group");
        assert_eq!(
            (&row[0], &row[1]["attempts"], &row[1]["response_ns"]),
            (&json!(name), &group["whole"]["attempts"], &group["whole"]["response_ns"])
        );
        attempts += group["whole"]["attempts"].as_u64().unwrap();
    }
    let summary = tab.value("document.getElementById('quality-said').textContent");
    let grouped = attempts
        .to_string()
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|part| str::from_utf8(part).unwrap())
        .collect::<Vec<_>>()
        .join(",");
    assert!(summary.as_str().unwrap().starts_with(&format!("{grouped} attempts")), "{summary}");
    tab.wait_for("document.querySelectorAll('#quality-charts canvas').length === 5");
    tab.value("document.querySelectorAll('#quality-charts details').forEach((details) => (details.open = true))");
    tab.wait_for("document.querySelectorAll('#quality-charts table tbody tr').length > 100");
    tab.value("document.querySelectorAll('#quality-charts details').forEach((details) => (details.open = false))");
    tab.screenshot(&screenshot_file("quality-desktop"), true);

    // Text of agents is shown as text.
    let hostile = senders[HOSTILE_AT].agent.name.clone();
    navigate(&mut tab, &format!("#agent?name={hostile}"));
    tab.wait_for(&format!("document.getElementById('agent-programs').textContent.includes({HOSTILE_PROGRAM:?})"));
    let words = tab.value("document.body.innerText");
    assert!(words.as_str().unwrap().contains(HOSTILE), "{words}");
    assert_eq!(tab.value("document.querySelectorAll('img, main script, iframe, object').length"), 0);
    assert_eq!(tab.value("window.ran === undefined"), true);

    // A setting arrives at the agent, and the page shows when.
    let configured = &mut senders[0];
    navigate(&mut tab, &format!("#agent?name={}", configured.agent.name));
    tab.wait_for("document.querySelector('#agent-settings input[name=share]')?.value === '100'");
    tab.value(
        "(() => { const share = document.querySelector('#agent-settings input[name=share]'); share.focus(); share.value = '25'; \
         share.closest('form').requestSubmit(); })()",
    );
    tab.wait_for("document.querySelector('#agent-settings .said').textContent.startsWith('Stored as version 2')");
    let stored = configured.send_batch(now, now_ns(), 60 * SECOND_NS);
    assert_eq!((&stored["settings"]["version"], &stored["settings"]["share"]), (&json!(2), &json!(0.25)));
    let at = now_ns();
    let batch = tap_protocol::Batch { settings: 2, ..configured.agent.batch(at, at, 1, at) };
    configured.post("batches", &batch);
    tab.wait_for("document.getElementById('agent-goes-by').textContent === 'The agent uses version 2.'");
    tab.screenshot(&screenshot_file("agent-desktop"), true);
    assert_clean(&mut tab, &manager);
    drop(tab);

    for (name, (width, height), is_dark) in
        [("dark", DESKTOP, true), ("phone", PHONE, false), ("phone-dark", PHONE, true)]
    {
        let mut tab = browser.tab(width, height, is_dark);
        tab.open(&manager.page_url);
        tab.wait_for("document.body.dataset.ready");
        for hash in [
            "#agents",
            "#quality?by=none&since=1h",
            "#compare",
            "#alerts",
            "#settings",
            "#refusals",
            "#tokens",
            "#upkeep",
        ] {
            navigate(&mut tab, hash);
            let view = hash[1..].split('?').next().unwrap();
            // The page has received its data. The view of quality has a note before it has data.
            tab.wait_for(&format!("document.querySelector('#view-{view} table, #view-{view} .note')"));
            if view == "quality" {
                tab.wait_for("document.querySelectorAll('#quality-charts canvas').length === 5");
            }
            assert_eq!(tab.value("document.documentElement.scrollWidth <= innerWidth"), true, "{name} {hash}");
            tab.screenshot(&screenshot_file(&format!("{view}-{name}")), false);
        }
        assert_clean(&mut tab, &manager);
    }
}

#[test]
fn the_fleet_page_works_by_keyboard_and_reconnects() {
    let workspace = Workspace::new();
    let manager = Manager::start(&workspace);
    let mut browser = Browser::start(&workspace);
    let mut tab = browser.tab(DESKTOP.0, DESKTOP.1, false);
    tab.open(&manager.page_url);
    tab.wait_for("document.body.dataset.ready && document.getElementById('title').textContent === 'No agent yet'");
    // Go to the tokens and create one.
    let mut steps = 0;
    while tab.value("document.activeElement.hash === '#tokens'") != true {
        tab.press("Tab");
        steps += 1;
        assert!(steps < 20, "{}", tab.value("document.activeElement.outerHTML"));
        assert_eq!(
            tab.value("getComputedStyle(document.activeElement).outlineStyle"),
            "solid",
            "what has the focus is seen"
        );
    }
    tab.press("Enter");
    tab.wait_for("!document.getElementById('view-tokens').hidden");
    tab.press("Tab");
    tab.call("Input.insertText", json!({ "text": "shop-7" }));
    tab.press("Enter");
    tab.wait_for("/^shop-7\\.[A-Za-z0-9_-]{43}$/.test(document.getElementById('tokens-text').textContent)");
    tab.wait_for("document.querySelectorAll('#tokens-table tbody tr').length === 1");
    // A new token is shown once.
    navigate(&mut tab, "#agents");
    navigate(&mut tab, "#tokens");
    assert_eq!(
        tab.value(
            "document.getElementById('tokens-made').hidden && document.getElementById('tokens-text').textContent === ''"
        ),
        true
    );
    tab.wait_for("document.getElementById('title').textContent === '0 of 1 agents are connected'");
    // Landmarks, and names of the controls.
    assert_eq!(tab.value("document.querySelectorAll('main, header, footer, nav, h1').length"), 5);
    assert_eq!(
        tab.value("[...document.querySelectorAll('input, select')].every((one) => one.closest('label') || one.getAttribute('aria-label'))"),
        true
    );
    assert_eq!(tab.value("[...document.querySelectorAll('button')].every((one) => one.textContent.trim())"), true);
    assert_clean(&mut tab, &manager);
    // The manager is killed and restarted at the same address with the same secret.
    let (url, address) = (manager.page_url.clone(), manager.origin().replace("http://", ""));
    drop(manager);
    tab.wait_for("!document.getElementById('lost').hidden");
    let manager = Manager::start_with_page(&workspace, &address);
    assert_eq!(manager.page_url, url);
    tab.wait_for("document.getElementById('lost').hidden");
}
