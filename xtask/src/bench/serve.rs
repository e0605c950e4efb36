//! `cargo xtask bench serve`: one server core, the generator on the other.
//!
//! Every server of a case runs at once on core 0, and idles while another is asked; the generator is on core 1. Turn and
//! turn about: each round asks all of them forwards and then backwards, so that a machine that drifts drifts for all.
//! Beside each rate stands what a request cost the server, and how busy both cores were: where the generator's is full
//! and the server's is not, the rate is the generator's.

pub(super) mod measure;
mod peers;

use anyhow::{Result, bail};

use self::measure::{Measured, measure};
use self::peers::{Files, Peer, Spoken};
use super::load::measure::Client;
use super::rounds::{median, ratio};
use super::servers::{need, yamabiko};

/// Of each round forwards and backwards.
const ROUNDS: usize = 2;
/// Length of one measurement.
const SECONDS: &str = "2";
/// A server's core this busy is full.
const FULL: f64 = 0.97;
/// So is a generator's, which does little in the moments of its start and end.
const GENERATOR_FULL: f64 = 0.90;

/// What the generator does.
struct Case {
    about: &'static str,
    file: &'static str,
    options: &'static [&'static str],
    /// As wrk would be asked for the same; none: it cannot.
    wrk: Option<&'static [&'static str]>,
    spoken: Spoken,
}

const CASES: &[Case] = &[
    Case { about: "keep-alive, 1 KB", file: "1k.bin", options: &[], wrk: Some(&[]), spoken: Spoken::Plain },
    Case { about: "keep-alive, 10 KB", file: "10k.bin", options: &[], wrk: None, spoken: Spoken::Plain },
    Case { about: "keep-alive, 100 KB", file: "100k.bin", options: &[], wrk: None, spoken: Spoken::Plain },
    Case { about: "keep-alive, 1 MB", file: "1m.bin", options: &[], wrk: None, spoken: Spoken::Plain },
    Case {
        about: "one connection per request, 1 KB",
        file: "1k.bin",
        options: &["--close"],
        wrk: None,
        spoken: Spoken::Plain,
    },
    Case { about: "TLS, keep-alive, 1 KB", file: "1k.bin", options: &["-k"], wrk: None, spoken: Spoken::Tls },
];

/// Runs the bench and prints it.
pub fn run() -> Result<()> {
    for program in ["wrk", "nginx", "apache2", "openssl", "taskset"] {
        need(program)?;
    }
    let client = Client::lasting(yamabiko()?, SECONDS)?;
    let files = Files::new()?;
    println!(
        "one server core, 64 connections in a closed loop from the other; {} measurements of {SECONDS} s each, medians.\n\
         us of CPU per request: of the server's processes (user, system), and softirq of its core, which is in part\n\
         counted in system too; on loopback it is also the client's receiving. Core: busy share of the server's, while\n\
         it was asked, and of the generator's, its start and end included.",
        2 * ROUNDS
    );
    for (at, case) in CASES.iter().enumerate() {
        // No port is used twice: the last case's connections may still be closing.
        let (peers, missing) = peers::start(&client, &files, case.spoken, case.file, at)?;
        println!("\n{}", case.about);
        for why in missing {
            println!("  not measured: {why}");
        }
        let figures = turn_about(&peers, ROUNDS, |peer| {
            measure(peer, || client.bench_of(&peer.url(case.file), &[&["--no-save"], case.options].concat()))
        })?;
        show(&peers, &figures);
        if let Some(options) = case.wrk {
            println!("  the same by wrk, as a second generator, two measurements each");
            let figures = turn_about(&peers, 1, |peer| measure(peer, || client.wrk_of(&peer.url(case.file), options)))?;
            show(&peers, &figures);
        }
    }
    Ok(())
}

/// Each peer's measurements, in the order of the rounds, each of them forwards and backwards.
fn turn_about(peers: &[Peer], rounds: usize, of: impl Fn(&Peer) -> Result<Measured>) -> Result<Vec<Vec<Measured>>> {
    let mut figures: Vec<Vec<Measured>> = peers.iter().map(|_| Vec::new()).collect();
    for round in 0..2 * rounds {
        let forwards = round % 2 == 0;
        for step in 0..peers.len() {
            let at = if forwards { step } else { peers.len() - 1 - step };
            let measured = of(&peers[at])?;
            if measured.failed > 0 {
                bail!("{}: {} requests failed: its figures would say nothing", peers[at].name, measured.failed);
            }
            figures[at].push(measured);
        }
    }
    Ok(figures)
}

fn show(peers: &[Peer], figures: &[Vec<Measured>]) {
    println!(
        "    {:<22} {:>9} {:>21} {:>8} {:>6}   {:>6} {:>6} {:>7}   {:>6} {:>9}",
        "server", "req/s", "(low to high)", "/ nginx", "/ MAX", "user", "system", "softirq", "core", "generator"
    );
    // The better of nginx's two ways is what there is to beat.
    let rate_of = |at: usize| median(&rates(&figures[at]));
    let best = |wanted: fn(&Peer) -> bool| {
        let among = (0..peers.len()).filter(|&at| wanted(&peers[at]));
        among.max_by(|a, b| rate_of(*a).total_cmp(&rate_of(*b)))
    };
    let nginx = best(|peer| peer.name.starts_with("nginx"));
    let max = best(|peer| peer.name.starts_with("MAX"));
    for (peer, measured) in peers.iter().zip(figures) {
        let rates = rates(measured);
        let (low, high) = rates.iter().fold((f64::MAX, f64::MIN), |(low, high), &v| (low.min(v), high.max(v)));
        let over = |other: Option<usize>| {
            other.map_or("-".to_owned(), |other| format!("{:.2}", ratio(&rates, &self::rates(&figures[other]))))
        };
        let of = |value: fn(&Measured) -> f64| median(&measured.iter().map(value).collect::<Vec<_>>());
        let (server, generator) = (of(|one| one.server_core), of(|one| one.client_core));
        println!(
            "    {:<22} {:>9.0} {:>21} {:>8} {:>6}   {:>6.2} {:>6.2} {:>7.2}   {:>5.0}% {:>8.0}%{}",
            peer.name,
            median(&rates),
            format!("({low:.0} to {high:.0})"),
            over(nginx),
            over(max),
            of(|one| one.user_us),
            of(|one| one.system_us),
            of(|one| one.softirq_us),
            100.0 * server,
            100.0 * generator,
            limit(server, generator),
        );
    }
}

/// Which side the rate is of, where it is not the server's.
fn limit(server: f64, generator: f64) -> &'static str {
    match (server >= FULL, generator >= GENERATOR_FULL) {
        (true, _) => "",
        (false, true) => "  the generator was the limit",
        (false, false) => "  neither core was full",
    }
}

fn rates(measured: &[Measured]) -> Vec<f64> {
    measured.iter().map(|one| one.rate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_limited_by_the_generator_is_marked() {
        assert_eq!(limit(0.99, 0.99), "");
        assert_eq!(limit(FULL, 0.1), "");
        assert_eq!(limit(FULL - 0.01, GENERATOR_FULL), "  the generator was the limit");
        assert_eq!(limit(0.5, 0.5), "  neither core was full");
    }
}
