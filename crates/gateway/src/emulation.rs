//! An emulated gateway between two networks of this kernel: forwarding, NAT and a proxy, limited to a share of a core.
//!
//! ```text
//!  clients' ns         loop A (thread)        gateway's ns           loop B (thread)          server's ns
//!  198.19.0.1 c0 =fd= [link] =queue= host > g0 198.18.255.1   g1 198.19.0.2 < host =queue= [link] =fd= s0 198.18.0.1
//!                            <====== fd === g0                g1 === fd =====>
//!  clients' programs         rate, queue    | ip_forward, NAT     |                         server's programs
//!                                           '- proxy, in a sandbox'
//! ```
//!
//! Each link is an emulated path with a loop of its own. Packets for the gateway are queued for its [`host`], a process
//! that writes them to the kernel: forwarding and translation use the CPU time of that process, so that a control group
//! limits and counts them (docs/decisions/0021). The loops read what the gateway sends.
//!
//! [`EmulatedGateway::new`] prepares everything while this process has one thread; [`EmulatedGateway::start`] starts
//! loops and programs; dropping the [`RunningEmulation`] ends them. Read `networks` for addresses, `links` for the
//! loops.

mod cores;
mod figures;
pub mod host;
mod links;
mod nat;
mod networks;
mod programs;
mod spec;
mod through;

use std::net::Ipv4Addr;
use std::time::Duration;

use sys::accounting::{ProcessStat, served};
use sys::cgroup::{Cgroup, Limits, Weight};
use sys::namespace::NetNamespace;
use sys::nft::Masquerade;
use sys::sandbox::Sandbox;
use sys::sched::Cores;
use sys::worker::Worker;
use units::{Bytes, CpuShare};

use self::cores::EmulationCores;
use self::links::Link;
use self::networks::Networks;
use self::programs::{Program, ProgramEnvironment};
use plan::Idle;
use testbed::TestbedError;
use testbed::drive::packet_queue::{self, PacketQueue};
use testbed::drive::path_io::{End, PathIo};
use testbed::host::Wakefulness;

pub use self::spec::{At, EmulationSpec, LinkSettings, PreparedProgram, ProxySpec, ServerEnd, Starts};
pub use figures::{DirectionFigures, EmulationFacts, GatewayCounts, GatewayUsed, LinkFigures};
pub use through::{Through, ThroughOutcome, through};

/// Address of the client.
pub const CLIENT: Ipv4Addr = testbed::topology::FIRST_CLIENT;
/// Address of the gateway on the client side.
pub const INSIDE: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 1);
/// Address of the gateway on the server side; with NAT also the translated source address.
pub const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 2);
/// Address of the server.
pub const SERVER: Ipv4Addr = testbed::topology::SERVER;

/// A prepared emulation. Dropping it removes everything.
pub struct EmulatedGateway {
    // In drop order: programs, links, emulated host, networks.
    programs: Vec<Program>,
    paths: [PathIo; 2],
    base: EmulationBase,
}

/// Networks, emulated host and control group.
struct EmulationBase {
    host_process: Worker,
    /// Processes left by the setup command.
    _set_up: Option<Sandbox>,
    _nat: Option<Masquerade>,
    networks: Networks,
    group: Option<Cgroup>,
    memory: Option<Bytes>,
    division: EmulationCores,
    facts: EmulationFacts,
    _wakefulness: Wakefulness,
}

impl EmulatedGateway {
    /// Creates control group, networks, devices, emulated host and NAT, runs [`EmulationSpec::setup`], and prepares a
    /// sandbox for every program. Must be called while this process has one thread, by a thread that outlives the
    /// emulation.
    ///
    /// # Errors
    /// Missing privileges or kernel features; a failing setup command; missing programs.
    pub fn new(
        spec: &EmulationSpec,
        server: Option<&ServerEnd>,
        extra: Vec<PreparedProgram>,
    ) -> Result<Self, TestbedError> {
        let mut waiting: Vec<PreparedProgram> = spec.proxy.iter().map(PreparedProgram::from).collect();
        waiting.extend(extra);
        waiting.extend(server.map(PreparedProgram::from));
        let mut lab = EmulatedGateway::empty(spec)?;
        for program in waiting {
            let made = lab.program(|around| Program::prepare(program, around))?;
            lab.programs.push(made);
        }
        Ok(lab)
    }

