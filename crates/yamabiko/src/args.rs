//! Command-line arguments. [`to_plan`] and [`plan`] turn them into a plan.

pub mod ab;
#[cfg(feature = "agent")]
mod agent;
mod cache;
#[cfg(feature = "experiments")]
mod capacity;
#[cfg(feature = "experiments")]
mod compare;
mod component;
#[cfg(feature = "experiments")]
mod disk;
mod doctor;
#[cfg(all(test, feature = "agent", feature = "manager"))]
mod documented;
mod dynamic;
mod explain;
#[cfg(feature = "export")]
mod export;
#[cfg(feature = "experiments")]
mod gateway;
mod host;
mod learn;
#[cfg(feature = "web")]
mod live;
mod log;
#[cfg(feature = "manager")]
mod manager;
mod manifests;
mod matrix;
mod merge;
#[cfg(feature = "experiments")]
mod predict;
mod profile;
#[cfg(feature = "experiments")]
mod proxy_cache;
#[cfg(all(test, feature = "agent", feature = "manager"))]
mod reference;
#[cfg(feature = "experiments")]
mod reproduce;
mod runs;
mod serve;
mod server;
mod shell;
mod show;
mod steps;
mod tap;
pub mod to_plan;
mod watch;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use plan::cli::Given;
use plan::slo::Slo;
use plan::{CoordinationOptions, HostPlan, LoadPlan, PathPlan, ShardPlan, To, WatchPlan};
use units::{RequestRate, parse_duration};

pub use self::ab::Ab;
#[cfg(feature = "agent")]
pub use self::agent::{Agent, AgentStatus, AgentWhat};
#[cfg(feature = "experiments")]
pub use self::capacity::Capacity;
#[cfg(feature = "experiments")]
pub use self::compare::{Compare, Comparison};
pub use self::component::ComponentAlone;
#[cfg(feature = "experiments")]
pub use self::disk::Disk;
pub use self::doctor::Doctor;
pub use self::explain::{Explain, with_read};
#[cfg(feature = "export")]
pub use self::export::Push;
#[cfg(feature = "experiments")]
pub use self::gateway::{Forwarding, GatewayClient, GatewayServer, GatewayWhat};
pub use self::host::HostOptions;
pub use self::learn::{By, Learn};
#[cfg(feature = "web")]
pub use self::live::Live;
#[cfg(feature = "manager")]
pub use self::manager::{Manager, ManagerWhat, Token, TokenAdd};
pub use self::manifests::Manifests;
#[cfg(test)]
pub use self::matrix::expanded;
pub use self::matrix::{Auto, Matrix, MatrixRun};
pub use self::merge::Merge;
#[cfg(feature = "experiments")]
pub use self::predict::{Described, Predict, Prediction};
pub use self::profile::{Check, Profile, Show};
#[cfg(feature = "experiments")]
pub use self::proxy_cache::ProxyCache;
#[cfg(feature = "experiments")]
pub use self::reproduce::{
    Directory, Dserver, Emulators, Gateway, GatewayPart, Http3, Koshien, Part, Reproduce, Reproduced, Setting,
    Transparent,
};
pub use self::runs::{Delete, Du, Export, Import, Runs, RunsWhat, Search, Shown, StateName, VerdictName};
pub use self::serve::Serve;
pub use self::server::ServerOptions;
pub use self::shell::{Completions, Man};
pub use self::show::ShowOptions;
pub use self::steps::Step;
pub use self::tap::{Slice, Tap, TapWhat};
pub use self::watch::{At, Watch};
#[cfg(feature = "web")]
pub use self::watch::{ReceiveFrom, SendTo};

/// Measures how web servers perform for users who are far away
#[derive(Debug, Parser)]
#[command(name = "yamabiko", version, propagate_version = true, max_term_width = 100)]
#[command(after_help = "Exit status: 0 valid result; 1 wrong usage or plan; 2 the environment lacks something; \
                        3 the measurement is invalid; 4 the objective (--slo) is not met.")]
