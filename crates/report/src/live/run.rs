//! One run as the state of its live page: progress or result, from its records.
//!
//! Every section shows one vantage point or one part of the document, and is absent without it. So the same page serves
//! a load with or without a path, a program over a path (`net`) and a capture (`watch`).

mod facts;
mod over_time;
mod sentences;

use schema::document::{DistanceBand, Load, Quantiles};
use schema::{RunPhase, RunProgress};

use super::follow::{Ended, Records};
use super::state::{Judged, Piece, Progress, Row, Section, State, Status, Table, Text};
use super::{paged, shards};
use crate::figures::{bytes, count, duration, share};
use crate::page;
use crate::phrases::{by_frequency, check_name, check_state, limit, meaning, measure, span, tally};
use crate::plot::{Chart, Figure, Series};
use crate::run_page;

/// The state of a single run.
pub(super) fn state(records: &Records) -> State {
    let facts = facts::of(records);
    let mut state = State {
        title: records.id.clone(),
        status: status(records),
        lead: sentences::lead(records),
        progress: progress(records),
        aloud: sentences::spoken(records, &facts),
        facts,
        judged: judged(records),
        sections: sections(records),
        foot: Vec::new(),
        is_over: records.is_over(),
    };
    state.sections.extend(shards::section(records));
    add_end(&mut state, records);
    state
}

/// Adds the sections at the end of every run's page: parts that could not be read, commands, folder.
pub(super) fn add_end(state: &mut State, records: &Records) {
    let mut notes = Section::new("notes", "Parts that could not be read");
    for (at, text) in records.missing.iter().enumerate() {
        notes.pieces.push(words(format!("notes-{at}"), text.clone(), false));
    }
    if let Some(Ended::Unreadable(why)) = &records.ended {
        notes.pieces.push(words(
            "notes-document".to_owned(),
            format!("This version cannot read the document: {why}"),
            false,
        ));
    }
    if !notes.pieces.is_empty() {
        state.sections.push(notes);
    }
    let command = records.document().map(|document| document.run.command.as_str());
    let command = command.or(records.progress.as_ref().map(|progress| progress.command.as_str())).unwrap_or_default();
    let mut after = Section::new("after", if records.is_over() { "Next steps" } else { "Command" });
    if records.ended.is_some() {
        after = after
            .with(words(
                "after-report-about".into(),
                "Write the report as one file that needs no network:".into(),
                false,
            ))
            .with(words("after-report".into(), format!("yamabiko report {} --html report.html", records.id), true));
    }
    if !command.is_empty() {
        let about = if records.is_over() { "Repeat this run:" } else { "Command of this run:" };
        after = after.with(words("after-command-about".into(), about.into(), false)).with(words(
            "after-command".into(),
            command.to_owned(),
            true,
        ));
    }
    if !after.pieces.is_empty() {
        state.sections.push(after);
    }
    state.foot.push(format!("Stored in {}", records.dir.display()));
}

/// The sections of a run, also for the current run of an experiment.
pub(super) fn sections(records: &Records) -> Vec<Section> {
    let mut sections = vec![over_time::section(records)];
    sections.extend(distance(records));
    sections.extend(responses(records));
    sections.extend(tables(records));
    sections.retain(|section| !section.pieces.is_empty());
    sections
}

pub(super) fn status(records: &Records) -> Status {
    let watches = records.progress.as_ref().is_some_and(|progress| progress.verb == "watch");
    let word = |word: &str, tone| Status { word: word.to_owned(), tone };
    match records.phase() {
        RunPhase::Starting => word("Starting", "going"),
        RunPhase::Warmup => word("Warm-up", "going"),
        RunPhase::Measured if watches => word("Watching", "going"),
        RunPhase::Measured => word("Measuring", "going"),
        RunPhase::Drain => word("Finishing", "going"),
        RunPhase::Killed => word("Killed", "bad"),
        RunPhase::Done if records.document().is_some_and(|document| document.run.interrupted) => {
            word("Interrupted", "doubt")
        }
        RunPhase::Done => word("Ended", "soft"),
    }
}

