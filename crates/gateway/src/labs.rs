//! One condition in a lab of its own: made, measured, taken down.

use std::ffi::OsString;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::emulation::{
    At, CLIENT, GatewayLab, INSIDE, LabFacts, LabSpec, ProxySpec, RunningLab, SERVER, ServerEnd, Starts, Waiting,
};
use crate::tester::{PORT, Secret, Session};
use plan::{OriginPlan, Placement};
use schema::document::Check;
use schema::{GatewayCondition, ProxyLoad};
use sys::signal::Interrupts;
use units::Bytes;

use super::checks::{self, LabSpent};
use super::document::condition_of;
use super::findings::{self, Outlook};
use super::load::Load;
use super::trials::{Measuring, Stop, Taken};
use super::way::LabWay;
use super::{Condition, GatewayPlan, Link};
use experiment::ExperimentError;
use experiment::Order;
use experiment::programs::proxies::squid::Setup;
use experiment::programs::proxies::{Sizes, Squid};

/// squid's usual port.
const PROXY_PORT: u16 = 3128;
/// What it caches in, unless the gateway has little memory.
const PROXY_MEMORY: Bytes = Bytes(32 << 20);
/// The proxy has been loaded for so long when the first trial begins.
const LOAD_AHEAD: Duration = Duration::from_secs(2);
/// The name of what loads it.
const LOAD: &str = "load";
/// It may take so long to end, and to count what it did.
const LOAD_GRACE: Duration = Duration::from_secs(15);
/// The gateway's own address answers within this, if at all.
const ANSWERS: Duration = Duration::from_secs(1);

/// What all conditions are made with.
pub(super) struct Labs<'a> {
    pub plan: &'a GatewayPlan,
    pub order: &'a Order,
    pub interrupts: &'a Interrupts,
    /// Where squid and the load keep their files; anyone may look into it.
    pub folder: &'a Path,
    /// Where a condition has a proxy.
    pub squid: Option<Squid>,
}

/// A condition that was measured.
pub(super) struct MeasuredCondition {
    pub condition: GatewayCondition,
    pub checks: Vec<Check>,
    pub facts: Option<LabFacts>,
    pub taken: Taken,
}

impl Labs<'_> {
    /// Makes the lab of a condition and measures it.
    pub fn condition(
        &self,
        condition: Condition,
        link: Link,
        tell: &mut dyn FnMut(&str),
    ) -> Result<MeasuredCondition, ExperimentError> {
        let (secret, token) = Secret::fresh();
        let load = self.load(condition)?;
        let lab = GatewayLab::new(
            &self.spec(condition, link)?,
            Some(&self.server(token)),
            waiting(load.as_ref(), self.folder)?,
        )?;
        let mut lab = lab.start()?;
        let server = SocketAddr::from((SERVER, PORT));
        let before = Spent::of(&lab);
        let session = match lab.at_clients(|| Session::open(server, &secret, Some(lab.client_net()))) {
            Ok(session) => session,
            Err(error) => {
                let outlook = before.outlook(&lab, condition.nat());
                let found = findings::unreachable(&error, server, Some(&outlook));
                let Some(finding) = found else { return Err(error.into()) };
                let taken = Taken::default();
                let made = GatewayCondition {
                    name: condition.name().into(),
                    link: link.to_string(),
                    findings: vec![finding],
                    ..GatewayCondition::default()
                };
                return Ok(MeasuredCondition {
                    condition: made,
                    checks: Vec::new(),
                    facts: Some(lab.facts().clone()),
                    taken,
                });
            }
        };
        let began = lab.used().at;
        if load.is_some() {
            lab.go(LOAD)?;
            self.interrupts.wait(LOAD_AHEAD);
        }
        let before = Spent::of(&lab);
        let go_on = || self.interrupts.count() == 0;
        let mut way = LabWay { session, lab: &lab };
        let measuring = Measuring {
            plan: self.plan,
            link: Some(link),
            way: &mut way,
            go_on: &go_on,
            tell,
            taken: Taken::default(),
        };
        let taken = lab.at_clients(|| measuring.all());
        drop(way);
        let trouble = lab.trouble();
        let spent = before.until_now(&lab, self.plan.share.map(|share| share.cores()));
        let loss = link.loss.value();
        // Both links are in every way.
        let links_lose = 1.0 - (1.0 - loss).powi(2);
        let mut made = condition_of(condition.name(), Some(link), &taken, self.plan, links_lose);
        if let Some([_, seldom]) = lab.facts().stands_still {
            findings::lay_to_share(&mut made.findings, seldom.as_secs_f64() * 1e9);
        }
        made.memory_max_bytes = spent.used.memory_max;
        let mut checks = checks::checks(&taken, &made, Some(&spent));
        checks.push(checks::lab_whole(trouble));
        if let Some(load) = &load {
            let fared = self.fared(load, &mut lab, began);
            checks.push(checks::proxy_loaded(fared.as_ref().map_err(String::as_str)));
            made.proxy = fared.ok();
        }
        Ok(MeasuredCondition { condition: made, checks, facts: Some(lab.facts().clone()), taken })
    }

    fn spec(&self, condition: Condition, link: Link) -> Result<LabSpec, ExperimentError> {
        let proxy = match (&self.squid, condition.proxy()) {
            (Some(squid), true) => {
                let memory = self.plan.memory.map_or(PROXY_MEMORY, |all| Bytes(PROXY_MEMORY.0.min(all.0 / 4)));
                let listen = SocketAddr::from((INSIDE, PROXY_PORT));
                let setup = Setup { listen, sizes: Sizes { memory, disk: None }, log: false };
                Some(ProxySpec { command: squid.configure(self.folder, &setup)?, port: PROXY_PORT })
            }
            _ => None,
        };
        Ok(LabSpec {
            link: link.words(),
            nat: condition.nat(),
            proxy,
            share: self.plan.share,
            memory: self.plan.memory,
            setup: self.plan.setup.clone(),
            seed: self.plan.seed,
            placement: Placement::Split,
        })
    }

    /// The tester's other end.
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
        // It is ended when the gateway was measured; this is only so that it does not go on for ever.
        let lasts = super::time(self.plan) * 2 + Duration::from_secs(600);
        Load::prepare(self.plan.load, &proxy, origin, lasts, self.order, self.folder).map(Some)
    }

    /// Ends the load, which must have gone on until now, and reads what it says.
    fn fared(&self, load: &Load, lab: &mut RunningLab, began: Duration) -> Result<ProxyLoad, String> {
        if let Some(how) = lab.ended(LOAD) {
            return Err(format!("what loaded the proxy ended before the gateway was measured: {how}"));
        }
        let lasted = lab.used().at.saturating_sub(began);
        lab.interrupt(LOAD, LOAD_GRACE).map_err(|error| error.to_string())?;
        load.fared(lasted)
    }
}

