//! Ayano, Motoda and Kawasaki (NTT Software Laboratories, about 1997), performance of the parts of an Internet
//! directory system. Its parts here:
//!
//! | part | what |
//! |---|---|
//! | [`DirectoryPart::Maximum`] | MAX, the attainable maximum, against general servers: 50 clients, 3 KB |
//! | [`DirectoryPart::Features`] | features added to MAX one at a time, and what each costs |
//! | [`DirectoryPart::Requests`] | CPU of a static and of a dynamic request: operating system, server, application; requests a day |
//! | [`DirectoryPart::Cache`] | the same searches with and without a cache of results |
//! | [`DirectoryPart::Flood`] | static answers while the dynamic part is asked for ten times what it can do, capped and not |
//!
//! Servers run on one core of this host, the load on another, without a path. The dynamic part is a directory search
//! service of its own (`examples/directory`: gunicorn, Python, SQLite with 100,000 entries), which the server starts.

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
use super::sheet::Sheet;
use experiment::ExperimentError;
use experiment::get::get;
use experiment::local::{CoreDivision, LocalServer, ServerCpu};
use experiment::{Order, Stage};

/// Its name among the reproductions.
pub const NAME: &str = "directory";
/// The paper's clients.
const CLIENTS: u32 = 50;
/// Rounds of everything that is compared, turn and turn about.
const ROUNDS: u32 = 4;
/// The application may take so long to begin.
const APPLICATION_START: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectoryPart {
    /// MAX against general servers.
    Maximum,
    /// What features cost.
    Features,
    /// CPU of requests.
    Requests,
    /// The cache of results.
    Cache,
    /// Ten times too much.
    Flood,
}

impl DirectoryPart {
    /// All, in their order.
    pub const ALL: [DirectoryPart; 5] = [
        DirectoryPart::Maximum,
        DirectoryPart::Features,
        DirectoryPart::Requests,
        DirectoryPart::Cache,
        DirectoryPart::Flood,
    ];
}

/// What to make.
#[derive(Clone, Debug)]
pub struct DirectoryOptions {
    /// As for every reproduction.
    pub order: Order,
    /// Which parts.
    pub parts: Vec<DirectoryPart>,
    /// Length of one measurement.
    pub time: Duration,
    /// Entries of the directory; the full one has 100,000.
    pub entries: u32,
}

impl DirectoryOptions {
    /// Time it takes, nearly.
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

/// Makes the parts asked for, and puts the paper beside them. Must be called while this process has one thread, since
/// servers are started in places. An interrupt ends it with the measurement at hand; what was made by then is in the
/// document.
///
/// # Errors
/// A program is not installed; a server cannot be started; the lab could not make a run; the book cannot be written.
pub fn make(
    asked: &DirectoryOptions,
    book: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<Reproduced, ExperimentError> {
    let site = Site::new(&asked.order.program, asked.entries, asked.parts != [DirectoryPart::Maximum])?;
    let division = CoreDivision::of_this_machine()?;
    let sheet = Sheet::new(book, NAME, &asked.order, stage)?;
    let mut stage = sheet.staging(stage);
    let mut kitchen = Kitchen { asked, book, interrupts, stage: &mut stage, site: &site, division, sheet };
    let mut rows: Vec<ReproductionRow> = Vec::new();
    for part in DirectoryPart::ALL.into_iter().filter(|part| asked.parts.contains(part)) {
        if interrupts.count() > 0 {
            break;
        }
        let of_part = match part {
            DirectoryPart::Maximum => maximum::make(&mut kitchen)?,
            DirectoryPart::Features => features::make(&mut kitchen)?,
            DirectoryPart::Requests => requests::make(&mut kitchen)?,
            DirectoryPart::Cache => cache::make(&mut kitchen)?,
            DirectoryPart::Flood => flood::make(&mut kitchen)?,
        };
        rows.extend(of_part);
        kitchen.sheet.rows(&rows);
    }
    let part = Reproduction {
        name: NAME.into(),
        about: summary::about(asked, &site, &kitchen.division),
        answer: summary::answer(&rows),
        notes: summary::NOTES.map(str::to_owned).to_vec(),
        rows,
        runs: Vec::new(),
    };
    kitchen.sheet.close(&asked.order, interrupts.count() > 0, part)
}

/// What every measurement is made with.
struct Kitchen<'a> {
    asked: &'a DirectoryOptions,
    book: &'a RunStore,
    interrupts: &'a Interrupts,
    stage: &'a mut dyn Stage,
    site: &'a Site,
    division: CoreDivision,
    sheet: Sheet,
}

/// One measurement.
struct Measured {
    document: Document,
    /// CPU that the server used from the load's beginning to its end.
    used: ServerCpu,
}

impl Measured {
    /// Responses.
    fn completed(&self) -> u64 {
        self.document.load.as_ref().map_or(0, |load| load.completed)
    }

