//! `gateway`, as typed, and what is measured as meant.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand, ValueEnum};
use gateway::emulation::LabSpec;
use gateway::{Condition, Directions, GatewayPlan, Link, ProxyLoading, TestName, Where};
use plan::Placement;
use units::{Bytes, CpuShare, Probability, parse_duration};

use super::address;
use crate::verb::bench::Doing;

#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "In the lab the gateway is this kernel's own, in a namespace, held to --gateway-cpu. Against a real one: `gateway server` on \
                  one side, `gateway client` on the other; neither sends to anyone without the secret. Do not measure a network that others \
                  use: packets are sent until they are lost (RFC 6815). Everything at once takes more than an hour, and says so when it \
                  begins; a look at NAT alone takes a minute or two:\n\n  \
                  yamabiko gateway --condition none,nat --link unlimited --tests stream,packets --sizes 64 --trials 3"
)]
pub struct Forwarding {
    #[command(subcommand)]
    pub what: Option<GatewayWhat>,
    #[command(flatten)]
    pub lab: LabOptions,
    #[command(flatten)]
    pub tests: TestOptions,
    #[command(flatten)]
    pub result: GatewayResult,
    /// Run this program at the clients' end instead of measuring (ping, iperf3, curl): `server` and $SERVER are the other end;
    /// the exit status is the program's
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub enum GatewayWhat {
    /// The other end of a real gateway: answers `gateway client`, and nobody without the secret
    Server(GatewayServer),
    /// Measure a real gateway, with a `gateway server` beyond it
    Client(Box<GatewayClient>),
}

#[derive(Args, Debug)]
#[command(
    after_help = "A secret that can be guessed can be guessed by others: head -c 24 /dev/urandom | base64 > FILE."
)]
pub struct GatewayServer {
    /// Listen here, TCP and UDP. Beyond this host only with a secret
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7021", value_parser = address)]
    pub listen: SocketAddr,
    /// The file with the secret [default: the variable YAMABIKO_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// End after this time [default: when it is interrupted]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Option<Duration>,
    /// End after so many sessions [default: when it is interrupted]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub sessions: Option<u32>,
}

#[derive(Args, Debug)]
pub struct GatewayClient {
    /// Where `gateway server` listens, ADDRESS[:PORT]; the port is 7021 where it is not said
    #[arg(value_name = "ADDRESS[:PORT]")]
    pub server: String,
    /// The file with the secret that the server knows [default: the variable YAMABIKO_TOKEN; on this host it may have none]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// What this run is called in its report: none, nat, nat-proxy-idle, nat-proxy-loaded, proxy-loaded, or anything. What the gateway
    /// does is set there, not here
    #[arg(long, value_name = "NAME")]
    pub condition: Option<String>,
    /// The gateway's proxy, which is loaded meanwhile
    #[arg(long, value_name = "HOST:PORT", requires = "origin_at")]
    pub proxy: Option<String>,
    /// What the proxy fetches from, beyond the gateway: `yamabiko serve --workload polymix-1 --think none`
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address, requires = "proxy")]
    pub origin_at: Option<SocketAddr>,
    /// How the proxy is loaded: PolyMix-1 at a rate, or `wget`
    #[arg(long, value_name = "RATE|wget", default_value = "40/s", allow_hyphen_values = true, requires = "proxy")]
    pub load: ProxyLoading,
    /// A command whose output is the gateway's /proc/stat, such as 'ssh gw cat /proc/stat': its processor time around each trial
    #[arg(long, value_name = "CMD")]
    pub gateway_stat: Option<String>,
    #[command(flatten)]
    pub tests: TestOptions,
    #[command(flatten)]
    pub result: GatewayResult,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "The lab's gateway")]
