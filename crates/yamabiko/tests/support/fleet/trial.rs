//! The trial: start, harm, wait, compare.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::harm::{Harm, Harms, LEAST, Pauses};
use super::networks::{MANAGER, Networks};
use super::parties::{self, Agent, Listening, PROGRAMS, Programs, path, wait};
use super::process::{Cost, Process};
use super::{Result, TEST_TIMEOUT};

/// What is tried.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Machines, each with an agent and two programs.
    pub agents: usize,
    /// How long the programs work.
    pub seconds: u64,
    /// Exchanges a second of each machine.
    pub rate: u64,
    /// From one harm to the next, on average; none: nothing is harmed.
    pub harm_every: Option<Duration>,
    /// The program under test.
    pub yamabiko: PathBuf,
    /// `crates/yamabiko/tests`.
    pub tests: PathBuf,
    /// The Python of `cargo xtask readers`.
    pub python: PathBuf,
    /// Further words for the manager.
    pub manager_words: Vec<String>,
    /// Further words for each agent, by its number.
    pub agent_words: fn(usize) -> &'static [&'static str],
}

/// How far a trial is, for who looks on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The talkers are at work.
    Working,
    /// All that they did is stored; everything still runs.
    Stored,
}

/// A fleet at work.
pub struct Trial {
    plan: Plan,
    // In the order in which they are to end.
    talkers: Vec<Process>,
    agents: Vec<(Agent, Option<Process>)>,
    manager: Option<Process>,
    _server: Process,
    networks: Networks,
    listening: Listening,
    programs: Programs,
    harms: Harms,
    spent: Spent,
    starts: usize,
    _machines: TempDir,
    folder: TempDir,
}

/// What the processes cost, those that were killed included.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    /// All managers after another.
    pub manager: Cost,
    /// All agents together; the most memory of one.
    pub agents: Cost,
    /// All talkers together.
    pub talkers: Cost,
}

/// What was found at the end.
#[derive(Debug)]
pub struct Held {
    /// What `readers/fleet.py` says.
    pub found: Value,
    /// What was done to the fleet.
    pub harms: Harms,
    /// What it cost.
    pub spent: Spent,
    /// From the first talker's start to the last row stored.
    pub lasted: Duration,
    /// From the last talker's end to the last row stored.
    pub caught_up: Duration,
}

impl Held {
    /// What of the comparison must be 0 where each exchange is there once, in its place; and what it is.
    pub fn checks(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        const MUST_BE_NONE: [&str; 12] = [
            "missing",
            "doubled",
            "strange",
            "wrong_order",
            "wrong_connection",
            "wrong_day",
            "out_of_time",
            "refused_wrong",
            "unused_wrong",
            "lost_records",
            "dropped_rows",
            "unaccounted",
        ];
        MUST_BE_NONE.into_iter().map(|name| (name, &self.found[name]))
    }

    /// What does not come out, in words.
    pub fn faults(&self) -> Vec<String> {
        let wrong = self.checks().filter(|(_, value)| value.as_u64() != Some(0));
        wrong.map(|(name, value)| format!("{name}: {value}")).collect()
    }
}

