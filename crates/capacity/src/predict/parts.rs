//! Parts of a server measured alone, and added up for a server that is described (as NTT DIRECTORY's were).
//!
//! ```text
//!   network.rs: exchanges through the lab, held back --+
//!   local.rs: a child for each of the others ----------+--> prices.rs: a + b n --> sum.rs: a request of the description --> SumPart
//!   [parts] of the plan, its TLS, path and manner -----+
//! ```
//!
//! Nothing here starts the server that is foretold: it need not exist. Read `sum.rs` first: it says which parts a request has.

mod assumptions;
mod local;
mod network;
mod prices;
mod sum;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plan::{BodyFrom, HttpVersion, LogLines, PartsPlan, TlsVersion};
use schema::document::Check;
use schema::{PartRound, PredictPart, SumPart};
use store::RunStore;
use units::{Bytes, CpuShare};

use self::local::Children;
use self::network::Network;
use self::prices::Priced;
use self::sum::{Shape, part};
use super::answer::{Known, Processor};
use super::demands::Measuring;
use super::model::{Estimate, Mixed};
use super::path::{INITCWND, Manner, PathModel, Traffic};
use super::whole::{fill, path_model, way_by_model};
use super::{PredictPlan, doubts, period};
use disk::{self, DiskPlan, Trial};
use experiment::ExperimentError;
use experiment::Order;
use experiment::verdict::of_run;
use stats::median;

/// What the kernel reads ahead at most, unless it was told otherwise: a file that is not in the cache takes a read of storage for each.
const READ_AHEAD: f64 = 131_072.0;
/// The file that fio reads at random places.
const DISK_FILE: Bytes = Bytes(256 << 20);
const DISK_EACH: Duration = Duration::from_secs(5);

/// Parts that were measured.
#[derive(Debug)]
pub struct PartsMeasured {
    described: PartsPlan,
    shape: Shape,
    parts: Vec<Priced>,
    network: Network,
    /// Whether what was to be cold came from a device; none: nothing was to be.
    cold: Option<bool>,
    disk: Option<Storage>,
}

/// What storage can bring.
#[derive(Clone, Debug)]
struct Storage {
    /// Requests a second, and how that comes about.
    limit: (f64, String),
    /// The checks of the run that says so.
    checks: Vec<Check>,
}

/// The server as described; where the plan has no table for it, the usual one.
pub fn described(asked: &PredictPlan) -> PartsPlan {
    asked.plan.parts.clone().unwrap_or_default()
}

/// Refuses what cannot be meant.
///
/// # Errors
/// One sentence.
pub fn check(asked: &PredictPlan) -> Result<(), ExperimentError> {
    let wrong = |why: &str| Err(ExperimentError::Plan(why.into()));
    let described = described(asked);
    described.check().map_err(|error| ExperimentError::Plan(error.to_string()))?;
    if asked.plan.load.http == HttpVersion::Http2 {
        return wrong("--parts adds up requests of HTTP/1: leave --http 2 out");
    }
    if asked.asked.disk && described.cold.value() <= 0.0 {
        return wrong("--disk is for files that are not in the page cache: say how many are not (--cold)");
    }
    if let Some(folder) = asked.asked.parts_folder.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(ExperimentError::Plan(format!("--parts-folder {}: no such folder", folder.display())));
    }
    Ok(())
}

/// How long it takes, nearly.
pub fn time(asked: &PredictPlan) -> Duration {
    let kinds = network::kinds(&described(asked), asked.plan.load.close);
    let lab = (network::each(&asked.asked) + super::LOAD_EXTRA * network::RUNS) * kinds + super::LOAD_EXTRA * 2;
    let disk = if asked.asked.disk { DISK_EACH + Duration::from_secs(2) } else { Duration::ZERO };
    lab + Duration::from_secs(5) + disk
}

