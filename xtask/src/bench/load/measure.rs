//! One measurement of one client program, and the utilization of the cores.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use schema::Document;
use sys::accounting::cpu_times;

use super::http3;
use crate::bench::servers::{PORT, output, wrk_figures};

/// Default length of a run in seconds, without its warm-up.
const SECONDS: &str = "3";
/// Cores of the server and of the client.
pub const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;

/// Runs client programs on the client's core.
pub struct Client {
    yamabiko: PathBuf,
    /// Run store of the bench: recording is part of the measured work.
    runs: tempfile::TempDir,
    /// Length of one run in seconds, as an argument.
    seconds: String,
}

/// Figures of one run of a program.
pub struct Figures {
    /// Requests per second.
    pub rate: f64,
    /// Failed requests.
    pub failed: u64,
    /// Send lag, median and 99th percentile; 0 if the program does not report it.
    pub lag_ns: (u64, u64),
    /// The machine's part of the send lag; `None` if the program does not report it.
    pub host: Option<HostShare>,
    /// Utilization of the cores, 0 to 1, the program's start and end included.
    pub client_core: f64,
    pub server_core: f64,
    /// Busy time of the server's core, the program's start and end included.
    pub server_busy: Duration,
    /// Length of the measured phase in seconds; 0 if the program does not report it.
    pub phase_s: f64,
    /// Share of the measured time in which the loop was busy, as the program reports.
    pub loop_busy: Option<f64>,
    /// CPU time of the program and its children, and number of requests from start to end.
    cpu: Duration,
    requests: f64,
}

/// The machine's part of the send lag in one run.
#[derive(Clone, Copy, Debug)]
pub struct HostShare {
    /// 99th percentile of the send lag less the machine's part.
    pub own_lag_p99_ns: u64,
    /// Time by which the machine woke or resumed the loop late.
    pub late_wakeups: Duration,
    /// Time for which the loop was ready to run and had no core; `None` if the kernel does not measure it.
    pub run_queue_wait: Option<Duration>,
    /// Share of the processors' time that the hypervisor took; `None` if it is unknown.
    pub stolen: Option<f64>,
}

impl Client {
    pub fn new(yamabiko: PathBuf) -> Result<Self> {
        Client::lasting(yamabiko, SECONDS)
    }

    /// Creates a client whose programs run for this whole number of seconds.
    pub fn lasting(yamabiko: PathBuf, seconds: &str) -> Result<Self> {
        let runs = tempfile::Builder::new().prefix("yamabiko-bench-").tempdir()?;
        Ok(Client { yamabiko, runs, seconds: seconds.to_owned() })
    }

    pub fn yamabiko(&self) -> &Path {
        &self.yamabiko
    }

    /// Runs wrk in a closed loop of 64 connections.
    pub fn wrk(&self, options: &[&str]) -> Result<Figures> {
        self.wrk_of(&url(), options)
    }

    /// Runs wrk in a closed loop of 64 connections against this URL.
    pub fn wrk_of(&self, url: &str, options: &[&str]) -> Result<Figures> {
        let time = format!("-d{}s", self.seconds);
        let (text, mut figures) =
            self.timed(Command::new("wrk").args(["-t1", "-c64", &time]).args(options).arg(url))?;
        figures.rate = wrk_figures(&text)?.0;
        figures.phase_s = self.seconds.parse()?;
        figures.requests = text
            .lines()
            .find_map(|line| line.trim().split_once(" requests in "))
            .context("wrk printed no number of requests")?
            .0
            .parse()?;
        Ok(figures)
    }

    /// Runs h2load with these options.
    pub fn h2load(&self, url: &str, options: &[&str]) -> Result<Figures> {
        let (text, mut figures) =
            self.timed(Command::new("h2load").args(["-t", "1", "-D", &self.seconds]).args(options).arg(url))?;
        let finished =
            text.lines().find_map(|line| line.strip_prefix("finished in ")).context("h2load printed no rate")?;
        figures.rate = finished
            .split(", ")
            .find_map(|part| part.strip_suffix(" req/s"))
            .context("h2load printed no rate")?
            .parse()?;
        figures.requests = figures.rate * self.seconds.parse::<f64>()?;
        Ok(figures)
    }

