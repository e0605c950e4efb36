//! The metrics in Prometheus text format, version 0.0.4: base units, counters end in `_total`.

use std::fmt::Write as _;
use std::time::Duration;

use super::json::class_name;
use super::{DAY_S, Report};
use crate::cache::{Outcome, Reason};
use crate::dynamic::{DynamicUsage, ProgramUsage, RouteCounters};
use crate::figures::{Kind, Refusal};

/// All metric families.
pub(super) fn text(report: &Report) -> String {
    let mut out = Text::default();
    let total = &report.total;
    out.family("build_info", "gauge", "Version of the server, as a label.");
    out.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    out.single("uptime_seconds", "gauge", "Time since the server started.", report.uptime.as_secs_f64());
    out.single("worker_threads", "gauge", "Worker threads.", report.workers as f64);
    out.family("requests_total", "counter", "Requests with a response, by kind of response and class of status.");
    for kind in Kind::ALL {
        for (class, count) in total.answers[kind.index()].iter().enumerate().filter(|(_, count)| **count > 0) {
            out.sample(&[("kind", kind.name()), ("class", class_name(class))], *count as f64);
        }
    }
    out.family("response_body_bytes_total", "counter", "Bytes of response bodies sent, without heads and framing.");
    for kind in Kind::ALL {
        out.sample(&[("kind", kind.name())], total.body_bytes[kind.index()] as f64);
    }
    out.single("requests_in_flight", "gauge", "Requests in flight.", total.in_flight() as f64);
    out.single(
        "responses_truncated_total",
        "counter",
        "Responses that were not sent completely.",
        total.truncated as f64,
    );
    out.family(
        "requests_per_day",
        "gauge",
        "Requests a day at the rate of the last minute, and at the rate since the start.",
    );
    out.sample(&[("over", "last_minute")], report.rate_last_minute_per_s() * DAY_S);
    out.sample(&[("over", "uptime")], report.rate_per_s() * DAY_S);
    out.single("received_bytes_total", "counter", "Bytes received over all connections.", total.received_bytes as f64);
    out.single("sent_bytes_total", "counter", "Bytes sent over all connections.", total.sent_bytes as f64);
    out.single("connections_open", "gauge", "Open connections.", total.open() as f64);
    out.single("connections_accepted_total", "counter", "Connections accepted.", total.opened as f64);
    out.family("connections_refused_total", "counter", "Connections refused, or closed because of a limit, by cause.");
    for cause in Refusal::ALL {
        out.sample(&[("cause", cause.name())], total.refused[cause.index()] as f64);
    }
    out.family(
        "cpu_seconds_total",
        "counter",
        "CPU time of the worker threads, of the relay thread, and of the whole process.",
    );
    out.cpu("workers", report.workers_cpu);
    if let Some(relay) = report.relay_cpu {
        out.cpu("relay", relay);
    }
    if let Some((user, system, rss_bytes)) = report.process {
        out.cpu("process", (user, system));
        out.single("resident_memory_bytes", "gauge", "Resident memory of the process.", rss_bytes as f64);
    }
    if let Some(usage) = &report.cache {
        out.family(
            "cache_responses_total",
            "counter",
            "Dynamic responses by outcome of the result cache and its reason.",
        );
        for outcome in Outcome::ALL.into_iter().filter(|outcome| *outcome != Outcome::None) {
            for reason in Reason::ALL {
                let count = total.findings[outcome.index()][reason.index()];
                if count > 0 {
                    out.sample(&[("outcome", outcome.name()), ("reason", reason.name())], count as f64);
                }
            }
        }
        out.single("cache_stored_responses", "gauge", "Stored responses.", usage.responses as f64);
        out.single("cache_body_bytes", "gauge", "Bytes of stored bodies.", usage.body_bytes as f64);
        out.single("cache_memory_bytes", "gauge", "Memory of stored responses.", usage.memory_bytes as f64);
        out.single(
            "cache_memory_limit_bytes",
            "gauge",
            "Limit of the memory of stored responses.",
            usage.memory_bytes_max as f64,
        );
        let about = "Bytes of bodies that are stored, arriving, or evicted and still being sent.";
        out.single("cache_current_bytes", "gauge", about, usage.current_bytes as f64);
        out.single(
            "cache_evictions_total",
            "counter",
            "Stored responses that were evicted to free memory.",
            usage.evictions as f64,
        );
    }
    if let Some(usage) = &report.dynamic {
        dynamic(&mut out, usage);
    }
    if let Some(log) = report.log {
        out.family(
            "log_lines_total",
            "counter",
            "Lines of the access log: written, dropped because the log fell behind, failed.",
        );
        out.sample(&[("result", "written")], log.written as f64);
        out.sample(&[("result", "dropped")], log.dropped as f64);
        out.sample(&[("result", "failed")], log.failed as f64);
    }
    out.0.text
}

