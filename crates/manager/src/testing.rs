//! Helpers of the manager's tests: folders, batches, and all rows wherever they are.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use schema::{FleetRow, TapExchange};
use tempfile::TempDir;

use crate::data::Data;
use crate::day_files::{DAY_NS, day_named, files_in};
use crate::days;
use crate::export::{self, Range};
use schema::{TapAddress, TapPeer, TapRow};
use tap_protocol::{Batch, Gauges, Losses};

/// 2026-11-23T03:00:00Z.
pub(crate) const NOW_NS: u64 = 1_795_402_800_000_000_000;
pub(crate) const SECOND_NS: u64 = 1_000_000_000;
/// The manager's clock at the boot of the agents' machines: two days before.
pub(crate) const ZERO_NS: u64 = NOW_NS - 2 * DAY_NS;

/// A test folder, removed with the first of these values, and its contents.
pub(crate) fn data() -> (TempDir, Arc<Data>) {
    let folder = tempfile::tempdir().unwrap();
    let data = Data::open(folder.path()).unwrap();
    days::recover(&data).unwrap();
    (folder, data)
}

/// A stream name from one digit.
pub(crate) fn stream(digit: char) -> String {
    digit.to_string().repeat(32)
}

/// A client's exchange of a millisecond that ended at this time.
pub(crate) fn row(ended_at_ns: u64) -> TapRow {
    let peer = TapPeer { address: TapAddress::Plain([192, 0, 2, 7].into()), port: 443 };
    TapRow {
        connection: Some(3),
        exchange: Some(0),
        last: true,
        pid: 7,
        program: Some("curl".to_owned()),
        peer: Some(peer.clone()),
        local: Some(TapPeer { port: 50_000, ..peer }),
        opened_at_ns: ended_at_ns - 2_000_000,
        setup_ns: Some(500_000),
        sent_first_at_ns: Some(ended_at_ns - 1_000_000),
        sent_last_at_ns: Some(ended_at_ns - 900_000),
        received_first_at_ns: Some(ended_at_ns - 100_000),
        received_last_at_ns: Some(ended_at_ns),
        sent_bytes: 100,
        received_bytes: 1000,
        calls: 3,
        blocked_ns: 700_000,
        closed_at_ns: Some(ended_at_ns),
        connection_bytes: Some(1100),
        ..TapRow::of(&TapExchange::BLANK, &|address| TapAddress::Plain(address))
    }
}

/// A batch of rows that ended at these times, sealed a second after the last.
pub(crate) fn batch(stream: &str, sequence: u64, ends_ns: &[u64]) -> Batch {
    let last = ends_ns.iter().copied().max().unwrap_or(2 * DAY_NS - SECOND_NS);
    Batch {
        stream: stream.to_owned(),
        sequence,
        boot: "boot".to_owned(),
        zero_own_unix_ns: ZERO_NS + 5 * SECOND_NS,
        sealed_at_ns: last + SECOND_NS,
        settings: 1,
        share: 1.0,
        gauges: Gauges::default(),
        losses: Losses::default(),
        programs: Vec::new(),
        rows: ends_ns.iter().map(|end| row(*end)).collect(),
    }
}

/// A row's name, and how often it occurs.
pub(crate) type Found = BTreeMap<(String, u64, u32), usize>;

/// All stored rows, by name.
pub(crate) fn all(data: &Data) -> Vec<FleetRow> {
    let mut rows = Vec::new();
    let range = Range { from_ns: 0, until_ns: u64::MAX >> 1, after: None };
    let exported = export::rows(data, &range, &mut |row| {
        rows.push(row);
        ControlFlow::Continue(())
    });
    assert_eq!(exported.unwrap().missing, Vec::<String>::new());
    rows
}

/// How often each row occurs.
pub(crate) fn found(data: &Data) -> Found {
    let mut found = Found::new();
    for row in all(data) {
        *found.entry((row.stream, row.sequence, row.number)).or_default() += 1;
    }
    found
}

/// Files in the day folders, as `DAY/FILE`.
pub(crate) fn files(data: &Data) -> Vec<String> {
    let days = files_in(&data.days()).unwrap();
    let mut files: Vec<String> = days
        .iter()
        .filter(|day| day_named(day).is_some())
        .flat_map(|day| files_in(&data.days().join(day)).unwrap().into_iter().map(move |file| format!("{day}/{file}")))
        .collect();
    files.sort();
    files
}

/// Files listed in the index.
pub(crate) fn known(data: &Data) -> Vec<String> {
    data.read(|index| {
        let mut statement = index.prepare("SELECT day || '/' || file FROM parts ORDER BY 1")?;
        statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()
    })
    .unwrap()
}

/// A number from the index.
pub(crate) fn number(data: &Data, sql: &str) -> i64 {
    data.read(|index| index.query_row(sql, [], |row| row.get(0))).unwrap()
}
