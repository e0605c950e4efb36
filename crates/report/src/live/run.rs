//! One run as a state: what its records hold, and how it stands or ended.
//!
//! Every part belongs to one witness or one part of the document; where that is absent, so is the part. So a load through a
//! path, a load without, a program at the end of a path (`net`) and a capture (`watch`) are shown by the same lines.

mod facts;
mod over_time;
mod said;

use schema::document::{DistanceBand, Load, Quantiles};
use schema::{RunPhase, RunProgress};

use super::follow::{Ended, Records};
use super::paged;
use super::state::{Judged, Piece, Progress, Row, Section, State, Status, Table, Text};
use crate::figures::{bytes, count, duration, share};
use crate::page;
use crate::phrases::{by_frequency, check_name, check_state, limit, meaning, measure, span, tally};
use crate::plot::{Chart, Figure, Series};
use crate::run_page;

/// A run of its own.
pub(super) fn state(records: &Records) -> State {
    let facts = facts::of(records);
    let mut state = State {
        title: records.id.clone(),
        status: status(records),
        lead: said::lead(records),
        progress: progress(records),
        aloud: said::aloud(records, &facts),
        facts,
        judged: judged(records),
        sections: sections(records),
        foot: Vec::new(),
        is_over: records.is_over(),
    };
    close(&mut state, records);
    state
}

/// What the foot says of every run, and what could not be read.
pub(super) fn close(state: &mut State, records: &Records) {
    let mut notes = Section::new("notes", "What could not be read");
    for (at, text) in records.missing.iter().enumerate() {
        notes.pieces.push(words(format!("notes-{at}"), text.clone(), false));
    }
    if let Some(Ended::Unreadable(why)) = &records.ended {
        notes.pieces.push(words(
            "notes-document".to_owned(),
            format!("Its document is not one this version reads: {why}"),
            false,
        ));
    }
    if !notes.pieces.is_empty() {
        state.sections.push(notes);
    }
    let command = records.document().map(|document| document.run.command.as_str());
    let command = command.or(records.standing.as_ref().map(|standing| standing.command.as_str())).unwrap_or_default();
    let mut after = Section::new("after", if records.is_over() { "Afterwards" } else { "What is run" });
    if records.ended.is_some() {
        after = after
            .with(words("after-report-about".into(), "Its report, as one file that needs no network:".into(), false))
            .with(words("after-report".into(), format!("yamabiko report {} --html report.html", records.id), true));
    }
    if !command.is_empty() {
        let about = if records.is_over() { "The command that repeats it:" } else { "The command:" };
        after = after.with(words("after-command-about".into(), about.into(), false)).with(words(
            "after-command".into(),
            command.to_owned(),
            true,
        ));
    }
    if !after.pieces.is_empty() {
        state.sections.push(after);
    }
    state.foot.push(format!("Kept in {}", records.dir.display()));
}

/// The parts of a run that another state may have as well: those of the run under way.
pub(super) fn sections(records: &Records) -> Vec<Section> {
    let mut sections = vec![over_time::section(records)];
    sections.extend(distance(records));
    sections.extend(answers(records));
    sections.extend(tables(records));
    sections.retain(|section| !section.pieces.is_empty());
    sections
}

pub(super) fn status(records: &Records) -> Status {
    let watches = records.standing.as_ref().is_some_and(|standing| standing.verb == "watch");
    let word = |word: &str, tone| Status { word: word.to_owned(), tone };
    match records.phase() {
        RunPhase::Starting => word("Starting", "going"),
        RunPhase::Warmup => word("Warm-up", "going"),
        RunPhase::Measured if watches => word("Watching", "going"),
        RunPhase::Measured => word("Measuring", "going"),
        RunPhase::Drain => word("Finishing", "going"),
        RunPhase::Killed => word("Killed", "bad"),
        RunPhase::Done if records.document().is_some_and(|document| document.run.interrupted) => {
            word("Stopped early", "doubt")
        }
        RunPhase::Done => word("Ended", "soft"),
    }
}

