//! The plan of a gateway measurement: a file with a `[gateway]` table. The same file makes the same measurement.

mod optional_text;
mod refusals;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use plan::PlanError;
use serde::{Deserialize, Serialize};
use units::{Bytes, CpuShare, Probability, RequestRate};

use super::{Condition, Link};

/// Configuration of a gateway measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayPlan {
    /// Part of the name of the run's folder.
    #[serde(skip)]
    pub name: String,
    /// Seed of every random choice.
    #[serde(skip)]
    pub seed: u64,
    /// Location of the gateway.
    pub to: GatewayLocation,
    /// Label of a real gateway's run: the name of a condition, or any text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The conditions, measured one after the other; none for a real gateway.
    pub conditions: Vec<Condition>,
    /// Settings of both links, in each direction: all conditions on the first, then on the next. None for a real
    /// gateway.
    pub links: Vec<Link>,
    /// CPU limit of the emulated gateway, a share of one core, or `none`.
    #[serde(with = "optional_text::or_none")]
    pub share: Option<CpuShare>,
    /// Memory limit of the emulated gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// The tests. Their trials are interleaved within a condition, so that drift affects all alike.
    pub tests: Vec<TestName>,
    /// Whether each condition begins with a survey at light load, the source of most findings.
    pub survey: bool,
    /// Trials of each test in a condition.
    pub trials: u32,
    /// Length of a trial.
    #[serde(with = "units::time::text")]
    pub lasts: Duration,
    /// Direction of streams and packets; both directions are measured one after the other.
    pub direction: Directions,
    /// Socket buffers of a stream; `auto`: the kernel's tuning.
    #[serde(with = "optional_text::or_auto")]
    pub socket_bytes: Option<u32>,
    /// Bytes per write of a stream.
    pub message_bytes: u32,
    /// Lengths of IP packets in bytes.
    pub sizes: Vec<u16>,
    /// Packet loss allowed.
    pub loss: Probability,
    /// Relative width of the bracket at which the search for a packet rate ends.
    pub width: Probability,
    /// As RFC 2544: trials of packets of 60 s, three searches.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
    /// Load of the proxy.
    pub load: ProxyLoading,
    /// A shell command run in the emulated gateway before each condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// Proxy of a real gateway, `HOST:PORT`, loaded during the measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// A running origin for the proxy, behind the gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin_at: Option<SocketAddr>,
    /// A command that prints the /proc/stat of a real gateway.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_stat: Option<String>,
    /// The file with the secret of `gateway server`; absent: the variable `YAMABIKO_TOKEN`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
}

/// Location of the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum GatewayLocation {
    /// Emulated in a network namespace of this host.
    #[default]
    Lab,
    /// Between this host and a `yamabiko gateway server` at `ADDRESS[:PORT]`.
    Server(String),
}

impl From<String> for GatewayLocation {
    fn from(typed: String) -> Self {
        if typed == "lab" { GatewayLocation::Lab } else { GatewayLocation::Server(typed) }
    }
}

impl From<GatewayLocation> for String {
    fn from(location: GatewayLocation) -> String {
        match location {
            GatewayLocation::Lab => "lab".into(),
            GatewayLocation::Server(address) => address,
        }
    }
}

/// A test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TestName {
    /// Throughput of one TCP connection.
    Stream,
    /// One byte there and one back, in turn.
    Transactions,
    /// New connections.
    Connections,
    /// Maximum loss-free packet rate of each size.
    Packets,
    /// RTT under load.
    Latency,
}

impl TestName {
    /// All tests, in order.
    pub const ALL: [TestName; 5] =
        [TestName::Stream, TestName::Transactions, TestName::Connections, TestName::Packets, TestName::Latency];

    /// Name on the command line and in plans.
    pub const fn name(self) -> &'static str {
        match self {
            TestName::Stream => "stream",
            TestName::Transactions => "transactions",
            TestName::Connections => "connections",
            TestName::Packets => "packets",
            TestName::Latency => "latency",
        }
    }

    /// Whether it sends datagrams.
    pub const fn udp(self) -> bool {
        matches!(self, TestName::Packets | TestName::Latency)
    }
}

impl FromStr for TestName {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let typed = typed.trim();
        let names = || TestName::ALL.map(TestName::name).join(", ");
        TestName::ALL
            .into_iter()
            .find(|test| test.name() == typed)
            .ok_or_else(|| format!("not a valid test; expected one of {}", names()))
    }
}

impl fmt::Display for TestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Direction of streams and packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Directions {
    /// Client to server.
    Up,
    /// Server to client.
    Down,
    /// One after the other.
    #[default]
    Both,
}

impl Directions {
    /// Each direction, true for up.
    pub fn each(self) -> impl Iterator<Item = bool> {
        let (up, down) = (self != Directions::Down, self != Directions::Up);
        [(up, true), (down, false)].into_iter().filter_map(|(selected, is_up)| selected.then_some(is_up))
    }
}

/// Load of the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ProxyLoading {
    /// PolyMix-1 at this rate.
    Rate(RequestRate),
    /// wget, one file after the other, as in the paper.
    Wget,
}

impl FromStr for ProxyLoading {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        match typed.trim() {
            "wget" => Ok(ProxyLoading::Wget),
            rate => rate.parse().map(ProxyLoading::Rate).map_err(|error| format!("{error}, or wget")),
        }
    }
}

