//! Nishimura, Nakayama, Nakamura and Sunahara, a WWW server benchmark that takes network delay into account
//! (about 2001). Five experiments: one server, 110 requests a second of a file of 10 KB, one connection each; without
//! distance, with 48 ms for all, and with the RTTs of a real audience.
//!
//! The server is Apache, as there. Experiments 1, 2 and 5 use this program's load from 100 client addresses;
//! 3 and 4 use httperf, run at the far end of a path. What is compared is what the witness on the wire at the
//! server's door saw, as ENMA did, whoever made the load. Each is made with the server's TCP as in 2001 and as
//! today.

mod rows;
mod summary;
mod verdict;
mod wire_view;

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
use testbed::{LabError, Observer};
use units::RequestRate;

pub use self::rows::KoshienMeasurement;
pub use self::summary::summary;
pub use self::wire_view::WireView;

use experiment::ExperimentError;
use experiment::Stage;
use experiment::programs::apache::Apache;
use experiment::programs::httperf::{Call, Httperf, HttperfReport};
use experiment::progress::ExperimentProgress;
use experiment::verdict::{nothing_measured, of_run};

/// Its name among the reproductions.
pub const NAME: &str = "koshien";
/// Requests a second.
pub const RATE_PER_S: f64 = 110.0;
/// Requests of each of the paper's experiments.
pub const REQUESTS: u64 = 100_000;
/// Client addresses of experiments 1, 2 and 5.
const CLIENTS: u32 = 100;
const FILE_BYTES: usize = 10 << 10;
const FILE: &str = "10k.bin";
const PORT: u16 = 8080;
/// Before this the connections of far clients have not yet piled up.
pub const WARMUP: Duration = Duration::from_secs(8);
const TIMEOUT: Duration = Duration::from_secs(30);

/// One of the paper's experiments.
#[derive(Debug)]
pub struct KoshienExperiment {
    /// As the paper counts.
    pub number: u8,
    /// In a few words.
    pub about: &'static str,
    generator: Generator,
    distance: Distance,
    paper_connections: Option<&'static str>,
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

const NONE: Distance = Distance::Constant(Duration::ZERO);
const FAR: Distance = Distance::Constant(Duration::from_millis(48));

/// All five.
pub const EXPERIMENTS: [KoshienExperiment; 5] = [
    KoshienExperiment {
        number: 1,
        about: "100 clients, no distance",
        generator: Generator::Load,
        distance: NONE,
        paper_connections: Some("4 to 6"),
    },
    KoshienExperiment {
        number: 2,
        about: "100 clients, RTT 48 ms for all",
        generator: Generator::Load,
        distance: FAR,
        paper_connections: Some("about 25, steady"),
    },
    KoshienExperiment {
        number: 3,
        about: "httperf, no distance",
        generator: Generator::Httperf,
        distance: NONE,
        paper_connections: Some("few, as in 1"),
    },
    KoshienExperiment {
        number: 4,
        about: "httperf, RTT 48 ms",
        generator: Generator::Httperf,
        distance: FAR,
        paper_connections: Some("nearly 20, steady"),
    },
    KoshienExperiment {
        number: 5,
        about: "100 clients, Koshien's distances",
        generator: Generator::Load,
        distance: Distance::Profile("koshien-2001"),
        paper_connections: Some("around 60"),
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

/// The server's TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A first window of 2 segments, and reno.
    Year2001,
    /// What the kernel does by itself.
    Today,
}

impl Setting {
    /// Both.
    pub const ALL: [Setting; 2] = [Setting::Year2001, Setting::Today];

    /// As in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            Setting::Year2001 => "2001",
            Setting::Today => "today",
        }
    }

    /// In a sentence.
    pub const fn about(self) -> &'static str {
        match self {
            Setting::Year2001 => "The server begins with a window of 2 segments and uses reno, as servers did then.",
            Setting::Today => "The server's TCP is what this machine's kernel does by itself.",
        }
    }

    fn tcp(self) -> ServerTcp {
        match self {
            Setting::Year2001 => ServerTcp { initcwnd: Some(2), cc: Some("reno".into()) },
            Setting::Today => ServerTcp::default(),
        }
    }
}

