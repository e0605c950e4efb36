//! Rows: a point's figures on the paper's scale, and unconverted.

use schema::{CachePoint, ClientsSupported, Document, ReproductionRow};

use super::CacheExperiment;
use super::paper::{published, usable as usable_in_paper};
use super::scale::{Interface, Machine, Scale};
pub use crate::figures::find;
use crate::figures::row;
use crate::school_gateway::SchoolGatewayPart;

/// Complete responses per second, over the factor.
pub const RESPONSES: &str = "responses per second, over F";
/// Mean response time, times the factor.
pub const MEAN: &str = "mean response time, times F";
/// Hits over plain GETs with a response.
pub const HITS: &str = "document hit ratio";
/// Failed requests over all.
pub const ERRORS: &str = "error ratio";
/// The highest rate that the machine sustained, over the factor.
pub const USABLE: &str = "usable to, over F";
/// Repeats of objects whose first response had arrived: the hit ratio of a cache without request collapsing, as long as
/// its clients do not wait.
pub const REPEATS_AFTER_RESPONSE: &str = "repeats after the first response";
/// Without conversion.
pub const RESPONSES_UNCONVERTED: &str = "responses per second, unconverted";
/// Without conversion.
pub const MEAN_UNCONVERTED: &str = "mean response time, unconverted";
/// CPU used, as a share of the CPU limit.
pub const CPU: &str = "CPU used, of its limit";
/// CPU time of a request at that point.
pub const CPU_US: &str = "CPU per request, unconverted";
/// F.
pub const FACTOR: &str = "F: time runs this many times as fast";

/// Experiment name of the scale's rows.
pub const SCALE: &str = "the scale";
/// 95 % cacheable, 90 % hits.
pub const REPEATS: &str = "90 % hits";
/// Every URL new.
pub const NEW: &str = "all new";
/// The class after the teacher.
pub const CLASS: &str = "a class";

/// Machine and interface.
pub fn experiment(machine: Machine, interface: Interface) -> String {
    format!("{}, {}", machine.name(), interface.name())
}

/// A rate in the paper as a setting.
pub fn setting(rate_per_s: f64) -> String {
    format!("{rate_per_s}/s")
}

/// The rate of a setting.
pub fn rate_of(setting: &str) -> Option<f64> {
    setting.strip_suffix("/s")?.parse().ok()
}

