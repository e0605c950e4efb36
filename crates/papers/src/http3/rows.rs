//! Rows: a point of loss, delay and bandwidth, both versions, and how they compare.

use std::time::Duration;

use plan::HttpVersion;
use schema::{Document, ReproductionRow};

use super::{DELAYS_MS, LOSSES, SLOW_MBIT};

/// Quantity: the median of a download's time.
pub const TIME: &str = "download time, median";
/// Quantity: how much less time HTTP/3 takes.
pub const GAIN: &str = "time saved by HTTP/3";
/// Quantity: how much less throughput HTTP/3 has.
pub const DEFICIT: &str = "throughput lost by HTTP/3";
/// Quantity: CPU time of the client.
pub const CPU: &str = "share of the client's core in use";

/// A point of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Bandwidth each way, Mbit/s.
    pub mbit: u64,
    /// Round-trip time.
    pub rtt: Duration,
    /// Loss each way, percent.
    pub loss: u32,
}

impl Place {
    /// Name in the rows.
    pub fn name(&self) -> String {
        format!("{} Mbit/s, {} ms, loss {} %", self.mbit, self.rtt.as_millis(), self.loss)
    }

    /// Name in those of runs.
    pub fn short_name(&self) -> String {
        format!("{}mbit-{}ms-loss{}", self.mbit, self.rtt.as_millis(), self.loss)
    }

    fn is_fast(&self) -> bool {
        self.mbit != SLOW_MBIT
    }

    /// The point of the first paper at which its largest gain was.
    fn is_extreme(&self) -> bool {
        !self.is_fast()
            && Some(&self.loss) == LOSSES.last()
            && Some(self.rtt.as_millis() as u64) == DELAYS_MS.last().copied()
    }
}

/// Figures of one run.
#[derive(Clone, Debug)]
pub struct Measurement {
    pub place: Place,
    pub version: HttpVersion,
    /// Median download time, seconds; `None` without a complete one.
    pub time_s: Option<f64>,
    /// Share of the time in which the load's loop, with the path, worked; `None` if unknown.
    pub cpu: Option<f64>,
}

impl Measurement {
    /// The figures of one run.
    pub fn of(place: Place, version: HttpVersion, document: &Document) -> Measurement {
        let times = document.load.as_ref().map(|load| load.response_time_ns).filter(|times| times.count > 0);
        Measurement {
            place,
            version,
            time_s: times.map(|times| times.p50 as f64 / 1e9),
            cpu: document.validity.checks.iter().find(|check| check.name == "client_cpu").and_then(|check| check.value),
        }
    }
}

/// The rows of all points.
pub fn rows(measurements: &[Measurement]) -> Vec<ReproductionRow> {
    let mut rows = Vec::new();
    let mut places: Vec<Place> = Vec::new();
    for one in measurements {
        if !places.contains(&one.place) {
            places.push(one.place);
        }
    }
    for place in places {
        let of = |version| measurements.iter().find(|one| one.place == place && one.version == version);
        let both = [HttpVersion::Http2, HttpVersion::Http3].map(|version| (version, of(version)));
        let row = |setting: &str, quantity: &str, unit: &str, measured: Option<f64>| ReproductionRow {
            experiment: place.name(),
            setting: setting.into(),
            quantity: quantity.into(),
            unit: unit.into(),
            measured,
            ..ReproductionRow::default()
        };
        for (version, one) in both {
            let setting = format!("HTTP/{}", version.name());
            rows.push(row(&setting, TIME, "s", one.and_then(|one| one.time_s)));
            if place.is_fast() {
                rows.push(row(&setting, CPU, "%", one.and_then(|one| one.cpu).map(|share| share * 100.0)));
            }
        }
        let [second, third] = both.map(|(_, one)| one.and_then(|one| one.time_s));
        let times = second.zip(third);
        if place.is_fast() {
            let deficit = times.map(|(second, third)| (1.0 - second / third) * 100.0);
            let (published, note) = match place.mbit {
                0..=599 => ("0", "published: no difference up to about 600 Mbit/s"),
                _ => ("45.2", "published: up to 45.2 % less, growing with the bandwidth"),
            };
            rows.push(ReproductionRow {
                published: Some(published.into()),
                note: note.into(),
                ..row("HTTP/3 against HTTP/2", DEFICIT, "%", deficit)
            });
        } else {
            let gain = times.map(|(second, third)| (1.0 - third / second) * 100.0);
            let extreme = place.is_extreme();
            rows.push(ReproductionRow {
                published: extreme.then(|| "81.5".into()),
                note: if extreme { "published: up to 81.5 % in cases of extreme loss".into() } else { String::new() },
                ..row("HTTP/3 against HTTP/2", GAIN, "%", gain)
            });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(mbit: u64, delay_ms: u64, loss: u32, version: HttpVersion, time_s: f64) -> Measurement {
        let place = Place { mbit, rtt: Duration::from_millis(delay_ms), loss };
        Measurement { place, version, time_s: Some(time_s), cpu: Some(0.5) }
    }

    #[test]
    fn gains_and_deficits_are_relative_to_http2() {
        let rows = rows(&[
            measurement(10, 50, 12, HttpVersion::Http2, 10.0),
            measurement(10, 50, 12, HttpVersion::Http3, 2.0),
            measurement(1_000, 10, 0, HttpVersion::Http2, 0.5),
            measurement(1_000, 10, 0, HttpVersion::Http3, 1.0),
        ]);
        let find = |quantity: &str| rows.iter().find(|row| row.quantity == quantity).unwrap();
        assert_eq!((find(GAIN).published.as_deref(), find(GAIN).measured), (Some("81.5"), Some(80.0)));
        assert_eq!((find(DEFICIT).published.as_deref(), find(DEFICIT).measured), (Some("45.2"), Some(50.0)));
        assert_eq!(
            rows.iter().filter(|row| row.quantity == CPU).map(|row| row.measured).collect::<Vec<_>>(),
            [Some(50.0); 2]
        );
    }

    #[test]
    fn a_point_with_one_version_has_no_comparison() {
        let rows = rows(&[measurement(10, 0, 0, HttpVersion::Http2, 1.0)]);
        let gain = rows.iter().find(|row| row.quantity == GAIN).unwrap();
        assert_eq!((gain.published.as_deref(), gain.measured), (None, None));
    }
}
