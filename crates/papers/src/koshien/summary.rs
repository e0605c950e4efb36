//! The document in words: the answer, what to know when comparing, and one line for each experiment.

use schema::{Reproduction, ReproductionRow};

use super::{RATE_PER_S, rows};
use crate::{Summary, level};

/// What to know when comparing with the paper.
pub const NOTES: [&str; 5] = [
    "The paper's figures are its own words and numbers; its curves were never tabulated, so none of their points are \
     shown. The RTTs of experiment 5 are those of the profile koshien-2001, which is fitted to the paper's published \
     figures (median 48 ms, almost all above 1 ms, widely spread), not measured.",
    "Without distance the paper had 4 to 6 connections in process and here there is almost none: its hosts needed \
     about 45 ms for a request, these need less than one.",
    "With a first window of 2 segments, as in 2001, a file of 10 KB takes 4 round trips from SYN to the last FIN: \
     handshake, request and first segments, two more flights of slow start, of which the last carries the close. At \
     110/s and 48 ms that is 21 connections. The paper's 25 had its 4 to 6 of slow hosts on top.",
    "Today's first window of 10 segments carries the file in one flight: 2 round trips, half the connections. That is \
     what changed since 2001, not the distance.",
    "Experiment 5 holds as many more connections than experiment 2 as its mean RTT is longer than 48 ms. The paper says \
     about twice, and 60 against 25.",
];

/// The answer in one sentence.
pub fn answer(all: &[ReproductionRow]) -> String {
    let sentence = |ratio: &ReproductionRow| {
        let mean = |experiment: &str| {
            let of = |row: &&ReproductionRow| row.experiment == experiment && row.setting == ratio.setting;
            all.iter().filter(of).find(|row| row.quantity == rows::CONNECTIONS_MEAN)?.measured
        };
        let near = mean("1").map(|near| format!("{} connections at once when its users are next door, ", level(near)));
        Some(format!(
            "With the server's TCP of {}, the same server at the same {RATE_PER_S:.0} requests a second holds {}{} {}when \
             each user is 48 ms away, and {} when they are as far away as Koshien's were: {:.2} times as many.",
            ratio.setting,
            near.as_deref().unwrap_or_default(),
            level(mean("2")?),
            if near.is_some() { "" } else { "connections at once " },
            level(mean("5")?),
            ratio.measured?,
        ))
    };
    all.iter()
        .filter(|row| row.quantity == rows::RATIO)
        .find_map(sentence)
        .unwrap_or_else(|| "Some of the five experiments, made again.".to_owned())
}

/// Draws the main figures out of the rows.
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
            format!("Experiment {}, TCP of {}: {here}; the paper: {paper}. {}.", row.experiment, row.setting, row.note)
        })
        .collect();
    Summary {
        head: vec!["experiment", "paper", "connections", "low", "high", "RTT p50, ms", "arrivals/s"],
        lines,
        more: Vec::new(),
        remarks: ratios,
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
    fn the_answer_takes_its_figures_from_one_setting() {
        let mut rows = vec![
            row("2", "2001", rows::CONNECTIONS_MEAN, 21.2),
            row("2", "today", rows::CONNECTIONS_MEAN, 10.6),
            row("5", "today", rows::CONNECTIONS_MEAN, 23.8),
            row("5 over 2", "today", rows::RATIO, 2.25),
        ];
        assert_eq!(
            answer(&rows),
            "With the server's TCP of today, the same server at the same 110 requests a second holds 10.6 connections at \
             once when each user is 48 ms away, and 23.8 when they are as far away as Koshien's were: 2.25 times as many."
        );
        rows.push(row("1", "today", rows::CONNECTIONS_MEAN, 0.03));
        assert!(answer(&rows).contains("holds 0.03 connections at once when its users are next door, 10.6 when each"));
        assert_eq!(answer(&rows[..3]), "Some of the five experiments, made again.");
    }

    #[test]
    fn one_line_for_each_experiment_and_setting() {
        let rows = vec![
            ReproductionRow { published: Some("about 25".into()), ..row("2", "2001", rows::CONNECTIONS_MEAN, 21.17) },
            row("2", "2001", rows::RTT_MEDIAN, 48.03),
            row("2", "today", rows::RTT_MEDIAN, 48.01),
        ];
        let summary = summary(&Reproduction { rows, ..Reproduction::default() });
        assert_eq!(summary.lines, [["2, TCP of 2001", "about 25", "21.2", "-", "-", "48.0", "-"]]);
        assert_eq!(summary.head.len(), 7);
        assert!(summary.remarks.is_empty());
    }
}