    /// Responses a second.
    fn per_second(&self) -> f64 {
        self.document.load.as_ref().map_or(0.0, |load| load.achieved_rate_per_s)
    }

    /// Some of the CPU, in us for each response.
    fn us(&self, of: impl Fn(&ServerCpu) -> Duration) -> f64 {
        of(&self.used).as_secs_f64() * 1e6 / self.completed().max(1) as f64
    }
}

impl Kitchen<'_> {
    /// A server on its core, in the site's folder.
    fn start(&self, name: &str, command: &str, listen: SocketAddr) -> Result<LocalServer, ExperimentError> {
        LocalServer::start(command, listen, self.division.server.as_ref(), &self.site.log(name))
    }

    /// The same, with the application behind it, which may begin later than the server. `None`, and a check that says
    /// so, where it does not answer.
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
            // An error of the connection is as good as an answer that says 503.
            if get(listen, &entry).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 ")) {
                return Ok(Some(server));
            }
            if self.interrupted() {
                return Ok(None);
            }
            self.interrupts.wait(LOOK_EVERY);
        }
        let log = self.site.log(name);
        let file = std::fs::File::open(&log).map_err(ExperimentError::file(log))?;
        self.sheet.check(Check::without_figure(format!("{name}: application"), CheckState::CouldNotRun, Weight::Suspect, format!(
                "the application did not answer within {}, so this was not measured; with the least weight it runs only \
                 when nobody else wants its core: is something else busy there?{}",
                units::format_duration(APPLICATION_START),
                testbed::server::last_words(&file)
            )));
        Ok(None)
    }

    /// Whether to go on.
    fn interrupted(&self) -> bool {
        self.interrupts.count() > 0
    }

    /// Makes a run of `load` against `server`, on the load's core. There is no warm-up, so that the CPU the server
    /// used is that of the requests that are counted.
    fn measure(&mut self, name: &str, server: &LocalServer, load: LoadPlan) -> Result<Measured, ExperimentError> {
        let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let plan = Plan {
            name: format!("{NAME}-{}", plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")),
            seed: self.asked.order.seed,
            load: LoadPlan { warmup: Duration::ZERO, ..load },
            ..Plan::default()
        };
        let mut observer = self.stage.begin(name);
        let before = server.used();
        let (book, interrupts, command) = (self.book, self.interrupts, &self.asked.order.command);
        let document = self
            .division
            .as_load(|| testbed::bench(&plan, command, Some(book), interrupts, observer.as_mut()))?
            .document;
        let used = server.used().since(&before);
        self.sheet.take(name, &document, Some(&self.division));
        Ok(Measured { document, used })
    }

    /// A closed loop of the paper's clients for the length of a measurement.
    fn closed(&self, url: &str) -> LoadPlan {
        LoadPlan { connections: Some(CLIENTS), duration: Some(self.asked.time), ..LoadPlan::get(url) }
    }
}

/// Calls `of` for each of `count` things, [`ROUNDS`] times, forwards and backwards in turn; what it gives, by thing.
fn turn_about<T>(
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
    fn everything_has_its_turn_forwards_and_backwards() {
        let mut order = Vec::new();
        let all = turn_about(3, |at| {
            order.push(at);
            Ok(Some(order.len()))
        })
        .unwrap();
        assert_eq!(order[..6], [0, 1, 2, 2, 1, 0]);
        assert!(all.iter().all(|each| each.len() == ROUNDS as usize));
        let all = turn_about(2, |at| Ok((at == 0).then_some(at))).unwrap();
        assert_eq!(all, [vec![0], vec![]], "an interrupt keeps what was made");
    }
}
