//! `cargo xtask bench capacity`: is the capacity that is found the one that is there, and found again?
//!
//! 1. A server whose capacity is known (`examples/model-server`, 200/s): ten searches; in how many the answer is within 3 %, and in how many
//!    the interval holds the truth. The same with its faults: what is named.
//! 2. nginx, Apache (prefork and event) and a Python application, each held to 20 % of a core, nginx to 5 %: five searches of one command, how far apart
//!    they are, and what httperf finds with a ladder of rates by hand through the same lab.
//! 3. Apache prefork at Koshien's distances, held to more than nearby: what is predicted to bind it, and what binds it.
//!
//! Trials are of `--seconds`, or of 2,000 requests where that is longer. Searches of the first and the third part are `--quick`. The whole takes some
//! two hours; `--only` takes one part of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::extent::{Extent, only};
use super::rounds::median;
use super::servers::{PORT, Site, yamabiko};

/// Searches of each server, and the length of their trials.
const USUAL: Extent = Extent { rounds: 5, seconds: 20 };
/// What `--only` knows.
const PARTS: [&str; 7] = ["known", "faults", "nginx", "prefork", "event", "gunicorn", "distances"];
/// What the model carries.
const KNOWN: f64 = 200.0;
const OBJECTIVE: &str = "p99 < 200ms, errors < 0.1%";
/// What each server is held to; nginx to less, or the client would be the limit: within a fifth of a core it carries more than half of what
/// a client can make that opens a connection for each request.
const SHARE: &str = "20%";
const SHARE_OF_NGINX: &str = "5%";
/// Far away it has what it needs, so that its number of workers can be what binds: as Apache has it if nobody says otherwise.
const SHARE_OF_FAR: &str = "50%";
const WORKERS: u32 = 256;
const OBJECTIVE_FAR: &str = "p90 < 3s, errors < 1%";
/// The ladder by hand: shares of the answer, each for so long.
const STEPS: [f64; 11] = [0.85, 0.875, 0.90, 0.925, 0.95, 0.975, 1.0, 1.025, 1.05, 1.075, 1.1];
const STEP_S: u64 = 10;
const WARM_S: u64 = 4;

/// Runs the bench at its usual length and prints it.
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Runs the bench with the options as typed and prints it.
///
/// # Errors
/// An option that there is not; something that could not be measured.
pub fn run_with(words: &[&str]) -> Result<()> {
    let (picked, words) = only(words, &PARTS)?;
    let wanted = |part: &str| picked.is_none_or(|picked| picked == part);
    let extent = USUAL.changed_by(&words)?;
    let yamabiko = yamabiko()?;
    if wanted("known") {
        known(&yamabiko, extent)?;
    }
    if wanted("faults") {
        faults(&yamabiko, extent)?;
    }
    if matches!(picked, Some("known" | "faults")) {
        return Ok(());
    }
    let site = Site::new()?;
    let scratch = tempfile::Builder::new().prefix("yamabiko-capacity-").tempdir()?;
    use std::os::unix::fs::PermissionsExt;
    // Their workers are other users.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755))?;
    let prefork = apache(scratch.path(), "prefork", &site)?;
    let servers = [
        Held { part: "nginx", share: SHARE_OF_NGINX, server: site.nginx(), page: "/10k.bin" },
        Held { part: "prefork", share: SHARE, server: prefork.clone(), page: "/10k.bin" },
        Held { part: "event", share: SHARE, server: apache(scratch.path(), "event", &site)?, page: "/10k.bin" },
        Held { part: "gunicorn", share: SHARE, server: gunicorn(scratch.path())?, page: "/" },
    ];
    if servers.iter().any(|server| wanted(server.part)) {
        println!(
            "\nHeld to {SHARE} of a core (nginx to {SHARE_OF_NGINX}), {OBJECTIVE}, one connection per request, {} searches each",
            extent.rounds
        );
    }
    for held in servers.iter().filter(|server| wanted(server.part)) {
        one(&yamabiko, held, extent)?;
    }
    if wanted("distances") {
        distances(&yamabiko, &prefork, extent)?;
    }
    Ok(())
}

