//! Arguments of `serve` for dynamic responses from other programs.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use units::{CpuShare, parse_duration};

/// Options of dynamic responses.
#[derive(Args, Debug)]
#[command(next_help_heading = "Dynamic responses")]
pub struct DynamicOptions {
    /// Have paths below a prefix answered by another program, as in /app=http://127.0.0.1:9000. It may be http://HOST:PORT
    /// or unix:/SOCKET (then :/BASE or /BASE takes the prefix's place), fastcgi://HOST:PORT or fastcgi:/SOCKET (then the
    /// script for all paths, or the folder of scripts with a / at its end). May be given several times
    #[arg(long, value_name = "PREFIX=UPSTREAM", conflicts_with = "max")]
    pub dynamic: Vec<serve::Route>,
    /// Start the program that answers, in a control group of its own, and start it again when it ends. It finds the first
    /// upstream in $YAMABIKO_UPSTREAM. Nothing of it is left when the server has ended, however that ends
    #[arg(long, value_name = "CMD", requires = "dynamic")]
    pub dynamic_cmd: Option<String>,
    /// Processor time it may use, as a share of one core: 40%
    #[arg(long, value_name = "SHARE", requires = "dynamic_cmd")]
    pub dynamic_cpu: Option<CpuShare>,
    /// How often its share is dealt out, 1ms to 1s; longer for small shares
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = period, requires = "dynamic_cmd")]
    pub dynamic_period: Duration,
    /// Who goes first when it and the static server want the same core
    #[arg(long, value_enum, value_name = "WEIGHT", default_value_t = Weight::Least, requires = "dynamic_cmd")]
    pub dynamic_weight: Weight,
    /// Most requests at one upstream at once
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100_000), requires = "dynamic")]
    pub dynamic_concurrency: u32,
    /// Most requests that wait for that; further ones are told 503 and when to come back
    #[arg(long, value_name = "NUMBER", default_value_t = 128, value_parser = clap::value_parser!(u32).range(0..=1_000_000), requires = "dynamic")]
    pub dynamic_queue: u32,
    /// How long one may wait there before it is told 503
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = patience, requires = "dynamic")]
    pub dynamic_queue_time: Duration,
    /// The upstream has so long to accept a connection; then 504
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = patience, requires = "dynamic")]
    pub dynamic_connect_time: Duration,
    /// It has so long to begin its answer, after the request's last byte; then 504
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = patience, requires = "dynamic")]
    pub dynamic_first_byte_time: Duration,
    /// It may fall silent for so long within its answer; then the client is cut off
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = patience, requires = "dynamic")]
    pub dynamic_stall_time: Duration,
    /// Longest that one answer may take in all
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = patience, requires = "dynamic")]
    pub dynamic_timeout: Duration,
}

/// The weight of the program's control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Weight {
    /// The static server, always; the program gets what everyone on the machine leaves, once it has answered for the first time
    Least,
    /// As the kernel treats any two programs
    Usual,
}

impl DynamicOptions {
    /// As meant; `None` when nothing is dynamic.
    ///
    /// # Errors
    /// Options that would do nothing.
    pub fn spec(&self) -> Result<Option<serve::DynamicSpec>> {
        if self.dynamic.is_empty() {
            return Ok(None);
        }
        for (index, route) in self.dynamic.iter().enumerate() {
            let stem = |route: &serve::Route| route.prefix.trim_end_matches('/').to_owned();
            if let Some(earlier) = self.dynamic[..index].iter().find(|earlier| stem(earlier) == stem(route)) {
                bail!("--dynamic {earlier} and {route} have the same prefix: the second would never be asked");
            }
        }
        let limits = serve::DynamicLimits {
            concurrency: self.dynamic_concurrency as usize,
            queue: self.dynamic_queue as usize,
            queue_time: self.dynamic_queue_time,
            connect_time: self.dynamic_connect_time,
            first_byte_time: self.dynamic_first_byte_time,
            stall_time: self.dynamic_stall_time,
            timeout: self.dynamic_timeout,
            ..serve::DynamicLimits::default()
        };
        let program = self.dynamic_cmd.as_ref().map(|command| serve::ProgramSpec {
            cpu: self.dynamic_cpu,
            period: self.dynamic_period,
            weight: match self.dynamic_weight {
                Weight::Least => sys::cgroup::Weight::Least,
                Weight::Usual => sys::cgroup::Weight::Usual,
            },
            ..serve::ProgramSpec::new(command)
        });
        Ok(Some(serve::DynamicSpec { limits, program, ..serve::DynamicSpec::new(self.dynamic.clone()) }))
    }
}

/// A time that runs out.
fn patience(typed: &str) -> Result<Duration> {
    match parse_duration(typed)? {
        Duration::ZERO => bail!("a time of 0 is none: write at least 1ms"),
        time => Ok(time),
    }
}

fn period(typed: &str) -> Result<Duration> {
    let time = parse_duration(typed)?;
    if time < Duration::from_millis(1) || time > Duration::from_secs(1) {
        bail!("the kernel deals processor time out every 1ms to 1s");
    }
    Ok(time)
}
