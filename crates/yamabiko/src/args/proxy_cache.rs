//! Arguments of `cache` and the sweep that they configure.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cachebench::phases::PolygraphSchedule;
use cachebench::sweep_plan::{DEFAULT_WORKLOAD, POINT, POINT_FULL, TIME_SCALE, TIMEOUT, TIMEOUT_FULL};
use cachebench::{CachePlan, StopErrors, SweepPlan};
use clap::Args;
use path::Loss;
use plan::{Engine, HostPlan, OriginPlan, PathPlan, Proxy, TlsPlan, WatchPlan};
use units::{Bytes, Probability, RequestRate, parse_count_u32, parse_duration, parse_factor};

use super::{HostOptions, ServerOptions, address};

/// More requests per connection than any point makes.
const USES_UNLIMITED: u32 = 1_000_000_000;

#[derive(Args, Debug)]
#[command(
    after_help = "Objects, sizes, repeats, life cycles and think times come from a workload: polymix-1 (default; 80 % \
                        cacheable, 55 % hits, as in the school gateway paper) to polymix-4, modern, or a file; --set changes any field. The \
                        origin is started by this program; a forward proxy must be able to reach it, a reverse proxy must be configured with \
                        the address given by --origin."
)]
pub struct ProxyCache {
    /// Measure this forward proxy
    #[arg(long, value_name = "[USER:PASSWORD@]HOST:PORT", conflicts_with_all = ["reverse", "direct"])]
    pub proxy: Option<Proxy>,
    /// Measure this reverse proxy, http[s]://HOST:PORT, configured to fetch from --origin
    #[arg(long, value_name = "URL", conflicts_with = "direct")]
    pub reverse: Option<String>,
    /// Measure without a cache: virtual users request from the origin
    #[arg(long)]
    pub direct: bool,
    /// Offer these request rates, one point each [default: 5,10,15,20,30,40,50,80/s]
    #[arg(short, long, value_name = "RATES", value_parser = rates, allow_hyphen_values = true)]
    pub rate: Option<Rates>,
    /// Set the length of a point, warm-up included; a schedule has its own [default: 60s]
    #[arg(short, long, value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Option<Duration>,
    /// Measure as long as the school gateway paper: 30 minutes a point, response timeout 180 s; schedules unscaled
    #[arg(long)]
    pub full: bool,
    /// Set the share of a point that is warm-up [default: 10%]
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub warmup: Option<Probability>,
    /// End a point when this share of the requests of the last second failed, or `none`
    #[arg(long, value_name = "SHARE", default_value = "50%", allow_hyphen_values = true)]
    pub stop_errors: StopErrors,
    /// Fail a request whose response is not complete after this time [default: 30s, or 180s with --full]
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true)]
    pub timeout: Option<Duration>,
    /// Fail a request whose connection is not established after this time
    #[arg(long, default_value = "10s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub connect_timeout: Duration,
    /// Set the number of virtual users [default: set by the workload; otherwise 1, or 100 with a path]
    #[arg(long, value_parser = parse_count_u32, allow_hyphen_values = true)]
    pub clients: Option<u32>,
    /// Use a connection per request, overriding the workload
    #[arg(long, overrides_with = "keepalive")]
    pub close: bool,
    /// Use persistent connections, overriding the workload
    #[arg(long, overrides_with = "close")]
    pub keepalive: bool,
    /// Generate the load by this number of threads
    #[arg(long, value_name = "NUMBER", default_value_t = 1, allow_hyphen_values = true)]
    pub threads: u32,
    /// Choose the I/O interface of the kernel
    #[arg(long, value_enum, default_value_t)]
    pub engine: Engine,
    /// Set the peak request rate of one client, from which the number of clients supported is computed
    #[arg(long, value_name = "RATE", default_value = "1/s", allow_hyphen_values = true, conflicts_with = "direct")]
    pub client_rate: RequestRate,
    #[command(flatten)]
    pub workload: WorkloadOptions,
    #[command(flatten)]
    pub tls: Option<TlsPlan>,
    #[command(flatten)]
    pub origin: OriginOptions,
    #[command(flatten)]
    pub path: PathPlan,
    #[command(flatten)]
    pub server: ServerOptions,
    #[command(flatten)]
    pub watch: WatchPlan,
    #[command(flatten)]
    pub host: HostOptions,
    #[command(flatten)]
    pub result: SweepResult,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Workload")]
