//! The server of the testbed: its start, until it listens, and its resource usage.

pub(crate) mod attribution;
pub(crate) mod disturbance;
pub(crate) mod others;
pub mod series;
pub(crate) mod watch;

use std::fs::File;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use schema::{ServerCores, document};
use stats::Histogram;
use sys::accounting::{tree_descriptors, tree_usage};
use sys::cgroup::Periods;
use sys::sandbox::{Exit, Sandbox};

use crate::error::TestbedError;
use crate::topology::Topology;
use crate::topology::listening::{self, ListenWaitSpec, NotListening};
use plan::ServerPlan;

use attribution::{CoreTimes, Spent, attribute};
pub use series::Series;
use watch::{CoreWatch, Own, Watched};

/// Longest quotation of the server's output in an error.
const OUTPUT_TAIL_BYTES_MAX: u64 = 400;

/// Starts the server's command and waits until it listens on `port` of every one of `addresses`, of TCP
/// or, with `or_udp`, of UDP.
///
/// # Errors
/// The server cannot be started, ends before it listens, listens where clients cannot reach it, or never listens: the
/// message has the last lines of its output.
pub fn start(
    topology: &mut Topology,
    plan: &ServerPlan,
    addresses: &[IpAddr],
    port: u16,
    or_udp: bool,
) -> Result<(), TestbedError> {
    let Some(sandbox) = &mut topology.server else { return Ok(()) };
    sandbox.exec().map_err(TestbedError::plan)?;
    let spec = ListenWaitSpec {
        pid: sandbox.init_pid(),
        addresses,
        port: Some(port),
        or_udp,
        timeout: plan.start_timeout,
        alone: true,
    };
    let Err(why) = listening::wait(&spec, || ended_at_start(sandbox))? else { return Ok(()) };
    let words = topology.server_output.as_ref().map(output_tail).unwrap_or_default();
    let timeout = units::format_duration(plan.start_timeout);
    Err(TestbedError::Plan(match why {
        NotListening::Ended(how) => {
            format!("the server command ended ({how}) before it listened on port {port}: {}{words}", plan.command)
        }
        NotListening::Unreachable { on, expected } => unreachable(on, expected, &words),
        NotListening::OtherPorts { ports, unchanged_for } => {
            let others: Vec<String> = ports.iter().map(|port| format!("on {port}")).collect();
            let others = if others.is_empty() { "nowhere".into() } else { others.join(", ") };
            match unchanged_for {
                Some(time) => format!(
                    "the server does not listen on port {port}, but {others}, unchanged for {}: check the URL's \
                     port (or raise --server-start-timeout){words}",
                    units::format_duration(Duration::from_secs(time.as_secs()))
                ),
                None => format!(
                    "the server did not listen on port {port} within {timeout}, but {others} (check the \
                     URL's port){words}"
                ),
            }
        }
    }))
}

/// Starts the server's command and waits until it listens on any port, of TCP or UDP, that one of `addresses` reaches.
/// Without an address the server is only started.
///
/// # Errors
/// The errors of [`start`].
pub fn start_on_any_port(topology: &mut Topology, plan: &ServerPlan, addresses: &[IpAddr]) -> Result<(), TestbedError> {
    let Some(sandbox) = &mut topology.server else { return Ok(()) };
    sandbox.exec().map_err(TestbedError::plan)?;
    let spec = ListenWaitSpec {
        pid: sandbox.init_pid(),
        addresses,
        port: None,
        or_udp: false,
        timeout: plan.start_timeout,
        alone: true,
    };
    let Err(why) = listening::wait(&spec, || ended_at_start(sandbox))? else { return Ok(()) };
    let words = topology.server_output.as_ref().map(output_tail).unwrap_or_default();
    Err(TestbedError::Plan(match why {
        NotListening::Ended(how) => {
            format!("the server command ended ({how}) before it listened on any port: {}{words}", plan.command)
        }
        NotListening::Unreachable { on, expected } => unreachable(on, expected, &words),
        NotListening::OtherPorts { .. } => format!(
            "the server did not listen on any port within {} (one that takes longer: --server-start-timeout): {}{words}",
            units::format_duration(plan.start_timeout),
            plan.command
        ),
    }))
}

