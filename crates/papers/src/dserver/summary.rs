//! The result, the notes, and a line per size and server.

use schema::{Reproduction, ReproductionRow};

use super::paper::SIZES;
use super::{ComparedServer, PathSetting, rows};
use crate::{Summary, level};

/// Notes on the comparison with the paper.
pub const NOTES: [&str; 5] = [
    "The paper's figures are its own tables. Its Dserver is compared with `yamabiko serve`: both are small and write \
     a log line per request, as the other servers do, but they are different programs.",
    "Serial requests measure the time of one request, not a server's maximum: the client waits for each response. \
     For the maximum use `cargo xtask bench serve`.",
    "The paper's KB/s are thousands of bytes and include heads: 11.02 requests a second of 1,048,576 bytes are \
     11,556, and the table says 11,558.57. They are counted the same way here; ab of today and `yamabiko ab` divide \
     by 1024.",
    "At 100 Mbit/s a file of 100 KB or 1 MB takes the link's time with any server: 1 MB at 12.2 MB/s less packet \
     headers. The paper's Dserver was slower there (0.89 of Apache) because it did not keep the link busy.",
    "The paper's hosts took 4 to 8 ms for a request of 1 KB, a thousand times today's; only ratios are comparable.",
];

/// The result in one sentence.
pub fn result_sentence(all: &[ReproductionRow]) -> String {
    let ratio = |size: &str, way: PathSetting| {
        let setting = rows::setting(way, ComparedServer::Yamabiko);
        let is = |row: &&ReproductionRow| {
            row.experiment == size && row.setting == setting && row.quantity == rows::OVER_APACHE
        };
        all.iter().find(is)
    };
    let ways: Vec<String> = PathSetting::ALL
        .iter()
        .filter_map(|&way| {
            let each: Vec<String> = SIZES
                .iter()
                .filter_map(|size| {
                    let row = ratio(size.name, way)?;
                    let paper = row.published.as_deref().map(|paper| format!(" (published: {paper})"));
                    Some(format!("{} times at {}{}", level(row.measured?), size.name, paper.unwrap_or_default()))
                })
                .collect();
            (!each.is_empty()).then(|| format!("{}: {}", way_in_words(way), each.join(", ")))
        })
        .collect();
    if ways.is_empty() {
        return "Some of the measurements, repeated.".to_owned();
    }
    let behind: Vec<&str> = SIZES
        .iter()
        .filter(|size| {
            PathSetting::ALL
                .iter()
                .any(|&way| ratio(size.name, way).and_then(|row| row.measured).is_some_and(|it| it < 1.0))
        })
        .map(|size| size.name)
        .collect();
    let verdict = if behind.is_empty() {
        "it is faster at every size".to_owned()
    } else {
        format!("it is not faster at {}", behind.join(", "))
    };
    format!("Requests a second of the minimal server relative to Apache, {}; {verdict}.", ways.join("; "))
}

fn way_in_words(way: PathSetting) -> &'static str {
    match way {
        PathSetting::Link => "through 100 Mbit/s",
        PathSetting::Direct => "without a path",
    }
}

/// Makes the three tables from the rows.
pub fn summary(reproduction: &Reproduction) -> Summary {
    let mut lines = Vec::new();
    for row in reproduction.rows.iter().filter(|row| row.quantity == rows::TAKEN) {
        let cell = |quantity: &str| {
            let is = |other: &&ReproductionRow| {
                other.experiment == row.experiment && other.setting == row.setting && other.quantity == quantity
            };
            let found = reproduction.rows.iter().find(is);
            let paper = found.and_then(|found| found.published.clone()).unwrap_or_else(|| "-".into());
            let here = found.and_then(|found| found.measured).map_or("-".into(), here);
            [paper, here]
        };
        let [taken, per_second, kb_per_s] = [rows::TAKEN, rows::PER_SECOND, rows::KB_PER_S].map(cell);
        lines.push(
            [vec![format!("{}, {}", row.experiment, row.setting)], [taken, per_second, kb_per_s].concat()].concat(),
        );
    }
    Summary {
        head: vec![
            "size, way, server",
            "s for 1000, published",
            "s",
            "req/s, published",
            "req/s",
            "KB/s, published",
            "KB/s",
        ],
        lines,
        more: Vec::new(),
        notes: Vec::new(),
    }
}

/// Times of some milliseconds need more digits than rates.
fn here(value: f64) -> String {
    if value < 0.995 { format!("{value:.4}") } else { level(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(experiment: &str, setting: &str, quantity: &str, paper: Option<&str>, here: f64) -> ReproductionRow {
        ReproductionRow {
            experiment: experiment.into(),
            setting: setting.into(),
            quantity: quantity.into(),
            published: paper.map(str::to_owned),
            measured: Some(here),
            ..ReproductionRow::default()
        }
    }

    #[test]
    fn result_names_sizes_at_which_the_server_is_slower() {
        let mut rows = vec![
            row("1 KB", "100 Mbit/s, yamabiko", rows::OVER_APACHE, Some("2.08"), 2.5),
            row("1 KB", "no path, yamabiko", rows::OVER_APACHE, None, 3.0),
        ];
        assert_eq!(
            result_sentence(&rows),
            "Requests a second of the minimal server relative to Apache, through 100 Mbit/s: 2.50 times at 1 KB \
             (published: 2.08); without a path: 3.00 times at 1 KB; it is faster at every size."
        );
        rows.push(row("1 MB", "100 Mbit/s, yamabiko", rows::OVER_APACHE, Some("0.89"), 0.99));
        assert!(result_sentence(&rows).ends_with("it is not faster at 1 MB."));
        assert_eq!(result_sentence(&[]), "Some of the measurements, repeated.");
    }

    #[test]
    fn summary_has_a_line_per_size_and_server() {
        let rows = vec![
            row("1 KB", "100 Mbit/s, Apache", rows::TAKEN, Some("8.110"), 0.25),
            row("1 KB", "100 Mbit/s, Apache", rows::PER_SECOND, Some("123.46"), 4000.4),
        ];
        let summary = summary(&Reproduction { rows, ..Reproduction::default() });
        assert_eq!(summary.lines, [["1 KB, 100 Mbit/s, Apache", "8.110", "0.2500", "123.46", "4000", "-", "-"]]);
        assert_eq!(summary.head.len(), summary.lines[0].len());
    }
}