/// How long each experiment is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// So long, after the warm-up.
    Time(Duration),
    /// As many requests as the paper made ([`REQUESTS`]), after the warm-up.
    Full,
}

/// What to make.
#[derive(Clone, Debug)]
pub struct KoshienOptions {
    /// Numbers of the experiments, from 1 to 5.
    pub experiments: Vec<u8>,
    /// The settings each is made under.
    pub settings: Vec<Setting>,
    /// Length of each.
    pub length: Length,
    /// Seed of every random choice.
    pub seed: u64,
    /// The command that repeats all of it.
    pub command: String,
    /// When it began.
    pub started: SystemTime,
}

impl KoshienOptions {
    /// Time it takes, without what starting servers takes.
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

/// A reproduction that was made.
#[derive(Debug)]
pub struct KoshienReproduced {
    /// Its document.
    pub document: ReproductionDocument,
    /// What each experiment showed, in the order they were made.
    pub made: Vec<KoshienMeasurement>,
    /// Its folder in the book.
    pub folder: PathBuf,
}

/// Makes the experiments asked for, one after the other, and puts the paper beside them. Must be called while this
/// process has one thread, since the lab forks. An interrupt ends it with the experiment at hand; what was made by
/// then is in the document.
///
/// # Errors
/// Apache or httperf is not installed; the lab could not make a run; the book cannot be written.
pub fn make(
    asked: &KoshienOptions,
    book: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<KoshienReproduced, ExperimentError> {
    let chosen = || EXPERIMENTS.iter().filter(|experiment| asked.experiments.contains(&experiment.number));
    let apache = Apache::find()?;
    let httperf = match chosen().any(|experiment| experiment.generator == Generator::Httperf) {
        true => Some(Httperf::find()?),
        false => None,
    };
    let folder = tempfile::tempdir().map_err(ExperimentError::file(std::env::temp_dir()))?;
    prepare(folder.path())?;
    let kitchen = Kitchen {
        asked,
        book,
        interrupts,
        folder: folder.path(),
        // Written once: the lab may change who this process is.
        apache: apache.configure(folder.path(), PORT)?,
        httperf,
    };

    let record = book.create("reproduce-koshien", asked.started, asked.seed)?;
    let showing = ExperimentProgress::begin(&record, "reproduce", &asked.command, asked.seed, stage);
    let mut stage = showing.staging(stage);
    let mut made = Vec::new();
    let mut checks = Vec::new();
    let mut runs = Vec::new();
    let mut host = None;
    let mut duration_s = 0.0;
    for experiment in chosen() {
        for &setting in &asked.settings {
            if interrupts.count() > 0 {
                break;
            }
            let name = format!("experiment {}, TCP of {}", experiment.number, setting.name());
            let mut observer = stage.begin(&name);
            let (dir, document, said) = kitchen.cook(experiment, setting, observer.as_mut())?;
            checks.extend(of_run(&name, &document.validity));
            checks.extend(said.map(|said| verdict::of_httperf(&name, &said)));
            let seen = WireView::read(&dir, WARMUP)?;
            checks.push(verdict::of_steadiness(&name, &seen));
            runs.push(document.run.id);
            duration_s += document.run.duration_s;
            host.get_or_insert(document.run.host);
            made.push(KoshienMeasurement { experiment, setting, seen, asked_rtts_ns: kitchen.asked_rtts(experiment)? });
            let part = Reproduction {
                name: NAME.into(),
                rows: rows::rows(&made),
                runs: runs.clone(),
                ..Reproduction::default()
            };
            showing.put(|standing| standing.reproduce = Some(part));
        }
    }
    checks.extend(nothing_measured(&checks));
    let rows = rows::rows(&made);
    let document = ReproductionDocument {
        schema: SCHEMA.into(),
        run: Run {
            id: record.id().into(),
            dir: record.path().display().to_string(),
            command: asked.command.clone(),
            seed: asked.seed,
            started_at: store::rfc3339(asked.started),
            // Of what was measured; warm-ups and starting servers come on top.
            duration_s,
            interrupted: interrupts.count() > 0,
            host: host.unwrap_or_default(),
            ..Run::default()
        },
        validity: Validity::from_checks(checks),
        reproduce: Reproduction {
            name: NAME.into(),
            about: kitchen.about(&apache),
            answer: summary::answer(&rows),
            notes: summary::NOTES.map(str::to_owned).to_vec(),
            rows,
            runs,
        },
    };
    record.write_summary(&document)?;
    showing.done(&document.validity, |standing| standing.reproduce = Some(document.reproduce.clone()));
    Ok(KoshienReproduced { document, made, folder: record.path().to_owned() })
}

/// What every experiment is made with.
struct Kitchen<'a> {
    asked: &'a KoshienOptions,
    book: &'a RunStore,
    interrupts: &'a Interrupts,
    folder: &'a Path,
    apache: String,
    httperf: Option<Httperf>,
}

/// A run's folder in the book, its document, and what httperf said where it made the load.
type Cooked = (PathBuf, Document, Option<HttperfReport>);

impl Kitchen<'_> {
    fn cook(
        &self,
        experiment: &KoshienExperiment,
        setting: Setting,
        observer: &mut dyn Observer,
    ) -> Result<Cooked, ExperimentError> {
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
    ) -> Result<Cooked, ExperimentError> {
        let (requests, duration) = match self.asked.length {
            Length::Time(time) => (None, Some(time)),
            Length::Full => (Some(REQUESTS), None),
        };
        let plan = Plan {
            name,
            seed: self.asked.seed,
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
        let outcome = testbed::bench(&plan, &self.asked.command, Some(self.book), self.interrupts, observer)?;
        Ok((outcome.folder.unwrap_or_default(), outcome.document, None))
    }

    fn by_httperf(
        &self,
        httperf: &Httperf,
        name: String,
        path: PathPlan,
        server: ServerPlan,
    ) -> Result<Cooked, ExperimentError> {
        let report = self.folder.join(format!("{name}.txt"));
        let connections = match self.asked.length {
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
            seed: self.asked.seed,
            book: Some(self.book.clone()),
            name,
        };
        let outcome = testbed::net(&plan, &command, Some(self.interrupts), |_| {})?;
        let text = fs::read_to_string(&report).map_err(ExperimentError::file(&report))?;
        let said = match HttperfReport::read(&text) {
            // Stopped early, it says nothing.
            Err(_) if self.interrupts.count() > 0 => None,
            said => Some(said?),
        };
        Ok((outcome.folder.unwrap_or_default(), outcome.document, said))
    }

    /// The RTTs of an experiment's clients, in ns, rising.
    fn asked_rtts(&self, experiment: &KoshienExperiment) -> Result<Vec<u64>, ExperimentError> {
        let clients = testbed::distances::spec(&experiment.path(), CLIENTS).map_err(LabError::plan)?.clients;
        let mut rtts: Vec<u64> = clients.iter().map(path::ClientPath::rtt_ns).collect();
        rtts.sort_unstable();
        Ok(rtts)
    }

    fn about(&self, apache: &Apache) -> String {
        let length = match self.asked.length {
            Length::Time(time) => format!("{} each", units::format_duration(time)),
            Length::Full => format!("{REQUESTS} requests each, as in the paper"),
        };
        format!(
            "P1: Nishimura, Nakayama, Nakamura and Sunahara, a WWW server benchmark that takes network delay into account \
             (about 2001). {RATE_PER_S:.0} requests/s of a file of {FILE_BYTES} bytes, one connection each, {length} after \
             {} of warm-up; server {}; connections and RTTs as the wire at the server's door saw them.",
            units::format_duration(WARMUP),
            apache.version(),
        )
    }
}

/// The served file, in a folder that the server may read whoever it works as.
fn prepare(folder: &Path) -> Result<(), ExperimentError> {
    let www = folder.join("www");
    fs::create_dir(&www).map_err(ExperimentError::file(&www))?;
    fs::write(www.join(FILE), [b'y'; FILE_BYTES]).map_err(ExperimentError::file(www.join(FILE)))?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(ExperimentError::file(folder))
}
