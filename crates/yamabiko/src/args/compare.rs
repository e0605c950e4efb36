//! Arguments of `compare`, and the comparison to make.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use capacity::compare::interleaved::InterleavedPlan;
use capacity::compare::{CompareOptions, FailIf, Metric};
use clap::{Args, Parser};
use plan::cli::Given;
use plan::{HostPlan, LoadPlan, PathPlan, ServerPlan, ShardPlan, WatchPlan};
use stats::abba::Blocks;
use units::Probability;

use super::server::FamilyOptions;
use super::{Bench, ResultOptions, ServerOptions, ShowOptions, ip_address, to_plan};

/// Default length of an interleaved run.
const DURATION: Duration = Duration::from_secs(5);
/// Default warm-up of an interleaved run in a closed loop, which has none otherwise.
const WARMUP: Duration = Duration::from_secs(1);
const BLOCKS_MIN: usize = 6;
const BLOCKS_MAX: usize = 20;
const HALF_WIDTH: f64 = 0.02;

#[derive(Args, Debug)]
#[command(after_help = "Stored runs: compare A B, each a name, a prefix of one, a folder, last or last~1; several \
                        runs per side, separated by commas, include the variation between starts of the server, one \
                        per side does not.\nTwo servers: compare URL --server A --server B [options of bench], or \
                        --url A --url B. Runs are interleaved, A B B A or B A A B as chosen by the seed; the first \
                        block does not count.\nWithout a shown difference the result states the smallest difference \
                        that would have been shown.")]
pub struct Compare {
    #[command(flatten)]
    pub given: Given,
    /// Two stored runs, or several per side separated by commas; with --server, the URL
    #[arg(value_name = "RUNS|URL")]
    pub what: Vec<String>,
    /// Decide by this metric: mean, p50, p90, p99, rate, cpu, errors or memory [default: mean of an open loop, rate of
    /// a closed one]
    #[arg(long, value_name = "METRIC", value_parser = Metric::named)]
    pub by: Option<Metric>,
    /// Confidence of the deciding metric, and of all other metrics together
    #[arg(long, default_value = "95%", allow_hyphen_values = true)]
    pub confidence: Probability,
    /// Exit with status 4 if a difference is shown and exceeds a limit: 'p99 +5%, rate -2%, p99 +2ms, errors +0.1%'
    #[arg(long, value_name = "TERMS", allow_hyphen_values = true)]
    pub fail_if: Option<String>,
    /// Compare stored runs although their plans differ in more than the server
    #[arg(long)]
    pub different_plans: bool,
    /// For two servers: make this number of blocks of four runs [default: 6 to 20, until --until-seen]
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub blocks: Option<usize>,
    /// For two servers: make blocks until the interval is within this on either side, at least 6 (--blocks) and at most
    /// 20 [default: 2%]
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub until_seen: Option<Probability>,
    /// For two servers: store each run
    #[arg(long)]
    pub keep_runs: bool,
    #[command(flatten)]
    pub live: LiveOptions,
    /// Set the seed of random numbers
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Do not store the result
    #[arg(long)]
    pub no_save: bool,
    /// Print one JSON document only
    #[arg(long)]
    pub json: bool,
    /// Also write an HTML page to this file
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub html: Option<PathBuf>,
    /// Also write a Markdown summary to this file
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub md: Option<PathBuf>,
    /// Also write JUnit XML to this file: a test case for each term of --fail-if
    #[cfg(feature = "export")]
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub junit: Option<PathBuf>,
    /// Exit with 3 also if the result is only suspect
    #[arg(long)]
    pub strict: bool,
    // For two servers; comparing stored runs has no progress to watch.
    #[command(flatten)]
    pub show: ShowOptions,
}

/// How runs are made: the options of `bench`, with two servers.
#[derive(Args, Debug)]
pub struct LiveOptions {
    /// Start this server at the far end of the path; give it twice, once for each side
    #[arg(long, value_name = "COMMAND", help_heading = "Server")]
    pub server: Vec<String>,
    /// A service that is already running; give it twice, once for each side
    #[arg(long, value_name = "URL", conflicts_with = "server", help_heading = "Server")]
    pub url: Vec<String>,
    #[command(flatten)]
    pub settings: ServerPlan,
    #[command(flatten)]
    pub family: FamilyOptions,
    /// Connect to this address instead of resolving the URL's host; may be repeated, addresses are used in turn
    #[arg(long = "to", value_name = "ADDRESS", value_parser = ip_address, conflicts_with = "server")]
    #[arg(help_heading = "Server")]
    pub to: Vec<IpAddr>,
    #[command(flatten)]
    pub load: LoadPlan,
    #[command(flatten)]
    pub path: PathPlan,
    #[command(flatten)]
    pub watch: WatchPlan,
    #[command(flatten)]
    pub host: HostPlan,
}

