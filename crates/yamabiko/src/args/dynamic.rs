//! Arguments of `serve` for dynamic responses from other programs.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use units::{CpuShare, parse_duration};

/// Options of dynamic responses.
#[derive(Args, Debug)]
#[command(next_help_heading = "Dynamic responses")]
pub struct DynamicOptions {
    /// Forward paths below a prefix to another program, such as /app=http://127.0.0.1:9000. The upstream is http://HOST:PORT
    /// or unix:/SOCKET (optionally with :/BASE or /BASE, which replaces the prefix), fastcgi://HOST:PORT or fastcgi:/SOCKET
    /// (with the script for all paths, or a folder of scripts that ends in /). May be repeated
    #[arg(long, value_name = "PREFIX=UPSTREAM", conflicts_with = "max")]
    pub dynamic: Vec<serve::Route>,
    /// Start the upstream program in its own control group, and restart it when it exits. $YAMABIKO_UPSTREAM has the first
    /// upstream. All its processes end with the server
    #[arg(long, value_name = "CMD", requires = "dynamic")]
    pub dynamic_cmd: Option<String>,
    /// Limit the program's CPU time to this share of one core, such as 40%
    #[arg(long, value_name = "SHARE", requires = "dynamic_cmd")]
    pub dynamic_cpu: Option<CpuShare>,
    /// Use this CPU quota period, 1ms to 1s; longer for small shares
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = period, requires = "dynamic_cmd")]
    pub dynamic_period: Duration,
    /// Choose the CPU weight of the program against the static server
    #[arg(long, value_enum, value_name = "WEIGHT", default_value_t = Weight::Least, requires = "dynamic_cmd")]
    pub dynamic_weight: Weight,
    /// Limit concurrent requests to one upstream
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100_000), requires = "dynamic")]
    pub dynamic_concurrency: u32,
    /// Limit the requests that wait for an upstream; further ones get 503 with Retry-After
    #[arg(long, value_name = "NUMBER", default_value_t = 128, value_parser = clap::value_parser!(u32).range(0..=1_000_000), requires = "dynamic")]
    pub dynamic_queue: u32,
    /// Answer 503 to a request that has waited this long
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = positive_time, requires = "dynamic")]
    pub dynamic_queue_time: Duration,
    /// Answer 504 if the upstream accepts no connection in this time
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = positive_time, requires = "dynamic")]
    pub dynamic_connect_time: Duration,
    /// Answer 504 if the response does not begin in this time after the last byte of the request
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_time, requires = "dynamic")]
    pub dynamic_first_byte_time: Duration,
    /// Disconnect the client if the response stalls for this time
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = positive_time, requires = "dynamic")]
    pub dynamic_stall_time: Duration,
    /// Limit the whole time of a response
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = positive_time, requires = "dynamic")]
    pub dynamic_timeout: Duration,
}

/// The weight of the program's control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Weight {
    /// The static server has priority; the program gets idle CPU time only, after its first response
    Least,
    /// Equal weights
    Usual,
}

impl DynamicOptions {
    /// The validated options; `None` without a dynamic route.
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
                bail!("--dynamic {earlier} and {route} have the same prefix: the second would never be used");
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

/// Parses a time above zero.
fn positive_time(text: &str) -> Result<Duration> {
    match parse_duration(text)? {
        Duration::ZERO => bail!("expected a time of at least 1ms"),
        time => Ok(time),
    }
}

fn period(text: &str) -> Result<Duration> {
    let time = parse_duration(text)?;
    if time < Duration::from_millis(1) || time > Duration::from_secs(1) {
        bail!("expected a CPU quota period of 1ms to 1s");
    }
    Ok(time)
}
