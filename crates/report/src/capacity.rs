//! What terminal and page say alike of a capacity.

use ledger::{Bracket, CapacityDocument, CapacityPart, EachDistance, TrialPart};

use crate::figures::{bytes, duration, duration_f64, rate, share};

/// The answer in a sentence or two.
pub(crate) fn answer(document: &CapacityDocument) -> String {
    let part = &document.capacity;
    let objective = &part.objective;
    let Some(found) = part.rate_per_s else {
        return match part.so_far {
            Some(bracket) => format!("No capacity with {objective} is stated; {}.", so_far(&bracket)),
            None => format!("No capacity with {objective} is stated."),
        };
    };
    let interval = match (part.interval, part.interval_of.as_str()) {
        (Some([low, high]), "searches") => {
            format!(" (95 % interval over {} searches: {} to {})", part.searches.len(), rate(low), rate(high))
        }
        (Some([low, high]), _) => format!(" (one search: between {} and {})", rate(low), rate(high)),
        (None, _) => String::new(),
    };
    let bound = match part.bound_by.name.as_str() {
        "unknown" if part.bound_by.words.is_empty() => String::new(),
        "unknown" => format!(" What binds it is not known: {}.", part.bound_by.words),
        _ => format!(" It is bound by {}: {}.", bound_name(&part.bound_by.name), part.bound_by.words),
    };
    format!("{} keep {objective}{interval}.{bound}", rate(found))
}

fn so_far(bracket: &Bracket) -> String {
    match (bracket.lower, bracket.upper) {
        (Some(lower), Some(upper)) => format!("{} held, and {} was too much", rate(lower), rate(upper)),
        (Some(lower), None) => format!("{} held, and nothing was too much", rate(lower)),
        (None, Some(upper)) => format!("{} was too much, and nothing held", rate(upper)),
        (None, None) => "nothing is known yet".to_owned(),
    }
}

/// What binds it, in words.
pub(crate) fn bound_name(name: &str) -> &str {
    match name {
        "cpu_quota" => "its share of the processor",
        "cores" => "its cores",
        "workers" => "its workers, or another limit of its own",
        "link" => "a link",
        "errors" => "errors",
        "client" => "the client",
        other => other,
    }
}

/// Figures beside the answer, under their own names.
pub(crate) fn beside(part: &CapacityPart) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if let Some(short) = part.short_rate_per_s {
        lines.push(("for seconds", format!("{} held in the short trials: it does not last", rate(short))));
    }
    if let Some(saturation) = part.saturation_rate_per_s {
        lines.push(("saturation", format!("{} is the most that was ever carried", rate(saturation))));
    }
    if let Some(knee) = part.knee_rate_per_s {
        lines.push(("knee", format!("{}, where carried rate over mean response time is greatest", rate(knee))));
    }
    if let Some(over) = &part.under_overload {
        let words = match over.as_str() {
            "holds" => "at 1.2 and 2 times the answer it carries what it ever did",
            "degrades" => "at 1.2 and 2 times the answer it carries less",
            _ => "at 1.2 and 2 times the answer it carries less than half of what it could",
        };
        lines.push(("overload", format!("{over}: {words}")));
    }
    if let Some(limit) = &part.generator_limit {
        lines.push(("generator", format!("its own limit here is about {}, {}", rate(limit.rate_per_s), limit.words)));
    }
    if part.warmup_s > 0.0 {
        lines.push(("warm-up", format!("{} before every trial", duration_f64(part.warmup_s * 1e9))));
    }
    lines
}

/// Heads of [`trial`].
pub(crate) const TRIALS: [&str; 8] = ["trial", "load", "carried", "p99", "in flight", "CPU", "verdict", "why"];

/// A trial as a row.
pub(crate) fn trial(trial: &TrialPart) -> Vec<String> {
    let stage = match (trial.stage.as_str(), trial.search) {
        ("long", search) => format!("search {search}"),
        (stage, _) => stage.to_owned(),
    };
    let name = if trial.at.is_empty() { stage.clone() } else { format!("{}: {stage}", trial.at) };
    let load = if stage == "guess" { format!("{:.0} connections", trial.load) } else { rate(trial.load) };
    let p99 = if trial.response_time_ns.count == 0 { "-".into() } else { duration(trial.response_time_ns.p99) };
    let verdict = match trial.verdict.as_str() {
        "bad" if trial.lasted_s + 0.05 < trial.asked_s => format!("bad after {:.1} s", trial.lasted_s),
        verdict => verdict.to_owned(),
    };
    vec![
        name,
        load,
        rate(trial.carried_rate_per_s),
        p99,
        crate::figures::level(trial.in_flight.mean),
        trial.cpu_busy.map_or_else(|| "-".into(), share),
        verdict,
        trial.why.first().cloned().unwrap_or_default(),
    ]
}