impl Trial {
    /// Starts manager, agents and talkers, in this order; returns when all work.
    pub fn start(plan: Plan) -> Result<Trial> {
        let folder = tempfile::Builder::new().prefix("yamabiko-fleet-").tempdir()?;
        // Programs write into the rings at any time. In reality each machine has its own disk, while here all agents
        // would share the manager's and wait for it.
        let shared = Path::new("/dev/shm");
        let place = if shared.is_dir() { shared } else { folder.path() };
        let machines = tempfile::Builder::new().prefix("yamabiko-fleet-").tempdir_in(place)?;
        let at = |name: &str| folder.path().join(name);
        for name in ["accounts", "logs"] {
            fs::create_dir(at(name))?;
        }
        let programs = Programs::make(&plan.tests.join("support/fleet"), folder.path())?;
        let networks = Networks::make(folder.path())?;
        let server = Process::start(networks.at_agents(&words(&programs.server(false))?), &at("logs/server.log"))?;
        wait("the talkers' server listens", || Ok(server.said().contains("listening")))?;
        fs::create_dir(at("manager"))?;
        let mut agents = Vec::new();
        for number in 0..plan.agents {
            let name = format!("m{number:03}");
            let own = machines.path().join(&name);
            fs::create_dir(&own)?;
            let token = own.join("token");
            parties::token(&plan.yamabiko, &at("manager"), &name, "agent", &token)?;
            let (data, rings, log) = (own.join("data"), own.join("rings"), at(&format!("logs/{name}.log")));
            let agent = Agent { shift_s: shift_s(number), data, rings, token, log, name };
            agents.push((agent, None));
        }
        parties::token(&plan.yamabiko, &at("manager"), "proof", "operator", &at("operator-token"))?;
        let nothing = Listening { agents: String::new(), page: String::new() };
        let mut trial = Trial {
            plan,
            talkers: Vec::new(),
            agents,
            manager: None,
            _server: server,
            networks,
            listening: nothing,
            programs,
            harms: Harms::default(),
            spent: Spent::default(),
            starts: 0,
            _machines: machines,
            folder,
        };
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

    /// Harms the fleet as planned until the talkers have ended, waits until all is stored, ends it, and compares.
    pub fn run(self) -> Result<Held> {
        self.run_beside(|_, _| Ok(()))
    }

    /// The same, and now and then somebody looks on: between harms, and once when all is stored.
    pub fn run_beside(mut self, mut beside: impl FnMut(&mut Trial, Stage) -> Result<()>) -> Result<Held> {
        let began = Instant::now();
        let mut pauses = Pauses::new(12);
        let mut number = 0;
        loop {
            let working = self.talkers_work()?;
            beside(&mut self, Stage::Working)?;
            match self.plan.harm_every {
                Some(mean) if working || number < LEAST => {
                    sleep(pauses.next(mean));
                    self.harm(Harm::of(number), pauses.next(mean / 2))?;
                    number += 1;
                }
                _ if working => sleep(Duration::from_millis(50)),
                _ => break,
            }
        }
        for talker in std::mem::take(&mut self.talkers) {
            add(&mut self.spent.talkers, talker.succeeds_within(TEST_TIMEOUT)?);
        }
        let ended = Instant::now();
        let expected = self.expected()?;
        self.wait_until_stored(expected)?;
        let (lasted, caught_up) = (began.elapsed(), ended.elapsed());
        beside(&mut self, Stage::Stored)?;
        self.end()?;
        Ok(Held { found: self.compare()?, harms: self.harms, spent: self.spent, lasted, caught_up })
    }

    /// All files of the trial, for the lifetime of this struct.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The command that shows the page, and the page.
    pub fn page(&self) -> (String, String) {
        (format!("nsenter -t {} -n", self.networks.manager_pid()), self.listening.page.clone())
    }

    /// Where everything is.
    pub fn networks(&self) -> &Networks {
        &self.networks
    }

    /// The machine of this number.
    pub fn agent(&self, number: usize) -> &Agent {
        &self.agents[number].0
    }

    /// The manager's data.
    pub fn data(&self) -> PathBuf {
        self.at("manager")
    }

    /// Asks the manager's API as an operator does, by curl: method, path behind `/api/1`, and a body where there is one.
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
            let said = [output.stderr, output.stdout].concat();
            return Err(format!("{method} {path_}: {}: {}", output.status, String::from_utf8_lossy(&said)).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// The manager alone, as the harms do it.
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
        command.extend(parties::manager_words(&listen, MANAGER, &data));
        command.extend(self.plan.manager_words.iter().map(String::as_str));
        self.starts += 1;
        let log = self.at(&format!("logs/manager-{:03}.log", self.starts));
        let process = Process::start(self.networks.at_manager(&command), &log)?;
        let mut found = None;
        wait("the manager listens", || {
            process.still_runs()?;
            found = parties::listening(&process.said());
            Ok(found.is_some())
        })?;
        self.listening = found.ok_or("not listening")?;
        self.manager = Some(process);
        Ok(())
    }

    fn start_agent(&mut self, number: usize) -> Result<()> {
        let more = (self.plan.agent_words)(number);
        let (agent, slot) = &mut self.agents[number];
        let (url, authority) =
            (format!("https://{MANAGER}:8443"), parties::certificate(&self.folder.path().join("manager")));
        let mut words = vec![path(&self.plan.yamabiko)];
        words.extend(agent.words(&url, &authority));
        words.extend(more);
        let mut command = self.networks.at_agents(&words);
        if agent.shift_s != 0 {
            command.envs(self.programs.shifted(agent.shift_s));
        }
        *slot = Some(Process::start(command, &agent.log)?);
        Ok(())
    }

    /// One program of each machine is started by `yamabiko tap --agent`, the other as a profile script would have it.
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
                self.talkers.push(Process::start(self.networks.at_agents(&words(&before)?), &log)?);
            }
        }
        Ok(())
    }

    fn talkers_work(&self) -> Result<bool> {
        let mut working = false;
        for talker in &self.talkers {
            working |= talker.runs_or_succeeded()?;
        }
        Ok(working)
    }

    fn harm(&mut self, harm: Harm, lasting: Duration) -> Result<()> {
        match harm {
            Harm::Manager => {
                self.kill_manager()?;
                sleep(lasting);
                self.start_manager()
            }
            Harm::Agents(rest) => {
                self.kill_agents(rest)?;
                sleep(lasting / 2);
                self.start_missing_agents()
            }
            Harm::Both(rest) => {
                self.kill_agents(rest)?;
                self.kill_manager()?;
                sleep(lasting / 2);
                self.start_missing_agents()?;
                sleep(lasting / 2);
                self.start_manager()
            }
            Harm::Cut => {
                self.cut()?;
                sleep(lasting);
                self.networks.fix()
            }
            Harm::CutAndManager => {
                self.cut()?;
                sleep(lasting / 2);
                self.kill_manager()?;
                sleep(lasting / 2);
                self.start_manager()?;
                self.networks.fix()
            }
        }
    }

    fn cut(&mut self) -> Result<()> {
        self.harms.cuts += 1;
        self.networks.cut()
    }

    fn kill_manager(&mut self) -> Result<()> {
        let process = self.manager.take().ok_or("no manager")?;
        process.still_runs()?;
        self.harms.manager_kills += 1;
        add(&mut self.spent.manager, process.end(Signal::SIGKILL, TEST_TIMEOUT)?);
        Ok(())
    }

    fn kill_agents(&mut self, rest: usize) -> Result<()> {
        for (number, (_, slot)) in self.agents.iter_mut().enumerate() {
            if number % 3 == rest
                && let Some(process) = slot.take()
            {
                process.still_runs()?;
                self.harms.agent_kills += 1;
                add(&mut self.spent.agents, process.end(Signal::SIGKILL, TEST_TIMEOUT)?);
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

    /// Rows that the talkers' accounts come to: a line each, but the heading.
    fn expected(&self) -> Result<u64> {
        let mut lines = 0;
        for account in fs::read_dir(self.at("accounts"))? {
            lines += fs::read_to_string(account?.path())?.lines().count() as u64 - 1;
        }
        Ok(lines)
    }

    /// Waits until that many rows are stored or reported as omitted. If nothing arrives for long, the comparison
    /// reports what is missing.
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

    /// Ends all in good order.
    fn end(&mut self) -> Result<()> {
        for (_, slot) in &mut self.agents {
            add(&mut self.spent.agents, slot.take().ok_or("no agent")?.end(Signal::SIGTERM, TEST_TIMEOUT)?);
        }
        add(&mut self.spent.manager, self.manager.take().ok_or("no manager")?.end(Signal::SIGTERM, TEST_TIMEOUT)?);
        Ok(())
    }

    fn compare(&self) -> Result<Value> {
        let shifts: BTreeMap<&str, i64> =
            self.agents.iter().map(|(agent, _)| (&agent.name[..], agent.shift_s)).collect();
        let file = self.at("shifts.json");
        fs::write(&file, serde_json::to_string(&shifts)?)?;
        self.read(&["check", path(&self.at("accounts")), path(&file)])
    }

    /// What `readers/fleet.py` says.
    pub fn read(&self, more: &[&str]) -> Result<Value> {
        let script = self.plan.tests.join("readers/fleet.py");
        let mut command = Command::new(&self.plan.python);
        command.arg(script).arg(more[0]).arg(self.data()).args(&more[1..]).env("PYTHONDONTWRITEBYTECODE", "1");
        let output = command.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            return Err(format!("{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// Every fourth machine is right; the others are up to 17 minutes ahead or behind.
fn shift_s(number: usize) -> i64 {
    [0, 420, -660, 1_020][number % 4] + if number.is_multiple_of(4) { 0 } else { number as i64 % 60 }
}

fn add(sum: &mut Cost, cost: Cost) {
    sum.cpu += cost.cpu;
    sum.peak_bytes = sum.peak_bytes.max(cost.peak_bytes);
}

fn words(words: &[std::ffi::OsString]) -> Result<Vec<&str>> {
    words.iter().map(|word| word.to_str().ok_or_else(|| "a name that is no text".into())).collect()
}
