//! The Parquet schema of every table is the one in `tests/schemas.txt`, and earlier files differ from it only in names.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::ColumnDescPtr;
use schema::share::{Cause, Confidence, Rule};
use schema::{
    CacheExchange, ConnectionRecord, DistributionRecord, FleetRow, FrameKind, Http2FrameRow, Measure,
    QuicConnectionRecord, Record, RequestRecord, SecondRecord, ServerSecond, ServerWaitRow, ShareRow, TapExchange,
    TapPeer, TapRow, TcpSampleRow, WaitCause, WatchSecond, WireRequest,
};
use store::PartWriter;
use units::Timestamp;

use crate::{cache_tables, support, tables, tap_tables, watch_tables};

/// Rows for every table. Of the first two rows, one has all optional fields and the other none.
struct AllTables {
    requests: Vec<RequestRecord>,
    series: Vec<SecondRecord>,
    distributions: Vec<DistributionRecord>,
    server_series: Vec<ServerSecond>,
    connections: Vec<ConnectionRecord>,
    quic_connections: Vec<QuicConnectionRecord>,
    wire_requests: Vec<WireRequest>,
    watch_series: Vec<WatchSecond>,
    taps: Vec<TapExchange>,
    tcp_samples: Vec<TcpSampleRow>,
    server_waits: Vec<ServerWaitRow>,
    http2_frames: Vec<Http2FrameRow>,
    shares: Vec<ShareRow>,
    cache_exchanges: Vec<CacheExchange>,
    fleet: Vec<FleetRow>,
}

impl AllTables {
    fn new() -> Self {
        AllTables {
            requests: support::requests(0..13),
            series: (0..3).map(tables::second).collect(),
            distributions: vec![DistributionRecord {
                second: 7,
                measure: Measure::ResponseTime,
                from_ns: 16,
                to_ns: 18,
                count: 5,
            }],
            server_series: (0..2).map(server_second).collect(),
            connections: (0..3).map(watch_tables::connection).collect(),
            quic_connections: (0..3).map(watch_tables::quic_connection).collect(),
            wire_requests: (0..3).map(watch_tables::request).collect(),
            watch_series: (0..3).map(watch_tables::second).collect(),
            taps: (0..13).map(tap_tables::row).collect(),
            tcp_samples: (0..2).map(tcp_sample).collect(),
            server_waits: (0..2).map(server_wait).collect(),
            http2_frames: (0..2).map(http2_frame).collect(),
            shares: (0..2).map(share).collect(),
            cache_exchanges: (0..41).map(cache_tables::exchange).collect(),
            fleet: (0..2).map(fleet_row).collect(),
        }
    }

    /// The schemas that this version writes, as text.
    fn describe(&self, dir: &Path) -> String {
        [
            describe(dir, &self.requests),
            describe(dir, &self.series),
            describe(dir, &self.distributions),
            describe(dir, &self.server_series),
            describe(dir, &self.connections),
            describe(dir, &self.quic_connections),
            describe(dir, &self.wire_requests),
            describe(dir, &self.watch_series),
            describe(dir, &self.taps),
            describe(dir, &self.tcp_samples),
            describe(dir, &self.server_waits),
            describe(dir, &self.http2_frames),
            describe(dir, &self.shares),
            describe(dir, &self.cache_exchanges),
            describe(dir, &self.fleet),
        ]
        .concat()
    }
}

fn server_second(second: u32) -> ServerSecond {
    let full = second % 2 == 1;
    ServerSecond {
        second,
        at_ns: 1_050_000_000,
        elapsed_s: 1.000_25,
        cpu_user_s: 0.25,
        cpu_system_s: 0.125,
        cpu_receive_s: full.then_some(0.062_5),
        throttled_s: full.then_some(0.5),
        periods: full.then_some(10),
        periods_throttled: full.then_some(3),
        rss_bytes: 1 << 33,
        descriptors: full.then_some(1024),
    }
}

fn tcp_sample(number: u32) -> TcpSampleRow {
    let full = number % 2 == 1;
    TcpSampleRow {
        at: Timestamp::from_nanos(5_000_000),
        client: 3,
        client_port: 40_001,
        congestion_window: 10,
        segment_bytes: 1_448,
        min_rtt_ns: full.then_some(60_000_000),
        pacing_bytes_per_s: full.then_some(480_000),
        unsent_bytes: 7_000,
        receive_window_limited_ns: 1_000,
        send_buffer_limited_ns: 2_000,
    }
}

