//! The measured points of each part: path, probe, and the figures of an answer.

use std::path::{Path, PathBuf};
use std::time::Duration;

use stats::{Rng, median};
use sys::clock::monotonic_ns;
use units::figures::bit_rate;

use super::analysis::trace_error;
use super::peer::{Emulator, Measured, Measurement, START_INTERVAL_S};
use super::probe::{Answer, BulkFigures, FloodFigures, Probe, RttFigures};
use super::stages::{LinkStage, LossModel, MTU, constant_rate_trace, trace_bytes};
use super::{EmulatorsOptions, Part};

/// Payload of a full TCP packet with timestamps.
const TCP_PAYLOAD: f64 = 1448.0;
/// Payload of a full UDP packet.
const UDP_PAYLOAD: usize = MTU as usize - 28;
/// Floods of the slow rates send this many times the link's rate, so that its queue is never empty.
const OVERLOAD: f64 = 3.0;
/// A path is served if its flow has this share of the link.
pub const SERVED: f64 = 0.9;
/// Intervals of a trace's comparison.
const TRACE_INTERVAL_MS: usize = 100;
/// Least intervals of a comparison.
const TRACE_INTERVALS_MIN: usize = 30;
/// Seconds before flows are measured: slow start overshoots, and recovery takes seconds on a long path.
const WARMUP_S: f64 = 3.0;

/// A figure: quantity, unit, value.
pub type Figure = (&'static str, &'static str, f64);

/// One measured point.
pub struct Point {
    /// Part that the point belongs to.
    pub part: Part,
    /// Name in the rows.
    pub name: String,
    /// Whether it is measured without an emulator too.
    pub with_direct: bool,
    /// Chain of stages.
    pub stages: Vec<LinkStage>,
    /// Number of paths.
    pub paths: u32,
    /// The first figure's quantity and unit, for rows without a figure.
    pub main: (&'static str, &'static str),
    kind: Kind,
}

/// What is probed.
enum Kind {
    Rtt { per_s: f64, configured: Duration },
    Rate { bits_per_s: u64, payload: Option<usize> },
    Loss { model: LossModel },
    Trace { bytes: Vec<u64> },
    Flow { bits_per_s: f64 },
}

