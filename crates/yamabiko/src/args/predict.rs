//! `predict`, as typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use plan::{BodyFrom, LogLines, ObjectPlan, Plan, Waits};
use units::{CpuShare, Probability, RequestRate, parse_duration};

use super::Bench;

#[derive(Args, Debug)]
#[command(
    after_help = "It measures what a request costs, in loads far below what the server can do: light ones, in which each request wakes \
                        the server up, and held ones, in which the server is held to a part of its share and always behind. From that, the \
                        path and the resources it says how much the server will do, and which resource binds. Rates and lengths are its own \
                        to choose: of bench's options --rate, -n, -d and --open-connections do not apply. A plan file may stand in place of the \
                        URL; its rate and length are left aside, and of the options only those below Prediction and Result count then."
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
    /// Light loads, and held ones, of each class of requests: 3 to 20
    #[arg(long, value_name = "NUMBER", default_value_t = 5, allow_hyphen_values = true)]
    pub loads: u32,
    /// Length of a light load; a held one takes half of it
    #[arg(long, value_name = "TIME", default_value = "4s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub load_time: Duration,
    /// What so many users come to, who think, ask and wait
    #[arg(long, value_name = "NUMBER", value_parser = units::parse_count_u32, allow_hyphen_values = true)]
    pub users: Option<u32>,
    /// How long they think [with --users]
    #[arg(long, value_name = "TIME", default_value = "7s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub think: Duration,
    /// How many such machines carry this peak, such as 2000/s
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub peak: Option<RequestRate>,
    /// Share of each machine to be kept free [with --peak]
    #[arg(long, value_name = "SHARE", default_value = "30%", allow_hyphen_values = true)]
    pub headroom: Probability,
    /// Peak over mean of a day, for the requests a day
    #[arg(long, value_name = "RATIO", default_value_t = 3.0, allow_hyphen_values = true)]
    pub peak_to_mean: f64,
    /// Processes or threads of the server that keep one connection at a time, such as Apache prefork's MaxRequestWorkers
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    pub workers: Option<u32>,
    /// With a cache of results: a URL that it has ..
    #[arg(long, value_name = "URL", requires = "miss")]
    pub hit: Option<String>,
    /// .. and one that it never has, such as http://server/app?{sequence}
    #[arg(long, value_name = "URL", requires = "hit")]
    pub miss: Option<String>,
    /// Share of hits [default: found from one light load of the URLs given]
    #[arg(long, value_name = "SHARE", requires = "hit", allow_hyphen_values = true)]
    pub hit_ratio: Option<Probability>,
    /// Do not measure what a connection takes of memory and descriptors
    #[arg(long)]
    pub no_memory: bool,
    /// Then search for the capacity (some three minutes), and print foretold beside measured [with --slo]
    #[arg(long)]
    pub check: bool,
    /// Length of a trial of that search; the short ones take a quarter of it
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_duration, requires = "check", allow_hyphen_values = true)]
    pub check_trial: Duration,
    /// Instead of --server: a service on this host, by its process; only light loads are made of it
    #[arg(long, value_name = "PID", conflicts_with = "server", allow_hyphen_values = true)]
    pub server_pid: Option<i32>,
    /// Write the result as one page to this file too
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub html: Option<PathBuf>,
}

/// A server in words: `[parts]` of a plan, as typed.
#[derive(Args, Debug)]
#[command(next_help_heading = "Parts")]
pub struct Described {
    /// Measure parts of a server alone (accepting, receiving, sending, opening and reading, log, TLS) and add them up for the server that
    /// these options describe; without --server and --server-pid that is all, and no server is needed
    #[arg(long)]
    pub parts: bool,
    /// Answers of this size, and their share of the requests, such as 3KB or 100KB:0.2; may be given more than once [default: 10KB]
    #[arg(long, value_name = "SIZE[:SHARE]", value_parser = object, requires = "parts")]
    pub object: Vec<ObjectPlan>,
    /// Where answers come from [default: memory]
    #[arg(long, value_enum, value_name = "WHERE", requires = "parts")]
    pub described_body: Option<BodyFrom>,
    /// How it waits for its clients [default: epoll]
    #[arg(long, value_enum, value_name = "HOW", requires = "parts")]
    pub described_waits: Option<Waits>,
    /// What it writes down of a request [default: none]
    #[arg(long, value_enum, value_name = "WHAT", requires = "parts")]
    pub described_log: Option<LogLines>,
    /// Cores that it can use [default: 1]
    #[arg(long, value_name = "NUMBER", requires = "parts", allow_hyphen_values = true)]
    pub described_threads: Option<u32>,
    /// Share of a core that its processes have [default: that of --server-cpu, if given]
    #[arg(long, value_name = "SHARE", requires = "parts", allow_hyphen_values = true)]
    pub described_cpu: Option<CpuShare>,
    /// Share of the connections that take up an earlier TLS session [default: 0%]
    #[arg(long, value_name = "SHARE", requires = "parts", allow_hyphen_values = true)]
    pub resumed: Option<Probability>,
    /// Share of the requests whose file is not in the page cache [default: 0%]
    #[arg(long, value_name = "SHARE", requires = "parts", allow_hyphen_values = true)]
    pub cold: Option<Probability>,
    /// Make the files of the parts in this folder, so on its storage [default: a passing one]
    #[arg(long, value_name = "FOLDER", requires = "parts")]
    pub parts_folder: Option<PathBuf>,
    /// Ask fio how often that storage can be read, as a limit of what is cold [with --cold]
    #[arg(long, requires = "parts")]
    pub disk: bool,
}

impl Described {
    /// The server as meant: what was typed, over what the plan says.
    pub fn put(&self, plan: &mut Plan) {
        if !self.parts {
            return;
        }
        let mut parts = plan.parts.take().unwrap_or_default();
        if !self.object.is_empty() {
            parts.objects.clone_from(&self.object);
        }
        parts.body = self.described_body.unwrap_or(parts.body);
        parts.waits = self.described_waits.unwrap_or(parts.waits);
        parts.log = self.described_log.unwrap_or(parts.log);
        parts.threads = self.described_threads.unwrap_or(parts.threads);
        parts.cpu = self.described_cpu.or(parts.cpu);
        parts.resumed = self.resumed.unwrap_or(parts.resumed);
        parts.cold = self.cold.unwrap_or(parts.cold);
        plan.parts = Some(parts);
    }
}

/// `3KB`, or `3KB:0.2`.
fn object(typed: &str) -> Result<ObjectPlan, String> {
    let (size, share) = typed.rsplit_once(':').map_or((typed, None), |(size, share)| (size, Some(share)));
    let size = size.parse().map_err(|error| format!("{error}"))?;
    let share = match share {
        None => 1.0,
        Some(share) => match share.parse() {
            Ok(share) if share > 0.0 && f64::is_finite(share) => share,
            _ => return Err(format!("`{share}` is no share: a number above 0 is wanted, such as 100KB:0.2")),
        },
    };
    Ok(ObjectPlan { size, share })
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;

    #[test]
    fn an_object_has_a_size_and_may_have_a_share() {
        assert_eq!(object("3KB"), Ok(ObjectPlan { size: Bytes(3000), share: 1.0 }));
        assert_eq!(object("1KiB:0.25"), Ok(ObjectPlan { size: Bytes(1024), share: 0.25 }));
        for wrong in ["", "3", "3KB:", "3KB:0", "3KB:-1", "3KB:inf", "3KB:NaN", ":1"] {
            assert!(object(wrong).is_err(), "{wrong}");
        }
    }
}