pub struct LabOptions {
    /// P5's conditions, by name or number: none, nat, nat-proxy-idle, nat-proxy-loaded, proxy-loaded [default: all; nat with -- CMD]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = condition)]
    pub condition: Vec<Condition>,
    /// Each of its two links, each way; several are measured one after the other: 10Mbit, unlimited, or words such as
    /// '10Mbit,queue=64KiB,loss=1%,rtt=2ms' [default: 10Mbit,100Mbit,unlimited; unlimited with -- CMD]
    #[arg(long, value_name = "LINKS", value_parser = links, allow_hyphen_values = true)]
    pub link: Option<Links>,
    /// Hold it to this share of one core, forwarding and proxy together, or `none`
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = share, allow_hyphen_values = true)]
    pub gateway_cpu: Share,
    /// Hold its programs to this memory
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub gateway_memory: Option<Bytes>,
    /// How the proxy is loaded: PolyMix-1 at a rate (40/s is a class of 40 seats), or `wget`, one file after the other
    #[arg(long, value_name = "RATE|wget", default_value = "40/s", allow_hyphen_values = true)]
    pub load: ProxyLoading,
    /// Run this shell command in the gateway before each condition: nft, ip, sysctl. What it sets goes with the lab
    #[arg(long, value_name = "CMD")]
    pub setup: Option<String>,
    /// With -- CMD: start this at the other end, in a shell
    #[arg(long, value_name = "CMD", requires = "command")]
    pub server: Option<String>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Tests")]
pub struct TestOptions {
    /// Which: stream, transactions, connections, packets, latency [default: all]
    #[arg(long, value_name = "TESTS", value_delimiter = ',', value_parser = test)]
    pub tests: Vec<TestName>,
    /// Trials of each
    #[arg(long, value_name = "NUMBER", default_value_t = 10, allow_hyphen_values = true)]
    pub trials: u32,
    /// Length of a trial
    #[arg(short, long, default_value = "3s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Duration,
    /// Which way streams and packets go; both is one way after the other
    #[arg(long, value_enum, default_value_t = Direction::Both)]
    pub direction: Direction,
    /// Socket buffers of a stream in bytes, or `auto`: the kernel's own tuning. 16384 is P5's; Linux doubles it
    #[arg(long, value_name = "BYTES", default_value = "16384", value_parser = socket_bytes)]
    pub socket_bytes: SocketBytes,
    /// What a stream writes at once, in bytes
    #[arg(long, value_name = "BYTES", default_value = "16384", value_parser = gateway::message_bytes)]
    pub message_bytes: u32,
    /// Lengths of IP packets in bytes, 64 to 1500
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_values_t = [64, 512, 1500])]
    pub sizes: Vec<u16>,
    /// Share of the packets that may be lost at the rate that is sought
    #[arg(long, value_name = "P", default_value = "0%", allow_hyphen_values = true)]
    pub loss: Probability,
    /// The rate is known when it is known to so much
    #[arg(long, value_name = "SHARE", default_value = "2%", allow_hyphen_values = true)]
    pub width: Probability,
    /// Packets as RFC 2544 has it: trials of 60 s, and three searches
    #[arg(long)]
    pub full: bool,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Result")]
pub struct GatewayResult {
    /// Write the page to this file too
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub html: Option<PathBuf>,
    /// Exit with 3 also when the result is only suspect
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
    /// Name in the run's folder
    #[arg(long, default_value = "gateway")]
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
    pub show: super::ShowOptions,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Direction {
    Up,
    Down,
    Both,
}

impl GatewayResult {
    /// What to do with the result; `command` repeats it.
    pub fn doing<'a>(&self, command: &'a str) -> Doing<'a> {
        let (print_plan, no_save, show) = (self.print_plan, self.no_save, self.show.clone());
        Doing { print_plan, json: self.json, strict: self.strict, no_save, show, command }
    }
}

