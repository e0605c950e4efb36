//! Components of a server measured alone, and added up for a server model (after NTT DIRECTORY).
//!
//! ```text
//!   network.rs: exchanges in the testbed, saturated ----+
//!   local.rs: a child process for each other component -+--> prices.rs: a + b n --> sum.rs: a request of the model --> ComponentSum
//!   [components] of the plan, its TLS, path, connections ---+
//! ```
//!
//! The modelled server is never started and need not exist. Read `sum.rs` first: it lists the components of a request.

mod assumptions;
mod costs;
mod local;
mod network;
mod sum;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plan::{BodyFrom, ComponentsPlan, LogLines, TlsVersion};
use schema::document::Check;
use schema::{ComponentRound, ComponentSum, PredictPart};
use store::RunStore;
use units::{Bytes, CpuShare};

use self::costs::MeasuredComponent;
use self::local::Children;
use self::network::Network;
use self::sum::{Shape, part};
use super::demands::Measuring;
use super::limits::{PredictionInputs, Processor};
use super::model::{Estimate, WorkloadDemand};
use super::path::{ConnectionUse, INITCWND, PathModel, Traffic};
use super::real_server::{fill, path_model, path_times_by_model};
use super::{PredictPlan, checks, period};
use disk::{self, DiskPlan, Trial};
use experiment::ExperimentError;
use experiment::Order;
use experiment::verdict::of_run;
use stats::median;

/// Read-ahead of the kernel by default: an uncached file takes one storage read per this many bytes.
const READ_AHEAD: f64 = 131_072.0;
/// The fio test with random reads.
const DISK_FILE_BYTES: Bytes = Bytes(256 << 20);
const DISK_TEST_LENGTH: Duration = Duration::from_secs(5);

/// Measured components.
#[derive(Debug)]
pub struct MeasuredComponents {
    described: ComponentsPlan,
    shape: Shape,
    parts: Vec<MeasuredComponent>,
    network: Network,
    /// Whether uncached files were read from a device; absent without uncached files.
    cold: Option<bool>,
    disk: Option<Storage>,
}

/// Limit of storage.
#[derive(Clone, Debug)]
struct Storage {
    /// Requests per second, with an explanation.
    limit: (f64, String),
    /// Checks of the run that measured it.
    checks: Vec<Check>,
}

/// The model of the plan; the default model if the plan has no `[components]`.
pub fn described(input: &PredictPlan) -> ComponentsPlan {
    input.plan.components.clone().unwrap_or_default()
}

/// Refuses contradictory options.
///
/// # Errors
/// The contradiction, as a sentence.
pub fn check(input: &PredictPlan) -> Result<(), ExperimentError> {
    let wrong = |why: &str| Err(ExperimentError::Plan(why.into()));
    let described = described(input);
    described.check().map_err(|error| ExperimentError::Plan(error.to_string()))?;
    if !input.plan.load.http.is_http1() {
        return wrong("--components adds up HTTP/1 requests: omit --http");
    }
    if input.options.disk && described.cold.value() <= 0.0 {
        return wrong("--disk is for files that are not in the page cache: give their share (--cold)");
    }
    if let Some(folder) = input.options.components_folder.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(ExperimentError::Plan(format!("--components-folder {}: no such folder", folder.display())));
    }
    Ok(())
}

/// Approximate duration.
pub fn time(input: &PredictPlan) -> Duration {
    let kinds = network::kinds(&described(input), input.plan.load.close);
    let lab = (network::each(&input.options) + super::LOAD_EXTRA * network::RUNS) * kinds + super::LOAD_EXTRA * 2;
    let disk = if input.options.disk { DISK_TEST_LENGTH + Duration::from_secs(2) } else { Duration::ZERO };
    lab + Duration::from_secs(5) + disk
}