pub struct Arguments {
    #[command(subcommand)]
    pub verb: Verb,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Measure one server at three distances; nothing to install
    Demo(Demo),
    /// Measure a server under load, also over an emulated path
    Bench(Box<Bench>),
    /// Measure with ApacheBench's options, report and files
    Ab(Ab),
    /// Measure a proxy cache: hit ratios, wrong responses
    #[cfg(feature = "experiments")]
    Cache(Box<ProxyCache>),
    /// Measure storage: reads, writes, seeks, commits (fio)
    #[cfg(feature = "experiments")]
    Disk(Disk),
    /// Explain what limits the responses of a run or capture
    Explain(Box<Explain>),
    /// Predict a server's capacity from its service demands
    #[cfg(feature = "experiments")]
    Predict(Box<Predict>),
    /// Measure a gateway: throughput, packet rates, RTT
    #[cfg(feature = "experiments")]
    Gateway(Box<Forwarding>),
    /// Find the highest load that meets an objective
    #[cfg(feature = "experiments")]
    Capacity(Box<Capacity>),
    /// Run a plan file
    Run(Run),
    /// Run any program over an emulated path
    Net(Box<Net>),
    /// List, show, check and learn path profiles
    #[command(subcommand)]
    Profile(Profile),
    /// Serve the files of a folder over HTTP
    Serve(Box<Serve>),
    /// Analyze packets of a device or a capture file
    Watch(Box<Watch>),
    /// Show a run in the browser, during or after it
    #[cfg(feature = "web")]
    Live(Live),
    /// Record the connections of a program at its sockets
    Tap(Box<Tap>),
    /// Reproduce a published experiment
    #[cfg(feature = "experiments")]
    #[command(subcommand)]
    Reproduce(Reproduce),
    /// Check what works on this machine, and how to fix it
    Doctor(Doctor),
    /// Compare two runs or two servers
    #[cfg(feature = "experiments")]
    Compare(Box<Compare>),
    /// Merge the runs of a load's shards, of several machines
    Merge(Merge),
    /// Print a Kubernetes job or Slurm script of a load's shards
    Manifests(Manifests),
    /// Coordinate the shard whose process started this one
    #[cfg(feature = "coordination")]
    #[command(hide = true)]
    Coordinate,
    /// List, search, tag, delete, export, import stored runs
    Runs(Runs),
    /// Print a stored run; write it as HTML, CSV, HAR ..
    Report(Report),
    /// Send metrics to Prometheus or OpenTelemetry
    #[cfg(feature = "export")]
    Export(Push),
    /// Print the completion script of a shell
    Completions(Completions),
    /// Write the manual pages
    Man(Man),
}

#[derive(Args, Debug)]
pub struct Demo {
    /// Length of each of the three measured phases
    #[arg(short, long, default_value = "15s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Duration,
    /// Set the seed of random numbers
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Print one JSON document only
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub show: ShowOptions,
}

