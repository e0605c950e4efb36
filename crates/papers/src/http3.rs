//! HTTP/3 against HTTP/2: over loss and delay (Liu et al., 2024, arXiv 2409.16267), and on fast lines (Zhang et al.,
//! 2024, arXiv 2310.09423).
//!
//! The first paper downloads through 10 Mbit/s with a loss of 0 to 12 % and a delay of 0 to 50 ms, from nginx, with six
//! clients. The second downloads through lines of up to 1 Gbit/s. Here client and server are this program: the load
//! with Chromium's windows, and `yamabiko serve`. Each download has a connection of its own.

mod rows;
mod summary;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use experiment::certificate::self_signed;
use experiment::programs::quoted;
use experiment::{ExperimentError, Order, Stage};
use path::{Loss, Rate};
use plan::{HttpVersion, LoadPlan, PathPlan, Plan, ServerPlan, ServerTcp, TlsPlan};
use schema::document::{Check, CheckState, Weight};
use schema::{Document, Reproduction};
use store::RunStore;
use sys::signal::Interrupts;
use units::{BitRate, Probability};

pub use self::summary::summary;

use self::rows::{Measurement, Place};
use super::Reproduced;
use super::builder::DocumentBuilder;

/// Name of the reproduction.
pub const NAME: &str = "http3";
/// Losses each way of the first paper, percent.
pub const LOSSES: [u32; 5] = [0, 3, 6, 9, 12];
/// Round-trip times of the first paper's delays, milliseconds.
pub const DELAYS_MS: [u64; 3] = [0, 25, 50];
/// Bandwidth of the first paper, Mbit/s.
const SLOW_MBIT: u64 = 10;
/// Bandwidths of the second paper, Mbit/s.
pub const FAST_MBIT: [u64; 3] = [100, 500, 1_000];
/// Round-trip time on the fast lines.
const FAST_RTT: Duration = Duration::from_millis(10);
/// Downloaded bytes: over loss and delay; on fast lines.
const FILES: [(&str, u64); 2] = [("1m.bin", 1_000_000), ("50m.bin", 50_000_000)];
const PORT: u16 = 8443;
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// A download of 1 MB at a loss of 12 % and 50 ms takes CUBIC about ten seconds, and may take several times as long.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Options of the reproduction.
#[derive(Clone, Debug)]
pub struct Http3Options {
    /// Options that every reproduction has.
    pub order: Order,
    /// Downloads per point.
    pub requests: u64,
    /// Losses to measure, percent, of [`LOSSES`].
    pub losses: Vec<u32>,
    /// Round-trip times to measure, milliseconds, of [`DELAYS_MS`].
    pub delays_ms: Vec<u64>,
    /// Bandwidths of fast lines to measure, Mbit/s, of [`FAST_MBIT`].
    pub fast_mbit: Vec<u64>,
}