/// The planned rate of a measured one, which differs at random.
pub fn nearest(rates: &[f64], measured: f64) -> Option<f64> {
    let distance = |rate: &f64| (rate / measured).ln().abs();
    rates.iter().copied().filter(|rate| distance(rate).is_finite()).min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

/// CPU time per request of a run's server, in us; kernel work for its packets outside of the process is not included,
/// and no CPU limit applies to it.
pub fn cpu_us_per_request(run: &Document) -> Option<f64> {
    let server = run.server.as_ref()?;
    let completed = run.load.as_ref()?.completed;
    (completed > 0).then(|| (server.cpu_user_s + server.cpu_system_s) * 1e6 / completed as f64)
}

/// Rows of the scale.
pub fn of_scale(scale: &Scale) -> Vec<ReproductionRow> {
    let row = |quantity: &str, unit: &str, here: f64, note: &str| ReproductionRow {
        note: note.to_owned(),
        ..row(SCALE, "", quantity, unit, here)
    };
    let whence = if scale.cpu_us.is_some() {
        "fitted, the only fitted figure: the small machine has the CPU for 10 F requests a second"
    } else {
        "given by --factor, not calibrated"
    };
    let mut rows = vec![row(FACTOR, "", scale.factor, whence)];
    if let Some(cpu_us) = scale.cpu_us {
        rows.push(row(CPU_US, "us", cpu_us, "unlimited squid, PolyMix-1, a connection per request on both sides"));
    }
    rows
}

/// The figures of a point; `rate` is the paper's.
pub fn of_point(
    experiment: &CacheExperiment,
    rate: f64,
    point: &CachePoint,
    run: Option<&Document>,
    scale: &Scale,
) -> Vec<ReproductionRow> {
    let (name, setting) = (experiment.name(), setting(rate));
    let figures = &point.figures;
    let paper = |quantity: &str| match experiment.part {
        SchoolGatewayPart::Repeats => match quantity {
            ERRORS => Some("0"),
            MEAN => Some("0.73"),
            HITS => Some("89.66"),
            _ => None,
        },
        SchoolGatewayPart::New => (quantity == MEAN).then_some("slow in practice"),
        SchoolGatewayPart::Class => match quantity {
            HITS => Some("near 100"),
            ERRORS => Some("even Type1 serves"),
            _ => None,
        },
        _ => published(experiment.machine, experiment.interface, rate, quantity),
    };
    let early = if point.ended_early { "ended early: half of the recent requests had failed" } else { "" };
    let row = |quantity: &str, unit: &str, here: Option<f64>| ReproductionRow {
        published: paper(quantity).map(str::to_owned),
        note: early.to_owned(),
        ..row(&name, &setting, quantity, unit, here.unwrap_or(f64::NAN))
    };
    let percent = |share: Option<f64>| share.map(|share| 100.0 * share);
    let answered = figures.response_time_ns.count > 0;
    let mean_s = answered.then_some(figures.response_time_ns.mean / 1e9);
    let had_come = figures.offered.saturating_sub(figures.offered_while_fetching);
    let had_come = (figures.basic_requests > 0).then(|| had_come as f64 / figures.basic_requests as f64);
    let mut rows = vec![
        row(RESPONSES, "/s", Some(point.achieved_rate_per_s / scale.factor)),
        row(MEAN, "s", mean_s.map(|mean_s| mean_s * scale.factor)),
        row(HITS, "%", percent(figures.hit_ratio.measured)),
        row(ERRORS, "%", percent(figures.error_ratio)),
        row(REPEATS_AFTER_RESPONSE, "%", percent(had_come)),
        row(RESPONSES_UNCONVERTED, "/s", Some(point.achieved_rate_per_s)),
        row(MEAN_UNCONVERTED, "ms", mean_s.map(|mean_s| mean_s * 1e3)),
    ];
    if let Some((run, server)) = run.and_then(|run| Some((run, run.server.as_ref()?))) {
        let share = experiment.machine.share().cores();
        let used = (server.cpu_user_s + server.cpu_system_s) / (run.run.duration_s * share).max(f64::MIN_POSITIVE);
        rows.push(row(CPU, "%", Some(100.0 * used)));
        rows.push(row(CPU_US, "us", cpu_us_per_request(run)));
    }
    rows
}

/// The rate up to which a machine is usable, by the paper's rule for clients, each with F requests a second here.
pub fn usable(name: &str, machine: Machine, interface: Interface, supported: &ClientsSupported) -> ReproductionRow {
    ReproductionRow {
        published: usable_in_paper(machine, interface).map(str::to_owned),
        note: format!("chosen rule: {}", supported.rule),
        ..row(name, "", USABLE, "/s", supported.clients as f64)
    }
}

#[cfg(test)]
mod tests {
    use schema::document::{Quantiles, Server};
    use schema::{CacheFigures, Ratio};

    use super::*;

    #[test]
    fn point_is_converted_to_the_papers_scale() {
        let experiment = SchoolGatewayPart::Small.experiments()[0];
        let point = CachePoint {
            offered_rate_per_s: 203.0,
            achieved_rate_per_s: 110.0,
            figures: CacheFigures {
                basic_requests: 100,
                offered: 60,
                offered_while_fetching: 10,
                error_ratio: Some(0.25),
                hit_ratio: Ratio { measured: Some(0.325), ..Ratio::default() },
                response_time_ns: Quantiles { count: 9, mean: 2.5e9, ..Quantiles::default() },
                ..CacheFigures::default()
            },
            ..CachePoint::default()
        };
        let validity = schema::Validity::from_checks(Vec::new());
        let empty = serde_json::json!({ "schema": "", "run": schema::document::Run::default(), "validity": validity });
        let mut run: Document = serde_json::from_value(empty).unwrap();
        run.run.duration_s = 10.0;
        run.server = Some(Server { cpu_user_s: 0.1, cpu_system_s: 0.2, ..Server::default() });
        run.load = Some(schema::document::Load { completed: 1000, ..Default::default() });
        let rows = of_point(&experiment, 20.0, &point, Some(&run), &Scale::given(10.0));
        let here = |quantity| find(&rows, "small, 10 Mbit/s", "20/s", quantity);
        assert_eq!((here(RESPONSES), here(MEAN)), (Some(11.0), Some(25.0)));
        assert_eq!((here(HITS), here(ERRORS), here(REPEATS_AFTER_RESPONSE)), (Some(32.5), Some(25.0), Some(50.0)));
        assert_eq!((here(RESPONSES_UNCONVERTED), here(MEAN_UNCONVERTED)), (Some(110.0), Some(2500.0)));
        // 0.3 s of the limit of 10 s x 4 %.
        assert!((here(CPU).unwrap() - 75.0).abs() < 1e-6);
        assert!((here(CPU_US).unwrap() - 300.0).abs() < 1e-6);
        let paper = |quantity| rows.iter().find(|row| row.quantity == quantity).unwrap().published.clone();
        assert_eq!((paper(HITS).as_deref(), paper(MEAN).as_deref()), (Some("32.6"), Some("79.19")));
        assert_eq!(paper(REPEATS_AFTER_RESPONSE), None);
        let nothing = of_point(&experiment, 20.0, &CachePoint::default(), None, &Scale::given(10.0));
        assert!(
            nothing
                .iter()
                .filter(|row| row.quantity != RESPONSES && row.quantity != RESPONSES_UNCONVERTED)
                .all(|row| row.measured.is_none())
        );
    }

    #[test]
    fn measured_rate_is_matched_to_its_planned_rate() {
        assert_eq!(nearest(&[5.0, 10.0, 15.0], 10.9), Some(10.0));
        assert_eq!(nearest(&[5.0, 10.0], 0.0), None);
        assert_eq!(nearest(&[], 1.0), None);
        assert_eq!(rate_of(&setting(12.5)), Some(12.5));
    }
}
