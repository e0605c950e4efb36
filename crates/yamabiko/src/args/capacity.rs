//! Arguments of `capacity`, and their plan.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail, ensure};
use clap::{Args, Parser};
use plan::cli::Given;
use plan::{CapacityPlan, CoordinationOptions, Find, HostPlan, LoadPlan, PathPlan, Plan, ShardPlan, WatchPlan};
use units::RequestRate;

use super::{Arguments, Bench, ResultOptions, ServerOptions, Verb, ip_address, to_plan};

#[derive(Args, Debug)]
#[command(mut_arg("start_at", |start_at| start_at.hide(true)))]
#[command(mut_arg("hosts", |hosts| hosts.hide(true)))]
#[command(mut_arg("ssh", |ssh| ssh.hide(true)))]
#[command(after_help = "The capacity is the highest offered open-loop load at which a valid run meets the objective \
                        and requests in flight do not grow. Saturation, knee and behaviour under overload are \
                        printed separately.\nShort trials bracket the result, --searches long searches narrow it, \
                        and a confirmation repeats it: about a quarter of an hour, or three minutes with --quick. \
                        Ctrl-C prints a partial result; --resume continues.\n--find users, connections or \
                        new-connections searches for the most users who request, wait and think; the most open \
                        connections with a light load over them; the most new connections a \
                        second.\n--shard 0/3 --coordinate nats://HOST searches with the load of three machines: shard 0 \
                        leads, and the other shards are given the same options.\ndocs/concepts/capacity.md defines the terms.")]
pub struct Capacity {
    #[command(flatten)]
    pub given: Given,
    /// URL and options as for `bench`, or a plan file with [capacity]; without --rate, -n and -d, which capacity
    /// chooses
    #[arg(value_name = "URL|PLAN", required_unless_present_any = ["urls", "resume"])]
    pub what: Vec<String>,
    #[command(flatten)]
    pub search: CapacityPlan,
    /// Continue an interrupted search: its name, its folder, or `last`
    #[arg(long, value_name = "RUN", help_heading = "Search", conflicts_with = "what")]
    pub resume: Option<String>,
    #[command(flatten)]
    pub load: LoadPlan,
    #[command(flatten)]
    pub path: PathPlan,
    #[command(flatten)]
    pub server: ServerOptions,
    /// Connect to this address instead of resolving the URL's host; may be repeated, addresses are used in turn
    #[arg(long = "to", value_name = "ADDRESS", value_parser = ip_address, conflicts_with = "server")]
    #[arg(help_heading = "Server")]
    pub to: Vec<IpAddr>,
    #[command(flatten)]
    pub watch: WatchPlan,
    #[command(flatten)]
    pub host: HostPlan,
    #[command(flatten)]
    pub shard: ShardPlan,
    #[command(flatten)]
    pub coordination: CoordinationOptions,
    #[command(flatten)]
    pub result: ResultOptions,
    /// Also write an HTML page to this file
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output, help_heading = "Result")]
    pub html: Option<PathBuf>,
}

impl Capacity {
    /// The plan with the search. Must not be called for a resumed search.
    ///
    /// # Errors
    /// Options contradict each other, a plan file cannot be read, or options of the load are given in addition to a
    /// plan file.
    pub fn into_plan(mut self) -> Result<Plan> {
        let (search, given) = (self.search.clone(), self.given.clone());
        let slo = self.result.slo.clone();
        let shard = self.shard_of_search();
        if let [file] = &self.what[..]
            && !file.contains("://")
            && Path::new(file).is_file()
        {
            let file = PathBuf::from(file);
            let mut read = from_file(&file)?;
            self.refuse_load_options()?;
            read.slo = slo.or(read.slo);
            read.capacity = Some(search.over(read.capacity.take(), &given));
            read.shard = shard;
            read.check()?;
            return Ok(read);
        }
        if let Some(rate) = self.load.rate {
            bail!("--rate {rate}: capacity searches for the rate; give --start {rate} as the first load");
        }
        ensure!(
            self.load.requests.is_none() && self.load.duration.is_none(),
            "-n and -d: capacity chooses the length of trials; give --trial for that of a long one"
        );
        let find = search.find;
        ensure!(
            find != Find::NewConnections || !self.load.keepalive,
            "--keepalive: --find new-connections opens one connection per request; omit it"
        );
        ensure!(
            find != Find::Users || !self.given.has("clients"),
            "--clients: each user is a client of its own; omit it"
        );
        self.load.settle_options().map_err(anyhow::Error::msg)?;
        ensure!(!self.load.is_open(), "capacity makes trials of one rate each: omit --phase, --rates and --replay");
        let mut plan = self.bench_plan()?;
        if find == Find::Users {
            // The number of clients follows the number of users in each trial.
            plan.load.clients = 1;
        }
        plan.slo = slo;
        plan.capacity = Some(search.over(None, &given));
        plan.check()?;
        Ok(plan)
    }

    /// The shard as configured; shard 0 sets the start of each trial.
    pub fn shard_of_search(&self) -> ShardPlan {
        if self.coordination.coordinate.is_some() { self.shard.coordinated() } else { self.shard }
    }

    /// The plan of `bench`, without rate and length.
    fn bench_plan(self) -> Result<Plan> {
        let warmup = self.load.warmup;
        // Defaults of an open loop, which differ from those of a closed one.
        let load = LoadPlan { rate: Some(RequestRate::ONE), ..self.load };
        let name = if self.result.name == "bench" { "capacity".to_owned() } else { self.result.name };
        let mut plan = to_plan::bench(&Bench {
            given: self.given,
            url: self.what,
            load,
            path: self.path,
            server: self.server,
            to: self.to,
            watch: self.watch,
            tap: false,
            explain: false,
            host: self.host,
            shard: self.shard,
            coordination: self.coordination,
            result: ResultOptions { name, ..self.result },
        })?;
        (plan.load.rate, plan.load.duration, plan.load.warmup) = (None, None, warmup);
        Ok(plan)
    }

    /// Refuses options of the load in addition to a plan file.
    fn refuse_load_options(self) -> Result<()> {
        const URL: &str = "http://127.0.0.1/";
        let bare = Arguments::try_parse_from(["yamabiko", "capacity", URL]).map_err(|error| anyhow!("{error}"))?;
        let Verb::Capacity(bare) = bare.verb else { unreachable!("the verb was just given") };
        let of = |capacity: Capacity| -> Result<Plan> {
            let (shard, coordination) = (ShardPlan::default(), CoordinationOptions::default());
            let plan = Capacity { what: vec![URL.to_owned()], shard, coordination, ..capacity }.bench_plan()?;
            Ok(Plan { name: String::new(), seed: 0, slo: None, ..plan })
        };
        ensure!(
            self.load.rate.is_none() && of(self)? == of(*bare)?,
            "a plan file sets load, path and server: of the options only those of the search, --slo and those of the \
             result can be added"
        );
        Ok(())
    }
}

/// The plan of a file.
fn from_file(file: &Path) -> Result<Plan> {
    let origin = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| anyhow!("cannot read the plan {origin}: {error}"))?;
    let mut plan = Plan::from_toml(&text, &origin)?;
    ensure!(plan.capacity.is_some(), "{origin}: this plan is a single run; expected a plan with a [capacity] table");
    plan.find_files_from(file.parent().unwrap_or(Path::new("")));
    Ok(plan)
}