pub struct WorkloadOptions {
    /// Offer this workload, by name or file: polymix-1 to polymix-4, modern, modern-https, gateway-prepared, gateway-new,
    /// gateway-class
    #[arg(long, value_name = "NAME|FILE", default_value = DEFAULT_WORKLOAD)]
    pub workload: String,
    /// Set a field of the workload, such as recurrence=0.5 or forms.reload=0.1; repeatable
    #[arg(long = "set", value_name = "FIELD=VALUE", value_parser = field)]
    pub set: Vec<(String, toml::Value)>,
    /// Set the think time of the origin: none, 2s, or a distribution such as 'norm(3s,1.5s)' [default: the workload's]
    #[arg(long, value_name = "DISTRIBUTION", allow_hyphen_values = true)]
    pub think: Option<polymix::Distribution>,
    /// Use the phases of this schedule: constant, polymix-2, polymix-3 or polymix-4
    #[arg(long, value_name = "NAME", default_value = "constant")]
    pub schedule: PolygraphSchedule,
    /// Scale the lengths of the schedule, such as by 1/60 or 0.1 [default: 1/60, or 1 with --full]
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor, allow_hyphen_values = true)]
    pub time_scale: Option<f64>,
    /// State the size of the cache: the ideal hit ratio is also simulated for it, and a schedule fills it twice
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub cache_size: Option<Bytes>,
    /// Select the first world (set of objects) by number; the worlds of later points follow from it. A repeated sweep then
    /// finds a filled cache [default: worlds never requested before]
    #[arg(long, value_name = "NUMBER", value_parser = world)]
    pub world: Option<u32>,
    /// Use one world (set of objects) for all points: each finds the cache as earlier points left it
    #[arg(long)]
    pub keep_world: bool,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Origin")]
pub struct OriginOptions {
    /// Set the address on which the origin listens [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    pub origin: Option<SocketAddr>,
    /// Use an origin that runs already: `yamabiko serve --workload` with the same workload and seed
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address, conflicts_with = "origin")]
    pub origin_at: Option<SocketAddr>,
    /// Set the RTT between origin and cache, if Yamabiko starts the cache (--server)
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "server", allow_hyphen_values = true)]
    pub origin_rtt: Option<Duration>,
    /// Set the packet loss between origin and cache, each way
    #[arg(long, value_name = "P", requires = "server", allow_hyphen_values = true)]
    pub origin_loss: Option<Loss>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Result")]
pub struct SweepResult {
    /// Also write an HTML page to this file
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub html: Option<PathBuf>,
    /// Exit with 3 if the result is suspect, too
    #[arg(long)]
    pub strict: bool,
    /// Print one JSON document only
    #[arg(long)]
    pub json: bool,
    /// Set the run's name, a part of its folder's name
    #[arg(long, default_value = "cache")]
    pub name: String,
    /// Do not store the runs
    #[arg(long)]
    pub no_save: bool,
    /// Set the seed of random numbers
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Print the plan instead of running it
    #[arg(long)]
    pub print_plan: bool,
    #[command(flatten)]
    pub show: super::ShowOptions,
}

impl ProxyCache {
    /// The configured sweep.
    ///
    /// # Errors
    /// Options that contradict each other.
    pub fn plan(&self) -> Result<CachePlan> {
        let path = self.path.clone().resolve(self.server.server.is_some()).map_err(anyhow::Error::msg)?;
        let (point, timeout, scale) =
            if self.full { (POINT_FULL, TIMEOUT_FULL, 1.0) } else { (POINT, TIMEOUT, TIME_SCALE) };
        let cache = SweepPlan {
            proxy: self.proxy.clone(),
            reverse: self.reverse.clone(),
            direct: self.direct,
            point: self.duration.unwrap_or(point),
            stop_errors: self.stop_errors,
            schedule: self.workload.schedule,
            time_scale: self.workload.time_scale.unwrap_or(scale),
            clients: self.clients,
            keep_world: self.workload.keep_world,
            cache_size: self.workload.cache_size,
            client_rate: self.client_rate,
            timeout: self.timeout.unwrap_or(timeout),
            connect_timeout: self.connect_timeout,
            origin_at: self.origin.origin_at,
            tls: self.tls.clone(),
            ..SweepPlan::default()
        };
        let cache = SweepPlan { warmup: self.warmup.unwrap_or(cache.warmup), ..cache };
        let given = [
            (self.duration.is_some(), "point"),
            (self.warmup.is_some(), "warmup"),
            (self.workload.time_scale.is_some(), "time_scale"),
        ];
        let given: Vec<&str> = given.into_iter().filter_map(|(is, key)| is.then_some(key)).collect();
        cache.reject_unused(&given).map_err(anyhow::Error::msg)?;
        let mut plan = CachePlan {
            name: self.result.name.clone(),
            seed: self.result.seed,
            origin: OriginPlan { listen: self.origin.origin, path: self.origin.path(), ..OriginPlan::default() },
            path,
            server: self.server.server_plan(),
            target: self.server.target_plan(&[]),
            watch: self.watch,
            host: HostPlan { threads: self.threads, engine: self.engine, ..self.host.0.clone() },
            ..CachePlan::new(cache)
        };
        if let Some(rates) = &self.rate {
            plan.cache.rates = rates.0.clone();
        }
        self.workload.apply_to(&mut plan)?;
        let uses = match (self.close, self.keepalive) {
            (true, _) => Some(1),
            (_, true) => Some(USES_UNLIMITED),
            _ => None,
        };
        if let Some(uses) = uses {
            plan.workload.set.insert("client_uses".into(), toml::Value::String(uses.to_string()));
        }
        cachebench::check(&plan)?;
        Ok(plan)
    }
}

