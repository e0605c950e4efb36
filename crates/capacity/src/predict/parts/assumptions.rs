//! What a sum of parts supposes, in words.

use plan::{BodyFrom, LogLines, PartsPlan, Waits};
use units::Bytes;

use super::network::BODY_MAX;
use super::sum::Shape;

/// The server as described, in a sentence.
pub fn described(parts: &PartsPlan, shape: &Shape) -> String {
    let waits = match parts.waits {
        Waits::Epoll => "one loop over all connections (epoll)",
        Waits::IoUring => "one loop over all connections (io_uring)",
        Waits::Threads => "a thread for each connection",
    };
    let body = match parts.body {
        BodyFrom::Memory => "answers from memory",
        BodyFrom::Read => "opens and reads a file for each request",
        BodyFrom::Sendfile => "opens a file for each request and lets the kernel send it",
    };
    let log = match parts.log {
        LogLines::None => "no log",
        LogLines::Line => "a line of log by a write of its own",
        LogLines::Buffered => "lines of log written together",
    };
    let objects: Vec<String> = parts
        .shares()
        .iter()
        .map(|(bytes, share)| match parts.objects.len() {
            1 => Bytes(*bytes).to_string(),
            _ => format!("{} ({:.0} %)", Bytes(*bytes), share * 100.0),
        })
        .collect();
    let connection = if shape.close { "a connection for each request" } else { "kept connections" };
    let tls = match (shape.tls, shape.close) {
        (false, _) => String::new(),
        (true, false) => ", TLS".into(),
        (true, true) => format!(", TLS with {:.0} % of the sessions taken up", parts.resumed.value() * 100.0),
    };
    let heads = if parts.parse { "" } else { ", reads no heads" };
    let cold = match parts.cold.value() {
        cold if cold > 0.0 => format!(", {:.1} % of the files not in the page cache", cold * 100.0),
        _ => String::new(),
    };
    let workers = parts.workers.map_or(String::new(), |workers| format!(", {workers} workers"));
    let cores = if parts.threads == 1 { "1 core".to_owned() } else { format!("{} cores", parts.threads) };
    format!(
        "{waits}, {body}{cold}{heads}, {log}; {connection}{tls}; answers of {}; {cores}{workers}",
        objects.join(", ")
    )
}

/// What is supposed, and when not to believe it.
pub fn assumes(parts: &PartsPlan, shape: &Shape, cold: Option<bool>) -> Vec<String> {
    let mut assumes = vec![
        "A server is the sum of its parts, and of those named alone: what it does besides (dates, conditions, limits, counting, memory, modules) \
         costs nothing here. So the sum is the least that such a server can cost, and its rate the most. P3's own server of parts alone did \
         about twice what two general servers of its time did (read off a curve; how far its sums were off it does not say)."
            .to_owned(),
        "Each part was measured alone, with warm caches and a predictor that knows nothing else; together they drive each other out.".into(),
        "Packets are handled as on the lab's devices on this machine; a network card and its driver cost something else.".into(),
        "Costs are those of a server that is always behind; one that wakes up for each request pays for that as well.".into(),
    ];
    if parts.threads > 1 {
        assumes.push(format!(
            "{} cores do {0} times what one does: no lock, no memory shared between them.",
            parts.threads
        ));
    }
    if parts.waits == Waits::Threads {
        assumes.push("64 connections were open while its parts were measured; with thousands, switching between threads costs more.".into());
    }
    if let Some(largest) = parts.objects.iter().map(|object| object.size.0).max().filter(|bytes| *bytes > BODY_MAX) {
        assumes.push(format!(
            "Sending, reading and sealing were measured up to {}; that of {} is the same line drawn on.",
            Bytes(BODY_MAX),
            Bytes(largest)
        ));
    }
    if shape.tls {
        assumes.push("TLS is this program's own (rustls with ring, TLS 1.3, P-256): another library, or RSA, costs something else.".into());
    }
    if shape.tls && !shape.close {
        assumes.push("Handshakes of kept connections are so seldom that they cost nothing.".into());
    }
    if cold == Some(false) {
        assumes.push(
            "No device was read for the files that were to be cold: they cost here what reading memory costs.".into(),
        );
    }
    if parts.body == BodyFrom::Sendfile && parts.cold.value() > 0.0 {
        assumes.push("A cold file that the kernel sends costs what it costs to read, less what reading it costs when it is there.".into());
    }
    assumes
}

/// The sum beside what was measured.
pub fn error(error: f64, cost: Option<f64>) -> String {
    let by = |error: f64| format!("{:.1} % too {}", error.abs() * 100.0, if error < 0.0 { "low" } else { "high" });
    let cost = match cost {
        Some(cost) => format!(
            "; it has {:.0} % of what a request costs the assembled server, and the rest is what that does besides its parts",
            (1.0 + cost) * 100.0
        ),
        None => String::new(),
    };
    format!("the sum of the parts is {}{cost}", by(error))
}