    /// Runs oha with HTTP/3 in a closed loop.
    pub fn oha(&self, program: &Path, url: &str, connections: &str) -> Result<Figures> {
        let mut command = Command::new(program);
        let time = format!("{}s", self.seconds);
        command.args(["--no-tui", "--insecure", "--http-version", "3", "--output-format", "json", "-z", &time]);
        command.args(["-c", connections, "-p", "1", url]);
        let (text, mut figures) = self.timed(&mut command)?;
        (figures.rate, figures.failed) = http3::figures(&text)?;
        figures.requests = figures.rate * self.seconds.parse::<f64>()?;
        Ok(figures)
    }

    /// Runs `yamabiko bench` against [`url`].
    pub fn bench(&self, options: &[&str]) -> Result<Figures> {
        self.bench_of(&url(), options)
    }

    /// Runs `yamabiko bench` and records every request.
    pub fn bench_of(&self, url: &str, options: &[&str]) -> Result<Figures> {
        let mut command = Command::new(&self.yamabiko);
        command.args(["bench", url, "--json", "-d", &format!("{}s", self.seconds)]).args(options);
        let (text, mut figures) = self.timed(command.env("YAMABIKO_RUNS", self.runs.path()))?;
        let document: Document = serde_json::from_str(&text).context("the document cannot be read")?;
        let load = document.load.context("the document has no load part")?;
        figures.rate = load.achieved_rate_per_s;
        figures.failed = load.failed.values().sum();
        figures.phase_s = document.run.duration_s;
        figures.lag_ns = (load.send_lag_ns.p50, load.send_lag_ns.p99);
        figures.requests = load.completed as f64 * (1.0 + document.run.warmup_s / document.run.duration_s.max(1e-9));
        figures.host = load.generator_delay.map(|delay| HostShare {
            own_lag_p99_ns: delay.send_lag_own_ns.p99,
            late_wakeups: Duration::from_nanos(delay.late_wakeups_ns),
            run_queue_wait: delay.run_queue_wait_ns.map(Duration::from_nanos),
            stolen: document.run.host.steal_share,
        });
        let busy = document.run.host.settings.get("loop_busy");
        figures.loop_busy =
            busy.and_then(|share| share.trim_end_matches('%').parse::<f64>().ok()).map(|share| share / 100.0);
        if !document.run.dir.is_empty() {
            std::fs::remove_dir_all(&document.run.dir).with_context(|| document.run.dir.clone())?;
        }
        Ok(figures)
    }

