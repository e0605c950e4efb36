//! `cargo xtask bench capacity`: accuracy and repeatability of measured capacities.
//!
//! 1. A server of known capacity (`examples/model-server`, 200/s): ten searches; how many results are within 3 %, and
//!    how many intervals contain the true capacity. The same server with its faults: what the results report.
//! 2. nginx, Apache (prefork and event) and a Python application, each limited to 20 % of a core, nginx to 5 %: five
//!    searches with one command, their spread, and the result of httperf with a ladder of rates in the same testbed.
//! 3. Apache prefork over the Koshien profile, with a higher CPU limit: predicted and measured bottleneck.
//!
//! Trials last `--seconds`, or 2,000 requests if that is longer. The first and third part use `--quick`. The bench
//! takes about two hours; `--only` runs one part.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::extent::{Extent, only};
use super::rounds::median;
use super::servers::{PORT, Site, yamabiko};

/// Default number of searches of each server, and length of their trials.
const USUAL: Extent = Extent { rounds: 5, seconds: 20 };
/// Names of the parts for `--only`.
const PARTS: [&str; 7] = ["known", "faults", "nginx", "prefork", "event", "gunicorn", "distances"];
/// Capacity of the model server per second.
const KNOWN: f64 = 200.0;
const OBJECTIVE: &str = "p99 < 200ms, errors < 0.1%";
/// CPU limit of each server. nginx has a lower one, since with 20 % of a core its capacity is more than half of what a
/// client with a connection per request can offer.
const SHARE: &str = "20%";
const SHARE_OF_NGINX: &str = "5%";
/// CPU limit over the Koshien profile: high enough that the number of workers, Apache's default, can be the bottleneck.
const SHARE_OF_FAR: &str = "50%";
const WORKERS: u32 = 256;
const OBJECTIVE_FAR: &str = "p90 < 3s, errors < 1%";
/// httperf's ladder: rates as shares of the measured capacity, and the duration of each.
const LADDER: [f64; 11] = [0.85, 0.875, 0.90, 0.925, 0.95, 0.975, 1.0, 1.025, 1.05, 1.075, 1.1];
const STEP_S: u64 = 10;
const WARMUP_S: u64 = 4;

/// Runs the bench at its usual length and prints it.
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Runs the bench with these options and prints it.
///
/// # Errors
/// An unknown option, or a failed measurement.
pub fn run_with(words: &[&str]) -> Result<()> {
    let (selected, words) = only(words, &PARTS)?;
    let is_selected = |part: &str| selected.is_none_or(|selected| selected == part);
    let extent = USUAL.changed_by(&words)?;
    let yamabiko = yamabiko()?;
    if is_selected("known") {
        known(&yamabiko, extent)?;
    }
    if is_selected("faults") {
        faults(&yamabiko, extent)?;
    }
    if matches!(selected, Some("known" | "faults")) {
        return Ok(());
    }
    let site = Site::new()?;
    let scratch = tempfile::Builder::new().prefix("yamabiko-capacity-").tempdir()?;
    use std::os::unix::fs::PermissionsExt;
    // The workers run as other users.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755))?;
    let prefork = apache(scratch.path(), "prefork", &site)?;
    let servers = [
        LimitedServer { part: "nginx", share: SHARE_OF_NGINX, server: site.nginx(), page: "/10k.bin" },
        LimitedServer { part: "prefork", share: SHARE, server: prefork.clone(), page: "/10k.bin" },
        LimitedServer {
            part: "event",
            share: SHARE,
            server: apache(scratch.path(), "event", &site)?,
            page: "/10k.bin",
        },
        LimitedServer { part: "gunicorn", share: SHARE, server: gunicorn(scratch.path())?, page: "/" },
    ];
    if servers.iter().any(|server| is_selected(server.part)) {
        println!(
            "\nLimited to {SHARE} of a core (nginx to {SHARE_OF_NGINX}), {OBJECTIVE}, one connection per request, {} searches each",
            extent.rounds
        );
    }
    for limited in servers.iter().filter(|server| is_selected(server.part)) {
        measure_server(&yamabiko, limited, extent)?;
    }
    if is_selected("distances") {
        distances(&yamabiko, &prefork, extent)?;
    }
    Ok(())
}

/// Runs one search; returns its document, whatever the verdict.
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

/// The checks because of which a result is not valid.
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

/// A server with a CPU limit.
struct LimitedServer {
    /// Name for `--only`.
    part: &'static str,
    share: &'static str,
    server: String,
    page: &'static str,
}