impl Point {
    /// The measurement of one round.
    pub fn measurement(&self, emulator: Emulator, options: &EmulatorsOptions, round: u32) -> Measurement<'_> {
        let length = options.duration.as_secs_f64();
        let server = emulator.server();
        let flood = |per_s: f64, payload: usize, seconds: f64| {
            (Probe::Flood { server: emulator.server(), per_s, payload, seconds }, seconds)
        };
        let (probe, seconds) = match &self.kind {
            Kind::Rtt { per_s, .. } => (Probe::Rtt { server, per_s: *per_s, seconds: length }, length),
            Kind::Rate { bits_per_s, payload: Some(payload) } => {
                let packet_bits = (payload + 28) as f64 * 8.0;
                // At least six packets.
                let seconds = length.max(6.5 * packet_bits / *bits_per_s as f64);
                flood(OVERLOAD * *bits_per_s as f64 / packet_bits, *payload, seconds)
            }
            Kind::Loss { .. } => flood(LOSS_PER_S, 32, length),
            Kind::Trace { bytes } => {
                let peak = bytes.iter().max().copied().unwrap_or(0) as f64 * 8e3;
                flood(peak / (MTU as f64 * 8.0), UDP_PAYLOAD, length.max(6.0))
            }
            Kind::Rate { .. } | Kind::Flow { .. } => {
                let own = emulator != Emulator::Yamabiko && self.paths > 1;
                let starts = START_INTERVAL_S * f64::from(self.paths);
                let length = if self.paths > 1 { length.ceil() } else { length };
                // Without a delay a flow fills its link immediately.
                let warmup_s = if matches!(self.kind, Kind::Rate { .. }) { WARMUP_S / 3.0 } else { WARMUP_S };
                let probe = Probe::Bulk {
                    server,
                    flows: if own { 1 } else { self.paths },
                    by_client: emulator == Emulator::Yamabiko,
                    // Instances of a peer start one after the other and measure the same interval.
                    start_ns: own.then(|| monotonic_ns() + ((1.5 * starts + 1.5 * warmup_s) * 1e9) as u64),
                    warmup_s,
                    seconds: length,
                };
                (probe, length + 1.5 * warmup_s + if own { starts } else { 0.0 })
            }
        };
        let seed = options.order.seed.wrapping_add(u64::from(round));
        Measurement { stages: &self.stages, paths: self.paths, probe, seconds, seed }
    }

    /// The figures of one measurement; an error names why there is none.
    pub fn figures(&self, emulator: Emulator, measured: &Measured) -> Result<Vec<Figure>, String> {
        let first = measured.answers.first().ok_or("no answer")?;
        match (&self.kind, first) {
            (Kind::Rtt { per_s, configured }, Answer::Rtt(rtt)) => {
                let configured = if emulator == Emulator::Direct { Duration::ZERO } else { *configured };
                let mut figures = rtt_figures(rtt, configured)?;
                // At a low rate the machine's other work is more than the datagrams'.
                if *per_s >= LOADED_PER_S {
                    let packets = (rtt.sent + rtt.received) as f64;
                    figures.push((CPU_A_PACKET, "us", rtt.machine_cpu_s * 1e6 / packets));
                }
                Ok(figures)
            }
            (Kind::Rate { bits_per_s, .. }, Answer::Flood(flood)) => flood_rate(flood, *bits_per_s as f64),
            (Kind::Loss { model }, Answer::Flood(flood)) => loss_figures(flood, *model),
            (Kind::Trace { bytes }, Answer::Flood(flood)) => trace_figures(flood, bytes),
            (Kind::Rate { bits_per_s, .. }, Answer::Bulk(_)) => {
                let all = flows(measured);
                let total: f64 = all.iter().sum();
                Ok(vec![(RATE_ERROR, "%", (total * MTU as f64 / TCP_PAYLOAD / *bits_per_s as f64 - 1.0) * 100.0)])
            }
            (Kind::Flow { bits_per_s }, Answer::Bulk(_)) => Ok(flow_figures(measured, *bits_per_s, self.paths)),
            _ => Err("another probe answered".into()),
        }
    }
}

/// Quantities that other modules refer to.
pub const RTT_P99: &str = "RTT error p99";
/// CPU of the whole machine for one datagram.
pub const CPU_A_PACKET: &str = "CPU a packet";
/// The same without what the probes and loopback take.
pub const CPU_OVER_LOOPBACK: &str = "CPU a packet, over loopback";
/// Deviation of a link's rate.
pub const RATE_ERROR: &str = "rate error";
/// Sum of all flows, in IP bytes, relative to the links.
pub const LINK_SHARE: &str = "throughput, of the links";
/// Paths whose flow had at least [`SERVED`] of the link.
pub const PATHS_SERVED: &str = "paths served";
const LOSS_PER_S: f64 = 10_000.0;
/// Datagrams a second of the loaded path.
const LOADED_PER_S: f64 = 20_000.0;

fn rtt_figures(rtt: &RttFigures, configured: Duration) -> Result<Vec<Figure>, String> {
    if rtt.received == 0 {
        return Err("no echo came back".into());
    }
    let error = |ns: u64| (ns as f64 - configured.as_nanos() as f64) / 1e3;
    let of = &rtt.rtt_ns;
    Ok(vec![
        ("RTT error p50", "us", error(of.p50)),
        (RTT_P99, "us", error(of.p99)),
        ("RTT error p99.9", "us", error(of.p99_9)),
        ("RTT error max", "us", error(of.max)),
        ("jitter: RTT p99 - min", "us", (of.p99 - of.min) as f64 / 1e3),
        ("overtaken", "packets", rtt.overtaken as f64),
        ("lost", "packets", (rtt.sent - rtt.received.min(rtt.sent)) as f64),
    ])
}

