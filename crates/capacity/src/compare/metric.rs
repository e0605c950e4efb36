//! The compared metrics, and the judgement of their differences.

use schema::compare_part::ComparedMetric;
use schema::{CompareVerdict, Document};
use stats::abba::Blocks;
use stats::compare::{Difference, Estimate, between, holm_confidences};

use super::fail_if::FailIf;

/// A figure of a run with load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Mean response time.
    Mean,
    /// Median response time.
    P50,
    /// 90th percentile of the response time.
    P90,
    /// 99th percentile of the response time.
    P99,
    /// Achieved responses per second.
    Rate,
    /// CPU time of the server per request.
    Cpu,
    /// Failed requests and responses with an error status, over offered requests.
    Errors,
    /// Peak memory of the server.
    Memory,
}

impl Metric {
    /// All metrics, in display order.
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

    /// Short name, as typed.
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

    /// Name in documents, ending in the unit.
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

    /// Unit.
    pub const fn unit(self) -> &'static str {
        match self {
            Metric::Mean | Metric::P50 | Metric::P90 | Metric::P99 => "ns",
            Metric::Rate => "1/s",
            Metric::Cpu => "us",
            Metric::Errors => "ratio",
            Metric::Memory => "bytes",
        }
    }

    /// Whether differences are relative to the first side. Those of errors are not, since most runs have none.
    pub const fn is_relative(self) -> bool {
        !matches!(self, Metric::Errors)
    }

    /// The metric with this short name.
    ///
    /// # Errors
    /// The name is unknown; the message lists all.
    pub fn named(typed: &str) -> Result<Self, String> {
        let metric = Metric::ALL.into_iter().find(|metric| metric.short() == typed);
        metric.ok_or_else(|| {
            format!("`{typed}` is not a metric; expected one of {}", Metric::ALL.map(Metric::short).join(", "))
        })
    }

    /// The default deciding metric: response time of an open loop, achieved rate of a closed one.
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

    /// Systematic error of the run's figure, on the scale of [`Metric::scaled`]: the true figure may be lower by the
    /// first and higher by the second value.
    ///
    /// Connections of a closed loop start together and may stay in step, so the end of the phase may include or exclude
    /// as many responses as are in flight. In an open loop arrivals differ between runs and this varies at random. The
    /// server's CPU time may include other programs' work on its cores.
    fn systematic_error(self, document: &Document) -> [f64; 2] {
        match self {
            Metric::Rate => [rate_error(document); 2],
            Metric::Cpu => cpu_error(document).unwrap_or_default(),
            _ => [0.0; 2],
        }
    }

    /// On the scale of differences: logarithms, whose differences are ratios, except for errors. `None` if the figure
    /// has no logarithm.
    pub(crate) fn scaled(self, figure: f64) -> Option<f64> {
        match self.is_relative() {
            false => Some(figure),
            true => (figure > 0.0).then(|| figure.ln()),
        }
    }

    /// Inverse of the scale for a figure.
    pub(crate) fn figure(self, scaled: f64) -> f64 {
        if self.is_relative() { scaled.exp() } else { scaled }
    }

    /// Inverse of the scale for a difference.
    fn difference(self, scaled: f64) -> f64 {
        if self.is_relative() { scaled.exp_m1() } else { scaled }
    }
}

fn rate_error(document: &Document) -> f64 {
    let Some(load) = document.load.as_ref().filter(|load| load.loop_kind == "closed") else { return 0.0 };
    let carried = load.achieved_rate_per_s * document.run.duration_s;
    if carried > 0.0 { (load.in_flight.mean / carried).ln_1p() } else { 0.0 }
}

fn cpu_error(document: &Document) -> Option<[f64; 2]> {
    let server = document.server.as_ref()?;
    let (us, [low, high]) = (server.cpu_us_per_request?, server.cpu_us_per_request_interval?);
    let apart = |more: f64, less: f64| {
        if less > 0.0 { (more / less).ln().clamp(0.0, SYSTEMATIC_ERROR_MAX) } else { SYSTEMATIC_ERROR_MAX }
    };
    Some([apart(us, low), apart(high, us)])
}

/// Bound on an unlimited systematic error: a factor of a million.
const SYSTEMATIC_ERROR_MAX: f64 = 13.8;