impl WorkloadOptions {
    fn apply_to(&self, plan: &mut CachePlan) -> Result<()> {
        if polymix::CacheWorkload::named(&self.workload).is_some() {
            plan.workload.name = Some(self.workload.clone());
        } else if Path::new(&self.workload).exists() {
            (plan.workload.name, plan.workload.file) = (None, Some(PathBuf::from(&self.workload)));
        } else {
            bail!(
                "--workload {}: no such workload and no such file; expected one of {}, or a file such as those in plans/workloads",
                self.workload,
                polymix::CacheWorkload::NAMES.join(", ")
            );
        }
        for (field, value) in &self.set {
            insert_field(&mut plan.workload.set, field, value.clone()).with_context(|| format!("--set {field}"))?;
        }
        if let Some(law) = &self.think {
            plan.workload.set.insert("think".into(), toml::Value::String(law.to_string()));
        }
        plan.workload.world = self.world;
        Ok(())
    }
}

impl OriginOptions {
    /// The link of the origin, if one is configured.
    fn path(&self) -> Option<PathPlan> {
        (self.origin_rtt.is_some() || self.origin_loss.is_some()).then(|| PathPlan {
            rtt: Some(self.origin_rtt.unwrap_or_default()),
            effects: self.origin_loss.map(Loss::effect).into_iter().collect(),
            ..PathPlan::default()
        })
    }
}

/// Rates on one line. A newtype, since clap treats a `Vec` as a repeatable option.
#[derive(Clone, Debug)]
pub struct Rates(pub Vec<RequestRate>);

pub(super) fn rates(text: &str) -> Result<Rates, String> {
    cachebench::rates(text).map(Rates)
}

/// Parses `FIELD=VALUE`. A value that is not valid TOML is a string.
fn field(text: &str) -> Result<(String, toml::Value), String> {
    let (field, value) = text.split_once('=').ok_or("expected FIELD=VALUE, such as recurrence=0.5")?;
    let (field, value) = (field.trim(), value.trim());
    if field.is_empty() || field.split('.').any(str::is_empty) {
        return Err("expected FIELD=VALUE, such as recurrence=0.5 or forms.reload=0.1".into());
    }
    let read =
        toml::from_str::<toml::Table>(&format!("value = {value}")).ok().and_then(|mut table| table.remove("value"));
    Ok((field.to_owned(), read.unwrap_or_else(|| toml::Value::String(value.to_owned()))))
}

/// Sets the value at a dotted path.
fn insert_field(table: &mut toml::Table, field: &str, value: toml::Value) -> Result<()> {
    match field.split_once('.') {
        None => {
            table.insert(field.to_owned(), value);
            Ok(())
        }
        Some((first, rest)) => {
            let inner = table.entry(first).or_insert_with(|| toml::Value::Table(toml::Table::new()));
            match inner {
                toml::Value::Table(inner) => insert_field(inner, rest, value),
                _ => bail!("{first} has a value already and no field {rest}"),
            }
        }
    }
}

/// Parses a world number: decimal, or hexadecimal as in URLs.
fn world(text: &str) -> Result<u32, String> {
    let read = match text.strip_prefix("0x") {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16),
        None => text.parse(),
    };
    read.map_err(|_| "expected a number from 0 to 4294967295, or 0x and hexadecimal digits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_option_parses_toml_values_and_plain_text() {
        assert_eq!(field("recurrence=0.5").unwrap(), ("recurrence".into(), toml::Value::Float(0.5)));
        assert_eq!(field("forms.reload = 0.1").unwrap().0, "forms.reload");
        assert_eq!(field("think=norm(3s,1.5s)").unwrap().1, toml::Value::String("norm(3s,1.5s)".into()));
        assert_eq!(field("a=[1, 2]").unwrap().1.as_array().unwrap().len(), 2);
        for bad in ["recurrence", "=1", "a..b=1"] {
            assert!(field(bad).unwrap_err().contains("FIELD=VALUE"), "{bad}");
        }
        let mut table = toml::Table::new();
        insert_field(&mut table, "forms.reload", toml::Value::Float(0.1)).unwrap();
        insert_field(&mut table, "forms.ims200", toml::Value::Float(0.2)).unwrap();
        assert_eq!(table["forms"].as_table().unwrap().len(), 2);
        insert_field(&mut table, "x", toml::Value::Integer(1)).unwrap();
        assert!(insert_field(&mut table, "x.y", toml::Value::Integer(1)).is_err());
    }

    #[test]
    fn world_option_accepts_decimal_and_hexadecimal() {
        assert_eq!((world("31").unwrap(), world("0x1f").unwrap()), (31, 31));
        assert!(world("4294967296").is_err());
    }
}
