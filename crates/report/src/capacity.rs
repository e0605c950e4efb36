//! Texts and tables about a capacity that terminal and page have in common.

use schema::{Bracket, CapacityDocument, CapacityPart, EachDistance, TrialPart};

use crate::figures::{bytes, count, duration, duration_f64, rate, share};

/// A load in the unit of the search: `199.2/s`, `1,440 users`.
pub(crate) fn load(unit: &str, value: f64) -> String {
    match unit {
        "users" | "connections" => format!("{} {unit}", count(value.max(0.0).round() as u64)),
        _ => rate(value),
    }
}

/// The quantity of the search, for titles: `Capacity`, `Most users`.
pub(crate) fn title(find: &str) -> &'static str {
    match find {
        "users" => "Maximum users",
        "connections" => "Maximum connections",
        "new-connections" => "Maximum new connections",
        _ => "Capacity",
    }
}

/// The result in a sentence or two.
pub(crate) fn answer(document: &CapacityDocument) -> String {
    let part = &document.capacity;
    let objective = &part.objective;
    let words = |value: f64| load(&part.unit, value);
    let Some(found) = part.result else {
        let what = match part.find.as_str() {
            "users" | "connections" | "new-connections" => format!("number of {}", part.find.replace('-', " ")),
            _ => "capacity".to_owned(),
        };
        return match part.partial_result {
            Some(bracket) => format!("No {what} with {objective} was found; {}.", so_far(&part.unit, &bracket)),
            None => format!("No {what} with {objective} was found."),
        };
    };
    let interval = match (part.interval, part.interval_of.as_str()) {
        (Some([low, high]), "searches") => {
            format!(" (95 % interval over {} searches: {} to {})", part.searches.len(), words(low), words(high))
        }
        (Some([low, high]), _) => format!(" (one search: between {} and {})", words(low), words(high)),
        (None, _) => String::new(),
    };
    let bound = match part.bound_by.name.as_str() {
        "" => String::new(),
        "unknown" if part.bound_by.words.is_empty() => String::new(),
        "unknown" => format!(" The limiting resource is not known: {}.", part.bound_by.words),
        _ => format!(" Limited by {}: {}.", bound_name(&part.bound_by.name), part.bound_by.words),
    };
    let found = match (part.find.as_str(), part.rate_per_s) {
        ("new-connections", _) => format!("{} new connections", rate(found)),
        ("users", Some(achieved)) => format!("{}, {} achieved,", words(found), rate(achieved)),
        _ => words(found),
    };
    format!("{found} keep {objective}{interval}.{bound}")
}

fn so_far(unit: &str, bracket: &Bracket) -> String {
    let rate = |value: f64| load(unit, value);
    match (bracket.lower, bracket.upper) {
        (Some(lower), Some(upper)) => format!("{} was sustained, {} was not", rate(lower), rate(upper)),
        (Some(lower), None) => format!("{} was sustained, no higher load was decided", rate(lower)),
        (None, Some(upper)) => format!("no load was sustained, not even {}", rate(upper)),
        (None, None) => "no trial has ended".to_owned(),
    }
}

/// The limiting resource in words.
pub(crate) fn bound_name(name: &str) -> &str {
    match name {
        "cpu_quota" => "its CPU limit",
        "cores" => "its cores",
        "workers" => "its worker processes, or another limit of the server",
        "connections" => "its number of connections",
        "link" => "a link",
        "errors" => "errors",
        "client" => "the load generator",
        other => other,
    }
}

