//! Effect of a result cache on searches with a skewed popularity.

use std::net::SocketAddr;

use schema::ReproductionRow;

use super::rows::{CACHE, CPU, HIT_RATIO, PER_SECOND, row, with_published};
use super::site::DynamicLimits;
use super::{MeasurementContext, requests};
use experiment::ExperimentError;
use experiment::local::free_address;
use testbed::get::get;

/// Zipf exponent: search n is requested 1/n^0.8 times as often as the first.
const ZIPF_EXPONENT: f64 = 0.8;

/// Runs the part.
pub fn make(context: &mut MeasurementContext<'_>) -> Result<Vec<ReproductionRow>, ExperimentError> {
    let mut rows = Vec::new();
    for (setting, cache) in [("without", false), ("with", true)] {
        if context.interrupted() {
            break;
        }
        let listen = free_address()?;
        let command =
            context.site.with_application(listen, DynamicLimits { cpu_limit_percent: None, least: false, cache })?;
        let name = format!("cache, {setting}");
        let Some(server) = context.start_with_application(&name, &command, listen)? else { continue };
        let load =
            requests::searches(context, &format!("http://{listen}"), |at| Some(((at + 1) as f64).powf(-ZIPF_EXPONENT)));
        let measured = context.measure(&format!("cache, {setting}"), &server, load)?;
        rows.push(row(CACHE, setting, PER_SECOND, "1/s", measured.per_second()));
        rows.push(with_published(
            row(CACHE, setting, CPU, "us", measured.us(|used| used.total())),
            (!cache).then_some("16500"),
            "server and application, user and kernel",
        ));
        if cache {
            rows.push(with_published(
                row(CACHE, setting, HIT_RATIO, "%", hit_ratio(listen)?.map_or(f64::NAN, |ratio| 100.0 * ratio)),
                None,
                &format!(
                    "of {} different searches, search n requested 1/n^{ZIPF_EXPONENT} times as often as the first; the \
                     cache started empty. The paper expected more caching to bring dynamic CPU down to about 15 %, \
                     and does not say of what",
                    requests::SEARCHES
                ),
            ));
        }
    }
    Ok(rows)
}

/// Share of dynamic responses without a search, by the server's metrics; absent if it has none.
fn hit_ratio(server: SocketAddr) -> Result<Option<f64>, ExperimentError> {
    Ok(ratio_in(&get(server, "/-/status?format=prometheus").map_err(ExperimentError::file("/-/status"))?))
}

/// Metric lines such as `yamabiko_cache_responses_total{outcome="hit",reason="fresh"} 12`.
fn ratio_in(prometheus: &str) -> Option<f64> {
    let count = |outcome: &str| -> f64 {
        let label = format!("outcome=\"{outcome}\"");
        let lines = prometheus
            .lines()
            .filter(|line| line.starts_with("yamabiko_cache_responses_total{") && line.contains(&label));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).fold(0.0, |sum, count| sum + count)
    };
    let hits = count("hit") + count("stale") + count("collapsed");
    let others = count("miss") + count("revalidated") + count("bypass");
    (hits + others > 0.0).then(|| hits / (hits + others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hit_ratio_is_read_from_the_servers_metrics() {
        let text = "HTTP/1.1 200 OK\r\n\r\n# TYPE yamabiko_cache_responses_total counter\n\
                    yamabiko_cache_responses_total{outcome=\"hit\",reason=\"fresh\"} 60\n\
                    yamabiko_cache_responses_total{outcome=\"collapsed\",reason=\"waited\"} 15\n\
                    yamabiko_cache_responses_total{outcome=\"miss\",reason=\"absent\"} 25\n\
                    yamabiko_requests_total{outcome=\"hit\"} 1000\n";
        assert_eq!(ratio_in(text), Some(0.75));
        assert_eq!(ratio_in("HTTP/1.1 404 Not Found\r\n\r\n"), None);
    }
}
