//! The figures that are compared, and how their differences are judged.

use schema::compare_part::ComparedMetric;
use schema::{CompareVerdict, Document};
use stats::abba::Blocks;
use stats::compare::{Difference, Estimate, between, holm_confidences};

use super::fail_if::FailIf;

/// A figure of a run of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Mean response time.
    Mean,
    /// Its median.
    P50,
    /// Its 90th percentile.
    P90,
    /// Its 99th percentile.
    P99,
    /// Responses a second.
    Rate,
    /// The server's processor time of a request.
    Cpu,
    /// Requests that failed, and responses of an error status, over those offered.
    Errors,
    /// Most memory that the server had.
    Memory,
}

impl Metric {
    /// All, in the order in which they are shown.
    pub const ALL: [Metric; 8] = [
        Metric::Mean,
        Metric::P50,
        Metric::P90,
        Metric::P99,
        Metric::Rate,
        Metric::Cpu,
        Metric::Errors,
        Metric::Memory,
    ];

    /// As typed.
    pub const fn short(self) -> &'static str {
        match self {
            Metric::Mean => "mean",
            Metric::P50 => "p50",
            Metric::P90 => "p90",
            Metric::P99 => "p99",
            Metric::Rate => "rate",
            Metric::Cpu => "cpu",
            Metric::Errors => "errors",
            Metric::Memory => "memory",
        }
    }

    /// In documents; it ends in its unit.
    pub const fn name(self) -> &'static str {
        match self {
            Metric::Mean => "response_time_mean_ns",
            Metric::P50 => "response_time_p50_ns",
            Metric::P90 => "response_time_p90_ns",
            Metric::P99 => "response_time_p99_ns",
            Metric::Rate => "achieved_rate_per_s",
            Metric::Cpu => "cpu_us_per_request",
            Metric::Errors => "error_ratio",
            Metric::Memory => "rss_bytes_max",
        }
    }

    /// Its unit.
    pub const fn unit(self) -> &'static str {
        match self {
            Metric::Mean | Metric::P50 | Metric::P90 | Metric::P99 => "ns",
            Metric::Rate => "1/s",
            Metric::Cpu => "us",
            Metric::Errors => "ratio",
            Metric::Memory => "bytes",
        }
    }

    /// Whether differences are shares of the first side's figure. Those of errors are not: most have none.
    pub const fn is_relative(self) -> bool {
        !matches!(self, Metric::Errors)
    }

    /// The one of that name, as typed.
    ///
    /// # Errors
    /// A sentence that names all.
    pub fn named(typed: &str) -> Result<Self, String> {
        let found = Metric::ALL.into_iter().find(|metric| metric.short() == typed);
        found.ok_or_else(|| {
            format!("`{typed}` is not compared; there are {}", Metric::ALL.map(Metric::short).join(", "))
        })
    }

    /// The one that decides unless another is asked for: response time where the load does not wait for the server,
    /// else what was carried.
    pub const fn deciding(open: bool) -> Self {
        if open { Metric::Mean } else { Metric::Rate }
    }

    /// The run's own figure, if it has one.
    pub fn of(self, document: &Document) -> Option<f64> {
        let load = document.load.as_ref()?;
        let times = Some(&load.response_time_ns).filter(|times| times.count > 0);
        match self {
            Metric::Mean => times.map(|times| times.mean),
            Metric::P50 => times.map(|times| times.p50 as f64),
            Metric::P90 => times.map(|times| times.p90 as f64),
            Metric::P99 => times.map(|times| times.p99 as f64),
            Metric::Rate => Some(load.achieved_rate_per_s),
            Metric::Cpu => document.server.as_ref()?.cpu_us_per_request,
            Metric::Errors => Some(plan::slo::error_ratio(load)),
            Metric::Memory => Some(document.server.as_ref()?.rss_bytes_max as f64).filter(|bytes| *bytes > 0.0),
        }
    }

    /// How coarse the run's figure is, whatever is repeated, on the scale of [`Metric::scaled`]: the true one may be less by the first and more by the
    /// second.
    ///
    /// The connections of a closed loop begin together and may stay in step, so that the end of the phase falls just before or just after as many
    /// responses as are in flight; of an open loop each run's arrivals are others, and that scatters. Of the server's processor time part may be others'
    /// work on its cores.
    fn grain(self, document: &Document) -> [f64; 2] {
        match self {
            Metric::Rate => [rate_grain(document); 2],
            Metric::Cpu => cpu_grain(document).unwrap_or_default(),
            _ => [0.0; 2],
        }
    }

    /// On the scale on which differences are taken: logarithms, whose differences are ratios, but of errors. `None` of
    /// a figure that has none.
    pub(crate) fn scaled(self, figure: f64) -> Option<f64> {
        match self.is_relative() {
            false => Some(figure),
            true => (figure > 0.0).then(|| figure.ln()),
        }
    }

    /// Back from that scale: of a figure.
    pub(crate) fn figure(self, scaled: f64) -> f64 {
        if self.is_relative() { scaled.exp() } else { scaled }
    }

    /// Back from that scale: of a difference.
    fn difference(self, scaled: f64) -> f64 {
        if self.is_relative() { scaled.exp_m1() } else { scaled }
    }
}

