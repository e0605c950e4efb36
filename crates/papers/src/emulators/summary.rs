//! The result, the notes, and a line per figure with a column per emulator.

use schema::{Reproduction, ReproductionRow};

use super::peer::Emulator;
use super::points::{LINK_SHARE, PATHS_SERVED, RATE_ERROR, RTT_P99, SERVED};
use crate::{Summary, level};

/// Notes on the comparison.
pub const NOTES: [&str; 6] = [
    "The paper (arXiv 2507.08134) shows its figures 5 to 7 as curves on other hardware, so only their set-ups are \
     repeated, without published values.",
    "Every emulator carries the same chain of stages and is probed by the same program. Probes and emulators share \
     this machine's cores.",
    "Throughput is in IP bytes relative to the link: a TCP payload of 1448 bytes counts 1500. Flows use CUBIC, with a \
     queue of one bandwidth-delay product.",
    "mahimahi's rates are traces of whole packets at whole milliseconds, its delays are whole milliseconds, its \
     losses independent. rattan draws the same losses in every run.",
    "RTT errors contain the wake-up of the probe and its server, which loopback shows alone. CPU is that of the whole \
     machine, by the kernel's ticks.",
    "rattan's Gilbert model is its loss pattern [p, 1 - r], the probability after a received and after a lost packet.",
];

/// The result in one sentence.
pub fn result_sentence(rows: &[ReproductionRow]) -> String {
    let each = |what: &str, figure: &dyn Fn(&str) -> Option<String>| {
        let all: Vec<String> = Emulator::ALL
            .iter()
            .filter(|&&one| one != Emulator::Direct)
            .filter_map(|one| Some(format!("{} {}", one.name(), figure(one.name())?)))
            .collect();
        (!all.is_empty()).then(|| format!("{what}: {}", all.join(", ")))
    };
    let last = |setting: &str, quantity: &str, prefix: &str, holds: &dyn Fn(&ReproductionRow) -> bool| {
        let is = |row: &&ReproductionRow| {
            row.setting == setting && row.quantity == quantity && row.experiment.starts_with(prefix)
        };
        rows.iter().rfind(|row| is(row) && row.measured.is_some_and(|_| holds(row))).map(|row| {
            let name = row.experiment.split_once(": ").map_or(row.experiment.as_str(), |(_, rest)| rest);
            name.split(", 25 ms").next().unwrap_or(name).to_owned()
        })
    };
    let fills = |row: &ReproductionRow| row.measured.is_some_and(|value| value >= SERVED * 100.0);
    let parts = [
        each("RTT error p99 at 48 ms", &|setting| {
            let row = rows.iter().rfind(|row| row.setting == setting && row.quantity == RTT_P99)?;
            Some(format!("{} us", level(row.measured?)))
        }),
        each("Highest rate within 1 %", &|setting| {
            last(setting, RATE_ERROR, "rate ", &|row| row.measured.is_some_and(|value| value.abs() <= 1.0))
        }),
        each("Highest rate of which one flow fills 90 %", &|setting| last(setting, LINK_SHARE, "figure 5", &fills)),
        each("Longest chain with 90 % of the link", &|setting| last(setting, LINK_SHARE, "figure 6", &fills)),
        each("Most paths, all served", &|setting| {
            last(setting, PATHS_SERVED, "figure 7", &|row| {
                let paths = row.experiment.split(' ').find_map(|word| word.parse::<f64>().ok());
                row.measured >= paths
            })
        }),
    ];
    let sentences: Vec<String> = parts.into_iter().flatten().collect();
    match rows.iter().filter(|row| row.measured.is_some()).count() {
        0 => "No figure was measured.".into(),
        count if sentences.is_empty() => format!("{count} figures; the rows have them."),
        _ => format!("{}.", sentences.join(". ")),
    }
}

/// A line per figure, with a column per emulator.
pub fn summary(reproduction: &Reproduction) -> Summary {
    let mut keys: Vec<(&str, &str, &str)> = Vec::new();
    for row in &reproduction.rows {
        let key = (row.experiment.as_str(), row.quantity.as_str(), row.unit.as_str());
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let cell = |(experiment, quantity, _): (&str, &str, &str), emulator: Emulator| {
        let is = |row: &&ReproductionRow| {
            row.experiment == experiment && row.quantity == quantity && row.setting == emulator.name()
        };
        match reproduction.rows.iter().find(is) {
            Some(ReproductionRow { measured: Some(value), .. }) => level(*value),
            Some(row) => row.note.split(':').next().unwrap_or_default().to_owned(),
            None => "-".into(),
        }
    };
    let lines = keys
        .into_iter()
        .map(|key| {
            let names = [key.0.to_owned(), key.1.to_owned(), key.2.to_owned()];
            names.into_iter().chain(Emulator::ALL.map(|emulator| cell(key, emulator))).collect()
        })
        .collect();
    let [first, second, third, fourth] = Emulator::ALL.map(Emulator::name);
    Summary {
        head: vec!["path", "figure", "unit", first, second, third, fourth],
        lines,
        more: Vec::new(),
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{row, with_published};

    fn rows() -> Vec<ReproductionRow> {
        let flow = |rate: &str| format!("figure 5: one flow, {rate}, 25 ms each way");
        vec![
            row(&flow("100 Mbit/s"), "yamabiko", LINK_SHARE, "%", 97.0),
            row(&flow("1 Gbit/s"), "yamabiko", LINK_SHARE, "%", 95.0),
            row(&flow("1 Gbit/s"), "rattan", LINK_SHARE, "%", 50.0),
            with_published(row(&flow("1 Gbit/s"), "mahimahi", LINK_SHARE, "%", f64::NAN), None, "not run: not found"),
            row("figure 7: 8 paths, static", "yamabiko", PATHS_SERVED, "paths", 8.0),
            row("figure 7: 32 paths, static", "yamabiko", PATHS_SERVED, "paths", 31.0),
        ]
    }

    #[test]
    fn result_names_the_last_point_that_holds() {
        assert_eq!(
            result_sentence(&rows()),
            "Highest rate of which one flow fills 90 %: yamabiko one flow, 1 Gbit/s. Most paths, all served: yamabiko \
             8 paths, static."
        );
        assert_eq!(result_sentence(&[]), "No figure was measured.");
    }

    #[test]
    fn summary_has_a_column_per_emulator() {
        let summary = summary(&Reproduction { rows: rows(), ..Reproduction::default() });
        assert_eq!(summary.head.len(), summary.lines[0].len());
        assert_eq!(summary.lines[1][3..], ["95.0", "not run", "50.0", "-"]);
    }
}
