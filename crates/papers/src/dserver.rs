//! A student's report (Tokyo Denki University, by its hosts' names; 2001) on `Dserver`, a web server with as few
//! functions as possible, against Apache. `ab -n 1000` of 1 KB, 10 KB, 100 KB and 1 MB, one request at a time, over
//! 100BASE-TX.
//!
//! Here the small server is this program's, and nginx stands beside. Each is measured as `yamabiko ab -n 1000` does it
//! (HTTP/1.0, one connection per request, one at a time), through a path of 100 Mbit/s and then without a path, turn
//! and turn about.

mod paper;
mod rows;
mod summary;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use plan::{HttpVersion, LoadPlan, PathPlan, Plan, ServerPlan};
use schema::document::{Check, CheckState, Weight};
use schema::{Document, Reproduction};
use store::RunStore;
use sys::signal::Interrupts;
use units::BitRate;

pub use self::paper::{SIZES, Size};
pub use self::summary::summary;

use self::rows::DserverMeasurement;
use super::Reproduced;
use super::sheet::Sheet;
use experiment::ExperimentError;
use experiment::local::free_address;
use experiment::local::{CoreDivision, LocalServer};
use experiment::programs::apache::Apache;
use experiment::programs::nginx::Nginx;
use experiment::programs::quoted;
use experiment::{Order, Stage};

/// Its name among the reproductions.
pub const NAME: &str = "dserver";
/// Requests of each of the paper's measurements.
pub const REQUESTS: u64 = 1000;
/// The paper's network.
const LINK: Option<BitRate> = BitRate::from_bits_per_second(100_000_000);
/// Rounds without a path, where a thousand requests take a tenth of a second.
const ROUNDS: u32 = 5;
const PORT: u16 = 8080;
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// What to make.
#[derive(Clone, Debug)]
pub struct DserverOptions {
    /// As for every reproduction.
    pub order: Order,
    /// Requests of each measurement.
    pub requests: u64,
    /// Which of the paper's sizes, by their places in [`SIZES`].
    pub sizes: Vec<usize>,
}

impl DserverOptions {
    /// Time it takes, nearly: what the link needs for all the bytes.
    pub fn time(&self) -> Duration {
        let bytes: u64 = self.sizes.iter().filter_map(|&at| SIZES.get(at)).map(|size| size.bytes).sum();
        let link = LINK.map_or(1, BitRate::bits_per_second) as f64 / 8.0;
        let runs = ComparedServer::ALL.len() * self.sizes.len();
        let starts = Duration::from_secs(1) * runs as u32 + Duration::from_millis(500) * runs as u32 * ROUNDS;
        Duration::from_secs_f64((bytes * self.requests) as f64 * ComparedServer::ALL.len() as f64 / link).max(starts)
            + starts
    }
}

/// A server that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedServer {
    /// As the distribution sets it up: event MPM, access log.
    Apache,
    /// As the distribution sets it up, with one worker; not in the paper.
    Nginx,
    /// This program's, in the place of Dserver.
    Yamabiko,
}

impl ComparedServer {
    /// All, in the order in which they take turns.
    pub const ALL: [ComparedServer; 3] = [ComparedServer::Apache, ComparedServer::Nginx, ComparedServer::Yamabiko];

    /// As in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            ComparedServer::Apache => "Apache",
            ComparedServer::Nginx => "nginx",
            ComparedServer::Yamabiko => "yamabiko",
        }
    }
}

/// What is between the client and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathSetting {
    /// A link of 100 Mbit/s each way, without delay.
    Link,
    /// This host's loopback.
    Direct,
}

impl PathSetting {
    /// Both.
    pub const ALL: [PathSetting; 2] = [PathSetting::Link, PathSetting::Direct];

    /// As in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            PathSetting::Link => "100 Mbit/s",
            PathSetting::Direct => "no path",
        }
    }
}

