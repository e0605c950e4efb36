//! Arguments of `predict`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use plan::{BodyFrom, LogLines, ObjectPlan, Plan, Waits};
use units::{CpuShare, Probability, RequestRate, parse_duration};

use super::Bench;

#[derive(Args, Debug)]
#[command(
    after_help = "Measures the cost of a request in loads far below the server's limit: light loads, in which each \
                  request wakes the server up, and saturated loads, in which the server's CPU is limited and the \
                  server always has work. From the costs, the path and the resources it computes the capacity and \
                  the limiting resource. Rates and lengths are chosen automatically: --rate, -n, -d and \
                  --open-connections of bench do not apply. A plan file can replace the URL; its rate and length are \
                  ignored, and of the options only those under Prediction and Result count."
)]
pub struct Predict {
    #[command(flatten)]
    pub bench: Bench,
    #[command(flatten)]
    pub prediction: Prediction,
    #[command(flatten)]
    pub described: Described,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Prediction")]
pub struct Prediction {
    /// Number of light loads, and of saturated loads, per class of requests: 3 to 20
    #[arg(long, value_name = "NUMBER", default_value_t = 5, allow_hyphen_values = true)]
    pub loads: u32,
    /// Length of a light load; a saturated load takes half of it
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub load_time: Duration,
    /// Predict rate and response time for this number of users, who request, wait and think
    #[arg(long, value_name = "NUMBER", value_parser = units::parse_count_u32, allow_hyphen_values = true)]
    pub users: Option<u32>,
    /// Think time of users [with --users]
    #[arg(long, value_name = "TIME", default_value = "7s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub think: Duration,
    /// Predict the number of machines for this peak, such as 2000/s
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub peak: Option<RequestRate>,
    /// Share of each machine to keep unused [with --peak]
    #[arg(long, value_name = "SHARE", default_value = "30%", allow_hyphen_values = true)]
    pub headroom: Probability,
    /// Ratio of a day's peak to its mean, for the requests a day
    #[arg(long, value_name = "RATIO", default_value_t = 3.0, allow_hyphen_values = true)]
    pub peak_to_mean: f64,
    /// Number of server processes or threads that each serve one connection at a time, such as Apache prefork's
    /// MaxRequestWorkers
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub workers: Option<u32>,
    /// With a result cache: a URL that is in it ..
    #[arg(long, value_name = "URL", requires = "miss")]
    pub hit: Option<String>,
    /// .. and a URL that is never in it, such as http://server/app?{sequence}
    #[arg(long, value_name = "URL", requires = "hit")]
    pub miss: Option<String>,
    /// Share of hits [default: fitted to one light load of the given URLs]
    #[arg(long, value_name = "SHARE", requires = "hit", allow_hyphen_values = true)]
    pub hit_ratio: Option<Probability>,
    /// Do not measure memory and descriptors per connection
    #[arg(long)]
    pub no_memory: bool,
    /// Run a capacity search afterwards (some three minutes), and print predicted vs. measured [with --slo]
    #[arg(long)]
    pub check: bool,
    /// Length of a trial of that search; short trials take a quarter of it
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_duration, requires = "check", allow_hyphen_values = true)]
    pub check_trial: Duration,
    /// Instead of --server: a running service on this host, by its process; permits light loads only
    #[arg(long, value_name = "PID", conflicts_with = "server", allow_hyphen_values = true)]
    pub server_pid: Option<i32>,
    /// Also write an HTML page to this file
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub html: Option<PathBuf>,
}

