//! The server of the lab: waiting for it to listen, and what it used.

pub mod series;

use std::fs::File;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use ledger::document;
use sys::accounting::{CpuTimes, cpu_times, tree_descriptors, tree_usage};
use sys::cgroup::Periods;
use sys::clock::monotonic_ns;
use sys::place::{Exit, Place};
use sys::sched::Cores;

use crate::error::LabError;
use crate::places::Places;
use crate::places::listening::{self, NotListening, Wanted};
use crate::plan::ServerPlan;

pub use series::Series;

/// So much of the server's own words goes into an error.
const LAST_WORDS_BYTES: u64 = 400;

/// Starts the server's command and waits until it listens on `port` of every one of `addresses`.
///
/// # Errors
/// It cannot be started, ends before it listens, listens where nobody reaches it, or never listens: its last words
/// are in the message.
pub fn start(places: &mut Places, plan: &ServerPlan, addresses: &[IpAddr], port: u16) -> Result<(), LabError> {
    let Some(place) = &mut places.server else { return Ok(()) };
    place.go().map_err(LabError::plan)?;
    let wanted = Wanted { pid: place.init_pid(), addresses, port, timeout: plan.start_timeout, alone: true };
    let Err(why) = listening::wait(&wanted, || still(place))? else { return Ok(()) };
    let words = places.server_output.as_ref().map(last_words).unwrap_or_default();
    let timeout = units::format_duration(plan.start_timeout);
    Err(LabError::Plan(match why {
        NotListening::Ended(how) => {
            format!("the server command ended ({how}) before it listened on port {port}: {}{words}", plan.command)
        }
        NotListening::Unreachable { on, wanted } => format!(
            "the server listens on {on} only, which no client reaches: let it listen on {} or {wanted}{words}",
            if wanted.is_ipv4() { "0.0.0.0" } else { "[::]" }
        ),
        NotListening::OtherPorts { ports, unchanged_for } => {
            let others: Vec<String> = ports.iter().map(|port| format!("on {port}")).collect();
            let others = if others.is_empty() { "nowhere".into() } else { others.join(", ") };
            match unchanged_for {
                Some(time) => format!(
                    "the server does not listen on port {port}, but {others}, and on nothing else for {}: is the URL's port the \
                     server's? (one that opens its ports this far apart: a longer --server-start-timeout){words}",
                    units::format_duration(Duration::from_secs(time.as_secs()))
                ),
                None => format!(
                    "the server did not listen on port {port} within {timeout}, but {others} (is the URL's port the \
                     server's?){words}"
                ),
            }
        }
    }))
}

/// What the server has used up to one moment.
#[derive(Clone, Debug)]
pub struct Account {
    user: Duration,
    system: Duration,
    throttled: Option<Duration>,
    periods: Option<Periods>,
    rss_bytes: u64,
    descriptors: Option<u64>,
    from_cgroup: bool,
    cores: Vec<(usize, CpuTimes)>,
    /// When the cores were looked at, by CLOCK_MONOTONIC.
    at: Duration,
    /// What this program had spent on the server's cores itself.
    ours: Duration,
}

/// Reads the server's account now. `ours`: processor time that this program has spent on its cores so far.
pub fn account(places: &Places, ours: Duration) -> Option<Account> {
    let place = places.server.as_ref()?;
    let tree = tree_usage(place.init_pid());
    let group = places.cgroup.as_ref().and_then(|group| group.usage().ok());
    let cores = cpu_times().unwrap_or_default();
    let at = Duration::from_nanos(monotonic_ns());
    let descriptors = tree_descriptors(place.init_pid());
    Some(match group {
        Some(usage) => Account {
            user: usage.user,
            system: usage.system,
            throttled: usage.throttled,
            periods: usage.periods,
            descriptors,
            rss_bytes: tree.rss_bytes.max(usage.memory_max.unwrap_or(0).min(tree.rss_bytes)),
            from_cgroup: true,
            cores,
            at,
            ours,
        },
        None => Account {
            user: tree.user,
            system: tree.system,
            throttled: None,
            periods: None,
            descriptors,
            rss_bytes: tree.rss_bytes,
            from_cgroup: false,
            cores,
            at,
            ours,
        },
    })
}

