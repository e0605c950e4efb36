//! Rows: the paper's tables and the measured figures.

use schema::{Document, ReproductionRow};

use super::paper::{PUBLISHED, Published, SIZES, Size};
use super::{ComparedServer, PathSetting, REQUESTS};
use stats::median;

/// Figures of one measurement.
#[derive(Clone, Debug)]
pub struct DserverMeasurement {
    pub server: ComparedServer,
    pub way: PathSetting,
    pub size: &'static Size,
    /// From the first request's start to the last one's end.
    pub taken_s: f64,
    /// Complete responses of status 200.
    pub completed: u64,
    /// Failed requests.
    pub missing: u64,
    /// Heads and bodies received.
    pub bytes: u64,
}

impl DserverMeasurement {
    /// The figures of one run.
    pub fn of(
        server: ComparedServer,
        way: PathSetting,
        size: &'static Size,
        document: &Document,
    ) -> DserverMeasurement {
        let load = document.load.as_ref();
        let good = load.and_then(|load| load.status.get("200").copied()).unwrap_or(0);
        let completed = load.map_or(0, |load| load.completed).min(good);
        DserverMeasurement {
            server,
            way,
            size,
            taken_s: document.run.duration_s,
            completed,
            missing: load.map_or(0, |load| load.offered_requests).saturating_sub(completed),
            bytes: load.map_or(0, |load| load.bytes_received),
        }
    }

    fn per_second(&self) -> f64 {
        self.completed as f64 / self.taken_s
    }

    /// In the paper's unit: thousands of bytes, heads included.
    fn kb_per_s(&self) -> f64 {
        self.bytes as f64 / 1000.0 / self.taken_s
    }
}

/// Quantity of the paper's first table.
pub const TAKEN: &str = "time taken, of 1000 requests";
/// Quantity of the second table.
pub const PER_SECOND: &str = "requests per second";
/// Quantity of the third table.
pub const KB_PER_S: &str = "transfer rate";
/// Requests per second relative to Apache.
pub const OVER_APACHE: &str = "requests per second, relative to Apache";

/// Network and server, as the setting of a row.
pub fn setting(way: PathSetting, server: ComparedServer) -> String {
    format!("{}, {}", way.name(), server.name())
}

/// Rows of all measurements: with the link and without, by size and server; then the paper's Windows figures, which are
/// not reproduced.
pub fn rows(measurements: &[DserverMeasurement]) -> Vec<ReproductionRow> {
    let mut rows = Vec::new();
    let sizes = || SIZES.iter().filter(|size| measurements.iter().any(|one| one.size.name == size.name));
    for way in PathSetting::ALL {
        for size in sizes() {
            for server in ComparedServer::ALL {
                rows.extend(of_one(measurements, way, size, server));
            }
        }
    }
    for size in sizes() {
        for (at, who) in PUBLISHED.iter().enumerate().skip(2) {
            rows.extend(tables(size, who, Some(&size.published[at]), [None; 3], "not reproduced"));
        }
    }
    rows
}

fn of_one(
    measurements: &[DserverMeasurement],
    way: PathSetting,
    size: &Size,
    server: ComparedServer,
) -> Vec<ReproductionRow> {
    let of = |server: ComparedServer| {
        measurements.iter().filter(move |one| one.way == way && one.size.name == size.name && one.server == server)
    };
    let rounds = of(server).count();
    if rounds == 0 {
        return Vec::new();
    }
    // The paper has no figures without a path.
    let published = |server: ComparedServer| match (way, server) {
        (PathSetting::Link, ComparedServer::Apache) => Some(&size.published[0]),
        (PathSetting::Link, ComparedServer::Yamabiko) => Some(&size.published[1]),
        _ => None,
    };
    let note = match (way, server) {
        (PathSetting::Link, ComparedServer::Apache) => format!("published: {}", PUBLISHED[0]),
        (PathSetting::Link, ComparedServer::Yamabiko) => format!("published: {}", PUBLISHED[1]),
        (PathSetting::Link, ComparedServer::Nginx) => "not in the paper".to_owned(),
        (PathSetting::Direct, _) => format!("median of {rounds} rounds"),
    };
    let here = [DserverMeasurement::taken, DserverMeasurement::per_second, DserverMeasurement::kb_per_s]
        .map(|figure| Some(median(of(server).map(figure))));
    let mut rows = tables(size, &setting(way, server), published(server), here, &note);
    let apache = median(of(ComparedServer::Apache).map(DserverMeasurement::per_second));
    if server != ComparedServer::Apache && apache.is_finite() {
        let number = |published: Option<&Published>| published.and_then(|one| one.per_second.parse::<f64>().ok());
        let paper = number(published(server)).zip(number(published(ComparedServer::Apache)));
        rows.push(ReproductionRow {
            published: paper.map(|(ours, theirs)| format!("{:.2}", ours / theirs)),
            measured: here[1].map(|ours| ours / apache),
            ..row(size, &setting(way, server), OVER_APACHE, "")
        });
    }
    rows
}