/// Measures the components of the model. `None`: interrupted.
///
/// # Errors
/// A component could not be measured: the testbed or a child failed, or a requirement is missing.
pub fn measure(
    input: &PredictPlan,
    order: &Order,
    run_store: &RunStore,
    measuring: &mut Measuring<'_>,
) -> Result<Option<MeasuredComponents>, ExperimentError> {
    let described = described(input);
    let scratch = tempfile::tempdir().map_err(ExperimentError::file(std::env::temp_dir()))?;
    let folder: PathBuf = input.options.components_folder.clone().unwrap_or_else(|| scratch.path().to_owned());
    let is_tls = is_tls(input);
    let certificate = if is_tls { Some(experiment::certificate::self_signed(scratch.path())?) } else { None };
    let children = Children { program: &order.program, folder: &folder, certificate };
    let Some(network) = network::measure(measuring, &described, &order.program, &folder)? else { return Ok(None) };
    let mut shape = Shape {
        close: input.plan.load.close,
        tls: is_tls,
        request_bytes: network.request_bytes,
        head_bytes: network.head_bytes,
        ..Shape::default()
    };
    let mut parts = network.parts.clone();
    let mut rounds = BTreeMap::new();
    drop(measuring.stage.begin("components without network"));
    for (name, words, sizes) in expected(&described, &shape) {
        if measuring.is_interrupted() {
            return Ok(None);
        }
        let (measured_component, component_rounds) = children.price(name, words, &sizes)?;
        parts.extend(measured_component);
        rounds.insert(name, component_rounds);
    }
    let bytes = |name: &str| -> (f64, f64) {
        let component_rounds: &[ComponentRound] = rounds.get(name).map_or(&[], Vec::as_slice);
        (
            median(component_rounds.iter().map(|round| round.up_bytes as f64)),
            median(component_rounds.iter().map(|round| round.down_bytes as f64)),
        )
    };
    if shape.tls && shape.close {
        (shape.full, shape.resumed) = (bytes(part::HANDSHAKE_FULL), bytes(part::HANDSHAKE_RESUMED));
    }
    let cold = rounds
        .get(part::OPEN_READ_COLD)
        .map(|component_rounds| component_rounds.iter().all(|round| round.blocks_read > 0));
    let disk = if input.options.disk { storage(&described, &folder, order, run_store, measuring)? } else { None };
    Ok((!measuring.is_interrupted()).then_some(MeasuredComponents { described, shape, parts, network, cold, disk }))
}

/// Whether requests use TLS.
fn is_tls(input: &PredictPlan) -> bool {
    input.plan.load.secure()
}

/// Components without network that a request has: name, description, and sizes to measure.
fn expected(described: &ComponentsPlan, shape: &Shape) -> Vec<(&'static str, &'static str, Vec<u64>)> {
    let largest = described.objects.iter().map(|object| object.size.0.min(network::BODY_MAX)).max().unwrap_or(0);
    // From zero to the largest size, so that all sizes lie in between.
    let sizes = |least: u64| {
        let mut sizes = vec![least, 4 << 10, 16 << 10, 64 << 10];
        sizes.extend((largest > 64 << 10).then_some(largest));
        sizes
    };
    let request = (shape.request_bytes as u64).clamp(serve_head::MIN, serve_head::MAX);
    let mut expected: Vec<(&'static str, &'static str, Vec<u64>)> = Vec::new();
    if described.parse {
        expected.push((part::PARSE, "parse the head of a request", vec![request]));
    }
    let (is_cold, all_cold) = (described.cold.value() > 0.0, described.cold.value() >= 1.0);
    let reads = match described.body {
        BodyFrom::Memory => false,
        BodyFrom::Read => !all_cold,
        BodyFrom::Sendfile => is_cold,
    };
    if reads {
        expected.push((part::OPEN_READ, "open, fstat, read and close a file in the page cache", sizes(0)));
    }
    if described.body == BodyFrom::Sendfile {
        expected.push((part::OPEN, "open, fstat and close a file", vec![1 << 10]));
    }
    if described.body != BodyFrom::Memory && is_cold {
        expected.push((
            part::OPEN_READ_COLD,
            "open, fstat, read and close a file that was dropped from the page cache",
            sizes(1),
        ));
    }
    match described.log {
        LogLines::None => {}
        LogLines::Line => expected.push((part::LOG_LINE, "a log line, with a write of its own", vec![0])),
        LogLines::Buffered => {
            expected.push((part::LOG_BUFFERED, "a log line, written in blocks of 64 KiB", vec![0]));
        }
    }
    if shape.tls {
        expected.push((
            part::RECORDS,
            "decrypt a request and encrypt a response (TLS 1.3, rustls with ring)",
            sizes(0),
        ));
    }
    if shape.tls && shape.close {
        let words = "server side of a full handshake (TLS 1.3, P-256, rustls with ring)";
        expected.push((part::HANDSHAKE_FULL, words, vec![0]));
        expected.push((part::HANDSHAKE_RESUMED, "server side of a resumed handshake", vec![0]));
    }
    expected
}