/// Further figures of the search, each with its name.
pub(crate) fn further(part: &CapacityPart) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let words = |value: f64| load(&part.unit, value);
    if let (Some(achieved), "users" | "connections") = (part.rate_per_s, part.find.as_str()) {
        lines.push(("achieved", format!("{} at this capacity", rate(achieved))));
    }
    if let Some(short) = part.short_trials_result {
        lines.push(("short-term peak", format!("{} was sustained in short trials only", words(short))));
    }
    if let Some(saturation) = part.saturation_rate_per_s {
        lines.push(("saturation", format!("{}, the highest achieved rate", rate(saturation))));
    }
    if let Some(knee) = part.knee {
        lines.push(("knee", format!("{}, the highest ratio of achieved rate to mean response time", words(knee))));
    }
    if let Some(over) = &part.under_overload {
        let words = match over.as_str() {
            "holds" => "at 1.2 and 2 times the capacity the achieved rate stays at its highest",
            "degrades" => "at 1.2 and 2 times the capacity the achieved rate is lower",
            _ => "at 1.2 and 2 times the capacity the achieved rate is less than half of its highest",
        };
        lines.push(("overload", format!("{over}: {words}")));
    }
    if let Some(limit) = &part.generator_limit {
        lines.push(("generator", format!("limit of the load generator: about {}: {}", words(limit.load), limit.words)));
    }
    if part.warmup_s > 0.0 {
        lines.push(("warm-up", format!("{} before every trial", duration_f64(part.warmup_s * 1e9))));
    }
    lines
}

/// Heads of [`trial`].
pub(crate) const TRIALS: [&str; 8] = ["trial", "load", "achieved", "p99", "in flight", "CPU", "verdict", "reason"];

/// Index of the load in [`trial`].
pub(crate) const LOAD: usize = 1;

/// A trial as a row; `unit` is that of the search.
pub(crate) fn trial(trial: &TrialPart, unit: &str) -> Vec<String> {
    let stage = match (trial.stage.as_str(), trial.search) {
        ("long", search) => format!("search {search}"),
        (stage, _) => stage.to_owned(),
    };
    let name = if trial.at.is_empty() { stage.clone() } else { format!("{}: {stage}", trial.at) };
    let load = match stage.as_str() {
        "guess" => format!("{:.0} connections", trial.load),
        "limit" => rate(trial.load),
        _ => load(unit, trial.load),
    };
    let p99 = if trial.response_time_ns.count == 0 { "-".into() } else { duration(trial.response_time_ns.p99) };
    let verdict = match trial.verdict.as_str() {
        "bad" if trial.actual_s + 0.05 < trial.planned_s => format!("bad after {:.1} s", trial.actual_s),
        verdict => verdict.to_owned(),
    };
    vec![
        name,
        load,
        rate(trial.achieved_rate_per_s),
        p99,
        crate::figures::level(trial.in_flight.mean),
        trial.cpu_busy.map_or_else(|| "-".into(), share),
        verdict,
        trial.why.first().cloned().unwrap_or_default(),
    ]
}

/// Heads of [`distance`].
pub(crate) const EACH: [&str; 8] = ["distance", "capacity", "vs. first", "from", "to", "p50", "p99", "connections"];

/// A distance as a row.
pub(crate) fn distance(each: &EachDistance, unit: &str) -> Vec<String> {
    let words = |value: f64| load(unit, value);
    let time = |of: fn(&schema::Quantiles) -> u64| {
        each.response_time_ns.as_ref().map_or_else(|| "-".into(), |times| duration(of(times)))
    };
    let ends = each.interval.map_or(["-".to_owned(), "-".to_owned()], |ends| ends.map(words));
    let [from, to] = ends;
    vec![
        each.name.clone(),
        each.result.map_or_else(|| "not found".into(), words),
        each.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
        from,
        to,
        time(|times| times.p50),
        time(|times| times.p99),
        each.connections.map_or_else(|| "-".into(), crate::figures::level),
    ]
}

/// One line about a trial during a search, with the current bracket.
pub(crate) fn line(trial: &TrialPart, bracket: (Option<f64>, Option<f64>), unit: &str) -> String {
    let cells = self::trial(trial, unit);
    let cpu = if trial.cpu_busy.is_some() { format!(", CPU {}", cells[5]) } else { String::new() };
    let bracket = match bracket {
        (None, None) => String::new(),
        (lower, upper) => {
            let end = |end: Option<f64>| end.map_or_else(|| "?".into(), |end| load(unit, end));
            format!(" [{} .. {}]", end(lower), end(upper))
        }
    };
    let why = if cells[7].is_empty() { String::new() } else { format!(" ({})", cells[7]) };
    format!(
        "{:<12} {:>10}  achieved {:>9}, p99 {:>7}, {:>6} in flight{cpu}  {}{why}{bracket}",
        cells[0], cells[1], cells[2], cells[3], cells[4], cells[6]
    )
}

