//! All shards of a load that several machines make, as shard 0 was told: a section of its live page.

use schema::document::ClockOffset;
use schema::{ShardProgress, ShardState, ShardsProgress};

use super::follow::Records;
use super::state::{Piece, Section, Table, Text};
use crate::figures::{count, duration, plain, rate};

/// Age of the file, against the run's own progress, from which it is called old.
const AGE_MAX_S: u64 = 5;
/// Largest number of rows: a browser cannot redraw more each second.
const ROWS_MAX: usize = 500;
/// Most machines that a sentence names.
const NAMED_MAX: usize = 8;

const HEAD: [&str; 10] =
    ["Shard", "Machine", "State", "Offered", "Achieved", "Errors", "p50", "p99", "Clock", "Last heard"];
const ABOUT: &str = "Rates are between a shard's last two reports, about a second apart. Errors include the warm-up. \
                     Percentiles are of each shard's measured phase so far; those of all shards together follow when \
                     their runs are merged. Clock: its offset from shard 0's before the load, and the bound of its error.";

/// The section; nothing for a load that no other shard makes.
pub(super) fn section(records: &Records) -> Option<Section> {
    let shards = records.shards.as_ref().filter(|shards| !shards.shards.is_empty())?;
    let text = |id: &str, text: String| Piece::Text(Text { id: id.to_owned(), text, verbatim: false });
    let mut section = Section::new("shards", "All shards").with(text("shards-lead", lead(shards)));
    if let Some(age_s) = records.shards_age_s.filter(|age_s| *age_s > AGE_MAX_S && !records.is_over()) {
        let old = format!("The coordinating process has written nothing for {age_s} s: this is what it knew then.");
        section = section.with(text("shards-age", old));
    }
    Some(section.with(Piece::Table(table(shards))).with(text("shards-about", ABOUT.to_owned())))
}

/// How many shards are in which state, and who is missing.
fn lead(shards: &ShardsProgress) -> String {
    let all = &shards.shards;
    let mut states: Vec<(ShardState, usize)> = Vec::new();
    for shard in all {
        match states.iter_mut().find(|(state, _)| *state == shard.state) {
            Some((_, number)) => *number += 1,
            None => states.push((shard.state, 1)),
        }
    }
    let states: Vec<String> = states.iter().map(|(state, number)| format!("{number} {}", state.words())).collect();
    let mut text = format!("{} shards: {}.", all.len(), states.join(", "));
    let missing: Vec<String> =
        all.iter().filter(|shard| is_missing(shard)).map(|shard| format!("{}/{}", shard.index, all.len())).collect();
    if !missing.is_empty() {
        let more =
            if missing.len() > NAMED_MAX { format!(" and {} more", missing.len() - NAMED_MAX) } else { String::new() };
        text += &format!(" Lost or failed: {}{more}.", missing[..missing.len().min(NAMED_MAX)].join(", "));
    }
    text
}

fn is_missing(shard: &ShardProgress) -> bool {
    matches!(shard.state, ShardState::Lost | ShardState::Failed)
}

fn table(shards: &ShardsProgress) -> Table {
    let all = &shards.shards;
    let mut order: Vec<&ShardProgress> = all.iter().collect();
    if order.len() > ROWS_MAX {
        // Those that are missing come first, so that they are shown.
        order.sort_by_key(|shard| !is_missing(shard));
    }
    let mut rows: Vec<Vec<String>> = order.into_iter().take(ROWS_MAX).map(row).collect();
    let total = &shards.total;
    let of = |number: u32| {
        if number as usize == all.len() { String::new() } else { format!(" of {number}") }
    };
    let sum = |value: Option<f64>| value.map_or_else(unknown, |value| rate(value) + &of(total.with_rates));
    rows.push(vec![
        "Sum".to_owned(),
        if all.len() > ROWS_MAX {
            format!("{} of {} are shown", count(ROWS_MAX as u64), count(all.len() as u64))
        } else {
            String::new()
        },
        String::new(),
        sum(total.offered_per_s),
        sum(total.achieved_per_s),
        total.errors.map_or_else(unknown, |errors| count(errors) + &of(total.with_errors)),
        String::new(),
        String::new(),
        String::new(),
        String::new(),
    ]);
    let head = HEAD.map(str::to_owned).to_vec();
    Table { id: "shards-table".to_owned(), head, left: vec![0, 1, 2], rows, ..Table::default() }
}

fn row(shard: &ShardProgress) -> Vec<String> {
    let times = shard.response_time.filter(|times| times.count > 0);
    let state = match shard.why.as_str() {
        "" => shard.state.words().to_owned(),
        why => format!("{}: {}", shard.state.words(), plain(why)),
    };
    let clock = match (shard.index, shard.clock) {
        (0, _) => "reference".to_owned(),
        (_, Some(clock)) => offset(clock),
        (_, None) => unknown(),
    };
    // Nothing more is to be heard of a shard whose run was received.
    let heard = match (shard.index, shard.silent_s.filter(|_| shard.state != ShardState::Done)) {
        (0, _) | (_, None) => String::new(),
        (_, Some(seconds)) => format!("{seconds} s ago"),
    };
    vec![
        shard.index.to_string(),
        plain(&shard.host),
        state,
        shard.offered_per_s.map_or_else(unknown, rate),
        shard.achieved_per_s.map_or_else(unknown, rate),
        shard.errors.map_or_else(unknown, count),
        times.map_or_else(unknown, |times| duration(times.p50_ns)),
        times.map_or_else(unknown, |times| duration(times.p99_ns)),
        clock,
        heard,
    ]
}

fn offset(clock: ClockOffset) -> String {
    let sign = if clock.offset_ns < 0 { "-" } else { "+" };
    format!("{sign}{} ± {}", duration(clock.offset_ns.unsigned_abs()), duration(clock.bound_ns))
}

fn unknown() -> String {
    "-".to_owned()
}
