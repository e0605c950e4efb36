//! Arguments as typed. What they mean is decided in [`plan`].

pub mod ab;
#[cfg(feature = "agent")]
mod agent;
mod cache;
mod capacity;
mod compare;
mod component;
mod disk;
mod doctor;
#[cfg(all(test, feature = "agent", feature = "manager"))]
mod documented;
mod dynamic;
#[cfg(feature = "export")]
mod export;
mod gateway;
mod host;
mod learn;
#[cfg(feature = "web")]
mod live;
mod log;
#[cfg(feature = "manager")]
mod manager;
mod predict;
mod profile;
mod proxy_cache;
#[cfg(all(test, feature = "agent", feature = "manager"))]
mod reference;
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
use plan::{HostPlan, LoadPlan, PathPlan, To, WatchPlan};
use units::{RequestRate, parse_duration};

pub use self::ab::Ab;
#[cfg(feature = "agent")]
pub use self::agent::{Agent, AgentStatus, AgentWhat};
pub use self::capacity::Capacity;
pub use self::compare::{Compare, Comparison};
pub use self::component::ComponentAlone;
pub use self::disk::Disk;
pub use self::doctor::Doctor;
#[cfg(feature = "export")]
pub use self::export::Push;
pub use self::gateway::{Forwarding, GatewayClient, GatewayServer, GatewayWhat};
pub use self::host::HostOptions;
pub use self::learn::{By, Learn};
#[cfg(feature = "web")]
pub use self::live::Live;
#[cfg(feature = "manager")]
pub use self::manager::{Manager, ManagerWhat, Token, TokenAdd};
pub use self::predict::{Described, Predict, Prediction};
pub use self::profile::{Check, Profile, Show};
pub use self::proxy_cache::ProxyCache;
pub use self::reproduce::{
    Directory, Dserver, Gateway, GatewayPart, Koshien, Part, Reproduce, Reproduced, Setting, Transparent,
};
pub use self::runs::{Delete, Du, Export, Import, Runs, RunsWhat, Search, Shown, StateName, VerdictName};
pub use self::serve::Serve;
pub use self::server::ServerOptions;
pub use self::shell::{Completions, Man};
pub use self::show::ShowOptions;
pub use self::steps::Step;
pub use self::tap::{Slice, Tap, TapWhat};
pub use self::watch::{At, Watch};

/// How does a web server perform for users who are far away?
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
    /// The main job in a minute, nothing to install: one server, three distances
    Demo(Demo),
    /// Offer load to a server, through a path or not
    Bench(Box<Bench>),
    /// ApacheBench's options, report and files
    Ab(Ab),
    /// Measure a cache, as Web Polygraph did: hit ratios, times and wrong answers at one rate after another
    Cache(Box<ProxyCache>),
    /// How fast a folder's storage reads, writes, seeks and commits, by fio
    Disk(Disk),
    /// What a server will do, from what its requests cost
    Predict(Box<Predict>),
    /// How a machine between two networks forwards: in the lab, or a real one
    Gateway(Box<Forwarding>),
    /// The highest load that still keeps its objective
    Capacity(Box<Capacity>),
    /// Do what a plan file says
    Run(Run),
    /// Run any program at the far end of a path
    Net(Box<Net>),
    /// Distances: built in, from a file, or learned from a capture
    #[command(subcommand)]
    Profile(Profile),
    /// Serve the files of a folder
    Serve(Box<Serve>),
    /// Figures and logs from packets: of a device, or out of a capture file
    Watch(Box<Watch>),
    /// A page in the browser that shows a run as it goes, or as it ended
    #[cfg(feature = "web")]
    Live(Live),
    /// What a program's own sockets saw: its connections and exchanges
    Tap(Box<Tap>),
    /// A published experiment made again, paper beside here
    #[command(subcommand)]
    Reproduce(Reproduce),
    /// What this machine can and cannot do, and how to mend it
    Doctor(Doctor),
    /// Whether two runs differ, or two servers, and by how much
    Compare(Box<Compare>),
    /// List the runs in the book; search, tag, delete, export and import them
    Runs(Runs),
    /// Print a run again
    Report(Report),
    /// Send a run's metrics to a Prometheus or to an OpenTelemetry receiver
    #[cfg(feature = "export")]
    Export(Push),
    /// What a shell needs to complete this command: verbs, options, names of runs
    Completions(Completions),
    /// Write the manual pages
    Man(Man),
}

#[derive(Args, Debug)]
pub struct Demo {
    /// Length of each of the three measured phases
    #[arg(short, long, default_value = "15s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Duration,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub show: ShowOptions,
}

