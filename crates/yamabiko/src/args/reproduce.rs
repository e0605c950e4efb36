//! `reproduce`, as typed.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use units::parse_duration;

/// What to make again.
#[derive(Debug, Subcommand)]
pub enum Reproduce {
    /// P1 (about 2001): connections in process inside one server, whose users are next door, 48 ms away, or as far as
    /// a real audience. Five experiments with Apache, two of them with httperf
    Koshien(Koshien),
    /// P4 (2001): a minimal server against Apache, ab -n 1000 of 1 KB to 1 MB at 100 Mbit/s and without a path
    Dserver(Dserver),
    /// P3 (about 1997): the most a server can do, what each feature costs, CPU of static and dynamic requests, and
    /// static answers while the dynamic part is flooded, capped and not
    Directory(Directory),
    /// P2 (1999): what the tap costs a program by the amount transferred, and what the logs of nginx and Apache do not see
    /// of a transfer over 1.5 Mbit/s while the load rises
    Transparent(Transparent),
    /// P5 (2001): a school's gateway. squid on a small, a middle and a large machine at 5 to 80 requests a second, and a class
    /// of 40 seats; a TCP stream through them with and without NAT and a loaded squid; Bonnie's table. CPU share and memory by
    /// control groups
    Gateway(Gateway),
}

/// Where the result goes, of any of them.
#[derive(Args, Debug)]
pub struct Reproduced {
    /// Write the page to this file too
    #[arg(long, value_name = "FILE")]
    pub html: Option<std::path::PathBuf>,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub show: super::ShowOptions,
}

#[derive(Args, Debug)]
pub struct Koshien {
    /// Length of each experiment, after 8 s of warm-up
    #[arg(short, long, default_value = "60s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Duration,
    /// As long as the paper's: 100,000 requests in each, some 15 minutes
    #[arg(long, conflicts_with = "duration")]
    pub full: bool,
    /// Only these experiments, such as 2,5
    #[arg(short, long, value_delimiter = ',', value_name = "NUMBERS", default_values_t = [1, 2, 3, 4, 5])]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
    pub experiments: Vec<u8>,
    /// The server's TCP: a first window of 2 segments and reno, or what this machine's kernel does
    #[arg(short, long, value_enum, default_value_t = Setting::Both)]
    pub setting: Setting,
    #[command(flatten)]
    pub result: Reproduced,
}

#[derive(Args, Debug)]
pub struct Dserver {
    /// Requests of each measurement
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = units::parse_count, allow_hyphen_values = true)]
    pub requests: u64,
    /// Only these sizes, such as 1KB,100KB
    #[arg(short, long, value_enum, value_delimiter = ',', value_name = "SIZES")]
    #[arg(default_values_t = [Size::Kb1, Size::Kb10, Size::Kb100, Size::Mb1])]
    pub sizes: Vec<Size>,
    #[command(flatten)]
    pub result: Reproduced,
}

#[derive(Args, Debug)]
pub struct Directory {
    /// Length of each measurement
    #[arg(short, long, default_value = "5s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Duration,
    /// Only these parts, such as maximum,flood
    #[arg(short, long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    #[arg(default_values_t = [Part::Maximum, Part::Features, Part::Requests, Part::Cache, Part::Flood])]
    pub parts: Vec<Part>,
    /// Entries of the directory
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    pub entries: u32,
    #[command(flatten)]
    pub result: Reproduced,
}

#[derive(Args, Debug)]
pub struct Transparent {
    /// How long experiment 2 raises its load on each server; experiment 1 transfers the more the longer
    #[arg(short, long, default_value = "90s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Duration,
    /// Raise the load over ten minutes, and transfer 100 MB at 10 Mbit/s
    #[arg(long, conflicts_with = "duration")]
    pub full: bool,
    /// Only this experiment: 1, what the tap costs; 2, the client beside servers' logs
    #[arg(short, long, value_delimiter = ',', value_name = "NUMBERS", default_values_t = [1, 2])]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=2))]
    pub experiments: Vec<u8>,
    #[command(flatten)]
    pub result: Reproduced,
}

