//! Measures one condition in an emulation of its own.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::emulation::{
    At, CLIENT, EmulatedGateway, EmulationFacts, EmulationSpec, INSIDE, PreparedProgram, ProxySpec, RunningEmulation,
    SERVER, ServerEnd, Starts,
};
use crate::tester::{PORT, Secret, Session};
use plan::{OriginPlan, Placement};
use schema::document::Check;
use schema::{GatewayCondition, ProxyLoad};
use sys::signal::Interrupts;
use units::Bytes;

use super::checks::{self, EmulationUsage};
use super::document::condition_of;
use super::findings::{self, ForwardingDiagnosis};
use super::gateway_under_test::EmulatedGatewayUnderTest;
use super::load::Load;
use super::trials::{ConditionMeasurement, Observations, Stop};
use super::{Condition, GatewayPlan, Link};
use experiment::ExperimentError;
use experiment::Order;
use experiment::programs::proxies::squid::Setup;
use experiment::programs::proxies::{Sizes, Squid};

/// squid's usual port.
const PROXY_PORT: u16 = 3128;
/// Cache memory of squid, unless the gateway has little memory.
const PROXY_MEMORY: Bytes = Bytes(32 << 20);
/// Time of proxy load before the first trial.
const LOAD_AHEAD: Duration = Duration::from_secs(2);
/// Name of the program that loads the proxy.
const LOAD: &str = "load";
/// Timeout for the load to end and print its result.
const LOAD_STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Timeout for a response of the gateway's own address.
const GATEWAY_RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Settings common to all conditions.
pub(super) struct EmulatedConditions<'a> {
    pub plan: &'a GatewayPlan,
    pub order: &'a Order,
    pub interrupts: &'a Interrupts,
    /// Folder for files of squid and the load, readable by all users.
    pub folder: &'a Path,
    /// squid, if a condition has a proxy.
    pub squid: Option<Squid>,
}

/// A measured condition.
pub(super) struct MeasuredCondition {
    pub condition: GatewayCondition,
    pub checks: Vec<Check>,
    pub facts: Option<EmulationFacts>,
    pub observations: Observations,
}

impl EmulatedConditions<'_> {
    /// Starts the emulation of a condition and measures it.
    pub fn condition(
        &self,
        condition: Condition,
        link: Link,
        tell: &mut dyn FnMut(&str),
    ) -> Result<MeasuredCondition, ExperimentError> {
        let (secret, token) = Secret::fresh();
        let load = self.load(condition)?;
        let emulation = EmulatedGateway::new(
            &self.spec(condition, link)?,
            Some(&self.server(token)),
            waiting(load.as_ref(), self.folder)?,
        )?;
        let mut emulation = emulation.start()?;
        let server = SocketAddr::from((SERVER, PORT));
        let before = Counters::of(&emulation);
        let session = match emulation.at_clients(|| Session::open(server, &secret, Some(emulation.client_net()))) {
            Ok(session) => session,
            Err(error) => {
                let diagnosis = before.diagnosis(&emulation, condition.nat());
                let found = findings::unreachable(&error, server, Some(&diagnosis));
                let Some(finding) = found else { return Err(error.into()) };
                let observations = Observations::default();
                let made = GatewayCondition {
                    name: condition.name().into(),
                    link: link.to_string(),
                    findings: vec![finding],
                    ..GatewayCondition::default()
                };
                return Ok(MeasuredCondition {
                    condition: made,
                    checks: Vec::new(),
                    facts: Some(emulation.facts().clone()),
                    observations,
                });
            }
        };
        let began = emulation.used().at;
        if load.is_some() {
            emulation.start_program(LOAD)?;
            self.interrupts.wait(LOAD_AHEAD);
        }
        let before = Counters::of(&emulation);
        let go_on = || self.interrupts.count() == 0;
        let mut gateway_under_test = EmulatedGatewayUnderTest { session, emulation: &emulation };
        let measuring = ConditionMeasurement {
            plan: self.plan,
            link: Some(link),
            gateway_under_test: &mut gateway_under_test,
            go_on: &go_on,
            tell,
            observations: Observations::default(),
        };
        let observations = emulation.at_clients(|| measuring.all());
        drop(gateway_under_test);
        let failure = emulation.failure();
        let spent = before.usage_until_now(&emulation, self.plan.share.map(|share| share.cores()));
        let loss = link.loss.value();
        // Each packet crosses both links.
        let links_lose = 1.0 - (1.0 - loss).powi(2);
        let mut made = condition_of(condition.name(), Some(link), &observations, self.plan, links_lose);
        if let Some([_, seldom]) = emulation.facts().stall_lengths {
            findings::attribute_stalls_to_share(&mut made.findings, seldom.as_secs_f64() * 1e9);
        }
        made.memory_max_bytes = spent.used.memory_max;
        let mut checks = checks::checks(&observations, &made, Some(&spent));
        checks.push(checks::testbed_intact(failure));
        if let Some(load) = &load {
            let proxy_load = self.proxy_load(load, &mut emulation, began);
            checks.push(checks::proxy_loaded(proxy_load.as_ref().map_err(String::as_str)));
            made.proxy = proxy_load.ok();
        }
        Ok(MeasuredCondition { condition: made, checks, facts: Some(emulation.facts().clone()), observations })
    }

    fn spec(&self, condition: Condition, link: Link) -> Result<EmulationSpec, ExperimentError> {
        let proxy = match (&self.squid, condition.proxy()) {
            (Some(squid), true) => {
                let memory = self.plan.memory.map_or(PROXY_MEMORY, |all| Bytes(PROXY_MEMORY.0.min(all.0 / 4)));
                let listen = SocketAddr::from((INSIDE, PROXY_PORT));
                let setup = Setup { listen, sizes: Sizes { memory, disk: None }, log: false };
                Some(ProxySpec { command: squid.configure(self.folder, &setup)?, port: PROXY_PORT })
            }
            _ => None,
        };
        Ok(EmulationSpec {
            link: link.settings(),
            nat: condition.nat(),
            proxy,
            share: self.plan.share,
            memory: self.plan.memory,
            setup: self.plan.setup.clone(),
            seed: self.plan.seed,
            placement: Placement::Split,
        })
    }

    /// The server of the tester.
    fn server(&self, token: String) -> ServerEnd {
        let words = ["gateway", "server", "--listen"].map(OsString::from);
        let listen = OsString::from(SocketAddr::from((SERVER, PORT)).to_string());
        let program = OsString::from(&self.order.program);
        ServerEnd {
            argv: [program].into_iter().chain(words).chain([listen]).collect(),
            env: vec![("YAMABIKO_TOKEN".into(), token.into())],
            port: PORT,
        }
    }

    fn load(&self, condition: Condition) -> Result<Option<Load>, ExperimentError> {
        if !condition.loaded() {
            return Ok(None);
        }
        let proxy = SocketAddr::from((INSIDE, PROXY_PORT)).to_string();
        let origin = SocketAddr::from((SERVER, OriginPlan::PORT));
        // An upper bound: the load is ended when the gateway has been measured.
        let lasts = super::time(self.plan) * 2 + Duration::from_secs(600);
        Load::prepare(self.plan.load, &proxy, origin, lasts, self.order, self.folder).map(Some)
    }

    /// Ends the load, which must still be running, and reads its result.
    fn proxy_load(&self, load: &Load, emulation: &mut RunningEmulation, began: Duration) -> Result<ProxyLoad, String> {
        if let Some(how) = emulation.ended(LOAD) {
            return Err(format!("the load of the proxy ended before the gateway was measured: {how}"));
        }
        let lasted = emulation.used().at.saturating_sub(began);
        emulation.interrupt(LOAD, LOAD_STOP_TIMEOUT).map_err(|error| error.to_string())?;
        load.proxy_load(lasted)
    }
}

