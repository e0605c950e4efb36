//! Load of a proxy during the measurement: PolyMix-1 at a rate, by a child process `yamabiko cache`, or wget, one file
//! after the other, as in the school gateway paper.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plan::{HostPlan, Placement, Proxy};
use schema::{Document, ProxyLoad};
use units::{Probability, RequestRate};

use super::gateway_plan::ProxyLoading;
use cachebench::{CachePlan, StopErrors, SweepPlan, origin};
use experiment::ExperimentError;
use experiment::Order;
use experiment::programs::quoted;

/// A proxy is overloaded below this share of the offered rate, or above this share of errors.
const ACHIEVED_MIN: f64 = 0.9;
const ERRORS_MAX: f64 = 0.05;
/// Size of a file fetched by wget; a page of 2001 had about ten such files.
const FILE_BYTES: usize = 10_000;

/// A prepared load.
pub(super) struct Load {
    /// The shell command of the origin.
    pub origin: String,
    /// Command line of the load program.
    pub argv: Vec<OsString>,
    /// File of its stdout.
    output: PathBuf,
    /// Configured rate, if any.
    rate: Option<RequestRate>,
}

impl Load {
    /// Prepares a load in `folder`: requests through `proxy` for objects of `origin`, for at most `lasts`.
    pub fn prepare(
        loading: ProxyLoading,
        proxy: &str,
        origin: SocketAddr,
        lasts: Duration,
        order: &Order,
        folder: &Path,
    ) -> Result<Load, ExperimentError> {
        let output = folder.join("load.out");
        match loading {
            ProxyLoading::Rate(rate) => {
                let plan = cache_plan(rate, proxy, origin, lasts, order.seed)?;
                let file = folder.join("load.toml");
                fs::write(&file, plan.to_toml()).map_err(ExperimentError::file(&file))?;
                let workload = plan.workload.spec().map_err(testbed::TestbedError::Plan)?;
                let words = ["run", "--json", "--no-save"].map(OsString::from);
                let program = OsString::from(&order.program);
                Ok(Load {
                    origin: origin::command(&plan, &workload, order, origin, None, folder)?,
                    argv: [program].into_iter().chain(words).chain([file.into_os_string()]).collect(),
                    output,
                    rate: Some(rate),
                })
            }
            ProxyLoading::Wget => {
                if std::process::Command::new("wget").arg("--version").output().is_err() {
                    return Err(ExperimentError::Missing { program: "wget", fix: "apt-get install wget" });
                }
                let www = folder.join("www");
                fs::create_dir_all(&www).map_err(ExperimentError::file(&www))?;
                let page = www.join("page");
                fs::write(&page, vec![b'y'; FILE_BYTES]).map_err(ExperimentError::file(&page))?;
                let (program, www) = (quoted(&order.program), quoted(&www));
                // A new name for each, so that the cache has none.
                let script = format!(
                    "n=0; while n=$((n+1)); do if wget -q -T 10 -t 1 -O /dev/null -e use_proxy=on -e http_proxy=http://{proxy}/ \
                     \"http://{origin}/page?$n\"; then echo o; else echo x; fi; done"
                );
                Ok(Load {
                    origin: format!("exec {program} serve {www} --listen {origin}"),
                    argv: ["/bin/sh", "-c", &script].map(OsString::from).to_vec(),
                    output,
                    rate: None,
                })
            }
        }
    }

    /// Creates the empty file for its stdout.
    pub fn stdout(&self) -> Result<File, ExperimentError> {
        File::create(&self.output).map_err(ExperimentError::file(&self.output))
    }

    /// The file of its stdout.
    pub fn output(&self) -> &Path {
        &self.output
    }

    /// Figures of the proxy after the load, which ran for `lasted`.
    ///
    /// # Errors
    /// One sentence: the load's output is unreadable.
    pub fn proxy_load(&self, lasted: Duration) -> Result<ProxyLoad, String> {
        let output = fs::read_to_string(&self.output)
            .map_err(|error| format!("the output of the proxy load is unreadable: {error}"))?;
        match self.rate {
            Some(rate) => parse_cache_result(&output, rate),
            None => parse_wget_result(&output, lasted),
        }
    }
}

