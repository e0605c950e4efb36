//! Arguments of `gateway` and the measurement that they configure.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand, ValueEnum};
use gateway::emulation::EmulationSpec;
use gateway::{Condition, Directions, GatewayLocation, GatewayPlan, Link, ProxyLoading, TestName};
use plan::Placement;
use units::{Bytes, CpuShare, Probability, parse_duration};

use super::address;
use crate::verb::bench::ExecutionOptions;

#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "The emulated gateway is a network namespace of this kernel, limited by --gateway-cpu. For a real one run `gateway server` on \
                  one side and `gateway client` on the other; both send to authenticated peers only. Do not measure a network that others \
                  use: packets are sent until they are lost (RFC 6815). All tests together take more than an hour, which is printed at the \
                  start; NAT alone takes a minute or two:\n\n  \
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
    /// Run this program at the client end instead of measuring (ping, iperf3, curl): `server` and $SERVER are the other end;
    /// the exit status is that of the program
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub enum GatewayWhat {
    /// Run the far end of a real gateway: answers `gateway client` if it knows the secret
    Server(GatewayServer),
    /// Measure a real gateway, with a `gateway server` behind it
    Client(Box<GatewayClient>),
}

#[derive(Args, Debug)]
#[command(after_help = "Create a secret that cannot be guessed: head -c 24 /dev/urandom | base64 > FILE.")]
pub struct GatewayServer {
    /// Listen on this address, TCP and UDP; other than loopback only with a secret
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:7021", value_parser = address)]
    pub listen: SocketAddr,
    /// Read the secret from this file [default: the variable YAMABIKO_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// End after this time [default: when interrupted]
    #[arg(short, long, value_name = "TIME", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Option<Duration>,
    /// End after this number of sessions [default: when interrupted]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    pub sessions: Option<u32>,
}

#[derive(Args, Debug)]
pub struct GatewayClient {
    /// Address of `gateway server`; default port 7021
    #[arg(value_name = "ADDRESS[:PORT]")]
    pub server: String,
    /// Read the server's secret from this file [default: the variable YAMABIKO_TOKEN; none needed on loopback]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Label the run in its report: none, nat, nat-proxy-idle, nat-proxy-loaded, proxy-loaded, or any text. The gateway itself
    /// must be configured accordingly
    #[arg(long, value_name = "NAME")]
    pub condition: Option<String>,
    /// Load this proxy of the gateway during the measurement
    #[arg(long, value_name = "HOST:PORT", requires = "origin_at")]
    pub proxy: Option<String>,
    /// Address of the origin behind the gateway: `yamabiko serve --workload polymix-1 --think none`
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address, requires = "proxy")]
    pub origin_at: Option<SocketAddr>,
    /// Load the proxy by PolyMix-1 at this rate, or by `wget`
    #[arg(long, value_name = "RATE|wget", default_value = "40/s", allow_hyphen_values = true, requires = "proxy")]
    pub load: ProxyLoading,
    /// Read the gateway's CPU time around each trial by a command that prints its /proc/stat, such as 'ssh gw cat /proc/stat'
    #[arg(long, value_name = "CMD")]
    pub gateway_stat: Option<String>,
    #[command(flatten)]
    pub tests: TestOptions,
    #[command(flatten)]
    pub result: GatewayResult,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Emulated gateway")]
pub struct LabOptions {
    /// Measure these conditions of the school gateway paper, by name or number: none, nat, nat-proxy-idle, nat-proxy-loaded,
    /// proxy-loaded [default: all; nat with -- CMD]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = condition)]
    pub condition: Vec<Condition>,
    /// Set both links of the gateway, each way; several are measured one after the other: 10Mbit, unlimited, or with settings
    /// such as '10Mbit,queue=64KiB,loss=1%,rtt=2ms' [default: 10Mbit,100Mbit,unlimited; unlimited with -- CMD]
    #[arg(long, value_name = "LINKS", value_parser = links, allow_hyphen_values = true)]
    pub link: Option<Links>,
    /// Limit the gateway to this share of one core, forwarding and proxy together, or `none`
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = share, allow_hyphen_values = true)]
    pub gateway_cpu: Share,
    /// Limit the memory of the gateway's programs
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub gateway_memory: Option<Bytes>,
    /// Load the proxy by PolyMix-1 at this rate (40/s is a class of 40 clients), or by `wget`, one file after the other
    #[arg(long, value_name = "RATE|wget", default_value = "40/s", allow_hyphen_values = true)]
    pub load: ProxyLoading,
    /// Run this shell command in the gateway before each condition: nft, ip, sysctl. Its settings end with the testbed
    #[arg(long, value_name = "CMD")]
    pub setup: Option<String>,
    /// With -- CMD: start this shell command at the server end
    #[arg(long, value_name = "CMD", requires = "command")]
    pub server: Option<String>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Tests")]