fn server_wait(number: u32) -> ServerWaitRow {
    let cause = if number == 0 { WaitCause::CpuLimit } else { WaitCause::RunQueue };
    ServerWaitRow { from: Timestamp::from_nanos(1_000_000), to: Timestamp::from_nanos(9_000_000), cause }
}

fn http2_frame(number: u32) -> Http2FrameRow {
    let full = number % 2 == 1;
    Http2FrameRow {
        at: Timestamp::from_nanos(5_000_000),
        connection: 9,
        stream: 3,
        kind: if full { FrameKind::Data } else { FrameKind::WindowUpdate },
        window_bytes: 16_384,
        from_byte: full.then_some(4_000),
        to_byte: full.then_some(20_393),
    }
}

fn share(number: u32) -> ShareRow {
    let full = number % 2 == 1;
    ShareRow {
        sequence: 7,
        client: full.then_some(3),
        connection: full.then_some(9),
        distance_ns: full.then_some(60_000_000),
        scheduled_at: Timestamp::from_nanos(1_000_000_000),
        response_time_ns: 61_000_000,
        cause: Cause::Propagation,
        time_ns: 60_000_000,
        confidence: Confidence::Certain,
        rule: Rule::PathRecord,
    }
}

fn fleet_row(number: u32) -> FleetRow {
    let full = number % 2 == 1;
    let text = |text: &str| full.then(|| text.to_owned());
    let some = |value: u64| full.then_some(value);
    let peer = |address: &str, port| full.then(|| TapPeer { address: address.parse().unwrap(), port });
    FleetRow {
        agent: "shop-7".into(),
        group: "shops".into(),
        stream: "0".repeat(32),
        sequence: 3,
        number,
        at_unix_ns: 1_795_167_005_000_000_009,
        opened_at_unix_ns: 1_795_167_005_000_000_001,
        zero_unix_ns: 1_795_167_005_000_000_000,
        clock_offset_ns: Some(-5),
        share: 0.25,
        row: TapRow {
            connection: some(9),
            exchange: full.then_some(2),
            last: full,
            pid: 4_000_000,
            program: text("curl"),
            side: "client".into(),
            peer: peer("h:00000000000000ff", 65_535),
            local: peer("198.19.0.7", 50_000),
            opened_at_ns: 1,
            lookup_ns: some(2),
            setup_ns: some(3),
            sent_first_at_ns: some(4),
            sent_last_at_ns: some(5),
            received_first_at_ns: some(6),
            received_last_at_ns: some(7),
            sent_bytes: 80,
            received_bytes: 300,
            calls: 4,
            blocked_ns: 12,
            outcome: if full { "failed" } else { "succeeded" }.into(),
            error: text("ECONNREFUSED"),
            closed_at_ns: some(9),
            connection_bytes: some(380),
            retransmits: some(0),
            unseen_bytes: some(1),
        },
    }
}

fn write<R: Record>(path: &Path, rows: &[R]) {
    let mut writer = PartWriter::begin(path).unwrap();
    writer.append(rows).unwrap();
    writer.finish().unwrap();
}