/// Programs prepared with the emulation: origin and proxy load.
fn waiting(load: Option<&Load>, folder: &Path) -> Result<Vec<PreparedProgram>, ExperimentError> {
    let Some(load) = load else { return Ok(Vec::new()) };
    // Their temporary files are deleted with the folder, even after SIGKILL.
    let env = || vec![("TMPDIR".into(), folder.into())];
    Ok(vec![
        PreparedProgram {
            name: "origin".into(),
            at: At::Server,
            argv: ["/bin/sh", "-c", &load.origin].map(OsString::from).to_vec(),
            env: env(),
            stdout: None,
            starts: Starts::Immediately { listens: Some(OriginPlan::PORT) },
        },
        PreparedProgram {
            name: LOAD.into(),
            at: At::Clients,
            argv: load.argv.clone(),
            env: env(),
            stdout: Some(load.stdout()?),
            starts: Starts::OnRequest,
        },
    ])
}

/// Counters of the emulation at one time.
struct Counters {
    used: crate::emulation::GatewayUsed,
    links: [crate::emulation::LinkFigures; 2],
    counts: crate::emulation::GatewayCounts,
}

impl Counters {
    fn of(emulation: &RunningEmulation) -> Counters {
        Counters { used: emulation.used(), links: emulation.links(), counts: emulation.counts() }
    }

    fn usage_until_now(&self, emulation: &RunningEmulation, share: Option<f64>) -> EmulationUsage {
        let used = emulation.used().since(&self.used);
        let [near, far] = emulation.links();
        EmulationUsage { used, share, links: [near.since(&self.links[0]), far.since(&self.links[1])] }
    }

    /// Counters for the diagnosis of an unreachable server.
    fn diagnosis(&self, emulation: &RunningEmulation, nat: bool) -> ForwardingDiagnosis {
        let far = emulation.links()[1].since(&self.links[1]);
        ForwardingDiagnosis {
            answers: gateway_answers(emulation),
            forwarded: emulation.counts().since(&self.counts).forwarded,
            towards_server: far.up.packets,
            came_back: far.down.packets,
            nat,
        }
    }
}

/// Whether the gateway's address responds on the client side; a closed port refuses the connection.
fn gateway_answers(emulation: &RunningEmulation) -> bool {
    const CLOSED_PORT: u16 = 9;
    let to = SocketAddr::from((INSIDE, CLOSED_PORT));
    let connection = emulation.client_net().run(|| TcpStream::connect_timeout(&to, GATEWAY_RESPONSE_TIMEOUT));
    match connection {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        Err(_) => false,
    }
}

/// The addresses, for the notes.
pub(super) fn addresses() -> String {
    format!("Addresses: client {CLIENT}, gateway {INSIDE} and {}, server {SERVER}", crate::emulation::OUTSIDE)
}

impl Stop {
    /// Whether the user interrupted.
    pub(super) fn is_interrupt(&self) -> bool {
        matches!(self, Stop::Interrupted)
    }
}
