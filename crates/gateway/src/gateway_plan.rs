//! What to measure of a gateway: the file with a `[gateway]` table, complete, so that the same file measures the same.

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

/// What to measure of a gateway, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayPlan {
    /// Becomes part of the name of the run's folder.
    #[serde(skip)]
    pub name: String,
    /// Seed of every random choice.
    #[serde(skip)]
    pub seed: u64,
    /// Where the gateway is.
    pub to: Where,
    /// What a real gateway's run is called: one of the conditions' names, or anything. Refused in the lab.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The conditions, made one after the other; of a real gateway none, since it is as it is.
    pub conditions: Vec<Condition>,
    /// Each of the gateway's two links, each way: all conditions on the first, then on the next. Of a real gateway none.
    pub links: Vec<Link>,
    /// Share of one core that the lab's gateway is held to; `none`: not held.
    #[serde(with = "optional_text::or_none")]
    pub share: Option<CpuShare>,
    /// Memory that it is held to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// The tests; within a condition they take turns, so that what drifts is in all of them.
    pub tests: Vec<TestName>,
    /// Whether each condition begins with a look at light load, which most findings come from.
    pub survey: bool,
    /// Trials of each test in a condition.
    pub trials: u32,
    /// Length of a trial.
    #[serde(with = "units::time::text")]
    pub lasts: Duration,
    /// Which way streams and packets go: one way after the other, never both at once.
    pub direction: Directions,
    /// Socket buffers of a stream; `auto`: the kernel's own tuning.
    #[serde(with = "optional_text::or_auto")]
    pub socket_bytes: Option<u32>,
    /// What a stream writes at once.
    pub message_bytes: u32,
    /// Lengths of IP packets in bytes.
    pub sizes: Vec<u16>,
    /// Share of the packets that may be lost.
    pub loss: Probability,
    /// The search for a rate of packets ends when it is known to so much.
    pub width: Probability,
    /// As long as RFC 2544 has it: trials of packets of 60 s, three searches.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub full: bool,
    /// How a proxy is loaded.
    pub load: ProxyLoading,
    /// A shell command run in the lab's gateway before each condition is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<String>,
    /// A real gateway's proxy, `HOST:PORT`, which is loaded meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// An origin for it, that runs beyond the gateway already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin_at: Option<SocketAddr>,
    /// A command that prints a real gateway's /proc/stat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway_stat: Option<String>,
    /// The file with the secret that a real gateway's other end knows; absent: `YAMABIKO_TOKEN` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
}

/// Where the gateway is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Where {
    /// This kernel's own, in a namespace.
    #[default]
    Lab,
    /// Between this host and a `yamabiko gateway server` at `ADDRESS[:PORT]`.
    Server(String),
}

impl From<String> for Where {
    fn from(typed: String) -> Self {
        if typed == "lab" { Where::Lab } else { Where::Server(typed) }
    }
}

impl From<Where> for String {
    fn from(place: Where) -> String {
        match place {
            Where::Lab => "lab".into(),
            Where::Server(address) => address,
        }
    }
}

/// A test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TestName {
    /// One TCP connection that sends what it can.
    Stream,
    /// A byte there and a byte back, one after the other.
    Transactions,
    /// New connections.
    Connections,
    /// The highest rate of packets of each size without loss.
    Packets,
    /// RTT under load.
    Latency,
}

impl TestName {
    /// All, in the order in which they take turns.
    pub const ALL: [TestName; 5] =
        [TestName::Stream, TestName::Transactions, TestName::Connections, TestName::Packets, TestName::Latency];

    /// As typed and in plans.
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
        TestName::ALL.into_iter().find(|test| test.name() == typed).ok_or_else(|| format!("there are {}", names()))
    }
}

impl fmt::Display for TestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which way streams and packets go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Directions {
    /// To the server.
    Up,
    /// From it.
    Down,
    /// One after the other.
    #[default]
    Both,
}

impl Directions {
    /// Each, whether it is up.
    pub fn each(self) -> impl Iterator<Item = bool> {
        let (up, down) = (self != Directions::Down, self != Directions::Up);
        [(up, true), (down, false)].into_iter().filter_map(|(asked, is_up)| asked.then_some(is_up))
    }
}

/// How a proxy is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ProxyLoading {
    /// With PolyMix-1 at this rate.
    Rate(RequestRate),
    /// As the paper did: wget, one file after the other.
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

/// A real gateway's condition where nobody named it.
pub(super) const AS_IT_IS: &str = "as it is";
/// A trial of packets, and one as RFC 2544 has it.
const PACKET_TRIAL: Duration = Duration::from_secs(2);
const PACKET_TRIAL_FULL: Duration = Duration::from_secs(60);

impl Default for GatewayPlan {
    /// The school gateway's five conditions in the lab, at its two rates and without a bound, and every test.
    fn default() -> Self {
        let text = "a quantity";
        GatewayPlan {
            name: "gateway".into(),
            seed: 1,
            to: Where::Lab,
            label: None,
            conditions: Condition::ALL.to_vec(),
            links: ["10Mbit", "100Mbit", "unlimited"].map(|link| link.parse().expect(text)).to_vec(),
            // Without a share the gateway is rarely the limit on a machine that also makes its traffic (ours).
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
            // A class of 40 seats at its peak, by the school gateway's paper.
            load: "40/s".parse().expect(text),
            setup: None,
            proxy: None,
            origin_at: None,
            gateway_stat: None,
            token_file: None,
        }
    }
}

/// As a file has it.
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
    /// Everything at its default, against a server at this address.
    pub fn against(server: String) -> Self {
        GatewayPlan {
            to: Where::Server(server),
            conditions: Vec::new(),
            links: Vec::new(),
            share: None,
            ..Self::default()
        }
    }

    /// Whether a plan file is one of these: it has a table `gateway`.
    pub fn is_one(text: &str) -> bool {
        toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("gateway"))
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
        // What belongs to the lab alone is not to be written out for a real gateway, only to be left out.
        let written = |key: &str| {
            let table = toml::from_str::<toml::Table>(text).ok();
            table.as_ref().and_then(|table| table.get("gateway")?.get(key)).is_some()
        };
        if plan.to != Where::Lab {
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

    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self) -> Result<(), PlanError> {
        self.contradiction().map_or(Ok(()), |why| Err(PlanError::Contradiction(why)))
    }

    /// Whether a test is asked for.
    pub fn tests(&self, test: TestName) -> bool {
        self.tests.contains(&test)
    }

    /// Length of a trial of packets in the search for their rate.
    pub fn packet_trial(&self) -> Duration {
        if self.full { PACKET_TRIAL_FULL } else { PACKET_TRIAL }
    }

    /// Searches for each rate of packets.
    pub fn searches(&self) -> u32 {
        if self.full { 3 } else { 1 }
    }

    /// What is measured: a condition's name on a link, in the order in which they are made. Of a real gateway one.
    pub fn each(&self) -> Vec<(String, Option<(Condition, Link)>)> {
        if self.to != Where::Lab {
            return vec![(self.label.clone().unwrap_or_else(|| AS_IT_IS.into()), None)];
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