/// One line a column: repetition, type, name, encodings, and its entry in the file's metadata.
fn describe<R: Record>(dir: &Path, rows: &[R]) -> String {
    let path = dir.join(format!("{}.parquet", R::TABLE));
    write(&path, rows);
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let file = reader.metadata().file_metadata();
    let [pair] = &file.key_value_metadata().unwrap()[..] else { panic!("one key: {:?}", file.key_value_metadata()) };
    let about: serde_json::Value = serde_json::from_str(pair.value.as_deref().unwrap()).unwrap();
    // The order of the keys is part of the format, and a Value sorts them.
    let about_text = pair.value.as_deref().unwrap();
    let (head, list) = about_text.split_once(r#","columns":["#).unwrap();
    let about_columns: Vec<&str> = list.strip_suffix("}]}").unwrap().split("},").collect();
    assert_eq!(about_columns.len(), about["columns"].as_array().unwrap().len());
    let schema = file.schema_descr();
    let group = reader.metadata().row_group(0);
    let mut text =
        format!("{} ({} rows a part)\n  {}: {head}\n", schema.root_schema().name(), R::ROWS_A_PART, pair.key);
    for ((column, chunk), about) in schema.columns().iter().zip(group.columns()).zip(about_columns) {
        let basic = column.self_type().get_basic_info();
        let logical = basic.logical_type_ref().map_or(String::new(), |kind| format!(" ({kind:?})"));
        let encodings: Vec<String> = chunk.encodings().map(|encoding| format!("{encoding:?}")).collect();
        text += &format!(
            "  {} {}{logical} {}; {}, {}; {about}\n",
            basic.repetition(),
            column.physical_type(),
            column.name(),
            encodings.join(" "),
            chunk.compression(),
        );
    }
    text
}

#[test]
fn table_schemas_match_schemas_txt() {
    let dir = tempfile::tempdir().unwrap();
    let now = AllTables::new().describe(dir.path());
    let listed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemas.txt");
    if fs::read_to_string(&listed).unwrap_or_default() != now {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("schemas.txt");
        fs::write(&path, now).unwrap();
        panic!("if the change is meant: cp {} {}", path.display(), listed.display());
    }
}

/// The files of 2026-11-26 were written before the columns had their present names. Do not rewrite these files. They
/// have the rows that this test makes, so that new files differ from them only in names and in columns at the end.
#[test]
fn earlier_table_files_differ_from_new_ones_only_in_names() {
    fn check<R: Record>(rows: &[R], renamed: &[&str]) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("now.parquet");
        write(&path, rows);
        let (now, earlier) = (StoredTable::read(&path), StoredTable::read(&earlier(R::TABLE)));
        // Columns that were added since are the last. A column may have become nullable: readers take the file's word.
        for (at, before) in earlier.types.iter().enumerate() {
            let nullable = before.replacen("REQUIRED", "OPTIONAL", 1);
            assert!(
                [before, &nullable].contains(&&now.types[at]),
                "{before} of column {} of {}",
                now.names[at],
                R::TABLE
            );
        }
        let names = now.names.iter().zip(&earlier.names);
        let differing: Vec<&String> = names.filter(|(now, earlier)| now != earlier).map(|(now, _)| now).collect();
        assert_eq!(differing, renamed, "renamed columns of {}", R::TABLE);
        assert_eq!(earlier.rows.len(), now.rows.len(), "rows of {}", R::TABLE);
        for (at, (now_row, earlier_row)) in now.rows.iter().zip(&earlier.rows).enumerate() {
            for ((name, now), earlier) in now.names.iter().zip(now_row).zip(earlier_row) {
                assert_eq!(earlier, now, "row {at} of {}, column {name}", R::TABLE);
            }
        }
    }
    let all = AllTables::new();
    check(&all.requests, &["scheduled_at_ns", "keep_alive"]);
    check(&all.series, &[]);
    check(&all.distributions, &[]);
    check(&all.server_series, &[]);
    check(&all.connections, &[]);
    check(&all.wire_requests, &[]);
    check(&all.watch_series, &[]);
    check(&all.taps, &["local", "local_port"]);
    check(
        &all.cache_exchanges,
        &[
            "cacheable",
            "scheduled_at_ns",
            "requested_unix_ms",
            "response_object",
            "response_world",
            "response_kind",
            "response_version",
            "generated_unix_ms",
            "expected_version",
            "body_gzip",
        ],
    );
    check(&all.fleet, &["clock_offset_ns", "local", "local_port"]);
}

/// A Parquet file as read by the generic reader: columns in the order of the file.
struct StoredTable {
    names: Vec<String>,
    types: Vec<String>,
    rows: Vec<Vec<Field>>,
}

impl StoredTable {
    fn read(path: &Path) -> StoredTable {
        let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let columns = reader.metadata().file_metadata().schema_descr().columns();
        let type_of = |column: &ColumnDescPtr| {
            let basic = column.self_type().get_basic_info();
            format!("{} {} {:?}", basic.repetition(), column.physical_type(), basic.logical_type_ref())
        };
        let row = |row: Row| row.get_column_iter().map(|(_, field)| with_present_spelling(field)).collect();
        StoredTable {
            names: columns.iter().map(|column| column.name().to_owned()).collect(),
            types: columns.iter().map(type_of).collect(),
            rows: reader.get_row_iter(None).unwrap().map(|read| row(read.unwrap())).collect(),
        }
    }
}

/// One kind of wrong response was renamed after these files were written: a value, not a column.
fn with_present_spelling(field: &Field) -> Field {
    match field {
        Field::Str(text) => Field::Str(text.replace("achable", "acheable")),
        other => other.clone(),
    }
}

fn earlier(table: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/earlier/{table}.parquet"))
}