    /// Runs `yamabiko cache` with one point and records every exchange; returns the documents of the sweep and of the
    /// point. With `spread` it runs on the server's core, too.
    pub fn cache(&self, spread: bool, options: &[&str]) -> Result<(Document, Document, Figures)> {
        let mut command = Command::new(&self.yamabiko);
        command.args(["cache", "--json"]).args(options);
        let cores = if spread { format!("{SERVER_CORE},{CLIENT_CORE}") } else { CLIENT_CORE.to_string() };
        let (text, mut figures) = self.timed_on(&cores, command.env("YAMABIKO_RUNS", self.runs.path()))?;
        let sweep: Document = serde_json::from_str(&text).context("the sweep's document cannot be read")?;
        let part = sweep.cache.as_ref().context("the document has no cache part")?;
        let folder = self.runs.path().join(&part.points.first().context("the sweep has no point")?.run);
        let file = folder.join("summary.json");
        let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let point: Document = serde_json::from_str(&text).context("the point's document cannot be read")?;
        let load = point.load.as_ref().context("the point's document has no load part")?;
        figures.rate = load.achieved_rate_per_s;
        figures.phase_s = point.run.duration_s;
        figures.requests = load.completed as f64 * (1.0 + point.run.warmup_s / point.run.duration_s.max(1e-9));
        for folder in [&folder, Path::new(&sweep.run.dir)] {
            std::fs::remove_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        Ok((sweep, point, figures))
    }

    /// Runs a program on the client's core and reads the cores' counters around it.
    fn timed(&self, program: &mut Command) -> Result<(String, Figures)> {
        self.timed_on(&CLIENT_CORE.to_string(), program)
    }

    /// Runs a program on these cores (in the form of taskset) and reads the cores' counters around it.
    fn timed_on(&self, cores: &str, program: &mut Command) -> Result<(String, Figures)> {
        let mut command = Command::new("taskset");
        command.args(["-c", cores]).arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        let (cores, cpu) = (cpu_times()?, children_cpu()?);
        // With exit status 3 (invalid) the figures are printed, too.
        let text = match command.output().with_context(|| format!("{command:?}"))? {
            output if output.status.code() == Some(3) => String::from_utf8_lossy(&output.stdout).into_owned(),
            output if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
            _ => output(&mut command)?,
        };
        let (cores_after, cpu_after) = (cpu_times()?, children_cpu()?);
        let cpu_time = |core: usize| {
            let of = |times: &[(usize, sys::accounting::CpuTimes)]| {
                times.iter().find(|(number, _)| *number == core).map(|(_, times)| *times).context("a core is missing")
            };
            anyhow::Ok(of(&cores_after)?.since(&of(&cores)?))
        };
        let busy = |core: usize| {
            let used = cpu_time(core)?;
            let busy = used.busy().as_secs_f64();
            anyhow::Ok(busy / (busy + used.idle.as_secs_f64() + used.iowait.as_secs_f64()).max(1e-9))
        };
        let figures = Figures {
            rate: 0.0,
            failed: 0,
            lag_ns: (0, 0),
            host: None,
            client_core: busy(CLIENT_CORE)?,
            server_core: busy(SERVER_CORE)?,
            server_busy: cpu_time(SERVER_CORE)?.busy(),
            phase_s: 0.0,
            loop_busy: None,
            cpu: cpu_after.saturating_sub(cpu),
            requests: 0.0,
        };
        Ok((text, figures))
    }
}

impl Figures {
    /// Number of requests from the program's start to its end.
    pub fn requests(&self) -> f64 {
        self.requests
    }

    /// CPU time of the program per request, its start and end included.
    pub fn cpu_us_per_request(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.requests.max(1.0)
    }

    /// Requests per busy second of the loop.
    pub fn per_busy_second(&self) -> f64 {
        self.rate / self.loop_busy.unwrap_or(1.0).max(1e-9)
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>9.0}/s  {:>8.1} / {:>8.1}  CPU {:.2} us a request; cores {:.0} % and {:.0} %",
            self.rate,
            self.lag_ns.0 as f64 / 1e3,
            self.lag_ns.1 as f64 / 1e3,
            self.cpu_us_per_request(),
            100.0 * self.client_core,
            100.0 * self.server_core
        )?;
        if let Some(host) = &self.host {
            write!(f, "; {host}")?;
        }
        match self.failed {
            0 => Ok(()),
            failed => write!(f, "; {failed} failed"),
        }
    }
}

impl fmt::Display for HostShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "p99 without the machine's part {:.1} (woken late {:.1} ms, run queue {}, stolen {})",
            self.own_lag_p99_ns as f64 / 1e3,
            self.late_wakeups.as_secs_f64() * 1e3,
            self.run_queue_wait.map_or("?".into(), |wait| format!("{:.1} ms", wait.as_secs_f64() * 1e3)),
            self.stolen.map_or("?".into(), |share| format!("{:.1} %", 100.0 * share))
        )
    }
}

fn url() -> String {
    format!("http://127.0.0.1:{PORT}/1k.bin")
}

/// CPU time of the children that have exited so far.
fn children_cpu() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let us = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    Ok(Duration::from_micros(us.max(0) as u64))
}