    /// The emulation without programs.
    fn empty(spec: &EmulationSpec) -> Result<Self, TestbedError> {
        // Must precede the user namespace.
        let wakefulness = Wakefulness::of(Idle::default());
        let rootless = testbed::topology::gain_privilege()?;
        // Remove control groups of killed runs.
        let _ = sys::cgroup::sweep();
        let group = group(spec)?;
        let allowed = Cores::allowed().map_err(TestbedError::system("sched_getaffinity"))?;
        let division = EmulationCores::new(spec.placement, &allowed);
        let networks = Networks::new()?;
        let devices = networks.connect(spec.nat)?;
        let ((mut from_clients, first), (from_server, second)) = (PacketQueue::new()?, PacketQueue::new()?);
        let mut facts = EmulationFacts {
            stall_lengths: group
                .as_ref()
                .zip(spec.share)
                .and_then(|(group, share)| stall_lengths(group.period(), share)),
            host_ns_per_packet: None,
            host_ns_per_isolated_packet: None,
            placement: division.describe(),
            idle: wakefulness.words().to_owned(),
            by_cgroup: group.is_some(),
            rootless,
            notes: notes(&from_clients, group.is_some()),
        };
        let host_process = host::start(
            [&devices.inside, &devices.outside],
            [first, second],
            group.as_ref(),
            division.of(At::Gateway),
        )?;
        [facts.host_ns_per_packet, facts.host_ns_per_isolated_packet] =
            host::cpu_cost(&host_process, &mut from_clients, || Some(networks.statistics().ok()?[1].rx_packets));
        let nat = spec.nat.then(|| nat::masquerade(&networks.gateway)).transpose()?;
        let set_up = spec.setup.as_ref().map(|command| nat::set_up(&networks.gateway, command)).transpose()?;
        let paths = [
            links::path(&spec.link, 1, spec.seed, devices.client, End::with_queue(devices.inside, from_clients)),
            // The gateway's own address is the second client, so that requests of its proxy are forwarded.
            links::path(&spec.link, 2, !spec.seed, End::with_queue(devices.outside, from_server), devices.server),
        ];
        let memory = spec.memory;
        let base = EmulationBase {
            host_process,
            _set_up: set_up,
            _nat: nat,
            networks,
            group,
            memory,
            division,
            facts,
            _wakefulness: wakefulness,
        };
        Ok(EmulatedGateway { programs: Vec::new(), paths, base })
    }

    fn program(
        &self,
        make: impl FnOnce(&ProgramEnvironment<'_>) -> Result<Program, TestbedError>,
    ) -> Result<Program, TestbedError> {
        let EmulationBase { networks, group, division, facts, .. } = &self.base;
        make(&ProgramEnvironment { networks, group: group.as_ref(), rootless: facts.rootless, cores: division })
    }

    /// Starts the links, then the programs that start immediately, and waits for those that listen.
    ///
    /// # Errors
    /// A program that cannot be started, ends, or does not listen, with its last output.
    pub fn start(self) -> Result<RunningEmulation, TestbedError> {
        let EmulatedGateway { programs, paths: [a, b], base } = self;
        let [first, second] = base.division.loops();
        let links = [Link::start("link a", a, first)?, Link::start("link b", b, second)?];
        let mut lab = RunningEmulation { programs, links, base };
        for program in &mut lab.programs {
            program.start_and_wait().map_err(|error| match (error, lab.base.memory) {
                (TestbedError::Plan(message), Some(memory)) => {
                    TestbedError::Plan(format!("{message}; the gateway has {memory} of memory (--gateway-memory)"))
                }
                (error, _) => error,
            })?;
        }
        Ok(lab)
    }
}

/// A running emulation, ended when dropped.
pub struct RunningEmulation {
    programs: Vec<Program>,
    links: [Link; 2],
    base: EmulationBase,
}

impl RunningEmulation {
    /// The clients' network.
    pub fn client_net(&self) -> &NetNamespace {
        &self.base.networks.client
    }

