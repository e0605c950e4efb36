//! A trial: starts the fleet, injects faults, waits until all rows are stored, and compares.

#[path = "nats.rs"]
mod nats;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::faults::{Fault, FaultCounts, MIN_FAULTS, Pauses};
use super::networks::{MANAGER, Networks};
pub use super::outcome::{Costs, Outcome};
use super::parties::{self, Agent, Listening, PROGRAMS, Programs, path, wait};
use super::process::{Cost, Process};
use super::{Result, TEST_TIMEOUT};

/// The parameters of a trial.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of machines, each with an agent and two programs.
    pub agents: usize,
    /// How long the programs make exchanges, in seconds.
    pub seconds: u64,
    /// Exchanges per second of each machine.
    pub rate: u64,
    /// Mean time between faults; `None` injects no faults.
    pub fault_interval: Option<Duration>,
    /// The program under test.
    pub yamabiko: PathBuf,
    /// `crates/yamabiko/tests`.
    pub tests: PathBuf,
    /// The Python of `cargo xtask readers`.
    pub python: PathBuf,
    /// Further arguments of the manager.
    pub manager_arguments: Vec<String>,
    /// Further arguments of each agent, by its number.
    pub agent_arguments: fn(usize) -> &'static [&'static str],
    /// Agents publish to NATS, from which two managers read. Their wall clocks are right: nothing measures them.
    pub over_nats: bool,
}

/// Progress of a trial, for observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The talkers make exchanges.
    Working,
    /// All exchanges are stored; all processes still run.
    Stored,
}

/// A running trial.
pub struct Trial {
    plan: Plan,
    // In the order in which the processes must end.
    talkers: Vec<Process>,
    agents: Vec<(Agent, Option<Process>)>,
    manager: Option<Process>,
    nats: Option<nats::Nats>,
    _server: Process,
    networks: Networks,
    listening: Listening,
    programs: Programs,
    faults_injected: FaultCounts,
    costs: Costs,
    starts: usize,
    _machines: TempDir,
    folder: TempDir,
}

impl Trial {
    /// Starts manager, agents and talkers, in this order; returns when all are ready.
    pub fn start(plan: Plan) -> Result<Trial> {
        let folder = tempfile::Builder::new().prefix("yamabiko-fleet-").tempdir()?;
        // The agents' files are in memory: programs write into the rings at any time, and here all agents would wait
        // for the manager's disk, while in production each machine has its own disk.
        let shared = Path::new("/dev/shm");
        let place = if shared.is_dir() { shared } else { folder.path() };
        let machines = tempfile::Builder::new().prefix("yamabiko-fleet-").tempdir_in(place)?;
        let at = |name: &str| folder.path().join(name);
        for name in ["accounts", "logs"] {
            fs::create_dir(at(name))?;
        }
        let programs = Programs::make(&plan.tests.join("support/fleet"), folder.path())?;
        let networks = Networks::make(folder.path())?;
        let server = Process::start(networks.at_agents(&arguments(&programs.server(false))?), &at("logs/server.log"))?;
        wait("the talkers' server listens", || Ok(server.log_text().contains("listening")))?;
        fs::create_dir(at("manager"))?;
        let mut agents = Vec::new();
        for number in 0..plan.agents {
            let name = format!("m{number:03}");
            let own = machines.path().join(&name);
            fs::create_dir(&own)?;
            let token = own.join("token");
            parties::token(&plan.yamabiko, &at("manager"), &name, "agent", &token)?;
            let (data, rings, log) = (own.join("data"), own.join("rings"), at(&format!("logs/{name}.log")));
            let (shift_s, stream) = if plan.over_nats { (0, Some(nats::stream())) } else { (shift_s(number), None) };
            let agent = Agent { shift_s, data, rings, token, log, stream, name };
            agents.push((agent, None));
        }
        parties::token(&plan.yamabiko, &at("manager"), "proof", "operator", &at("operator-token"))?;
        let nothing = Listening { agents: String::new(), page: String::new() };
        let mut trial = Trial {
            plan,
            talkers: Vec::new(),
            agents,
            manager: None,
            nats: None,
            _server: server,
            networks,
            listening: nothing,
            programs,
            faults_injected: FaultCounts::default(),
            costs: Costs::default(),
            starts: 0,
            _machines: machines,
            folder,
        };
        if trial.plan.over_nats {
            trial.begin_nats()?;
        }
        trial.start_manager()?;
        for number in 0..trial.agents.len() {
            trial.start_agent(number)?;
        }
        for (agent, process) in &trial.agents {
            agent.ready(process.as_ref().ok_or("no agent")?)?;
        }
        trial.start_talkers()?;
        Ok(trial)
    }

