//! Arguments of `reproduce`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use papers::emulators::Part as EmulatorsPart;
use papers::http3::{DELAYS_MS, FAST_MBIT, LOSSES};
use units::parse_duration;

/// The paper to reproduce.
#[derive(Debug, Subcommand)]
pub enum Reproduce {
    /// Koshien (ENMA, about 2001): concurrent connections in a server, with users on the LAN, 48 ms away, or as far as
    /// a real audience. Five experiments with Apache, two of them with httperf
    Koshien(Koshien),
    /// Dserver (2001): a minimal server against Apache, ab -n 1000 of 1 KB to 1 MB at 100 Mbit/s and without a path
    Dserver(Dserver),
    /// NTT DIRECTORY (about 1997): the maximum of a server, the cost of each feature, CPU of static and dynamic
    /// requests, and static responses under a flood of dynamic requests, with and without a CPU limit
    Directory(Directory),
    /// Transparent monitoring (1999): cost of the tap by the amount transferred, and what the logs of nginx and Apache
    /// miss of transfers over 1.5 Mbit/s under rising load
    Transparent(Transparent),
    /// School gateway (2001): squid on a small, a middle and a large machine at 5 to 80 requests a second, and a class
    /// of 40 clients; a TCP stream through them with and without NAT and a loaded squid; Bonnie's table. CPU share and
    /// memory by control groups
    Gateway(Gateway),
    /// rattan (2025): one flow by rate, chained effects and many paths through yamabiko and, where they are found,
    /// mahimahi and rattan; also RTT error, rates, losses and traces of each
    ///
    /// Peers are found on PATH, or by $YAMABIKO_MAHIMAHI (the folder of mm-delay, mm-link and mm-loss, setuid root) and
    /// $YAMABIKO_RATTAN (the program). They need root.
    Emulators(Emulators),
    /// HTTP/3 (2024): downloads by HTTP/2 and HTTP/3 over loss and delay at 10 Mbit/s, and on lines of up to 1 Gbit/s
    Http3(Http3),
    /// Be a probe or the server of `reproduce emulators`
    #[command(hide = true)]
    EmulatorProbe(EmulatorProbe),
}

/// Output options of all reproductions.
#[derive(Args, Debug)]
pub struct Reproduced {
    /// Also write an HTML page to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<std::path::PathBuf>,
    /// Set the seed of random numbers
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Print one JSON document only
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub show: super::ShowOptions,
}

#[derive(Args, Debug)]
pub struct Koshien {
    /// Length of each experiment, after a warm-up of 8 s
    #[arg(short, long, default_value = "60s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Duration,
    /// Use the paper's length: 100,000 requests in each experiment, some 15 minutes
    #[arg(long, conflicts_with = "duration")]
    pub full: bool,
    /// Run only these experiments, such as 2,5
    #[arg(short, long, value_delimiter = ',', value_name = "NUMBERS", default_values_t = [1, 2, 3, 4, 5])]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
    pub experiments: Vec<u8>,
    /// TCP of the server: initial window of 2 segments and reno, or this machine's defaults
    #[arg(short, long, value_enum, default_value_t = Setting::Both)]
    pub setting: Setting,
    #[command(flatten)]
    pub result: Reproduced,
}

#[derive(Args, Debug)]
pub struct Http3 {
    /// Downloads per point
    #[arg(short = 'n', long, default_value_t = 5, value_parser = units::parse_count, allow_hyphen_values = true)]
    pub requests: u64,
    /// Measure only these losses, percent
    #[arg(short, long, value_delimiter = ',', value_name = "PERCENT", default_values_t = LOSSES)]
    pub losses: Vec<u32>,
    /// Measure only these delays (RTT), ms
    #[arg(short, long, value_delimiter = ',', value_name = "MS", default_values_t = DELAYS_MS)]
    pub delays: Vec<u64>,
    /// Measure only these fast lines, Mbit/s; 0: none
    #[arg(short, long, value_delimiter = ',', value_name = "MBIT", default_values_t = FAST_MBIT)]
    pub fast: Vec<u64>,
    #[command(flatten)]
    pub result: Reproduced,
}

#[derive(Args, Debug)]
pub struct Dserver {
    /// Requests per measurement
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = units::parse_count, allow_hyphen_values = true)]
    pub requests: u64,
    /// Measure only these sizes, such as 1KB,100KB
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
    /// Run only these parts, such as maximum,flood
    #[arg(short, long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    #[arg(default_values_t = [Part::Maximum, Part::Features, Part::Requests, Part::Cache, Part::Flood])]
    pub only: Vec<Part>,
    /// Entries of the directory
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=1_000_000))]
    pub entries: u32,
    #[command(flatten)]
    pub result: Reproduced,
}

#[derive(Args, Debug)]
pub struct Transparent {
    /// Duration of experiment 2 per server; the amount of experiment 1 grows with it
    #[arg(short, long, default_value = "90s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Duration,
    /// Raise the load over ten minutes, and transfer 100 MB at 10 Mbit/s
    #[arg(long, conflicts_with = "duration")]
    pub full: bool,
    /// Run only this experiment: 1, cost of the tap; 2, the client compared with server logs
    #[arg(short, long, value_delimiter = ',', value_name = "NUMBERS", default_values_t = [1, 2])]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=2))]
    pub experiments: Vec<u8>,
    #[command(flatten)]
    pub result: Reproduced,
}

