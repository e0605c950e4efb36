//! Texts about CPU usage of the server, for terminal and pages.

use schema::document::Server;
use schema::{OtherProcess, ServerCores};

use crate::figures::{duration_f64, share};

/// An interval is shown if it is wider than this share of the figure.
const INTERVAL_SHOWN_MIN: f64 = 0.005;

/// CPU time per request, with its confidence interval: `120 us (112 us to 131 us)`.
pub(crate) fn each_request(server: &Server) -> Option<String> {
    let us = server.cpu_us_per_request?;
    let interval = server.cpu_us_per_request_interval.filter(|[low, high]| high - low > INTERVAL_SHOWN_MIN * us);
    Some(with_interval(us * 1e3, interval.map(|interval| interval.map(|us| us * 1e3))))
}

/// Receive processing, with its confidence interval.
pub(crate) fn receive(server: &Server) -> Option<String> {
    let receive_s = server.cpu_receive_s?;
    let interval = server.cpu_receive_interval_s.filter(|[low, high]| high - low > INTERVAL_SHOWN_MIN * receive_s);
    Some(with_interval(receive_s * 1e9, interval.map(|interval| interval.map(|s| s * 1e9))))
}

fn with_interval(ns: f64, interval: Option<[f64; 2]>) -> String {
    match interval {
        Some([low, high]) => format!("{} ({} to {})", duration_f64(ns), duration_f64(low), duration_f64(high)),
        None => duration_f64(ns),
    }
}

/// Other processes on the server's cores: `2.1 % of a core: hog (pid 4711) 2.0 %`.
pub(crate) fn others(cores: &ServerCores) -> String {
    let of_a_core = |seconds: f64| share(seconds / cores.elapsed_s.max(1e-9));
    let [least, most] = cores.other_processes_s;
    let all = match (of_a_core(least), of_a_core(most)) {
        (least, most) if least == most => format!("{least} of a core"),
        (least, most) => format!("{least} to {most} of a core"),
    };
    let named: Vec<String> = cores.processes.iter().map(named).collect();
    if named.is_empty() { all } else { format!("{all}: {}", named.join(", ")) }
}

fn named(process: &OtherProcess) -> String {
    let whose = if process.ended_children { "ended children of " } else { "" };
    format!("{whose}{} (pid {}) {}", process.name, process.pid, share(process.share))
}

/// How long the server waited for a core, and how much of it because of other processes.
pub(crate) fn waited(cores: &ServerCores) -> String {
    let for_others = match cores.delayed_by_others_s {
        0.0 => "none of it for other processes".to_owned(),
        seconds => format!(
            "at most {} of it for other processes, the longest wait {}",
            duration_f64(seconds * 1e9),
            duration_f64(cores.delayed_longest_ns as f64)
        ),
    };
    match cores.run_queue_wait_s {
        Some(seconds) => format!("{}, {for_others}", duration_f64(seconds * 1e9)),
        None => format!("unknown; {for_others}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_interval_of_cpu_time_is_not_shown() {
        let of = |interval| {
            let (figure, interval) = (Some(120.0), Some(interval));
            each_request(&Server {
                cpu_us_per_request: figure,
                cpu_us_per_request_interval: interval,
                ..Server::default()
            })
        };
        assert_eq!(of([119.9, 120.1]).unwrap(), "120 us");
        assert_eq!(of([80.0, 9980.0]).unwrap(), "120 us (80.0 us to 9.98 ms)");
        assert_eq!((each_request(&Server::default()), receive(&Server::default())), (None, None));
    }

    #[test]
    fn other_processes_are_named_with_their_share() {
        let process = |name: &str, ended_children| OtherProcess {
            pid: 7,
            name: name.into(),
            cpu_s: 1.0,
            share: 0.1,
            ended_children,
        };
        let cores = ServerCores {
            elapsed_s: 10.0,
            other_processes_s: [1.0, 1.2],
            processes: vec![process("hog", false), process("make", true)],
            run_queue_wait_s: Some(0.5),
            delayed_by_others_s: 0.4,
            delayed_longest_ns: 50_000_000,
            ..ServerCores::default()
        };
        assert_eq!(
            others(&cores),
            "10.0 % to 12.0 % of a core: hog (pid 7) 10.0 %, ended children of make (pid 7) 10.0 %"
        );
        assert_eq!(waited(&cores), "500 ms, at most 400 ms of it for other processes, the longest wait 50.0 ms");
        assert_eq!(waited(&ServerCores::default()), "unknown; none of it for other processes");
    }
}
