//! `--fail-if`: differences that end a comparison with exit status 4.
//!
//! The rule: a term fails if a difference is *shown* (its interval excludes 0) and the estimate exceeds the limit, or
//! if the whole interval exceeds the limit. A rule by the estimate alone would often fail a server compared with
//! itself. A rule by the whole interval alone would pass a difference clearly above the limit if its interval reaches
//! below the limit. [`FailCertainty`] qualifies each verdict.

use schema::CompareVerdict;
use schema::compare_part::{ComparedMetric, FailCertainty, FailTerm};
use units::{Bytes, RequestRate, parse_duration};

use super::metric::Metric;

/// A term of `--fail-if`: `p99 +5%`, `rate -2%`, `p99 +2ms`, `errors +0.1%`.
#[derive(Clone, Debug, PartialEq)]
pub struct FailIf {
    typed: String,
    metric: Metric,
    above: bool,
    limit: Limit,
}

/// Limit of a difference, B less A.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    /// On the metric's scale of differences: a share of A's figure; for errors, of the requests.
    Share(f64),
    /// In the metric's own unit.
    Amount(f64),
}

impl FailIf {
    /// Parses terms separated by commas.
    ///
    /// # Errors
    /// The expected syntax, as a sentence.
    pub fn several(typed: &str) -> Result<Vec<Self>, String> {
        let terms = typed.split(',').map(str::trim).filter(|term| !term.is_empty());
        let terms: Vec<FailIf> = terms.map(Self::one).collect::<Result<_, _>>()?;
        if terms.is_empty() { Err(format!("no term given; {EXPECTED}")) } else { Ok(terms) }
    }

    fn one(typed: &str) -> Result<Self, String> {
        let at = typed.find(['<', '>', '+', '-']).ok_or_else(|| format!("`{typed}` has no + or -; {EXPECTED}"))?;
        let (name, bound) = (typed[..at].trim(), typed[at..].trim());
        let metric = Metric::named(name)?;
        // `p99 +5%` and `p99 > 5%` are the same; only the second form can require an improvement: `p99 > -5%`.
        let (above, bound) = match bound.split_at(1) {
            (">", rest) => (true, rest.trim()),
            ("<", rest) => (false, rest.trim()),
            ("+", _) => (true, bound),
            _ => (false, bound),
        };
        let (sign, amount) = match bound.split_at_checked(1) {
            Some(("+", rest)) => (1.0, rest.trim()),
            Some(("-", rest)) => (-1.0, rest.trim()),
            _ => (1.0, bound),
        };
        let limit = match amount.strip_suffix('%').map(str::trim) {
            Some(number) => Limit::Share(sign * number_of(number)? / 100.0),
            None => Limit::Amount(sign * amount_of(metric, amount)?),
        };
        Ok(FailIf { typed: typed.to_owned(), metric, above, limit })
    }

    /// Judges the term by the metric's difference and interval; unknown without an interval.
    pub(crate) fn judge(&self, metrics: &[ComparedMetric]) -> FailTerm {
        let metric = metrics.iter().find(|metric| metric.name == self.metric.name());
        let (limit, unit) = match self.limit {
            Limit::Share(limit) => (limit, "ratio"),
            Limit::Amount(limit) => (limit, self.metric.unit()),
        };
        let mut term = FailTerm {
            term: self.typed.clone(),
            metric: self.metric.name().to_owned(),
            limit,
            unit: unit.to_owned(),
            above: self.above,
            ..FailTerm::default()
        };
        let Some((metric, figures)) = metric.and_then(|metric| Some((metric, self.figures(metric)?))) else {
            term.why = "there is no interval here, so the term cannot be judged".to_owned();
            return term;
        };
        (term.failed, term.sure) = self.rule(metric.verdict, &figures, limit);
        term.why = self.explanation(term.sure, &figures, limit);
        term
    }

