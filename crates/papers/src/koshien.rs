//! Koshien (ENMA): Nishimura, Nakayama, Nakamura and Sunahara, a web server benchmark with network delay (about 2001).
//! Five experiments: one server, 110 requests a second for a file of 10 KB, one connection each; without distance, with
//! 48 ms for all, and with the RTTs of a real audience.
//!
//! The server is Apache, as in the paper. Experiments 1, 2 and 5 use Yamabiko's load from 100 client addresses; 3 and 4
//! use httperf at the far end of a path. All figures come from a packet capture at the server, as from ENMA. Each
//! experiment is made with TCP as in 2001 and as today.

mod capture;
mod checks;
mod rows;
mod summary;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use plan::{HostPlan, LoadPlan, PathPlan, Plan, ServerPlan, ServerTcp, TargetPlan, WatchPlan};
use schema::document::{Run, SCHEMA};
use schema::{Document, Reproduction, ReproductionDocument, Validity};
use store::RunStore;
use sys::signal::Interrupts;
use testbed::net::NetPlan;
use testbed::{Observer, TestbedError};
use units::RequestRate;

pub use self::capture::CaptureFigures;
pub use self::rows::KoshienMeasurement;
pub use self::summary::summary;

use experiment::ExperimentError;
use experiment::Stage;
use experiment::programs::apache::Apache;
use experiment::programs::httperf::{Call, Httperf, HttperfReport};
use experiment::progress::ExperimentProgress;
use experiment::verdict::{nothing_measured, of_run};

/// Name of the reproduction.
pub const NAME: &str = "koshien";
/// Requests per second.
pub const RATE_PER_S: f64 = 110.0;
/// Requests per experiment in the paper.
pub const REQUESTS: u64 = 100_000;
/// Client addresses of experiments 1, 2 and 5.
const CLIENTS: u32 = 100;
const FILE_BYTES: usize = 10 << 10;
const FILE: &str = "10k.bin";
const PORT: u16 = 8080;
/// Warm-up, in which the connections of distant clients accumulate.
pub const WARMUP: Duration = Duration::from_secs(8);
const TIMEOUT: Duration = Duration::from_secs(30);

/// One of the paper's experiments.
#[derive(Debug)]
pub struct KoshienExperiment {
    /// Number in the paper.
    pub number: u8,
    /// Short description.
    pub about: &'static str,
    generator: Generator,
    distance: Distance,
    published_connections: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Generator {
    Load,
    Httperf,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Distance {
    Constant(Duration),
    Profile(&'static str),
}

const NO_DISTANCE: Distance = Distance::Constant(Duration::ZERO);
const RTT_48_MS: Distance = Distance::Constant(Duration::from_millis(48));

/// All five.
pub const EXPERIMENTS: [KoshienExperiment; 5] = [
    KoshienExperiment {
        number: 1,
        about: "100 clients, no distance",
        generator: Generator::Load,
        distance: NO_DISTANCE,
        published_connections: Some("4 to 6"),
    },
    KoshienExperiment {
        number: 2,
        about: "100 clients, RTT 48 ms for all",
        generator: Generator::Load,
        distance: RTT_48_MS,
        published_connections: Some("about 25, steady"),
    },
    KoshienExperiment {
        number: 3,
        about: "httperf, no distance",
        generator: Generator::Httperf,
        distance: NO_DISTANCE,
        published_connections: Some("few, as in 1"),
    },
    KoshienExperiment {
        number: 4,
        about: "httperf, RTT 48 ms",
        generator: Generator::Httperf,
        distance: RTT_48_MS,
        published_connections: Some("nearly 20, steady"),
    },
    KoshienExperiment {
        number: 5,
        about: "100 clients, Koshien's distances",
        generator: Generator::Load,
        distance: Distance::Profile("koshien-2001"),
        published_connections: Some("around 60"),
    },
];

impl KoshienExperiment {
    /// Whether its clients are at different distances.
    pub fn varied(&self) -> bool {
        matches!(self.distance, Distance::Profile(_))
    }

    fn path(&self) -> PathPlan {
        let (profile, rtt) = match self.distance {
            Distance::Constant(rtt) => (None, Some(rtt)),
            Distance::Profile(name) => (Some(name.to_owned()), None),
        };
        PathPlan { profile, rtt, ..PathPlan::default() }
    }
}

/// TCP settings of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Initial window of 2 segments, and reno.
    Year2001,
    /// The kernel's defaults.
    Today,
}

impl Setting {
    /// Both TCP settings.
    pub const ALL: [Setting; 2] = [Setting::Year2001, Setting::Today];

    /// Name in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            Setting::Year2001 => "2001",
            Setting::Today => "today",
        }
    }