#[derive(Args, Clone, Debug)]
pub struct Bench {
    #[command(flatten)]
    pub given: Given,
    /// http[s]://HOST[:PORT]/PATH; with --server the host is `server`. With a path and no --server: a service that runs
    /// already, on this host or on another. Several URLs are requested in turn. {client}, {sequence} and {random
    /// 1..1000} are placeholders; write a brace as {{ or }}
    #[arg(required_unless_present = "urls")]
    pub url: Vec<String>,
    #[command(flatten)]
    pub load: LoadPlan,
    #[command(flatten)]
    pub path: PathPlan,
    #[command(flatten)]
    pub server: ServerOptions,
    /// Connect to this address instead of resolving the URL's host; several are used in turn
    #[arg(long = "to", value_name = "ADDRESS", value_parser = ip_address, conflicts_with = "server")]
    #[arg(help_heading = "Server")]
    pub to: Vec<IpAddr>,
    #[command(flatten)]
    pub watch: WatchPlan,
    /// Record the load generator's socket calls, as `yamabiko tap` does for any program; it then uses epoll
    #[arg(long, help_heading = "Socket calls")]
    pub tap: bool,
    #[command(flatten)]
    pub host: HostPlan,
    #[command(flatten)]
    pub shard: ShardPlan,
    #[command(flatten)]
    pub coordination: CoordinationOptions,
    #[command(flatten)]
    pub result: ResultOptions,
    /// Keep the headers of the packets of both ends, and explain what limits the responses, as `yamabiko explain` does
    #[arg(long, help_heading = "Explanation", conflicts_with = "no_save")]
    pub explain: bool,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Result")]
pub struct ResultOptions {
    /// Objective of the run, such as 'p99 < 200ms, errors < 0.1%'; exit with 4 if it is not met
    #[arg(long, value_name = "OBJECTIVE")]
    pub slo: Option<Slo>,
    /// Exit with 3 also if the result is only suspect
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON document only
    #[arg(long)]
    pub json: bool,
    /// Set the run's name, a part of its folder's name
    #[arg(long, default_value = "bench")]
    pub name: String,
    /// Do not store the run
    #[arg(long)]
    pub no_save: bool,
    /// Set the seed of random numbers
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Print the plan instead of running it
    #[arg(long)]
    pub print_plan: bool,
    #[command(flatten)]
    pub show: ShowOptions,
}

#[derive(Args, Debug)]
pub struct Run {
    /// Plan file
    pub plan: PathBuf,
    /// Length of the measured phase, instead of the plan's
    #[arg(short, long, value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Option<Duration>,
    /// Offered rate, such as 110/s, instead of the plan's
    #[arg(short, long, allow_hyphen_values = true)]
    pub rate: Option<RequestRate>,
    #[command(flatten)]
    pub shard: ShardPlan,
    #[command(flatten)]
    pub coordination: CoordinationOptions,
    /// Exit with 3 also if the result is only suspect
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON document only
    #[arg(long)]
    pub json: bool,
    /// Do not store the run
    #[arg(long)]
    pub no_save: bool,
    /// Print the complete plan instead of running it
    #[arg(long)]
    pub print_plan: bool,
    #[command(flatten)]
    pub show: ShowOptions,
}

#[derive(Args, Debug)]
pub struct Net {
    #[command(flatten)]
    pub given: Given,
    #[command(flatten)]
    pub path: PathPlan,
    #[command(flatten)]
    pub server: ServerOptions,
    /// Reach a running service at the end of the path, on this host or another: HOST, HOST:PORT, a URL, or
    /// NAME=ADDRESS. May be repeated; nothing else is reachable
    #[arg(long = "to", value_name = "HOST", conflicts_with = "server", help_heading = "Server")]
    pub to: Vec<To>,
    /// Number of clients, each with its own address (from 198.19.0.1) and distance
    #[arg(long, default_value_t = 1, value_parser = units::parse_count_u32, allow_hyphen_values = true)]
    pub clients: u32,
    #[command(flatten)]
    pub watch: WatchPlan,
    /// Record the program's socket calls, and compare them with the packet capture, if there is one
    #[arg(long)]
    pub tap: bool,
    #[command(flatten)]
    pub host: HostOptions,
    /// Set the seed of random numbers
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Write the path's figures as a JSON document to this file
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub json: Option<PathBuf>,
    // `--live` stores the run, since the page shows stored runs.
    #[command(flatten)]
    pub show: ShowOptions,
    /// Program and arguments [default: a shell]
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct Report {
    /// Run: its name, the start of its name, its folder, or `last`
    #[arg(default_value = "last")]
    pub run: String,
    /// Print the run's JSON document only
    #[arg(long, conflicts_with_all = ["html", "svg", "md"])]
    pub json: bool,
    #[command(flatten)]
    pub forms: PageForms,
    /// Write the run in another format to this file; `-` is standard output. Response times: `fortio`, `hlog`, `hgrm`
    /// (HdrHistogram). A table: `csv`, `jsonl`. Requests: `har`. Metrics: `prometheus`, `openmetrics`, `otlp`
    #[arg(long, num_args = 2, value_names = ["FORMAT", "FILE"], conflicts_with_all = ["json", "html", "svg", "md"])]
    pub export: Option<Vec<String>>,
    /// Table for csv or jsonl, by its name in `yamabiko runs columns`, such as requests [default: series]
    #[arg(long, value_name = "NAME", requires = "export")]
    pub table: Option<String>,
    /// Most requests in a har; more are sampled evenly [default: 10000]
    #[arg(long, value_name = "N", requires = "export", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
}

/// Formats of a page besides the terminal's.
#[derive(Args, Clone, Debug, Default)]
pub struct PageForms {
    /// Write an HTML page to this file and print its URL; `-` is standard output. The page needs no network
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub html: Option<PathBuf>,
    /// Write the page as Markdown, without plots, to this file; `-` is standard output
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub md: Option<PathBuf>,
    /// Write the plots of the page as SVG files to this folder, and print their names
    #[arg(long, value_name = "FOLDER")]
    pub svg: Option<PathBuf>,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected an address and a port, such as 127.0.0.1:8080, 0.0.0.0:80 or [::]:80".to_owned())
}

fn ip_address(text: &str) -> Result<IpAddr, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().map_err(|_| "expected an IP address, such as 192.0.2.7 or 2001:db8::7".to_owned())
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=1024) => Ok(threads),
        _ => Err("expected a number from 1 to 1024".to_owned()),
    }
}
