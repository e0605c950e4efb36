//! The document in words.

use schema::{Reproduction, ReproductionRow};

use super::climb::of_apart;
use super::parts::PARTS;
use super::rows::{APART_MAX, APART_MEAN, DROPPED, LOG_MEAN, LOST, OVERHEAD, SPREAD, TC_MEAN, find, setting_of_server};
use super::{FILE_BYTES, LEASED_QUEUE, LEASED_RTT, LoggingServer, MonitoredLink, TransparentOptions};
use crate::{Summary, level};

/// What to know when comparing with the paper.
pub const NOTES: [&str; 8] = [
    "The paper publishes three figures: a cost of at most about 10 % of the throughput, growing with the amount (its curve \
     was never tabulated), and server logs that were 4.5 s apart from the client on average and up to about 28 s. Its \
     program, its server, its number of clients and its line's delay and queue are not named; those here are ours.",
    "Ours are: curl over HTTP/1.0, one connection a transfer; nginx and Apache; an RTT of 10 ms, a queue of 50 packets, \
     and at the server a first window of 2 segments and reno, as in 1999; 1 to 50 clients, as then each has so little of \
     the link that a transfer takes about the paper's 28 s. So the seconds of experiment 2 are those of this load; what can \
     be compared are signs, sizes and reasons.",
    "Experiment 1: throughputs are the wire's, of the same run that the tap followed: payload of the first so many \
     transfers over the time from the first SYN to the client's last FIN. Starting a program and loading the library are \
     not in them. The tap's collector works on the same machine meanwhile, so that without a limit its work is in the \
     cost; at 10 Mbit/s the link is the limit, and only what comes between two transfers can be lost.",
    "The paper's cost grew with the amount; the remedies that it names (batching, a faster database, working beside the \
     transfer) say why. Here a call leaves a record of 64 bytes in shared memory, whatever came before.",
    "Experiment 2: Tc is connect called to close called, by the tap; the log's time is the server's own word ($request_time \
     of nginx, %D of Apache). Both servers begin to count when they have read of the request and end when the kernel has \
     taken the last byte of the response. What the kernel then still has to send is in no log.",
    "The six parts and the log's time make Tc exactly, transfer by transfer. Their moments are the tap's, the wire's at the \
     server's end, and the log's wall clock, which was read at the run's zero; nginx takes the time once a turn of its loop \
     and in steps of a millisecond.",
    "The kernel takes of a response what fits into the socket's buffer, which on today's Linux grows with TCP's window; the \
     log ends when the rest is in, and the client waits until all of it is out. That is what the paper calls buffering by \
     the OS.",
    "The paper counts at least 3 RTTs of set-up and close. Here Tc ends when close is called, which does not wait for the \
     other end, so that only the set-up's RTT and the ways of request and last byte are in it. Under load a SYN or its \
     answer that finds the queue full is sent again after a second or more.",
];

/// What was made, and how.
pub fn about(asked: &TransparentOptions, versions: &[String]) -> String {
    let (clients, interval) = asked.load();
    format!(
        "P2: Saito and Nakasho (Meiji University, 1999), performance evaluation by transparent monitoring of the client. A \
         file of {FILE_BYTES} bytes by HTTP/1.0, a connection each, through paths of the lab. Experiment 1: {} transfers one \
         after the other at 10 Mbit/s and {} without a limit, from nginx, with the tap and without, turn and turn about. \
         Experiment 2: 1.5 Mbit/s each way, RTT {}, a queue of {LEASED_QUEUE}, the server's TCP as in 1999; a client more \
         every {} up to {clients}, each fetching again and again; those under way at the end are waited for. Programs: {}.",
        asked.transfers(MonitoredLink::Ethernet),
        asked.transfers(MonitoredLink::Unlimited),
        units::format_duration(LEASED_RTT),
        units::format_duration(interval),
        versions.join(", "),
    )
}

/// The answer in one sentence.
pub fn answer(rows: &[ReproductionRow]) -> String {
    let mut parts = Vec::new();
    let costs: Vec<String> = [MonitoredLink::Ethernet, MonitoredLink::Unlimited]
        .into_iter()
        .filter_map(|link| {
            let most = rows.iter().rfind(|row| row.quantity == LOST && row.setting.starts_with(link.name()))?;
            let spread = find(rows, &most.setting, SPREAD);
            let cost = most.measured?;
            let told = match spread {
                Some(spread) if cost.abs() < spread => {
                    format!("less than the {} % by which the runs without differ", level(spread))
                }
                Some(spread) => format!("the runs without differ by {} %", level(spread)),
                None => "one run each, which says little".to_owned(),
            };
            Some(format!("{} % of the throughput at {} ({told})", level(cost), most.setting))
        })
        .collect();
    if !costs.is_empty() {
        parts.push(format!("The tap costs {}; the paper's, at most about 10 %", costs.join(" and ")));
    }
    for server in LoggingServer::ALL {
        let setting = setting_of_server(server, None);
        let of = |quantity: &str| find(rows, &setting, quantity);
        if let (Some(mean), Some(most), Some(tc)) = (of(APART_MEAN), of(APART_MAX), of(TC_MEAN)) {
            parts.push(format!(
                "Of the {} s that a transfer takes its client the log of {} does not see {} s on average, {} s at most \
                 (the paper: 4.5 and about 28){}",
                level(tc),
                server.name(),
                level(mean),
                level(most),
                largest_parts(rows, &setting, mean),
            ));
        }
    }
    if parts.is_empty() { "Some of the experiments, made again.".to_owned() } else { parts.join(". ") + "." }
}