    /// Description as a sentence.
    pub const fn about(self) -> &'static str {
        match self {
            Setting::Year2001 => "The server's TCP has an initial window of 2 segments and reno, as in 2001.",
            Setting::Today => "The server's TCP has this machine's defaults.",
        }
    }

    fn tcp(self) -> ServerTcp {
        match self {
            Setting::Year2001 => ServerTcp { initcwnd: Some(2), cc: Some("reno".into()) },
            Setting::Today => ServerTcp::default(),
        }
    }
}

/// Length of each experiment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// A duration after the warm-up.
    Time(Duration),
    /// The paper's number of requests ([`REQUESTS`]) after the warm-up.
    Full,
}

/// Options of the reproduction.
#[derive(Clone, Debug)]
pub struct KoshienOptions {
    /// Numbers of the experiments, from 1 to 5.
    pub experiments: Vec<u8>,
    /// TCP settings to use for each.
    pub settings: Vec<Setting>,
    /// Length of each.
    pub length: Length,
    /// Seed of all random choices.
    pub seed: u64,
    /// Command that repeats the reproduction.
    pub command: String,
    /// Start time.
    pub started: SystemTime,
}

impl KoshienOptions {
    /// Duration without the start-up of servers.
    pub fn time(&self) -> Duration {
        let runs = self.experiments.len() * self.settings.len();
        (WARMUP + self.measured()) * runs as u32
    }

    fn measured(&self) -> Duration {
        match self.length {
            Length::Time(time) => time,
            Length::Full => Duration::from_secs_f64(REQUESTS as f64 / RATE_PER_S),
        }
    }
}

/// A finished reproduction.
#[derive(Debug)]
pub struct KoshienReproduced {
    /// The complete document.
    pub document: ReproductionDocument,
    /// Figures of each experiment, in order.
    pub measurements: Vec<KoshienMeasurement>,
    /// Folder in the run store.
    pub folder: PathBuf,
}