/// Heads of [`distance`].
pub(crate) const EACH: [&str; 8] = ["distance", "capacity", "of the first", "from", "to", "p50", "p99", "connections"];

/// A distance as a row.
pub(crate) fn distance(each: &EachDistance) -> Vec<String> {
    let time = |of: fn(&ledger::Quantiles) -> u64| {
        each.response_time_ns.as_ref().map_or_else(|| "-".into(), |times| duration(of(times)))
    };
    let ends = each.interval.map_or(["-".to_owned(), "-".to_owned()], |ends| ends.map(rate));
    let [from, to] = ends;
    vec![
        each.name.clone(),
        each.rate_per_s.map_or_else(|| "not found".into(), rate),
        each.ratio.map_or_else(|| "-".into(), |ratio| format!("{ratio:.2}")),
        from,
        to,
        time(|times| times.p50),
        time(|times| times.p99),
        each.connections.map_or_else(|| "-".into(), crate::figures::level),
    ]
}

/// One line on a trial, for while a search goes on, with the bracket so far.
pub(crate) fn line(trial: &TrialPart, bracket: (Option<f64>, Option<f64>)) -> String {
    let cells = self::trial(trial);
    let cpu = if trial.cpu_busy.is_some() { format!(", CPU {}", cells[5]) } else { String::new() };
    let bracket = match bracket {
        (None, None) => String::new(),
        (lower, upper) => {
            let end = |end: Option<f64>| end.map_or_else(|| "?".into(), rate);
            format!(" [{} .. {}]", end(lower), end(upper))
        }
    };
    let why = if cells[7].is_empty() { String::new() } else { format!(" ({})", cells[7]) };
    format!(
        "{:<12} {:>10}  carried {:>9}, p99 {:>7}, {:>6} in flight{cpu}  {}{why}{bracket}",
        cells[0], cells[1], cells[2], cells[3], cells[4], cells[6]
    )
}

/// Of the server in a trial, for the page.
pub(crate) fn server(trial: &TrialPart) -> Option<Vec<String>> {
    let server = trial.server.as_ref()?;
    Some(vec![
        rate(trial.load),
        trial.stage.clone(),
        format!("{:.2}", server.cpu_cores),
        server.receive_cores.map_or_else(|| "-".into(), |cores| format!("{cores:.2}")),
        format!("{:.2}", server.may_use_cores),
        server.throttled_share.map_or_else(|| "-".into(), share),
        bytes(server.rss_bytes_max),
    ])
}

#[cfg(test)]
mod tests {
    use ledger::{BoundBy, Quantiles};

    use super::*;

    fn document(capacity: CapacityPart) -> CapacityDocument {
        CapacityDocument {
            schema: ledger::document::SCHEMA.into(),
            run: ledger::document::Run::default(),
            validity: ledger::Validity::from_checks(Vec::new()),
            capacity,
        }
    }

    #[test]
    fn the_answer_says_how_high_how_sure_and_what_binds() {
        let part = CapacityPart {
            objective: "p99 < 200ms".into(),
            rate_per_s: Some(199.2),
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
            "199.2/s keep p99 < 200ms (95 % interval over 3 searches: 195.0/s to 203.0/s). It is bound by its share of the processor: 20 % of a \
             core is used up."
        );
        let early = CapacityPart {
            objective: "p99 < 200ms".into(),
            so_far: Some(Bracket { lower: Some(100.0), upper: None }),
            ..CapacityPart::default()
        };
        assert!(answer(&document(early)).contains("100.0/s held, and nothing was too much"));
    }

    #[test]
    fn a_trial_is_one_line() {
        let trial = TrialPart {
            stage: "long".into(),
            search: 2,
            load: 204.0,
            asked_s: 60.0,
            lasted_s: 12.3,
            verdict: "bad".into(),
            why: vec!["p99 < 200ms: 310 ms".into()],
            response_time_ns: Quantiles { count: 9, p99: 310_000_000, ..Quantiles::default() },
            ..TrialPart::default()
        };
        let line = line(&trial, (Some(200.0), None));
        assert!(
            line.contains("search 2") && line.contains("bad after 12.3 s") && line.contains("[200.0/s .. ?]"),
            "{line}"
        );
    }
}
