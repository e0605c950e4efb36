//! Saito and Nakasho (Meiji University, 1999), performance evaluation by transparent monitoring of the client. Its
//! two experiments:
//!
//! | experiment | what |
//! |---|---|
//! | 1 | what the monitoring costs: 100 KB by HTTP, again and again, with and without the tap, by the amount transferred |
//! | 2 | what a server's log does not see: 100 KB over 1.5 Mbit/s by more and more clients, the client's Tc beside the log |
//!
//! ```text
//!   curl under the tap ──── link of so many bits a second ──── wire ──── nginx, Apache and their logs
//!   opened .. closed                                    SYN .. last byte     begun .. ended
//! ```
//!
//! Every run is one of the lab's (`net`, `net --tap`). The throughputs of experiment 1 are the wire's, so that the same
//! witness speaks with the tap and without. Read [`parts`] for how three witnesses of one transfer are put together.

mod climb;
mod logs;
mod overhead;
pub mod parts;
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

pub use self::climb::{Band, Climb, bands};
pub use self::overhead::{Overhead, OverheadPoint};
pub use self::rows::{LOST, setting_of_link};
pub use self::summary::summary;

use super::sheet::Sheet;
use experiment::ExperimentError;
use experiment::programs::apache::Apache;
use experiment::programs::curl::Curl;
use experiment::programs::nginx::Nginx;
use experiment::{Order, Stage};

/// Its name among the reproductions.
pub const NAME: &str = "transparent";
/// The paper's 100 KB.
const FILE_BYTES: usize = 100 << 10;
const FILE: &str = "100k.bin";
const PORT: u16 = 8080;
/// How long experiment 2 raises its load with `--full`.
pub const FULL: Duration = Duration::from_secs(600);
/// Most clients at once: by then each has a fiftieth of the link and takes the 28 s by which the paper's log was wrong at
/// most.
const CLIENTS: u32 = 50;
/// A client more at least so far apart.
const INTERVAL_MIN: Duration = Duration::from_millis(500);

/// A link between the client and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitoredLink {
    /// The paper's Ethernet.
    Ethernet,
    /// As fast as this machine's path is.
    Unlimited,
    /// The paper's leased line. It had a delay, which the paper does not publish; and a queue, likewise.
    Leased,
}

impl MonitoredLink {
    /// As in the rows.
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

    /// The server's TCP. On the leased line, where it decides what waits and what is lost, as it was then: a kernel that
    /// defaults to bbr would keep the queue empty.
    fn tcp(self) -> ServerTcp {
        match self {
            MonitoredLink::Leased => ServerTcp { initcwnd: Some(FIRST_WINDOW), cc: Some("reno".into()) },
            MonitoredLink::Ethernet | MonitoredLink::Unlimited => ServerTcp::default(),
        }
    }
}

/// A first window of 2 segments, as servers of the time had it.
const FIRST_WINDOW: u32 = 2;
/// Ours: a line of some hundred kilometres.
const LEASED_RTT: Duration = Duration::from_millis(10);
/// Ours: what a queue of that time held, as Dummynet's did.
const LEASED_QUEUE: QueueLimit = QueueLimit::Packets(50);

/// A server whose log is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoggingServer {
    /// Its `$request_time`.
    Nginx,
    /// Its `%D`.
    Apache,
}

impl LoggingServer {
    /// Both.
    pub const ALL: [LoggingServer; 2] = [LoggingServer::Nginx, LoggingServer::Apache];

    /// As in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            LoggingServer::Nginx => "nginx",
            LoggingServer::Apache => "Apache",
        }
    }
}

/// What to make.
#[derive(Clone, Debug)]
pub struct TransparentOptions {
    /// As for every reproduction.
    pub order: Order,
    /// Numbers of the experiments, 1 and 2.
    pub experiments: Vec<u8>,
    /// How long experiment 2 raises its load on each server; experiment 1 transfers the more the longer.
    pub time: Duration,
}