/// Runs the experiments and compares them with the paper. Must be called while this process has one thread, since the
/// testbed forks. An interrupt ends it during the current experiment; earlier ones stay in the document.
///
/// # Errors
/// Apache or httperf is not installed, the testbed could not make a run, or the run store cannot be written.
pub fn make(
    input: &KoshienOptions,
    run_store: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<KoshienReproduced, ExperimentError> {
    let chosen = || EXPERIMENTS.iter().filter(|experiment| input.experiments.contains(&experiment.number));
    let apache = Apache::find()?;
    let httperf = match chosen().any(|experiment| experiment.generator == Generator::Httperf) {
        true => Some(Httperf::find()?),
        false => None,
    };
    let folder = tempfile::tempdir().map_err(ExperimentError::file(std::env::temp_dir()))?;
    prepare(folder.path())?;
    let context = MeasurementContext {
        input,
        run_store,
        interrupts,
        folder: folder.path(),
        // Serialised once, since the testbed may change this process's user.
        apache: apache.configure(folder.path(), PORT)?,
        httperf,
    };

    let record = run_store.create("reproduce-koshien", input.started, input.seed)?;
    let showing = ExperimentProgress::begin(&record, "reproduce", &input.command, input.seed, stage);
    let mut stage = showing.staging(stage);
    let mut measurements = Vec::new();
    let mut checks = Vec::new();
    let mut runs = Vec::new();
    let mut host = None;
    let mut duration_s = 0.0;
    for experiment in chosen() {
        for &setting in &input.settings {
            if interrupts.count() > 0 {
                break;
            }
            let name = format!("experiment {}, TCP of {}", experiment.number, setting.name());
            let mut observer = stage.begin(&name);
            let (dir, document, text) = context.run_one(experiment, setting, observer.as_mut())?;
            checks.extend(of_run(&name, &document.validity));
            checks.extend(text.map(|text| checks::of_httperf(&name, &text)));
            let capture = CaptureFigures::read(&dir, WARMUP)?;
            checks.push(checks::of_steadiness(&name, &capture));
            runs.push(document.run.id);
            duration_s += document.run.duration_s;
            host.get_or_insert(document.run.host);
            measurements.push(KoshienMeasurement {
                experiment,
                setting,
                capture,
                configured_rtts_ns: context.configured_rtts(experiment)?,
            });
            let part = Reproduction {
                name: NAME.into(),
                rows: rows::rows(&measurements),
                runs: runs.clone(),
                ..Reproduction::default()
            };
            showing.put(|progress| progress.reproduce = Some(part));
        }
    }
    checks.extend(nothing_measured(&checks));
    let rows = rows::rows(&measurements);
    let document = ReproductionDocument {
        schema: SCHEMA.into(),
        run: Run {
            id: record.id().into(),
            dir: record.path().display().to_string(),
            command: input.command.clone(),
            seed: input.seed,
            started_at: store::rfc3339(input.started),
            // Measured time only, without warm-ups and start-up of servers.
            duration_s,
            interrupted: interrupts.count() > 0,
            host: host.unwrap_or_default(),
            ..Run::default()
        },
        validity: Validity::from_checks(checks),
        reproduce: Reproduction {
            name: NAME.into(),
            about: context.about(&apache),
            answer: summary::result_sentence(&rows),
            notes: summary::NOTES.map(str::to_owned).to_vec(),
            rows,
            runs,
        },
    };
    record.write_summary(&document)?;
    showing.done(&document.validity, |progress| progress.reproduce = Some(document.reproduce.clone()));
    Ok(KoshienReproduced { document, measurements, folder: record.path().to_owned() })
}

/// What all experiments share.
struct MeasurementContext<'a> {
    input: &'a KoshienOptions,
    run_store: &'a RunStore,
    interrupts: &'a Interrupts,
    folder: &'a Path,
    apache: String,
    httperf: Option<Httperf>,
}

/// Folder and document of a run, and httperf's output if it generated the load.
type RunResult = (PathBuf, Document, Option<HttperfReport>);

