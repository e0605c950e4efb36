//! When requests are intended, as typed: the process, the rate over time, and recordings to replay.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use plan::{ArrivalKind, BurstsPlan, HarPlan, LogFormat, PhasePlan, ReplayPlan, SelfSimilarPlan, sweep};
use units::parse_duration;

#[derive(Args, Debug)]
#[command(next_help_heading = "Arrivals (open loop)")]
pub struct ArrivalOptions {
    /// How arrivals are spaced under their rate: equal gaps, independent users (exponential gaps), a rate that jumps
    /// between bursts and pauses, or many sources with heavy-tailed times [default: constant]
    #[arg(long, value_enum)]
    pub arrivals: Option<Arrivals>,
    /// Bursts of FACTOR times the rate, for ON on average, OFF apart; the rate between them is lower by as much
    /// [default: factor=5,on=1s,off=9s]
    #[arg(long, value_name = "factor=N,on=TIME,off=TIME")]
    pub bursts: Option<BurstsPlan>,
    /// So many sources, each active and silent in turn; Hurst parameter (3 - ALPHA) / 2
    /// [default: sources=100,alpha=1.4,on=1s,off=2s]
    #[arg(long, value_name = "sources=N,alpha=A,..")]
    pub self_similar: Option<SelfSimilarPlan>,
    /// A part of the run with its own rate and results: '30s at 100/s', '10s ramp to 1000/s', 'spike 5s at 2000/s',
    /// with 'NAME:' in front where it is to have a name; in order, may be given more than once
    #[arg(long = "phase", value_name = "PHASE", allow_hyphen_values = true)]
    pub phases: Vec<PhasePlan>,
    /// Phases of one rate after another, such as 100..1000/s:100/s
    #[arg(long, value_name = "FROM..TO:STEP", conflicts_with = "phases", allow_hyphen_values = true)]
    pub sweep: Option<String>,
    /// How long each rate of a sweep is held
    #[arg(long, value_name = "TIME", requires = "sweep", value_parser = parse_duration, default_value = "10s")]
    #[arg(allow_hyphen_values = true)]
    pub sweep_hold: Duration,
    /// Offer the rates of this CSV file, such as `profile learn` writes: length_s with requests, connections or
    /// rate_per_s
    #[arg(long, value_name = "FILE")]
    pub rate_file: Option<PathBuf>,
    /// Replay this access log: its requests at its times, each logged client one virtual client; they go to the URL's
    /// host
    #[arg(long, value_name = "FILE")]
    pub replay: Option<PathBuf>,
    /// How the log is written [default: by its first line]
    #[arg(long, value_enum, value_name = "FORMAT", requires = "replay")]
    pub log_format: Option<LogFormat>,
    /// Multiply times between logged requests by this; 0.5 is twice as fast [default: 1]
    #[arg(long, value_name = "FACTOR", requires = "replay", value_parser = units::parse_factor, allow_hyphen_values = true)]
    pub time_scale: Option<f64>,
    /// Replay the log so many times [default: once, or until --duration]
    #[arg(long, value_name = "N", requires = "replay", value_parser = units::parse_count, allow_hyphen_values = true)]
    pub loops: Option<u64>,
    /// Ask for what a browser recorded (HTTP archive), as sessions; with --rate so many a second
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub har: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arrivals {
    Constant,
    Poisson,
    Bursts,
    SelfSimilar,
}

impl ArrivalOptions {
    /// Whether arrivals are open without `--rate`.
    pub fn is_open(&self) -> bool {
        !self.phases.is_empty() || self.sweep.is_some() || self.rate_file.is_some() || self.replay.is_some()
    }

    /// The process as meant: its parameters name it, too.
    ///
    /// # Errors
    /// Parameters of another process than the one asked for.
    pub fn kind(&self) -> Result<ArrivalKind> {
        let kind = match (self.arrivals, self.bursts, self.self_similar) {
            (_, Some(_), Some(_)) => bail!("--bursts and --self-similar are two processes: leave one out"),
            (None | Some(Arrivals::Bursts), Some(bursts), None) => ArrivalKind::Bursts(bursts),
            (None | Some(Arrivals::SelfSimilar), None, Some(sources)) => ArrivalKind::SelfSimilar(sources),
            (Some(_), Some(_), None) => bail!("--bursts is for --arrivals bursts: leave one out"),
            (Some(_), None, Some(_)) => bail!("--self-similar is for --arrivals self-similar: leave one out"),
            (None | Some(Arrivals::Constant), None, None) => ArrivalKind::Constant,
            (Some(Arrivals::Poisson), None, None) => ArrivalKind::Poisson,
            (Some(Arrivals::Bursts), None, None) => ArrivalKind::Bursts(BurstsPlan::default()),
            (Some(Arrivals::SelfSimilar), None, None) => ArrivalKind::SelfSimilar(SelfSimilarPlan::default()),
        };
        Ok(kind)
    }

    /// The phases as typed, or of the sweep.
    ///
    /// # Errors
    /// A sweep that is none.
    pub fn phases(&self) -> Result<Vec<PhasePlan>> {
        match &self.sweep {
            Some(typed) => sweep(typed, self.sweep_hold).map_err(anyhow::Error::msg).context("--sweep"),
            None => Ok(self.phases.clone()),
        }
    }

    /// The log to replay.
    pub fn replay(&self) -> Option<ReplayPlan> {
        let file = self.replay.clone()?;
        let plan = ReplayPlan::of(file);
        Some(ReplayPlan {
            format: self.log_format.unwrap_or_default(),
            time_scale: self.time_scale.unwrap_or(plan.time_scale),
            loops: self.loops,
            ..plan
        })
    }

    /// The recording to carry out.
    pub fn har(&self) -> Option<HarPlan> {
        self.har.clone().map(|file| HarPlan { file })
    }
}