/// Random error of a metric for both sides, on its scale.
#[derive(Clone, Debug)]
pub(crate) enum Evidence {
    /// Unknown.
    None,
    /// Separately for each side.
    Apart(Estimate, Estimate),
    /// From the differences of blocks.
    Blocks(Vec<f64>, Blocks),
}

impl Evidence {
    /// With all differences shifted `by`, on its scale.
    fn judge_moved(&self, by: f64, confidence: f64) -> Option<Difference> {
        match self {
            Evidence::None => None,
            Evidence::Apart(a, b) => between(*a, Estimate { value: b.value + by, ..*b }, confidence),
            Evidence::Blocks(differences, blocks) => {
                let moved: Vec<f64> = differences.iter().map(|difference| difference + by).collect();
                blocks.difference(&moved, confidence)
            }
        }
    }
}

/// A metric of both sides.
#[derive(Clone, Debug)]
pub(crate) struct ComparedFigures {
    pub(crate) metric: Metric,
    pub(crate) a: Option<f64>,
    pub(crate) b: Option<f64>,
    pub(crate) evidence: Evidence,
    /// Systematic error: the true difference may be lower by the first and higher by the second value.
    pub(crate) systematic_error: [f64; 2],
}

impl ComparedFigures {
    /// The difference, its interval widened on both sides by the systematic errors, and its p value.
    fn judge(&self, confidence: f64) -> Option<Difference> {
        let plain = self.evidence.judge_moved(0.0, confidence)?;
        if self.systematic_error == [0.0; 2] {
            return Some(plain);
        }
        let [less, more] = self.systematic_error;
        // Towards no difference.
        let by = if plain.mean > 0.0 { -less } else { more };
        let p = if plain.mean.abs() > by.abs() { self.evidence.judge_moved(by, confidence)?.p } else { 1.0 };
        let [low, high] = plain.interval;
        Some(Difference { interval: [low - less, high + more], p, ..plain })
    }
}

/// Systematic error of the difference B less A. For rates that of the worst run; for CPU time the mean error of each
/// side's runs.
pub(crate) fn coarse<'a>(
    metric: Metric,
    a: impl Iterator<Item = &'a Document>,
    b: impl Iterator<Item = &'a Document>,
) -> [f64; 2] {
    let of = |runs: Vec<[f64; 2]>| -> [f64; 2] {
        let count = runs.len().max(1) as f64;
        [0, 1].map(|side| match metric {
            Metric::Cpu => runs.iter().map(|systematic_error| systematic_error[side]).sum::<f64>() / count,
            _ => runs.iter().map(|systematic_error| systematic_error[side]).fold(0.0, f64::max),
        })
    };
    let (a, b) = (
        of(a.map(|run| metric.systematic_error(run)).collect()),
        of(b.map(|run| metric.systematic_error(run)).collect()),
    );
    match metric {
        Metric::Cpu => [b[0] + a[1], b[1] + a[0]],
        _ => [a[0].max(b[0]), a[1].max(b[1])],
    }
}

/// Advice where systematic errors make up most of the deciding metric's interval.
pub(crate) fn systematic_error_note(figures: &[ComparedFigures], by: Metric, confidence: f64) -> Option<String> {
    let figures = figures.iter().find(|figures| figures.metric == by)?;
    let half = figures.judge(confidence)?.half_width();
    let systematic_error = (figures.systematic_error[0] + figures.systematic_error[1]) / 2.0;
    if systematic_error <= half / 2.0 {
        return None;
    }
    let percent = 100.0 * systematic_error.exp_m1();
    Some(match by {
        Metric::Cpu => format!(
            "CPU time may include other programs' work on the server's cores, or the clocks are too coarse for the \
             number of requests: it is known to {percent:.1} %, which is most of the interval. Free cores and longer \
             runs (-d) narrow it, more runs do not."
        ),
        _ => format!(
            "At the end of a closed loop's run, the responses in flight may or may not be counted: its rate is known \
             to {percent:.1} %, which is most of the interval. Longer runs (-d) narrow it, more runs do not."
        ),
    })
}

/// Options of a comparison of either kind.
#[derive(Clone, Debug, PartialEq)]
pub struct CompareOptions {
    /// The deciding metric; absent: [`Metric::deciding`].
    pub by: Option<Metric>,
    /// Confidence of its interval, and of all others together: above 0.5 and below 1.
    pub confidence: f64,
    /// Terms of `--fail-if`.
    pub fail_if: Vec<FailIf>,
}