/// Runs all measurements and compares them with the papers. Must be called while this process has one thread, since the
/// testbed forks. An interrupt ends it during the current measurement; earlier ones stay in the document.
///
/// # Errors
/// openssl is not installed, the testbed could not make a run, or the run store cannot be written.
pub fn make(
    input: &Http3Options,
    run_store: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<Reproduced, ExperimentError> {
    let folder = tempfile::tempdir().map_err(ExperimentError::file(std::env::temp_dir()))?;
    let command = prepare(folder.path(), &input.order.program)?;
    let mut builder = DocumentBuilder::new(run_store, NAME, &input.order, stage)?;
    let mut stage = builder.staging(stage);
    let mut measurements = Vec::new();
    for place in places(input) {
        for version in [HttpVersion::Http2, HttpVersion::Http3] {
            if interrupts.count() > 0 {
                break;
            }
            let plan = plan(input, &command, place, version);
            let name = format!("{}, HTTP/{}", place.name(), version.name());
            let mut observer = stage.begin(&name);
            let outcome = testbed::bench(&plan, &input.order.command, Some(run_store), interrupts, observer.as_mut())?;
            builder.take(&name, &outcome.document, None);
            let one = Measurement::of(place, version, &outcome.document);
            if let Some(check) = missing(&name, &outcome.document).filter(|_| interrupts.count() == 0) {
                builder.check(check);
            }
            measurements.push(one);
            builder.rows(&rows::rows(&measurements));
        }
    }
    let rows = rows::rows(&measurements);
    let part = Reproduction {
        name: NAME.into(),
        about: about(input),
        answer: summary::result_sentence(&rows),
        notes: summary::NOTES.map(str::to_owned).to_vec(),
        rows,
        runs: Vec::new(),
    };
    builder.close(&input.order, interrupts.count() > 0, part)
}

/// The points, those over loss and delay first.
fn places(input: &Http3Options) -> Vec<Place> {
    let over_loss = input.delays_ms.iter().flat_map(|delay_ms| {
        input.losses.iter().map(|loss| Place { mbit: SLOW_MBIT, rtt: Duration::from_millis(*delay_ms), loss: *loss })
    });
    let fast = input.fast_mbit.iter().map(|mbit| Place { mbit: *mbit, rtt: FAST_RTT, loss: 0 });
    over_loss.chain(fast).collect()
}

fn plan(input: &Http3Options, command: &str, place: Place, version: HttpVersion) -> Plan {
    let rate = BitRate::from_bits_per_second(place.mbit * 1_000_000).map(Rate::Constant);
    let loss = Probability::new(f64::from(place.loss) / 100.0).unwrap_or(Probability::ZERO);
    let (file, _) = FILES[usize::from(place.mbit != SLOW_MBIT)];
    Plan {
        name: format!("{NAME}-{}-h{}", place.short_name(), version.name()),
        seed: input.order.seed,
        load: LoadPlan {
            http: version,
            close: true,
            connections: Some(1),
            requests: Some(input.requests),
            timeout: TIMEOUT,
            connect_timeout: TIMEOUT,
            tls: Some(TlsPlan { insecure: true, ..TlsPlan::default() }),
            ..LoadPlan::get(&format!("https://server:{PORT}/{file}"))
        },
        path: Some(PathPlan {
            rtt: Some(place.rtt),
            up: rate.clone(),
            down: rate,
            effects: (place.loss > 0).then(|| Loss::Even(loss).effect()).into_iter().collect(),
            ..PathPlan::default()
        }),
        server: Some(ServerPlan {
            command: command.to_owned(),
            start_timeout: START_TIMEOUT,
            // Both versions are sent by the same congestion control.
            tcp: ServerTcp { cc: Some("cubic".into()), ..ServerTcp::default() },
            ..ServerPlan::default()
        }),
        ..Plan::default()
    }
}

/// Creates the files and the certificate; returns the server's command.
fn prepare(folder: &Path, program: &Path) -> Result<String, ExperimentError> {
    let www = folder.join("www");
    fs::create_dir(&www).map_err(ExperimentError::file(&www))?;
    for (name, bytes) in FILES {
        let file = www.join(name);
        fs::write(&file, vec![b'y'; bytes as usize]).map_err(ExperimentError::file(&file))?;
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(ExperimentError::file(folder))?;
    let (certificate, key) = self_signed(folder)?;
    let [program, www, certificate, key] = [program, &www, &certificate, &key].map(quoted);
    Ok(format!("exec {program} serve {www} --listen 0.0.0.0:{PORT} --tls {certificate} {key} --http3"))
}

/// Failed downloads make the times incomparable.
fn missing(name: &str, document: &Document) -> Option<Check> {
    let load = document.load.as_ref()?;
    let missing = load.offered_requests.saturating_sub(load.completed);
    (missing > 0).then(|| Check {
        name: format!("{name}: downloads"),
        state: CheckState::Failed,
        weight: Weight::Suspect,
        value: Some(missing as f64),
        limit: Some(0.0),
        unit: "downloads".into(),
        why: "downloads failed, so the median is of the others alone".into(),
    })
}

fn about(input: &Http3Options) -> String {
    format!(
        "HTTP/3 against HTTP/2: F. Liu et al., Performance Comparison of HTTP/3 and HTTP/2 with Proxy Integration (arXiv \
         2409.16267), 10 Mbit/s with loss and delay; X. Zhang et al., QUIC is not Quick Enough over Fast Internet (WWW \
         2024, arXiv 2310.09423), lines of up to 1 Gbit/s. {} downloads per point, one after the other, each on a new \
         connection with TLS 1.3: 1 MB at {SLOW_MBIT} Mbit/s, 50 MB on the fast lines. Client: this program's load, with \
         Chromium's windows. Server: `yamabiko serve`, CUBIC for both. Loss is each way; the delay is the round-trip \
         time. The same seed draws the losses of both versions.",
        input.requests
    )
}