    /// Estimate and interval in the limit's unit.
    fn figures(&self, metric: &ComparedMetric) -> Option<ComparedFigures> {
        if metric.verdict == CompareVerdict::NotKnown {
            return None;
        }
        let difference = metric.difference?;
        // Without an interval both sides are equal to the last digit, such as no errors at all.
        let interval = metric.interval.unwrap_or([difference; 2]);
        let scale = match self.limit {
            Limit::Amount(_) if metric.relative => metric.a?,
            _ => 1.0,
        };
        Some(ComparedFigures { difference: difference * scale, interval: interval.map(|end| end * scale) })
    }

    fn rule(&self, verdict: CompareVerdict, figures: &ComparedFigures, limit: f64) -> (Option<bool>, FailCertainty) {
        let beyond = |difference: f64| if self.above { difference > limit } else { difference < limit };
        // The end of the interval on the permitted side, and the other one.
        let [low, high] = figures.interval;
        let (near, far) = if self.above { (low, high) } else { (high, low) };
        let is_shown = verdict != CompareVerdict::NoDifferenceShown;
        match (beyond(near), is_shown && beyond(figures.difference), beyond(far)) {
            (true, ..) => (Some(true), FailCertainty::Shown),
            (_, true, _) => (Some(true), FailCertainty::Likely),
            (.., true) => (Some(false), FailCertainty::Possible),
            _ => (Some(false), FailCertainty::Excluded),
        }
    }

    fn explanation(&self, sure: FailCertainty, figures: &ComparedFigures, limit: f64) -> String {
        let text = |difference: f64| self.text(difference);
        let [low, high] = figures.interval.map(text);
        let figures = format!("{} ({low} to {high})", text(figures.difference));
        let limit = text(limit);
        match sure {
            FailCertainty::Shown => format!("{figures}: the whole interval exceeds {limit}"),
            FailCertainty::Likely => {
                format!(
                    "{figures}: a difference is shown and the estimate exceeds {limit}; the interval does so in part"
                )
            }
            FailCertainty::Possible => format!("{figures}: exceeding {limit} is neither shown nor excluded"),
            FailCertainty::Excluded => format!("{figures}: the whole interval is within {limit}"),
            FailCertainty::NotKnown => String::new(),
        }
    }

    /// A difference in the limit's unit, with sign.
    fn text(&self, difference: f64) -> String {
        let size = difference.abs();
        let sign = if difference < 0.0 { "-" } else { "+" };
        let share = |of: &str| format!("{sign}{:.*} {of}", if size < 0.009_95 { 2 } else { 1 }, 100.0 * size);
        match (self.limit, self.metric.unit()) {
            (Limit::Share(_), _) if self.metric.is_relative() => share("%"),
            (Limit::Share(_), _) | (_, "ratio") => share("points of %"),
            (_, "ns") => format!("{sign}{}", of_time(size)),
            (_, "us") => format!("{sign}{}", of_time(size * 1e3)),
            (_, "1/s") => format!("{sign}{size:.1}/s"),
            _ => format!("{sign}{:.2} MB", size / 1e6),
        }
    }
}

/// A difference with the precision of the limit.
struct ComparedFigures {
    difference: f64,
    interval: [f64; 2],
}

fn of_time(nanos: f64) -> String {
    match nanos {
        n if n < 999.5e3 => format!("{:.1} us", n / 1e3),
        n if n < 999.5e6 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.3} s", n / 1e9),
    }
}

fn number_of(typed: &str) -> Result<f64, String> {
    // The sign was removed before: `+-5%` is invalid.
    let number = typed.parse::<f64>().ok().filter(|number| number.is_finite() && !typed.starts_with(['+', '-']));
    number.ok_or_else(|| format!("`{typed}%` is not a valid percentage; {EXPECTED}"))
}