impl MeasurementContext<'_> {
    fn run_one(
        &self,
        experiment: &KoshienExperiment,
        setting: Setting,
        observer: &mut dyn Observer,
    ) -> Result<RunResult, ExperimentError> {
        let name = format!("koshien-{}-{}", experiment.number, setting.name());
        let server = ServerPlan { command: self.apache.clone(), tcp: setting.tcp(), ..ServerPlan::default() };
        match &self.httperf {
            Some(httperf) if experiment.generator == Generator::Httperf => {
                self.by_httperf(httperf, name, experiment.path(), server)
            }
            _ => self.by_load(name, experiment.path(), server, observer),
        }
    }

    fn by_load(
        &self,
        name: String,
        path: PathPlan,
        server: ServerPlan,
        observer: &mut dyn Observer,
    ) -> Result<RunResult, ExperimentError> {
        let (requests, duration) = match self.input.length {
            Length::Time(time) => (None, Some(time)),
            Length::Full => (Some(REQUESTS), None),
        };
        let plan = Plan {
            name,
            seed: self.input.seed,
            load: LoadPlan {
                close: true,
                rate: RequestRate::from_per_second(RATE_PER_S),
                clients: CLIENTS,
                requests,
                duration,
                warmup: WARMUP,
                connect_timeout: TIMEOUT,
                timeout: TIMEOUT,
                ..LoadPlan::get(&format!("http://server:{PORT}/{FILE}"))
            },
            path: Some(path),
            server: Some(server),
            ..Plan::default()
        };
        let outcome = testbed::bench(&plan, &self.input.command, Some(self.run_store), self.interrupts, observer)?;
        Ok((outcome.folder.unwrap_or_default(), outcome.document, None))
    }

    fn by_httperf(
        &self,
        httperf: &Httperf,
        name: String,
        path: PathPlan,
        server: ServerPlan,
    ) -> Result<RunResult, ExperimentError> {
        let report = self.folder.join(format!("{name}.txt"));
        let connections = match self.input.length {
            Length::Time(time) => ((WARMUP + time).as_secs_f64() * RATE_PER_S).ceil() as u64,
            Length::Full => REQUESTS + (WARMUP.as_secs_f64() * RATE_PER_S).ceil() as u64,
        };
        let call = Call {
            server: "server",
            port: PORT,
            uri: &format!("/{FILE}"),
            rate_per_s: RATE_PER_S,
            connections,
            timeout: TIMEOUT,
        };
        let command = ["/bin/sh", "-c", &httperf.command(&call, &report)].map(OsString::from);
        let plan = NetPlan {
            path,
            server: Some(server),
            target: TargetPlan::default(),
            to: Vec::new(),
            clients: 1,
            watch: WatchPlan::default(),
            tap: None,
            host: HostPlan::default(),
            seed: self.input.seed,
            run_store: Some(self.run_store.clone()),
            name,
        };
        let outcome = testbed::net(&plan, &command, Some(self.interrupts), |_| {})?;
        let text = fs::read_to_string(&report).map_err(ExperimentError::file(&report))?;
        let text = match HttperfReport::read(&text) {
            // An interrupted run gives no figures.
            Err(_) if self.interrupts.count() > 0 => None,
            text => Some(text?),
        };
        Ok((outcome.folder.unwrap_or_default(), outcome.document, text))
    }

    /// Configured RTTs of an experiment's clients, in ns, ascending.
    fn configured_rtts(&self, experiment: &KoshienExperiment) -> Result<Vec<u64>, ExperimentError> {
        let clients = testbed::distances::spec(&experiment.path(), CLIENTS).map_err(TestbedError::plan)?.clients;
        let mut rtts: Vec<u64> = clients.iter().map(path::ClientPath::rtt_ns).collect();
        rtts.sort_unstable();
        Ok(rtts)
    }

    fn about(&self, apache: &Apache) -> String {
        let length = match self.input.length {
            Length::Time(time) => format!("{} each", units::format_duration(time)),
            Length::Full => format!("{REQUESTS} requests each, as in the paper"),
        };
        format!(
            "Koshien (ENMA): Nishimura, Nakayama, Nakamura and Sunahara, a web server benchmark with network delay \
             (about 2001). {RATE_PER_S:.0} requests/s for a file of {FILE_BYTES} bytes, one connection each, \
             {length} after a warm-up of {}; server {}; connections and RTTs from a packet capture at the server.",
            units::format_duration(WARMUP),
            apache.version(),
        )
    }
}

/// The served file, in a folder readable by every user that the server may run as.
fn prepare(folder: &Path) -> Result<(), ExperimentError> {
    let www = folder.join("www");
    fs::create_dir(&www).map_err(ExperimentError::file(&www))?;
    fs::write(www.join(FILE), [b'y'; FILE_BYTES]).map_err(ExperimentError::file(www.join(FILE)))?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(ExperimentError::file(folder))
}
