//! Histogram logs are read back merged.

use crate::support::fresh_run;
use stats::Histogram;
use store::{StoreError, read_histogram};

fn histogram(values: std::ops::Range<u64>) -> Histogram {
    let mut histogram = Histogram::new();
    values.for_each(|value| histogram.record(value * 1000));
    histogram
}

#[test]
fn hlog_intervals_are_merged_when_read() {
    let (_dir, _book, run) = fresh_run();
    let (first, second) = (histogram(0..5000), histogram(5000..10_000));
    run.write_hlog("response_time", &[(0, 1_000_000_000, &first), (1_000_000_000, 2_000_000_000, &second)]).unwrap();
    let read = read_histogram(run.path(), "response_time").unwrap().quantiles();
    let all = histogram(0..10_000).quantiles();
    assert_eq!(read.count, all.count);
    for (read, all) in [(read.p50, all.p50), (read.p99, all.p99), (read.p99_99, all.p99_99), (read.max, all.max)] {
        assert!((read as f64 / all as f64 - 1.0).abs() < 0.001, "{read} {all}");
    }
    assert!((read.mean / all.mean - 1.0).abs() < 0.001);
}

#[test]
fn hlog_has_the_header_that_hdrhistogram_tools_expect() {
    let (_dir, _book, run) = fresh_run();
    run.write_hlog("service_time", &[(500_000_000, 1_500_000_000, &histogram(0..10))]).unwrap();
    let text = std::fs::read_to_string(run.path().join("service_time.hlog")).unwrap();
    assert!(text.contains("#[StartTime: 1795167005.000 "), "{text}");
    assert!(text.contains("#[BaseTime: 1795167005.000 "), "{text}");
    let line = text.lines().last().unwrap();
    assert!(line.starts_with("0.500,1.000,"), "{line}");
    // HISTF: the first letters of a V2 deflated histogram in Base64.
    assert!(line.split(',').next_back().unwrap().starts_with("HISTF"), "{line}");
}

#[test]
fn missing_and_corrupt_hlogs_are_errors() {
    let (_dir, _book, run) = fresh_run();
    assert!(matches!(read_histogram(run.path(), "connect"), Err(StoreError::Io { operation: "read", .. })));
    for text in ["0.0,1.0,5,HISTFnot base64", "0.0,1.0,5,HISTFAAA", "0.0,1.0", "nonsense\n"] {
        std::fs::write(run.path().join("connect.hlog"), text).unwrap();
        assert!(matches!(read_histogram(run.path(), "connect"), Err(StoreError::Log { .. })), "{text}");
    }
}