/// An amount in the metric's unit.
fn amount_of(metric: Metric, typed: &str) -> Result<f64, String> {
    let wrong = |unit: &str| format!("`{typed}` is neither a percentage nor {unit}; {EXPECTED}");
    match metric.unit() {
        "ns" => parse_duration(typed).map(|time| time.as_nanos() as f64).map_err(|_| wrong("a time such as 2ms")),
        "us" => parse_duration(typed).map(|time| time.as_nanos() as f64 / 1e3).map_err(|_| wrong("a time such as 5us")),
        "1/s" => typed.parse::<RequestRate>().map(RequestRate::per_second).map_err(|_| wrong("a rate such as 10/s")),
        "bytes" => typed.parse::<Bytes>().map(|bytes| bytes.0 as f64).map_err(|_| wrong("a size such as 10MB")),
        _ => Err(format!("`{typed}`: expected a share of the requests, such as 0.1%; {EXPECTED}")),
    }
}

const EXPECTED: &str = "expected terms such as 'p99 +5%, rate -2%, p99 +2ms': B's p99 more than 5 % above A's, its \
                      rate more than 2 % below, its p99 more than 2 ms above";

#[cfg(test)]
mod tests {
    use super::*;

    fn metric(metric: Metric, a: f64, difference: f64, half_width: f64) -> ComparedMetric {
        let interval = [difference - half_width, difference + half_width];
        let verdict = match interval {
            [low, _] if low > 0.0 => CompareVerdict::More,
            [_, high] if high < 0.0 => CompareVerdict::Less,
            _ => CompareVerdict::NoDifferenceShown,
        };
        ComparedMetric {
            name: metric.name().into(),
            short: metric.short().into(),
            unit: metric.unit().into(),
            a: Some(a),
            b: Some(if metric.is_relative() { a * (1.0 + difference) } else { a + difference }),
            relative: metric.is_relative(),
            difference: Some(difference),
            interval: Some(interval),
            confidence: Some(0.95),
            p: None,
            verdict,
            detectable_difference: Some(half_width),
        }
    }

    fn judged(typed: &str, metrics: &[ComparedMetric]) -> (Option<bool>, FailCertainty) {
        let term = FailIf::several(typed).unwrap_or_else(|why| panic!("{why}"))[0].judge(metrics);
        (term.failed, term.sure)
    }

    /// Boundary values of the rule, in its four cases.
    #[test]
    fn fail_if_term_fails_by_shown_difference_or_whole_interval() {
        let p99 = |difference: f64, half_width: f64| [metric(Metric::P99, 100e6, difference, half_width)];
        assert_eq!(judged("p99 +5%", &p99(0.08, 0.02)), (Some(true), FailCertainty::Shown));
        assert_eq!(judged("p99 +5%", &p99(0.06, 0.02)), (Some(true), FailCertainty::Likely));
        assert_eq!(judged("p99 +5%", &p99(0.04, 0.02)), (Some(false), FailCertainty::Possible));
        assert_eq!(judged("p99 +5%", &p99(0.02, 0.01)), (Some(false), FailCertainty::Excluded));
        // The estimate exceeds the limit but may be noise: not shown, so no failure.
        assert_eq!(judged("p99 +5%", &p99(0.06, 0.07)), (Some(false), FailCertainty::Possible));
        assert_eq!(judged("p99 +5%", &p99(0.0, 0.01)), (Some(false), FailCertainty::Excluded));
        // An improvement never fails an upper limit.
        assert_eq!(judged("p99 +5%", &p99(-0.3, 0.02)), (Some(false), FailCertainty::Excluded));
        // A required improvement: its absence is shown only by the whole interval.
        assert_eq!(judged("p99 > -5%", &p99(0.0, 0.02)), (Some(true), FailCertainty::Shown));
        assert_eq!(judged("p99 > -5%", &p99(-0.04, 0.06)), (Some(false), FailCertainty::Possible));
        assert_eq!(judged("p99 > -5%", &p99(-0.1, 0.02)), (Some(false), FailCertainty::Excluded));
        let rate = [metric(Metric::Rate, 1_000.0, -0.1, 0.01)];
        assert_eq!(judged("rate -2%", &rate), (Some(true), FailCertainty::Shown));
        assert_eq!(judged("rate < -2%", &rate), (Some(true), FailCertainty::Shown));
        assert_eq!(judged("rate -12%", &rate), (Some(false), FailCertainty::Excluded));
    }