    /// Runs `work` on the cores of the client end: this thread and those that it starts avoid the gateway's core.
    pub fn at_clients<T>(&self, work: impl FnOnce() -> T) -> T {
        // Without pinning the measurement is less precise.
        let before = self.base.division.of(At::Clients).and_then(|cores| {
            let before = Cores::allowed().ok()?;
            cores.pin_this_thread().ok().map(|()| before)
        });
        let made = work();
        if let Some(before) = before {
            let _ = before.pin_this_thread();
        }
        made
    }

    /// Resource usage of the gateway so far.
    pub fn used(&self) -> GatewayUsed {
        let pid = self.base.host_process.pid();
        let host_process = served(pid, pid).map_or(Duration::ZERO, |served| served.ran);
        let overflowed = [self.links[0].overflowed(), self.links[1].overflowed()];
        let at = Duration::from_nanos(sys::clock::monotonic_ns());
        match self.base.group.as_ref().and_then(|group| group.usage().ok()) {
            Some(used) => {
                let cpu = used.user + used.system;
                GatewayUsed {
                    at,
                    cpu,
                    host_process,
                    programs: cpu.saturating_sub(host_process),
                    throttled: used.throttled,
                    periods: used.periods,
                    memory_max: used.memory_max,
                    overflowed,
                }
            }
            None => {
                let each = self.programs.iter().filter_map(Program::used_at_gateway);
                let programs = each.map(|used| used.user + used.system).sum();
                GatewayUsed {
                    at,
                    cpu: host_process + programs,
                    host_process,
                    programs,
                    overflowed,
                    ..GatewayUsed::default()
                }
            }
        }
    }

    /// Counters of both loops so far, without drops at devices; cheaper than [`Self::links`].
    pub fn loops(&self) -> [LinkFigures; 2] {
        self.links.each_ref().map(|link| link.figures(None))
    }

    /// Counters of the client-side and the server-side link so far.
    pub fn links(&self) -> [LinkFigures; 2] {
        let devices = self.base.networks.statistics().ok();
        let [a, b] = &self.links;
        [
            a.figures(devices.map(|[client, inside, ..]| [client, inside])),
            b.figures(devices.map(|[_, _, outside, server]| [outside, server])),
        ]
    }

    /// Counters of the gateway's kernel so far.
    pub fn counts(&self) -> GatewayCounts {
        self.base.networks.counts()
    }

    /// Facts about the emulation.
    pub fn facts(&self) -> &EmulationFacts {
        &self.base.facts
    }

    /// Starts a prepared program.
    ///
    /// # Errors
    /// No program has this name, or it cannot be started.
    pub fn start_program(&mut self, name: &str) -> Result<(), TestbedError> {
        self.named(name)?.start()
    }

    /// How a program ended, with its last output; `None` before its start and while it or a process of it runs.
    pub fn ended(&mut self, name: &str) -> Option<String> {
        self.programs.iter_mut().find(|program| program.name == name)?.ended()
    }

    /// Interrupts a program like Ctrl-C and waits at most `timeout` for all of its processes. Returns how it ended,
    /// with its last output; `None` if it still runs or was not started.
    ///
    /// # Errors
    /// No program has this name, or its sandbox was killed.
    pub fn interrupt(&mut self, name: &str, timeout: Duration) -> Result<Option<String>, TestbedError> {
        self.named(name)?.interrupt(timeout)
    }

    fn named(&mut self, name: &str) -> Result<&mut Program, TestbedError> {
        let named = self.programs.iter_mut().find(|program| program.name == name);
        named.ok_or_else(|| TestbedError::Plan(format!("no program of the testbed has the name {name}")))
    }

