//! Programs of the emulation, prepared in sandboxes, started and awaited.

use std::ffi::OsString;
use std::fs::File;
use std::net::Ipv4Addr;
use std::time::Duration;

use sys::accounting::{ProcessUsage, tree_usage};
use sys::cgroup::Cgroup;
use sys::clock::Deadline;
use sys::relay::Relay;
use sys::sandbox::{Exit, Net, Sandbox, SandboxSpec, Stdio, Stdio3};
use sys::sched::Cores;
use sys::signal::Signal;

use super::networks::{self, Networks};
use super::{At, INSIDE, PreparedProgram, ProxySpec, SERVER, ServerEnd, Starts};
use testbed::TestbedError;
use testbed::server::{ended, output_tail};
use testbed::topology::listening::{self, ListenWaitSpec, NotListening};

/// Timeout for a program to listen.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(20);
/// Wait for a server without a known port.
const SETTLE: Duration = Duration::from_millis(300);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Time to end before a program is killed.
const STOP_TIMEOUT: Duration = testbed::topology::SERVER_GRACE;
/// Name of the tester's server in messages.
const SERVER_END: &str = "the gateway's server end";
/// Name of the proxy in messages.
const PROXY: &str = "the proxy";

/// Environment of the programs.
pub(super) struct ProgramEnvironment<'a> {
    pub(super) networks: &'a Networks,
    pub(super) group: Option<&'a Cgroup>,
    pub(super) rootless: bool,
    /// Cores of the programs at clients, gateway and server.
    pub(super) cores: &'a super::EmulationCores,
}

/// A program.
pub(super) struct Program {
    pub(super) name: String,
    at: At,
    starts: Starts,
    sandbox: Option<Sandbox>,
    output: Option<File>,
    started: bool,
}

impl Program {
    /// Creates the sandbox. Must be called while this process has one thread.
    pub(super) fn prepare(waiting: PreparedProgram, around: &ProgramEnvironment<'_>) -> Result<Program, TestbedError> {
        let output = sys::limits::unnamed_file(c"program-output").map_err(TestbedError::system("memfd_create"))?;
        let stream = || output.try_clone().map(|file| Stdio::File(file.into())).map_err(TestbedError::system("dup"));
        let stdout = match waiting.stdout {
            Some(file) => Stdio::File(file.into()),
            None => stream()?,
        };
        let stdio = Stdio3 { stdin: Stdio::Null, stdout, stderr: stream()? };
        let sandbox = start_sandbox(waiting.at, waiting.argv, waiting.env, stdio, true, around)?;
        Ok(Program {
            name: waiting.name,
            at: waiting.at,
            starts: waiting.starts,
            sandbox: Some(sandbox),
            output: Some(output),
            started: false,
        })
    }

    /// The same for a program that owns the terminal.
    pub(super) fn in_foreground(
        name: &str,
        argv: &[OsString],
        env: Vec<(OsString, OsString)>,
        around: &ProgramEnvironment<'_>,
    ) -> Result<Program, TestbedError> {
        let sandbox = start_sandbox(At::Clients, argv.to_vec(), env, Stdio3::default(), false, around)?;
        let (name, starts) = (name.to_owned(), Starts::OnRequest);
        Ok(Program { name, at: At::Clients, starts, sandbox: Some(sandbox), output: None, started: false })
    }

    /// Starts the program, if it starts immediately, and waits until it listens.
    pub(super) fn start_and_wait(&mut self) -> Result<(), TestbedError> {
        let Starts::Immediately { listens } = self.starts else { return Ok(()) };
        self.start()?;
        let address = if self.at == At::Gateway { INSIDE } else { SERVER };
        match (listens, self.at) {
            (Some(port), _) => self.wait_listening(address, port),
            (None, At::Server) => self.settle(),
            (None, _) => Ok(()),
        }
    }

    /// Starts the prepared program.
    pub(super) fn start(&mut self) -> Result<(), TestbedError> {
        let Some(sandbox) = &mut self.sandbox else { return Ok(()) };
        sandbox.exec().map_err(TestbedError::plan)?;
        self.started = true;
        Ok(())
    }

    /// Relays signals of this process to the program from now on.
    pub(super) fn relay(&self, relay: &mut Relay) {
        if let Some(sandbox) = &self.sandbox {
            sandbox.relay(relay);
        }
    }

    /// Whether the program starts with the emulation.
    pub(super) fn starts_immediately(&self) -> bool {
        self.starts != Starts::OnRequest
    }

    /// How the program ended, with its last output.
    pub(super) fn ended(&mut self) -> Option<String> {
        let sandbox = self.sandbox.as_mut().filter(|_| self.started)?;
        let how = ended(sandbox)?;
        Some(format!("{} ended ({how}){}", self.name, self.output.as_ref().map(output_tail).unwrap_or_default()))
    }

    /// The same, unless it ended with status 0.
    pub(super) fn failed(&mut self) -> Option<String> {
        let ended = self.ended()?;
        let exit = self.sandbox.as_mut()?.try_exit().ok()?;
        (exit != Some(Exit::Code(0))).then_some(ended)
    }

