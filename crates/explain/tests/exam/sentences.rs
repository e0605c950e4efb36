//! Sentences and aggregated shares of simulated sets of responses.

use explain::{Cause, Explained, Explanation, Limit, Summary};

use crate::cases::{Inputs, evidence};
use crate::sim::simulate;
use crate::world::{MS, Tls, World};

fn explained(world: &World) -> Explanation {
    explain::explain(&evidence(world, simulate(world), Inputs::All))
}

/// The sentence about one response.
fn sentence(world: &World) -> String {
    let response = Explained { distance_ns: Some(world.rtt), explanation: explained(world) };
    Summary::of(&[response]).sentence
}

#[test]
fn the_sentence_names_limit_figures_and_remedy() {
    let mut world = World::plain(150, 100_000);
    assert_eq!(
        sentence(&world),
        "At 150 ms, of the median response of 451 ms, 66 % is waiting for the congestion window: the server sends \
         10 segments before the first acknowledgement and the response needs 3 round trips; with an initial window of 32 it would need 2 \
         instead of 3 round trips and about 150 ms less."
    );
    world.receive_buffer = 8 << 10;
    let text = sentence(&world);
    assert!(text.contains("waiting for the receive window: the client admits 8 KB in flight; with 128 KB"), "{text}");
    let mut world = World::plain(20, 20_000);
    world.rate = Some(1_000_000);
    let text = sentence(&world);
    assert!(text.contains("transmission at the bottleneck's rate: 20 KB at 1.00 Mbit/s."), "{text}");
    let mut world = World::plain(40, 5_000);
    (world.new_connection, world.tls) = (true, Tls::Full);
    let text = sentence(&world);
    assert!(
        text.contains("the TLS handshake: it takes 80.0 ms; with a resumed session it would need about 40.0 ms less"),
        "{text}"
    );
}

#[test]
fn the_limit_after_distance_has_a_sentence() {
    // The second round trip is shorter by what the bottleneck transmits meanwhile.
    let text = sentence(&World::plain(48, 40_000));
    assert!(text.contains("is distance: the round trip is 48.0 ms. Another "), "{text}");
    assert!(text.contains("is waiting for the congestion window: the server sends 10 segments before"), "{text}");
    // On a connection that is opened for the response it is the initial window.
    let mut world = World::plain(48, 200_000);
    world.new_connection = true;
    let text = sentence(&world);
    assert!(text.contains("the server's initial window is 10 segments and the response needs"), "{text}");
    // A response that is nearly all distance has no second limit.
    let text = sentence(&World::plain(48, 5_000));
    assert!(text.contains("is distance") && !text.contains("Another"), "{text}");
}

#[test]
fn http2_with_a_small_window_is_explained_as_in_curl_1102() {
    // The case of curl's issue 1102: 23 MB at 33 ms over HTTP/2 with windows of 64 KB took 8.3 s instead of 1.1 s.
    let mut world = World::plain(33, 23_000_000);
    (world.stream_window, world.noise) = (Some(65_535), true);
    let explanation = explained(&world);
    let dominant = explanation.dominant().expect("it takes time");
    assert_eq!(dominant.limit, Limit::Of(Cause::Http2StreamWindow));
    let text = sentence(&world);
    assert!(text.contains("waiting for the HTTP/2 stream window: the client's window is 64 KB"), "{text}");
}

#[test]
fn a_summary_has_percentiles_distances_and_the_slowest() {
    let mut responses = Vec::new();
    for rtt in [10, 150] {
        for number in 0..50 {
            let mut world = World::plain(rtt, 100_000);
            world.processing = number * MS;
            responses.push(Explained { distance_ns: Some(world.rtt), explanation: explained(&world) });
        }
    }
    let summary = Summary::of(&responses);
    assert_eq!(summary.responses, 100);
    assert_eq!(summary.slowest, [99, 98, 97, 96, 95]);
    assert_eq!(summary.percentiles.iter().map(|group| group.percentile).collect::<Vec<_>>(), [5_000, 9_500, 9_900]);
    let distances: Vec<_> = summary.distances.iter().map(|group| (group.distance_ns, group.example)).collect();
    assert_eq!(distances, [(Some(10 * MS), 24), (Some(150 * MS), 74)]);
    for group in summary.percentiles.iter().chain(&summary.distances) {
        let sum: u64 = group.shares.iter().map(|share| share.time_ns).sum();
        assert!(group.response_time_ns.abs_diff(sum) <= group.shares.len() as u64, "{group:?}");
    }
    // The far median is the longer one: the sentence is about it.
    assert!(summary.sentence.starts_with("At 150 ms"), "{}", summary.sentence);
    assert_eq!(Summary::of(&[]).sentence, "No response to explain.");
    // Of 20 responses the slowest is at p95, and none at p99.
    let few = Summary::of(&responses[..20]);
    assert_eq!(few.percentiles.iter().map(|group| group.percentile).collect::<Vec<_>>(), [5_000, 9_500]);
}

#[test]
fn the_last_packet_lost_is_told_from_other_losses() {
    let mut world = World::plain(60, 10_000);
    world.lose_last = true;
    let explanation = explained(&world);
    assert!(explanation.time_of(Cause::TailLoss) >= 200 * MS, "{:?}", explanation.shares());
    assert_eq!(explanation.time_of(Cause::FastRetransmit) + explanation.time_of(Cause::RetransmissionTimeout), 0);
}

#[test]
fn the_generator_that_reads_late_is_the_generator() {
    let mut world = World::plain(10, 10_000);
    world.receive_lag = 30 * MS;
    assert_eq!(explained(&world).time_of(Cause::ReceiveLag), 30 * MS);
}

#[test]
fn a_stop_of_the_server_has_a_sentence_of_its_own_at_p99() {
    let response = |number: u64| {
        let mut world = World::plain(20, 10_000);
        world.processing = if number < 97 { MS } else { 1_400 * MS };
        Explained { distance_ns: Some(world.rtt), explanation: explained(&world) }
    };
    let sentence = |count: u64| Summary::of(&(0..count).map(response).collect::<Vec<_>>()).sentence;
    let with_stop = sentence(100);
    assert!(with_stop.contains("the median response") && with_stop.contains("is distance"), "{with_stop}");
    assert!(with_stop.contains("Of the p99 response of 1.4"), "{with_stop}");
    assert!(with_stop.ends_with("% is server processing."), "{with_stop}");
    assert!(!sentence(97).contains("p99"), "without a stop");
}
