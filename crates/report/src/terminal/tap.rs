//! Figures from the socket calls of programs (`tap`).

use schema::tap_part::{TapGroup, TapPart, TapSlice, TapView};
use schema::{Quantiles, Verdict};

use super::Style;
use super::load::{counted, distributions};
use super::page::{Ink, Page, shortened};
use crate::figures::{bytes, count, share};
use crate::phrases;

pub(super) fn print(page: &mut Page, part: &TapPart) {
    page.blank();
    programs(page, part);
    if let Some(lookups) = &part.lookups {
        let failed = phrases::total(&lookups.failed);
        let text = match failed {
            0 => format!("{} lookups, none failed", count(lookups.count)),
            _ => format!("{} lookups, {} failed: {}", count(lookups.count), count(failed), counted(&lookups.failed)),
        };
        page.entry_in("DNS", &text, if failed > 0 { Ink::Bad } else { Ink::Plain });
        distributions(page, "", &[("DNS lookup", &lookups.lookup_ns)]);
    }
    sides(page, part.client.as_ref(), part.server.as_ref());
    if part.client.is_none() && part.server.is_none() {
        page.entry("sockets", "no TCP connection");
    }
    if part.records_dropped > 0 || part.connections_left_out > 0 || part.connections_unfollowed > 0 {
        let text = format!(
            "{} of {} records dropped, as a ring was full; {} connections not tracked by the collector, {} not tracked in \
             their program",
            count(part.records_dropped),
            count(part.records.saturating_add(part.records_dropped)),
            count(part.connections_left_out),
            count(part.connections_unfollowed)
        );
        page.entry_in("lost", &text, Ink::Doubtful);
    }
}

/// The result of `tap slice` on one screen.
pub fn tap_slice(slice: &TapSlice, style: Style) -> String {
    let mut page = Page::new(style);
    let unread = slice.runs.iter().filter(|run| !run.unread.is_empty()).count();
    let doubtful = slice.runs.iter().filter(|run| run.verdict != Some(Verdict::Valid)).count();
    page.entry(
        "slice",
        &format!(
            "{} of {} rows of {} runs{}",
            count(slice.rows_taken),
            count(slice.rows),
            count(slice.runs.len() as u64),
            if slice.conditions.is_empty() { String::new() } else { format!(": {}", slice.conditions.join(", ")) }
        ),
    );
    if doubtful > 0 {
        let text = format!("{} of the runs are not valid, or did not end", count(doubtful as u64));
        page.entry_in("", &text, Ink::Doubtful);
    }
    for run in slice.runs.iter().filter(|run| !run.unread.is_empty()).take(NAMES_SHOWN) {
        page.entry_in("", &format!("{}: {}", run.id, run.unread), Ink::Doubtful);
    }
    if unread > NAMES_SHOWN {
        page.entry_in(
            "",
            &format!("and {} more that could not be read completely", unread - NAMES_SHOWN),
            Ink::Doubtful,
        );
    }
    if let Some(lookups) = &slice.lookups {
        distributions(&mut page, "", &[("DNS lookup", &lookups.lookup_ns)]);
    }
    sides(&mut page, slice.client.as_ref(), slice.server.as_ref());
    if let Some(by) = &slice.by {
        page.blank();
        groups(&mut page, by, &slice.groups);
    }
    page.into_text()
}

fn sides(page: &mut Page, client: Option<&TapView>, server: Option<&TapView>) {
    for (name, view) in [("client", client), ("server", server)] {
        if let Some(view) = view {
            page.blank();
            side(page, name, view);
        }
    }
}

fn programs(page: &mut Page, part: &TapPart) {
    let names = |coverage: &str| -> Vec<String> {
        let of = part.programs.iter().filter(|program| program.coverage == coverage);
        of.map(|program| match program.processes {
            0 | 1 => program.name.clone(),
            n => format!("{} x {}", program.name, count(n)),
        })
        .collect()
    };
    let seen = names("seen");
    page.entry("programs", &if seen.is_empty() { "none covered completely".to_owned() } else { some_of(&seen) });
    for program in part.programs.iter().filter(|program| program.coverage != "seen").take(NAMES_SHOWN) {
        page.entry_in(&program.coverage, &format!("{}: {}", program.name, program.why), Ink::Doubtful);
    }
    let more = names("partial").len() + names("unseen").len();
    if more > NAMES_SHOWN {
        page.entry_in("", &format!("and {} more that were not covered completely", more - NAMES_SHOWN), Ink::Doubtful);
    }
}