/// The metrics of the document, the deciding one first. It has its own interval; the others share one error
/// probability.
pub(crate) fn judged(mut figures: Vec<ComparedFigures>, by: Metric, confidence: f64) -> Vec<ComparedMetric> {
    figures.sort_by_key(|figures| (figures.metric != by, figures.metric));
    let p = |figures: &ComparedFigures| {
        if figures.metric == by { None } else { figures.judge(confidence).map(|difference| difference.p) }
    };
    let p: Vec<f64> = figures.iter().map(|figures| p(figures).unwrap_or(f64::NAN)).collect();
    let confidences = holm_confidences(&p, confidence);
    figures.iter().zip(confidences).map(|(figures, confidence)| text(figures, confidence)).collect()
}

fn text(figures: &ComparedFigures, confidence: f64) -> ComparedMetric {
    let metric = figures.metric;
    let mut text = ComparedMetric {
        name: metric.name().to_owned(),
        short: metric.short().to_owned(),
        unit: metric.unit().to_owned(),
        a: figures.a,
        b: figures.b,
        relative: metric.is_relative(),
        difference: None,
        interval: None,
        confidence: None,
        p: None,
        verdict: CompareVerdict::NotKnown,
        detectable_difference: None,
    };
    if metric == Metric::Errors && figures.a == Some(0.0) && figures.b == Some(0.0) {
        // Zero variation does not mean an exact figure.
        text.difference = Some(0.0);
        text.verdict = CompareVerdict::NoDifferenceShown;
        return text;
    }
    if let Some(difference) = figures.judge(confidence) {
        let of = |scaled: f64| metric.difference(scaled);
        text.difference = Some(of(difference.mean));
        text.interval = Some(difference.interval.map(of));
        text.confidence = Some(confidence);
        text.p = Some(difference.p);
        // Equal figures do not show their error.
        text.detectable_difference = Some(of(difference.half_width())).filter(|seen| *seen > 0.0);
        text.verdict = match (difference.is_shown(), difference.mean < 0.0) {
            (false, _) => CompareVerdict::NoDifferenceShown,
            (true, true) => CompareVerdict::Less,
            (true, false) => CompareVerdict::More,
        };
    } else if let (Some(a), Some(b)) =
        (figures.a.and_then(|a| metric.scaled(a)), figures.b.and_then(|b| metric.scaled(b)))
    {
        text.difference = Some(metric.difference(b - a));
    }
    text
}

#[cfg(test)]
mod tests {
    use schema::document::Load;

    use super::*;

    fn estimate(value: f64, standard_error: f64) -> Estimate {
        Estimate { value, standard_error, freedom: 100.0 }
    }

    fn figures(metric: Metric, ratio: f64, error: f64) -> ComparedFigures {
        let evidence = Evidence::Apart(estimate(0.0, 0.0), estimate(ratio.ln(), error));
        ComparedFigures { metric, a: Some(100.0), b: Some(100.0 * ratio), evidence, systematic_error: [0.0; 2] }
    }

    #[test]
    fn deciding_metric_has_its_own_confidence() {
        // 2.2 standard errors: significant alone, not among seven.
        let all: Vec<ComparedFigures> = Metric::ALL.map(|metric| figures(metric, 1.022, 0.01)).into();
        let text = judged(all, Metric::P99, 0.95);
        assert_eq!((text[0].short.as_str(), text[0].verdict), ("p99", CompareVerdict::More));
        assert_eq!(text[0].confidence, Some(0.95));
        assert!(
            text[1..]
                .iter()
                .filter(|other| other.relative)
                .all(|other| { other.verdict == CompareVerdict::NoDifferenceShown && other.confidence > Some(0.99) })
        );
        assert_eq!(text.len(), Metric::ALL.len());
        let could = text[1].detectable_difference.unwrap();
        assert!((0.02..0.04).contains(&could), "{could}");
    }

    #[test]
    fn relative_differences_are_of_the_first_side() {
        let text = judged(vec![figures(Metric::Mean, 0.5, 0.01)], Metric::Mean, 0.95);
        assert!((text[0].difference.unwrap() + 0.5).abs() < 1e-12);
        assert_eq!(text[0].verdict, CompareVerdict::Less);
        let [low, high] = text[0].interval.unwrap();
        assert!(low < -0.5 && -0.5 < high && high < -0.48, "{low} {high}");
    }

