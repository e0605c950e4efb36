//! A student report (by its host names Tokyo Denki University, 2001) on `Dserver`, a minimal web server, against
//! Apache: `ab -n 1000` with 1 KB, 10 KB, 100 KB and 1 MB, one request at a time, over 100BASE-TX.
//!
//! Here `yamabiko serve` takes the place of Dserver, and nginx is added. Each is measured as by `yamabiko ab -n 1000`
//! (HTTP/1.0, one connection per request, one at a time), through a path of 100 Mbit/s and without a path, interleaved.

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
use super::builder::DocumentBuilder;
use experiment::ExperimentError;
use experiment::local::free_address;
use experiment::local::{CoreDivision, LocalServer};
use experiment::programs::apache::Apache;
use experiment::programs::nginx::Nginx;
use experiment::programs::quoted;
use experiment::{Order, Stage};

/// Name of the reproduction.
pub const NAME: &str = "dserver";
/// Requests per measurement in the paper.
pub const REQUESTS: u64 = 1000;
/// Bandwidth of the paper's network.
const LINK_RATE: Option<BitRate> = BitRate::from_bits_per_second(100_000_000);
/// Rounds without a path, where a thousand requests take a tenth of a second.
const ROUNDS: u32 = 5;
const PORT: u16 = 8080;
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// Options of the reproduction.
#[derive(Clone, Debug)]
pub struct DserverOptions {
    /// Options that every reproduction has.
    pub order: Order,
    /// Requests per measurement.
    pub requests: u64,
    /// Indexes into [`SIZES`].
    pub sizes: Vec<usize>,
}

impl DserverOptions {
    /// Approximate duration: the link's time for all bytes.
    pub fn time(&self) -> Duration {
        let bytes: u64 = self.sizes.iter().filter_map(|&at| SIZES.get(at)).map(|size| size.bytes).sum();
        let link = LINK_RATE.map_or(1, BitRate::bits_per_second) as f64 / 8.0;
        let runs = ComparedServer::ALL.len() * self.sizes.len();
        let starts = Duration::from_secs(1) * runs as u32 + Duration::from_millis(500) * runs as u32 * ROUNDS;
        Duration::from_secs_f64((bytes * self.requests) as f64 * ComparedServer::ALL.len() as f64 / link).max(starts)
            + starts
    }
}

/// A measured server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedServer {
    /// Apache with the distribution's settings: event MPM, access log.
    Apache,
    /// nginx with the distribution's settings and one worker; not in the paper.
    Nginx,
    /// `yamabiko serve`, in the place of Dserver.
    Yamabiko,
}

impl ComparedServer {
    /// All servers, in the order of measurement.
    pub const ALL: [ComparedServer; 3] = [ComparedServer::Apache, ComparedServer::Nginx, ComparedServer::Yamabiko];

    /// Name in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            ComparedServer::Apache => "Apache",
            ComparedServer::Nginx => "nginx",
            ComparedServer::Yamabiko => "yamabiko",
        }
    }
}

/// The network between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathSetting {
    /// A link of 100 Mbit/s each way, without delay.
    Link,
    /// Loopback.
    Direct,
}

impl PathSetting {
    /// Both networks, with a link and without.
    pub const ALL: [PathSetting; 2] = [PathSetting::Link, PathSetting::Direct];

    /// Name in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            PathSetting::Link => "100 Mbit/s",
            PathSetting::Direct => "no path",
        }
    }
}

/// Runs all measurements and compares them with the paper. Must be called while this process has one thread, since the
/// testbed forks. An interrupt ends it during the current measurement; earlier ones stay in the document.
///
/// # Errors
/// Apache or nginx is not installed, the testbed could not make a run, or the run store cannot be written.
pub fn make(
    input: &DserverOptions,
    run_store: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<Reproduced, ExperimentError> {
    let folder = tempfile::tempdir().map_err(ExperimentError::file(std::env::temp_dir()))?;
    prepare(folder.path())?;
    let context = MeasurementContext {
        input,
        run_store,
        interrupts,
        folder: folder.path(),
        apache: Apache::find()?,
        nginx: Nginx::find()?,
        division: CoreDivision::of_this_machine()?,
    };
    let mut builder = DocumentBuilder::new(run_store, NAME, &input.order, stage)?;
    let mut stage = builder.staging(stage);
    let mut measurements = Vec::new();
    context.through_the_link(&mut builder, &mut measurements, &mut stage)?;
    builder.rows(&rows::rows(&measurements));
    context.direct(&mut builder, &mut measurements, &mut stage)?;
    let rows = rows::rows(&measurements);
    let part = Reproduction {
        name: NAME.into(),
        about: context.about(),
        answer: summary::result_sentence(&rows),
        notes: summary::NOTES.map(str::to_owned).to_vec(),
        rows,
        runs: Vec::new(),
    };
    builder.close(&input.order, interrupts.count() > 0, part)
}

/// What all measurements share.
struct MeasurementContext<'a> {
    input: &'a DserverOptions,
    run_store: &'a RunStore,
    interrupts: &'a Interrupts,
    folder: &'a Path,
    apache: Apache,
    nginx: Nginx,
    division: CoreDivision,
}