/// Measures the parts that the described server has. `None` if it was interrupted.
///
/// # Errors
/// A part could not be measured: the lab, a child, or what it needs.
pub fn measure(
    asked: &PredictPlan,
    order: &Order,
    book: &RunStore,
    measuring: &mut Measuring<'_>,
) -> Result<Option<PartsMeasured>, ExperimentError> {
    let described = described(asked);
    let scratch = tempfile::tempdir().map_err(ExperimentError::file(std::env::temp_dir()))?;
    let folder: PathBuf = asked.asked.parts_folder.clone().unwrap_or_else(|| scratch.path().to_owned());
    let is_tls = is_tls(asked);
    let certificate = if is_tls { Some(experiment::certificate::self_signed(scratch.path())?) } else { None };
    let children = Children { program: &order.program, folder: &folder, certificate };
    let Some(network) = network::measure(measuring, &described, &order.program, &folder)? else { return Ok(None) };
    let mut shape = Shape {
        close: asked.plan.load.close,
        tls: is_tls,
        request_bytes: network.request_bytes,
        head_bytes: network.head_bytes,
        ..Shape::default()
    };
    let mut parts = network.parts.clone();
    let mut rounds = BTreeMap::new();
    drop(measuring.stage.begin("parts without a network"));
    for (name, words, sizes) in wanted(&described, &shape) {
        if measuring.is_interrupted() {
            return Ok(None);
        }
        let (priced, made) = children.price(name, words, &sizes)?;
        parts.extend(priced);
        rounds.insert(name, made);
    }
    let bytes = |name: &str| -> (f64, f64) {
        let made: &[PartRound] = rounds.get(name).map_or(&[], Vec::as_slice);
        (
            median(made.iter().map(|round| round.up_bytes as f64)),
            median(made.iter().map(|round| round.down_bytes as f64)),
        )
    };
    if shape.tls && shape.close {
        (shape.full, shape.resumed) = (bytes(part::HANDSHAKE_FULL), bytes(part::HANDSHAKE_RESUMED));
    }
    let cold = rounds.get(part::OPEN_READ_COLD).map(|made| made.iter().all(|round| round.blocks_read > 0));
    let disk = if asked.asked.disk { storage(&described, &folder, order, book, measuring)? } else { None };
    Ok((!measuring.is_interrupted()).then_some(PartsMeasured { described, shape, parts, network, cold, disk }))
}

/// Whether requests are over TLS.
fn is_tls(asked: &PredictPlan) -> bool {
    asked.plan.load.secure()
}

/// Parts without a network that a request of it has: name, words, and the sizes to measure.
fn wanted(described: &PartsPlan, shape: &Shape) -> Vec<(&'static str, &'static str, Vec<u64>)> {
    let largest = described.objects.iter().map(|object| object.size.0.min(network::BODY_MAX)).max().unwrap_or(0);
    // From nothing to the largest, so that what is asked for lies between.
    let sizes = |least: u64| {
        let mut sizes = vec![least, 4 << 10, 16 << 10, 64 << 10];
        sizes.extend((largest > 64 << 10).then_some(largest));
        sizes
    };
    let request = (shape.request_bytes as u64).clamp(serve_head::MIN, serve_head::MAX);
    let mut wanted: Vec<(&'static str, &'static str, Vec<u64>)> = Vec::new();
    if described.parse {
        wanted.push((part::PARSE, "reading the head of a request", vec![request]));
    }
    let (is_cold, all_cold) = (described.cold.value() > 0.0, described.cold.value() >= 1.0);
    let reads = match described.body {
        BodyFrom::Memory => false,
        BodyFrom::Read => !all_cold,
        BodyFrom::Sendfile => is_cold,
    };
    if reads {
        wanted.push((part::OPEN_READ, "opening, measuring, reading and closing a file in the page cache", sizes(0)));
    }
    if described.body == BodyFrom::Sendfile {
        wanted.push((part::OPEN, "opening, measuring and closing a file", vec![1 << 10]));
    }
    if described.body != BodyFrom::Memory && is_cold {
        wanted.push((
            part::OPEN_READ_COLD,
            "opening, measuring, reading and closing a file that was taken out of the page cache",
            sizes(1),
        ));
    }
    match described.log {
        LogLines::None => {}
        LogLines::Line => wanted.push((part::LOG_LINE, "a line of a log, with a write of its own", vec![0])),
        LogLines::Buffered => {
            wanted.push((part::LOG_BUFFERED, "a line of a log, written when 64 KiB have come together", vec![0]));
        }
    }
    if shape.tls {
        wanted.push((part::RECORDS, "opening a request and sealing an answer (TLS 1.3, rustls with ring)", sizes(0)));
    }
    if shape.tls && shape.close {
        let words = "the server's side of a handshake in full (TLS 1.3, P-256, rustls with ring)";
        wanted.push((part::HANDSHAKE_FULL, words, vec![0]));
        wanted.push((part::HANDSHAKE_RESUMED, "the server's side of a handshake that takes up a session", vec![0]));
    }
    wanted
}

