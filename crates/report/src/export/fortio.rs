//! A run in fortio's JSON format, for fortio's pages and tools. docs/concepts/exports.md describes each field.
//!
//! Source of the names: fortio (Apache-2.0), `fhttp.HTTPRunnerResults`, `periodic.RunnerResults`,
//! `stats.HistogramData`.

use std::collections::BTreeMap;

use schema::Document;
use schema::document::Load;
use serde::Serialize;
use stats::Histogram;

use crate::phrases::total;

/// Start of the run. Never empty: fortio reads an empty time as year 1.
#[derive(Debug, Serialize)]
struct Results {
    #[serde(rename = "RunType")]
    run_type: &'static str,
    #[serde(rename = "Labels")]
    labels: String,
    #[serde(rename = "StartTime")]
    start_time: String,
    #[serde(rename = "RequestedQPS")]
    requested_qps: String,
    #[serde(rename = "RequestedDuration")]
    requested_duration: String,
    #[serde(rename = "ActualQPS")]
    actual_qps: f64,
    /// Nanoseconds.
    #[serde(rename = "ActualDuration")]
    actual_duration: i64,
    #[serde(rename = "NumThreads")]
    num_threads: i64,
    #[serde(rename = "Version")]
    version: String,
    #[serde(rename = "DurationHistogram")]
    duration_histogram: Data,
    #[serde(rename = "ErrorsDurationHistogram")]
    errors_duration_histogram: Option<Data>,
    #[serde(rename = "Exactly")]
    exactly: i64,
    #[serde(rename = "Jitter")]
    jitter: bool,
    #[serde(rename = "Uniform")]
    uniform: bool,
    #[serde(rename = "NoCatchUp")]
    no_catch_up: bool,
    #[serde(rename = "RunID")]
    run_id: i64,
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "RetCodes")]
    ret_codes: BTreeMap<String, i64>,
    #[serde(rename = "URL")]
    url: String,
    #[serde(rename = "NumConnections")]
    num_connections: i64,
    #[serde(rename = "SocketCount")]
    socket_count: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    count: i64,
    min: f64,
    max: f64,
    sum: f64,
    avg: f64,
    std_dev: f64,
    data: Vec<Bucket>,
    percentiles: Vec<Percentile>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Bucket {
    start: f64,
    end: f64,
    /// Cumulative.
    percent: f64,
    count: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Percentile {
    percentile: f64,
    value: f64,
}

/// The percentiles that fortio's comparison page reads.
const PERCENTILES: [f64; 6] = [50.0, 75.0, 90.0, 99.0, 99.9, 99.99];

/// The run in fortio's JSON; `None` without a load. `response_time` is in nanoseconds; `url` is the requested URL.
pub fn fortio(document: &Document, response_time: &Histogram, url: &str) -> Option<String> {
    let load = document.load.as_ref()?;
    let run = &document.run;
    let open = load.loop_kind == "open";
    let results = Results {
        run_type: "HTTP",
        labels: run.id.clone(),
        start_time: run.started_at.clone(),
        requested_qps: if open { format!("{}", load.offered_rate_per_s) } else { "max".to_owned() },
        requested_duration: format!("{}s", run.duration_s),
        actual_qps: load.achieved_rate_per_s,
        actual_duration: (run.duration_s * 1e9).round() as i64,
        num_threads: whole(load.connections.max),
        version: concat!("yamabiko ", env!("CARGO_PKG_VERSION")).to_owned(),
        duration_histogram: data(response_time),
        errors_duration_histogram: None,
        exactly: 0,
        jitter: false,
        uniform: false,
        // True, because response times count from the scheduled time even if a request starts late.
        no_catch_up: false,
        run_id: 0,
        id: run.id.clone(),
        ret_codes: ret_codes(load),
        url: url.to_owned(),
        num_connections: whole(load.connections.max),
        socket_count: whole(load.connections_opened),
    };
    Some(serde_json::to_string_pretty(&results).expect("numbers and text") + "\n")
}

/// Responses by status; fortio counts requests without a complete response as -1.
fn ret_codes(load: &Load) -> BTreeMap<String, i64> {
    let mut codes: BTreeMap<String, i64> = load.status.iter().map(|(code, &n)| (code.clone(), whole(n))).collect();
    let failed = total(&load.failed);
    if failed > 0 {
        codes.insert("-1".to_owned(), whole(failed));
    }
    codes
}

fn data(values: &Histogram) -> Data {
    let q = values.quantiles();
    let seconds = |ns: u64| ns as f64 / 1e9;
    let counts = values.inner();
    let mut below = 0;
    let buckets: Vec<Bucket> = counts
        .iter_recorded()
        .map(|bucket| {
            let value = bucket.value_iterated_to();
            below += bucket.count_at_value();
            Bucket {
                // Fortio's intervals cover exactly [Min, Max].
                start: seconds(counts.lowest_equivalent(value).max(q.min)),
                end: seconds(counts.highest_equivalent(value).min(q.max)),
                percent: 100.0 * below as f64 / q.count.max(1) as f64,
                count: whole(bucket.count_at_value()),
            }
        })
        .collect();
    let percentile = |percentile: f64| Percentile { percentile, value: seconds(values.value_at(percentile / 100.0)) };
    Data {
        count: whole(q.count),
        min: seconds(q.min),
        max: seconds(q.max),
        sum: q.mean * q.count as f64 / 1e9,
        avg: q.mean / 1e9,
        std_dev: q.stddev / 1e9,
        data: buckets,
        percentiles: if q.count == 0 { Vec::new() } else { PERCENTILES.map(percentile).into() },
    }
}

fn whole(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exported histogram has the invariants of fortio's own code.
    #[test]
    fn fortio_histogram_has_contiguous_intervals_and_percentiles() {
        let mut values = Histogram::new();
        (1..=10_000u64).for_each(|value| values.record(value * value * 1000));
        let data = data(&values);
        assert_eq!((data.count, data.min, data.max), (10_000, 1e-6, 100.0));
        assert_eq!(data.data.iter().map(|bucket| bucket.count).sum::<i64>(), data.count);
        assert!(data.data.iter().all(|bucket| bucket.start <= bucket.end));
        assert!(data.data.windows(2).all(|pair| pair[0].end < pair[1].start && pair[0].percent < pair[1].percent));
        let (first, last) = (&data.data[0], data.data.last().unwrap());
        assert_eq!((first.start, last.end, last.percent), (data.min, data.max, 100.0));
        assert!((data.sum / data.count as f64 - data.avg).abs() < 1e-9);
        let p99 = data.percentiles.iter().find(|percentile| percentile.percentile == 99.0).unwrap();
        assert!((p99.value / 98.01 - 1.0).abs() < 0.001, "{}", p99.value);
    }

    #[test]
    fn fortio_export_of_an_empty_run_has_no_values() {
        let data = data(&Histogram::new());
        assert_eq!((data.count, data.data.len(), data.percentiles.len(), data.sum), (0, 0, 0, 0.0));
    }
}