/// The progress by time or by number of requests, as planned.
pub(super) fn progress(records: &Records) -> Option<Progress> {
    let progress = records.progress.as_ref().filter(|_| !records.is_over())?;
    let measured_s = measured_s(progress);
    match (progress.phase, progress.duration_s, progress.requests) {
        (RunPhase::Warmup, ..) if progress.warmup_s > 0.0 => {
            let done = (progress.at_s - LOAD_BEGINS_S).clamp(0.0, progress.warmup_s);
            let text = format!("warm-up, {} of {}", whole_s(done), span(progress.warmup_s));
            Some(Progress { share: done / progress.warmup_s, text })
        }
        (RunPhase::Measured | RunPhase::Drain, Some(duration), None) if duration > 0.0 => {
            let done = measured_s.min(duration);
            Some(Progress { share: done / duration, text: format!("{} of {}", whole_s(done), span(duration)) })
        }
        (RunPhase::Measured | RunPhase::Drain, duration, Some(requests)) if requests > 0 => {
            let offered = progress.load.as_ref().map_or(0, |load| load.offered).min(requests);
            let by_time = duration.filter(|d| *d > 0.0).map_or(0.0, |duration| (measured_s / duration).min(1.0));
            let text = format!("{} of {} requests", count(offered), count(requests));
            Some(Progress { share: (offered as f64 / requests as f64).max(by_time), text })
        }
        _ => None,
    }
}

/// The verdict with its checks, those that did not pass first.
pub(super) fn judged(records: &Records) -> Option<Judged> {
    let validity = records.validity()?;
    if validity.checks.is_empty() {
        return None;
    }
    let (word, tone) = sentences::verdict(validity.verdict);
    let summary = match (records.ended.is_some(), validity.verdict) {
        (true, schema::Verdict::Valid) => tally(validity),
        (true, verdict) => format!("{} {}", meaning(verdict), tally(validity)),
        (false, _) => format!("Provisional: {} The verdict at the end has more checks.", tally(validity)),
    };
    let row = |check: &schema::document::Check| {
        let result = check_state(check);
        let tone = match result {
            "passed" => "good",
            "failed" => "bad",
            "not applicable" => "soft",
            _ => "doubt",
        };
        let value = check.value.map(|value| measure(value, &check.unit)).unwrap_or_default();
        let limit = check.limit.map(|value| limit(value, &check.unit)).unwrap_or_default();
        Row { cells: vec![check_name(check), result.to_owned(), value, limit, check.why.clone()], tone }
    };
    let rows = validity.checks.iter().map(row);
    let (rest, open) = rows.partition(|row| row.tone == "good" || row.tone == "soft");
    Some(Judged { word, tone, summary, open, rest })
}

/// Configured and measured RTT, and response times by distance.
fn distance(records: &Records) -> Vec<Section> {
    let progress = records.progress.as_ref();
    let (configured, measured) = match records.document().and_then(|document| document.path.as_ref()) {
        Some(path) => (Some(path.configured_rtt_ns), path.measured_rtt_ns),
        None => match progress.and_then(|progress| progress.path.as_ref()) {
            Some(path) => (Some(path.configured_rtt_ns), path.measured_rtt_ns),
            None => (None, progress.and_then(|progress| progress.watch.as_ref()?.handshake_rtt_ns)),
        },
    };
    let bands = match records.document().and_then(|document| document.load.as_ref()) {
        Some(load) => &load.by_distance[..],
        None => progress.and_then(|progress| progress.load.as_ref()).map_or(&[][..], |load| &load.by_distance[..]),
    };
    let mut section = Section::new("distance", "Distance");
    section.pieces.extend(rtts(configured.as_ref(), measured.as_ref()));
    // Plots side by side, then tables.
    let (plots, tables): (Vec<Piece>, Vec<Piece>) =
        of_distance(bands).into_iter().partition(|piece| matches!(piece, Piece::Drawing(_)));
    section.pieces.extend(plots);
    section.pieces.extend(tables);
    vec![section]
}

/// Configured and measured RTTs as curves over the quantile.
fn rtts(configured: Option<&Quantiles>, measured: Option<&Quantiles>) -> Option<Piece> {
    let curve = |q: &Quantiles| -> Vec<[f64; 2]> {
        let points =
            [(0.0, q.min), (0.5, q.p50), (0.75, q.p75), (0.9, q.p90), (0.95, q.p95), (0.99, q.p99), (0.999, q.p99_9)];
        // Quantiles beyond the number of values would repeat the largest.
        let known = points.into_iter().filter(|(share, _)| *share == 0.0 || (1.0 - share) * q.count as f64 >= 1.0);
        known.map(|(share, value)| [share, value as f64]).collect()
    };
    let mut chart = Chart::percentiles("Round-trip times", "round-trip time");
    chart = match (configured, measured) {
        (Some(_), _) => chart.about("Configured: one value per client. Measured: one value per handshake."),
        (None, _) => chart.about("From handshakes in the packet capture."),
    };
    if let Some(configured) = configured.filter(|q| q.count > 0) {
        chart = chart.series(Series::line("configured", curve(configured)).color(0).dashed());
    }
    if let Some(measured) = measured.filter(|q| q.count > 0) {
        chart = chart.series(Series::line("measured", curve(measured)).color(1));
    }
    paged::drawing(&Figure::Chart(chart), "rtt".to_owned())
}