/// One search; its document whatever its verdict.
fn search(yamabiko: &Path, server: &str, page: &str, extent: Extent, more: &[&str]) -> Result<Value> {
    let trial = format!("{}s", extent.seconds);
    let output = Command::new(yamabiko)
        .args([
            "capacity",
            &format!("http://server:{PORT}{page}"),
            "--server",
            server,
            "--trial",
            &trial,
            "--confirm",
            &trial,
        ])
        .args(["--no-save", "--json"])
        .args(more)
        .output()
        .context("yamabiko")?;
    serde_json::from_slice(&output.stdout).with_context(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// Why it is not valid.
fn doubts(document: &Value) -> String {
    let checks = document["validity"]["checks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let failed = checks.iter().filter(|check| check["state"] == "failed");
    failed.map(|check| format!("; {}: {}", check["name"], check["why"])).collect()
}

fn rate(document: &Value) -> f64 {
    document["capacity"]["rate_per_s"].as_f64().unwrap_or(f64::NAN)
}

fn model(faults: &str) -> String {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/model-server/model.py");
    format!("exec python3 {} --listen 0.0.0.0:{PORT} {faults}", model.display())
}

fn known(yamabiko: &Path, extent: Extent) -> Result<()> {
    let (mut near, mut covered, mut rates) = (0, 0, Vec::new());
    let searches = 2 * extent.rounds;
    for seed in 1..=searches {
        let seed = seed.to_string();
        let document = search(
            yamabiko,
            &model(""),
            "/",
            extent,
            &["--quick", "--slo", OBJECTIVE, "--seed", &seed, "--no-overload"],
        )?;
        let found = rate(&document);
        let [low, high] = [0, 1].map(|end| document["capacity"]["interval"][end].as_f64().unwrap_or(f64::NAN));
        println!("  model server: {found:.1}/s in {low:.1} .. {high:.1}, {}", document["validity"]["verdict"]);
        near += usize::from((found / KNOWN - 1.0).abs() <= 0.03);
        covered += usize::from((low..=high).contains(&KNOWN));
        rates.push(found);
    }
    println!(
        "A known capacity of {KNOWN}/s: within 3 % in {near} of {searches}, in the interval in {covered}; median {:.1}/s",
        median(&rates)
    );
    Ok(())
}

fn faults(yamabiko: &Path, extent: Extent) -> Result<()> {
    for (what, faults, objective) in [
        ("slower by 1 % a second", "--slower 0.01", OBJECTIVE),
        ("still for 300 ms every 5 s", "--stall 0.3/5", OBJECTIVE),
        ("still for 300 ms every 5 s, p50 only", "--stall 0.3/5", "p50 < 200ms"),
        ("leaks 1 MB a second", "--leak 1000000", OBJECTIVE),
    ] {
        let document = search(
            yamabiko,
            &model(faults),
            "/",
            extent,
            &["--quick", "--slo", objective, "--start", "100/s", "--no-overload"],
        )?;
        let findings = document["capacity"]["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
        let words: Vec<String> =
            findings.iter().map(|finding| format!("{}: {}", finding["name"], finding["words"])).collect();
        println!("{what}: {:.1}/s, {}; {}", rate(&document), document["validity"]["verdict"], words.join("; "));
    }
    Ok(())
}

/// A server that is held to a share of a core.
struct Held {
    /// What `--only` knows it by.
    part: &'static str,
    share: &'static str,
    server: String,
    page: &'static str,
}

fn one(yamabiko: &Path, held: &Held, extent: Extent) -> Result<()> {
    let Held { part: name, share, server, page } = held;
    let searches = extent.rounds.to_string();
    let words = [
        "--slo",
        OBJECTIVE,
        "--server-cpu",
        share,
        "--close",
        "--no-overload",
        "--searches",
        &searches,
        "--short",
        "5s",
    ];
    let document = search(yamabiko, server, page, extent, &words)?;
    let found = document["capacity"]["searches"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found = found.iter().zip(1_u64..).filter_map(|(search, which)| Some((search["lower"].as_f64()?, which)));
    let found: Vec<(f64, u64)> = found.collect();
    ensure!(!found.is_empty(), "{name}: no search came to its end{}", doubts(&document));
    println!(
        "  {name}: {:.1}/s, {}, bound by {}{}; searches: {}",
        rate(&document),
        document["validity"]["verdict"],
        document["capacity"]["bound_by"]["name"],
        doubts(&document),
        found
            .iter()
            .map(|&(rate, which)| format!("{rate:.1}{}", beside(&document, which)))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let rates: Vec<f64> = found.iter().map(|&(rate, _)| rate).collect();
    let middle = median(&rates);
    let (low, high) = rates.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), &rate| (low.min(rate), high.max(rate)));
    let by_hand = ladder(yamabiko, held, middle)?;
    println!(
        "{name}: {middle:.1}/s, all {} within {:.1} %; interval {} .. {}; httperf by hand: {}",
        rates.len(),
        100.0 * (high / low - 1.0),
        document["capacity"]["interval"][0],
        document["capacity"]["interval"][1],
        by_hand
    );
    Ok(())
}

/// What a request cost in the trials of a search, and how fast the machine was then: medians.
fn beside(document: &Value, search: u64) -> String {
    let trials = document["capacity"]["trials"].as_array().map(Vec::as_slice).unwrap_or_default();
    let trials: Vec<&Value> =
        trials.iter().filter(|trial| trial["search"] == search && trial["verdict"] != "void").collect();
    let of =
        |figure: &dyn Fn(&Value) -> Option<f64>| -> Vec<f64> { trials.iter().copied().filter_map(figure).collect() };
    let cost = of(&|trial| Some(trial["server"]["cpu_cores"].as_f64()? / trial["achieved_rate_per_s"].as_f64()?));
    let pace = of(&|trial| trial["cpu_probe_ns"].as_f64());
    if cost.is_empty() || pace.is_empty() {
        return String::new();
    }
    format!(" ({:.1} us each, pace {:.2} us)", 1e6 * median(&cost), median(&pace) / 1e3)
}

/// httperf's steps through the same lab: the highest rate at which it had 99 % of its replies, none late. Each has a server of its own, which
/// is cold: so a second httperf, at a third of the rate, goes before it.
fn ladder(yamabiko: &Path, Held { share, server, page, .. }: &Held, around: f64) -> Result<String> {
    if Command::new("httperf").arg("--version").output().is_err() {
        return Ok("not installed".to_owned());
    }
    let mut held = None;
    for step in STEPS {
        let rate = step * around;
        let load = |rate: f64, seconds: u64| {
            let connections = (rate * seconds as f64).ceil();
            format!(
                "httperf --hog --timeout 0.2 --server server --port {PORT} --num-calls 1 --uri {page} --rate {rate:.2} --num-conns {connections}"
            )
        };
        let script = format!("{} > /dev/null; exec {}", load(rate / 3.0, WARM_S), load(rate, STEP_S));
        let output = Command::new(yamabiko)
            .args(["net", "--server", server, "--server-cpu", share, "--", "sh", "-c", &script])
            .output()
            .context("httperf through yamabiko net")?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = said.lines().find_map(|line| line.strip_prefix("Errors: total ")?.split_whitespace().next());
        let errors: f64 = errors.and_then(|count| count.parse().ok()).with_context(|| {
            format!("httperf said nothing of errors: {said}{}", String::from_utf8_lossy(&output.stderr))
        })?;
        if errors <= 0.01 * rate * STEP_S as f64 {
            held = Some(rate);
        }
    }
    Ok(held.map_or_else(|| "no step held".to_owned(), |rate| format!("{rate:.1}/s is the last step that held")))
}

/// First what is predicted at Koshien's distances, from loads nearby and one light load there; then the search.
fn distances(yamabiko: &Path, prefork: &str, extent: Extent) -> Result<()> {
    println!("\nApache prefork, 10 KiB, one connection per request, {OBJECTIVE_FAR}");
    let url = format!("http://server:{PORT}/10k.bin");
    let workers = WORKERS.to_string();
    let output = Command::new(yamabiko)
        .args(["predict", &url, "--server", prefork, "--server-cpu", SHARE_OF_FAR, "--slo", OBJECTIVE_FAR, "--close"])
        .args(["--path", "koshien-2001", "--clients", "500", "--workers", &workers, "--no-save", "--json"])
        .output()
        .context("yamabiko")?;
    let predicted: Value = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
    println!(
        "  predicted: {}/s in {} .. {}, bound by {}, {}{}",
        predicted["predict"]["rate_per_s"],
        predicted["predict"]["interval"][0],
        predicted["predict"]["interval"][1],
        predicted["predict"]["bound_by"],
        predicted["validity"]["verdict"],
        doubts(&predicted)
    );
    let words = [
        "--quick",
        "--slo",
        OBJECTIVE_FAR,
        "--server-cpu",
        SHARE_OF_FAR,
        "--close",
        "--clients",
        "500",
        // It starts its workers one by one, twice as many each second.
        "--warmup",
        "20s",
        "--path",
        "koshien-2001",
        "--no-overload",
    ];
    let document = search(yamabiko, prefork, "/10k.bin", extent, &words)?;
    let found = &document["capacity"];
    println!(
        "  found: {}/s in {} .. {}, bound by {} ({}), {}{}",
        found["rate_per_s"],
        found["interval"][0],
        found["interval"][1],
        found["bound_by"]["name"],
        found["bound_by"]["words"],
        document["validity"]["verdict"],
        doubts(&document)
    );
    Ok(())
}

/// An Apache with one of its multi-processing modules, its own limits, in a folder of its own.
fn apache(scratch: &Path, module: &str, site: &Site) -> Result<String> {
    let folder: PathBuf = scratch.join(module);
    fs::create_dir_all(&folder)?;
    let modules =
        ["/usr/lib/apache2/modules", "/usr/lib64/httpd/modules"].into_iter().find(|place| Path::new(place).exists());
    let modules = modules.context("Apache is not installed: apt-get install apache2")?;
    let www = site.path("");
    let mut text = format!(
        "ServerName server\nServerRoot {0}\nPidFile {0}/apache.pid\nDefaultRuntimeDir {0}\nMutex file:{0} default\nListen 0.0.0.0:{PORT}\n\
         User www-data\nGroup www-data\n",
        folder.display()
    );
    for name in [&format!("mpm_{module}")[..], "unixd", "authz_core"] {
        let file = format!("{modules}/mod_{name}.so");
        if Path::new(&file).exists() {
            text += &format!("LoadModule {name}_module {file}\n");
        }
    }
    text += &format!(
        "DocumentRoot {0}\nErrorLog {1}/error.log\n<Directory {0}>\n  Require all granted\n</Directory>\n",
        www.display(),
        folder.display()
    );
    let file = folder.join("apache.conf");
    fs::write(&file, text)?;
    Ok(format!("exec apache2 -DFOREGROUND -f {}", file.display()))
}

/// A Python application under gunicorn, two workers.
fn gunicorn(scratch: &Path) -> Result<String> {
    let application = "def application(environ, start):\n    body = ('\\n'.join(str(n * n) for n in range(500))).encode()\n    \
                       start('200 OK', [('Content-Type', 'text/plain'), ('Content-Length', str(len(body)))])\n    return [body]\n";
    fs::write(scratch.join("squares.py"), application)?;
    Ok(format!("exec gunicorn -w 2 -b 0.0.0.0:{PORT} --chdir {} squares:application", scratch.display()))
}
