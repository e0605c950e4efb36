//! The result, the notes, and a line per experiment.

use schema::{Reproduction, ReproductionRow};

use super::{RATE_PER_S, rows};
use crate::{Summary, level};

/// Notes on the comparison with the paper.
pub const NOTES: [&str; 5] = [
    "Published figures are the paper's text; its curves were not tabulated, so none of their points are shown. The \
     RTTs of experiment 5 are those of the profile koshien-2001, which is fitted to the published figures (median 48 \
     ms, almost all above 1 ms, widely spread), not measured.",
    "Without distance the paper had 4 to 6 concurrent connections (its term: connections in process) and here there \
     is almost none: its hosts took about 45 ms per request, today's less than 1 ms.",
    "With an initial window of 2 segments, as in 2001, a file of 10 KB takes 4 round trips from SYN to the last FIN: \
     handshake, request and first segments, two more flights of slow start, the last of which carries the close. At \
     110/s and 48 ms that is 21 connections. The paper's 25 include the 4 to 6 of its slow hosts.",
    "Today's initial window of 10 segments carries the file in one flight: 2 round trips, half the connections. This \
     changed since 2001; the effect of distance did not.",
    "Experiment 5 exceeds experiment 2 in connections by the ratio of its mean RTT to 48 ms. The paper says about \
     twice, and 60 against 25.",
];

/// The result in one sentence.
pub fn result_sentence(all: &[ReproductionRow]) -> String {
    let sentence = |ratio: &ReproductionRow| {
        let mean = |experiment: &str| {
            let of = |row: &&ReproductionRow| row.experiment == experiment && row.setting == ratio.setting;
            all.iter().filter(of).find(|row| row.quantity == rows::CONNECTIONS_MEAN)?.measured
        };
        let near = mean("1").map(|near| format!("{} concurrent connections without distance, ", level(near)));
        Some(format!(
            "With the server's TCP of {}, the same server at the same {RATE_PER_S:.0} requests a second has {}{} \
             {}with each user 48 ms away, and {} with users as far away as Koshien's: {:.2} times as many.",
            ratio.setting,
            near.as_deref().unwrap_or_default(),
            level(mean("2")?),
            if near.is_some() { "" } else { "concurrent connections " },
            level(mean("5")?),
            ratio.measured?,
        ))
    };
    all.iter()
        .filter(|row| row.quantity == rows::RATIO)
        .find_map(sentence)
        .unwrap_or_else(|| "Some of the five experiments, repeated.".to_owned())
}

/// Makes the table of main figures from the rows.
pub fn summary(reproduction: &Reproduction) -> Summary {
    let all = &reproduction.rows;
    let figure = |of: &ReproductionRow, quantity: &str| {
        let row = all
            .iter()
            .find(|row| row.experiment == of.experiment && row.setting == of.setting && row.quantity == quantity);
        row.and_then(|row| row.measured).map_or("-".to_owned(), level)
    };
    let lines = all
        .iter()
        .filter(|row| row.quantity == rows::CONNECTIONS_MEAN)
        .map(|row| {
            vec![
                format!("{}, TCP of {}", row.experiment, row.setting),
                row.published.clone().unwrap_or_else(|| "-".into()),
                row.measured.map_or("-".into(), level),
                figure(row, rows::CONNECTIONS_LOW),
                figure(row, rows::CONNECTIONS_HIGH),
                figure(row, rows::RTT_MEDIAN),
                figure(row, rows::ARRIVALS_MEAN),
            ]
        })
        .collect();
    let ratios = all
        .iter()
        .filter(|row| row.quantity == rows::RATIO)
        .map(|row| {
            let here = row.measured.map_or("-".into(), level);
            let paper = row.published.as_deref().unwrap_or("-");
            format!(
                "Experiment {}, TCP of {}: measured {here}; published {paper}. {}.",
                row.experiment, row.setting, row.note
            )
        })
        .collect();
    Summary {
        head: vec!["experiment", "paper", "connections", "low", "high", "RTT p50, ms", "arrivals/s"],
        lines,
        more: Vec::new(),
        notes: ratios,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(experiment: &str, setting: &str, quantity: &str, here: f64) -> ReproductionRow {
        ReproductionRow {
            experiment: experiment.into(),
            setting: setting.into(),
            quantity: quantity.into(),
            measured: Some(here),
            ..ReproductionRow::default()
        }
    }

    #[test]
    fn result_uses_figures_of_a_single_setting() {
        let mut rows = vec![
            row("2", "2001", rows::CONNECTIONS_MEAN, 21.2),
            row("2", "today", rows::CONNECTIONS_MEAN, 10.6),
            row("5", "today", rows::CONNECTIONS_MEAN, 23.8),
            row("5 over 2", "today", rows::RATIO, 2.25),
        ];
        assert_eq!(
            result_sentence(&rows),
            "With the server's TCP of today, the same server at the same 110 requests a second has 10.6 concurrent \
             connections with each user 48 ms away, and 23.8 with users as far away as Koshien's: 2.25 times as many."
        );
        rows.push(row("1", "today", rows::CONNECTIONS_MEAN, 0.03));
        assert!(result_sentence(&rows).contains("has 0.03 concurrent connections without distance, 10.6 with each"));
        assert_eq!(result_sentence(&rows[..3]), "Some of the five experiments, repeated.");
    }

    #[test]
    fn summary_has_a_line_per_experiment_and_setting() {
        let rows = vec![
            ReproductionRow { published: Some("about 25".into()), ..row("2", "2001", rows::CONNECTIONS_MEAN, 21.17) },
            row("2", "2001", rows::RTT_MEDIAN, 48.03),
            row("2", "today", rows::RTT_MEDIAN, 48.01),
        ];
        let summary = summary(&Reproduction { rows, ..Reproduction::default() });
        assert_eq!(summary.lines, [["2, TCP of 2001", "about 25", "21.2", "-", "-", "48.0", "-"]]);
        assert_eq!(summary.head.len(), 7);
        assert!(summary.notes.is_empty());
    }
}
