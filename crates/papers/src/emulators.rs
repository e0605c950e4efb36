//! The scenarios of rattan's paper (Wang et al., "Rattan: An Extensible and Scalable Modular Internet Path Emulator",
//! arXiv 2507.08134), figures 5 to 7, through yamabiko and through each peer on this machine; and what the paper does
//! not have: RTT error, exactness of rates, loss statistics, traces.
//!
//! ```text
//!   part --> points: chain of stages, probe --> emulator's own configuration --> sandbox: emulator, probe, server
//!                                                                                      '--> figures --> rows
//! ```
//!
//! All emulators have the same probes (this program) and the same chain of stages. Their measurements are interleaved;
//! a row has the median of the rounds. The paper has curves and no table, so the rows have no published figures.
//! Start reading at [`stages`].

mod analysis;
mod peer;
mod points;
pub mod probe;
mod rows;
mod stages;
mod summary;

use std::collections::BTreeMap;
use std::time::Duration;

use schema::Reproduction;
use store::RunStore;
use sys::signal::Interrupts;
use units::BitRate;

pub use self::peer::{Emulator, MAHIMAHI_VARIABLE, RATTAN_VARIABLE};
pub use self::points::{CPU_OVER_LOOPBACK, LINK_SHARE, PATHS_SERVED, RATE_ERROR, RTT_P99};
pub use self::summary::summary;

use self::peer::{Emulators, NotRun};
use self::points::Point;
use self::rows::{Figures, PointRounds};
use super::Reproduced;
use super::builder::DocumentBuilder;
use experiment::{ExperimentError, Order, Stage};

/// Name of the reproduction.
pub const NAME: &str = "emulators";
/// Shortest measurement: flows need several round trips, and the machine's CPU time has steps of 10 ms.
pub const DURATION_MIN: Duration = Duration::from_secs(1);
/// Longest measurement: the probes store each datagram, 12 million in this time.
pub const DURATION_MAX: Duration = Duration::from_secs(600);

/// A part of the comparison, as on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
pub enum Part {
    /// RTT error, jitter, order, CPU: 48 ms, idle and loaded
    Rtt,
    /// Exactness of rates from 300 bit/s to 5 Gbit/s
    Rates,
    /// Rate, independence and bursts of losses
    Loss,
    /// Bytes in each 100 ms against a trace; 720 Mbit/s over 80 ms
    Trace,
    /// Figure 5: one CUBIC flow over 50 ms
    Flow,
    /// Figure 6: chained loss, rate of 1 Gbit/s and delay of 1 ms
    Depth,
    /// Figure 7: paths of 16 Mbit/s, static and by trace
    Density,
}

/// Options of the reproduction.
#[derive(Clone, Debug)]
pub struct EmulatorsOptions {
    /// Options that every reproduction has.
    pub order: Order,
    /// The parts, each once.
    pub parts: Vec<Part>,
    /// Length of each measurement, [`DURATION_MIN`] to [`DURATION_MAX`].
    pub duration: Duration,
    /// Rounds; in each, every emulator is measured once at every point.
    pub rounds: u32,
    /// Rates of figure 5.
    pub rates: Vec<BitRate>,
    /// Depths of figure 6.
    pub depths: Vec<u32>,
    /// Numbers of paths of figure 7.
    pub paths: Vec<u32>,
}

