//! `yamabiko profile learn`: from the packets of a real server to a profile of its clients' distances.
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

/// Learns, writes the profile, and says what was learned.
pub fn run(arguments: &args::Learn) -> Result<Exit> {
    let interrupts = Interrupts::install()?;
    let source = Source::open(arguments)?;
    // What cannot be written is said before a minute of capture is spent.
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
        // Not to be guessed by whoever sends the packets; where it matters the capture holds more clients than memory.
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
    // A profile goes on to be believed where its capture is not seen any more: nothing is learned from what is doubted.
    if let Some(failure) = reading.failure.take() {
        return Err(failure.context(name));
    }
    if let Some(doubt) = reading.doubts.iter().find(|doubt| doubt.name != ANALYZED) {
        return Ok(refuse_doubtful(&name, doubt));
    }
    let outcome = learn.finish(by, arguments.jitter, reading.from, reading.to);
    let found = match (outcome, reading.doubts.first().cloned()) {
        (Ok(_), Some(doubt)) => return Ok(refuse_doubtful(&name, &doubt)),
        (Ok(learned), None) => Found { learned, reading, name, title },
        (Err(error), Some(doubt)) => bail!("{name}: {error} ({})", doubt.why),
        (Err(error), None) => bail!("{name}: {error}"),
    };
    refuse_wrong_end(&found, arguments.at.is_some())?;
    let profile = targets.write(&found, arguments)?;
    let document = document::make(&found, &targets, &profile)?;
    if arguments.json {
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        print(&page::render(&found, &targets, &profile, terminal::style()))?;
    }
    Ok(Exit::Success)
}

/// The figures of this capture would not be valid: so says the check.
fn refuse_doubtful(name: &str, doubt: &Check) -> Exit {
    exit::tell(&format!("{name}: no profile is learned from an invalid capture: {}: {}", doubt.name, doubt.why));
    Exit::Invalid
}

/// What was learned, and of what.
struct Found {
    learned: Learned,
    reading: Reading,
    /// The source, in messages.
    name: String,
    /// The source, in the profile.
    title: String,
}

impl Found {
    /// Share of the connections whose SYN-ACK was seen more than once.
    fn repeated(&self) -> f64 {
        let tallies = self.learned.tallies;
        tallies.handshakes_repeated as f64 / tallies.connections.max(1) as f64
    }

    /// Whether packets seem to have been captured twice.
    fn is_doubled(&self) -> bool {
        self.repeated() > REPEATED_MAX
    }
}

/// A capture from the other end would make a profile of the machine's own kernel.
fn refuse_wrong_end(found: &Found, is_told: bool) -> Result<()> {
    let CaptureLocation::OtherEnd { near_ns, far_ns } = found.learned.place else { return Ok(()) };
    if is_told {
        return Ok(());
    }
    let [near, far] = [near_ns, far_ns].map(report::figures::duration);
    Err(anyhow!(
        "{}: in a capture at the server SYN-ACKs follow immediately and the clients' ACKs come later; here SYN-ACKs took \
         {near} and clients' ACKs {far} (medians), as at the clients' end: give --at client, or --at server if it was \
         captured at the server",
        found.name
    ))
}

/// The command that replays the profile at the rate that was seen.
fn replay(found: &Found, targets: &Targets) -> String {
    let learned = &found.learned;
    let arrivals = &learned.arrivals;
    let (pace, close) = if arrivals.requests.count == 0 {
        (&arrivals.connections, true)
    } else {
        (&arrivals.requests, arrivals.requests.count < arrivals.connections.count * 3 / 2)
    };
    let rate = pace.rate_per_s.max(0.001);
    let digits = if rate >= 100.0 { 0 } else { 3 };
    let rate = format!("{rate:.digits$}");
    let rate = if digits > 0 { rate.trim_end_matches('0').trim_end_matches('.') } else { &rate };
    // Equal gaps have no dispersion, independent users one.
    let poisson = pace.dispersion.is_none_or(|dispersion| dispersion > 0.5);
    format!(
        "yamabiko bench http://server/ --server 'COMMAND' --path {} --clients {} --rate {rate}/s{}{}",
        files::quoted(&targets.profile),
        clients(learned),
        if poisson { " --arrivals poisson" } else { "" },
        if close { " --close" } else { "" },
    )
}

/// How many clients to replay with: as many as were seen, at least enough to cut the curve finely.
fn clients(learned: &Learned) -> u32 {
    let seen = u32::try_from(learned.clients).unwrap_or(u32::MAX);
    seen.clamp(CLIENTS_MIN, path::AddressPlan::CLIENTS_MAX)
}

/// The RTTs that a replay asks for, in ns, rising.
fn rtts_ns(profile: &Profile, learned: &Learned) -> Vec<u64> {
    let paths = profile.clients(clients(learned));
    let mut rtts_ns: Vec<u64> = paths.iter().map(path::ClientPath::rtt_ns).collect();
    rtts_ns.sort_unstable();
    rtts_ns
}

/// A tenth of all packets lost, or a fifth of the clients a second away: more than that is the capture's doing.
const REPEATED_MAX: f64 = 0.2;
/// A hundred steps show a 99th percentile.
const CLIENTS_MIN: u32 = 100;
