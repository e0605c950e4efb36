//! `cargo xtask bench serve`: servers on one core, measured by a generator on the other. All servers of a case run
//! concurrently on core 0, and idle while another one is measured; core 1 has the generator. Each round measures all
//! servers forwards and then backwards, so that drift of the machine affects all equally. Each rate is printed with the
//! server's CPU time per request and the utilization of both cores: if only the generator's core is saturated, the rate
//! is the generator's.

pub(super) mod measure;
mod peers;

use anyhow::{Result, bail};

use self::measure::{Measured, measure};
use self::peers::{Files, Peer, Protocol};
use super::extent::only;
use super::load::measure::Client;
use super::rounds::{median, ratio};
use super::servers::{need, yamabiko};

/// Number of rounds, each forwards and backwards.
const ROUNDS: usize = 2;
/// Length of one measurement in seconds.
const SECONDS: &str = "2";
/// Utilization from which the server's core counts as saturated.
const SERVER_SATURATED: f64 = 0.97;
/// Utilization from which the generator's core counts as saturated; lower, since the generator is idle at its start and
/// end.
const GENERATOR_SATURATED: f64 = 0.90;

/// What `--only` selects.
const PARTS: [&str; 4] = ["plain", "tls", "http2", "http3"];

/// A kind of load.
struct Case {
    about: &'static str,
    file: &'static str,
    options: &'static [&'static str],
    /// The equivalent options of wrk; `None` if wrk cannot do it.
    wrk: Option<&'static [&'static str]>,
    protocol: Protocol,
}

const CASES: &[Case] = &[
    Case { about: "keep-alive, 1 KB", file: "1k.bin", options: &[], wrk: Some(&[]), protocol: Protocol::Plain },
    Case { about: "keep-alive, 10 KB", file: "10k.bin", options: &[], wrk: None, protocol: Protocol::Plain },
    Case { about: "keep-alive, 100 KB", file: "100k.bin", options: &[], wrk: None, protocol: Protocol::Plain },
    Case { about: "keep-alive, 1 MB", file: "1m.bin", options: &[], wrk: None, protocol: Protocol::Plain },
    Case { about: "keep-alive, 10 MB", file: "10m.bin", options: &[], wrk: None, protocol: Protocol::Plain },
    Case {
        about: "one connection per request, 1 KB",
        file: "1k.bin",
        options: &["--close"],
        wrk: None,
        protocol: Protocol::Plain,
    },
    Case { about: "TLS, keep-alive, 1 KB", file: "1k.bin", options: &["-k"], wrk: None, protocol: Protocol::Tls },
    Case {
        about: "HTTP/2 over TLS, 8 connections of 8 streams, 1 KB",
        file: "1k.bin",
        options: HTTP2,
        wrk: None,
        protocol: Protocol::Http2,
    },
    Case {
        about: "HTTP/2 over TLS, 8 connections of 8 streams, 100 KB",
        file: "100k.bin",
        options: HTTP2,
        wrk: None,
        protocol: Protocol::Http2,
    },
    Case {
        about: "HTTP/3, 8 connections of 8 streams, 1 KB",
        file: "1k.bin",
        options: HTTP3,
        wrk: None,
        protocol: Protocol::Http3,
    },
    Case {
        about: "HTTP/3, 8 connections of 8 streams, 100 KB",
        file: "100k.bin",
        options: HTTP3,
        wrk: None,
        protocol: Protocol::Http3,
    },
];

const HTTP2: &[&str] = &["-k", "--http", "2", "-c", "8", "--streams", "8"];
const HTTP3: &[&str] = &["-k", "--http", "3", "-c", "8", "--streams", "8"];

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
    for program in ["wrk", "nginx", "apache2", "caddy", "openssl", "taskset"] {
        need(program)?;
    }
    let client = Client::lasting(yamabiko()?, SECONDS)?;
    let files = Files::new()?;
    println!(
        "one server core, 64 connections in a closed loop from the other; {} measurements of {SECONDS} s each, medians.\n\
         us of CPU per request: of the server's processes (user, system, CPU as their sum), and softirq of its core,\n\
         which is in part counted in system too; on loopback it is also the client's receiving. Each is compared with the\n\
         better of nginx's settings (HTTP/3: with Caddy), by rate and by CPU, and with MAX. Core: busy share of the server's core during the\n\
         measurement, and of the generator's core, its start and end included.",
        2 * ROUNDS
    );
    for (at, case) in CASES.iter().enumerate().filter(|(_, case)| only.is_none_or(|part| part == case.protocol.part()))
    {
        // Each port is used once, since connections of the previous case may still be closing.
        let (peers, missing) = peers::start(&client, &files, case.protocol, case.file, at)?;
        println!("\n{}", case.about);
        for why in missing {
            println!("  not measured: {why}");
        }
        let figures = measure_alternately(&peers, ROUNDS, |peer| {
            measure(peer, || client.bench_of(&peer.url(case.file), &[&["--no-save"], case.options].concat()))
        })?;
        show(&peers, &figures);
        if let Some(options) = case.wrk {
            println!("  the same by wrk, as a second generator, two measurements each");
            let figures =
                measure_alternately(&peers, 1, |peer| measure(peer, || client.wrk_of(&peer.url(case.file), options)))?;
            show(&peers, &figures);
        }
    }
    Ok(())
}