fn flood_rate(flood: &FloodFigures, bits_per_s: f64) -> Result<Vec<Figure>, String> {
    if flood.received < 3 {
        return Err(format!("{} packets passed", flood.received));
    }
    let rate = flood.bytes as f64 * 8e9 / flood.span_ns as f64;
    Ok(vec![(RATE_ERROR, "%", (rate / bits_per_s - 1.0) * 100.0)])
}

fn loss_figures(flood: &FloodFigures, model: LossModel) -> Result<Vec<Figure>, String> {
    let loss = &flood.loss;
    if loss.lost < 10 {
        return Err(format!("{} of {} packets lost", loss.lost, loss.sent));
    }
    let (length, error) = loss.burst_length();
    let mut figures = vec![
        ("loss", "%", loss.share() * 100.0),
        ("loss, standard deviations from configured", "", loss.share_z(model.share(), model.correlation())),
    ];
    if let LossModel::Independent(_) = model {
        figures.push(("runs test", "standard deviations", loss.runs_z()));
    }
    figures.push(("mean burst", "packets", length));
    figures.push(("mean burst, standard errors from configured", "", (length - model.burst_length()) / error));
    figures.push(("overtaken", "packets", flood.overtaken as f64));
    Ok(figures)
}

fn trace_figures(flood: &FloodFigures, trace: &[u64]) -> Result<Vec<Figure>, String> {
    // Few intervals fit to some phase of any trace.
    if flood.per_ms.len() < TRACE_INTERVAL_MS * TRACE_INTERVALS_MIN {
        return Err(format!("packets arrived for {} ms only", flood.per_ms.len()));
    }
    let error = trace_error(&flood.per_ms, trace, TRACE_INTERVAL_MS).ok_or("no trace")?;
    Ok(vec![
        ("error of bytes in 100 ms, rms", "% of mean", error.rms * 100.0),
        ("error of bytes in 100 ms, max", "% of mean", error.max * 100.0),
        ("bytes, of the trace", "%", error.total * 100.0),
    ])
}

/// Bits of payload a second of each flow.
fn flows(measured: &Measured) -> Vec<f64> {
    let bulk = measured.answers.iter().filter_map(|answer| match answer {
        Answer::Bulk(figures) => Some(figures),
        _ => None,
    });
    bulk.flat_map(|figures: &BulkFigures| figures.bytes.iter().map(|&bytes| bytes as f64 * 8.0 / figures.seconds))
        .collect()
}

fn flow_figures(measured: &Measured, bits_per_s: f64, paths: u32) -> Vec<Figure> {
    let all = flows(measured);
    let shares: Vec<f64> = all.iter().map(|bits| bits * MTU as f64 / TCP_PAYLOAD / bits_per_s).collect();
    let total: f64 = shares.iter().sum::<f64>() / f64::from(paths);
    let cpu = match measured.answers.first() {
        Some(Answer::Bulk(figures)) => figures.machine_cpu_s / figures.seconds,
        _ => f64::NAN,
    };
    let mut figures = vec![
        (LINK_SHARE, "%", total * 100.0),
        ("throughput", "Mbit/s", all.iter().sum::<f64>() / 1e6),
        ("CPU of the machine", "cores", cpu),
    ];
    if paths > 1 {
        let served = shares.iter().filter(|&&share| share >= SERVED).count();
        figures.push((PATHS_SERVED, "paths", served as f64));
        // Such a path, of an instance that did not start for example, counts as one without bytes.
        figures.push(("paths without an answer", "paths", f64::from(paths) - all.len() as f64));
        figures.push(("flow, median of the paths", "% of link", median(shares.iter().copied()) * 100.0));
    }
    figures
}

