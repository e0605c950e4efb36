//! `capacity`, as typed, and the plan as meant.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use clap::{Args, Parser};
use plan::cli::Given;
use plan::{CapacityPlan, Find, HostPlan, PathPlan, Plan, SoughtLoad, ThinkPlan, Time, TlsPlan, WatchPlan};
use units::{Probability, RequestRate, parse_duration};

use super::{
    Arguments, ArrivalOptions, Bench, LoadOptions, ResultOptions, ServerOptions, Verb, WorkloadOptions, ip_address,
    to_plan,
};

#[derive(Args, Debug)]
#[command(after_help = "\
    The capacity is the highest offered open-loop load at which the objective holds in a valid run, with requests in flight not \
    growing. Saturation, knee and what happens under overload are other figures, and are printed beside it.\n\
    It is bracketed by short trials, sought --searches times with long ones, and confirmed; about a quarter of an hour, or with \
    --quick three minutes. Interrupted with Ctrl-C, it keeps what it knows: --resume goes on.\n\
    With --find users, connections or new-connections the same search finds the most users who think, ask and wait; the most connections \
    that are held open with a light load over them; the most new connections a second.\n\
    docs/concepts/capacity.md says what each word means.")]
pub struct Capacity {
    #[command(flatten)]
    pub given: Given,
    /// What `bench` takes, or a plan file with [capacity]. The rate is what is sought: no --rate, -n or -d
    #[arg(value_name = "URL|PLAN", required_unless_present_any = ["urls", "resume"])]
    pub what: Vec<String>,
    /// What to seek: rate, users, connections (held open) or new-connections (a second) [default: rate]
    #[arg(long, value_name = "WHAT", help_heading = "Search")]
    pub find: Option<Find>,
    /// How long each user thinks between an answer and the next request: 7s, or exponential:7s [with --find users]
    #[arg(long, value_name = "TIME", value_parser = think, help_heading = "Search", allow_hyphen_values = true)]
    pub think: Option<ThinkPlan>,
    /// Each connection is asked for something once in so long [with --find connections; default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Search", allow_hyphen_values = true)]
    pub each_every: Option<Duration>,
    /// Length of a trial of a search
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Search")]
    #[arg(allow_hyphen_values = true)]
    pub trial: Option<Duration>,
    /// Length of a trial of the first stage, which brackets the answer [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Search")]
    #[arg(allow_hyphen_values = true)]
    pub short: Option<Duration>,
    /// Length of the confirmation, and of that at nine tenths of the answer; 0s for none [default: 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Search")]
    #[arg(allow_hyphen_values = true)]
    pub confirm: Option<Duration>,
    /// Stop when what held and what was too much differ by no more than this [default: 2%]
    #[arg(long, value_name = "SHARE", help_heading = "Search", allow_hyphen_values = true)]
    pub width: Option<Probability>,
    /// Searches of long trials, for an interval [default: 3]
    #[arg(long, value_name = "NUMBER", help_heading = "Search", allow_hyphen_values = true)]
    pub searches: Option<u32>,
    /// One search of trials of 20s: a bracket, and no interval
    #[arg(long, help_heading = "Search", conflicts_with = "searches")]
    pub quick: bool,
    /// Begin at this load: a rate, or a number of users or connections [default: half of what a closed loop gets; 64 connections]
    #[arg(long, value_name = "LOAD", help_heading = "Search", allow_hyphen_values = true)]
    pub start: Option<SoughtLoad>,
    /// Try nothing above this load
    #[arg(long, value_name = "LOAD", help_heading = "Search", allow_hyphen_values = true)]
    pub max: Option<SoughtLoad>,
    /// At each of these distances, such as lan,rtt:48ms,rtt:48ms+loss:1%,koshien-2001, one after the other
    #[arg(long, value_name = "WORDS", value_delimiter = ',', help_heading = "Search", conflicts_with = "path")]
    pub each: Vec<String>,
    /// Leave out 1.2 and 2 times the answer
    #[arg(long, help_heading = "Search")]
    pub no_overload: bool,
    /// Do not seek the generator's own limit first
    #[arg(long, help_heading = "Search")]
    pub no_limit: bool,
    /// Go on with one that was interrupted: its name, its folder, or `last`
    #[arg(long, value_name = "RUN", help_heading = "Search", conflicts_with = "what")]
    pub resume: Option<String>,
    #[command(flatten)]
    pub load: LoadOptions,
    #[command(flatten)]
    pub workload: WorkloadOptions,
    #[command(flatten)]
    pub arrivals: ArrivalOptions,
    #[command(flatten)]
    pub tls: Option<TlsPlan>,
    #[command(flatten)]
    pub path: PathPlan,
    #[command(flatten)]
    pub server: ServerOptions,
    /// Connect to this address instead of asking for the URL's host; given more than once, they are taken in turn
    #[arg(long = "to", value_name = "ADDRESS", value_parser = ip_address, conflicts_with = "server")]
    #[arg(help_heading = "Server")]
    pub to: Vec<IpAddr>,
    #[command(flatten)]
    pub watch: WatchPlan,
    #[command(flatten)]
    pub host: HostPlan,
    #[command(flatten)]
    pub result: ResultOptions,
    /// Write the page to this file, too
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output, help_heading = "Result")]
    pub html: Option<PathBuf>,
}

