//! A gateway between two networks, in this kernel: forwarding, NAT and a proxy, held to a share of a core.
//!
//! ```text
//!  clients' ns           loop A (thread)          gateway's ns            loop B (thread)            server's ns
//!  198.19.0.1 c0 ==fd== [link] ==ring== card > g0 198.18.255.1   g1 198.19.0.2 < card ==ring== [link] ==fd== s0 198.18.0.1
//!                              <======= fd === g0                g1 === fd =======>
//!  the clients' programs        rate, queue    | ip_forward, NAT     |                            the server's programs
//!                                              '- proxy, in a place -'
//! ```
//!
//! Each of the two links is a path of its own, with a loop of its own. What comes to the gateway is put into the ring of
//! its [`host`], a process that hands it to the kernel: forwarding and translation run in that process's time, so that a
//! control group holds and counts them (docs/decisions/0021). What the gateway sends is read by the loops.
//!
//! [`GatewayLab::new`] makes everything, while this process has one thread; [`GatewayLab::start`] starts the loops and the
//! programs; dropping the [`RunningLab`] takes it all down. Read `networks` for addresses, `links` for the loops.

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
use sys::place::Place;
use sys::sched::Cores;
use sys::worker::Worker;
use units::{Bytes, CpuShare};

use self::cores::EmulationCores;
use self::links::Link;
use self::networks::Networks;
use self::programs::{Program, Surroundings};
use plan::Idle;
use testbed::LabError;
use testbed::drive::packet_queue::{self, PacketQueue};
use testbed::drive::path_io::{End, PathIo};
use testbed::host::Wakefulness;

pub use self::spec::{At, LabSpec, LinkWords, ProxySpec, ServerEnd, Starts, Waiting};
pub use figures::{DirectionFigures, GatewayCounts, GatewayUsed, LabFacts, LinkFigures};
pub use through::{Through, ThroughOutcome, through};

/// The client.
pub const CLIENT: Ipv4Addr = testbed::places::FIRST_CLIENT;
/// The gateway as the clients know it.
pub const INSIDE: Ipv4Addr = Ipv4Addr::new(198, 18, 255, 1);
/// The gateway as the server knows it; with NAT the client as well.
pub const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 2);
/// The server.
pub const SERVER: Ipv4Addr = testbed::places::SERVER;

/// A lab that is made, and not started. It takes all of itself down when it is dropped.
pub struct GatewayLab {
    // In the order in which they are taken down: programs, links, card, and what they stand on.
    programs: Vec<Program>,
    paths: [PathIo; 2],
    base: Base,
}

/// What programs and links stand on.
struct Base {
    card: Worker,
    /// What was set up at the gateway, and goes on there.
    _set_up: Option<Place>,
    _nat: Option<Masquerade>,
    networks: Networks,
    group: Option<Cgroup>,
    memory: Option<Bytes>,
    division: EmulationCores,
    facts: LabFacts,
    _wakefulness: Wakefulness,
}

impl GatewayLab {
    /// Makes it: control group, networks, devices, card, NAT, what [`LabSpec::setup`] says, and a place for every program.
    /// Must be called while this process has one thread, and by the thread that lives longest.
    ///
    /// # Errors
    /// What the machine lacks, by name; a set-up that fails; programs that are not there.
    pub fn new(spec: &LabSpec, server: Option<&ServerEnd>, extra: Vec<Waiting>) -> Result<Self, LabError> {
        let mut waiting: Vec<Waiting> = spec.proxy.iter().map(Waiting::from).collect();
        waiting.extend(extra);
        waiting.extend(server.map(Waiting::from));
        let mut lab = GatewayLab::empty(spec)?;
        for program in waiting {
            let made = lab.program(|around| Program::prepare(program, around))?;
            lab.programs.push(made);
        }
        Ok(lab)
    }