/// How far it is, by time or by number of requests, whichever is planned.
pub(super) fn progress(records: &Records) -> Option<Progress> {
    let standing = records.standing.as_ref().filter(|_| !records.is_over())?;
    let measured_s = measured_s(standing);
    match (standing.phase, standing.duration_s, standing.requests) {
        (RunPhase::Warmup, ..) if standing.warmup_s > 0.0 => {
            let done = (standing.at_s - LOAD_BEGINS_S).clamp(0.0, standing.warmup_s);
            let text = format!("warm-up, {} of {}", whole_s(done), span(standing.warmup_s));
            Some(Progress { share: done / standing.warmup_s, text })
        }
        (RunPhase::Measured | RunPhase::Drain, Some(duration), None) if duration > 0.0 => {
            let done = measured_s.min(duration);
            Some(Progress { share: done / duration, text: format!("{} of {}", whole_s(done), span(duration)) })
        }
        (RunPhase::Measured | RunPhase::Drain, duration, Some(requests)) if requests > 0 => {
            let offered = standing.load.as_ref().map_or(0, |load| load.offered).min(requests);
            let by_time = duration.filter(|d| *d > 0.0).map_or(0.0, |duration| (measured_s / duration).min(1.0));
            let text = format!("{} of {} requests", count(offered), count(requests));
            Some(Progress { share: (offered as f64 / requests as f64).max(by_time), text })
        }
        _ => None,
    }
}

/// The checks, those that are not green first.
pub(super) fn judged(records: &Records) -> Option<Judged> {
    let validity = records.validity()?;
    if validity.checks.is_empty() {
        return None;
    }
    let (word, tone) = said::verdict(validity.verdict);
    let said = match (records.ended.is_some(), validity.verdict) {
        (true, schema::Verdict::Valid) => tally(validity),
        (true, verdict) => format!("{} {}", meaning(verdict), tally(validity)),
        (false, _) => format!("As it stands. {} The end judges anew, and by more.", tally(validity)),
    };
    let row = |check: &schema::document::Check| {
        let result = check_state(check);
        let tone = match result {
            "held" => "good",
            "failed" => "bad",
            "does not apply" => "soft",
            _ => "doubt",
        };
        let value = check.value.map(|value| measure(value, &check.unit)).unwrap_or_default();
        let limit = check.limit.map(|value| limit(value, &check.unit)).unwrap_or_default();
        Row { cells: vec![check_name(check), result.to_owned(), value, limit, check.why.clone()], tone }
    };
    let rows = validity.checks.iter().map(row);
    let (rest, open) = rows.partition(|row| row.tone == "good" || row.tone == "soft");
    Some(Judged { word, tone, said, open, rest })
}

/// RTT asked and got, and response times by distance.
fn distance(records: &Records) -> Vec<Section> {
    let standing = records.standing.as_ref();
    let (asked, got) = match records.document().and_then(|document| document.path.as_ref()) {
        Some(path) => (Some(path.configured_rtt_ns), path.measured_rtt_ns),
        None => match standing.and_then(|standing| standing.path.as_ref()) {
            Some(path) => (Some(path.configured_rtt_ns), path.measured_rtt_ns),
            None => (None, standing.and_then(|standing| standing.watch.as_ref()?.handshake_rtt_ns)),
        },
    };
    let bands = match records.document().and_then(|document| document.load.as_ref()) {
        Some(load) => &load.by_distance[..],
        None => standing.and_then(|standing| standing.load.as_ref()).map_or(&[][..], |load| &load.by_distance[..]),
    };
    let mut section = Section::new("distance", "Distance");
    section.pieces.extend(rtts(asked.as_ref(), got.as_ref()));
    // Plots side by side, then the table.
    let (drawn, told): (Vec<Piece>, Vec<Piece>) =
        of_distance(bands).into_iter().partition(|piece| matches!(piece, Piece::Drawing(_)));
    section.pieces.extend(drawn);
    section.pieces.extend(told);
    vec![section]
}