impl Account {
    /// Resident memory of all its processes at that moment, in bytes.
    pub fn rss_bytes(&self) -> u64 {
        self.rss_bytes
    }

    /// What was used from `earlier` to `self`, as the document states it.
    pub fn since(
        &self,
        earlier: &Account,
        plan: &ServerPlan,
        tcp: &str,
        steered: Option<&Cores>,
        completed: u64,
        rss_bytes_max: u64,
    ) -> document::Server {
        let user = self.user.saturating_sub(earlier.user).as_secs_f64();
        let system = self.system.saturating_sub(earlier.system).as_secs_f64();
        let receive = steered.map(|cores| self.receive_since(earlier, cores));
        let total = user + system + receive.unwrap_or(0.0);
        document::Server {
            command: plan.command.clone(),
            cpu_user_s: user,
            cpu_system_s: system,
            cpu_receive_s: receive,
            cpu_us_per_request: (completed > 0).then(|| total * 1e6 / completed as f64),
            rss_bytes_max,
            throttled_s: match (plan.share(), self.throttled, earlier.throttled) {
                (Some(_), Some(now), Some(before)) => Some(now.saturating_sub(before).as_secs_f64()),
                _ => None,
            },
            source: if self.from_cgroup { "cgroup" } else { "/proc" }.into(),
            tcp: tcp.into(),
        }
    }

    /// What was done on the server's cores outside its processes, in seconds: while nothing else runs there, it is interrupts, of packets
    /// that it receives above all. It is what is left of the time when the cores were not idle, which the kernel counts exactly, as it does
    /// a process's; what it says of interrupts alone is guessed from where each tick falls, and of arrivals in step with the tick, wrong.
    fn receive_since(&self, earlier: &Account, cores: &Cores) -> f64 {
        let lasted = self.at.saturating_sub(earlier.at);
        let times = self.cores.iter().filter(|(core, _)| cores.list().contains(core));
        let not_idle = times.filter_map(|(core, times)| {
            let before = earlier.cores.iter().find(|(other, _)| other == core)?;
            let since = times.since(&before.1);
            Some(lasted.saturating_sub(since.idle + since.iowait + since.steal))
        });
        let not_idle: Duration = not_idle.sum();
        let accounted = [(self.user, earlier.user), (self.system, earlier.system), (self.ours, earlier.ours)];
        let accounted: Duration = accounted.into_iter().map(|(now, before)| now.saturating_sub(before)).sum();
        not_idle.saturating_sub(accounted).as_secs_f64()
    }
}

/// How the server's command ended, if nobody is left of it.
pub fn ended(place: &mut Place) -> Option<String> {
    match place.try_exit() {
        Ok(Some(exit)) => match place.alive() {
            Ok(true) => None,
            Ok(false) => Some(how(exit)),
            Err(error) => Some(error.to_string()),
        },
        Ok(None) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// The same, as a wait for it asks. A launcher may end and leave a daemon behind; only when nobody is left has the server ended.
fn still(place: &mut Place) -> Result<Option<String>, LabError> {
    let Some(exit) = place.try_exit().map_err(LabError::environment)? else { return Ok(None) };
    let is_alive = place.alive().map_err(LabError::environment)?;
    Ok((!is_alive).then(|| how(exit)))
}

fn how(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit status {code}"),
        Exit::Signal(signal) => format!("killed by signal {signal}"),
    }
}

/// The end of what the server printed, on one line and unable to steer a terminal.
pub fn last_words(output: &File) -> String {
    let length = output.metadata().map_or(0, |metadata| metadata.len());
    let from = length.saturating_sub(LAST_WORDS_BYTES);
    let mut bytes = vec![0; (length - from) as usize];
    // At an offset of its own: the server writes on through the same open file.
    let read = output.read_at(&mut bytes, from).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return String::new();
    }
    let words: String = lines.join(" | ").chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    format!("; it said: {words}")
}
