use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsPartialSuccess;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, metric::Data as Points, number_data_point::Value,
};
use prost::Message as _;
use report::export::otlp::{POINTS_MAX, Request, Response};
use schema::TapOutcome;
use web::post::{Post, Roots};

use super::sender::{Sent, post, send_once};
use super::*;
use crate::data::Data;
use crate::notes::Notes;
use crate::quality;
use crate::quality::tests::{MIDNIGHT, TEST_EXCHANGE, TestExchange, agent};
use crate::test_server::{OK_RESPONSE, ReceivedRequest, ScriptedResponse, TestServer};

const NOW_NS: u64 = 4_000_000_000_000_000_000;

fn fold_rows(data: &Data, exchanges: &[TestExchange]) {
    let rows: Vec<_> = exchanges.iter().map(TestExchange::row).collect();
    data.change(|change| quality::fold(change, &rows)).unwrap();
}

fn open(folder: &std::path::Path) -> Arc<Data> {
    let data = Data::open(folder).unwrap();
    data.change(sums::on).unwrap();
    data
}

fn to(scripted: &TestServer) -> Post {
    post(Plan { url: scripted.url.clone(), headers: Vec::new(), roots: Roots::System }).unwrap()
}

/// One attempt with a receiver that responds like this; returns what it received.
fn sent(data: &Data, responses: Vec<ScriptedResponse>) -> (Sent, Vec<ReceivedRequest>) {
    let count = responses.len();
    let scripted = TestServer::start(responses);
    let outcome = send_once(data, &to(&scripted), NOW_NS).unwrap();
    (outcome, (0..count).map(|_| scripted.next()).collect())
}

fn unpacked(request: &ReceivedRequest) -> Request {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&request.body[..]).read_to_end(&mut plain).unwrap();
    Request::decode(&plain[..]).unwrap()
}

fn text(attributes: &[KeyValue]) -> String {
    let mut text: Vec<String> = attributes
        .iter()
        .map(|attribute| match &attribute.value.as_ref().unwrap().value {
            Some(any_value::Value::StringValue(text)) => format!("{}={text}", attribute.key),
            other => panic!("{other:?}"),
        })
        .collect();
    text.sort();
    text.join(",")
}

/// Every point of sums and gauges by metric and attributes, with its start; histograms by their count.
fn points(message: &Request) -> BTreeMap<(String, String), (f64, u64)> {
    let mut found = BTreeMap::new();
    for metric in message.resource_metrics.iter().flat_map(|of| &of.scope_metrics).flat_map(|of| &of.metrics) {
        let numbers = match metric.data.as_ref().unwrap() {
            Points::Sum(sum) => {
                assert!(sum.is_monotonic && sum.aggregation_temporality == AggregationTemporality::Cumulative as i32);
                &sum.data_points
            }
            Points::Gauge(gauge) => &gauge.data_points,
            Points::ExponentialHistogram(all) => {
                assert_eq!(all.aggregation_temporality, AggregationTemporality::Cumulative as i32);
                for point in &all.data_points {
                    let name = (metric.name.clone(), text(&point.attributes));
                    assert_eq!(point.time_unix_nano, NOW_NS);
                    assert!(found.insert(name, (point.count as f64, point.start_time_unix_nano)).is_none());
                }
                continue;
            }
            other => panic!("{other:?}"),
        };
        for point in numbers {
            let value = match point.value.unwrap() {
                Value::AsInt(value) => value as f64,
                Value::AsDouble(value) => value,
            };
            assert_eq!(point.time_unix_nano, NOW_NS);
            let name = (metric.name.clone(), text(&point.attributes));
            assert!(found.insert(name, (value, point.start_time_unix_nano)).is_none(), "{metric:?}");
        }
    }
    found
}

fn point(points: &BTreeMap<(String, String), (f64, u64)>, metric: &str, attributes: &str) -> (f64, u64) {
    let name = (metric.to_owned(), attributes.to_owned());
    *points.get(&name).unwrap_or_else(|| panic!("{name:?} of {:?}", points.keys().collect::<Vec<_>>()))
}

const SERIES: &str =
    "network.peer.address=192.0.2.1,process.executable.name=curl,yamabiko.agent=a,yamabiko.side=client";