/// Resource usage of the server in a trial, for the page.
pub(crate) fn server(trial: &TrialPart, unit: &str) -> Option<Vec<String>> {
    let server = trial.server.as_ref()?;
    let [name, load, ..] = &self::trial(trial, unit)[..] else { return None };
    Some(vec![
        load.clone(),
        name.clone(),
        format!("{:.2}", server.cpu_cores),
        server.receive_cores.map_or_else(|| "-".into(), |cores| format!("{cores:.2}")),
        format!("{:.2}", server.may_use_cores),
        server.throttled_share.map_or_else(|| "-".into(), share),
        bytes(server.rss_bytes_max),
    ])
}

#[cfg(test)]
mod tests {
    use schema::{BoundBy, Quantiles};

    use super::*;

    fn document(capacity: CapacityPart) -> CapacityDocument {
        CapacityDocument {
            schema: schema::document::SCHEMA.into(),
            run: schema::document::Run::default(),
            validity: schema::Validity::from_checks(Vec::new()),
            capacity,
        }
    }

    #[test]
    fn answer_has_capacity_interval_and_limiting_resource() {
        let part = CapacityPart {
            objective: "p99 < 200ms".into(),
            result: Some(199.2),
            interval: Some([195.0, 203.0]),
            interval_of: "searches".into(),
            searches: vec![Bracket::default(); 3],
            bound_by: BoundBy {
                name: "cpu_quota".into(),
                words: "20 % of a core is used up".into(),
                ..BoundBy::default()
            },
            ..CapacityPart::default()
        };
        assert_eq!(
            answer(&document(part)),
            "199.2/s keep p99 < 200ms (95 % interval over 3 searches: 195.0/s to 203.0/s). Limited by its CPU limit: 20 % of a core is \
             used up."
        );
        let early = CapacityPart {
            objective: "p99 < 200ms".into(),
            partial_result: Some(Bracket { lower: Some(100.0), upper: None }),
            ..CapacityPart::default()
        };
        assert!(answer(&document(early)).contains("100.0/s was sustained, no higher load was decided"));
    }

    #[test]
    fn loads_of_users_and_connections_have_no_per_second_unit() {
        let part = CapacityPart {
            objective: "p99 < 200ms".into(),
            find: "users".into(),
            unit: "users".into(),
            result: Some(1430.0),
            rate_per_s: Some(199.3),
            interval: Some([1400.4, 1445.0]),
            searches: vec![Bracket::default(); 3],
            interval_of: "searches".into(),
            ..CapacityPart::default()
        };
        assert_eq!(
            answer(&document(part.clone())),
            "1,430 users, 199.3/s achieved, keep p99 < 200ms (95 % interval over 3 searches: 1,400 users to 1,445 users)."
        );
        assert_eq!(further(&part)[0], ("achieved", "199.3/s at this capacity".to_owned()));
        let held =
            CapacityPart { find: "connections".into(), unit: "connections".into(), result: None, ..part.clone() };
        assert_eq!(answer(&document(held)), "No number of connections with p99 < 200ms was found.");
        let new = CapacityPart { find: "new-connections".into(), unit: "1/s".into(), interval: None, ..part };
        assert_eq!(answer(&document(new)), "1,430/s new connections keep p99 < 200ms.");
        let trial = |stage: &str| TrialPart { stage: stage.into(), load: 1430.0, ..TrialPart::default() };
        assert_eq!(super::trial(&trial("long"), "users")[1], "1,430 users");
        assert_eq!(super::trial(&trial("limit"), "users")[1], "1,430/s");
    }

    #[test]
    fn trial_line_has_stage_verdict_and_bracket() {
        let trial = TrialPart {
            stage: "long".into(),
            search: 2,
            load: 204.0,
            planned_s: 60.0,
            actual_s: 12.3,
            verdict: "bad".into(),
            why: vec!["p99 < 200ms: 310 ms".into()],
            response_time_ns: Quantiles { count: 9, p99: 310_000_000, ..Quantiles::default() },
            ..TrialPart::default()
        };
        let line = line(&trial, (Some(200.0), None), "1/s");
        assert!(
            line.contains("search 2") && line.contains("bad after 12.3 s") && line.contains("[200.0/s .. ?]"),
            "{line}"
        );
    }
}