    /// Without programs.
    fn empty(spec: &LabSpec) -> Result<Self, LabError> {
        // Before this process is root of a namespace only.
        let wakefulness = Wakefulness::of(Idle::default());
        let rootless = testbed::places::gain_privilege()?;
        // What a killed run left of control groups; where there are none, nothing was left.
        let _ = sys::cgroup::sweep();
        let group = group(spec)?;
        let allowed = Cores::allowed().map_err(LabError::system("sched_getaffinity"))?;
        let division = EmulationCores::new(spec.placement, &allowed);
        let networks = Networks::new()?;
        let devices = networks.connect(spec.nat)?;
        let ((mut from_clients, first), (from_server, second)) = (PacketQueue::new()?, PacketQueue::new()?);
        let mut facts = LabFacts {
            stall_lengths: group
                .as_ref()
                .zip(spec.share)
                .and_then(|(group, share)| stall_lengths(group.period(), share)),
            card_ns_a_packet: None,
            card_ns_alone: None,
            placement: division.words(),
            idle: wakefulness.words().to_owned(),
            by_cgroup: group.is_some(),
            rootless,
            notes: notes(&from_clients, group.is_some()),
        };
        let card = host::start(
            [&devices.inside, &devices.outside],
            [first, second],
            group.as_ref(),
            division.of(At::Gateway),
        )?;
        [facts.card_ns_a_packet, facts.card_ns_alone] =
            host::cost(&card, &mut from_clients, || Some(networks.statistics().ok()?[1].rx_packets));
        let nat = spec.nat.then(|| nat::masquerade(&networks.gateway)).transpose()?;
        let set_up = spec.setup.as_ref().map(|command| nat::set_up(&networks.gateway, command)).transpose()?;
        let paths = [
            links::path(&spec.link, 1, spec.seed, devices.client, End::with_queue(devices.inside, from_clients)),
            // The gateway's own address is the second client: what its proxy asks for is carried as well.
            links::path(&spec.link, 2, !spec.seed, End::with_queue(devices.outside, from_server), devices.server),
        ];
        let memory = spec.memory;
        let base = Base {
            card,
            _set_up: set_up,
            _nat: nat,
            networks,
            group,
            memory,
            division,
            facts,
            _wakefulness: wakefulness,
        };
        Ok(GatewayLab { programs: Vec::new(), paths, base })
    }

    fn program(&self, make: impl FnOnce(&Surroundings<'_>) -> Result<Program, LabError>) -> Result<Program, LabError> {
        let Base { networks, group, division, facts, .. } = &self.base;
        make(&Surroundings { networks, group: group.as_ref(), rootless: facts.rootless, cores: division })
    }

    /// Starts the links, then the programs that start at once, and waits for those that listen.
    ///
    /// # Errors
    /// A program that cannot be started, ends, or does not listen: with its last words.
    pub fn start(self) -> Result<RunningLab, LabError> {
        let GatewayLab { programs, paths: [a, b], base } = self;
        let [first, second] = base.division.loops();
        let links = [Link::start("link a", a, first)?, Link::start("link b", b, second)?];
        let mut lab = RunningLab { programs, links, base };
        for program in &mut lab.programs {
            program.start_at_once().map_err(|error| match (error, lab.base.memory) {
                (LabError::Plan(said), Some(memory)) => {
                    LabError::Plan(format!("{said}; the gateway has {memory} of memory (--gateway-memory)"))
                }
                (error, _) => error,
            })?;
        }
        Ok(lab)
    }
}

/// A lab that runs, until it is dropped.
pub struct RunningLab {
    programs: Vec<Program>,
    links: [Link; 2],
    base: Base,
}

impl RunningLab {
    /// The clients' network.
    pub fn client_net(&self) -> &NetNamespace {
        &self.base.networks.client
    }

