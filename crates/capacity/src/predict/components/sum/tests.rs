//! Sums of invented costs against figures by hand.

use plan::Waits;
use schema::ComponentPoint;
use units::Probability;

use super::*;
use crate::predict::components::costs::CostLine;

/// Without error: `fixed` microseconds and `per_kb` per thousand bytes; half as much again with receive processing.
fn measured_component(part: &str, fixed: f64, per_kb: f64) -> MeasuredComponent {
    let point = |bytes: u64| {
        let cost = (fixed + per_kb * bytes as f64 / 1000.0) * 1e-6;
        ComponentPoint { bytes, count: 1, processes_s: cost, cores_s: cost * 1.5, elapsed_s: None }
    };
    let points = if per_kb > 0.0 { [0, 1000, 10_000, 100_000].map(point).to_vec() } else { vec![point(0); 3] };
    MeasuredComponent::of(part, "invented", points).unwrap()
}

fn all() -> Vec<MeasuredComponent> {
    vec![
        measured_component(part::RECEIVE, 2.0, 0.5),
        measured_component(part::SEND, 3.0, 0.2),
        measured_component(part::PARSE, 0.1, 1.0),
        measured_component(part::OPEN, 4.0, 0.0),
        measured_component(part::OPEN_READ, 5.0, 0.1),
        measured_component(part::OPEN_READ_COLD, 50.0, 0.3),
        measured_component(part::LOG_LINE, 6.0, 0.0),
        measured_component(part::LOG_BUFFERED, 0.5, 0.0),
        measured_component(part::CONNECTION, 20.0, 0.0),
        measured_component(part::HANDSHAKE_FULL, 300.0, 0.0),
        measured_component(part::HANDSHAKE_RESUMED, 60.0, 0.0),
        measured_component(part::RECORDS, 1.0, 0.4),
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

fn us(described: &ComponentsPlan, shape: &Shape, bytes: u64) -> f64 {
    let (row, [processes, cores]) = class(described, shape, &all(), (bytes, 1.0)).unwrap();
    let terms: f64 = row.terms.iter().map(|term| term.processes_s).sum();
    assert!((terms - processes.value).abs() < 1e-15, "the terms add up to the sum");
    assert!((cores.value - processes.value * 1.5).abs() < 1e-12);
    processes.value * 1e6
}

#[test]
fn request_cost_is_the_sum_of_its_components() {
    let usual = ComponentsPlan::default();
    let near = |actual: f64, expected: f64| assert!((actual - expected).abs() < 1e-6, "{actual} {expected}");
    // Receiving 1,000 bytes 2.5, sending 10,000 5, parsing the head 1.1.
    near(us(&usual, &SHAPE, 9900), 8.6);
    near(us(&ComponentsPlan { parse: false, ..usual.clone() }, &SHAPE, 9900), 7.5);
    near(us(&ComponentsPlan { log: LogLines::Line, ..usual.clone() }, &SHAPE, 9900), 14.6);
    near(us(&ComponentsPlan { log: LogLines::Buffered, ..usual.clone() }, &SHAPE, 9900), 9.1);
    let read = ComponentsPlan { body: BodyFrom::Read, ..usual.clone() };
    near(us(&read, &SHAPE, 9900), 8.6 + 5.99);
    near(us(&ComponentsPlan { body: BodyFrom::Sendfile, ..usual.clone() }, &SHAPE, 9900), 12.6);
    // One in ten is uncached: 52.97 instead of 5.99.
    let cold = ComponentsPlan { cold: Probability::new(0.1).unwrap(), ..read };
    near(us(&cold, &SHAPE, 9900), 8.6 + 0.9 * 5.99 + 0.1 * 52.97);
    near(us(&ComponentsPlan { body: BodyFrom::Sendfile, ..cold }, &SHAPE, 9900), 12.6 + 0.1 * (52.97 - 5.99));
}

#[test]
fn connections_and_handshakes_are_added_per_request() {
    let usual = ComponentsPlan { waits: Waits::Threads, ..ComponentsPlan::default() };
    let near = |actual: f64, expected: f64| assert!((actual - expected).abs() < 1e-6, "{actual} {expected}");
    let closing = Shape { close: true, ..SHAPE };
    near(us(&usual, &closing, 9900), 28.6);
    // Keep-alive connections have one handshake for many requests: records alone, of 10,000 bytes.
    near(us(&usual, &Shape { tls: true, ..SHAPE }, 9900), 8.6 + 5.0);
    // Full: 300, receiving 2,000 bytes 3, sending 3,000 3.6. Resumed: 60, 2.5 and 3.2.
    let secure = Shape { tls: true, ..closing };
    near(us(&usual, &secure, 9900), 33.6 + 306.6);
    let half = ComponentsPlan { resumed: Probability::new(0.5).unwrap(), ..usual };
    near(us(&half, &secure, 9900), 33.6 + 0.5 * 306.6 + 0.5 * 65.7);
}

#[test]
fn missing_component_is_named() {
    let without: Vec<MeasuredComponent> =
        all().into_iter().filter(|measured_component| measured_component.part != part::LOG_LINE).collect();
    let described = ComponentsPlan { log: LogLines::Line, ..ComponentsPlan::default() };
    assert_eq!(class(&described, &SHAPE, &without, (0, 1.0)).unwrap_err(), "log-line");
}

#[test]
fn component_errors_add_by_squares_and_class_errors_linearly() {
    let mut parts = all();
    for measured_component in &mut parts {
        let half = match measured_component.part.as_str() {
            part::RECEIVE => 0.3e-6,
            part::SEND => 0.4e-6,
            _ => 0.0,
        };
        measured_component.processes = CostLine::ItemCost(Estimate { value: 1e-6, half });
    }
    let (_, [processes, _]) = class(&ComponentsPlan::default(), &SHAPE, &parts, (0, 1.0)).unwrap();
    assert!((processes.value - 3e-6).abs() < 1e-12 && (processes.half - 0.5e-6).abs() < 1e-12, "{processes:?}");
    let workload_demand = workload_demand(&[(0.25, processes), (0.75, processes)]);
    assert!(
        (workload_demand.at_saturation.half - 0.5e-6).abs() < 1e-12
            && workload_demand.saturated
            && workload_demand.idle == 0.0
    );
}
