//! Files that a link follows over time: mahimahi's traces, and series of RTTs.

use std::path::Path;
use std::time::Duration;

use super::Files;
use super::error::ProfileError;
use super::lines::{cells, content, content_error, line_error, read, typed_rtt};
use crate::spec::{Between, DelayOverTime, DeliveryTrace};

/// A trace in mahimahi's format: one whole number of milliseconds per line, nothing else.
pub(crate) fn read_trace(file: &Path, files: Files<'_>) -> Result<DeliveryTrace, ProfileError> {
    trace(&read("trace of a link", file, files)?, file)
}

fn trace(text: &str, file: &Path) -> Result<DeliveryTrace, ProfileError> {
    let moments = text.lines().enumerate().map(|(index, line)| {
        line.trim().parse().map_err(|_| {
            line_error(
                file,
                index + 1,
                format!("`{line}` is not a time in whole milliseconds, as mahimahi's traces have"),
            )
        })
    });
    let moments: Vec<u64> = moments.collect::<Result<_, _>>()?;
    DeliveryTrace::new(moments).map_err(|(index, message)| line_error(file, index + 1, message))
}

/// A series of RTTs: header `time,rtt` with units, or `time_s,rtt_ms` with numbers.
pub(super) fn read_series(
    file: &Path,
    files: Files<'_>,
    between: Between,
    repeats: bool,
) -> Result<DelayOverTime, ProfileError> {
    series(&read("series of RTTs", file, files)?, file, between, repeats)
}

fn series(text: &str, file: &Path, between: Between, repeats: bool) -> Result<DelayOverTime, ProfileError> {
    let mut lines = content(text);
    let (first, header) = lines.next().unwrap_or((1, ""));
    let units = match cells(header).collect::<Vec<_>>()[..] {
        ["time", "rtt"] => true,
        ["time_s", "rtt_ms"] => false,
        _ => return Err(line_error(file, first, "the first line must be `time,rtt` or `time_s,rtt_ms`")),
    };
    let (mut numbers, mut points) = (Vec::new(), Vec::new());
    for (number, line) in lines {
        let wrong = |message: String| line_error(file, number, message);
        let [time, rtt] = cells(line).collect::<Vec<_>>()[..] else {
            return Err(wrong(format!("`{line}` is not a time and an RTT; expected two values, such as `0s,48ms`")));
        };
        let point = match units {
            true => typed_rtt(time).and_then(|time| Ok((time, typed_rtt(rtt)?))),
            false => scaled(time, 1e9).and_then(|time| Ok((time, scaled(rtt, 1e6)?))),
        };
        let (time, rtt) = point.map_err(wrong)?;
        numbers.push(number);
        points.push((Duration::from_nanos(time), Duration::from_nanos(rtt)));
    }
    if points.is_empty() {
        return Err(content_error(file, "no rows follow the header; give at least one, such as `0s,48ms`"));
    }
    DelayOverTime::new(points, between, repeats).map_err(|(index, message)| line_error(file, numbers[index], message))
}

/// A number in units of `nanos`, at most 1000 hours.
fn scaled(cell: &str, nanos: f64) -> Result<u64, String> {
    let value = cell.parse().ok().map(|value: f64| value * nanos).filter(|value| (0.0..=3.6e15).contains(value));
    value.map(|value| value.round() as u64).ok_or_else(|| format!("`{cell}` is not a number from 0 to 1000 hours"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rtts(text: &str, between: Between, repeats: bool) -> Result<DelayOverTime, String> {
        series(text, Path::new("s.csv"), between, repeats).map_err(|error| error.to_string())
    }

    #[test]
    fn trace_file_is_read_in_the_format_of_mahimahi() {
        let read = |text: &str| trace(text, Path::new("t")).map_err(|error| error.to_string());
        assert_eq!(read("0\n5\n5\n12\n").unwrap().times_ms(), [0, 5, 5, 12]);
        for (text, expected) in [
            ("", "t:1: a trace needs at least one line"),
            ("5\n4\n", "t:2: 4 ms is before"),
            ("0\n", "t:1: the last time must be above 0"),
            ("1\n\n2\n", "t:2: `` is not a time"),
            ("1\n# no comments\n", "t:2: `# no comments` is not a time"),
            ("1.5\n", "t:1: `1.5` is not a time in whole milliseconds"),
            ("-1\n", "t:1: "),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn rtt_series_has_values_with_units_or_plain_numbers() {
        let typed = rtts("# a night\ntime,rtt\n0s,10ms\n1500ms,30ms\n", Between::Lines, false).unwrap();
        let numbers = rtts("time_s,rtt_ms\n0,10\n1.5,30\n", Between::Lines, false).unwrap();
        assert_eq!(typed, numbers);
        assert_eq!(typed.at(Duration::from_millis(750)), Duration::from_millis(20));
    }

    #[test]
    fn invalid_rtt_series_is_rejected_with_its_line() {
        let wrong = |text: &str, repeats| rtts(text, Between::Steps, repeats).unwrap_err();
        assert!(wrong("0s,48ms", false).starts_with("s.csv:1: the first line must be"));
        assert!(wrong("time,rtt", false).contains("no rows"));
        assert!(wrong("time,rtt\n1s,1ms", false).starts_with("s.csv:2: the first time must be 0"));
        assert!(wrong("time,rtt\n0s,1ms\n#\n0s,2ms", false).starts_with("s.csv:4: its time is not after"));
        assert!(wrong("time,rtt\n0s,1", false).starts_with("s.csv:2: `1` has no unit"));
        assert!(wrong("time_s,rtt_ms\n0,-1", false).starts_with("s.csv:2: `-1` is not a number"));
        assert!(wrong("time_s,rtt_ms\n0,NaN", false).starts_with("s.csv:2: `NaN` is not a number"));
        assert!(wrong("time,rtt\n0s", false).starts_with("s.csv:2: `0s` is not a time and an RTT"));
        assert!(wrong("time,rtt\n0s,1ms", true).contains("at least two points"));
    }
}
