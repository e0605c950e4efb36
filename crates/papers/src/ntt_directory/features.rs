//! Features added to MAX one at a time: the cost of each per request.

use plan::{LoadPlan, TlsPlan};
use schema::ReproductionRow;

use super::rows::{ADDED, CPU, CPU_SYSTEM, CPU_USER, FEATURES, PER_SECOND, row, with_published};
use super::site::PAGE;
use super::{Measured, MeasurementContext, ROUNDS, interleaved};
use experiment::ExperimentError;
use experiment::local::free_address;
use stats::median;

/// A step: MAX with some features.
struct FeatureStep {
    /// Name in the rows.
    name: &'static str,
    /// Options of the server.
    options: &'static str,
    /// The step that this one extends; absent for a first step, or another way to have all features.
    onto: Option<usize>,
    note: &'static str,
}

/// From the minimal server to the complete one, over epoll; then over io_uring.
const FEATURE_STEPS: [FeatureStep; 12] = [
    FeatureStep {
        name: "bare",
        options: "--only none",
        onto: None,
        note: "finds the end of the head, sends a prepared response",
    },
    FeatureStep { name: "+ parse", options: "--only parse", onto: Some(0), note: "parses and validates the head" },
    FeatureStep {
        name: "+ date",
        options: "--only parse,date",
        onto: Some(1),
        note: "builds each response instead of sending a prepared one",
    },
    FeatureStep {
        name: "+ open",
        options: "--only parse,date,open",
        onto: Some(2),
        note: "looks up, opens, measures, reads and closes the file per request",
    },
    FeatureStep {
        name: "+ held",
        options: "--only parse,date,held",
        onto: Some(2),
        note: "instead: keeps the file in memory, and checks once a second for changes",
    },
    FeatureStep {
        name: "+ conditional",
        options: "--only parse,date,conditional",
        onto: Some(4),
        note: "conditions, ranges, codings, methods",
    },
    FeatureStep {
        name: "+ figures",
        options: "--only parse,date,conditional,figures",
        onto: Some(5),
        note: "counts every request",
    },
    FeatureStep {
        name: "+ log",
        options: "--only parse,date,conditional,figures,log --only-log LOG",
        onto: Some(6),
        note: "a log line per request, formatted and written by another thread, whose time is included",
    },
    FeatureStep {
        name: "+ TLS",
        options: "--only parse,date,conditional,figures,tls --tls CERT KEY",
        onto: Some(6),
        note: "instead of the log: TLS 1.3 records; the handshakes of 50 connections are included",
    },
    FeatureStep {
        name: "complete server, epoll",
        options: "--engine epoll",
        onto: Some(6),
        note: "limits and timeouts, connections by address, lookup of dynamic routes",
    },
    FeatureStep {
        name: "complete server, io_uring",
        options: "--engine io_uring",
        onto: None,
        note: "one system call per turn",
    },
    FeatureStep { name: "MAX, io_uring", options: MAX, onto: None, note: "parses heads, one prepared response" },
];
/// Option that selects the minimal server.
const MAX: &str = "--max";

/// All steps in every round.
pub const MEASUREMENTS: u32 = FEATURE_STEPS.len() as u32 * ROUNDS;

/// Runs the part.
pub fn make(context: &mut MeasurementContext<'_>) -> Result<Vec<ReproductionRow>, ExperimentError> {
    let (certificate, key) = context.site.certificate()?;
    let mut servers = Vec::new();
    for (at, step) in FEATURE_STEPS.iter().enumerate() {
        let listen = free_address()?;
        let options = step
            .options
            .replace("LOG", &context.site.log(&format!("access-{at}")).display().to_string())
            .replace("CERT", &certificate.display().to_string())
            .replace("KEY", &key.display().to_string());
        let command = if step.options == MAX { context.site.max(listen) } else { context.site.serve(listen, &options) };
        let scheme = if step.options.contains("--tls") { "https" } else { "http" };
        servers.push((format!("{scheme}://{listen}{PAGE}"), context.start(step.name, &command, listen)?));
    }
    let measured = interleaved(FEATURE_STEPS.len(), |at| {
        if context.interrupted() {
            return Ok(None);
        }
        let (url, server) = &servers[at];
        let tls = url.starts_with("https").then(|| TlsPlan { insecure: true, ..TlsPlan::default() });
        let load = LoadPlan { tls, ..context.closed(url) };
        context.measure(&format!("features, {}", FEATURE_STEPS[at].name), server, load).map(Some)
    })?;
    Ok(rows(&measured))
}

fn rows(measured: &[Vec<Measured>]) -> Vec<ReproductionRow> {
    let of = |at: usize, of: fn(&Measured) -> f64| median(measured[at].iter().map(of));
    let total: fn(&Measured) -> f64 = |one| one.us(|used| used.server_user + used.server_system);
    let mut rows = Vec::new();
    for (at, step) in FEATURE_STEPS.iter().enumerate() {
        let figures: [(&str, &str, f64); 4] = [
            (CPU_USER, "us", of(at, |one| one.us(|used| used.server_user))),
            (CPU_SYSTEM, "us", of(at, |one| one.us(|used| used.server_system))),
            (CPU, "us", of(at, total)),
            (PER_SECOND, "1/s", of(at, Measured::per_second)),
        ];
        for (quantity, unit, here) in figures {
            rows.push(with_published(row(FEATURES, step.name, quantity, unit, here), None, step.note));
        }
        if let Some(onto) = step.onto {
            // Round by round, so that the machine's drift is in both.
            let added = median(measured[at].iter().zip(&measured[onto]).map(|(this, that)| total(this) - total(that)));
            let note = format!("added to: {}", FEATURE_STEPS[onto].name);
            rows.push(with_published(row(FEATURES, step.name, ADDED, "us", added), None, &note));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_step_extends_an_earlier_one() {
        for (at, step) in FEATURE_STEPS.iter().enumerate() {
            assert!(step.onto.is_none_or(|onto| onto < at), "{}", step.name);
            assert_eq!(step.options.contains("LOG"), step.name == "+ log");
        }
        assert!(
            rows(&FEATURE_STEPS.map(|_| Vec::new())).iter().all(|row| row.measured.is_none()),
            "a missing measurement has \
                                                                                         no figure"
        );
    }
}