fn rate_grain(document: &Document) -> f64 {
    let Some(load) = document.load.as_ref().filter(|load| load.loop_kind == "closed") else { return 0.0 };
    let carried = load.achieved_rate_per_s * document.run.duration_s;
    if carried > 0.0 { (load.in_flight.mean / carried).ln_1p() } else { 0.0 }
}

fn cpu_grain(document: &Document) -> Option<[f64; 2]> {
    let server = document.server.as_ref()?;
    let (us, [low, high]) = (server.cpu_us_per_request?, server.cpu_us_per_request_interval?);
    let apart = |more: f64, less: f64| if less > 0.0 { (more / less).ln().clamp(0.0, GRAIN_MAX) } else { GRAIN_MAX };
    Some([apart(us, low), apart(high, us)])
}

/// A figure that may be anything is known no worse than to this: a factor of a million.
const GRAIN_MAX: f64 = 13.8;

/// How well a metric of both sides is known, on its scale.
#[derive(Clone, Debug)]
pub(crate) enum Evidence {
    /// Not at all.
    None,
    /// Each side for itself.
    Apart(Estimate, Estimate),
    /// By the difference of each block.
    Blocks(Vec<f64>, Blocks),
}

impl Evidence {
    /// With every difference so much more: `by` on its scale.
    fn judge_moved(&self, by: f64, confidence: f64) -> Option<Difference> {
        match self {
            Evidence::None => None,
            Evidence::Apart(a, b) => between(*a, Estimate { value: b.value + by, ..*b }, confidence),
            Evidence::Blocks(differences, blocks) => {
                let moved: Vec<f64> = differences.iter().map(|difference| difference + by).collect();
                blocks.judge(&moved, confidence)
            }
        }
    }
}

/// A metric of both sides.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) metric: Metric,
    pub(crate) a: Option<f64>,
    pub(crate) b: Option<f64>,
    pub(crate) evidence: Evidence,
    /// The true difference may be less by the first and more by the second, whatever is repeated.
    pub(crate) grain: [f64; 2],
}

impl Found {
    /// The difference, its interval as much wider on either side as the figures are coarse, and the probability that goes with that.
    fn judge(&self, confidence: f64) -> Option<Difference> {
        let plain = self.evidence.judge_moved(0.0, confidence)?;
        if self.grain == [0.0; 2] {
            return Some(plain);
        }
        let [less, more] = self.grain;
        // Toward no difference.
        let by = if plain.mean > 0.0 { -less } else { more };
        let p = if plain.mean.abs() > by.abs() { self.evidence.judge_moved(by, confidence)?.p } else { 1.0 };
        let [low, high] = plain.interval;
        Some(Difference { interval: [low - less, high + more], p, ..plain })
    }
}

