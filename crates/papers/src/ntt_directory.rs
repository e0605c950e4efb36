//! NTT DIRECTORY: Ayano, Motoda and Kawasaki (NTT Software Laboratories, about 1997), performance of the components of
//! an Internet directory system. What is reproduced:
//!
//! | part | what |
//! |---|---|
//! | [`DirectoryPart::Maximum`] | MAX, the attainable maximum, against general servers: 50 clients, 3 KB |
//! | [`DirectoryPart::Features`] | features added to MAX one at a time, and the cost of each |
//! | [`DirectoryPart::Requests`] | CPU of a static and of a dynamic request: operating system, server, application; requests a day |
//! | [`DirectoryPart::Cache`] | the same searches with and without a result cache |
//! | [`DirectoryPart::Flood`] | static responses while dynamic requests come at ten times the application's maximum, limited and not |
//!
//! Servers use one core of this host, the load another, without a path. The dynamic part is a search service
//! (`examples/directory`: gunicorn, Python, SQLite with 100,000 entries), which the server starts.

mod cache;
mod features;
mod flood;
mod maximum;
mod requests;
mod rows;
mod site;
mod summary;

use std::net::SocketAddr;
use std::time::Duration;

use plan::{LoadPlan, Plan};
use schema::document::{Check, CheckState, Weight};
use schema::{Document, Reproduction, ReproductionRow};
use store::RunStore;
use sys::clock::Deadline;
use sys::signal::Interrupts;

pub use self::summary::summary;

use self::site::{APPLICATION, Site};
use super::Reproduced;
use super::builder::DocumentBuilder;
use experiment::ExperimentError;
use experiment::local::{CoreDivision, LocalServer, ServerCpu};
use experiment::{Order, Stage};
use testbed::get::get;

/// Name of the reproduction.
pub const NAME: &str = "directory";
/// Clients, as in the paper.
const CLIENTS: u32 = 50;
/// Interleaved rounds of everything that is compared.
const ROUNDS: u32 = 4;
/// Start timeout of the application.
const APPLICATION_START: Duration = Duration::from_secs(30);
const EVALUATION_INTERVAL: Duration = Duration::from_millis(100);

/// Part of the reproduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryPart {
    /// MAX against general servers.
    Maximum,
    /// Cost of features.
    Features,
    /// CPU of requests.
    Requests,
    /// The result cache.
    Cache,
    /// Static responses under a dynamic flood.
    Flood,
}

impl DirectoryPart {
    /// All parts, in order.
    pub const ALL: [DirectoryPart; 5] = [
        DirectoryPart::Maximum,
        DirectoryPart::Features,
        DirectoryPart::Requests,
        DirectoryPart::Cache,
        DirectoryPart::Flood,
    ];
}

/// Options of the reproduction.
#[derive(Clone, Debug)]
pub struct DirectoryOptions {
    /// Options that every reproduction has.
    pub order: Order,
    /// Parts to run.
    pub parts: Vec<DirectoryPart>,
    /// Length of one measurement.
    pub time: Duration,
    /// Entries of the directory; the default is 100,000.
    pub entries: u32,
}

impl DirectoryOptions {
    /// Approximate duration.
    pub fn time(&self) -> Duration {
        let each = self.time + Duration::from_millis(400);
        let measurements: u32 = self
            .parts
            .iter()
            .map(|part| match part {
                DirectoryPart::Maximum => maximum::MEASUREMENTS,
                DirectoryPart::Features => features::MEASUREMENTS,
                DirectoryPart::Requests => 2,
                DirectoryPart::Cache => 2,
                DirectoryPart::Flood => flood::MEASUREMENTS,
            })
            .sum();
        each * measurements + Duration::from_secs(10)
    }
}

/// Runs the parts and compares them with the paper. Must be called while this process has one thread, since servers are
/// started in sandboxes. An interrupt ends it during the current measurement; earlier ones stay in the document.
///
/// # Errors
/// A program is not installed, a server cannot be started, the testbed could not make a run, or the run store cannot be
/// written.
pub fn make(
    input: &DirectoryOptions,
    run_store: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<Reproduced, ExperimentError> {
    let site = Site::new(&input.order.program, input.entries, input.parts != [DirectoryPart::Maximum])?;
    let division = CoreDivision::of_this_machine()?;
    let builder = DocumentBuilder::new(run_store, NAME, &input.order, stage)?;
    let mut stage = builder.staging(stage);
    let mut context =
        MeasurementContext { input, run_store, interrupts, stage: &mut stage, site: &site, division, builder };
    let mut rows: Vec<ReproductionRow> = Vec::new();
    for part in DirectoryPart::ALL.into_iter().filter(|part| input.parts.contains(part)) {
        if interrupts.count() > 0 {
            break;
        }
        let of_part = match part {
            DirectoryPart::Maximum => maximum::make(&mut context)?,
            DirectoryPart::Features => features::make(&mut context)?,
            DirectoryPart::Requests => requests::make(&mut context)?,
            DirectoryPart::Cache => cache::make(&mut context)?,
            DirectoryPart::Flood => flood::make(&mut context)?,
        };
        rows.extend(of_part);
        context.builder.rows(&rows);
    }
    let part = Reproduction {
        name: NAME.into(),
        about: summary::about(input, &site, &context.division),
        answer: summary::result_sentence(&rows),
        notes: summary::NOTES.map(str::to_owned).to_vec(),
        rows,
        runs: Vec::new(),
    };
    context.builder.close(&input.order, interrupts.count() > 0, part)
}

/// What all measurements share.
struct MeasurementContext<'a> {
    input: &'a DirectoryOptions,
    run_store: &'a RunStore,
    interrupts: &'a Interrupts,
    stage: &'a mut dyn Stage,
    site: &'a Site,
    division: CoreDivision,
    builder: DocumentBuilder,
}

