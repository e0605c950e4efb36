//! Cost of the tap for whole programs: wrk, which makes only calls, and curl with sequential transfers.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::calls::{self, CallCounts};
use super::hooks::Hooks;
use super::run::{Storage, Tapped};
use super::verdict;
use crate::bench::extent::Extent;
use crate::bench::rounds::{line, median, ratio};
use crate::bench::servers::{PORT, Running, Site, output, wrk_figures};

/// Cores of the server and of the program; the collector runs on any core.
const SERVER_CORE: &str = "0";
const PROGRAM_CORE: &str = "1";

/// Rounds under strace; few are enough, since programs are much slower.
const TRACED_ROUNDS: usize = 3;

/// A requested file, and the maximum throughput cost of the tap.
struct Size {
    about: &'static str,
    file: &'static str,
    target_percent: f64,
    /// Approximate number of curl's requests in a second.
    curls_a_second: u64,
}

const SIZES: &[Size] = &[
    Size { about: "1 KB", file: "1k.bin", target_percent: 10.0, curls_a_second: 10_000 },
    Size { about: "100 KB", file: "100k.bin", target_percent: 2.0, curls_a_second: 4_000 },
];

/// How a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Tapped(Storage),
    Traced,
}

/// A client program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Wrk,
    Curl,
}

impl Client {
    const fn name(self) -> &'static str {
        match self {
            Client::Wrk => "wrk",
            Client::Curl => "curl",
        }
    }

    const fn about(self) -> &'static str {
        match self {
            Client::Wrk => "wrk -t1 -c64, both cores full",
            Client::Curl => "curl, one transfer after the other on one connection",
        }
    }
}

struct Bench<'a> {
    tapped: &'a Tapped,
    site: &'a Site,
    size: &'a Size,
    seconds: u64,
}

/// One run: requests per second, number of requests, and under strace the calls.
struct RunFigures {
    rate: f64,
    requests: f64,
    calls: CallCounts,
    records: u64,
    dropped: u64,
}

/// Measures and prints.
pub fn measure(tapped: &Tapped, site: &Site, extent: Extent, hooks: &Hooks) -> Result<()> {
    let _nginx = Running::start(&site.nginx(), Some(SERVER_CORE))?;
    println!(
        "\nprograms against nginx, each on its core, {} rounds of: without, with the tap, without again, with tap and run store; \
         under strace in {}",
        extent.rounds,
        extent.rounds.min(TRACED_ROUNDS)
    );
    for client in [Client::Wrk, Client::Curl] {
        for size in SIZES {
            let bench = Bench { tapped, site, size, seconds: extent.seconds };
            println!("{}, {}", client.about(), size.about);
            bench.measure_alternately(client, extent.rounds, hooks)?;
        }
    }
    Ok(())
}