    /// Injects faults as planned until the talkers have ended, waits until all is stored, ends the fleet, and compares.
    pub fn run(self) -> Result<Outcome> {
        self.run_with_observer(|_, _| Ok(()))
    }

    /// Runs the trial like [`Trial::run`] and calls `observe` between faults, and once when all exchanges are stored.
    pub fn run_with_observer(mut self, mut observe: impl FnMut(&mut Trial, Stage) -> Result<()>) -> Result<Outcome> {
        let began = Instant::now();
        let mut pauses = Pauses::new(12);
        let mut number = 0;
        loop {
            let running = self.talkers_running()?;
            observe(&mut self, Stage::Working)?;
            match self.plan.fault_interval {
                Some(mean) if running || number < MIN_FAULTS => {
                    sleep(pauses.next(mean));
                    self.inject(Fault::of(number, self.plan.over_nats), pauses.next(mean / 2))?;
                    number += 1;
                }
                _ if running => sleep(Duration::from_millis(50)),
                _ => break,
            }
        }
        for talker in std::mem::take(&mut self.talkers) {
            add(&mut self.costs.talkers, talker.succeeds_within(TEST_TIMEOUT)?);
        }
        let ended = Instant::now();
        let expected = self.expected()?;
        self.wait_until_stored(expected)?;
        self.wait_for_second(expected)?;
        let (elapsed, storage_delay) = (began.elapsed(), ended.elapsed());
        observe(&mut self, Stage::Stored)?;
        self.end()?;
        Ok(Outcome {
            found: self.compare()?,
            between_managers: if self.plan.over_nats { self.differing()? } else { Value::Null },
            faults_injected: self.faults_injected,
            costs: self.costs,
            elapsed,
            storage_delay,
        })
    }

    /// The folder of the trial, which exists as long as this value.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The command prefix that enters the page's network, and the URL of the page.
    pub fn page(&self) -> (String, String) {
        (format!("nsenter -t {} -n", self.networks.manager_pid()), self.listening.page.clone())
    }

    /// The networks of the trial.
    pub fn networks(&self) -> &Networks {
        &self.networks
    }

    /// The agent with this number.
    pub fn agent(&self, number: usize) -> &Agent {
        &self.agents[number].0
    }

    /// The folder of the manager's data.
    pub fn data(&self) -> PathBuf {
        self.at("manager")
    }