impl TransparentOptions {
    /// Time it takes, nearly.
    pub fn time(&self) -> Duration {
        let start = Duration::from_millis(900);
        let mut all = Duration::ZERO;
        if self.experiments.contains(&1) {
            for link in overhead::LINKS {
                let each = match link.bits_per_second() {
                    Some(bits) => (FILE_BYTES * 8) as f64 * 1.06 / bits as f64,
                    // What a machine of two cores does.
                    None => 600e-6,
                };
                let run = start + Duration::from_secs_f64(each * self.transfers(link) as f64);
                all += run * overhead::order(link, self.time).len() as u32;
            }
        }
        if self.experiments.contains(&2) {
            let (clients, _) = self.load();
            // Those that have begun are waited for, each with its share of the link.
            let drain = Duration::from_secs_f64(f64::from(clients) * (FILE_BYTES * 8) as f64 * 1.06 / 1.5e6);
            all += (start + self.time + drain) * LoggingServer::ALL.len() as u32;
        }
        all
    }

    /// Transfers of one run of experiment 1: 1, 3, 10, 30 and on.
    fn transfers(&self, link: MonitoredLink) -> u64 {
        let fits = self.time.as_secs_f64() / 0.6;
        let steps = [1, 3, 10, 30, 100, 300, 1000];
        let fits = steps.into_iter().rev().find(|&step| step as f64 <= fits).unwrap_or(1);
        match link {
            MonitoredLink::Unlimited => (fits * 100).min(10_000),
            _ => fits,
        }
    }

    /// Clients of experiment 2 at its end, and how far apart they begin.
    fn load(&self) -> (u32, Duration) {
        let interval = (self.time / CLIENTS).max(INTERVAL_MIN);
        let clients = (self.time.as_secs_f64() / interval.as_secs_f64()).round() as u32;
        (clients.clamp(1, CLIENTS), interval)
    }
}

/// A reproduction that was made.
#[derive(Debug)]
pub struct TransparentReproduced {
    /// Its document.
    pub document: ReproductionDocument,
    /// Experiment 1, by link.
    pub overheads: Vec<Overhead>,
    /// Experiment 2, by server.
    pub climbs: Vec<Climb>,
    /// Its folder in the book.
    pub folder: PathBuf,
}

/// Makes the experiments asked for, and puts the paper beside them. Must be called while this process has one thread,
/// since the lab forks. An interrupt ends it with the run at hand; what was made by then is in the document.
///
/// # Errors
/// curl, nginx or Apache is not installed; the lab could not make a run; the book or a log cannot be read or written.
pub fn make(
    asked: &TransparentOptions,
    book: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<TransparentReproduced, ExperimentError> {
    let folder = tempfile::tempdir().map_err(ExperimentError::file(std::env::temp_dir()))?;
    prepare(folder.path())?;
    let (curl, nginx, apache) = (Curl::find()?, Nginx::find()?, Apache::find()?);
    let sheet = Sheet::new(book, NAME, &asked.order, stage)?;
    let mut stage = sheet.staging(stage);
    let folder = folder.path();
    let mut kitchen = Kitchen { asked, book, interrupts, stage: &mut stage, folder, curl, nginx, apache, sheet };
    let overheads = if asked.experiments.contains(&1) { overhead::make(&mut kitchen)? } else { Vec::new() };
    kitchen.sheet.rows(&overhead::rows(&overheads));
    let climbs = if asked.experiments.contains(&2) { climb::make(&mut kitchen)? } else { Vec::new() };
    let mut rows = overhead::rows(&overheads);
    rows.extend(climb::rows(&climbs));
    let part = Reproduction {
        name: NAME.into(),
        about: summary::about(asked, &[kitchen.curl.version(), kitchen.nginx.version(), kitchen.apache.version()]),
        answer: summary::answer(&rows),
        notes: summary::NOTES.map(str::to_owned).to_vec(),
        rows,
        runs: Vec::new(),
    };
    let made = kitchen.sheet.close(&asked.order, interrupts.count() > 0, part)?;
    Ok(TransparentReproduced { document: made.document, overheads, climbs, folder: made.folder })
}

/// What every run is made with.
struct Kitchen<'a> {
    asked: &'a TransparentOptions,
    book: &'a RunStore,
    interrupts: &'a Interrupts,
    stage: &'a mut dyn Stage,
    folder: &'a Path,
    curl: Curl,
    nginx: Nginx,
    apache: Apache,
    sheet: Sheet,
}

/// What a run is to be.
struct Dish<'a> {
    /// In words, for who waits and for the checks.
    name: &'a str,
    link: MonitoredLink,
    server: LoggingServer,
    /// What the shell at the clients' end does when the server listens.
    script: &'a str,
    tap: bool,
}