    /// Waits for the end of its first process.
    pub(super) fn wait(&mut self) -> Result<Exit, TestbedError> {
        let sandbox = self.sandbox.as_mut().expect("it is waited for before it is stopped");
        loop {
            if let Some(exit) = sandbox.try_exit().map_err(TestbedError::environment)? {
                return Ok(exit);
            }
            sys::signal::wait_readable(sandbox.status_fd(), Duration::from_secs(3600));
        }
    }

    /// Interrupts the program like Ctrl-C and waits at most `timeout` for all of its processes. Returns how it ended.
    pub(super) fn interrupt(&mut self, timeout: Duration) -> Result<Option<String>, TestbedError> {
        if let Some(sandbox) = self.sandbox.as_mut().filter(|_| self.started) {
            sandbox.signal(Signal::SIGINT).map_err(TestbedError::environment)?;
        }
        let deadline = sys::clock::monotonic_ns() + timeout.as_nanos() as u64;
        loop {
            let ended = self.ended();
            let left = deadline.saturating_sub(sys::clock::monotonic_ns());
            match self.sandbox.as_ref().filter(|_| ended.is_none() && self.started && left > 0) {
                Some(sandbox) => sys::signal::wait_readable(sandbox.status_fd(), Duration::from_nanos(left)),
                None => return Ok(ended),
            };
        }
    }

    /// Resource usage, if the program runs at the gateway.
    pub(super) fn used_at_gateway(&self) -> Option<ProcessUsage> {
        let sandbox = self.sandbox.as_ref().filter(|_| self.at == At::Gateway)?;
        Some(tree_usage(sandbox.init_pid()))
    }

    /// Terminates the program, and kills what remains.
    pub(super) fn stop(&mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            sandbox.stop(STOP_TIMEOUT);
        }
    }

    /// Waits briefly for a server without a known port, which must not end.
    fn settle(&mut self) -> Result<(), TestbedError> {
        let deadline = Deadline::after(SETTLE);
        while !deadline.has_passed() {
            if let Some(ended) = self.ended() {
                return Err(TestbedError::Plan(ended));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn wait_listening(&mut self, address: Ipv4Addr, port: u16) -> Result<(), TestbedError> {
        let pid = self.sandbox.as_ref().map_or(0, Sandbox::init_pid);
        let addresses = [address.into()];
        // Other programs listen in the same namespaces.
        let spec = ListenWaitSpec {
            pid,
            addresses: &addresses,
            port: Some(port),
            or_udp: false,
            timeout: LISTEN_TIMEOUT,
            alone: false,
        };
        let Err(why) = listening::wait(&spec, || Ok(self.ended()))? else { return Ok(()) };
        let elsewhere = match why {
            NotListening::Ended(ended) => {
                return Err(TestbedError::Plan(format!("{ended}; it was to listen on {address}:{port}")));
            }
            NotListening::Unreachable { on, .. } => format!(", but on {on}"),
            NotListening::OtherPorts { .. } => String::new(),
        };
        let words = self.output.as_ref().map(output_tail).unwrap_or_default();
        Err(TestbedError::Plan(format!("{} does not listen on {address}:{port}{elsewhere}{words}", self.name)))
    }
}

impl From<&ServerEnd> for PreparedProgram {
    fn from(server: &ServerEnd) -> Self {
        PreparedProgram {
            name: SERVER_END.into(),
            at: At::Server,
            argv: server.argv.clone(),
            env: server.env.clone(),
            stdout: None,
            starts: Starts::Immediately { listens: Some(server.port) },
        }
    }
}

impl From<&ProxySpec> for PreparedProgram {
    fn from(proxy: &ProxySpec) -> Self {
        PreparedProgram {
            name: PROXY.into(),
            at: At::Gateway,
            argv: vec!["/bin/sh".into(), "-c".into(), proxy.command.clone().into()],
            env: Vec::new(),
            stdout: None,
            starts: Starts::Immediately { listens: Some(proxy.port) },
        }
    }
}

fn start_sandbox(
    at: At,
    argv: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    stdio: Stdio3,
    new_session: bool,
    around: &ProgramEnvironment<'_>,
) -> Result<Sandbox, TestbedError> {
    Sandbox::start(SandboxSpec {
        env: testbed::topology::user_command_variables().into_iter().chain(env).collect(),
        hosts: networks::names(at),
        stdio,
        new_session,
        cpus: around.cores.of(at).map(|cores| Cores::list(cores).to_vec()),
        cgroup: around.group.filter(|_| at == At::Gateway),
        net: Net::Existing(around.networks.at(at).try_clone().map_err(TestbedError::environment)?),
        rootless: around.rootless,
        ..SandboxSpec::new(argv)
    })
    .map_err(|error| match error {
        sys::Error::Exec { .. } => TestbedError::plan(error),
        other => TestbedError::environment(other),
    })
}