#[derive(Args, Debug)]
pub struct Bench {
    #[command(flatten)]
    pub given: Given,
    /// http[s]://HOST[:PORT]/PATH; with --server the host is `server`. With a path and no --server: a service that runs
    /// already, on this host or on another. Several are asked for in turn. {client}, {sequence} and {random 1..1000} are
    /// places; a brace itself is written {{ or }}
    #[arg(required_unless_present = "urls")]
    pub url: Vec<String>,
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
    /// Stand between the generator and its own sockets, as `yamabiko tap` does with any program; it then uses epoll
    #[arg(long, help_heading = "Third witness")]
    pub tap: bool,
    #[command(flatten)]
    pub host: HostPlan,
    #[command(flatten)]
    pub result: ResultOptions,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Result")]
pub struct ResultOptions {
    /// Judge the run: 'p99 < 200ms, errors < 0.1%'
    #[arg(long, value_name = "OBJECTIVE")]
    pub slo: Option<Slo>,
    /// Exit with 3 also when the result is only suspect
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
    /// Name in the run's folder
    #[arg(long, default_value = "bench")]
    pub name: String,
    /// Do not keep the run in the book
    #[arg(long)]
    pub no_save: bool,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Print the plan instead of doing it
    #[arg(long)]
    pub print_plan: bool,
    #[command(flatten)]
    pub show: ShowOptions,
}

#[derive(Args, Debug)]
pub struct Run {
    /// The plan
    pub plan: PathBuf,
    /// Length of the measured phase, in place of the plan's
    #[arg(short, long, value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Option<Duration>,
    /// Offered rate, such as 110/s, in place of the plan's
    #[arg(short, long, allow_hyphen_values = true)]
    pub rate: Option<RequestRate>,
    /// Exit with 3 also when the result is only suspect
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
    /// Do not keep the run in the book
    #[arg(long)]
    pub no_save: bool,
    /// Print the plan, complete, instead of doing it
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
    /// At the far end a service that runs already, on this host or on another: HOST, HOST:PORT, a URL, or NAME=ADDRESS;
    /// may be given more than once. Nothing else can be reached
    #[arg(long = "to", value_name = "HOST", conflicts_with = "server", help_heading = "Server")]
    pub to: Vec<To>,
    /// Virtual clients: addresses 198.19.0.1 onward, each with its own distance
    #[arg(long, default_value_t = 1, value_parser = units::parse_count_u32, allow_hyphen_values = true)]
    pub clients: u32,
    #[command(flatten)]
    pub watch: WatchPlan,
    /// Third witness: what the program's own sockets saw, held against the wire where that is watched
    #[arg(long)]
    pub tap: bool,
    #[command(flatten)]
    pub host: HostOptions,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Write the path's figures as a JSON document to this file
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub json: Option<PathBuf>,
    // With it the run is kept in the book: the page shows what is kept.
    #[command(flatten)]
    pub show: ShowOptions,
    /// Program and arguments; a shell if left out
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct Report {
    /// A run's name, the beginning of one, its folder, or `last`
    #[arg(default_value = "last")]
    pub run: String,
    /// Print the run's JSON document and nothing else
    #[arg(long, conflicts_with_all = ["html", "svg", "md"])]
    pub json: bool,
    #[command(flatten)]
    pub forms: PageForms,
    /// Write the run for other tools into this file, `-` is standard output: response times as `fortio` (JSON that its
    /// pages load), `hlog` or `hgrm` (HdrHistogram); a table as `csv` or `jsonl`; requests as `har`; metrics as
    /// `prometheus`, `openmetrics` or `otlp`
    #[arg(long, num_args = 2, value_names = ["FORMAT", "FILE"], conflicts_with_all = ["json", "html", "svg", "md"])]
    pub export: Option<Vec<String>>,
    /// Table to write as csv or jsonl: a name of `yamabiko runs columns`, such as requests [default: series]
    #[arg(long, value_name = "NAME", requires = "export")]
    pub table: Option<String>,
    /// Most requests in a har: of more, an even sample [default: 10000]
    #[arg(long, value_name = "N", requires = "export", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
}

/// The forms of a page, other than the terminal's.
#[derive(Args, Clone, Debug, Default)]
pub struct PageForms {
    /// Write it as one HTML page to this file and print its URL; `-` is standard output. The page needs no network
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub html: Option<PathBuf>,
    /// Write the page's words and tables as Markdown to this file; `-` is standard output
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub md: Option<PathBuf>,
    /// Write the page's plots as SVG files into this folder and print their names
    #[arg(long, value_name = "FOLDER")]
    pub svg: Option<PathBuf>,
}

fn address(typed: &str) -> Result<SocketAddr, String> {
    typed.parse().map_err(|_| "an address and a port are written like 127.0.0.1:8080, 0.0.0.0:80 or [::]:80".to_owned())
}

fn ip_address(typed: &str) -> Result<IpAddr, String> {
    let bare = typed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(typed);
    bare.parse().map_err(|_| "an address is wanted, such as 192.0.2.7 or 2001:db8::7".to_owned())
}

fn threads(typed: &str) -> Result<usize, String> {
    match typed.parse() {
        Ok(threads @ 1..=1024) => Ok(threads),
        _ => Err("a number from 1 to 1024 is wanted".to_owned()),
    }
}
