//! A server in this host's own network, for loads without a path: started in a sandbox, so that none of its processes
//! remains.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use schema::document::Host;
use sys::accounting::{CpuTimes, ProcessStat, cpu_times, tree_usage};
use sys::clock::Deadline;
use sys::namespace::NetNamespace;
use sys::sandbox::{Net, Sandbox, SandboxSpec, Stdio, Stdio3};
use sys::sched::Cores;

use crate::error::ExperimentError;

/// Longest time until a server listens.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(3);

/// A running server.
#[derive(Debug)]
pub struct LocalServer {
    sandbox: Option<Sandbox>,
    /// Cores that the server runs on; none: any that the kernel chooses.
    cores: Option<Cores>,
}

/// This machine's cores, divided as in the testbed: servers on the first ones, the load on the last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreDivision {
    /// All allowed cores.
    all: Cores,
    /// Core of the servers, one only, so that figures are per core; none with a single core.
    pub server: Option<Cores>,
    /// Core of the load.
    pub load: Option<Cores>,
}

/// CPU time used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCpu {
    /// CPU time of the server itself, in user mode.
    pub server_user: Duration,
    /// CPU time of the kernel for the server itself.
    pub server_system: Duration,
    /// CPU time of the processes that the server started, in user mode.
    pub below_user: Duration,
    /// CPU time of the kernel for the processes that the server started.
    pub below_system: Duration,
    /// Softirq time of the server's cores, for any process. The kernel counts it in ticks, and charges part of it to
    /// the interrupted process as well.
    pub softirq: Duration,
}

impl CoreDivision {
    /// The cores that this process may run on.
    ///
    /// # Errors
    /// sched_getaffinity(2) fails.
    pub fn of_this_machine() -> Result<CoreDivision, ExperimentError> {
        let all = Cores::allowed().map_err(ExperimentError::file("sched_getaffinity"))?;
        let one = |core: Option<&usize>| core.map(|&core| Cores::new(vec![core]));
        let (server, load) = match all.list() {
            list @ [_, _, ..] => (one(list.first()), one(list.last())),
            _ => (None, None),
        };
        Ok(CoreDivision { all, server, load })
    }

    /// Runs `work` with this thread, and threads that it starts, on the cores of the load.
    pub fn as_load<T>(&self, work: impl FnOnce() -> T) -> T {
        // Without pinning the load is less precise, which the run's send lag shows.
        let pinned = self.load.as_ref().is_some_and(|cores| cores.pin_this_thread().is_ok());
        let made = work();
        if pinned {
            let _ = self.all.pin_this_thread();
        }
        made
    }

    /// Adds the placement to the properties of the host.
    pub fn describe(&self, host: &mut Host) {
        let cores = |cores: &Option<Cores>| cores.as_ref().map(Cores::to_string);
        host.cores = self.all.list().len() as u32;
        (host.server_cores, host.client_cores) = (cores(&self.server), cores(&self.load));
    }

    /// The placement as text.
    pub fn words(&self) -> String {
        match (&self.server, &self.load) {
            (Some(server), Some(load)) => format!("servers on core {server}, load on core {load}"),
            _ => "servers and load on one core".to_owned(),
        }
    }
}

impl LocalServer {
    /// Starts a server by a shell command and waits until it listens at `listen`. Its output goes to `log`, whose end
    /// is in the error. Must be called while this process has one thread.
    ///
    /// # Errors
    /// A sandbox cannot be created; the server ended, or does not listen.
    pub fn start(
        command: &str,
        listen: SocketAddr,
        cores: Option<&Cores>,
        log: &Path,
    ) -> Result<LocalServer, ExperimentError> {
        let rootless = testbed::topology::gain_privilege()?;
        let output = File::create(log).map_err(ExperimentError::file(log))?;
        let stream = || output.try_clone().map(|file| Stdio::File(file.into())).map_err(ExperimentError::file(log));
        let mut sandbox = Sandbox::start(SandboxSpec {
            cpus: cores.map(|cores| cores.list().to_vec()),
            net: Net::Existing(NetNamespace::current()?),
            stdio: Stdio3 { stdin: Stdio::Null, stdout: stream()?, stderr: stream()? },
            new_session: true,
            rootless,
            env: testbed::topology::user_command_variables(),
            ..SandboxSpec::new(["/bin/sh", "-c", command].map(Into::into).to_vec())
        })?;
        if TcpStream::connect(listen).is_ok() {
            return Err(ExperimentError::Program {
                program: "a server",
                why: format!("another program listens on {listen}: end it first"),
            });
        }
        sandbox.exec()?;
        let deadline = Deadline::after(START_TIMEOUT);
        while TcpStream::connect(listen).is_err() {
            let is_alive = sandbox.alive()?;
            if !is_alive || deadline.has_passed() {
                let how = if is_alive { "does not listen on" } else { "ended before it listened on" };
                return Err(ExperimentError::Program {
                    program: "a server",
                    why: format!(
                        "`{command}` {how} {listen}{}",
                        testbed::server::output_tail(&File::open(log).map_err(ExperimentError::file(log))?)
                    ),
                });
            }
            sys::signal::wait_readable(sandbox.status_fd(), POLL_INTERVAL);
        }
        Ok(LocalServer { sandbox: Some(sandbox), cores: cores.cloned() })
    }

