//! Rows: the paper's figures and the measured ones.

use schema::ReproductionRow;

use super::capture::CaptureFigures;
use super::{CLIENTS, KoshienExperiment, Setting};

/// Figures of one experiment with one TCP setting.
#[derive(Debug)]
pub struct KoshienMeasurement {
    /// The experiment.
    pub experiment: &'static KoshienExperiment,
    /// The TCP setting.
    pub setting: Setting,
    /// Figures from the packet capture.
    pub capture: CaptureFigures,
    /// Configured RTTs of the clients, in ns, ascending.
    pub configured_rtts_ns: Vec<u64>,
}

impl KoshienMeasurement {
    /// Mean configured RTT of the clients, in ns.
    fn configured_mean_ns(&self) -> f64 {
        self.configured_rtts_ns.iter().sum::<u64>() as f64 / self.configured_rtts_ns.len().max(1) as f64
    }

    /// Configured RTT at the quantile `q` of the clients, which all send equally many requests, in ns.
    fn configured_at(&self, q: f64) -> Option<u64> {
        at_step(&self.configured_rtts_ns, self.configured_rtts_ns.len(), q)
    }
}

/// Quantity of the main figure. The paper's term is "connections in process".
pub const CONNECTIONS_MEAN: &str = "concurrent connections, mean";
/// The second with the fewest connections.
pub const CONNECTIONS_LOW: &str = "concurrent connections, lowest second";
/// The second with the most connections.
pub const CONNECTIONS_HIGH: &str = "concurrent connections, highest second";
/// Median of the handshake RTTs.
pub const RTT_MEDIAN: &str = "RTT at the server, 50 % of connections below";
/// Requests per second.
pub const ARRIVALS_MEAN: &str = "request arrivals, mean";
/// Experiment 5 over experiment 2.
pub const RATIO: &str = "concurrent connections, ratio";
/// Quantiles of the RTT to compare with the configured ones.
const QUANTILES: [f64; 5] = [0.1, 0.25, 0.5, 0.75, 0.9];

/// Rows of all experiments.
pub fn rows(measurements: &[KoshienMeasurement]) -> Vec<ReproductionRow> {
    let mut rows = Vec::new();
    for one in measurements {
        rows.extend(connections(one));
        rows.extend(rtts(one));
        rows.extend(arrivals(one));
    }
    rows.extend(Setting::ALL.iter().filter_map(|setting| five_over_two(measurements, *setting)));
    rows
}

fn row(measurement: &KoshienMeasurement, quantity: &str, unit: &str) -> ReproductionRow {
    ReproductionRow {
        experiment: measurement.experiment.number.to_string(),
        setting: measurement.setting.name().into(),
        quantity: quantity.into(),
        unit: unit.into(),
        ..ReproductionRow::default()
    }
}

fn connections(measurement: &KoshienMeasurement) -> [ReproductionRow; 3] {
    let spread = measurement.capture.connections();
    let note = match (measurement.experiment.number, measurement.setting) {
        (1 | 3, _) => "expected: near zero; the paper's hosts took about 45 ms per request even without distance",
        (2 | 4, Setting::Year2001) => "expected: 18 to 25; 4 round trips of 48 ms at 110/s are 21",
        (2 | 4, Setting::Today) => "expected: about 11; with an initial window of 10 segments it is 2 round trips",
        (_, Setting::Year2001) => "4 round trips per client, so the mean RTT counts",
        (_, Setting::Today) => "2 round trips per client, so the mean RTT counts",
    };
    let mean = ReproductionRow {
        published: measurement.experiment.published_connections.map(str::to_owned),
        measured: spread.map(|spread| spread.mean),
        note: note.into(),
        ..row(measurement, CONNECTIONS_MEAN, "connections")
    };
    let low = ReproductionRow {
        measured: spread.map(|spread| spread.low),
        ..row(measurement, CONNECTIONS_LOW, "connections")
    };
    let high = ReproductionRow {
        measured: spread.map(|spread| spread.high),
        ..row(measurement, CONNECTIONS_HIGH, "connections")
    };
    [mean, low, high]
}

fn rtts(measurement: &KoshienMeasurement) -> Vec<ReproductionRow> {
    let ms = |ns: u64| ns as f64 / 1e6;
    QUANTILES
        .iter()
        .filter(|q| **q == 0.5 || measurement.experiment.varied())
        .map(|&q| ReproductionRow {
            published: match (q == 0.5, measurement.experiment.number) {
                (true, 1 | 3) => Some("under 1".into()),
                (true, _) => Some("48".into()),
                // The paper has this curve without a table.
                (false, _) => None,
            },
            measured: at_step(&measurement.capture.rtts_ns, measurement.capture.opened, q).map(ms),
            note: measurement
                .configured_at(q)
                .map(|configured_ns| format!("{:.3} ms configured", ms(configured_ns)))
                .unwrap_or_default(),
            ..row(measurement, &format!("RTT at the server, {:.0} % of connections below", q * 100.0), "ms")
        })
        .collect()
}