/// Makes the measurements, and puts the paper beside them. Must be called while this process has one thread, since the
/// lab forks. An interrupt ends it with the measurement at hand; what was made by then is in the document.
///
/// # Errors
/// Apache or nginx is not installed; the lab could not make a run; the book cannot be written.
pub fn make(
    asked: &DserverOptions,
    book: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<Reproduced, ExperimentError> {
    let folder = tempfile::tempdir().map_err(ExperimentError::file(std::env::temp_dir()))?;
    prepare(folder.path())?;
    let kitchen = Kitchen {
        asked,
        book,
        interrupts,
        folder: folder.path(),
        apache: Apache::find()?,
        nginx: Nginx::find()?,
        division: CoreDivision::of_this_machine()?,
    };
    let mut sheet = Sheet::new(book, NAME, &asked.order, stage)?;
    let mut stage = sheet.staging(stage);
    let mut made = Vec::new();
    kitchen.through_the_link(&mut sheet, &mut made, &mut stage)?;
    sheet.rows(&rows::rows(&made));
    kitchen.direct(&mut sheet, &mut made, &mut stage)?;
    let rows = rows::rows(&made);
    let part = Reproduction {
        name: NAME.into(),
        about: kitchen.about(),
        answer: summary::answer(&rows),
        notes: summary::NOTES.map(str::to_owned).to_vec(),
        rows,
        runs: Vec::new(),
    };
    sheet.close(&asked.order, interrupts.count() > 0, part)
}

/// What every measurement is made with.
struct Kitchen<'a> {
    asked: &'a DserverOptions,
    book: &'a RunStore,
    interrupts: &'a Interrupts,
    folder: &'a Path,
    apache: Apache,
    nginx: Nginx,
    division: CoreDivision,
}

