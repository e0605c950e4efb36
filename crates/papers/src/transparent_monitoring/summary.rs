//! The result and the notes.

use schema::{Reproduction, ReproductionRow};

use super::components::PARTS;
use super::log_comparison::of_difference;
use super::rows::{
    DIFFERENCE_MAX, DIFFERENCE_MEAN, DROPPED, LOG_MEAN, OVERHEAD, TAP_COST, TC_MEAN, VARIATION, find, setting_of_server,
};
use super::{FILE_BYTES, LEASED_QUEUE, LEASED_RTT, LoggingServer, MonitoredLink, TransparentOptions};
use crate::{Summary, level};

/// Notes on the comparison with the paper.
pub const NOTES: [&str; 8] = [
    "The paper publishes three figures: a cost of at most about 10 % of the throughput, growing with the amount (its \
     curve was not tabulated), and a difference between server logs and client of 4.5 s on average and up to about \
     28 s. Its program, server, number of clients, and its line's delay and queue are not published; those here are \
     chosen.",
    "Chosen here: curl over HTTP/1.0, one connection per transfer; nginx and Apache; RTT 10 ms, a queue of 50 \
     packets, and at the server an initial window of 2 segments and reno, as in 1999; 1 to 50 clients, so that a \
     transfer finally takes about the paper's 28 s. So the seconds of experiment 2 are those of this load; compare \
     signs, shares and reasons.",
    "Experiment 1: throughputs come from the packet capture of the run with or without the tap: payload of the first \
     transfers over the time from the first SYN to the client's last FIN. Starting a program and loading the library \
     are not included. The tap's collector runs on the same machine, so without a rate limit its work is part of the \
     cost; at 10 Mbit/s the link is the limit, and only time between two transfers can be lost.",
    "The paper's cost grew with the amount; its proposed remedies (batching, a faster database, processing in \
     parallel with the transfer) show why. Here a call writes a record of 64 bytes to shared memory, independent of \
     the amount.",
    "Experiment 2: Tc is from the connect call to the close call, by the tap; the log's time is the server's own \
     ($request_time of nginx, %D of Apache). Both servers start when they have read from the request and end when \
     the kernel has accepted the last byte of the response. Sending what the kernel still holds is in no log.",
    "The six components and the log's time add up to Tc exactly, transfer by transfer. Their events come from the \
     tap, the packet capture at the server's end, and the log's wall clock, which was read at the run's zero; nginx \
     reads the clock once per turn of its loop, in milliseconds.",
    "The kernel accepts as much of a response as fits into the socket buffer, which on today's Linux grows with \
     TCP's window; the log ends when the rest is accepted, and the client waits until all of it has arrived. The \
     paper calls this buffering by the OS.",
    "The paper counts at least 3 RTTs of set-up and close. Here Tc ends when close is called, which does not wait \
     for the other end, so only the set-up's RTT and the transit of the request and the last byte are included. \
     Under load a SYN or SYN-ACK dropped by the full queue is retransmitted after a second or more.",
];

/// The setup.
pub fn about(input: &TransparentOptions, versions: &[String]) -> String {
    let (clients, interval) = input.load();
    format!(
        "Transparent monitoring: Saito and Nakasho (Meiji University, 1999), performance evaluation by transparent \
         monitoring of the client. A file of {FILE_BYTES} bytes by HTTP/1.0, a connection per transfer, through \
         paths of the testbed. Experiment 1: {} transfers one after the other at 10 Mbit/s and {} without a rate \
         limit, from nginx, with the tap and without, interleaved. Experiment 2: 1.5 Mbit/s each way, RTT {}, a \
         queue of {LEASED_QUEUE}, the server's TCP as in 1999; one more client every {} up to {clients}, each \
         fetching repeatedly; transfers in flight at the end are completed. Programs: {}.",
        input.transfers(MonitoredLink::Ethernet),
        input.transfers(MonitoredLink::Unlimited),
        units::format_duration(LEASED_RTT),
        units::format_duration(interval),
        versions.join(", "),
    )
}

/// The result in one sentence.
pub fn result_sentence(rows: &[ReproductionRow]) -> String {
    let mut parts = Vec::new();
    let costs: Vec<String> = [MonitoredLink::Ethernet, MonitoredLink::Unlimited]
        .into_iter()
        .filter_map(|link| {
            let most = rows.iter().rfind(|row| row.quantity == TAP_COST && row.setting.starts_with(link.name()))?;
            let spread = find(rows, &most.setting, VARIATION);
            let cost = most.measured?;
            let quantities = match spread {
                Some(spread) if cost.abs() < spread => {
                    format!("less than the {} % by which runs without it vary", level(spread))
                }
                Some(spread) => format!("runs without it vary by {} %", level(spread)),
                None => "a single run each, hence unreliable".to_owned(),
            };
            Some(format!("{} % of the throughput at {} ({quantities})", level(cost), most.setting))
        })
        .collect();
    if !costs.is_empty() {
        parts.push(format!("The tap costs {}; published: at most about 10 %", costs.join(" and ")));
    }
    for server in LoggingServer::ALL {
        let setting = setting_of_server(server, None);
        let of = |quantity: &str| find(rows, &setting, quantity);
        if let (Some(mean), Some(most), Some(tc)) = (of(DIFFERENCE_MEAN), of(DIFFERENCE_MAX), of(TC_MEAN)) {
            parts.push(format!(
                "Of the {} s of a transfer at the client, the log of {} misses {} s on average, {} s at most \
                 (published: 4.5 and about 28){}",
                level(tc),
                server.name(),
                level(mean),
                level(most),
                largest_parts(rows, &setting, mean),
            ));
        }
    }
    if parts.is_empty() { "Some of the experiments, repeated.".to_owned() } else { parts.join(". ") + "." }
}