/// How coarse the difference of these runs is, B less A. Of rates the coarsest run's counts; of processor time each side's mean may be wrong by the mean
/// of what its runs' may.
pub(crate) fn coarse<'a>(
    metric: Metric,
    a: impl Iterator<Item = &'a Document>,
    b: impl Iterator<Item = &'a Document>,
) -> [f64; 2] {
    let of = |runs: Vec<[f64; 2]>| -> [f64; 2] {
        let count = runs.len().max(1) as f64;
        [0, 1].map(|side| match metric {
            Metric::Cpu => runs.iter().map(|grain| grain[side]).sum::<f64>() / count,
            _ => runs.iter().map(|grain| grain[side]).fold(0.0, f64::max),
        })
    };
    let (a, b) = (of(a.map(|run| metric.grain(run)).collect()), of(b.map(|run| metric.grain(run)).collect()));
    match metric {
        Metric::Cpu => [b[0] + a[1], b[1] + a[0]],
        _ => [a[0].max(b[0]), a[1].max(b[1])],
    }
}

/// What to do where the metric that decides is known no better because its figures are coarse.
pub(crate) fn grain_note(found: &[Found], by: Metric, confidence: f64) -> Option<String> {
    let found = found.iter().find(|found| found.metric == by)?;
    let half = found.judge(confidence)?.half_width();
    let grain = (found.grain[0] + found.grain[1]) / 2.0;
    if grain <= half / 2.0 {
        return None;
    }
    let percent = 100.0 * grain.exp_m1();
    Some(match by {
        Metric::Cpu => format!(
            "Part of the processor time may be others' work on the server's cores, or the clocks are too coarse for so few requests: it is known to {percent:.1} %, which \
             is most of the interval. Free cores and longer runs (-d) make it narrower, more runs do not."
        ),
        _ => format!(
            "Of a closed loop's runs as many responses as are in flight may just be in the phase or not: its rate is known to {percent:.1} %, which is most of the \
             interval. Longer runs make it narrower (-d), more of them do not."
        ),
    })
}

/// What is asked of a comparison, whatever is compared.
#[derive(Clone, Debug, PartialEq)]
pub struct CompareQuestion {
    /// The metric that decides; none: [`Metric::deciding`].
    pub by: Option<Metric>,
    /// Confidence of its interval, and of all others together: above 0.5 and below 1.
    pub confidence: f64,
    /// Differences that end with another status.
    pub fail_if: Vec<FailIf>,
}

/// The metrics as they are told, the one that decides first. It has an interval of its own; the others share one chance
/// of crying wolf.
pub(crate) fn judged(mut found: Vec<Found>, by: Metric, confidence: f64) -> Vec<ComparedMetric> {
    found.sort_by_key(|found| (found.metric != by, found.metric));
    let p = |found: &Found| {
        if found.metric == by { None } else { found.judge(confidence).map(|found| found.p) }
    };
    let p: Vec<f64> = found.iter().map(|found| p(found).unwrap_or(f64::NAN)).collect();
    let confidences = holm_confidences(&p, confidence);
    found.iter().zip(confidences).map(|(found, confidence)| told(found, confidence)).collect()
}

