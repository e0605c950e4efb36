//! Features added to MAX one at a time: what each costs a request.

use plan::{LoadPlan, TlsPlan};
use schema::ReproductionRow;

use super::rows::{ADDED, CPU, CPU_SYSTEM, CPU_USER, FEATURES, PER_SECOND, beside, row};
use super::site::PAGE;
use super::{Kitchen, Measured, ROUNDS, turn_about};
use experiment::ExperimentError;
use experiment::local::free_address;
use stats::median;

/// A rung of the ladder.
struct Rung {
    /// As in the rows.
    name: &'static str,
    /// As the server is told.
    options: &'static str,
    /// The rung that it is an addition to; none: it is a beginning, or another way to have everything.
    onto: Option<usize>,
    note: &'static str,
}

/// From the least there can be to the whole server, over epoll; then over io_uring.
const LADDER: [Rung; 12] = [
    Rung {
        name: "bare",
        options: "--only none",
        onto: None,
        note: "looks for the end of a head, sends one prepared answer",
    },
    Rung { name: "+ parse", options: "--only parse", onto: Some(0), note: "reads the head, with all that it refuses" },
    Rung {
        name: "+ date",
        options: "--only parse,date",
        onto: Some(1),
        note: "an answer that is put together instead of one that is prepared",
    },
    Rung {
        name: "+ open",
        options: "--only parse,date,open",
        onto: Some(2),
        note: "looks up, opens, measures, reads and closes the file for each request",
    },
    Rung {
        name: "+ held",
        options: "--only parse,date,held",
        onto: Some(2),
        note: "instead: has it in memory, and looks once a second whether it changed",
    },
    Rung {
        name: "+ conditional",
        options: "--only parse,date,conditional",
        onto: Some(4),
        note: "conditions, ranges, codings, methods: all that an answer may depend on",
    },
    Rung {
        name: "+ figures",
        options: "--only parse,date,conditional,figures",
        onto: Some(5),
        note: "counts every request",
    },
    Rung {
        name: "+ log",
        options: "--only parse,date,conditional,figures,log --only-log LOG",
        onto: Some(6),
        note: "a line for each request, formatted and written by a thread of its own, whose time is in it",
    },
    Rung {
        name: "+ TLS",
        options: "--only parse,date,conditional,figures,tls --tls CERT KEY",
        onto: Some(6),
        note: "instead of the log: records of TLS 1.3; the handshakes of 50 connections are in it",
    },
    Rung {
        name: "the whole server, epoll",
        options: "--engine epoll",
        onto: Some(6),
        note: "limits and deadlines, connections by address, dynamic routes looked up",
    },
    Rung {
        name: "the whole server, io_uring",
        options: "--engine io_uring",
        onto: None,
        note: "one system call a turn",
    },
    Rung { name: "MAX, io_uring", options: MAX, onto: None, note: "reads heads, one prepared answer" },
];
/// Not options of a server of files.
const MAX: &str = "--max";

/// Every rung in every round.
pub const MEASUREMENTS: u32 = LADDER.len() as u32 * ROUNDS;

/// Makes the part.
pub fn make(kitchen: &mut Kitchen<'_>) -> Result<Vec<ReproductionRow>, ExperimentError> {
    let (certificate, key) = kitchen.site.certificate()?;
    let mut servers = Vec::new();
    for (at, rung) in LADDER.iter().enumerate() {
        let listen = free_address()?;
        let options = rung
            .options
            .replace("LOG", &kitchen.site.log(&format!("access-{at}")).display().to_string())
            .replace("CERT", &certificate.display().to_string())
            .replace("KEY", &key.display().to_string());
        let command = if rung.options == MAX { kitchen.site.max(listen) } else { kitchen.site.serve(listen, &options) };
        let scheme = if rung.options.contains("--tls") { "https" } else { "http" };
        servers.push((format!("{scheme}://{listen}{PAGE}"), kitchen.start(rung.name, &command, listen)?));
    }
    let measured = turn_about(LADDER.len(), |at| {
        if kitchen.interrupted() {
            return Ok(None);
        }
        let (url, server) = &servers[at];
        let tls = url.starts_with("https").then(|| TlsPlan { insecure: true, ..TlsPlan::default() });
        let load = LoadPlan { tls, ..kitchen.closed(url) };
        kitchen.measure(&format!("features, {}", LADDER[at].name), server, load).map(Some)
    })?;
    Ok(rows(&measured))
}

fn rows(measured: &[Vec<Measured>]) -> Vec<ReproductionRow> {
    let of = |at: usize, of: fn(&Measured) -> f64| median(measured[at].iter().map(of));
    let total: fn(&Measured) -> f64 = |one| one.us(|used| used.server_user + used.server_system);
    let mut rows = Vec::new();
    for (at, rung) in LADDER.iter().enumerate() {
        let figures: [(&str, &str, f64); 4] = [
            (CPU_USER, "us", of(at, |one| one.us(|used| used.server_user))),
            (CPU_SYSTEM, "us", of(at, |one| one.us(|used| used.server_system))),
            (CPU, "us", of(at, total)),
            (PER_SECOND, "1/s", of(at, Measured::per_second)),
        ];
        for (quantity, unit, here) in figures {
            rows.push(beside(row(FEATURES, rung.name, quantity, unit, here), None, rung.note));
        }
        if let Some(onto) = rung.onto {
            // Round by round, so that the machine's drift is in both.
            let added = median(measured[at].iter().zip(&measured[onto]).map(|(this, that)| total(this) - total(that)));
            let note = format!("onto: {}", LADDER[onto].name);
            rows.push(beside(row(FEATURES, rung.name, ADDED, "us", added), None, &note));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rung_stands_on_an_earlier_one() {
        for (at, rung) in LADDER.iter().enumerate() {
            assert!(rung.onto.is_none_or(|onto| onto < at), "{}", rung.name);
            assert_eq!(rung.options.contains("LOG"), rung.name == "+ log");
        }
        assert!(
            rows(&LADDER.map(|_| Vec::new())).iter().all(|row| row.measured.is_none()),
            "nothing made is no figure"
        );
    }
}
