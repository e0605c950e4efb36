//! With parts whose costs are made up, sums are what can be reckoned by hand.

use plan::Waits;
use schema::PartPoint;
use units::Probability;

use super::*;
use crate::predict::parts::prices::Price;

/// Without error: `fixed` microseconds and `per_kb` for each thousand bytes; with receiving half as much again.
fn priced(part: &str, fixed: f64, per_kb: f64) -> Priced {
    let point = |bytes: u64| {
        let cost = (fixed + per_kb * bytes as f64 / 1000.0) * 1e-6;
        PartPoint { bytes, count: 1, processes_s: cost, cores_s: cost * 1.5, elapsed_s: None }
    };
    let points = if per_kb > 0.0 { [0, 1000, 10_000, 100_000].map(point).to_vec() } else { vec![point(0); 3] };
    Priced::of(part, "made up", points).unwrap()
}

fn all() -> Vec<Priced> {
    vec![
        priced(part::RECEIVE, 2.0, 0.5),
        priced(part::SEND, 3.0, 0.2),
        priced(part::PARSE, 0.1, 1.0),
        priced(part::OPEN, 4.0, 0.0),
        priced(part::OPEN_READ, 5.0, 0.1),
        priced(part::OPEN_READ_COLD, 50.0, 0.3),
        priced(part::LOG_LINE, 6.0, 0.0),
        priced(part::LOG_BUFFERED, 0.5, 0.0),
        priced(part::CONNECTION, 20.0, 0.0),
        priced(part::HANDSHAKE_FULL, 300.0, 0.0),
        priced(part::HANDSHAKE_RESUMED, 60.0, 0.0),
        priced(part::RECORDS, 1.0, 0.4),
    ]
}

const SHAPE: Shape = Shape {
    close: false,
    tls: false,
    request_bytes: 1000.0,
    head_bytes: 100.0,
    full: (2000.0, 3000.0),
    resumed: (1000.0, 1000.0),
};

fn us(described: &PartsPlan, shape: &Shape, bytes: u64) -> f64 {
    let (row, [processes, cores]) = class(described, shape, &all(), (bytes, 1.0)).unwrap();
    let terms: f64 = row.terms.iter().map(|term| term.processes_s).sum();
    assert!((terms - processes.value).abs() < 1e-15, "what is shown is what is added up");
    assert!((cores.value - processes.value * 1.5).abs() < 1e-12);
    processes.value * 1e6
}

#[test]
fn a_request_is_its_parts() {
    let usual = PartsPlan::default();
    let near = |got: f64, wanted: f64| assert!((got - wanted).abs() < 1e-6, "{got} {wanted}");
    // Receiving 1,000 bytes 2.5, sending 10,000 5, reading the head 1.1.
    near(us(&usual, &SHAPE, 9900), 8.6);
    near(us(&PartsPlan { parse: false, ..usual.clone() }, &SHAPE, 9900), 7.5);
    near(us(&PartsPlan { log: LogLines::Line, ..usual.clone() }, &SHAPE, 9900), 14.6);
    near(us(&PartsPlan { log: LogLines::Buffered, ..usual.clone() }, &SHAPE, 9900), 9.1);
    let read = PartsPlan { body: BodyFrom::Read, ..usual.clone() };
    near(us(&read, &SHAPE, 9900), 8.6 + 5.99);
    near(us(&PartsPlan { body: BodyFrom::Sendfile, ..usual.clone() }, &SHAPE, 9900), 12.6);
    // One in ten is cold: 52.97 instead of 5.99.
    let cold = PartsPlan { cold: Probability::new(0.1).unwrap(), ..read };
    near(us(&cold, &SHAPE, 9900), 8.6 + 0.9 * 5.99 + 0.1 * 52.97);
    near(us(&PartsPlan { body: BodyFrom::Sendfile, ..cold }, &SHAPE, 9900), 12.6 + 0.1 * (52.97 - 5.99));
}

#[test]
fn connections_and_handshakes_come_with_each_request_where_they_do() {
    let usual = PartsPlan { waits: Waits::Threads, ..PartsPlan::default() };
    let near = |got: f64, wanted: f64| assert!((got - wanted).abs() < 1e-6, "{got} {wanted}");
    let closing = Shape { close: true, ..SHAPE };
    near(us(&usual, &closing, 9900), 28.6);
    // Kept connections shake hands once for many requests: records alone, of 10,000 bytes.
    near(us(&usual, &Shape { tls: true, ..SHAPE }, 9900), 8.6 + 5.0);
    // In full: 300, receiving 2,000 bytes 3, sending 3,000 3.6. Resumed: 60, 2.5 and 3.2.
    let secure = Shape { tls: true, ..closing };
    near(us(&usual, &secure, 9900), 33.6 + 306.6);
    let half = PartsPlan { resumed: Probability::new(0.5).unwrap(), ..usual };
    near(us(&half, &secure, 9900), 33.6 + 0.5 * 306.6 + 0.5 * 65.7);
}

#[test]
fn a_part_that_is_missing_is_named() {
    let without: Vec<Priced> = all().into_iter().filter(|priced| priced.part != part::LOG_LINE).collect();
    let described = PartsPlan { log: LogLines::Line, ..PartsPlan::default() };
    assert_eq!(class(&described, &SHAPE, &without, (0, 1.0)).unwrap_err(), "log-line");
}

#[test]
fn errors_of_parts_add_by_squares_and_those_of_classes_do_not() {
    let mut parts = all();
    for priced in &mut parts {
        let half = match priced.part.as_str() {
            part::RECEIVE => 0.3e-6,
            part::SEND => 0.4e-6,
            _ => 0.0,
        };
        priced.processes = Price::Each(Estimate { value: 1e-6, half });
    }
    let (_, [processes, _]) = class(&PartsPlan::default(), &SHAPE, &parts, (0, 1.0)).unwrap();
    assert!((processes.value - 3e-6).abs() < 1e-12 && (processes.half - 0.5e-6).abs() < 1e-12, "{processes:?}");
    let mixed = mixed(&[(0.25, processes), (0.75, processes)]);
    assert!((mixed.behind.half - 0.5e-6).abs() < 1e-12 && mixed.held && mixed.idle == 0.0);
}