/// Makes all measurements. An interrupt ends the current measurement; earlier ones stay in the document.
///
/// # Errors
/// A file or the run store cannot be written, or no process can be started.
pub fn make(
    options: &EmulatorsOptions,
    run_store: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<Reproduced, ExperimentError> {
    let folder = tempfile::tempdir().map_err(ExperimentError::file(std::env::temp_dir()))?;
    open_to_all(folder.path())?;
    let points = points::points(options, folder.path()).map_err(ExperimentError::file(folder.path()))?;
    let emulators = Emulators::find(&options.order.program);
    let mut builder = DocumentBuilder::new(run_store, NAME, &options.order, stage)?;
    let mut stage = builder.staging(stage);
    let mut all: BTreeMap<(usize, Emulator), PointRounds> = BTreeMap::new();
    'parts: for part in &options.parts {
        for round in 0..options.rounds {
            for (at, point) in points.iter().enumerate().filter(|(_, point)| point.part == *part) {
                for emulator in order(round) {
                    if interrupts.count() > 0 {
                        break 'parts;
                    }
                    let so_far = all.entry((at, emulator)).or_default();
                    if !is_due(point, emulator, so_far) {
                        continue;
                    }
                    let name = format!("{}, {}, round {}", point.name, emulator.name(), round + 1);
                    if emulators.has(emulator) {
                        stage.begin(&name);
                    }
                    let outcome =
                        measure(&emulators, point, emulator, (options, round), interrupts, &mut builder, &name)?;
                    if outcome.is_err() && interrupts.count() > 0 {
                        break 'parts;
                    }
                    so_far.push(outcome);
                    builder.rows(&rows::rows(&points, &all));
                }
            }
        }
    }
    let rows = rows::rows(&points, &all);
    let part = Reproduction {
        name: NAME.into(),
        about: about(options),
        answer: summary::result_sentence(&rows),
        notes: summary::NOTES.map(str::to_owned).to_vec(),
        rows,
        runs: Vec::new(),
    };
    builder.close(&options.order, interrupts.count() > 0, part)
}

/// The emulators in the order of a round: every second round backwards.
fn order(round: u32) -> Vec<Emulator> {
    let mut order = Emulator::ALL.to_vec();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Whether the point is measured with this emulator; one that is missing or cannot be the path has one round.
fn is_due(point: &Point, emulator: Emulator, so_far: &PointRounds) -> bool {
    let has_point = emulator != Emulator::Direct || point.with_direct;
    has_point && !matches!(so_far.not_run, Some(NotRun::NotFound | NotRun::Inexpressible(_)))
}

fn measure(
    emulators: &Emulators,
    point: &Point,
    emulator: Emulator,
    (options, round): (&EmulatorsOptions, u32),
    interrupts: &Interrupts,
    builder: &mut DocumentBuilder,
    name: &str,
) -> Result<Result<Figures, NotRun>, ExperimentError> {
    let measured = match emulators.measure(emulator, &point.measurement(emulator, options, round), interrupts)? {
        Err(not_run) => return Ok(Err(not_run)),
        Ok(measured) => measured,
    };
    if let Some(document) = &measured.document {
        builder.take(name, document, None);
    }
    Ok(point.figures(emulator, &measured).map_err(NotRun::Failed))
}

/// mahimahi's shells read their traces as another user.
fn open_to_all(folder: &std::path::Path) -> Result<(), ExperimentError> {
    use std::os::unix::fs::PermissionsExt as _;
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder, open).map_err(ExperimentError::file(folder))
}

/// The peers that are on this machine, in words.
pub fn found(program: &std::path::Path) -> String {
    let emulators = Emulators::find(program);
    let (has, lacks): (Vec<Emulator>, Vec<Emulator>) =
        [Emulator::Mahimahi, Emulator::Rattan].into_iter().partition(|&one| emulators.has(one));
    let list = |all: &[Emulator]| all.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
    let lacking = if lacks.is_empty() {
        String::new()
    } else {
        format!("; not found: {} (${MAHIMAHI_VARIABLE}, ${RATTAN_VARIABLE})", list(&lacks))
    };
    format!("peers: {}{lacking}", if has.is_empty() { "none".into() } else { list(&has) })
}

fn about(options: &EmulatorsOptions) -> String {
    format!(
        "Figures 5 to 7 of rattan's paper (arXiv 2507.08134) and further parts: {} interleaved rounds, measurements of \
         {}; {}.",
        options.rounds,
        units::format_duration(options.duration),
        found(&options.order.program)
    )
}