impl Bench<'_> {
    fn measure_alternately(&self, client: Client, rounds: usize, hooks: &Hooks) -> Result<()> {
        // The measured run is between two runs without the tap.
        const WAYS: [Way; 5] =
            [Way::Plain, Way::Tapped(Storage::No), Way::Plain, Way::Tapped(Storage::InRunStore), Way::Traced];
        let mut ran: [Vec<RunFigures>; 5] = Default::default();
        for round in 0..rounds {
            for (way, ran) in WAYS.into_iter().zip(&mut ran) {
                if way != Way::Traced || round < TRACED_ROUNDS {
                    ran.push(self.run(client, way)?);
                }
            }
        }
        let rates = ran.each_ref().map(|runs| runs.iter().map(|run| run.rate).collect::<Vec<f64>>());
        let [plain, with, again, stored, traced] = &rates;
        // The rate without the tap in the same round.
        let base: Vec<f64> = plain.iter().zip(again).map(|(a, b)| f64::midpoint(*a, *b)).collect();
        for (label, rates) in [
            ("without", plain),
            ("with the tap", with),
            ("without again", again),
            ("with tap and run store", stored),
            ("strace -f -c", traced),
        ] {
            println!("{}", line(label, "req/s", rates));
        }
        let (cost, low, high) = throughput_cost(with, &base);
        let target = self.size.target_percent;
        println!(
            "  the tap costs {cost:.1} % of the requests ({low:.1} to {high:.1}); target: under {target:.0} %: {}",
            verdict(cost, target)
        );
        let (cost, low, high) = throughput_cost(stored, &base);
        println!("  with every exchange stored {cost:.1} % ({low:.1} to {high:.1})");
        let (drift, low, high) = throughput_cost(again, plain);
        println!("  A/A: without again is {drift:.1} % below without ({low:.1} to {high:.1})");
        println!(
            "  strace makes {:.3} of the requests: {:.0} times slower",
            ratio(traced, &base),
            ratio(&base, traced)
        );
        for (label, runs) in [("with the tap", &ran[1]), ("with tap and run store", &ran[3])] {
            let (records, dropped) =
                runs.iter().fold((0, 0), |(all, lost), run| (all + run.records, lost + run.dropped));
            println!("  {label}: loaded in {} of {rounds} runs, {records} records, {dropped} dropped", runs.len());
        }
        print_hook_cost(&ran[4], &ran[1], hooks, median(&base));
        Ok(())
    }

    fn run(&self, client: Client, way: Way) -> Result<RunFigures> {
        let counts = self.site.path("calls");
        let timed = self.site.path("seconds");
        let requests = self.size.curls_a_second * self.seconds;
        // Under strace fewer requests are enough, and take as long.
        let requests = if way == Way::Traced { requests.div_ceil(10) } else { requests };
        let mut words: Vec<String> = ["taskset", "-c", PROGRAM_CORE].map(str::to_owned).to_vec();
        if way == Way::Traced {
            words.extend(["strace", "-f", "-c", "-o"].map(str::to_owned));
            words.push(counts.display().to_string());
        }
        let url = format!("http://127.0.0.1:{PORT}/{}", self.size.file);
        match client {
            Client::Wrk => {
                words.extend(["wrk", "-t1", "-c64", &format!("-d{}s", self.seconds), &url].map(str::to_owned))
            }
            Client::Curl => {
                words.extend(["curl", "-s", "-o", "/dev/null", &format!("{url}?[1-{requests}]")].map(str::to_owned))
            }
        }
        // curl's time includes loading the library, but not starting the tap.
        let mut command = Command::new("bash");
        command.arg("-c").arg("TIMEFORMAT=%3R; { time \"$@\" 2> /dev/null; } 2> \"$SECONDS_FILE\"").arg("timed");
        command.args(&words).env("SECONDS_FILE", &timed);
        let (text, part) = match way {
            Way::Plain | Way::Traced => (output(&mut command)?, None),
            Way::Tapped(stored) => {
                let (text, part) = self.tapped.run(client.name(), stored, &command)?;
                (text, Some(part))
            }
        };
        let (rate, requests) = match client {
            Client::Wrk => {
                let all = text.lines().find_map(|line| line.trim().split_once(" requests in "));
                (wrk_figures(&text)?.0, all.context("wrk printed no number of requests")?.0.parse()?)
            }
            Client::Curl => {
                let seconds: f64 = fs::read_to_string(&timed)?.trim().parse().context("the seconds that curl took")?;
                (requests as f64 / seconds, requests as f64)
            }
        };
        let calls = if way == Way::Traced { calls::read(&fs::read_to_string(&counts)?) } else { CallCounts::new() };
        let (records, dropped) = part.map_or((0, 0), |part| (part.records, part.records_dropped));
        Ok(RunFigures { rate, requests, calls, records, dropped })
    }
}

/// Difference of `rates` below `of` in percent of `of`, by round: median, lowest, highest.
fn throughput_cost(rates: &[f64], of: &[f64]) -> (f64, f64, f64) {
    let each: Vec<f64> = rates.iter().zip(of).map(|(rate, of)| 100.0 * (1.0 - rate / of)).collect();
    let (low, high) = each.iter().fold((f64::MAX, f64::MIN), |(low, high), &v| (low.min(v), high.max(v)));
    (median(&each), low, high)
}

/// Cost of the hooks of a request's calls, compared with the time of a request.
fn print_hook_cost(traced: &[RunFigures], with: &[RunFigures], hooks: &Hooks, rate: f64) {
    let of = |value: &dyn Fn(&RunFigures) -> f64| median(&traced.iter().map(value).collect::<Vec<_>>());
    let costs = calls::Costs {
        record_ns: hooks.cost_ns("exchange"),
        within_ns: hooks.cost_ns("reads"),
        empty_ns: hooks.cost_ns("eagain"),
        poll_ns: hooks.cost_ns("poll"),
    };
    let records = median(&with.iter().map(|run| run.records as f64 / run.requests.max(1.0)).collect::<Vec<_>>());
    let hooks_ns = of(&|run| calls::hooks_ns(&run.calls, run.requests, records, costs));
    let moves = of(&|run| calls::per_request(&run.calls, run.requests).0);
    let waits = of(&|run| calls::per_request(&run.calls, run.requests).1);
    let each_ns = 1e9 / rate;
    println!(
        "  by parts: {moves:.1} calls that move bytes, {records:.1} of them with a record, and {waits:.1} that wait, a \
         request, make {hooks_ns:.0} ns of hooks: {:.1} % of the {:.1} us that a request takes",
        100.0 * hooks_ns / each_ns,
        each_ns / 1e3
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lost_throughput_is_printed_with_its_spread() {
        let (cost, low, high) = throughput_cost(&[90.0, 95.0, 99.0], &[100.0, 100.0, 100.0]);
        assert!((cost - 5.0).abs() < 1e-9 && (low - 1.0).abs() < 1e-9 && (high - 10.0).abs() < 1e-9);
    }
}