/// The two largest components, as shares of all that the log misses.
fn largest_parts(rows: &[ReproductionRow], setting: &str, all: f64) -> String {
    let mut parts: Vec<(f64, &str)> = PARTS
        .iter()
        .filter_map(|part| Some((find(rows, setting, &of_difference(part.name))? / all, part.name)))
        .filter(|(share, _)| *share > 0.0 && share.is_finite())
        .collect();
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let words: Vec<String> =
        parts.iter().take(2).map(|(share, name)| format!("{name} {:.0} %", 100.0 * share)).collect();
    if words.is_empty() { String::new() } else { format!(": {}", words.join(", ")) }
}

/// The main figures: of experiment 1 the costs, of experiment 2 those of all transfers.
pub fn summary(reproduction: &Reproduction) -> Summary {
    let whole =
        |row: &ReproductionRow| LoggingServer::ALL.iter().any(|&one| row.setting == setting_of_server(one, None));
    let main = [TAP_COST, VARIATION, TC_MEAN, LOG_MEAN, DIFFERENCE_MEAN, DIFFERENCE_MAX, DROPPED];
    let shown = |row: &&ReproductionRow| {
        row.experiment == OVERHEAD && main.contains(&row.quantity.as_str())
            || whole(row) && (main.contains(&row.quantity.as_str()) || row.quantity.starts_with(&of_difference("")))
    };
    let cells = |row: &ReproductionRow| {
        let unit = if row.unit.is_empty() { String::new() } else { format!(" ({})", row.unit) };
        vec![
            row.experiment.clone(),
            row.setting.clone(),
            format!("{}{unit}", row.quantity),
            row.published.clone().unwrap_or_else(|| "-".into()),
            // A value that rounds to zero has no sign.
            row.measured.map_or("-".into(), |here| level(if here.abs() < 0.005 { 0.0 } else { here })),
        ]
    };
    Summary {
        head: vec!["experiment", "setting", "quantity", "paper", "here"],
        lines: reproduction.rows.iter().filter(shown).map(cells).collect(),
        more: Vec::new(),
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{LOGS, row};
    use super::*;

    #[test]
    fn result_names_the_measurements_made() {
        assert_eq!(result_sentence(&[]), "Some of the experiments, repeated.");
        let mut rows = vec![
            row(OVERHEAD, "10 Mbit/s, 1 MB", TAP_COST, "%", 5.0),
            row(OVERHEAD, "10 Mbit/s, 10 MB", TAP_COST, "%", 0.25),
            row(OVERHEAD, "10 Mbit/s, 10 MB", VARIATION, "%", 0.5),
            row(OVERHEAD, "no limit, 1 GB", TAP_COST, "%", 2.0),
        ];
        assert_eq!(
            result_sentence(&rows),
            "The tap costs 0.25 % of the throughput at 10 Mbit/s, 10 MB (less than the 0.50 % by which runs without \
             it vary) and 2.00 % of the throughput at no limit, 1 GB (a single run each, hence unreliable); \
             published: at most about 10 %."
        );
        rows.extend([
            row(LOGS, "nginx", TC_MEAN, "s", 12.0),
            row(LOGS, "nginx", DIFFERENCE_MEAN, "s", 8.0),
            row(LOGS, "nginx", DIFFERENCE_MAX, "s", 20.0),
            row(LOGS, "nginx", "of that: set-up", "s", 0.2),
            row(LOGS, "nginx", "of that: link", "s", 1.8),
            row(LOGS, "nginx", "of that: server's socket buffer", "s", 6.0),
        ]);
        assert!(
            result_sentence(&rows).ends_with(
                "Of the 12.0 s of a transfer at the client, the log of nginx misses 8.00 s on average, 20.0 s at \
                 most (published: 4.5 and about 28): server's socket buffer 75 %, link 22 %."
            ),
            "{}",
            result_sentence(&rows)
        );
    }

    #[test]
    fn summary_has_components_of_all_transfers_only() {
        let rows = vec![
            row(LOGS, "nginx", "of that: link", "s", 1.8),
            row(LOGS, "nginx, 1 to 10 clients", "of that: link", "s", 1.0),
            row(OVERHEAD, "no limit, 1 GB", TAP_COST, "%", 2.0),
        ];
        let summary = summary(&Reproduction { rows, ..Reproduction::default() });
        assert_eq!(summary.lines.len(), 2);
        assert_eq!(summary.lines[0], ["2", "nginx", "of that: link (s)", "-", "1.80"]);
        assert!(summary.lines.iter().all(|line| line.len() == summary.head.len()));
    }
}
