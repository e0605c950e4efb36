//! Distributions from files: quantile curves and samples.

use std::path::Path;
use std::time::Duration;

use super::Files;
use super::error::ProfileError;
use super::lines::{cells, content, content_error, line_error, read, typed_rtt};

/// A distribution by its quantiles: linear between points, constant beyond the first and the last. So no RTT lies
/// outside of the file's range.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Curve {
    /// (quantile, RTT in ns); quantiles rise, RTTs do not fall; at least one.
    points: Vec<(f64, u64)>,
}

impl Curve {
    /// From points in the order of a file.
    ///
    /// # Errors
    /// The index of the first invalid point (0 if there is no point at all), and the reason.
    pub(super) fn new(points: impl IntoIterator<Item = (f64, u64)>) -> Result<Self, (usize, String)> {
        let mut curve = Curve { points: Vec::new() };
        for (index, (quantile, rtt)) in points.into_iter().enumerate() {
            curve.push(quantile, rtt).map_err(|message| (index, message))?;
        }
        if curve.points.is_empty() { Err((0, "it has no point; give at least one".to_owned())) } else { Ok(curve) }
    }

    fn push(&mut self, quantile: f64, rtt: u64) -> Result<(), String> {
        if !(0.0..=1.0).contains(&quantile) {
            return Err(not_a_quantile(quantile));
        }
        if let Some(&(before, nearer)) = self.points.last() {
            if quantile <= before {
                return Err(format!("quantile {quantile} is not above its predecessor {before}; sort the rows"));
            }
            if rtt < nearer {
                return Err("the RTT is below its predecessor; sort the rows".to_owned());
            }
        }
        self.points.push((quantile, rtt));
        Ok(())
    }

    pub(super) fn at(&self, q: f64) -> Duration {
        let above = self.points.partition_point(|&(quantile, _)| quantile < q);
        let nanos = match (above.checked_sub(1).map(|below| self.points[below]), self.points.get(above)) {
            (Some((q0, rtt0)), Some(&(q1, rtt1))) => {
                rtt0 + ((q - q0) / (q1 - q0) * (rtt1 - rtt0) as f64).round() as u64
            }
            (None, Some(&(_, rtt))) | (Some((_, rtt)), None) => rtt,
            (None, None) => unreachable!("a curve has at least one point"),
        };
        Duration::from_nanos(nanos)
    }

    /// Number of points.
    pub(super) fn len(&self) -> usize {
        self.points.len()
    }

    /// Reads the CSV form: header `quantile,rtt` or `quantile,rtt_ns`.
    pub(super) fn read(file: &Path, files: Files<'_>) -> Result<Self, ProfileError> {
        Self::parse(&read("curve of quantiles", file, files)?, file)
    }

    fn parse(text: &str, file: &Path) -> Result<Self, ProfileError> {
        let mut lines = content(text);
        let header: Vec<&str> = lines.next().map(|(_, line)| cells(line).collect()).unwrap_or_default();
        let rtt_of: fn(&str) -> Result<u64, String> = match header[..] {
            ["quantile", "rtt"] => typed_rtt,
            ["quantile", "rtt_ns"] => rtt_ns,
            _ => return Err(line_error(file, 1, "the first line must be `quantile,rtt` or `quantile,rtt_ns`")),
        };
        let mut curve = Curve { points: Vec::new() };
        for (number, line) in lines {
            let wrong = |message: String| line_error(file, number, message);
            let [quantile, rtt] = cells(line).collect::<Vec<_>>()[..] else {
                return Err(wrong(format!(
                    "`{line}` is not a quantile and an RTT; expected two values, such as `0.5,48ms`"
                )));
            };
            let quantile = quantile.parse().map_err(|_| wrong(not_a_quantile(quantile)))?;
            curve.push(quantile, rtt_of(rtt).map_err(wrong)?).map_err(wrong)?;
        }
        if curve.points.is_empty() {
            return Err(content_error(file, "no rows follow the header; give at least one, such as `0.5,48ms`"));
        }
        Ok(curve)
    }
}

