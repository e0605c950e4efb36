//! Tables are read back as they were written, complete or truncated.

use std::fs;

use crate::support::{fresh_run, request, requests};
use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::prelude::*;
use schema::{FailureCause, RequestRecord, SecondRecord};
use store::{read_requests, read_series};
use units::Timestamp;

fn rows(dir: &std::path::Path) -> Vec<RequestRecord> {
    read_requests(dir).unwrap().collect::<store::Result<_>>().unwrap()
}

#[test]
fn parts_are_joined_into_one_file_in_order() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.requests();
    for second in 0..5 {
        writer.push(&requests(second * 110..(second + 1) * 110)).unwrap();
        writer.close_part().unwrap();
    }
    assert_eq!(writer.rows(), 550);
    assert_eq!(fs::read_dir(run.path().join("requests")).unwrap().count(), 5);
    writer.push(&requests(550..560)).unwrap();
    let table = writer.finish().unwrap();
    assert_eq!((table.rows, table.path.as_path()), (560, run.path().join("requests.parquet").as_path()));
    assert_eq!(table.bytes, fs::metadata(&table.path).unwrap().len());
    assert!(!run.path().join("requests").exists());
    assert_eq!(rows(run.path()), requests(0..560));
}

#[test]
fn parts_of_different_sampling_become_an_even_sample() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.requests();
    let mut part = |range: std::ops::Range<u64>, one_in: usize| {
        writer.push(&requests(range).into_iter().step_by(one_in).collect::<Vec<_>>()).unwrap();
        writer.close_part().unwrap();
    };
    part(0..100, 1);
    part(100..200, 2);
    part(200..300, 4);
    let table = writer.finish_with(&|row| row.sequence.is_multiple_of(4)).unwrap();
    assert_eq!(table.rows, 75);
    assert_eq!(rows(run.path()), requests(0..300).into_iter().step_by(4).collect::<Vec<_>>());
}

#[test]
fn a_table_file_contains_its_column_descriptions() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.requests();
    writer.push(&requests(0..10)).unwrap();
    let table = writer.finish().unwrap();
    let reader = SerializedFileReader::new(fs::File::open(table.path).unwrap()).unwrap();
    let file = reader.metadata().file_metadata();
    let described = &store::columns()[0];
    let columns = file.schema_descr().columns();
    assert!(columns.iter().map(|column| column.name()).eq(described.columns.iter().map(|column| &column.name)));
    let about = file.key_value_metadata().unwrap().iter().find(|pair| pair.key == "yamabiko.columns").unwrap();
    assert_eq!(about.value.as_deref(), Some(serde_json::to_string(described).unwrap().as_str()));
}

#[test]
fn an_empty_table_is_a_file_without_rows() {
    let (_dir, _book, run) = fresh_run();
    assert_eq!(run.requests().finish().unwrap().rows, 0);
    assert_eq!(rows(run.path()), []);
}

#[test]
fn a_killed_run_keeps_its_closed_parts() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.requests();
    writer.push(&requests(0..200)).unwrap();
    writer.close_part().unwrap();
    writer.push(&requests(200..300)).unwrap();
    drop(writer);
    // Killed in the middle of the second part.
    fs::write(run.path().join("requests/000002.parquet.unfinished"), b"PAR1 and no end").unwrap();
    assert_eq!(rows(run.path()), requests(0..200));
}

#[test]
fn a_run_killed_between_joining_and_removing_counts_once() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.requests();
    writer.push(&requests(0..20)).unwrap();
    writer.close_part().unwrap();
    let part = fs::read(run.path().join("requests/000001.parquet")).unwrap();
    writer.finish().unwrap();
    fs::create_dir(run.path().join("requests")).unwrap();
    fs::write(run.path().join("requests/000001.parquet"), part).unwrap();
    assert_eq!(rows(run.path()), requests(0..20));
}

#[test]
fn a_broken_part_loses_only_its_own_rows() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.requests();
    for part in 0..3 {
        writer.push(&requests(part * 10..(part + 1) * 10)).unwrap();
        writer.close_part().unwrap();
    }
    let second = run.path().join("requests/000002.parquet");
    let whole = fs::read(&second).unwrap();
    for length in [0, 3, whole.len() / 2, whole.len() - 1] {
        fs::write(&second, &whole[..length]).unwrap();
        let (good, bad): (Vec<_>, Vec<_>) = read_requests(run.path()).unwrap().partition(|row| row.is_ok());
        assert_eq!((good.len(), bad.len()), (20, 1), "cut to {length} bytes");
        assert!(bad[0].as_ref().unwrap_err().to_string().contains("000002.parquet"));
    }
    // Parts with a broken one among them are not joined, because the gap would be invisible.
    assert!(writer.finish().is_err());
    assert!(second.exists());
    assert!(!run.path().join("requests.parquet").exists());
}