/// The plan of the sweep of one rate.
fn cache_plan(
    rate: RequestRate,
    proxy: &str,
    origin: SocketAddr,
    lasts: Duration,
    seed: u64,
) -> Result<CachePlan, ExperimentError> {
    let proxy: Proxy = proxy.parse().map_err(|why| testbed::TestbedError::Plan(format!("proxy (--proxy): {why}")))?;
    let sweep = SweepPlan {
        proxy: Some(proxy),
        rates: vec![rate],
        point: lasts,
        // Ended when the gateway has been measured.
        warmup: Probability::ZERO,
        stop_errors: StopErrors(None),
        origin_at: Some(origin),
        ..SweepPlan::default()
    };
    let mut plan = CachePlan {
        name: "load".into(),
        seed,
        host: HostPlan { placement: Placement::Float, ..HostPlan::default() },
        ..CachePlan::new(sweep)
    };
    // No think time.
    plan.workload.set.insert("think".into(), toml::Value::String("none".into()));
    Ok(plan)
}

fn parse_cache_result(output: &str, rate: RequestRate) -> Result<ProxyLoad, String> {
    let document: Document = serde_json::from_str(output)
        .map_err(|error| format!("the output of the proxy load ({} bytes) is invalid: {error}", output.len()))?;
    let point = document.cache.and_then(|part| part.points.into_iter().next());
    let point = point.ok_or("the proxy load has no result")?;
    let figures = &point.figures;
    let error_ratio = figures.error_ratio.ok_or("the proxy load made no requests")?;
    Ok(ProxyLoad {
        by: "rate".into(),
        offered_per_s: Some(rate.per_second()),
        achieved_per_s: point.achieved_rate_per_s,
        error_ratio,
        hit_ratio: figures.hit_ratio.measured,
        response_mean_ns: (figures.response_time_ns.count > 0).then_some(figures.response_time_ns.mean),
        overloaded: is_overloaded(point.offered_rate_per_s, point.achieved_rate_per_s, error_ratio),
    })
}

/// Whether a proxy is overloaded, like the smallest in the school gateway paper.
fn is_overloaded(offered_per_s: f64, achieved_per_s: f64, error_ratio: f64) -> bool {
    achieved_per_s < ACHIEVED_MIN * offered_per_s || error_ratio >= ERRORS_MAX
}

fn parse_wget_result(output: &str, lasted: Duration) -> Result<ProxyLoad, String> {
    let (mut fetched, mut failed) = (0u64, 0u64);
    for line in output.lines() {
        match line {
            "o" => fetched += 1,
            "x" => failed += 1,
            _ => {}
        }
    }
    if fetched + failed == 0 || lasted.is_zero() {
        return Err("wget fetched nothing".into());
    }
    let error_ratio = failed as f64 / (fetched + failed) as f64;
    Ok(ProxyLoad {
        by: "wget".into(),
        achieved_per_s: fetched as f64 / lasted.as_secs_f64(),
        error_ratio,
        overloaded: error_ratio >= ERRORS_MAX,
        ..ProxyLoad::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_is_overloaded_below_90_percent_achieved_or_from_5_percent_errors() {
        assert!(!is_overloaded(40.0, 36.0, 0.049));
        assert!(is_overloaded(40.0, 35.9, 0.0));
        assert!(is_overloaded(40.0, 40.0, 0.05));
    }

    #[test]
    fn wget_result_counts_output_lines() {
        let proxy_load = parse_wget_result("o\no\nx\no\n", Duration::from_secs(2)).unwrap();
        assert_eq!((proxy_load.achieved_per_s, proxy_load.error_ratio, proxy_load.overloaded), (1.5, 0.25, true));
        assert!(parse_wget_result("", Duration::from_secs(2)).is_err());
        assert!(parse_cache_result("", RequestRate::from_per_second(1.0).unwrap()).unwrap_err().contains("is invalid"));
    }

    #[test]
    fn plan_of_the_proxy_load_is_valid_and_round_trips() {
        let rate = RequestRate::from_per_second(40.0).unwrap();
        let origin = "198.18.0.1:8400".parse().unwrap();
        let plan = cache_plan(rate, "198.18.255.1:3128", origin, Duration::from_secs(60), 1).unwrap();
        cachebench::check(&plan).unwrap();
        assert_eq!(CachePlan::from_toml(&plan.to_toml(), "load.toml").unwrap(), plan);
        assert!(cache_plan(rate, "nowhere", origin, Duration::from_secs(60), 1).is_err());
    }
}