fn unreachable(on: IpAddr, expected: IpAddr, words: &str) -> String {
    let any = if expected.is_ipv4() { "0.0.0.0" } else { "[::]" };
    format!("the server listens on {on} only, which no client reaches: let it listen on {any} or {expected}{words}")
}

/// Resource usage of the server up to one time.
#[derive(Clone, Debug)]
pub struct Account {
    user: Duration,
    system: Duration,
    throttled: Option<Duration>,
    periods: Option<Periods>,
    rss_bytes: u64,
    descriptors: Option<u64>,
    from_cgroup: bool,
    /// Counters of the server's cores; absent if they cannot be read.
    times: Option<CoreTimes>,
}

/// Reads the server's resource usage. `own`: CPU time that this program has used on
/// the server's cores so far.
pub(crate) fn account(topology: &Topology, watch: Option<&mut CoreWatch>, own: Own) -> Option<Account> {
    let sandbox = topology.server.as_ref()?;
    let tree = tree_usage(sandbox.init_pid());
    let descriptors = tree_descriptors(sandbox.init_pid());
    let group = topology.cgroup.as_ref().and_then(|group| group.usage().ok());
    let times = watch.and_then(|watch| watch.times(own));
    Some(match group {
        Some(usage) => Account {
            user: usage.user,
            system: usage.system,
            throttled: usage.throttled,
            periods: usage.periods,
            descriptors,
            rss_bytes: tree.rss_bytes.max(usage.memory_max.unwrap_or(0).min(tree.rss_bytes)),
            from_cgroup: true,
            times,
        },
        None => Account {
            user: tree.user,
            system: tree.system,
            throttled: None,
            periods: None,
            descriptors,
            rss_bytes: tree.rss_bytes,
            from_cgroup: false,
            times,
        },
    })
}

/// Data of the run that the server's part of the document needs besides the resource usage.
pub(crate) struct Facts<'a> {
    pub plan: &'a ServerPlan,
    pub tcp: &'a str,
    /// Whether packets for the server are received on its own cores.
    pub steered: bool,
    /// Requests with a response.
    pub completed: u64,
    pub rss_bytes_max: u64,
    /// Interrupts per second on the server's cores before the load.
    pub baseline: f64,
}

impl Account {
    /// Resident memory of all processes of the server at the time of the reading, in bytes.
    pub fn rss_bytes(&self) -> u64 {
        self.rss_bytes
    }

    /// Resource usage from `earlier` to `self`, as in the document.
    pub(crate) fn since(&self, earlier: &Account, facts: &Facts<'_>) -> document::Server {
        let user = self.user.saturating_sub(earlier.user).as_secs_f64();
        let system = self.system.saturating_sub(earlier.system).as_secs_f64();
        let spent = self.spent_since(earlier, facts.baseline);
        let receive = spent.as_ref().filter(|_| facts.steered);
        let total = user + system + receive.map_or(0.0, |spent| spent.receive);
        let each = |seconds: f64| seconds * 1e6 / facts.completed as f64;
        let interval = spent.as_ref().map(|spent| match facts.steered {
            true => [spent.server[0] + spent.receive_interval[0], spent.server[1] + spent.receive_interval[1]],
            false => spent.server,
        });
        document::Server {
            command: facts.plan.command.clone(),
            cpu_user_s: user,
            cpu_system_s: system,
            cpu_receive_s: receive.map(|spent| spent.receive),
            cpu_receive_interval_s: receive.map(|spent| spent.receive_interval),
            cpu_us_per_request: (facts.completed > 0).then(|| each(total)),
            cpu_us_per_request_interval: interval.filter(|_| facts.completed > 0).map(|interval| interval.map(each)),
            cores: spent.map(|spent| cores_part(&spent, facts.steered)),
            rss_bytes_max: facts.rss_bytes_max,
            throttled_s: match (facts.plan.share(), self.throttled, earlier.throttled) {
                (Some(_), Some(now), Some(before)) => Some(now.saturating_sub(before).as_secs_f64()),
                _ => None,
            },
            source: if self.from_cgroup { "cgroup" } else { "/proc" }.into(),
            tcp: facts.tcp.into(),
        }
    }