impl Kitchen<'_> {
    fn sizes(&self) -> impl Iterator<Item = &'static Size> {
        self.asked.sizes.iter().filter_map(|&at| SIZES.get(at))
    }

    /// The server is started for each measurement, in its own namespace at the far end of the link.
    fn through_the_link(
        &self,
        sheet: &mut Sheet,
        made: &mut Vec<DserverMeasurement>,
        stage: &mut dyn Stage,
    ) -> Result<(), ExperimentError> {
        let listen = SocketAddr::from(([198, 18, 0, 1], PORT));
        for size in self.sizes() {
            for server in ComparedServer::ALL {
                if self.interrupts.count() > 0 {
                    return Ok(());
                }
                let rate = LINK.map(path::Rate::Constant);
                let plan = Plan {
                    path: Some(PathPlan {
                        rtt: Some(Duration::ZERO),
                        up: rate.clone(),
                        down: rate,
                        ..PathPlan::default()
                    }),
                    server: Some(ServerPlan {
                        command: self.command(server, listen)?,
                        start_timeout: START_TIMEOUT,
                        ..ServerPlan::default()
                    }),
                    ..self.plan(server, PathSetting::Link, size, &format!("http://server:{PORT}/{}", size.file))
                };
                let name = format!("{}, {}, {}", size.name, server.name(), PathSetting::Link.name());
                let mut observer = stage.begin(&name);
                let document = testbed::bench(
                    &plan,
                    &self.asked.order.command,
                    Some(self.book),
                    self.interrupts,
                    observer.as_mut(),
                )?
                .document;
                self.take(sheet, made, &name, (server, PathSetting::Link, size), &document);
            }
        }
        Ok(())
    }

    /// All servers run at once, on loopback, and take turns.
    fn direct(
        &self,
        sheet: &mut Sheet,
        made: &mut Vec<DserverMeasurement>,
        stage: &mut dyn Stage,
    ) -> Result<(), ExperimentError> {
        let mut running = Vec::new();
        for server in ComparedServer::ALL {
            let listen = free_address()?;
            let command = self.command(server, listen)?;
            let log = self.folder.join(format!("{}.out", server.name()));
            running.push((server, listen, LocalServer::start(&command, listen, self.division.server.as_ref(), &log)?));
        }
        for size in self.sizes() {
            for round in 0..ROUNDS {
                let mut turn: Vec<_> = running.iter().collect();
                if round % 2 == 1 {
                    turn.reverse();
                }
                for (server, listen, _) in turn {
                    if self.interrupts.count() > 0 {
                        return Ok(());
                    }
                    let url = format!("http://{listen}/{}", size.file);
                    let plan = self.plan(*server, PathSetting::Direct, size, &url);
                    let name = format!(
                        "{}, {}, {}, round {}",
                        size.name,
                        server.name(),
                        PathSetting::Direct.name(),
                        round + 1
                    );
                    let mut observer = stage.begin(&name);
                    let document = self
                        .division
                        .as_load(|| {
                            testbed::bench(
                                &plan,
                                &self.asked.order.command,
                                Some(self.book),
                                self.interrupts,
                                observer.as_mut(),
                            )
                        })?
                        .document;
                    self.take(sheet, made, &name, (*server, PathSetting::Direct, size), &document);
                }
            }
        }
        Ok(())
    }

    /// As `yamabiko ab -n 1000 URL` makes it.
    fn plan(&self, server: ComparedServer, way: PathSetting, size: &Size, url: &str) -> Plan {
        let plain = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
        Plan {
            name: format!("{NAME}-{}-{}-{}", plain(size.name), plain(server.name()), plain(way.name())),
            seed: self.asked.order.seed,
            load: LoadPlan {
                http: HttpVersion::Http10,
                close: true,
                connections: Some(1),
                requests: Some(self.asked.requests),
                ..LoadPlan::get(url)
            },
            ..Plan::default()
        }
    }

    fn command(&self, server: ComparedServer, listen: SocketAddr) -> Result<String, ExperimentError> {
        match server {
            ComparedServer::Apache => self.apache.configure_at(self.folder, listen),
            ComparedServer::Nginx => self.nginx.configure_at(self.folder, listen),
            ComparedServer::Yamabiko => {
                // Dserver, too, wrote a line for each request.
                let log = quoted(&self.folder.join("yamabiko-access.log"));
                let (program, www) = (quoted(&self.asked.order.program), quoted(&self.folder.join("www")));
                Ok(format!("exec {program} serve {www} --listen {listen} --log {log}"))
            }
        }
    }

    fn take(
        &self,
        sheet: &mut Sheet,
        made: &mut Vec<DserverMeasurement>,
        name: &str,
        (server, way, size): (ComparedServer, PathSetting, &'static Size),
        document: &Document,
    ) {
        sheet.take(name, document, (way == PathSetting::Direct).then_some(&self.division));
        let one = DserverMeasurement::of(server, way, size, document);
        if one.missing > 0 && self.interrupts.count() == 0 {
            sheet.check(failed(name, one.missing));
        }
        made.push(one);
    }

    fn about(&self) -> String {
        format!(
            "P4: a student's report (Tokyo Denki University, by its hosts' names; 2001) on Dserver, a minimal web server, \
             against Apache. {} requests of each size, one at a time, one connection each, as `yamabiko ab -n {}` makes \
             them; through a link of 100 Mbit/s each way without delay, and without a path ({}; {ROUNDS} rounds turn and \
             turn about, medians). Servers: {} and {} as distributions set them up, nginx with one worker; this \
             program's; each writes a line for each request to an access log.",
            self.asked.requests,
            self.asked.requests,
            self.division.words(),
            self.apache.version(),
            self.nginx.version(),
        )
    }
}

/// Requests that failed make a time that is not of what was asked for.
fn failed(name: &str, missing: u64) -> Check {
    Check {
        name: format!("{name}: requests"),
        state: CheckState::Failed,
        weight: Weight::Invalid,
        value: Some(missing as f64),
        limit: Some(0.0),
        unit: "requests".into(),
        why: "requests that got no whole response of status 200: the time taken is not that of what was asked for"
            .into(),
    }
}

/// The served files, in a folder that the servers may read whoever they work as.
fn prepare(folder: &Path) -> Result<(), ExperimentError> {
    let www = folder.join("www");
    fs::create_dir(&www).map_err(ExperimentError::file(&www))?;
    for size in &SIZES {
        let bytes = vec![b'y'; size.bytes as usize];
        fs::write(www.join(size.file), bytes).map_err(ExperimentError::file(www.join(size.file)))?;
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(ExperimentError::file(folder))
}