impl Capacity {
    /// The plan as meant, with the search. Nothing of it is for one that goes on.
    ///
    /// # Errors
    /// What contradicts itself; a plan file that cannot be read, or options of the load beside it.
    pub fn into_plan(self) -> Result<Plan> {
        let search = Search::of(&self);
        let slo = self.result.slo.clone();
        if let [file] = &self.what[..]
            && !file.contains("://")
            && Path::new(file).is_file()
        {
            let file = PathBuf::from(file);
            let mut read = from_file(&file)?;
            self.refuse_the_loads_options()?;
            read.slo = slo.or(read.slo);
            read.capacity = Some(search.over(read.capacity.take()));
            read.check()?;
            return Ok(read);
        }
        if let Some(rate) = self.load.rate {
            bail!("--rate {rate}: the rate is what capacity seeks; --start {rate} begins there");
        }
        ensure!(
            self.load.requests.is_none() && self.load.duration.is_none(),
            "-n and -d: how long trials last is for capacity to say; --trial is the length of a long one"
        );
        let find = search.find.unwrap_or_default();
        ensure!(
            find != Find::NewConnections || !self.load.keepalive,
            "--keepalive: new connections are sought, one a request; leave it out"
        );
        ensure!(
            find != Find::Users || self.load.clients.is_none(),
            "--clients: each user is a client of its own; leave it out"
        );
        ensure!(!self.arrivals.is_open(), "capacity is sought with one rate a trial: no --phase, --rates or --replay");
        let mut plan = self.bench_plan()?;
        if find == Find::Users {
            // As many as there are users, in every trial.
            plan.load.clients = 1;
        }
        plan.slo = slo;
        plan.capacity = Some(search.over(None));
        plan.check()?;
        Ok(plan)
    }

    /// What `bench` would do, without a rate and a length.
    fn bench_plan(self) -> Result<Plan> {
        let warmup = self.load.warmup.unwrap_or_default();
        // An open loop's defaults are other than a closed one's.
        let load = LoadOptions { rate: Some(RequestRate::ONE), ..self.load };
        let name = if self.result.name == "bench" { "capacity".to_owned() } else { self.result.name };
        let mut plan = to_plan::bench(&Bench {
            given: self.given,
            url: self.what,
            load,
            workload: self.workload,
            arrivals: self.arrivals,
            tls: self.tls,
            path: self.path,
            server: self.server,
            to: self.to,
            watch: self.watch,
            tap: false,
            host: self.host,
            result: ResultOptions { name, ..self.result },
        })?;
        (plan.load.rate, plan.load.duration, plan.load.warmup) = (None, None, warmup);
        Ok(plan)
    }