    /// Process numbers of the server, the server itself first; empty once it has ended.
    pub fn pids(&self) -> Vec<i32> {
        let Some(sandbox) = &self.sandbox else { return Vec::new() };
        let mut pids = sandbox.pids();
        pids.sort_unstable();
        pids
    }

    /// CPU time used so far. The kernel counts in ticks of 10 ms.
    pub fn used(&self) -> ServerCpu {
        let Some(sandbox) = &self.sandbox else { return ServerCpu::default() };
        // The server replaced the shell, so it is the only child of the sandbox's init.
        let children = |pid: &i32| ProcessStat::read(*pid).is_some_and(|stat| stat.parent == sandbox.init_pid());
        let servers: Vec<i32> = sandbox.pids().into_iter().filter(children).collect();
        let whole = tree_usage(sandbox.init_pid());
        let (mut below_user, mut below_system) = (Duration::ZERO, Duration::ZERO);
        for server in servers {
            let below = tree_usage(server);
            below_user += below.user;
            below_system += below.system;
        }
        ServerCpu {
            server_user: whole.user.saturating_sub(below_user),
            server_system: whole.system.saturating_sub(below_system),
            below_user,
            below_system,
            softirq: self.softirq(),
        }
    }

    fn softirq(&self) -> Duration {
        let is_its = |core: usize| self.cores.as_ref().is_none_or(|cores| cores.list().contains(&core));
        let all: Vec<(usize, CpuTimes)> = cpu_times().unwrap_or_default();
        all.iter().filter(|(core, _)| is_its(*core)).map(|(_, times)| times.softirq).sum()
    }
}

impl Drop for LocalServer {
    /// Sends SIGTERM, and later SIGKILL; returns when all processes of the server have ended.
    fn drop(&mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            sandbox.stop(GRACE);
        }
    }
}

impl ServerCpu {
    /// The CPU time used from `earlier` to `self`.
    pub fn since(&self, earlier: &ServerCpu) -> ServerCpu {
        ServerCpu {
            server_user: self.server_user.saturating_sub(earlier.server_user),
            server_system: self.server_system.saturating_sub(earlier.server_system),
            below_user: self.below_user.saturating_sub(earlier.below_user),
            below_system: self.below_system.saturating_sub(earlier.below_system),
            softirq: self.softirq.saturating_sub(earlier.softirq),
        }
    }

    /// CPU time of all processes.
    pub fn total(&self) -> Duration {
        self.server_user + self.server_system + self.below_user + self.below_system
    }
}

/// A loopback address without a listener.
pub fn free_address() -> Result<SocketAddr, ExperimentError> {
    let bound = std::net::TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    bound.map_err(ExperimentError::file("bind 127.0.0.1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_cpu_time_is_never_negative() {
        let ms = Duration::from_millis;
        let before = ServerCpu { server_user: ms(10), below_system: ms(40), ..ServerCpu::default() };
        let after = ServerCpu { server_user: ms(30), below_system: ms(30), softirq: ms(5), ..ServerCpu::default() };
        let since = after.since(&before);
        assert_eq!((since.server_user, since.below_system, since.softirq), (ms(20), ms(0), ms(5)));
        assert_eq!(since.total(), ms(20));
    }

    #[test]
    fn with_two_cores_load_and_server_are_on_different_cores() {
        let division = CoreDivision::of_this_machine().unwrap();
        match (&division.server, &division.load) {
            (Some(server), Some(load)) => assert_ne!(server, load),
            (None, None) => assert_eq!(division.all.list().len(), 1),
            other => panic!("{other:?}"),
        }
        let within = division.as_load(|| Cores::allowed().unwrap());
        assert_eq!(within, division.load.clone().unwrap_or_else(|| division.all.clone()));
        assert_eq!(Cores::allowed().unwrap(), division.all);
    }
}