/// The server model: options for `[components]` of a plan.
#[derive(Args, Debug)]
#[command(next_help_heading = "Components")]
pub struct Described {
    /// Measure components of a server alone (accept, receive, send, open and read, log, TLS) and add them up for the
    /// server model of these options; without --server and --server-pid nothing else is measured, and no server is
    /// needed
    #[arg(long)]
    pub components: bool,
    /// Response size and its share of the requests, such as 3KB or 100KB:0.2; may be repeated [default: 10KB]
    #[arg(long, value_name = "SIZE[:SHARE]", value_parser = object, requires = "components")]
    pub object: Vec<ObjectPlan>,
    /// Where response bodies come from [default: memory]
    #[arg(long, value_enum, value_name = "WHERE", requires = "components")]
    pub model_body: Option<BodyFrom>,
    /// How the server waits for its clients [default: epoll]
    #[arg(long, value_enum, value_name = "HOW", requires = "components")]
    pub model_waits: Option<Waits>,
    /// What the server logs per request [default: none]
    #[arg(long, value_enum, value_name = "WHAT", requires = "components")]
    pub model_log: Option<LogLines>,
    /// Cores that the server can use [default: 1]
    #[arg(long, value_name = "NUMBER", requires = "components", allow_hyphen_values = true)]
    pub model_threads: Option<u32>,
    /// CPU limit of its processes, as a share of a core [default: that of --server-cpu, if given]
    #[arg(long, value_name = "SHARE", requires = "components", allow_hyphen_values = true)]
    pub model_cpu: Option<CpuShare>,
    /// Share of resumed TLS sessions among the connections [default: 0%]
    #[arg(long, value_name = "SHARE", requires = "components", allow_hyphen_values = true)]
    pub resumed: Option<Probability>,
    /// Share of the requests whose file is not in the page cache [default: 0%]
    #[arg(long, value_name = "SHARE", requires = "components", allow_hyphen_values = true)]
    pub cold: Option<Probability>,
    /// Create the components' files in this folder, to measure its storage [default: a temporary folder]
    #[arg(long, value_name = "FOLDER", requires = "components")]
    pub components_folder: Option<PathBuf>,
    /// Measure storage reads with fio, as a limit for uncached files [with --cold]
    #[arg(long, requires = "components")]
    pub disk: bool,
}

impl Described {
    /// Adds the model to a plan: given options replace those of the plan.
    pub fn apply_to(&self, plan: &mut Plan) {
        if !self.components {
            return;
        }
        let mut components = plan.components.take().unwrap_or_default();
        if !self.object.is_empty() {
            components.objects.clone_from(&self.object);
        }
        components.body = self.model_body.unwrap_or(components.body);
        components.waits = self.model_waits.unwrap_or(components.waits);
        components.log = self.model_log.unwrap_or(components.log);
        components.threads = self.model_threads.unwrap_or(components.threads);
        components.cpu = self.model_cpu.or(components.cpu);
        components.resumed = self.resumed.unwrap_or(components.resumed);
        components.cold = self.cold.unwrap_or(components.cold);
        plan.components = Some(components);
    }
}

/// `3KB`, or `3KB:0.2`.
fn object(text: &str) -> Result<ObjectPlan, String> {
    let (size, share) = text.rsplit_once(':').map_or((text, None), |(size, share)| (size, Some(share)));
    let size = size.parse().map_err(|error| format!("{error}"))?;
    let share = match share {
        None => 1.0,
        Some(share) => match share.parse() {
            Ok(share) if share > 0.0 && f64::is_finite(share) => share,
            _ => return Err(format!("`{share}` is not a valid share: expected a number above 0, such as 100KB:0.2")),
        },
    };
    Ok(ObjectPlan { size, share })
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;

    #[test]
    fn object_has_a_size_and_an_optional_share() {
        assert_eq!(object("3KB"), Ok(ObjectPlan { size: Bytes(3000), share: 1.0 }));
        assert_eq!(object("1KiB:0.25"), Ok(ObjectPlan { size: Bytes(1024), share: 0.25 }));
        for wrong in ["", "3", "3KB:", "3KB:0", "3KB:-1", "3KB:inf", "3KB:NaN", ":1"] {
            assert!(object(wrong).is_err(), "{wrong}");
        }
    }
}