/// One measurement.
struct Measured {
    document: Document,
    /// CPU time of the server from start to end of the load.
    used: ServerCpu,
}

impl Measured {
    /// Responses.
    fn completed(&self) -> u64 {
        self.document.load.as_ref().map_or(0, |load| load.completed)
    }

    /// Responses per second.
    fn per_second(&self) -> f64 {
        self.document.load.as_ref().map_or(0.0, |load| load.achieved_rate_per_s)
    }

    /// CPU time in us per response.
    fn us(&self, of: impl Fn(&ServerCpu) -> Duration) -> f64 {
        of(&self.used).as_secs_f64() * 1e6 / self.completed().max(1) as f64
    }
}

impl MeasurementContext<'_> {
    /// A server on its core, in the site's folder.
    fn start(&self, name: &str, command: &str, listen: SocketAddr) -> Result<LocalServer, ExperimentError> {
        LocalServer::start(command, listen, self.division.server.as_ref(), &self.site.log(name))
    }

    /// The same with the application behind it, which may start later than the server. `None`, and a check, if it does
    /// not respond.
    fn start_with_application(
        &mut self,
        name: &str,
        command: &str,
        listen: SocketAddr,
    ) -> Result<Option<LocalServer>, ExperimentError> {
        let server = self.start(name, command, listen)?;
        let entry = format!("{APPLICATION}/entry/1");
        let deadline = Deadline::after(APPLICATION_START);
        while !deadline.has_passed() {
            // A connection error counts like a response of status 503.
            if get(listen, &entry).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 ")) {
                return Ok(Some(server));
            }
            if self.interrupted() {
                return Ok(None);
            }
            self.interrupts.wait(EVALUATION_INTERVAL);
        }
        let log = self.site.log(name);
        let file = std::fs::File::open(&log).map_err(ExperimentError::file(log))?;
        self.builder.check(Check::without_figure(
            format!("{name}: application"),
            CheckState::CouldNotRun,
            Weight::Suspect,
            format!(
                "the application did not respond within {}, so this was not measured; with the least weight it runs \
                 only when its core is idle: check for other load on that core{}",
                units::format_duration(APPLICATION_START),
                testbed::server::output_tail(&file)
            ),
        ));
        Ok(None)
    }

    /// Whether to continue.
    fn interrupted(&self) -> bool {
        self.interrupts.count() > 0
    }

    /// Runs `load` against `server`, on the load's core. There is no warm-up, so that the server's CPU time belongs to
    /// the counted requests.
    fn measure(&mut self, name: &str, server: &LocalServer, load: LoadPlan) -> Result<Measured, ExperimentError> {
        let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let plan = Plan {
            name: format!("{NAME}-{}", plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")),
            seed: self.input.order.seed,
            load: LoadPlan { warmup: Duration::ZERO, ..load },
            ..Plan::default()
        };
        let mut observer = self.stage.begin(name);
        let before = server.used();
        let (run_store, interrupts, command) = (self.run_store, self.interrupts, &self.input.order.command);
        let document = self
            .division
            .as_load(|| testbed::bench(&plan, command, Some(run_store), interrupts, observer.as_mut()))?
            .document;
        let used = server.used().since(&before);
        self.builder.take(name, &document, Some(&self.division));
        Ok(Measured { document, used })
    }

    /// A closed loop of the paper's clients for the length of a measurement.
    fn closed(&self, url: &str) -> LoadPlan {
        LoadPlan { connections: Some(CLIENTS), duration: Some(self.input.time), ..LoadPlan::get(url) }
    }
}

/// Calls `of` for each of `count` items [`ROUNDS`] times, forwards and backwards in turn; returns its results by item.
fn interleaved<T>(
    count: usize,
    mut of: impl FnMut(usize) -> Result<Option<T>, ExperimentError>,
) -> Result<Vec<Vec<T>>, ExperimentError> {
    let mut all: Vec<Vec<T>> = (0..count).map(|_| Vec::new()).collect();
    for round in 0..ROUNDS {
        for step in 0..count {
            let at = if round % 2 == 0 { step } else { count - 1 - step };
            match of(at)? {
                Some(one) => all[at].push(one),
                None => return Ok(all),
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_run_forwards_and_backwards() {
        let mut order = Vec::new();
        let all = interleaved(3, |at| {
            order.push(at);
            Ok(Some(order.len()))
        })
        .unwrap();
        assert_eq!(order[..6], [0, 1, 2, 2, 1, 0]);
        assert!(all.iter().all(|each| each.len() == ROUNDS as usize));
        let all = interleaved(2, |at| Ok((at == 0).then_some(at))).unwrap();
        assert_eq!(all, [vec![0], vec![]], "an interrupt keeps earlier figures");
    }
}