/// Sizes of request heads that can be measured, as in `serve::HEAD_BYTES_MIN` and `_MAX`.
mod serve_head {
    pub const MIN: u64 = 96;
    pub const MAX: u64 = 8 << 10;
}

/// Limit of storage, measured with fio.
fn storage(
    described: &ComponentsPlan,
    folder: &Path,
    order: &Order,
    run_store: &RunStore,
    measuring: &mut Measuring<'_>,
) -> Result<Option<Storage>, ExperimentError> {
    let plan = DiskPlan {
        directory: folder.to_owned(),
        size: DISK_FILE_BYTES,
        each: DISK_TEST_LENGTH,
        tests: vec![Trial::RandomReadDeep],
    };
    drop(measuring.stage.begin("storage, with fio"));
    let done = disk::run(&plan, order, run_store, measuring.interrupts, &mut |_| {})?;
    let Some(test) = done.document.disk.get(Trial::RandomReadDeep.name()) else {
        measuring
            .notes
            .push("storage could not be measured, so it is not a limit here; `yamabiko disk` shows the reason".into());
        return Ok(None);
    };
    let reads: f64 =
        described.shares().iter().map(|(bytes, share)| share * (*bytes as f64 / READ_AHEAD).ceil().max(1.0)).sum();
    let each = reads * described.cold.value();
    let words = format!("{:.0} storage reads a second, {each:.3} per request", test.iops);
    let checks = of_run("storage", &done.document.validity);
    Ok((each > 0.0 && test.iops > 0.0).then(|| Storage { limit: (test.iops / each, words), checks }))
}

impl MeasuredComponents {
    /// Adds the components up: the sum and its checks. Without a real server the sum becomes the prediction.
    ///
    /// # Errors
    /// The path is impossible, or a component of a request was not measured.
    pub fn add_up(
        &self,
        input: &PredictPlan,
        measuring: &mut Measuring<'_>,
        predict: &mut PredictPart,
        alone: bool,
    ) -> Result<Vec<Check>, ExperimentError> {
        let mut classes = Vec::new();
        let mut costs: [Vec<(f64, Estimate)>; 2] = Default::default();
        for (bytes, share) in self.described.shares() {
            let (row, sums) =
                sum::class(&self.described, &self.shape, &self.parts, (bytes, share)).map_err(|part| {
                    ExperimentError::Plan(format!("{part} took no measurable time: use longer loads (--load-time)"))
                })?;
            classes.push(row);
            costs.iter_mut().zip(sums).for_each(|(costs, sum)| costs.push((share, sum)));
        }
        let [processes, cores] = costs.each_ref().map(|costs| sum::workload_demand(costs));
        let cores = cores.covering(&processes);
        let model = path_model(input)?;
        let known = self.known(input, model.as_ref(), processes, cores, &costs[1]);
        let mut own = PredictPart { peak_to_mean: input.options.peak_to_mean, ..PredictPart::default() };
        fill(&mut own, &known, &measuring.loads, input);
        if known.processor.quota.is_none() {
            // Components were measured on one core; more cores multiply the rate.
            own.beyond /= known.processor.cores;
        }
        if let Some((path, connection_use, traffic)) = known.path {
            own.path = Some(path_times_by_model(input, path, connection_use, traffic));
        }
        let mut sum = ComponentSum {
            described: assumptions::described(&self.described, &self.shape),
            classes,
            processes_s: processes.at_saturation.value,
            processes_interval: processes.at_saturation.interval(),
            cores_s: cores.at_saturation.value,
            cores_interval: cores.at_saturation.interval(),
            rate_per_s: own.rate_per_s,
            interval: own.interval,
            bound_by: own.bound_by.clone(),
            limits: own.limits.clone(),
            assumes: assumptions::assumes(&self.described, &self.shape, self.cold),
            ..ComponentSum::default()
        };
        let mut checks = checks::of_sum(&sum, &measuring.loads, self.cold);
        checks.extend(self.disk.iter().flat_map(|storage| storage.checks.clone()));
        if alone {
            own.assumes.clone_from(&sum.assumes);
            *predict = own;
        } else {
            let saturated = |resource: &str| -> f64 {
                let rows =
                    predict.demands.iter().filter(|row| row.resource == resource && row.loads.ends_with("saturated"));
                rows.filter_map(|row| Some(row.each? * row.seconds)).sum()
            };
            let assembled = saturated("processes");
            sum.cost_error = (assembled > 0.0).then(|| sum.processes_s / assembled - 1.0);
        }
        predict.components = self.parts.iter().map(MeasuredComponent::row).collect();
        predict.component_sum = Some(sum);
        Ok(checks)
    }