fn dynamic(out: &mut Text, usage: &DynamicUsage) {
    type Figure = fn(&RouteCounters) -> u64;
    let gauges: [(&str, &str, Figure); 2] = [
        ("dynamic_in_flight", "Exchanges in flight at the upstream.", |route| route.in_flight),
        ("dynamic_waiting", "Requests that wait in the queue of the upstream.", |route| route.waiting),
    ];
    for (name, about, figure) in gauges {
        out.family(name, "gauge", about);
        for route in &usage.routes {
            out.sample(&[("route", &route.route)], figure(route) as f64);
        }
    }
    let results: [(&str, Figure); 8] = [
        ("answered", |route| route.answered),
        ("refused_full", |route| route.refused_full),
        ("refused_late", |route| route.refused_late),
        ("refused_down", |route| route.refused_down),
        ("failed", |route| route.failed),
        ("timed_out", |route| route.timed_out),
        ("broken", |route| route.broken),
        ("cancelled", |route| route.cancelled),
    ];
    out.family("dynamic_exchanges_total", "counter", "Exchanges with upstreams, by result.");
    for route in &usage.routes {
        for (result, figure) in results {
            out.sample(&[("route", &route.route), ("result", result)], figure(route) as f64);
        }
    }
    out.family("dynamic_connections_total", "counter", "Exchanges on a new connection, and on a reused one.");
    for route in &usage.routes {
        out.sample(&[("route", &route.route), ("connection", "new")], route.connects as f64);
        out.sample(&[("route", &route.route), ("connection", "reused")], route.reused as f64);
    }
    if let Some(program) = &usage.program {
        self::program(out, program);
    }
}

fn program(out: &mut Text, program: &ProgramUsage) {
    out.single(
        "dynamic_program_up",
        "gauge",
        "1 while the program accepts connections.",
        f64::from(u8::from(program.up)),
    );
    out.single("dynamic_program_starts_total", "counter", "Starts of the program.", program.starts as f64);
    let Some(usage) = &program.usage else { return };
    out.family("dynamic_program_cpu_seconds_total", "counter", "CPU time of the program's control group.");
    out.sample(&[("mode", "user")], usage.user.as_secs_f64());
    out.sample(&[("mode", "system")], usage.system.as_secs_f64());
    if let Some(throttled) = usage.throttled {
        let about = "Time for which the CPU limit stopped the program's tasks, summed over cores.";
        out.single("dynamic_program_throttled_seconds_total", "counter", about, throttled.as_secs_f64());
    }
    if let Some(periods) = usage.periods {
        out.single(
            "dynamic_program_periods_total",
            "counter",
            "Periods in which the program was runnable.",
            periods.all as f64,
        );
        let about = "Periods in which the CPU limit stopped the program.";
        out.single("dynamic_program_throttled_periods_total", "counter", about, periods.throttled as f64);
    }
    if let Some(bytes) = usage.memory_max {
        out.single(
            "dynamic_program_memory_max_bytes",
            "gauge",
            "Peak memory of the program's control group.",
            bytes as f64,
        );
    }
}

/// The text so far, and the family of the next samples.
#[derive(Default)]
struct Text(Inner);

#[derive(Default)]
struct Inner {
    text: String,
    family: &'static str,
}

impl Text {
    fn family(&mut self, name: &'static str, kind: &str, about: &str) {
        self.0.family = name;
        // Writing to a String does not fail.
        let _ = write!(self.0.text, "# HELP yamabiko_{name} {about}\n# TYPE yamabiko_{name} {kind}\n");
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let text = &mut self.0.text;
        let _ = write!(text, "yamabiko_{}", self.0.family);
        for (at, (name, value)) in labels.iter().enumerate() {
            let _ = write!(text, "{}{name}=\"", if at == 0 { '{' } else { ',' });
            for letter in value.chars() {
                match letter {
                    '\\' => text.push_str("\\\\"),
                    '"' => text.push_str("\\\""),
                    '\n' => text.push_str("\\n"),
                    _ => text.push(letter),
                }
            }
            text.push('"');
        }
        let _ = writeln!(text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn single(&mut self, name: &'static str, kind: &str, about: &str, value: f64) {
        self.family(name, kind, about);
        self.sample(&[], value);
    }

    fn cpu(&mut self, part: &str, (user, system): (Duration, Duration)) {
        self.sample(&[("part", part), ("mode", "user")], user.as_secs_f64());
        self.sample(&[("part", part), ("mode", "system")], system.as_secs_f64());
    }
}