/// Results by distance, as in the report.
fn of_distance(bands: &[DistanceBand]) -> Vec<Piece> {
    let load = Load { by_distance: bands.to_vec(), ..Load::default() };
    pieces(&run_page::by_distance(&load), "by-distance")
}

/// Statuses and failures, as in the report.
fn responses(records: &Records) -> Vec<Section> {
    let mut load = Load::default();
    match (records.document().and_then(|document| document.load.as_ref()), records.progress.as_ref()) {
        (Some(ended), _) => (load.status, load.failed) = (ended.status.clone(), ended.failed.clone()),
        (None, Some(RunProgress { load: Some(so_far), .. })) => {
            (load.status, load.failed) = (so_far.status.clone(), so_far.failed.clone());
        }
        _ => return Vec::new(),
    }
    let mut section = Section::new("responses", "Responses");
    section.pieces = pieces(&run_page::failures(&load), "responses");
    vec![section]
}

/// Tables of path and server.
fn tables(records: &Records) -> Vec<Section> {
    let mut sections = Vec::new();
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let progress = records.progress.as_ref();
    let path = match records.document().and_then(|document| document.path.as_ref()) {
        Some(path) => {
            Some((&path.profile, path.clients, path.packets, path.bytes, &path.drops, Some(path.timing_error_ns)))
        }
        None => progress
            .and_then(|progress| progress.path.as_ref())
            .map(|path| (&path.profile, path.clients, path.packets, path.bytes, &path.drops, path.timing_error_ns)),
    };
    if let Some((profile, clients, packets, all_bytes, drops, timing_error)) = path {
        let mut rows = vec![
            row("profile", profile.clone()),
            row("clients", count(clients)),
            row("packets", count(packets)),
            row("bytes", bytes(all_bytes)),
        ];
        if let Some(q) = timing_error.filter(|q| q.count > 0) {
            rows.push(row("timing error, p99", duration(q.p99)));
        }
        for (cause, n) in by_frequency(drops) {
            let of = share(n as f64 / packets.max(1) as f64);
            rows.push(row(&format!("dropped: {}", cause.replace('_', " ")), format!("{} ({of})", count(n))));
        }
        sections.push(Section::new("path", "Path").with(two_columns("path-table", rows)));
    }
    if let Some(last) = records.server.last() {
        let mut rows = vec![row("memory now", bytes(last.rss_bytes))];
        if let Some(descriptors) = last.descriptors {
            rows.push(row("open descriptors", count(descriptors)));
        }
        if let Some(throttled) = last.throttled_s {
            rows.push(row("throttled, last second", format!("{throttled:.2} s")));
        }
        sections.push(Section::new("server", "Server").with(two_columns("server-table", rows)));
    }
    sections
}

fn two_columns(id: &str, rows: Vec<Vec<String>>) -> Piece {
    Piece::Table(Table { id: id.to_owned(), head: Vec::new(), left: vec![1], rows, ..Table::default() })
}

fn pieces(section: &page::Section, id: &str) -> Vec<Piece> {
    paged::section_of(section, id).into_iter().flat_map(|section| section.pieces).collect()
}

fn words(id: String, text: String, verbatim: bool) -> Piece {
    Piece::Text(Text { id, text, verbatim })
}

/// Seconds of the measured phase so far.
fn measured_s(progress: &RunProgress) -> f64 {
    let from = LOAD_BEGINS_S + progress.warmup_s;
    (progress.at_s - from).clamp(0.0, progress.duration_s.unwrap_or(f64::MAX).max(0.0))
}

fn whole_s(seconds: f64) -> String {
    format!("{:.0} s", seconds.floor())
}

/// Time from the run's zero to its first request (docs/concepts/columns.md).
const LOAD_BEGINS_S: f64 = 0.05;