    #[test]
    fn fail_if_limits_are_parsed_in_the_metrics_unit() {
        let all = [
            metric(Metric::P99, 100e6, 0.05, 0.01),
            metric(Metric::Rate, 1_000.0, -0.1, 0.01),
            metric(Metric::Cpu, 50.0, 0.2, 0.01),
            metric(Metric::Memory, 100e6, 0.2, 0.01),
            metric(Metric::Errors, 0.001, 0.004, 0.001),
        ];
        let failed = |typed: &str| judged(typed, &all).0;
        // 5 % of 100 ms.
        assert_eq!(
            [failed("p99 +4ms"), failed("p99 +4.9ms"), failed("p99 +5.1ms")],
            [Some(true), Some(true), Some(false)]
        );
        assert_eq!(judged("p99 +3.9ms", &all).1, FailCertainty::Shown);
        assert_eq!([failed("rate -90/s"), failed("rate -110/s")], [Some(true), Some(false)]);
        assert_eq!([failed("cpu +9us"), failed("cpu +11us")], [Some(true), Some(false)]);
        assert_eq!([failed("memory +19MB"), failed("memory +22MB")], [Some(true), Some(false)]);
        assert_eq!([failed("errors +0.2%"), failed("errors > 0.6%")], [Some(true), Some(false)]);
        let term = FailIf::several("p99+4ms").unwrap()[0].judge(&all);
        assert_eq!((term.limit, term.unit.as_str(), term.metric.as_str()), (4e6, "ns", "response_time_p99_ns"));
        assert_eq!(
            term.why,
            "+5.00 ms (+4.00 ms to +6.00 ms): a difference is shown and the estimate exceeds +4.00 ms; the interval \
             does so in part"
        );
        assert!(FailIf::several("errors +0.2%").unwrap()[0].judge(&all).why.contains("+0.40 points of %"));
    }

    #[test]
    fn fail_if_term_without_interval_has_no_verdict() {
        let unknown = ComparedMetric {
            interval: None,
            verdict: CompareVerdict::NotKnown,
            ..metric(Metric::Memory, 1e6, 1.0, 0.1)
        };
        assert_eq!(judged("memory +5%", &[unknown]), (None, FailCertainty::NotKnown));
        assert_eq!(judged("cpu +5 %", &[]), (None, FailCertainty::NotKnown));
        // No errors on either side is an exact difference.
        let none = ComparedMetric { interval: None, ..metric(Metric::Errors, 0.0, 0.0, 0.0) };
        assert_eq!(judged("errors +0.1%", &[none]), (Some(false), FailCertainty::Excluded));
    }

    #[test]
    fn fail_if_parses_several_terms_and_refuses_invalid_ones() {
        let read = FailIf::several("p99 +5%, errors > 0.1%,rate<-2%,mean < 0%").unwrap();
        let terms: Vec<(Metric, bool)> = read.iter().map(|term| (term.metric, term.above)).collect();
        assert_eq!(terms, [(Metric::P99, true), (Metric::Errors, true), (Metric::Rate, false), (Metric::Mean, false)]);
        assert_eq!(read[2].limit, Limit::Share(-0.02));
        for wrong in [
            "",
            "p99 5%",
            "p98 > 5%",
            "p99 > 5",
            "p99 > x%",
            "p99 > inf%",
            "p99 +-5%",
            "p99 + +5%",
            "p99 +5MB",
            "rate -2ms",
            "errors +2",
            "memory +5ms",
            "p99 >",
            "p99 +",
            "+5%",
            "p99 +5%%",
        ] {
            assert!(FailIf::several(wrong).is_err(), "{wrong}");
        }
    }
}