/// Programs that are made ready with the lab: the origin and what asks the proxy for it.
fn waiting(load: Option<&Load>, folder: &Path) -> Result<Vec<Waiting>, ExperimentError> {
    let Some(load) = load else { return Ok(Vec::new()) };
    // What they keep for a while goes with the folder, also after SIGKILL.
    let env = || vec![("TMPDIR".into(), folder.into())];
    Ok(vec![
        Waiting {
            name: "origin".into(),
            at: At::Server,
            argv: ["/bin/sh", "-c", &load.origin].map(OsString::from).to_vec(),
            env: env(),
            stdout: None,
            starts: Starts::AtOnce { listens: Some(OriginPlan::PORT) },
        },
        Waiting {
            name: LOAD.into(),
            at: At::Clients,
            argv: load.argv.clone(),
            env: env(),
            stdout: Some(load.stdout()?),
            starts: Starts::WhenTold,
        },
    ])
}

/// What a lab has counted at one moment.
struct Spent {
    used: crate::emulation::GatewayUsed,
    links: [crate::emulation::LinkFigures; 2],
    counts: crate::emulation::GatewayCounts,
}

impl Spent {
    fn of(lab: &RunningLab) -> Spent {
        Spent { used: lab.used(), links: lab.links(), counts: lab.counts() }
    }

    fn until_now(&self, lab: &RunningLab, share: Option<f64>) -> LabSpent {
        let used = lab.used().since(&self.used);
        let [near, far] = lab.links();
        LabSpent { used, share, links: [near.since(&self.links[0]), far.since(&self.links[1])] }
    }

    /// What became of packets that were to reach the server.
    fn outlook(&self, lab: &RunningLab, nat: bool) -> Outlook {
        let far = lab.links()[1].since(&self.links[1]);
        Outlook {
            answers: gateway_answers(lab),
            forwarded: lab.counts().since(&self.counts).forwarded,
            towards_server: far.up.packets,
            came_back: far.down.packets,
            nat,
        }
    }
}

/// Whether the gateway answers on the clients' side: with a refusal, since nothing listens on that port.
fn gateway_answers(lab: &RunningLab) -> bool {
    const NOBODY: u16 = 9;
    let to = SocketAddr::from((INSIDE, NOBODY));
    let asked = lab.client_net().run(|| TcpStream::connect_timeout(&to, ANSWERS));
    match asked {
        Ok(Ok(_)) => true,
        Ok(Err(error)) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        Err(_) => false,
    }
}

/// For the notes: where everything is.
pub(super) fn addresses() -> String {
    format!("Addresses: client {CLIENT}, gateway {INSIDE} and {}, server {SERVER}", crate::emulation::OUTSIDE)
}

impl Stop {
    /// Whether somebody wanted it so.
    pub(super) fn is_interrupt(&self) -> bool {
        matches!(self, Stop::Interrupted)
    }
}