    /// Attribution of the server's cores' time since `earlier`. `baseline`: interrupts per second on them before the
    /// load.
    fn spent_since(&self, earlier: &Account, baseline: f64) -> Option<Spent> {
        let used = (self.user + self.system).saturating_sub(earlier.user + earlier.system).as_secs_f64();
        Some(attribute(earlier.times.as_ref()?, self.times.as_ref()?, used, baseline))
    }

    /// Interrupts per second on the server's cores since `earlier`, as far as they are certain: without load they have
    /// other causes.
    pub fn interrupts_since(&self, earlier: &Account) -> f64 {
        let spent = self.spent_since(earlier, 0.0).filter(|spent| spent.elapsed_s > 0.0);
        spent.map_or(0.0, |spent| (spent.interrupts[0] - spent.own[0]).max(0.0) / spent.elapsed_s)
    }
}

fn cores_part(spent: &Spent, steered: bool) -> ServerCores {
    ServerCores {
        cores: spent.cores,
        elapsed_s: spent.elapsed_s,
        other_processes_s: spent.others,
        kernel_threads_s: spent.kernel,
        own_s: spent.own,
        interrupts_s: spent.interrupts,
        stolen_s: spent.stolen,
        not_attributable_s: if steered { spent.not_attributable } else { spent.server[1] - spent.server[0] },
        ..ServerCores::default()
    }
}

/// Adds the effect of other processes on the server's cores to its resource usage. `times`: response times.
pub(crate) fn add_disturbance(server: &mut document::Server, watched: &Watched, times: &Histogram) {
    let used = server.cpu_user_s + server.cpu_system_s + server.cpu_receive_s.unwrap_or(0.0);
    let Some(cores) = &mut server.cores else { return };
    cores.source = watched.source.into();
    cores.run_queue_wait_s = watched.run_queue_wait.map(|waited| waited.as_secs_f64());
    cores.delayed_by_others_s = watched.disturbed.waited.as_secs_f64();
    cores.delayed_longest_ns = units::time::saturating_nanos(watched.disturbed.longest);
    let busy = used / (cores.elapsed_s * f64::from(cores.cores)).max(1e-9);
    cores.could_have_moved = disturbance::could_have_moved(times, &watched.disturbed, busy.min(1.0));
    cores.processes = watched.others.named(cores.elapsed_s);
}

/// How the server's command ended, if none of its processes is left.
pub fn ended(sandbox: &mut Sandbox) -> Option<String> {
    match sandbox.try_exit() {
        Ok(Some(exit)) => match sandbox.alive() {
            Ok(true) => None,
            Ok(false) => Some(describe_exit(exit)),
            Err(error) => Some(error.to_string()),
        },
        Ok(None) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// How the server's command ended, if none of its processes is left, during the wait for its start. A launcher may end
/// and leave a daemon: the server has ended only when no process is left.
fn ended_at_start(sandbox: &mut Sandbox) -> Result<Option<String>, TestbedError> {
    let Some(exit) = sandbox.try_exit().map_err(TestbedError::environment)? else { return Ok(None) };
    let is_alive = sandbox.alive().map_err(TestbedError::environment)?;
    Ok((!is_alive).then(|| describe_exit(exit)))
}

fn describe_exit(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit status {code}"),
        Exit::Signal(signal) => format!("killed by signal {signal}"),
    }
}

/// The end of the server's output, on one line and without control characters.
pub fn output_tail(output: &File) -> String {
    let length = output.metadata().map_or(0, |metadata| metadata.len());
    let from = length.saturating_sub(OUTPUT_TAIL_BYTES_MAX);
    let mut bytes = vec![0; (length - from) as usize];
    // Read at an explicit offset: the server writes through the same open file.
    let read = output.read_at(&mut bytes, from).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return String::new();
    }
    let words: String = lines.join(" | ").chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("; its output: {words}")
}