    /// 8 connections in step: 200 responses a second of one server, 193 of the other in every run; the truth may be 7 %
    /// or none.
    #[test]
    fn closed_loop_rate_interval_includes_requests_in_flight() {
        let run = |loop_kind: &str, achieved_rate_per_s: f64, seconds: f64| {
            let mut load = Load { loop_kind: loop_kind.into(), achieved_rate_per_s, ..Load::default() };
            load.in_flight.mean = 8.0;
            Document::of_load(load, seconds)
        };
        let compared = |loop_kind: &str, seconds: f64| {
            let runs = [run(loop_kind, 200.0, seconds), run(loop_kind, 193.0, seconds)];
            let blocks = Blocks { min: 6, max: 6, half_width: 0.02 };
            let figures = ComparedFigures {
                metric: Metric::Rate,
                a: Some(200.0),
                b: Some(193.0),
                evidence: Evidence::Blocks(vec![(193.0_f64 / 200.0).ln(); 6], blocks),
                systematic_error: coarse(Metric::Rate, runs[..1].iter(), runs[1..].iter()),
            };
            let note = systematic_error_note(std::slice::from_ref(&figures), Metric::Rate, 0.95);
            (judged(vec![figures], Metric::Rate, 0.95).remove(0), note)
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
        // In an open loop the rate varies at random, which the blocks show.
        assert_eq!(compared("open", 1.0).0.verdict, CompareVerdict::Less);
    }

    /// Two runs of one server, 120 us per request; during the second another program used the core on which packets
    /// were received.
    #[test]
    fn cpu_interval_includes_time_of_other_programs() {
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
            let figures = ComparedFigures {
                metric: Metric::Cpu,
                a: Some(figures[0]),
                b: Some(figures[1]),
                evidence: Evidence::Apart(estimate(figures[0].ln(), 0.001), estimate(figures[1].ln(), 0.001)),
                systematic_error: coarse(Metric::Cpu, [&a].into_iter(), [b].into_iter()),
            };
            let note = systematic_error_note(std::slice::from_ref(&figures), Metric::Cpu, 0.95);
            (judged(vec![figures], Metric::Cpu, 0.95).remove(0), note)
        };
        let (niced, note) = compared(&run(80.0, [80.0, 9_980.0]));
        assert_eq!(niced.verdict, CompareVerdict::NoDifferenceShown, "{niced:?}");
        let [low, high] = niced.interval.unwrap();
        assert!((-0.36..-0.35).contains(&low) && high > 80.0, "{low} {high}");
        assert!(note.is_some_and(|note| note.contains("other programs' work")));
        let (dearer, _) = compared(&run(150.0, [140.0, 155.0]));
        assert_eq!(dearer.verdict, CompareVerdict::More, "{dearer:?}");
        let unbounded = compared(&run(80.0, [0.0, f64::MAX])).0;
        assert!(unbounded.interval.unwrap().iter().all(|bound| bound.is_finite()), "{unbounded:?}");
    }

    #[test]
    fn metric_without_interval_has_an_unknown_verdict() {
        let alone = ComparedFigures { evidence: Evidence::None, ..figures(Metric::Memory, 2.0, 0.1) };
        let none = ComparedFigures {
            metric: Metric::Errors,
            a: Some(0.0),
            b: Some(0.0),
            evidence: Evidence::None,
            systematic_error: [0.0; 2],
        };
        let absent = ComparedFigures {
            metric: Metric::Cpu,
            a: None,
            b: Some(1.0),
            evidence: Evidence::None,
            systematic_error: [0.0; 2],
        };
        let text = judged(vec![alone, none, absent], Metric::Mean, 0.95);
        let of = |short: &str| text.iter().find(|metric| metric.short == short).unwrap();
        assert_eq!(of("memory").verdict, CompareVerdict::NotKnown);
        assert!((of("memory").difference.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!((of("errors").verdict, of("errors").interval), (CompareVerdict::NoDifferenceShown, None));
        assert_eq!((of("cpu").verdict, of("cpu").difference), (CompareVerdict::NotKnown, None));
    }
}
