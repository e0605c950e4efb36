//! The result and the notes.

use schema::{Reproduction, ReproductionRow};

use super::rows::{
    CACHE, CLOSE, CPU, DYNAMIC, FEATURES, FLOOD, FLOOD_RATIO_MAX, HIT_RATIO, MAX_OVER, MIX, P99_RATIO, PER_DAY,
    PER_SECOND, STATIC, STATIC_SHARE, find,
};
use super::site::Site;
use super::{CLIENTS, DirectoryOptions, NAME};
use crate::{Summary, level};
use experiment::local::CoreDivision;

/// Notes on the comparison with the paper.
pub const NOTES: [&str; 6] = [
    "The paper's throughputs were not tabulated: it says that MAX did about twice two general servers A and B, and \
     names neither servers nor machine. Only ratios and shares are comparable.",
    "CPU times are what the kernel charges to the server's processes. Receive processing (softirq) is charged to the \
     process that runs at that time, so on loopback a server's kernel time includes part of the client's receive \
     processing; softirq time of the core is shown separately and not added.",
    "Shares of user and kernel time are the kernel's estimates from clock ticks; their sum is exact.",
    "The paper's dynamic requests were those of its own directory; here they are two-word searches among 100,000 \
     entries in SQLite's full-text index by Python under gunicorn, with a result page each. That their CPU time has \
     the paper's order of magnitude is a coincidence.",
    "45 % static requests is our reading: with 6 ms and 16.5 ms it gives the paper's 23 % of CPU.",
    "Features are measured over epoll, each step as a server of its own with the same code; a feature's cost is the \
     median over rounds of the difference to the step below. A difference of a tenth of a microsecond is noise.",
];

/// The setup.
pub fn about(input: &DirectoryOptions, site: &Site, division: &CoreDivision) -> String {
    format!(
        "NTT DIRECTORY: Ayano, Motoda and Kawasaki (NTT Software Laboratories, about 1997), performance of the \
         components of an Internet directory system. {CLIENTS} clients and a page of 3 KB without a path, {}; {} per \
         measurement, interleaved where they are compared, medians. General servers: {} and {} with distribution \
         settings. Dynamic part: the directory of examples/{NAME} with {} entries, started by the server.",
        division.words(),
        units::format_duration(input.time),
        site.apache.version(),
        site.nginx.version(),
        input.entries,
    )
}

/// The result in one sentence.
pub fn result_sentence(rows: &[ReproductionRow]) -> String {
    let mut parts = Vec::new();
    if let (Some(apache), Some(nginx)) = (find(rows, CLOSE, "Apache", MAX_OVER), find(rows, CLOSE, "nginx", MAX_OVER)) {
        parts.push(format!(
            "MAX does {} times Apache and {} times nginx (published: about 2)",
            level(apache),
            level(nginx)
        ));
    }
    if let (Some(bare), Some(whole)) =
        (find(rows, FEATURES, "bare", CPU), find(rows, FEATURES, "complete server, epoll", CPU))
    {
        parts.push(format!(
            "all features together raise the CPU per request from {} to {} us",
            level(bare),
            level(whole)
        ));
    }
    if let (Some(page), Some(search), Some(per_day)) =
        (find(rows, STATIC, "all", CPU), find(rows, DYNAMIC, "all", CPU), find(rows, MIX, "45 % static", PER_DAY))
    {
        parts.push(format!(
            "a static request costs {} us of CPU and a search {} us, so one core serves {} million requests a day \
             with the paper's workload",
            level(page),
            level(search),
            level(per_day)
        ));
    }
    if let (Some(without), Some(with)) = (find(rows, CACHE, "without", CPU), find(rows, CACHE, "with", CPU)) {
        parts.push(format!("a result cache lowers the CPU per search from {} to {} us", level(without), level(with)));
    }
    let ratio = |case: &str| find(rows, FLOOD, &format!("{case}, flooded"), P99_RATIO);
    if let (Some(capped), Some(uncapped)) = (ratio("limited, least weight"), ratio("unlimited")) {
        parts.push(format!(
            "with searches at ten times the application's maximum, static p99 is {} times the unloaded one with a \
             CPU limit and static responses first ({}), and {} times without either",
            level(capped),
            if capped <= FLOOD_RATIO_MAX { "target: at most 1.1" } else { "above the target of 1.1" },
            level(uncapped)
        ));
    }
    let Some(first) = parts.first_mut() else { return "Some of the measurements, repeated.".to_owned() };
    if let Some(letter) = first.get_mut(..1) {
        letter.make_ascii_uppercase();
    }
    parts.join("; ") + "."
}

/// The main figures: not those by user and kernel.
pub fn summary(reproduction: &Reproduction) -> Summary {
    let shown = |row: &&ReproductionRow| {
        let quantity = row.quantity.as_str();
        [PER_SECOND, MAX_OVER, CPU, STATIC_SHARE, PER_DAY, HIT_RATIO, P99_RATIO].contains(&quantity)
            || (row.experiment == FLOOD)
    };
    let cells = |row: &ReproductionRow| {
        let unit = if row.unit.is_empty() { String::new() } else { format!(" ({})", row.unit) };
        vec![
            row.experiment.clone(),
            row.setting.clone(),
            format!("{}{unit}", row.quantity),
            row.published.clone().unwrap_or_else(|| "-".into()),
            row.measured.map_or("-".into(), level),
        ]
    };
    Summary {
        head: vec!["experiment", "setting", "quantity", "paper", "here"],
        lines: reproduction.rows.iter().filter(shown).map(cells).collect(),
        more: Vec::new(),
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{row, with_published};
    use super::*;

    #[test]
    fn result_names_the_measurements_made() {
        assert_eq!(result_sentence(&[]), "Some of the measurements, repeated.");
        let mut rows = vec![
            row(CACHE, "without", CPU, "us", 3000.0),
            row(CACHE, "with", CPU, "us", 100.0),
            row(FLOOD, "limited, least weight, flooded", P99_RATIO, "", 1.05),
            row(FLOOD, "unlimited, flooded", P99_RATIO, "", 40.0),
        ];
        assert_eq!(
            result_sentence(&rows),
            "A result cache lowers the CPU per search from 3000 to 100.0 us; with searches at ten times the \
             application's maximum, static p99 is 1.05 times the unloaded one with a CPU limit and static responses \
             first (target: at most 1.1), and 40.0 times without either."
        );
        rows.push(row(CLOSE, "Apache", MAX_OVER, "", 2.5));
        rows.push(with_published(row(CLOSE, "nginx", MAX_OVER, "", 1.25), Some("about 2"), ""));
        assert!(result_sentence(&rows).starts_with("MAX does 2.50 times Apache and 1.25 times"));
    }

    #[test]
    fn summary_has_a_cell_per_column() {
        let rows = vec![row(STATIC, "all", CPU, "us", 5.0), row(FEATURES, "bare", "CPU per request, user", "us", 1.0)];
        let summary = summary(&Reproduction { rows, ..Reproduction::default() });
        assert_eq!(summary.lines, [["static request", "all", "CPU per request (us)", "-", "5.00"]]);
        assert_eq!(summary.head.len(), 5);
    }
}