pub struct TestOptions {
    /// Run these tests: stream, transactions, connections, packets, latency [default: all]
    #[arg(long, value_name = "TESTS", value_delimiter = ',', value_parser = test)]
    pub tests: Vec<TestName>,
    /// Set the number of trials of each test
    #[arg(long, value_name = "NUMBER", default_value_t = 10, allow_hyphen_values = true)]
    pub trials: u32,
    /// Set the length of a trial
    #[arg(short, long, default_value = "3s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Duration,
    /// Choose the direction of streams and packets; both directions are measured one after the other
    #[arg(long, value_enum, default_value_t = Direction::Both)]
    pub direction: Direction,
    /// Set the socket buffers of a stream in bytes, or `auto`: the kernel's tuning. 16384 as in the school gateway paper; Linux
    /// doubles it
    #[arg(long, value_name = "BYTES", default_value = "16384", value_parser = socket_bytes)]
    pub socket_bytes: SocketBytes,
    /// Set the bytes per write of a stream
    #[arg(long, value_name = "BYTES", default_value = "16384", value_parser = gateway::message_bytes)]
    pub message_bytes: u32,
    /// Set the sizes of IP packets in bytes, 64 to 1500
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_values_t = [64, 512, 1500])]
    pub sizes: Vec<u16>,
    /// Allow this packet loss at the maximum rate searched for
    #[arg(long, value_name = "P", default_value = "0%", allow_hyphen_values = true)]
    pub loss: Probability,
    /// End the search for a rate when its bracket is this narrow
    #[arg(long, value_name = "SHARE", default_value = "2%", allow_hyphen_values = true)]
    pub width: Probability,
    /// Measure packets as RFC 2544 requires: trials of 60 s, three searches
    #[arg(long)]
    pub full: bool,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Result")]
pub struct GatewayResult {
    /// Also write an HTML page to this file
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub html: Option<PathBuf>,
    /// Exit with 3 if the result is suspect, too
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON document only
    #[arg(long)]
    pub json: bool,
    /// Set the run's name, a part of its folder's name
    #[arg(long, default_value = "gateway")]
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
    pub show: super::ShowOptions,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Direction {
    Up,
    Down,
    Both,
}

impl GatewayResult {
    /// What to do with the result. `command` is the command line that repeats the run.
    pub fn execution_options<'a>(&self, command: &'a str) -> ExecutionOptions<'a> {
        let (print_plan, no_save, show) = (self.print_plan, self.no_save, self.show.clone());
        ExecutionOptions { print_plan, json: self.json, strict: self.strict, no_save, show, command }
    }
}

impl Forwarding {
    /// The configured measurement of the emulated gateway.
    ///
    /// # Errors
    /// Options that contradict each other.
    pub fn plan(&self) -> Result<GatewayPlan> {
        let defaults = GatewayPlan::default();
        let lab = &self.lab;
        let plan = GatewayPlan {
            conditions: if lab.condition.is_empty() { defaults.conditions.clone() } else { lab.condition.clone() },
            links: lab.link.as_ref().map_or(defaults.links.clone(), |links| links.0.clone()),
            share: lab.gateway_cpu.0,
            memory: lab.gateway_memory,
            load: lab.load,
            setup: lab.setup.clone(),
            ..self.tests.apply_to(&self.result, defaults)
        };
        plan.check()?;
        Ok(plan)
    }

    /// The configured emulation for `-- CMD`: one condition, one link.
    ///
    /// # Errors
    /// Several conditions or links; a condition with a proxy.
    pub fn lab_of_command(&self) -> Result<EmulationSpec> {
        let condition = match self.lab.condition.as_slice() {
            [] => Condition::Nat,
            [one] => *one,
            _ => anyhow::bail!("--condition: give one condition with -- CMD"),
        };
        ensure!(
            !condition.proxy(),
            "--condition {condition}: expected none or nat with -- CMD, since the program would have to load the proxy"
        );
        let link = match self.lab.link.as_ref().map(|links| links.0.as_slice()) {
            None => Link::UNLIMITED,
            Some([one]) => *one,
            Some(_) => anyhow::bail!("--link: give one link with -- CMD"),
        };
        Ok(EmulationSpec {
            link: link.settings(),
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
    /// The configured measurement.
    ///
    /// # Errors
    /// Options that contradict each other.
    pub fn plan(&self) -> Result<GatewayPlan> {
        // A condition number of the paper becomes its name; any other text stays.
        let label = |typed: &String| typed.parse::<Condition>().map_or(typed.clone(), |named| named.to_string());
        let plan = GatewayPlan {
            to: GatewayLocation::Server(self.server.clone()),
            label: self.condition.as_ref().map(label),
            proxy: self.proxy.clone(),
            origin_at: self.origin_at,
            load: self.load,
            gateway_stat: self.gateway_stat.clone(),
            token_file: self.token_file.clone(),
            ..self.tests.apply_to(&self.result, GatewayPlan::against(self.server.clone()))
        };
        plan.check()?;
        Ok(plan)
    }
}

impl TestOptions {
    fn apply_to(&self, result: &GatewayResult, plan: GatewayPlan) -> GatewayPlan {
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

/// Newtypes, since clap treats `Vec` and `Option` as repeatable and optional.
#[derive(Clone, Debug)]
pub struct Links(pub Vec<Link>);

#[derive(Clone, Copy, Debug)]
pub struct Share(pub Option<CpuShare>);

#[derive(Clone, Copy, Debug)]
pub struct SocketBytes(pub Option<u32>);

fn links(text: &str) -> Result<Links, String> {
    gateway::links(text).map(Links)
}

fn share(text: &str) -> Result<Share, String> {
    gateway::share(text).map(Share)
}

fn socket_bytes(text: &str) -> Result<SocketBytes, String> {
    gateway::socket_bytes(text).map(SocketBytes)
}

fn condition(text: &str) -> Result<Condition, String> {
    text.parse()
}

fn test(text: &str) -> Result<TestName, String> {
    text.parse()
}
