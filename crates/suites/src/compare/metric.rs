//! The figures that are compared, and how their differences are judged.

use ledger::compare_part::ComparedMetric;
use ledger::{CompareVerdict, Document};
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
    /// Requests that failed, and answers of class 5xx, over those offered.
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
            Metric::Rate => "carried_rate_per_s",
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
            Metric::Rate => Some(load.carried_rate_per_s),
            Metric::Cpu => document.server.as_ref()?.cpu_us_per_request,
            Metric::Errors => Some(lab::slo::error_ratio(load)),
            Metric::Memory => Some(document.server.as_ref()?.rss_bytes_max as f64).filter(|bytes| *bytes > 0.0),
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
    pub(crate) fn judge(&self, confidence: f64) -> Option<Difference> {
        match self {
            Evidence::None => None,
            Evidence::Apart(a, b) => between(*a, *b, confidence),
            Evidence::Blocks(differences, blocks) => blocks.judge(differences, confidence),
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
}

/// What is asked of a comparison, whatever is compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
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
        if found.metric == by { None } else { found.evidence.judge(confidence).map(|found| found.p) }
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
        could_have_seen: None,
    };
    if metric == Metric::Errors && found.a == Some(0.0) && found.b == Some(0.0) {
        // That nothing scatters does not mean that it is known to the last digit.
        told.difference = Some(0.0);
        told.verdict = CompareVerdict::NoDifferenceShown;
        return told;
    }
    if let Some(difference) = found.evidence.judge(confidence) {
        let of = |scaled: f64| metric.difference(scaled);
        told.difference = Some(of(difference.mean));
        told.interval = Some(difference.interval.map(of));
        told.confidence = Some(confidence);
        told.p = Some(difference.p);
        // Figures that are the same to the last digit do not say how well they are known.
        told.could_have_seen = Some(of(difference.half_width())).filter(|seen| *seen > 0.0);
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
    use super::*;

    fn estimate(value: f64, standard_error: f64) -> Estimate {
        Estimate { value, standard_error, freedom: 100.0 }
    }

    fn found(metric: Metric, ratio: f64, error: f64) -> Found {
        let evidence = Evidence::Apart(estimate(0.0, 0.0), estimate(ratio.ln(), error));
        Found { metric, a: Some(100.0), b: Some(100.0 * ratio), evidence }
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
        let could = told[1].could_have_seen.unwrap();
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

    #[test]
    fn what_has_no_interval_is_not_known() {
        let alone = Found { evidence: Evidence::None, ..found(Metric::Memory, 2.0, 0.1) };
        let none = Found { metric: Metric::Errors, a: Some(0.0), b: Some(0.0), evidence: Evidence::None };
        let absent = Found { metric: Metric::Cpu, a: None, b: Some(1.0), evidence: Evidence::None };
        let told = judged(vec![alone, none, absent], Metric::Mean, 0.95);
        let of = |short: &str| told.iter().find(|metric| metric.short == short).unwrap();
        assert_eq!(of("memory").verdict, CompareVerdict::NotKnown);
        assert!((of("memory").difference.unwrap() - 1.0).abs() < 1e-12);
        assert_eq!((of("errors").verdict, of("errors").interval), (CompareVerdict::NoDifferenceShown, None));
        assert_eq!((of("cpu").verdict, of("cpu").difference), (CompareVerdict::NotKnown, None));
    }
}
