//! `yamabiko profile learn`: makes a profile of the distances of a real server's clients, from packets.
//!
//! ```text
//!   device, capture file, run --> source --> watch::learn --> Learned --> profile.toml, arrivals.csv
//!                                                                   \---> one screen, or JSON
//! ```

mod document;
mod files;
mod page;
mod source;

use anyhow::{Result, anyhow, bail};
use path::Profile;
use schema::document::Check;
use sys::clock::realtime_ns;
use sys::signal::Interrupts;
use watch::CapturePoint;
use watch::learn::{By, CaptureLocation, Learn, LearnSpec, Learned};

use crate::args::{self, At};
use crate::exit::{self, Exit};
use crate::terminal;
use crate::verb::bench::print;
use files::Targets;
use source::{ANALYZED, Reading, Source};

/// Learns a profile from a source, writes it, and prints what it contains.
pub fn run(arguments: &args::Learn) -> Result<Exit> {
    let interrupts = Interrupts::install()?;
    let source = Source::open(arguments)?;
    // Files that cannot be written are an error before the capture, not after it.
    let targets = Targets::new(arguments, &source)?;
    let capture_point = match arguments.at {
        Some(At::Server) => CapturePoint::AtServer,
        Some(At::Client) => CapturePoint::AtClient,
        Some(At::Between) => CapturePoint::Between,
        None => source.capture_point().unwrap_or_default(),
    };
    let spec = LearnSpec {
        capture_point,
        servers: arguments.servers.clone(),
        ports: arguments.ports.clone(),
        except: arguments.except.clone(),
        // A sender of packets must not be able to guess the seed. It matters only if clients are sampled.
        seed: realtime_ns(),
        ..LearnSpec::default()
    };
    let (name, title) = (source.name(), source.title());
    let mut learn = Learn::new(spec);
    let mut reading = source.read(arguments, &interrupts, &mut learn);
    let by = match arguments.by {
        args::By::Connection => By::Connection,
        args::By::Request => By::Request,
        args::By::Client => By::Client,
    };
    // A profile is used where its capture is not available, so no profile is learned from a capture with failed checks.
    if let Some(failure) = reading.failure.take() {
        return Err(failure.context(name));
    }
    if let Some(failed_check) = reading.failed_checks.iter().find(|failed_check| failed_check.name != ANALYZED) {
        return Ok(refuse_invalid_capture(&name, failed_check));
    }
    let outcome = learn.finish(by, arguments.jitter, reading.from, reading.to);
    let capture_result = match (outcome, reading.failed_checks.first().cloned()) {
        (Ok(_), Some(failed_check)) => return Ok(refuse_invalid_capture(&name, &failed_check)),
        (Ok(learned), None) => CaptureResult { learned, reading, name, title },
        (Err(error), Some(failed_check)) => bail!("{name}: {error} ({})", failed_check.why),
        (Err(error), None) => bail!("{name}: {error}"),
    };
    refuse_wrong_end(&capture_result, arguments.at.is_some())?;
    let profile = targets.write(&capture_result, arguments)?;
    let document = document::make(&capture_result, &targets, &profile)?;
    if arguments.json {
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        print(&page::render(&capture_result, &targets, &profile, terminal::style()))?;
    }
    Ok(Exit::Success)
}

/// Prints the failed check of a capture from which no profile is learned.
fn refuse_invalid_capture(name: &str, failed_check: &Check) -> Exit {
    exit::print_error(&format!(
        "{name}: no profile is learned from an invalid capture: {}: {}",
        failed_check.name, failed_check.why
    ));
    Exit::Invalid
}

/// A learned profile and the capture it was learned from.
struct CaptureResult {
    learned: Learned,
    reading: Reading,
    /// Name of the source in messages.
    name: String,
    /// Name of the source in the profile.
    title: String,
}

impl CaptureResult {
    /// Share of the connections whose SYN-ACK was captured more than once.
    fn repeated_share(&self) -> f64 {
        let tallies = self.learned.tallies;
        tallies.handshakes_repeated as f64 / tallies.connections.max(1) as f64
    }

    /// Whether packets were probably captured twice.
    fn has_duplicate_packets(&self) -> bool {
        self.repeated_share() > REPEATED_MAX
    }
}

/// Refuses a capture that was taken at the other end than assumed: its RTTs would be those of the local kernel.
/// `is_configured`: whether `--at` is given.
fn refuse_wrong_end(capture_result: &CaptureResult, is_configured: bool) -> Result<()> {
    let CaptureLocation::OtherEnd { near_ns, far_ns } = capture_result.learned.place else { return Ok(()) };
    if is_configured {
        return Ok(());
    }
    let [near, far] = [near_ns, far_ns].map(report::figures::duration);
    Err(anyhow!(
        "{}: in a capture at the server SYN-ACKs follow immediately and the clients' ACKs come later; here SYN-ACKs took \
         {near} and clients' ACKs {far} (medians), as at the clients' end: give --at client, or --at server if it was \
         captured at the server",
        capture_result.name
    ))
}

/// The command that replays the profile at the captured rate.
fn replay(capture_result: &CaptureResult, targets: &Targets) -> String {
    let learned = &capture_result.learned;
    let arrivals = &learned.arrivals;
    let (arrivals_rate, close) = if arrivals.requests.count == 0 {
        (&arrivals.connections, true)
    } else {
        (&arrivals.requests, arrivals.requests.count < arrivals.connections.count * 3 / 2)
    };
    let rate = arrivals_rate.rate_per_s.max(0.001);
    let digits = if rate >= 100.0 { 0 } else { 3 };
    let rate = format!("{rate:.digits$}");
    let rate = if digits > 0 { rate.trim_end_matches('0').trim_end_matches('.') } else { &rate };
    // The index of dispersion is 0 for constant intervals, and 1 for independent users (Poisson).
    let poisson = arrivals_rate.dispersion.is_none_or(|dispersion| dispersion > 0.5);
    format!(
        "yamabiko bench http://server/ --server 'COMMAND' --path {} --clients {} --rate {rate}/s{}{}",
        files::quoted(&targets.profile),
        clients(learned),
        if poisson { " --arrivals poisson" } else { "" },
        if close { " --close" } else { "" },
    )
}

/// Number of clients for a replay: as many as were captured, but enough for the tail of the distribution.
fn clients(learned: &Learned) -> u32 {
    let seen = u32::try_from(learned.clients).unwrap_or(u32::MAX);
    seen.clamp(CLIENTS_MIN, path::AddressPlan::CLIENTS_MAX)
}

/// The configured RTTs of a replay, in ns, ascending.
fn rtts_ns(profile: &Profile, learned: &Learned) -> Vec<u64> {
    let paths = profile.clients(clients(learned));
    let mut rtts_ns: Vec<u64> = paths.iter().map(path::ClientPath::rtt_ns).collect();
    rtts_ns.sort_unstable();
    rtts_ns
}

/// Largest share of repeated SYN-ACKs that the network can cause, with a tenth of all packets lost or a fifth of the
/// clients a second away. A larger share means that packets were captured twice.
const REPEATED_MAX: f64 = 0.2;
/// Least number of clients of a replay: with a hundred the distribution has a 99th percentile.
const CLIENTS_MIN: u32 = 100;
