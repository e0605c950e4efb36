//! Assumptions of a sum of components as sentences.

use plan::{BodyFrom, ComponentsPlan, LogLines, Waits};
use units::Bytes;

use super::network::BODY_MAX;
use super::sum::Shape;

/// The model as a sentence.
pub fn described(parts: &ComponentsPlan, shape: &Shape) -> String {
    let waits = match parts.waits {
        Waits::Epoll => "one loop over all connections (epoll)",
        Waits::IoUring => "one loop over all connections (io_uring)",
        Waits::Threads => "a thread for each connection",
    };
    let body = match parts.body {
        BodyFrom::Memory => "bodies from memory",
        BodyFrom::Read => "opens and reads a file per request",
        BodyFrom::Sendfile => "opens a file per request and sends it by sendfile",
    };
    let log = match parts.log {
        LogLines::None => "no log",
        LogLines::Line => "a log line by its own write",
        LogLines::Buffered => "log lines in blocks",
    };
    let objects: Vec<String> = parts
        .shares()
        .iter()
        .map(|(bytes, share)| match parts.objects.len() {
            1 => Bytes(*bytes).to_string(),
            _ => format!("{} ({:.0} %)", Bytes(*bytes), share * 100.0),
        })
        .collect();
    let connection = if shape.close { "one connection per request" } else { "keep-alive connections" };
    let tls = match (shape.tls, shape.close) {
        (false, _) => String::new(),
        (true, false) => ", TLS".into(),
        (true, true) => format!(", TLS with {:.0} % resumed sessions", parts.resumed.value() * 100.0),
    };
    let heads = if parts.parse { "" } else { ", does not parse heads" };
    let cold = match parts.cold.value() {
        cold if cold > 0.0 => format!(", {:.1} % of the files not in the page cache", cold * 100.0),
        _ => String::new(),
    };
    let workers = parts.workers.map_or(String::new(), |workers| format!(", {workers} workers"));
    let cores = if parts.threads == 1 { "1 core".to_owned() } else { format!("{} cores", parts.threads) };
    format!(
        "{waits}, {body}{cold}{heads}, {log}; {connection}{tls}; responses of {}; {cores}{workers}",
        objects.join(", ")
    )
}

/// The assumptions, and when they do not apply.
pub fn assumes(parts: &ComponentsPlan, shape: &Shape, cold: Option<bool>) -> Vec<String> {
    let mut assumes = vec![
        "The server is the sum of the listed components: everything else (dates, conditions, limits, metrics, \
         memory, modules) costs nothing here. So the sum is a lower bound of cost, and its rate an upper bound. NTT \
         DIRECTORY's own minimal server did about twice the rate of two general servers of its time (read off a \
         curve; the error of its sums is not published)."
            .to_owned(),
        "Each component was measured alone, with warm caches and a trained branch predictor; in a server they evict \
         each other."
            .into(),
        "Packets cost what they cost on the testbed's devices on this machine; a network card and its driver differ."
            .into(),
        "Costs are those of a saturated server; a server that wakes up for each request costs more.".into(),
    ];
    if parts.threads > 1 {
        assumes.push(format!("{} cores do {0} times what one does: no locks, no shared memory.", parts.threads));
    }
    if parts.waits == Waits::Threads {
        assumes.push(
            "64 connections were open during the measurement; with thousands, switching between threads \
                      costs more."
                .into(),
        );
    }
    if let Some(largest) = parts.objects.iter().map(|object| object.size.0).max().filter(|bytes| *bytes > BODY_MAX) {
        assumes.push(format!(
            "Sending, reading and encrypting were measured up to {}; {} is an extrapolation of the line.",
            Bytes(BODY_MAX),
            Bytes(largest)
        ));
    }
    if shape.tls {
        assumes.push(
            "TLS is Yamabiko's own (rustls with ring, TLS 1.3, P-256): another library, or RSA, has other \
                      costs."
                .into(),
        );
    }
    if shape.tls && !shape.close {
        assumes.push("Handshakes of keep-alive connections are too rare to cost anything.".into());
    }
    if cold == Some(false) {
        assumes.push("No device was read for the uncached files: they cost what reading memory costs here.".into());
    }
    if parts.body == BodyFrom::Sendfile && parts.cold.value() > 0.0 {
        assumes.push(
            "An uncached file sent by sendfile costs what reading it uncached costs, less what reading it \
                      cached costs."
                .into(),
        );
    }
    assumes
}

/// The sum next to the measured result.
pub fn error(error: f64, cost: Option<f64>) -> String {
    let by = |error: f64| format!("{:.1} % too {}", error.abs() * 100.0, if error < 0.0 { "low" } else { "high" });
    let cost = match cost {
        Some(cost) => format!(
            "; it explains {:.0} % of the real server's cost per request, and the rest is work outside of the \
             components",
            (1.0 + cost) * 100.0
        ),
        None => String::new(),
    };
    format!("the sum of the components is {}{cost}", by(error))
}
