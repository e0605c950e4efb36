//! `capacity`, as typed, and the plan as meant.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail, ensure};
use clap::{Args, Parser};
use plan::cli::Given;
use plan::{CapacityPlan, Find, HostPlan, LoadPlan, PathPlan, Plan, WatchPlan};
use units::RequestRate;

use super::{Arguments, Bench, ResultOptions, ServerOptions, Verb, ip_address, to_plan};

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
    #[command(flatten)]
    pub search: CapacityPlan,
    /// Go on with one that was interrupted: its name, its folder, or `last`
    #[arg(long, value_name = "RUN", help_heading = "Search", conflicts_with = "what")]
    pub resume: Option<String>,
    #[command(flatten)]
    pub load: LoadPlan,
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
    pub fn into_plan(mut self) -> Result<Plan> {
        let (search, given) = (self.search.clone(), self.given.clone());
        let slo = self.result.slo.clone();
        if let [file] = &self.what[..]
            && !file.contains("://")
            && Path::new(file).is_file()
        {
            let file = PathBuf::from(file);
            let mut read = from_file(&file)?;
            self.refuse_the_loads_options()?;
            read.slo = slo.or(read.slo);
            read.capacity = Some(search.over(read.capacity.take(), &given));
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
        let find = search.find;
        ensure!(
            find != Find::NewConnections || !self.load.keepalive,
            "--keepalive: new connections are sought, one a request; leave it out"
        );
        ensure!(
            find != Find::Users || !self.given.has("clients"),
            "--clients: each user is a client of its own; leave it out"
        );
        self.load.settle_options().map_err(anyhow::Error::msg)?;
        ensure!(!self.load.is_open(), "capacity is sought with one rate a trial: no --phase, --rates or --replay");
        let mut plan = self.bench_plan()?;
        if find == Find::Users {
            // As many as there are users, in every trial.
            plan.load.clients = 1;
        }
        plan.slo = slo;
        plan.capacity = Some(search.over(None, &given));
        plan.check()?;
        Ok(plan)
    }

    /// What `bench` would do, without a rate and a length.
    fn bench_plan(self) -> Result<Plan> {
        let warmup = self.load.warmup;
        // An open loop's defaults are other than a closed one's.
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
