//! The files that are written: the profile, and the arrivals beside it.

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

use super::Found;
use super::source::Source;
use crate::args;
use crate::verb::bench::command_line;

/// Where they go.
#[derive(Debug)]
pub struct Targets {
    /// The profile.
    pub profile: PathBuf,
    /// The arrivals.
    pub arrivals: PathBuf,
    /// What the profile is called.
    name: String,
    /// Whether what is there may be written over.
    force: bool,
}

impl Targets {
    /// Decides it, and makes sure that nothing is written over unasked.
    pub fn new(arguments: &args::Learn, source: &Source) -> Result<Targets> {
        let profile = match (&arguments.output, &arguments.name) {
            (Some(file), _) => file.clone(),
            (None, Some(name)) => PathBuf::from(format!("{}.toml", harmless(name))),
            (None, None) => PathBuf::from(format!("{}.toml", source.stem())),
        };
        let Some(stem) = profile.file_stem().map(|stem| stem.to_string_lossy().into_owned()) else {
            bail!("-o {}: that is no name of a file", profile.display());
        };
        let typed = profile.to_string_lossy();
        if typed == "none" || Profile::builtin(&typed).is_some() {
            bail!("-o {typed}: as --path that means something else; give another name, or ./{typed}");
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

    /// Writes both, and reads the profile back as `bench` will.
    pub fn write(&self, found: &Found, arguments: &args::Learn) -> Result<Profile> {
        let text = draft(found, self, arguments).to_toml();
        put(&self.arrivals, &arrivals_csv(&found.learned.arrivals), self.force)?;
        put(&self.profile, &text, self.force)?;
        let no_files: path::Files<'_> = &|_| Err(std::io::ErrorKind::NotFound.into());
        Ok(Profile::parse(&text, &self.profile, no_files)?)
    }
}

/// For a shell.
pub fn quoted(file: &Path) -> String {
    crate::verb::bench::quote(&file.to_string_lossy())
}

/// Whether a loss was seen often enough to be in the profile, in a capture that tells losses.
pub fn is_kept(loss: &Loss, found: &Found) -> bool {
    loss.lost_packets >= LOST_MIN && !found.is_doubled()
}

fn draft(found: &Found, targets: &Targets, arguments: &args::Learn) -> Draft {
    let learned = &found.learned;
    let loss = |loss: &Loss| {
        // Three digits: more would claim what no estimate of losses has.
        let rounded = format!("{:.2e}", loss.share).parse().unwrap_or(0.0);
        let kept = is_kept(loss, found) && !arguments.no_loss;
        Probability::new(rounded).filter(|_| kept).unwrap_or(Probability::ZERO)
    };
    Draft {
        name: targets.name.clone(),
        about: about(found),
        notes: notes(found, targets, arguments),
        quantiles: learned.points.clone(),
        jitter: jitter(found, arguments),
        up_loss: loss(&learned.up),
        down_loss: loss(&learned.down),
    }
}

/// Each packet's jitter as it stands in the profile.
pub fn jitter(found: &Found, arguments: &args::Learn) -> Duration {
    let spread = found.learned.spread.filter(|_| arguments.jitter);
    Duration::from_nanos(spread.map_or(0, |spread| spread.jitter_ns / 1000 * 1000))
}

/// One sentence: what it was learned from, and what a value of it is.
fn about(found: &Found) -> String {
    let learned = &found.learned;
    let tallies = learned.tallies;
    format!(
        "learned from {}, {}{}, captured {}: {} connections of {}{} clients, by {}, {}",
        found.title,
        // Some tools write times from zero on, which are no date.
        if learned.from.as_nanos() < YEAR_2000 {
            String::new()
        } else {
            format!("{} for ", moment(learned.from.as_nanos()))
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

/// What stands at the top of the file for whoever opens it.
fn notes(found: &Found, targets: &Targets, arguments: &args::Learn) -> Vec<String> {
    let learned = &found.learned;
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
        let kept = match (is_kept(loss, found), arguments.no_loss) {
            (true, false) => "",
            (true, true) => "; left out of the profile as asked",
            (false, _) if loss.lost_packets == 0 => "",
            (false, _) if found.is_doubled() => "; left out, since packets were captured twice",
            (false, _) => "; too few to be in the profile",
        };
        notes.push(format!("Loss {direction}: {}{kept}.", loss_words(loss)));
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
        pace_words(&learned.arrivals),
        targets.arrivals.file_name().unwrap_or_default().to_string_lossy()
    ));
    notes.push(format!("Replay: {}", super::replay(found, targets)));
    notes
}

/// A loss in words.
pub fn loss_words(loss: &Loss) -> String {
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

/// Rates in words.
pub fn pace_words(arrivals: &Arrivals) -> String {
    let words = |what: &str, pace: &watch::learn::ArrivalRate| {
        let peak = pace.peak_per_s.map_or(String::new(), |peak| format!(", at most {}", level(peak)));
        let dispersion = pace.dispersion.map_or(String::new(), |dispersion| format!(", dispersion {dispersion:.2}"));
        format!("{} {what}/s{peak}{dispersion}", level(pace.rate_per_s))
    };
    let connections = words("connections", &arrivals.connections);
    match arrivals.requests.count {
        0 => connections,
        _ => format!("{connections}; {}", words("requests", &arrivals.requests)),
    }
}

/// Where a capture was taken, in words.
pub fn place(point: CapturePoint) -> &'static str {
    match point {
        CapturePoint::AtServer => "at the server",
        CapturePoint::AtClient => "at the client",
        CapturePoint::Between => "between client and server",
    }
}

/// A moment of the wall clock in UTC.
pub fn moment(nanos: u64) -> String {
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

/// A name as part of a file's.
fn harmless(name: &str) -> String {
    name.chars().map(|c| if c == '/' || c.is_control() { '-' } else { c }).collect()
}

/// Since 1970, in nanoseconds.
const YEAR_2000: u64 = 946_684_800_000_000_000;
/// Fewer losses than this are chance: ten are told to within a third.
const LOST_MIN: u64 = 10;