fn measure_server(yamabiko: &Path, limited: &LimitedServer, extent: Extent) -> Result<()> {
    let LimitedServer { part: name, share, server, page } = limited;
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
            .map(|&(rate, which)| format!("{rate:.1}{}", cost_and_cpu_speed(&document, which)))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let rates: Vec<f64> = found.iter().map(|&(rate, _)| rate).collect();
    let middle = median(&rates);
    let (low, high) = rates.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), &rate| (low.min(rate), high.max(rate)));
    let httperf_rate = ladder(yamabiko, limited, middle)?;
    println!(
        "{name}: {middle:.1}/s, all {} within {:.1} %; interval {} .. {}; httperf by hand: {}",
        rates.len(),
        100.0 * (high / low - 1.0),
        document["capacity"]["interval"][0],
        document["capacity"]["interval"][1],
        httperf_rate
    );
    Ok(())
}

/// Medians of the CPU time per request in the trials of a search, and of the CPU speed probe.
fn cost_and_cpu_speed(document: &Value, search: u64) -> String {
    let trials = document["capacity"]["trials"].as_array().map(Vec::as_slice).unwrap_or_default();
    let trials: Vec<&Value> =
        trials.iter().filter(|trial| trial["search"] == search && trial["verdict"] != "void").collect();
    let of =
        |figure: &dyn Fn(&Value) -> Option<f64>| -> Vec<f64> { trials.iter().copied().filter_map(figure).collect() };
    let cost = of(&|trial| Some(trial["server"]["cpu_cores"].as_f64()? / trial["achieved_rate_per_s"].as_f64()?));
    let probe = of(&|trial| trial["cpu_probe_ns"].as_f64());
    if cost.is_empty() || probe.is_empty() {
        return String::new();
    }
    format!(" ({:.1} us each, CPU probe {:.2} us)", 1e6 * median(&cost), median(&probe) / 1e3)
}

/// Runs httperf's ladder through the same testbed; returns the highest rate with 99 % of the replies, none of them
/// late. Each step has a new server, which another httperf at a third of the rate warms up.
fn ladder(yamabiko: &Path, LimitedServer { share, server, page, .. }: &LimitedServer, around: f64) -> Result<String> {
    if Command::new("httperf").arg("--version").output().is_err() {
        return Ok("not installed".to_owned());
    }
    let mut sustained = None;
    for step in LADDER {
        let rate = step * around;
        let load = |rate: f64, seconds: u64| {
            let connections = (rate * seconds as f64).ceil();
            format!(
                "httperf --hog --timeout 0.2 --server server --port {PORT} --num-calls 1 --uri {page} --rate {rate:.2} --num-conns {connections}"
            )
        };
        let script = format!("{} > /dev/null; exec {}", load(rate / 3.0, WARMUP_S), load(rate, STEP_S));
        let output = Command::new(yamabiko)
            .args(["net", "--server", server, "--server-cpu", share, "--", "sh", "-c", &script])
            .output()
            .context("httperf through yamabiko net")?;
        let report = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = report.lines().find_map(|line| line.strip_prefix("Errors: total ")?.split_whitespace().next());
        let errors: f64 = errors.and_then(|count| count.parse().ok()).with_context(|| {
            format!("httperf printed no line `Errors: total`: {report}{}", String::from_utf8_lossy(&output.stderr))
        })?;
        if errors <= 0.01 * rate * STEP_S as f64 {
            sustained = Some(rate);
        }
    }
    Ok(sustained
        .map_or_else(|| "no step was sustained".to_owned(), |rate| format!("{rate:.1}/s is the last sustained step")))
}

/// Predicts the capacity over the Koshien profile, from loads without a path and one light load over the profile; then
/// searches it.
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
        // Apache starts its workers gradually, twice as many each second.
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

/// Command of an Apache with this multi-processing module and its default limits, in a folder of its own.
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

/// Command of a Python application under gunicorn with two workers.
fn gunicorn(scratch: &Path) -> Result<String> {
    let application = "def application(environ, start):\n    body = ('\\n'.join(str(n * n) for n in range(500))).encode()\n    \
                       start('200 OK', [('Content-Type', 'text/plain'), ('Content-Length', str(len(body)))])\n    return [body]\n";
    fs::write(scratch.join("squares.py"), application)?;
    Ok(format!("exec gunicorn -w 2 -b 0.0.0.0:{PORT} --chdir {} squares:application", scratch.display()))
}
