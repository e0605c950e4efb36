//! CPU of a static and of a dynamic request, divided as in the paper's figure 1, and requests a day.

use plan::{ChoicePlan, LoadPlan, RequestPlan};
use schema::ReproductionRow;

use super::rows::{CPU, DYNAMIC, MIX, PER_DAY, STATIC, STATIC_SHARE, row, with_published};
use super::site::{DynamicLimits, PAGE, Site};
use super::{Measured, MeasurementContext};
use experiment::ExperimentError;
use experiment::local::free_address;

/// Share of static requests, by our reading of the paper: with 6 ms and 16.5 ms it gives 23 % of the CPU.
const STATIC_REQUESTS: f64 = 0.45;
/// The paper's goal.
const GOAL_PER_DAY: f64 = 20e6;
/// Concurrent requests to the application: enough that it is never idle.
pub const APPLICATION_CLIENTS: u32 = 8;
/// Different searches.
pub const SEARCHES: usize = 1000;

/// Runs the part.
pub fn make(context: &mut MeasurementContext<'_>) -> Result<Vec<ReproductionRow>, ExperimentError> {
    let listen = free_address()?;
    let command =
        context.site.with_application(listen, DynamicLimits { cpu_limit_percent: None, least: false, cache: false })?;
    let Some(server) = context.start_with_application("requests", &command, listen)? else { return Ok(Vec::new()) };
    let url = format!("http://{listen}");
    let pages = context.closed(&format!("{url}{PAGE}"));
    let pages = context.measure("requests, static", &server, pages)?;
    if context.interrupted() {
        return Ok(of_static(&pages));
    }
    let searches = context.measure("requests, dynamic", &server, searches(context, &url, |_| None))?;
    let mut rows = of_static(&pages);
    rows.extend(of_dynamic(&searches));
    rows.extend(of_the_mix(pages.us(|used| used.total()), searches.us(|used| used.total())));
    Ok(rows)
}

/// A closed loop of all searches, each in turn, or drawn by weights.
pub fn searches(context: &MeasurementContext<'_>, url: &str, weight: impl Fn(usize) -> Option<f64>) -> LoadPlan {
    let request: Vec<RequestPlan> = Site::searches(SEARCHES)
        .into_iter()
        .enumerate()
        .map(|(at, search)| RequestPlan { weight: weight(at), ..RequestPlan::get(search) })
        .collect();
    let weighted = request.first().is_some_and(|first| first.weight.is_some());
    LoadPlan {
        request,
        choice: Some(if weighted { ChoicePlan::Weighted } else { ChoicePlan::InTurn }),
        connections: Some(APPLICATION_CLIENTS),
        ..context.closed(url)
    }
}

fn of_static(pages: &Measured) -> Vec<ReproductionRow> {
    let system = "kernel time of the server; includes part of softirq time";
    vec![
        with_published(row(STATIC, "OS", CPU, "us", pages.us(|used| used.server_system)), None, system),
        row(STATIC, "server function", CPU, "us", pages.us(|used| used.server_user)),
        with_published(
            row(STATIC, "all", CPU, "us", pages.us(|used| used.total())),
            Some("6000"),
            "a page of 3 KB from memory; the paper's machine is not named",
        ),
        with_published(
            row(STATIC, "softirq of the core", CPU, "us", pages.us(|used| used.softirq)),
            None,
            "for any process; not added",
        ),
    ]
}

fn of_dynamic(searches: &Measured) -> Vec<ReproductionRow> {
    let system = "kernel time of server and application";
    vec![
        with_published(
            row(DYNAMIC, "OS", CPU, "us", searches.us(|used| used.server_system + used.below_system)),
            None,
            system,
        ),
        row(DYNAMIC, "server function", CPU, "us", searches.us(|used| used.server_user)),
        with_published(
            row(DYNAMIC, "application", CPU, "us", searches.us(|used| used.below_user)),
            None,
            "gunicorn, Python and SQLite in user mode",
        ),
        with_published(
            row(DYNAMIC, "all", CPU, "us", searches.us(|used| used.total())),
            Some("16500"),
            "a search among all entries, never cached",
        ),
        with_published(
            row(DYNAMIC, "softirq of the core", CPU, "us", searches.us(|used| used.softirq)),
            None,
            "for any process; not added",
        ),
    ]
}

/// Figures derived from both CPU times, in us.
fn of_the_mix(page_us: f64, search_us: f64) -> Vec<ReproductionRow> {
    let pages_us = STATIC_REQUESTS * page_us;
    let mean_us = pages_us + (1.0 - STATIC_REQUESTS) * search_us;
    let per_day = 86_400e6 / mean_us;
    vec![
        with_published(
            row(MIX, "45 % static", STATIC_SHARE, "%", 100.0 * pages_us / mean_us),
            Some("23"),
            "45 % static requests: our reading of the paper's 23 % with 6 and 16.5 ms",
        ),
        with_published(
            row(MIX, "45 % static", PER_DAY, "millions", per_day / 1e6),
            Some("7.3"),
            &format!(
                "the paper's goal is 20 million a day for the whole service: here this needs {:.1} of a core, as the \
                 mean of the day; the published figure is derived from its 6 and 16.5 ms",
                GOAL_PER_DAY / per_day
            ),
        ),
        with_published(
            row(MIX, "static only", PER_DAY, "millions", 86_400e6 / page_us / 1e6),
            Some("14.4"),
            "from the CPU of a static request alone",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ntt_directory::rows::find;

    /// The paper's two CPU times give its published share, and the requests a day that we derived.
    #[test]
    fn the_papers_cpu_times_give_its_static_share() {
        let rows = of_the_mix(6000.0, 16500.0);
        let share = find(&rows, MIX, "45 % static", STATIC_SHARE).unwrap();
        assert!((22.5..23.5).contains(&share), "{share}");
        let per_day = find(&rows, MIX, "45 % static", PER_DAY).unwrap();
        assert!((7.25..7.35).contains(&per_day), "{per_day}");
        assert_eq!(find(&rows, MIX, "static only", PER_DAY), Some(14.4));
    }
}