/// The distributions that were asked for and that were got, as curves over the quantile.
fn rtts(asked: Option<&Quantiles>, got: Option<&Quantiles>) -> Option<Piece> {
    let curve = |q: &Quantiles| -> Vec<[f64; 2]> {
        let points =
            [(0.0, q.min), (0.5, q.p50), (0.75, q.p75), (0.9, q.p90), (0.95, q.p95), (0.99, q.p99), (0.999, q.p99_9)];
        // Beyond what the number of values can tell apart a quantile is the largest again.
        let told = points.into_iter().filter(|(share, _)| *share == 0.0 || (1.0 - share) * q.count as f64 >= 1.0);
        told.map(|(share, value)| [share, value as f64]).collect()
    };
    let mut chart = Chart::percentiles("Round-trip times", "round-trip time");
    chart = match (asked, got) {
        (Some(_), _) => chart.about("Asked for of the path, one value a client, and got, one value a handshake."),
        (None, _) => chart.about("Of handshakes, as the wire shows them."),
    };
    if let Some(asked) = asked.filter(|q| q.count > 0) {
        chart = chart.series(Series::line("asked", curve(asked)).color(0).asked());
    }
    if let Some(got) = got.filter(|q| q.count > 0) {
        chart = chart.series(Series::line("got", curve(got)).color(1));
    }
    paged::drawing(&Figure::Chart(chart), "rtt".to_owned())
}

/// The same as the report has it.
fn of_distance(bands: &[DistanceBand]) -> Vec<Piece> {
    let load = Load { by_distance: bands.to_vec(), ..Load::default() };
    pieces(&run_page::by_distance(&load), "by-distance")
}

/// Statuses and failures, as the report has them.
fn answers(records: &Records) -> Vec<Section> {
    let mut load = Load::default();
    match (records.document().and_then(|document| document.load.as_ref()), records.standing.as_ref()) {
        (Some(ended), _) => (load.status, load.failed) = (ended.status.clone(), ended.failed.clone()),
        (None, Some(RunProgress { load: Some(so_far), .. })) => {
            (load.status, load.failed) = (so_far.status.clone(), so_far.failed.clone());
        }
        _ => return Vec::new(),
    }
    let mut section = Section::new("answers", "Answers");
    section.pieces = pieces(&run_page::failures(&load), "answers");
    vec![section]
}

/// What is a number and no plot: path, server.
fn tables(records: &Records) -> Vec<Section> {
    let mut sections = Vec::new();
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let standing = records.standing.as_ref();
    let path = match records.document().and_then(|document| document.path.as_ref()) {
        Some(path) => {
            Some((&path.profile, path.clients, path.packets, path.bytes, &path.drops, Some(path.timing_error_ns)))
        }
        None => standing
            .and_then(|standing| standing.path.as_ref())
            .map(|path| (&path.profile, path.clients, path.packets, path.bytes, &path.drops, path.timing_error_ns)),
    };
    if let Some((profile, clients, packets, carried, drops, lateness)) = path {
        let mut rows = vec![
            row("profile", profile.clone()),
            row("clients", count(clients)),
            row("packets", count(packets)),
            row("bytes", bytes(carried)),
        ];
        if let Some(lateness) = lateness.filter(|lateness| lateness.count > 0) {
            rows.push(row("late by, 99 % within", duration(lateness.p99)));
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
            rows.push(row("held back by its share, last second", format!("{throttled:.2} s")));
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
fn measured_s(standing: &RunProgress) -> f64 {
    let from = LOAD_BEGINS_S + standing.warmup_s;
    (standing.at_s - from).clamp(0.0, standing.duration_s.unwrap_or(f64::MAX).max(0.0))
}

fn whole_s(seconds: f64) -> String {
    format!("{:.0} s", seconds.floor())
}

/// Between the run's zero and its first request (docs/concepts/columns.md).
const LOAD_BEGINS_S: f64 = 0.05;
