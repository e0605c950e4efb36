//! Arguments as typed. What they mean is decided in [`plan`].

mod learn;
pub mod plan;
mod reproduce;
mod watch;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use lab::plan::{Queue, ServerTcp};
use lab::slo::Slo;
use units::{BitRate, Bytes, CpuShare, Probability, RequestRate, parse_duration};

pub use self::learn::{By, Learn};
pub use self::reproduce::{Koshien, Reproduce, Setting};
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
    /// Do what a plan file says
    Run(Run),
    /// Run any program at the far end of a path
    Net(Box<Net>),
    /// Distances: built in, from a file, or learned from a capture
    #[command(subcommand)]
    Profile(Profile),
    /// Serve the files of a folder
    Serve(Serve),
    /// Figures and logs from packets: of a device, or out of a capture file
    Watch(Box<Watch>),
    /// A published experiment made again, paper beside here
    #[command(subcommand)]
    Reproduce(Reproduce),
    /// List the runs in the book
    Runs(Runs),
    /// Print a run again
    Report(Report),
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
}

#[derive(Args, Debug)]
pub struct Bench {
    /// http://HOST[:PORT]/PATH; with --server the host is `server`
    pub url: String,
    #[command(flatten)]
    pub load: LoadOptions,
    #[command(flatten)]
    pub path: PathOptions,
    #[command(flatten)]
    pub server: ServerOptions,
    #[command(flatten)]
    pub watch: WatchOptions,
    #[command(flatten)]
    pub host: HostOptions,
    #[command(flatten)]
    pub result: ResultOptions,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub struct LoadOptions {
    /// Open loop: offer so many requests a second, such as 110/s, whatever the server does
    #[arg(short, long, allow_hyphen_values = true)]
    pub rate: Option<RequestRate>,
    /// How arrivals are spaced in the open loop
    #[arg(long, value_enum, default_value_t = Arrivals::Constant)]
    pub arrivals: Arrivals,
    /// Closed loop (no --rate): number of connections [default: 64]. Open loop: most connections open at once
    #[arg(short, long, allow_hyphen_values = true)]
    pub connections: Option<u32>,
    /// End the measured phase after so many requests
    #[arg(short = 'n', long, value_parser = count, allow_hyphen_values = true)]
    pub requests: Option<u64>,
    /// End the measured phase after this time [default: 10s if -n is not given either]
    #[arg(short, long, value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Option<Duration>,
    /// Load before the measured phase, not in the results [default: with --rate, 1s and four of the longest RTTs]
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true)]
    pub warmup: Option<Duration>,
    /// Virtual clients, each with its own address and distance [default: 100 with
    /// --rate, else the connections; 1 without a path]
    #[arg(long, allow_hyphen_values = true)]
    pub clients: Option<u32>,
    /// One connection per request
    #[arg(long, overrides_with = "keepalive")]
    pub close: bool,
    /// Keep connections open between requests (the default)
    #[arg(long, overrides_with = "close")]
    pub keepalive: bool,
    /// Request method
    #[arg(short, long, value_enum, default_value_t = MethodName::Get, ignore_case = true)]
    pub method: MethodName,
    /// Send this file as the request's body
    #[arg(long, value_name = "FILE")]
    pub body: Option<PathBuf>,
    /// Add a header line, `Name: value`; may be given more than once
    #[arg(short = 'H', long = "header", value_name = "LINE")]
    pub headers: Vec<String>,
    /// HTTP version of the requests
    #[arg(long, value_enum, default_value_t = Http::V11)]
    pub http: Http,
    /// Fail a request whose response is not whole after this time
    #[arg(long, default_value = "30s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub timeout: Duration,
    /// Fail a request whose connection is not established after this time
    #[arg(long, default_value = "10s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub connect_timeout: Duration,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Path")]
pub struct PathOptions {
    /// Distances: a built-in profile, a profile file, or `none` [default: none, or constant with --rtt, or 0ms with
    /// --server]
    #[arg(long, value_name = "PROFILE")]
    pub path: Option<String>,
    /// The same RTT for every client
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true)]
    pub rtt: Option<Duration>,
    /// Variation of the delay per packet, each way
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true)]
    pub variation: Option<Duration>,
    /// Loss probability per packet, each way, such as 1%
    #[arg(long, allow_hyphen_values = true)]
    pub loss: Option<Probability>,
    /// Rate of each client's link to the server, such as 1Mbit
    #[arg(long, allow_hyphen_values = true)]
    pub up: Option<BitRate>,
    /// Rate of each client's link from the server, such as 10Mbit
    #[arg(long, allow_hyphen_values = true)]
    pub down: Option<BitRate>,
    /// Queue limit in front of each rate, such as 64KB or 100ms
    #[arg(long, allow_hyphen_values = true)]
    pub queue: Option<Queue>,
    /// Switch segmentation and checksum offload of the TUN devices off
    #[arg(long)]
    pub no_offload: bool,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Server")]