/// The two parts that matter most, as shares of all that the log does not see.
fn largest_parts(rows: &[ReproductionRow], setting: &str, all: f64) -> String {
    let mut parts: Vec<(f64, &str)> = PARTS
        .iter()
        .filter_map(|part| Some((find(rows, setting, &of_apart(part.name))? / all, part.name)))
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
    let main = [LOST, SPREAD, TC_MEAN, LOG_MEAN, APART_MEAN, APART_MAX, DROPPED];
    let shown = |row: &&ReproductionRow| {
        row.experiment == OVERHEAD && main.contains(&row.quantity.as_str())
            || whole(row) && (main.contains(&row.quantity.as_str()) || row.quantity.starts_with(&of_apart("")))
    };
    let cells = |row: &ReproductionRow| {
        let unit = if row.unit.is_empty() { String::new() } else { format!(" ({})", row.unit) };
        vec![
            row.experiment.clone(),
            row.setting.clone(),
            format!("{}{unit}", row.quantity),
            row.published.clone().unwrap_or_else(|| "-".into()),
            // What rounds to nothing has no sign.
            row.measured.map_or("-".into(), |here| level(if here.abs() < 0.005 { 0.0 } else { here })),
        ]
    };
    Summary {
        head: vec!["experiment", "setting", "quantity", "paper", "here"],
        lines: reproduction.rows.iter().filter(shown).map(cells).collect(),
        more: Vec::new(),
        remarks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{LOGS, row};
    use super::*;

    #[test]
    fn the_answer_says_what_was_made() {
        assert_eq!(answer(&[]), "Some of the experiments, made again.");
        let mut rows = vec![
            row(OVERHEAD, "10 Mbit/s, 1 MB", LOST, "%", 5.0),
            row(OVERHEAD, "10 Mbit/s, 10 MB", LOST, "%", 0.25),
            row(OVERHEAD, "10 Mbit/s, 10 MB", SPREAD, "%", 0.5),
            row(OVERHEAD, "no limit, 1 GB", LOST, "%", 2.0),
        ];
        assert_eq!(
            answer(&rows),
            "The tap costs 0.25 % of the throughput at 10 Mbit/s, 10 MB (less than the 0.50 % by which the runs without \
             differ) and 2.00 % of the \
             throughput at no limit, 1 GB (one run each, which says little); the paper's, at most about 10 %."
        );
        rows.extend([
            row(LOGS, "nginx", TC_MEAN, "s", 12.0),
            row(LOGS, "nginx", APART_MEAN, "s", 8.0),
            row(LOGS, "nginx", APART_MAX, "s", 20.0),
            row(LOGS, "nginx", "of that: set-up", "s", 0.2),
            row(LOGS, "nginx", "of that: link", "s", 1.8),
            row(LOGS, "nginx", "of that: server's socket buffer", "s", 6.0),
        ]);
        assert!(
            answer(&rows).ends_with(
                "Of the 12.0 s that a transfer takes its client the log of nginx does not see 8.00 s on average, 20.0 s at \
                 most (the paper: 4.5 and about 28): server's socket buffer 75 %, link 22 %."
            ),
            "{}",
            answer(&rows)
        );
    }

    #[test]
    fn the_summary_has_the_parts_of_all_transfers_and_not_of_every_step() {
        let rows = vec![
            row(LOGS, "nginx", "of that: link", "s", 1.8),
            row(LOGS, "nginx, 1 to 10 clients", "of that: link", "s", 1.0),
            row(OVERHEAD, "no limit, 1 GB", LOST, "%", 2.0),
        ];
        let summary = summary(&Reproduction { rows, ..Reproduction::default() });
        assert_eq!(summary.lines.len(), 2);
        assert_eq!(summary.lines[0], ["2", "nginx", "of that: link (s)", "-", "1.80"]);
        assert!(summary.lines.iter().all(|line| line.len() == summary.head.len()));
    }
}