fn told(found: &Found, confidence: f64) -> ComparedMetric {
    let metric = found.metric;
    let mut told = ComparedMetric {
        name: metric.name().to_owned(),
        short: metric.short().to_owned(),
        unit: metric.unit().to_owned(),
        a: found.a,
        b: found.b,
        relative: metric.is_relative(),
        difference: None,
        interval: None,
        confidence: None,
        p: None,
        verdict: CompareVerdict::NotKnown,
        detectable_difference: None,
    };
    if metric == Metric::Errors && found.a == Some(0.0) && found.b == Some(0.0) {
        // That nothing scatters does not mean that it is known to the last digit.
        told.difference = Some(0.0);
        told.verdict = CompareVerdict::NoDifferenceShown;
        return told;
    }
    if let Some(difference) = found.judge(confidence) {
        let of = |scaled: f64| metric.difference(scaled);
        told.difference = Some(of(difference.mean));
        told.interval = Some(difference.interval.map(of));
        told.confidence = Some(confidence);
        told.p = Some(difference.p);
        // Figures that are the same to the last digit do not say how well they are known.
        told.detectable_difference = Some(of(difference.half_width())).filter(|seen| *seen > 0.0);
        told.verdict = match (difference.is_shown(), difference.mean < 0.0) {
            (false, _) => CompareVerdict::NoDifferenceShown,
            (true, true) => CompareVerdict::Less,
            (true, false) => CompareVerdict::More,
        };
    } else if let (Some(a), Some(b)) = (found.a.and_then(|a| metric.scaled(a)), found.b.and_then(|b| metric.scaled(b)))
    {
        told.difference = Some(metric.difference(b - a));
    }
    told
}

#[cfg(test)]
mod tests {
    use schema::document::Load;

    use super::*;

    fn estimate(value: f64, standard_error: f64) -> Estimate {
        Estimate { value, standard_error, freedom: 100.0 }
    }

    fn found(metric: Metric, ratio: f64, error: f64) -> Found {
        let evidence = Evidence::Apart(estimate(0.0, 0.0), estimate(ratio.ln(), error));
        Found { metric, a: Some(100.0), b: Some(100.0 * ratio), evidence, grain: [0.0; 2] }
    }

    #[test]
    fn the_one_that_decides_has_its_own_chance() {
        // 2.2 standard errors: shown alone, not among seven.
        let all: Vec<Found> = Metric::ALL.map(|metric| found(metric, 1.022, 0.01)).into();
        let told = judged(all, Metric::P99, 0.95);
        assert_eq!((told[0].short.as_str(), told[0].verdict), ("p99", CompareVerdict::More));
        assert_eq!(told[0].confidence, Some(0.95));
        assert!(
            told[1..]
                .iter()
                .filter(|other| other.relative)
                .all(|other| { other.verdict == CompareVerdict::NoDifferenceShown && other.confidence > Some(0.99) })
        );
        assert_eq!(told.len(), Metric::ALL.len());
        let could = told[1].detectable_difference.unwrap();
        assert!((0.02..0.04).contains(&could), "{could}");
    }

    #[test]
    fn shares_are_of_the_first() {
        let told = judged(vec![found(Metric::Mean, 0.5, 0.01)], Metric::Mean, 0.95);
        assert!((told[0].difference.unwrap() + 0.5).abs() < 1e-12);
        assert_eq!(told[0].verdict, CompareVerdict::Less);
        let [low, high] = told[0].interval.unwrap();
        assert!(low < -0.5 && -0.5 < high && high < -0.48, "{low} {high}");
    }

    /// 8 connections in step: 200 responses a second of one server, 193 of the other, in every run; the truth may be 7 % or none.
    #[test]
    fn a_rate_is_known_to_what_is_in_flight_and_no_better() {
        let run = |loop_kind: &str, achieved_rate_per_s: f64, seconds: f64| {
            let mut load = Load { loop_kind: loop_kind.into(), achieved_rate_per_s, ..Load::default() };
            load.in_flight.mean = 8.0;
            Document::of_load(load, seconds)
        };
        let compared = |loop_kind: &str, seconds: f64| {
            let runs = [run(loop_kind, 200.0, seconds), run(loop_kind, 193.0, seconds)];
            let blocks = Blocks { least: 6, most: 6, half_width: 0.02 };
            let found = Found {
                metric: Metric::Rate,
                a: Some(200.0),
                b: Some(193.0),
                evidence: Evidence::Blocks(vec![(193.0_f64 / 200.0).ln(); 6], blocks),
                grain: coarse(Metric::Rate, runs[..1].iter(), runs[1..].iter()),
            };
            let note = grain_note(std::slice::from_ref(&found), Metric::Rate, 0.95);
            (judged(vec![found], Metric::Rate, 0.95).remove(0), note)
        };
        let (short, note) = compared("closed", 1.0);
        assert_eq!(short.verdict, CompareVerdict::NoDifferenceShown, "{short:?}");
        let [low, high] = short.interval.unwrap();
        assert!((-0.08..-0.07).contains(&low) && (0.0..0.01).contains(&high), "{low} {high}");
        assert!(short.detectable_difference.unwrap() > 0.04 && short.p == Some(1.0), "{short:?}");
        assert!(note.is_some_and(|note| note.contains("4.1 %")));
        let (long, _) = compared("closed", 10.0);
        assert_eq!(long.verdict, CompareVerdict::Less);
        let [low, high] = long.interval.unwrap();
        assert!((-0.040..-0.038).contains(&low) && (-0.032..-0.030).contains(&high), "{low} {high}");
        // Of an open loop it scatters, which the blocks say.
        assert_eq!(compared("open", 1.0).0.verdict, CompareVerdict::Less);
    }