/// Heads that can be read: as in `serve::HEAD_BYTES_MIN` and `_MAX`.
mod serve_head {
    pub const MIN: u64 = 96;
    pub const MAX: u64 = 8 << 10;
}

/// What storage can bring, by fio.
fn storage(
    described: &PartsPlan,
    folder: &Path,
    order: &Order,
    book: &RunStore,
    measuring: &mut Measuring<'_>,
) -> Result<Option<Storage>, ExperimentError> {
    let plan =
        DiskPlan { directory: folder.to_owned(), size: DISK_FILE, each: DISK_EACH, tests: vec![Trial::RandomReadDeep] };
    drop(measuring.stage.begin("storage, by fio"));
    let done = disk::run(&plan, order, book, measuring.interrupts, &mut |_| {})?;
    let Some(test) = done.document.disk.get(Trial::RandomReadDeep.name()) else {
        measuring
            .notes
            .push("storage could not be measured, so that it is no limit here; `yamabiko disk` says why".into());
        return Ok(None);
    };
    let reads: f64 =
        described.shares().iter().map(|(bytes, share)| share * (*bytes as f64 / READ_AHEAD).ceil().max(1.0)).sum();
    let each = reads * described.cold.value();
    let words = format!("{:.0} reads of storage a second, {each:.3} for a request", test.iops);
    let checks = of_run("storage", &done.document.validity);
    Ok((each > 0.0 && test.iops > 0.0).then(|| Storage { limit: (test.iops / each, words), checks }))
}

impl PartsMeasured {
    /// Adds them up: the sum, and what is doubtful of it. Where nothing else foretells, `predict` becomes this.
    ///
    /// # Errors
    /// A path that cannot be; a part that a request has and that was not measured.
    pub fn add_up(
        &self,
        asked: &PredictPlan,
        measuring: &mut Measuring<'_>,
        predict: &mut PredictPart,
        alone: bool,
    ) -> Result<Vec<Check>, ExperimentError> {
        let mut classes = Vec::new();
        let mut costs: [Vec<(f64, Estimate)>; 2] = Default::default();
        for (bytes, share) in self.described.shares() {
            let (row, sums) =
                sum::class(&self.described, &self.shape, &self.parts, (bytes, share)).map_err(|part| {
                    ExperimentError::Plan(format!(
                        "{part} took no time that could be measured: longer loads (--load-time)"
                    ))
                })?;
            classes.push(row);
            costs.iter_mut().zip(sums).for_each(|(costs, sum)| costs.push((share, sum)));
        }
        let [processes, cores] = costs.each_ref().map(|costs| sum::mixed(costs));
        let cores = cores.covering(&processes);
        let model = path_model(asked)?;
        let known = self.known(asked, model.as_ref(), processes, cores, &costs[1]);
        let mut own = PredictPart { peak_to_mean: asked.asked.peak_to_mean, ..PredictPart::default() };
        fill(&mut own, &known, &measuring.loads, asked);
        if known.processor.quota.is_none() {
            // Its parts were measured on one core, and more cores do more of the same.
            own.beyond /= known.processor.cores;
        }
        if let Some((path, manner, traffic)) = known.path {
            own.path = Some(way_by_model(asked, path, manner, traffic));
        }
        let mut sum = SumPart {
            described: assumptions::described(&self.described, &self.shape),
            classes,
            processes_s: processes.behind.value,
            processes_interval: processes.behind.interval(),
            cores_s: cores.behind.value,
            cores_interval: cores.behind.interval(),
            rate_per_s: own.rate_per_s,
            interval: own.interval,
            bound_by: own.bound_by.clone(),
            limits: own.limits.clone(),
            assumes: assumptions::assumes(&self.described, &self.shape, self.cold),
            ..SumPart::default()
        };
        let mut checks = doubts::of_sum(&sum, &measuring.loads, self.cold);
        checks.extend(self.disk.iter().flat_map(|storage| storage.checks.clone()));
        if alone {
            own.assumes.clone_from(&sum.assumes);
            *predict = own;
        } else {
            let held = |resource: &str| -> f64 {
                let rows = predict.demands.iter().filter(|row| row.resource == resource && row.loads.ends_with("held"));
                rows.filter_map(|row| Some(row.each? * row.seconds)).sum()
            };
            let assembled = held("processes");
            sum.cost_error = (assembled > 0.0).then(|| sum.processes_s / assembled - 1.0);
        }
        predict.parts = self.parts.iter().map(Priced::row).collect();
        predict.sum = Some(sum);
        Ok(checks)
    }