/// Measures all peers forwards and backwards in each round; returns each peer's measurements.
fn measure_alternately(
    peers: &[Peer],
    rounds: usize,
    of: impl Fn(&Peer) -> Result<Measured>,
) -> Result<Vec<Vec<Measured>>> {
    let mut figures: Vec<Vec<Measured>> = peers.iter().map(|_| Vec::new()).collect();
    for round in 0..2 * rounds {
        let forwards = round % 2 == 0;
        for step in 0..peers.len() {
            let at = if forwards { step } else { peers.len() - 1 - step };
            let measured = of(&peers[at])?;
            if measured.failed > 0 {
                bail!("{}: {} requests failed: its figures are meaningless", peers[at].name, measured.failed);
            }
            figures[at].push(measured);
        }
    }
    Ok(figures)
}

fn show(peers: &[Peer], figures: &[Vec<Measured>]) {
    println!(
        "    {:<22} {:>8} {:>19} {:>7} {:>5}   {:>8} {:>7} {:>5}   {:>6} {:>7} {:>7}   {:>5} {:>9}",
        "server",
        "req/s",
        "(low to high)",
        "/ peer",
        "/ MAX",
        "CPU",
        "/ peer",
        "/ MAX",
        "user",
        "system",
        "softirq",
        "core",
        "generator"
    );
    // The peer: the better of nginx's two configurations, by rate and by CPU; with HTTP/3 Caddy.
    let fastest = reference(peers, figures, rate_of, |value| -value);
    let cheapest = reference(peers, figures, cpu_of, |value| value);
    let max = peers.iter().position(|peer| peer.name.starts_with("MAX"));
    for (peer, measured) in peers.iter().zip(figures) {
        let rates = values(measured, rate_of);
        let (low, high) = rates.iter().fold((f64::MAX, f64::MIN), |(low, high), &v| (low.min(v), high.max(v)));
        let over = |other: Option<usize>, value: fn(&Measured) -> f64| {
            other.map_or("-".to_owned(), |other| {
                format!("{:.2}", ratio(&values(measured, value), &values(&figures[other], value)))
            })
        };
        let of = |value: fn(&Measured) -> f64| median(&values(measured, value));
        let (server, generator) = (of(|one| one.server_core), of(|one| one.client_core));
        println!(
            "    {:<22} {:>8.0} {:>19} {:>7} {:>5}   {:>8.2} {:>7} {:>5}   {:>6.2} {:>7.2} {:>7.2}   \
             {:>4.0}% {:>8.0}%{}",
            peer.name,
            median(&rates),
            format!("({low:.0} to {high:.0})"),
            over(fastest, rate_of),
            over(max, rate_of),
            of(cpu_of),
            over(cheapest, cpu_of),
            over(max, cpu_of),
            of(|one| one.user_us),
            of(|one| one.system_us),
            of(|one| one.softirq_us),
            100.0 * server,
            100.0 * generator,
            limit(server, generator),
        );
    }
}

/// The configuration of the peer with the smallest median of `value`, ordered by `order`.
fn reference(
    peers: &[Peer],
    figures: &[Vec<Measured>],
    value: fn(&Measured) -> f64,
    order: fn(f64) -> f64,
) -> Option<usize> {
    let among = (0..peers.len()).filter(|&at| ["nginx", "Caddy"].iter().any(|peer| peers[at].name.starts_with(peer)));
    among.min_by(|a, b| {
        let of = |at: usize| order(median(&values(&figures[at], value)));
        of(*a).total_cmp(&of(*b))
    })
}

/// Which side limited the rate, if not the server.
fn limit(server: f64, generator: f64) -> &'static str {
    match (server >= SERVER_SATURATED, generator >= GENERATOR_SATURATED) {
        (true, _) => "",
        (false, true) => "  the generator was the limit",
        (false, false) => "  neither core was full",
    }
}

fn rate_of(one: &Measured) -> f64 {
    one.rate
}

/// CPU time per request in us.
fn cpu_of(one: &Measured) -> f64 {
    one.user_us + one.system_us
}

fn values(measured: &[Measured], value: fn(&Measured) -> f64) -> Vec<f64> {
    measured.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_limited_by_the_generator_is_marked() {
        assert_eq!(limit(0.99, 0.99), "");
        assert_eq!(limit(SERVER_SATURATED, 0.1), "");
        assert_eq!(limit(SERVER_SATURATED - 0.01, GENERATOR_SATURATED), "  the generator was the limit");
        assert_eq!(limit(0.5, 0.5), "  neither core was full");
    }
}
