//! A distribution in the format of HdrHistogram's tools (`outputPercentileDistribution`, .hgrm files), for its plotter
//! and similar programs.

use std::fmt::Write;

use stats::Histogram;

/// `values`, in nanoseconds, as percentiles in milliseconds, as HdrHistogram's plotter expects.
pub fn hgrm(values: &Histogram) -> String {
    let mut text = format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    let q = values.quantiles();
    let ms = |ns: f64| ns / 1e6;
    let mut total = 0;
    for step in values.inner().iter_quantiles(TICKS) {
        total += step.count_since_last_iteration();
        let (value, quantile) = (ms(step.value_iterated_to().clamp(q.min, q.max) as f64), step.quantile_iterated_to());
        let _ = if quantile < 1.0 {
            writeln!(text, "{value:12.3} {quantile:14.12} {total:10} {:14.2}", 1.0 / (1.0 - quantile))
        } else {
            writeln!(text, "{value:12.3} {quantile:14.12} {total:10}")
        };
    }
    let (mean, deviation, max) = (ms(q.mean), ms(q.stddev), ms(q.max as f64));
    let _ = writeln!(text, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]");
    let _ = writeln!(text, "#[Max     = {max:12.3}, Total count    = {:12}]", q.count);
    let _ = writeln!(text, "#[Buckets = {:12}, SubBuckets     = {SUB_BUCKETS:12}]", values.inner().buckets());
    text
}

/// Lines for each halving of the distance to 100 %, as in HdrHistogram's tool.
const TICKS: u32 = 5;
/// Sub-buckets for a precision of three significant digits.
const SUB_BUCKETS: u32 = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    /// Value and percentile of each line, count so far.
    fn lines(text: &str) -> Vec<(f64, f64, u64)> {
        let of = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            (words[0].parse().unwrap(), words[1].parse().unwrap(), words[2].parse().unwrap())
        };
        text.lines().skip(2).filter(|line| !line.starts_with('#')).map(of).collect()
    }

    #[test]
    fn hgrm_percentiles_equal_those_of_the_histogram() {
        let mut values = Histogram::new();
        (1..=10_000u64).for_each(|value| values.record(value * 10_000));
        let text = hgrm(&values);
        let lines = lines(&text);
        assert_eq!((lines[0].1, lines.last().unwrap()), (0.0, &(100.0, 1.0, 10_000)));
        assert!(lines.windows(2).all(|pair| pair[0].0 <= pair[1].0 && pair[0].1 < pair[1].1 && pair[0].2 <= pair[1].2));
        let half = lines.iter().find(|line| line.1 == 0.5).unwrap();
        assert!((half.0 / 50.0 - 1.0).abs() < 0.002, "{half:?}");
        assert!(text.contains("#[Mean    =       50.005, StdDeviation   =       28.868]\n"), "{text}");
        assert!(text.ends_with("#[Max     =      100.000, Total count    =        10000]\n#[Buckets =           32, SubBuckets     =         2048]\n"), "{text}");
    }

    #[test]
    fn hgrm_of_an_empty_histogram_has_no_counts() {
        let text = hgrm(&Histogram::new());
        assert!(
            lines(&text).iter().all(|line| line.2 == 0) && text.contains("Total count    =            0"),
            "{text}"
        );
    }
}
