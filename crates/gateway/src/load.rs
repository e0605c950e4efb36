//! What keeps a proxy busy while its gateway is measured: PolyMix-1 at a rate, by `yamabiko cache` as a child, or wget, one file
//! after the other, as the school gateway's paper had it.

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

/// Below this share of what was offered, or above this share of errors, a proxy is overloaded.
const CARRIED_MIN: f64 = 0.9;
const ERRORS_MAX: f64 = 0.05;
/// What wget fetches: a page of the time with its pictures has some ten of this size.
const FILE_BYTES: usize = 10_000;

/// A load, prepared.
pub(super) struct Load {
    /// The shell command of the origin; of one that runs already there is none.
    pub origin: String,
    /// The program that loads.
    pub argv: Vec<OsString>,
    /// Where its stdout goes.
    said: PathBuf,
    /// The rate, where it has one.
    rate: Option<RequestRate>,
}

impl Load {
    /// Prepares it in `folder`: it asks `proxy` for what `origin` has, for `lasts` at most.
    pub fn prepare(
        loading: ProxyLoading,
        proxy: &str,
        origin: SocketAddr,
        lasts: Duration,
        order: &Order,
        folder: &Path,
    ) -> Result<Load, ExperimentError> {
        let said = folder.join("load.out");
        match loading {
            ProxyLoading::Rate(rate) => {
                let plan = mix_plan(rate, proxy, origin, lasts, order.seed)?;
                let file = folder.join("load.toml");
                fs::write(&file, plan.to_toml()).map_err(ExperimentError::file(&file))?;
                let workload = plan.workload.spec().map_err(testbed::LabError::Plan)?;
                let words = ["run", "--json", "--no-save"].map(OsString::from);
                let program = OsString::from(&order.program);
                Ok(Load {
                    origin: origin::command(&plan, &workload, order, origin, None, folder)?,
                    argv: [program].into_iter().chain(words).chain([file.into_os_string()]).collect(),
                    said,
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
                // Each under a name of its own, so that none is in the cache: a site that is fetched once.
                let script = format!(
                    "n=0; while n=$((n+1)); do if wget -q -T 10 -t 1 -O /dev/null -e use_proxy=on -e http_proxy=http://{proxy}/ \
                     \"http://{origin}/page?$n\"; then echo o; else echo x; fi; done"
                );
                Ok(Load {
                    origin: format!("exec {program} serve {www} --listen {origin}"),
                    argv: ["/bin/sh", "-c", &script].map(OsString::from).to_vec(),
                    said,
                    rate: None,
                })
            }
        }
    }

    /// A file for its stdout, empty.
    pub fn stdout(&self) -> Result<File, ExperimentError> {
        File::create(&self.said).map_err(ExperimentError::file(&self.said))
    }

    /// The file for its stdout.
    pub fn said(&self) -> &Path {
        &self.said
    }

    /// How the proxy fared, once the load has ended; it went on for `lasted`.
    ///
    /// # Errors
    /// One sentence: it said nothing that could be read.
    pub fn fared(&self, lasted: Duration) -> Result<ProxyLoad, String> {
        let said =
            fs::read_to_string(&self.said).map_err(|error| format!("what loaded the proxy said nothing: {error}"))?;
        match self.rate {
            Some(rate) => by_mix(&said, rate),
            None => by_wget(&said, lasted),
        }
    }
}

/// The sweep of one rate that `yamabiko cache` makes meanwhile.
fn mix_plan(
    rate: RequestRate,
    proxy: &str,
    origin: SocketAddr,
    lasts: Duration,
    seed: u64,
) -> Result<CachePlan, ExperimentError> {
    let proxy: Proxy = proxy.parse().map_err(|why| testbed::LabError::Plan(format!("proxy (--proxy): {why}")))?;
    let sweep = SweepPlan {
        proxy: Some(proxy),
        rates: vec![rate],
        point: lasts,
        // It is ended when the gateway was measured, whenever that is.
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
    // The far end of the gateway is near.
    plan.workload.set.insert("think".into(), toml::Value::String("none".into()));
    Ok(plan)
}

fn by_mix(said: &str, rate: RequestRate) -> Result<ProxyLoad, String> {
    let document: Document = serde_json::from_str(said)
        .map_err(|error| format!("what loaded the proxy said nothing of use ({} bytes): {error}", said.len()))?;
    let point = document.cache.and_then(|part| part.points.into_iter().next());
    let point = point.ok_or("what loaded the proxy measured nothing")?;
    let figures = &point.figures;
    let error_ratio = figures.error_ratio.ok_or("what loaded the proxy asked for nothing")?;
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

/// Whether a proxy does not do what is asked of it, as the school gateway's smallest.
fn is_overloaded(offered_per_s: f64, achieved_per_s: f64, error_ratio: f64) -> bool {
    achieved_per_s < CARRIED_MIN * offered_per_s || error_ratio >= ERRORS_MAX
}

fn by_wget(said: &str, lasted: Duration) -> Result<ProxyLoad, String> {
    let (mut fetched, mut failed) = (0u64, 0u64);
    for line in said.lines() {
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
    fn a_proxy_is_overloaded_below_nine_tenths_or_from_five_per_cent_of_errors() {
        assert!(!is_overloaded(40.0, 36.0, 0.049));
        assert!(is_overloaded(40.0, 35.9, 0.0));
        assert!(is_overloaded(40.0, 40.0, 0.05));
    }

    #[test]
    fn wget_is_counted_by_its_lines() {
        let fared = by_wget("o\no\nx\no\n", Duration::from_secs(2)).unwrap();
        assert_eq!((fared.achieved_per_s, fared.error_ratio, fared.overloaded), (1.5, 0.25, true));
        assert!(by_wget("", Duration::from_secs(2)).is_err());
        assert!(by_mix("", RequestRate::from_per_second(1.0).unwrap()).unwrap_err().contains("nothing of use"));
    }

    #[test]
    fn the_mix_is_one_that_a_sweep_would_make() {
        let rate = RequestRate::from_per_second(40.0).unwrap();
        let origin = "198.18.0.1:8400".parse().unwrap();
        let plan = mix_plan(rate, "198.18.255.1:3128", origin, Duration::from_secs(60), 1).unwrap();
        cachebench::check(&plan).unwrap();
        assert_eq!(CachePlan::from_toml(&plan.to_toml(), "load.toml").unwrap(), plan);
        assert!(mix_plan(rate, "nowhere", origin, Duration::from_secs(60), 1).is_err());
    }
}