    /// Two runs of one server, 120 us a request: beside the second a loop filled the core, in whose time the packets were received.
    #[test]
    fn processor_time_that_may_be_others_shows_no_difference() {
        let run = |us: f64, interval: [f64; 2]| {
            let mut document = Document::of_load(Load::default(), 8.0);
            let (us, interval) = (Some(us), Some(interval));
            document.server = Some(schema::document::Server {
                cpu_us_per_request: us,
                cpu_us_per_request_interval: interval,
                ..schema::document::Server::default()
            });
            document
        };
        let compared = |b: &Document| {
            let a = run(120.0, [115.0, 124.0]);
            let figures = [&a, b].map(|run| Metric::Cpu.of(run).unwrap());
            let found = Found {
                metric: Metric::Cpu,
                a: Some(figures[0]),
                b: Some(figures[1]),
                evidence: Evidence::Apart(estimate(figures[0].ln(), 0.001), estimate(figures[1].ln(), 0.001)),
                grain: coarse(Metric::Cpu, [&a].into_iter(), [b].into_iter()),
            };
            let note = grain_note(std::slice::from_ref(&found), Metric::Cpu, 0.95);
            (judged(vec![found], Metric::Cpu, 0.95).remove(0), note)
        };
        let (niced, note) = compared(&run(80.0, [80.0, 9_980.0]));
        assert_eq!(niced.verdict, CompareVerdict::NoDifferenceShown, "{niced:?}");
        let [low, high] = niced.interval.unwrap();
        assert!((-0.36..-0.35).contains(&low) && high > 80.0, "{low} {high}");
        assert!(note.is_some_and(|note| note.contains("others' work")));
        let (dearer, _) = compared(&run(150.0, [140.0, 155.0]));
        assert_eq!(dearer.verdict, CompareVerdict::More, "{dearer:?}");
        let unbounded = compared(&run(80.0, [0.0, f64::MAX])).0;
        assert!(unbounded.interval.unwrap().iter().all(|bound| bound.is_finite()), "{unbounded:?}");
    }

    #[test]
    fn what_has_no_interval_is_not_known() {
        let alone = Found { evidence: Evidence::None, ..found(Metric::Memory, 2.0, 0.1) };
        let none =
            Found { metric: Metric::Errors, a: Some(0.0), b: Some(0.0), evidence: Evidence::None, grain: [0.0; 2] };
        let absent = Found { metric: Metric::Cpu, a: None, b: Some(1.0), evidence: Evidence::None, grain: [0.0; 2] };
        let told = judged(vec![alone, none, absent], Metric::Mean, 0.95);
        let of = |short: &str| told.iter().find(|metric| metric.short == short).unwrap();
        assert_eq!(of("memory").verdict, CompareVerdict::NotKnown);
        assert!((of("memory").difference.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!((of("errors").verdict, of("errors").interval), (CompareVerdict::NoDifferenceShown, None));
        assert_eq!((of("cpu").verdict, of("cpu").difference), (CompareVerdict::NotKnown, None));
    }
}
