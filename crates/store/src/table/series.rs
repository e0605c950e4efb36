//! series.parquet: one row a second.

use schema::SecondRecord;

use super::{Cell, Column, Field, Kind, Row, Shape, signed, unsigned};

/// A count.
macro_rules! count {
    ($field:ident, $unit:literal, $about:literal) => {
        Field::integer(
            stringify!($field),
            $unit,
            $about,
            |row: &SecondRecord| Some(signed(row.$field)),
            |row, value| row.$field = unsigned(value),
        )
    };
}

/// A duration that exists only where `$of` is above 0.
macro_rules! figure {
    ($field:ident, $of:ident, $about:literal) => {
        Field::integer(
            stringify!($field),
            "ns",
            $about,
            |row: &SecondRecord| (row.$of > 0).then_some(signed(row.$field)),
            |row, value| row.$field = unsigned(value),
        )
        .nullable()
    };
}

/// A mean of samples.
macro_rules! mean {
    ($field:ident, $unit:literal, $about:literal) => {
        Field::float(
            stringify!($field),
            $unit,
            $about,
            |row: &SecondRecord| row.$field,
            |row, value| {
                row.$field = value;
            },
        )
    };
}

impl Row for SecondRecord {
    const TABLE: &'static str = "series";
    const ROW: &'static str = "One second of the run, counted from the run's zero, warm-up included.";

    const BLANK: SecondRecord = SecondRecord {
        second: 0,
        measured: false,
        offered: 0,
        started: 0,
        completed: 0,
        failed: 0,
        connections_opened: 0,
        bytes_received: 0,
        in_flight_mean: 0.0,
        in_flight_max: 0,
        connections_mean: 0.0,
        connections_max: 0,
        backlog: 0,
        response_p50_ns: 0,
        response_p99_ns: 0,
        response_max_ns: 0,
        send_lag_p99_ns: 0,
    };

    const FIELDS: &'static [Field<SecondRecord>] = &[
        Field::integer(
            "second",
            "s",
            "Index of the second since the run's zero.",
            |row: &SecondRecord| Some(i64::from(row.second)),
            |row, value| row.second = value as u32,
        ),
        Field {
            column: Column {
                name: "measured",
                kind: Kind::Flag,
                unit: "",
                nullable: false,
                about: "Whether the whole second lies in the measured phase.",
            },
            cell: Cell::Flag(|row| row.measured, |row, value| row.measured = value),
            shape: Shape::Any,
        },
        count!(offered, "requests", "Requests whose intended moment lies in this second."),
        count!(started, "requests", "Requests started in this second."),
        count!(completed, "requests", "Requests completed in this second."),
        count!(failed, "requests", "Requests failed in this second."),
        count!(connections_opened, "connections", "Connections on which connect was called in this second."),
        count!(bytes_received, "bytes", "Response bytes of the requests that ended in this second."),
        mean!(in_flight_mean, "requests", "Mean of the sampled number of requests in flight."),
        count!(in_flight_max, "requests", "Largest sampled number of requests in flight."),
        mean!(connections_mean, "connections", "Mean of the sampled number of connections in process."),
        count!(connections_max, "connections", "Largest sampled number of connections in process."),
        count!(backlog, "requests", "Requests intended and not started, at the end of the second."),
        figure!(
            response_p50_ns,
            completed,
            "Median response time of the requests completed in this second. Null where none was."
        ),
        figure!(response_p99_ns, completed, "99th percentile of the same. Null where none was."),
        figure!(response_max_ns, completed, "Largest of the same. Null where none was."),
        figure!(
            send_lag_p99_ns,
            started,
            "99th percentile of the send lag of the requests started in this second. Null where none was."
        ),
    ];
}
