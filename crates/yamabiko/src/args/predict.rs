//! `predict`, as typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use units::{Probability, RequestRate, parse_duration};

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
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
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
    /// Then search for the capacity (three minutes), and print foretold beside measured [with --slo]
    #[arg(long)]
    pub check: bool,
    /// Instead of --server: a service on this host, by its process; only light loads are made of it
    #[arg(long, value_name = "PID", conflicts_with = "server", allow_hyphen_values = true)]
    pub server_pid: Option<i32>,
    /// Write the result as one page to this file too
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}
