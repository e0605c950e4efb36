//! The document in words.

use schema::{Reproduction, ReproductionRow};

use super::rows::{
    CACHE, CLOSE, CPU, DYNAMIC, FEATURES, FLOOD, FLOOD_RATIO_MAX, HIT_RATIO, MAX_OVER, MIX, P99_RATIO, PER_DAY,
    PER_SECOND, STATIC, STATIC_SHARE, find,
};
use super::site::Site;
use super::{CLIENTS, DirectoryOptions, NAME};
use crate::{Summary, level};
use experiment::local::CoreDivision;

/// What to know when comparing with the paper.
pub const NOTES: [&str; 6] = [
    "The paper's throughputs were never tabulated: it says that MAX did about twice what two general servers A and B did, \
     and names neither. Its machine is not named either; what can be compared are ratios and shares.",
    "CPU times are what the kernel charges to the server's processes. It charges the work of receiving (softirq) to \
     whoever runs at that moment, so on loopback a server's kernel time has a part of the client's receiving in it; \
     softirq of the core is shown apart and not added.",
    "Shares of user and kernel time are the kernel's estimates from ticks of its clock; their sum is exact.",
    "The paper's dynamic requests were its own directory's; here they are searches of two words among 100,000 entries \
     in SQLite's full-text index by Python under gunicorn, a result page each. That its CPU is of the paper's order is \
     chance: thirty years of hardware went into a language that needs them.",
    "45 % of requests static is our reading: with 6 ms and 16.5 ms it gives the paper's 23 % of CPU.",
    "Features are measured over epoll, each rung a server of its own with the same code; what a feature adds is the median \
     over rounds of the difference to the rung below it. A difference of a tenth of a microsecond is noise.",
];

/// What was made, and how.
pub fn about(asked: &DirectoryOptions, site: &Site, division: &CoreDivision) -> String {
    format!(
        "P3: Ayano, Motoda and Kawasaki (NTT Software Laboratories, about 1997), performance of the parts of an Internet \
         directory system. {CLIENTS} clients and a page of 3 KB without a path, {}; {} a measurement, those that are \
         compared turn and turn about, medians. General servers: {} and {} as distributions set them up. Dynamic part: \
         the directory of examples/{NAME} with {} entries, started by the server.",
        division.words(),
        units::format_duration(asked.time),
        site.apache.version(),
        site.nginx.version(),
        asked.entries,
    )
}

/// The answer in one sentence.
pub fn answer(rows: &[ReproductionRow]) -> String {
    let mut parts = Vec::new();
    if let (Some(apache), Some(nginx)) = (find(rows, CLOSE, "Apache", MAX_OVER), find(rows, CLOSE, "nginx", MAX_OVER)) {
        parts.push(format!(
            "MAX does {} times what Apache does and {} times what nginx does (the paper: about 2)",
            level(apache),
            level(nginx)
        ));
    }
    if let (Some(bare), Some(whole)) =
        (find(rows, FEATURES, "bare", CPU), find(rows, FEATURES, "the whole server, epoll", CPU))
    {
        parts.push(format!("all features together take a request from {} to {} us", level(bare), level(whole)));
    }
    if let (Some(page), Some(search), Some(per_day)) =
        (find(rows, STATIC, "all", CPU), find(rows, DYNAMIC, "all", CPU), find(rows, MIX, "45 % static", PER_DAY))
    {
        parts.push(format!(
            "a static request costs {} us of CPU and a search {} us, so one core carries {} million requests a day of the \
             paper's mix",
            level(page),
            level(search),
            level(per_day)
        ));
    }
    if let (Some(without), Some(with)) = (find(rows, CACHE, "without", CPU), find(rows, CACHE, "with", CPU)) {
        parts.push(format!("a cache of results takes a search from {} to {} us", level(without), level(with)));
    }
    let ratio = |case: &str| find(rows, FLOOD, &format!("{case}, flooded"), P99_RATIO);
    if let (Some(capped), Some(uncapped)) = (ratio("capped, least weight"), ratio("uncapped")) {
        parts.push(format!(
            "asked for ten times what the application can do, static p99 is {} times its unloaded one with a cap and \
             static answers first ({}), and {} times without either",
            level(capped),
            if capped <= FLOOD_RATIO_MAX { "1.1 is the most that is wanted" } else { "above the 1.1 that is wanted" },
            level(uncapped)
        ));
    }
    let Some(first) = parts.first_mut() else { return "Some of the measurements, made again.".to_owned() };
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
        remarks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::rows::{beside, row};
    use super::*;

    #[test]
    fn the_answer_says_what_was_made() {
        assert_eq!(answer(&[]), "Some of the measurements, made again.");
        let mut rows = vec![
            row(CACHE, "without", CPU, "us", 3000.0),
            row(CACHE, "with", CPU, "us", 100.0),
            row(FLOOD, "capped, least weight, flooded", P99_RATIO, "", 1.05),
            row(FLOOD, "uncapped, flooded", P99_RATIO, "", 40.0),
        ];
        assert_eq!(
            answer(&rows),
            "A cache of results takes a search from 3000 to 100.0 us; asked for ten times what the application can do, \
             static p99 is 1.05 times its unloaded one with a cap and static answers first (1.1 is the most that is \
             wanted), and 40.0 times without either."
        );
        rows.push(row(CLOSE, "Apache", MAX_OVER, "", 2.5));
        rows.push(beside(row(CLOSE, "nginx", MAX_OVER, "", 1.25), Some("about 2"), ""));
        assert!(answer(&rows).starts_with("MAX does 2.50 times what Apache does and 1.25 times"));
    }

    #[test]
    fn the_summary_has_a_cell_for_each_column() {
        let rows = vec![row(STATIC, "all", CPU, "us", 5.0), row(FEATURES, "bare", "CPU per request, user", "us", 1.0)];
        let summary = summary(&Reproduction { rows, ..Reproduction::default() });
        assert_eq!(summary.lines, [["static request", "all", "CPU per request (us)", "-", "5.00"]]);
        assert_eq!(summary.head.len(), 5);
    }
}