/// All points of the selected parts. Traces are written to `folder`.
pub fn points(options: &EmulatorsOptions, folder: &Path) -> std::io::Result<Vec<Point>> {
    let mut all = Vec::new();
    for &part in &options.parts {
        match part {
            Part::Rtt => all.extend(rtt_points()),
            Part::Rates => all.extend(RATES.iter().map(|&(rate, payload)| rate_point(rate, payload))),
            Part::Loss => all.extend(loss_points()),
            Part::Trace => all.extend(trace_points(folder)?),
            Part::Flow => all.extend(options.rates.iter().map(|rate| flow_point(rate.bits_per_second()))),
            Part::Depth => all.extend(options.depths.iter().map(|&depth| depth_point(depth))),
            Part::Density => {
                for &paths in &options.paths {
                    all.extend(density_points(paths, folder)?);
                }
            }
        }
    }
    Ok(all)
}

/// Rates, and the payload of the datagrams that measure them; without one, a TCP flow does.
const RATES: &[(u64, Option<usize>)] = &[
    (300, Some(22)),
    (9_600, Some(UDP_PAYLOAD)),
    (64_000, Some(UDP_PAYLOAD)),
    (1_000_000, Some(UDP_PAYLOAD)),
    (10_000_000, None),
    (100_000_000, None),
    (1_000_000_000, None),
    (2_500_000_000, None),
    (5_000_000_000, None),
];

fn rtt_points() -> Vec<Point> {
    let configured = Duration::from_millis(48);
    let point = |per_s: f64| Point {
        part: Part::Rtt,
        name: format!("RTT 48 ms, {per_s} datagrams/s and echoes"),
        with_direct: true,
        stages: vec![LinkStage::Delay(configured / 2)],
        paths: 1,
        main: (RTT_P99, "us"),
        kind: Kind::Rtt { per_s, configured },
    };
    vec![point(500.0), point(LOADED_PER_S)]
}

fn rate_point(bits_per_s: u64, payload: Option<usize>) -> Point {
    let queue_bytes = (bits_per_s / 8 / 50).max(64_000);
    Point {
        part: Part::Rates,
        name: format!("rate {}", bit_rate(bits_per_s as f64)),
        with_direct: false,
        stages: vec![LinkStage::Rate { bits_per_s, queue_bytes }],
        paths: 1,
        main: (RATE_ERROR, "%"),
        kind: Kind::Rate { bits_per_s, payload },
    }
}

fn loss_points() -> Vec<Point> {
    let point = |name: &str, model: LossModel, with_direct: bool| Point {
        part: Part::Loss,
        name: name.to_owned(),
        with_direct,
        stages: vec![LinkStage::Loss(model)],
        paths: 1,
        main: ("loss", "%"),
        kind: Kind::Loss { model },
    };
    let gilbert = LossModel::Gilbert { to_bad: 0.01, to_good: 0.3 };
    vec![
        point("loss 1 %, independent", LossModel::Independent(0.01), false),
        point("loss by Gilbert, 0.01 to bad, 0.3 to good", gilbert, false),
    ]
}

fn trace_points(folder: &Path) -> std::io::Result<Vec<Point>> {
    let varying = cellular_trace(1_000_000, 24_000_000, 50);
    let file = write(folder, "varying.trace", &varying)?;
    let fast = constant_rate_trace(720_000_000).unwrap_or_default();
    let fast_file = write(folder, "720.trace", &fast)?;
    let point = |name: &str, stages, main, kind| Point {
        part: Part::Trace,
        name: name.to_owned(),
        with_direct: false,
        stages,
        paths: 1,
        main,
        kind,
    };
    let delay = LinkStage::Delay(Duration::from_millis(40));
    Ok(vec![
        point(
            "trace of 1 to 24 Mbit/s",
            vec![LinkStage::Trace { file, queue_bytes: 300_000 }],
            ("error of bytes in 100 ms, rms", "% of mean"),
            Kind::Trace { bytes: trace_bytes(&varying) },
        ),
        point(
            "trace of 720 Mbit/s, RTT 80 ms",
            vec![LinkStage::Trace { file: fast_file, queue_bytes: 7_200_000 }, delay],
            (LINK_SHARE, "%"),
            Kind::Flow { bits_per_s: 720e6 },
        ),
    ])
}

