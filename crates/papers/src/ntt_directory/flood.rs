//! Static responses while dynamic requests come at ten times the application's maximum: the paper's case for a limit on
//! the application's CPU.

use std::time::Duration;

use plan::{ChoicePlan, ExpectPlan, LoadPlan, RequestPlan};
use schema::{Quantiles, ReproductionRow};
use units::RequestRate;

use super::rows::{
    DYNAMIC_OFFERED, DYNAMIC_PER_SECOND, DYNAMIC_SHARE, FLOOD, P99_RATIO, STATIC_FAILED, STATIC_P50, STATIC_P99, row,
    with_published,
};
use super::site::{APPLICATION, DynamicLimits, PAGE, Site};
use super::{Measured, MeasurementContext, requests};
use experiment::ExperimentError;
use experiment::local::LocalServer;
use experiment::local::free_address;
use stats::median;

/// Limits of the dynamic part.
struct Case {
    name: &'static str,
    dynamic_limits: DynamicLimits,
}

const CPU_LIMIT_PERCENT: u32 = 40;

/// From the most protected to the least.
const CASES: [Case; 3] = [
    Case {
        name: "limited, least weight",
        dynamic_limits: DynamicLimits { cpu_limit_percent: Some(CPU_LIMIT_PERCENT), least: true, cache: false },
    },
    Case {
        name: "limited",
        dynamic_limits: DynamicLimits { cpu_limit_percent: Some(CPU_LIMIT_PERCENT), least: false, cache: false },
    },
    Case { name: "unlimited", dynamic_limits: DynamicLimits { cpu_limit_percent: None, least: false, cache: false } },
];
/// Flood rate, as a multiple of the application's maximum.
const FLOOD_FACTOR: f64 = 10.0;
/// Rate of pages meanwhile.
const PAGES_PER_S: f64 = 1000.0;
/// Unloaded and flooded rounds: A B B A.
const ROUNDS: usize = 4;
/// Response timeout.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Different searches of the flood, which a run's document lists next to the page.
const SEARCHES: usize = 50;

/// Measurements per case: the maximum, and the rounds.
pub const MEASUREMENTS: u32 = (CASES.len() * (1 + ROUNDS)) as u32;

/// Runs the part.
pub fn make(context: &mut MeasurementContext<'_>) -> Result<Vec<ReproductionRow>, ExperimentError> {
    let mut rows = Vec::new();
    for case in &CASES {
        if context.interrupted() {
            break;
        }
        let listen = free_address()?;
        let command = context.site.with_application(listen, case.dynamic_limits)?;
        let name = format!("flood, {}", case.name);
        let Some(server) = context.start_with_application(&name, &command, listen)? else { continue };
        rows.extend(of_case(context, case, &server, &format!("http://{listen}"))?);
    }
    Ok(rows)
}

fn of_case(
    context: &mut MeasurementContext<'_>,
    case: &Case,
    server: &LocalServer,
    url: &str,
) -> Result<Vec<ReproductionRow>, ExperimentError> {
    let load = requests::searches(context, url, |_| None);
    let capacity = context.measure(&format!("flood, {}, maximum", case.name), server, load)?;
    // A flood at rate zero is none.
    let capacity_per_s = completed_per_s(&capacity).max(1.0);
    let (mut unloaded, mut flooded) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        if context.interrupted() {
            break;
        }
        // A B B A.
        if matches!(round, 0 | 3) {
            let load = open(context, url, PAGES_PER_S, vec![RequestPlan::get(PAGE)]);
            unloaded.push(context.measure(&format!("flood, {}, unloaded", case.name), server, load)?);
        } else {
            let searches_per_s = FLOOD_FACTOR * capacity_per_s;
            let page = RequestPlan { weight: Some(PAGES_PER_S), expect: status("200"), ..RequestPlan::get(PAGE) };
            let mut request = vec![page];
            request.extend(Site::searches(SEARCHES).into_iter().map(|search| RequestPlan {
                weight: Some(searches_per_s / SEARCHES as f64),
                ..RequestPlan::get(search)
            }));
            let load = open(context, url, PAGES_PER_S + searches_per_s, request);
            // Most searches are refused: this is the purpose of the flood and no failure of the run.
            let load = LoadPlan { expect: status("200,503"), ..load };
            flooded.push(context.measure(&format!("flood, {}, flooded", case.name), server, load)?);
        }
    }
    Ok(rows(case, capacity_per_s, &unloaded, &flooded))
}

fn open(context: &MeasurementContext<'_>, url: &str, rate_per_s: f64, request: Vec<RequestPlan>) -> LoadPlan {
    LoadPlan {
        choice: Some(if request.len() > 1 { ChoicePlan::Weighted } else { ChoicePlan::InTurn }),
        request,
        rate: RequestRate::from_per_second(rate_per_s),
        connections: None,
        duration: Some(context.input.time),
        timeout: TIMEOUT,
        ..LoadPlan::get(url)
    }
}

/// Expected response.
fn status(statuses: &str) -> Option<ExpectPlan> {
    Some(ExpectPlan { status: statuses.parse().ok(), ..ExpectPlan::default() })
}

/// Responses of status 200 to searches, per second.
fn completed_per_s(measured: &Measured) -> f64 {
    let Some(load) = &measured.document.load else { return 0.0 };
    let good = load.status.get("200").copied().unwrap_or(0);
    let pages = if load.by_url.is_empty() { 0 } else { page(measured).map_or(0, |page| page.completed) };
    good.saturating_sub(pages) as f64 / measured.document.run.duration_s.max(1e-9)
}

