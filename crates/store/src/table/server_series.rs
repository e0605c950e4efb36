//! server_series.parquet: one row a second, what the server used.

use schema::ServerSecond;

use super::{Field, Row, signed, unsigned};

/// A time in seconds.
macro_rules! seconds {
    ($field:ident, $about:literal) => {
        Field::float(
            stringify!($field),
            "s",
            $about,
            |row: &ServerSecond| row.$field,
            |row, value| {
                row.$field = value;
            },
        )
    };
}

/// A time in seconds that may be unknown, stored in whole nanoseconds.
macro_rules! known_time {
    ($field:ident, $name:literal, $about:literal) => {
        Field::integer(
            $name,
            "ns",
            $about,
            |row: &ServerSecond| row.$field.map(|seconds| (seconds * 1e9).round() as i64),
            |row, value| row.$field = Some(value as f64 / 1e9),
        )
        .nullable()
    };
}

/// A count that may be unknown.
macro_rules! known_count {
    ($field:ident, $unit:literal, $about:literal) => {
        Field::integer(
            stringify!($field),
            $unit,
            $about,
            |row: &ServerSecond| row.$field.map(signed),
            |row, value| row.$field = Some(unsigned(value)),
        )
        .nullable()
    };
}

impl Row for ServerSecond {
    const TABLE: &'static str = "server_series";
    const ROW: &'static str = "One second of the measured phase at the server of the lab, as the kernel accounts it.";

    const BLANK: ServerSecond = ServerSecond {
        second: 0,
        at_ns: 0,
        elapsed_s: 0.0,
        cpu_user_s: 0.0,
        cpu_system_s: 0.0,
        cpu_receive_s: None,
        throttled_s: None,
        periods: None,
        periods_throttled: None,
        rss_bytes: 0,
        descriptors: None,
    };

    const FIELDS: &'static [Field<ServerSecond>] = &[
        Field::integer(
            "second",
            "s",
            "Index of the second since the beginning of the measured phase.",
            |row: &ServerSecond| Some(i64::from(row.second)),
            |row, value| row.second = value as u32,
        ),
        Field::integer(
            "at_ns",
            "ns",
            "When it was read, since the run's zero.",
            |row: &ServerSecond| Some(signed(row.at_ns)),
            |row, value| row.at_ns = unsigned(value),
        ),
        seconds!(elapsed_s, "Time since the row before: what the other figures are of."),
        seconds!(cpu_user_s, "Processor time in user mode."),
        seconds!(cpu_system_s, "Processor time in the kernel."),
        known_time!(
            cpu_receive_s,
            "cpu_receive_ns",
            "Receive processing: interrupts on the server's cores that no process was charged for. Null where packets are not received there."
        ),
        known_time!(
            throttled_s,
            "throttled_ns",
            "How long its tasks were held back by the bound on its processor time, summed. Null without one."
        ),
        known_count!(periods, "periods", "Periods of that bound in which it wanted to run. Null without one."),
        known_count!(
            periods_throttled,
            "periods",
            "Of these, those in which it used up its share. Null without a bound."
        ),
        Field::integer(
            "rss_bytes",
            "bytes",
            "Resident memory of all its processes at the end of the second.",
            |row: &ServerSecond| Some(signed(row.rss_bytes)),
            |row, value| row.rss_bytes = unsigned(value),
        ),
        known_count!(
            descriptors,
            "descriptors",
            "Open descriptors of all its processes then. Null where the kernel does not count them."
        ),
    ];
}