fn flow_point(bits_per_s: u64) -> Point {
    let delay = Duration::from_millis(25);
    Point {
        part: Part::Flow,
        name: format!("figure 5: one flow, {}, 25 ms each way", bit_rate(bits_per_s as f64)),
        with_direct: false,
        // A queue of one bandwidth-delay product, and of at least ten packets.
        stages: vec![
            LinkStage::Rate { bits_per_s, queue_bytes: (bits_per_s / 8 / 20).max(10 * MTU) },
            LinkStage::Delay(delay),
        ],
        paths: 1,
        main: (LINK_SHARE, "%"),
        kind: Kind::Flow { bits_per_s: bits_per_s as f64 },
    }
}

fn depth_point(depth: u32) -> Point {
    let (bits_per_s, delay) = (1_000_000_000, Duration::from_millis(1));
    // Losses that do not happen: the effect is passed and does not limit the flow.
    let hop = [
        LinkStage::Loss(LossModel::Independent(1e-9)),
        LinkStage::Rate { bits_per_s, queue_bytes: (bits_per_s / 8 / 500 * u64::from(depth)).max(1_000_000) },
        LinkStage::Delay(delay),
    ];
    Point {
        part: Part::Depth,
        name: format!("figure 6: {depth} times loss, 1 Gbit/s and 1 ms"),
        with_direct: false,
        stages: (0..depth).flat_map(|_| hop.clone()).collect(),
        paths: 1,
        main: (LINK_SHARE, "%"),
        kind: Kind::Flow { bits_per_s: bits_per_s as f64 },
    }
}

fn density_points(paths: u32, folder: &Path) -> std::io::Result<Vec<Point>> {
    let (bits_per_s, delay) = (16_000_000, LinkStage::Delay(Duration::from_millis(20)));
    // A queue of one bandwidth-delay product.
    let queue_bytes = bits_per_s / 8 / 25;
    // A second long: whole seconds are measured, whatever the phase.
    let trace = cellular_trace(8_000_000, 24_000_000, 5);
    let bytes = trace_bytes(&trace);
    let mean = bytes.iter().sum::<u64>() as f64 * 8e3 / bytes.len() as f64;
    let file = write(folder, "density.trace", &trace)?;
    let point = |kind: &str, stages, bits_per_s| Point {
        part: Part::Density,
        name: format!("figure 7: {paths} paths, 16 Mbit/s {kind}, 20 ms each way"),
        with_direct: false,
        stages,
        paths,
        main: (PATHS_SERVED, "paths"),
        kind: Kind::Flow { bits_per_s },
    };
    Ok(vec![
        point("static", vec![LinkStage::Rate { bits_per_s, queue_bytes }, delay.clone()], bits_per_s as f64),
        point("by trace", vec![LinkStage::Trace { file, queue_bytes: 3 * queue_bytes }, delay], mean),
    ])
}

fn write(folder: &Path, name: &str, content: &str) -> std::io::Result<PathBuf> {
    let file = folder.join(name);
    std::fs::write(&file, content)?;
    Ok(file)
}

/// A trace whose rate changes every 200 ms between two rates, `steps` times, the same every time.
fn cellular_trace(from: u64, to: u64, steps: u32) -> String {
    let mut rng = Rng::named(1, "emulators trace");
    let (mut text, mut credit) = (String::new(), 0.0);
    for step in 0..steps {
        let rate = from as f64 + rng.uniform() * (to - from) as f64;
        for ms in 0..200 {
            credit += rate / 8e3 / MTU as f64;
            while credit >= 1.0 {
                text.push_str(&format!("{}\n", step * 200 + ms + 1));
                credit -= 1.0;
            }
        }
    }
    // The last line is the period.
    text.push_str(&format!("{}\n", steps * 200));
    text
}