fn some_of(names: &[String]) -> String {
    let shown = names.iter().take(NAMES_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > NAMES_SHOWN { format!("{shown} and {} more", names.len() - NAMES_SHOWN) } else { shown }
}

fn side(page: &mut Page, name: &str, view: &TapView) {
    let mut counts = vec![format!("{} connections", count(view.connections))];
    let mut of = |n: u64, what: &str| {
        if n > 0 {
            counts.push(format!("{} {what}", count(n)));
        }
    };
    of(view.connections_failed, "failed to connect");
    of(view.connections_unused, "unused");
    of(view.connections_open_at_end, "open at the end");
    let connections = counts.join(", ");
    let cut = if view.exchanges_cut > 0 { format!(", {} cut off", count(view.exchanges_cut)) } else { String::new() };
    page.entry(name, &format!("{connections}; {} exchanges{cut}", count(view.exchanges)));
    let failed = phrases::total(&view.failed);
    if failed > 0 {
        let part = share(view.error_ratio.unwrap_or_default());
        page.entry_in("failed", &format!("{} ({part}): {}", count(failed), counted(&view.failed)), Ink::Bad);
    }
    if let Some(there) = &view.availability {
        let text = format!(
            "{} of {} attempts, {} of {} windows of {}",
            share(there.attempts),
            count(view.attempts),
            share(there.windows),
            count(there.windows_tried),
            phrases::span(there.window_s)
        );
        page.entry("available", &text);
    }
    let moved = format!("{} sent, {} received", bytes(view.sent_bytes_total), bytes(view.received_bytes_total));
    let again = if view.retransmits > 0 {
        format!(", {} segments retransmitted", count(view.retransmits))
    } else {
        String::new()
    };
    page.entry("bytes", &format!("{moved}{again}"));
    let times: &[(&str, &Quantiles)] = if name == "client" {
        &[
            ("connection set-up", &view.setup_ns),
            ("send time Ts", &view.send_ns),
            ("wait for response", &view.wait_ns),
            ("receive time Tr", &view.receive_ns),
            ("response time", &view.response_ns),
            ("connection time Tc", &view.connection_duration_ns),
            ("blocked in calls", &view.blocked_ns),
        ]
    } else {
        &[
            ("receive time", &view.receive_ns),
            ("processing time", &view.wait_ns),
            ("send time", &view.send_ns),
            ("response time", &view.response_ns),
            ("connection time", &view.connection_duration_ns),
            ("blocked in calls", &view.blocked_ns),
        ]
    };
    distributions(page, "", times);
    let amounts: Vec<Vec<String>> = [
        ("bytes sent Ds", &view.sent_bytes, ""),
        ("bytes received Dr", &view.received_bytes, ""),
        ("send rate Rs", &view.send_rate_bytes_per_s, "/s"),
        ("receive rate Rr", &view.receive_rate_bytes_per_s, "/s"),
        ("overall rate Ra", &view.overall_rate_bytes_per_s, "/s"),
    ]
    .into_iter()
    .filter(|(_, q, _)| q.count > 0)
    .map(|(name, q, per)| {
        let mut row = vec![name.to_owned(), count(q.count)];
        row.extend([q.mean.round() as u64, q.p50, q.p90, q.p99, q.max].map(|n| format!("{}{per}", bytes(n))));
        row
    })
    .collect();
    if !amounts.is_empty() {
        page.table(&["", "values", "mean", "p50", "p90", "p99", "max"], &amounts);
        page.entry("", phrases::TAP_SYMBOLS);
    }
}

fn groups(page: &mut Page, by: &str, groups: &[TapGroup]) {
    let available = page.width().saturating_sub(62).max(16);
    let mut rows: Vec<Vec<String>> = groups
        .iter()
        .take(GROUPS_SHOWN)
        .map(|group| {
            let mut row = vec![
                shortened(&group.name, available),
                count(group.connections),
                count(group.attempts),
                count(group.failed),
            ];
            row.extend(phrases::percentiles(&group.response_ns));
            row
        })
        .collect();
    if groups.len() > GROUPS_SHOWN {
        rows.push(vec![format!("and {} more (--json has all)", count((groups.len() - GROUPS_SHOWN) as u64))]);
    }
    page.table(&[&format!("by {by}"), "conns", "attempts", "failed", "p50", "p90", "p99", "max"], &rows);
    let shown = groups.iter().take(GROUPS_SHOWN).map(|group| &group.response_ns);
    if let Some(legend) = phrases::too_few_values_to_p99(shown) {
        page.entry("", &legend);
    }
}

/// Programs and runs named; the others are counted.
const NAMES_SHOWN: usize = 8;
/// Groups shown: the minutes of an hour.
const GROUPS_SHOWN: usize = 60;