/// The comparison to make.
pub enum Comparison {
    /// The names of stored runs, for each side.
    Runs([String; 2]),
    /// Two servers, measured now.
    Live(Box<InterleavedPlan>),
}

impl Compare {
    /// Options of either comparison.
    ///
    /// # Errors
    /// A term cannot be parsed.
    pub fn compare_options(&self) -> Result<CompareOptions> {
        let fail_if = self.fail_if.as_deref().map(FailIf::several).transpose();
        Ok(CompareOptions {
            by: self.by,
            confidence: self.confidence.value(),
            fail_if: fail_if.map_err(|why| anyhow!("--fail-if: {why}"))?.unwrap_or_default(),
        })
    }

    /// Determines the kind of comparison, with its complete input.
    ///
    /// # Errors
    /// Neither kind, options of the other kind, or options that `bench` would refuse.
    pub fn comparison(self) -> Result<Comparison> {
        let live = &self.live;
        match (live.server.len(), live.url.len()) {
            (0, 0) => self.runs().map(Comparison::Runs),
            (2, 0) | (0, 2) => self.live().map(|plan| Comparison::Live(Box::new(plan))),
            (servers, 0) => bail!(
                "--server is given {servers} times: expected twice, once for each side; the same command twice \
                 compares a server with itself"
            ),
            (_, urls) => bail!("--url is given {urls} times: expected twice, once for each side"),
        }
    }

    fn runs(&self) -> Result<[String; 2]> {
        if let Some(url) = self.what.iter().find(|word| word.contains("://") && !Path::new(word).exists()) {
            bail!("{url} is a URL: give two servers, compare {url} --server A --server B, or compare --url A --url B");
        }
        let [a, b] = self.what.as_slice() else {
            bail!(
                "compare needs two sides: compare A B, such as `compare last~1 last`; several runs of a side \
                 separated by commas"
            );
        };
        ensure!(
            self.blocks.is_none() && self.until_seen.is_none() && !self.keep_runs && self.live.are_defaults(),
            "{a} and {b} are stored runs: options for making runs need servers (--server A --server B, or --url A \
             --url B)"
        );
        Ok([a.clone(), b.clone()])
    }

    fn live(mut self) -> Result<InterleavedPlan> {
        ensure!(!self.different_plans, "--different-plans is for stored runs; here both sides have one plan");
        let blocks = match (self.blocks, self.until_seen) {
            (Some(blocks), None) => Blocks { min: blocks, max: blocks, half_width: HALF_WIDTH },
            (blocks, width) => {
                let min = blocks.unwrap_or(BLOCKS_MIN);
                let half_width = width.map_or(HALF_WIDTH, |width| width.value());
                Blocks { min, max: BLOCKS_MAX.max(min), half_width }
            }
        };
        let LiveOptions { server, url, settings, family, to, mut load, path, watch, host } = self.live;
        load.settle_options().map_err(anyhow::Error::msg)?;
        if load.duration.is_none() && load.requests.is_none() && !load.offered().has_length() {
            load.duration = Some(DURATION);
        }
        if !self.given.has("warmup") && !load.is_open() {
            load.warmup = WARMUP;
            self.given.add("warmup");
        }
        ensure!(
            url.is_empty() || self.what.is_empty(),
            "--url gives both URLs, and {} is an additional argument",
            self.what.join(" ")
        );
        let mut bench = Bench {
            given: self.given,
            url: self.what,
            load,
            path,
            server: ServerOptions { server: None, settings, family },
            to,
            watch,
            tap: false,
            explain: false,
            host,
            shard: ShardPlan::default(),
            coordination: plan::CoordinationOptions::default(),
            result: ResultOptions {
                slo: None,
                strict: false,
                json: false,
                name: "compare".into(),
                no_save: true,
                seed: self.seed,
                print_plan: false,
                show: ShowOptions::default(),
            },
        };
        let mut side = |at: usize| {
            if let Some(command) = server.get(at) {
                bench.server.server = Some(command.clone());
            }
            if let Some(url) = url.get(at) {
                bench.url = vec![url.clone()];
            }
            to_plan::bench(&bench)
        };
        let sides = [side(0)?, side(1)?];
        let what = if url.is_empty() { server } else { url };
        let [a, b] = <[String; 2]>::try_from(what).expect("both sides are given");
        Ok(InterleavedPlan { sides, what: [a, b], blocks, keep_runs: self.keep_runs && !self.no_save })
    }
}