    /// The part of the emulation that has failed, if any: emulated host, a link, a program. Later figures are invalid.
    pub fn failure(&mut self) -> Option<String> {
        let broken = self.broken();
        let mut with_it = self.programs.iter_mut().filter(|program| program.starts_immediately());
        broken.or_else(|| with_it.find_map(Program::ended))
    }

    /// The part of the emulation, apart from programs, that has failed.
    fn broken(&mut self) -> Option<String> {
        let gone = ProcessStat::read(self.base.host_process.pid()).is_none_or(|stat| matches!(stat.state, 'Z' | 'X'));
        if gone {
            return Some("the emulated gateway host was killed".into());
        }
        for (link, name) in self.links.iter_mut().zip(["the clients'", "the server's"]) {
            if let Some(why) = link.failure() {
                return Some(format!("{name} link stopped: {why}"));
            }
        }
        None
    }
}

impl Drop for RunningEmulation {
    fn drop(&mut self) {
        // With a small CPU share programs would end slowly: lift the limit.
        if let Some(group) = &self.base.group {
            group.remove_cpu_limit();
        }
        for program in &mut self.programs {
            program.stop();
        }
    }
}

/// The control group of the gateway; `None` if none can be created and no limit is configured.
fn group(spec: &EmulationSpec) -> Result<Option<Cgroup>, TestbedError> {
    let limits = Limits { cpu: spec.share, memory: spec.memory.map(|bytes| bytes.0), ..Limits::default() };
    let option = match (spec.share, spec.memory) {
        (Some(share), _) => format!("--gateway-cpu {share}"),
        (None, Some(memory)) => format!("--gateway-memory {memory}"),
        (None, None) => return Ok(Cgroup::create("gateway", limits).ok().inspect(set_largest_weight)),
    };
    match Cgroup::create("gateway", limits) {
        Ok(group) => Ok(Some(group).inspect(set_largest_weight)),
        Err(error) => {
            Err(TestbedError::Environment(format!("{option}: no control group can be created here: {error}")))
        }
    }
}

/// Sets the largest weight, since a separate machine would not compete for CPU time. Ignored if not supported.
fn set_largest_weight(group: &Cgroup) {
    let _ = group.set_weight(Weight::Most);
}

/// The longest stall caused by the CPU share, usually and rarely; `None` for a whole core.
///
/// Kernel work is charged at ticks: it may exceed the quota by a tick, which is then deducted from later periods.
fn stall_lengths(period: Duration, share: CpuShare) -> Option<[Duration; 2]> {
    let cores = share.cores();
    let periods = 1.0 + (TICK.as_secs_f64() / (period.as_secs_f64() * cores)).ceil();
    (cores < 1.0).then(|| [1.0 - cores, periods - (periods - 1.0) * cores].map(|periods| period.mul_f64(periods)))
}

/// Tick of most kernels, 250 Hz.
const TICK: Duration = Duration::from_millis(4);

fn notes(queue: &PacketQueue, by_cgroup: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if let Ok(bytes) = queue.capacity()
        && bytes < packet_queue::QUEUE_BYTES as usize
    {
        notes.push(format!(
            "the emulated gateway host has queues of {} of {} KiB: larger ones need CAP_NET_ADMIN, or sysctl net.core.wmem_max={}",
            bytes >> 10,
            packet_queue::QUEUE_BYTES >> 10,
            packet_queue::QUEUE_BYTES / 2
        ));
    }
    if !by_cgroup {
        notes.push(
            "no control group can be created here: the gateway's CPU time is that of its processes in /proc".into(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stall_lengths_follow_from_period_share_and_tick() {
        let of = |share: &str| {
            let pauses = stall_lengths(Duration::from_millis(50), share.parse().unwrap());
            pauses.map(|pauses| pauses.map(|pause| pause.as_micros()))
        };
        // 1 ms of 50: it runs for less than 5 ms, which is deducted until the fifth period.
        assert_eq!(of("2%"), Some([49_000, 246_000]));
        assert_eq!(of("10%"), Some([45_000, 95_000]));
        assert_eq!(of("100%"), None);
    }
}
