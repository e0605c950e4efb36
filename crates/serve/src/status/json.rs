//! The metrics as a JSON document. Sections that do not apply are absent, never zero.

use serde_json::{Map, Value, json};

use super::{DAY_S, Report};
use crate::cache::{Outcome, Reason};
use crate::dynamic::{DynamicUsage, ProgramUsage};
use crate::figures::{Kind, Refusal};

/// The document and a line end.
pub(super) fn text(report: &Report) -> String {
    // The document contains only strings and finite numbers, so serialisation cannot fail.
    let mut text = serde_json::to_string_pretty(&document(report)).unwrap_or_default();
    text.push('\n');
    text
}

fn document(report: &Report) -> Value {
    let total = &report.total;
    let by_kind: Map<String, Value> = Kind::ALL
        .iter()
        .map(|kind| {
            let mut one = Map::new();
            for (class, count) in total.answers[kind.index()].iter().enumerate().filter(|(_, count)| **count > 0) {
                one.insert(class_name(class).to_owned(), json!(count));
            }
            one.insert("body_bytes".to_owned(), json!(total.body_bytes[kind.index()]));
            (kind.name().to_owned(), Value::Object(one))
        })
        .collect();
    let refused: Map<String, Value> =
        Refusal::ALL.iter().map(|cause| (cause.name().to_owned(), json!(total.refused[cause.index()]))).collect();
    let mut cpu = json!({ "workers": cpu(report.workers_cpu) });
    if let Some(relay) = report.relay_cpu {
        cpu["relay"] = self::cpu(relay);
    }
    let mut document = json!({
        "schema": "yamabiko.status/2",
        "version": env!("CARGO_PKG_VERSION"),
        "uptime_s": report.uptime.as_secs_f64(),
        "workers": report.workers,
        "requests": {
            "total": total.requests(),
            "in_flight": total.in_flight(),
            "errors": total.errors(),
            "truncated": total.truncated,
            "by_kind": by_kind,
        },
        "request_rate": {
            "last_minute_requests_per_s": report.rate_last_minute_per_s(),
            "last_minute_requests_per_day": (report.rate_last_minute_per_s() * DAY_S).round(),
            "since_start_requests_per_s": report.rate_per_s(),
            "since_start_requests_per_day": (report.rate_per_s() * DAY_S).round(),
        },
        "bytes": { "received": total.received_bytes, "sent": total.sent_bytes },
        "connections": { "open": total.open(), "accepted": total.opened, "refused": refused },
    });
    if let Some((user, system, rss_bytes)) = report.process {
        cpu["process"] = self::cpu((user, system));
        document["memory"] = json!({ "rss_bytes": rss_bytes });
    }
    document["cpu"] = cpu;
    if let Some(usage) = &report.cache {
        let outcomes = Outcome::ALL.iter().filter(|outcome| **outcome != Outcome::None).map(|outcome| {
            let counts = &total.findings[outcome.index()];
            let mut reasons = Map::new();
            reasons.insert("total".to_owned(), json!(counts.iter().sum::<u64>()));
            for reason in Reason::ALL.iter().filter(|reason| counts[reason.index()] > 0) {
                reasons.insert(reason.name().to_owned(), json!(counts[reason.index()]));
            }
            (outcome.name().to_owned(), Value::Object(reasons))
        });
        document["cache"] = json!({
            "outcomes": outcomes.collect::<Map<String, Value>>(),
            "responses": usage.responses,
            "body_bytes": usage.body_bytes,
            "memory_bytes": usage.memory_bytes,
            "memory_bytes_max": usage.memory_bytes_max,
            "current_bytes": usage.current_bytes,
            "evictions": usage.evictions,
        });
    }
    if let Some(usage) = &report.dynamic {
        document["dynamic"] = dynamic(usage);
    }
    if let Some(log) = report.log {
        document["log"] = json!({ "written": log.written, "dropped": log.dropped, "failed": log.failed });
    }
    document
}

fn dynamic(usage: &DynamicUsage) -> Value {
    let routes: Vec<Value> = usage
        .routes
        .iter()
        .map(|route| {
            json!({
                "route": route.route,
                "in_flight": route.in_flight,
                "waiting": route.waiting,
                "answered": route.answered,
                "refused_full": route.refused_full,
                "refused_late": route.refused_late,
                "refused_down": route.refused_down,
                "failed": route.failed,
                "timed_out": route.timed_out,
                "broken": route.broken,
                "cancelled": route.cancelled,
                "connects": route.connects,
                "reused": route.reused,
            })
        })
        .collect();
    let mut dynamic = json!({ "routes": routes });
    if let Some(program) = &usage.program {
        dynamic["program"] = self::program(program);
    }
    dynamic
}

fn program(program: &ProgramUsage) -> Value {
    let mut value = json!({ "up": program.up, "starts": program.starts });
    if let Some(end) = &program.last_end {
        value["last_end"] = json!(end);
    }
    if let Some(usage) = &program.usage {
        value["cpu"] = cpu((usage.user, usage.system));
        if let Some(throttled) = usage.throttled {
            value["throttled_s"] = json!(throttled.as_secs_f64());
        }
        if let Some(periods) = usage.periods {
            value["periods"] = json!({ "all": periods.all, "throttled": periods.throttled });
        }
        if let Some(bytes) = usage.memory_max {
            value["memory_bytes_max"] = json!(bytes);
        }
    }
    value
}

fn cpu((user, system): (std::time::Duration, std::time::Duration)) -> Value {
    json!({ "user_s": user.as_secs_f64(), "system_s": system.as_secs_f64() })
}

/// The name of a status class.
pub(super) fn class_name(class: usize) -> &'static str {
    ["other", "1xx", "2xx", "3xx", "4xx", "5xx"].get(class).copied().unwrap_or("other")
}
