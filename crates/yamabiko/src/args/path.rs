//! The path as typed, and what it means.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use path::{Discipline, Loss, PlannedChange, QueueLimit, Rate, Reorder};
use plan::PathPlan;
use units::{Probability, parse_duration};

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Path")]
pub struct PathOptions {
    /// Distances: a built-in profile, a profile file, or `none` [default: none, or constant with --rtt, or 0ms with
    /// --server]
    #[arg(long, value_name = "PROFILE")]
    pub path: Option<String>,
    /// The same RTT for every client
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true)]
    pub rtt: Option<Duration>,
    /// Variation of the delay per packet, each way
    #[arg(long, value_parser = parse_duration, allow_hyphen_values = true)]
    pub variation: Option<Duration>,
    /// Loss per packet, each way: a probability such as 1%, or bursts, ge:P,R[,BAD[,GOOD]] (Gilbert-Elliott)
    #[arg(long, allow_hyphen_values = true)]
    pub loss: Option<Loss>,
    /// Probability that a packet is corrupted, each way
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub corrupt: Option<Probability>,
    /// Probability that a packet arrives twice, each way
    #[arg(long, value_name = "P", allow_hyphen_values = true)]
    pub duplicate: Option<Probability>,
    /// Packets held back so that others overtake them, each way: a probability, and by how long (5ms if left out)
    #[arg(long, value_name = "P[,TIME]", allow_hyphen_values = true)]
    pub reorder: Option<Reorder>,
    /// Rate of each client's link to the server, such as 1Mbit, or trace:FILE in mahimahi's format
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub up: Option<Rate>,
    /// Rate of each client's link from the server, such as 10Mbit, or trace:FILE
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    pub down: Option<Rate>,
    /// Queue limit in front of each rate, such as 64KB, '100 packets' or 100ms
    #[arg(long, value_name = "LIMIT", allow_hyphen_values = true)]
    pub queue: Option<QueueLimit>,
    /// What each queue drops before it is full: codel[:TARGET[,INTERVAL]], pie[:TARGET[,UPDATE]] or drop-tail
    #[arg(long, value_name = "DISCIPLINE", allow_hyphen_values = true)]
    pub aqm: Option<Discipline>,
    /// Something that changes meanwhile, such as '10s for 3s: outage', '5s: rtt x2', '5s: rate x0.5', '5s: loss 5%';
    /// may be given more than once
    #[arg(long = "change", value_name = "AT [for TIME]: WHAT", allow_hyphen_values = true)]
    pub changes: Vec<PlannedChange>,
    /// Switch segmentation and checksum offload of the TUN devices off
    #[arg(long)]
    pub no_offload: bool,
}

/// The path as meant; `None` for none. `with_ends`: the lab makes both ends, so there is a path even if none was asked
/// for.
///
/// # Errors
/// `--path none` beside something that only a path has.
pub fn path_plan(options: &PathOptions, with_ends: bool) -> Result<Option<PathPlan>> {
    let asked = options.asked();
    let profile = match options.path.as_deref() {
        Some("none") => {
            if let Some(option) = asked.first() {
                bail!("--path none means no path at all, but {option} asks for one: leave one of the two out");
            }
            if with_ends {
                bail!(
                    "--path none means no path at all, but the lab makes both ends of one here: --rtt 0ms is the shortest"
                );
            }
            return Ok(None);
        }
        profile => profile.map(str::to_owned),
    };
    if profile.is_none() && asked.is_empty() && !with_ends {
        return Ok(None);
    }
    let rtt = if profile.is_none() { options.rtt.or(Some(Duration::ZERO)) } else { options.rtt };
    Ok(Some(PathPlan {
        profile,
        rtt,
        variation: options.variation,
        loss: options.loss,
        corrupt: options.corrupt,
        duplicate: options.duplicate,
        reorder: options.reorder,
        up: options.up.clone(),
        down: options.down.clone(),
        queue: options.queue,
        aqm: options.aqm,
        offload: !options.no_offload,
        changes: options.changes.clone(),
    }))
}

impl PathOptions {
    /// The options given, besides `--path` itself.
    fn asked(&self) -> Vec<&'static str> {
        let options = [
            ("--rtt", self.rtt.is_some()),
            ("--variation", self.variation.is_some()),
            ("--loss", self.loss.is_some()),
            ("--corrupt", self.corrupt.is_some()),
            ("--duplicate", self.duplicate.is_some()),
            ("--reorder", self.reorder.is_some()),
            ("--up", self.up.is_some()),
            ("--down", self.down.is_some()),
            ("--queue", self.queue.is_some()),
            ("--aqm", self.aqm.is_some()),
            ("--change", !self.changes.is_empty()),
            ("--no-offload", self.no_offload),
        ];
        options.into_iter().filter(|&(_, given)| given).map(|(option, _)| option).collect()
    }
}