pub struct ServerOptions {
    /// Start this server at the far end of the path; it must listen on every address or on 198.18.0.1
    #[arg(long, value_name = "COMMAND")]
    pub server: Option<String>,
    /// Hold it to a share of one core, such as 50%
    #[arg(long, value_name = "SHARE", requires = "server", allow_hyphen_values = true)]
    pub server_cpu: Option<CpuShare>,
    /// Its TCP, such as initcwnd=2,cc=reno
    #[arg(long, value_name = "SETTINGS")]
    pub server_tcp: Option<ServerTcp>,
    /// How long it may take until it listens
    #[arg(long, default_value = "10s", value_parser = parse_duration, requires = "server", allow_hyphen_values = true)]
    pub server_start_timeout: Duration,
}

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Second witness")]
pub struct WatchOptions {
    /// Read the packets at the server's end, at both ends of the path, or at none [default: server, where the lab has
    /// that end]
    #[arg(long, value_enum, value_name = "END")]
    pub watch: Option<WatchAt>,
    /// Bytes kept of each packet, such as 1KiB; longer heads of HTTP cannot be read in full [default: 1KiB]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub watch_snap: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum WatchAt {
    Server,
    Both,
    None,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "This machine")]
pub struct HostOptions {
    /// How generator and path wait for the next due moment
    #[arg(long, value_enum, default_value_t = Wait::Hybrid)]
    pub wait: Wait,
    /// Which cores are whose [default: split for bench, float for net]
    #[arg(long, value_enum)]
    pub placement: Option<Placement>,
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
}

#[derive(Args, Debug)]
pub struct Run {
    /// The plan
    pub plan: PathBuf,
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
}

#[derive(Args, Debug)]
pub struct Net {
    #[command(flatten)]
    pub path: PathOptions,
    #[command(flatten)]
    pub server: ServerOptions,
    /// Virtual clients: addresses 198.19.0.1 onward, each with its own distance
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub clients: u32,
    #[command(flatten)]
    pub watch: WatchOptions,
    #[command(flatten)]
    pub host: HostOptions,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Write the path's figures as a JSON document to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Program and arguments; a shell if left out
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub enum Profile {
    /// Names of the built-in profiles
    List,
    /// What a profile means, with a plot
    Show {
        /// A built-in profile or a profile file
        name: String,
        /// Cut into so many clients
        #[arg(long, default_value_t = 100, allow_hyphen_values = true)]
        clients: u32,
    },
    /// A profile from the packets of a real server: its clients' distances, losses and arrivals
    Learn(Box<Learn>),
}

#[derive(Args, Debug)]
pub struct Serve {
    /// The folder
    pub dir: PathBuf,
    /// Address and port
    #[arg(long, default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,
    /// Threads, each with its own share of the connections
    #[arg(long, default_value_t = 1, value_parser = threads)]
    pub threads: usize,
}

#[derive(Args, Debug)]
pub struct Runs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(subcommand)]
    pub what: Option<RunsWhat>,
}

#[derive(Clone, Copy, Debug, Subcommand)]
pub enum RunsWhat {
    /// The columns of every Parquet file, with their units
    Columns,
}

#[derive(Args, Debug)]
pub struct Report {
    /// A run's name, the beginning of one, its folder, or `last`
    #[arg(default_value = "last")]
    pub run: String,
    /// Print the run's JSON document and nothing else
    #[arg(long, conflicts_with_all = ["html", "svg"])]
    pub json: bool,
    /// Write the run as one HTML page to this file and print its URL; `-` is standard output. The page needs no network
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the page's plots as SVG files into this folder and print their names
    #[arg(long, value_name = "FOLDER")]
    pub svg: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Arrivals {
    Constant,
    Poisson,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Http {
    #[value(name = "1.0")]
    V10,
    #[value(name = "1.1")]
    V11,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum MethodName {
    #[value(name = "GET")]
    Get,
    #[value(name = "HEAD")]
    Head,
    #[value(name = "POST")]
    Post,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Wait {
    Sleep,
    Hybrid,
    Spin,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Placement {
    Split,
    Float,
}

fn count(typed: &str) -> Result<u64, String> {
    typed.parse().map_err(|_| "a whole number is wanted, such as 1000".to_owned())
}

fn address(typed: &str) -> Result<SocketAddr, String> {
    typed.parse().map_err(|_| "an address and a port are written like 127.0.0.1:8080, 0.0.0.0:80 or [::]:80".to_owned())
}

fn threads(typed: &str) -> Result<usize, String> {
    match typed.parse() {
        Ok(threads @ 1..=1024) => Ok(threads),
        _ => Err("a number from 1 to 1024 is wanted".to_owned()),
    }
}
