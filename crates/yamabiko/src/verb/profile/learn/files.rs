//! Writes the learned profile, and a CSV file of the arrivals next to it.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use path::{Draft, Profile};
use report::figures::{count, level, share};
use units::Probability;
use watch::CapturePoint;
use watch::learn::{Arrivals, By, Loss};

use super::CaptureResult;
use super::source::Source;
use crate::args;
use crate::verb::bench::command_line;

/// Paths of the output files.
#[derive(Debug)]
pub struct Targets {
    /// Path of the profile.
    pub profile: PathBuf,
    /// Path of the arrivals.
    pub arrivals: PathBuf,
    /// Name of the profile.
    name: String,
    /// Whether existing files may be overwritten.
    force: bool,
}

impl Targets {
    /// Chooses the paths, and checks that existing files are not overwritten without `--force`.
    pub fn new(arguments: &args::Learn, source: &Source) -> Result<Targets> {
        let profile = match (&arguments.output, &arguments.name) {
            (Some(file), _) => file.clone(),
            (None, Some(name)) => PathBuf::from(format!("{}.toml", file_name_of(name))),
            (None, None) => PathBuf::from(format!("{}.toml", source.stem())),
        };
        let Some(stem) = profile.file_stem().map(|stem| stem.to_string_lossy().into_owned()) else {
            bail!("-o {}: expected the name of a file", profile.display());
        };
        let given = profile.to_string_lossy();
        if given == "none" || Profile::builtin(&given).is_some() {
            bail!("-o {given}: as --path that means something else; give another name, or ./{given}");
        }
        let name = arguments.name.clone().unwrap_or_else(|| stem.clone());
        let arrivals = profile.with_file_name(format!("{stem}.arrivals.csv"));
        if arrivals == profile {
            bail!("-o {}: the arrivals are to be written there; give another name", profile.display());
        }
        let targets = Targets { profile, arrivals, name, force: arguments.force };
        for file in [&targets.profile, &targets.arrivals] {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            if !folder.is_dir() {
                bail!("{}: there is no folder {}", file.display(), folder.display());
            }
            if file.exists() && !targets.force {
                bail!("{} is there already: --force writes over it, -o names another", file.display());
            }
        }
        Ok(targets)
    }

    /// Writes both files, and parses the profile as `bench` does.
    pub fn write(&self, capture_result: &CaptureResult, arguments: &args::Learn) -> Result<Profile> {
        let text = draft(capture_result, self, arguments).to_toml();
        put(&self.arrivals, &arrivals_csv(&capture_result.learned.arrivals), self.force)?;
        put(&self.profile, &text, self.force)?;
        let no_files: path::Files<'_> = &|_| Err(std::io::ErrorKind::NotFound.into());
        Ok(Profile::parse(&text, &self.profile, no_files)?)
    }
}

/// The path, quoted for a shell.
pub fn quoted(file: &Path) -> String {
    crate::verb::bench::quote(&file.to_string_lossy())
}

/// Whether enough losses were captured to be in the profile, in a capture without repeated packets.
pub fn is_in_profile(loss: &Loss, capture_result: &CaptureResult) -> bool {
    loss.lost_packets >= LOST_MIN && !capture_result.has_duplicate_packets()
}

fn draft(capture_result: &CaptureResult, targets: &Targets, arguments: &args::Learn) -> Draft {
    let learned = &capture_result.learned;
    let loss = |loss: &Loss| {
        // Three digits: an estimate of losses is not more accurate.
        let rounded = format!("{:.2e}", loss.share).parse().unwrap_or(0.0);
        let is_used = is_in_profile(loss, capture_result) && !arguments.no_loss;
        Probability::new(rounded).filter(|_| is_used).unwrap_or(Probability::ZERO)
    };
    Draft {
        name: targets.name.clone(),
        about: about(capture_result),
        notes: notes(capture_result, targets, arguments),
        quantiles: learned.points.clone(),
        jitter: jitter(capture_result, arguments),
        up_loss: loss(&learned.up),
        down_loss: loss(&learned.down),
    }
}

/// The jitter in the profile; zero without `--jitter`.
pub fn jitter(capture_result: &CaptureResult, arguments: &args::Learn) -> Duration {
    let spread = capture_result.learned.spread.filter(|_| arguments.jitter);
    Duration::from_nanos(spread.map_or(0, |spread| spread.jitter_ns / 1000 * 1000))
}

/// A sentence with the source of the profile and the meaning of its values.
fn about(capture_result: &CaptureResult) -> String {
    let learned = &capture_result.learned;
    let tallies = learned.tallies;
    format!(
        "learned from {}, {}{}, captured {}: {} connections of {}{} clients, by {}, {}",
        capture_result.title,
        // Some tools write times from zero, which are not dates.
        if learned.from.as_nanos() < YEAR_2000 {
            String::new()
        } else {
            format!("{} for ", utc_time(learned.from.as_nanos()))
        },
        units::format_duration(Duration::from_millis(learned.to.since(learned.from).as_millis() as u64)),
        place(learned.capture_point),
        count(tallies.connections),
        if learned.clients_sampled { "about " } else { "" },
        count(learned.clients),
        learned.by.name(),
        match tallies.by_data {
            0 => "RTT of their handshakes".to_owned(),
            by_data => format!("RTT of their handshakes, {} by their data", count(by_data)),
        },
    )
}

