//! Transparent monitoring: Saito and Nakasho (Meiji University, 1999), performance evaluation by transparent monitoring
//! of the client. Its two experiments:
//!
//! | experiment | what |
//! |---|---|
//! | 1 | cost of the monitoring: repeated HTTP transfers of 100 KB, with and without the tap, by the amount transferred |
//! | 2 | what a server's log misses: 100 KB over 1.5 Mbit/s by more and more clients, the client's Tc against the log |
//!
//! ```text
//!   curl under the tap ──── link of a given bit rate ──── wire ──── nginx, Apache and their logs
//!   opened .. closed                                    SYN .. last byte     begun .. ended
//! ```
//!
//! Every run is made by the testbed (`net`, `net --tap`). The throughputs of experiment 1 come from the packet capture,
//! so that runs with and without the tap are measured alike. [`components`] explains how three vantage points of one
//! transfer are combined.

pub mod components;
mod log_comparison;
mod logs;
mod overhead;
mod rows;
mod summary;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use path::{QueueLimit, Rate};
use plan::{HostPlan, PathPlan, ServerPlan, ServerTcp, TargetPlan, WatchPlan};
use schema::document::{Check, CheckState, Weight};
use schema::{Reproduction, ReproductionDocument};
use store::RunStore;
use sys::signal::Interrupts;
use testbed::net::{NetOutcome, NetPlan};
use testbed::tapping::TapPlan;
use units::BitRate;

pub use self::log_comparison::{Band, LogComparison, bands};
pub use self::overhead::{Overhead, OverheadPoint};
pub use self::rows::{TAP_COST, setting_of_link};
pub use self::summary::summary;

use super::builder::DocumentBuilder;
use experiment::ExperimentError;
use experiment::programs::apache::Apache;
use experiment::programs::curl::Curl;
use experiment::programs::nginx::Nginx;
use experiment::{Order, Stage};

/// Name of the reproduction.
pub const NAME: &str = "transparent";
/// The paper's 100 KB.
const FILE_BYTES: usize = 100 << 10;
const FILE: &str = "100k.bin";
const PORT: u16 = 8080;
/// Duration of experiment 2 per server with `--full`.
pub const FULL: Duration = Duration::from_secs(600);
/// Most concurrent clients: each then has a fiftieth of the link, and a transfer takes the 28 s of the paper's largest
/// difference.
const CLIENTS: u32 = 50;
/// Shortest interval between the starts of two clients.
const INTERVAL_MIN: Duration = Duration::from_millis(500);

/// The link between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitoredLink {
    /// The paper's Ethernet.
    Ethernet,
    /// Without a rate limit.
    Unlimited,
    /// The paper's leased line. Its delay and queue are not published.
    Leased,
}

impl MonitoredLink {
    /// Name in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            MonitoredLink::Ethernet => "10 Mbit/s",
            MonitoredLink::Unlimited => "no limit",
            MonitoredLink::Leased => "1.5 Mbit/s",
        }
    }

    fn bits_per_second(self) -> Option<u64> {
        match self {
            MonitoredLink::Ethernet => Some(10_000_000),
            MonitoredLink::Unlimited => None,
            MonitoredLink::Leased => Some(1_500_000),
        }
    }

    fn path(self) -> PathPlan {
        let rate = self.bits_per_second().and_then(BitRate::from_bits_per_second).map(Rate::Constant);
        let leased = self == MonitoredLink::Leased;
        PathPlan {
            rtt: Some(if leased { LEASED_RTT } else { Duration::ZERO }),
            up: rate.clone(),
            down: rate,
            queue: leased.then_some(LEASED_QUEUE),
            ..PathPlan::default()
        }
    }

    /// TCP settings of the server. On the leased line, where they decide about queueing and loss, those of 1999: a
    /// default of bbr would keep the queue empty.
    fn tcp(self) -> ServerTcp {
        match self {
            MonitoredLink::Leased => ServerTcp { initcwnd: Some(FIRST_WINDOW), cc: Some("reno".into()) },
            MonitoredLink::Ethernet | MonitoredLink::Unlimited => ServerTcp::default(),
        }
    }
}

/// Initial window of 2 segments, as in 1999.
const FIRST_WINDOW: u32 = 2;
/// Chosen here: a line of some hundred kilometres.
const LEASED_RTT: Duration = Duration::from_millis(10);
/// Chosen here: a typical queue of the time, the default of Dummynet.
const LEASED_QUEUE: QueueLimit = QueueLimit::Packets(50);

/// A server with its access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggingServer {
    /// nginx, `$request_time`.
    Nginx,
    /// Apache, `%D`.
    Apache,
}

impl LoggingServer {
    /// Both servers.
    pub const ALL: [LoggingServer; 2] = [LoggingServer::Nginx, LoggingServer::Apache];

    /// Name in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            LoggingServer::Nginx => "nginx",
            LoggingServer::Apache => "Apache",
        }
    }
}