impl Forwarding {
    /// The lab's measurement as meant.
    ///
    /// # Errors
    /// What contradicts itself.
    pub fn plan(&self) -> Result<GatewayPlan> {
        let usual = GatewayPlan::default();
        let lab = &self.lab;
        let plan = GatewayPlan {
            conditions: if lab.condition.is_empty() { usual.conditions.clone() } else { lab.condition.clone() },
            links: lab.link.as_ref().map_or(usual.links.clone(), |links| links.0.clone()),
            share: lab.gateway_cpu.0,
            memory: lab.gateway_memory,
            load: lab.load,
            setup: lab.setup.clone(),
            ..self.tests.put(&self.result, usual)
        };
        plan.check()?;
        Ok(plan)
    }

    /// The lab in which a program is run, as meant: one condition, one link.
    ///
    /// # Errors
    /// Several of either; a condition with a proxy.
    pub fn lab_of_command(&self) -> Result<LabSpec> {
        let condition = match self.lab.condition.as_slice() {
            [] => Condition::Nat,
            [one] => *one,
            _ => anyhow::bail!("--condition: a program runs in one"),
        };
        ensure!(
            !condition.proxy(),
            "--condition {condition}: with -- CMD there are none and nat; a proxy would be the program's to load"
        );
        let link = match self.lab.link.as_ref().map(|links| links.0.as_slice()) {
            None => Link::UNLIMITED,
            Some([one]) => *one,
            Some(_) => anyhow::bail!("--link: a program runs on one"),
        };
        Ok(LabSpec {
            link: link.words(),
            nat: condition.nat(),
            proxy: None,
            share: self.lab.gateway_cpu.0,
            memory: self.lab.gateway_memory,
            setup: self.lab.setup.clone(),
            seed: self.result.seed,
            placement: Placement::Split,
        })
    }
}

impl GatewayClient {
    /// The measurement as meant.
    ///
    /// # Errors
    /// What contradicts itself.
    pub fn plan(&self) -> Result<GatewayPlan> {
        // A number is the paper's, a name stays what it is.
        let label = |typed: &String| typed.parse::<Condition>().map_or(typed.clone(), |named| named.to_string());
        let plan = GatewayPlan {
            to: Where::Server(self.server.clone()),
            label: self.condition.as_ref().map(label),
            proxy: self.proxy.clone(),
            origin_at: self.origin_at,
            load: self.load,
            gateway_stat: self.gateway_stat.clone(),
            token_file: self.token_file.clone(),
            ..self.tests.put(&self.result, GatewayPlan::against(self.server.clone()))
        };
        plan.check()?;
        Ok(plan)
    }
}

impl TestOptions {
    fn put(&self, result: &GatewayResult, plan: GatewayPlan) -> GatewayPlan {
        GatewayPlan {
            name: result.name.clone(),
            seed: result.seed,
            tests: if self.tests.is_empty() { TestName::ALL.to_vec() } else { self.tests.clone() },
            trials: self.trials,
            lasts: self.duration,
            direction: match self.direction {
                Direction::Up => Directions::Up,
                Direction::Down => Directions::Down,
                Direction::Both => Directions::Both,
            },
            socket_bytes: self.socket_bytes.0,
            message_bytes: self.message_bytes,
            sizes: self.sizes.clone(),
            loss: self.loss,
            width: self.width,
            full: self.full,
            ..plan
        }
    }
}

/// Types of their own: clap takes an option of a list or of an optional for one that may be left out or given again.
#[derive(Clone, Debug)]
pub struct Links(pub Vec<Link>);

#[derive(Clone, Copy, Debug)]
pub struct Share(pub Option<CpuShare>);

#[derive(Clone, Copy, Debug)]
pub struct SocketBytes(pub Option<u32>);

fn links(typed: &str) -> Result<Links, String> {
    gateway::links(typed).map(Links)
}

fn share(typed: &str) -> Result<Share, String> {
    gateway::share(typed).map(Share)
}

fn socket_bytes(typed: &str) -> Result<SocketBytes, String> {
    gateway::socket_bytes(typed).map(SocketBytes)
}

fn condition(typed: &str) -> Result<Condition, String> {
    typed.parse()
}

fn test(typed: &str) -> Result<TestName, String> {
    typed.parse()
}