    /// Refuses options of the load beside a plan file, in which all of that is.
    fn refuse_the_loads_options(self) -> Result<()> {
        const URL: &str = "http://127.0.0.1/";
        let bare = Arguments::try_parse_from(["yamabiko", "capacity", URL]).map_err(|error| anyhow!("{error}"))?;
        let Verb::Capacity(bare) = bare.verb else { unreachable!("it was just said") };
        let of = |capacity: Capacity| -> Result<Plan> {
            let plan = Capacity { what: vec![URL.to_owned()], ..capacity }.bench_plan()?;
            Ok(Plan { name: String::new(), seed: 0, slo: None, ..plan })
        };
        ensure!(
            self.load.rate.is_none() && of(self)? == of(*bare)?,
            "with a plan file everything about load, path and server is in the file; of the options only those of the search, --slo and \
             those of the result may be given beside it"
        );
        Ok(())
    }
}

/// The plan of a file.
fn from_file(file: &Path) -> Result<Plan> {
    let origin = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| anyhow!("cannot read the plan {origin}: {error}"))?;
    let mut plan = Plan::from_toml(&text, &origin)?;
    ensure!(
        plan.capacity.is_some(),
        "{origin}: this plan is one run; a plan that seeks a capacity has [capacity] in it"
    );
    plan.find_files_from(file.parent().unwrap_or(Path::new("")));
    Ok(plan)
}

/// The options of the search.
struct Search {
    find: Option<Find>,
    think: Option<ThinkPlan>,
    each_every: Option<Duration>,
    quick: bool,
    trial: Option<Duration>,
    short: Option<Duration>,
    confirm: Option<Duration>,
    width: Option<Probability>,
    searches: Option<u32>,
    start: Option<SoughtLoad>,
    max: Option<SoughtLoad>,
    each: Vec<String>,
    no_overload: bool,
    no_limit: bool,
}

/// A think time as typed.
fn think(typed: &str) -> Result<ThinkPlan, String> {
    let time = |text: &str| parse_duration(text).map_err(|error| error.to_string());
    match typed.split_once(':') {
        None => Ok(ThinkPlan::Constant(Time(time(typed)?))),
        Some(("constant", text)) => Ok(ThinkPlan::Constant(Time(time(text)?))),
        Some(("exponential", text)) => Ok(ThinkPlan::exponential(time(text)?)),
        Some(_) => {
            Err("a time such as 7s, or exponential:7s (cut at ten times of it) is wanted; a plan has more".into())
        }
    }
}

impl Search {
    fn of(typed: &Capacity) -> Self {
        Search {
            find: typed.find,
            think: typed.think.clone(),
            each_every: typed.each_every,
            quick: typed.quick,
            trial: typed.trial,
            short: typed.short,
            confirm: typed.confirm,
            width: typed.width,
            searches: typed.searches,
            start: typed.start,
            max: typed.max,
            each: typed.each.clone(),
            no_overload: typed.no_overload,
            no_limit: typed.no_limit,
        }
    }

    /// What was typed, over a file's search or the defaults.
    fn over(self, file: Option<CapacityPlan>) -> CapacityPlan {
        let file = file.unwrap_or_default();
        let base = if self.quick {
            let CapacityPlan { short, trial, confirm, searches, .. } = CapacityPlan::quick();
            CapacityPlan { short, trial, confirm, searches, ..file }
        } else {
            file
        };
        let trial = self.trial.unwrap_or(base.trial);
        CapacityPlan {
            find: self.find.unwrap_or(base.find),
            think: self.think.or(base.think),
            each_every: self.each_every.or(base.each_every),
            // What was not said follows a trial that was.
            short: self.short.unwrap_or(base.short.min(trial)),
            confirm: self.confirm.unwrap_or(if base.confirm.is_zero() {
                base.confirm
            } else {
                base.confirm.max(trial)
            }),
            trial,
            width: self.width.unwrap_or(base.width),
            searches: self.searches.unwrap_or(base.searches),
            start: self.start.or(base.start),
            max: self.max.or(base.max),
            each: if self.each.is_empty() { base.each } else { self.each },
            overload: base.overload && !self.no_overload,
            limit: base.limit && !self.no_limit,
        }
    }
}