    /// Does `work` where the clients' end has its cores: this thread, and those that it starts, are kept off the gateway's.
    pub fn at_clients<T>(&self, work: impl FnOnce() -> T) -> T {
        // Not being kept there costs precision, as where there is one core.
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

    /// What the gateway used so far.
    pub fn used(&self) -> GatewayUsed {
        let pid = self.base.card.pid();
        let card = served(pid, pid).map_or(Duration::ZERO, |served| served.ran);
        let overflowed = [self.links[0].overflowed(), self.links[1].overflowed()];
        let at = Duration::from_nanos(sys::clock::monotonic_ns());
        match self.base.group.as_ref().and_then(|group| group.usage().ok()) {
            Some(used) => {
                let cpu = used.user + used.system;
                GatewayUsed {
                    at,
                    cpu,
                    card,
                    programs: cpu.saturating_sub(card),
                    throttled: used.throttled,
                    periods: used.periods,
                    memory_max: used.memory_max,
                    overflowed,
                }
            }
            None => {
                let each = self.programs.iter().filter_map(Program::used_at_gateway);
                let programs = each.map(|used| used.user + used.system).sum();
                GatewayUsed { at, cpu: card + programs, card, programs, overflowed, ..GatewayUsed::default() }
            }
        }
    }

    /// What both links' loops did so far, which is quicker to ask: without what was dropped at their devices.
    pub fn loops(&self) -> [LinkFigures; 2] {
        self.links.each_ref().map(|link| link.figures(None))
    }

    /// What both links did so far: that to the clients, that to the server.
    pub fn links(&self) -> [LinkFigures; 2] {
        let devices = self.base.networks.statistics().ok();
        let [a, b] = &self.links;
        [
            a.figures(devices.map(|[client, inside, ..]| [client, inside])),
            b.figures(devices.map(|[_, _, outside, server]| [outside, server])),
        ]
    }

    /// What the gateway's kernel counted so far.
    pub fn counts(&self) -> GatewayCounts {
        self.base.networks.counts()
    }

    /// What is to be said of this lab beside its figures.
    pub fn facts(&self) -> &LabFacts {
        &self.base.facts
    }

    /// Starts a program that was waiting.
    ///
    /// # Errors
    /// There is none of this name, or it cannot be started.
    pub fn go(&mut self, name: &str) -> Result<(), LabError> {
        self.named(name)?.go()
    }

    /// How a program ended, with its last words; `None` while it runs (or any process that it left behind), and before it was
    /// started.
    pub fn ended(&mut self, name: &str) -> Option<String> {
        self.programs.iter_mut().find(|program| program.name == name)?.ended()
    }

    /// Interrupts a program, as Ctrl-C would, and waits at most `patience` until nobody is left of it. How it ended then, with its
    /// last words; `None` if it still runs, or never did.
    ///
    /// # Errors
    /// There is none of this name; its place was killed from outside.
    pub fn interrupt(&mut self, name: &str, patience: Duration) -> Result<Option<String>, LabError> {
        self.named(name)?.interrupt(patience)
    }

    fn named(&mut self, name: &str) -> Result<&mut Program, LabError> {
        let named = self.programs.iter_mut().find(|program| program.name == name);
        named.ok_or_else(|| LabError::Plan(format!("no program of the lab is called {name}")))
    }

    /// What of the lab has stopped working, in words: its card, a link, a program that starts with it. Figures taken then are of no
    /// lab.
    pub fn trouble(&mut self) -> Option<String> {
        let broken = self.broken();
        let mut with_it = self.programs.iter_mut().filter(|program| program.starts_at_once());
        broken.or_else(|| with_it.find_map(Program::ended))
    }

    /// What of the lab itself has stopped working.
    fn broken(&mut self) -> Option<String> {
        let gone = ProcessStat::read(self.base.card.pid()).is_none_or(|stat| matches!(stat.state, 'Z' | 'X'));
        if gone {
            return Some("the gateway's card was killed".into());
        }
        for (link, name) in self.links.iter_mut().zip(["the clients'", "the server's"]) {
            if let Some(why) = link.trouble() {
                return Some(format!("{name} link stopped: {why}"));
            }
        }
        None
    }
}

impl Drop for RunningLab {
    fn drop(&mut self) {
        // Held to little, a program would be long about its end.
        if let Some(group) = &self.base.group {
            group.lift();
        }
        for program in &mut self.programs {
            program.stop();
        }
    }
}

/// The gateway's control group; none where none can be made and nothing is to be held.
fn group(spec: &LabSpec) -> Result<Option<Cgroup>, LabError> {
    let limits = Limits { cpu: spec.share, memory: spec.memory.map(|bytes| bytes.0), ..Limits::default() };
    let option = match (spec.share, spec.memory) {
        (Some(share), _) => format!("--gateway-cpu {share}"),
        (None, Some(memory)) => format!("--gateway-memory {memory}"),
        (None, None) => return Ok(Cgroup::create("gateway", limits).ok().inspect(stand_alone)),
    };
    match Cgroup::create("gateway", limits) {
        Ok(group) => Ok(Some(group).inspect(stand_alone)),
        Err(error) => Err(LabError::Environment(format!("{option}: no control group can be made here: {error}"))),
    }
}

/// A machine of its own does not wait for others. Where the kernel cannot set a weight it does.
fn stand_alone(group: &Cgroup) {
    let _ = group.set_weight(Weight::Most);
}

/// The longest pause between two of its shares, usually and seldom; none if it has a whole core.
///
/// What is busy in the kernel is charged at ticks. It may run one longer than it has time for, and owes that for periods to come.
fn stall_lengths(period: Duration, share: CpuShare) -> Option<[Duration; 2]> {
    let cores = share.cores();
    let periods = 1.0 + (TICK.as_secs_f64() / (period.as_secs_f64() * cores)).ceil();
    (cores < 1.0).then(|| [1.0 - cores, periods - (periods - 1.0) * cores].map(|periods| period.mul_f64(periods)))
}

/// At 250 a second, as most kernels are built.
const TICK: Duration = Duration::from_millis(4);

fn notes(ring: &PacketQueue, by_cgroup: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if let Ok(bytes) = ring.capacity()
        && bytes < packet_queue::QUEUE_BYTES as usize
    {
        notes.push(format!(
            "the gateway's card has rings of {} of {} KiB: larger ones take CAP_NET_ADMIN, or sysctl net.core.wmem_max={}",
            bytes >> 10,
            packet_queue::QUEUE_BYTES >> 10,
            packet_queue::QUEUE_BYTES / 2
        ));
    }
    if !by_cgroup {
        notes.push(
            "no control group can be made here: the gateway's processor time is that of its processes in /proc".into(),
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
        // 1 ms of 50: it runs for less than 5 ms, and has back what it owes with the fifth period.
        assert_eq!(of("2%"), Some([49_000, 246_000]));
        assert_eq!(of("10%"), Some([45_000, 95_000]));
        assert_eq!(of("100%"), None);
    }
}