impl DserverMeasurement {
    /// Converted to the paper's number of requests.
    fn taken(&self) -> f64 {
        self.taken_s * REQUESTS as f64 / self.completed as f64
    }
}

fn tables(
    size: &Size,
    setting: &str,
    published: Option<&Published>,
    here: [Option<f64>; 3],
    note: &str,
) -> Vec<ReproductionRow> {
    let figures: [(&str, &str, Option<&str>); 3] = [
        (TAKEN, "s", published.map(|one| one.taken_s)),
        (PER_SECOND, "1/s", published.map(|one| one.per_second)),
        (KB_PER_S, "KB/s", published.map(|one| one.kb_per_s)),
    ];
    let put = |((quantity, unit, paper), here): ((&str, &str, Option<&str>), Option<f64>)| ReproductionRow {
        published: paper.map(str::to_owned),
        measured: here.filter(|here| here.is_finite()),
        note: note.to_owned(),
        ..row(size, setting, quantity, unit)
    };
    figures.into_iter().zip(here).map(put).collect()
}

fn row(size: &Size, setting: &str, quantity: &str, unit: &str) -> ReproductionRow {
    ReproductionRow {
        experiment: size.name.into(),
        setting: setting.into(),
        quantity: quantity.into(),
        unit: unit.into(),
        ..ReproductionRow::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(server: ComparedServer, way: PathSetting, size: usize, taken_s: f64) -> DserverMeasurement {
        let size = &SIZES[size];
        DserverMeasurement { server, way, size, taken_s, completed: 1000, missing: 0, bytes: 1000 * (size.bytes + 276) }
    }

    fn find<'a>(rows: &'a [ReproductionRow], experiment: &str, setting: &str, quantity: &str) -> &'a ReproductionRow {
        let is =
            |row: &&ReproductionRow| row.experiment == experiment && row.setting == setting && row.quantity == quantity;
        rows.iter().find(is).unwrap_or_else(|| panic!("no row {experiment}, {setting}, {quantity}"))
    }

    #[test]
    fn rows_have_published_and_measured_figures_in_the_papers_units() {
        let all = [
            measurement(ComparedServer::Apache, PathSetting::Link, 0, 8.110),
            measurement(ComparedServer::Yamabiko, PathSetting::Link, 0, 4.055),
            measurement(ComparedServer::Nginx, PathSetting::Link, 0, 8.110),
            measurement(ComparedServer::Apache, PathSetting::Direct, 0, 0.3),
            measurement(ComparedServer::Apache, PathSetting::Direct, 0, 0.1),
            measurement(ComparedServer::Apache, PathSetting::Direct, 0, 0.2),
        ];
        let rows = rows(&all);
        let apache = |quantity: &str| find(&rows, "1 KB", "100 Mbit/s, Apache", quantity);
        assert_eq!((apache(TAKEN).published.as_deref(), apache(TAKEN).measured), (Some("8.110"), Some(8.110)));
        // The same bytes in the same time give the paper's own figure, up to the rounding of its head length.
        let kb_per_s = apache(KB_PER_S).measured.unwrap();
        assert!((kb_per_s - 160.62).abs() < 0.5, "{kb_per_s}");
        let ratio = find(&rows, "1 KB", "100 Mbit/s, yamabiko", OVER_APACHE);
        assert_eq!((ratio.published.as_deref(), ratio.measured), (Some("2.08"), Some(2.0)));
        assert!(find(&rows, "1 KB", "100 Mbit/s, nginx", PER_SECOND).published.is_none());
        assert_eq!(find(&rows, "1 KB", "no path, Apache", TAKEN).measured, Some(0.2));
        let windows = find(&rows, "1 KB", "Windows Apache", PER_SECOND);
        assert_eq!((windows.published.as_deref(), windows.measured), (Some("409.33"), None));
        assert!(rows.iter().all(|row| row.experiment == "1 KB"), "only the requested sizes");
    }

    #[test]
    fn missing_measurement_has_no_row() {
        assert!(rows(&[]).is_empty());
        let alone = rows(&[measurement(ComparedServer::Yamabiko, PathSetting::Direct, 3, 1.0)]);
        assert!(alone.iter().all(|row| row.quantity != OVER_APACHE), "a ratio needs both servers");
    }
}