/// Lost, rejected and repeated messages change nothing, nor does a restarted manager.
#[test]
fn otlp_sums_continue_after_lost_messages() {
    let folder = tempfile::tempdir().unwrap();
    let data = open(folder.path());
    data.change(|change| -> rusqlite::Result<()> {
        agent(change, "a", "", 5_000_000_000);
        Ok(())
    })
    .unwrap();
    let failed = TestExchange { outcome: TapOutcome::Failed, ..TEST_EXCHANGE };
    fold_rows(&data, &[TEST_EXCHANGE, TEST_EXCHANGE, failed.clone()]);
    let (outcome, requests) = sent(&data, vec![OK_RESPONSE]);
    assert_eq!(outcome, Sent::default());
    assert!(requests[0].head.starts_with("post /v1/metrics http/1.1"), "{}", requests[0].head);
    assert!(requests[0].head.contains("content-type: application/x-protobuf"));
    assert!(requests[0].head.contains("content-encoding: gzip"));
    let first = points(&unpacked(&requests[0]));
    let of = |metric: &str, more: &str| {
        let mut text: Vec<&str> = SERIES.split(',').chain(more.split(',').filter(|word| !word.is_empty())).collect();
        text.sort_unstable();
        (metric.to_owned(), text.join(","))
    };
    let value = |points: &BTreeMap<(String, String), (f64, u64)>, metric: &str, more: &str| {
        let (metric, attributes) = of(metric, more);
        point(points, &metric, &attributes)
    };
    let (attempts, start) = value(&first, "yamabiko.tap.attempts", "");
    assert!(attempts == 3.0 && start > 0 && start < NOW_NS);
    assert_eq!(value(&first, "yamabiko.tap.failures", "error.type=ECONNRESET"), (1.0, start));
    assert_eq!(value(&first, "yamabiko.tap.io", "network.io.direction=transmit"), (300.0, start));
    assert_eq!(value(&first, "yamabiko.tap.io", "network.io.direction=receive"), (3003.0, start));
    assert_eq!(value(&first, "yamabiko.tap.response.duration", ""), (2.0, start));
    assert_eq!(point(&first, "yamabiko.agent.connected", "yamabiko.agent=a").0, 0.0);
    assert_eq!(point(&first, "yamabiko.agent.lost", "yamabiko.agent=a,yamabiko.kind=rows").0, 0.0);
    // One message is lost, one is rejected.
    fold_rows(&data, &[TEST_EXCHANGE]);
    let (outcome, _) = sent(&data, vec![(503, "Retry-After: 7\r\n", b"busy\x1b[31m".to_vec())]);
    assert_eq!(outcome.retry_after, Some(std::time::Duration::from_secs(7)));
    assert!(outcome.failed && outcome.text == "status 503 busy\\u{1b}[31m", "{outcome:?}");
    let (outcome, _) = sent(&data, vec![(400, "", b"bad data".to_vec())]);
    assert_eq!((outcome.failed, outcome.text.as_str()), (true, "refused: status 400 bad data"));
    drop(data);
    let data = open(folder.path());
    fold_rows(&data, &[TEST_EXCHANGE, failed]);
    let (_, requests) = sent(&data, vec![OK_RESPONSE]);
    let last = points(&unpacked(&requests[0]));
    assert_eq!(
        value(&last, "yamabiko.tap.attempts", ""),
        (6.0, start),
        "the start time of a series is unchanged after a restart"
    );
    assert_eq!(value(&last, "yamabiko.tap.failures", "error.type=ECONNRESET"), (2.0, start));
    assert_eq!(value(&last, "yamabiko.tap.response.duration", ""), (4.0, start));
    let (_, again) = sent(&data, vec![OK_RESPONSE]);
    assert_eq!(points(&unpacked(&again[0])), last);
    // Without a receiver nothing is counted, and earlier sums are removed.
    off(&data).unwrap();
    fold_rows(&data, &[TEST_EXCHANGE]);
    assert!(data.read(sums::all).unwrap().is_empty());
}

#[test]
fn points_rejected_by_an_otlp_receiver_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let data = open(folder.path());
    fold_rows(&data, &[TEST_EXCHANGE]);
    let response = |points: i64, text: &str| {
        let partial = ExportMetricsPartialSuccess { rejected_data_points: points, error_message: text.to_owned() };
        Response { partial_success: Some(partial) }.encode_to_vec()
    };
    for (body, text) in [
        (response(3, "no delta\nmore"), "it rejected 3 points: no delta"),
        (response(0, "old names"), "it warns: old names"),
        (response(0, ""), ""),
        (b"<html>".to_vec(), ""),
    ] {
        let (outcome, _) = sent(&data, vec![(200, "", body)]);
        assert_eq!(outcome, Sent { text: text.to_owned(), ..Sent::default() });
    }
    // The receiver does not run.
    let closed_server = TestServer::start(Vec::new());
    let outcome = send_once(&data, &to(&closed_server), NOW_NS);
    assert!(outcome.is_ok_and(|sent| sent.failed && sent.retry_after.is_none()));
}

#[test]
fn otlp_series_and_messages_are_limited() {
    let folder = tempfile::tempdir().unwrap();
    let data = open(folder.path());
    let names: Vec<&'static str> = (0..10).map(|at| &*Box::leak(format!("p{at}").into_boxed_str())).collect();
    let rows = names.iter().flat_map(|name| (0..210).map(|peer| TestExchange { program: name, peer, ..TEST_EXCHANGE }));
    fold_rows(&data, &rows.collect::<Vec<_>>());
    let series = data.read(sums::all).unwrap();
    assert_eq!(series.len() as i64, SERIES_MAX + 1);
    let messages = metrics::messages(&series, &[], NOW_NS);
    let mut names = BTreeSet::new();
    let (mut attempts, mut others) = (0.0, 0.0);
    for message in &messages {
        let points = points(message);
        assert!(points.len() <= POINTS_MAX, "{}", points.len());
        for ((metric, attributes), (value, _)) in points {
            if metric == "yamabiko.tap.attempts" {
                attempts += value;
                others += if attributes == "yamabiko.others=all" { value } else { 0.0 };
            }
            assert!(names.insert((metric, attributes)), "each series is in one message only");
        }
    }
    assert_eq!((attempts, others), (2100.0, 100.0));
    assert!(messages.len() >= 5, "{}", messages.len());
}

#[test]
fn the_otlp_sender_sends_periodically_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let data = Data::open(folder.path()).unwrap();
    let (notes, _writing) = Notes::start(data.clone(), Arc::new(|_: &str| {})).unwrap();
    let scripted = TestServer::start(vec![OK_RESPONSE]);
    data.change(sums::on).unwrap();
    fold_rows(&data, &[TestExchange { at_s: MIDNIGHT, ..TEST_EXCHANGE }]);
    let plan = Plan { url: format!("{}/own/path", scripted.url), headers: Vec::new(), roots: Roots::System };
    let mut sender = Sender::start(data, notes, plan).unwrap();
    assert!(scripted.next().head.starts_with("post /own/path http/1.1"));
    sender.stop();
}