    fn known<'a>(
        &self,
        asked: &'a PredictPlan,
        model: Option<&'a PathModel>,
        processes: Mixed,
        cores: Mixed,
        costs: &[(f64, Estimate)],
    ) -> Known<'a> {
        let share =
            self.described.cpu.or(asked.plan.server.as_ref().and_then(|server| server.cpu)).map(CpuShare::cores);
        let traffic = self.traffic();
        let manner = self.manner(asked);
        let times = model.map(|model| way_by_model(asked, model, manner, traffic));
        let mix_s = cores.behind.value;
        Known {
            processor: Processor {
                quota: share.map(|share| (share, period(share))),
                cores: f64::from(self.described.threads),
            },
            processes,
            cores,
            classes: costs.iter().map(|(share, cost)| (*share, (cost.value / mix_s).max(1e-6))).collect(),
            beside_s: 0.0,
            path: model.map(|model| (model, manner, traffic)),
            workers: self.described.workers.or(asked.asked.workers),
            worker_held_s: times.as_ref().and_then(|times| times.worker_held_s),
            connection_s: times.as_ref().and_then(|times| times.connection_s),
            connections_by_memory: None,
            connections_by_descriptors: None,
            disk: self.disk.as_ref().map(|storage| storage.limit.clone()),
            slo: asked.plan.slo.as_ref(),
            seed: asked.plan.seed,
        }
    }

    /// Of a request of the mix.
    fn traffic(&self) -> Traffic {
        let mut sum = Traffic::default();
        let resumed = self.described.resumed.value();
        let hands = if self.shape.tls && self.shape.close { 1.0 } else { 0.0 };
        let bytes = |of: fn((f64, f64)) -> f64| {
            hands * ((1.0 - resumed) * of(self.shape.full) + resumed * of(self.shape.resumed))
        };
        for (body, share) in self.described.shares() {
            let traffic = self.network.traffic(body as f64 + self.shape.head_bytes);
            sum.up_bytes += share * (traffic.up_bytes + bytes(|(up, _)| up));
            sum.down_bytes += share * (traffic.down_bytes + bytes(|(_, down)| down));
            // Two flights each way, each answered.
            sum.up_packets += share * (traffic.up_packets + 2.0 * hands);
            sum.down_packets += share * (traffic.down_packets + 2.0 * hands);
            sum.answer_bytes += share * traffic.answer_bytes;
        }
        sum
    }

    fn manner(&self, asked: &PredictPlan) -> Manner {
        let resumed = self.described.resumed.value();
        Manner {
            close: self.shape.close,
            tls_round_trips: match &asked.plan.load.tls {
                _ if !self.shape.tls => 0.0,
                Some(tls) if tls.version == TlsVersion::V12 => 2.0 - resumed,
                _ => 1.0,
            },
            initcwnd: asked.plan.server.as_ref().and_then(|server| server.tcp.initcwnd).unwrap_or(INITCWND),
        }
    }
}

/// The sum's answer held against what a search found.
pub fn beside(predict: &mut PredictPart, measured: Option<f64>) {
    let Some(sum) = &mut predict.sum else { return };
    sum.error = sum.rate_per_s.zip(measured).map(|(foretold, measured)| foretold / measured - 1.0);
    if let Some(error) = sum.error {
        predict.notes.push(assumptions::error(error, sum.cost_error));
    }
}

#[cfg(test)]
mod tests;