#[derive(Args, Debug)]
pub struct Gateway {
    /// Length of each point of a cache; a quarter of it is not measured
    #[arg(short, long, default_value = "8s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Duration,
    /// As long as the paper's: 30 minutes a point, and answers may take six times as long; 10 trials of 10 s of each stream.
    /// Some 19 hours
    #[arg(long, conflicts_with_all = ["duration", "trials", "stream"])]
    pub full: bool,
    /// Only these parts, such as small,class
    #[arg(short, long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    #[arg(default_values_t = [
        GatewayPart::Small, GatewayPart::Middle, GatewayPart::Large, GatewayPart::Repeats, GatewayPart::New, GatewayPart::Class,
        GatewayPart::Forwarding, GatewayPart::Disk
    ])]
    pub parts: Vec<GatewayPart>,
    /// Of the paper's rates only these, such as 5,20,80/s
    #[arg(short, long, value_name = "RATES", value_parser = super::proxy_cache::rates, allow_hyphen_values = true)]
    pub rate: Option<super::proxy_cache::Rates>,
    /// How many times as fast as in the paper time runs for caches [default: by what squid takes for a request here]
    #[arg(long, value_name = "FACTOR", value_parser = faster, allow_hyphen_values = true)]
    pub factor: Option<f64>,
    /// The same for forwarding [default: by what the small machine forwards here]
    #[arg(long, value_name = "FACTOR", value_parser = faster, allow_hyphen_values = true)]
    pub factor_forwarding: Option<f64>,
    /// Trials of the stream in each condition; the conditions take turns
    #[arg(long, default_value_t = 3, value_name = "TRIALS", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub trials: u32,
    /// Length of a stream
    #[arg(long, default_value = "3s", value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub stream: Duration,
    /// What a loaded squid is asked while streams pass: PolyMix-1 at this rate of the paper's, such as 40/s, or wget, one file
    /// after the other
    #[arg(long, default_value = "wget", value_name = "RATE")]
    pub load: gateway::ProxyLoading,
    /// The folder whose storage is measured [default: that of the book]
    #[arg(long, value_name = "FOLDER")]
    pub directory: Option<std::path::PathBuf>,
    /// Size of the file beside the paper's 100 MB
    #[arg(long, default_value = "1GiB", value_name = "SIZE", allow_hyphen_values = true)]
    pub size: units::Bytes,
    /// ClientsSupported of the class that asks what hardware it needs
    #[arg(long, default_value_t = 40, value_name = "SEATS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub seats: u32,
    #[command(flatten)]
    pub result: Reproduced,
}

/// A factor of time, from 1 on.
fn faster(typed: &str) -> Result<f64, String> {
    match units::parse_factor(typed) {
        Ok(factor) if (1.0..=1000.0).contains(&factor) => Ok(factor),
        _ => Err("a factor from 1 to 1000 is wanted, such as 10x".into()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GatewayPart {
    /// The sweep on the small machine
    Small,
    /// On the middle one
    Middle,
    /// On the large one, at 10 and at 100 Mbit/s
    Large,
    /// 95 % cacheable with 90 % hits
    Repeats,
    /// A course in which every URL is new
    New,
    /// 40 seats after the teacher fetched the pages
    Class,
    /// A TCP stream through each machine: alone, with NAT, with squid idle and loaded
    Forwarding,
    /// Bonnie's table of the storage here
    Disk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// MAX against Apache and nginx
    Maximum,
    /// Features added to MAX one at a time
    Features,
    /// CPU of static and of dynamic requests
    Requests,
    /// A cache of results
    Cache,
    /// Static answers while the dynamic part is flooded
    Flood,
}

/// The paper's sizes, whose kilobyte is 1024 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Size {
    #[value(name = "1KB")]
    Kb1,
    #[value(name = "10KB")]
    Kb10,
    #[value(name = "100KB")]
    Kb100,
    #[value(name = "1MB")]
    Mb1,
}

impl Size {
    /// In bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Size::Kb1 => 1 << 10,
            Size::Kb10 => 10 << 10,
            Size::Kb100 => 100 << 10,
            Size::Mb1 => 1 << 20,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Setting {
    /// As in 2001
    #[value(name = "2001")]
    Year2001,
    /// As today
    Today,
    /// One after the other
    Both,
}