#[derive(Args, Debug)]
pub struct Gateway {
    /// Length of each point of a cache; a quarter of it is warm-up
    #[arg(short, long, default_value = "8s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Duration,
    /// Use the paper's lengths: 30 minutes per point, with a response timeout six times as long; 10 trials of 10 s of
    /// each stream. Some 19 hours
    #[arg(long, conflicts_with_all = ["duration", "trials", "stream"])]
    pub full: bool,
    /// Run only these parts, such as small,class
    #[arg(short, long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    #[arg(default_values_t = [
        GatewayPart::Small, GatewayPart::Middle, GatewayPart::Large, GatewayPart::Repeats, GatewayPart::New, GatewayPart::Class,
        GatewayPart::Forwarding, GatewayPart::Disk
    ])]
    pub only: Vec<GatewayPart>,
    /// Use only these of the paper's rates, such as 5,20,80/s
    #[arg(short, long, value_name = "RATES", value_parser = super::proxy_cache::rates, allow_hyphen_values = true)]
    pub rate: Option<super::proxy_cache::Rates>,
    /// Time scale for caches: how many times as fast as in the paper [default: from squid's CPU per request here]
    #[arg(long, value_name = "FACTOR", value_parser = faster, allow_hyphen_values = true)]
    pub factor: Option<f64>,
    /// Time scale for forwarding [default: from the small machine's forwarding rate here]
    #[arg(long, value_name = "FACTOR", value_parser = faster, allow_hyphen_values = true)]
    pub factor_forwarding: Option<f64>,
    /// Trials of the stream in each condition; conditions are interleaved
    #[arg(long, default_value_t = 3, value_name = "TRIALS", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub trials: u32,
    /// Length of a stream
    #[arg(long, default_value = "3s", value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub stream: Duration,
    /// Load of the loaded squid: PolyMix-1 at this rate of the paper's, such as 40/s, or wget, one file after the other
    #[arg(long, default_value = "wget", value_name = "RATE")]
    pub load: gateway::ProxyLoading,
    /// Folder whose storage is measured [default: the run store]
    #[arg(long, value_name = "FOLDER")]
    pub directory: Option<std::path::PathBuf>,
    /// Size of the file besides the paper's 100 MB
    #[arg(long, default_value = "1GiB", value_name = "SIZE", allow_hyphen_values = true)]
    pub size: units::Bytes,
    /// Clients of the class, for the hardware conclusion
    #[arg(long, default_value_t = 40, value_name = "CLIENTS", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub clients: u32,
    #[command(flatten)]
    pub result: Reproduced,
}

#[derive(Args, Debug)]
pub struct Emulators {
    /// Run only these parts, such as rtt,flow
    #[arg(short, long, value_enum, value_delimiter = ',', value_name = "PARTS")]
    #[arg(default_values_t = [EmulatorsPart::Flow, EmulatorsPart::Depth, EmulatorsPart::Density])]
    pub only: Vec<EmulatorsPart>,
    /// Length of each measurement
    #[arg(short, long, default_value = "3s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Duration,
    /// Rounds; in each, every emulator is measured once
    #[arg(long, default_value_t = 3, value_name = "ROUNDS", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Rates of the flow's link, such as 100Mbit,1Gbit
    #[arg(long, value_delimiter = ',', value_name = "RATES")]
    #[arg(default_values = ["100Mbit", "500Mbit", "1Gbit", "2Gbit", "4Gbit"])]
    pub rates: Vec<units::BitRate>,
    /// Numbers of chained hops
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", default_values_t = [1, 2, 4, 8, 16, 32])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=66))]
    pub depths: Vec<u32>,
    /// Numbers of concurrent paths
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", default_values_t = [8, 32, 128, 512])]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub paths: Vec<u32>,
    #[command(flatten)]
    pub result: Reproduced,
}

#[derive(Args, Debug)]
pub struct EmulatorProbe {
    /// The probe as JSON
    pub probe: String,
}

/// A time scale, 1 or more.
fn faster(text: &str) -> Result<f64, String> {
    match units::parse_factor(text) {
        Ok(factor) if (1.0..=1000.0).contains(&factor) => Ok(factor),
        _ => Err("expected a factor from 1 to 1000, such as 10x".into()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum GatewayPart {
    /// PolyMix-1 on the small machine
    Small,
    /// PolyMix-1 on the middle machine
    Middle,
    /// PolyMix-1 on the large machine, at 10 and at 100 Mbit/s
    Large,
    /// 95 % cacheable with 90 % hits
    Repeats,
    /// A course in which every URL is new
    New,
    /// 40 clients after the teacher fetched the pages
    Class,
    /// A TCP stream through each machine: alone, with NAT, with squid idle and loaded
    Forwarding,
    /// Bonnie's table for the storage here
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
    /// Searches with and without a result cache
    Cache,
    /// Static responses under a flood of dynamic requests
    Flood,
}

/// The paper's sizes, with a kilobyte of 1024 bytes.
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
    /// TCP as in 2001
    #[value(name = "2001")]
    Year2001,
    /// TCP as today
    Today,
    /// Both, one after the other
    Both,
}