/// Options of the reproduction.
#[derive(Clone, Debug)]
pub struct TransparentOptions {
    /// Options that every reproduction has.
    pub order: Order,
    /// Numbers of the experiments, 1 and 2.
    pub experiments: Vec<u8>,
    /// Duration of experiment 2 per server; the amount of experiment 1 grows with it.
    pub time: Duration,
}

impl TransparentOptions {
    /// Approximate duration.
    pub fn time(&self) -> Duration {
        let start = Duration::from_millis(900);
        let mut all = Duration::ZERO;
        if self.experiments.contains(&1) {
            for link in overhead::LINKS {
                let each = match link.bits_per_second() {
                    Some(bits) => (FILE_BYTES * 8) as f64 * 1.06 / bits as f64,
                    // Throughput of a machine with two cores.
                    None => 600e-6,
                };
                let run = start + Duration::from_secs_f64(each * self.transfers(link) as f64);
                all += run * overhead::order(link, self.time).len() as u32;
            }
        }
        if self.experiments.contains(&2) {
            let (clients, _) = self.load();
            // Transfers in flight are completed, each with its share of the link.
            let drain = Duration::from_secs_f64(f64::from(clients) * (FILE_BYTES * 8) as f64 * 1.06 / 1.5e6);
            all += (start + self.time + drain) * LoggingServer::ALL.len() as u32;
        }
        all
    }

    /// Transfers of one run of experiment 1: 1, 3, 10, 30 and so on.
    fn transfers(&self, link: MonitoredLink) -> u64 {
        let fits = self.time.as_secs_f64() / 0.6;
        let steps = [1, 3, 10, 30, 100, 300, 1000];
        let fits = steps.into_iter().rev().find(|&step| step as f64 <= fits).unwrap_or(1);
        match link {
            MonitoredLink::Unlimited => (fits * 100).min(10_000),
            _ => fits,
        }
    }

    /// Clients of experiment 2 at its end, and the interval between their starts.
    fn load(&self) -> (u32, Duration) {
        let interval = (self.time / CLIENTS).max(INTERVAL_MIN);
        let clients = (self.time.as_secs_f64() / interval.as_secs_f64()).round() as u32;
        (clients.clamp(1, CLIENTS), interval)
    }
}

/// A finished reproduction.
#[derive(Debug)]
pub struct TransparentReproduced {
    /// The complete document.
    pub document: ReproductionDocument,
    /// Experiment 1, by link.
    pub overheads: Vec<Overhead>,
    /// Experiment 2, by server.
    pub log_comparisons: Vec<LogComparison>,
    /// Folder in the run store.
    pub folder: PathBuf,
}

/// Runs the experiments and compares them with the paper. Must be called while this process has one thread, since the
/// testbed forks. An interrupt ends it during the current run; earlier ones stay in the document.
///
/// # Errors
/// curl, nginx or Apache is not installed, the testbed could not make a run, or the run store or a log cannot be read
/// or written.
pub fn make(
    input: &TransparentOptions,
    run_store: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<TransparentReproduced, ExperimentError> {
    let folder = tempfile::tempdir().map_err(ExperimentError::file(std::env::temp_dir()))?;
    prepare(folder.path())?;
    let (curl, nginx, apache) = (Curl::find()?, Nginx::find()?, Apache::find()?);
    let builder = DocumentBuilder::new(run_store, NAME, &input.order, stage)?;
    let mut stage = builder.staging(stage);
    let folder = folder.path();
    let mut context =
        MeasurementContext { input, run_store, interrupts, stage: &mut stage, folder, curl, nginx, apache, builder };
    let overheads = if input.experiments.contains(&1) { overhead::make(&mut context)? } else { Vec::new() };
    context.builder.rows(&overhead::rows(&overheads));
    let log_comparisons = if input.experiments.contains(&2) { log_comparison::make(&mut context)? } else { Vec::new() };
    let mut rows = overhead::rows(&overheads);
    rows.extend(log_comparison::rows(&log_comparisons));
    let part = Reproduction {
        name: NAME.into(),
        about: summary::about(input, &[context.curl.version(), context.nginx.version(), context.apache.version()]),
        answer: summary::result_sentence(&rows),
        notes: summary::NOTES.map(str::to_owned).to_vec(),
        rows,
        runs: Vec::new(),
    };
    let reproduced = context.builder.close(&input.order, interrupts.count() > 0, part)?;
    Ok(TransparentReproduced { document: reproduced.document, overheads, log_comparisons, folder: reproduced.folder })
}

/// What all runs share.
struct MeasurementContext<'a> {
    input: &'a TransparentOptions,
    run_store: &'a RunStore,
    interrupts: &'a Interrupts,
    stage: &'a mut dyn Stage,
    folder: &'a Path,
    curl: Curl,
    nginx: Nginx,
    apache: Apache,
    builder: DocumentBuilder,
}

