//! With invented loads, the halves add up to the measured exchange.

use schema::MeasuredLoad;
use units::Bytes;

use super::*;

/// A load whose exchange costs this many microseconds, and half as much again with receive processing.
fn load(request_bytes: f64, response_body_bytes: f64, us: f64) -> LoadResult {
    LoadResult {
        number: 0,
        part: MeasuredLoad {
            rate_per_s: 1000.0,
            busy_processes: us * 1e-3,
            busy_cores: us * 1.5e-3,
            ..MeasuredLoad::default()
        },
        traffic: Some(Traffic {
            up_bytes: request_bytes + 100.0,
            down_bytes: response_body_bytes * 1.05 + 50.0,
            up_packets: 2.0,
            down_packets: 2.0,
            response_body_bytes,
        }),
        completed: 500,
        request_bytes,
        rss_bytes: 0,
        descriptors: None,
        kernel_bytes_each: None,
        connection_s: 0.0,
        connect_s: 0.0,
        loop_busy: 0.0,
        longer_pause_s: 0.0,
    }
}

/// 4 us, 1 us per 10 kB sent, 2 us per 10 kB received, 30 us for a connection; to a hundredth.
fn measured(close: bool) -> Network {
    let exchange = |up: f64, down: f64| {
        [0.99, 1.0, 1.01].map(|off| load(up, down, (4.0 + up * 2e-4 + down * 1e-4) * off)).to_vec()
    };
    let sends = [100.0, 4100.0, 16_100.0, 64_100.0].map(|down| exchange(500.0, down));
    let receives = [2500.0, 7500.0].map(|up| exchange(up, 100.0));
    let connection = exchange(500.0, 100.0).into_iter().map(|mut one| {
        one.part.busy_processes += 30e-3;
        one.part.busy_cores += 45e-3;
        one.traffic = one.traffic.map(|traffic| Traffic { up_packets: 6.0, ..traffic });
        one
    });
    let connection: Vec<LoadResult> = connection.collect();
    network(&sends, &receives, close.then_some(&connection[..]), &ComponentsPlan::default()).unwrap()
}

#[test]
fn receive_and_send_add_up_to_an_exchange() {
    let network = measured(true);
    assert_eq!((network.request_bytes, network.head_bytes), (500.0, 100.0));
    let of = |name: &str| network.parts.iter().find(|measured_component| measured_component.part == name).unwrap();
    for (up, down) in [(500.0, 100.0), (500.0, 16_100.0), (7500.0, 64_100.0), (2000.0, 30_000.0)] {
        let both = of(part::RECEIVE).processes.at(up).plus(of(part::SEND).processes.at(down));
        let expected = (4.0 + up * 2e-4 + down * 1e-4) * 1e-6;
        assert!((both.value / expected - 1.0).abs() < 0.01, "{up} {down}: {} {expected}", both.value);
        let cores = of(part::RECEIVE).cores.at(up).plus(of(part::SEND).cores.at(down));
        assert!((cores.value / expected / 1.5 - 1.0).abs() < 0.01, "{up} {down}");
        // The measured cost lies in its interval, which is no wider than a few hundredths.
        assert!(both.half > 0.0 && both.half < expected * 0.1, "{up} {down}: {both:?}");
    }
    // Each side has half of the smallest exchange.
    let half = of(part::RECEIVE).processes.at(500.0).value;
    assert!((half / 2.055e-6 - 1.0).abs() < 0.01, "{half}");
    let connection = of(part::CONNECTION).processes.at(0.0);
    assert!((connection.value / 30e-6 - 1.0).abs() < 0.01 && connection.half > 0.0, "{connection:?}");
}

#[test]
fn traffic_is_linear_in_bytes_plus_the_connection() {
    let traffic = measured(false).traffic(10_000.0);
    assert!((traffic.down_bytes - 10_550.0).abs() < 1e-6 && (traffic.up_packets - 2.0).abs() < 1e-9, "{traffic:?}");
    let traffic = measured(true).traffic(10_000.0);
    assert!((traffic.up_packets - 6.0).abs() < 1e-9 && traffic.response_body_bytes == 10_000.0, "{traffic:?}");
}

#[test]
fn too_few_loads_give_no_components() {
    assert!(network(&[], &[], None, &ComponentsPlan::default()).is_none());
    assert!(network(&[Vec::new()], &[], None, &ComponentsPlan::default()).is_none());
}

fn plan_for(url: &str) -> PredictPlan {
    let text =
        format!("[load]\nurl = \"{url}\"\nduration = \"1s\"\nheaders = [\"X-Mine: 1\"]\n[path]\nrtt = \"48ms\"\n");
    PredictPlan {
        plan: Plan::from_toml(&text, "plan").unwrap(),
        options: PredictOptions { components: true, ..PredictOptions::default() },
    }
}

#[test]
fn exchange_server_listens_at_the_plans_port() {
    for (typed, expected, port) in [
        ("http://server:8080/10k.bin", "http://server:8080/10k.bin", 8080),
        ("https://server/a/b", "http://server:443/a/b", 443),
        ("http://example.org/", "http://server:80/", 80),
        ("http://[::1]:81/", "http://server:81/", 81),
    ] {
        assert_eq!(url(&plan_for(typed).plan), (expected.to_owned(), port), "{typed}");
    }
}

#[test]
fn component_plans_have_no_distance() {
    let input = plan_for("https://server:8443/10k.bin");
    let described = ComponentsPlan { waits: Waits::Threads, cpu: "10%".parse().ok(), ..ComponentsPlan::default() };
    let words = command(Path::new("/bin/it's"), Path::new("/tmp/x"), &described, (5, true), &input.plan);
    assert!(
        words.contains(
            "'/bin/it'\\''s' serve '/tmp/x' --component exchange --component-bytes 5B \
                            --component-waits threads --component-close --listen 0.0.0.0:8443"
        ),
        "{words}"
    );
    let component_plan = plan(&input, &described, words, 10, true);
    component_plan.plan.check().unwrap();
    assert_eq!(component_plan.plan.load.headers, ["X-Mine: 1", "X-Part: pppppppppp"]);
    assert!(
        component_plan.plan.load.close && component_plan.plan.load.tls.is_none() && !component_plan.options.components
    );
    let path = component_plan.plan.path.unwrap();
    assert_eq!((path.rtt, path.profile), (Some(Duration::ZERO), None));
    assert_eq!(component_plan.plan.server.unwrap().cpu, "10%".parse().ok());
}

#[test]
fn largest_body_is_measured_up_to_a_limit() {
    let of = |size: u64| {
        let object = plan::ObjectPlan { size: Bytes(size), share: 1.0 };
        bodies(&ComponentsPlan { objects: vec![object], ..ComponentsPlan::default() })
    };
    assert_eq!(of(64 << 10), RESPONSE_BODIES);
    assert_eq!(of((64 << 10) + 1).last(), Some(&((64 << 10) + 1)));
    assert_eq!(of(64 << 20).last(), Some(&BODY_MAX));
}