#[test]
fn corrupt_table_files_are_errors_and_never_panics() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.requests();
    writer.push(&requests(0..50)).unwrap();
    writer.close_part().unwrap();
    let part = run.path().join("requests/000001.parquet");
    let whole = fs::read(&part).unwrap();
    for at in (0..whole.len()).step_by(3) {
        let mut garbled = whole.clone();
        garbled[at] ^= if at % 2 == 0 { 0x55 } else { 0xFF };
        fs::write(&part, &garbled).unwrap();
        // Some bytes are values or padding, so reading may succeed; it must only not panic.
        let _ = read_requests(run.path()).unwrap().count();
    }
}

#[test]
fn a_full_part_is_closed_automatically() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.requests();
    let batch = vec![request(1); 100_000];
    writer.push(&batch).unwrap();
    assert_eq!(writer.rows(), 0);
    writer.push(&batch).unwrap();
    assert_eq!(writer.rows(), 131_072);
    assert_eq!(writer.finish().unwrap().rows, 200_000);
    assert_eq!(read_requests(run.path()).unwrap().filter(|row| row.as_ref().unwrap() == &request(1)).count(), 200_000);
}

#[test]
fn a_part_of_its_own_is_written_without_being_collected() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.requests();
    writer.push_part(&requests(0..10)).unwrap();
    assert_eq!(writer.rows(), 10);
    writer.push_part(&[]).unwrap();
    writer.push(&requests(10..12)).unwrap();
    // Rows that are collected already come first, and a part stays within its size.
    writer.push_part(&requests(12..131_090)).unwrap();
    assert_eq!((writer.rows(), fs::read_dir(run.path().join("requests")).unwrap().count()), (131_090, 3));
    assert_eq!(writer.finish().unwrap().rows, 131_090);
    assert_eq!(rows(run.path()), requests(0..131_090));
}

#[test]
fn large_row_groups_are_taken_over_and_small_ones_joined() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.requests();
    let mut from = 0;
    for part in [100, 200, 40_000, 10, 32_767, 32_768, 7, 8] {
        writer.push_part(&requests(from..from + part)).unwrap();
        from += part;
    }
    let table = writer.finish().unwrap();
    let reader = SerializedFileReader::new(fs::File::open(table.path).unwrap()).unwrap();
    let groups: Vec<i64> = reader.metadata().row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(groups, [300, 40_000, 32_777, 32_768, 15]);
    assert_eq!(rows(run.path()), requests(0..from));
}

fn timestamp() -> impl Strategy<Value = Timestamp> {
    (0..i64::MAX as u64).prop_map(Timestamp::from_nanos)
}

prop_compose! {
    fn any_request()(
        sequence in 0..i64::MAX as u64,
        client: u32,
        named in (
            proptest::option::of(0..i64::MAX as u64),
            proptest::option::of(0..i64::MAX as u64),
            proptest::option::of(any::<u32>()),
        ),
        url: u32,
        scheduled_at in timestamp(),
        times in proptest::array::uniform5(proptest::option::of(timestamp())),
        done_at in timestamp(),
        status: u16,
        bytes in proptest::array::uniform2(0..i64::MAX as u64),
        head_bytes: u32,
        stays: bool,
        early_response: bool,
        failure in proptest::option::of(proptest::sample::select(&FailureCause::ALL[..])),
    ) -> RequestRecord {
        let [started_at, connected_at, secured_at, sent_at, first_byte_at] = times;
        let [bytes_received, bytes_sent] = bytes;
        let (connection, session, stream) = named;
        RequestRecord {
            sequence, client, connection, session, url, stream, scheduled_at, started_at, connected_at, secured_at, sent_at,
            first_byte_at, done_at, status, bytes_received, bytes_sent, failure, head_bytes, early_response,
            attempts: sequence as u8,
            queued: false,
            // An incomplete response has no response fields.
            keep_alive: stays && failure.is_none(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn requests_round_trip(parts in prop::collection::vec(prop::collection::vec(any_request(), 0..40), 0..5)) {
        let (_dir, _book, run) = fresh_run();
        let mut writer = run.requests();
        for part in &parts {
            writer.push(part).unwrap();
            writer.close_part().unwrap();
        }
        prop_assert_eq!(rows(run.path()), parts.concat());
        writer.finish().unwrap();
        prop_assert_eq!(rows(run.path()), parts.concat());
    }
}

/// A second whose fields differ by its number.
pub fn second(index: u32) -> SecondRecord {
    SecondRecord {
        second: index,
        measured: index > 0,
        offered: 110,
        started: 109,
        completed: u64::from(index) * 100,
        failed: 3,
        connections_opened: 4,
        bytes_received: 1 << 40,
        in_flight_mean: 24.25,
        in_flight_max: 31,
        connections_mean: 60.5,
        connections_max: 77,
        backlog: 1,
        response_p50_ns: u64::from(index) * 96_000_000,
        response_p99_ns: u64::from(index) * 196_000_000,
        response_max_ns: u64::from(index) * 200_000_000,
        send_lag_p99_ns: 12_000,
    }
}

#[test]
fn seconds_round_trip() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.series();
    for index in 0..4 {
        writer.push(&[second(index)]).unwrap();
        writer.close_part().unwrap();
    }
    assert_eq!(writer.finish().unwrap().rows, 4);
    let back: Vec<_> = read_series(run.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(back, (0..4).map(second).collect::<Vec<_>>());
}
