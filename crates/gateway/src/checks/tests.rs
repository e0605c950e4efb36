use std::time::Duration;

use schema::{CheckState, Measured};

use super::*;

fn usage(cpu_ms: u64, share: Option<f64>) -> EmulationUsage {
    let used =
        GatewayUsed { at: Duration::from_secs(10), cpu: Duration::from_millis(cpu_ms), ..GatewayUsed::default() };
    EmulationUsage { used, share, links: Default::default() }
}

#[test]
fn cpu_share_check_tolerates_a_tenth_more() {
    // A tenth of a core over ten seconds is one second; a single overrun of 5 ms is tolerated.
    assert_eq!(share_limit_respected(&usage(1104, Some(0.1))).state, CheckState::Ok);
    let over = share_limit_respected(&usage(1106, Some(0.1)));
    assert_eq!((over.state, over.weight), (CheckState::Failed, Weight::Invalid));
    assert_eq!(share_limit_respected(&usage(9000, None)).state, CheckState::NotApplicable);
}

/// 2 % of half a second are 10 ms; a single overrun of the gateway host is 5 ms.
#[test]
fn cpu_share_check_tolerates_a_single_overrun() {
    let of = |cpu_ms| {
        let mut emulation = usage(cpu_ms, Some(0.02));
        emulation.used.at = Duration::from_millis(500);
        share_limit_respected(&emulation).state
    };
    assert_eq!((of(15), of(17)), (CheckState::Ok, CheckState::Failed));
}

#[test]
fn links_check_tolerates_one_percent_late_packets() {
    let of = |late| {
        let link = LinkFigures { written: 1000, late, ..LinkFigures::default() };
        links_on_time(&EmulationUsage { links: [LinkFigures::default(), link], ..usage(0, None) }).state
    };
    assert_eq!((of(10), of(11)), (CheckState::Ok, CheckState::Failed));
    assert_eq!(links_on_time(&usage(0, None)).state, CheckState::Ok);
}

#[test]
fn single_packet_dropped_by_the_testbed_is_invalid() {
    let link = LinkFigures { unintended_drops: 1, ..LinkFigures::default() };
    let lost = no_unintended_drops(&EmulationUsage { links: [link, LinkFigures::default()], ..usage(0, None) });
    assert_eq!((lost.state, lost.weight), (CheckState::Failed, Weight::Invalid));
    assert_eq!(no_unintended_drops(&usage(0, None)).state, CheckState::Ok);
}

#[test]
fn trials_with_a_deviation_of_a_fifth_are_suspect() {
    let of = |stddev: f64, trials: usize| {
        let figure = Measured { mean: 10.0, stddev: Some(stddev), interval: None, trials: vec![10.0; trials] };
        let condition = GatewayCondition { transactions_per_s: Some(figure), ..GatewayCondition::default() };
        alike(&condition).state
    };
    assert_eq!((of(1.99, 3), of(2.01, 3)), (CheckState::Ok, CheckState::Failed));
    assert_eq!(of(5.0, 2), CheckState::NotApplicable);
}

#[test]
fn proxy_without_responses_fails_the_check() {
    let load = ProxyLoad { achieved_per_s: 0.1, overloaded: true, ..ProxyLoad::default() };
    assert_eq!(proxy_loaded(Ok(&load)).state, CheckState::Ok, "an overloaded proxy is a result");
    assert_eq!(proxy_loaded(Ok(&ProxyLoad::default())).state, CheckState::Failed);
    let gone = proxy_loaded(Err("it ended"));
    assert_eq!((gone.state, gone.why.as_str()), (CheckState::CouldNotRun, "it ended"));
}

#[test]
fn stream_bottleneck_is_the_first_saturated_component() {
    // 90 % of the payload rate of a 10 Mbit/s link.
    let link = 0.9 * 1e7 * 1448.0 / 1500.0;
    let of = |bits, cpu, busiest| stream_bound(bits, Some(1e7), Some(cpu), Some(0.1), busiest, true);
    assert_eq!(of(link + 1.0, 0.1, 1.0), "link");
    assert_eq!(of(link - 1.0, 0.0901, 1.0), "gateway");
    assert_eq!(of(link - 1.0, 0.0899, 0.95), "tester");
    assert_eq!(of(link - 1.0, 0.0899, 0.949), "window");
    assert_eq!(stream_bound(1e6, None, None, None, 0.5, false), "unknown");
    assert_eq!(stream_bound(1e6, None, Some(0.9), None, 0.5, false), "gateway");
}

#[test]
fn different_versions_of_client_and_server_are_suspect() {
    assert_eq!(both_ends_one_version("1", "1").state, CheckState::Ok);
    assert_eq!(both_ends_one_version("1", "2").state, CheckState::Failed);
}