impl MeasurementContext<'_> {
    fn sizes(&self) -> impl Iterator<Item = &'static Size> {
        self.input.sizes.iter().filter_map(|&at| SIZES.get(at))
    }

    /// The server is started per measurement, in its own namespace at the far end of the link.
    fn through_the_link(
        &self,
        builder: &mut DocumentBuilder,
        measurements: &mut Vec<DserverMeasurement>,
        stage: &mut dyn Stage,
    ) -> Result<(), ExperimentError> {
        let listen = SocketAddr::from(([198, 18, 0, 1], PORT));
        for size in self.sizes() {
            for server in ComparedServer::ALL {
                if self.interrupts.count() > 0 {
                    return Ok(());
                }
                let rate = LINK_RATE.map(path::Rate::Constant);
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
                    &self.input.order.command,
                    Some(self.run_store),
                    self.interrupts,
                    observer.as_mut(),
                )?
                .document;
                self.take(builder, measurements, &name, (server, PathSetting::Link, size), &document);
            }
        }
        Ok(())
    }

    /// All servers run at the same time, on loopback, and are measured in turn.
    fn direct(
        &self,
        builder: &mut DocumentBuilder,
        measurements: &mut Vec<DserverMeasurement>,
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
                                &self.input.order.command,
                                Some(self.run_store),
                                self.interrupts,
                                observer.as_mut(),
                            )
                        })?
                        .document;
                    self.take(builder, measurements, &name, (*server, PathSetting::Direct, size), &document);
                }
            }
        }
        Ok(())
    }

    /// The plan of `yamabiko ab -n 1000 URL`.
    fn plan(&self, server: ComparedServer, way: PathSetting, size: &Size, url: &str) -> Plan {
        let plain = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase();
        Plan {
            name: format!("{NAME}-{}-{}-{}", plain(size.name), plain(server.name()), plain(way.name())),
            seed: self.input.order.seed,
            load: LoadPlan {
                http: HttpVersion::Http10,
                close: true,
                connections: Some(1),
                requests: Some(self.input.requests),
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
                // Dserver also wrote a line per request.
                let log = quoted(&self.folder.join("yamabiko-access.log"));
                let (program, www) = (quoted(&self.input.order.program), quoted(&self.folder.join("www")));
                Ok(format!("exec {program} serve {www} --listen {listen} --log {log}"))
            }
        }
    }

    fn take(
        &self,
        builder: &mut DocumentBuilder,
        measurements: &mut Vec<DserverMeasurement>,
        name: &str,
        (server, way, size): (ComparedServer, PathSetting, &'static Size),
        document: &Document,
    ) {
        builder.take(name, document, (way == PathSetting::Direct).then_some(&self.division));
        let one = DserverMeasurement::of(server, way, size, document);
        if one.missing > 0 && self.interrupts.count() == 0 {
            builder.check(failed(name, one.missing));
        }
        measurements.push(one);
    }

    fn about(&self) -> String {
        format!(
            "Dserver: a student report (by its host names Tokyo Denki University, 2001) on a minimal web server \
             against Apache. {} requests per size, one at a time, one connection each, as by `yamabiko ab -n {}`; \
             through a link of 100 Mbit/s each way without delay, and without a path ({}; {ROUNDS} interleaved \
             rounds, medians). Servers: {} and {} with distribution settings, nginx with one worker; `yamabiko \
             serve`; each writes an access log line per request.",
            self.input.requests,
            self.input.requests,
            self.division.words(),
            self.apache.version(),
            self.nginx.version(),
        )
    }
}

/// Failed requests make the time incomparable.
fn failed(name: &str, missing: u64) -> Check {
    Check {
        name: format!("{name}: requests"),
        state: CheckState::Failed,
        weight: Weight::Invalid,
        value: Some(missing as f64),
        limit: Some(0.0),
        unit: "requests".into(),
        why: "requests without a complete response of status 200, so the time is not that of the planned requests"
            .into(),
    }
}

/// The served files, in a folder readable by every user that a server may run as.
fn prepare(folder: &Path) -> Result<(), ExperimentError> {
    let www = folder.join("www");
    fs::create_dir(&www).map_err(ExperimentError::file(&www))?;
    for size in &SIZES {
        let bytes = vec![b'y'; size.bytes as usize];
        fs::write(www.join(size.file), bytes).map_err(ExperimentError::file(www.join(size.file)))?;
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(ExperimentError::file(folder))
}