impl LiveOptions {
    /// Whether all options have their defaults.
    fn are_defaults(&self) -> bool {
        #[derive(Parser)]
        struct Bare {
            #[command(flatten)]
            live: LiveOptions,
        }
        // The parsed options have no equality, but their debug text shows all values.
        format!("{:?}", Bare::parse_from(["compare"]).live) == format!("{self:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        compare: Compare,
    }

    fn parsed(words: &[&str]) -> Compare {
        CommandLine::try_parse_from([&["compare"], words].concat()).unwrap_or_else(|why| panic!("{why}")).compare
    }

    fn refused(words: &[&str]) -> String {
        parsed(words).comparison().map(|_| ()).unwrap_err().to_string()
    }

    fn live(words: &[&str]) -> InterleavedPlan {
        match parsed(words).comparison().unwrap() {
            Comparison::Live(plan) => *plan,
            Comparison::Runs(runs) => panic!("{runs:?}"),
        }
    }

    #[test]
    fn compare_takes_stored_runs_or_servers() {
        assert!(
            matches!(parsed(&["last~1", "last"]).comparison().unwrap(), Comparison::Runs([a, b]) if a == "last~1" && b == "last")
        );
        let plan = live(&["http://server/", "--server", "one", "--server", "two", "-r", "100/s", "--rtt", "48ms"]);
        assert_eq!(plan.what, ["one", "two"]);
        assert_eq!(plan.sides[1].server.as_ref().unwrap().command, "two");
        assert_eq!(plan.sides[0].load, plan.sides[1].load);
        assert_eq!(plan.sides[0].load.duration, Some(DURATION));
        let plan = live(&["--url", "http://a/", "--url", "http://b/", "-c", "2"]);
        assert_eq!((plan.sides[0].load.url.as_str(), plan.sides[1].load.url.as_str()), ("http://a/", "http://b/"));
        // A closed loop has a warm-up here.
        assert_eq!(plan.sides[0].load.warmup, WARMUP);
    }

    #[test]
    fn invalid_combinations_of_compare_are_refused() {
        for (words, because) in [
            (&["one"][..], "two sides"),
            (&["a", "b", "c"], "two sides"),
            (&["http://server/", "last"], "give two servers"),
            (&["http://server/", "--server", "one"], "1 times"),
            (&["--url", "http://a/"], "1 times"),
            (&["a", "b", "-r", "100/s"], "stored runs"),
            (&["a", "b", "--blocks", "9"], "stored runs"),
            (&["a", "b", "--server-name", "x"], "stored runs"),
            (&["http://x/", "--url", "http://a/", "--url", "http://b/"], "additional argument"),
        ] {
            let words = [words, &[][..]].concat();
            // Some combinations are refused by clap itself.
            match CommandLine::try_parse_from([&["compare"], &words[..]].concat()) {
                Ok(_) => assert!(refused(&words).contains(because), "{words:?}: {}", refused(&words)),
                Err(error) => assert!(words.contains(&"--server-name"), "{words:?}: {error}"),
            }
        }
    }

    #[test]
    fn blocks_and_until_seen_are_parsed() {
        let of = |words: &[&str]| live(&[&["--url", "http://a/", "--url", "http://b/"], words].concat()).blocks;
        assert_eq!(of(&[]), Blocks { min: 6, max: 20, half_width: 0.02 });
        assert!(of(&["--blocks", "4"]).is_fixed());
        assert_eq!(of(&["--until-seen", "1%"]), Blocks { min: 6, max: 20, half_width: 0.01 });
        assert_eq!(of(&["--blocks", "30", "--until-seen", "1%"]), Blocks { min: 30, max: 30, half_width: 0.01 });
    }

    #[test]
    fn deciding_metric_and_fail_if_terms_are_parsed() {
        let compare_options = parsed(&["a", "b", "--by", "p99", "--fail-if", "p99 +5%, errors > 0.1%, p99 +2ms"])
            .compare_options()
            .unwrap();
        assert_eq!(
            (compare_options.by, compare_options.confidence, compare_options.fail_if.len()),
            (Some(Metric::P99), 0.95, 3)
        );
        assert!(parsed(&["a", "b", "--fail-if", "p99"]).compare_options().is_err());
        assert!(CommandLine::try_parse_from(["compare", "a", "b", "--by", "p98"]).is_err());
    }
}