impl TryFrom<String> for ProxyLoading {
    type Error = String;

    fn try_from(typed: String) -> Result<Self, String> {
        typed.parse()
    }
}

impl From<ProxyLoading> for String {
    fn from(load: ProxyLoading) -> String {
        load.to_string()
    }
}

impl fmt::Display for ProxyLoading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProxyLoading::Rate(rate) => write!(f, "{rate}"),
            ProxyLoading::Wget => f.write_str("wget"),
        }
    }
}

/// Condition of a real gateway without label.
pub(super) const UNLABELED: &str = "as it is";
/// Length of a trial of packets, by default and as in RFC 2544.
const PACKET_TRIAL: Duration = Duration::from_secs(2);
const PACKET_TRIAL_FULL: Duration = Duration::from_secs(60);

impl Default for GatewayPlan {
    /// The five conditions of the school gateway paper, emulated, at its two link rates and unlimited, with every test.
    fn default() -> Self {
        let text = "a quantity";
        GatewayPlan {
            name: "gateway".into(),
            seed: 1,
            to: GatewayLocation::Lab,
            label: None,
            conditions: Condition::ALL.to_vec(),
            links: ["10Mbit", "100Mbit", "unlimited"].map(|link| link.parse().expect(text)).to_vec(),
            // Without a CPU limit the tester on the same host would be the bottleneck (our choice).
            share: Some("10%".parse().expect(text)),
            memory: None,
            tests: TestName::ALL.to_vec(),
            survey: true,
            trials: 10,
            lasts: Duration::from_secs(3),
            direction: Directions::Both,
            socket_bytes: Some(16_384),
            message_bytes: 16_384,
            sizes: vec![64, 512, 1500],
            loss: Probability::ZERO,
            width: Probability::new(0.02).expect(text),
            full: false,
            // A class of 40 clients at its peak, as in the school gateway paper.
            load: "40/s".parse().expect(text),
            setup: None,
            proxy: None,
            origin_at: None,
            gateway_stat: None,
            token_file: None,
        }
    }
}

/// The plan file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanFile {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    seed: Option<u64>,
    gateway: GatewayPlan,
}

impl GatewayPlan {
    /// The default plan for a real gateway with a server at this address.
    pub fn against(server: String) -> Self {
        GatewayPlan {
            to: GatewayLocation::Server(server),
            conditions: Vec::new(),
            links: Vec::new(),
            share: None,
            ..Self::default()
        }
    }

    /// Reads a plan from TOML; `origin` names it in errors.
    ///
    /// # Errors
    /// Syntax, unknown keys, values out of range, and what [`GatewayPlan::check`] refuses.
    pub fn from_toml(text: &str, origin: &str) -> Result<Self, PlanError> {
        let file: PlanFile = toml::from_str(text).map_err(|error| PlanError::Unreadable {
            origin: origin.to_owned(),
            line: 1 + error.span().map_or(0, |span| text.bytes().take(span.start).filter(|&b| b == b'\n').count()),
            message: error.message().trim().replace('\n', "; "),
        })?;
        let usual = GatewayPlan::default();
        let mut plan = GatewayPlan {
            name: file.name.unwrap_or(usual.name),
            seed: file.seed.unwrap_or(usual.seed),
            ..file.gateway
        };
        // Defaults of the emulation do not apply to a real gateway.
        let written = |key: &str| {
            let table = toml::from_str::<toml::Table>(text).ok();
            table.as_ref().and_then(|table| table.get("gateway")?.get(key)).is_some()
        };
        if plan.to != GatewayLocation::Lab {
            if !written("conditions") {
                plan.conditions.clear();
            }
            if !written("links") {
                plan.links.clear();
            }
            if !written("share") {
                plan.share = None;
            }
        }
        plan.check()?;
        Ok(plan)
    }

    /// The plan as TOML, readable by [`GatewayPlan::from_toml`].
    pub fn to_toml(&self) -> String {
        let file = PlanFile { name: Some(self.name.clone()), seed: Some(self.seed), gateway: self.clone() };
        toml::to_string_pretty(&file).expect("a plan is plain tables of text and numbers")
    }

    /// Rejects contradictions.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self) -> Result<(), PlanError> {
        self.contradiction().map_or(Ok(()), |why| Err(PlanError::Contradiction(why)))
    }

    /// Whether a test is selected.
    pub fn tests(&self, test: TestName) -> bool {
        self.tests.contains(&test)
    }

    /// Length of a trial of packets.
    pub fn packet_trial(&self) -> Duration {
        if self.full { PACKET_TRIAL_FULL } else { PACKET_TRIAL }
    }

    /// Searches for each packet rate.
    pub fn searches(&self) -> u32 {
        if self.full { 3 } else { 1 }
    }

    /// Conditions and links in order of measurement; one for a real gateway.
    pub fn each(&self) -> Vec<(String, Option<(Condition, Link)>)> {
        if self.to != GatewayLocation::Lab {
            return vec![(self.label.clone().unwrap_or_else(|| UNLABELED.into()), None)];
        }
        let on = |link: &Link| {
            let link = *link;
            self.conditions.iter().map(move |&condition| (condition.name().to_owned(), Some((condition, link))))
        };
        self.links.iter().flat_map(on).collect()
    }
}

#[cfg(test)]
mod tests;
