//! The result, the notes, and a line per point.

use schema::{Reproduction, ReproductionRow};

use super::rows;
use crate::{Summary, level};

/// Notes on the comparison with the papers.
pub const NOTES: [&str; 4] = [
    "The papers' client and server are other programs: nginx, and Proxygen, curl, Chrome, wget, quiche and aioquic; \
     quic-go and Chrome's. Sign and order are compared, not the figures themselves.",
    "The first paper's abstract states its largest gain, 81.5 % in cases of extreme loss, without its point: it is \
     compared with the largest loss and delay here.",
    "The second paper's cause is the receiver's processing, packet by packet in user space. The share of the client's \
     core in use is stated for that: where it is near 100 %, the client was the limit, and the run is invalid.",
    "Each download has a new connection, so a handshake of one round trip less is part of each time.",
];

/// The result in one sentence.
pub fn result_sentence(all: &[ReproductionRow]) -> String {
    let gains: Vec<(&str, f64)> = all
        .iter()
        .filter(|row| row.quantity == rows::GAIN)
        .filter_map(|row| Some((row.experiment.as_str(), row.measured?)))
        .collect();
    let deficits: Vec<String> = all
        .iter()
        .filter(|row| row.quantity == rows::DEFICIT)
        .filter_map(|row| {
            let rate = row.experiment.split(',').next()?;
            Some(format!("{} % at {rate}", level(row.measured?)))
        })
        .collect();
    let mut sentences = Vec::new();
    let most = gains.iter().max_by(|one, other| one.1.total_cmp(&other.1));
    let least = gains.iter().min_by(|one, other| one.1.total_cmp(&other.1));
    if let (Some((at_most, most)), Some((at_least, least))) = (most, least) {
        let better = gains.iter().filter(|(_, gain)| *gain > 0.0).count();
        sentences.push(format!(
            "HTTP/3 takes less time than HTTP/2 at {better} of {} points, from {} % ({at_least}) to {} % ({at_most})",
            gains.len(),
            level(*least),
            level(*most)
        ));
    }
    if !deficits.is_empty() {
        sentences.push(format!("without loss its throughput is less by {}", deficits.join(", ")));
    }
    if sentences.is_empty() {
        return "Some of the measurements, repeated.".to_owned();
    }
    format!("{}.", sentences.join("; "))
}

/// Makes the table from the rows.
pub fn summary(reproduction: &Reproduction) -> Summary {
    let mut lines = Vec::new();
    for row in &reproduction.rows {
        if row.quantity != rows::GAIN && row.quantity != rows::DEFICIT {
            continue;
        }
        let cell = |setting: &str, quantity: &str| {
            let is = |other: &&ReproductionRow| {
                other.experiment == row.experiment && other.setting == setting && other.quantity == quantity
            };
            let found = reproduction.rows.iter().find(is).and_then(|found| found.measured);
            found.map_or("-".into(), level)
        };
        // Less throughput is a negative gain.
        let sign = if row.quantity == rows::GAIN { 1.0 } else { -1.0 };
        let published = row.published.as_deref().map_or("-".into(), |text| {
            text.parse::<f64>().map_or_else(|_| text.to_owned(), |value| level(value * sign + 0.0))
        });
        lines.push(vec![
            row.experiment.clone(),
            cell("HTTP/2", rows::TIME),
            cell("HTTP/3", rows::TIME),
            published,
            row.measured.map_or("-".into(), |value| level(value * sign)),
            cell("HTTP/2", rows::CPU),
            cell("HTTP/3", rows::CPU),
        ]);
    }
    Summary {
        head: vec!["point", "HTTP/2 s", "HTTP/3 s", "% better, published", "% better", "CPU % HTTP/2", "CPU % HTTP/3"],
        lines,
        more: Vec::new(),
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(experiment: &str, quantity: &str, measured: f64) -> ReproductionRow {
        ReproductionRow {
            experiment: experiment.into(),
            quantity: quantity.into(),
            measured: Some(measured),
            ..ReproductionRow::default()
        }
    }

    #[test]
    fn the_sentence_has_the_extremes_and_the_fast_lines() {
        let rows = [
            row("10 Mbit/s, 0 ms, loss 0 %", rows::GAIN, -1.0),
            row("10 Mbit/s, 50 ms, loss 12 %", rows::GAIN, 60.0),
            row("1000 Mbit/s, 10 ms, loss 0 %", rows::DEFICIT, 30.0),
        ];
        let sentence = result_sentence(&rows);
        assert!(sentence.contains("at 1 of 2 points") && sentence.contains("60.0 %"), "{sentence}");
        assert!(sentence.contains("30.0 % at 1000 Mbit/s"), "{sentence}");
        assert_eq!(result_sentence(&[]), "Some of the measurements, repeated.");
    }
}
