//! `cargo xtask bench load`: the load generator compared with wrk and h2load, and the send lag of an open loop.
//!
//! The server runs on core 0, the client with its recorder on core 1; every request is recorded. Each figure is printed
//! with the utilization of both cores: if the server's core is saturated, the client could have done more.

mod http3;
pub(super) mod measure;

use anyhow::{Result, bail};

use self::measure::{Client, Figures};
use super::extent::only;
use super::rounds::{line, median, ratio};
use super::servers::{PORT, Running, SecureSite, Site, need, yamabiko};

const ROUNDS: usize = 5;
/// Offered rates of the open loop, as multiples of wrk's rate in a closed loop.
const RATE_STEPS: [f64; 8] = [0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5];
/// A rate is achieved if this share of the offered requests completed in time.
const MIN_ACHIEVED_SHARE: f64 = 0.995;

/// What `--only` selects.
const PARTS: [&str; 3] = ["wrk", "h2load", "oha"];

/// Runs the bench and prints it.
pub fn run() -> Result<()> {
    run_with(&[])
}

/// Runs the bench with the options of its command line: `--only PART`.
pub fn run_with(words: &[&str]) -> Result<()> {
    let (only, others) = only(words, &PARTS)?;
    if let Some(other) = others.first() {
        bail!("`{other}` is not understood; there is --only PART");
    }
    for program in ["wrk", "h2load", "nginx", "openssl", "taskset"] {
        need(program)?;
    }
    let client = Client::new(yamabiko()?)?;
    let is_chosen = |part| only.is_none_or(|only| only == part);
    if is_chosen("wrk") {
        let max = format!("exec {} serve --max 1KiB --listen 127.0.0.1:{PORT}", client.yamabiko().display());
        let _server = Running::start(&max, Some("0"))?;
        keep_alive(&client)?;
        connection_per_request(&client)?;
    }
    if is_chosen("h2load") {
        compare_with_h2load(&client)?;
    }
    if is_chosen("oha") {
        http3::compare(&client)?;
    }
    Ok(())
}

fn keep_alive(client: &Client) -> Result<()> {
    println!("\nkeep-alive, 1 KB, 64 connections, against `serve --max`");
    let (mut wrk, mut again, mut epoll, mut ring) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        wrk.push(client.wrk(&[])?);
        epoll.push(client.bench(&["-c", "64", "--engine", "epoll"])?);
        ring.push(client.bench(&["-c", "64", "--engine", "io_uring"])?);
        again.push(client.wrk(&[])?);
    }
    show("wrk, closed loop", &wrk);
    show("yamabiko, closed loop, epoll", &epoll);
    show("yamabiko, closed loop, io_uring", &ring);
    println!(
        "  epoll / wrk {:.2}; io_uring / wrk {:.2}; wrk / wrk again {:.2}",
        times(&epoll, &wrk),
        times(&ring, &wrk),
        times(&wrk, &again)
    );
    // As many connections as wrk: an open loop without a limit opens a connection whenever none is idle.
    open_loop(client, &wrk, &["-c", "64"])
}

fn connection_per_request(client: &Client) -> Result<()> {
    println!("\none connection per request, 1 KB, 64 concurrent, against `serve --max`");
    let (mut wrk, mut again, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        wrk.push(client.wrk(&["-H", "Connection: close"])?);
        ours.push(client.bench(&["-c", "64", "--close"])?);
        again.push(client.wrk(&["-H", "Connection: close"])?);
    }
    show("wrk, closed loop", &wrk);
    show("yamabiko, closed loop", &ours);
    println!(
        "  yamabiko / wrk {:.2}, CPU a request {:.2}; wrk / wrk again {:.2}",
        times(&ours, &wrk),
        ratio(&cpu(&ours), &cpu(&wrk)),
        times(&wrk, &again)
    );
    open_loop(client, &wrk, &["--close"])
}