/// The value just above the share `q` of `all` values, of which `rising` are known and the others are larger: in the
/// middle of a step of the distribution, since at its edge a single connection would decide between two clients.
fn at_step(rising: &[u64], all: usize, q: f64) -> Option<u64> {
    let middle = (q + 0.5 / f64::from(CLIENTS)) * all as f64;
    rising.get(middle as usize).copied()
}

fn arrivals(measurement: &KoshienMeasurement) -> [ReproductionRow; 2] {
    let spread = measurement.capture.arrivals();
    let mean = ReproductionRow {
        published: Some("110".into()),
        measured: spread.map(|spread| spread.mean),
        ..row(measurement, ARRIVALS_MEAN, "1/s")
    };
    let stddev = ReproductionRow {
        published: Some("flat".into()),
        measured: spread.map(|spread| spread.stddev),
        note: "standard deviation of the seconds, at the server: requests sent at equal intervals from different \
               distances do not arrive at equal intervals"
            .into(),
        ..row(measurement, "request arrivals, standard deviation", "1/s")
    };
    [mean, stddev]
}

fn five_over_two(measurements: &[KoshienMeasurement], setting: Setting) -> Option<ReproductionRow> {
    let of = |number: u8| measurements.iter().find(|one| one.experiment.number == number && one.setting == setting);
    let (two, five) = (of(2)?, of(5)?);
    let expected = five.configured_mean_ns() / two.configured_mean_ns();
    let here = five.capture.connections()?.mean / two.capture.connections()?.mean;
    Some(ReproductionRow {
        experiment: "5 over 2".into(),
        published: Some("about twice (60 to 25)".into()),
        measured: Some(here),
        note: format!(
            "expected: {expected:.2}, the profile's mean RTT of {:.0} ms over {:.0} ms; {:+.1} % from it",
            five.configured_mean_ns() / 1e6,
            two.configured_mean_ns() / 1e6,
            (here / expected - 1.0) * 100.0
        ),
        ..row(five, RATIO, "")
    })
}

#[cfg(test)]
mod tests {
    use super::super::EXPERIMENTS;
    use super::*;
    use schema::WatchSecond;

    fn measurement(
        number: usize,
        setting: Setting,
        connections_mean: f64,
        configured_rtts_ns: Vec<u64>,
    ) -> KoshienMeasurement {
        let second = |second| WatchSecond { second, connections_mean, requests: 110, ..WatchSecond::default() };
        let capture = CaptureFigures {
            seconds: (0..10).map(second).collect(),
            steady: 2..9,
            opened: configured_rtts_ns.len(),
            // The two most distant clients have no RTT.
            rtts_ns: configured_rtts_ns.iter().take(98).map(|rtt_ns| rtt_ns + 50_000).collect(),
        };
        KoshienMeasurement { experiment: &EXPERIMENTS[number - 1], setting, capture, configured_rtts_ns }
    }

    fn here(rows: &[ReproductionRow], experiment: &str, quantity: &str) -> f64 {
        rows.iter().find(|row| row.experiment == experiment && row.quantity == quantity).unwrap().measured.unwrap()
    }

    #[test]
    fn rows_have_published_and_measured_figures() {
        let koshien: Vec<u64> = (0..100).map(|i| 9_000_000 + i * 2_000_000).collect();
        let two = measurement(2, Setting::Year2001, 21.0, vec![48_000_000; 100]);
        let five = measurement(5, Setting::Year2001, 47.25, koshien);
        let rows = rows(&[two, five, measurement(1, Setting::Today, 0.04, vec![0; 100])]);
        assert_eq!(here(&rows, "2", CONNECTIONS_MEAN), 21.0);
        assert_eq!(here(&rows, "5 over 2", RATIO), 2.25);
        let ratio = rows.iter().find(|row| row.experiment == "5 over 2").unwrap();
        assert!(ratio.note.starts_with("expected: 2.25") && ratio.note.contains("+0.0 %"), "{}", ratio.note);
        assert_eq!(here(&rows, "5", RTT_MEDIAN), 109.05);
        assert_eq!(here(&rows, "5", "RTT at the server, 90 % of connections below"), 189.05);
        assert_eq!(rows.iter().filter(|row| row.experiment == "2" && row.quantity.starts_with("RTT")).count(), 1);
        assert_eq!(rows.iter().filter(|row| row.experiment == "5" && row.quantity.starts_with("RTT")).count(), 5);
        assert_eq!(here(&rows, "1", ARRIVALS_MEAN), 110.0);
    }

    #[test]
    fn ratio_needs_both_experiments_of_a_setting() {
        let two = measurement(2, Setting::Year2001, 21.0, vec![48_000_000]);
        let five = measurement(5, Setting::Today, 24.0, vec![108_000_000]);
        assert!(rows(&[two, five]).iter().all(|row| row.experiment != "5 over 2"));
    }
}