fn not_a_quantile(typed: impl std::fmt::Display) -> String {
    format!("`{typed}` is not a quantile, a number from 0 to 1")
}

/// Reads a sample, one RTT per line; returns it in ns, sorted.
pub(super) fn read_sample(file: &Path, files: Files<'_>) -> Result<Vec<u64>, ProfileError> {
    parse_sample(&read("sample of RTTs", file, files)?, file)
}

fn parse_sample(text: &str, file: &Path) -> Result<Vec<u64>, ProfileError> {
    let mut sample: Vec<u64> = content(text)
        .map(|(number, line)| typed_rtt(line).map_err(|message| line_error(file, number, message)))
        .collect::<Result<_, _>>()?;
    if sample.is_empty() {
        return Err(content_error(file, "the file contains no RTT; give one per line, such as `48ms`"));
    }
    sample.sort_unstable();
    Ok(sample)
}

fn rtt_ns(cell: &str) -> Result<u64, String> {
    let longest = 3_600_000_000_000_000;
    cell.parse()
        .ok()
        .filter(|&nanos| nanos <= longest)
        .ok_or_else(|| format!("`{cell}` is not an RTT in whole nanoseconds, at most 1000h"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(text: &str) -> Result<Curve, String> {
        Curve::parse(text, Path::new("c.csv")).map_err(|error| error.to_string())
    }

    #[test]
    fn quantile_curve_is_linear_between_points_and_constant_beyond() {
        let curve = curve("# measured\nquantile,rtt\n0.1,10ms\n0.5,48ms\n\n0.9, 88ms\n").unwrap();
        let rtt = |q| curve.at(q).as_micros();
        assert_eq!((rtt(0.001), rtt(0.1), rtt(0.3), rtt(0.5)), (10_000, 10_000, 29_000, 48_000));
        assert_eq!((rtt(0.7), rtt(0.9), rtt(0.999)), (68_000, 88_000, 88_000));
    }

    #[test]
    fn quantile_csv_with_header_rtt_ns_has_nanoseconds() {
        assert_eq!(curve("quantile,rtt_ns\n0,7").unwrap().at(0.5), Duration::from_nanos(7));
        assert!(curve("quantile,rtt_ns\n0,7ms").unwrap_err().starts_with("c.csv:2: `7ms` is not an RTT in whole"));
        assert!(curve("quantile,rtt\n0,7").unwrap_err().contains("c.csv:2: `7` has no unit"));
    }

    #[test]
    fn invalid_quantile_csv_is_rejected_with_its_line() {
        let wrong = |text: &str| curve(text).unwrap_err();
        assert!(wrong("0.5,48ms").starts_with("c.csv:1: the first line must be"));
        assert!(wrong("quantile,rtt").contains("no rows"));
        assert!(wrong("quantile,rtt\n0.5,2ms\n0.5,3ms").starts_with("c.csv:3: quantile 0.5 is not above"));
        assert!(wrong("quantile,rtt\n0.5,2ms\n0.6,1ms").starts_with("c.csv:3: the RTT is below"));
        assert!(wrong("quantile,rtt\n1.01,2ms").starts_with("c.csv:2: `1.01` is not a quantile"));
        assert!(wrong("quantile,rtt\nNaN,2ms").starts_with("c.csv:2: `NaN` is not a quantile"));
        assert!(wrong("quantile,rtt\n0.5,-2ms").contains("out of range"));
        assert!(wrong("quantile,rtt\n0.5").starts_with("c.csv:2: `0.5` is not a quantile and an RTT"));
    }

    #[test]
    fn rtt_sample_is_sorted_and_must_not_be_empty() {
        assert_eq!(
            parse_sample("3ms\n# far\n1s\n2ms\n", Path::new("s")).unwrap(),
            [2_000_000, 3_000_000, 1_000_000_000]
        );
        assert!(parse_sample("\n", Path::new("s")).unwrap_err().to_string().contains("contains no RTT"));
        assert!(parse_sample("3ms\n4\n", Path::new("s")).unwrap_err().to_string().starts_with("s:2: `4` has no unit"));
    }
}
