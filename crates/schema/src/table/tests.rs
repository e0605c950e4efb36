use std::net::SocketAddr;
use std::sync::Arc;

use units::Timestamp;

use super::{Column, Kind, Record, Shape, Value, Values, nanoseconds, zero_or_one};
use crate::{Method, group, record};

group! {
    /// Times of one kind.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Times {
        /// Number of times.
        pub count: u32 [meaning of field],
        /// Largest. Null without times.
        pub max_ns: u64 [null if |times| times.count == 0],
    }
}

record! {
    /// One row of a table
    /// that is only here.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Trial in "trials", 7 rows a part {
        /// When it began.
        pub began_at: Timestamp,
        /// When it ended. Null if it did not.
        pub ended_at: Option<Timestamp>,
        /// Times to the first byte.
        pub first: Times,
        /// Times to the last byte. Null without any.
        pub whole: Times [null if |row| row.whole.count == 0],
        /// HTTP status. Null without one.
        pub code: u16 [name "status", few, null if |row| row.code == 0],
        /// Share that was drawn.
        pub share: f64 [unit "1", blank (1.0)],
        /// Whether it is the last.
        pub last: bool,
        /// 1 if it was kept.
        pub kept: bool [as zero_or_one],
        /// How it was made.
        pub method: Method,
        /// Name that came from outside. Null without one.
        pub optional_bytes: Option<Arc<[u8]>>,
        /// The other end. Null where it is not known.
        pub peer: Option<SocketAddr>,
        /// CPU time. Null where it is not known.
        pub cpu_s: Option<f64> [name "cpu_ns", as nanoseconds],
    }
    besides {
        /// In no column.
        pub note: Option<u8>,
    }
}

fn full() -> Trial {
    Trial {
        began_at: Timestamp::from_nanos(5),
        ended_at: Some(Timestamp::from_nanos(7)),
        first: Times { count: 2, max_ns: 9 },
        whole: Times { count: 1, max_ns: 11 },
        code: 200,
        share: 0.5,
        last: true,
        kept: true,
        method: Method::Put,
        optional_bytes: Some(Arc::from(&b"a\xFF"[..])),
        peer: Some("[2001:2::1]:443".parse().unwrap()),
        cpu_s: Some(0.25),
        note: None,
    }
}

fn column(name: &str) -> Column<Trial> {
    Trial::columns().into_iter().find(|column| column.description.name == name).unwrap()
}

#[test]
fn columns_follow_from_fields_and_options() {
    let table = Trial::table();
    assert_eq!((table.name, table.row, Trial::ROWS_A_PART), ("trials", "One row of a table that is only here.", 7));
    let columns: Vec<_> = table.columns.iter().map(|c| (c.name.as_str(), c.kind, c.unit, c.nullable)).collect();
    assert_eq!(
        columns,
        [
            ("began_at_ns", Kind::Integer, "ns", false),
            ("ended_at_ns", Kind::Integer, "ns", true),
            ("first_count", Kind::Integer, "", false),
            ("first_max_ns", Kind::Integer, "ns", true),
            ("whole_count", Kind::Integer, "", true),
            ("whole_max_ns", Kind::Integer, "ns", true),
            ("status", Kind::Integer, "", true),
            ("share", Kind::Float, "1", false),
            ("last", Kind::Flag, "", false),
            ("kept", Kind::Integer, "", false),
            ("method", Kind::Text, "", false),
            ("optional_bytes", Kind::Text, "", true),
            ("peer", Kind::Text, "", true),
            ("peer_port", Kind::Integer, "", true),
            ("cpu_ns", Kind::Integer, "ns", true),
        ]
    );
    assert_eq!(
        (table.columns[2].about, table.columns[3].about),
        ("Times to the first byte.", "Largest. Null without times.")
    );
    assert_eq!(
        [column("status").shape, column("share").shape, column("kept").shape],
        [Shape::Few, Shape::Any, Shape::Rising]
    );
}

#[test]
fn a_blank_row_is_null_in_every_nullable_column() {
    assert_eq!((Trial::BLANK.share, Trial::BLANK.method), (1.0, Method::Get));
    for column in Trial::columns() {
        let name = &column.description.name;
        assert_eq!(column.get(&Trial::BLANK) == Value::Null, column.description.nullable, "{name}");
        assert_ne!(column.get(&full()), Value::Null, "{name}");
    }
}

#[test]
fn values_round_trip_by_row_and_by_column() {
    let mut row = Trial::BLANK;
    for column in Trial::columns() {
        assert!(column.set(&mut row, column.get(&full())), "{}", column.description.name);
    }
    assert_eq!(row, full());

    let mut values = Values::default();
    column("ended_at_ns").collect(&[full(), Trial::BLANK, full()], &mut values);
    assert_eq!((&values.present[..], &values.integers[..]), (&[1, 0, 1][..], &[7, 7][..]));
    values.clear();
    column("method").collect(&[full(), full(), Trial::BLANK], &mut values);
    assert_eq!((values.text.as_str(), &values.texts[..]), ("PUTGET", &[(0, 3), (0, 3), (3, 6)][..]));
}

#[test]
fn a_value_out_of_range_leaves_the_field_unchanged() {
    for (name, value) in [
        ("status", Value::Integer(65_536)),
        ("status", Value::Integer(-1)),
        ("began_at_ns", Value::Integer(-1)),
        ("method", Value::Text("BREW".into())),
        ("optional_bytes", Value::Text("\\x".into())),
        ("peer", Value::Text("localhost".into())),
        ("peer_port", Value::Integer(65_536)),
        ("last", Value::Integer(1)),
        ("kept", Value::Flag(true)),
        ("cpu_ns", Value::Float(1.0)),
    ] {
        for before in [full(), Trial::BLANK] {
            let mut row = before.clone();
            assert!(!column(name).set(&mut row, value.clone()), "{name}");
            assert_eq!(row, before, "{name}");
        }
    }
}