    /// Calls the manager's API with an operator's token, by curl: method, path after `/api/1`, and an optional body.
    pub fn operate(&self, method: &str, path_: &str, body: Option<&Value>) -> Result<Value> {
        let token = fs::read_to_string(self.at("operator-token"))?;
        let (bearer, url) =
            (format!("Authorization: Bearer {}", token.trim()), format!("https://{MANAGER}:8443/api/1{path_}"));
        let authority = parties::certificate(&self.data());
        let mut command =
            self.networks.at_manager(&["curl", "-sS", "--fail-with-body", "--max-time", "60", "-X", method]);
        command.args(["--cacert", path(&authority), "-H", &bearer, &url]);
        if let Some(body) = body {
            command.args(["-H", "Content-Type: application/json", "-d", &body.to_string()]);
        }
        let output = command.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let output_text = [output.stderr, output.stdout].concat();
            return Err(
                format!("{method} {path_}: {}: {}", output.status, String::from_utf8_lossy(&output_text)).into()
            );
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Kills the manager, calls `meanwhile`, and starts the manager again.
    pub fn without_manager(&mut self, meanwhile: impl FnOnce(&mut Trial) -> Result<()>) -> Result<()> {
        self.kill_manager()?;
        meanwhile(self)?;
        self.start_manager()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn start_manager(&mut self) -> Result<()> {
        let (listen, data) = (format!("{MANAGER}:8443"), self.at("manager"));
        let mut command = vec![path(&self.plan.yamabiko)];
        command.extend(parties::manager_arguments(&listen, MANAGER, &data));
        command.extend(self.plan.manager_arguments.iter().map(String::as_str));
        let stream = nats::stream();
        if self.plan.over_nats {
            command.extend(["--from", &stream]);
        }
        self.starts += 1;
        let log = self.at(&format!("logs/manager-{:03}.log", self.starts));
        let process = Process::start(self.networks.at_manager(&command), &log)?;
        let mut found = None;
        wait("the manager listens", || {
            process.still_runs()?;
            found = parties::listening(&process.log_text());
            Ok(found.is_some())
        })?;
        self.listening = found.ok_or("not listening")?;
        self.manager = Some(process);
        Ok(())
    }

    fn start_agent(&mut self, number: usize) -> Result<()> {
        let more = (self.plan.agent_arguments)(number);
        let (agent, slot) = &mut self.agents[number];
        let (url, authority) =
            (format!("https://{MANAGER}:8443"), parties::certificate(&self.folder.path().join("manager")));
        let mut arguments = vec![path(&self.plan.yamabiko)];
        arguments.extend(agent.arguments(&url, &authority));
        arguments.extend(more);
        let mut command = self.networks.at_agents(&arguments);
        if agent.shift_s != 0 {
            command.envs(self.programs.shifted(agent.shift_s));
        }
        *slot = Some(Process::start(command, &agent.log)?);
        Ok(())
    }

    /// Starts two programs on each machine: one by `yamabiko tap --agent`, the other with environment variables as a
    /// profile script would set them.
    fn start_talkers(&mut self) -> Result<()> {
        let rate = (self.plan.rate / PROGRAMS.len() as u64).max(1);
        let exchanges = rate * self.plan.seconds;
        for (agent, _) in &self.agents {
            for (which, program) in PROGRAMS.iter().enumerate() {
                let account = self.folder.path().join("accounts").join(format!("{}.{program}.csv", agent.name));
                let talker = self.programs.talker(which, &account, exchanges, rate);
                let mut before = Vec::new();
                if which == 0 {
                    let own = self.plan.yamabiko.clone().into_os_string();
                    before.extend([own, "tap".into(), format!("--agent={}", path(&agent.rings)).into(), "--".into()]);
                } else {
                    before.push("env".into());
                    before.extend(agent.environment().map(|(name, value)| {
                        let mut pair = std::ffi::OsString::from(name);
                        pair.push("=");
                        pair.push(value);
                        pair
                    }));
                }
                before.extend(talker);
                let log = self.folder.path().join(format!("logs/{}.{program}.log", agent.name));
                self.talkers.push(Process::start(self.networks.at_agents(&arguments(&before)?), &log)?);
            }
        }
        Ok(())
    }

    fn talkers_running(&self) -> Result<bool> {
        let mut running = false;
        for talker in &self.talkers {
            running |= talker.runs_or_succeeded()?;
        }
        Ok(running)
    }

    fn inject(&mut self, fault: Fault, duration: Duration) -> Result<()> {
        match fault {
            Fault::Manager => {
                self.kill_manager()?;
                sleep(duration);
                self.start_manager()
            }
            Fault::Agents(remainder) => {
                self.kill_agents(remainder)?;
                sleep(duration / 2);
                self.start_missing_agents()
            }
            Fault::Both(remainder) => {
                self.kill_agents(remainder)?;
                self.kill_manager()?;
                sleep(duration / 2);
                self.start_missing_agents()?;
                sleep(duration / 2);
                self.start_manager()
            }
            Fault::Cut => {
                self.cut()?;
                sleep(duration);
                self.networks.fix()
            }
            Fault::CutAndManager => {
                self.cut()?;
                sleep(duration / 2);
                self.kill_manager()?;
                sleep(duration / 2);
                self.start_manager()?;
                self.networks.fix()
            }
            Fault::Nats => self.restart_nats(duration, false),
            Fault::NatsAndSecond => self.restart_nats(duration, true),
        }
    }

    fn cut(&mut self) -> Result<()> {
        self.faults_injected.cuts += 1;
        self.networks.cut()
    }

    fn kill_manager(&mut self) -> Result<()> {
        let process = self.manager.take().ok_or("no manager")?;
        process.still_runs()?;
        self.faults_injected.manager_kills += 1;
        add(&mut self.costs.manager, process.end(Signal::SIGKILL, TEST_TIMEOUT)?);
        Ok(())
    }

    fn kill_agents(&mut self, remainder: usize) -> Result<()> {
        for (number, (_, slot)) in self.agents.iter_mut().enumerate() {
            if number % 3 == remainder
                && let Some(process) = slot.take()
            {
                process.still_runs()?;
                self.faults_injected.agent_kills += 1;
                add(&mut self.costs.agents, process.end(Signal::SIGKILL, TEST_TIMEOUT)?);
            }
        }
        Ok(())
    }

    fn start_missing_agents(&mut self) -> Result<()> {
        for number in 0..self.agents.len() {
            if self.agents[number].1.is_none() {
                self.start_agent(number)?;
            }
        }
        Ok(())
    }

    /// Number of expected rows: lines of the talkers' accounts without the header lines.
    fn expected(&self) -> Result<u64> {
        let mut lines = 0;
        for account in fs::read_dir(self.at("accounts"))? {
            lines += fs::read_to_string(account?.path())?.lines().count() as u64 - 1;
        }
        Ok(lines)
    }

    /// Waits until this many rows are stored or reported as omitted. Returns also if no row arrives for half of the
    /// timeout: the comparison then reports what is missing.
    fn wait_until_stored(&mut self, expected: u64) -> Result<()> {
        let (mut last, mut since) = (0, Instant::now());
        loop {
            self.manager.as_ref().ok_or("no manager")?.still_runs()?;
            for (_, slot) in &self.agents {
                slot.as_ref().ok_or("no agent")?.still_runs()?;
            }
            let now = self.read(&["stored"])?;
            let stored: u64 = ["rows", "left_out"].iter().filter_map(|what| now[*what].as_u64()).sum();
            if stored != last {
                (last, since) = (stored, Instant::now());
            }
            if stored >= expected || since.elapsed() > TEST_TIMEOUT / 2 {
                return Ok(());
            }
            sleep(Duration::from_millis(300));
        }
    }

    /// Ends all processes by SIGTERM.
    fn end(&mut self) -> Result<()> {
        for (_, slot) in &mut self.agents {
            add(&mut self.costs.agents, slot.take().ok_or("no agent")?.end(Signal::SIGTERM, TEST_TIMEOUT)?);
        }
        add(&mut self.costs.manager, self.manager.take().ok_or("no manager")?.end(Signal::SIGTERM, TEST_TIMEOUT)?);
        self.end_nats()
    }

    fn compare(&self) -> Result<Value> {
        let shifts: BTreeMap<&str, i64> =
            self.agents.iter().map(|(agent, _)| (&agent.name[..], agent.shift_s)).collect();
        let file = self.at("shifts.json");
        fs::write(&file, serde_json::to_string(&shifts)?)?;
        self.read(&["check", path(&self.at("accounts")), path(&file)])
    }

    /// Runs `readers/fleet.py` with these arguments; returns its JSON result.
    pub fn read(&self, more: &[&str]) -> Result<Value> {
        self.read_of(&self.data(), more)
    }

    fn read_of(&self, data: &Path, more: &[&str]) -> Result<Value> {
        let script = self.plan.tests.join("readers/fleet.py");
        let mut command = Command::new(&self.plan.python);
        command.arg(script).arg(more[0]).arg(data).args(&more[1..]).env("PYTHONDONTWRITEBYTECODE", "1");
        let output = command.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            return Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// Error of a machine's wall clock in seconds: 0 for every fourth machine, up to 18 minutes ahead or behind for the
/// others.
fn shift_s(number: usize) -> i64 {
    [0, 420, -660, 1_020][number % 4] + if number.is_multiple_of(4) { 0 } else { number as i64 % 60 }
}

fn add(sum: &mut Cost, cost: Cost) {
    sum.cpu += cost.cpu;
    sum.peak_bytes = sum.peak_bytes.max(cost.peak_bytes);
}

fn arguments(arguments: &[std::ffi::OsString]) -> Result<Vec<&str>> {
    arguments.iter().map(|word| word.to_str().ok_or_else(|| "an argument is not valid UTF-8".into())).collect()
}