/// Figures of the page.
struct Page {
    /// Response times, failed requests included.
    times: Quantiles,
    completed: u64,
    failed: u64,
}

fn page(measured: &Measured) -> Option<Page> {
    let load = measured.document.load.as_ref()?;
    match load.by_url.iter().find(|part| part.url.ends_with(PAGE)) {
        Some(part) => Some(Page { times: part.response_time_ns, completed: part.completed, failed: part.failed }),
        // No other URL was requested.
        None if load.by_url.is_empty() => {
            Some(Page { times: load.response_time_ns, completed: load.completed, failed: load.failed.values().sum() })
        }
        None => None,
    }
}

fn rows(case: &Case, capacity_per_s: f64, unloaded: &[Measured], flooded: &[Measured]) -> Vec<ReproductionRow> {
    let of = |rounds: &[Measured], at: fn(&Quantiles) -> u64| {
        median(rounds.iter().filter_map(page).map(|page| at(&page.times) as f64 / 1e3))
    };
    let mut rows = Vec::new();
    let (before, during) = (format!("{}, unloaded", case.name), format!("{}, flooded", case.name));
    for (setting, rounds) in [(&before, unloaded), (&during, flooded)] {
        rows.push(row(FLOOD, setting, STATIC_P50, "us", of(rounds, |times| times.p50)));
        rows.push(row(FLOOD, setting, STATIC_P99, "us", of(rounds, |times| times.p99)));
        let failed = median(
            rounds
                .iter()
                .filter_map(page)
                .map(|page| 100.0 * page.failed as f64 / (page.completed + page.failed).max(1) as f64),
        );
        rows.push(row(FLOOD, setting, STATIC_FAILED, "%", failed));
    }
    let ratio = of(flooded, |times| times.p99) / of(unloaded, |times| times.p99);
    let note =
        if case.dynamic_limits.cpu_limit_percent.is_some() { "expected: at most 1.1 with the limit" } else { "" };
    rows.push(with_published(row(FLOOD, &during, P99_RATIO, "", ratio), None, note));
    let offered = with_published(
        row(FLOOD, &during, DYNAMIC_OFFERED, "1/s", FLOOD_FACTOR * capacity_per_s),
        None,
        &format!("ten times the application's maximum of {capacity_per_s:.0} a second"),
    );
    rows.push(offered);
    let answered = median(flooded.iter().map(completed_per_s));
    rows.push(row(FLOOD, &during, DYNAMIC_PER_SECOND, "1/s", answered));
    let share = median(flooded.iter().map(|one| {
        let used = one.used.below_user + one.used.below_system;
        100.0 * used.as_secs_f64() / one.document.run.duration_s.max(1e-9)
    }));
    let note = match case.dynamic_limits.cpu_limit_percent {
        Some(percent) => {
            format!("the limit is {percent} %; the CPU time of {APPLICATION} for the last responses is included")
        }
        None => String::new(),
    };
    rows.push(with_published(row(FLOOD, &during, DYNAMIC_SHARE, "%", share), None, &note));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ntt_directory::rows::find;
    use experiment::local::ServerCpu;
    use schema::Document;
    use schema::document::{Load, UrlPart};

    fn measured(page_p99_ns: u64, with_searches: bool) -> Measured {
        let times = Quantiles { count: 100, p50: 100_000, p99: page_p99_ns, ..Quantiles::default() };
        let url = |url: &str, completed, response_time_ns| UrlPart {
            url: url.into(),
            completed,
            failed: 1,
            response_time_ns,
        };
        let slow = Quantiles { p99: 9_000_000_000, ..times };
        let by_url = if with_searches {
            vec![url("http://127.0.0.1:1/index.html", 100, times), url("http://127.0.0.1:1/app/search?q=a", 60, slow)]
        } else {
            Vec::new()
        };
        let load = Load {
            completed: 160,
            status: [("200".to_owned(), 120), ("503".to_owned(), 40)].into(),
            response_time_ns: if with_searches { slow } else { times },
            by_url,
            ..Load::default()
        };
        let document = Document::of_load(load, 2.0);
        let used = ServerCpu { below_user: Duration::from_millis(800), ..ServerCpu::default() };
        Measured { document, used }
    }

    #[test]
    fn static_figures_are_of_the_page_and_searches_count_with_results() {
        let rows = rows(&CASES[0], 50.0, &[measured(400_000, false)], &[measured(440_000, true)]);
        let of = |setting: &str, quantity: &str| find(&rows, FLOOD, setting, quantity).unwrap();
        assert_eq!(of("limited, least weight, unloaded", STATIC_P99), 400.0);
        assert_eq!(of("limited, least weight, flooded", STATIC_P99), 440.0);
        assert!((of("limited, least weight, flooded", P99_RATIO) - 1.1).abs() < 1e-9);
        assert_eq!(of("limited, least weight, unloaded", STATIC_FAILED), 0.0);
        assert!((of("limited, least weight, flooded", STATIC_FAILED) - 100.0 / 101.0).abs() < 1e-9);
        assert_eq!(of("limited, least weight, flooded", DYNAMIC_PER_SECOND), 10.0);
        assert_eq!(of("limited, least weight, flooded", DYNAMIC_OFFERED), 500.0);
        assert_eq!(of("limited, least weight, flooded", DYNAMIC_SHARE), 40.0);
    }
}