/// The comments at the top of the profile.
fn notes(capture_result: &CaptureResult, targets: &Targets, arguments: &args::Learn) -> Vec<String> {
    let learned = &capture_result.learned;
    let value = match (learned.by, learned.steady) {
        (By::Client, _) => "a client address: the median RTT of its connections",
        (By::Connection, false) => "a connection: the RTT of its handshake",
        (By::Connection, true) => "a connection: the median RTT of its client",
        (By::Request, false) => "a request: the RTT of its connection's handshake",
        (By::Request, true) => "a request: the median RTT of its client",
    };
    let mut notes = vec![
        format!("Made by `{}`", command_line()),
        format!(
            "Each value is {value}, seen as {}.",
            match learned.capture_point {
                CapturePoint::AtServer => "ACK - SYN-ACK at the server",
                CapturePoint::AtClient => "SYN-ACK - SYN at the client",
                CapturePoint::Between => "ACK - SYN between both",
            }
        ),
        "Assumed: half of each RTT each way; no bottleneck, so waiting in queues is part of the RTT as it was then."
            .to_owned(),
    ];
    for (direction, loss) in [("up", &learned.up), ("down", &learned.down)] {
        let remark = match (is_in_profile(loss, capture_result), arguments.no_loss) {
            (true, false) => "",
            (true, true) => "; left out of the profile (--no-loss)",
            (false, _) if loss.lost_packets == 0 => "",
            (false, _) if capture_result.has_duplicate_packets() => "; left out, since packets were captured twice",
            (false, _) => "; too few to be in the profile",
        };
        notes.push(format!("Loss {direction}: {}{remark}.", loss_text(loss)));
    }
    if let Some(spread) = learned.spread {
        notes.push(format!(
            "Within a client RTTs differ by {} (median absolute deviation); {}.",
            report::figures::duration(spread.deviation_ns),
            if arguments.jitter { "as jitter below" } else { "in the curve, not as jitter" }
        ));
    }
    notes.push(format!(
        "Arrivals: {}; over time in {}.",
        arrivals_text(&learned.arrivals),
        targets.arrivals.file_name().unwrap_or_default().to_string_lossy()
    ));
    notes.push(format!("Replay: {}", super::replay(capture_result, targets)));
    notes
}

/// A loss estimate as a text.
pub fn loss_text(loss: &Loss) -> String {
    if loss.lost_packets == 0 {
        return format!("none seen in {} data packets", count(loss.data_packets));
    }
    format!(
        "about {} ({} lost of {} data packets as captured: {} sent again, {} of them for nothing, {} filled a hole)",
        share(loss.share),
        count(loss.lost_packets),
        count(loss.data_packets),
        count(loss.repeated_packets),
        count(loss.needless_packets),
        count(loss.late_packets),
    )
}

/// Arrival rates as a text.
pub fn arrivals_text(arrivals: &Arrivals) -> String {
    let words = |what: &str, rate: &watch::learn::ArrivalRate| {
        let peak = rate.peak_per_s.map_or(String::new(), |peak| format!(", at most {}", level(peak)));
        let dispersion = rate.dispersion.map_or(String::new(), |dispersion| format!(", dispersion {dispersion:.2}"));
        format!("{} {what}/s{peak}{dispersion}", level(rate.rate_per_s))
    };
    let connections = words("connections", &arrivals.connections);
    match arrivals.requests.count {
        0 => connections,
        _ => format!("{connections}; {}", words("requests", &arrivals.requests)),
    }
}

/// The capture point as a text.
pub fn place(point: CapturePoint) -> &'static str {
    match point {
        CapturePoint::AtServer => "at the server",
        CapturePoint::AtClient => "at the client",
        CapturePoint::Between => "between client and server",
    }
}

/// A time in ns since 1970, as RFC 3339 in UTC.
pub fn utc_time(nanos: u64) -> String {
    store::rfc3339(UNIX_EPOCH + Duration::from_nanos(nanos))
}

fn arrivals_csv(arrivals: &Arrivals) -> String {
    let mut text = String::from("start_s,length_s,connections,requests\n");
    for bin in &arrivals.bins {
        let (start_s, length_s) = (bin.from_ns as f64 / 1e9, bin.length_ns as f64 / 1e9);
        let _ = writeln!(text, "{start_s:.6},{length_s:.6},{},{}", bin.connections, bin.requests);
    }
    text
}

fn put(file: &Path, text: &str, force: bool) -> Result<()> {
    let mut options = OpenOptions::new();
    if force {
        options.create(true).truncate(true)
    } else {
        options.create_new(true)
    };
    let mut open = options.write(true).open(file).map_err(|error| anyhow!("writing {}: {error}", file.display()))?;
    open.write_all(text.as_bytes()).with_context(|| format!("writing {}", file.display()))
}

/// A profile's name as a file name: without `/` and control characters.
fn file_name_of(name: &str) -> String {
    name.chars().map(|c| if c == '/' || c.is_control() { '-' } else { c }).collect()
}

/// The beginning of 2000, in ns since 1970.
const YEAR_2000: u64 = 946_684_800_000_000_000;
/// Fewer losses than this are not significant: an estimate from ten is accurate to a third.
const LOST_MIN: u64 = 10;