    fn known<'a>(
        &self,
        input: &'a PredictPlan,
        model: Option<&'a PathModel>,
        processes: WorkloadDemand,
        cores: WorkloadDemand,
        costs: &[(f64, Estimate)],
    ) -> PredictionInputs<'a> {
        let share =
            self.described.cpu.or(input.plan.server.as_ref().and_then(|server| server.cpu)).map(CpuShare::cores);
        let traffic = self.traffic();
        let connection_use = self.connection_use(input);
        let times = model.map(|model| path_times_by_model(input, model, connection_use, traffic));
        let mix_s = cores.at_saturation.value;
        PredictionInputs {
            processor: Processor {
                quota: share.map(|share| (share, period(share))),
                cores: f64::from(self.described.threads),
            },
            processes,
            cores,
            classes: costs.iter().map(|(share, cost)| (*share, (cost.value / mix_s).max(1e-6))).collect(),
            extra_s: 0.0,
            path: model.map(|model| (model, connection_use, traffic)),
            workers: self.described.workers.or(input.options.workers),
            worker_occupied_s: times.as_ref().and_then(|times| times.worker_occupied_s),
            connection_s: times.as_ref().and_then(|times| times.connection_s),
            connections_by_memory: None,
            connections_by_descriptors: None,
            disk: self.disk.as_ref().map(|storage| storage.limit.clone()),
            slo: input.plan.slo.as_ref(),
            seed: input.plan.seed,
        }
    }

    /// Traffic of a request of the workload.
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
            // Two flights in each direction, each acknowledged.
            sum.up_packets += share * (traffic.up_packets + 2.0 * hands);
            sum.down_packets += share * (traffic.down_packets + 2.0 * hands);
            sum.response_body_bytes += share * traffic.response_body_bytes;
        }
        sum
    }

    fn connection_use(&self, input: &PredictPlan) -> ConnectionUse {
        let resumed = self.described.resumed.value();
        ConnectionUse {
            close: self.shape.close,
            tls_round_trips: match &input.plan.load.tls {
                _ if !self.shape.tls => 0.0,
                Some(tls) if tls.version == TlsVersion::V12 => 2.0 - resumed,
                _ => 1.0,
            },
            initcwnd: input.plan.server.as_ref().and_then(|server| server.tcp.initcwnd).unwrap_or(INITCWND),
        }
    }
}

/// Compares the sum's rate with that of a capacity search.
pub fn add_measured(predict: &mut PredictPart, measured: Option<f64>) {
    let Some(sum) = &mut predict.component_sum else { return };
    sum.error = sum.rate_per_s.zip(measured).map(|(predicted, measured)| predicted / measured - 1.0);
    if let Some(error) = sum.error {
        predict.notes.push(assumptions::error(error, sum.cost_error));
    }
}

#[cfg(test)]
mod tests;