/// A run to be made.
struct RunRequest<'a> {
    /// Label for progress and checks.
    name: &'a str,
    link: MonitoredLink,
    server: LoggingServer,
    /// Shell command at the clients' end, started when the server listens.
    script: &'a str,
    tap: bool,
}

impl MeasurementContext<'_> {
    /// Whether to continue.
    fn interrupted(&self) -> bool {
        self.interrupts.count() > 0
    }

    fn url(&self) -> String {
        format!("http://server:{PORT}/{FILE}")
    }

    /// Access log of a server, with the lines of the last run only.
    fn access_log(&self, server: LoggingServer) -> PathBuf {
        match server {
            LoggingServer::Nginx => self.nginx.access_log(self.folder),
            LoggingServer::Apache => self.apache.access_log(self.folder),
        }
    }

    /// Makes a run, and adds its checks.
    fn run_one(&mut self, request: &RunRequest<'_>) -> Result<NetOutcome, ExperimentError> {
        let listen = std::net::SocketAddr::from(([198, 18, 0, 1], PORT));
        let (command, pid_file) = match request.server {
            LoggingServer::Nginx => (
                self.nginx.configure_logging(self.folder, listen, Some(logs::NGINX_FORMAT))?,
                self.nginx.pid_file(self.folder),
            ),
            LoggingServer::Apache => (
                self.apache.configure_logging(self.folder, listen, logs::APACHE_FORMAT)?,
                self.apache.pid_file(self.folder),
            ),
        };
        for old in [&pid_file, &self.access_log(request.server)] {
            match fs::remove_file(old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(ExperimentError::file(old)(error));
                }
                _ => {}
            }
        }
        let plain: String = request.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let plan = NetPlan {
            path: request.link.path(),
            server: Some(ServerPlan {
                command,
                tcp: request.link.tcp(),
                start_timeout: START_TIMEOUT,
                ..ServerPlan::default()
            }),
            target: TargetPlan::default(),
            to: Vec::new(),
            clients: 1,
            watch: WatchPlan::default(),
            tap: request.tap.then(TapPlan::default),
            host: HostPlan::default(),
            seed: self.input.order.seed,
            run_store: Some(self.run_store.clone()),
            name: format!("{NAME}-{}", plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")),
        };
        let script = format!("{}{}", wait_until_exists(&pid_file), request.script);
        let command = ["/bin/sh", "-c", &script].map(OsString::from);
        // Without a load only the start is observed.
        let _ = self.stage.begin(request.name);
        let outcome = testbed::net(&plan, &command, Some(self.interrupts), |_| {})?;
        self.builder.take(request.name, &outcome.document, None);
        Ok(outcome)
    }

    /// Adds a check that two counts are equal; none for an interrupted run.
    fn expect(&mut self, name: &str, what: &str, weight: Weight, (actual, expected): (u64, u64), whys: [&str; 2]) {
        if self.interrupted() {
            return;
        }
        self.builder.check(Check {
            name: format!("{name}: {what}"),
            state: if actual == expected { CheckState::Ok } else { CheckState::Failed },
            weight,
            value: Some(actual as f64),
            limit: Some(expected as f64),
            unit: "transfers".into(),
            why: whys[usize::from(actual != expected)].into(),
        });
    }
}

/// Start timeout of a server.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Shell code that waits for a file which the server writes when it listens; gives up after 20 s.
fn wait_until_exists(file: &Path) -> String {
    let file = experiment::programs::quoted(file);
    format!(
        "end=$(($(date +%s)+20)); until [ -e {file} ]; do [ $(date +%s) -lt $end ] || \
         {{ echo 'the server does not listen' >&2; exit 3; }}; sleep 0.05; done; "
    )
}

/// The served file, in a folder readable by every user that a server may run as.
fn prepare(folder: &Path) -> Result<(), ExperimentError> {
    let www = folder.join("www");
    fs::create_dir(&www).map_err(ExperimentError::file(&www))?;
    fs::write(www.join(FILE), vec![b'y'; FILE_BYTES]).map_err(ExperimentError::file(www.join(FILE)))?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(ExperimentError::file(folder))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn input(time: Duration) -> TransparentOptions {
        let order = Order { program: "y".into(), seed: 1, command: String::new(), started: SystemTime::UNIX_EPOCH };
        TransparentOptions { order, experiments: vec![1, 2], time }
    }

    #[test]
    fn longer_duration_transfers_more_and_raises_the_load() {
        let of = |seconds| {
            let input = input(Duration::from_secs(seconds));
            (input.transfers(MonitoredLink::Ethernet), input.transfers(MonitoredLink::Unlimited), input.load())
        };
        assert_eq!(of(90), (100, 10_000, (50, Duration::from_millis(1800))));
        assert_eq!(of(1), (1, 100, (2, Duration::from_millis(500))));
        assert_eq!(of(600), (1000, 10_000, (50, Duration::from_secs(12))));
        let whole = input(Duration::from_secs(90)).time();
        assert!((240..480).contains(&whole.as_secs()), "some minutes: {whole:?}");
    }
}