impl Kitchen<'_> {
    /// Whether to go on.
    fn interrupted(&self) -> bool {
        self.interrupts.count() > 0
    }

    fn url(&self) -> String {
        format!("http://server:{PORT}/{FILE}")
    }

    /// Its access log, which holds the lines of the last run only.
    fn access_log(&self, server: LoggingServer) -> PathBuf {
        match server {
            LoggingServer::Nginx => self.nginx.access_log(self.folder),
            LoggingServer::Apache => self.apache.access_log(self.folder),
        }
    }

    /// Makes a run, and takes its checks in.
    fn cook(&mut self, dish: &Dish<'_>) -> Result<NetOutcome, ExperimentError> {
        let listen = std::net::SocketAddr::from(([198, 18, 0, 1], PORT));
        let (command, pid_file) = match dish.server {
            LoggingServer::Nginx => (
                self.nginx.configure_logging(self.folder, listen, Some(logs::NGINX_FORMAT))?,
                self.nginx.pid_file(self.folder),
            ),
            LoggingServer::Apache => (
                self.apache.configure_logging(self.folder, listen, logs::APACHE_FORMAT)?,
                self.apache.pid_file(self.folder),
            ),
        };
        for old in [&pid_file, &self.access_log(dish.server)] {
            match fs::remove_file(old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(ExperimentError::file(old)(error));
                }
                _ => {}
            }
        }
        let plain: String = dish.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let plan = NetPlan {
            path: dish.link.path(),
            server: Some(ServerPlan { command, tcp: dish.link.tcp(), start_timeout: START, ..ServerPlan::default() }),
            target: TargetPlan::default(),
            to: Vec::new(),
            clients: 1,
            watch: WatchPlan::default(),
            tap: dish.tap.then(TapPlan::default),
            host: HostPlan::default(),
            seed: self.asked.order.seed,
            book: Some(self.book.clone()),
            name: format!("{NAME}-{}", plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")),
        };
        let script = format!("{}{}", wait_until_there(&pid_file), dish.script);
        let command = ["/bin/sh", "-c", &script].map(OsString::from);
        // It has no load to observe; that it began is what is told.
        let _ = self.stage.begin(dish.name);
        let outcome = testbed::net(&plan, &command, Some(self.interrupts), |_| {})?;
        self.sheet.take(dish.name, &outcome.document, None);
        Ok(outcome)
    }

    /// Takes in whether two counts are what they must be; nothing is said of a run that was interrupted.
    fn expect(&mut self, name: &str, what: &str, weight: Weight, (got, wanted): (u64, u64), whys: [&str; 2]) {
        if self.interrupted() {
            return;
        }
        self.sheet.check(Check {
            name: format!("{name}: {what}"),
            state: if got == wanted { CheckState::Ok } else { CheckState::Failed },
            weight,
            value: Some(got as f64),
            limit: Some(wanted as f64),
            unit: "transfers".into(),
            why: whys[usize::from(got != wanted)].into(),
        });
    }
}

/// A server may take so long until it listens.
const START: Duration = Duration::from_secs(10);

/// Shell that waits until a file is there, which the server writes when it listens; a server that never does is given up
/// after 20 s of the clock.
fn wait_until_there(file: &Path) -> String {
    let file = experiment::programs::quoted(file);
    format!(
        "end=$(($(date +%s)+20)); until [ -e {file} ]; do [ $(date +%s) -lt $end ] || \
         {{ echo 'the server does not listen' >&2; exit 3; }}; sleep 0.05; done; "
    )
}

/// The served file, in a folder that the servers may read whoever they work as.
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

    fn asked(time: Duration) -> TransparentOptions {
        let order = Order { program: "y".into(), seed: 1, command: String::new(), started: SystemTime::UNIX_EPOCH };
        TransparentOptions { order, experiments: vec![1, 2], time }
    }

    #[test]
    fn the_longer_the_more_is_transferred_and_the_higher_the_load() {
        let of = |seconds| {
            let asked = asked(Duration::from_secs(seconds));
            (asked.transfers(MonitoredLink::Ethernet), asked.transfers(MonitoredLink::Unlimited), asked.load())
        };
        assert_eq!(of(90), (100, 10_000, (50, Duration::from_millis(1800))));
        assert_eq!(of(1), (1, 100, (2, Duration::from_millis(500))));
        assert_eq!(of(600), (1000, 10_000, (50, Duration::from_secs(12))));
        let whole = asked(Duration::from_secs(90)).time();
        assert!((240..480).contains(&whole.as_secs()), "some minutes: {whole:?}");
    }
}