/// Tries rising rates until one is not achieved, then measures the send lag at 80 % of the highest achieved rate.
fn open_loop(client: &Client, wrk: &[Figures], options: &[&str]) -> Result<()> {
    let base = median(&rates(wrk));
    let mut highest: Option<(f64, Figures)> = None;
    let at = |rate: f64| -> Result<Figures> {
        let rate = format!("{rate:.0}/s");
        client.bench(&[&["--rate", &rate], options].concat())
    };
    println!("  open loop: offered, achieved, send lag p50 / p99 in us");
    for step in RATE_STEPS {
        // The better of two runs counts, since the machine is shared.
        let (first, second) = (at(base * step)?, at(base * step)?);
        let figures = if first.lag_ns.1 <= second.lag_ns.1 { first } else { second };
        println!("    {:>9.0}/s  {figures}", base * step);
        if figures.rate < MIN_ACHIEVED_SHARE * base * step || figures.failed > 0 {
            break;
        }
        highest = Some((base * step, figures));
    }
    let Some((rate, _)) = highest else {
        println!("  open loop: not even {:.1} of wrk's rate was achieved", RATE_STEPS[0]);
        return Ok(());
    };
    println!("  open loop: highest achieved rate / wrk {:.2}", rate / base);
    println!("  at 80 % of it, each round:");
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let figures = at(rate * 0.8)?;
        println!("    {:>9.0}/s  {figures}", rate * 0.8);
        rounds.push(figures);
    }
    let of = |value: fn(&Figures) -> f64| median(&rounds.iter().map(value).collect::<Vec<_>>()) / 1e3;
    println!(
        "  send lag p99, median of the rounds: {:.1} us; without the machine's part {:.1} us",
        of(|figures| figures.lag_ns.1 as f64),
        of(|figures| figures.host.map_or(0.0, |host| host.own_lag_p99_ns as f64))
    );
    Ok(())
}

fn compare_with_h2load(client: &Client) -> Result<()> {
    let site = Site::new()?;
    let secure = SecureSite::new(&site)?;
    let _nginx = Running::start(&secure.nginx(), Some("0"))?;
    let (https, h2c) = (secure.https_url(), secure.h2c_url());
    let cases: [(&str, &str, &[&str], &[&str]); 3] = [
        ("HTTP/1.1 over TLS, 64 connections", &https, &["--h1", "-c", "64"], &["-k", "-c", "64"]),
        (
            "HTTP/2 over TLS, 8 connections of 16 streams",
            &https,
            &["-c", "8", "-m", "16"],
            &["-k", "--http", "2", "-c", "8", "--streams", "16"],
        ),
        (
            "HTTP/2 in clear, 8 connections of 16 streams",
            &h2c,
            &["-c", "8", "-m", "16"],
            &["--http", "2", "-c", "8", "--streams", "16"],
        ),
    ];
    for (what, url, theirs, mine) in cases {
        println!("\n{what}, 1 KB, against nginx");
        let (mut h2load, mut again, mut ours) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            h2load.push(client.h2load(url, theirs)?);
            ours.push(client.bench_of(url, mine)?);
            again.push(client.h2load(url, theirs)?);
        }
        show("h2load, closed loop", &h2load);
        show("yamabiko, closed loop", &ours);
        println!(
            "  yamabiko / h2load {:.2}, CPU a request {:.2}; h2load / h2load again {:.2}",
            times(&ours, &h2load),
            ratio(&cpu(&ours), &cpu(&h2load)),
            times(&h2load, &again)
        );
        if let Some(failed) = ours.iter().map(|figures| figures.failed).find(|&failed| failed > 0) {
            bail!("{failed} requests failed: the figures above are meaningless");
        }
    }
    Ok(())
}

fn show(label: &str, figures: &[Figures]) {
    println!("{}", line(label, "req/s", &rates(figures)));
    let of = |value: fn(&Figures) -> f64| median(&figures.iter().map(value).collect::<Vec<_>>());
    println!(
        "  {:<34} {:>12.2} us CPU a request; cores busy: client {:.0} %, server {:.0} %",
        "",
        of(|figures| figures.cpu_us_per_request()),
        100.0 * of(|figures| figures.client_core),
        100.0 * of(|figures| figures.server_core)
    );
    let loops: Vec<f64> = figures.iter().filter_map(|figures| figures.loop_busy).collect();
    if !loops.is_empty() {
        println!(
            "  {:<34} {:>12.0} req/s for each second in which the loop was busy",
            "",
            of(Figures::per_busy_second)
        );
    }
}

fn rates(figures: &[Figures]) -> Vec<f64> {
    figures.iter().map(|figures| figures.rate).collect()
}

fn cpu(figures: &[Figures]) -> Vec<f64> {
    figures.iter().map(Figures::cpu_us_per_request).collect()
}

fn times(of: &[Figures], to: &[Figures]) -> f64 {
    ratio(&rates(of), &rates(to))
}
